"""The assignors compared with Apache Kafka's: Kafka's classes read our subscriptions, and assign no more evenly."""

import random
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors import ASSIGNORS, Member, Partitions, build_subscription, parse_assigned, parse_member
from tests.kafka import java
from tests.sdk.test_assignors import STICKY, after, groups, moved, seeds

pytestmark = pytest.mark.slow

MANY = settings(max_examples=200)

Shares = dict[str, list[TopicPartition]]


class Kafka:
    """Apache Kafka's own assignors, in a JVM: see Assignors.java."""

    def __init__(self) -> None:
        program = Path(__file__).parent / "java" / "Assignors.java"
        self._jvm = subprocess.Popen(
            java(str(program), log="off"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def assign(self, name: str, partitions: Mapping[str, int], members: Sequence[Member]) -> Shares:
        wanted = frozenset().union(*(each.topics for each in members))  # the caller leaves out all other topics
        topics = [f"{topic}={where(partitions, topic)}" for topic in sorted(wanted & partitions.keys())]
        sent = [f"{each.member_id}/{each.instance_id or '-'}/{subscription(name, each).hex()}" for each in members]
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        print(name, *topics, *sent, file=self._jvm.stdin, flush=True)
        answer = self._jvm.stdout.readline()
        assert answer, "the JVM has ended"
        assert not answer.startswith("!"), answer
        shares = (each.split("/") for each in answer.split())
        return {member_id: sorted(parse_assigned(bytes.fromhex(assigned))) for member_id, assigned in shares}

    def close(self) -> None:
        self._jvm.communicate()


def where(partitions: Mapping[str, int], topic: str) -> str:
    """The racks of each partition, in the format that the program in the JVM reads."""
    racks = partitions.racks if isinstance(partitions, Partitions) else {}
    return ";".join(",".join(sorted(racks.get((topic, each), ()))) for each in range(partitions[topic]))


def subscription(name: str, member: Member) -> bytes:
    assignor = ASSIGNORS[name]
    return build_subscription(
        assignor,
        member.topics,
        owned=member.owned,
        generation=member.generation,
        cooperative=assignor.cooperative,
        rack=member.rack,
    )


def told(name: str, members: Sequence[Member]) -> list[Member]:
    """The members as our group leader would parse them."""
    return [parse_member(each.member_id, each.instance_id, subscription(name, each)) for each in members]


def ours(name: str, partitions: Mapping[str, int], members: Sequence[Member]) -> Shares:
    return {each: sorted(mine) for each, mine in ASSIGNORS[name].assign(partitions, told(name, members)).items()}


def unevenness(assignment: Shares) -> int:
    """Kafka's measure: the difference of the partition counts, summed over all pairs of members."""
    loads = [len(mine) for mine in assignment.values()]
    return sum(abs(one - other) for index, one in enumerate(loads) for other in loads[index + 1 :])


@pytest.fixture(scope="module")
def kafka_assignors() -> Iterator[Kafka]:
    kafka = Kafka()
    yield kafka
    kafka.close()


def static(members: list[Member], chance: random.Random) -> list[Member]:
    """Give some members an instance id, which changes their order."""
    ids = chance.sample("abcdefgh", len(members))
    return [replace(each, instance_id=chance.choice([None, name])) for each, name in zip(members, ids, strict=True)]


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_round_robin_divide_as_kafka_does(kafka_assignors: Kafka, name: str) -> None:
    @MANY
    @given(group=groups(), chance=seeds)
    def check(group: tuple[dict[str, int], list[Member]], chance: random.Random) -> None:
        partitions, members = group
        members = static(members, chance)
        assert ours(name, partitions, members) == kafka_assignors.assign(name, partitions, members)

    check()


def in_racks(
    partitions: dict[str, int], members: list[Member], chance: random.Random
) -> tuple[Partitions, list[Member]]:
    """Partitions with replicas in some of three racks or without racks, and members of which some have a rack."""
    names = chance.sample(["1", "2", "3"], chance.randint(1, 3))
    most = chance.randint(0, len(names))
    racks = {
        (topic, partition): frozenset(chance.sample(names, chance.randint(min(1, most), most)))
        for topic, count in partitions.items()
        for partition in range(count)
    }
    return Partitions(partitions, racks), [replace(each, rack=chance.choice([*"1234", None])) for each in members]


@pytest.mark.deep
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_range_looks_at_racks_as_kafka_does(kafka_assignors: Kafka, alike: bool) -> None:
    differ: list[bool] = []

    @settings(max_examples=500)
    @given(group=groups(alike=alike, least=1), chance=seeds)
    def check(group: tuple[dict[str, int], list[Member]], chance: random.Random) -> None:
        counts, members = group
        if chance.random() < 0.5:
            counts = dict.fromkeys(counts, chance.randint(1, 9))
        partitions, members = in_racks(counts, static(members, chance), chance)
        mine = ours("range", partitions, members)
        assert mine == kafka_assignors.assign("range", partitions, members)
        differ.append(mine != ours("range", counts, members))

    check()
    assert sum(differ) > 20, "racks mattered"


@pytest.mark.deep
@pytest.mark.parametrize("name", STICKY)
def test_a_new_group_that_wants_the_same_is_divided_as_kafka_does(kafka_assignors: Kafka, name: str) -> None:
    @MANY
    @given(group=groups(alike=True))
    def check(group: tuple[dict[str, int], list[Member]]) -> None:
        assert ours(name, *group) == kafka_assignors.assign(name, *group)

    check()


@pytest.mark.deep
@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_sticky_is_no_less_even_than_kafkas_and_where_it_is_as_even_moves_no_more(
    kafka_assignors: Kafka, name: str, alike: bool
) -> None:
    by_us: list[int] = []
    by_kafka: list[int] = []

    @MANY
    # Kafka's may assign partitions to members without a subscription, so every member here has one.
    @given(group=groups(alike=alike, least=1), chance=seeds)
    def check(group: tuple[dict[str, int], list[Member]], chance: random.Random) -> None:
        partitions, members = group
        first = kafka_assignors.assign(name, partitions, members)
        members = changes(members, first, chance, alike)
        partitions = {topic: count + chance.choice([0, 0, 1, 3]) for topic, count in partitions.items()}
        mine = at_rest(ours, name, partitions, members)
        theirs = at_rest(kafka_assignors.assign, name, partitions, members)
        assert unevenness(mine) <= unevenness(theirs)
        if unevenness(mine) == unevenness(theirs):
            by_us.append(moved(first, mine))
            by_kafka.append(moved(first, theirs))
            assert not alike or by_us[-1] <= by_kafka[-1]

    check()
    # If members want different topics, chance decides which of them gets one more, and that may cost a move.
    assert sum(by_us) <= sum(by_kafka)


def changes(members: list[Member], first: Shares, chance: random.Random, alike: bool) -> list[Member]:
    """Some members leave, some join, and some change their topics."""
    left = [each for each in after(members, first, 1) if chance.random() < 0.8]
    new = [Member(name, chance.choice(members).topics) for name in "abc" if chance.random() < 0.4]
    both = left + new
    if not alike:
        both = [replace(each, topics=chance.choice(members).topics) if chance.random() < 0.2 else each for each in both]
    return both or members[:1]


def at_rest(
    assign: Callable[[str, Mapping[str, int], Sequence[Member]], Shares],
    name: str,
    partitions: Mapping[str, int],
    members: Sequence[Member],
) -> Shares:
    """The assignment once it is stable; a cooperative group needs another round or two."""
    assignment = assign(name, partitions, members)
    for generation in range(2, 6):
        again = assign(name, partitions, after(members, assignment, generation))
        if again == assignment:
            return assignment
        assignment = again
    raise AssertionError(f"{name} does not become stable: {assignment}")
