"""Readers of committed records: a handwritten client, and the shipped client.

A correct client skips a producer's records from the first offset of an aborted transaction, which the broker names, up
to the transaction's marker. Source: CompletedFetch.java (nextFetchedRecord).
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from ottla.codec.apis.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.records import read_batches
from ottla.errors import KafkaStorageError
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerPlan
from ottla.sdk.consume.reading.fetcher import READ_COMMITTED, Fetcher, Offset, Time
from tests.sim.broker.logs import marker_of
from tests.sim.broker.peer import Ask, Steps
from tests.sim.data import Place
from tests.sim.history import code
from tests.sim.ledger import brief
from tests.sim.transaction_ledger import OTHER, Views
from tests.sim.users import Process, Script, Tasks, Violation

VERSION = 12
"""The last version of Fetch that has topics by name."""


@dataclass(slots=True, eq=False)
class Committed:
    """Reads the committed records of some partitions; ``positions`` has the next offset of each."""

    name: str
    places: list[Place]
    positions: dict[Place, int]

    def fetch(self, *, wait: float, most: int) -> Generator[Ask | float, Any, list[tuple[Place, int, bytes]]]:
        """Send one Fetch; return (place, offset, value) of its records."""
        request = FetchRequest(
            max_wait_ms=round(wait * 1000),
            min_bytes=1,
            max_bytes=2**20,
            isolation_level=READ_COMMITTED,
            topics=tuple(
                FetchTopic(
                    topic=place[0],
                    partitions=(
                        FetchPartition(
                            partition=place[1], fetch_offset=self.positions[place], partition_max_bytes=most
                        ),
                    ),
                )
                for place in self.places
            ),
        )
        answer = yield Ask(request, VERSION)
        found: list[tuple[Place, int, bytes]] = []
        for topic in answer.responses if answer is not None else ():
            for data in topic.partitions:
                place = (topic.topic, data.partition_index)
                if data.error_code not in (0, KafkaStorageError.code):
                    raise Violation(OTHER, f"{self.name} is refused {place[0]}-{place[1]}: {code(data.error_code)}")
                found += [
                    (place, *each) for each in self._visible(place, data.records, data.aborted_transactions or ())
                ]
        if answer is None:
            yield 0.1
        return found

    def _visible(self, place: Place, data: Any, told: tuple[AbortedTransaction, ...]) -> list[tuple[int, bytes]]:
        left = sorted(told, key=lambda each: each.first_offset)
        aborted: set[int] = set()
        found = []
        for batch in read_batches(data or b"", verify=True):
            while left and left[0].first_offset <= batch.last_offset:
                aborted.add(left.pop(0).producer_id)
            if batch.next_offset <= self.positions[place]:
                continue
            if batch.control:
                if not marker_of(batch).commit:
                    aborted.discard(batch.producer_id)
            elif not (batch.transactional and batch.producer_id in aborted):
                found += [
                    (record.offset, bytes(record.value or b""))
                    for record in batch.records()
                    if record.offset >= self.positions[place]
                ]
            self.positions[place] = batch.next_offset
        return found


@dataclass(slots=True)
class Seen:
    """The records of each partition that one reader got, in order."""

    name: str
    logs: Views
    places: list[Place]
    got: dict[Place, list[tuple[int, bytes]]] = field(default_factory=dict)

    def add(self, place: Place, offset: int, value: bytes) -> None:
        got = self.got.setdefault(place, [])
        if got and got[-1][0] >= offset:
            raise Violation(OTHER, f"{self.name} gets {place[0]}-{place[1]} at {offset} after {got[-1][0]}")
        got.append((offset, value))

    def behind(self) -> str:
        """The records that are not read yet, for people; empty if there are none."""
        ends = {place: self.logs.views[place].decided for place in self.places}
        left = [
            f"{place[0]}-{place[1]} from {(self.got.get(place) or [(-1, b'')])[-1][0]} to {there[-1][0]}"
            for place, there in ends.items()
            if there and (self.got.get(place) or [(-1, b"")])[-1][0] < there[-1][0]
        ]
        return f"{self.name} has not read {', '.join(left)}" if left else ""

    def check(self) -> None:
        """Check that it has got exactly the committed records."""
        for place in self.places:
            there, got = self.logs.views[place].decided, self.got.get(place, [])
            if got != there:
                wrong = next((pair for pair in zip(got, there, strict=False) if pair[0] != pair[1]), None)
                told = f"{self.name} has {len(got)} of {len(there)} records of {place[0]}-{place[1]}"
                if wrong is not None:
                    (at, value), (offset, expected) = wrong
                    told += f": {brief(value)} at {at}, and there is {brief(expected)} at {offset}"
                raise Violation(OTHER, told)


def by_hand(seen: Seen, over: Any) -> Steps:
    """Read with a handwritten client until ``over()``."""
    reader = Committed(seen.name, seen.places, dict.fromkeys(seen.places, 0))
    while not over():
        for place, offset, value in (yield from reader.fetch(wait=0.5, most=500)):
            seen.add(place, offset, value)
        yield 0.01


def by_client(process: Process, seen: Seen) -> Script:
    """Read with the shipped client, whose partitions are assigned by hand."""
    yield from process.connect()
    plan = ConsumerPlan(start=Time(EARLIEST))

    def make() -> ConsumerCore:
        return ConsumerCore(process.core, plan, Fetcher(process.core, isolation=READ_COMMITTED), Tasks())

    machine = process.do(make)
    yield from process.perform(machine.enter({place: Offset(0) for place in seen.places}, process.name), "open")
    while True:
        fetched, _ = yield from process.perform(machine.next_batch(process.name), "records")
        for record in fetched.records():
            seen.add((fetched.topic, fetched.partition), record.offset, bytes(record.value or b""))
