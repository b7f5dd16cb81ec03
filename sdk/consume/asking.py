"""Checks that one task at a time asks for a batch, because asking marks the previous batch as done.

    IDLE ── begin ──► ASKING ── hand_out, end ──► IDLE; leave, from any state ──► LEFT

In a group only the task that has that batch in hand may ask, unless it has committed the batch or has ended. Once a
task leaves the block, no batch is handed out any more: a waiting task gets an error at its next step.
"""

from enum import Enum
from typing import Any, Protocol

from ottla.errors import Closed, LocalProtocolError
from ottla.sdk.consume.assignment.committing import Committing


class Tasks(Protocol):
    """Answers questions about a loop's tasks, which are opaque to a machine; see `ottla.sdk.drivers.driver`."""

    def name_of(self, task: Any) -> str: ...
    def where(self, task: Any) -> str: ...
    def has_ended(self, task: Any) -> bool: ...


class AskingState(Enum):
    IDLE = "no task waits for a batch"
    ASKING = "a task waits for a batch"
    LEFT = "a task is leaving the block, or has left it"


class Asking:
    """Guards the reading of one consumer; ``grouped``: it has a group."""

    def __init__(self, tasks: Tasks, committing: Committing, *, grouped: bool) -> None:
        self._tasks, self._committing, self._grouped = tasks, committing, grouped
        self._holder: Any = None
        """The task that took the last batch; before the first one, the task that entered the block."""
        self._state = AskingState.IDLE
        self._task: Any = None
        """The task that waits for a batch, or that leaves the block."""

    def enter(self, task: Any) -> None:
        """Let ``task`` be the reader, because it enters the block."""
        self._holder = task

    def begin(self, task: Any) -> None:
        """Let ``task`` ask for a batch.

        Raises:
            Closed: a task is leaving the block.
            LocalProtocolError: another task waits for a batch or has one in hand.
        """
        if self._state is not AskingState.IDLE and self._task is task:
            raise LocalProtocolError("a method of a RebalanceListener must not ask its consumer for a batch")
        in_parallel = "several consumers of the group"
        if not self._grouped:
            in_parallel = "several consumers, each with its own partitions (assign=) or all in one group"
        self.refuse_left()
        if self._state is AskingState.ASKING:
            raise LocalProtocolError(
                f"task {self._tasks.name_of(self._task)!r} waits for a batch of this consumer: read it in one task, "
                f"which may pass the batches on to others; to read in parallel, open {in_parallel}"
            )
        if self._holds(task):
            raise LocalProtocolError(
                f"task {self._tasks.name_of(self._holder)!r} has a batch of this consumer in hand, and asking for the "
                "next one would mark it as done: to hand over, let that task commit it (batch.commit_soon()) or end; "
                f"to read in parallel, open {in_parallel}"
            )
        self._state, self._task = AskingState.ASKING, task

    def hand_out(self, task: Any) -> None:
        """Take note that ``task`` gets a batch: from now on, no other task may ask."""
        self._holder = task

    def end(self) -> None:
        """End the task's wait for a batch."""
        if self._state is AskingState.ASKING:
            self._state = AskingState.IDLE

    def asks(self, task: Any) -> bool:
        """Whether ``task`` waits for a batch: it can only call from within the listener."""
        return self._state is AskingState.ASKING and self._task is task

    def leave(self, task: Any) -> None:
        """Hand out no more batches, because ``task`` leaves the block."""
        self._state, self._task = AskingState.LEFT, task

    @property
    def reader(self) -> Any:
        """The task that may ask for the next batch; ``None`` while a task asks, or if none may."""
        return self._holder if self._state is AskingState.IDLE else None

    @property
    def left(self) -> bool:
        return self._state is AskingState.LEFT

    def refuse_left(self) -> None:
        """Raise `Closed` if a task has left the block."""
        if self.left:
            raise Closed("the block of the consumer was left")

    def where(self) -> str:
        """A text for people: the place in the code where the task with the last batch is."""
        return self._tasks.where(self._holder)

    def _holds(self, task: Any) -> bool:
        """Whether another task has a batch in hand that may not be done."""
        if not self._grouped or self._holder is None or self._holder is task:
            return False
        return self._committing.in_hand is not None and not self._tasks.has_ended(self._holder)
