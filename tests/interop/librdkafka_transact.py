"""librdkafka's transactional producer as a program: see `tests.interop.transacting`."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.transacting import Kind, Record, serve

_QUIET = {"log_level": 3}
"""Otherwise every attempt to reach a stopped broker would be logged."""
_SECONDS = 10.0
"""The timeout of each call, after which its error is ``retriable``."""


class Librdkafka:
    """A producer and a consumer."""

    def __init__(self) -> None:
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._positions: dict[tuple[str, int], int] = {}

    @property
    def _open(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def open(self, config: dict[str, str]) -> None:
        self._producer = Producer({**_QUIET, **config})

    def init(self) -> None:
        self._open.init_transactions(_SECONDS)

    def begin(self) -> None:
        self._open.begin_transaction()

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        self._open.produce(topic, key=key, value=value, partition=partition)
        self._open.poll(0)

    def flush(self) -> None:
        self._open.flush(_SECONDS)

    def commit(self) -> None:
        self._open.commit_transaction(_SECONDS)

    def abort(self) -> None:
        self._open.abort_transaction(_SECONDS)

    def subscribe(self, topic: str, config: dict[str, str]) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = Consumer({**_QUIET, **config})
        self._consumer.subscribe([topic])

    def poll(self) -> list[Record]:
        assert self._consumer is not None
        self._positions = {}
        records = []
        first = self._consumer.poll(0.5)
        for message in [first, *self._consumer.consume(500, 0)] if first is not None else []:
            if message.error() is not None:
                continue  # librdkafka also reports errors from which it recovers
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            key, value = message.key(), message.value()
            assert topic is not None and partition is not None and offset is not None
            assert not isinstance(key, str) and not isinstance(value, str)
            records.append(Record(partition, offset, key, value))
            self._positions[topic, partition] = offset + 1
        return records

    def rewind(self) -> None:
        assert self._consumer is not None
        for place in self._consumer.committed(self._consumer.assignment(), _SECONDS):
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
            self._consumer.seek(place)

    def offsets(self) -> None:
        assert self._consumer is not None
        places = [TopicPartition(*place, offset) for place, offset in self._positions.items()]
        self._open.send_offsets_to_transaction(places, self._consumer.consumer_group_metadata(), _SECONDS)

    def kind(self, error: Exception) -> tuple[Kind, str]:
        told = error.args[0] if isinstance(error, KafkaException) else None
        if not isinstance(told, KafkaError):
            return "fatal", type(error).__name__
        if told.fatal() or told.code() == KafkaError._STATE:
            return "fatal", told.name()
        again = told.retriable() or told.code() == KafkaError._TIMED_OUT  # of `committed`, which has no flag for this
        return ("retriable" if again and not told.txn_requires_abort() else "abortable"), told.name()


if __name__ == "__main__":
    serve(Librdkafka())
