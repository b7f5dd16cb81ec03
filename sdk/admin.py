"""The classes that administrative calls return. Plain data; names are Kafka's."""

import csv
import io
import re
import uuid
from collections.abc import Mapping
from typing import NamedTuple, Self

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.events import Node

# -- brokers ----------------------------------------------------------------------------------------------------------


class BrokerDescription(NamedTuple):
    """A broker, at the address that it advertises to clients.

    Attributes:
        rack: ``broker.rack`` of its configuration, if set.
        is_controller: it takes the requests that only the controller can answer. In a KRaft cluster this is some
            broker, which forwards them; brokers before 0.10 do not say which it is.
    """

    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool


# -- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition, and the brokers that hold it.

    Attributes:
        leader: node id, or -1 while there is no leader.
        replicas, isr: node ids; the in-sync replicas have all acknowledged records.
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
        configs: the values set for this topic; for all others the broker's defaults hold. ``None`` if nobody asked
            for them, or the broker does not tell them: the principal lacks DescribeConfigs on the topic, or the broker
            is older than 0.11.
    """

    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str | None] | None

    @classmethod
    def of(cls, topic: Topic, configs: Mapping[str, str | None] | None) -> Self:
        """Create one from cached metadata; only the client calls this."""
        partitions = tuple(
            PartitionDescription(each.partition, each.leader, each.replicas, each.isr)
            for _, each in sorted(topic.partitions.items())
        )
        return cls(topic.name, topic.topic_id, topic.internal, partitions, None if configs is None else dict(configs))


# -- users ------------------------------------------------------------------------------------------------------------

SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism -> its number in requests (ScramMechanism.java)."""


class UserDescription(NamedTuple):
    """A user that logs in by SCRAM.

    Attributes:
        iterations: mechanism -> how often the password was hashed.
    """

    name: str
    iterations: dict[str, int]


class ScramCredentialHash(NamedTuple):
    """A salted and hashed password, as `Client.set_scram_credential` sends it.

    Attributes:
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
        salt: random bytes.
        iterations: 4096 to 16384.
        salted_password: PBKDF2 of the password, with the HMAC of the mechanism.
    """

    mechanism: str
    salt: bytes
    iterations: int
    salted_password: bytes

    def __repr__(self) -> str:
        return f"<{self.mechanism} hash>"


# -- offsets ----------------------------------------------------------------------------------------------------------


class ListedOffset(NamedTuple):
    """An offset that ListOffsets found.

    Attributes:
        offset: -1 if no record is as recent as the time asked for.
        timestamp: of that record, in milliseconds since 1970; -1 for an end of the log, and from brokers before 0.10.1,
            which look offsets up by whole segments.
        leader_epoch: of that record; -1 if unknown.
    """

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


