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


@dataclass(frozen=True, slots=True)
class Sender:
    """The client that sent records.

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
        return {"client_id": self.client_id, "peer": self.peer} if self.peer else {}


NOBODY = Sender(-1)
"""Of batches that came before the proxy was started; those who wait for them will ask again."""


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
    sender: Sender
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
    sender: Sender
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
