"""Positions of a consumer: lookups, leaders that move, logs that lose read records, full buffers."""

import itertools
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ottla.codec.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.codec.apis.list_offsets import EARLIEST, LATEST, ListOffsetsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.codec.records import BatchBuilder
from ottla.errors import (
    ConfigurationError,
    DataLoss,
    KafkaStorageError,
    LogTruncated,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TimeoutExpired,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.sdk.calls.offset_lookups import offsets_before
from ottla.sdk.calls.resets import planned
from ottla.sdk.calls.task import Task
from ottla.sdk.consume.partitions.position import Ago, Offset, Start, Time
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED
from ottla.sdk.consume.partitions.starts import fixed_start_at, start_at
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.options import Options
from tests.sdk.leaders import NEW, Leaders
from tests.sdk.reading import read, reader

P = ("t", 0)
T = [("t", index) for index in range(3)]


def fill(leaders: Leaders, *names: str, place: tuple[str, int] = P) -> None:
    for name in names:
        leaders.logs[place].append(name.encode())


# -- the first position ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [(1, 11), (0, 0)])
@pytest.mark.parametrize(
    ("start", "first"),
    [(Time(EARLIEST), "a"), (Time(LATEST), "new"), (Time(2000), "b"), (Time(9000), "new"), (Ago(8.5), "b")],
)
def test_a_place_is_found_by_time(start: Start, first: str, versions: tuple[int, int]) -> None:
    leaders = Leaders({"t": 1}, versions=NEW | {2: versions})
    for second, name in enumerate(("a", "b", "c"), start=1):
        leaders.logs[P].append(name.encode(), timestamp=second * 1000)
    fetcher = reader(leaders, {P: start}, wall=lambda: 10.0)
    leaders.run(lambda: fetcher.resolved)
    fill(leaders, "new")
    if versions == (0, 0) and start == Time(9000):
        first = "a"  # brokers of 0.10.0 find only segments, so they return an offset at or before the right one
    fetched = read(leaders, fetcher, {"a": 4, "b": 3, "new": 1}[first])
    assert fetched[P][0] == first.encode()


def append_at_each_lookup(leaders: Leaders, timestamp: int) -> None:
    """After each answer to ListOffsets, append a record before the client gets the answer."""
    count = itertools.count(1)

    def append(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            leaders.logs[P].append(b"young %d" % next(count), timestamp=timestamp)
        return answer

    leaders.bend = append


@pytest.mark.parametrize("start", [Time(9000), Ago(1.0)])
def test_a_start_at_a_time_skips_no_record_that_arrives_during_the_lookup(start: Start) -> None:
    leaders = Leaders({"t": 1})
    leaders.logs[P].append(b"old", timestamp=1000)
    append_at_each_lookup(leaders, 9500)
    fetcher = reader(leaders, {P: start}, wall=lambda: 10.0)
    assert read(leaders, fetcher, 2) == {P: [b"young 1", b"young 2"]}


def test_offsets_by_time_count_what_arrives_during_the_lookup() -> None:
    leaders = Leaders({"t": 1})
    leaders.logs[P].append(b"old", timestamp=1000)
    leaders.run(leaders.core.metadata.topic("t", leaders.now))
    append_at_each_lookup(leaders, 9500)
    before = offsets_before(leaders.core, {P: 9000}, leaders.now)
    leaders.run(before)
    assert before.result() == {P: 0}  # the old record; the timestamps of the new records are not before the time
    since = 9600
    plan = Task(leaders.core, "planning", leaders.now, lambda task: planned(task, {}, Time(since), [P]))
    end = leaders.logs[P].end
    append_at_each_lookup(leaders, since)
    leaders.run(plan.outcome)
    assert [each.new for each in plan.outcome.result()] == [end]


def test_the_end_that_a_deposed_leader_named_is_not_where_a_start_at_a_time_begins() -> None:
    leaders = Leaders({"t": 1}, nodes=2)
    fill(leaders, *"abcdef")
    asked: list[int] = []

    def change_leader(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            asked.append(request.topics[0].partitions[0].timestamp)
            if len(asked) == 1:
                leaders.logs[P].truncate(2, leader=2)
            elif node == 1:
                answer.topics[0].partitions[0].error_code = NotLeaderOrFollower.code
        return answer

    leaders.bend = change_leader
    fetcher = reader(leaders, {P: Time(9000)})
    leaders.run(lambda: fetcher.resolved)
    assert fetcher.position(P) == 2
    assert asked[-2:] == [LATEST, 9000]


def test_each_partition_has_its_own_fate_when_places_are_looked_up() -> None:
    leaders = Leaders({"t": 3})

    def refuse(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            for each in answer.topics[0].partitions:
                if each.partition_index == 1:
                    each.error_code = TopicAuthorizationFailed.code
        return answer

    leaders.bend = refuse
    fill(leaders, "a", place=T[0])
    fetcher = reader(leaders, dict.fromkeys(T, Time(EARLIEST)))
    known = fetcher.resolve(leaders.now)
    leaders.run(known)
    assert isinstance(known.error, TopicAuthorizationFailed) and "t-1" in str(known.error)
    leaders.run(lambda: fetcher.resolved)
    assert [fetcher.knows(place) for place in T] == [True] * 3
    leaders.run(fetcher.wait(only={T[0]}))
    fetched = fetcher.take(only={T[0]})
    assert fetched is not None and fetched.partition == 0
    with pytest.raises(TopicAuthorizationFailed):
        fetcher.take()
    assert fetcher.take() is None, "the error is raised only once"
    fetcher.unassign([T[1]])
    assert list(fetcher.explain(leaders.now)) == []


def test_places_that_cannot_be_looked_up_are_waited_for_as_long_as_a_call_may_take() -> None:
    leaders = Leaders({"t": 1}, options=Options(api_timeout=10.0))
    leaders.bend = lambda node, request, answer: None if isinstance(request, ListOffsetsRequest) else answer
    fetcher = reader(leaders, {P: Time(EARLIEST)})
    known = fetcher.resolve(leaders.now)
    leaders.run(known)
    assert isinstance(known.error, TimeoutExpired) and "t-0: looking up where to begin" in str(known.error)
    leaders.bend = lambda node, request, answer: answer
    leaders.run(lambda: fetcher.resolved)
    assert fetcher.position(P) == 0


def test_a_place_is_looked_up_once_however_often_others_are_added() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, {T[0]: Time(EARLIEST)})
    for place in T[1:]:
        fetcher.assign({place: Time(EARLIEST)}, leaders.now)
        leaders.run(0.0005)
    leaders.run(lambda: fetcher.resolved)
    asked = [each.partition_index for m in leaders.asked(ListOffsetsRequest) for each in m.topics[0].partitions]
    assert sorted(asked) == [0, 1, 2]


@pytest.mark.parametrize("reset", [Time(EARLIEST), Time(1500), Ago(8.5)])
def test_a_position_outside_the_log_is_reset_by_the_policy(reset: Time | Ago) -> None:
    leaders = Leaders({"t": 1})
    for second, name in enumerate(("a", "b", "c"), start=1):
        leaders.logs[P].append(name.encode(), timestamp=second * 1000)
    fetcher = reader(leaders, {P: Offset(99)}, reset=reset, wall=lambda: 10.0)
    expected = [b"a", b"b", b"c"] if reset == Time(EARLIEST) else [b"b", b"c"]
    assert read(leaders, fetcher, len(expected)) == {P: expected}


@pytest.mark.parametrize("by", ["seek", "reset"])
def test_so_long_ago_counts_from_the_clock_as_it_is_when_the_place_is_looked_up(by: str) -> None:
    """During a computer's sleep the time of day advances, but the monotonic clock stands still."""
    leaders = Leaders({"t": 1})
    for second, name in enumerate(("a", "b", "c"), start=1):
        leaders.logs[P].append(name.encode(), timestamp=second * 1000)
    time_of_day = 2.0
    fetcher = reader(leaders, {P: Time(LATEST)}, reset=Ago(8.5), wall=lambda: time_of_day)
    leaders.run(lambda: fetcher.resolved)
    time_of_day = 11.0
    fetcher.assign({P: Ago(8.5) if by == "seek" else Offset(99)}, leaders.now)
    assert read(leaders, fetcher, 1) == {P: [b"c"]}


def offsets_asked(leaders: Leaders) -> list[int]:
    return [each.fetch_offset for m in leaders.asked(FetchRequest) for topic in m.topics for each in topic.partitions]


def test_a_reset_ends_however_long_the_lookup_takes() -> None:
    leaders = Leaders({"t": 1})
    leaders.room_for_sessions = False
    fill(leaders, "a")
    held: list[Any] = []

    def hold_back(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            held.append(answer)
            return None
        return answer

    leaders.bend = hold_back
    fetcher = reader(leaders, {P: Offset(99)}, reset=Time(EARLIEST))
    leaders.run(5.0)
    assert offsets_asked(leaders) == [99] and len(held) == 1, "the client fetches nothing during the lookup"
    leaders.bend = lambda node, request, answer: answer
    assert read(leaders, fetcher, 1) == {P: [b"a"]}


def test_nothing_of_the_old_place_is_handed_out_after_a_seek() -> None:
    leaders = Leaders({"t": 1})
    fetcher = reader(leaders, {P: Offset(0)})
    leaders.run(0.1)  # a Fetch waits at the broker
    leaders.bend = lambda node, request, answer: None if isinstance(request, ListOffsetsRequest) else answer
    leaders.logs[P].append(b"old", timestamp=1000)
    fetcher.assign({P: Time(2000)}, leaders.now)
    leaders.run(3.0)
    assert fetcher.take() is None and fetcher.position(P) is None
    assert offsets_asked(leaders) == [0]


@pytest.mark.parametrize("versions", [(4, 18), (4, 11), (4, 6)])
def test_a_seek_does_not_wait_for_a_fetch_that_the_broker_holds_back(versions: tuple[int, int]) -> None:
    leaders = Leaders({"t": 3}, versions=NEW | {1: versions}, options=Options(fetch_max_wait=30.0))
    fill(leaders, "a", "b")
    fill(leaders, "c", place=T[1])
    fetcher = reader(leaders, {place: Time(EARLIEST) for place in T})
    assert read(leaders, fetcher, 3) == {T[0]: [b"a", b"b"], T[1]: [b"c"]}
    leaders.run(1.0)  # the broker delays its answer to the next Fetch
    for _ in range(2):
        before = leaders.now
        fetcher.assign({P: Offset(1)}, leaders.now)
        assert read(leaders, fetcher, 1) == {P: [b"b"]}
        assert leaders.now - before < 0.1
    fetcher.assign({T[2]: Time(LATEST)}, leaders.now)  # an empty partition, which must not cause requests in a loop
    asked = len(leaders.asked(FetchRequest))
    leaders.run(20.0)
    assert len(leaders.asked(FetchRequest)) <= asked + 2
    for place in T:
        fill(leaders, "d", place=place)
    assert read(leaders, fetcher, 3) == {place: [b"d"] for place in T}
    fetcher.close()
    leaders.run(0.1)
    assert all(key[1] == "general" for key in leaders.links)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("buffer", [2 * 2**20, 64 * 2**20])
def test_a_seek_is_served_at_once_though_all_nodes_are_asked_already(nodes: int, buffer: int) -> None:
    """With one node, a pending Fetch may fill the buffers; with several, their limits together exceed the buffers."""
    limits = Options(fetch_max_wait=20.0, fetch_buffer_bytes=buffer, fetch_max_bytes=min(buffer, 50 * 2**20))
    leaders = Leaders({"t": 3}, nodes=nodes, options=limits)
    for place in T:
        fill(leaders, "a", "b", place=place)
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    read(leaders, fetcher, 6, limit=200.0)
    leaders.run(1.0)
    before = leaders.now
    fetcher.assign({P: Offset(1)}, leaders.now)
    assert read(leaders, fetcher, 1) == {P: [b"b"]}
    assert leaders.now - before < 0.1


@pytest.mark.parametrize("again", [P, T[1]])
def test_what_is_sought_while_another_seek_is_under_way_is_served_at_once(again: tuple[str, int]) -> None:
    leaders = Leaders({"t": 2}, options=Options(fetch_max_wait=20.0))
    for place in T[:2]:
        fill(leaders, "a", "b", place=place)
    fetcher = reader(leaders, dict.fromkeys(T[:2], Offset(0)))
    read(leaders, fetcher, 4)
    leaders.run(1.0)
    before, asked = leaders.now, len(leaders.asked(FetchRequest))
    fetcher.assign({P: Offset(0)}, leaders.now)
    leaders.run(lambda: len(leaders.asked(FetchRequest)) > asked)
    fetcher.assign({again: Offset(1)}, leaders.now)
    assert read(leaders, fetcher, 1 if again == P else 3)[again] == [b"b"]
    assert leaders.now - before < 0.1


class Resets(list[tuple[str, int]]):
    """The partitions whose position was reset."""

    def reset(self, place: tuple[str, int]) -> None:
        self.append(place)

    def passed(self, place: tuple[str, int]) -> None:
        pass

    def log_changed(self, place: tuple[str, int]) -> None:
        pass


def test_who_reads_is_told_when_a_position_is_reset_but_not_of_a_seek() -> None:
    leaders, moved = Leaders({"t": 3}, nodes=2), Resets()
    fill(leaders, "a", "b", "c", place=T[1])
    fetcher = reader(leaders, {T[0]: Offset(99), T[1]: Offset(0)}, reset=Time(EARLIEST))
    fetcher.report_to(moved)
    assert read(leaders, fetcher, 3) == {T[1]: [b"a", b"b", b"c"]}
    leaders.run(lambda: fetcher.position(T[0]) == 0)
    assert moved == [T[0]], "its position was outside the log"
    leaders.logs[T[1]].truncate(1)
    leaders.run(lambda: fetcher.position(T[1]) == 1)
    assert moved == [T[0], T[1]], "the log was truncated"
    leaders.cluster.recreate("t")
    leaders.drop_sessions()
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(lambda: len(moved) == 4)
    assert sorted(moved[2:]) == T[:2], "the topic was recreated"
    fetcher.assign({T[0]: Offset(0), T[2]: Offset(0)}, leaders.now)
    leaders.run(1.0)
    assert len(moved) == 4


def test_what_was_only_fetched_ahead_is_no_reset_of_what_the_user_has() -> None:
    leaders, moved = Leaders({"t": 1}, nodes=2), Resets()
    fill(leaders, "a", "b", "c")
    fetcher = reader(leaders, {P: Offset(0)}, reset=Time(EARLIEST))
    fetcher.report_to(moved)
    leaders.run(fetcher.wait())
    leaders.logs[P].truncate(1)
    fill(leaders, "x")
    leaders.run(2.0)
    assert read(leaders, fetcher, 2) == {P: [b"a", b"x"]} and moved == []


def test_what_was_fetched_before_the_position_fell_out_of_the_log_is_handed_out_first() -> None:
    leaders = Leaders({"t": 1})
    fill(leaders, "a", "b")
    fetcher = reader(leaders, {P: Offset(0)})
    leaders.run(fetcher.wait())
    fill(leaders, "c", "d")
    fill(leaders, *"efghi")
    leaders.logs[P].retain(8)
    leaders.run(2.0)
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    leaders.run(lambda: bool(fetcher.failed))
    with pytest.raises(OffsetOutOfRange, match="t-0 at 2; the log begins at 8: seek to an offset"):
        fetcher.take()
    fetcher.assign({P: Time(EARLIEST)}, leaders.now)
    leaders.run(lambda: fetcher.resolved)
    assert fetcher.position(P) == 8 and fetcher.take() is None


# -- leaders that move -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fetch", [(4, 18), (4, 15), (4, 11), (4, 8)])
def test_a_new_leader_is_asked_whether_it_has_what_was_read(fetch: tuple[int, int]) -> None:
    leaders = Leaders({"t": 1}, nodes=2, versions=NEW | {1: fetch})
    fill(leaders, "a", "b")
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    log = leaders.logs[P]
    log.lead(2)
    fill(leaders, "c")
    assert read(leaders, fetcher, 1) == {P: [b"c"]}
    [asked] = leaders.asked(OffsetForLeaderEpochRequest)
    [each] = asked.topics[0].partitions
    assert (each.leader_epoch, each.current_leader_epoch) == (0, 1)
    assert fetcher.position_epoch(P) == 1


def test_the_leader_that_an_answer_names_is_asked_at_once_without_metadata() -> None:
    leaders = Leaders({"t": 1}, nodes=2)
    fill(leaders, "a")
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 1) == {P: [b"a"]}
    leaders.run(0.1)
    log, before, moved = leaders.logs[P], len(leaders.asked(MetadataRequest)), leaders.now
    log.lead(2)
    fill(leaders, "b")
    assert read(leaders, fetcher, 1) == {P: [b"b"]}
    assert leaders.now - moved < 0.6, "at most the pending Fetch, and no backoff"
    assert len(leaders.asked(MetadataRequest)) == before


def test_a_committed_offset_is_checked_against_the_log_before_it_is_read() -> None:
    leaders = Leaders({"t": 1})
    fill(leaders, "a", "b")
    leaders.logs[P].truncate(1)
    fill(leaders, "x", "y")
    fetcher = reader(leaders, {P: Offset(2, leader_epoch=0)})
    leaders.run(lambda: bool(fetcher.failed))
    with pytest.raises(LogTruncated, match=r"t-0 was read up to offset 2, .* only up to offset 1.*seek") as caught:
        fetcher.take()
    assert (caught.value.offset, caught.value.diverging) == (2, 1)
    assert leaders.asked(FetchRequest) == []
    fetcher.assign({P: Offset(caught.value.diverging or 0)}, leaders.now)
    assert read(leaders, fetcher, 2) == {P: [b"x", b"y"]}


@pytest.mark.parametrize("epochs", [(2, 4), (2, 2)])
def test_what_a_new_leader_does_not_have_is_an_error_or_read_again_by_the_policy(epochs: tuple[int, int]) -> None:
    """Brokers from 2.7 on report the truncation in the Fetch response; older ones need OffsetForLeaderEpoch."""
    leaders = Leaders({"t": 1}, nodes=2, versions=NEW | {23: epochs})
    fill(leaders, "a", "b", "c")
    strict, lenient = reader(leaders, {P: Offset(0)}), reader(leaders, {P: Offset(0)}, reset=Time(LATEST))
    for each in (strict, lenient):
        assert read(leaders, each, 3) == {P: [b"a", b"b", b"c"]}
    log = leaders.logs[P]
    log.truncate(1, leader=2)
    fill(leaders, "x", "y", "z")
    leaders.run(lambda: bool(strict.failed))
    with pytest.raises(LogTruncated) as caught:
        strict.take()
    assert (caught.value.offset, caught.value.diverging) == (3, 1)
    assert read(leaders, lenient, 3) == {P: [b"x", b"y", b"z"]}


@pytest.mark.parametrize("fetch", [(4, 11), (4, 12), (4, 18)])
def test_a_recreated_topic_is_not_taken_for_a_truncated_log(fetch: tuple[int, int]) -> None:
    """By name, the new log answers: only its topic id differs from the old one's, in Fetch and in the epoch lookup."""
    leaders = Leaders({"t": 1}, nodes=2, versions=NEW | {1: fetch})
    fill(leaders, "a", "b", "c")
    strict, lenient = reader(leaders, {P: Offset(0)}), reader(leaders, {P: Offset(0)}, reset=Time(LATEST))
    for each in (strict, lenient):
        assert read(leaders, each, 3) == {P: [b"a", b"b", b"c"]}
    log, leaders.hide = leaders.logs[P], lambda node: node == 2
    log.lead(2)
    leaders.run(1.0)  # the client has to ask the new leader, and cannot reach it
    leaders.cluster.recreate("t", leader=2, epoch=1)
    fill(leaders, "x")
    leaders.drop_sessions()
    leaders.hide = lambda node: False
    leaders.run(lambda: bool(strict.failed))
    with pytest.raises(DataLoss, match="t-0 from offset 3: the topic was deleted and recreated") as caught:
        strict.take()
    assert not isinstance(caught.value, LogTruncated)
    leaders.run(lambda: lenient.resolved and lenient.position(P) == 1)
    fill(leaders, "y")
    assert read(leaders, lenient, 1) == {P: [b"y"]}


def test_a_topic_recreated_while_a_committed_offset_is_asked_about_is_not_taken_for_a_truncated_log() -> None:
    leaders = Leaders({"t": 1}, nodes=2)
    fill(leaders, "a", "b", "c")
    log, leaders.hide = leaders.logs[P], lambda node: node == 2
    log.lead(2)
    fetcher = reader(leaders, {P: Offset(3, leader_epoch=0)})
    leaders.run(1.0)
    leaders.cluster.recreate("t", leader=2, epoch=1)
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(1.0)
    leaders.hide = lambda node: False
    leaders.run(lambda: bool(fetcher.failed))
    with pytest.raises(DataLoss, match="recreated") as caught:
        fetcher.take()
    assert not isinstance(caught.value, LogTruncated)


WITHOUT_IDS = {1: (4, 11), 2: (1, 5), 3: (1, 9), 18: (0, 3), 23: (2, 3)}
"""The versions that Kafka 2.4 serves of the APIs that a fetcher uses."""


@pytest.mark.parametrize("gone", [5.0, 0.0])
@pytest.mark.parametrize(("old", "new"), [(5, 0), (5, 3), (0, 0)])
def test_without_topic_ids_a_recreated_topic_that_lacks_what_was_read_is_not_read_on(
    gone: float, old: int, new: int
) -> None:
    leaders = Leaders({"t": 1}, versions=WITHOUT_IDS)
    leaders.logs[P].lead(1, old)
    fill(leaders, "a", "b", "c")
    strict, lenient = reader(leaders, {P: Offset(0)}), reader(leaders, {P: Offset(0)}, reset=Time(LATEST))
    any_topic = reader(leaders, {P: Offset(0)})
    any_topic.let_go(["t"])
    for each in (strict, lenient, any_topic):
        assert read(leaders, each, 3) == {P: [b"a", b"b", b"c"]}
    if gone:
        leaders.cluster.delete("t")
        leaders.run(gone)
    leaders.cluster.recreate("t", epoch=new)
    fill(leaders, "x")
    if not gone and old == new:  # just like a log that lost records
        leaders.run(lambda: bool(strict.failed))
        with pytest.raises(OffsetOutOfRange):
            strict.take()
        return
    leaders.run(lambda: bool(strict.failed))
    with pytest.raises(DataLoss, match="t-0 from offset 3: the topic was deleted and recreated") as caught:
        strict.take()
    assert not isinstance(caught.value, LogTruncated)
    assert read(leaders, any_topic, 1) == {P: [b"x"]}, "from the beginning of the new log"
    leaders.run(lambda: lenient.resolved and lenient.position(P) == 1)
    fill(leaders, "y")
    assert read(leaders, lenient, 1) == {P: [b"y"]} == read(leaders, any_topic, 1)


@pytest.mark.parametrize("behind", [0.0, 1.0, 20.0])
def test_without_topic_ids_brokers_that_know_less_for_a_while_have_not_recreated_the_topic(behind: float) -> None:
    """The brokers have just started and know no topic yet, or they do not know the newest leader yet."""
    leaders = Leaders({"t": 1}, nodes=2, versions=WITHOUT_IDS)
    log = leaders.logs[P]
    log.lead(1, 5)
    fill(leaders, "a", "b", "c")
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 3) == {P: [b"a", b"b", b"c"]}

    def old(node, request, answer):  # type: ignore[no-untyped-def] # any message
        for each in answer.topics if isinstance(request, MetadataRequest) else ():
            if not behind:
                each.error_code, each.partitions = UnknownTopicOrPartition.code, ()
            for partition in each.partitions:
                partition.leader_id, partition.leader_epoch = 2, 4
        return answer

    leaders.bend = old
    for _ in range(3):
        leaders.core.metadata.refresh(leaders.now)
        leaders.run(max(behind, 1.0))
    leaders.bend = lambda node, request, answer: answer
    fill(leaders, "d")
    assert read(leaders, fetcher, 1) == {P: [b"d"]}
    leaders.run(2.0)
    log.truncate(2)
    leaders.run(lambda: bool(fetcher.failed))
    with pytest.raises(LogTruncated):
        fetcher.take()


@pytest.mark.parametrize("diverging", [False, True])
def test_a_leader_just_deposed_does_not_decide_that_a_position_is_lost(diverging: bool) -> None:
    leaders = Leaders({"t": 1}, nodes=2)
    fill(leaders, "a", "b", "c")
    fetcher = reader(leaders, {P: Offset(0)}, reset=Time(EARLIEST))
    read(leaders, fetcher, 3)
    log, told = leaders.logs[P], list[str]()

    def depose(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, MetadataRequest) and told:
            told.extend(fetcher.explain(leaders.now))
        if not isinstance(request, FetchRequest) or told:
            return answer
        told.append("deposed")
        log.lead(2)
        end = EpochEndOffset(epoch=0, end_offset=1) if diverging else EpochEndOffset()
        partition = PartitionData(
            partition_index=0,
            error_code=0 if diverging else OffsetOutOfRange.code,
            high_watermark=-1,
            diverging_epoch=end,
            records=None,
        )
        topic = FetchableTopicResponse(topic="t", topic_id=leaders.ids["t"], partitions=(partition,))
        return FetchResponse(session_id=answer.session_id, responses=(topic,))

    leaders.bend = depose
    leaders.run(lambda: bool(told))
    fill(leaders, "d")
    assert read(leaders, fetcher, 1) == {P: [b"d"]}
    assert any(line.startswith("t-0: checking which node leads it now") for line in told)


def test_what_was_only_fetched_ahead_and_is_gone_is_fetched_again_silently() -> None:
    leaders = Leaders({"t": 1}, nodes=2)
    fill(leaders, "a", "b", "c")
    fetcher = reader(leaders, {P: Offset(0)})
    leaders.run(fetcher.wait())
    leaders.run(0.1)
    log = leaders.logs[P]
    log.truncate(1, leader=2)
    fill(leaders, "x", "y")
    leaders.run(3.0)
    assert read(leaders, fetcher, 3) == {P: [b"a", b"x", b"y"]}


def test_brokers_without_epochs_for_consumers_are_not_asked_about_them() -> None:
    leaders = Leaders({"t": 1}, nodes=2, versions=NEW | {1: (4, 11), 23: (0, 2)})
    fill(leaders, "a")
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 1) == {P: [b"a"]}
    leaders.logs[P].lead(2)
    fill(leaders, "b")
    assert read(leaders, fetcher, 1) == {P: [b"b"]}
    assert leaders.asked(OffsetForLeaderEpochRequest) == []


# -- near replicas ----------------------------------------------------------------------------------------------------


def near(leaders: Leaders) -> list[int]:
    """The nodes that got Fetch requests, in order, without repetitions."""
    nodes = [node for node, _, message in leaders.requests if isinstance(message, FetchRequest)]
    return [node for i, node in enumerate(nodes) if i == 0 or nodes[i - 1] != node]


def with_replica(**options: Any) -> Leaders:
    leaders = Leaders({"t": 1}, nodes=2, options=Options(rack="r2", **options))
    leaders.prefer[P] = 2
    fill(leaders, "a", "b")
    return leaders


def test_the_replica_that_the_leader_recommends_is_read_from() -> None:
    leaders = with_replica()
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    assert near(leaders) == [1, 2]
    assert leaders.asked(FetchRequest)[0].rack_id == "r2"


def test_the_leader_is_asked_again_when_its_recommendation_is_old() -> None:
    leaders = with_replica(metadata_max_age=20.0)
    reader(leaders, {P: Offset(0)})
    leaders.run(15.0)
    assert near(leaders) == [1, 2]
    leaders.run(10.0)
    assert near(leaders) == [1, 2, 1, 2]


@pytest.mark.parametrize("code", [OffsetOutOfRange.code, NotLeaderOrFollower.code])
def test_after_an_error_of_a_replica_the_leader_has_the_last_word(code: int) -> None:
    leaders = with_replica()

    def refuse(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, FetchRequest) and node == 2:
            leaders.prefer.clear()
            for topic in answer.responses:
                for each in topic.partitions:
                    each.error_code, each.records = code, b""
        return answer

    leaders.bend = refuse
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    assert near(leaders) == [1, 2, 1]


@pytest.mark.parametrize("reset", [None, Time(EARLIEST), Time(LATEST)])
def test_a_replica_whose_log_ends_early_does_not_decide_that_records_were_truncated(reset: Time | None) -> None:
    leaders = with_replica()
    fetcher = reader(leaders, {P: Offset(0)}, reset=reset)
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}

    def shorter(node: int, request: Any, answer: Any) -> Any:  # as in Partition.readRecords
        if isinstance(request, FetchRequest) and node == 2:
            for topic in answer.responses:
                for each in topic.partitions:
                    each.records, each.diverging_epoch = b"", EpochEndOffset(epoch=0, end_offset=1)
        return answer

    leaders.bend = shorter
    for value in ("c", "d", "e"):
        fill(leaders, value)
        assert read(leaders, fetcher, 1) == {P: [value.encode()]}
    assert near(leaders)[-1] == 1 and leaders.now < 5.0
    assert fetches(leaders, 2) < 8, "it is tried ever more rarely"


