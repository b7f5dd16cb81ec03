"""A reader that starts at a timestamp, again and again: mostly at a time that the next records will reach."""

from dataclasses import dataclass
from functools import partial
from random import Random

from ottla.codec.records import parse_batch
from ottla.errors import BrokerUnreachable, OttlaError, TimeoutExpired
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerPlan
from ottla.sdk.consume.reading.fetcher import Fetcher, Time
from tests.sim.data import Place
from tests.sim.ledger import Ledger
from tests.sim.scripts import TIME
from tests.sim.users import Process, Script, Tasks, Violation

SKIPPED = "a reader that starts at a time skips a record of that time"
EARLY = "a reader that starts at a time starts too early"


@dataclass(slots=True, eq=False)
class Starting:
    process: Process
    ledger: Ledger
    chance: Random
    places: list[Place]

    def script(self) -> Script:
        process, chance = self.process, self.chance
        yield from process.connect()
        while True:
            yield chance.uniform(0.0, 0.3)
            newest = max((sent.number for sent in self.ledger.sent.values()), default=0)
            timestamp = TIME + newest + chance.choice((-20, 0, 1, 2, 5, 1000))
            ends = {place: self.ledger.cluster.lowest_watermark(place) for place in self.places}
            fetcher = Fetcher(process.core, reset=None)
            plan = ConsumerPlan(start=Time(timestamp))
            machine = process.do(partial(ConsumerCore, process.core, plan, fetcher, Tasks()))
            try:
                starts = dict.fromkeys(self.places, Time(timestamp))
                yield from process.perform(machine.enter({**starts}, process.name), "opening a consumer")
            except (TimeoutExpired, BrokerUnreachable) as error:  # an outage may outlast the call's limit
                process.history.add("·", process.name, f"does not start: {error}")
                continue
            except OttlaError as error:
                raise Violation("a reader cannot start", f"{process.name}: {error!r}") from error
            for place, end in ends.items():
                self._check(place, timestamp, end, fetcher.position(place))
            yield from process.perform(machine.leave(None, process.name), "closing a consumer")

    def _check(self, place: Place, timestamp: int, end: int, start: int | None) -> None:
        """Check the start; ``end`` is the lowest end that a node could name before the reader asked where to start."""
        log = self.ledger.cluster.logs[place]
        young = [
            record.offset
            for stored in log.batches
            if stored.end <= log.high_watermark
            for record in parse_batch(stored.data).records()
            if record.timestamp >= timestamp
        ]
        first = min(young, default=log.high_watermark)
        where = f"{self.process.name} at {place[0]}-{place[1]}: {start}, and {first} is the first of time {timestamp}"
        if start is None or start > first:
            raise Violation(SKIPPED, where)
        if start < min(first, end):
            raise Violation(EARLY, where)
        features = self.ledger.cluster.data.features
        features["a reader starts where a record is of its time"] += start == first and bool(young)
        features["a reader starts at the end, and a record of its time comes meanwhile"] += start < first or (
            bool(young) and first >= end
        )
