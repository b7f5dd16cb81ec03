"""Every error that ottla raises, one tree.

    OttlaError
    ├── LocalProtocolError       you asked for something that the protocol, or this object, does not allow now
    │   ├── Closed               the client, producer or consumer is closed
    │   └── UnknownVersion       a message has no such version: .version .known
    ├── ConfigurationError       an option, address or file cannot be used: names it, and the valid ones
    ├── EncodeError              a value does not fit the message: .path, and the valid values
    ├── RemoteProtocolError      the peer broke the protocol; the connection is closed
    │   └── DecodeError          bytes that do not parse: .path, .offset, .within
    │       ├── ChecksumMismatch  a CRC that does not match the bytes: .stored, .computed
    │       └── MemoryLimitExceeded  a batch needs more memory than the caller allows
    ├── ConnectionLost           the connection broke; the outcome of requests in flight is unknown
    │   └── BrokerUnreachable    no connection could be made: which addresses, and the error of each
    ├── AuthenticationFailed     the broker refuses this client, or the client the broker: who, how, and why
    ├── TimeoutExpired           a deadline passed: which call, which node, after how long
    │   ├── DeliveryTimeout      a record was not acknowledged within `delivery_timeout`
    │   └── TransactionOutcomeUnknown  no broker has said whether a transaction is committed
    ├── BufferFull               the producer's memory is used up (`send_nowait` only; the other calls wait)
    ├── RecordTooLarge           one record is larger than a request may be
    ├── CommitFailed             offsets were not committed: which, and why; their records may be read again
    ├── AcknowledgementFailed    acknowledgements of shared records do not count, or may not: which records, and why
    ├── DeliveryFailed           records failed that no caller awaited: how many, which partitions, the first cause
    ├── TransactionAborted       records of the transaction have failed: how many, which partitions, the first cause
    ├── PartialFailure           a part of a call failed: which, and why; the other results are in .found
    ├── NoCommittedOffset        the group has no committed offset there, and ``start="error"``: seek, or choose a start
    ├── DataLoss                 requested records are no longer in the log
    │   └── LogTruncated         the log lost records that were read: .offset, and where it diverges from them
    └── BrokerError              the broker answered with an error code: .code .name .retriable .advice
        └── NotLeaderOrFollower, OffsetOutOfRange, …  one class per code, named as Kafka names it

Rule: this is the lowest module. It imports nothing of ottla, and every module may import it.
"""

import os
from collections.abc import Mapping
from typing import Any, ClassVar


class OttlaError(Exception):
    """The root: ``except OttlaError`` catches every error that ottla raises on purpose.

    Attributes:
        retriable: the same request may succeed later, perhaps on another connection. Usually set for a whole class;
            a single error may override it.
    """

    retriable: bool = False


class LocalProtocolError(OttlaError):
    """The caller asked for something that the protocol, or the state of this object, does not allow."""


class Closed(LocalProtocolError):
    """The client, producer or consumer is closed (or closing)."""


class UnknownVersion(LocalProtocolError):
    """A message does not have the requested version.

    Attributes:
        message: the name of its class.
        version: the requested version.
        known: the existing versions, such as ``0-13``.
    """

    def __init__(self, message: str, version: object, known: str) -> None:
        super().__init__(message, version, known)
        self.message = message
        self.version = version
        self.known = known

    def __str__(self) -> str:
        return f"{self.message} has versions {self.known}, not {self.version!r:.80}"


class ConfigurationError(OttlaError):
    """An option, an address or a file cannot be used; the message names the valid values."""


class EncodeError(OttlaError):
    """A value does not fit the message.

    Attributes:
        path: of the field, such as ``ProduceRequest.topic_data[0].name``.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class RemoteProtocolError(OttlaError):
    """The peer broke the protocol; its connection is closed."""

    retriable = True


class DecodeError(RemoteProtocolError):
    """Bytes that do not parse; reading them again would not help.

    Attributes:
        path: of the field, such as ``MetadataResponse.topics[3].partitions[0].leader_epoch``.
        offset: in bytes from the start of the parsed bytes, or of the part named by ``within``; -1 if unknown.
        within: the part to which the bytes belong, such as ``flights-0, batch at offset 17``; empty if only the caller
            knows.
    """

    retriable = False

    def __init__(self, reason: str, path: str = "", offset: int = -1, within: str = "") -> None:
        super().__init__(reason, path, offset, within)
        self.reason = reason
        self.path = path
        self.offset = offset
        self.within = within

    def __str__(self) -> str:
        where = " ".join(part for part in (self.path, f"at byte {self.offset}" if self.offset >= 0 else "") if part)
        return ": ".join(part for part in (self.within, where, self.reason) if part)


class ChecksumMismatch(DecodeError):
    """The bytes are not the ones that were written: they changed on a disk, in memory or on the network.

    Attributes:
        stored: the CRC stored with the bytes.
        computed: the CRC of the bytes that it covers.
    """

    def __init__(self, stored: int, computed: int, path: str = "", offset: int = -1, within: str = "") -> None:
        reason = f"the stored CRC is {stored:#010x}, but the CRC of the bytes is {computed:#010x}"
        super().__init__(reason, path, offset, within)
        self.args = (stored, computed, path, offset, within)  # copying and pickling use these
        self.stored = stored
        self.computed = computed


class MemoryLimitExceeded(DecodeError):
    """A batch needs more memory than the caller allows: decompressed, and with its objects.

    The batch may be intact. A few bytes can expand to many, so readers limit a batch; a higher limit can read this one.
    """


class ConnectionLost(OttlaError):
    """The connection broke: requests in flight may or may not have been executed.

    Attributes:
        accepted: the other side had accepted the connection before; otherwise that is not known.
    """

    retriable = True

    def __init__(self, message: str = "", *, accepted: bool = False) -> None:
        super().__init__(message)
        self.accepted = accepted


class BrokerUnreachable(ConnectionLost):
    """No connection could be made; the message lists each address and its error."""


class AuthenticationFailed(OttlaError):
    """The broker refuses this client, or this client the broker, until a password or a certificate changes."""


class TimeoutExpired(OttlaError):
    """A deadline passed; the message says which call, to which node, after how long."""

    retriable = True


class DeliveryTimeout(TimeoutExpired):
    """A record was not acknowledged within `delivery_timeout`; it may or may not be in the log."""


class TransactionOutcomeUnknown(TimeoutExpired):
    """No broker has said in time whether a transaction is committed or aborted; it is one of the two, as a whole.

    The producer goes on asking, and its next transaction begins once the outcome is known.
    """


class BufferFull(OttlaError):
    """The producer's buffer has no space for the record: await `send_soon`, or flush."""


