"""Produce v3-13: append batches.

v0-2 are advertised and refused: librdkafka silently switches compression off where a broker does not advertise them
(KAFKA-18659). Record sets older than v2 never come, because no broker since 4.0 takes them. v13: topics by id.

In a transaction, a partition must be part of it. Up to v11 that is asked of the coordinator, from v12 on the partitions
of the request join by themselves (KIP-890). v11+: TRANSACTION_ABORTABLE.

Record sets that take long to validate, because they are compressed, are validated in a thread first. When that is done
their topics may have gone, or been recreated with other settings; then they are validated again.

With ``acks=0`` there is no answer; if something failed the connection is closed, so that the client finds out.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.configs import LogSettings
from ottla.brokerlite.machines.core import BrokerCore, Call, NoAnswer
from ottla.brokerlite.machines.log import IMPLICIT_SINCE, PartitionLog
from ottla.brokerlite.machines.request_work import WorkFirst
from ottla.brokerlite.machines.topics import INTERNAL, Place, Topic
from ottla.brokerlite.machines.transaction import EPOCH_RISES
from ottla.brokerlite.machines.transactions import Producing
from ottla.brokerlite.machines.validation import DECOMPRESSED_LIMIT, InvalidRecords, Valid, validated, work
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
    InvalidRequiredAcks,
    InvalidTopic,
    NotEnoughReplicas,
    RequestTimedOut,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

log = logging.getLogger("ottla.brokerlite")

BY_ID = 13
"""The version from which topics are named by id."""
_ATTRIBUTES = 22
"""Where a batch's header has them."""
_TRANSACTIONAL = 0x10
_NAMELESS = TransactionalIdAuthorizationFailed("a transactional batch, in a request without a transactional id")


_NOT_VALIDATED = UnknownServerError()


@dataclass(slots=True)
class _RecordSet:
    """One of the request's, and what has become of it so far."""

    data: PartitionProduceData
    place: Place = ("", -1)
    partition: PartitionLog | None = None
    """Where it goes, if it may."""
    settings: LogSettings | None = None
    """Those by which it was validated."""
    valid: Valid | None = None
    """What is to be appended, if it is right."""
    error: BrokerError = _NOT_VALIDATED
    """Why it is refused."""


def handle(broker: BrokerCore, call: Call) -> ProduceResponse | NoAnswer | WorkFirst:
    request: ProduceRequest = call.message
    by_topic = [[_RecordSet(data) for data in topic.partition_data] for topic in request.topic_data]
    if request.transactional_id is None and any(_is_transactional(each) for topic in by_topic for each in topic):
        return _response(call, [[_refused(_NAMELESS, each.data.index) for each in topic] for topic in by_topic])
    return _produce(broker, call, by_topic)


def _produce(
    broker: BrokerCore, call: Call, by_topic: Sequence[Sequence[_RecordSet]]
) -> ProduceResponse | NoAnswer | WorkFirst:
    """Append all that is valid, once everything is validated."""
    request: ProduceRequest = call.message
    for asked, of_topic in zip(request.topic_data, by_topic, strict=True):
        _find(broker, call, asked, of_topic)
    if (first := _validate(broker, call, by_topic)) is not None:
        return first
    if request.transactional_id is not None:
        _join(broker, call, by_topic, request.transactional_id)
    return _response(call, [[_append(broker, call, each) for each in of_topic] for of_topic in by_topic])


def _response(call: Call, by_topic: Sequence[Sequence[PartitionProduceResponse]]) -> ProduceResponse | NoAnswer:
    request: ProduceRequest = call.message
    if request.acks == 0:
        failed = next((each for of_topic in by_topic for each in of_topic if each.error_code), None)
        return NoAnswer(f"a record set sent with acks=0 was refused: {failed.error_message}" if failed else None)
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=tuple(of_topic))
            for asked, of_topic in zip(request.topic_data, by_topic, strict=True)
        )
    )


def _find(broker: BrokerCore, call: Call, asked: TopicProduceData, record_sets: Sequence[_RecordSet]) -> None:
    """Find where the record sets of a topic go, if they may; while a thread worked that may have changed."""
    by_id = call.header.api_version >= BY_ID
    topic = broker.topics.by_id.get(asked.topic_id) if by_id else broker.topics.by_name.get(asked.name)
    for each in record_sets:
        try:
            each.place, each.partition = _partition(call, topic, each.data)
        except BrokerError as error:
            each.partition, each.settings, each.valid, each.error = None, None, None, error


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


