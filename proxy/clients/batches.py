"""A record set that a client sends to a rewritten topic (`Offer`), and the batch under way (`ClientBatch`)."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ottla.codec.compression import Compression
from ottla.codec.records import RecordBatch, Records
from ottla.codec.wire import Buffer
from ottla.errors import BrokerError, TransactionAbortable
from ottla.proxy.clients.opening import Opened, memory_of
from ottla.proxy.clients.windows import ClientResult, Numbered, Window
from ottla.proxy.contained import contained
from ottla.proxy.routing import Destination, Routes
from ottla.proxy.upstream.batches import Part, PartResult, SomeRecords
from ottla.proxy.upstream.producer import UpstreamProducer

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
    """

    client: int
    peer: str = ""
    client_id: str | None = None
    software: str = ""

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

    def put_off(self, batch: "ClientBatch", code: int, now: float) -> None:
        """Handle a batch that upstream does not accept for now."""


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
    """Indexes of records that an earlier batch has stored."""
    in_place: bool = False
    """All its records stay in the partition that the client chose; in mode `fan-out` it chooses none."""
    unstored: list[tuple[Part, bool]] = field(default_factory=list)
    """Failed parts, and whether their outcome is unknown."""

    def opened(self, found: Opened | None) -> int:
        """Take the records that were read, ``None`` if that failed; returns by how many bytes its size changes."""
        self.opening = False
        if found is None:
            return 0
        self.records, self.parts = found.records, {**found.parts}
        self.in_place = list(self.parts) == [self.place] and not self.routes.fans_out
        before, self.size = self.size, memory_of(self.batch, self.records)
        return self.size - before

    def leave_out(self, indexes: set[int]) -> None:
        """Do not send the records with these indexes."""
        self.left_out = indexes
        self.changed()
        if indexes:
            self.in_place = False
            kept = {
                destination: [each for each in part if each.offset not in indexes]
                for destination, part in self.parts.items()
            }
            self.parts = {destination: part for destination, part in kept.items() if part}

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
        size = self.size // max(self.count, 1) * count
        whole = self.batch if count == self.count else None
        kind = Compression(self.batch.compression)
        return Part(self, destination, records, size, kind, since, whole, first)

    def parted(self) -> None:
        """Count one more unsettled part: a part was split in two, or the journal has it."""
        self.open_parts += 1

    def settled(self, part: Part, result: PartResult, now: float) -> None:
        """Take the outcome of a part, and tell the owner of a failure, and of the last part."""
        self.open_parts -= 1
        if result.error_code:
            self.unstored.append((part, result.unknown))
            self.changed()
            self.owner.failed(self, result, now)
        else:
            if result.append_time > self.append_time:
                self.append_time = result.append_time
                self.changed()
                self.owner.changed(self)
            if self.in_place and len(part.records) == self.count:
                self.offset = result.offset
                self.changed()
        if self.open_parts == 0:
            self.owner.finished(self, now)

    def failure_of_transaction(self) -> PartResult | None:
        """Why its transaction must be aborted: it is refused, but some of its records are or may be stored.

        A batch that is refused because of an earlier one has then failed, too.
        """
        unknown = self.failure is not None and self.failure.unknown
        unstored = sum(len(part.records) for part, _ in self.unstored)
        if not unknown and (not self.begun or unstored == self.count):
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

    def put_off(self, code: int, now: float) -> None:
        """Pass on that upstream does not accept it for now."""
        self.owner.put_off(self, code, now)

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

    def fingerprints(self) -> Iterable[tuple[int, bool | None]]:
        unstored: dict[int, bool | None] = {
            each.offset: None if unknown else False for part, unknown in self.unstored for each in part.records
        }
        for index, fingerprint in enumerate(self.records.fingerprints()):
            yield fingerprint, unstored.get(index, self.begun)


def _answer(waiting: list[Waiter], outcome: ClientResult, now: float) -> None:
    for each in waiting:
        with contained("a client gets the outcome of its records"):
            each.answered(outcome, now)