class RecordTooLarge(OttlaError):
    """A single record is larger than a request may be (`max_request_size`)."""


class DeliveryFailed(OttlaError):
    """Records were not delivered, and no caller awaited them.

    Attributes:
        count: how many.
        partitions: ``{(topic, partition): count}``; partition -1 if none had been chosen yet.
        cause: the first error (also ``__cause__``).
    """

    def __init__(self, count: int, partitions: dict[tuple[str, int], int], cause: OttlaError) -> None:
        super().__init__(count, partitions, cause)
        self.count = count
        self.partitions = partitions
        self.cause = cause
        self.__cause__ = cause

    def __str__(self) -> str:
        where = ", ".join(
            f"{topic}{'' if partition < 0 else f'-{partition}'}: {n}"
            for (topic, partition), n in sorted(self.partitions.items())
        )
        return f"{self.count} record(s) were not delivered ({where}); first cause: {_named(self.cause)}"


def _named(cause: OttlaError) -> str:
    """An error with its kind; the text of a broker's error begins with Kafka's name for it already."""
    return str(cause) if isinstance(cause, BrokerError) else f"{type(cause).__name__}: {cause}"


class TransactionAborted(OttlaError):
    """The transaction could not be committed, because a part of it failed.

    Attributes:
        partitions: ``{(topic, partition): count}`` of the undelivered records; empty if something else failed.
        cause: the first error (also ``__cause__``).
    """

    def __init__(self, partitions: dict[tuple[str, int], int], cause: OttlaError) -> None:
        super().__init__(partitions, cause)
        self.partitions = partitions
        self.cause = cause
        self.__cause__ = cause

    def __str__(self) -> str:
        where = ", ".join(f"{topic}-{partition}: {n}" for (topic, partition), n in sorted(self.partitions.items()))
        lost = f"{sum(self.partitions.values())} record(s) were not delivered ({where}); " if where else ""
        return f"the transaction is aborted: {lost}first cause: {_named(self.cause)}"


class CommitFailed(OttlaError):
    """Offsets were not committed, and will not be: the next owner of these partitions reads their records again.

    Attributes:
        offsets: ``{(topic, partition): offset}``.
        cause: why, if the broker said so (also ``__cause__``).
    """

    def __init__(self, reason: str, offsets: dict[tuple[str, int], int], cause: "OttlaError | None" = None) -> None:
        super().__init__(reason, offsets, cause)
        self.reason = reason
        self.offsets = offsets
        self.cause = cause
        self.__cause__ = cause

    def __str__(self) -> str:
        places = [f"{topic}-{partition} at {offset}" for (topic, partition), offset in sorted(self.offsets.items())]
        where = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
        return f"{self.reason} ({where})"


class AcknowledgementFailed(OttlaError):
    """Acknowledgements of a share group's records do not count, or may not: the records are delivered again.

    Attributes:
        records: ``{(topic, partition, offset): outcome_unknown}``. ``False``: the acknowledgement does not count, and
            the record is delivered again. ``True``: its outcome is unknown, so it may count.
        reason: why.
    """

    def __init__(self, reason: str, records: Mapping[tuple[str, int, int], bool]) -> None:
        super().__init__(reason, records)
        self.reason = reason
        self.records = dict(records)

    @property
    def outcome_unknown(self) -> bool:
        """Whether one of the acknowledgements may count after all."""
        return any(self.records.values())

    def __str__(self) -> str:
        offsets = [f"{topic}-{partition} at {offset}" for topic, partition, offset in sorted(self.records)]
        where = ", ".join(offsets[:5]) + (f" and {len(offsets) - 5} more" if len(offsets) > 5 else "")
        again = (
            "are delivered again, unless the acknowledgement counts after all"
            if self.outcome_unknown
            else ("are delivered again")
        )
        subject = "this record" if len(offsets) == 1 else "these records"
        if len(offsets) == 1:
            again = again.replace("are", "is", 1)
        return f"{self.reason}: {subject} {again} ({where})"


class PartialFailure(OttlaError):
    """A part of a call failed.

    Attributes:
        found: the other results, in the form in which the call would have returned them.
        failures: ``{name: error}``, where the name is a broker's, a group's or a partition's.
    """

    def __init__(self, what: str, found: Any, failures: Mapping[str, OttlaError]) -> None:
        super().__init__(what, found, failures)
        self.what = what
        self.found = found
        self.failures = dict(failures)

    def __str__(self) -> str:
        lines = [f"{name}: {error}" for name, error in self.failures.items()]
        rest = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
        return f"{self.what}: {len(lines)} failed. {'; '.join(lines[:5])}{rest}"


class DataLoss(OttlaError):
    """Requested records are not in the log (any more); the message names them, and the offsets in the log."""


class NoCommittedOffset(OttlaError):
    """The group has no committed offset for a partition, and with ``start="error"`` the caller has to choose one."""