def refusing(leaders: Leaders, code: int = OffsetOutOfRange.code) -> Any:
    """A `bend` with which node 2 answers for `P` with an error."""

    def refuse(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, FetchRequest) and node == 2:
            for topic in answer.responses:
                for each in topic.partitions:
                    if each.partition_index == P[1]:
                        each.error_code, each.records = code, b""
        return answer

    return refuse


@pytest.mark.parametrize("code", [OffsetOutOfRange.code, KafkaStorageError.code])
@pytest.mark.parametrize("by_rack", [True, False])
def test_a_replica_that_refuses_what_its_leader_goes_on_to_recommend_is_tried_ever_more_rarely(
    code: int, by_rack: bool
) -> None:
    leaders = with_replica()
    leaders.by_rack = by_rack
    leaders.bend = refusing(leaders, code)
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    assert leaders.now < 1.0
    late = [each for each in range(60) if not _read_soon(leaders, fetcher)]
    assert late == [] and fetches(leaders, 2) == 5  # twice without a pause, then after 2, 10 and 42 s
    leaders.bend = lambda node, request, answer: answer
    leaders.run(120.0)
    assert all(_read_soon(leaders, fetcher) for _ in range(3)) and near(leaders)[-1] == 2
    # After it has served records, the earlier errors no longer count.
    leaders.bend = refusing(leaders, code)
    assert _read_soon(leaders, fetcher) and near(leaders)[-1] == 1
    leaders.bend = lambda node, request, answer: answer
    leaders.run(3.0)
    assert near(leaders)[-1] == 2


