"""The memory of a producer, and the records that wait for it.

Rules:
- Memory is counted by the maximum size of records, uncompressed, and the overhead of a batch.
- Space is given in the order of the calls; no call overtakes another, and a cancelled call lets the next one pass.
- While a record waits for space, no batch lingers: no record could join it (RecordAccumulator.java, `exhausted`).

Source: BufferPool.java.
"""

from collections import OrderedDict
from collections.abc import Callable

from ottla.errors import BufferFull, DeliveryTimeout, OttlaError
from ottla.late_dataclass import dataclass
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.append import AppendFastPath
from ottla.sdk.produce.records import PendingRecord

BATCH_OVERHEAD = 2048
"""Bytes of a batch in addition to its records; `test_a_batch_takes_about_what_it_is_charged` measures them."""
UNPLACED_OVERHEAD = 320
"""Bytes of a record in addition to its size while its topic is unknown."""


@dataclass(slots=True, eq=False)
class WaitingRecord:
    """A record that waits for space."""

    record: PendingRecord
    accepted: Outcome[None]


class Room:
    """``memory`` bytes, of which ``appends.free`` are free.

    Args:
        accept: accepts a record; raises if it cannot.
        full: called when the first record begins to wait.
        changed: called when records begin to wait, or no record waits any more.
    """

    def __init__(
        self,
        core: ClientCore,
        appends: AppendFastPath,
        memory: int,
        delivery_timeout: float,
        *,
        accept: Callable[[PendingRecord, float], None],
        full: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._core, self._appends, self.memory, self._delivery_timeout = core, appends, memory, delivery_timeout
        self._accept, self._full, self._changed = accept, full, changed
        self.waiters: OrderedDict[WaitingRecord, None] = OrderedDict()

    @property
    def used(self) -> int:
        return self.memory - self._appends.free

    def fits(self, record: PendingRecord) -> bool:
        """Whether there is space for the record in a batch of its own; in an empty buffer it always fits."""
        return not self.used or record.size + BATCH_OVERHEAD <= self._appends.free

    def take(self, size: int) -> None:
        self._appends.reserve(size)

    def give_back(self, size: int) -> None:
        self._appends.release(size)
        if self.waiters:
            self._core.soon(self._let_in)

    def refuse(self) -> BufferFull:
        """Send everything that is buffered, and return the error for a record that cannot be accepted now."""
        self._full()
        others = f", and {len(self.waiters)} record(s) wait for space" if self.waiters else ""
        return BufferFull(f"{self.used} of {self.memory} bytes wait for the brokers{others}")

    def wait(self, record: PendingRecord) -> Outcome[None]:
        """Settled once the record is accepted; if cancelled, the record is never accepted."""
        record.freeze()
        waiter = WaitingRecord(record, Outcome())
        self.waiters[waiter] = None
        late = self._core.later(record.deadline, lambda now: self._late(waiter))

        def ended() -> None:
            late.cancel()
            if self.waiters.pop(waiter, waiter) is None:
                self._core.soon(self._let_in)

        waiter.accepted.when_done(ended)
        if len(self.waiters) == 1:
            self._full()
            self._changed()
        return waiter.accepted

    def turn_away(self, error: OttlaError) -> None:
        for waiter in list(self.waiters):
            waiter.accepted.fail(error)
        self._changed()

    def _let_in(self, now: float) -> None:
        """Accept records in the order of the calls, as long as there is space."""
        while self.waiters and self.fits((waiter := next(iter(self.waiters))).record):
            del self.waiters[waiter]
            try:
                self._accept(waiter.record, now)
            except OttlaError as error:
                waiter.accepted.fail(error)
            else:
                waiter.accepted.succeed(None)
        self._changed()

    def _late(self, waiter: WaitingRecord) -> None:
        why = f"{self.used} of {self.memory} bytes of buffer_memory wait for the brokers"
        waited = f"there was no space within {self._delivery_timeout:g} s"
        what = f"a record for {waiter.record.topic!r} was not accepted"
        waiter.accepted.fail(DeliveryTimeout(f"{what}: {waited}, {why}"))
