"""The partitions and groups that take part in a producer's transaction, and how they join it.

Rules:
- In version 1 partitions and groups join before anything is sent to them (`ExplicitJoining`), in version 2 they take
  turns (`ImplicitJoining`). `TransactionOffsets` sends the offsets of groups.
- A transaction without any request so far needs no EndTxn.

Source: TransactionManager.java; KIP-98, KIP-890.
"""

from collections.abc import Callable, Iterable

from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.batches import PartitionQueue
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.transaction.explicit_joining import ExplicitJoining
from ottla.sdk.transaction.implicit_joining import ImplicitJoining
from ottla.sdk.transaction.markers import Markers
from ottla.sdk.transaction.offsets import TransactionOffsets
from ottla.sdk.transaction.states import IMPLICIT
from ottla.sdk.transaction.transaction_requests import TransactionRequests


class Participants:
    """The partitions and groups of the open or last transaction of one producer.

    Args:
        wake: called with a partition that has joined.
        refused: called, inside the core, with an error that prevents the commit.

    Attributes:
        offsets: the offsets of consumer groups that the transaction commits.
    """

    def __init__(
        self,
        core: ClientCore,
        requests: TransactionRequests,
        markers: Markers,
        wake: Callable[[PartitionQueue], None],
        refused: Callable[[OttlaError], None],
    ) -> None:
        transactional_id = requests.transactional_id
        self._explicit = ExplicitJoining(core, requests, markers, wake=wake, refused=refused)
        self._implicit = ImplicitJoining(core, transactional_id, markers, wake)
        self.offsets = TransactionOffsets(core, transactional_id, self._explicit, self._implicit, refused)
        self._version = 1
        self._produced = False
        """A batch was sent in this transaction."""

    def begin(self, identity: Identity | None, version: int, now: float) -> None:
        """Begin a transaction of this protocol version."""
        self._version, self._produced = version, False
        self._explicit.begin(identity)
        if version >= IMPLICIT:
            self._implicit.begin(now)
        self.offsets.begin(identity, implicit=version >= IMPLICIT)

    def stop(self) -> None:
        """Stop all joins, and send no more offsets."""
        self._explicit.stop()
        self._implicit.stop()
        self.offsets.stop()

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether batches of a partition can be sent now; starts to join the partition if necessary."""
        if not (self._implicit if self._version >= IMPLICIT else self._explicit).partition(queue):
            return False
        self._produced = True
        return True

    def answered(self, places: Iterable[TopicPartition], now: float) -> None:
        """Take note that a Produce request for these partitions has been answered, or has failed."""
        self._implicit.answered(places, now)

    @property
    def asked(self) -> bool:
        """Whether the coordinator may know of a partition or group."""
        return self._produced or self._explicit.asked or self.offsets.sent

    @property
    def joined(self) -> bool:
        """Whether, in version 1, a partition or group is known to have joined."""
        return self._explicit.joined

    @property
    def unsure(self) -> bool:
        """Whether a request without an answer may still arrive."""
        return self._explicit.unsure or self.offsets.unsure

    @property
    def joining(self) -> str:
        """A text for people: how many partitions and groups have not joined yet; empty if none."""
        return self._explicit.waiting

    @property
    def trouble(self) -> str:
        """A text for people: what is wrong with the request by which they join."""
        return self._explicit.trouble
