"""Every error that ottla raises, one tree.

    OttlaError
    ├── LocalProtocolError       you asked for what the protocol, or this object, forbids now
    │   └── Closed               the client, producer or consumer is closed
    ├── ConfigurationError       an option, address or file that cannot be used: what it was, what would do
    ├── EncodeError              a value does not fit the message: .path, and what would fit
    ├── RemoteProtocolError      the peer broke the protocol; the connection is closed
    │   └── DecodeError          bytes that do not parse: .path, .offset
    ├── ConnectionLost           the connection broke; the outcome of what was under way is unknown
    │   └── BrokerUnreachable    no connection could be made: which addresses, what each said
    ├── TimeoutExpired           a deadline passed: which call, which node, after how long
    │   └── DeliveryTimeout      a record was not acknowledged within `delivery_timeout`
    ├── BufferFull               the producer's memory is used up (`send_nowait` only; the others wait)
    ├── RecordTooLarge           one record is larger than a request may be
    ├── DeliveryFailed           records that nobody awaited have failed: how many, which partitions, the first cause
    ├── DataLoss                 records that were asked for are not in the log any more
    └── BrokerError              the broker answered with an error code: .code .name .retriable
        └── NotLeaderOrFollower, OffsetOutOfRange, …  one class per code, named as Kafka names it

Rule: the lowest module. It imports nothing of ours, everything may import it.
"""

from typing import ClassVar


class OttlaError(Exception):
    """The root: ``except OttlaError`` catches whatever ottla raises on purpose."""


class LocalProtocolError(OttlaError):
    """The caller asked for what the protocol, or the state of this object, forbids."""


class Closed(LocalProtocolError):
    """The client, producer or consumer is closed (or closing)."""


class ConfigurationError(OttlaError):
    """An option, an address or a file that cannot be used; the message says what would do."""


class EncodeError(OttlaError):
    """A value does not fit the message.

    Attributes:
        path: where, such as ``ProduceRequest.topic_data[0].name``.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class RemoteProtocolError(OttlaError):
    """The peer broke the protocol; the connection it came from is closed."""


class DecodeError(RemoteProtocolError):
    """Bytes that do not parse.

    Attributes:
        path: the field, such as ``MetadataResponse.topics[3].partitions[0].leader_epoch``.
        offset: in bytes from the start of what was parsed; -1 where it is not known.
    """

    def __init__(self, reason: str, path: str = "", offset: int = -1) -> None:
        super().__init__(reason, path, offset)
        self.reason = reason
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        where = " ".join(part for part in (self.path, f"at byte {self.offset}" if self.offset >= 0 else "") if part)
        return f"{where}: {self.reason}" if where else self.reason


class ConnectionLost(OttlaError):
    """The connection broke: what was under way may or may not have happened."""


class BrokerUnreachable(ConnectionLost):
    """No connection could be made; the message lists each address and what it said."""


class TimeoutExpired(OttlaError):
    """A deadline passed; the message says which call, to which node, after how long."""


class DeliveryTimeout(TimeoutExpired):
    """A record was not acknowledged within `delivery_timeout`; it may or may not be in the log."""


class BufferFull(OttlaError):
    """The producer's buffer has no room for the record: await `send_soon`, or flush."""


class RecordTooLarge(OttlaError):
    """One record alone is larger than a request (`max_request_size`) may be."""


class DeliveryFailed(OttlaError):
    """Records that nobody awaited were not delivered.

    Attributes:
        count: how many.
        partitions: ``{(topic, partition): count}``.
        cause: the first error (also ``__cause__``).
    """

    def __init__(self, count: int, partitions: dict[tuple[str, int], int], cause: OttlaError) -> None:
        super().__init__(count, partitions, cause)
        self.count = count
        self.partitions = partitions
        self.cause = cause
        self.__cause__ = cause

    def __str__(self) -> str:
        where = ", ".join(f"{topic}-{partition}: {n}" for (topic, partition), n in sorted(self.partitions.items()))
        first = f"{type(self.cause).__name__}: {self.cause}"
        return f"{self.count} record(s) were not delivered ({where}); first cause: {first}"


