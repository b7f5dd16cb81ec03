"""Checks the lines that a client logs about unavailable brokers: not too many, and none that is false.

Rules:
- In `OUTAGE` seconds there is at most one line about unavailable brokers, and one about brokers that are available
  again.
- No line names a broker that answered the client within the last seconds, unless the broker accepts no further
  connection. Answers of the handshake do not count, and neither do answers that a frozen client has not read.
"""

from collections import Counter
from typing import Any

from ottla.sdk.connection.connection import ConnectionState
from ottla.sdk.connection.outages import OUTAGE
from tests.sim.logins import HANDSHAKE
from tests.sim.users import Process, Violation

FLOOD = "outages of brokers are reported too often"
FALSE = "a broker is reported as unavailable that has just answered"

TRUE_FOR = 3.0
"""A broker is reported only after this many seconds without an answer."""


class Outcry:
    """Checks the log of one client."""

    def __init__(self, process: Process, features: Counter[str]) -> None:
        self._process, self._features = process, features
        self._outages: Any = process.core._outages
        self._answered: dict[int, float] = {}
        self._lines: dict[str, float] = {}
        self._wrong: tuple[str, str] | None = None
        report, report_over = self._outages._report, self._outages._report_over

        def reported(late: list[int], due: Any, troubles: Any, now: float) -> bool:
            before = {key: need.trouble for key, need in self._outages._needs.items()}
            if not (written := report(late, due, troubles, now)):
                return False
            self._line("a broker is not available", now)
            for key, need in self._outages._needs.items():
                answered = now - self._answered.get(key, -TRUE_FOR)
                if before[key] is None and need.trouble is not None and answered < TRUE_FOR and not self._waits(key):
                    self._wrong = FALSE, f"{process.name} of node {key}, which answered {answered:.2f} s ago"
            return bool(written)

        def reported_over(now: float) -> None:
            before = len(self._outages._over)
            report_over(now)
            if before and not self._outages._over:
                self._line("a broker is available again", now)

        self._outages._report = reported  # type: ignore[method-assign] # to see each line
        self._outages._report_over = reported_over  # type: ignore[method-assign] # to see each line
        process.checks.append(self._check)

    def _waits(self, node: int) -> bool:
        """Whether a request waits for another connection to the node."""
        connections = self._process.core.connections._connections.items()
        return any(
            key[0] == node and each.state is not ConnectionState.READY and each.requests.waiting
            for key, each in connections
        )

    def answered(self, node: int, request: Any) -> None:
        """An answer of the node has reached the client."""
        if not (self._process.frozen or isinstance(request, HANDSHAKE)):
            self._answered[node] = self._process.clock.now

    def _line(self, what: str, now: float) -> None:
        self._features[what] += 1
        if now - self._lines.get(what, -OUTAGE) < OUTAGE:
            self._wrong = FLOOD, f"{self._process.name}, after {now - self._lines[what]:.2f} s: {what}"
        self._lines[what] = now

    def _check(self) -> None:
        if self._wrong is not None:
            raise Violation(*self._wrong)
