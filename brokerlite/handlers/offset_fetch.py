"""OffsetFetch v1-10: how far groups have read.

v1-7: one group. v2+: null asks for every topic of the group. v5+: leader epochs. v7+: with `require_stable` a
partition for which an open transaction commits is UNSTABLE_OFFSET_COMMIT. v8+: many groups. v9+: a member id and epoch,
for groups of KIP-848, which there are none of. v10: topics by id.

Neither a group that does not exist nor a partition without an offset is an error; the offset is -1.

Source: OffsetMetadataManager.java (fetchOffsets, fetchAllOffsets).
"""

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple
from uuid import UUID

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.offsets import Committed
from ottla.brokerlite.machines.topics import Place, Topic
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import UnknownTopicId, UnstableOffsetCommit

MANY_GROUPS_SINCE = 8
BY_ID = 10
"""The version from which topics are named by id."""
_NONE = Committed(-1, -1, "", -1)


class _Group(NamedTuple):
    """What a group has committed, and where that may change any moment, if the client wants to know."""

    topics: Mapping[str, Topic]
    offsets: Mapping[Place, Committed]
    unstable: Set[Place]

    def at(self, place: Place) -> tuple[Committed, int]:
        """The offset, and an error."""
        if place in self.unstable:
            return _NONE, UnstableOffsetCommit.code
        committed = self.offsets.get(place, _NONE)
        return (_NONE if self._is_of_deleted_topic(place[0], committed) else committed), 0

    def _is_of_deleted_topic(self, name: str, committed: Committed) -> bool:
        """It was committed for a topic that is gone, and there is another of that name."""
        topic = self.topics.get(name)
        return topic is not None and committed.topic_id not in (None, topic.topic_id)

    def places(self) -> Iterator[Place]:
        """All of them."""
        yield from (place for place, each in self.offsets.items() if not self._is_of_deleted_topic(place[0], each))
        yield from sorted(self.unstable)


def handle(broker: BrokerCore, call: Call) -> OffsetFetchResponse:
    request: OffsetFetchRequest = call.message
    if call.header.api_version >= MANY_GROUPS_SINCE:
        by_id = call.header.api_version >= BY_ID
        return OffsetFetchResponse(
            groups=tuple(_group(broker, each, by_id, request.require_stable) for each in request.groups)
        )
    group = _known(broker, request.group_id, request.require_stable)
    asked = _all(group) if request.topics is None else ((each.name, each.partition_indexes) for each in request.topics)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=name,
                partitions=tuple(_partition(index, *group.at((name, index))) for index in indexes),
            )
            for name, indexes in asked
        )
    )


def _known(broker: BrokerCore, group_id: str, require_stable: bool) -> _Group:
    unstable = broker.offsets.pending(group_id) if require_stable else set()
    return _Group(broker.topics.by_name, broker.offsets.of(group_id), unstable)


def _all(group: _Group) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every topic and its partitions."""
    topics: dict[str, list[int]] = {}
    for name, index in dict.fromkeys(group.places()):
        topics.setdefault(name, []).append(index)
    for name, indexes in topics.items():
        yield name, tuple(indexes)


def _partition(index: int, committed: Committed, error: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


def _group(
    broker: BrokerCore, asked: OffsetFetchRequestGroup, by_id: bool, require_stable: bool
) -> OffsetFetchResponseGroup:
    group = _known(broker, asked.group_id, require_stable)
    topics = asked.topics
    if topics is None:
        topics = tuple(
            OffsetFetchRequestTopics(name=name, topic_id=_id_of(broker, name), partition_indexes=indexes)
            for name, indexes in _all(group)
        )
    return OffsetFetchResponseGroup(
        group_id=asked.group_id, topics=tuple(_topic(broker, group, topic, by_id) for topic in topics)
    )


def _topic(
    broker: BrokerCore, group: _Group, asked: OffsetFetchRequestTopics, by_id: bool
) -> OffsetFetchResponseTopics:
    topic = broker.topics.by_id.get(asked.topic_id) if by_id else None
    name = topic.name if topic else asked.name
    unknown = UnknownTopicId.code if by_id and topic is None else 0
    committed = ((index, *group.at((name, index))) for index in asked.partition_indexes)
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=asked.topic_id,
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
