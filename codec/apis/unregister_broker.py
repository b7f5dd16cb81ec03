"""UnregisterBroker (key 64)."""

from ottla.codec.wire import Int16, Int32, String, message, wire


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = wire(Int32)


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
