"""Adds partitions and groups to a version 1 transaction, before any batch or offset is sent for them.

    add ──► waiting ── AddPartitionsToTxn or AddOffsetsToTxn ──► joined

Rules:
- One request at a time: the coordinator answers a second one with CONCURRENT_TRANSACTIONS. The next request contains
  all waiting partitions. Groups are added one by one, because AddOffsetsToTxn names one group.
- In version 2 this is not used: the first Produce or TxnOffsetCommit adds them.

Source: TransactionManager.java (addPartitionsToTransactionHandler, AddOffsetsToTxnHandler).
"""

from collections.abc import Callable
from typing import Any

from ottla.errors import OttlaError
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, sleep
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.steps import Steps
from ottla.sdk.transaction.markers import Markers
from ottla.sdk.transaction.transaction_requests import TransactionRequests


class ExplicitJoining:
    """Adds partitions and groups to the transactions of one producer.

    Args:
        wake: called with a partition that has joined.
        refused: called, inside the core, with an error that is not retriable.

    Attributes:
        asked: a request was sent, so the coordinator may know of a partition or group.
        unsure: a request without an answer may still arrive.
    """

    def __init__(
        self,
        core: ClientCore,
        requests: TransactionRequests,
        markers: Markers,
        *,
        wake: Callable[[PartitionQueue], None],
        refused: Callable[[OttlaError], None],
    ) -> None:
        self._core, self._requests, self._markers = core, requests, markers
        self._wake, self._refused = wake, refused
        self._identity: Identity | None = None
        self._joined: set[TopicPartition | str] = set()
        self._partitions: dict[TopicPartition, PartitionQueue] = {}
        self._groups: dict[str, Outcome[None]] = {}
        self._flow: LoneFlow | None = None
        self._task: Task[Any] | None = None
        """The request in flight."""
        self.asked = self.unsure = False

    def begin(self, identity: Identity | None) -> None:
        """Begin a transaction."""
        self._identity = identity
        self._joined, self._partitions, self._groups = set(), {}, {}
        self.asked = self.unsure = False

    def stop(self) -> None:
        """Stop all joins."""
        self._identity = None
        self.unsure |= self._task is not None
        self._task = None
        if self._flow is not None:
            self._flow.cancel()  # and with it the request in flight

    @property
    def joined(self) -> bool:
        """Whether a partition or group is known to have joined."""
        return bool(self._joined)

    @property
    def waiting(self) -> str:
        """A text for people: how many partitions and groups have not joined yet; empty if none."""
        counts = (len(self._partitions), "partition(s)"), (len(self._groups), "group(s)")
        return " and ".join(f"{count} {what}" for count, what in counts if count)

    @property
    def trouble(self) -> str:
        return self._task.trouble if self._task is not None else ""

    def partition(self, queue: PartitionQueue) -> bool:
        """Whether a partition has joined; if not, start to join it."""
        if queue.place in self._joined:
            return True
        if queue.place not in self._partitions:
            self._partitions[queue.place] = queue
            self._go_on()
        return False

    def group(self, group: str) -> Outcome[None]:
        """Settled once a group has joined; never if it cannot."""
        outcome: Outcome[None] = self._groups.get(group) or Outcome()
        if group in self._joined:
            outcome.succeed(None)
        elif group not in self._groups:
            self._groups[group] = outcome
            self._go_on()
        return outcome

    def _go_on(self) -> None:
        if self._identity is not None and (self._flow is None or self._flow.outcome.done):
            self._flow = LoneFlow(self._core, self._join_all(self._identity))

    def _join_all(self, identity: Identity) -> Steps[None]:
        """Join all waiting partitions with one request, and then the groups, until none waits."""
        yield from sleep(self._core, 0.0)  # partitions that begin to wait in the same step go together
        if not self._joined and (early := self._markers.early(self._core.now)):
            yield from sleep(self._core, early)
        try:
            while self._partitions or self._groups:
                if places := list(self._partitions):
                    yield from self._join(self._requests.add_partitions(identity, places))
                    self._joined.update(places)
                    for place in places:
                        self._wake(self._partitions.pop(place))
                else:
                    group = next(iter(self._groups))
                    yield from self._join(self._requests.add_offsets(identity, group))
                    self._joined.add(group)
                    self._groups.pop(group).succeed(None)
        except OttlaError as error:
            self._refused(error)

    def _join(self, task: Task[Any]) -> Steps[None]:
        """Wait for a request; raises its error."""
        self.asked, self._task = True, task
        yield task.outcome
        self._task = None
        self.unsure |= task.repeated
        task.outcome.result()
        if not self._joined:
            self._markers.written(self._core.now, refused=bool(task.trouble))
