"""Produce v3-13: appends batches.

v0-2 are advertised but refused: librdkafka silently disables compression if a broker does not advertise them
(KAFKA-18659). Record sets older than v2 never arrive, because no broker since 4.0 accepts them. v13: topics by id.

Transactional batches may only go to partitions of their transaction. Up to v11 the broker verifies that with the
coordinator; from v12 on it adds the partitions of the request to the transaction (KIP-890). v11+:
TRANSACTION_ABORTABLE. With ACLs, later batches of an open transaction need the producer id of the transactional id,
too. Apache Kafka checks the first only, so a client with any transactional id can write into the transactions of
others: producer ids are easy to guess, because they count up.

Compressed record sets, which take long to validate, are validated in a thread, a few at a time; each lot is appended
before the next is validated. Meanwhile their topics may be deleted, or recreated with other settings; then they are
validated again.

With ``acks=0`` there is no response; after a failure the broker closes the connection, so that the client notices.
"""

import logging
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from uuid import UUID

from ottla.acl.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.machines.core import BrokerCore, Call, NoAnswer
from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import IMPLICIT_SINCE, PartitionLog
from ottla.brokerlite.machines.partitions.validation import (
    DECOMPRESSED_LIMIT,
    InvalidRecords,
    InvalidTimestamps,
    NotOneBatch,
    validated,
    work,
)
from ottla.brokerlite.machines.requests.request_work import WorkFirst
from ottla.brokerlite.machines.topics.topics import INTERNAL, TopicPartition
from ottla.brokerlite.machines.transactions.transaction_coordinator import Producing
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES
from ottla.codec.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.codec.records import HEADER_SIZE, MAGIC, RecordBatch
from ottla.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaStorageError,
    MessageTooLarge,
    RecordListTooLarge,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)

log = logging.getLogger("ottla.brokerlite")

