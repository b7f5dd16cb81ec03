"""Reading without a consumer: the leader of a partition, and a single Fetch of one or several partitions.

Rules:
- Each leader gets one Fetch, on a separate channel because it may wait there; it is repeated for partitions that are
  still missing, as in other calls.
- Such a Fetch has no session and no position, and does not fetch ahead.
"""

from collections.abc import Mapping

from ottla.codec.apis.fetch import FetchPartition, FetchResponse, FetchTopic, PartitionData
from ottla.codec.wire import NO_UUID
from ottla.errors import CorruptMessage, OttlaError, broker_error
from ottla.late_dataclass import dataclass
from ottla.sdk.calls.fan_out import (
    Reply,
    ask_leaders,
    known_places,
    left_out,
    listed,
    no_partition,
    place_name,
)
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import FETCH_BY_NAME
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.record_sets import about, corrupt, cut, found, needed, sound, too_large, visible
from ottla.sdk.core import ClientCore
from ottla.sdk.events import FETCH, Node
from ottla.sdk.options import MOST
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

Answers = dict[TopicPartition, Fetched | OttlaError]


def leader(core: ClientCore, place: TopicPartition, now: float) -> Outcome[Node]:
    """The leader of the partition at this moment; waits for an election."""

    def work(task: Task[Node]) -> Steps[Node]:
        task.outcome.when_done(core.metadata.hold(place[0]))
        yield from settled(core.metadata.topic(place[0], now, fresh=True))
        while True:
            topic = core.cluster.topics.get(place[0])
            if topic is not None and place[1] not in topic.partitions:
                raise no_partition(*place, len(topic.partitions))
            if (node := core.cluster.leader(*place)) is not None:
                return node
            core.metadata.refresh(task.now)
            yield from task.pause(core.metadata.why_no_leader(*place))

    return Task(core, f"finding the leader of {place_name(place)}", now, work).outcome


@dataclass(frozen=True, slots=True)
class How:
    """How partitions are fetched.

    Attributes:
        max_bytes: of each partition.
        wait: seconds that a leader may wait if none of its partitions has records.
    """

    max_bytes: int
    wait: float
    isolation: int


def fetch_many(core: ClientCore, offsets: Mapping[TopicPartition, int], now: float, how: How) -> Outcome[Answers]:
    """Fetch from these offsets on, with one request to each leader; errors take the place of failed partitions."""

    def work(task: Task[Answers]) -> Steps[Answers]:
        there, gone = yield from known_places(task, offsets)
        fetching = _Fetching(task, offsets, how)
        answers = gone | (yield from ask_leaders(task, there, fetching.request, fetching.read))
        return {place: answers[place] for place in offsets}

    return Task(core, f"fetching {listed(offsets)}", now, work).outcome


class _Fetching:
    """Builds the requests of one call, and reads the responses."""

    def __init__(self, task: Task[Answers], offsets: Mapping[TopicPartition, int], how: How) -> None:
        self._task, self._core, self._offsets, self._how = task, task.core, offsets, how
        self._sizes = dict.fromkeys(offsets, how.max_bytes)
        """Bytes to request, for each partition."""

    def request(self, node: Node, places: list[TopicPartition]) -> Outcome[tuple[FetchResponse, int]]:
        cluster = self._core.cluster
        topics: dict[str, list[FetchPartition]] = {}
        for place in places:
            asked = FetchPartition(
                partition=place[1],
                current_leader_epoch=cluster.leader_epoch(*place),
                fetch_offset=self._offsets[place],
                partition_max_bytes=self._sizes[place],
            )
            topics.setdefault(place[0], []).append(asked)
        ids = {name: cluster.topic_id(name) for name in topics}
        wanted = [FetchTopic(topic=name, topic_id=ids[name], partitions=tuple(each)) for name, each in topics.items()]
        most = max(self._sizes[each] for each in places)
        size = most if len(places) == 1 else min(sum(self._sizes[each] for each in places), MOST)
        request = requests.fetch(wanted, wait=self._how.wait, max_bytes=size, isolation=self._how.isolation)
        versions = FETCH_BY_NAME if NO_UUID in ids.values() else None
        return self._task.request(node, request, versions=versions, channel=FETCH)

    def read(self, reply: Reply[TopicPartition]) -> Answers:
        """The result of each partition; leaves out partitions that need more bytes."""
        answer: FetchResponse = reply.answer
        if answer.error_code:
            return dict.fromkeys(reply.keys, broker_error(answer.error_code, "Fetch", repeatable=True))
        names = {self._core.cluster.topic_id(name): name for name, _ in self._offsets}
        parts = {
            (topic.topic or names.get(topic.topic_id, ""), each.partition_index): each
            for topic in answer.responses
            for each in topic.partitions
        }
        answers: Answers = {}
        for place in reply.keys:
            part = parts.get(place)
            if (one := left_out(place) if part is None else self._answered(place, part)) is not None:
                answers[place] = one
        return answers

    def _answered(self, place: TopicPartition, answer: PartitionData) -> Fetched | OttlaError | None:
        """The records found, or an error; ``None`` if more bytes have to be fetched."""
        where, offset = place_name(place), self._offsets[place]
        if answer.error_code == CorruptMessage.code:
            return corrupt(place, offset)
        if answer.error_code:
            return broker_error(answer.error_code, f"{where} at offset {offset}", repeatable=True)
        records, isolation = answer.records or b"", self._how.isolation
        batches, damage = found(records, offset, isolation)
        if records and not batches and not damage:
            return self._torn(place, needed(records), cut(records))
        ahead, mismatch = sound([each for each in batches if each.next_offset > offset], isolation)
        if (damage := mismatch or damage) and not ahead:
            return about(place, offset, damage)
        seen = visible(ahead, answer.aborted_transactions, isolation)
        following = ahead[-1].next_offset if ahead else offset
        epoch = getattr(ahead[-1], "partition_leader_epoch", -1) if ahead else -1
        memory = self._core.options.fetch_batch_memory
        fetched = Fetched(*place, offset, seen, answer.high_watermark, following, epoch, len(records), memory)
        return fetched.split()[0]

    def _torn(self, place: TopicPartition, size: int, damage: OttlaError) -> OttlaError | None:
        """The response has no complete batch: request as many bytes as the batch needs."""
        had, limit, offset = self._sizes[place], self._core.options.fetch_max_bytes, self._offsets[place]
        if size <= had:
            return about(place, offset, damage)
        if size > limit:
            return about(place, offset, too_large(size, limit))
        self._sizes[place] = size
        return None
