"""One record that a leader has locked for this member, from its acquisition to its end.

    BUFFERED ◄── PUT_BACK / TAKE ──► HANDED_OUT ── ACKNOWLEDGE ──► ACKNOWLEDGED ── STORE ──► STORED

    LOSE        from the first three, to LOST
    ACKNOWLEDGE from BUFFERED, too: the client releases records that it cannot read

Rules:
- Every state change goes through `TRANSITIONS`, in `LockedRecord._enter`.
- The client does not know when the leader locked the record, only that it was between the request and the response. So
  a lock has two ends: until `Lock.safe_until` the record is surely locked, from `Lock.gone_at` on surely not.
- A record that is lost fails its acknowledgement and its renewal, with the reason. The leader then delivers it again,
  to any member. Only if an acknowledgement was in flight and its outcome is unknown, it may be stored instead.
- A renewal keeps the state: the record stays in the user's hands. Once the record is acknowledged, a renewal that was
  not sent is dropped.

Source: ShareInFlightBatch.java; SharePartition.java, acquisitionLockTimeoutTask.
"""

from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.codec.apis.share_fetch import RENEW
from ottla.codec.records import Record
from ottla.errors import AcknowledgementFailed
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer

if TYPE_CHECKING:
    from uuid import UUID


class SharedPartition(NamedTuple):
    """A partition of one topic; a recreated topic of the same name has another id."""

    topic: str
    topic_id: "UUID"
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Lock:
    """How long records stay locked: for ``seconds``, which began between the request and the response."""

    __slots__ = ("_records", "_timers", "gone_at", "safe_until", "seconds")

    def __init__(self, safe_until: float, gone_at: float, seconds: float) -> None:
        self.safe_until, self.gone_at, self.seconds = safe_until, gone_at, seconds
        self._records = 0
        self._timers: tuple[Timer, ...] = ()

    def watch(self, *timers: Timer) -> None:
        """Cancel these timers once no record has the lock any more."""
        self._timers = timers

    def hold(self) -> None:
        """Take note of a record that has the lock."""
        self._records += 1

    def let_go(self) -> None:
        """Take note that a record has ended, or has another lock."""
        self._records -= 1
        if not self._records:
            for each in self._timers:
                each.cancel()


class RecordState(Enum):
    BUFFERED = "waits until the user asks for it"
    HANDED_OUT = "in the user's hands"
    ACKNOWLEDGED = "acknowledged, and not yet stored by the leader"
    STORED = "the leader has stored the acknowledgement"
    LOST = "not locked any more, or not surely"


class RecordInput(Enum):
    TAKE = auto()
    PUT_BACK = auto()
    """The record did not reach the user."""
    ACKNOWLEDGE = auto()
    STORE = auto()
    LOSE = auto()


S, On = RecordState, RecordInput
TRANSITIONS: dict[tuple[RecordState, RecordInput], RecordState] = {
    (S.BUFFERED, On.TAKE): S.HANDED_OUT,
    (S.HANDED_OUT, On.PUT_BACK): S.BUFFERED,
    (S.BUFFERED, On.ACKNOWLEDGE): S.ACKNOWLEDGED,
    (S.HANDED_OUT, On.ACKNOWLEDGE): S.ACKNOWLEDGED,
    (S.ACKNOWLEDGED, On.STORE): S.STORED,
    **{(state, On.LOSE): S.LOST for state in (S.BUFFERED, S.HANDED_OUT, S.ACKNOWLEDGED)},
}
_ENDED = (S.STORED, S.LOST)


class RecordTally:
    """Counts the records of one consumer by their states."""

    def __init__(self) -> None:
        self._counts: Counter[RecordState] = Counter()

    def changed(self, before: RecordState | None, after: RecordState) -> None:
        """Take note that a record has changed its state; ``None``: it is new."""
        if before is not None:
            self._counts[before] -= 1
        self._counts[after] += 1

    def __getitem__(self, state: RecordState) -> int:
        return self._counts[state]

    @property
    def held(self) -> int:
        """The records in the user's hands, and those fetched ahead."""
        return self._counts[S.BUFFERED] + self._counts[S.HANDED_OUT]


@dataclass(slots=True, eq=False)
class RecordAcknowledgement:
    """An acknowledgement of one record, a renewal of its lock, or the report of a gap in the log.

    Attributes:
        kind: `ACCEPT`, `RELEASE`, `REJECT`, `GAP` or `RENEW`.
        outcome: settled when the leader has stored it, or when it has failed.
        locked: ``None``: there is no record at these offsets.
        in_flight: it is in a request without a response.
        unsure: an earlier request with it may have been carried out, although it was answered with an error.
    """

    first_offset: int
    last_offset: int
    kind: int
    outcome: Outcome[None]
    locked: "LockedRecord | None" = None
    in_flight: bool = False
    unsure: bool = False

    def send(self) -> None:
        """Take note that it is in a request that goes out."""
        self.in_flight = True

    def refused(self, *, unsure: bool = False) -> None:
        """Take note that the leader refuses it, and that it will be sent again; ``unsure``: it may be stored."""
        self.in_flight, self.unsure = False, self.unsure or unsure

    def stored(self, lock: Lock) -> None:
        """Take note that the leader has stored it; ``lock``: the new one, after a renewal."""
        self.in_flight = False
        if self.locked is None:
            self.outcome.succeed(None)
        elif self.kind == RENEW:
            self.locked.renewed(lock)
            self.outcome.succeed(None)
        else:
            self.locked.stored()

    def failed(self, why: str) -> None:
        """Take note that the leader refuses it for good."""
        self.in_flight = False
        if self.locked is not None:
            self.locked.lose(why)


