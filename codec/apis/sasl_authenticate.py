"""SaslAuthenticate (key 36)."""

from ottla.codec.wire import Bytes, Int16, Int64, String, message, wire


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = wire(Bytes)


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    auth_bytes: bytes = wire(Bytes)
    session_lifetime_ms: int = wire(Int64, "1+", default=0, ignorable=True)
