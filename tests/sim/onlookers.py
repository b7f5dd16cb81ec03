"""Readers of committed records in the worlds of the tellers (`tests.sim.transfers`).

Rules:
- In the end each reader has read every record that read_committed shows, in order and once, and its position is the
  end of the log: it has skipped aborted records and markers.
- A reader that waits at the last stable offset names the producer whose transaction it waits for. That producer has a
  transaction open there.
"""

from collections import defaultdict
from contextlib import nullcontext
from random import Random
from typing import Any

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import OttlaError
from ottla.sdk.admin import ProducerState
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerPlan
from ottla.sdk.consume.partitions import record_sets
from ottla.sdk.consume.partitions.position import Position, Start, Time
from ottla.sdk.consume.reading import fetch_answers, stable_offsets
from ottla.sdk.consume.reading.fetcher import READ_COMMITTED, READ_UNCOMMITTED, Fetcher, Offset
from tests.sim.data import Place
from tests.sim.mutations import Mutations
from tests.sim.network import Link
from tests.sim.run import Result
from tests.sim.transfers import PATIENCE, Transfers
from tests.sim.users import Process, Script, Tasks, Violation

NAMED = "a reader names the transaction that it waits for"


class Onlooker:
    """Reads all committed records of the tellers' topics."""

    def __init__(self, world: "Onlookers", process: Process, places: list[Place]) -> None:
        self.world, self.process, self.places = world, process, places
        self.seen: defaultdict[Place, list[bytes]] = defaultdict(list)
        self.fetcher: Fetcher | None = None

    def script(self) -> Script:
        process = self.process
        yield from process.connect()
        fetcher = process.do(lambda: Fetcher(process.core, isolation=READ_COMMITTED, wall=lambda: process.core.now))
        machine = process.do(lambda: ConsumerCore(process.core, ConsumerPlan(start=Time(EARLIEST)), fetcher, Tasks()))
        process.checks.append(self._check_names)
        starts: dict[Place, Start | None] = {place: Offset(0) for place in self.places}
        try:
            yield from process.perform(machine.enter(starts, process.name), "opening a consumer")
            self.fetcher = fetcher
            while True:
                fetched, _ = yield from process.perform(machine.next_batch(process.name), "records")
                self.seen[fetched.topic, fetched.partition] += [each.value or b"" for each in fetched.records()]
        except OttlaError as error:
            raise Violation("a reader is stopped by a transient error", f"{process.name}: {error!r}") from error

    def behind(self) -> list[Place]:
        """The partitions that it has not read to their end."""
        logs, fetcher = self.world.cluster.logs, self.fetcher
        return [place for place in self.places if fetcher is None or (fetcher.position(place) or 0) < logs[place].end]

    def _check_names(self) -> None:
        held = self.fetcher._stable if self.fetcher is not None else None
        for position, still in held._still.items() if held is not None else ():
            if still.holder is None:
                continue
            place = position.place
            [first] = [each for each in self.world.cluster.logs[place].batches if each.base == still.offset]
            self.world.features[NAMED] += 1
            if first.producer != (still.holder.producer_id, still.holder.epoch):
                raise Violation("a reader names another producer than the one it waits for", f"{place}: {first}")

    def check(self) -> None:
        for place in self.places:
            shown, seen = [value for _, value in self.world.brokers.views[place].decided], self.seen[place]
            if seen != shown:
                at = next((i for i, (one, other) in enumerate(zip(seen, shown, strict=False)) if one != other), -1)
                raise Violation("a reader misses committed records", f"{place}: {seen} for {shown}, from {at}")


class Onlookers(Transfers):
    """The world of the tellers with readers."""

    RELEASES = ("3.9", "4.3")
    """Releases of the model cluster, because the checks need its logs."""

    def __init__(self, seed: int, *, told: bool = False) -> None:
        super().__init__(seed, told=told)
        self.onlookers: list[Onlooker] = []
        self.places = [(name, index) for name, count in self.topics.items() for index in range(count)]
        for number in range(2):
            name = f"r{number}"
            chance = Random(f"{seed} {name} client")
            process = Process(
                name, self.clock, self.network, self.history, self.options, len(self.cluster.nodes), chance
            )
            self.processes[name] = process
            self.onlookers.append(Onlooker(self, process, self.places))
            process.run(self.onlookers[-1].script())

    def _sent(self, link: Link, message: Any) -> None:
        if all(link.client is not each.process for each in self.onlookers):
            super()._sent(link, message)

    def _until_quiet(self) -> None:
        super()._until_quiet()
        until = self.clock.now + PATIENCE + self.options.api_timeout
        while any(each.behind() for each in self.onlookers):
            if self.clock.now > until or not self.clock.step():
                behind = {each.process.name: each.behind() for each in self.onlookers}
                raise Violation("everything has to be read by now", f"{behind}")

    def _check(self) -> None:
        super()._check()
        for each in self.onlookers:
            each.check()


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return Onlookers(seed, told=told).run()


# -- mutations of the readers ------------------------------------------------------------------------------------------

OF_ONLOOKERS = Mutations("onlookers", within=200)
MUTATIONS, SEEDS, _mutation = OF_ONLOOKERS.known, OF_ONLOOKERS.seeds, OF_ONLOOKERS.add


def _all_is_seen(visible: Any) -> Any:
    return lambda batches, aborted, isolation: visible(batches, aborted, READ_UNCOMMITTED)


def _aborted_for_ever(marker: bytes) -> bytes:
    return b"\xff\xff"


def _hidden_stay_hidden(add: Any) -> Any:
    """A position does not move past hidden records."""

    def broken(self: Position, batches: Any, visible: Any, *rest: Any, **named: Any) -> Any:
        before = self.position, self.position_epoch
        fetched = add(self, batches, visible, *rest, **named)
        if not visible and not self.buffer:
            self.position, self.position_epoch = before
        return fetched

    return broken


def _any_producer(learn: Any) -> Any:
    def broken(self: Any, producers: tuple[ProducerState, ...] | OttlaError, holders: Any) -> None:
        if not isinstance(producers, OttlaError) and producers:
            first = producers[0]
            holder = stable_offsets._Holder(first.producer_id, first.producer_epoch)
            self.holder = holders.setdefault((first.producer_id, first.producer_epoch), holder)

    return broken


_mutation("aborted records are handed out", (fetch_answers, "visible", _all_is_seen))
_mutation("the end of an aborted transaction is overlooked", (record_sets, "_ABORT", _aborted_for_ever))
_mutation("a position stays before what is hidden", (Position, "add", _hidden_stay_hidden))
_mutation("the first producer of a partition is blamed", (stable_offsets._StuckOffset, "learn", _any_producer))