class DataLoss(OttlaError):
    """Records that were asked for are not in the log (any more); the message says which, and what there is."""


class BrokerError(OttlaError):
    """The broker answered with an error code.

    Attributes:
        code: Kafka's number.
        name: Kafka's name.
        retriable: the same request may succeed later.
        stale_metadata: whoever sent it should refresh its metadata first.
        abortable: the transaction must be aborted, the producer may go on.
        fatal: this producer or member can never succeed again.
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    stale_metadata: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        meaning = (type(self).__doc__ or "").strip()
        return f"{self.name} ({self.code}): {meaning}" + (f" [{self.detail}]" if self.detail else "")


class UnknownErrorCode(BrokerError):
    """The broker answered with a code that this version of ottla does not know."""

    def __init__(self, number: int, detail: str = "") -> None:
        super().__init__(detail)
        self.number = number

    def __str__(self) -> str:
        return f"error code {self.number}, unknown to this version of ottla" + (
            f" [{self.detail}]" if self.detail else ""
        )


class UnknownServerError(BrokerError):
    """The broker failed in a way it did not foresee; its log says more."""

    code = -1
    name = "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRange(BrokerError):
    """The offset is not within the log: it was deleted by retention, or never written."""

    code = 1
    name = "OFFSET_OUT_OF_RANGE"


class CorruptMessage(BrokerError):
    """The bytes fail their CRC or do not parse as a record batch."""

    code = 2
    name = "CORRUPT_MESSAGE"
    retriable = True


class UnknownTopicOrPartition(BrokerError):
    """The broker does not host this topic or partition."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True
    stale_metadata = True


class InvalidFetchSize(BrokerError):
    """The fetch size is negative or too large."""

    code = 4
    name = "INVALID_FETCH_SIZE"


class LeaderNotAvailable(BrokerError):
    """The partition has no leader at this moment: an election is under way."""

    code = 5
    name = "LEADER_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class NotLeaderOrFollower(BrokerError):
    """This broker is not (or no longer) the leader or a replica of the partition."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"
    retriable = True
    stale_metadata = True


class RequestTimedOut(BrokerError):
    """The broker could not finish the request within its time-out."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True


class BrokerNotAvailable(BrokerError):
    """The broker is down."""

    code = 8
    name = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailable(BrokerError):
    """The replica is not there."""

    code = 9
    name = "REPLICA_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class MessageTooLarge(BrokerError):
    """The batch is larger than the broker's `message.max.bytes` or the topic's `max.message.bytes`."""

    code = 10
    name = "MESSAGE_TOO_LARGE"


class StaleControllerEpoch(BrokerError):
    """The controller has moved to a newer epoch."""

    code = 11
    name = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLarge(BrokerError):
    """The metadata string of an offset commit is too long."""

    code = 12
    name = "OFFSET_METADATA_TOO_LARGE"


class Network(BrokerError):
    """The connection broke before an answer came."""

    code = 13
    name = "NETWORK_EXCEPTION"
    retriable = True
    stale_metadata = True


class CoordinatorLoadInProgress(BrokerError):
    """The coordinator is still loading its log."""

    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class CoordinatorNotAvailable(BrokerError):
    """The coordinator is not running (yet)."""

    code = 15
    name = "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinator(BrokerError):
    """This broker is not the coordinator of the group or transaction."""

    code = 16
    name = "NOT_COORDINATOR"
    retriable = True


