"""A consumer without a group that reads topics by pattern: they may be created, deleted and recreated."""

import functools
from typing import Any

import pytest

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.apis.metadata import MetadataRequest
from ottla.errors import Closed, DataLoss
from ottla.sdk.consume.assignment.subscription import PATTERN_AGE
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerPlan, TopicFilter
from ottla.sdk.consume.partitions.position import Time
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.options import Options
from ottla.sdk.steps import Steps
from tests.sdk.calling import Call, Tasks
from tests.sdk.leaders import Leaders
from tests.sdk.reading import values


class Reader:
    """A consumer of topics that begin with ``t``, and the batches that its loop got."""

    def __init__(self, *topics: str, start: int = EARLIEST, vanishes: str = "") -> None:
        self.leaders = Leaders(dict.fromkeys(topics, 1), options=Options(api_timeout=20.0, metadata_max_age=5.0))
        for topic in topics:
            self.leaders.logs[topic, 0].append(topic.encode())
        self.leaders.bend = functools.partial(self._vanish, vanishes)
        plan = ConsumerPlan(start=Time(start), matches=TopicFilter("t.*"))
        self.machine = ConsumerCore(self.leaders.core, plan, Fetcher(self.leaders.core), Tasks())
        entering = called(self.leaders, self.machine.enter({}, "task"))
        self.leaders.run(1.0)
        assert entering.go_on().over
        self.loop: Call[Any] | None = None

    def _vanish(self, topic: str, node: int, request: Any, answer: Any) -> Any:
        """Delete the topic after the first listing."""
        if isinstance(request, MetadataRequest) and request.topics is None and topic in self.leaders.ids:
            self.delete(topic)
            self.leaders.bend = lambda node, request, answer: answer
        return answer

    def create(self, topic: str, *values: bytes) -> None:
        """Create the topic, or recreate it."""
        self.leaders.cluster.recreate(topic)
        for value in values:
            self.leaders.logs[topic, 0].append(value)
        self.leaders.drop_sessions()

    def delete(self, topic: str) -> None:
        self.leaders.cluster.delete(topic)
        self.leaders.drop_sessions()

    def read(self, seconds: float) -> list[bytes]:
        got: list[bytes] = []
        end = self.leaders.now + seconds
        while self.leaders.now < end:
            while (loop := self.ask()).over:
                if loop.error is not None:
                    raise loop.error
                got += values(loop.result[0])
                self.loop = None
            self.leaders.run(0.1)
        return got

    def ask(self) -> Call[Any]:
        """Ask for a batch, or continue the wait for it."""
        self.loop = self.loop or called(self.leaders, self.machine.next_batch("task"))
        return self.loop.go_on()


def called(leaders: Leaders, steps: Steps[Any]) -> Call[Any]:
    return Call(leaders.core, steps, lambda: leaders.now, lambda: leaders.run(0.0))


@pytest.mark.parametrize("gap", [0.0, 5.0, 25.0], ids=["at once", "after a while", "when it was given up"])
def test_a_topic_that_was_recreated_is_read_from_its_beginning_with_a_warning(
    gap: float, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader("t1", "t2")
    assert sorted(reader.read(1.0)) == [b"t1", b"t2"]
    reader.delete("t1")
    assert reader.read(gap) == []
    reader.create("t1", b"new0", b"new1")
    reader.leaders.logs["t2", 0].append(b"more")
    assert sorted(reader.read(2 * PATTERN_AGE)) == [b"more", b"new0", b"new1"]
    assert [each for each in caplog.messages if each.startswith("the topic was deleted")], caplog.messages
    assert list(reader.machine.explain(reader.leaders.now)) == []


def test_a_topic_that_was_recreated_while_its_end_was_awaited_is_read_whole() -> None:
    reader = Reader("t1", start=LATEST)
    reader.delete("t1")
    assert reader.read(30.0) == []
    reader.create("t1", b"new")
    assert reader.read(2 * PATTERN_AGE) == [b"new"]


def test_a_topic_that_was_recreated_between_its_listing_and_its_metadata_is_read_whole() -> None:
    reader = Reader("t1", start=LATEST, vanishes="t1")
    reader.create("t1", b"new")
    assert reader.read(10.0) == [b"new"]


def test_what_was_fetched_of_a_topic_before_it_was_recreated_is_handed_out_first() -> None:
    reader = Reader("t1")  # the loop has not taken a batch yet
    reader.create("t1", b"new")
    reader.leaders.core.metadata.refresh(reader.leaders.now)
    reader.leaders.run(1.0)
    assert reader.read(20.0) == [b"t1", b"new"]


def test_a_topic_that_was_deleted_is_dropped_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    reader = Reader("t1", "t2")
    reader.read(1.0)
    reader.delete("t1")
    reader.leaders.logs["t2", 0].append(b"more")
    assert reader.read(30.0) == [b"more"]
    assert reader.machine.fetcher.assignment == [("t2", 0)]
    assert caplog.messages == ["the topic was deleted and is no longer read (topic=t1, partition=0)"]


def test_a_topic_that_is_read_by_name_is_still_data_loss() -> None:
    leaders = Leaders({"t": 1})
    leaders.logs["t", 0].append(b"old")
    plan = ConsumerPlan(start=Time(EARLIEST), topics=("t",))
    machine = ConsumerCore(leaders.core, plan, Fetcher(leaders.core), Tasks())
    entering = called(leaders, machine.enter({}, "task"))
    leaders.run(1.0)  # the topic is known
    entering.go_on()
    leaders.run(1.0)  # and so is its first offset
    assert entering.go_on().over and called(leaders, machine.next_batch("task")).result
    leaders.cluster.recreate("t")
    leaders.drop_sessions()
    leaders.core.metadata.refresh(leaders.now)
    loop = called(leaders, machine.next_batch("task"))
    leaders.run(5.0)
    assert isinstance(loop.go_on().error, DataLoss)


def test_a_consumer_that_was_never_left_ends_with_its_client() -> None:
    reader = Reader("t1")
    core, machine = reader.leaders.core, reader.machine
    reader.read(1.0)
    assert not reader.ask().over
    core.close(reader.leaders.now)
    assert isinstance(reader.ask().error, Closed) and machine.closed and machine.fetcher.closed
    assert not core.metadata.observers and not core.parts and not core._closers
    assert core.deadline is None
