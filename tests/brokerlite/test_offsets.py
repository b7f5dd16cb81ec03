"""Committed offsets: which count, which the coordinator forgets, and when."""

import pytest

from ottla.brokerlite.machines.groups.group import GroupState, Protocol
from ottla.brokerlite.machines.groups.offsets import Committed
from ottla.errors import KafkaStorageError
from tests.brokerlite.club import WAITS, Club, subscription
from tests.brokerlite.machine import TODAY

DAY = 24 * 3600.0
CHECK = 600.0


def offset(club: Club, topic: str = "t", partition: int = 0) -> int:
    """The committed offset, or -1."""
    committed = club.offsets.of("g").get((topic, partition))
    return committed.offset if committed else -1


def test_a_first_commit_makes_a_group_without_members() -> None:
    club = Club()
    assert club.commit(5) == 0 and offset(club) == 5
    assert club.state is GroupState.EMPTY and club.group.is_simple
    assert club.stored == [{("t", 0): Committed(5, -1, "", TODAY)}]


@pytest.mark.parametrize(("version", "code"), [(2, 22), (8, 22), (9, 69), (10, 69)])
def test_a_generation_of_no_group_is_named_after_the_version(version: int, code: int) -> None:
    club = Club()
    assert club.commit(5, "a-1", None, 3, version=version) == code and club.state is None


def test_the_last_commit_counts_also_if_it_goes_back() -> None:
    club = Club()
    assert club.commit(9) == club.commit(4) == 0 and offset(club) == 4


def test_what_was_committed_stays_over_rebalances_and_when_all_members_have_left() -> None:
    club = Club()
    a, b = club.pair()
    assert a.commit(7) == 0
    assert club.person("c").join() == WAITS and a.commit(8) == 0, "also while members join"
    assert a.leave() == b.leave() == 0 and offset(club) == 8


def test_what_cannot_be_stored_is_not_committed() -> None:
    club = Club()
    assert club.commit(1) == 0
    club.refuses = KafkaStorageError("no")
    assert club.commit(2) == 14 and offset(club) == 1
    assert club.code(lambda: club.offsets.delete_group("g")) == 14 and offset(club) == 1


# -- deleting


def test_offsets_of_a_subscribed_topic_stay_and_others_are_forgotten() -> None:
    club = Club()
    a, _ = club.pair()
    assert a.commit(5) == 0
    club.offsets.restore("g", ("old", 0), Committed(1, -1, "", TODAY))
    assert club.offsets.delete("g", [("t", 0), ("old", 0), ("old", 1)]) == {
        ("t", 0): False,
        ("old", 0): True,
        ("old", 1): True,
    }
    assert offset(club) == 5 and offset(club, "old") == -1 and club.stored[-1] == {("old", 0): None}


def test_offsets_of_members_who_speak_another_language_are_all_in_use() -> None:
    club = Club()
    club.pair(protocols=(Protocol("range", b"\x00"),))
    assert club.offsets.delete("g", [("t", 0)]) == {("t", 0): False}


def test_offsets_of_a_group_of_another_kind_cannot_be_deleted_while_it_has_members() -> None:
    club = Club(initial_rebalance_delay=0.0)
    worker = club.person("worker")
    assert worker.join(protocol_type="connect") == 0
    assert club.code(lambda: club.offsets.delete("g", [("t", 0)])) == 68
    assert worker.leave() == 0 and club.code(lambda: club.offsets.delete("g", [("t", 0)])) == 0


def test_a_deleted_group_takes_its_offsets_along() -> None:
    club = Club()
    a, b = club.pair()
    assert a.commit(5) == 0 and a.leave() == b.leave() == 0
    club.offsets.delete_group("g")
    assert club.stored[-2:] == [{("t", 0): None}, None] and club.state is None
    assert club.code(lambda: club.offsets.delete_group("g")) == 69
    assert club.code(lambda: club.offsets.delete("g", [])) == 69


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    club = Club()
    assert club.commit(1, place=("u", 0)) == club.commit(2, place=("u", 1)) == club.commit(3) == 0
    club.offsets.topic_deleted("u")
    assert list(club.offsets.of("g")) == [("t", 0)] and club.stored[-1] == {("u", 0): None, ("u", 1): None}


def test_a_deleted_topic_takes_its_offsets_along_also_if_the_disk_refuses_with_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    club = Club()
    assert club.commit(1, place=("u", 0)) == club.commit(3) == 0
    club.offsets.restore("other", ("u", 1), Committed(1, -1, "", TODAY))
    club.refuses = KafkaStorageError("full")
    club.offsets.topic_deleted("u")
    assert list(club.offsets.of("g")) == [("t", 0)] and not club.offsets.of("other")
    (line,) = caplog.messages
    assert "removing the offsets of 2 groups for the deleted topic u failed" in line


# -- expiry


