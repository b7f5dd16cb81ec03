"""Records without a partition yet: their topic, or the partition that they name, is unknown, or the user's partitioner
has to be called.

    add ──► the topic is looked for ──► found ──► the user's partitioner, outside of the gate ──► appended, in order
                     │                                                    (`Placing.choose`)
                     └── refused, or the record's deadline ──► failed

Rules:
- A record for a partition that the topic lacks is refused only after the brokers were asked again.
- Each record has its own number among the unsettled ones, and is settled with the batch that it joins: a flush waits
  for the records accepted before it, but not for the many that may follow, for the same topic or others.

Source: KafkaProducer.java (waitOnMetadata), which makes its caller wait.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ottla.errors import DeliveryTimeout, OttlaError, UnknownTopicOrPartition
from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow
from ottla.sdk.produce.accumulator import Accumulator
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.placing import Placing
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.produce.room import UNPLACED_OVERHEAD, Room
from ottla.sdk.steps import Outside, Steps
from ottla.sdk.timers import Timer


class UnplacedTopic:
    """The records of a topic, each with its number; calls ``expire`` when the deadline of the first has passed."""

    def __init__(self, core: ClientCore, number: int, record: PendingRecord, expire: Callable[[float], None]) -> None:
        self._core, self._expire = core, expire
        self.records = deque([(number, record)])
        self._expiry = self._watch()
        self._placing: LoneFlow | None = None

    def place(self, steps: Steps[None]) -> None:
        """Run the ``steps`` that place the records."""
        self._placing = LoneFlow(self._core, steps)

    def expired(self, now: float) -> Iterator[tuple[int, PendingRecord]]:
        """Take out the records whose deadline has passed, and watch the one after them."""
        while self.records and self.records[0][1].deadline <= now:
            yield self.records.popleft()
        if self.records:
            self._expiry = self._watch()

    def end(self) -> None:
        """End the timer, and the steps."""
        self._expiry.cancel()
        if self._placing is not None:
            self._placing.cancel()

    def _watch(self) -> Timer:
        return self._core.later(self.records[0][1].deadline, self._expire)


class UnplacedRecords:
    def __init__(
        self,
        core: ClientCore,
        placing: Placing,
        accumulator: Accumulator,
        room: Room,
        deliveries: Deliveries,
        delivery_timeout: float,
    ) -> None:
        self._core, self._placing, self._accumulator = core, placing, accumulator
        self._room, self._deliveries, self._delivery_timeout = room, deliveries, delivery_timeout
        self.topics: dict[str, UnplacedTopic] = {}

    def __len__(self) -> int:
        return sum(len(each.records) for each in self.topics.values())

    def add(self, record: PendingRecord, now: float) -> None:
        record.freeze()
        self._room.take(record.size + UNPLACED_OVERHEAD)
        topic, number = record.topic, self._deliveries.number()
        if (waiting := self.topics.get(topic)) is not None:
            waiting.records.append((number, record))
            return
        unplaced = self.topics[topic] = UnplacedTopic(self._core, number, record, partial(self._expire, topic))
        unplaced.place(self._place_all(topic, unplaced.records))

    def explain(self) -> Iterator[str]:
        for name, each in self.topics.items():
            yield f"producer: {len(each.records)} record(s) wait until topic {name!r} is known"

    def give_up(self, error: OttlaError) -> None:
        for name in list(self.topics):
            self._fail_all(name, error)

    def _place_all(self, name: str, records: deque[tuple[int, PendingRecord]]) -> Steps[None]:
        """Find the topic, then append its records in order; the user's partitioner is called outside of the gate."""
        while records:
            try:
                topic = yield from self._find(name, records)
            except OttlaError as error:
                return self._fail_all(name, error)
            awaited = False
            while records and not self._placing.asks_user(records[0][1]):
                awaited |= self._append(*records.popleft(), topic, self._core.now)
            if not records:
                self._end(name)
            if awaited:
                self._accumulator.make_all_due()
            if records:
                # Ctrl-C is raised in the user's thread, too; records that it left are handed out again.
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    yield Outside(partial(self._choose, [record for _, record in records]))

    def _find(self, name: str, records: Iterable[tuple[int, PendingRecord]]) -> Steps[Topic]:
        """Wait until a broker has described the topic; raises if it says that it does not exist."""
        while True:
            named = {record.partition for _, record in records if record.partition is not None}
            topic = self._core.metadata.topic(name, self._core.now, create=True, partitions=named)
            yield topic  # also if it is known: no record is appended within the call that adds it
            error = topic.error
            if error is not None and (not error.retriable or isinstance(error, UnknownTopicOrPartition)):
                raise error
            # It may have gone since: a topic that is no longer known is looked up again.
            if error is None and (known := self._core.cluster.topics.get(name)) is not None:
                return known

    def _choose(self, records: Iterable[PendingRecord]) -> None:
        for record in records:
            if self._placing.asks_user(record):
                self._placing.choose(record)

    def _append(self, number: int, record: PendingRecord, topic: Topic, now: float) -> bool:
        """Append a record; returns whether a flush waits for it."""
        try:
            batch = self._accumulator.append(record, topic, now)
        except OttlaError as error:
            self._fail(number, record, error)
            return False
        self._room.give_back(record.size + UNPLACED_OVERHEAD)
        return self._deliveries.placed(number, batch)

    def _fail(self, number: int, record: PendingRecord, error: OttlaError) -> None:
        self._room.give_back(record.size + UNPLACED_OVERHEAD)
        self._deliveries.refused(record, error)
        self._deliveries.settled(number)

    def _fail_all(self, name: str, error: OttlaError) -> None:
        for number, record in self._end(name):
            self._fail(number, record, error)

    def _end(self, name: str) -> Iterable[tuple[int, PendingRecord]]:
        """Stop looking up the topic; returns the remaining records."""
        unplaced = self.topics.pop(name)
        unplaced.end()
        return unplaced.records

    def _expire(self, name: str, now: float) -> None:
        if (unplaced := self.topics.get(name)) is None:
            return
        for number, record in unplaced.expired(now):
            why = self._core.metadata.why_no_topic(name, self._delivery_timeout)
            within = f"{self._delivery_timeout:g} s"
            error = DeliveryTimeout(f"a record waited {within} for topic {name!r}, which is unknown: {why}")
            self._fail(number, record, error)
        if not unplaced.records:
            self._end(name)
