"""LeaveGroup (key 13)."""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@struct
class MemberIdentity:
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, null="0+", default=None)
    reason: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = wire(String)
    member_id: str = wire(String, "0-2", default="")
    members: tuple[MemberIdentity, ...] = wire(Array(MemberIdentity), "3+", default=())


@struct
class MemberResponse:
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, null="0+")
    error_code: int = wire(Int16)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    members: tuple[MemberResponse, ...] = wire(Array(MemberResponse), "3+", default=())
