"""Users of the real client who produce through the proxy."""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from ottla.errors import OttlaError, ProducerFenced
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord, Receipt
from ottla.sdk.steps import Steps
from tests.sim.proxy.ledger import Ledger, Sent
from tests.sim.users import Process, Script


@dataclass(slots=True, eq=False)
class Sending:
    """A user who sends ``count`` records within about ``seconds``, and awaits each.

    Attributes:
        keys: the number of keys; the client's partitioner hashes them in another way than the proxy.
        alike: records of a key differ only in a header.
        keyed: the fraction of records with a key.
        done: every record has an outcome.
    """

    process: Process
    ledger: Ledger
    options: ProducerOptions
    chance: Random
    topics: dict[str, int]
    count: int
    seconds: float
    keys: int
    within: float
    """Seconds within which every record has an outcome."""
    idempotent: bool
    alike: bool = False
    keyed: float = 0.95
    done: bool = False
    open: int = 0
    errors: list[str] = field(default_factory=list)
    _number: int = 0

    def script(self) -> Script:
        process, chance = self.process, self.chance
        yield from process.connect()
        machine = process.do(lambda: ProducerCore(process.core, self.options, chance))
        pause = self.seconds / self.count
        while self._number < self.count:
            burst = min(chance.choice((1, 1, 3, 10, 40)), self.count - self._number)
            for _ in range(burst):
                sent, record = self._record()
                self.open += 1
                process.run(self._awaiting(sent, machine.send(record)), self._ended)
            yield chance.uniform(0.0, 20 * pause)
        while self.open:
            yield 0.05
        with suppress(OttlaError):  # an earlier failure
            yield from process.perform(machine.leave(None), "the end of a producer")
        process.close()
        self.done = True

    def _ended(self) -> None:
        self.open -= 1

    def _awaiting(self, sent: Sent, steps: "Steps[Receipt]") -> Script:
        try:
            receipt = yield from self.process.perform(
                steps, f"the receipt of {sent.value.decode()}", within=self.within
            )
        except ProducerFenced as error:
            self.ledger.fenced[sent.producer] += 1
            sent.error = str(error)
        except OttlaError as error:
            sent.error = str(error) or type(error).__name__
        else:
            sent.acknowledged, sent.offset, sent.stamp = True, receipt.offset, receipt.timestamp
        if sent.error:
            self.errors.append(sent.error)

    def _record(self) -> tuple[Sent, PendingRecord]:
        self._number += 1
        name = self.process.name
        topic = self.chance.choice(list(self.topics))
        key = b"k%d" % self.chance.randrange(self.keys) if self.chance.random() < self.keyed else None
        partition = crc32(key or b"%d" % self.chance.randrange(99)) % self.topics[topic]
        value = b"%s-%d" % (name.encode(), self._number)
        sent = Sent(value, key, topic, partition, name, self._number, self.idempotent, self.alike)
        self.ledger.add(sent)
        content, headers = sent.content
        return sent, PendingRecord(topic, content, key, partition, headers, sent.timestamp, None)
