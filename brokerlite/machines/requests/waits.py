"""Delayed answers: fetches that wait for records, and answers that other code gives later.

Rules:
- A `Wait` finishes when the partitions it watches have grown by the bytes it is missing (for read_committed: by stable
  bytes), when one of them is deleted, at its deadline, or when the broker drains, whichever comes first.
- A `Later` is answered by the code that holds it, once that code knows the answer.
- No answer is made for a connection that is gone. If later requests of the connection must still be processed, the
  answer is ``None``, so that they get their turn (`give_up`).
"""

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.timers import Timers

log = logging.getLogger("ottla.brokerlite")


@dataclass(slots=True, eq=False)
class Wait:
    """An answer that waits for records.

    Attributes:
        deadline: when the answer is sent at the latest.
        logs: the partitions it watches.
        missing: bytes that must be appended before the answer is sent.
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
    number: int = 0
    _seen: dict[PartitionLog, int] = field(default_factory=dict)
    """Partition -> its `PartitionLog.bytes_below` at the last update."""

    def begin(self, ticket: Any, connection: int, version: int, number: int) -> None:
        """Begin to wait, for the response to this request of this connection.

        Args:
            number: distinguishes it from all other waits.
        """
        self.ticket, self.connection, self.version, self.number = ticket, connection, version, number
        self._seen = {partition: partition.bytes_below(stable=self.stable) for partition in self.logs}

    def grown(self, partition: PartitionLog) -> bool:
        """Count the new bytes of a partition; return whether there are enough."""
        below = partition.bytes_below(stable=self.stable)
        self.missing -= below - self._seen[partition]
        self._seen[partition] = below
        return self.missing <= 0


@dataclass(slots=True, eq=False)
class WaitUntil(Wait):
    """An answer that waits until a condition holds, which may change when a partition that it watches is noticed.

    Attributes:
        ready: returns whether it holds after a change of this partition; must not raise.
    """

    ready: Callable[[PartitionLog], bool] = field(default=lambda partition: True)

    def grown(self, partition: PartitionLog) -> bool:
        return self.ready(partition)


class Later:
    """An answer that its holder gives later. The holder must call `give` exactly once."""

    __slots__ = ("_answer", "_message")

    def __init__(self) -> None:
        self._answer: Callable[[Any], None] | None = None
        self._message: Any = None

    def give(self, message: Any) -> None:
        self._message = message
        if self._answer is not None:
            self._answer(message)

    def to(self, answer: Callable[[Any], None]) -> None:
        """Set the function that receives the answer, which may have been given already."""
        self._answer = answer
        if self._message is not None:
            answer(self._message)


class Waits:
    """Keeps all delayed answers of the broker.

    Args:
        answer: called with a ticket, a message and a version.
        fail: called with a ticket if making the answer failed.
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
        """Keep an answer that waits for records until it is due."""
        wait.begin(ticket, connection, version, next(self._numbers))
        for partition in wait.logs:
            self._by_log.setdefault(partition, {})[wait] = None
        self._by_connection.setdefault(connection, {})[wait] = None
        self._timers.set(("wait", wait.number), wait.deadline, partial(self._expire, wait))
        if self._draining:
            self._finish(wait)

    def promise(self, later: Later, ticket: Any, connection: int, version: int) -> None:
        """Pass an answer on when its holder gives it."""

        def answer(message: Any) -> None:
            promised = self._later.get(connection, {})
            if later in promised:  # otherwise the connection is gone
                del promised[later]
                if not promised:
                    del self._later[connection]
                self._answer(ticket, message, version)

        self._later.setdefault(connection, {})[later] = answer
        later.to(answer)

    def grown(self, partition: PartitionLog) -> None:
        """Notice that records were added to a partition or became stable."""
        for wait in list(self._by_log.get(partition, ())):
            if wait.grown(partition):
                self._finish(wait)

    def gone(self, partitions: Iterable[PartitionLog]) -> None:
        """Finish the answers that wait for these deleted partitions."""
        for partition in partitions:
            for wait in list(self._by_log.get(partition, ())):
                self._finish(wait)

    def give_up(self, connection: int) -> None:
        """Answer everything this connection waits for with ``None``, so that its later requests get their turn."""
        for wait in list(self._by_connection.get(connection, ())):
            self._forget(wait)
            self._answer(wait.ticket, None, wait.version)
        for answer in list(self._later.get(connection, {}).values()):
            answer(None)

    def disconnected(self, connection: int) -> None:
        """Forget the delayed answers of a connection that is gone."""
        for wait in list(self._by_connection.get(connection, ())):
            self._forget(wait)
        self._later.pop(connection, None)

    def drain(self) -> None:
        """Finish every answer that waits for records; from now on none waits."""
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
        except Exception:  # a bug, met while another request is served: that request must not fail with this one
            log.exception("delayed response failed, client disconnected")
            self._fail(wait.ticket)
        else:
            self._answer(wait.ticket, message, wait.version)

    def _forget(self, wait: Wait) -> bool:
        """Remove ``wait``; return whether it was still waiting."""
        mine = self._by_connection.get(wait.connection, {})
        if wait not in mine:
            return False
        self._timers.cancel(("wait", wait.number))
        del mine[wait]
        if not mine:
            del self._by_connection[wait.connection]
        for partition in wait.logs:
            waits = self._by_log.get(partition, {})
            waits.pop(wait, None)
            if not waits:
                self._by_log.pop(partition, None)
        return True
