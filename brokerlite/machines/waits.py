"""Answers that come later: those that wait for records, and those that somebody else gives.

Rules:
- A `Wait` is finished when the partitions it watches have grown by as many bytes as it misses (for read_committed: by
  stable bytes), when one of them is deleted, at its deadline, or when the broker drains, whichever comes first.
- A `Later` is given by the code that holds it, when it knows the answer.
- An answer that nobody waits for any more, because its connection is gone, is not made. Where requests behind it are
  to be carried out even so, it is given as none, so that they have their turn (`give_up`).
"""

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.brokerlite.machines.log import PartitionLog
from ottla.brokerlite.machines.timers import Timers

log = logging.getLogger("ottla.brokerlite")


@dataclass(slots=True, eq=False)
class Wait:
    """An answer that waits for records.

    Attributes:
        deadline: when it is given, whatever there is.
        logs: the partitions it watches.
        missing: bytes that must come first.
        finish: makes the message.
        stable: only bytes below the last stable offset count.
    """

    deadline: float
    logs: tuple[PartitionLog, ...]
    missing: int
    finish: Callable[[], Any]
    stable: bool = False
    ticket: Any = None
    connection: int = 0
    version: int = 0
    _number: int = 0
    _seen: dict[PartitionLog, int] = field(default_factory=dict)
    """Partition -> `PartitionLog.bytes_below` when it was looked at last."""

    def grown(self, partition: PartitionLog) -> bool:
        """A partition has changed; whether that is enough."""
        below = partition.bytes_below(stable=self.stable)
        self.missing -= below - self._seen[partition]
        self._seen[partition] = below
        return self.missing <= 0


class Later:
    """An answer that comes when somebody gives it, once; the holder must see to that."""

    __slots__ = ("_answer", "_message")

    def __init__(self) -> None:
        self._answer: Callable[[Any], None] | None = None
        self._message: Any = None

    def give(self, message: Any) -> None:
        self._message = message
        if self._answer is not None:
            self._answer(message)

    def to(self, answer: Callable[[Any], None]) -> None:
        """Say who takes it; nobody before had to."""
        self._answer = answer
        if self._message is not None:
            answer(self._message)


class Waits:
    """All answers that come later.

    Args:
        answer: takes a ticket, a message and a version.
        fail: takes a ticket, where an answer cannot be made.
    """

    def __init__(self, timers: Timers, answer: Callable[[Any, Any, int], None], fail: Callable[[Any], None]) -> None:
        self._timers = timers
        self._answer = answer
        self._fail = fail
        self._by_log: dict[PartitionLog, dict[Wait, None]] = {}
        self._by_connection: dict[int, dict[Wait, None]] = {}
        self._later: dict[int, dict[Later, Callable[[Any], None]]] = {}
        self._numbers = itertools.count()
        self._draining = False

    def park(self, wait: Wait, ticket: Any, connection: int, version: int) -> None:
        """Give an answer when it is due."""
        wait.ticket, wait.connection, wait.version = ticket, connection, version
        wait._number = next(self._numbers)
        for partition in wait.logs:
            wait._seen[partition] = partition.bytes_below(stable=wait.stable)
            self._by_log.setdefault(partition, {})[wait] = None
        self._by_connection.setdefault(connection, {})[wait] = None
        self._timers.set(("wait", wait._number), wait.deadline, partial(self._expire, wait))
        if self._draining:
            self._finish(wait)

    def promise(self, later: Later, ticket: Any, connection: int, version: int) -> None:
        """Pass an answer on when somebody gives it."""

        def answer(message: Any) -> None:
            promised = self._later.get(connection, {})
            if later in promised:  # else nobody is there any more to take it
                del promised[later]
                if not promised:
                    del self._later[connection]
                self._answer(ticket, message, version)

        self._later.setdefault(connection, {})[later] = answer
        later.to(answer)

    def grown(self, partition: PartitionLog) -> None:
        """Records were added to a partition, or became stable."""
        for wait in list(self._by_log.get(partition, ())):
            if wait.grown(partition):
                self._finish(wait)

    def gone(self, partitions: Iterable[PartitionLog]) -> None:
        """There will be no more records."""
        for partition in partitions:
            for wait in list(self._by_log.get(partition, ())):
                self._finish(wait)

    def give_up(self, connection: int) -> None:
        """Give no answer where this connection waits for one."""
        for wait in list(self._by_connection.get(connection, ())):
            self._forget(wait)
            self._answer(wait.ticket, None, wait.version)
        for answer in list(self._later.get(connection, {}).values()):
            answer(None)

    def disconnected(self, connection: int) -> None:
        """Nobody waits for the answers of this connection any more."""
        for wait in list(self._by_connection.get(connection, ())):
            self._forget(wait)
        self._later.pop(connection, None)

    def drain(self) -> None:
        """Give every answer that waits for records as it is; from now on none waits."""
        self._draining = True
        for waits in list(self._by_connection.values()):
            for wait in list(waits):
                self._finish(wait)

    def _expire(self, wait: Wait, now: float) -> None:
        self._finish(wait)

    def _finish(self, wait: Wait) -> None:
        if not self._forget(wait):
            return
        try:
            message = wait.finish()
        except Exception:  # a mistake of ours, found while another request is served: it must not fail with this one
            log.exception("a waiting answer failed")
            self._fail(wait.ticket)
        else:
            self._answer(wait.ticket, message, wait.version)

    def _forget(self, wait: Wait) -> bool:
        """Take ``wait`` out of everything; whether it was there."""
        mine = self._by_connection.get(wait.connection, {})
        if wait not in mine:
            return False
        self._timers.cancel(("wait", wait._number))
        del mine[wait]
        if not mine:
            del self._by_connection[wait.connection]
        for partition in wait.logs:
            waits = self._by_log.get(partition, {})
            waits.pop(wait, None)
            if not waits:
                self._by_log.pop(partition, None)
        return True
