"""Limits log lines caused by many clients, or by a client that keeps retrying: one a minute, and a count of the rest.

    complaints = Complaints()
    if complaints.is_new(now, peer_host, text):     # otherwise it is counted
        log.warning(text)
    for line in complaints.counted(now):            # from time to time
        log.warning(line)                           # "connection refused: …: 8999 more from 127.0.0.1 in 60 s"

Rules:
- Complaints are of one kind if they come from the same host and differ only in numbers.
- The first of a kind is written, and then at most one line per `INTERVAL` with their number.
- Memory is bounded, however many kinds there are: beyond `KINDS` all others count as one kind.
"""

import re
from dataclasses import dataclass

INTERVAL = 60.0
"""Seconds between two lines about one kind."""
KINDS = 200
_NUMBER = re.compile(r"\d+")
_OTHERS = ("", "")


@dataclass(slots=True)
class _Counted:
    """Counts complaints of one kind since its last line."""

    since: float
    text: str
    more: int = 0

    def repeated(self) -> None:
        """Count a complaint that is not written."""
        self.more += 1

    def line(self, host: str, now: float) -> str:
        """Return the line with the number, and count from 0 again."""
        source = f" from {host}" if host else ""
        line = f"{self.text}: {self.more} more{source} in {now - self.since:.0f} s"
        self.since, self.more = now, 0
        return line


class Complaints:
    """Decides which complaints are written, and counts the others; ``now`` is in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Counted] = {}

    def is_new(self, now: float, host: str, text: str) -> bool:
        """Whether there was no complaint of this kind for a while; otherwise counts it."""
        kind = host, _NUMBER.sub("0", text)
        if len(self._kinds) >= KINDS and kind not in self._kinds:
            kind = _OTHERS
        if known := self._kinds.get(kind):
            known.repeated()
            return False
        self._kinds[kind] = _Counted(now, text if kind is not _OTHERS else "other complaints, or from other hosts")
        return True

    def counted(self, now: float, after: float = INTERVAL) -> list[str]:
        """A line for each kind that has been counted for ``after`` seconds or longer since its last line."""
        lines = []
        for kind, known in list(self._kinds.items()):
            if now < known.since + after:  # the same sum as in `deadline`, so that rounding cannot differ
                continue
            if known.more:
                lines.append(known.line(kind[0], now))
            else:
                del self._kinds[kind]
        return lines

    @property
    def deadline(self) -> float | None:
        """When to call `counted`, if there are complaints."""
        return min((known.since + INTERVAL for known in self._kinds.values()), default=None)