class RecordSession(Protocol):
    """The share session in which a record was acquired."""

    def queue(self, acknowledgement: RecordAcknowledgement) -> None:
        """Send the acknowledgement with the next request."""
        ...

    def forget(self, locked: "LockedRecord") -> None:
        """Take note that the record is not locked any more."""
        ...


class LockedRecord:
    """One record, locked for this member in a share ``session``.

    Attributes:
        delivery_count: 1 at the first delivery.
        lost: why it is lost; ``None``: it is not.
    """

    __slots__ = (
        "_acknowledgement",
        "_renewal",
        "_session",
        "_tally",
        "delivery_count",
        "lock",
        "lost",
        "partition",
        "record",
        "state",
    )

    def __init__(
        self,
        session: RecordSession,
        tally: RecordTally,
        partition: SharedPartition,
        record: Record,
        delivery_count: int,
        lock: Lock,
    ) -> None:
        self._session, self._tally = session, tally
        self.partition, self.record, self.delivery_count, self.lock = partition, record, delivery_count, lock
        self.state = S.BUFFERED
        self.lost: AcknowledgementFailed | None = None
        self._acknowledgement: RecordAcknowledgement | None = None
        self._renewal: RecordAcknowledgement | None = None
        lock.hold()
        tally.changed(None, self.state)

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def place(self) -> TopicPartition:
        return self.partition.topic, self.partition.partition

    @property
    def kind(self) -> int | None:
        """How it was acknowledged; ``None``: it was not."""
        return None if self._acknowledgement is None else self._acknowledgement.kind

    @property
    def in_flight(self) -> bool:
        """Whether its acknowledgement or its renewal is in a request without a response."""
        return any(each is not None and each.in_flight for each in (self._acknowledgement, self._renewal))

    def take(self) -> bool:
        """Hand it out; return whether it can be."""
        return self._enter(On.TAKE)

    def put_back(self) -> bool:
        """Take it back, because it did not reach the user; return whether it can be."""
        return self._enter(On.PUT_BACK)

    def acknowledge(self, kind: int) -> RecordAcknowledgement:
        """Acknowledge a record that is not acknowledged yet, with the next request."""
        self._enter(On.ACKNOWLEDGE)
        if self._renewal is not None and not self._renewal.in_flight:
            self._renewal.outcome.succeed(None)  # it is not needed any more
        acknowledgement = RecordAcknowledgement(self.offset, self.offset, kind, Outcome(), self)
        self._acknowledgement = acknowledgement
        self._session.queue(acknowledgement)
        return acknowledgement

    def renew(self) -> RecordAcknowledgement:
        """Ask for a new lock, with the next request; while a renewal is under way, this is it."""
        renewal = self._renewal
        if renewal is None or renewal.outcome.done:
            renewal = self._renewal = RecordAcknowledgement(self.offset, self.offset, RENEW, Outcome(), self)
            self._session.queue(renewal)
        return renewal

    def renewed(self, lock: Lock) -> None:
        """Take note of the new lock."""
        if self.state not in _ENDED:
            lock.hold()
            self.lock.let_go()
            self.lock = lock

    def stored(self) -> None:
        """Take note that the leader has stored the acknowledgement."""
        if self._enter(On.STORE) and self._acknowledgement is not None:
            self._session.forget(self)
            self._acknowledgement.outcome.succeed(None)

    def lose(self, why: str, *, unknown: bool = False) -> None:
        """Take note that the record is not locked any more, or not surely.

        Args:
            unknown: an acknowledgement in flight may have been stored.
        """
        acknowledgement = self._acknowledgement
        unknown = acknowledgement is not None and ((unknown and acknowledgement.in_flight) or acknowledgement.unsure)
        if not self._enter(On.LOSE):
            return
        self._session.forget(self)
        self.lost = AcknowledgementFailed(why, {(*self.place, self.offset): unknown})
        for each in (acknowledgement, self._renewal):
            if each is not None:
                each.outcome.fail(self.lost)

    def _enter(self, what: RecordInput) -> bool:
        """Enter the state that follows ``what``; return whether the current state has a transition for it."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        self._tally.changed(self.state, state)
        self.state = state
        if state in _ENDED:
            self.lock.let_go()
        return True
