"""Schedules the first requests of a version 2 transaction, by which partitions and groups join, one broker at a time.

    partition, group ──► waits for the turn of its broker ──► is sent ── answered ──► the turn of the next broker

The leader of a partition adds it to the transaction when the first Produce arrives; a group's coordinator does so with
its offsets. If the transaction's coordinator cannot add it now, the leader retries every 20 ms, and the producer waits.
The reason is that something else is joining, or that the markers of the previous transaction are not written yet. The
client can time its requests better than that.

Rules:
- A broker's turn ends when it answers, or after `_TURN`: a distant broker's answer takes longer than the turn saves.
- A partition or group that has joined is not held back any more.
- If the first one to join had to wait at its leader, each of the next `_ASKED` transactions begins with
  DescribeTransactions, and sends nothing before the markers are written.
- Requests are held back only if the response says that the markers are being written.

Source: ReplicaManager.scala (maybeRetryOnConcurrentTransactions), AddPartitionsToTxnConfig.java.
"""

import contextlib
from collections.abc import Callable, Iterable

from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, ask, sleep
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.steps import Steps, settled
from ottla.sdk.timers import Timer
from ottla.sdk.transaction.markers import Markers

_BACKOFF = 0.02
"""Seconds after which a leader retries. Source: add.partitions.to.txn.retry.backoff.ms."""
_BACKOFF_MAX = 0.1
"""Seconds after which a leader gives up. Source: add.partitions.to.txn.retry.backoff.max.ms."""
_TURN = _BACKOFF / 2
_ASKED = 50
_SHORTEST_PAUSE = 0.0005
"""Seconds between the first two DescribeTransactions requests; doubled each time."""
_BEING_WRITTEN = ("PrepareCommit", "PrepareAbort")

Member = TopicPartition | str
"""A partition, or a group."""


class ImplicitJoining:
    """Schedules the joins of one producer; ``wake`` is called with a partition whose turn may have come."""

    def __init__(
        self, core: ClientCore, transactional_id: str, markers: Markers, wake: Callable[[PartitionQueue], None]
    ) -> None:
        self._core, self._transactional_id, self._markers, self._wake = core, transactional_id, markers, wake
        self._joined: set[Member] = set()
        """Partitions and groups for which a request was sent, or is about to be."""
        self._joining: set[Member] = set()
        """Those of the broker whose turn it is, until their requests are answered."""
        self._broker: int | str | None = None
        """The broker whose turn it is; for a group its name, because its coordinator may be any broker."""
        self._waiting: dict[int | str, dict[Member, Callable[[], None]]] = {}
        self._limit: Timer | None = None
        """Ends the turn, if other brokers wait."""
        self._first: tuple[Member, float] | None = None
        """The first member for which a request was sent, and when; until it is answered."""
        self._held_back = False
        """All joins wait, because the markers of the previous transaction may not be written yet."""
        self._question: LoneFlow | None = None
        """Asks whether they are written; it may have ended."""
        self._to_ask = 0
        """The number of transactions that will begin with DescribeTransactions."""

    def begin(self, now: float) -> None:
        """Begin a transaction."""
        self.stop()
        self._joined, self._first = set(), None
        if self._to_ask:
            self._to_ask -= 1
            until = now + _BACKOFF_MAX
            self._held_back = True
            self._question = LoneFlow(self._core, self._await_markers(until), until)

    def stop(self) -> None:
        """Stop all joins."""
        self._held_back = False
        if self._question is not None:
            self._question.cancel()
        self._waiting = {}
        self._clear_turn()

    def partition(self, queue: PartitionQueue) -> bool:
        """Whether batches may be sent to a partition now."""
        if queue.place in self._joined:
            return True
        leader = self._core.cluster.leader(*queue.place)
        return self._may_join(queue.place, leader.id if leader else -1, lambda: self._wake(queue))

    def group(self, group: str) -> Outcome[None]:
        """Settled once the offsets of a group may be sent; never if `stop` comes first."""
        outcome: Outcome[None] = Outcome()

        def come() -> None:
            if self._may_join(group, group, come):
                outcome.succeed(None)

        come()
        return outcome

    def answered(self, members: Iterable[Member], now: float) -> None:
        """Take note that the requests for these members were answered, or failed."""
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
        """Whether the member may join now; if not, ``come`` is called when it should try again."""
        if not self._held_back and self._broker in (None, broker):
            if not self._joined:
                self._first = member, self._core.now
            self._broker = broker
            self._joined.add(member)
            self._joining.add(member)
            return True
        self._waiting.setdefault(broker, {})[member] = come
        if not self._held_back:
            self._limit_turn()
        return False

    def _next(self, now: float) -> None:
        """Begin the next broker's turn."""
        self._clear_turn()
        if self._waiting:
            for come in self._waiting.pop(next(iter(self._waiting))).values():
                come()
            self._limit_turn()  # even if none of these members has anything to send any more

    def _limit_turn(self) -> None:
        if self._waiting and self._limit is None:
            self._limit = self._core.later(self._core.now + _TURN, self._next)

    def _clear_turn(self) -> None:
        self._broker, self._joining = None, set()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _await_markers(self, until: float) -> Steps[None]:
        """Begin the first turn once the markers are written; without an answer, leaders have to wait."""
        with contextlib.suppress(OttlaError):
            yield from self._ask_until_written(until)
        self._held_back = False
        self._next(self._core.now)

    def _ask_until_written(self, until: float) -> Steps[None]:
        core, markers = self._core, self._markers
        if early := markers.early(core.now):
            yield from sleep(core, early)
        request = DescribeTransactionsRequest(transactional_ids=(self._transactional_id,))
        pause, refused = _SHORTEST_PAUSE, False
        while True:
            node = yield from settled(core.transaction_coordinators.find(self._transactional_id, core.now))
            if not _are_being_written((yield from settled(ask(core, node, request, until)))):
                markers.written(core.now, refused=refused)
                return
            refused = True
            yield from sleep(core, pause)
            pause *= 2


def _are_being_written(answer: DescribeTransactionsResponse) -> bool:
    return any(each.transaction_state in _BEING_WRITTEN for each in answer.transaction_states)