def test_a_replica_that_refuses_one_partition_is_read_from_for_the_others() -> None:
    leaders = Leaders({"t": 2}, nodes=2, options=Options(rack="r2"))
    for place in T[:2]:
        leaders.logs[place].lead(1)
        leaders.prefer[place] = 2
        fill(leaders, "a", place=place)
    leaders.bend = refusing(leaders)
    fetcher = reader(leaders, dict.fromkeys(T[:2], Offset(0)))
    assert read(leaders, fetcher, 2) == {T[0]: [b"a"], T[1]: [b"a"]}
    for _ in range(100):  # answers for the other partition must not reset this one's pauses
        fill(leaders, "b", place=T[1])
        assert read(leaders, fetcher, 1) == {T[1]: [b"b"]}
    nodes = [fetcher._scheduler.node(fetcher._positions.assigned[each]) for each in T[:2]]
    assert leaders.now < 15.0 and nodes == [1, 2]
    refused = [m for node, _, m in leaders.requests if node == 2 and isinstance(m, FetchRequest) and _names(m, P)]
    assert len(refused) <= 3
    fetcher.unassign([P])
    assert not fetcher._near._refused


def _names(message: FetchRequest, place: tuple[str, int]) -> bool:
    return any(each.partition == place[1] for topic in message.topics for each in topic.partitions)


