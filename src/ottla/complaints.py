"""Limits log lines caused by many clients, or by a client that keeps retrying: one a minute, and a count of the rest.

    complaints = Complaints()
    if complaints.is_new(now, peer_host, text):     # otherwise it is counted
        log.warning(text)
    for line in complaints.counted(now):            # from time to time
        log.warning(line)                           # "connection refused: …: 8999 more from 127.0.0.1 in 60 s"

Rules:
- Complaints are of one kind if they come from the same host and differ only in numbers, or in texts that the caller
  leaves out of `kind`. Texts that clients choose belong there: each one would be a kind of its own.
- The first of a kind is written, and then at most one line per `INTERVAL` with their number.
- Memory is bounded, however many kinds there are. A source has `OF_SOURCE` kinds, the last one for all others, so a
  client that causes many silences only itself. Beyond `KINDS` all others together count as one kind.
"""

import re
from collections import Counter
from dataclasses import dataclass

INTERVAL = 60.0
"""Seconds between two lines about one kind."""
KINDS = 1000
OF_SOURCE = 20
_NUMBER = re.compile(r"\d+")
_OTHERS = ("", "", "")


@dataclass(slots=True)
class _Counted:
    """Counts complaints of one kind since its last line."""

    since: float
    text: str
    host: str
    source: str
    more: int = 0

    def repeated(self) -> None:
        """Count a complaint that is not written."""
        self.more += 1

    def line(self, now: float) -> str:
        """Return the line with the number, and count from 0 again."""
        source = f" from {self.host}" if self.host else ""
        line = f"{self.text}: {self.more} more{source} in {now - self.since:.0f} s"
        self.since, self.more = now, 0
        return line


class Complaints:
    """Decides which complaints are written, and counts the others; ``now`` is in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], _Counted] = {}
        """By source, host and kind."""
        self._of_sources: Counter[str] = Counter()
        """Source -> the number of its kinds; no source is without one."""

    def is_new(self, now: float, host: str, text: str, *, kind: str = "", source: str = "") -> bool:
        """Whether there was no complaint of this kind for a while; otherwise counts it.

        Args:
            kind: instead of the text without numbers.
            source: who causes it, if that is not the host.
        """
        source = source or host
        key = source, host, kind or _NUMBER.sub("0", text)
        if key not in self._kinds and source and self._of_sources[source] >= OF_SOURCE - 1:
            key, text = (source, host, ""), "other complaints" if source == host else f"other complaints about {source}"
        if key not in self._kinds and len(self._kinds) >= KINDS:
            key, host, source, text = _OTHERS, "", "", "other complaints, or from other hosts"
        if known := self._kinds.get(key):
            known.repeated()
            return False
        self._kinds[key] = _Counted(now, text, host, source)
        self._of_sources[source] += 1
        return True

    def counted(self, now: float, after: float = INTERVAL) -> list[str]:
        """A line for each kind that has been counted for ``after`` seconds or longer since its last line."""
        lines = []
        for key, known in list(self._kinds.items()):
            if now < known.since + after:  # the same sum as in `deadline`, so that rounding cannot differ
                continue
            if known.more:
                lines.append(known.line(now))
            else:
                del self._kinds[key]
                self._of_sources[known.source] -= 1
                if not self._of_sources[known.source]:
                    del self._of_sources[known.source]
        return lines

    @property
    def deadline(self) -> float | None:
        """When to call `counted`, if there are complaints."""
        return min((known.since + INTERVAL for known in self._kinds.values()), default=None)
