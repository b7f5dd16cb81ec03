"""FindCoordinator (key 10): which broker coordinates a group, a transaction or a share partition.

Versions: 0: groups only. 1: `key_type`, error messages. 3: flexible. 4: many keys at once. 5: TRANSACTION_ABORTABLE
may come back. 6: share groups (KIP-932).
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = wire(String, "0-3", default="")
    """v0-3: the group or transactional id."""
    key_type: int = wire(Int8, "1+", default=0)
    """0: group. 1: transaction. 2: share partition."""
    coordinator_keys: tuple[str, ...] = wire(Array(String), "4+", default=())
    """v4+: the ids."""


@struct
class Coordinator:
    key: str = wire(String)
    node_id: int = wire(Int32)
    host: str = wire(String)
    port: int = wire(Int32)
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    error_message: str | None = wire(String, null="0+", ignorable=True)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    error_code: int = wire(Int16, "0-3", default=0)
    """0, or a code of `ottla.errors`."""
    error_message: str | None = wire(String, "1-3", null="1-3", default="", ignorable=True)
    node_id: int = wire(Int32, "0-3", default=0)
    host: str = wire(String, "0-3", default="")
    port: int = wire(Int32, "0-3", default=0)
    coordinators: tuple[Coordinator, ...] = wire(Array(Coordinator), "4+", default=())
    """v4+: one for each key."""
