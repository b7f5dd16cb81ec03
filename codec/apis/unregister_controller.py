"""UnregisterController (key 94)."""

from ottla.codec.wire import Int16, Int32, String, message, wire


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: int = wire(Int32)


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
