"""A record set that a client sends to a rewritten topic (`Offer`), and the batch under way (`ClientBatch`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ottla.codec.records import RecordBatch, Records
from ottla.codec.wire import Buffer
from ottla.errors import BrokerError
from ottla.proxy.clients.windows import ClientResult, Numbered, Window
from ottla.proxy.routing import Routes
from ottla.proxy.upstream.batches import Part, PartResult, SomeRecords
from ottla.proxy.upstream.producer import UpstreamProducer

Answered = Callable[[ClientResult, float], None]


_LONG_ID = 100
"""The most characters of a client id in the log; clients choose it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The client connection that sent records.

    Attributes:
        client: its number.
        peer: its ``host:port``; empty if the records come from the journal.
    """

    client: int
    peer: str = ""
    client_id: str | None = None

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
        answered: called with its outcome.
    """

    topic: str
    partition: int
    data: Buffer
    transactional_id: str | None
    version: int
    origin: Origin
    awaited: bool = True
    answered: Answered

    def refuse(self, error: BrokerError, now: float) -> None:
        self.answered(ClientResult(error.code, error_message=error.detail or None), now)


class Owner(Protocol):
    """Gets the outcome of a batch."""

    def failed(self, batch: "ClientBatch", result: PartResult, now: float) -> None:
        """Handle a part that is refused, or whose outcome is unknown."""

    def finished(self, batch: "ClientBatch", now: float) -> None:
        """Handle a batch whose parts are all settled."""


@dataclass(slots=True, eq=False, kw_only=True)
class ClientBatch(Numbered):
    """A client's batch under way. Its parts are settled one by one (see `PartResult`)."""

    owner: Owner
    number: int
    """Unique in this proxy; goes up."""
    producer: UpstreamProducer
    origin: Origin
    topic: str
    partition: int
    """The partition that the client chose."""
    batch: RecordBatch
    routes: Routes
    size: int
    """Approximate bytes in memory; an upper bound until its records are read."""
    window: "Window[ClientBatch] | None"
    """``None`` if the client is not idempotent."""
    waiting: list[Answered]
    """Called with the outcome; a retry adds its own."""
    records: Records = field(default_factory=Records)
    """Empty until its records are read, and if that fails."""
    parts: dict[int, SomeRecords] = field(default_factory=dict)
    """Partition -> the records for it; their offsets are their indexes in the batch."""
    left_out: set[int] = field(default_factory=set)
    """Indexes of records that an earlier batch has stored."""
    in_place: bool = False
    """All its records stay in the partition that the client chose."""
    unstored: list[tuple[Part, bool]] = field(default_factory=list)
    """Failed parts, and whether their outcome is unknown."""

    def leave_out(self, indexes: set[int]) -> None:
        """Do not send the records with these indexes."""
        self.left_out = indexes
        if indexes:
            self.in_place = False
            kept = {
                partition: [each for each in part if each.offset not in indexes]
                for partition, part in self.parts.items()
            }
            self.parts = {partition: part for partition, part in kept.items() if part}

    def parted(self) -> None:
        self.open_parts += 1

    def settled(self, part: Part, result: PartResult, now: float) -> None:
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
