"""kafka-python's transactional producer as a program: see `tests.interop.transacting`."""

import kafka.errors
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.interop.aiokafka_peer import typed
from tests.interop.transacting import Kind, Record, serve
from tests.patience import HUNG

_FATAL = (
    kafka.errors.ProducerFencedError,
    kafka.errors.InvalidProducerEpochError,
    kafka.errors.OutOfOrderSequenceNumberError,
    kafka.errors.IllegalStateError,
)


class KafkaPython:
    """A producer and a consumer."""

    def __init__(self) -> None:
        self._producer: KafkaProducer = None
        self._consumer: KafkaConsumer = None
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}

    def open(self, config: dict[str, str]) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0)
        self._producer = KafkaProducer(**typed(config))

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        self._producer.send(topic, value, key, partition=partition)

    def flush(self) -> None:
        self._producer.flush(HUNG)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def subscribe(self, topic: str, config: dict[str, str]) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = KafkaConsumer(topic, **typed(config))

    def poll(self) -> list[Record]:
        batches = self._consumer.poll(timeout_ms=500)
        self._positions = {
            place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in batches.items()
        }
        return [Record(r.partition, r.offset, r.key, r.value) for records in batches.values() for r in records]

    def rewind(self) -> None:
        for place in self._consumer.assignment():
            committed = self._consumer.committed(place)
            if committed is None:
                self._consumer.seek_to_beginning(place)
            else:
                self._consumer.seek(place, committed)

    def offsets(self) -> None:
        self._producer.send_offsets_to_transaction(self._positions, self._consumer.group_metadata())

    def kind(self, error: Exception) -> tuple[Kind, str]:
        fatal = isinstance(error, _FATAL) or not isinstance(error, kafka.errors.KafkaError)
        retriable = isinstance(error, kafka.errors.KafkaTimeoutError)
        return ("fatal" if fatal else "retriable" if retriable else "abortable"), type(error).__name__


if __name__ == "__main__":
    serve(KafkaPython())
