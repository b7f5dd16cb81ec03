"""The coordinator of classic groups: every input in every state, timeouts, static members, a failing log, bounds."""

from collections.abc import Callable

import pytest

from ottla.brokerlite.machines.groups.group import TRANSITIONS, Group, GroupInput, GroupState, Protocol
from ottla.brokerlite.machines.groups.groups import LeavingMember
from ottla.errors import CoordinatorNotAvailable, KafkaStorageError, MessageTooLarge
from tests.brokerlite.club import BOTH, DELAY, RANGE, REBALANCE, SESSION, WAITS, Club, Person, subscription

E, P, C, S = GroupState.EMPTY, GroupState.PREPARING, GroupState.COMPLETING, GroupState.STABLE
STICKY = (Protocol("sticky", subscription()),)
CHANGED = (Protocol("range", subscription("t", "u")),)

Answer = Callable[[Club, Person, Person], int]

TABLE: dict[str, tuple[Answer, dict[GroupState, tuple[int, GroupState | None]]]] = {
    "somebody new joins": (
        lambda club, a, b: club.person("x").join(),
        {E: (WAITS, P), P: (WAITS, P), C: (WAITS, P), S: (WAITS, P)},
    ),
    "somebody new joins who must come again": (
        lambda club, a, b: club.person("x", requires_id=True).join(),
        {E: (79, E), P: (79, P), C: (79, C), S: (79, S)},
    ),
    "somebody new joins with another protocol type": (
        lambda club, a, b: club.person("x").join(protocol_type="connect"),
        {E: (WAITS, P), P: (23, P), C: (23, C), S: (23, S)},
    ),
    "somebody new joins with nothing in common": (
        lambda club, a, b: club.person("x", protocols=STICKY).join(),
        {E: (WAITS, P), P: (23, P), C: (23, C), S: (23, S)},
    ),
    "somebody new joins who can do nothing": (
        lambda club, a, b: club.person("x", protocols=()).join(),
        {E: (23, E), P: (23, P), C: (23, C), S: (23, S)},
    ),
    "a static member joins": (
        lambda club, a, b: club.person("x", "instance-x", requires_id=True).join(),
        {E: (WAITS, P), P: (WAITS, P), C: (WAITS, P), S: (WAITS, P)},
    ),
    "somebody joins with an id that nobody gave": (
        lambda club, a, b: club.person("x").join(member_id="x-1"),
        {E: (25, E), P: (25, P), C: (25, C), S: (25, S)},
    ),
    "the leader joins again": (
        lambda club, a, b: a.join(),
        {E: (25, E), P: (WAITS, P), C: (0, C), S: (WAITS, P)},
    ),
    "a follower joins again": (
        lambda club, a, b: b.join(),
        {E: (25, E), P: (WAITS, P), C: (0, C), S: (0, S)},
    ),
    "the leader joins again with another subscription": (
        lambda club, a, b: a.join(protocols=CHANGED),
        {E: (25, E), P: (WAITS, P), C: (WAITS, P), S: (WAITS, P)},
    ),
    "a follower joins again with another subscription": (
        lambda club, a, b: b.join(protocols=CHANGED),
        {E: (25, E), P: (WAITS, P), C: (WAITS, P), S: (WAITS, P)},
    ),
    "a member joins again with nothing in common": (
        lambda club, a, b: b.join(protocols=STICKY),
        {E: (25, E), P: (23, P), C: (23, C), S: (23, S)},
    ),
    "the leader syncs": (
        lambda club, a, b: a.sync(),
        {E: (25, E), P: (27, P), C: (0, S), S: (0, S)},
    ),
    "a follower syncs": (
        lambda club, a, b: b.sync(),
        {E: (25, E), P: (27, P), C: (WAITS, C), S: (0, S)},
    ),
    "somebody unknown syncs": (
        lambda club, a, b: b.sync(member_id="x-1"),
        {E: (25, E), P: (25, P), C: (25, C), S: (25, S)},
    ),
    "a member of an earlier generation syncs": (
        lambda club, a, b: b.sync(generation=0),
        {E: (25, E), P: (22, P), C: (22, C), S: (22, S)},
    ),
    "a member syncs for another protocol": (
        lambda club, a, b: b.sync(protocol="sticky"),
        {E: (25, E), P: (23, P), C: (23, C), S: (23, S)},
    ),
    "a member syncs for another protocol type": (
        lambda club, a, b: b.sync(protocol_type="connect"),
        {E: (25, E), P: (23, P), C: (23, C), S: (23, S)},
    ),
    "a member of an old client syncs, which names no protocol": (
        lambda club, a, b: a.sync(protocol_type=None, protocol=None),
        {E: (25, E), P: (27, P), C: (0, S), S: (0, S)},
    ),
    "a member's heartbeat": (
        lambda club, a, b: b.heartbeat(),
        {E: (25, E), P: (27, P), C: (0, C), S: (0, S)},
    ),
    "the heartbeat of a member of an earlier generation": (
        lambda club, a, b: b.heartbeat(0),
        {E: (25, E), P: (22, P), C: (22, C), S: (22, S)},
    ),
    "the heartbeat of a stranger": (
        lambda club, a, b: club.person("x").heartbeat(1),
        {E: (25, E), P: (25, P), C: (25, C), S: (25, S)},
    ),
    "a follower leaves": (
        lambda club, a, b: b.leave(),
        {E: (25, E), P: (0, P), C: (0, P), S: (0, P)},
    ),
    "the leader leaves": (
        lambda club, a, b: a.leave(),
        {E: (25, E), P: (0, P), C: (0, P), S: (0, P)},
    ),
    "a stranger leaves": (
        lambda club, a, b: club.person("x").leave(),
        {E: (25, E), P: (25, P), C: (25, C), S: (25, S)},
    ),
    "a member commits": (
        lambda club, a, b: b.commit(),
        {E: (25, E), P: (0, P), C: (27, C), S: (0, S)},
    ),
    "a member of an earlier generation commits": (
        lambda club, a, b: b.commit(generation=0),
        {E: (25, E), P: (22, P), C: (22, C), S: (22, S)},
    ),
    "somebody commits who is no member": (
        lambda club, a, b: club.commit(5),
        {E: (0, E), P: (25, P), C: (25, C), S: (25, S)},
    ),
    "somebody commits in the name of a member, but in no generation": (
        lambda club, a, b: b.commit(generation=-1),
        {E: (0, E), P: (22, P), C: (22, C), S: (22, S)},
    ),
    "an offset of a subscribed topic is to be deleted": (
        lambda club, a, b: club.code(lambda: club.offsets.delete("g", [("t", 0)])),
        {E: (0, E), P: (0, P), C: (0, C), S: (0, S)},
    ),
    "the group is to be deleted": (
        lambda club, a, b: club.code(lambda: club.offsets.delete_group("g")),
        {E: (0, None), P: (68, P), C: (68, C), S: (68, S)},
    ),
    "time passes for a moment": (
        lambda club, a, b: club.wait(0.1),
        {E: (0, E), P: (0, P), C: (0, C), S: (0, S)},
    ),
    "nobody is heard of for a session": (  # the third member, whose JoinGroup waits in a rebalance, stays
        lambda club, a, b: club.wait(SESSION),
        {E: (0, E), P: (0, C), C: (0, E), S: (0, E)},
    ),
}