def test_a_replica_that_is_down_is_left_for_the_leader() -> None:
    leaders = with_replica()
    leaders.hide = lambda node: node == 2
    fetcher = reader(leaders, {P: Offset(0)})
    leaders.run(lambda: fetcher._positions.assigned[P].trouble is not None)
    leaders.prefer.clear()
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}


def test_a_replica_that_only_we_do_not_reach_keeps_nobody_from_reading_and_is_tried_ever_more_rarely() -> None:
    leaders = with_replica()
    tried: list[float] = []

    def hidden(node: int) -> bool:
        if node == 2:
            tried.append(leaders.now)
        return node == 2

    leaders.hide = hidden
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}  # the leader keeps recommending the node
    assert leaders.now < 1.0
    leaders.run(60.0)
    assert len(tried) == 4 and tried[1] > 2 and tried[2] - tried[1] > 7 and tried[3] - tried[2] > 30
    leaders.hide = lambda node: False
    leaders.run(120.0)
    fill(leaders, "c")
    assert read(leaders, fetcher, 1) == {P: [b"c"]}
    assert near(leaders)[-1] == 2
    # After it has answered, the earlier failures no longer count.
    leaders.hide = lambda node: node == 2
    leaders.cut()
    leaders.run(1.0)
    assert near(leaders)[-1] == 1
    leaders.hide = lambda node: False
    leaders.run(3.0)
    assert near(leaders)[-1] == 2