class InvalidTopic(BrokerError):
    """The topic name is empty, too long, or has characters other than letters, digits, ``.``, ``_`` and ``-``."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(BrokerError):
    """The batch is larger than the topic's segments (`segment.bytes`)."""

    code = 18
    name = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was written."""

    code = 19
    name = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppend(BrokerError):
    """Written, but to fewer in-sync replicas than `min.insync.replicas` asks for."""

    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class InvalidRequiredAcks(BrokerError):
    """`acks` must be -1, 0 or 1."""

    code = 21
    name = "INVALID_REQUIRED_ACKS"


class IllegalGeneration(BrokerError):
    """The group has moved on to another generation."""

    code = 22
    name = "ILLEGAL_GENERATION"


class InconsistentGroupProtocol(BrokerError):
    """The member's protocols have nothing in common with those of the group."""

    code = 23
    name = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupId(BrokerError):
    """The group id is empty or not valid."""

    code = 24
    name = "INVALID_GROUP_ID"


class UnknownMemberId(BrokerError):
    """The coordinator does not know this member."""

    code = 25
    name = "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeout(BrokerError):
    """The session time-out is outside the range that the broker allows."""

    code = 26
    name = "INVALID_SESSION_TIMEOUT"


class RebalanceInProgress(BrokerError):
    """The group is rebalancing: rejoin."""

    code = 27
    name = "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSize(BrokerError):
    """The offset commit is too large."""

    code = 28
    name = "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailed(BrokerError):
    """The principal may not use this topic."""

    code = 29
    name = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailed(BrokerError):
    """The principal may not use this group."""

    code = 30
    name = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailed(BrokerError):
    """The principal may not do this on the cluster."""

    code = 31
    name = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestamp(BrokerError):
    """A record's timestamp is outside the range that the topic accepts."""

    code = 32
    name = "INVALID_TIMESTAMP"


class UnsupportedSaslMechanism(BrokerError):
    """The broker does not offer this SASL mechanism."""

    code = 33
    name = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslState(BrokerError):
    """The SASL exchange is not in a state that allows this request."""

    code = 34
    name = "ILLEGAL_SASL_STATE"


class UnsupportedVersion(BrokerError):
    """The broker does not serve this version of the API."""

    code = 35
    name = "UNSUPPORTED_VERSION"


class TopicAlreadyExists(BrokerError):
    """A topic of this name exists already."""

    code = 36
    name = "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(BrokerError):
    """The number of partitions is not valid here."""

    code = 37
    name = "INVALID_PARTITIONS"


class InvalidReplicationFactor(BrokerError):
    """The replication factor is below one or above the number of brokers."""

    code = 38
    name = "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignment(BrokerError):
    """The replica assignment is not valid."""

    code = 39
    name = "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfig(BrokerError):
    """The configuration is not valid."""

    code = 40
    name = "INVALID_CONFIG"


class NotController(BrokerError):
    """This broker is not the controller."""

    code = 41
    name = "NOT_CONTROLLER"
    retriable = True


class InvalidRequest(BrokerError):
    """The request contradicts itself or the protocol."""

    code = 42
    name = "INVALID_REQUEST"


class UnsupportedForMessageFormat(BrokerError):
    """The topic's message format is too old for this request."""

    code = 43
    name = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolation(BrokerError):
    """The broker's policy forbids it."""

    code = 44
    name = "POLICY_VIOLATION"


class OutOfOrderSequenceNumber(BrokerError):
    """The batch's sequence does not follow the last one stored: a batch before it is missing."""

    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumber(BrokerError):
    """The batch was stored before."""

    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(BrokerError):
    """A newer instance of the producer has been seen (or this one's epoch is unknown)."""

    code = 47
    name = "INVALID_PRODUCER_EPOCH"
    fatal = True


class InvalidTxnState(BrokerError):
    """The transaction is not in a state that allows this."""

    code = 48
    name = "INVALID_TXN_STATE"


class InvalidProducerIdMapping(BrokerError):
    """The producer id does not belong to this transactional id."""

    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"
    fatal = True


class InvalidTransactionTimeout(BrokerError):
    """The transaction time-out is larger than the broker allows."""

    code = 50
    name = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactions(BrokerError):
    """Another operation on the same transaction is still under way."""

    code = 51
    name = "CONCURRENT_TRANSACTIONS"
    retriable = True


