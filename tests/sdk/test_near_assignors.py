"""The sticky assignors with racks: as many members read near replicas as an even and sticky assignment allows."""

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given

from ottla.sdk.group.assignors import ASSIGNORS, Member, Partitions
from ottla.sdk.group.assignors.nearness import bring_near
from tests.sdk.test_assignors import QUICK, STICKY, after, could_be_relieved, groups, member, moved, readable, seeds

Assignment = Mapping[str, Sequence[tuple[str, int]]]


def located(partitions: Mapping[str, int], chance: random.Random) -> Partitions:
    """Each partition with replicas in one or two of three racks."""
    places = [(topic, partition) for topic in sorted(partitions) for partition in range(partitions[topic])]
    racks = {place: frozenset(chance.sample("123", chance.choice((1, 2)))) for place in places}
    return Partitions(partitions, racks)


def in_racks(members: Sequence[Member], chance: random.Random) -> list[Member]:
    return [replace(each, rack=chance.choice((None, "1", "2", "3"))) for each in members]


def near(partitions: Partitions, members: Sequence[Member], assignment: Assignment) -> int:
    """How many partitions have a replica in the rack of their member."""
    racks = {each.member_id: each.rack for each in members}
    return sum(
        racks[name] is None or racks[name] in partitions.racks[place]
        for name, mine in assignment.items()
        for place in mine
    )


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize(
    ("members", "racks", "expected"),
    [
        (["x:a:1", "y:a:2"], {"a": "2 1 2 1"}, {"x": "a1 a3", "y": "a0 a2"}),
        (["x:a b:1", "y:a b:2"], {"a": "2", "b": "1"}, {"x": "b0", "y": "a0"}),
        # In a ring: the first exchange gives one member a near partition, the second gives the other two theirs.
        (["x:a:1", "y:a:2", "z:a:3"], {"a": "2 3 1"}, {"x": "a2", "y": "a0", "z": "a1"}),
        # The assignment stays as even: a member without a partition in its rack reads others.
        (["x:a:1", "y:a:2"], {"a": "1 1 1 1"}, {"x": "a0 a2", "y": "a1 a3"}),
        (["x:a:1", "y:b:2"], {"a": "2 2", "b": "1 1"}, {"x": "a0 a1", "y": "b0 b1"}),
    ],
)
def test_what_is_given_goes_to_a_reader_in_its_rack(
    name: str, members: list[str], racks: dict[str, str], expected: dict[str, str]
) -> None:
    where = {(t, p): frozenset(each) for t, all_of in racks.items() for p, each in enumerate(all_of.split())}
    counts = {topic: len(each.split()) for topic, each in racks.items()}
    group = [replace(member(who, topics), rack=rack) for who, topics, rack in (each.split(":") for each in members)]
    assignment = ASSIGNORS[name].assign(Partitions(counts, where), group)
    assert {each: " ".join(f"{t}{p}" for t, p in mine) for each, mine in assignment.items()} == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", STICKY)
@QUICK
@given(group=groups(), where=seeds)
def test_a_division_is_as_even_with_racks_as_without_and_never_farther(
    name: str, group: tuple[dict[str, int], list[Member]], where: random.Random
) -> None:
    partitions, members = located(group[0], where), in_racks(group[1], where)
    first = ASSIGNORS[name].assign(partitions, members)
    without = ASSIGNORS[name].assign(group[0], members)
    assert sorted(place for mine in first.values() for place in mine) == readable(partitions, members)
    assert not could_be_relieved(partitions, members, first)
    assert {each: len(mine) for each, mine in first.items()} == {each: len(mine) for each, mine in without.items()}
    assert near(partitions, members, first) >= near(partitions, members, without)
    assert ASSIGNORS[name].assign(partitions, after(members, first, 1)) == first, "the assignment is stable"


