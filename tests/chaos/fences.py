"""Programs with transactional ids, and whether each fencing had a reason; pure."""

from dataclasses import dataclass

from tests.chaos.journal import Event

SCAN = 1.5
"""The interval of the broker's check for transactions that are too old, in seconds, with a margin."""


@dataclass
class Programs:
    """The programs of a run; all times are of one monotonic clock.

    Attributes:
        journals: name of a program -> its events.
        ids: name -> transactional id, for programs that have one.
        timeouts: name -> transaction timeout, in seconds.
        started: name -> start time.
        killed: programs that the run has killed.
        died: name -> how the program failed on its own.
    """

    journals: dict[str, list[Event]]
    ids: dict[str, str]
    timeouts: dict[str, float]
    started: dict[str, float]
    killed: list[str]
    died: dict[str, str]

    def fences(self) -> tuple[dict[str, str], list[str]]:
        """Each fenced program with the reason, and the fencings without a reason."""
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
