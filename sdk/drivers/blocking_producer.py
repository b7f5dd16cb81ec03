"""A producer in one thread, with a selector and no background work: the same `ProducerCore` as everywhere.

Private for now: Spark's writer uses it. As with `BlockingClient`, the client does not run between calls.

Theory of operation: records are accepted until the buffer is full; in between, `breathe` lets sockets read and write
without blocking.
"""

import random
import time
from collections.abc import Collection
from typing import Any

from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.drivers.blocking import BlockingClient
from ottla.sdk.produce import column_records
from ottla.sdk.produce.column_records import ColumnRecords
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord


class BlockingProducer(BlockingClient):
    """A client for one thread that produces.

        with BlockingProducer("localhost:9092", ProducerOptions()) as producer:
            producer.send_columns("events", None, ColumnRecords(values))
            producer.flush()

    If it is closed without `flush`, it drops unacknowledged records, and logs their number.

    Args:
        bootstrap, options: as in `BlockingClient`.

    Raises:
        BrokerUnreachable: no broker answered within `connect_timeout`.
    """

    def __init__(self, bootstrap: str, producer: ProducerOptions, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        try:
            self._producer = self.do(lambda: ProducerCore(self.core, producer, random.Random()))
        except BaseException:  # an interrupt included
            self.close()
            raise

    def __enter__(self) -> "BlockingProducer":
        return self

    def partition_count(self, topic: str, *, fresh: bool = False) -> int:
        """The number of partitions of a topic; creates the topic if the brokers' settings allow that.

        Args:
            fresh: ask the brokers, even if it is known.

        Raises:
            UnknownTopicOrPartition, InvalidTopic, TopicAuthorizationFailed: the topic cannot be written to.
            BrokerUnreachable: no broker answered about it within `api_timeout`.
        """
        return len(self._topic(topic, fresh=fresh).partitions)

    def keyless_partition(self, topic: str) -> int:
        """The partition for the next records without a key, until they reach some 16 KiB.

        The caller needs it if the order of records with and without a key matters.

        Raises:
            As `partition_count`.
        """
        known = self._topic(topic)
        return self.do(lambda: self._producer.keyless_partition(known))

    def _topic(self, name: str, *, fresh: bool = False) -> Topic:
        known = None if fresh else self.core.cluster.topics.get(name)
        if known is None:
            known = self._call(lambda now: self.core.metadata.topic(name, now, create=True, fresh=fresh))
        return known

    def look_up(self, topics: Collection[str]) -> None:
        """Look up several topics in one request; one after the other takes long.

        Raises:
            As `partition_count`, for one of them.
        """
        unknown = [topic for topic in topics if topic not in self.core.cluster.topics]
        waits = self.do(lambda: [self.core.metadata.topic(each, self.core.now, create=True) for each in unknown])

        def give_up() -> None:
            for each in waits:
                each.cancel()

        try:
            for each in waits:
                while not each.done:
                    self._await(each)
                each.result()
        finally:
            self.do(give_up)

    def send_columns(
        self, topic: str, partition: int | None, records: ColumnRecords, start: int = 0, stop: int | None = None
    ) -> None:
        """Accept the records from row ``start`` up to ``stop``, all for one partition; waits while the buffer is full.

        Args:
            partition: ``None``: the partition for keyless records, which changes over time; or the choice of a
                partitioner that does not use keys alone.

        Raises:
            DeliveryFailed: records that were accepted earlier have failed.
            DeliveryTimeout: there was no space within `delivery_timeout`.
            RecordTooLarge, EncodeError: one of these was refused; those before it are accepted.
        """
        stop, core = len(records) if stop is None else stop, self._producer
        timestamp = time.time_ns() // 1_000_000
        while start < stop:
            core.raise_failures()
            taken = column_records.append(core.appends, topic, partition, records, start, stop, timestamp)
            if not taken:
                self._offer(records.record(start, topic, partition, timestamp))
                taken = 1
            start += taken

    def _offer(self, record: PendingRecord) -> None:
        self._call(lambda now: self._producer.offer(record, now))

    def breathe(self) -> None:
        """Let sockets read and write without blocking.

        Raises:
            DeliveryFailed: records have failed.
        """
        self.pump()
        self._wait(0.0)
        self._producer.raise_failures()

    def flush(self) -> None:
        """Send lingering batches, and wait until every record accepted so far is stored; within `delivery_timeout`.

        Raises:
            DeliveryFailed: some records were not stored.
        """
        self._call(self._producer.start_flush)
        self._producer.raise_failures()
