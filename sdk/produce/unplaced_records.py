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

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.errors import DeliveryTimeout, OttlaError, UnknownTopicOrPartition
from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.accumulator import Accumulator
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.placing import Placing
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.produce.room import UNPLACED_OVERHEAD, Room
from ottla.sdk.timers import Timer


@dataclass(slots=True, eq=False)
class UnplacedTopic:
    """The records of a topic, each with its number; and the look-up of the topic, ``found``."""

    records: deque[tuple[int, PendingRecord]]
    expiry: Timer
    found: Outcome[Topic]


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
        topic, numbered = record.topic, (self._deliveries.number(), record)
        if (waiting := self.topics.get(topic)) is not None:
            waiting.records.append(numbered)
            return
        records = deque([numbered])
        self.topics[topic] = UnplacedTopic(records, self._watch(record), self._find(topic, records, now))

    def explain(self) -> Iterator[str]:
        for name, each in self.topics.items():
            yield f"producer: {len(each.records)} record(s) wait until topic {name!r} is known"

    def give_up(self, error: OttlaError) -> None:
        for name in list(self.topics):
            self._fail_all(name, error)

    def _watch(self, record: PendingRecord) -> Timer:
        topic = record.topic  # the timer must not keep the record alive
        return self._core.later(record.deadline, lambda now: self._expire(topic, now))

    def _find(self, name: str, records: Iterable[tuple[int, PendingRecord]], now: float) -> Outcome[Topic]:
        named = {record.partition for _, record in records if record.partition is not None}
        found = self._core.metadata.topic(name, now, create=True, partitions=named)
        found.when_done(lambda: self._core.soon(lambda now: self._found(name, found, now)))
        return found

    def _found(self, name: str, found: Outcome[Topic], now: float) -> None:
        """A broker has described the topic, or said that it does not exist; or none could be asked."""
        if (unplaced := self.topics.get(name)) is None or unplaced.found is not found:
            return
        if found.error is None:
            self._place(name, now)
        elif found.error.retriable and not isinstance(found.error, UnknownTopicOrPartition):
            unplaced.found = self._find(name, unplaced.records, now)
        else:
            self._fail_all(name, found.error)

    def _place(self, name: str, now: float) -> None:
        """Append the records, up to the first that needs the user's partitioner."""
        if (unplaced := self.topics.get(name)) is None:
            return
        topic = self._core.cluster.topics.get(name)
        if topic is None:
            unplaced.found = self._find(name, unplaced.records, now)
            return
        awaited = False
        while unplaced.records:
            if self._placing.asks_user(unplaced.records[0][1]):
                self._hand_out(name, [record for _, record in unplaced.records])
                break
            awaited |= self._append(*unplaced.records.popleft(), topic, now)
        else:
            self._end(name)
        if awaited:
            self._accumulator.all_due()

    def _hand_out(self, name: str, records: list[PendingRecord]) -> None:
        """Call the user's partitioner, outside of the gate."""

        def choose() -> None:
            try:
                for record in records:
                    if self._placing.asks_user(record):
                        self._placing.choose(record)
            finally:
                self._core.soon(lambda now: self._place(name, now))

        self._core.run(choose)

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
        unplaced.expiry.cancel()
        unplaced.found.cancel()
        return unplaced.records

    def _expire(self, name: str, now: float) -> None:
        if (unplaced := self.topics.get(name)) is None:
            return
        records = unplaced.records
        while records and records[0][1].deadline <= now:
            why = self._core.metadata.why_no_topic(name, self._delivery_timeout)
            within = f"{self._delivery_timeout:g} s"
            error = DeliveryTimeout(f"a record waited {within} for topic {name!r}, which is unknown: {why}")
            self._fail(*records.popleft(), error)
        if records:
            unplaced.expiry = self._watch(records[0][1])
        else:
            self._end(name)