def test_offsets_expire_seven_days_after_their_group_became_empty() -> None:
    club = Club()
    a, b = club.pair()
    assert a.commit(5) == 0
    club.tick(8.0)
    assert a.leave() == b.leave() == 0
    club.tick(7 * DAY - CHECK)
    assert offset(club) == 5
    club.tick(2 * CHECK)
    assert offset(club) == -1 and club.state is None, "and the group is gone, too"
    assert club.stored[-2:] == [{("t", 0): None}, None]
    assert club.groups.timers.deadline is None, "no check is needed any more"


def test_offsets_of_who_never_was_a_member_expire_seven_days_after_their_commit() -> None:
    club = Club()
    assert club.commit(1, place=("t", 0)) == 0
    club.tick(6 * DAY)
    assert club.commit(2, place=("t", 1)) == 0
    club.tick(1 * DAY + CHECK)
    assert list(club.offsets.of("g")) == [("t", 1)]
    club.tick(6 * DAY)
    assert club.state is None


def test_an_expiry_that_was_asked_for_holds_instead() -> None:
    club = Club()
    assert club.commit(1, expires=TODAY + 3600_000) == 0
    club.tick(3600.0 - CHECK)
    assert offset(club) == 1
    club.tick(2 * CHECK)
    assert offset(club) == -1


def test_of_a_stable_group_only_offsets_expire_that_nobody_subscribes_to() -> None:
    club = Club(initial_rebalance_delay=0.0)
    a = club.person("a")
    assert a.join(session_timeout_ms=1_800_000) == 0 and a.sync() == 0 and a.commit(5) == 0
    club.offsets.restore("g", ("old", 0), Committed(1, -1, "", TODAY))
    for _ in range(int(7 * DAY / 1500) + 1):
        club.tick(1500.0)
        assert a.heartbeat() == 0
    assert list(club.offsets.of("g")) == [("t", 0)]


def test_nothing_expires_while_a_group_rebalances_or_speaks_another_language() -> None:
    club = Club(initial_rebalance_delay=0.0, offsets_retention=0.0)
    patience = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 10_000_000}
    a = club.person("a", protocols=(Protocol("range", b"\x00"),))
    assert a.join(**patience) == 0 and a.sync() == 0
    assert a.commit(5) == 0
    club.tick(CHECK)
    assert offset(club) == 5
    assert a.join(protocols=(Protocol("range", subscription("other")),), **patience) == 0
    assert club.state is GroupState.COMPLETING
    club.tick(CHECK)
    assert offset(club) == 5
    assert a.sync() == 0
    club.tick(CHECK)
    assert offset(club) == -1


def test_an_empty_group_without_offsets_is_forgotten_at_the_next_look() -> None:
    club = Club()
    assert club.person("a", requires_id=True).join(session_timeout_ms=1_000_000) == 79
    club.tick(CHECK)
    assert club.state is GroupState.EMPTY, "it has given out an id"
    club.tick(CHECK)
    assert club.state is None


def test_an_expiry_that_cannot_be_stored_is_tried_again() -> None:
    club = Club(offsets_retention=0.0)
    assert club.commit(1) == 0
    club.refuses = KafkaStorageError("no")
    club.tick(CHECK)
    assert offset(club) == 1
    club.refuses = None
    club.tick(CHECK)
    assert club.state is None


# -- within transactions


class Counted(str):
    """A group id that counts the lookups with it."""

    lookups = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()


@pytest.mark.parametrize("others", [0, 1000])
def test_where_transactions_are_about_to_commit_is_found_without_a_look_at_those_of_other_groups(others: int) -> None:
    offsets = Club().offsets
    for producer_id in range(others):
        offsets.restore(f"g{producer_id}", ("t", 0), Committed(1, -1, "", TODAY), producer_id)
    group = Counted("g")
    offsets.restore(group, ("t", 5), Committed(1, -1, "", TODAY), 10_000)
    Counted.lookups = 0
    assert list(offsets.pending(group)) == [("t", 5)]
    assert Counted.lookups == 1
    offsets.end_transaction(10_000, commit=True)
    assert not offsets.pending(group) and offsets.of(group)["t", 5].offset == 1
    assert Counted.lookups < 10


def test_two_transactions_may_be_about_to_commit_the_same_and_what_is_forgotten_stays_so() -> None:
    offsets = Club().offsets
    for producer_id, record_offset in ((1, 11), (2, 12)):
        committed = Committed(record_offset, -1, "", TODAY, record_offset=record_offset)
        offsets.restore("g", ("t", 0), committed, producer_id)
        offsets.restore("g", ("gone", 0), committed, producer_id)
    offsets.topic_deleted("gone")
    offsets.end_transaction(2, commit=True)
    assert offsets.of("g")["t", 0].offset == 12 and set(offsets.pending("g")) == {("t", 0)}
    offsets.end_transaction(1, commit=True)
    assert offsets.of("g")["t", 0].offset == 12 and not offsets.pending("g")
    assert ("gone", 0) not in offsets.of("g")
