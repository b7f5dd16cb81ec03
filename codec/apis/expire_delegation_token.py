"""ExpireDelegationToken (key 40)."""

from ottla.codec.wire import Bytes, Int16, Int32, Int64, message, wire


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = wire(Bytes)
    expiry_time_period_ms: int = wire(Int64)


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = wire(Int16)
    expiry_timestamp_ms: int = wire(Int64)
    throttle_time_ms: int = wire(Int32, default=0)