@pytest.mark.parametrize("state", list(GroupState), ids=lambda state: state.value)
@pytest.mark.parametrize("what", TABLE)
def test_every_input_in_every_state(state: GroupState, what: str) -> None:
    club = Club()
    a, b = club.pair(state)
    answer, cells = TABLE[what]
    assert (answer(club, a, b), club.state) == cells[state]


@pytest.mark.parametrize("state", list(GroupState))
@pytest.mark.parametrize("change", list(GroupInput))
def test_every_change_of_state_is_in_the_table_or_impossible(state: GroupState, change: GroupInput) -> None:
    group = Group("g", state)
    if (state, change) in TRANSITIONS:
        group.go(change, 7)
        assert (group.state, group.previous, group.since) == (TRANSITIONS[state, change], state, 7)
    else:
        with pytest.raises(KeyError):
            group.go(change, 7)
        assert group.state is state


# -- a group's life


def test_only_the_leader_gets_the_members_and_its_assignments_reach_all() -> None:
    club = Club()
    a, b = club.pair()
    assert [each.member_id for each in a.joined[-1].members] == [a.id, b.id] and b.joined[-1].members == ()
    assert a.joined[-1].leader == b.joined[-1].leader == a.id
    assert (b.joined[-1].protocol_type, b.joined[-1].protocol) == ("consumer", "range")
    assert a.assignment == b"for " + a.id.encode() and b.assignment == b"for " + b.id.encode()
    assert club.stored == [(C, 1, {a.id: a.assignment, b.id: b.assignment})], "stored before any member was answered"


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    club = Club()
    a, b = club.pair(C)
    assert b.sync() == WAITS and a.sync(assignments={a.id: b"all", "x": b"for nobody"}) == 0
    assert (a.assignment, b.assignment) == (b"all", b"")


