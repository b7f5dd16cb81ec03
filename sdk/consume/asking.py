"""Which task asks for a batch: one task at a time, since to ask says that the batch before is done.

    IDLE ── begin ──► ASKING ── end ──► IDLE; leave, from everywhere ──► LEFT

In a group only the task that has that batch can say so, unless it has committed it, or ended. Once the block is being
left nobody is given a batch any more: a task that waits for one is refused at its next step.
"""

from enum import Enum
from typing import Any, Protocol

from ottla.errors import Closed, LocalProtocolError
from ottla.sdk.consume.committing import Committing


class Tasks(Protocol):
    """What a loop knows of its tasks, which are nothing to a machine but names: see `ottla.sdk.drivers.driver`."""

    def name_of(self, task: Any) -> str: ...
    def where(self, task: Any) -> str: ...
    def has_ended(self, task: Any) -> bool: ...


class State(Enum):
    IDLE = "no task waits for a batch"
    ASKING = "a task waits for one"
    LEFT = "the block is being left, or was"


class Asking:
    """Of one consumer; ``grouped`` if it has a group.

    Attributes:
        holder: the task that took the last batch.
    """

    def __init__(self, tasks: Tasks, committing: Committing, *, grouped: bool) -> None:
        self._tasks, self._committing, self._grouped = tasks, committing, grouped
        self.holder: Any = None
        self._state = State.IDLE
        self._task: Any = None
        """The task that waits for a batch, or for the block to end."""

    def begin(self, task: Any) -> None:
        """``task`` asks for a batch.

        Raises:
            Closed: the block is being left.
            LocalProtocolError: another one does, or has a batch in hand.
        """
        if self._state is not State.IDLE and self._task is task:
            raise LocalProtocolError("a RebalanceListener is called between two batches: ask for none in its methods")
        in_parallel = "several consumers of the group"
        if not self._grouped:
            in_parallel = "several consumers, each with partitions of its own (assign=) or all of one group"
        self.refuse_left()
        if self._state is State.ASKING:
            raise LocalProtocolError(
                f"task {self._tasks.name_of(self._task)!r} waits for a batch of this consumer: read it in one task, "
                f"which may hand out what it gets, and in parallel with {in_parallel}"
            )
        if self._holds(task):
            raise LocalProtocolError(
                f"task {self._tasks.name_of(self.holder)!r} has a batch of this consumer in hand, and to ask for the "
                "next would say that it is done: to hand over, let that task commit it (batch.commit_soon()) or end; "
                f"to read in parallel, open {in_parallel}"
            )
        self._state, self._task = State.ASKING, task

    def end(self) -> None:
        """It waits no more."""
        if self._state is State.ASKING:
            self._state = State.IDLE

    def leave(self, task: Any) -> None:
        """``task`` leaves the block."""
        self._state, self._task = State.LEFT, task

    @property
    def reader(self) -> Any:
        """The task that may ask for the next batch; ``None`` while one does, or nobody may."""
        return self.holder if self._state is State.IDLE else None

    @property
    def left(self) -> bool:
        return self._state is State.LEFT

    def refuse_left(self) -> None:
        """Raise `Closed` where no batch will be given any more."""
        if self.left:
            raise Closed("the block of the consumer was left")

    def where(self) -> str:
        """Where the task stands that took the last batch, for people."""
        return self._tasks.where(self.holder)

    def _holds(self, task: Any) -> bool:
        """Another task has a batch in hand that may not be done."""
        if not self._grouped or self.holder is None or self.holder is task:
            return False
        return self._committing.in_hand is not None and not self._tasks.has_ended(self.holder)
