"""Produce v3-13: append batches.

v0-2 are advertised and refused: librdkafka silently switches compression off where a broker does not advertise them
(KAFKA-18659). Record sets older than v2 never come, because no broker since 4.0 takes them. v13: topics by id.

In a transaction, a partition must be part of it. Up to v11 that is asked of the coordinator, from v12 on the partitions
of the request join by themselves (KIP-890). v11+: TRANSACTION_ABORTABLE.

With ``acks=0`` there is no answer; if something failed the connection is closed, so that the client finds out.
"""

import logging
from collections.abc import Mapping, Sequence

from ottla.brokerlite.machines.core import BrokerCore, Call, NoAnswer
from ottla.brokerlite.machines.log import IMPLICIT_SINCE, InvalidRecords, PartitionLog
from ottla.brokerlite.machines.topics import INTERNAL, Place, Topic
from ottla.brokerlite.machines.transaction import EPOCH_RISES
from ottla.brokerlite.machines.transactions import Producing
from ottla.codec.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.codec.records import HEADER_SIZE
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

_ATTRIBUTES = 22
"""Where a batch's header has them."""
_TRANSACTIONAL = 0x10
_NAMELESS = TransactionalIdAuthorizationFailed("a transactional batch, in a request without a transactional id")


def handle(broker: BrokerCore, call: Call) -> ProduceResponse | NoAnswer:
    request: ProduceRequest = call.message
    topics = [_topic(broker, call, each) for each in request.topic_data]
    nameless = request.transactional_id is None and _is_transactional(request)
    refused = {} if request.transactional_id is None else _join(broker, call, topics, request.transactional_id)
    response = ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=each.name,
                topic_id=each.topic_id,
                partition_responses=tuple(
                    _refused(_NAMELESS, data.index) if nameless else _produce(broker, call, topic, data, refused)
                    for data in each.partition_data
                ),
            )
            for each, topic in zip(request.topic_data, topics, strict=True)
        )
    )
    if request.acks != 0:
        return response
    failed = next((p for topic in response.responses for p in topic.partition_responses if p.error_code), None)
    return NoAnswer(f"a record set sent with acks=0 was refused: {failed.error_message}" if failed else None)


def _topic(broker: BrokerCore, call: Call, asked: TopicProduceData) -> Topic | None:
    by_id = call.header.api_version >= BY_ID
    return broker.topics.by_id.get(asked.topic_id) if by_id else broker.topics.by_name.get(asked.name)


def _produce(
    broker: BrokerCore,
    call: Call,
    topic: Topic | None,
    data: PartitionProduceData,
    refused: Mapping[Place, BrokerError],
) -> PartitionProduceResponse:
    try:
        place, partition = _partition(call, topic, data)
        if place in refused:
            raise refused[place]
        stored = partition.append(data.records, version=call.header.api_version, timestamp=call.timestamp, now=call.now)
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


def _partition(call: Call, topic: Topic | None, data: PartitionProduceData) -> tuple[Place, PartitionLog]:
    """Where a record set goes, if it may."""
    request: ProduceRequest = call.message
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcks(f"acks is {request.acks}")
    if topic is None and call.header.api_version >= BY_ID:
        raise UnknownTopicId
    partition = topic.partition(data.index) if topic else None
    if topic is None or partition is None:
        raise UnknownTopicOrPartition
    if topic.name in INTERNAL:
        raise InvalidTopic(f"{topic.name} is the broker's own")
    if request.acks == -1 and topic.min_insync_replicas > 1:
        raise NotEnoughReplicas(f"min.insync.replicas is {topic.min_insync_replicas}, and this is the only broker")
    return (topic.name, data.index), partition


# -- transactions


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether a record set is transactional: it says so in its header."""
    return any(
        data.records is not None and len(data.records) >= HEADER_SIZE and data.records[_ATTRIBUTES] & _TRANSACTIONAL
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _join(
    broker: BrokerCore, call: Call, topics: Sequence[Topic | None], transactional_id: str
) -> dict[Place, BrokerError]:
    """See that the partitions in which the request would begin a transaction are part of it; those that are not, and
    why.

    All of them join at once, so that their transaction is stored once.
    """
    request: ProduceRequest = call.message
    refused: dict[Place, BrokerError] = {}
    joining: dict[Producing, list[Place]] = {}
    for each, topic in zip(request.topic_data, topics, strict=True):
        for data in each.partition_data:
            try:
                place, partition = _partition(call, topic, data)
            except BrokerError:  # it is said for each partition, later
                continue
            try:
                batch = partition.attempt(data.records, call.header.api_version)
            except BrokerError as error:
                refused[place] = error
                continue
            if batch is not None:
                asked = Producing(transactional_id, batch.producer_id, batch.producer_epoch)
                joining.setdefault(asked, []).append(place)
    for asked, places in joining.items():
        refused |= _ask(broker, call, asked, places)
    return refused


def _ask(broker: BrokerCore, call: Call, asked: Producing, places: Sequence[Place]) -> dict[Place, BrokerError]:
    """Ask the coordinator for some partitions; those that it refuses, and why, in words that the client knows."""
    version = call.header.api_version
    refused: dict[Place, BrokerError] = {}
    try:
        if version >= IMPLICIT_SINCE:
            broker.transactions.add(asked, places, EPOCH_RISES)
        else:
            refused = broker.transactions.verify(asked, places)
    except BrokerError as error:
        refused = dict.fromkeys(places, error)
    return {place: _known(error, version) for place, error in refused.items()}


def _known(error: BrokerError, version: int) -> BrokerError:
    """The error, as a client of that version knows it."""
    match error:
        case ProducerFenced():
            return InvalidProducerEpoch(error.detail)
        case TransactionAbortable() if version < ABORTABLE_SINCE:
            return InvalidTxnState(error.detail)
        case CoordinatorNotAvailable():
            return NotEnoughReplicas(error.detail)
        case ConcurrentTransactions() if version < IMPLICIT_SINCE:  # older clients know no other to try again after
            return NotEnoughReplicas(error.detail)
    return error


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
