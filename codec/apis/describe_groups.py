"""DescribeGroups (key 15): the state, protocol and members of classic groups.

Sent by tools (Admin.describeConsumerGroups, kafka-consumer-groups.sh) to the coordinator of each group: for a group
that another broker coordinates, the response has NOT_COORDINATOR. Groups of other types do not exist for this API; use
ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe.

Before version 6 a group that does not exist is described without an error, as ``Dead`` and without members.

Errors:
    GROUP_ID_NOT_FOUND (v6+): no such classic group.
    COORDINATOR_LOAD_IN_PROGRESS: ask again after a pause.
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: ask FindCoordinator again.
    GROUP_AUTHORIZATION_FAILED: the principal may not describe the group.

Versions:
    0 (0.9.0)
    1 (0.11.0): `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.3): authorized operations (KIP-430).
    4 (2.4): `group_instance_id` of static members (KIP-345).
    5 (2.4): flexible.
    6 (4.0): GROUP_ID_NOT_FOUND and `error_message` (KIP-1043).

Source: GroupMetadataManager.java, describeGroups.
"""

from ottla.codec.wire import Array, Boolean, Bytes, Int16, Int32, String, message, struct, wire


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...] = wire(Array(String))
    """Group ids."""
    include_authorized_operations: bool = wire(Boolean, "3+", default=False)


@struct
class DescribedGroupMember:
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "4+", null="4+", default=None, ignorable=True)
    """The `group.instance.id` of a static member; ``None``: the member is dynamic."""
    client_id: str = wire(String)
    """From the header of its last JoinGroup."""
    client_host: str = wire(String)
    """Its address as Java prints it, with a slash: ``/10.0.0.7``."""
    member_metadata: bytes = wire(Bytes)
    """The member's metadata from JoinGroup; empty unless the group is stable."""
    member_assignment: bytes = wire(Bytes)
    """The member's assignment from the leader's SyncGroup; empty unless the group is stable."""


@struct
class DescribedGroup:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "6+", null="6+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    """``Empty``, ``PreparingRebalance`` (waiting for JoinGroup), ``CompletingRebalance`` (waiting for the assignment),
    ``Stable`` or ``Dead``; ``""`` if there is an error."""
    protocol_type: str = wire(String)
    """``consumer``, ``connect``; ``""`` for a group that only stores offsets."""
    protocol_data: str = wire(String)
    """Name of the chosen protocol, for example ``range``; ``""`` unless the group is stable."""
    members: tuple[DescribedGroupMember, ...] = wire(Array(DescribedGroupMember))
    authorized_operations: int = wire(Int32, "3+", default=-(2**31))


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