BY_ID = 13
"""The first version with topic ids instead of names."""
_MAGIC, _ATTRIBUTES = 16, 22
"""Positions in a batch's header."""
_TRANSACTIONAL = 0x10
_RECORD_SET = 500
"""Bytes counted for a record set that waits, in addition to its records: the parsed request takes about as many."""
_TOO_MUCH = RequestTimedOut("too many large record sets are waiting for validation")
_NAMELESS = TransactionalIdAuthorizationFailed("the batch is transactional, but the request has no transactional id")
_UNREAD = (
    CorruptMessage,
    KafkaStorageError,
    MessageTooLarge,
    NotOneBatch,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
"""Errors with which Apache Kafka refuses a record set before it looks at the log."""
MOST_NAMED = 1000
"""The most refused records that a response names, of all batches together."""
_NOT_VALIDATED = UnknownServerError()


@dataclass(slots=True)
class _RecordSet:
    """Tracks one record set of the request."""

    topic: TopicProduceData
    data: PartitionProduceData
    place: TopicPartition = ("", -1)
    partition: PartitionLog | None = None
    """The partition to append to; ``None`` if the record set is refused."""
    settings: LogSettings | None = None
    """The settings with which it was validated."""
    valid: RecordBatch | None = None
    """The batch to append, if it is valid."""
    error: BrokerError = _NOT_VALIDATED
    """The error if it is refused."""
    outcome: PartitionProduceResponse | None = None

    def go_to(self, place: TopicPartition, partition: PartitionLog) -> None:
        """Choose the partition to append to."""
        self.place, self.partition = place, partition

    def refuse(self, error: BrokerError) -> None:
        """Append it nowhere, and answer with ``error``."""
        self.partition, self.error = None, error

    @property
    def is_to_validate(self) -> bool:
        """Whether it has not been validated yet with its topic's current settings."""
        return self.partition is not None and self.settings is not self.partition.settings

    def validate(self, version: int, timestamp: int, limit: int) -> None:
        """Validate it, if it needs that; may run in a thread.

        Args:
            version: of Produce.
            timestamp: when the request arrived, in milliseconds since 1970.
            limit: the most bytes to decompress.
        """
        if self.partition is None or self.settings is (settings := self.partition.settings):
            return
        self.settings = settings
        try:
            self.valid = validated(
                self.data.records,
                version=version,
                settings=settings,
                timestamp=timestamp,
                name=self.partition.name,
                limit=limit,
            )
        except BrokerError as error:
            self.valid, self.error = None, error

    def finish(self, outcome: PartitionProduceResponse) -> None:
        """Take the outcome, and free the memory of the batch, and of the records that the error names."""
        self.outcome, self.valid, self.error = outcome, None, _NOT_VALIDATED

    @property
    def named(self) -> int:
        """How many records the outcome names."""
        return len(self.outcome.record_errors) if self.outcome is not None else 0


def handle(broker: BrokerCore, call: Call) -> ProduceResponse | NoAnswer | WorkFirst:
    request: ProduceRequest = call.message
    record_sets = _record_sets(request, call.header.api_version >= BY_ID)
    if any(map(_is_transactional, record_sets)):
        if request.transactional_id is None:
            return _refuse_all(call, record_sets, _NAMELESS)
        error = broker.access.refusal(call.session, WRITE_TRANSACTIONAL_ID, request.transactional_id)
        if error is not None:
            return _refuse_all(call, record_sets, error)
    for each in record_sets:
        _find(broker, call, each)
    at_once = broker.settings.work_at_once
    if _count_little(record_sets, at_once) == len(record_sets):
        _validate(call, record_sets, at_once)
        _append_all(broker, call, record_sets, call.timestamp)
        return _response(call, record_sets)
    size = sum(_RECORD_SET + len(each.data.records or b"") for each in record_sets)
    pieces = _piecewise(broker, call, record_sets, call.timestamp - broker.clock.timestamp)
    return WorkFirst(pieces, partial(_refuse_all, call, record_sets, _TOO_MUCH), size)


def _record_sets(request: ProduceRequest, by_id: bool) -> list[_RecordSet]:
    """Return the record sets of a request; if a partition has several, the last one counts, as with Apache Kafka."""
    once: dict[tuple[UUID | str, int], _RecordSet] = {}
    for topic in request.topic_data:
        name = topic.topic_id if by_id else topic.name
        for data in topic.partition_data:
            once[name, data.index] = _RecordSet(topic, data)
    return list(once.values())


def _piecewise(
    broker: BrokerCore, call: Call, record_sets: Sequence[_RecordSet], ahead: int
) -> Generator[Work, None, ProduceResponse | NoAnswer]:
    """Repeatedly validate, in a thread, as many record sets as allowed at once (at least one), and append them.

    Args:
        ahead: milliseconds by which the system's clock is ahead of the broker's.
    """
    begin, nameable = 0, MOST_NAMED
    while begin < len(record_sets):
        little = _count_little(islice(record_sets, begin, None), broker.settings.work_at_once)
        some = record_sets[begin : begin + max(1, little)]
        begin += len(some)
        while any(each.is_to_validate for each in some):
            yield partial(_validate, call, some, DECOMPRESSED_LIMIT)
            for each in some:
                _find(broker, call, each)
        _append_all(broker, call, some, broker.clock.timestamp + ahead, nameable)
        nameable -= sum(each.named for each in some)
    return _response(call, record_sets)


def _response(call: Call, record_sets: Iterable[_RecordSet]) -> ProduceResponse | NoAnswer:
    outcomes = [(each.topic, each.outcome) for each in record_sets if each.outcome is not None]
    if call.message.acks == 0:
        failed = next((each for _, each in outcomes if each.error_code), None)
        return NoAnswer(f"a record set sent with acks=0 was refused: {failed.error_message}" if failed else None)
    by_topic: dict[tuple[str, UUID], list[PartitionProduceResponse]] = {}
    for topic, outcome in outcomes:
        by_topic.setdefault((topic.name, topic.topic_id), []).append(outcome)
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(of_topic))
            for (name, topic_id), of_topic in by_topic.items()
        )
    )


def _refuse_all(call: Call, record_sets: Iterable[_RecordSet], error: BrokerError) -> ProduceResponse | NoAnswer:
    for each in record_sets:
        each.finish(_refused(error, each.data.index))
    return _response(call, record_sets)


def _find(broker: BrokerCore, call: Call, each: _RecordSet) -> None:
    """Find the partition of a record set, or the error; call it again after a thread has run, because it may change."""
    by_id = call.header.api_version >= BY_ID
    topic = broker.topics.by_id.get(each.topic.topic_id) if by_id else broker.topics.by_name.get(each.topic.name)
    index, acks = each.data.index, call.message.acks
    name = topic.name if topic else each.topic.name
    if by_id and topic is None:
        each.refuse(UnknownTopicId())
    elif (denied := broker.access.refusal(call.session, WRITE_TOPIC, name)) is not None:
        each.refuse(TopicAuthorizationFailed() if by_id else denied)  # a text would show which name the id has
    elif acks not in (-1, 0, 1):
        each.refuse(InvalidRequiredAcks(f"acks is {acks}"))
    elif name in INTERNAL:
        each.refuse(InvalidTopic(f"{name} is an internal topic"))
    elif topic is None or (partition := topic.partition(index)) is None:
        each.refuse(UnknownTopicOrPartition())
    else:
        each.go_to((topic.name, index), partition)


