"""Committed offsets: requests that name a group, and topics.

Source: KafkaApis.scala (handleOffsetCommitRequest, handleOffsetFetchRequest, handleTxnOffsetCommitRequest,
handleOffsetDeleteRequest, handle…ShareGroupOffsets…).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ottla.acl.rights import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ottla.codec.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.codec.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.codec.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.codec.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.codec.apis.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import IllegalGeneration, TransactionAbortable
from ottla.proxy.clients.access.screening import PASS, Asked, Change, Verdict, sorted_out, without_denied
from ottla.proxy.clients.carried import ABORTABLE_SINCE, TXN_OFFSET_COMMIT

_MANY_GROUPS_SINCE = 8
"""The first version of OffsetFetch with many groups."""
_GROUP_ERROR_SINCE = 2
"""The first version of OffsetFetch whose response has an error of the group."""


def offset_commit(asked: Asked) -> Verdict:
    whole = asked.refusal(READ_GROUP, asked.message.group_id)

    def refused(topic: Any, code: int) -> Any:
        partitions = (
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        )
        return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))

    return without_denied(
        asked,
        "topics",
        OffsetCommitResponse,
        "topics",
        lambda each: whole or asked.refusal_of_topic(READ_TOPIC, each.name, each.topic_id),
        refused,
    )


def txn_offset_commit(asked: Asked) -> Verdict:
    request: TxnOffsetCommitRequest = asked.message
    abortable = asked.version >= ABORTABLE_SINCE[TXN_OFFSET_COMMIT]
    unknown = (TransactionAbortable if abortable else IllegalGeneration).code  # clients abort for both
    whole = (
        asked.refusal(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        or asked.refusal(READ_GROUP, request.group_id)
        or asked.refusal_of_producer(request.transactional_id, request.producer_id, unknown)
    )

    def refused(topic: Any, code: int) -> Any:
        partitions = (
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        )
        return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))

    verdict = without_denied(
        asked,
        "topics",
        TxnOffsetCommitResponse,
        "topics",
        lambda each: whole or asked.refusal_of_topic(READ_TOPIC, each.name, each.topic_id),
        refused,
    )
    return Verdict(answer=TxnOffsetCommitResponse(topics=())) if whole and verdict is PASS else verdict


def offset_delete(asked: Asked) -> Verdict:
    if whole := asked.refusal(DELETE_GROUP, asked.message.group_id):
        return Verdict(answer=OffsetDeleteResponse(error_code=whole, topics=()))

    def refused(topic: Any, code: int) -> Any:
        partitions = (
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        )
        return OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(partitions))

    kept, denied = sorted_out(asked.message.topics, lambda each: asked.refusal(READ_TOPIC, each.name))
    if not denied:
        return PASS
    results = tuple(refused(*each) for each in denied)
    # Also without a topic: the response says whether the group exists.
    return Verdict(
        request=replace(asked.message, topics=kept),
        change=lambda answer: answer if answer.error_code else replace(answer, topics=(*answer.topics, *results)),
    )


# -- OffsetFetch


def offset_fetch(asked: Asked) -> Verdict:
    return _of_groups(asked) if asked.version >= _MANY_GROUPS_SINCE else _of_one_group(asked)


def _of_one_group(asked: Asked) -> Verdict:
    request: OffsetFetchRequest = asked.message
    if code := asked.refusal(DESCRIBE_GROUP, request.group_id):
        if asked.version >= _GROUP_ERROR_SINCE:
            return Verdict(answer=OffsetFetchResponse(error_code=code, topics=()))
        return Verdict(answer=OffsetFetchResponse(topics=tuple(_topic(each, code) for each in request.topics or ())))
    if request.topics is None:
        return Verdict(change=lambda answer: replace(answer, topics=_shown(asked, answer.topics)))
    return without_denied(
        asked, "topics", OffsetFetchResponse, "topics", lambda each: asked.refusal(DESCRIBE_TOPIC, each.name), _topic
    )


def _topic(topic: Any, code: int) -> OffsetFetchResponseTopic:
    partitions = (
        OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
        for index in topic.partition_indexes
    )
    return OffsetFetchResponseTopic(name=topic.name, partitions=tuple(partitions))


def _of_groups(asked: Asked) -> Verdict:
    kept, denied = sorted_out(asked.message.groups, lambda each: asked.refusal(DESCRIBE_GROUP, each.group_id))
    refused: tuple[OffsetFetchResponseGroup, ...] = tuple(
        OffsetFetchResponseGroup(group_id=each.group_id, topics=(), error_code=code) for each, code in denied
    )
    rest: list[OffsetFetchRequestGroup] = []
    missing: dict[str, tuple[OffsetFetchResponseTopics, ...]] = {}
    listed: set[str] = set()
    for group in kept:
        if group.topics is None:
            listed.add(group.group_id)
            rest.append(group)
            continue
        topics, hidden = sorted_out(
            group.topics, lambda each: asked.refusal_of_topic(DESCRIBE_TOPIC, each.name, each.topic_id)
        )
        rest.append(replace(group, topics=topics) if hidden else group)
        if hidden:
            missing[group.group_id] = missing.get(group.group_id, ()) + tuple(_topics(*each) for each in hidden)
    if not kept:
        return Verdict(answer=OffsetFetchResponse(groups=refused))
    if not (denied or missing or listed):
        return PASS
    is_changed = bool(denied or missing)
    return Verdict(
        request=replace(asked.message, groups=tuple(rest)) if is_changed else None,
        change=_with_groups(asked, refused, missing, listed),
    )


def _topics(topic: Any, code: int) -> OffsetFetchResponseTopics:
    partitions = (
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)
        for index in topic.partition_indexes
    )
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))


def _with_groups(
    asked: Asked,
    refused: Sequence[OffsetFetchResponseGroup],
    missing: dict[str, tuple[OffsetFetchResponseTopics, ...]],
    listed: set[str],
) -> Change:
    """Returns a function that adds denied groups and topics to a response, and leaves topics out of lists."""

    def change(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        groups = []
        for group in answer.groups:
            topics = _shown(asked, group.topics) if group.group_id in listed else group.topics
            added = () if group.error_code else missing.get(group.group_id, ())
            groups.append(replace(group, topics=(*topics, *added)))
        return replace(answer, groups=(*groups, *refused))

    return change


def _shown(asked: Asked, topics: Sequence[Any]) -> tuple[Any, ...]:
    """The topics of a response to a request for all topics that the client may describe."""
    return tuple(each for each in topics if _is_shown(asked, each))


def _is_shown(asked: Asked, topic: Any) -> bool:
    topic_id = getattr(topic, "topic_id", NO_UUID)
    name = topic.name if topic_id == NO_UUID else asked.names.get(topic_id, topic.name)
    return bool(name) and asked.shows(DESCRIBE_TOPIC, name)


# -- offsets of share groups


def describe_share_group_offsets(asked: Asked) -> Verdict:
    kept, denied = sorted_out(asked.message.groups, lambda each: asked.refusal(DESCRIBE_GROUP, each.group_id))
    refused = tuple(
        DescribeShareGroupOffsetsResponseGroup(
            group_id=each.group_id,
            topics=(),
            error_code=code,
            error_message=asked.denial(DESCRIBE_GROUP, each.group_id, code=code),
        )
        for each, code in denied
    )
    if not kept:
        return Verdict(answer=DescribeShareGroupOffsetsResponse(groups=refused))
    rest: list[DescribeShareGroupOffsetsRequestGroup] = []
    missing: dict[str, tuple[DescribeShareGroupOffsetsResponseTopic, ...]] = {}
    for group in kept:
        topics, hidden = sorted_out(group.topics or (), lambda each: asked.refusal(DESCRIBE_TOPIC, each.topic_name))
        rest.append(group if group.topics is None else replace(group, topics=topics))
        missing[group.group_id] = tuple(_share_topic(asked, *each) for each in hidden)

    def change(answer: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        groups = []
        for group in answer.groups:
            shown = tuple(each for each in group.topics if asked.shows(DESCRIBE_TOPIC, each.topic_name))
            groups.append(replace(group, topics=(*shown, *missing.get(group.group_id, ()))))
        return replace(answer, groups=(*groups, *refused))

    return Verdict(request=replace(asked.message, groups=tuple(rest)), change=change)


def _share_topic(asked: Asked, topic: Any, code: int) -> DescribeShareGroupOffsetsResponseTopic:
    message = asked.denial(DESCRIBE_TOPIC, topic.topic_name, code=code)
    partitions = (
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=-1, leader_epoch=0, error_code=code, error_message=message
        )
        for index in topic.partitions
    )
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=NO_UUID, partitions=tuple(partitions)
    )


def alter_share_group_offsets(asked: Asked) -> Verdict:
    if (whole := asked.refuses(READ_GROUP, asked.message.group_id)) is not None:
        return Verdict(
            answer=AlterShareGroupOffsetsResponse(error_code=whole.code, error_message=whole.detail, responses=())
        )

    def refused(topic: Any, code: int) -> Any:
        message = asked.denial(READ_TOPIC, topic.topic_name, code=code)
        partitions = (
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=code, error_message=message
            )
            for each in topic.partitions
        )
        return AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=NO_UUID, partitions=tuple(partitions)
        )

    return without_denied(
        asked,
        "topics",
        partial(AlterShareGroupOffsetsResponse, error_code=0),
        "responses",
        lambda each: asked.refusal(READ_TOPIC, each.topic_name),
        refused,
    )


def delete_share_group_offsets(asked: Asked) -> Verdict:
    if (whole := asked.refuses(DELETE_GROUP, asked.message.group_id)) is not None:
        return Verdict(
            answer=DeleteShareGroupOffsetsResponse(error_code=whole.code, error_message=whole.detail, responses=())
        )
    return without_denied(
        asked,
        "topics",
        partial(DeleteShareGroupOffsetsResponse, error_code=0),
        "responses",
        lambda each: asked.refusal(READ_TOPIC, each.topic_name),
        lambda topic, code: DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=NO_UUID,
            error_code=code,
            error_message=asked.denial(READ_TOPIC, topic.topic_name, code=code),
        ),
    )