def fetches(leaders: Leaders, node: int) -> int:
    """How many Fetch requests this node got, with or without records to return."""
    return sum(asked == node and isinstance(message, FetchRequest) for asked, _, message in leaders.requests)


def pauses(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int]]:
    """The near replicas that the log reports as avoided, with the seconds."""
    lines: list[Any] = [each for each in caplog.records if each.message.startswith("a near replica failed")]
    return [(each.node, each.seconds) for each in lines]


def test_a_replica_that_the_metadata_do_not_know_is_read_from_once_they_do(caplog: pytest.LogCaptureFixture) -> None:
    leaders = with_replica()
    leaders.prefer[P] = 4
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    assert leaders.now < 1.0
    asked, timers = len(leaders.asked(MetadataRequest)), len(leaders.core.timers)
    leaders.run(60.0)
    assert pauses(caplog) == [(4, 2), (4, 8), (4, 32), (4, 128)]
    assert len(leaders.asked(MetadataRequest)) >= asked + 3
    assert fetches(leaders, 1) < 140 and len(leaders.core.timers) < timers + 10
    leaders.cluster.add_node(4)
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(1.0)
    fill(leaders, "c")
    assert read(leaders, fetcher, 1) == {P: [b"c"]}
    assert near(leaders)[-1] == 4