class LogTruncated(DataLoss):
    """The log lost records that were read: a replica without them became the leader (an unclean election), or a broker
    crashed before it had written everything to its disk.

    Attributes:
        topic, partition: of the log.
        offset: of the next record to read.
        diverging: up to this offset the log still has the records read; ``None`` if unknown.
    """

    def __init__(self, topic: str, partition: int, offset: int, diverging: int | None) -> None:
        super().__init__(topic, partition, offset, diverging)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.diverging = diverging

    def __str__(self) -> str:
        up_to = "an unknown offset" if self.diverging is None else f"offset {self.diverging}"
        where = f"{self.topic}-{self.partition} was read up to offset {self.offset}"
        why = "the rest was lost in an election or a crash"
        advice = "seek there to continue with the log as it is now, or choose reset='beginning' or 'end'"
        return f"{where}, but its leader has these records only up to {up_to}, {why}: {advice}"


_WHY_DENIED = "an administrator sees why with `ottla acls list` (proxy: its log and [[acls]])."
"""Not the client itself: it may not list ACLs either, unless it has rights on the cluster."""


class BrokerError(OttlaError):
    """The broker answered with an error code.

    Attributes:
        code: Kafka's number.
        name: Kafka's name.
        advice: what to do about it, for people; part of ``str(error)``.
        retriable: the same request may succeed later, as with every `OttlaError`.
        stale_metadata: the client should refresh its metadata before a retry.
        abortable: the transaction must be aborted, but the producer may continue.
        fatal: this producer or member can never succeed again.
        told: what happened in this particular case, and what to do about it, if that is known: ``str(error)`` has it
            instead of the general text of the class.
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    advice: ClassVar[str] = ""
    stale_metadata: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __init__(self, detail: str = "", *, told: str = "") -> None:
        super().__init__(detail)
        self.detail, self.told = detail, told

    def __str__(self) -> str:
        # The docstring has reStructuredText markup, which `advice`, a text for people, does not.
        meaning = " ".join((type(self).__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")
        said = self.told or f"{meaning} {self.advice}"
        return f"{self.name} ({self.code}): {said}" + (f" [{self.detail}]" if self.detail else "")


class UnknownErrorCode(BrokerError):
    """The broker answered with a code that this version of ottla does not know."""

    advice = "Look the number up in Kafka's documentation, or use a newer ottla."

    def __init__(self, number: int, detail: str = "") -> None:
        super().__init__(detail)
        self.number = number

    def __str__(self) -> str:
        what = f"error code {self.number}, unknown to this version of ottla. {self.advice}"
        return what + (f" [{self.detail}]" if self.detail else "")


class UnknownServerError(BrokerError):
    """The broker failed unexpectedly."""

    code = -1
    name = "UNKNOWN_SERVER_ERROR"
    advice = "Read the broker's log of this time: it has the cause."


class OffsetOutOfRange(BrokerError):
    """The offset is not within the log: it was deleted by retention, or never written."""

    code = 1
    name = "OFFSET_OUT_OF_RANGE"
    advice = "Start from the log's beginning or end; if records are missing, look at the topic's retention."


class CorruptMessage(BrokerError):
    """The bytes fail their CRC or do not parse as a record batch."""

    code = 2
    name = "CORRUPT_MESSAGE"
    advice = "Retry; if it comes back, look for a bad disk or network card, or a null key in a compacted topic."
    retriable = True


class UnknownTopicOrPartition(BrokerError):
    """The broker does not host this topic or partition."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    advice = "Check the topic's name, and how many partitions it has. If it is new, wait a few seconds."
    retriable = True
    stale_metadata = True


class InvalidFetchSize(BrokerError):
    """The fetch size is negative or too large."""

    code = 4
    name = "INVALID_FETCH_SIZE"
    advice = "Use a positive number of bytes."


class LeaderNotAvailable(BrokerError):
    """The partition has no leader at this moment: an election is under way."""

    code = 5
    name = "LEADER_NOT_AVAILABLE"
    advice = "Wait for the election; if it lasts, see which of the partition's brokers are down."
    retriable = True
    stale_metadata = True


class NotLeaderOrFollower(BrokerError):
    """This broker is not (or no longer) the leader or a replica of the partition."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"
    advice = "Refresh the metadata and retry; if it lasts, the brokers disagree: look at the controller's log."
    retriable = True
    stale_metadata = True


class RequestTimedOut(BrokerError):
    """The broker could not finish the request within its time-out."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    advice = "Retry; if it lasts, look for overloaded or unreachable brokers, or allow the request more time."
    retriable = True


class BrokerNotAvailable(BrokerError):
    """The broker is down."""

    code = 8
    name = "BROKER_NOT_AVAILABLE"
    advice = "See whether the broker runs, and start it."


class ReplicaNotAvailable(BrokerError):
    """This broker has no replica of the partition now."""

    code = 9
    name = "REPLICA_NOT_AVAILABLE"
    advice = "Wait for the replica, or read from the leader."
    retriable = True
    stale_metadata = True


class MessageTooLarge(BrokerError):
    """The batch is larger than the broker's `message.max.bytes` or the topic's `max.message.bytes`."""

    code = 10
    name = "MESSAGE_TOO_LARGE"
    advice = "Send smaller batches, or raise `max.message.bytes` of the topic."


class StaleControllerEpoch(BrokerError):
    """The controller has moved to a newer epoch."""

    code = 11
    name = "STALE_CONTROLLER_EPOCH"
    advice = "Do nothing: the brokers settle this among themselves; if it lasts, look at the controller's log."


class OffsetMetadataTooLarge(BrokerError):
    """The metadata string of an offset commit is too long."""

    code = 12
    name = "OFFSET_METADATA_TOO_LARGE"
    advice = "Commit less metadata, or raise the broker's `offset.metadata.max.bytes`."


class Network(BrokerError):
    """The connection broke before an answer came."""

    code = 13
    name = "NETWORK_EXCEPTION"
    advice = "Retry; if it lasts, look at the network and at the broker's log."
    retriable = True
    stale_metadata = True


class CoordinatorLoadInProgress(BrokerError):
    """The coordinator is still loading its log."""

    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"
    advice = "Wait: loading takes seconds, with large internal topics minutes."
    retriable = True


