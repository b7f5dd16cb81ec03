"""Control records, which brokers write between the users' records, in batches marked as control batches.

A partition has one kind, the end of a transaction: the transaction coordinator sends a marker to every partition that
took part (WriteTxnMarkers). It is a batch of its own with the producer's id. It occupies an offset, so consumers, who
never see it, find gaps in the offsets of transactional topics. The other kinds are in the log of KRaft's controllers
(``__cluster_metadata``) and in its snapshots (``.checkpoint`` files).

Rules:
- The key holds the type. Consumers skip unknown types, so these are kept as bytes here.
- The value begins with its version in two bytes: in front of the message for the end of a transaction, as the message's
  own field `version` for KRaft's.

Source: ControlRecordType.java, EndTransactionMarker.java, ControlRecordUtils.java.
"""

import uuid
from typing import Any

from ottla.codec import messages, prefixed
from ottla.codec.wire import (
    NO_UUID,
    Array,
    Buffer,
    Int16,
    Int32,
    Int64,
    Nested,
    String,
    UInt16,
    Uuid,
    api,
    message,
    struct,
    wire,
)
from ottla.errors import DecodeError
from ottla.late_dataclass import dataclass

ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(7)


@message(versions="0")
class ControlRecordKey:
    """Kafka's ControlRecordTypeSchema, which follows its version."""

    type: int = wire(Int16)
    """0: `ABORT` … 6: `KRAFT_VOTERS`."""


@message(versions="0")
class EndTxnMarker:
    """`ABORT` and `COMMIT`: the transaction of the batch's producer ends here, in this partition."""

    coordinator_epoch: int = wire(Int32)
    """Epoch of the transaction coordinator: markers of a former coordinator are refused."""


@struct
class ElectionVoter:
    """Kafka's LeaderChangeMessage.Voter."""

    voter_id: int = wire(Int32)
    voter_directory_id: uuid.UUID = wire(Uuid, "1+", default=NO_UUID)


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """`LEADER_CHANGE`: the first record of a leader in its epoch. Versions: 1: directories (KIP-853)."""

    version: int = wire(Int16)
    leader_id: int = wire(Int32)
    voters: tuple[ElectionVoter, ...] = wire(Array(ElectionVoter))
    granting_voters: tuple[ElectionVoter, ...] = wire(Array(ElectionVoter))
    """The voters that voted for the leader."""


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """`SNAPSHOT_HEADER`: the first record of a snapshot."""

    version: int = wire(Int16)
    last_contained_log_timestamp: int = wire(Int64)
    """Timestamp of the newest record in the snapshot, in milliseconds since 1970."""


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """`SNAPSHOT_FOOTER`: the last record of a snapshot; a snapshot without it is incomplete."""

    version: int = wire(Int16)


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    """`KRAFT_VERSION`: the version of KRaft's protocol from here on."""

    version: int = wire(Int16)
    kraft_version: int = wire(Int16)
    """0: the voters are in every node's configuration. 1: they are in the log, and can change (KIP-853)."""


@struct
class Endpoint:
    name: str = wire(String)
    """Name of the listener."""
    host: str = wire(String)
    port: int = wire(UInt16)


@struct
class KRaftVersionFeature:
    min_supported_version: int = wire(Int16)
    max_supported_version: int = wire(Int16)
    """Inclusive."""


@struct
class Voter:
    voter_id: int = wire(Int32)
    voter_directory_id: uuid.UUID = wire(Uuid)
    endpoints: tuple[Endpoint, ...] = wire(Array(Endpoint))
    kraft_version_feature: KRaftVersionFeature = wire(Nested(KRaftVersionFeature))
    """The versions of KRaft's protocol that the voter supports."""


@message(versions="0", flexible="0+")
class VotersRecord:
    """`KRAFT_VOTERS`: the voters from here on."""

    version: int = wire(Int16)
    voters: tuple[Voter, ...] = wire(Array(Voter))


CONTROL_TYPES: dict[int, tuple[str, type[Any]]] = {
    ABORT: ("abort", EndTxnMarker),
    COMMIT: ("commit", EndTxnMarker),
    LEADER_CHANGE: ("leader_change", LeaderChangeMessage),
    SNAPSHOT_HEADER: ("snapshot_header", SnapshotHeaderRecord),
    SNAPSHOT_FOOTER: ("snapshot_footer", SnapshotFooterRecord),
    KRAFT_VERSION: ("kraft_version", KRaftVersionRecord),
    KRAFT_VOTERS: ("kraft_voters", VotersRecord),
}
"""Type -> its name, and the message in the value."""


@dataclass(slots=True)
class ControlRecord:
    """A control record.

    Attributes:
        type: `ABORT` … `KRAFT_VOTERS`.
        version: version of the value.
        value: the message; the bytes of the value if its version is unknown.
    """

    type: int
    version: int
    value: Any

    @property
    def name(self) -> str:
        return CONTROL_TYPES[self.type][0]


def parse_control(key: Buffer | None, value: Buffer | None) -> ControlRecord | None:
    """Parse a record of a control batch; ``None`` if its type is unknown.

    Raises:
        DecodeError: the value does not match its type and version.
    """
    if key is None or value is None or len(key) < prefixed.SIZE or prefixed.version_of(key) != 0:
        return None
    _, tag, _ = prefixed.parse_prefixed(ControlRecordKey, key)
    if tag.type not in CONTROL_TYPES:
        return None
    _, cls = CONTROL_TYPES[tag.type]
    version = prefixed.version_of(value)
    if version not in api(cls).versions:
        return ControlRecord(tag.type, version, bytes(value))
    message, end = messages.parse(cls, version, value, _start(cls))
    if end != len(value):
        raise DecodeError(f"{len(value) - end} bytes left over", cls.__name__, end)
    return ControlRecord(tag.type, version, message)


def build_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """Build the key and the value.

    Raises:
        EncodeError: the message does not fit.
    """
    key = prefixed.build_prefixed(ControlRecordKey(type=record.type), 0)
    if isinstance(record.value, bytes):
        return key, record.value
    if _start(type(record.value)):
        return key, prefixed.build_prefixed(record.value, record.version)
    return key, messages.build(record.value, record.version)


def _start(cls: type[Any]) -> int:
    """Return where the message begins: KRaft's messages contain the version as a field of their own."""
    return prefixed.SIZE if cls is EndTxnMarker else 0
