"""Reading without a consumer: the leader of a partition, and one Fetch of it, or of several.

Rules:
- A Fetch goes to each leader, by a channel of its own since it may wait there, and is repeated for the partitions that
  are still wanting, as other calls are.
- It stands for itself: no session, no position, nothing fetched ahead.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.codec.apis.fetch import FetchPartition, FetchResponse, FetchTopic, PartitionData
from ottla.codec.wire import NO_UUID
from ottla.errors import CorruptMessage, OttlaError, RemoteProtocolError, UnknownTopicOrPartition, broker_error
from ottla.sdk.calls.call import Task
from ottla.sdk.calls.fan_out import listed
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import FETCH_BY_NAME
from ottla.sdk.consume.positions import Fetched
from ottla.sdk.consume.record_sets import about, corrupt, cut, found, needed, sound, too_large, visible
from ottla.sdk.core import ClientCore
from ottla.sdk.events import FETCH, Node
from ottla.sdk.options import MOST
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

Answers = dict[TopicPartition, Fetched | OttlaError]


def leader(core: ClientCore, place: TopicPartition, now: float) -> Outcome[Node]:
    """The node that leads the partition at this moment; waits for an election."""

    def work(task: Task[Node]) -> Steps[Node]:
        task.outcome.when_done(core.metadata.hold(place[0]))
        yield from settled(core.metadata.topic(place[0], now, fresh=True))
        while True:
            node = _leader(core, place)
            if isinstance(node, Node):
                return node
            core.metadata.refresh(task.now)
            yield from task.pause(node)

    return Task(core, f"finding the leader of {place[0]}-{place[1]}", now, work).outcome


def _leader(core: ClientCore, place: TopicPartition) -> Node | OttlaError:
    """The leader, or why there is none at the moment; raises `UnknownTopicOrPartition`."""
    topic = core.cluster.topics.get(place[0])
    if topic is not None and place[1] not in topic.partitions:
        has = f"{place[0]!r} has partitions 0 to {len(topic.partitions) - 1}"
        raise UnknownTopicOrPartition(f"{has}, not {place[1]}")
    return core.cluster.leader(*place) or core.metadata.why_no_leader(*place)


@dataclass(frozen=True, slots=True)
class How:
    """How partitions are fetched.

    Attributes:
        max_bytes: of each.
        wait: seconds for which a leader that has nothing of any of them may wait.
    """

    max_bytes: int
    wait: float
    isolation: int


def fetch_many(core: ClientCore, offsets: Mapping[TopicPartition, int], now: float, how: How) -> Outcome[Answers]:
    """What the leaders have from these offsets on, by one request to each; errors in the place of what failed."""

    def work(task: Task[Answers]) -> Steps[Answers]:
        fetching = _Fetching(task, offsets, how)
        yield from fetching.know_topics()
        while fetching.wanted:
            yield from fetching.round()
        return {place: fetching.answers[place] for place in offsets}

    return Task(core, f"fetching {listed(offsets)}", now, work).outcome


class _Fetching:
    """One call: what is still wanted, and what has become of the rest."""

    def __init__(self, task: Task[Answers], offsets: Mapping[TopicPartition, int], how: How) -> None:
        self.task, self.core, self._offsets, self._how = task, task.core, offsets, how
        self.wanted = dict.fromkeys(offsets, how.max_bytes)
        """Bytes to ask for, of each partition."""
        self.answers: Answers = {}

    def know_topics(self) -> Steps[None]:
        """Until the call ends, their leaders are kept fresh."""
        metadata = self.core.metadata
        names = dict.fromkeys(topic for topic, _ in self._offsets)
        for name in names:
            self.task.outcome.when_done(metadata.hold(name))
        for name, known in {name: metadata.topic(name, self.task.now) for name in names}.items():
            try:
                yield from settled(known)
            except OttlaError as error:
                for place in [each for each in self.wanted if each[0] == name]:
                    self._end(place, error)

    def round(self) -> Steps[None]:
        """Ask every leader once, and wait before the next time if something is still wanting that might pass."""
        troubles: dict[TopicPartition, OttlaError] = {}
        asked: dict[Node, list[TopicPartition]] = {}
        for place in list(self.wanted):
            try:
                node = _leader(self.core, place)
            except UnknownTopicOrPartition as unknown:
                self._end(place, unknown)
                continue
            if isinstance(node, Node):
                asked.setdefault(node, []).append(place)
            else:
                troubles[place] = node
        sent = [(places, self._request(node, places)) for node, places in asked.items()]
        for places, outcome in sent:
            try:
                answer, _ = yield from settled(outcome)
                found = self._parts(answer)
            except OttlaError as failed:
                troubles |= dict.fromkeys(places, failed)
                continue
            for place in places:
                if (trouble := self._answered(place, found.get(place))) is not None:
                    troubles[place] = trouble
        for place, error in troubles.items():
            if not error.retriable:
                self._end(place, error)
        if passing := [error for place, error in troubles.items() if place in self.wanted]:
            self.core.metadata.refresh(self.task.now)
            yield from self.task.pause(passing[0])

    def _end(self, place: TopicPartition, answer: Fetched | OttlaError) -> None:
        del self.wanted[place]
        self.answers[place] = answer

    def _request(self, node: Node, places: list[TopicPartition]) -> Outcome[tuple[FetchResponse, int]]:
        cluster = self.core.cluster
        topics: dict[str, list[FetchPartition]] = {}
        for place in places:
            asked = FetchPartition(
                partition=place[1],
                current_leader_epoch=cluster.leader_epoch(*place),
                fetch_offset=self._offsets[place],
                partition_max_bytes=self.wanted[place],
            )
            topics.setdefault(place[0], []).append(asked)
        ids = {name: cluster.topic_id(name) for name in topics}
        wanted = [FetchTopic(topic=name, topic_id=ids[name], partitions=tuple(each)) for name, each in topics.items()]
        most = max(self.wanted[each] for each in places)
        size = most if len(places) == 1 else min(sum(self.wanted[each] for each in places), MOST)
        request = requests.fetch(wanted, wait=self._how.wait, max_bytes=size, isolation=self._how.isolation)
        versions = FETCH_BY_NAME if NO_UUID in ids.values() else None
        return self.task.request(node, request, versions=versions, channel=FETCH)

    def _parts(self, answer: FetchResponse) -> dict[TopicPartition, PartitionData]:
        """What was answered of each partition."""
        if answer.error_code:
            raise broker_error(answer.error_code, "Fetch")
        names = {self.core.cluster.topic_id(name): name for name, _ in self._offsets}
        return {
            (topic.topic or names.get(topic.topic_id, ""), each.partition_index): each
            for topic in answer.responses
            for each in topic.partitions
        }

    def _answered(self, place: TopicPartition, answer: PartitionData | None) -> OttlaError | None:
        """Keep what was found, or ask for more of it; the trouble with it, if there is one."""
        where, offset = f"{place[0]}-{place[1]}", self._offsets[place]
        if answer is None:
            return RemoteProtocolError(f"{where} was left out of the answer")
        if answer.error_code == CorruptMessage.code:
            return corrupt(place, offset)
        if answer.error_code:
            return broker_error(answer.error_code, f"{where} at offset {offset}")
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
        fetched = Fetched(*place, offset, seen, answer.high_watermark, following, epoch, len(records))
        self._end(place, fetched.split()[0])
        return None

    def _torn(self, place: TopicPartition, size: int, damage: OttlaError) -> OttlaError | None:
        """There is no whole batch: ask for as much as it takes."""
        had, limit, offset = self.wanted[place], self.core.options.fetch_max_bytes, self._offsets[place]
        if size <= had:
            return about(place, offset, damage)
        if size > limit:
            return about(place, offset, too_large(size, limit))
        self.wanted[place] = size
        return None