@pytest.mark.slow
@QUICK
@given(group=groups(), where=seeds)
def test_a_cooperative_group_is_at_rest_after_two_rounds_when_replicas_have_moved(
    group: tuple[dict[str, int], list[Member]], where: random.Random
) -> None:
    cooperative = ASSIGNORS["cooperative-sticky"]
    members = in_racks(group[1], where)
    before = cooperative.assign(located(group[0], where), members)
    partitions = located(group[0], where)
    first = cooperative.assign(partitions, after(members, before, 1))
    second = cooperative.assign(partitions, after(members, first, 2))
    assert moved(first, second) == 0, "the second round moves no partition"
    assert sorted(place for mine in second.values() for place in mine) == readable(partitions, members)
    assert near(partitions, members, second) >= near(partitions, members, before)
    far = {
        place
        for each in members
        for place in before[each.member_id]
        if not near(partitions, [each], {each.member_id: [place]})
    }
    for each in members:
        assert set(before[each.member_id]) - set(first[each.member_id]) <= far, "no member loses a near partition"


def test_partitions_that_both_members_have_far_away_are_exchanged() -> None:
    here = Partitions({"a": 2}, {("a", 0): frozenset("1"), ("a", 1): frozenset("2")})
    group = [replace(member("x", "a", "a1", 1), rack="1"), replace(member("y", "a", "a0", 1), rack="2")]
    assert ASSIGNORS["sticky"].assign(here, group) == {"x": [("a", 0)], "y": [("a", 1)]}
    assert ASSIGNORS["cooperative-sticky"].assign(here, group) == {"x": [], "y": []}, "both revoke first"


def test_a_large_group_is_divided_in_a_moment() -> None:
    chance = random.Random(1)
    partitions = located({f"t{each:03}": 100 for each in range(100)}, chance)
    members = [Member(f"m{each:03}", frozenset(partitions), rack=str(1 + each % 3)) for each in range(100)]
    begin = process_time()
    assignment = ASSIGNORS["sticky"].assign(partitions, members)
    took = process_time() - begin
    assert near(partitions, members, assignment) > 9900 and took < 5.0


@pytest.mark.parametrize("before", [False, True], ids=["everything is given", "everything is kept"])
def test_what_members_compare_grows_with_them_and_not_with_their_pairs(before: bool) -> None:
    """There are many members with few partitions each, and no partition has a replica in the racks of half of them."""
    racks = ["1", "2", "3", None]
    compared = 0

    class Counting(frozenset[str]):
        def __contains__(self, rack: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__contains__(rack)

    count = 900
    where = {("t", each): Counting(str(1 + each // 300)) for each in range(count)}
    holdings = [{"t": [each]} for each in range(count)]
    empty: list[dict[str, list[int]]] = [{} for _ in range(count)]
    given = empty if before else holdings
    kept = holdings if before else empty
    ranks = [racks[each % 4] for each in range(count)]
    bring_near(kept, given, {"t": 1}, where, ranks)
    held = {place: each for part in (given, kept) for each, mine in enumerate(part) for place in mine.get("t", ())}
    assert sorted(held) == list(range(count))
    far = [place for place, each in held.items() if ranks[each] not in (None, str(1 + place // 300))]
    assert len(far) < 10
    assert compared < 100 * count


@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize(("topics", "count"), [(300, 4), (1, 1200)], ids=["many small topics", "a large topic"])
def test_work_grows_with_partitions_and_members_and_not_with_their_product(
    name: str, racks: bool, topics: int, count: int
) -> None:
    """The group leader assigns partitions in its event loop: seconds there cost members their sessions."""
    counts = {f"t{each:03}": count for each in range(topics)}
    partitions = located(counts, random.Random(1)) if racks else Partitions(counts, {})
    members = [
        Member(f"m{each:03}", frozenset(counts), rack=str(1 + each % 3) if racks else None) for each in range(400)
    ]
    calls = 0

    def count_calls(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_calls)
    try:
        assignment = ASSIGNORS[name].assign(partitions, members)
    finally:
        sys.setprofile(None)
    assert sum(map(len, assignment.values())) == 1200
    assert calls < 20 * (1200 + 400)
