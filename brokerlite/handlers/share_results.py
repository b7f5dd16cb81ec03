"""Takes the acknowledgements in ShareFetch and ShareAcknowledge requests.

The batches of a partition must ascend, and have one type for all offsets or one for each; otherwise none of them
counts. If a request repeats a partition, the last one counts: that bounds the work, and Kafka does the same.

Source: KafkaApis.scala (handleAcknowledgements, validateAcknowledgementBatches,
getAcknowledgeBatchesFromShareFetchRequest).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ottla.acl.rights import Right
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.share_partitions.record_results import RecordResults
from ottla.brokerlite.machines.share_partitions.share_sessions import Place, SessionName
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey
from ottla.codec.apis.share_acknowledge import AcknowledgeTopic
from ottla.codec.apis.share_fetch import GAP, REJECT, RENEW, FetchTopic
from ottla.errors import BrokerError, InvalidRequest, UnknownTopicId, UnknownTopicOrPartition


class AcknowledgementBatch(Protocol):
    """A batch of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


LONGEST_NAME = 1000
"""The most characters of a group id or a member id in a share session."""

Results = Mapping[Place, BrokerError | None]
"""Partition -> the error of its acknowledgements."""


def session_name(group_id: str | None, member_id: str | None) -> SessionName:
    """Return whose session a request belongs to.

    Raises:
        InvalidRequest: it names no group or no member, or a name is too long to keep.
    """
    if not group_id or not member_id:
        raise InvalidRequest("a share session needs the id of a group and of a member")
    if max(len(group_id), len(member_id)) > LONGEST_NAME:
        raise InvalidRequest(f"a share session has names of at most {LONGEST_NAME} characters")
    return SessionName(group_id, member_id)


def by_place(topics: Iterable[FetchTopic | AcknowledgeTopic]) -> dict[Place, Sequence[AcknowledgementBatch]]:
    """Map each partition of a request to its batches of acknowledgements, which may be empty."""
    return {
        (topic.topic_id, each.partition_index): each.acknowledgement_batches
        for topic in topics
        for each in topic.partitions
    }


def readable(broker: BrokerCore, call: Call, place: Place, right: Right) -> PartitionLog:
    """Return the log of a partition for which the client has the right.

    Raises:
        UnknownTopicId, UnknownTopicOrPartition, TopicAuthorizationFailed: it has not, or there is none.
    """
    topic_id, index = place
    if (topic := broker.topics.by_id.get(topic_id)) is None:
        raise UnknownTopicId(f"there is no topic with the id {topic_id}")
    broker.access.require(call.session, right, topic.name)
    if (log := topic.partition(index)) is None:
        raise UnknownTopicOrPartition(f"{topic.name} has no partition {index}")
    return log


def acknowledge(
    broker: BrokerCore,
    call: Call,
    name: SessionName,
    batches: Mapping[Place, Sequence[AcknowledgementBatch]],
    right: Right,
    *,
    renews: bool,
) -> Results:
    """Take acknowledgements; each partition by itself.

    Args:
        batches: the batches of each partition; partitions without batches have no result.
        right: the right that the client needs on the topics.
        renews: the request says that it has renewals.
    """
    results: dict[Place, BrokerError | None] = {}
    for place, each in batches.items():
        if not each:
            continue
        try:
            readable(broker, call, place, right)
            checked = _checked(each, renews=renews)
            broker.share_partitions.acknowledge(ShareKey(name.group_id, *place), name.member_id, checked)
            results[place] = None
        except BrokerError as error:
            results[place] = error
    return results


def _checked(batches: Iterable[AcknowledgementBatch], *, renews: bool) -> list[RecordResults]:
    checked = []
    last = -1
    for each in batches:
        first, types = each.first_offset, each.acknowledge_types
        size = each.last_offset - first + 1
        if size <= 0 or first < max(last, 0) or len(types) not in (1, size):
            raise InvalidRequest("the batches of acknowledgements must ascend, with one type or one for each offset")
        if not all(GAP <= kind <= (RENEW if renews else REJECT) for kind in types):
            raise InvalidRequest("an acknowledgement has an unknown type")
        last = each.last_offset
        checked.append(RecordResults(first, last, types))
    return checked