def test_a_replica_that_is_newer_than_the_metadata_is_read_from_as_soon_as_they_were_asked_for() -> None:
    leaders = with_replica()
    fetcher = reader(leaders, {P: Offset(2)})
    leaders.run(lambda: near(leaders)[-1:] == [2])
    leaders.cluster.add_node(4)
    leaders.prefer[P] = 4
    leaders.bend = refusing(leaders, NotLeaderOrFollower.code)  # node 2 has no replica any more
    leaders.run(1.5)
    fill(leaders, "c")
    assert read(leaders, fetcher, 1) == {P: [b"c"]}
    assert near(leaders)[-1] == 4


def test_a_leader_that_recommends_by_the_address_is_asked_in_a_version_in_which_it_cannot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leaders = with_replica()
    leaders.by_rack = False
    leaders.hide = lambda node: node == 2
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    leaders.run(20.0)
    fill(leaders, "c")
    assert read(leaders, fetcher, 1, limit=1.0) == {P: [b"c"]}
    assert pauses(caplog) == [(2, 2), (2, 8), (2, 32)] and fetches(leaders, 1) < 60
    leaders.hide = lambda node: False
    leaders.run(40.0)
    fill(leaders, "d")
    assert read(leaders, fetcher, 1) == {P: [b"d"]}
    assert near(leaders)[-1] == 2


@pytest.mark.parametrize("why", ["which cannot be reached", "which refused it"])
def test_where_no_version_keeps_a_leader_from_recommending_pauses_are_made_and_explained(why: str) -> None:
    leaders = with_replica()
    leaders.cluster.release[1] = (11, 18)
    usual = leaders.bend
    if why == "which refused it":
        leaders.bend = refusing(leaders)
    else:
        leaders.hide = lambda node: node == 2
    fetcher = reader(leaders, {P: Offset(0)})
    told: list[str] = []

    def explained() -> bool:
        told.extend(leaders.core.explain(leaders.now))
        return leaders.now >= 10.0

    leaders.run(explained)
    assert any(f"t-0: the leader names node 2, {why}" in line for line in told)
    assert fetches(leaders, 1) < 120
    assert why == "which cannot be reached" or fetches(leaders, 2) < 5
    leaders.hide, leaders.bend = lambda node: False, usual
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}


def test_a_replica_that_falls_silent_costs_seconds_and_no_request_timeout_and_is_tried_again_while_the_leader_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leaders = with_replica()
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    leaders.bend = lambda node, request, answer: None if node == 2 else answer
    fill(leaders, "c")
    assert read(leaders, fetcher, 1) == {P: [b"c"]}
    assert leaders.now < 3.0, "the pending Fetch, its fetch_max_wait, and the silence"
    late = [each for each in range(200) if not _read_soon(leaders, fetcher)]
    assert late == [] and near(leaders)[-1] == 1
    assert pauses(caplog) == [(2, 2), (2, 8), (2, 32), (2, 128)]
    leaders.bend = lambda node, request, answer: answer
    assert all(_read_soon(leaders, fetcher) for _ in range(130))
    assert near(leaders)[-1] == 2


def test_a_replica_that_stops_to_take_connections_costs_seconds_too() -> None:
    leaders = with_replica()
    leaders.mute = lambda node: node == 2
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2, limit=4.0) == {P: [b"a", b"b"]}
    assert near(leaders)[-1] == 1


def test_a_slow_replica_is_waited_for_as_long_as_something_arrives() -> None:
    leaders = with_replica()
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 2) == {P: [b"a", b"b"]}
    leaders.drip = 1.0
    fill(leaders, "c" * 100)
    assert read(leaders, fetcher, 1) == {P: [b"c" * 100]}
    assert leaders.now > 5.0 and near(leaders) == [1, 2]


def test_a_slow_link_delays_records_longer_than_a_request_may_take() -> None:
    leaders = Leaders({"t": 1}, options=Options(request_timeout=1.0))
    for value in range(4):
        leaders.logs[P].append(bytes([value]) * 2000)
    fetcher = reader(leaders, {P: Offset(0)})
    leaders.run(lambda: fetcher._positions.assigned[P].fetch_offset == 0 and leaders.now > 0.0)
    leaders.drip = 0.02  # 2 kB a second
    begun = leaders.now
    assert len(read(leaders, fetcher, 4)[P]) == 4
    assert leaders.now - begun > 3.0 and len(leaders.asked(FetchRequest)) <= 3