def test_a_first_rebalance_waits_for_others_and_for_as_long_again_when_one_came() -> None:
    club = Club()
    a, b, c = (club.person(name) for name in "abc")
    assert a.join() == WAITS
    club.tick(DELAY - 0.1)
    assert b.join() == WAITS
    club.tick(DELAY)
    assert c.join() == WAITS and club.state is P
    club.tick(DELAY - 0.1)
    assert club.state is P
    club.tick(0.1)
    assert club.state is P, "c joined in the second delay"
    club.tick(DELAY)
    assert club.state is C and len(a.joined[-1].members) == 3


def test_a_first_rebalance_does_not_wait_longer_than_its_members_would() -> None:
    club = Club()
    assert club.person("first").join(rebalance_timeout_ms=int(3 * DELAY * 1000)) == WAITS
    for i in range(6):
        club.tick(DELAY / 2)
        if club.state is not P:
            break
        club.person(f"late {i}").join(rebalance_timeout_ms=1000)
    assert club.now == 100 + 3 * DELAY


def test_without_a_delay_a_first_rebalance_is_over_at_once() -> None:
    club = Club(initial_rebalance_delay=0.0)
    a = club.person("a")
    assert a.join() == 0 and a.generation == 1 and a.leads


def test_a_later_rebalance_goes_on_as_soon_as_everybody_is_there() -> None:
    club = Club()
    a, b = club.pair()
    c = club.person("c")
    assert c.join() == WAITS and b.heartbeat() == 27 and b.join() == WAITS
    assert a.heartbeat() == 27 and a.join() == 0
    assert a.generation == b.generation == c.generation == 2
    assert len(a.joined[-1].members) == 3 and c.sync() == b.sync() == WAITS and a.sync() == 0


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    club = Club()
    a, b = club.pair()
    c = club.person("c")
    assert c.join() == a.join() == WAITS
    for _ in range(int(REBALANCE / SESSION)):
        club.tick(SESSION - 1)
        if club.state is P:
            assert b.heartbeat() == 27, "it sends heartbeats, but does not join"
    club.tick(SESSION)
    assert club.state is C and set(club.group.members) == {a.id, c.id}
    assert b.heartbeat() == 25 and b.sync() == 25 and b.join() == 25


def test_a_leader_that_does_not_rejoin_is_no_longer_leader() -> None:
    club = Club()
    a, b = club.pair()
    assert b.join(protocols=CHANGED) == WAITS
    for _ in range(7):
        a.heartbeat()
        club.tick(SESSION - 1)
    assert b.generation == 2 and b.leads and set(club.group.members) == {b.id}


def test_a_leader_that_does_not_sync_is_removed_and_the_others_rejoin() -> None:
    club = Club()
    a, b = club.pair(C)
    assert b.sync() == WAITS
    for _ in range(7):
        a.heartbeat()
        club.tick(SESSION - 1)
    assert b.synced[-1].error == 27 and set(club.group.members) == {b.id}
    assert b.join() == 0 and b.leads and b.sync() == 0


def test_a_follower_that_does_not_sync_is_removed_though_the_group_is_stable() -> None:
    club = Club()
    a, b = club.pair(C)
    assert a.sync() == 0 and club.state is S
    for _ in range(7):
        a.heartbeat()
        b.heartbeat()
        club.tick(SESSION - 1)
    assert club.state is P and set(club.group.members) == {a.id}


def test_a_member_that_times_out_is_removed_and_the_others_rejoin() -> None:
    club = Club()
    a, b = club.pair()
    club.tick(SESSION / 2)
    assert a.heartbeat() == 0
    club.tick(SESSION / 2)
    assert club.state is P and a.heartbeat() == 27 and b.heartbeat() == 25
    assert a.join() == 0 and len(a.joined[-1].members) == 1


def test_a_commit_restarts_the_session_timeout() -> None:
    club = Club()
    a, b = club.pair()
    for _ in range(4):
        club.tick(SESSION / 2)
        assert a.commit() == b.commit() == 0
    assert club.state is S


