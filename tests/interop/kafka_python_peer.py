"""kafka-python as a peer program: ``join TOPIC key=value…``.

Settings have kafka-python's names or the same with dots. The output is as in `tests.interop.members`.
"""

import sys

from kafka import KafkaConsumer
from kafka.errors import CommitFailedError, RebalanceInProgressError

from tests.interop.aiokafka_peer import typed
from tests.interop.lines import Received, settings
from tests.interop.members import input_ends, tell_assigned, tell_record


def join(topic: str, arguments: list[str]) -> None:
    over = input_ends()
    consumer = KafkaConsumer(topic, **{"auto_offset_reset": "earliest", **typed(settings(arguments))})
    try:
        while not over.is_set():
            batches = consumer.poll(timeout_ms=100)
            tell_assigned(place.partition for place in consumer.assignment())
            for records in batches.values():
                for r in records:
                    tell_record(Received(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)))
            if batches:
                try:
                    consumer.commit()
                except (CommitFailedError, RebalanceInProgressError) as error:
                    print(error, file=sys.stderr)  # another member reads them again
    finally:
        consumer.close()


if __name__ == "__main__":
    _, topic, *arguments = sys.argv[1:]
    join(topic, arguments)
