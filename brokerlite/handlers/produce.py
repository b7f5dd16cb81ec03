"""Produce v3-13: append batches.

v0-2 are advertised and refused: librdkafka silently switches compression off where a broker does not advertise them
(KAFKA-18659). Record sets older than v2 never come, because no broker since 4.0 takes them. v13: topics by id.

In a transaction, a partition must be part of it. Up to v11 that is asked of the coordinator, from v12 on the partitions
of the request join by themselves (KIP-890). v11+: TRANSACTION_ABORTABLE.

With ``acks=0`` there is no answer; if something failed the connection is closed, so that the client finds out.
"""

import logging

from ottla.brokerlite.machines.core import BrokerCore, Call, NoAnswer
from ottla.brokerlite.machines.log import IMPLICIT_SINCE, InvalidRecords
from ottla.brokerlite.machines.topics import INTERNAL, Place, Topic
from ottla.brokerlite.machines.transaction import EPOCH_RISES
from ottla.brokerlite.machines.transactions import Producing
from ottla.codec.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.codec.records import RecordBatch
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidRequiredAcks,
    InvalidTopic,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

log = logging.getLogger("ottla.brokerlite")

BY_ID = 13
"""The version from which topics are named by id."""
ABORTABLE_SINCE = 11
"""The version from which clients know TRANSACTION_ABORTABLE."""


def handle(broker: BrokerCore, call: Call) -> ProduceResponse | NoAnswer:
    request: ProduceRequest = call.message
    names, ids, by_id = broker.topics.by_name, broker.topics.by_id, call.header.api_version >= BY_ID
    response = ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=each.name,
                topic_id=each.topic_id,
                partition_responses=tuple(
                    _produce(broker, call, ids.get(each.topic_id) if by_id else names.get(each.name), data)
                    for data in each.partition_data
                ),
            )
            for each in request.topic_data
        )
    )
    if request.acks != 0:
        return response
    failed = next((p for topic in response.responses for p in topic.partition_responses if p.error_code), None)
    return NoAnswer(f"a record set sent with acks=0 was refused: {failed.error_message}" if failed else None)


def _produce(
    broker: BrokerCore, call: Call, topic: Topic | None, data: PartitionProduceData
) -> PartitionProduceResponse:
    request: ProduceRequest = call.message
    version = call.header.api_version
    try:
        if request.acks not in (-1, 0, 1):
            raise InvalidRequiredAcks(f"acks is {request.acks}")
        if topic is None and version >= BY_ID:
            raise UnknownTopicId
        partition = topic.partition(data.index) if topic else None
        if topic is None or partition is None:
            raise UnknownTopicOrPartition
        if topic.name in INTERNAL:
            raise InvalidTopic(f"{topic.name} is the broker's own")
        if request.acks == -1 and topic.min_insync_replicas > 1:
            raise NotEnoughReplicas(f"min.insync.replicas is {topic.min_insync_replicas}, and this is the only broker")
        place = topic.name, data.index
        stored = partition.append(
            data.records,
            version=version,
            timestamp=call.timestamp,
            now=call.now,
            verify=lambda batch: _verify(broker, call, place, batch),
        )
    except BrokerError as error:
        return _refused(error, data.index)
    if stored.size:
        broker.grown(partition)
    return PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=stored.base_offset,
        log_append_time_ms=stored.append_time,
        log_start_offset=partition.start_offset,
    )


def _verify(broker: BrokerCore, call: Call, place: Place, batch: RecordBatch) -> None:
    """See that the partition is part of the batch's transaction, in words that the client knows."""
    request: ProduceRequest = call.message
    version = call.header.api_version
    if request.transactional_id is None:
        raise TransactionalIdAuthorizationFailed("a transactional batch, in a request without a transactional id")
    asked = Producing(request.transactional_id, batch.producer_id, batch.producer_epoch)
    try:
        if version >= IMPLICIT_SINCE:
            broker.transactions.add(asked, _named(broker, call), EPOCH_RISES)
        else:
            broker.transactions.verify(asked, place)
    except ProducerFenced as error:
        raise InvalidProducerEpoch(error.detail) from None
    except TransactionAbortable as error:
        raise (error if version >= ABORTABLE_SINCE else InvalidTxnState(error.detail)) from None
    except CoordinatorNotAvailable as error:
        raise NotEnoughReplicas(error.detail) from None
    except ConcurrentTransactions as error:  # older clients know no other error after which to try again
        raise (error if version >= IMPLICIT_SINCE else NotEnoughReplicas(error.detail)) from None


def _named(broker: BrokerCore, call: Call) -> tuple[Place, ...]:
    """The partitions of a request: with the first of them all join its transaction, which is stored once."""
    request: ProduceRequest = call.message
    by_id = call.header.api_version >= BY_ID
    names = [
        (broker.topics.by_id[each.topic_id].name if each.topic_id in broker.topics.by_id else "")
        if by_id
        else each.name
        for each in request.topic_data
    ]
    return tuple(
        (name, data.index)
        for name, each in zip(names, request.topic_data, strict=True)
        for data in each.partition_data
        if name not in INTERNAL and broker.topics.partition(name, data.index) is not None
    )


def _refused(error: BrokerError, index: int) -> PartitionProduceResponse:
    log.info("batch refused: %s", error)
    indexes = error.indexes if isinstance(error, InvalidRecords) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=error.detail) for each in indexes
        ),
        error_message=error.detail or None,
    )
