"""Builders of requests that several parts of the client send: one for each API.

Partitions are given as ``(topic, partition)``; requests group them by topic. A request that only one part sends is
built there.
"""

from collections.abc import Iterable, Mapping

from ottla.codec.apis.fetch import FetchRequest, FetchTopic, ForgottenTopic
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.sdk.connection.versions import LIST_OFFSETS_ISOLATION
from ottla.sdk.options import broker_timeout_ms

CONSUMER = -1
"""The replica id of clients that are not brokers."""
NO_SESSION = -1
"""The epoch of a Fetch without a session, or of a Fetch that closes its session."""


def metadata(names: Iterable[str] | None, *, create: bool = False) -> MetadataRequest:
    """Ask about the brokers and these topics (``None``: all); ``create`` missing topics, if the broker allows it."""
    topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def by_topic(places: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """The partitions of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return {topic: tuple(partitions) for topic, partitions in topics.items()}


def list_offsets(
    wanted: Mapping[tuple[str, int], tuple[int, int]], isolation: int, timeout: float, version: int
) -> ListOffsetsRequest:
    """Ask for the offsets at ``{(topic, partition): (timestamp, leader epoch)}``, with ``timeout`` seconds to answer.

    Timestamps are milliseconds, or `EARLIEST`, `LATEST`, `MAX_TIMESTAMP`; the epoch is -1 if unknown.
    """
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), (timestamp, leader_epoch) in wanted.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch)
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation if version >= LIST_OFFSETS_ISOLATION else 0,
        topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(each)) for name, each in topics.items()),
        timeout_ms=broker_timeout_ms(timeout),
    )


def fetch(
    topics: Iterable[FetchTopic],
    *,
    wait: float,
    max_bytes: int,
    isolation: int = 0,
    session: tuple[int, int] = (0, NO_SESSION),
    forgotten: Iterable[ForgottenTopic] = (),
    rack: str = "",
) -> FetchRequest:
    """Ask for records, as soon as there are any; none after ``wait`` seconds. ``session`` is its id and epoch."""
    return FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=int(wait * 1000),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=tuple(topics),
        forgotten_topics_data=tuple(forgotten),
        rack_id=rack,
    )


def fetch_nothing(session_id: int = 0) -> FetchRequest:
    """A Fetch that is answered at once, with no records; it closes the session, if it has one."""
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=NO_SESSION, topics=())


def commit_offsets(
    group: str,
    offsets: Mapping[tuple[str, int], tuple[int, int, str]],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """Commit ``{(topic, partition): (offset, leader epoch or -1, metadata)}``; as no member without a generation."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, leader_epoch, text) in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=text,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(each)) for name, each in topics.items()),
    )
