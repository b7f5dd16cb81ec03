"""A record set that a client sends to a rewritten topic (`Offer`), and the batch under way (`ClientBatch`)."""

import hashlib
import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.codec.compression import Compression
from ottla.codec.records import RecordBatch, Records
from ottla.codec.wire import Buffer
from ottla.errors import BrokerError, TransactionAbortable, broker_error
from ottla.proxy.clients.opening import Opened, memory_of
from ottla.proxy.clients.refused_records import Fingerprint
from ottla.proxy.clients.windows import SEQUENCES, ClientResult, Numbered, Window
from ottla.proxy.contained import contained
from ottla.proxy.routing import Copies, Destination, Routes, divided
from ottla.proxy.upstream.batches import Part, PartResult, SomeRecords
from ottla.proxy.upstream.principals import Principal
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.streams import CLIENT_GONE

if TYPE_CHECKING:
    from uuid import UUID

Answered = Callable[[ClientResult, float], None]


_LONG_ID = 100
"""The most characters of a client id in the log; clients choose it."""
_IN_PART = PartResult(
    TransactionAbortable.code, message="an earlier batch failed, and some records of this one are stored"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """The client connection that sent records.

    Attributes:
        client: its number.
        peer: its ``host:port``; empty if the records come from the journal.
        software: the name and version of the client's software, as its ApiVersions request has them.
        principal: the client's user at upstream; ``None``: the proxy's.
    """

    client: int
    peer: str = ""
    client_id: str | None = None
    software: str = ""
    principal: Principal | None = None

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def facts(self) -> dict[str, object]:
        """The fields for a log line."""
        return {"client_id": self.client_id and self.client_id[:_LONG_ID], "peer": self.peer} if self.peer else {}


NOBODY = Origin(-1)
"""The origin of batches from the journal; clients that wait for them will retry them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A record set that a client sent to a partition of a rewritten topic.

    Attributes:
        version: the version of the Produce request.
        awaited: the client waits for the outcome; false with ``acks=0``.
        timeout: seconds for which the client lets the broker wait for the outcome.
        answered: called with its outcome.
    """

    topic: str
    partition: int
    data: Buffer
    transactional_id: str | None
    version: int
    origin: Origin
    awaited: bool = True
    timeout: float = math.inf
    answered: Answered

    @property
    def place(self) -> Destination:
        """The partition that the client chose."""
        return Destination(self.topic, self.partition)

    def refuse(self, error: BrokerError, now: float) -> None:
        self.answered(ClientResult(error.code, error_message=error.detail or None), now)


class Owner(Protocol):
    """Gets the outcome of a batch."""

    def changed(self, batch: "ClientBatch") -> None:
        """Handle a change of a batch that outlasts a restart."""

    def failed(self, batch: "ClientBatch", result: PartResult, now: float) -> None:
        """Handle a part that is refused, or whose outcome is unknown."""

    def finished(self, batch: "ClientBatch", now: float) -> None:
        """Handle a batch whose parts are all settled."""

    def put_off(self, batch: "ClientBatch", code: int, destination: Destination, now: float) -> None:
        """Handle a batch that a partition of upstream does not accept for now."""


class Waiter(NamedTuple):
    """A request that waits for the outcome of a batch.

    Attributes:
        until: when it gets an error that has the client ask again.
    """

    answered: Answered
    until: float


@dataclass(slots=True, eq=False, kw_only=True)
class ClientBatch(Numbered):
    """A client's batch under way. Its parts are settled one by one (see `PartResult`)."""

    owner: Owner
    number: int
    """Unique in this proxy; goes up."""
    producer: UpstreamProducer
    origin: Origin
    place: Destination
    """The partition that the client chose."""
    batch: RecordBatch
    routes: Routes
    copies: Copies
    """The further topics that get its records."""
    size: int
    """Approximate bytes in memory; an upper bound until its records are read."""
    window: "Window[ClientBatch] | None"
    """``None`` if the client is not idempotent."""
    waiting: list[Waiter]
    """The requests that get the outcome; a retry adds its own."""
    records: Records = field(default_factory=Records)
    """Empty until its records are read, and if that fails."""
    parts: dict[Destination, SomeRecords] = field(default_factory=dict)
    """Destination -> the records for it; their offsets are their indexes in the batch."""
    left_out: set[int] = field(default_factory=set)
    """The places in `contents` of records that an earlier batch has stored."""
    in_place: bool = False
    """All its records stay in the partition that the client chose; in mode `fan-out` it chooses none. Copies do not
    matter."""
    unstored: list[tuple[Part, bool]] = field(default_factory=list)
    """Failed parts, and whether their outcome is unknown."""

    def opened(self, found: Opened | None) -> int:
        """Take the records that were read, ``None`` if that failed; returns by how many bytes its size changes."""
        self.opening = False
        if found is None:
            return 0
        self.records, self.parts = found.records, {**found.parts}
        self.in_place = list(self.own_parts) == [self.place] and not self.routes.fans_out
        before, self.size = self.size, memory_of(self.batch, self.records, len(self.copies))
        return self.size - before

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that get its records; its own is the first."""
        return (self.place.topic, *(topic for topic, _ in self.copies))

    @property
    def topic_ids(self) -> "tuple[tuple[str, UUID], ...]":
        """Its `topics` with their ids at the time when it was accepted."""
        copies = ((topic, routes.topic_id) for topic, routes in self.copies)
        return ((self.place.topic, self.routes.topic_id), *copies)

    @property
    def own_parts(self) -> dict[Destination, SomeRecords]:
        """Its parts without the copies."""
        if not self.copies:
            return self.parts
        topic = self.place.topic
        return {destination: part for destination, part in self.parts.items() if destination.topic == topic}

    def divided(self, records: Records) -> dict[Destination, Records]:
        """Its records by destination; a thread may call it."""
        return divided(records, self.place, self.batch.crc, self.routes, self.copies)

    def contents(self) -> Iterable[Fingerprint]:
        """The fingerprint of each record and its topic: of its records in order, and then of each copy's."""
        numbers = [self.epoch << 32 | (self.base_sequence + index) % SEQUENCES for index in range(len(self.records))]
        own = list(map(Fingerprint, self.records.fingerprints(), self.records.fingerprints(numbers)))
        for topic in self.topics:
            mark = self._mark(topic)
            yield from own if not mark else (Fingerprint(each.timed ^ mark, each.numbered ^ mark) for each in own)

    def _mark(self, topic: str) -> int:
        """The number that makes the hash of a copy another one than the hash of its record."""
        return 0 if topic == self.place.topic else _mark_of(topic)

    def leave_out(self, places: set[int]) -> None:
        """Do not send the records with these places in `contents`."""
        self.left_out = places
        self.changed()
        if not places:
            return
        self.in_place = self.in_place and min(places) >= self.count
        first = self._first_places()
        kept = {
            destination: [each for each in part if first[destination.topic] + each.offset not in places]
            for destination, part in self.parts.items()
        }
        self.parts = {destination: part for destination, part in kept.items() if part}

    def gone_with(self, topics: Container[str]) -> None:
        """Take note that these topics were recreated: the records that an earlier batch has stored there are gone."""
        first = self._first_places()
        gone = {place for topic, at in first.items() if topic in topics for place in range(at, at + self.count)}
        self.left_out = self.left_out - gone
        self.changed()

    def _first_places(self) -> dict[str, int]:
        """Topic -> the place in `contents` of its first record."""
        return {topic: number * self.count for number, topic in enumerate(self.topics)}

    def begin(self, now: float) -> list[Part]:
        """Hand it to the delivery; returns its parts, which the delivery must settle."""
        self.begun, self.open_parts = True, len(self.parts)
        self.changed()
        return [self.part(destination, 0, len(records), now) for destination, records in self.parts.items()]

    def restore(
        self, offset: int, append_time: int, failure: PartResult | None, *, refused: bool, left_out: set[int]
    ) -> None:
        """Restore its state from the journal."""
        self.offset, self.append_time, self.failure, self.refused = offset, append_time, failure, refused
        self.leave_out(left_out)

    def part(self, destination: Destination, first: int, count: int, since: float) -> Part:
        """``count`` of its records for a destination, from ``first`` on."""
        records = self.parts[destination][first : first + count]
        of_one_topic = 2 * self.size // (2 + len(self.copies))  # as `memory_of` counts
        size = of_one_topic // max(self.count, 1) * count
        whole = self.batch if count == self.count else None
        kind = Compression(self.batch.compression)
        return Part(self, destination, records, size, kind, since, whole, first)

    def parted(self) -> None:
        """Count one more unsettled part: a part was split in two, or the journal has it."""
        self.open_parts += 1

    def settled(self, part: Part, result: PartResult, now: float) -> None:
        """Take the outcome of a part, and tell the owner of a failure, and of the last part."""
        self.open_parts -= 1
        own = part.destination.topic == self.place.topic
        if result.error_code:
            self.unstored.append((part, result.unknown))
            self.changed()
            self.owner.failed(self, result if own else of_copy(part.destination.topic, result), now)
        elif own:  # copies have other offsets and times than the client's records
            if result.append_time > self.append_time:
                self.append_time = result.append_time
                self.changed()
                self.owner.changed(self)
            if self.in_place and len(part.records) == self.count:
                self.offset = result.offset
                self.changed()
                if self.open_parts:  # a retry may come before its copies are stored, and after a restart
                    self.owner.changed(self)
        if self.open_parts == 0:
            self.owner.finished(self, now)

    def failure_of_transaction(self) -> PartResult | None:
        """Why its transaction must be aborted: it is refused, but some of its records are or may be stored.

        A batch that is refused because of an earlier one has then failed, too.
        """
        unknown = self.failure is not None and self.failure.unknown
        unstored = sum(len(part.records) for part, _ in self.unstored)
        if not unknown and (not self.begun or unstored == self.count * len(self.topics)):
            return None
        if self.failure is None:
            self.failure = _IN_PART
            self.changed()
        return self.failure

    def answer(self, outcome: ClientResult, now: float) -> None:
        """Give the outcome to its client, and to each retry."""
        waiting, self.waiting = self.waiting, []
        _answer(waiting, outcome, now)

    @property
    def answer_by(self) -> float:
        """When the first of its waiting requests must be answered."""
        return min((each.until for each in self.waiting), default=math.inf)

    def answer_late(self, outcome: ClientResult, now: float) -> None:
        """Answer the requests that must not wait longer; the others still get the outcome."""
        late = [each for each in self.waiting if each.until <= now]
        self.waiting = [each for each in self.waiting if each.until > now]
        _answer(late, outcome, now)

    @property
    def awaited(self) -> bool:
        """A client waits for its outcome, or may send it again."""
        return self.window is not None or any(each.until < math.inf for each in self.waiting)

    def put_off(self, code: int, destination: Destination, now: float) -> None:
        """Pass on that a partition does not accept it for now."""
        self.owner.put_off(self, code, destination, now)

    def stored_beside(self, unsettled: int) -> bool:
        """Whether some of its records are stored, if so many are unsettled."""
        if self.left_out or not self.begun:
            return bool(self.left_out)
        return sum(map(len, self.parts.values())) > unsettled + sum(len(part.records) for part, _ in self.unstored)

    @property
    def stored_in_part(self) -> bool:
        return self.stored_beside(0)

    @property
    def is_told(self) -> bool:
        return bool(self.waiting)

    def fingerprints(self) -> Iterable[tuple[Fingerprint, bool | None]]:
        first = self._first_places()
        unstored: dict[int, bool | None] = {
            first[part.destination.topic] + each.offset: None if unknown else False
            for part, unknown in self.unstored
            for each in part.records
        }
        for place, content in enumerate(self.contents()):
            yield content, unstored.get(place, self.begun or place in self.left_out)


@lru_cache(1000)
def _mark_of(topic: str) -> int:
    return int.from_bytes(hashlib.blake2b(topic.encode(), digest_size=8).digest(), "big", signed=True)


def of_copy(topic: str, result: PartResult) -> PartResult:
    """The failure of a copy, whose message names the topic: the client only knows its own."""
    prefix = f"the proxy cannot copy these records to {topic}: "
    if result is CLIENT_GONE or (result.message or "").startswith(prefix):
        return result
    return result._replace(message=prefix + (result.message or broker_error(result.error_code).name))


def _answer(waiting: list[Waiter], outcome: ClientResult, now: float) -> None:
    for each in waiting:
        with contained("a client gets the outcome of its records"):
            each.answered(outcome, now)
