"""librdkafka as a peer program: ``produce key=value…``, ``consume TOPIC key=value…`` or ``join TOPIC key=value…``.

Standard input has the messages, and standard output gets outcomes or records, as in `tests.interop.lines`. The output
of ``join`` is as in `tests.interop.members`.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Delivered

from tests.interop.lines import InOrder, Message, Outcome, Received, settings
from tests.interop.members import input_ends, tell_assigned, tell_record

PARTITION_CHOSEN_BY_CLIENT = -1
TOKEN_LASTS = 3600.0
"""Seconds after which librdkafka asks for another token. It does not send an expired token."""


def produce(config: dict[str, Any], lines: Iterable[str]) -> None:
    producer = Producer(config)
    outcomes = InOrder()
    done = threading.Event()

    def serve_callbacks() -> None:
        while not done.is_set():
            producer.poll(0.05)

    server = threading.Thread(target=serve_callbacks)
    server.start()
    for number, line in enumerate(lines):
        _send(producer, Message.parse(line), _settling(outcomes, number))
    producer.flush()
    done.set()
    server.join()


def _send(producer: Producer, message: Message, settled: Callable[[KafkaError | None, Delivered], None]) -> None:
    while True:
        try:
            producer.produce(
                message.topic,
                key=message.key,
                value=message.value,
                partition=PARTITION_CHOSEN_BY_CLIENT if message.partition is None else message.partition,
                timestamp=message.timestamp or 0,
                headers=list(message.headers),
                on_delivery=settled,
            )
            return
        except BufferError:  # the queue is full: deliveries make room
            producer.poll(0.05)


def _settling(outcomes: InOrder, number: int) -> Callable[[KafkaError | None, Delivered], None]:
    def settled(error: KafkaError | None, delivered: Delivered) -> None:
        if error is not None:
            outcomes.settle(number, Outcome(error=error.name(), message=error.str()))
        else:
            partition, offset = delivered.partition(), delivered.offset()
            outcomes.settle(number, Outcome(-1 if partition is None else partition, -1 if offset is None else offset))

    return settled


def consume(topic: str, config: dict[str, Any]) -> None:
    consumer = Consumer({"group.id": "not-joined", "enable.auto.commit": "false", **config})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in partitions}
    missing = {p for p, (low, high) in ends.items() if low < high}
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in missing])
    positions = dict.fromkeys(missing, 0)
    while missing:
        for message in consumer.consume(1000, timeout=0.1):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            received = _received(message)
            print(received.line())
            positions[received.partition] = received.offset + 1
        # The position decides, not the last record: a transaction's marker takes an offset, too.
        for place in consumer.position([TopicPartition(topic, p) for p in missing]):
            if max(place.offset, positions[place.partition]) >= ends[place.partition][1]:
                missing.discard(place.partition)
    consumer.close()


def join(topic: str, config: dict[str, Any]) -> None:
    over = input_ends()
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while not over.is_set():
        messages = consumer.consume(1000, timeout=0.1)
        tell_assigned(place.partition for place in consumer.assignment())
        for message in messages:
            if (error := message.error()) is None:
                tell_record(_received(message))
            else:
                print(error, file=sys.stderr)  # it goes on trying
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as failed:
                print(failed, file=sys.stderr)  # another member reads them again
    consumer.close()


def _received(message: Delivered) -> Received:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str) and not isinstance(value, str)
    headers: Any = message.headers() or []  # the type is what a producer accepts; a consumer gets pairs
    return Received(partition, offset, message.timestamp()[1], key, value, tuple(headers))


def typed(config: dict[str, str]) -> dict[str, Any]:
    """Settings as librdkafka takes them: a token comes from a callback."""
    token = config.pop("sasl.oauthbearer.token", None)
    return config if token is None else config | {"oauth_cb": lambda _: (token, time.time() + TOKEN_LASTS)}


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "produce":
        produce(typed(settings(arguments)), sys.stdin)
    else:
        {"consume": consume, "join": join}[role](arguments[0], typed(settings(arguments[1:])))
