"""Reading without a consumer: the leader of a partition, and one Fetch of it.

Rules:
- A Fetch goes to the leader, by a channel of its own since it may wait there, and is repeated as other calls are.
- It stands for itself: no session, no position, nothing fetched ahead.
"""

from ottla.codec.apis.fetch import FetchPartition, FetchResponse, FetchTopic, PartitionData
from ottla.codec.wire import NO_UUID
from ottla.errors import CorruptMessage, OttlaError, RemoteProtocolError, UnknownTopicOrPartition, broker_error
from ottla.sdk.calls.call import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import FETCH_BY_NAME
from ottla.sdk.consume.positions import Fetched
from ottla.sdk.consume.record_sets import about, corrupt, cut, found, needed, sound, too_large, visible
from ottla.sdk.core import ClientCore
from ottla.sdk.events import FETCH, Node
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled


def leader(core: ClientCore, place: TopicPartition, now: float) -> Outcome[Node]:
    """The node that leads the partition at this moment; waits for an election."""

    def work(task: Task[Node]) -> Steps[Node]:
        task.outcome.when_done(core.metadata.hold(place[0]))
        yield from settled(core.metadata.topic(place[0], now, fresh=True))
        return (yield from _leader(task, place))

    return Task(core, f"finding the leader of {place[0]}-{place[1]}", now, work).outcome


def fetch(
    core: ClientCore, place: TopicPartition, offset: int, now: float, *, max_bytes: int, wait: float, isolation: int
) -> Outcome[Fetched]:
    """What the leader has from ``offset`` on, up to ``max_bytes``; it waits for ``wait`` seconds where that is nothing.

    Fails with the broker's error, such as `OffsetOutOfRange`.
    """

    def work(task: Task[Fetched]) -> Steps[Fetched]:
        task.outcome.when_done(core.metadata.hold(place[0]))
        yield from settled(core.metadata.topic(place[0], now))
        size = max_bytes
        while True:
            node = yield from _leader(task, place)
            try:
                answer = yield from _ask(task, node, place, offset, size, wait, isolation)
            except CorruptMessage:
                raise corrupt(place, offset) from None
            except OttlaError as error:
                core.metadata.refresh(task.now)
                yield from task.pause(error)
                continue
            batches, damage = found(answer.records or b"", offset, isolation)
            if batches or damage or not answer.records:
                break
            had, size = size, needed(answer.records)
            if size <= had:
                raise about(place, offset, cut(answer.records))
            if size > core.options.fetch_max_bytes:
                raise about(place, offset, too_large(size, core.options.fetch_max_bytes))
        ahead, mismatch = sound([each for each in batches if each.next_offset > offset], isolation)
        if (damage := mismatch or damage) and not ahead:
            raise about(place, offset, damage)
        seen = visible(ahead, answer.aborted_transactions, isolation)
        following = ahead[-1].next_offset if ahead else offset
        epoch = getattr(ahead[-1], "partition_leader_epoch", -1) if ahead else -1
        return Fetched(*place, offset, seen, answer.high_watermark, following, epoch, len(answer.records or b""))

    return Task(core, f"fetching {place[0]}-{place[1]}", now, work).outcome


def _leader(task: Task[Node] | Task[Fetched], place: TopicPartition) -> Steps[Node]:
    """The leader, waited for."""
    core = task.core
    while True:
        topic = core.cluster.topics.get(place[0])
        if topic is not None and place[1] not in topic.partitions:
            has = f"{place[0]!r} has partitions 0 to {len(topic.partitions) - 1}"
            raise UnknownTopicOrPartition(f"{has}, not {place[1]}")
        if (node := core.cluster.leader(*place)) is not None:
            return node
        core.metadata.refresh(task.now)
        yield from task.pause(core.metadata.why_no_leader(*place))


def _ask(
    task: Task[Fetched], node: Node, place: TopicPartition, offset: int, max_bytes: int, wait: float, isolation: int
) -> Steps[PartitionData]:
    """One Fetch, the answer of which is no error."""
    topic_id = task.core.cluster.topic_id(place[0])
    leader_epoch = task.core.cluster.leader_epoch(*place)
    asked = FetchPartition(
        partition=place[1], current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    topic = FetchTopic(topic=place[0], topic_id=topic_id, partitions=(asked,))
    request = requests.fetch([topic], wait=wait, max_bytes=max_bytes, isolation=isolation)
    versions = FETCH_BY_NAME if topic_id == NO_UUID else None
    answer: FetchResponse
    answer, _ = yield from settled(task.request(node, request, versions=versions, channel=FETCH))
    if answer.error_code:
        raise broker_error(answer.error_code, "Fetch")
    found = next((each for topic in answer.responses for each in topic.partitions), None)
    if found is None:
        raise RemoteProtocolError(f"{place[0]}-{place[1]} was left out of the answer")
    if found.error_code:
        raise broker_error(found.error_code, f"{place[0]}-{place[1]} at offset {offset}")
    return found
