"""Groups whose members do anything at any time: invariants hold, and every request is answered."""

import random
from collections import Counter

import pytest

from ottla.brokerlite.machines.groups.group import (
    TRANSITIONS,
    Group,
    GroupInput,
    GroupState,
    Protocol,
    size_of,
    size_of_names,
)
from ottla.errors import KafkaStorageError
from tests.brokerlite.club import BOTH, RANGE, REBALANCE, SESSION, Club, Person, subscription

STEPS = 120
WANTED = (RANGE, BOTH, (Protocol("range", subscription("t", "u")),))


def check(group: Group, club: Club) -> None:
    """Check the invariants."""
    members = group.members
    assert (group.leader in members) if members else (group.leader is None)
    assert all(member_id == member.member_id for member_id, member in members.items())
    assert not set(group.pending) & set(members) and set(group.unsynced) <= set(members)
    assert group.size == sum(
        size_of(member.protocols) + size_of_names(member.client_id, member.instance_id) for member in members.values()
    )
    assert group._supported == Counter(name for member in members.values() for name, _ in member.protocols)
    named = {member.instance_id: member.member_id for member in members.values() if member.instance_id}
    assert group._static == named
    assert (group.state is GroupState.EMPTY) <= (not members)
    for member in members.values():
        assert not (member.joining and member.syncing)
        assert member.joining is None or group.state is GroupState.PREPARING
        assert member.syncing is None or group.state is GroupState.COMPLETING
        waits = member.joining or member.syncing
        assert waits or club.groups.timers.is_set(("session", "g", member.member_id)), "its session can end"
    for member_id in group.pending:
        assert club.groups.timers.is_set(("session", "g", member_id))
    if group.state is GroupState.PREPARING:
        assert club.groups.timers.is_set(("join", "g")), "the rebalance ends some time"
    if group.unsynced:
        assert club.groups.timers.is_set(("sync", "g"))


def step(rng: random.Random, club: Club, people: list[Person]) -> None:
    person = rng.choice(people)
    match rng.choice(("join", "join", "join", "sync", "sync", "beat", "leave", "commit", "time", "again", "disk")):
        case "join":
            person.join(protocols=rng.choice(WANTED), rebalance_timeout_ms=rng.choice((0, 1000, 60_000)))
        case "sync":
            person.sync(protocol=None)
        case "beat":
            person.heartbeat()
        case "leave":
            person.leave()
        case "commit":
            person.commit(rng.randrange(100))
        case "again":
            person.id, person.generation = "", -1
        case "disk":
            club.refuses = KafkaStorageError("no") if rng.random() < 0.3 else None
        case _:
            club.tick(rng.choice((0.0, 0.5, SESSION / 2, SESSION, REBALANCE)))


@pytest.mark.parametrize("seed", range(150))
def test_whatever_members_do_the_invariants_hold_and_every_request_is_answered(seed: int) -> None:
    rng = random.Random(seed)
    club = Club(initial_rebalance_delay=rng.choice((0.0, 3.0)), max_members=rng.choice((3, 100)))
    people = [
        club.person(f"p{i}", rng.choice((None, f"instance-{i}")), requires_id=rng.random() < 0.5) for i in range(5)
    ]
    for _ in range(STEPS):
        before = club.groups.by_id.get("g")
        generation = before.generation if before else 0
        step(rng, club, people)
        group = club.groups.by_id.get("g")
        if group is not None:
            check(group, club)
            assert group is not before or group.generation >= generation
    club.refuses = None
    club.tick(10 * REBALANCE + 1000.0)
    if (group := club.groups.by_id.get("g")) is not None:
        assert group.state is GroupState.EMPTY and not group.members and not group.pending
        check(group, club)
    asked = sum(len(person.joined) + len(person.synced) for person in people)
    club.groups.drain()
    assert asked == sum(len(person.joined) + len(person.synced) for person in people), "no request was still waiting"
    club.groups.timers.cancel("retention")
    assert club.groups.timers.deadline is None


def test_the_walks_go_everywhere() -> None:
    """Else they would prove little."""
    seen: set[tuple[GroupState | None, GroupInput]] = set()

    class Watched(Group):
        def go(self, change: GroupInput, timestamp: int) -> None:
            seen.add((self.state, change))
            super().go(change, timestamp)

    for seed in range(30):
        rng = random.Random(seed)
        club = Club(initial_rebalance_delay=0.0)
        club.groups.by_id["g"] = Watched("g")
        people = [club.person(f"p{i}", rng.choice((None, f"instance-{i}"))) for i in range(4)]
        for _ in range(STEPS):
            step(rng, club, people)
    assert seen >= set(TRANSITIONS)
