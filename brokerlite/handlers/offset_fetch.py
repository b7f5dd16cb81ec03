"""OffsetFetch v1-10: returns the committed offsets of groups.

v1-7: one group. v2+: null requests every topic of the group. v5+: leader epochs. v7+: with `require_stable`, a
partition with a pending offset of an open transaction is UNSTABLE_OFFSET_COMMIT. v8+: many groups. v9+: a member id and
epoch, which must be right if the group is a consumer group. v10: topics by id.

A group that does not exist, or a partition without an offset, is no error; the offset is -1. If the first groups have
many offsets, the other groups get COORDINATOR_LOAD_IN_PROGRESS, and clients request them again.

Source: OffsetMetadataManager.java (fetchOffsets, fetchAllOffsets).
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple
from uuid import UUID

from ottla.acl.access import Access
from ottla.acl.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from ottla.brokerlite.handlers.once import by_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.offsets import Committed
from ottla.brokerlite.machines.topics.topics import TopicLogs, TopicPartition
from ottla.client_info import ClientInfo
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
from ottla.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnstableOffsetCommit,
)

GROUP_ERROR_SINCE = 2
"""The version from which the response has an error of the group."""
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

    access: Access
    client: ClientInfo
    topics: Mapping[str, TopicLogs]
    offsets: Mapping[TopicPartition, Committed]
    unstable: Set[TopicPartition]

    def at(self, place: TopicPartition) -> tuple[Committed, int]:
        """Return the offset and an error code."""
        if not self.access.allows(self.client, DESCRIBE_TOPIC, place[0]):
            return _NONE, TopicAuthorizationFailed.code
        if place in self.unstable:
            return _NONE, UnstableOffsetCommit.code
        committed = self.offsets.get(place, _NONE)
        return (_NONE if self._is_of_deleted_topic(place[0], committed) else committed), 0

    def _is_of_deleted_topic(self, name: str, committed: Committed) -> bool:
        """Whether the offset belongs to a deleted topic whose name another topic has now."""
        topic = self.topics.get(name)
        return topic is not None and committed.topic_id not in (None, topic.topic_id)

    def places(self) -> Iterator[TopicPartition]:
        """Iterate over partitions with a valid offset; pending offsets of open transactions do not count.

        Topics that the client may not describe are left out.
        """
        return (
            place
            for place, each in self.offsets.items()
            if not self._is_of_deleted_topic(place[0], each)
            and self.access.shows(self.client, DESCRIBE_TOPIC, place[0])
        )


def handle(broker: BrokerCore, call: Call) -> OffsetFetchResponse:
    request: OffsetFetchRequest = call.message
    if call.header.api_version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(_groups(broker, call)))
    if not broker.access.allows(call.session, DESCRIBE_GROUP, request.group_id):
        return _refused(call, GroupAuthorizationFailed.code)
    group = _known(broker, call, request.group_id)
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


def _refused(call: Call, error: int) -> OffsetFetchResponse:
    """Return an error for the group: before v2, for each of the partitions."""
    request: OffsetFetchRequest = call.message
    if call.header.api_version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=error, topics=())
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=each.name, partitions=tuple(_partition(index, _NONE, error) for index in each.partition_indexes)
            )
            for each in request.topics or ()
        )
    )


def _known(broker: BrokerCore, call: Call, group_id: str) -> _GroupOffsets:
    unstable = broker.offsets.pending(group_id) if call.message.require_stable else set()
    return _GroupOffsets(broker.access, call.session, broker.topics.by_name, broker.offsets.of(group_id), unstable)


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
    wanted: dict[str, list[OffsetFetchRequestTopics] | None] = {}
    members = {each.group_id: each for each in request.groups}
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
        answer = _group(broker, call, members[group_id], topics)
        size += sum(_OFFSET + len(each.metadata or "") for topic in answer.topics for each in topic.partitions)
        yield answer


def _group(
    broker: BrokerCore, call: Call, asked: OffsetFetchRequestGroup, wanted: Iterable[OffsetFetchRequestTopics] | None
) -> OffsetFetchResponseGroup:
    group_id = asked.group_id
    if not broker.access.allows(call.session, DESCRIBE_GROUP, group_id):
        return OffsetFetchResponseGroup(group_id=group_id, topics=(), error_code=GroupAuthorizationFailed.code)
    try:
        if (known := broker.groups.get(group_id)) is not None:
            known.check_fetch(asked.member_id, asked.member_epoch)
    except BrokerError as error:
        return OffsetFetchResponseGroup(group_id=group_id, topics=(), error_code=error.code)
    by_id = call.header.api_version >= BY_ID
    group = _known(broker, call, group_id)
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
    if by_id and topic is None:
        partitions = tuple(_partitions(index, _NONE, UnknownTopicId.code) for index in indexes)
        return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
    name = topic.name if topic else name
    committed = ((index, *group.at((name, index))) for index in indexes)
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=tuple(_partitions(index, each, error) for index, each, error in committed),
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
