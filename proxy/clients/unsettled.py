"""Has a client's records wait for its earlier ones, if these may go another way because the rules have changed.

Rules:
- Records that are rewritten, and records that pass, go to upstream over different connections. After a change of the
  rules a topic's records may go the other way, and would overtake earlier records of their client with the same keys.
- So the first Produce request after a change waits until each earlier one has its outcome, or will never have one.
  Later requests wait behind it (`RequestLine`). Other clients do not wait.
- Records with ``acks=0`` that pass have no outcome: upstream never says that it has stored them.
"""

from collections.abc import Callable

from ottla.proxy.routing import TopicRules
from ottla.sdk.timers import Timers

LONGEST_WAIT = 30.0
"""Seconds that a request waits for earlier ones; then its client gets an error, and sends the records again."""

Then = Callable[[bool, float], None]
"""Called with whether all earlier records have their outcome in time, and the current time."""


class Unsettled:
    """Tracks which records of a client have no outcome yet: record sets to rewrite, and requests that pass."""

    def __init__(self, rules: TopicRules, timers: Timers) -> None:
        self._rules, self._timers = rules, timers
        self._since = rules.all
        """The rules under which these records came."""
        self._next = 0
        self._numbers: set[int] = set()
        self._wakes: Callable[[bool, float], None] | None = None

    def begin(self, count: int = 1) -> range:
        """Track so many more record sets or requests; return a number for each."""
        numbers = range(self._next, self._next + count)
        self._next += count
        self._numbers.update(numbers)
        return numbers

    def ended(self, number: int, now: float) -> None:
        """Forget a record set or a request: its outcome is known, or it will never have one."""
        self._numbers.discard(number)
        if self._wakes is not None and not self._numbers:
            self._wakes(True, now)

    @property
    def must_go_first(self) -> bool:
        """Whether the next records have to wait for these."""
        if self._since is not self._rules.all and not self._numbers:
            self._since = self._rules.all
        return self._since is not self._rules.all

    def when_ended(self, then: Then, now: float) -> None:
        """Call ``then`` once there are none, or after `LONGEST_WAIT`; only one call waits at a time."""

        def wake(in_time: bool, now: float) -> None:
            if self._wakes is wake:
                self._wakes = None
                timer.cancel()
                then(in_time, now)

        self._wakes = wake
        timer = self._timers.add(now + LONGEST_WAIT, lambda now: wake(False, now))