class CoordinatorNotAvailable(BrokerError):
    """The coordinator is not running (yet)."""

    code = 15
    name = "COORDINATOR_NOT_AVAILABLE"
    advice = "Wait; if it lasts, see whether `__consumer_offsets` and `__transaction_state` have leaders."
    retriable = True


class NotCoordinator(BrokerError):
    """This broker is not the coordinator of the group or transaction."""

    code = 16
    name = "NOT_COORDINATOR"
    advice = "Look the coordinator up again and retry."
    retriable = True


class InvalidTopic(BrokerError):
    """The topic's name is empty, too long, reserved for an internal topic, or has forbidden characters."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"
    advice = "Use another name: 1 to 249 letters, digits, `.`, `_` and `-`; leave internal topics alone."


class RecordListTooLarge(BrokerError):
    """The batch is larger than the topic's segments (`segment.bytes`)."""

    code = 18
    name = "RECORD_LIST_TOO_LARGE"
    advice = "Send smaller batches, or raise `segment.bytes` of the topic."


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than `min.insync.replicas` demands; no record was written."""

    code = 19
    name = "NOT_ENOUGH_REPLICAS"
    advice = "Start the missing replicas' brokers; until then only producers with `acks` below all can write."
    retriable = True


class NotEnoughReplicasAfterAppend(BrokerError):
    """The records were written, but to fewer in-sync replicas than `min.insync.replicas` demands."""

    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    advice = "Start the missing replicas' brokers; a retry may store records twice unless the producer is idempotent."
    retriable = True


class InvalidRequiredAcks(BrokerError):
    """`acks` must be -1, 0 or 1."""

    code = 21
    name = "INVALID_REQUIRED_ACKS"
    advice = "Set `acks` to 0, 1 or all (-1)."


class IllegalGeneration(BrokerError):
    """The group has moved on to another generation."""

    code = 22
    name = "ILLEGAL_GENERATION"
    advice = "Rejoin the group; if it happens often, the member takes too long between polls."


class InconsistentGroupProtocol(BrokerError):
    """The member's protocols have nothing in common with the group's."""

    code = 23
    name = "INCONSISTENT_GROUP_PROTOCOL"
    advice = "Give all members a common assignor and the same protocol type; a share group has share consumers only."


class InvalidGroupId(BrokerError):
    """The group id is empty or not valid."""

    code = 24
    name = "INVALID_GROUP_ID"
    advice = "Give the group a name that is not empty."


class UnknownMemberId(BrokerError):
    """The coordinator does not know this member."""

    code = 25
    name = "UNKNOWN_MEMBER_ID"
    advice = "Rejoin the group; if it happens often, the member's session times out: look for long pauses."


class InvalidSessionTimeout(BrokerError):
    """The session time-out is outside the range that the broker allows."""

    code = 26
    name = "INVALID_SESSION_TIMEOUT"
    advice = (
        "Give seconds; the broker's `group.min.session.timeout.ms` and `group.max.session.timeout.ms` are the limits."
    )


class RebalanceInProgress(BrokerError):
    """The group is rebalancing."""

    code = 27
    name = "REBALANCE_IN_PROGRESS"
    advice = "Rejoin the group; commit offsets when the rebalance has ended."


class InvalidCommitOffsetSize(BrokerError):
    """The offset commit is too large."""

    code = 28
    name = "INVALID_COMMIT_OFFSET_SIZE"
    advice = "Commit fewer partitions at a time, or less metadata with each."


class TopicAuthorizationFailed(BrokerError):
    """The principal may not use this topic."""

    code = 29
    name = "TOPIC_AUTHORIZATION_FAILED"
    advice = f"A right on this topic is missing: {_WHY_DENIED}"


class GroupAuthorizationFailed(BrokerError):
    """The principal may not use this group."""

    code = 30
    name = "GROUP_AUTHORIZATION_FAILED"
    advice = f"Consuming needs Read on the group: {_WHY_DENIED}"


class ClusterAuthorizationFailed(BrokerError):
    """The principal may not do this on the cluster."""

    code = 31
    name = "CLUSTER_AUTHORIZATION_FAILED"
    advice = f"A right on the cluster is missing: {_WHY_DENIED}"


class InvalidTimestamp(BrokerError):
    """A record's timestamp is outside the range that the topic accepts."""

    code = 32
    name = "INVALID_TIMESTAMP"
    advice = "Set the clock right, or widen the topic's `message.timestamp.before.max.ms` and `.after.max.ms`."


class UnsupportedSaslMechanism(BrokerError):
    """The broker does not offer this SASL mechanism."""

    code = 33
    name = "UNSUPPORTED_SASL_MECHANISM"
    advice = "Choose a mechanism from the broker's `sasl.enabled.mechanisms`."


class IllegalSaslState(BrokerError):
    """The SASL exchange is not in a state that allows this request."""

    code = 34
    name = "ILLEGAL_SASL_STATE"
    advice = "Authenticate first, and only once; check that client and listener agree on using SASL."


class UnsupportedVersion(BrokerError):
    """The broker does not serve this version of the API."""

    code = 35
    name = "UNSUPPORTED_VERSION"
    advice = "Upgrade the older of client and broker, or use a version that both support."


class TopicAlreadyExists(BrokerError):
    """A topic of this name exists already."""

    code = 36
    name = "TOPIC_ALREADY_EXISTS"
    advice = "Use the existing topic, or choose another name."


class InvalidPartitions(BrokerError):
    """The number of partitions is not valid here."""

    code = 37
    name = "INVALID_PARTITIONS"
    advice = "Request at least one partition, and more than the topic has now if you add partitions."


class InvalidReplicationFactor(BrokerError):
    """The replication factor is below one or above the number of brokers."""

    code = 38
    name = "INVALID_REPLICATION_FACTOR"
    advice = "Request at least one replica, and no more than the cluster has brokers."


