"""What users do: produce, read partitions by hand.

They do it as one would with `ottla.sdk.producer` and `ottla.sdk.consumer`, but for trio.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import Closed, DeliveryFailed, DeliveryTimeout, OttlaError
from ottla.sdk.consume.fetcher import Fetcher, Offset, Start, Time
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.accumulator import Receipt
from ottla.sdk.produce.core import PendingRecord, ProducerCore, ProducerOptions
from tests.sim.data import Place
from tests.sim.ledger import Ledger, Sent, brief
from tests.sim.users import Process, Script, Violation, Wait


@dataclass(slots=True)
class Producing:
    """Somebody who sends ``count`` records to ``topics`` within about ``seconds``."""

    process: Process
    ledger: Ledger
    options: ProducerOptions
    chance: Random
    topics: dict[str, int]
    """And how many partitions each has."""
    count: int
    seconds: float
    keys: int
    """1: all goes to one partition."""

    def script(self) -> Script:
        process, core = self.process, self.process.core
        yield from process.connect()
        machine = ProducerCore(core, self.options, self.chance)
        pause = self.seconds / self.count
        number = 0
        while number < self.count:
            for _ in range(min(self.chance.choice((1, 1, 3, 10, 40)), self.count - number)):
                yield from self._send(machine, number)
                number += 1
            self._hear_failures(machine)
            yield self.chance.uniform(0.0, 2 * 10 * pause)
            if self.chance.random() < 0.05:
                yield from self._flush(machine)
        yield from self._flush(machine)
        self._hear_failures(machine)
        self.ledger.flushed.add(process.name)
        machine.close(Closed("the producer is closed"))
        process.close()

    def _send(self, machine: ProducerCore, number: int) -> Script:
        process, chance = self.process, self.chance
        topic = chance.choice(list(self.topics)[: self.keys])
        value = f"{process.name}.{number}".encode() + b"." * chance.choice((0, 0, 20, 300))
        awaited: Outcome[Receipt] | None = Outcome() if chance.random() < 0.7 else None
        key = b"k%d" % chance.randrange(self.keys) if chance.random() < 0.8 else None
        partition = chance.randrange(self.topics[topic]) if chance.random() < 0.1 else None
        idempotent = bool(self.options.idempotent)
        sent = Sent(value, process.name, number, topic, self.options.acks == -1, idempotent, awaited)
        self.ledger.sent[value] = sent
        told = awaited.settle if awaited else None
        if partition is not None or not machine.intake.put(topic, value, key, 1000 + number, told):
            record = PendingRecord(topic, value, key, partition, (), 1000 + number, awaited)
            accepted = machine.offer(record, process.clock.now)
            if not accepted.done:
                yield Wait(accepted, "room in the buffer", process.core.options.delivery_timeout)
            if isinstance(accepted.error, DeliveryTimeout):
                del self.ledger.sent[value]  # there was no room in time, so it was never sent
                return
            if accepted.error:
                raise Violation("a record is refused without reason", f"{brief(value)}: {accepted.error!r}")
        if awaited is not None:
            within = process.core.options.delivery_timeout
            process.bounded(Wait(awaited, f"the receipt of {brief(value)}", within))
            awaited.when_done(lambda: self._told(sent))
        process.step()

    def _told(self, sent: Sent) -> None:
        if not self.process.history.wanted or sent.outcome is None:
            return
        outcome = sent.outcome
        told = f"failed: {outcome.error}" if outcome.error else f"stored: {outcome.value}"
        self.process.history.add("·", self.process.name, f"{brief(sent.value)} {told}")

    def _flush(self, machine: ProducerCore) -> Script:
        flushed = machine.flush(self.process.clock.now)
        yield Wait(flushed, "flush", self.process.core.options.delivery_timeout)
        self._hear_failures(machine)

    def _hear_failures(self, machine: ProducerCore) -> None:
        try:
            machine.raise_failures()
        except DeliveryFailed as error:
            self.process.history.add("·", self.process.name, str(error))
            self.ledger.reported(self.process.name, error)


@dataclass(slots=True)
class Reading:
    """Somebody who reads partitions by hand, all of them from their beginning, and now and then goes back."""

    process: Process
    ledger: Ledger
    chance: Random
    places: list[Place]
    expected: dict[Place, int] = field(default_factory=dict)

    def script(self) -> Script:
        process, chance = self.process, self.chance
        yield from process.connect()
        yield from known(process, sorted({topic for topic, _ in self.places}))
        fetcher = Fetcher(process.core, reset=Time(EARLIEST) if chance.random() < 0.3 else None)
        starts: dict[Place, Start] = {
            place: Offset(0) if chance.random() < 0.5 else Time(EARLIEST) for place in self.places
        }
        self.expected = dict.fromkeys(self.places, 0)
        fetcher.assign(starts, process.clock.now)
        while True:
            try:
                fetched = fetcher.take()
            except OttlaError as error:
                raise Violation("a reader is stopped by what passes", f"{process.name}: {error!r}") from error
            if fetched is None:
                yield Wait(fetcher.wait(), "records")
                continue
            place = (fetched.topic, fetched.partition)
            records = [
                (record.offset, record.value or b"")
                for batch in fetched.batches
                for record in batch.records()
                if record.offset >= fetched.first_offset
            ]
            if process.history.wanted:
                process.history.add("·", process.name, f"reads {place[0]}-{place[1]} {[each for each, _ in records]}")
            self.expected[place] = self.ledger.read(process.name, place, self.expected[place], records)
            if chance.random() < 0.3:
                yield chance.uniform(0.0, 0.1)
            if chance.random() < 0.04:
                back = {each: max(0, at - chance.randrange(30)) for each, at in self.expected.items()}
                place = chance.choice(self.places)
                process.history.add("·", process.name, f"seeks {place[0]}-{place[1]} to {back[place]}")
                fetcher.assign({place: Offset(back[place])}, process.clock.now)
                self.expected[place] = back[place]

    def behind(self) -> str:
        """What is left to be read, for people; empty once all is."""
        if not self.expected:
            return f"{self.process.name} has not begun"
        left = [
            f"{topic}-{index} at {self.expected[topic, index]} of {log.high_watermark}"
            for (topic, index) in self.places
            if self.expected[topic, index] < (log := self.ledger.cluster.logs[topic, index]).high_watermark
        ]
        return f"{self.process.name} has not read {', '.join(left)}" if left else ""


def known(process: Process, topics: Iterable[str]) -> Script:
    """Ask for topics until they are known."""
    for topic in topics:
        while True:
            within = process.core.options.api_timeout
            found: Any = yield from process.asked(
                partial(process.core.metadata.topic, topic), f"topic {topic!r}", within
            )
            if not isinstance(found, OttlaError):
                break
            process.history.add("·", process.name, f"no topic {topic!r}: {found}")
            yield 0.5