class TransactionCoordinatorFenced(BrokerError):
    """The transaction coordinator has been replaced by a newer one."""

    code = 52
    name = "TRANSACTION_COORDINATOR_FENCED"
    fatal = True


class TransactionalIdAuthorizationFailed(BrokerError):
    """The principal may not use this transactional id."""

    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabled(BrokerError):
    """Security features are switched off on the broker."""

    code = 54
    name = "SECURITY_DISABLED"


class OperationNotAttempted(BrokerError):
    """The broker did not try this, because another part of the request failed."""

    code = 55
    name = "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(BrokerError):
    """The broker's disk failed."""

    code = 56
    name = "KAFKA_STORAGE_ERROR"
    retriable = True
    stale_metadata = True


class LogDirNotFound(BrokerError):
    """The log folder is not known to the broker."""

    code = 57
    name = "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailed(BrokerError):
    """Authentication failed: the credentials are not valid."""

    code = 58
    name = "SASL_AUTHENTICATION_FAILED"


class UnknownProducerId(BrokerError):
    """The broker has no state for this producer id."""

    code = 59
    name = "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgress(BrokerError):
    """A reassignment of the partition is under way."""

    code = 60
    name = "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabled(BrokerError):
    """Delegation tokens are switched off on the broker."""

    code = 61
    name = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(BrokerError):
    """The delegation token is not known."""

    code = 62
    name = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(BrokerError):
    """Only the token's owner or a renewer may do this."""

    code = 63
    name = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(BrokerError):
    """Delegation tokens need a secured, token-free connection."""

    code = 64
    name = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(BrokerError):
    """The principal may not use delegation tokens."""

    code = 65
    name = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(BrokerError):
    """The delegation token has expired."""

    code = 66
    name = "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(BrokerError):
    """The type of principal is not supported."""

    code = 67
    name = "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroup(BrokerError):
    """The group still has members."""

    code = 68
    name = "NON_EMPTY_GROUP"


class GroupIdNotFound(BrokerError):
    """No group of this id exists."""

    code = 69
    name = "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFound(BrokerError):
    """The broker has forgotten the fetch session."""

    code = 70
    name = "FETCH_SESSION_ID_NOT_FOUND"
    retriable = True


class InvalidFetchSessionEpoch(BrokerError):
    """The fetch session's epoch does not follow the last one."""

    code = 71
    name = "INVALID_FETCH_SESSION_EPOCH"
    retriable = True


class ListenerNotFound(BrokerError):
    """The leader has no listener of the kind the request came in on."""

    code = 72
    name = "LISTENER_NOT_FOUND"
    retriable = True
    stale_metadata = True


class TopicDeletionDisabled(BrokerError):
    """Deleting topics is switched off on the broker."""

    code = 73
    name = "TOPIC_DELETION_DISABLED"


class FencedLeaderEpoch(BrokerError):
    """The leader epoch in the request is older than the broker's."""

    code = 74
    name = "FENCED_LEADER_EPOCH"
    retriable = True
    stale_metadata = True


class UnknownLeaderEpoch(BrokerError):
    """The leader epoch in the request is newer than the broker's."""

    code = 75
    name = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class UnsupportedCompressionType(BrokerError):
    """The broker or this version of the request does not support the compression."""

    code = 76
    name = "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpoch(BrokerError):
    """The broker's epoch is stale."""

    code = 77
    name = "STALE_BROKER_EPOCH"


class OffsetNotAvailable(BrokerError):
    """The leader does not know its high watermark yet: ask again."""

    code = 78
    name = "OFFSET_NOT_AVAILABLE"
    retriable = True


