"""OffsetFetch v1-10: returns the committed offsets of groups.

v1-7: one group. v2+: null requests every topic of the group. v5+: leader epochs. v7+: with `require_stable`, a
partition with a pending offset of an open transaction is UNSTABLE_OFFSET_COMMIT. v8+: many groups. v9+: a member id and
epoch, for groups of KIP-848, which this broker does not have. v10: topics by id.

A group that does not exist, or a partition without an offset, is no error; the offset is -1. If the first groups have
many offsets, the other groups get COORDINATOR_LOAD_IN_PROGRESS, and clients request them again.

Source: OffsetMetadataManager.java (fetchOffsets, fetchAllOffsets).
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple
from uuid import UUID

from ottla.brokerlite.handlers.once import by_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.offsets import Committed
from ottla.brokerlite.machines.topics.topics import TopicLogs, TopicPartition
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import CoordinatorLoadInProgress, UnknownTopicId, UnstableOffsetCommit

MANY_GROUPS_SINCE = 8
MOST_BYTES = 16 * 2**20
"""The most bytes of offsets in a response; the client has to request the remaining groups again."""
_OFFSET = 30
"""Bytes of an offset beside its metadata."""
BY_ID = 10
"""The version from which topics are named by id."""
_NONE = Committed(-1, -1, "", -1)


class _GroupOffsets(NamedTuple):
    """Holds a group's committed offsets, and the partitions with pending ones if the client wants stable offsets."""

    topics: Mapping[str, TopicLogs]
    offsets: Mapping[TopicPartition, Committed]
    unstable: Set[TopicPartition]

    def at(self, place: TopicPartition) -> tuple[Committed, int]:
        """Return the offset and an error code."""
        if place in self.unstable:
            return _NONE, UnstableOffsetCommit.code
        committed = self.offsets.get(place, _NONE)
        return (_NONE if self._is_of_deleted_topic(place[0], committed) else committed), 0

    def _is_of_deleted_topic(self, name: str, committed: Committed) -> bool:
        """Whether the offset belongs to a deleted topic whose name another topic has now."""
        topic = self.topics.get(name)
        return topic is not None and committed.topic_id not in (None, topic.topic_id)

    def places(self) -> Iterator[TopicPartition]:
        """Iterate over partitions with a valid offset; pending offsets of open transactions do not count."""
        return (place for place, each in self.offsets.items() if not self._is_of_deleted_topic(place[0], each))


def handle(broker: BrokerCore, call: Call) -> OffsetFetchResponse:
    request: OffsetFetchRequest = call.message
    if call.header.api_version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(_groups(broker, call)))
    group = _known(broker, request.group_id, request.require_stable)
    if request.topics is None:
        asked = _all(group)
    else:
        asked = by_name((each.name, each.partition_indexes) for each in request.topics)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=name,
                partitions=tuple(_partition(index, *group.at((name, index))) for index in indexes),
            )
            for name, indexes in asked.items()
        )
    )


def _known(broker: BrokerCore, group_id: str, require_stable: bool) -> _GroupOffsets:
    unstable = broker.offsets.pending(group_id) if require_stable else set()
    return _GroupOffsets(broker.topics.by_name, broker.offsets.of(group_id), unstable)


def _all(group: _GroupOffsets) -> dict[str, dict[int, None]]:
    """Return every topic of the group and its partitions."""
    return by_name((name, (index,)) for name, index in group.places())


def _partition(index: int, committed: Committed, error: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


def _groups(broker: BrokerCore, call: Call) -> Iterator[OffsetFetchResponseGroup]:
    """Build the response for each group. A request may list a group several times, with different topics."""
    request: OffsetFetchRequest = call.message
    by_id = call.header.api_version >= BY_ID
    wanted: dict[str, list[OffsetFetchRequestTopics] | None] = {}
    for asked in request.groups:
        topics = wanted.setdefault(asked.group_id, [])
        if asked.topics is None:
            wanted[asked.group_id] = None
        elif topics is not None:
            topics.extend(asked.topics)
    size = 0
    for group_id, topics in wanted.items():
        if size > MOST_BYTES:
            yield OffsetFetchResponseGroup(group_id=group_id, topics=(), error_code=CoordinatorLoadInProgress.code)
            continue
        answer = _group(broker, group_id, topics, by_id, request.require_stable)
        size += sum(_OFFSET + len(each.metadata or "") for topic in answer.topics for each in topic.partitions)
        yield answer


def _group(
    broker: BrokerCore,
    group_id: str,
    wanted: Iterable[OffsetFetchRequestTopics] | None,
    by_id: bool,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    group = _known(broker, group_id, require_stable)
    if wanted is None:
        topics = {(name, _id_of(broker, name)): indexes for name, indexes in _all(group).items()}
    else:
        topics = by_name(((each.name, each.topic_id), each.partition_indexes) for each in wanted)
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=tuple(_topic(broker, group, *topic, indexes, by_id) for topic, indexes in topics.items()),
    )


def _topic(
    broker: BrokerCore, group: _GroupOffsets, name: str, topic_id: UUID, indexes: Iterable[int], by_id: bool
) -> OffsetFetchResponseTopics:
    topic = broker.topics.by_id.get(topic_id) if by_id else None
    name = topic.name if topic else name
    unknown = UnknownTopicId.code if by_id and topic is None else 0
    committed = ((index, *group.at((name, index))) for index in indexes)
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=tuple(_partitions(index, each, unknown or error) for index, each, error in committed),
    )


def _partitions(index: int, committed: Committed, error: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


def _id_of(broker: BrokerCore, name: str) -> UUID:
    topic = broker.topics.by_name.get(name)
    return topic.topic_id if topic else NO_UUID
