"""A share consumer of librdkafka that acquires records and does nothing more, until it is killed.

Arguments: bootstrap, topic, group. It prints ``offset delivery-count`` for each record that it gets.
"""

import sys

import confluent_kafka


def main() -> None:
    bootstrap, topic, group = sys.argv[1:]
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    consumer = confluent_kafka.ShareConsumer(settings)
    consumer.subscribe([topic])
    while True:
        messages = consumer.poll(1.0)
        for message in messages:
            print(message.offset(), message.delivery_count(), flush=True)
        if messages:
            sys.stdin.read()


if __name__ == "__main__":
    main()