class MemberIdRequired(BrokerError):
    """Rejoin with the member id that this answer carries."""

    code = 79
    name = "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailable(BrokerError):
    """The preferred leader is not available."""

    code = 80
    name = "PREFERRED_LEADER_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class GroupMaxSizeReached(BrokerError):
    """The group has as many members as the broker allows."""

    code = 81
    name = "GROUP_MAX_SIZE_REACHED"


class FencedInstanceId(BrokerError):
    """Another member with the same group.instance.id has taken over."""

    code = 82
    name = "FENCED_INSTANCE_ID"
    fatal = True


class EligibleLeadersNotAvailable(BrokerError):
    """No eligible leader is available."""

    code = 83
    name = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    retriable = True
    stale_metadata = True


class ElectionNotNeeded(BrokerError):
    """The partition has the leader it should have."""

    code = 84
    name = "ELECTION_NOT_NEEDED"
    retriable = True
    stale_metadata = True


class NoReassignmentInProgress(BrokerError):
    """No reassignment is under way."""

    code = 85
    name = "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopic(BrokerError):
    """The group is subscribed to the topic."""

    code = 86
    name = "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecord(BrokerError):
    """A record does not meet what the broker or topic demands."""

    code = 87
    name = "INVALID_RECORD"


class UnstableOffsetCommit(BrokerError):
    """Offsets of an open transaction are not settled yet."""

    code = 88
    name = "UNSTABLE_OFFSET_COMMIT"
    retriable = True


class ThrottlingQuotaExceeded(BrokerError):
    """A quota is used up for now."""

    code = 89
    name = "THROTTLING_QUOTA_EXCEEDED"
    retriable = True


class ProducerFenced(BrokerError):
    """A newer producer has taken over this transactional id or producer id."""

    code = 90
    name = "PRODUCER_FENCED"
    fatal = True


class ResourceNotFound(BrokerError):
    """No such resource."""

    code = 91
    name = "RESOURCE_NOT_FOUND"


class DuplicateResource(BrokerError):
    """The resource exists already."""

    code = 92
    name = "DUPLICATE_RESOURCE"


class UnacceptableCredential(BrokerError):
    """The credential does not meet the broker's demands."""

    code = 93
    name = "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSet(BrokerError):
    """The voter sets of the two sides differ."""

    code = 94
    name = "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersion(BrokerError):
    """The update version is not valid."""

    code = 95
    name = "INVALID_UPDATE_VERSION"


class FeatureUpdateFailed(BrokerError):
    """A feature could not be updated."""

    code = 96
    name = "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailure(BrokerError):
    """The principal could not be read."""

    code = 97
    name = "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFound(BrokerError):
    """The snapshot does not exist."""

    code = 98
    name = "SNAPSHOT_NOT_FOUND"


class PositionOutOfRange(BrokerError):
    """The position is not within the snapshot."""

    code = 99
    name = "POSITION_OUT_OF_RANGE"


class UnknownTopicId(BrokerError):
    """The broker does not know this topic id."""

    code = 100
    name = "UNKNOWN_TOPIC_ID"
    retriable = True
    stale_metadata = True


class DuplicateBrokerRegistration(BrokerError):
    """A broker of this id is registered already."""

    code = 101
    name = "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegistered(BrokerError):
    """No broker of this id is registered."""

    code = 102
    name = "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicId(BrokerError):
    """The topic id differs from the broker's: the topic was deleted and made again."""

    code = 103
    name = "INCONSISTENT_TOPIC_ID"
    retriable = True
    stale_metadata = True


class InconsistentClusterId(BrokerError):
    """The cluster id differs from the broker's: this is another cluster."""

    code = 104
    name = "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFound(BrokerError):
    """No transaction of this transactional id exists."""

    code = 105
    name = "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(BrokerError):
    """The fetch session mixes topic ids and names."""

    code = 106
    name = "FETCH_SESSION_TOPIC_ID_ERROR"
    retriable = True


class IneligibleReplica(BrokerError):
    """The replica may not join the in-sync replicas."""

    code = 107
    name = "INELIGIBLE_REPLICA"


