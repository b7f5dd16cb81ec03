"""Requests of members of share groups, and functions that read the answers."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ottla.codec.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.codec.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.codec.apis.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.codec.apis.share_fetch import (
    AcknowledgementBatch as FetchAcknowledgementBatch,
)
from ottla.codec.apis.share_fetch import FetchPartition, FetchTopic, ForgottenTopic, ShareFetchRequest
from ottla.codec.apis.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUP, SET, DELETE = 32, 0, 1

Results = dict[int, Sequence[tuple[int, int, Sequence[int]]]]
"""Partition -> first offset, last offset, types."""


def beat(member: str = "m", epoch: int = 0, *, group: str = "g", **told: Any) -> ShareGroupHeartbeatRequest:
    if epoch == 0:
        told.setdefault("subscribed_topic_names", ("t",))
    return ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **told)


def fetch(
    topic_id: UUID,
    epoch: int = 0,
    member: str = "m",
    *,
    partitions: Sequence[int] | None = None,
    results: Results | None = None,
    forget: Sequence[int] = (),
    group: str = "g",
    wait: float = 0.0,
    records: int = 500,
    **others: Any,
) -> ShareFetchRequest:
    """A ShareFetch request; without partitions it names partition 0 when it opens a session, and later none."""
    named = ((0,) if epoch == 0 else ()) if partitions is None else partitions
    given = results or {}
    asked = tuple(
        FetchPartition(
            partition_index=index,
            acknowledgement_batches=tuple(
                FetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
                for first, last, types in given.get(index, ())
            ),
        )
        for index in dict.fromkeys((*named, *given))
    )
    usual: dict[str, Any] = {"min_bytes": 1, "max_bytes": 2**20, "batch_size": 500}
    return ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=round(wait * 1000),
        max_records=records,
        topics=(FetchTopic(topic_id=topic_id, partitions=asked),) if asked else (),
        forgotten_topics_data=(ForgottenTopic(topic_id=topic_id, partitions=tuple(forget)),) if forget else (),
        **usual | others,
    )


def acknowledge(
    topic_id: UUID, epoch: int, results: Results, member: str = "m", *, group: str = "g", **others: Any
) -> ShareAcknowledgeRequest:
    return ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=(
            AcknowledgeTopic(
                topic_id=topic_id,
                partitions=tuple(
                    AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=tuple(
                            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
                            for first, last, types in batches
                        ),
                    )
                    for index, batches in results.items()
                ),
            ),
        )
        if results
        else (),
        **others,
    )


def configure(group: str = "g", **configs: str | None) -> IncrementalAlterConfigsRequest:
    """A change of configurations; ``_`` in a name stands for a dot, and ``None`` for the default."""
    return IncrementalAlterConfigsRequest(
        resources=(
            AlterConfigsResource(
                resource_type=GROUP,
                resource_name=group,
                configs=tuple(
                    AlterableConfig(
                        name=f"share.{name.replace('_', '.')}",
                        config_operation=SET if value is not None else DELETE,
                        value=value,
                    )
                    for name, value in configs.items()
                ),
            ),
        ),
        validate_only=False,
    )


def describe(group: str = "g") -> DescribeShareGroupOffsetsRequest:
    groups = (DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None),)
    return DescribeShareGroupOffsetsRequest(groups=groups)


def acquired(answer: Any) -> dict[int, list[tuple[int, int, int]]]:
    """Partition -> first offset, last offset, delivery count."""
    assert answer.error_code == 0, answer
    return {
        each.partition_index: [(run.first_offset, run.last_offset, run.delivery_count) for run in each.acquired_records]
        for topic in answer.responses
        for each in topic.partitions
    }


def errors(answer: Any) -> dict[int, tuple[int, ...]]:
    """Partition -> its error, and in ShareFetch the error of its acknowledgements."""
    return {
        each.partition_index: (each.error_code, getattr(each, "acknowledge_error_code", 0))
        for topic in answer.responses
        for each in topic.partitions
    }


def progress(answer: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """Topic, partition -> start offset, lag."""
    (group,) = answer.groups
    assert group.error_code == 0, group
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
        for topic in group.topics
        for each in topic.partitions
    }
