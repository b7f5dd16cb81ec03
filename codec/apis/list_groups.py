"""ListGroups (key 16): the groups that one broker coordinates.

Sent by tools (Admin.listGroups, kafka-consumer-groups.sh --list) to every broker in turn, because each knows only the
groups whose partition of `__consumer_offsets` it leads; together, the responses are all groups of the cluster. Groups
that the principal may not describe are left out without an error.

Errors:
    COORDINATOR_LOAD_IN_PROGRESS: the broker is still reading its partitions: ask it again, or groups will be missing.
    COORDINATOR_NOT_AVAILABLE: it is starting or stopping: ask again.

Versions:
    0 (0.9.0)
    1 (0.11.0): `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.4): flexible.
    4 (2.6): states, as a filter and in the response (KIP-518).
    5 (3.8): types, as a filter and in the response (KIP-848).

Source: GroupMetadataManager.java, listGroups.
"""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: tuple[str, ...] = wire(Array(String), "4+", default=())
    """Only groups in one of these states, case-insensitive; ``()``: in any."""
    types_filter: tuple[str, ...] = wire(Array(String), "5+", default=())
    """Only groups of these types: ``classic``, ``consumer``, ``share``, ``streams``; ``()``: of any."""


@struct
class ListedGroup:
    group_id: str = wire(String)
    protocol_type: str = wire(String)
    """``consumer``, ``connect``, ``share``, ``streams``; ``""`` for a classic group that only stores offsets."""
    group_state: str = wire(String, "4+", default="", ignorable=True)
    """``Empty``, ``Stable``, ``Dead``; for classic groups also ``PreparingRebalance`` and ``CompletingRebalance``, for
    others ``Assigning``, ``Reconciling``, ``NotReady``."""
    group_type: str = wire(String, "5+", default="", ignorable=True)
    """As in `types_filter`."""


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    groups: tuple[ListedGroup, ...] = wire(Array(ListedGroup))
