"""SaslHandshake (key 17)."""

from ottla.codec.wire import Array, Int16, String, message, wire


@message(key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = wire(String)


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int = wire(Int16)
    mechanisms: tuple[str, ...] = wire(Array(String))