def _read_soon(leaders: Leaders, fetcher: Fetcher) -> bool:
    """Whether a record arrives within a second."""
    fill(leaders, "x")
    leaders.run(1.0)
    return fetcher.take() is not None


def test_a_replica_that_answers_questions_but_brings_no_records_is_tried_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leaders = with_replica()

    def stuck(node: int, request: Any, answer: Any) -> Any:
        return None if node == 2 and isinstance(request, FetchRequest) and request.topics else answer

    leaders.bend = stuck
    fetcher = reader(leaders, {P: Offset(0)})
    leaders.run(200.0)
    assert fetcher.take() is not None
    assert pauses(caplog) == [(2, 2), (2, 8), (2, 32), (2, 128), (2, 300)]


@pytest.mark.parametrize("dead", [2, 3])
def test_of_two_near_replicas_only_the_one_that_is_dead_is_avoided(dead: int, caplog: pytest.LogCaptureFixture) -> None:
    places = [("t", index) for index in range(20)]
    leaders = Leaders({"t": 20}, nodes=3, options=Options(rack="r2"))
    for index, place in enumerate(places):
        leaders.logs[place].lead(1)
        leaders.prefer[place] = 2 + index % 2
        fill(leaders, "x", place=place)
    leaders.hide = lambda node: node == dead
    fetcher = reader(leaders, dict.fromkeys(places, Offset(0)))
    read(leaders, fetcher, 20)
    assert leaders.now < 1.0 and pauses(caplog) == [(dead, 2)]
    leaders.run(1.0)
    fill(leaders, *"y" * 10, place=places[dead - 2])
    read(leaders, fetcher, 10)
    assert fetches(leaders, 1) < 10 and pauses(caplog) == [(dead, 2)]


def test_two_fetches_that_fail_at_a_replica_together_are_one_failure(caplog: pytest.LogCaptureFixture) -> None:
    leaders = Leaders({"t": 2}, nodes=2, options=Options(rack="r2"))
    leaders.prefer[T[0]] = 2
    fetcher = reader(leaders, dict.fromkeys(T[:2], Offset(0)))
    leaders.run(1.3)
    fetcher.assign({T[1]: Offset(0)}, leaders.now)  # node 2 leads it, and delays its answers as usual
    leaders.run(
        lambda: {key for key, each in fetcher._scheduler._sessions.items() if each.under_way} >= {(2, False), (2, True)}
    )
    leaders.hide = lambda node: node == 2
    leaders.cut()
    leaders.run(1.0)
    assert pauses(caplog) == [(2, 2)]


def test_a_partition_that_was_not_asked_for_when_its_replica_failed_goes_to_the_leader_too() -> None:
    leaders = Leaders({"t": 2}, nodes=2, options=Options(rack="r2"))
    for place in T[:2]:
        leaders.logs[place].lead(1)
        leaders.prefer[place] = 2
        fill(leaders, "a", place=place)
    fetcher = reader(leaders, dict.fromkeys(T[:2], Offset(0)))
    read(leaders, fetcher, 2)
    fetcher.pause([T[1]])
    leaders.run(1.0)
    leaders.hide = lambda node: node == 2
    leaders.cut()
    leaders.run(0.5)
    fill(leaders, "b", place=T[1])
    tried = fetches(leaders, 2)
    fetcher._now = leaders.now
    fetcher.resume([T[1]])
    leaders.hide = lambda node: False
    assert read(leaders, fetcher, 1) == {T[1]: [b"b"]}
    assert fetches(leaders, 2) == tried


def test_a_fetcher_that_is_closed_asks_no_replica_whether_it_answers() -> None:
    leaders = with_replica()
    leaders.hide = lambda node: node == 2
    fetcher = reader(leaders, {P: Offset(0)})
    read(leaders, fetcher, 2)
    fetcher.close()
    leaders.hide = lambda node: False
    leaders.run(5.0)
    assert fetches(leaders, 2) == 0


def test_metrics_tell_from_where_a_partition_is_read() -> None:
    leaders = with_replica()
    fetcher = reader(leaders, {P: Offset(0)})
    tags = {"topic": "t", "partition": 0}

    def replica() -> float:
        return leaders.core.metrics.value("preferred-read-replica", leaders.now, **tags)

    assert replica() == -1
    read(leaders, fetcher, 2)
    assert replica() == 2
    fetcher.close()
    assert not [each for each in leaders.core.metrics.snapshot(leaders.now) if each.name == "preferred-read-replica"]


# -- explain and metrics ---------------------------------------------------------------------------------------------


def test_aborted_records_are_hidden_also_where_answers_part_their_transaction() -> None:
    leaders = Leaders({"t": 1}, options=Options(partition_max_bytes=80, fetch_max_bytes=80))
    log = leaders.logs[P]

    def append(producer: int, value: bytes, *, marker: bytes | None = None) -> None:
        builder = BatchBuilder()
        builder.append(0, marker, value, ())
        data = builder.build(
            base_offset=log.end,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=-1 if marker else 0,
            transactional=True,
            control=marker is not None,
        )
        log.append_batch(data, 1)

    abort, commit = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
    append(1, b"aborted")
    append(2, b"good")
    append(1, b"aborted too")
    append(1, b"", marker=abort)
    append(2, b"", marker=commit)
    append(1, b"good again")
    append(1, b"", marker=commit)

    def aborted(node: int, request: Any, answer: Any) -> Any:
        if isinstance(answer, FetchResponse):
            for topic in answer.responses:
                for each in topic.partitions:
                    offset = (
                        next(a for a in reversed(leaders.asked(FetchRequest)[-1].topics)).partitions[0].fetch_offset
                    )
                    if offset <= 3:
                        each.aborted_transactions = (AbortedTransaction(producer_id=1, first_offset=0),)
        return answer

    leaders.bend = aborted
    committed = reader(leaders, {P: Offset(0)}, isolation=READ_COMMITTED)
    assert read(leaders, committed, 2) == {P: [b"good", b"good again"]}
    leaders.run(lambda: committed.position(P) == 7)
    assert committed.lag(P) == 0
    leaders.bend = lambda node, request, answer: answer
    assert len(read(leaders, reader(leaders, {P: Offset(0)}), 4)[P]) == 4


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_what_is_fetched_ahead_is_bounded_over_all_partitions_and_each_gets_on() -> None:
    options = Options(fetch_buffer_bytes=6000, partition_max_bytes=1000, fetch_max_bytes=5000)
    leaders = Leaders({"t": 9}, nodes=3, options=options)
    places = [("t", index) for index in range(9)]
    for place in places:
        for _ in range(30):
            leaders.logs[place].append(b"x" * 200)
    fetcher = reader(leaders, dict.fromkeys(places, Offset(0)))
    most, got = 0, dict.fromkeys(places, 0)
    while sum(got.values()) < 270:
        leaders.run(0.05)  # slower than the fetcher
        most = max(most, fetcher.buffered)
        if fetched := fetcher.take():
            got[fetched.topic, fetched.partition] += fetched.count
            assert max(got.values()) - min(got.values()) <= 15, "a partition starves"
    assert 3000 < most <= 6000
    assert set(got.values()) == {30}


