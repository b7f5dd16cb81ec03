"""FindCoordinator (key 10): find the broker that coordinates a group, a transactional id, or a share group's partition.

Sent by any client to any broker before it uses a group, a transaction or shared state, and again whenever a coordinator
answers NOT_COORDINATOR or is lost. The coordinator is the leader of one partition of an internal topic
(`__consumer_offsets`, `__transaction_state`, `__share_group_state`); the key hashes to that partition by Java's
`abs(hashCode(key)) % partitions`. So it moves like any leader, and every key has one, whether the group exists or not.

Connect to `host` and `port` of the response, even if `node_id` is already known from Metadata: clients use a separate
connection to a coordinator, so that a heartbeat does not wait behind a fetch.

Errors:
    COORDINATOR_NOT_AVAILABLE: the partition has no leader, or the internal topic is just being created for the first
        request ever: ask again after a pause.
    GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the principal may not describe the key.
    INVALID_REQUEST: a share key before version 6, or the broker does not support share groups.

Versions:
    0 (0.8.2): groups only. The API was called ConsumerMetadata, then GroupCoordinator.
    1 (0.11.0): `key_type`, `error_message`, `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.4): flexible.
    4 (3.0): many keys in one request (KIP-699).
    5 (3.8): the same bytes; TRANSACTION_ABORTABLE may be returned (KIP-890).
    6 (3.9): share groups (KIP-932).

Source: KafkaApis.scala, getCoordinator.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire

GROUP = 0
"""The key is a group id."""
TRANSACTION = 1
"""The key is a transactional id."""
SHARE = 2
"""The key is ``group:topic id:partition``. Only brokers may ask."""


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = wire(String, "0-3", default="")
    key_type: int = wire(Int8, "1+", default=GROUP)
    """`GROUP`, `TRANSACTION` or `SHARE`."""
    coordinator_keys: tuple[str, ...] = wire(Array(String), "4+", default=())
    """Keys of the same `key_type`."""


@struct
class Coordinator:
    key: str = wire(String)
    node_id: int = wire(Int32)
    """-1, with an empty `host` and `port` -1, if there is an error."""
    host: str = wire(String)
    port: int = wire(Int32)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", ignorable=True)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """v0-3 have a single result in the message itself; v4+ have their results in `coordinators`."""

    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16, "0-3", default=0)
    error_message: str | None = wire(String, "1-3", null="1-3", default="", ignorable=True)
    node_id: int = wire(Int32, "0-3", default=0)
    """-1, with an empty `host` and `port` -1, if there is an error."""
    host: str = wire(String, "0-3", default="")
    port: int = wire(Int32, "0-3", default=0)
    coordinators: tuple[Coordinator, ...] = wire(Array(Coordinator), "4+", default=())
    """One for each key, each with its own error."""
