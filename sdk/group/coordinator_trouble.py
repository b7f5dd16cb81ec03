"""Counts a member's failed requests to its coordinator, and reports the errors that may last.

Rules:
- The log gets a line if the coordinator does not answer, or answers with an error that may be permanent, and again
  every `STALL` seconds until a request succeeds.
- An error that sends the member back to the beginning of a rebalance is expected now and then, and costs no time. The
  second one of the same kind before the coordinator has confirmed the member is a fault: attempts without a pause would
  be thousands a second.
"""

import math
from collections import Counter

from ottla.errors import OttlaError, TimeoutExpired, UnknownErrorCode, UnknownServerError
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import STALL, logger

log = logger("ottla.sdk.consumer")


class CoordinatorTrouble:
    """Remembers the trouble of one member with the coordinator of ``group``.

    Attributes:
        text: the last error; empty: the last request succeeded.
    """

    def __init__(self, core: ClientCore, group: str) -> None:
        self._core, self._group = core, group
        self.text = ""
        self._failures = 0
        self._sent_back: Counter[type[OttlaError]] = Counter()
        """How often each error has sent the member back since it was last confirmed."""
        self._told_at = -math.inf
        """When the log last got a line."""

    @property
    def pause(self) -> float:
        """Seconds before the next attempt, with backoff."""
        return self._core.backoff(self._failures)

    def report(self, error: OttlaError, now: float) -> float:
        """Take note of an error after which the member tries again; return the seconds before the next attempt."""
        self.text = str(error)
        # These may last: an error code that this version does not know may be a permanent error.
        lasting = isinstance(error, TimeoutExpired | UnknownServerError | UnknownErrorCode)
        if lasting and now - self._told_at >= STALL:
            self._told_at = now
            extra = {"group": self._group, "why": self.text}
            if isinstance(error, TimeoutExpired):
                log.error("group coordinator does not answer, retrying", extra=extra)
            else:
                log.error("group coordinator failed, retrying", extra=extra)
        pause = self.pause
        self._failures += 1
        return pause

    def sent_back(self, error: OttlaError) -> float:
        """Take note of an error after which the member has to begin again; return the seconds before that.

        The first time it begins at once. If the coordinator goes on like that, it does so after pauses.
        """
        before = self._sent_back[type(error)]
        self._sent_back[type(error)] += 1
        if not before:
            return 0.0
        self.text = str(error)
        return self._core.backoff(before - 1)

    def confirmed(self) -> None:
        """Take note that the coordinator knows the member: the next time it begins again at once."""
        self._sent_back.clear()

    def answered(self) -> None:
        """Take note that the coordinator has answered a request of the member."""
        self.text, self._told_at = "", -math.inf

    def over(self) -> None:
        """Take note that the member is in the group: the next pause is short again."""
        self._failures = 0
        self.answered()