class InvalidReplicaAssignment(BrokerError):
    """The replica assignment is not valid."""

    code = 39
    name = "INVALID_REPLICA_ASSIGNMENT"
    advice = "Name brokers that exist, each once, and as many for each partition."


class InvalidConfig(BrokerError):
    """The configuration is not valid."""

    code = 40
    name = "INVALID_CONFIG"
    advice = "Correct the setting that the broker's message names."


class NotController(BrokerError):
    """This broker is not the controller."""

    code = 41
    name = "NOT_CONTROLLER"
    advice = "Refresh the metadata, and send the request to the controller."
    retriable = True


class InvalidRequest(BrokerError):
    """The request contradicts itself or the protocol."""

    code = 42
    name = "INVALID_REQUEST"
    advice = "Read the broker's log: it says what is wrong with the request; a newer client may help."


class UnsupportedForMessageFormat(BrokerError):
    """The topic's message format is too old for this request."""

    code = 43
    name = "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    advice = "Raise the topic's message format, or leave the feature out."


class PolicyViolation(BrokerError):
    """The broker's policy forbids this request."""

    code = 44
    name = "POLICY_VIOLATION"
    advice = "Ask the operators of the cluster what its policy allows."


class OutOfOrderSequenceNumber(BrokerError):
    """The batch's sequence does not follow the last one stored: a batch before it is missing."""

    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    advice = "Abort the transaction, or close the producer: records before these may be lost."


class DuplicateSequenceNumber(BrokerError):
    """The batch was stored before."""

    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"
    advice = "Do nothing: the records are in the log, only their offset is not known."


class InvalidProducerEpoch(BrokerError):
    """The producer's epoch is older than the broker's, or unknown to it."""

    code = 47
    name = "INVALID_PRODUCER_EPOCH"
    advice = "Close this producer, or abort its transaction: a newer one has its id, or the transaction timed out."
    fatal = True


class InvalidTxnState(BrokerError):
    """The transaction is not in a state that allows this."""

    code = 48
    name = "INVALID_TXN_STATE"
    advice = "Abort the transaction; if it comes back, the program commits or sends in the wrong order."


class InvalidProducerIdMapping(BrokerError):
    """The producer id does not belong to this transactional id."""

    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"
    advice = "Close the producer and open a new one: the id has expired (`transactional.id.expiration.ms`)."
    fatal = True


class InvalidTransactionTimeout(BrokerError):
    """The transaction time-out is larger than the broker allows."""

    code = 50
    name = "INVALID_TRANSACTION_TIMEOUT"
    advice = "Lower `transaction_timeout` (seconds), or raise the broker's `transaction.max.timeout.ms` (15 minutes)."


class ConcurrentTransactions(BrokerError):
    """Another operation on the same transaction is still under way."""

    code = 51
    name = "CONCURRENT_TRANSACTIONS"
    advice = "Wait and retry: the transaction before this one is being finished."
    retriable = True


class TransactionCoordinatorFenced(BrokerError):
    """The transaction coordinator has been replaced by a newer one."""

    code = 52
    name = "TRANSACTION_COORDINATOR_FENCED"
    advice = "Do nothing: the new coordinator takes over; if it lasts, look at the brokers' logs."
    fatal = True


class TransactionalIdAuthorizationFailed(BrokerError):
    """The principal may not use this transactional id."""

    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    advice = f"Producing needs Write on the id: {_WHY_DENIED}"


class SecurityDisabled(BrokerError):
    """The broker has no authorizer, so it has no ACLs."""

    code = 54
    name = "SECURITY_DISABLED"
    advice = "Configure an authorizer on the brokers, or use no ACLs."


class OperationNotAttempted(BrokerError):
    """The broker did not try this, because another part of the request failed."""

    code = 55
    name = "OPERATION_NOT_ATTEMPTED"
    advice = "Correct the part of the request that failed, and send this again."


class KafkaStorageError(BrokerError):
    """The broker's disk failed or is full, or a file on it is damaged."""

    code = 56
    name = "KAFKA_STORAGE_ERROR"
    advice = "Read the broker's log: then free space, replace the failed disk, or restore the damaged file."
    retriable = True
    stale_metadata = True


class LogDirNotFound(BrokerError):
    """The log folder is not known to the broker."""

    code = 57
    name = "LOG_DIR_NOT_FOUND"
    advice = "Name a folder of the broker's `log.dirs`."


class SaslAuthenticationFailed(BrokerError):
    """Authentication failed: the credentials are not valid."""

    code = 58
    name = "SASL_AUTHENTICATION_FAILED"
    advice = "Check user, password or token, and the mechanism."


class UnknownProducerId(BrokerError):
    """The broker has no state for this producer id."""

    code = 59
    name = "UNKNOWN_PRODUCER_ID"
    advice = "Close the producer and open a new one: its records were deleted, and its state with them."


class ReassignmentInProgress(BrokerError):
    """A reassignment of the partition is under way."""

    code = 60
    name = "REASSIGNMENT_IN_PROGRESS"
    advice = "Wait until the reassignment is done, or cancel it."


class DelegationTokenAuthDisabled(BrokerError):
    """Delegation tokens are switched off on the broker."""

    code = 61
    name = "DELEGATION_TOKEN_AUTH_DISABLED"
    advice = "Set `delegation.token.secret.key` on every broker, or use other credentials."


class DelegationTokenNotFound(BrokerError):
    """The delegation token is not known."""

    code = 62
    name = "DELEGATION_TOKEN_NOT_FOUND"
    advice = "Get a new token: this one was never given or has been removed."


class DelegationTokenOwnerMismatch(BrokerError):
    """Only the token's owner or a renewer may do this."""

    code = 63
    name = "DELEGATION_TOKEN_OWNER_MISMATCH"
    advice = "Use the principal that owns the token, or one of its renewers."


class DelegationTokenRequestNotAllowed(BrokerError):
    """Delegation tokens need a secured, token-free connection."""

    code = 64
    name = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
    advice = "Connect by TLS with a certificate or by SASL, and not by a delegation token."


