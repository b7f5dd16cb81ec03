"""The assignors, by tables and by properties of every group; test_assignors_in_kafka.py compares them with Kafka's."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec import consumer_protocol as wire
from ottla.codec import messages
from ottla.errors import DecodeError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors import (
    ASSIGNORS,
    Assignor,
    Member,
    Partitions,
    build_assigned,
    build_subscription,
    by_id,
    by_instance,
    parse_assigned,
    parse_member,
)

Assignment = Mapping[str, Sequence[TopicPartition]]
STICKY = ("sticky", "cooperative-sticky")


def member(name: str, topics: str, owned: str = "", generation: int = -1, *, instance: str | None = None) -> Member:
    """``"a b"`` are topics, ``"a0 b1"`` are partitions."""
    had = tuple((each[0], int(each[1:])) for each in owned.split())
    memory = ASSIGNORS["sticky"].user_data(had, generation)
    return Member(name, frozenset(topics.split()), instance, had, generation, None, memory)


def assign(name: str, partitions: Mapping[str, int], *members: Member) -> dict[str, str]:
    """The shares as strings, in the order of the assignor."""
    assignment = ASSIGNORS[name].assign(partitions, members)
    return {each: " ".join(f"{topic}{partition}" for topic, partition in mine) for each, mine in assignment.items()}


@pytest.mark.parametrize(
    ("name", "partitions", "members", "expected"),
    [
        ("range", {"a": 3, "b": 3}, ["x:a b", "y:a b"], {"x": "a0 a1 b0 b1", "y": "a2 b2"}),
        ("range", {"a": 1}, ["x:a", "y:a", "z:a"], {"x": "a0", "y": "", "z": ""}),
        ("range", {"a": 5, "b": 2}, ["x:a", "y:a b"], {"x": "a0 a1 a2", "y": "a3 a4 b0 b1"}),
        ("range", {}, ["x:gone"], {"x": ""}),
        ("roundrobin", {"a": 3, "b": 3}, ["x:a b", "y:a b"], {"x": "a0 a2 b1", "y": "a1 b0 b2"}),
        (
            "roundrobin",
            {"a": 1, "b": 2, "c": 3},
            ["x:a", "y:a b", "z:a b c"],
            {"x": "a0", "y": "b0", "z": "b1 c0 c1 c2"},
        ),
        ("roundrobin", {"a": 1, "alone": 4}, ["x:a gone"], {"x": "a0"}),
        (
            "sticky",
            {"a": 2, "b": 2, "c": 2, "d": 2},
            ["x:a b c d", "y:a b c d", "z:a b c d"],
            {"x": "a0 b1 d0", "y": "a1 c0 d1", "z": "b0 c1"},
        ),
        ("sticky", {"a": 1, "b": 2, "c": 3}, ["x:a", "y:a b", "z:a b c"], {"x": "a0", "y": "b0 b1", "z": "c0 c1 c2"}),
    ],
)
def test_examples_of_kafkas_documentation(
    name: str, partitions: dict[str, int], members: list[str], expected: dict[str, str]
) -> None:
    named = [each.split(":") for each in members]
    assert assign(name, partitions, *(member(each, topics) for each, topics in named)) == expected


@pytest.mark.parametrize(
    ("members", "racks", "expected"),
    [
        # Each member gets partitions in its own rack first, then the others; the sizes are the same as without racks.
        (["x:a:1", "y:a:2"], {"a": "2 1 2 1"}, {"x": "a1 a3", "y": "a0 a2"}),
        (["x:a:1", "y:a:2"], {"a": "1 1 1 2"}, {"x": "a0 a1", "y": "a2 a3"}),
        (["x:a:1", "y:a:2", "z:a:3"], {"a": "3 2 1 1"}, {"x": "a2 a3", "y": "a1", "z": "a0"}),
        (["w:a:-", "x:a:3", "y:a:1"], {"a": "123 2"}, {"w": "a0", "x": "a1", "y": ""}),
        # A member without a rack is near to all partitions.
        (["x:a:-", "y:a:2"], {"a": "2 2 1 1"}, {"x": "a0 a1", "y": "a2 a3"}),
        # Racks make no difference if all partitions are in all racks, or in none of a member's.
        (["x:a:1", "y:a:2"], {"a": "12 12 12"}, {"x": "a0 a1", "y": "a2"}),
        (["x:a:1", "y:a:2"], {"a": "3 4 3"}, {"x": "a0 a1", "y": "a2"}),
        # Topics with equal partition counts and subscribers are assigned together, by rack only if all of them fit.
        (["x:a b:1", "y:a b:2"], {"a": "2 2 1 1", "b": "2 1 1 2"}, {"x": "a1 a2 b1 b2", "y": "a0 a3 b0 b3"}),
        (["x:a b:1", "y:a b:2"], {"a": "2 1", "b": "2 1 1"}, {"x": "a1 b1 b2", "y": "a0 b0"}),
    ],
)
def test_range_gives_members_what_is_near_to_them(
    members: list[str], racks: dict[str, str], expected: dict[str, str]
) -> None:
    told = [each.split(":") for each in members]
    near = {(t, p): frozenset(each) for t, all_of in racks.items() for p, each in enumerate(all_of.split())}
    counts = {topic: len(each.split()) for topic, each in racks.items()}
    group = [replace(member(name, topics), rack=None if rack == "-" else rack) for name, topics, rack in told]
    assert assign("range", Partitions(counts, near), *group) == expected
    # If partitions have no racks, the members' racks make no difference.
    assert assign("range", counts, *group) == assign("range", Partitions(counts, {}), *group)


def test_a_static_member_keeps_its_place_under_a_new_member_id() -> None:
    old = [member("z", "a", instance="1"), member("y", "a", instance="2"), member("a", "a")]
    new = [member("b", "a", instance="1"), member("c", "a", instance="2"), member("a", "a")]
    for name in ("range", "roundrobin"):
        assert list(assign(name, {"a": 3}, *old).values()) == ["a0", "a1", "a2"]
        assert list(assign(name, {"a": 3}, *new).values()) == ["a0", "a1", "a2"]


def test_members_are_ordered_as_java_orders_strings() -> None:
    late, early = "\uff5e", "\U00010000"  # in UTF-16, the second begins with a surrogate
    assert late < early
    members = [Member(late, frozenset()), Member(early, frozenset())]
    assert [each.member_id for each in sorted(members, key=by_id)] == [early, late]
    assert [each.member_id for each in sorted(members, key=by_instance)] == [early, late]


@pytest.mark.parametrize("name", STICKY)
def test_of_two_claims_the_newer_generation_has_it(name: str) -> None:
    members = member("x", "a", "a0 a1", 4), member("y", "a", "a1 a2", 5)
    assert assign(name, {"a": 3}, *members) == {"x": "a0", "y": "a1 a2"}
    members = member("x", "a", "a0 a1", 5), member("y", "a", "a1 a2", 4)
    assert assign(name, {"a": 3}, *members) == {"x": "a0 a1", "y": "a2"}


def test_of_two_claims_of_one_generation_neither_counts() -> None:
    both = member("x", "a", "a0 a1", 5), member("y", "a", "a0 a2 a3", 5)
    assert assign("sticky", {"a": 4}, *both) == {"x": "a0 a1", "y": "a2 a3"}
    # Cooperative members keep reading what they claim: both revoke a partition with two claims before one gets it.
    assert assign("cooperative-sticky", {"a": 4}, *both) == {"x": "a1", "y": "a2 a3"}
    third = member("z", "a", "a0", 6)
    assert assign("sticky", {"a": 4}, *both, third) == {"x": "a1", "y": "a2 a3", "z": "a0"}


def test_what_moves_is_held_back_until_the_old_owner_has_let_it_go() -> None:
    old, new = member("x", "a", "a0 a1 a2 a3", 1), member("y", "a")
    assert assign("sticky", {"a": 4}, old, new) == {"x": "a0 a1", "y": "a2 a3"}
    assert assign("cooperative-sticky", {"a": 4}, old, new) == {"x": "a0 a1", "y": ""}
    assert assign("cooperative-sticky", {"a": 4}, member("x", "a", "a0 a1", 2), new) == {"x": "a0 a1", "y": "a2 a3"}


def test_a_partition_whose_owner_no_longer_wants_the_topic_is_held_back_too() -> None:
    members = member("x", "b", "a0", 1), member("y", "a")
    assert assign("cooperative-sticky", {"a": 1, "b": 1}, *members) == {"x": "b0", "y": ""}


@pytest.mark.parametrize("name", STICKY)
def test_what_is_no_longer_there_is_not_kept(name: str) -> None:
    members = member("x", "a b", "a0 a7 b0", 1), member("y", "a", "a1", 1)
    assert assign(name, {"a": 2}, *members) == {"x": "a0", "y": "a1"}


def test_a_chain_evens_out_what_no_single_move_can() -> None:
    members = member("x", "a b", "a0 a1 b0", 1), member("y", "b c", "b1 c0", 1), member("z", "c", "", 1)
    assert assign("sticky", {"a": 2, "b": 2, "c": 1}, *members) == {"x": "a0 a1", "y": "b0 b1", "z": "c0"}


def test_what_is_taken_is_spread_over_topics() -> None:
    owned = " ".join(f"{topic}{partition}" for topic in "abcd" for partition in range(2))
    shares = assign("sticky", dict.fromkeys("abcd", 2), member("x", "a b c d", owned, 1), member("y", "a b c d"))
    assert shares == {"x": "a0 b0 c0 d0", "y": "a1 b1 c1 d1"}


def test_generations_are_found_where_older_members_put_them() -> None:
    sticky = wire.StickyAssignorUserData(previous_assignment=(wire.TopicPartition(topic="a", partitions=(0,)),))
    members = (
        Member("x", frozenset("a"), user_data=messages.build(sticky, 0)),  # before KIP-341: without a generation
        member("y", "a", "a0 a1", 0),
    )
    assert assign("sticky", {"a": 2}, *members) == {"x": "a1", "y": "a0"}
    cooperative = ASSIGNORS["cooperative-sticky"]
    members = (
        Member("x", frozenset("a"), owned=(("a", 0),), user_data=cooperative.user_data((), 7)),  # before KIP-792
        member("y", "a", "a0 a1", 6),
    )
    assert assign("cooperative-sticky", {"a": 2}, *members) == {"x": "a0", "y": "a1"}


@pytest.mark.parametrize("name", STICKY)
def test_user_data_that_cannot_be_read_is_no_claim(name: str) -> None:
    odd = Member("x", frozenset("a"), user_data=b"\x7f")
    assert assign(name, {"a": 2}, odd, member("y", "a", "a0", 1)) == {"x": "a1", "y": "a0"}


def test_a_subscription_comes_back_as_the_member_that_sent_it() -> None:
    had = (("a", 0), ("a", 2), ("b", 1))
    for name, assignor in ASSIGNORS.items():
        for cooperative in {False, assignor.cooperative}:
            sent = build_subscription(assignor, {"b", "a"}, owned=had, generation=3, cooperative=cooperative, rack="r")
            owned = had if cooperative else ()
            user_data = assignor.user_data(had, 3)
            assert (user_data is None) == (name in ("range", "roundrobin"))
            assert parse_member("m", "i", sent) == Member("m", frozenset("ab"), "i", owned, 3, "r", user_data)
    assert parse_assigned(build_assigned(reversed(had))) == had
    assert parse_assigned(b"") == ()
    with pytest.raises(DecodeError):
        parse_member("m", None, b"\0")


def test_a_custom_assignor_is_any_object_of_that_shape() -> None:
    class FirstTakesAll:
        name = "first-takes-all"
        cooperative = False

        def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
            return b"mine"

        def assign(self, partitions: Mapping[str, int], members: Sequence[Member]) -> Assignment:
            taken: dict[str, list[TopicPartition]] = {each.member_id: [] for each in members}
            first = min(members, key=by_instance)
            taken[first.member_id] = [(t, p) for t in sorted(first.topics) for p in range(partitions.get(t, 0))]
            return taken

    assignor: Assignor = FirstTakesAll()
    members = [parse_member(name, None, build_subscription(assignor, ["a"])) for name in "yx"]
    assert members[0].user_data == b"mine"
    assert assignor.assign({"a": 2}, members) == {"x": [("a", 0), ("a", 1)], "y": []}


# -- properties of every group ---------------------------------------------------------------------------------------

QUICK = settings(max_examples=50)
TOPICS = "abcdef"
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))
seeds = st.randoms(use_true_random=False)


@st.composite
def groups(draw: st.DrawFn, alike: bool = False, least: int = 0) -> tuple[dict[str, int], list[Member]]:
    """Partitions, and members that own no partitions and subscribe to ``least`` topics or more."""
    partitions = draw(counts)
    wanted = st.frozensets(st.sampled_from(TOPICS), min_size=least)
    same = draw(wanted)
    names = draw(st.permutations("mnopqrst"))[: draw(st.integers(1, 8))]
    return partitions, [Member(name, same if alike else draw(wanted)) for name in names]


def after(members: Sequence[Member], assignment: Assignment, generation: int) -> list[Member]:
    """The members as they rejoin, owning their shares of this assignment."""
    sticky = ASSIGNORS["sticky"]
    return [
        replace(
            each,
            owned=tuple(assignment[each.member_id]),
            generation=generation,
            user_data=sticky.user_data(assignment[each.member_id], generation),
        )
        for each in members
    ]


def readable(partitions: Mapping[str, int], members: Sequence[Member]) -> list[TopicPartition]:
    """All partitions of subscribed topics."""
    wanted = frozenset().union(*(each.topics for each in members))
    return [
        (topic, partition) for topic in sorted(wanted & partitions.keys()) for partition in range(partitions[topic])
    ]


def could_be_relieved(partitions: Mapping[str, int], members: Sequence[Member], assignment: Assignment) -> list[str]:
    """Moves, also along chains, that would make the assignment more even; found by brute force."""
    loads = {name: len(mine) for name, mine in assignment.items()}
    takers = {
        each.member_id: {
            other.member_id for topic, _ in assignment[each.member_id] for other in members if topic in other.topics
        }
        for each in members
    }
    reach = {name: set(each) for name, each in takers.items()}
    for _ in members:
        reach = {name: each.union(*(reach[other] for other in each)) for name, each in reach.items()}
    return [f"{giver} -> {taker}" for giver in reach for taker in reach[giver] if loads[taker] <= loads[giver] - 2]


def moved(before: Assignment, later: Assignment) -> int:
    """How many partitions members lost."""
    return sum(len(set(mine) - set(later.get(name, ()))) for name, mine in before.items())


@pytest.mark.parametrize("name", ASSIGNORS)
@QUICK
@given(group=groups(), chance=seeds)
def test_each_partition_is_read_by_one_member_that_wants_it_in_whatever_order_they_came(
    name: str, group: tuple[dict[str, int], list[Member]], chance: random.Random
) -> None:
    partitions, members = group
    assignment = ASSIGNORS[name].assign(partitions, members)
    assert assignment.keys() == {each.member_id for each in members}
    assert sorted(place for mine in assignment.values() for place in mine) == readable(partitions, members)
    assert all(topic in each.topics for each in members for topic, _ in assignment[each.member_id])
    chance.shuffle(members)
    assert ASSIGNORS[name].assign(partitions, members) == assignment


@pytest.mark.parametrize("name", ["roundrobin", *STICKY])
@QUICK
@given(group=groups(alike=True))
def test_members_that_want_the_same_differ_by_one_at_most(
    name: str, group: tuple[dict[str, int], list[Member]]
) -> None:
    loads = [len(mine) for mine in ASSIGNORS[name].assign(*group).values()]
    assert max(loads) - min(loads) <= 1


@QUICK
@given(group=groups())
def test_range_gives_a_topic_in_runs_that_differ_by_one_at_most(group: tuple[dict[str, int], list[Member]]) -> None:
    partitions, members = group
    assignment = ASSIGNORS["range"].assign(*group)
    for topic in partitions:
        mine = [[p for t, p in assignment[each.member_id] if t == topic] for each in members if topic in each.topics]
        assert all(run == list(range(run[0], run[0] + len(run))) for run in mine if run)
        assert not mine or max(map(len, mine)) - min(map(len, mine)) <= 1


@QUICK
@given(group=groups(), claims=seeds)
def test_sticky_is_as_even_as_can_be_whatever_members_had(
    group: tuple[dict[str, int], list[Member]], claims: random.Random
) -> None:
    partitions, members = group
    assignment = ASSIGNORS["sticky"].assign(partitions, claimed(partitions, members, claims))
    assert sorted(place for mine in assignment.values() for place in mine) == readable(partitions, members)
    assert not could_be_relieved(partitions, members, assignment)


def claimed(partitions: Mapping[str, int], members: Sequence[Member], chance: random.Random) -> list[Member]:
    """The members with all kinds of claims: the same partition twice, topics of others, missing partitions."""
    places = [(topic, partition) for topic in TOPICS for partition in range(partitions.get(topic, 0) + 1)]
    owned = {each.member_id: chance.sample(places, chance.randint(0, len(places) // 2)) for each in members}
    return [after([each], owned, chance.randint(1, 3))[0] for each in members]


@pytest.mark.parametrize("name", STICKY)
@QUICK
@given(group=groups())
def test_who_joins_again_without_a_change_keeps_what_it_had(
    name: str, group: tuple[dict[str, int], list[Member]]
) -> None:
    partitions, members = group
    first = ASSIGNORS[name].assign(partitions, members)
    assert ASSIGNORS[name].assign(partitions, after(members, first, 1)) == first


@QUICK
@given(group=groups(alike=True))
def test_a_member_that_leaves_moves_its_own_partitions_only(group: tuple[dict[str, int], list[Member]]) -> None:
    partitions, members = group
    first = ASSIGNORS["sticky"].assign(partitions, members)
    left = after(members[1:], first, 1)
    second = ASSIGNORS["sticky"].assign(partitions, left)
    assert moved({each.member_id: first[each.member_id] for each in left}, second) == 0


@QUICK
@given(group=groups(alike=True))
def test_a_member_that_joins_takes_no_more_than_its_share(group: tuple[dict[str, int], list[Member]]) -> None:
    partitions, members = group
    first = ASSIGNORS["sticky"].assign(partitions, members[1:])
    second = ASSIGNORS["sticky"].assign(partitions, [members[0], *after(members[1:], first, 1)])
    assert moved(first, second) == len(second[members[0].member_id]) if members[1:] else True


@QUICK
@given(group=groups(), claims=seeds)
def test_nothing_has_two_readers_in_a_cooperative_group_and_two_rounds_end_it(
    group: tuple[dict[str, int], list[Member]], claims: random.Random
) -> None:
    partitions, members = group
    cooperative = ASSIGNORS["cooperative-sticky"]
    members = claimed(partitions, members, claims)
    first = cooperative.assign(partitions, members)
    for each in members:
        claimants = {place: other.member_id for other in members for place in other.owned if other is not each}
        gained = set(first[each.member_id]) - set(each.owned)
        assert gained.isdisjoint(claimants), "assigned while another member still reads it"
    owners = Counter(place for mine in first.values() for place in mine)
    assert not owners or max(owners.values()) == 1
    second = cooperative.assign(partitions, after(members, first, 4))
    assert moved(first, second) == 0, "the second round moves no partition"
    assert sorted(place for mine in second.values() for place in mine) == readable(partitions, members)
    assert not could_be_relieved(partitions, members, second)
    assert cooperative.assign(partitions, after(members, second, 5)) == second
