"""Complaints that many clients, or one that tries again and again, give cause for: written once a minute, and counted.

    complaints = Complaints()
    if complaints.is_new(now, peer_host, text):     # else it is counted
        log.warning(text)
    for line in complaints.counted(now):            # from time to time
        log.warning(line)                           # "connection refused: …: 8999 more from 127.0.0.1 in 60 s"

Rules:
- Complaints are alike if they come from the same host and differ in numbers only.
- Of those that are alike the first is written, and at most one line in `INTERVAL`, which says how many there were.
- However many kinds there are, what is kept is bounded: beyond `KINDS` all of them count as one.
"""

import re
from dataclasses import dataclass

INTERVAL = 60.0
"""Seconds."""
KINDS = 200
_NUMBER = re.compile(r"\d+")
_OTHERS = ("", "")


@dataclass(slots=True)
class _Counted:
    since: float
    text: str
    more: int = 0


class Complaints:
    """Says which complaints are to be written, and counts the others; ``now`` is in seconds."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Counted] = {}

    def is_new(self, now: float, host: str, text: str) -> bool:
        """Whether there was none like it for a while; otherwise it was counted."""
        kind = host, _NUMBER.sub("0", text)
        if len(self._kinds) >= KINDS and kind not in self._kinds:
            kind = _OTHERS
        if known := self._kinds.get(kind):
            known.more += 1
            return False
        self._kinds[kind] = _Counted(now, text if kind is not _OTHERS else "complaints of other kinds, or about others")
        return True

    def counted(self, now: float, after: float = INTERVAL) -> list[str]:
        """A line for each kind that has been counted for ``after`` seconds or longer since its last line."""
        lines = []
        for kind, known in list(self._kinds.items()):
            if now < known.since + after:  # as `deadline` has it, to the last bit
                continue
            if not known.more:
                del self._kinds[kind]
                continue
            host = f" from {kind[0]}" if kind[0] else ""
            lines.append(f"{known.text}: {known.more} more{host} in {now - known.since:.0f} s")
            known.since, known.more = now, 0
        return lines

    @property
    def deadline(self) -> float | None:
        """When to ask for what was counted, if anything was."""
        return min((known.since + INTERVAL for known in self._kinds.values()), default=None)