def test_a_member_with_a_waiting_request_does_not_time_out() -> None:
    club = Club()
    a, b = club.pair(C)
    assert b.sync() == WAITS
    for _ in range(4):
        club.tick(SESSION / 2)
        a.heartbeat()
    assert set(club.group.members) == {a.id, b.id}
    assert a.sync() == 0
    club.tick(SESSION - 0.1)
    assert b.heartbeat() == 0, "the response restarted its session"


def test_a_new_member_that_waits_too_long_is_removed() -> None:
    """It has no id yet, so it cannot send heartbeats, and may be gone for long."""
    club = Club(new_member_timeout=20.0)
    a, _ = club.pair()
    c = club.person("c")
    assert c.join() == WAITS
    for _ in range(4):
        a.heartbeat()
        club.tick(5.0)
    assert c.joined[-1].error == 25 and c.joined[-1].member_id == ""


def test_the_oldest_member_leads_when_the_leader_has_left() -> None:
    club = Club()
    a, b = club.pair()
    assert a.leave() == 0 and b.join() == 0 and b.leads and b.generation == 2


def test_an_empty_group_counts_on_and_takes_any_protocol() -> None:
    club = Club()
    club.pair(E)
    assert (club.group.generation, club.group.protocol, club.group.leader) == (2, None, None)
    assert club.stored[-1] == (E, 2, {})
    x = club.person("x", protocols=STICKY)
    assert x.join(protocol_type="connect") == WAITS
    club.tick(DELAY)
    assert x.generation == 3 and x.joined[-1].protocol == "sticky" and club.group.protocol_type == "connect"


def test_the_protocol_is_the_most_wanted_one_that_all_support() -> None:
    club = Club()
    wanted = (("range", "sticky"), ("sticky", "range"), ("sticky", "range"), ("mine", "range", "sticky"))
    people = [club.person(f"p{i}", protocols=tuple(Protocol(n, b"") for n in names)) for i, names in enumerate(wanted)]
    for person in people:
        assert person.join() == WAITS
    club.tick(2 * DELAY)
    assert people[0].joined[-1].protocol == "range", "a tie; the first member's preference decides"
    assert people[3].leave() == 0
    assert [people[i].join() for i in (0, 1, 2)] == [WAITS, WAITS, 0]
    assert people[0].joined[-1].protocol == "sticky"


def test_a_protocol_that_no_member_supports_any_more_is_forgotten() -> None:
    club = Club()
    club.pair(E, protocols=BOTH)
    assert not club.group._supported
    x = club.person("x", protocols=RANGE)
    assert x.join() == WAITS
    club.tick(DELAY)
    assert club.person("y", protocols=STICKY).join() == 23


def test_a_cooperative_member_that_gave_something_back_joins_again_in_the_middle_of_things() -> None:
    """After SyncGroup it revokes, and joins at once with fewer partitions owned; others follow at their heartbeats."""
    club = Club()
    a, b = club.pair()
    assert b.join(protocols=CHANGED) == WAITS and a.heartbeat() == 27 and a.commit() == 0
    assert a.join() == 0 and b.generation == 2
    assert a.sync() == 0 and club.state is S, "b has not joined yet"
    assert b.join(protocols=RANGE) == WAITS, "b joins again before it sends SyncGroup"
    assert a.heartbeat() == 27 and a.join() == 0 and a.generation == b.generation == 3
    assert b.sync() == WAITS and a.sync() == 0


def test_members_that_come_and_go_get_no_error_worse_than_a_rebalance() -> None:
    club = Club(initial_rebalance_delay=0.0)
    loyal = club.person("loyal", requires_id=True)
    assert loyal.join() == 79 and loyal.join() == 0 and loyal.sync() == 0
    for i in range(50):
        guest = club.person(f"guest {i}", requires_id=True)
        assert guest.join() == 79 and guest.join() == WAITS
        assert loyal.heartbeat() == 27 and loyal.join() == 0
        assert guest.joined[-1].error == 0 and loyal.sync() == 0
        assert guest.leave() == 0 and loyal.heartbeat() == 27 and loyal.join() == 0 and loyal.sync() == 0
    assert loyal.heartbeat() == 0 and loyal.generation == 101 and not club.group.pending


# -- ids that were given out (KIP-394)


def test_a_new_member_comes_again_with_its_id_and_is_let_in() -> None:
    club = Club()
    a = club.person("a", requires_id=True)
    assert a.join() == 79 and a.id.startswith("a-") and list(club.group.pending) == [a.id]
    assert club.state is E
    assert a.join() == WAITS and not club.group.pending and club.state is P


