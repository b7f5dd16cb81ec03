"""DescribeGroups (key 15)."""

from ottla.codec.wire import Array, Boolean, Bytes, Int16, Int32, String, message, struct, wire


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...] = wire(Array(String))
    include_authorized_operations: bool = wire(Boolean, "3+", default=False)


@struct
class DescribedGroupMember:
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "4+", null="4+", default=None, ignorable=True)
    client_id: str = wire(String)
    client_host: str = wire(String)
    member_metadata: bytes = wire(Bytes)
    member_assignment: bytes = wire(Bytes)


@struct
class DescribedGroup:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "6+", null="6+", default=None)
    group_id: str = wire(String)
    group_state: str = wire(String)
    protocol_type: str = wire(String)
    protocol_data: str = wire(String)
    members: tuple[DescribedGroupMember, ...] = wire(Array(DescribedGroupMember))
    authorized_operations: int = wire(Int32, "3+", default=-(2**31))


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    groups: tuple[DescribedGroup, ...] = wire(Array(DescribedGroup))
