"""Programs with transactional ids, and whether those that were fenced had reason to be; pure."""

from dataclasses import dataclass

from tests.chaos.journal import Event

SCAN = 1.5
"""Seconds between two looks of the broker for transactions that are too old, and a little more."""


@dataclass
class Programs:
    """Those of a run; times of one monotonic clock.

    Attributes:
        journals: name of a program -> its events.
        ids: its transactional id, where it has one.
        timeouts: seconds that its transactions may last.
        started: when.
        killed: those that were killed on purpose.
        died: how, if it ended badly by itself.
    """

    journals: dict[str, list[Event]]
    ids: dict[str, str]
    timeouts: dict[str, float]
    started: dict[str, float]
    killed: list[str]
    died: dict[str, str]

    def fences(self) -> tuple[dict[str, str], list[str]]:
        """Program that was fenced -> why, and what nothing explains."""
        explained: dict[str, str] = {}
        unexplained: list[str] = []
        for name, events in self.journals.items():
            opened = 0.0
            for kind, time, *what in events:
                if kind == "open":
                    opened = time
                elif kind == "fenced":
                    age, rival = time - opened, self._rival(name, time)
                    if rival:
                        explained[name] = f"by {rival}"
                    elif opened and age > self.timeouts[name] - SCAN:
                        explained[name] = f"its transaction was {age:.0f} s old"
                    else:
                        unexplained.append(f"{name}, whose transaction was {age:.1f} s old: {what[0]}")
        return explained, unexplained

    def _rival(self, name: str, before: float) -> str:
        return next(
            (
                other
                for other, identity in self.ids.items()
                if identity == self.ids[name] and self.started[name] < self.started[other] < before
            ),
            "",
        )