def test_an_id_that_does_not_come_back_is_forgotten_after_a_session() -> None:
    club = Club()
    a = club.person("a", requires_id=True)
    assert a.join() == 79
    club.tick(SESSION)
    assert not club.group.pending and a.join() == 25


def test_a_rebalance_waits_for_an_id_that_was_given_out_but_no_longer_than_its_session() -> None:
    club = Club()
    a, b = club.pair()
    c = club.person("c", requires_id=True)
    assert c.join() == 79 and club.state is S, "an id without a member causes no rebalance"
    assert a.join() == b.join() == WAITS
    for _ in range(4):
        assert club.state is P
        club.tick(SESSION / 4)
    assert club.state is C and len(a.joined[-1].members) == 2


def test_an_id_that_was_given_out_may_leave() -> None:
    club = Club()
    club.pair()
    c = club.person("c", requires_id=True)
    assert c.join() == 79 and c.leave() == 0 and club.state is S and not club.group.pending
    assert c.join() == 25


def test_a_rebalance_goes_on_when_the_last_id_it_waited_for_has_left() -> None:
    club = Club()
    a, b = club.pair()
    c = club.person("c", requires_id=True)
    assert c.join() == 79 and a.join() == b.join() == WAITS
    assert c.leave() == 0 and club.state is C


# -- static members (KIP-345, KIP-814)


def again(person: Person) -> Person:
    """The same instance in another process."""
    other = person.club.person(person.name, person.instance_id)
    other.settings = person.settings
    return other


@pytest.mark.parametrize("leader", [True, False], ids=["leader", "follower"])
def test_a_restarted_static_member_takes_its_place_without_a_rebalance(leader: bool) -> None:
    club = Club()
    a, b = club.pair(static=True)
    old, other = (a, b) if leader else (b, a)
    new = again(old)
    assert new.join() == 0 and club.state is S and new.generation == 1 and new.id != old.id
    assert new.joined[-1].skip_assignment is leader
    assert new.joined[-1].leader == (new.id if leader else other.id)
    assert len(new.joined[-1].members) == (2 if leader else 0)
    assert club.stored[-1] == (S, 1, {new.id: old.assignment, other.id: other.assignment}), "stored for a restart"
    assert new.sync() == 0 and new.assignment == old.assignment
    assert other.heartbeat() == new.heartbeat() == 0
    assert (old.heartbeat(), old.join(), old.sync(), old.commit(), old.leave()) == (82, 82, 82, 82, 82)


def test_a_static_leader_of_an_old_client_takes_itself_for_a_follower() -> None:
    """Before v9 it could not learn that it need not assign, and would wait for assignments that nobody sends."""
    club = Club()
    a, _ = club.pair(static=True)
    new = again(a)
    new.settings = {**new.settings, "skips_assignment": False}
    assert new.join() == 0 and new.joined[-1].leader == a.id != new.id
    assert new.joined[-1].members == () and not new.joined[-1].skip_assignment
    assert new.sync() == 0 and new.assignment == a.assignment


def test_a_static_member_that_was_started_again_and_changes_the_protocol_starts_a_rebalance() -> None:
    club = Club()
    a, b = club.pair(static=True, protocols=BOTH)
    new = again(b)
    assert new.join(protocols=STICKY) == WAITS and club.state is P
    assert a.join() == 0 and a.joined[-1].protocol == "sticky" and new.generation == 2


def test_a_static_member_that_is_started_again_while_its_group_waits_fences_the_one_before() -> None:
    club = Club()
    a, b = club.pair(S, static=True)
    c = club.person("c")
    assert c.join() == b.join(protocols=CHANGED) == WAITS
    new = again(b)
    assert new.join() == WAITS and b.joined[-1].error == 82, "the waiting one is fenced"
    assert a.join() == 0 and new.joined[-1].error == 0 and len(a.joined[-1].members) == 3


def test_a_static_member_restarted_between_join_and_sync_causes_a_rebalance() -> None:
    """The leader assigns to a member id that no longer exists."""
    club = Club()
    a, b = club.pair(C, static=True)
    assert b.sync() == WAITS
    new = again(b)
    assert new.join() == WAITS and b.synced[-1].error == 82 and club.state is P
    assert a.sync() == 27 and a.join() == 0 and new.generation == 2