class NewLeaderElected(BrokerError):
    """A new leader was elected meanwhile."""

    code = 108
    name = "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorage(BrokerError):
    """The offset has moved to tiered storage."""

    code = 109
    name = "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpoch(BrokerError):
    """The member's epoch is old: another instance has taken over."""

    code = 110
    name = "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceId(BrokerError):
    """The static member's instance id is still held by another member."""

    code = 111
    name = "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignor(BrokerError):
    """The broker does not have this assignor."""

    code = 112
    name = "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpoch(BrokerError):
    """The member's epoch is behind the coordinator's."""

    code = 113
    name = "STALE_MEMBER_EPOCH"


class MismatchedEndpointType(BrokerError):
    """The request went to the wrong kind of endpoint (broker or controller)."""

    code = 114
    name = "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointType(BrokerError):
    """The kind of endpoint is not supported."""

    code = 115
    name = "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerId(BrokerError):
    """The controller id is not known."""

    code = 116
    name = "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionId(BrokerError):
    """The telemetry subscription is out of date."""

    code = 117
    name = "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLarge(BrokerError):
    """The telemetry is larger than the broker accepts."""

    code = 118
    name = "TELEMETRY_TOO_LARGE"


class InvalidRegistration(BrokerError):
    """The registration is not valid."""

    code = 119
    name = "INVALID_REGISTRATION"


class TransactionAbortable(BrokerError):
    """The transaction must be aborted; the producer may go on with the next one."""

    code = 120
    name = "TRANSACTION_ABORTABLE"
    abortable = True


class InvalidRecordState(BrokerError):
    """The shared record is not in a state that allows this."""

    code = 121
    name = "INVALID_RECORD_STATE"


class ShareSessionNotFound(BrokerError):
    """The broker has forgotten the share session."""

    code = 122
    name = "SHARE_SESSION_NOT_FOUND"
    retriable = True


class InvalidShareSessionEpoch(BrokerError):
    """The share session's epoch does not follow the last one."""

    code = 123
    name = "INVALID_SHARE_SESSION_EPOCH"
    retriable = True


class FencedStateEpoch(BrokerError):
    """The share partition's state epoch is old."""

    code = 124
    name = "FENCED_STATE_EPOCH"


class InvalidVoterKey(BrokerError):
    """The voter key does not match."""

    code = 125
    name = "INVALID_VOTER_KEY"


class DuplicateVoter(BrokerError):
    """The voter is a member already."""

    code = 126
    name = "DUPLICATE_VOTER"


class VoterNotFound(BrokerError):
    """The voter is not known."""

    code = 127
    name = "VOTER_NOT_FOUND"


class InvalidRegularExpression(BrokerError):
    """The regular expression is not valid."""

    code = 128
    name = "INVALID_REGULAR_EXPRESSION"


class RebootstrapRequired(BrokerError):
    """The client must start over from its bootstrap addresses."""

    code = 129
    name = "REBOOTSTRAP_REQUIRED"


class StreamsInvalidTopology(BrokerError):
    """The streams topology is not valid."""

    code = 130
    name = "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpoch(BrokerError):
    """The streams topology's epoch is not valid."""

    code = 131
    name = "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFenced(BrokerError):
    """The streams topology's epoch is old."""

    code = 132
    name = "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReached(BrokerError):
    """The broker holds as many share sessions as it may."""

    code = 133
    name = "SHARE_SESSION_LIMIT_REACHED"
    retriable = True


BY_CODE: dict[int, type[BrokerError]] = {
    cls.code: cls for cls in BrokerError.__subclasses__() if cls is not UnknownErrorCode
}


def broker_error(code: int, detail: str | None = "") -> BrokerError:
    """The exception for a non-zero error ``code``; ``detail`` is the broker's own message, or what it was about."""
    if cls := BY_CODE.get(code):
        return cls(detail or "")
    return UnknownErrorCode(code, detail or "")
