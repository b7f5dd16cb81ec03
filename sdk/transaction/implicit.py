"""What joins a transaction of version 2 by being sent: it joins at one broker after the other.

    partition, group ──► waits for the turn of its broker ──► is sent ── answered ──► the turn of the next broker

The leader of a partition has it join when the first Produce arrives, and the coordinator of a group its offsets. While
the coordinator of the transaction cannot take that, the leader tries again every 20 ms, and the producer waits: because
something else is joining, or because the markers of the transaction before are not written yet. The client knows better
when to send.

Rules:
- A broker's turn ends when it answers, or after `_TURN`: from far away the answer takes longer than the turn is worth.
- What has joined is not held back any more.
- Where the first to join had to wait at its leader, each of the next `_ASKED` transactions begins with the question in
  which state the transactional id is (DescribeTransactions), and nothing is sent before the markers are written.
- Only the answer that they are being written holds anything back.

Source: ReplicaManager.scala (maybeRetryOnConcurrentTransactions), AddPartitionsToTxnConfig.java.
"""

from collections.abc import Callable, Iterable
from functools import partial

from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.sdk.calls.call import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.steps import Steps, settled
from ottla.sdk.timers import Timer
from ottla.sdk.transaction.markers import Markers

_BACKOFF = 0.02
"""Seconds after which a leader tries again. Source: add.partitions.to.txn.retry.backoff.ms."""
_BACKOFF_MAX = 0.1
"""Seconds after which it gives up. Source: add.partitions.to.txn.retry.backoff.max.ms."""
_TURN = _BACKOFF / 2
_ASKED = 50
_SHORTEST_PAUSE = 0.0005
"""Seconds between the first two questions; then twice as long each time."""
_BEING_WRITTEN = ("PrepareCommit", "PrepareAbort")

Member = TopicPartition | str
"""A partition, or a group."""


class ImplicitJoining:
    """Of one transactional producer; ``wake`` is called with a partition whose turn may have come."""

    def __init__(
        self, core: ClientCore, transactional_id: str, markers: Markers, wake: Callable[[PartitionQueue], None]
    ) -> None:
        self._core, self._transactional_id, self._markers, self._wake = core, transactional_id, markers, wake
        self._joined: set[Member] = set()
        """Those that were sent, or are about to be."""
        self._joining: set[Member] = set()
        """Those of them that are not answered, of the broker whose turn it is."""
        self._broker: int | str | None = None
        """That broker; of a group, whose coordinator may be any, the name."""
        self._waiting: dict[int | str, dict[Member, Callable[[], None]]] = {}
        self._limit: Timer | None = None
        """Of the turn; while others wait."""
        self._first: tuple[Member, float] | None = None
        """The first to be sent, and when, until it is answered."""
        self._question: Task[None] | None = None
        self._to_ask = 0
        """Transactions."""

    def begin(self, now: float) -> None:
        """A transaction begins, in which nothing has joined."""
        self.stop()
        self._joined, self._first = set(), None
        if self._to_ask:
            self._to_ask -= 1
            what = f"DescribeTransactions of {self._transactional_id!r}"
            question = self._question = Task(self._core, what, now, self._ask, _BACKOFF_MAX)
            question.outcome.when_done(lambda: self._core.soon(partial(self._told, question)))

    def stop(self) -> None:
        """Nothing joins any more."""
        question, self._question = self._question, None
        if question is not None:
            question.outcome.cancel()
        self._waiting = {}
        self._clear_turn()

    def partition(self, queue: PartitionQueue) -> bool:
        """Whether something may be sent to a partition now."""
        if queue.place in self._joined:
            return True
        leader = self._core.cluster.leader(*queue.place)
        return self._may_join(queue.place, leader.id if leader else -1, lambda: self._wake(queue))

    def group(self, group: str) -> Outcome[None]:
        """Settled once the offsets of a group may be sent; never, if the transaction stops before."""
        outcome: Outcome[None] = Outcome()

        def come() -> None:
            if self._may_join(group, group, come):
                outcome.succeed(None)

        come()
        return outcome

    def answered(self, members: Iterable[Member], now: float) -> None:
        """What was sent to these is answered, or lost."""
        if not self._joining and self._first is None:
            return
        answered = set(members)
        if self._first is not None and self._first[0] in answered:
            if now - self._first[1] >= _BACKOFF + self._markers.end_took:
                self._to_ask = _ASKED
            self._first = None
        if self._joining:
            self._joining -= answered
            if not self._joining:
                self._next(now)

    def _may_join(self, member: Member, broker: int | str, come: Callable[[], None]) -> bool:
        """Whether it may, now; else ``come`` is called when it is worth to ask again."""
        if self._question is None and self._broker in (None, broker):
            if not self._joined:
                self._first = member, self._core.now
            self._broker = broker
            self._joined.add(member)
            self._joining.add(member)
            return True
        self._waiting.setdefault(broker, {})[member] = come
        if self._question is None:
            self._limit_turn()
        return False

    def _next(self, now: float) -> None:
        """It is the next broker's turn."""
        self._clear_turn()
        if self._waiting:
            for come in self._waiting.pop(next(iter(self._waiting))).values():
                come()
            self._limit_turn()  # also if none of those has something to send any more

    def _limit_turn(self) -> None:
        if self._waiting and self._limit is None:
            self._limit = self._core.later(self._core.now + _TURN, self._next)

    def _clear_turn(self) -> None:
        self._broker, self._joining = None, set()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _ask(self, task: Task[None]) -> Steps[None]:
        if early := self._markers.early(task.now):
            yield from task.rest(early)
        request = DescribeTransactionsRequest(transactional_ids=(self._transactional_id,))
        pause, refused = _SHORTEST_PAUSE, False
        while True:
            node = yield from settled(self._core.transaction_coordinators.find(self._transactional_id, task.now))
            answer, _ = yield from settled(task.request(node, request))
            if not _are_being_written(answer):
                self._markers.written(task.now, refused=refused)
                return
            refused = True
            yield from task.rest(pause)
            pause *= 2

    def _told(self, question: Task[None], now: float) -> None:
        """In which state it is, or that nobody answers."""
        if self._question is question:
            self._question = None
            self._next(now)


def _are_being_written(answer: DescribeTransactionsResponse) -> bool:
    return any(each.transaction_state in _BEING_WRITTEN for each in answer.transaction_states)