def test_static_members_survive_a_join_that_they_miss() -> None:
    club = Club()
    a, b = club.pair(static=True)
    c = club.person("c")
    assert c.join() == a.join() == WAITS
    for _ in range(7):
        b.heartbeat()
        club.tick(SESSION - 1)
    assert club.state is C and set(club.group.members) == {a.id, b.id, c.id}
    assert b.heartbeat() == 22, "it is still a member of the previous generation"
    assert b.join() == 0 and b.generation == 2


def test_a_group_of_absent_static_members_waits_until_they_come_or_their_sessions_end() -> None:
    club = Club()
    a, b = club.pair(static=True)
    c = club.person("c", requires_id=True)
    assert c.join() == 79 and c.join() == WAITS and c.leave() == 0
    for _ in range(14):
        assert a.heartbeat() == b.heartbeat() == 27
        club.tick(SESSION - 1)
    assert club.state is P and club.group.generation == 1, "no member has joined"
    assert a.join() == WAITS
    for _ in range(7):
        b.heartbeat()
        club.tick(SESSION - 1)
    assert a.generation == 2 and a.leads
    club.tick(SESSION)
    assert club.state is E


def test_a_rebalance_timeout_of_nothing_is_no_endless_loop() -> None:
    club = Club(initial_rebalance_delay=0.0)
    a = club.person("a", "instance-a")
    assert a.join(rebalance_timeout_ms=0) == 0
    club.tick(1.0)
    assert a.heartbeat() == 25, "the timeout left it no time to sync"
    b = club.person("b", "instance-b")
    assert b.join(rebalance_timeout_ms=-1) == 0
    club.tick(1.0)
    assert club.state is E


def test_a_static_member_whose_session_ends_is_out() -> None:
    club = Club()
    a, _ = club.pair(static=True)
    club.tick(SESSION / 2)
    a.heartbeat()
    club.tick(SESSION / 2)
    assert set(club.group.members) == {a.id} and club.group.static_member("instance-b") is None


def test_a_static_member_is_taken_out_by_its_instance_id() -> None:
    club = Club()
    a, _ = club.pair(static=True)
    leavers = [
        LeavingMember("", "instance-b"),
        LeavingMember("", "instance-x"),
        LeavingMember(""),
        LeavingMember(a.id, "instance-b"),
        LeavingMember("x"),
    ]
    assert club.groups.leave("g", leavers, club.now) == [0, 25, 25, 25, 25]
    assert set(club.group.members) == {a.id} and club.state is P


def test_a_member_id_with_anothers_instance_id_is_fenced() -> None:
    club = Club()
    a, _ = club.pair(static=True)
    a.instance_id = "instance-b"
    assert (a.heartbeat(), a.sync(), a.join(), a.commit(), a.leave()) == (82, 82, 82, 82, 82)


# -- repeated requests


def test_a_join_that_is_sent_again_on_another_connection_takes_the_place_of_the_first() -> None:
    club = Club()
    a, b = club.pair()
    assert a.join() == WAITS
    count = len(a.joined)
    assert a.join() == 27, "the first is answered, so that its connection can continue"
    assert len(a.joined) == count + 1
    assert b.join() == 0
    assert a.joined[-1].error == 0 and len(a.joined) == count + 2


def test_a_sync_that_is_sent_again_on_another_connection_takes_the_place_of_the_first() -> None:
    club = Club()
    a, b = club.pair(C)
    assert b.sync() == WAITS and b.sync() == 27
    assert a.sync() == 0 and b.synced[-1].error == 0 and len(b.synced) == 2


def test_a_rebalance_answers_those_who_wait_for_their_assignment() -> None:
    club = Club()
    _, b = club.pair(C)
    assert b.sync() == WAITS and club.person("c").join() == WAITS
    assert b.synced[-1].error == 27


@pytest.mark.parametrize("waits", ["for the others", "for its assignment"])
def test_a_member_that_leaves_while_it_waits_is_answered(waits: str) -> None:
    club = Club()
    _, b = club.pair(C if waits == "for its assignment" else S)
    if waits == "for its assignment":
        assert b.sync() == WAITS and b.leave() == 0 and b.synced[-1].error == 25
    else:
        assert b.join(protocols=CHANGED) == WAITS and b.leave() == 0 and b.joined[-1].error == 25


# -- the log refuses records


