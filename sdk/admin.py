"""What administration returns. Plain data; names are Kafka's."""

import csv
import io
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from ottla.errors import ConfigurationError
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.events import Node

# -- brokers ----------------------------------------------------------------------------------------------------------


class BrokerDescription(NamedTuple):
    """A broker, at the address that it gives to clients.

    Attributes:
        rack: the ``broker.rack`` of its configuration, if there is any.
        is_controller: what only the controller can do is asked of it. In a cluster of KRaft that is some broker, which
            passes it on; brokers before 0.10 do not say who it is.
    """

    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool


# -- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition, and the brokers that have it.

    Attributes:
        leader: node id, -1 while there is none.
        replicas, isr: node ids; the in-sync ones have all that was acknowledged.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic.

    Attributes:
        topic_id: zero for brokers before 2.8.
        internal: Kafka's own, such as ``__consumer_offsets``.
        configs: what was set for this topic; all else is as the broker has it. Empty from brokers before 0.11, which do
            not report it.
    """

    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str | None]

    @classmethod
    def of(cls, topic: Topic, configs: Mapping[str, str | None]) -> Self:
        """Of what the metadata say; the client makes it."""
        partitions = tuple(
            PartitionDescription(each.partition, each.leader, each.replicas, each.isr)
            for _, each in sorted(topic.partitions.items())
        )
        return cls(topic.name, topic.topic_id, topic.internal, partitions, dict(configs))


# -- offsets ----------------------------------------------------------------------------------------------------------


class ListedOffset(NamedTuple):
    """What ListOffsets found.

    Attributes:
        offset: -1 where no record is as young as the time asked for.
        timestamp: of the record there, in milliseconds since 1970; -1 for an end of the log, and from brokers before
            0.10.1, which know offsets only as finely as segments begin.
        leader_epoch: of the record there; -1 where it is not known.
    """

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


class CommittedOffset(NamedTuple):
    """How far a group has read a partition.

    Attributes:
        offset: the next to read.
        leader_epoch: of the last record read; -1 where it is not known.
        metadata: as committed.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


# -- groups -----------------------------------------------------------------------------------------------------------


GROUP_STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
    "Dead",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Unknown",
)
"""Of a group, as Kafka names them (GroupState.java); not every type has each."""
GROUP_TYPES = ("classic", "consumer", "share", "streams")


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group, as its coordinator lists it.

    Attributes:
        protocol_type: ``consumer``, ``connect``, …; ``""`` for a group that only stores offsets.
        state: ``Stable``, ``Empty``, ``PreparingRebalance``, …; ``""`` from brokers before 2.6, which do not say.
        type: ``classic``, ``consumer``, ``share`` or ``streams``.
        coordinator: the broker that looks after the group.
    """

    group: str
    protocol_type: str
    state: str
    type: str
    coordinator: Node


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a classic group.

    Attributes:
        instance_id: the ``group.instance.id`` of a static member.
        host: the address it has, as the coordinator sees it.
        assignment: the partitions that are its own; empty while the group rebalances, and where the protocol is not
            that of consumers.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"{self.member_id} (client {self.client_id}, {self.host})"


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A classic group and its members.

    Attributes:
        state: ``Stable``, ``Empty``, ``PreparingRebalance`` or ``CompletingRebalance``.
        protocol_type: ``consumer``, ``connect``, …; ``""`` for a group that only stores offsets.
        protocol: the assignor chosen, such as ``range``; ``""`` unless the group is stable.
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Node
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in a partition, which it has committed, or which a member reads.

    Attributes:
        committed: the next offset to read; ``None`` where nothing was committed.
        end: one past the last record; ``None`` where it cannot be had: ``trouble`` says why.
        member: the one that reads it; ``None``: there is none.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: GroupMember | None
    trouble: str = ""

    @property
    def lag(self) -> int | None:
        """Records still to read (counting offsets, which may have holes); ``None`` where it is not known."""
        return None if self.committed is None or self.end is None else self.end - self.committed


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind.

    Attributes:
        group: its members and its state.
        partitions: sorted by topic and partition.
    """

    group: GroupDescription
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        """The sum of the lags that are known."""
        return sum(each.lag or 0 for each in self.partitions)