def _append(broker: BrokerCore, call: Call, each: _RecordSet) -> PartitionProduceResponse:
    partition, valid = each.partition, each.valid
    if partition is None or valid is None:
        return _refused(each.error, each.data.index)
    try:
        stored = partition.append(valid, call.now)
    except BrokerError as error:
        return _refused(error, each.data.index)
    if stored.size:
        broker.grown(partition)
    return PartitionProduceResponse(
        index=each.data.index,
        error_code=0,
        base_offset=stored.base_offset,
        log_append_time_ms=stored.append_time,
        log_start_offset=partition.start_offset,
    )


# -- validation


def _validate(broker: BrokerCore, call: Call, by_topic: Sequence[Sequence[_RecordSet]]) -> WorkFirst | None:
    """Validate the record sets that have not been yet, by the settings that their topics have now; or say that there is
    too much to do.
    """
    left: list[_RecordSet] = []
    much = 0
    for of_topic in by_topic:
        for each in of_topic:
            if each.partition is not None and each.settings is not each.partition.settings:
                each.settings = each.partition.settings
                left.append(each)
                much += work(each.data.records, each.settings)
    if much <= broker.settings.work_at_once:
        _validate_all(call, left, broker.settings.work_at_once)
        return None

    def then(done: bool) -> ProduceResponse | NoAnswer | WorkFirst:
        if not done:
            for each in left:
                each.valid, each.error = None, RequestTimedOut("too many large record sets wait to be validated")
        return _produce(broker, call, by_topic)

    size = sum(len(each.data.records or b"") for of_topic in by_topic for each in of_topic)
    return WorkFirst(partial(_validate_all, call, left, DECOMPRESSED_LIMIT), then, size)


def _validate_all(call: Call, record_sets: Sequence[_RecordSet], limit: int) -> None:
    """Validate them, by the settings that they have; perhaps in a thread."""
    for each in record_sets:
        assert each.partition is not None and each.settings is not None
        try:
            each.valid = validated(
                each.data.records,
                version=call.header.api_version,
                settings=each.settings,
                timestamp=call.timestamp,
                name=each.partition.name,
                limit=limit,
            )
        except BrokerError as error:
            each.valid, each.error = None, error


# -- transactions


def _is_transactional(record_set: _RecordSet) -> bool:
    """Whether a record set is transactional: it says so in its header."""
    records = record_set.data.records
    return records is not None and len(records) >= HEADER_SIZE and bool(records[_ATTRIBUTES] & _TRANSACTIONAL)


def _join(broker: BrokerCore, call: Call, by_topic: Sequence[Sequence[_RecordSet]], transactional_id: str) -> None:
    """See that the partitions in which the request would begin a transaction are part of it.

    All of them join at once, so that their transaction is stored once.
    """
    joining: dict[Producing, list[_RecordSet]] = {}
    for each in chain.from_iterable(by_topic):
        if each.partition is None or each.valid is None:
            continue
        batch = each.valid.batch
        try:
            if each.partition.attempt(batch, call.header.api_version):
                asked = Producing(transactional_id, batch.producer_id, batch.producer_epoch)
                joining.setdefault(asked, []).append(each)
        except BrokerError as error:
            each.valid, each.error = None, error
    for asked, together in joining.items():
        refused = _ask(broker, call, asked, [each.place for each in together])
        for each in together:
            if each.place in refused:
                each.valid, each.error = None, refused[each.place]


def _ask(broker: BrokerCore, call: Call, asked: Producing, places: Sequence[Place]) -> dict[Place, BrokerError]:
    """Ask the coordinator for some partitions; those that it refuses, and why, in words that the client knows."""
    refused: dict[Place, BrokerError] = {}
    try:
        if call.header.api_version >= IMPLICIT_SINCE:
            broker.transactions.add(asked, places, EPOCH_RISES)
        else:
            refused = broker.transactions.verify(asked, places)
    except BrokerError as error:
        refused = dict.fromkeys(places, error)
    return {place: known(error, call) for place, error in refused.items()}


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