class CommittedOffset(NamedTuple):
    """How far a group has read a partition.

    Attributes:
        offset: the next one to read.
        leader_epoch: of the last record read; -1 if unknown.
        metadata: the string committed with the offset.
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
"""States of a group, as Kafka names them (GroupState.java); no group type has all of them."""
GROUP_TYPES = ("classic", "consumer", "share", "streams")


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group, as its coordinator lists it.

    Attributes:
        protocol_type: ``consumer``, ``connect``, …; ``""`` for a group that only stores offsets.
        state: ``Stable``, ``Empty``, ``PreparingRebalance``, …; ``""`` from brokers before 2.6, which do not report it.
        type: ``classic``, ``consumer``, ``share`` or ``streams``.
        coordinator: the broker that coordinates the group.
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
        host: its address, as the coordinator sees it.
        assignment: the partitions assigned to it; empty during a rebalance, and for protocols other than the
            consumers'.
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
    """A classic group or a consumer group, and its members.

    Attributes:
        state: ``Stable`` or ``Empty``; of a classic group also ``PreparingRebalance`` and ``CompletingRebalance``, and
            of a consumer group ``Assigning`` and ``Reconciling``.
        protocol_type: ``consumer``, ``connect``, …; ``""`` for a group that only stores offsets.
        protocol: the assignor chosen, such as ``range``; ``""`` for a classic group that is not stable.
        type: ``classic``, or ``consumer`` (KIP-848).
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Node
    members: tuple[GroupMember, ...]
    type: str = "classic"


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group (KIP-932), and its members.

    Attributes:
        state: ``Stable`` (it has members) or ``Empty``.
        assignor: its name at the broker, for example ``simple``.
        epoch: rises with every change of members, subscriptions or topics.
        members: several may have the same partition.
    """

    group: str
    state: str
    assignor: str
    epoch: int
    coordinator: Node
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """How far a share group is in a partition.

    Attributes:
        start: all records before this offset are processed, and some of the later ones may be, too; ``None``: no member
            has read the partition yet.
        lag: the number of records that are not processed; ``None`` if unknown, as with brokers before Kafka 4.2.
    """

    start: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in a partition that it has committed or that a member reads.

    Attributes:
        committed: the next offset to read; ``None`` if none was committed.
        end: one past the last record; ``None`` if unknown: ``trouble`` says why.
        member: the member that reads the partition; ``None`` if there is none.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: GroupMember | None
    trouble: str = ""

    @property
    def lag(self) -> int | None:
        """Records still to read (the difference of offsets, which may have gaps); ``None`` if unknown."""
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
        """The sum of the known lags."""
        return sum(each.lag or 0 for each in self.partitions)


# -- resetting the offsets of a group ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """One partition of a `ResetPlan`.

    Attributes:
        old: the committed offset; ``None`` if there is none.
        new: the offset that replaces it.
        note: why ``new`` differs from the request; empty if it does not.
    """

    topic: str
    partition: int
    old: int | None
    new: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The result of `Client.reset_offsets`.

    Attributes:
        offsets: sorted by topic and partition.
        executed: whether the offsets were committed.
        new_group: the group did not exist when the plan was made; the commit creates it.
    """

    group: str
    offsets: tuple[PlannedOffset, ...]
    executed: bool = False
    new_group: bool = False

    def to_csv(self) -> str:
        """Lines of ``topic,partition,offset``, as kafka-consumer-groups exports and reads the plan of one group."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows((each.topic, each.partition, each.new) for each in self.offsets)
        return out.getvalue()


def offsets_from_csv(text: str, group: str) -> dict[TopicPartition, int]:
    """Read offsets as `ResetPlan.to_csv` and kafka-consumer-groups write them; of several groups only ``group``'s.

    Lines are ``topic,partition,offset``, or ``group,topic,partition,offset``.

    Raises:
        ConfigurationError: a line has another form; the message quotes it.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        fields = [each.strip() for each in row]
        if not any(fields):
            continue
        named = fields.pop(0) if len(fields) == 4 else group
        if len(fields) != 3 or not fields[0] or not _numbers(*fields[1:]):
            line = ",".join(row)
            raise ConfigurationError(f"line {number} is not topic,partition,offset (perhaps after a group): {line!r}")
        if named == group:
            offsets[fields[0], int(fields[1])] = int(fields[2])
    return offsets


def _numbers(partition: str, offset: str) -> bool:
    """Whether the texts are a partition (an int32) and an offset (an int64)."""
    digits = all(re.fullmatch("[0-9]{1,19}", each) for each in (partition, offset))
    return digits and int(partition) < 2**31 and int(offset) < 2**63


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
"""States of a transactional id, as its coordinator names them (TransactionState.java)."""
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States in which a transaction has begun and has not ended in all of its partitions."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, as its coordinator lists it, whether or not a transaction is open.

    Attributes:
        state: ``Ongoing``, ``CompleteCommit``, …, as in `TRANSACTION_STATES`.
        coordinator: the broker that coordinates it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: Node


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, and its transaction if one is open.

    Attributes:
        producer_id, producer_epoch: of the newest producer with this id.
        state: ``Ongoing``, ``CompleteCommit``, …, as in `TRANSACTION_STATES`.
        timeout: seconds after which the coordinator aborts an open transaction.
        start_timestamp: when the transaction began, in milliseconds since 1970; ``None`` if there was none yet.
        partitions: of the open transaction; while it is ending, the partitions without a marker so far.
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
        """Whether a transaction has begun and has not ended in all of its partitions."""
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state that a partition keeps of an idempotent or transactional producer.

    Attributes:
        last_sequence: of the last record; -1 if the partition keeps none, for example after nothing but a marker.
        last_timestamp: of the last batch or marker, in milliseconds since 1970; -1 if there is none.
        coordinator_epoch: of the coordinator that wrote the last marker; ``None`` if there was none yet.
        transaction_start: the first offset of the open transaction; ``None`` if none is open here.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition although no coordinator is going to end it there.

    Until an administrator aborts it, readers with ``isolation="read_committed"`` get nothing from ``start_offset`` on,
    and compaction stops there.

    Attributes:
        start_offset: the first of its records.
        producer_id, producer_epoch: of those records.
        coordinator_epoch: of the coordinator that wrote the producer's last marker there; ``None`` if there was none.
        last_timestamp: of its last batch, in milliseconds since 1970.
        transactional_id: it has this producer id now; ``None`` if there is none.
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
    """The latest id and epoch that a coordinator gave to a transactional id; it fences producers with a lower epoch."""

    producer_id: int
    producer_epoch: int