def test_an_assignment_that_cannot_be_stored_reaches_no_member() -> None:
    club = Club()
    a, b = club.pair(C)
    club.refuses = MessageTooLarge("no")
    assert b.sync() == WAITS and a.sync() == -1 and b.synced[-1] == a.synced[-1]
    assert b.assignment == b"" and club.state is P
    club.refuses = None
    assert a.join() == WAITS and b.join() == 0 == a.joined[-1].error
    assert b.sync() == WAITS and a.sync() == 0


def test_while_the_disk_refuses_an_assignment_its_members_wait_for_it(caplog: pytest.LogCaptureFixture) -> None:
    club = Club()
    a, b = club.pair(C)
    club.refuses = KafkaStorageError("it is full")
    assert b.sync() == WAITS and a.sync() == WAITS
    club.tick(10 * SESSION)
    assert club.state is C and club.group.generation == a.generation and not a.synced and not b.synced
    assert caplog.messages == ["assignment not stored yet, retrying: it is full"]
    club.refuses = None
    club.tick(1.0)
    assert club.state is S and a.assignment == f"for {a.id}".encode() and b.assignment == f"for {b.id}".encode()
    assert a.heartbeat() == b.heartbeat() == 0


def test_members_that_ask_once_more_while_the_disk_refuses_get_their_assignment_with_the_first_attempt() -> None:
    club = Club()
    a, b = club.pair(C)
    club.refuses = KafkaStorageError("it is full")
    assert b.sync() == WAITS and a.sync() == WAITS
    assert a.join() == 0, "it already is in the current generation"
    club.refuses = None
    b.sync(), a.sync()
    assert club.state is S and [each.error for each in (*b.synced, *a.synced)] == [27, 0, 27, 0], "27: earlier ones"
    stored = len(club.stored)
    club.tick(5.0)
    assert len(club.stored) == stored


def test_a_rebalance_ends_the_wait_for_the_disk() -> None:
    club = Club()
    a, b = club.pair(C)
    club.refuses = KafkaStorageError("it is full")
    assert b.sync() == WAITS and a.sync() == WAITS
    assert club.person("c").join() == WAITS and a.synced[-1].error == b.synced[-1].error == 27
    club.refuses = None
    club.tick(5.0)
    assert club.state is P and not club.stored


def test_a_static_member_that_cannot_be_stored_keeps_its_old_id() -> None:
    club = Club()
    a, b = club.pair(static=True)
    club.refuses = KafkaStorageError("no")
    new = again(b)
    assert new.join() == 14 and b.heartbeat() == 0 and set(club.group.members) == {a.id, b.id}
    club.refuses = None
    assert new.join() == 0 and b.heartbeat() == 82


def test_an_empty_group_that_cannot_be_stored_is_still_empty() -> None:
    club = Club()
    a, b = club.pair()
    club.refuses = KafkaStorageError("no")
    assert a.leave() == b.leave() == 0 and club.state is E


# -- bounds


def test_a_full_group_takes_no_new_members() -> None:
    club = Club(max_members=2)
    a, b = club.pair()
    x = club.person("x")
    assert x.join() == 81 and x.joined[-1].member_id == "" and club.state is S
    assert a.join() == WAITS and b.join() == 0, "its members may join again"


def test_when_there_are_too_many_members_the_last_to_join_are_removed() -> None:
    club = Club(max_members=2)
    people = [club.person(f"p{i}") for i in range(4)]
    assert [person.join() for person in people] == [WAITS, WAITS, 81, 81]


def test_ids_that_were_given_out_are_bounded_and_the_oldest_gives_way() -> None:
    club = Club(max_members=3)
    strangers = [club.person(f"s{i}", requires_id=True) for i in range(10)]
    assert [stranger.join() for stranger in strangers] == [79] * 10
    assert list(club.group.pending) == [stranger.id for stranger in strangers[-3:]]
    assert strangers[0].join() == 25 and strangers[-1].join() == WAITS


def test_the_metadata_of_members_are_bounded() -> None:
    club = Club(max_group_bytes=1000)
    a = club.person("a", protocols=(Protocol("range", bytes(600)),))
    b = club.person("b", protocols=(Protocol("range", bytes(600)),))
    assert a.join() == WAITS and b.join() == 81
    club.tick(DELAY)
    assert a.join(protocols=(Protocol("range", bytes(700)),)) == 0, "a member's own metadata may change"


def test_protocols_without_names_and_metadata_count_too() -> None:
    club = Club(max_group_bytes=2**20)
    assert club.person("a", protocols=(Protocol("", b""),) * 10_000).join() == 81
    assert club.person("b", protocols=(Protocol("", b""),) * 1000).join() == WAITS


