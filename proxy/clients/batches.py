"""What clients send to rewritten topics: an `Offer`, and the `ClientBatch` that becomes of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ottla.codec.records import RecordBatch, Records
from ottla.codec.wire import Buffer
from ottla.errors import BrokerError
from ottla.proxy.clients.windows import Numbered, Outcome, Window
from ottla.proxy.routing import Routes
from ottla.proxy.upstream.batches import Part, Result, SomeRecords
from ottla.proxy.upstream.producer import Producer

Answered = Callable[[Outcome, float], None]


_LONG_ID = 100
"""Characters of a client id in the log; it is the client's choice."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The connection that records came by.

    Attributes:
        client: its number.
        peer: its ``host:port``; empty if it sent them to a proxy before this one.
    """

    client: int
    peer: str = ""
    client_id: str | None = None

    @property
    def facts(self) -> dict[str, object]:
        """For a line of the log."""
        return {"client_id": self.client_id and self.client_id[:_LONG_ID], "peer": self.peer} if self.peer else {}


NOBODY = Origin(-1)
"""Of batches that came before the proxy was started; clients that wait for them will send them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A record set that a client sent for a partition of a rewritten topic.

    Attributes:
        version: of its request.
        answered: hears what became of it.
    """

    topic: str
    partition: int
    data: Buffer
    transactional_id: str | None
    version: int
    origin: Origin
    answered: Answered

    def refuse(self, error: BrokerError, now: float) -> None:
        self.answered(Outcome(error.code, error_message=error.detail or None), now)


class Owner(Protocol):
    """Hears what becomes of a batch."""

    def failed(self, batch: "ClientBatch", result: Result, now: float) -> None:
        """A part of it is not stored, or nobody can know."""

    def finished(self, batch: "ClientBatch", now: float) -> None:
        """Every part of it is settled."""


@dataclass(slots=True, eq=False, kw_only=True)
class ClientBatch(Numbered):
    """A client's batch under way. Its parts settle one by one (see `Result`)."""

    owner: Owner
    number: int
    """Counts up."""
    producer: Producer
    origin: Origin
    topic: str
    partition: int
    """The one that the client chose."""
    batch: RecordBatch
    routes: Routes
    size: int
    """Bytes that it takes in memory, about; while it is being opened, at most."""
    window: "Window[ClientBatch] | None"
    """``None`` where the client is not idempotent."""
    waiting: list[Answered]
    """Who wants to hear the outcome; a retry adds itself."""
    records: Records = field(default_factory=Records)
    """None while it is being opened, and where it cannot be."""
    parts: dict[int, SomeRecords] = field(default_factory=dict)
    """Partition -> the records that go there; their offsets are their indexes in the batch."""
    left_out: set[int] = field(default_factory=set)
    """Indexes of records that were stored before."""
    in_place: bool = False
    """All of its records go where its client put them."""
    unstored: list[tuple[Part, bool]] = field(default_factory=list)
    """Parts that are not stored, or (true) of which nobody can know."""

    def leave_out(self, indexes: set[int]) -> None:
        """Have these records not sent."""
        self.left_out = indexes
        if indexes:
            self.in_place = False
            kept = {place: [each for each in part if each.offset not in indexes] for place, part in self.parts.items()}
            self.parts = {place: part for place, part in kept.items() if part}

    def parted(self) -> None:
        self.open_parts += 1

    def settled(self, part: Part, result: Result, now: float) -> None:
        self.open_parts -= 1
        if result.error_code:
            self.unstored.append((part, result.unknown))
            self.owner.failed(self, result, now)
        elif self.in_place and len(part.records) == self.count:
            self.offset = result.offset
        if self.open_parts == 0:
            self.owner.finished(self, now)

    def fingerprints(self) -> Iterable[tuple[int, bool | None]]:
        unstored: dict[int, bool | None] = {
            each.offset: None if unknown else False for part, unknown in self.unstored for each in part.records
        }
        for index, fingerprint in enumerate(self.records.fingerprints()):
            yield fingerprint, unstored.get(index, self.begun)
