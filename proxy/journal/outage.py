"""Tracks the time in which the journal cannot be written, and when to rebuild it from memory.

The process has the whole state in memory. So after a full disk the journal is written again from the start, and only a
restart before that is a loss.
"""

import logging

log = logging.getLogger("ottla.proxy")

AGAIN, LONGEST_BACKOFF = 1.0, 30.0
"""Seconds until the journal is rebuilt."""
STEADY = 60.0
"""Seconds without a failure after which the backoff starts at `AGAIN` again: a disk that is almost full fails often."""


class JournalOutage:
    """The current outage of a journal, if there is one.

    Attributes:
        why: why the journal cannot be written; ``None`` if it can.
        not_before: when to rebuild it.
    """

    def __init__(self) -> None:
        self.why: str | None = None
        self.not_before = 0.0
        self._since = self._ended = 0.0
        self._failures = 0

    @property
    def lasts(self) -> bool:
        return self.why is not None

    def failed(self, why: str, now: float) -> None:
        """Begin an outage, or continue it after a failed attempt to rebuild the journal."""
        if self.why is None:
            self._since = now
            if now >= self._ended + STEADY:
                self._failures = 0
            log.error(
                "journal write failed, retrying; a restart before it recovers fences idempotent producers and forgets "
                "pins: %s",
                why,
            )
        self.why = why
        self.not_before = now + min(AGAIN * 2**self._failures, LONGEST_BACKOFF)
        self._failures = min(self._failures + 1, 10)

    def end_pause(self, now: float) -> None:
        """Have the journal rebuilt at once."""
        self.not_before = min(self.not_before, now)

    def ended(self, now: float) -> None:
        """End the outage: the journal has the whole state again."""
        self.why, self._ended = None, now
        log.warning("journal recovered, a restart fences no producer", extra={"seconds": round(now - self._since, 1)})
