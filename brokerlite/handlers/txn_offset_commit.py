"""TxnOffsetCommit v0-5: commits the offsets of a group when a transaction commits.

v2+: leader epochs. v3+: the request names the member, which is checked. v4+: TRANSACTION_ABORTABLE; before that
INVALID_TXN_STATE. v5: the broker adds the offsets to the transaction (KIP-890).

Source: KafkaApis.scala (handleTxnOffsetCommitRequest), OffsetMetadataManager.java (commitTransactionalOffset).
"""

from collections.abc import Mapping

from ottla.acl.rights import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from ottla.brokerlite.handlers.add_offsets_to_txn import OFFSETS
from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.groups.offsets import Committed
from ottla.brokerlite.machines.topics.keyed_log import Transactional
from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_coordinator import Producing
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.errors import (
    BrokerError,
    InvalidGroupId,
    OffsetMetadataTooLarge,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)

IMPLICIT_SINCE = 5


def handle(broker: BrokerCore, call: Call) -> TxnOffsetCommitResponse:
    request: TxnOffsetCommitRequest = call.message
    codes: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, Committed] = {}
    try:
        broker.access.require(call.session, WRITE_TRANSACTIONAL_ID, request.transactional_id)
        broker.access.require(call.session, READ_GROUP, request.group_id)
    except BrokerError as error:
        return _response(request, codes, error.code)
    for topic in request.topics:
        allowed = broker.access.allows(call.session, READ_TOPIC, topic.name)
        for each in topic.partitions:
            place = topic.name, each.partition_index
            known, metadata = broker.topics.by_name.get(topic.name), each.committed_metadata or ""
            if not allowed:
                codes[place] = TopicAuthorizationFailed.code
            elif known is None or known.partition(each.partition_index) is None:
                codes[place] = UnknownTopicOrPartition.code
            elif len(metadata) > broker.settings.groups.max_offset_metadata:
                codes[place] = OffsetMetadataTooLarge.code
            else:
                offsets[place] = Committed(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    metadata,
                    broker.clock.timestamp,
                    topic_id=known.topic_id,
                )
    return _response(request, codes, _commit(broker, call, offsets) if offsets else 0)


def _response(
    request: TxnOffsetCommitRequest, codes: Mapping[TopicPartition, int], code: int
) -> TxnOffsetCommitResponse:
    """Return the response with the error codes of some partitions, and ``code`` for all others."""
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get((topic.name, each.partition_index), code),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _commit(broker: BrokerCore, call: Call, offsets: dict[TopicPartition, Committed]) -> int:
    """Commit the valid offsets; return the error code for all of them."""
    request: TxnOffsetCommitRequest = call.message
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        transactional=True,
        creator=broker.access.limited(call.session),
    )
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id must not be empty")
        _join(broker, call)
        places = [(each.topic_id, index) for (_, index), each in offsets.items() if each.topic_id is not None]
        group = broker.offsets.begin_commit(request.group_id, committer, call.now, places, names_groups=False)
        broker.offsets.commit(group, offsets, Transactional(request.producer_id, request.producer_epoch))
    except BrokerError as error:
        return known(error, call).code
    return 0


def _join(broker: BrokerCore, call: Call) -> None:
    """Make sure that offsets are part of the transaction."""
    request: TxnOffsetCommitRequest = call.message
    asked = Producing(request.transactional_id, request.producer_id, request.producer_epoch)
    log = broker.offsets_log.topic().partitions[0]
    if not log.producers.begins(request.producer_id, request.producer_epoch):
        if not broker.access.has_every_right(call.session):  # see Produce
            broker.transactions.check_producer_id(request.transactional_id, request.producer_id)
        return
    if call.header.api_version >= IMPLICIT_SINCE:
        broker.transactions.add(asked, [OFFSETS], EPOCH_RISES)
    elif error := broker.transactions.verify(asked, [OFFSETS]).get(OFFSETS):
        raise error
