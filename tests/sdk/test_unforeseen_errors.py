"""UNKNOWN_SERVER_ERROR, or a code of a newer Kafka, in one answer: the client retries the request and continues."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.list_offsets import EARLIEST, LATEST, ListOffsetsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.codec.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.errors import UnknownServerError
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.calls.reads import How, fetch_many
from ottla.sdk.consume.partitions.position import Offset, Time
from ottla.sdk.group.commits import Commits
from tests.sdk.coordinator import Coordinator
from tests.sdk.leaders import Leaders
from tests.sdk.reading import read, reader

P = ("t", 0)
CODES = pytest.mark.parametrize("code", [UnknownServerError.code, 9999])


def failing_once(kind: type, fail: Callable[[Any], Any]) -> Callable[[int, Any, Any], Any]:
    """A `bend` that changes the first answer of this kind in which ``fail`` finds anything to change."""
    failed = False

    def bend(node: int, request: Any, answer: Any) -> Any:
        nonlocal failed
        if failed or not isinstance(request, kind):
            return answer
        bent = fail(answer)
        failed = bent is not None
        return bent or answer

    return bend


def in_partitions(topics: str, code: int) -> Callable[[Any], Any]:
    """Replace the error code of every partition in the answer; ``topics`` is the name of the field."""

    def fail(answer: Any) -> Any:
        there = getattr(answer, topics)
        bent = tuple(
            replace(each, partitions=tuple(replace(part, error_code=code) for part in each.partitions))
            for each in there
        )
        return replace(answer, **{topics: bent}) if there else None

    return fail


@CODES
@pytest.mark.parametrize("what", ["Fetch", "a partition of Fetch", "ListOffsets", "OffsetForLeaderEpoch", "Metadata"])
def test_a_consumer_reads_on(what: str, code: int) -> None:
    leaders = Leaders({"t": 1})
    leaders.bend = {
        "Fetch": failing_once(FetchRequest, lambda answer: replace(answer, error_code=code, responses=())),
        "a partition of Fetch": failing_once(FetchRequest, in_partitions("responses", code)),
        "ListOffsets": failing_once(ListOffsetsRequest, in_partitions("topics", code)),
        "OffsetForLeaderEpoch": failing_once(OffsetForLeaderEpochRequest, in_partitions("topics", code)),
        "Metadata": failing_once(
            MetadataRequest,
            lambda answer: (
                replace(answer, topics=tuple(replace(each, error_code=code, partitions=()) for each in answer.topics))
                if answer.topics
                else None
            ),
        ),
    }[what]
    fetcher = reader(leaders, {P: Time(EARLIEST)})
    leaders.logs[P].append(b"a")
    assert read(leaders, fetcher, 1) == {P: [b"a"]}
    leaders.logs[P].lead(1)  # makes the client validate its position
    leaders.logs[P].append(b"b")
    assert read(leaders, fetcher, 1) == {P: [b"b"]}
    assert not fetcher.failed


@CODES
def test_calls_that_read_are_repeated(code: int) -> None:
    leaders = Leaders({"t": 1})
    leaders.logs[P].append(b"a")
    leaders.bend = failing_once(ListOffsetsRequest, in_partitions("topics", code))
    ends = calls.offsets(leaders.core, {P: LATEST}, leaders.now)
    leaders.run(ends)
    assert ends.result() == {P: 1}
    leaders.bend = failing_once(FetchRequest, in_partitions("responses", code))
    fetched = fetch_many(leaders.core, {P: 0}, leaders.now, How(1 << 20, 0.5, 0))
    leaders.run(fetched)
    [found] = fetched.result().values()
    assert not isinstance(found, Exception) and [each.value for each in found] == [b"a"]


@CODES
def test_a_commit_is_sent_again(code: int) -> None:
    world = Coordinator({"t": 1})
    commits = Commits(world.core, "g")
    commits.commit({commits.own(P): CommittedOffset(7)}, world.now)
    waited = commits.settled(world.now)
    world.run()
    for answered in (code, 0):
        part = OffsetCommitResponsePartition(partition_index=0, error_code=answered)
        answer = OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=(part,)),))
        world.answer(world.asked(OffsetCommitRequest), answer)
        world.later(2.0)
    assert waited.done and waited.error is None


@CODES
@pytest.mark.parametrize("of_group", [True, False])
def test_where_a_group_stands_is_asked_again(of_group: bool, code: int) -> None:
    world = Coordinator({"t": 1})
    found = calls.committed(world.core, {"g": [P]}, world.now)
    world.run()
    for answered in (code, 0):
        part = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=7, metadata="", error_code=0 if of_group else answered
        )
        topics = (OffsetFetchResponseTopic(name="t", partitions=(part,)),)
        answer = OffsetFetchResponse(topics=topics, error_code=answered if of_group else 0)
        world.answer(world.asked(OffsetFetchRequest), answer)
        world.later(2.0)
    assert found.result()["g"][P].offset == 7


def test_a_leader_that_never_answers_better_is_named_at_the_end() -> None:
    leaders = Leaders({"t": 1})

    def fail(node: int, request: Any, answer: Any) -> Any:
        bent = in_partitions("topics", -1)(answer) if isinstance(request, ListOffsetsRequest) else answer
        return bent

    leaders.bend = fail
    ends = calls.offsets(leaders.core, {P: LATEST}, leaders.now)
    leaders.run(ends, 100.0)
    assert "UNKNOWN_SERVER_ERROR" in str(ends.error) and "t-0" in str(ends.error)


def test_a_reader_that_is_refused_for_good_stalls_no_other() -> None:
    leaders = Leaders({"t": 2})
    leaders.logs["t", 1].append(b"a")

    def fail(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, FetchRequest):
            for topic in answer.responses:
                for each in topic.partitions:
                    each.error_code = -1 if each.partition_index == 0 else each.error_code
        return answer

    leaders.bend = fail
    fetcher = reader(leaders, {P: Offset(0), ("t", 1): Offset(0)})
    assert read(leaders, fetcher, 1) == {("t", 1): [b"a"]}