class DelegationTokenAuthorizationFailed(BrokerError):
    """The principal may not use delegation tokens."""

    code = 65
    name = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
    advice = f"A right on this token is missing: {_WHY_DENIED}"


class DelegationTokenExpired(BrokerError):
    """The delegation token has expired."""

    code = 66
    name = "DELEGATION_TOKEN_EXPIRED"
    advice = "Get a new token, and renew it in time."


class InvalidPrincipalType(BrokerError):
    """The type of principal is not supported."""

    code = 67
    name = "INVALID_PRINCIPAL_TYPE"
    advice = "Use principals of type `User`."


class NonEmptyGroup(BrokerError):
    """The group still has members."""

    code = 68
    name = "NON_EMPTY_GROUP"
    advice = "Stop the group's members first."


class GroupIdNotFound(BrokerError):
    """No group of this id exists."""

    code = 69
    name = "GROUP_ID_NOT_FOUND"
    advice = "Check the group's name; groups without members and offsets are removed after a while."


class FetchSessionIdNotFound(BrokerError):
    """The broker has forgotten the fetch session."""

    code = 70
    name = "FETCH_SESSION_ID_NOT_FOUND"
    advice = "Open a new session; if it happens often, raise the brokers' `max.incremental.fetch.session.cache.slots`."
    retriable = True


class InvalidFetchSessionEpoch(BrokerError):
    """The fetch session's epoch does not follow the last one."""

    code = 71
    name = "INVALID_FETCH_SESSION_EPOCH"
    advice = "Open a new fetch session."
    retriable = True


class ListenerNotFound(BrokerError):
    """The leader has no listener with the name of the listener that got the request."""

    code = 72
    name = "LISTENER_NOT_FOUND"
    advice = "Give every broker the same listeners."
    retriable = True
    stale_metadata = True


class TopicDeletionDisabled(BrokerError):
    """Deleting topics is switched off on the broker."""

    code = 73
    name = "TOPIC_DELETION_DISABLED"
    advice = "Set `delete.topic.enable` on the brokers."


class FencedLeaderEpoch(BrokerError):
    """The leader epoch in the request is older than the broker's."""

    code = 74
    name = "FENCED_LEADER_EPOCH"
    advice = "Refresh the metadata and retry."
    retriable = True
    stale_metadata = True


class UnknownLeaderEpoch(BrokerError):
    """The leader epoch in the request is newer than the broker's."""

    code = 75
    name = "UNKNOWN_LEADER_EPOCH"
    advice = "Retry: the broker learns of the new leader in a moment."
    retriable = True


class UnsupportedCompressionType(BrokerError):
    """The broker or this version of the request does not support the compression."""

    code = 76
    name = "UNSUPPORTED_COMPRESSION_TYPE"
    advice = "Use a compression that both sides know: zstd needs Kafka 2.1 or newer."


class StaleBrokerEpoch(BrokerError):
    """The broker's epoch is stale."""

    code = 77
    name = "STALE_BROKER_EPOCH"
    advice = "Do nothing: the broker registers again; if it lasts, look at its log."


class OffsetNotAvailable(BrokerError):
    """The leader does not know its high watermark yet, because it was just elected."""

    code = 78
    name = "OFFSET_NOT_AVAILABLE"
    advice = "Retry: an election takes moments."
    retriable = True


class MemberIdRequired(BrokerError):
    """The member has no member id yet; this response has one."""

    code = 79
    name = "MEMBER_ID_REQUIRED"
    advice = "Join again with the member id of the response."


class PreferredLeaderNotAvailable(BrokerError):
    """The preferred leader is not available."""

    code = 80
    name = "PREFERRED_LEADER_NOT_AVAILABLE"
    advice = "Wait for the preferred leader to come back in sync, then elect again."
    retriable = True
    stale_metadata = True


class GroupMaxSizeReached(BrokerError):
    """The group has as many members as the broker allows."""

    code = 81
    name = "GROUP_MAX_SIZE_REACHED"
    advice = "Run fewer members, or raise the broker's `group.max.size`."


class FencedInstanceId(BrokerError):
    """Another member with the same group.instance.id has taken over."""

    code = 82
    name = "FENCED_INSTANCE_ID"
    advice = "Give every member its own `group.instance.id`; this one must stop."
    fatal = True


class EligibleLeadersNotAvailable(BrokerError):
    """No eligible leader is available."""

    code = 83
    name = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    advice = "Bring a replica back that was in sync; an unclean election loses records."
    retriable = True
    stale_metadata = True


class ElectionNotNeeded(BrokerError):
    """The partition needs no election: it has a leader already."""

    code = 84
    name = "ELECTION_NOT_NEEDED"
    advice = "Do nothing: the partition needs no election."
    retriable = True
    stale_metadata = True


class NoReassignmentInProgress(BrokerError):
    """No reassignment is under way."""

    code = 85
    name = "NO_REASSIGNMENT_IN_PROGRESS"
    advice = "Do nothing: no reassignment needs to be cancelled."


class GroupSubscribedToTopic(BrokerError):
    """The group is subscribed to the topic."""

    code = 86
    name = "GROUP_SUBSCRIBED_TO_TOPIC"
    advice = "Stop the members that subscribe to the topic first."


class InvalidRecord(BrokerError):
    """A record does not meet the requirements of the broker or the topic."""

    code = 87
    name = "INVALID_RECORD"
    advice = "Correct the record that the broker's message names: a compacted topic needs keys, for example."


class UnstableOffsetCommit(BrokerError):
    """Offsets of an open transaction are not settled yet."""

    code = 88
    name = "UNSTABLE_OFFSET_COMMIT"
    advice = "Retry: the coordinator is about to end the transaction that has the offsets."
    retriable = True


class ThrottlingQuotaExceeded(BrokerError):
    """The client has used up a quota."""

    code = 89
    name = "THROTTLING_QUOTA_EXCEEDED"
    advice = "Wait for the throttle time of the response, or raise the quota."
    retriable = True


