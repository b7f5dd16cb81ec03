"""Watches the acquisition locks of a share consumer's records: warns before they expire, and ends expired ones.

    the last quarter of the lock    the log warns about records that the user has and has not acknowledged
    `Lock.safe_until`               the consumer drops records in its buffer
    `Lock.gone_at`                  records in the user's hands, and acknowledgements not sent yet, are lost

Rules:
- An acknowledgement or a renewal in flight is left to the leader, whose clock decides.
- All records of a response have the same lock, so there are three timers for each response, not for each record. They
  look for the records that still have the lock: a list of them would keep processed records in memory until then. The
  timers end with the last of these records.
- The log gets at most one warning of a kind for the duration of a lock.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.share.locked_record import Lock, LockedRecord, RecordState

log = logger("ottla.sdk.consumer")

_WARNING = 0.25
"""The part of a lock's time before its end in which the log warns."""
ADVICE = "acknowledge sooner, renew the lock, or raise the group's share.record.lock.duration.ms"


class LockWatch:
    """Watches the locks of the records of one member of ``group``.

    Args:
        locked: returns all locked records.
        expired: called with a lock that has expired, and whether that was before its records were handed out.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        locked: Callable[[], Iterable[LockedRecord]],
        expired: Callable[[Lock, bool], None],
    ) -> None:
        self._core, self._group, self._locked, self._expired = core, group, locked, expired
        self._warned_at = self._dropped_at = -math.inf

    def watch(self, lock: Lock) -> None:
        """Watch the records that have this lock."""
        later = self._core.later
        lock.watch(
            later(lock.safe_until - _WARNING * lock.seconds, partial(self._warn, lock)),
            later(lock.safe_until, partial(self._drop, lock)),
            later(lock.gone_at, partial(self._end, lock)),
        )

    def _warn(self, lock: Lock, now: float) -> None:
        late = self._with(lock, RecordState.HANDED_OUT)
        if late and now - self._warned_at >= lock.seconds:
            self._warned_at = now
            log.warning(
                "locks of records in hand are about to expire, and others will get the records: acknowledge or renew",
                extra={**self._facts(late), "seconds_left": round(lock.safe_until - now, 1)},
            )

    def _drop(self, lock: Lock, now: float) -> None:
        old = self._with(lock, RecordState.BUFFERED)
        for each in old:
            each.lose(f"its lock expired after {lock.seconds:g} s, before the consumer's loop asked for it")
        if old:
            self._expired(lock, True)
        if old and now - self._dropped_at >= lock.seconds:
            self._dropped_at = now
            log.warning(
                "records waited too long for the consumer's loop, and others will get them: lower max_records",
                extra={**self._facts(old), "seconds": lock.seconds},
            )

    def _end(self, lock: Lock, now: float) -> None:
        late = self._with(lock, RecordState.HANDED_OUT, RecordState.ACKNOWLEDGED)
        gone = [each for each in late if not each.in_flight]
        for each in gone:
            each.lose(f"its lock has expired after {lock.seconds:g} s: {ADVICE}")
        if gone:
            self._expired(lock, False)

    def _with(self, lock: Lock, *states: RecordState) -> list[LockedRecord]:
        """The records with this lock, in one of these states."""
        return [each for each in self._locked() if each.lock is lock and each.state in states]

    def _facts(self, records: Sequence[LockedRecord]) -> dict[str, object]:
        first = records[0]
        return {
            "group": self._group,
            "records": len(records),
            "topic": first.place[0],
            "partition": first.place[1],
            "offset": first.offset,
        }