def _append_all(
    broker: BrokerCore, call: Call, record_sets: Sequence[_RecordSet], timestamp: int, nameable: int = MOST_NAMED
) -> None:
    """Append the valid record sets.

    Args:
        timestamp: the time, in milliseconds since 1970.
        nameable: how many refused records the response may still name.
    """
    request: ProduceRequest = call.message
    if request.transactional_id is not None:
        _join(broker, call, record_sets, request.transactional_id)
    for each in record_sets:
        each.finish(_append(broker, each, timestamp, nameable))
        nameable -= each.named


def _append(broker: BrokerCore, each: _RecordSet, timestamp: int, nameable: int) -> PartitionProduceResponse:
    partition, batch = each.partition, each.valid
    if partition is None or batch is None:
        return _refused(each.error, each.data.index, -1 if partition is None else partition.start_offset, nameable)
    try:
        stored = partition.append(batch, timestamp, broker.clock.now)
    except BrokerError as error:
        return _refused(error, each.data.index, partition.start_offset)
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


def _count_little(record_sets: Iterable[_RecordSet], most: int) -> int:
    """Count the record sets, from the first on, that can be validated with at most ``most`` work."""
    count = much = 0
    for each in record_sets:
        if each.partition is not None:
            much += work(each.data.records, each.partition.settings)
        if much > most:
            break
        count += 1
    return count


def _validate(call: Call, record_sets: Iterable[_RecordSet], limit: int) -> None:
    """Validate the record sets that need it; may run in a thread.

    Args:
        limit: the most bytes to decompress of each.
    """
    for each in record_sets:
        each.validate(call.header.api_version, call.timestamp, limit)


# -- transactions


def _is_transactional(record_set: _RecordSet) -> bool:
    """Whether the header of a record set says that it is transactional."""
    records = record_set.data.records
    if records is None or len(records) < HEADER_SIZE or records[_MAGIC] != MAGIC:
        return False
    return bool(records[_ATTRIBUTES] & _TRANSACTIONAL)


def _join(broker: BrokerCore, call: Call, record_sets: Iterable[_RecordSet], transactional_id: str) -> None:
    """Make sure that partitions in which record sets begin a transaction are part of it.

    All partitions join at once, so that the transaction is stored once; and just before the append, so that the
    transaction cannot end in between.
    """
    joining: dict[Producing, list[_RecordSet]] = {}
    for each in record_sets:
        if each.partition is None or (batch := each.valid) is None:
            continue
        try:
            if each.partition.attempt(batch, call.header.api_version):
                asked = Producing(transactional_id, batch.producer_id, batch.producer_epoch)
                joining.setdefault(asked, []).append(each)
            elif batch.transactional and not broker.access.has_every_right(call.session):
                broker.transactions.check_producer_id(transactional_id, batch.producer_id)
        except BrokerError as error:
            each.refuse(known(error, call))
    for asked, together in joining.items():
        refused = _ask(broker, call, asked, [each.place for each in together])
        for each in together:
            if each.place in refused:
                each.refuse(refused[each.place])


def _ask(
    broker: BrokerCore, call: Call, asked: Producing, places: Sequence[TopicPartition]
) -> dict[TopicPartition, BrokerError]:
    """Add or verify partitions with the coordinator; return the refused ones, with errors that the client knows."""
    refused: dict[TopicPartition, BrokerError] = {}
    try:
        if call.header.api_version >= IMPLICIT_SINCE:
            broker.transactions.add(asked, places, EPOCH_RISES)
        else:
            refused = broker.transactions.verify(asked, places)
    except BrokerError as error:
        refused = dict.fromkeys(places, error)
    return {place: known(error, call) for place, error in refused.items()}


def _refused(
    error: BrokerError, index: int, start_offset: int = -1, nameable: int = MOST_NAMED
) -> PartitionProduceResponse:
    """Build the response for a refused record set.

    Args:
        start_offset: of the log. As in Apache Kafka, the response has it only if the broker looked at the records.
        nameable: the most records that it names.
    """
    if not isinstance(error, KafkaStorageError):  # the storage logs those itself, without a line for each
        log.debug("batch refused: %s", error)
    indexes = error.indexes if isinstance(error, InvalidRecords | InvalidTimestamps) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=-1 if isinstance(error, _UNREAD) else start_offset,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=error.detail)
            for each in indexes[:nameable]
        ),
        error_message=error.detail or None,
    )