# -- resetting the offsets of a group ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """Of a `ResetPlan`, one partition.

    Attributes:
        old: the offset committed; ``None``: none.
        new: what is (to be) committed in its place.
        note: why it is not what was asked for; empty where it is.
    """

    topic: str
    partition: int
    old: int | None
    new: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What `Client.reset_offsets` has done, or would do.

    Attributes:
        offsets: sorted by topic and partition.
        executed: whether they are committed.
        new_group: there was no such group when the plan was made; a commit brings it into being.
    """

    group: str
    offsets: tuple[PlannedOffset, ...]
    executed: bool = False
    new_group: bool = False

    def to_csv(self) -> str:
        """``topic,partition,offset`` a line, as kafka-consumer-groups exports and reads the plan of one group."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows((each.topic, each.partition, each.new) for each in self.offsets)
        return out.getvalue()


def offsets_from_csv(text: str, group: str) -> dict[TopicPartition, int]:
    """Offsets as `ResetPlan.to_csv` and kafka-consumer-groups write them: those of ``group``, if the lines name one.

    Lines are ``topic,partition,offset``, or ``group,topic,partition,offset``.

    Raises:
        ConfigurationError: a line is neither; says which.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        fields = [each.strip() for each in row]
        if not any(fields):
            continue
        named = fields.pop(0) if len(fields) == 4 else group
        if len(fields) != 3 or not fields[0] or not all(re.fullmatch("[0-9]{1,19}", each) for each in fields[1:]):
            line = ",".join(row)
            raise ConfigurationError(f"line {number} is not topic,partition,offset (perhaps after a group): {line!r}")
        if named == group:
            offsets[fields[0], int(fields[1])] = int(fields[2])
    return offsets


# -- transactions -----------------------------------------------------------------------------------------------------


TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
"""Of a transactional id, as its coordinator names them (TransactionState.java)."""
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""Those in which a transaction has begun and has not ended in all of its partitions."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, as its coordinator lists it, whether it has a transaction open or not.

    Attributes:
        state: ``Ongoing``, ``CompleteCommit``, …, as in `TRANSACTION_STATES`.
        coordinator: the broker that looks after it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: Node


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, and its transaction if one is open.

    Attributes:
        producer_id, producer_epoch: of the producer that came last with this id.
        state: ``Ongoing``, ``CompleteCommit``, …, as in `TRANSACTION_STATES`.
        timeout: seconds after which the coordinator aborts a transaction of it.
        start_timestamp: when the transaction began, in milliseconds since 1970; ``None``: none has yet.
        partitions: of the open transaction; while it is being ended, those where that is still to be written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout: float
    start_timestamp: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: Node

    @property
    def is_open(self) -> bool:
        """A transaction has begun, and has not ended in all of its partitions."""
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class ProducerState:
    """An idempotent or transactional producer, as a partition remembers it.

    Attributes:
        last_sequence: of the last record; -1 where none is remembered, as after a marker alone.
        last_timestamp: of the last batch or marker, in milliseconds since 1970; -1: none.
        coordinator_epoch: of the coordinator that wrote the last marker; ``None``: there was none yet.
        transaction_start: the first offset of the transaction that is open here; ``None``: none is.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator is going to end there.

    Until an administrator aborts it, readers with ``isolation="read_committed"`` get nothing from ``start_offset`` on,
    and compaction does not go on behind it.

    Attributes:
        start_offset: the first of its records.
        producer_id, producer_epoch: of those records.
        coordinator_epoch: of the coordinator that wrote the producer's last marker there; ``None``: there was none yet.
        last_timestamp: of its last batch, in milliseconds since 1970.
        transactional_id: the one that has this producer id now; ``None``: none has.
        reason: why it counts as hanging, for people.
    """

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_timestamp: int
    transactional_id: str | None
    reason: str


class ProducerIdAndEpoch(NamedTuple):
    """What a coordinator has given to a transactional id last: producers with a lower epoch are fenced."""

    producer_id: int
    producer_epoch: int