def test_what_paused_partitions_hold_is_given_up_where_others_need_the_room() -> None:
    options = Options(fetch_buffer_bytes=2000, partition_max_bytes=1000, fetch_max_bytes=1000)
    leaders = Leaders({"t": 2}, options=options)
    for place in T[:2]:
        for index in range(20):
            leaders.logs[place].append(b"%03d" % index * 60)
    fetcher = reader(leaders, {T[0]: Offset(0)})
    leaders.run(2.0)
    fetcher.pause([T[0]])
    fetcher.assign({T[1]: Offset(0)}, leaders.now)
    assert len(read(leaders, fetcher, 20)[T[1]]) == 20
    fetcher.resume([T[0]])
    assert read(leaders, fetcher, 20)[T[0]][0].startswith(b"000")


# -- log lines and errors --------------------------------------------------------------------------------------------


def test_a_partition_that_stalls_is_reported_and_explained(caplog: pytest.LogCaptureFixture) -> None:
    leaders = Leaders({"t": 3}, nodes=2)
    fill(leaders, "a")
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    assert read(leaders, fetcher, 1) == {P: [b"a"]}
    assert list(fetcher.explain(leaders.now)) == []
    leaders.hide = lambda node: node == 2
    leaders.cut()
    leaders.run(40.0)
    [line] = fetcher.explain(leaders.now)
    assert line.startswith("t-1: fetching, failing for ") and "refused" in line
    stalled = [record for record in caplog.records if record.message.startswith("partition cannot be read, retrying")]
    assert stalled and stalled[0].__dict__["topic"] == "t" and stalled[0].__dict__["partition"] == 1
    assert stalled[0].__dict__["seconds"] in (30, 31) and len(stalled) == 1
    leaders.hide = lambda node: False
    fill(leaders, "b", place=T[1])
    assert read(leaders, fetcher, 1) == {T[1]: [b"b"]}
    assert list(fetcher.explain(leaders.now)) == []


@pytest.mark.parametrize("how", ["a node is away", "no partition has a leader"])
def test_partitions_that_stall_for_one_reason_are_one_line(how: str, caplog: pytest.LogCaptureFixture) -> None:
    leaders = Leaders({"t": 60}, nodes=1)
    fetcher = reader(leaders, {("t", index): Offset(0) for index in range(60)})
    leaders.run(1.0)
    if how == "a node is away":
        leaders.hide = lambda node: True
        leaders.cut()
    else:
        for log in leaders.logs.values():
            log.lead(-1)
        leaders.core.metadata.refresh(leaders.now)
    leaders.run(75.0)
    lines = [record for record in caplog.records if record.message.startswith("partition cannot be read, retrying")]
    assert [each.__dict__["partition_count"] for each in lines] == [60, 60]
    assert [each.__dict__["seconds"] // 10 for each in lines] == [3, 6]
    fetcher.close()


def test_a_topic_that_is_deleted_is_an_error_after_a_while() -> None:
    leaders = Leaders({"t": 1}, options=Options(api_timeout=20.0))
    fill(leaders, "a")
    fetcher = reader(leaders, {P: Offset(0)})
    assert read(leaders, fetcher, 1) == {P: [b"a"]}
    leaders.cluster.delete("t")
    leaders.run(lambda: bool(fetcher.failed))
    with pytest.raises(UnknownTopicOrPartition, match="t"):
        fetcher.take()


def test_metrics_tell_what_is_read_and_how_far_it_is_behind() -> None:
    leaders = Leaders({"t": 1})
    fill(leaders, "a", "b", "c")
    fetcher = reader(leaders, {P: Offset(0)})

    def value(name: str, **tags: object) -> float:
        return leaders.core.metrics.value(name, leaders.now, **tags)

    leaders.run(fetcher.wait())
    assert value("records-lag", topic="t", partition=0) == value("records-lag-max") == 3
    read(leaders, fetcher, 3)
    assert value("records-lag-max") == 0
    assert value("records-consumed-total", topic="t") == 3
    assert value("bytes-consumed-total", topic="t") == sum(len(each.data) for each in leaders.logs[P].batches)
    assert value("fetch-total") >= 1 and value("fetch-latency-avg") > 0 and value("fetch-size-max") > 0
    leaders.core.metrics.spread("records-per-request", type="producer-metrics").record(99, leaders.now)
    assert value("records-per-request-max", type="consumer-fetch-manager-metrics") == 3
    fetcher.close()
    assert math.isnan(value("records-lag-max"))


def test_a_fetcher_that_is_closed_leaves_nothing_behind() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.0)
    fetcher.close()
    leaders.run(1.0)
    asked = len(leaders.asked(FetchRequest))
    leaders.run(5.0)
    assert len(leaders.asked(FetchRequest)) == asked
    assert fetcher not in leaders.core.parts and fetcher.wait().done and fetcher.take() is None


def test_what_is_taken_costs_nothing_where_reading_goes_on_anyway() -> None:
    leaders = Leaders({"t": 1})
    fill(leaders, "a")
    fetcher = reader(leaders, {P: Offset(0)})
    leaders.run(fetcher.wait())
    leaders.run(0.1)  # the next Fetch waits at the leader
    asked = len(leaders.asked(FetchRequest))
    assert fetcher.take() is not None
    assert leaders.core.deadline is not None and leaders.core.deadline > leaders.now
    fill(leaders, "b")
    assert read(leaders, fetcher, 1) == {P: [b"b"]} and len(leaders.asked(FetchRequest)) >= asked


def test_a_time_before_1970_is_the_beginning() -> None:
    long_ago = datetime(1900, 1, 1, tzinfo=UTC)
    assert start_at(long_ago) == fixed_start_at(timedelta(days=100 * 366), 1.7e9) == Time(EARLIEST)
    assert start_at(datetime(1970, 1, 1, tzinfo=UTC)) == Time(0)


@pytest.mark.parametrize("where", [-1, 2**63, 2**70, True])
def test_an_offset_that_no_log_can_have_is_refused(where: int) -> None:
    with pytest.raises(ConfigurationError, match="is not a place in a partition"):
        start_at(where)
    assert start_at(2**63 - 1) == Offset(2**63 - 1)