class ProducerFenced(BrokerError):
    """A newer producer has taken over this transactional id or producer id."""

    code = 90
    name = "PRODUCER_FENCED"
    advice = "Stop this producer: another one with its id has replaced it."
    fatal = True


class ResourceNotFound(BrokerError):
    """No such resource."""

    code = 91
    name = "RESOURCE_NOT_FOUND"
    advice = "Check the name of the resource."


class DuplicateResource(BrokerError):
    """The resource exists already."""

    code = 92
    name = "DUPLICATE_RESOURCE"
    advice = "Name each thing once in a request."


class UnacceptableCredential(BrokerError):
    """The credential does not meet the broker's requirements."""

    code = 93
    name = "UNACCEPTABLE_CREDENTIAL"
    advice = "Choose a stronger password, or more iterations."


class InconsistentVoterSet(BrokerError):
    """The voter sets of the two sides differ."""

    code = 94
    name = "INCONSISTENT_VOTER_SET"
    advice = "Give every controller the same list of voters."


class InvalidUpdateVersion(BrokerError):
    """The update version is not valid."""

    code = 95
    name = "INVALID_UPDATE_VERSION"
    advice = "Use the version that the broker knows; try again if another update came first."


class FeatureUpdateFailed(BrokerError):
    """A feature could not be updated."""

    code = 96
    name = "FEATURE_UPDATE_FAILED"
    advice = "Read the active controller's log, then try again."


class PrincipalDeserializationFailure(BrokerError):
    """The principal could not be read."""

    code = 97
    name = "PRINCIPAL_DESERIALIZATION_FAILURE"
    advice = "Give every broker the same principal builder: a forwarded request could not be read."


class SnapshotNotFound(BrokerError):
    """The snapshot does not exist."""

    code = 98
    name = "SNAPSHOT_NOT_FOUND"
    advice = "Ask for the newest snapshot: this one was removed."


class PositionOutOfRange(BrokerError):
    """The position is not within the snapshot."""

    code = 99
    name = "POSITION_OUT_OF_RANGE"
    advice = "Ask within the snapshot's size."


class UnknownTopicId(BrokerError):
    """The broker does not know this topic id."""

    code = 100
    name = "UNKNOWN_TOPIC_ID"
    advice = "Refresh the metadata and retry: the topic is new, or it was deleted."
    retriable = True
    stale_metadata = True


class DuplicateBrokerRegistration(BrokerError):
    """A broker of this id is registered already."""

    code = 101
    name = "DUPLICATE_BROKER_REGISTRATION"
    advice = "Give each broker its own `node.id`, or wait until the old process has gone."


class BrokerIdNotRegistered(BrokerError):
    """No broker of this id is registered."""

    code = 102
    name = "BROKER_ID_NOT_REGISTERED"
    advice = "Check the broker's id: no broker is registered with it."


class InconsistentTopicId(BrokerError):
    """The topic id differs from the broker's: the topic was deleted and recreated."""

    code = 103
    name = "INCONSISTENT_TOPIC_ID"
    advice = "Refresh the metadata: the topic was deleted and recreated."
    retriable = True
    stale_metadata = True


class InconsistentClusterId(BrokerError):
    """The cluster id differs from the broker's: this is another cluster."""

    code = 104
    name = "INCONSISTENT_CLUSTER_ID"
    advice = "Check the addresses: these brokers belong to another cluster than before."


class TransactionalIdNotFound(BrokerError):
    """No transaction of this transactional id exists."""

    code = 105
    name = "TRANSACTIONAL_ID_NOT_FOUND"
    advice = "Check the transactional id; brokers remove idle ones after `transactional.id.expiration.ms`."


class FetchSessionTopicIdError(BrokerError):
    """The fetch session mixes topic ids and names."""

    code = 106
    name = "FETCH_SESSION_TOPIC_ID_ERROR"
    advice = "Open a new fetch session."
    retriable = True


class IneligibleReplica(BrokerError):
    """The replica may not join the in-sync replicas."""

    code = 107
    name = "INELIGIBLE_REPLICA"
    advice = "Do nothing: the controller tries the replica again when it is eligible."


class NewLeaderElected(BrokerError):
    """A new leader was elected meanwhile."""

    code = 108
    name = "NEW_LEADER_ELECTED"
    advice = "Do nothing: the brokers refresh their state."


class OffsetMovedToTieredStorage(BrokerError):
    """The offset has moved to tiered storage."""

    code = 109
    name = "OFFSET_MOVED_TO_TIERED_STORAGE"
    advice = "Fetch the records from remote storage, or start after them."


class FencedMemberEpoch(BrokerError):
    """The member's epoch is old: another instance has taken over."""

    code = 110
    name = "FENCED_MEMBER_EPOCH"
    advice = "Give up all partitions and join again."


class UnreleasedInstanceId(BrokerError):
    """The static member's instance id is still held by another member."""

    code = 111
    name = "UNRELEASED_INSTANCE_ID"
    advice = "Stop the other member with this instance id, or wait for its session to end."


class UnsupportedAssignor(BrokerError):
    """The broker does not have this assignor."""

    code = 112
    name = "UNSUPPORTED_ASSIGNOR"
    advice = "Choose an assignor that the group's coordinator has."


class StaleMemberEpoch(BrokerError):
    """The member's epoch is behind the coordinator's."""

    code = 113
    name = "STALE_MEMBER_EPOCH"
    advice = "Wait for the next heartbeat, and retry with the epoch that it brings."


class MismatchedEndpointType(BrokerError):
    """The request went to the wrong kind of endpoint (broker or controller)."""

    code = 114
    name = "MISMATCHED_ENDPOINT_TYPE"
    advice = "Send requests for controllers to the controllers' listener, and all others to the brokers'."