@pytest.mark.parametrize("named", [("x" * 10_000, None), ("x", "i" * 10_000)], ids=["client", "instance"])
def test_the_names_of_members_count_too(named: tuple[str, str | None]) -> None:
    club = Club(max_group_bytes=100_000)
    name, instance_id = named
    people = [club.person(name, instance_id and f"{instance_id}{number}") for number in range(3)]
    assert [person.join() for person in people] == [WAITS, WAITS, 81]


def test_a_group_counts_its_members_and_no_others() -> None:
    club = Club()
    a, _ = club.pair(static=True)
    restarted = club.person("b", "instance-b")
    assert restarted.join() == 0
    assert a.leave() == restarted.leave() == 0
    assert club.group.size == 0


def test_a_protocol_that_a_member_names_twice_counts_as_one() -> None:
    """Apache Kafka counts it twice, finds no protocol that all members support, and fails the rebalance."""
    club = Club()
    a, _ = club.pair(C, protocols=(Protocol("range", b"first"), Protocol("range", b"second")))
    assert club.group.protocol == "range" and {each.metadata for each in a.joined[-1].members} == {b"first"}


def test_a_member_that_grows_too_large_is_out_and_the_others_begin_again() -> None:
    club = Club(max_group_bytes=1000)
    a, b = club.pair()
    assert b.join(protocols=(Protocol("range", bytes(2000)),)) == 81
    assert set(club.group.members) == {a.id} and a.heartbeat() == 27 and a.join() == 0


def test_the_assignments_of_a_leader_are_bounded() -> None:
    club = Club(max_group_bytes=1000)
    a, b = club.pair(C)
    assert a.sync(assignments={b.id: bytes(2000)}) == -1 and club.state is P


def test_groups_are_bounded() -> None:
    club = Club(max_groups=2)
    for name in "xy":
        club.groups.get_or_create(name, club.now)
    assert club.person("a").join() == CoordinatorNotAvailable.code
    assert club.commit(1) == CoordinatorNotAvailable.code


def test_a_long_client_id_makes_no_longer_member_id_than_the_protocol_has_room_for() -> None:
    a, b = Club().person("x" * 32767, requires_id=True), Club().person("b", "y" * 32767)
    assert a.join() == 79 and len(a.id) < 300
    assert b.join() == WAITS
    b.club.tick(DELAY)
    assert len(b.id) < 300


def test_a_client_without_an_id_gets_a_name() -> None:
    a = Club().person("", requires_id=True)
    assert a.join() == 79 and a.id.startswith("member-")


@pytest.mark.parametrize(("milliseconds", "code"), [(5999, 26), (6000, 79), (1_800_000, 79), (1_800_001, 26), (-1, 26)])
def test_a_session_is_6_seconds_to_half_an_hour(milliseconds: int, code: int) -> None:
    assert Club().person("a", requires_id=True).join(session_timeout_ms=milliseconds) == code


def test_the_empty_group_id_is_invalid() -> None:
    club = Club()
    a = club.person("a")
    assert a.join(group_id="") == 24 and a.sync(group_id="") == 24
    assert club.code(lambda: club.groups.heartbeat("", "a", None, 1, 0.0)) == 24
    assert club.code(lambda: club.groups.leave("", [], 0.0)) == 24


def test_a_group_that_is_not_there_has_no_members() -> None:
    club = Club()
    a = club.person("a")
    a.id, a.generation = "a-1", 1
    assert (a.join(), a.sync(), a.heartbeat(), a.leave()) == (25, 25, 25, 25)
    assert club.state is None, "and this does not create it"


# -- shutdown


def test_a_drain_answers_all_members_and_accepts_no_new_ones() -> None:
    club = Club()
    a, b = club.pair(C)
    c = club.person("c")
    assert b.sync() == WAITS
    club.groups.drain()
    assert b.synced[-1].error == 16
    assert (c.join(), a.sync(), a.heartbeat(), a.leave()) == (15, 16, 16, 16)
    club = Club()
    assert (c := club.person("c")).join() == WAITS
    club.groups.drain()
    assert c.joined[-1].error == 16


def test_a_removed_group_leaves_no_timers() -> None:
    club = Club()
    club.pair(E)
    assert club.person("x", requires_id=True).join() == 79
    club.offsets.delete_group("g")
    club.groups.timers.cancel("retention")
    assert club.groups.timers.deadline is None and club.stored[-1] is None
