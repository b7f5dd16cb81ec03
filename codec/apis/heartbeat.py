"""Heartbeat (key 12)."""

from ottla.codec.wire import Int16, Int32, String, message, wire


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = wire(String)
    generation_id: int = wire(Int32)
    member_id: str = wire(String)
    group_instance_id: str | None = wire(String, "3+", null="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