class UnsupportedEndpointType(BrokerError):
    """The kind of endpoint is not supported."""

    code = 115
    name = "UNSUPPORTED_ENDPOINT_TYPE"
    advice = "Ask for brokers or controllers: no other kind of endpoint is known."


class UnknownControllerId(BrokerError):
    """The controller id is not known."""

    code = 116
    name = "UNKNOWN_CONTROLLER_ID"
    advice = "Check the controller's id."


class UnknownSubscriptionId(BrokerError):
    """The telemetry subscription is out of date."""

    code = 117
    name = "UNKNOWN_SUBSCRIPTION_ID"
    advice = "Ask for the telemetry subscription again, and push under its new id."


class TelemetryTooLarge(BrokerError):
    """The telemetry is larger than the broker accepts."""

    code = 118
    name = "TELEMETRY_TOO_LARGE"
    advice = "Push fewer metrics at a time, or raise the broker's `telemetry.max.bytes`."


class InvalidRegistration(BrokerError):
    """The registration is not valid."""

    code = 119
    name = "INVALID_REGISTRATION"
    advice = "Read the controller's log: it says what is wrong with the broker's registration."


class TransactionAbortable(BrokerError):
    """The transaction must be aborted; the producer may continue with the next one."""

    code = 120
    name = "TRANSACTION_ABORTABLE"
    advice = "Abort the transaction and begin it again."
    abortable = True


class InvalidRecordState(BrokerError):
    """The shared record is not in a state that allows this."""

    code = 121
    name = "INVALID_RECORD_STATE"
    advice = "Do nothing: the lock on the record ran out, and another consumer gets it."


class ShareSessionNotFound(BrokerError):
    """The broker has forgotten the share session."""

    code = 122
    name = "SHARE_SESSION_NOT_FOUND"
    advice = "Open a new share session."
    retriable = True


class InvalidShareSessionEpoch(BrokerError):
    """The share session's epoch does not follow the last one."""

    code = 123
    name = "INVALID_SHARE_SESSION_EPOCH"
    advice = "Open a new share session."
    retriable = True


class FencedStateEpoch(BrokerError):
    """The share partition's state epoch is old."""

    code = 124
    name = "FENCED_STATE_EPOCH"
    advice = "Do nothing: a newer leader of the share partition has taken over."


class InvalidVoterKey(BrokerError):
    """The voter key does not match."""

    code = 125
    name = "INVALID_VOTER_KEY"
    advice = "Name the directory id that the voter really has."


class DuplicateVoter(BrokerError):
    """The voter is a member already."""

    code = 126
    name = "DUPLICATE_VOTER"
    advice = "Do nothing: it votes already."


class VoterNotFound(BrokerError):
    """The voter is not known."""

    code = 127
    name = "VOTER_NOT_FOUND"
    advice = "Check the voter's id and directory id."


class InvalidRegularExpression(BrokerError):
    """The regular expression is not valid."""

    code = 128
    name = "INVALID_REGULAR_EXPRESSION"
    advice = "Correct the expression: brokers use the syntax of RE2J."


class RebootstrapRequired(BrokerError):
    """The client must start over from its bootstrap addresses."""

    code = 129
    name = "REBOOTSTRAP_REQUIRED"
    advice = "Connect again through the bootstrap addresses."


class StreamsInvalidTopology(BrokerError):
    """The streams topology is not valid."""

    code = 130
    name = "STREAMS_INVALID_TOPOLOGY"
    advice = "Correct the topology: the broker's message says what is wrong with it."


class StreamsInvalidTopologyEpoch(BrokerError):
    """The streams topology's epoch is not valid."""

    code = 131
    name = "STREAMS_INVALID_TOPOLOGY_EPOCH"
    advice = "Begin topology epochs at 0, and raise them with each change."


class StreamsTopologyFenced(BrokerError):
    """The streams topology's epoch is old."""

    code = 132
    name = "STREAMS_TOPOLOGY_FENCED"
    advice = "Restart the member with the newest topology."


class ShareSessionLimitReached(BrokerError):
    """The broker holds as many share sessions as it may."""

    code = 133
    name = "SHARE_SESSION_LIMIT_REACHED"
    advice = "Wait until a session ends, or raise the broker's `group.share.max.share.sessions`."
    retriable = True


class GroupDeletionFailed(BrokerError):
    """The group could not be deleted, or not all of it."""

    code = 134
    name = "GROUP_DELETION_FAILED"
    advice = "Read the message beside the group, and try again."


class StreamsTopologyDescriptionUpdateFailed(BrokerError):
    """The coordinator could not take the description of the streams topology."""

    code = 135
    name = "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"
    advice = "Read the broker's message, then try again."


class ControllerIdNotRegistered(BrokerError):
    """No controller of this id is registered."""

    code = 136
    name = "CONTROLLER_ID_NOT_REGISTERED"
    advice = "Check the controller's id: no controller is registered with it."


BY_CODE: dict[int, type[BrokerError]] = {
    cls.code: cls for cls in BrokerError.__subclasses__() if cls is not UnknownErrorCode
}


def broker_error(code: int, detail: str | None = "", *, repeatable: bool = False) -> BrokerError:
    """The exception for a non-zero error ``code``.

    Args:
        detail: the broker's own message, or the subject of the request.
        repeatable: executing the request twice does no harm. So an error without a known cause (UNKNOWN_SERVER_ERROR,
            or a code that this version does not know) is retriable, as in Java's consumer.
    """
    cls = BY_CODE.get(code)
    error = UnknownErrorCode(code, detail or "") if cls is None else cls(detail or "")
    if repeatable and isinstance(error, UnknownServerError | UnknownErrorCode):
        error.retriable = True
    return error


def reason(error: BaseException) -> str:
    """An operating system's error in a few words; connecting wraps the error of each address in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return error.strerror.lower()  # from a resolver, which has its own error numbers
    if error.__cause__ is not None:
        return reason(error.__cause__)
    return str(error).lower() or type(error).__name__
