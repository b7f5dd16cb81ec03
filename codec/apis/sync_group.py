"""SyncGroup (key 14)."""

from ottla.codec.wire import Array, Bytes, Int16, Int32, String, message, struct, wire


@struct
class SyncGroupRequestAssignment:
    member_id: str = wire(String)
    assignment: bytes = wire(Bytes)


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = wire(String)
    generation_id: int = wire(Int32)
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None)
    protocol_type: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire(Array(SyncGroupRequestAssignment))


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    protocol_type: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    assignment: bytes = wire(Bytes)
