"""JoinGroup (key 11)."""

from ottla.codec.wire import Array, Boolean, Bytes, Int16, Int32, String, message, struct, wire


@struct
class JoinGroupRequestProtocol:
    name: str = wire(String)
    metadata: bytes = wire(Bytes)


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = wire(String)
    session_timeout_ms: int = wire(Int32)
    rebalance_timeout_ms: int = wire(Int32, "1+", default=-1, ignorable=True)
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "5+", null="5+", default=None)
    protocol_type: str = wire(String)
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(Array(JoinGroupRequestProtocol))
    reason: str | None = wire(String, "8+", null="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    metadata: bytes = wire(Bytes)


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = wire(Int32, "2+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    generation_id: int = wire(Int32, default=-1)
    protocol_type: str | None = wire(String, "7+", null="7+", default=None, ignorable=True)
    protocol_name: str | None = wire(String, null="7+")
    leader: str = wire(String)
    skip_assignment: bool = wire(Boolean, "9+", default=False)
    member_id: str = wire(String)
    members: tuple[JoinGroupResponseMember, ...] = wire(Array(JoinGroupResponseMember))
