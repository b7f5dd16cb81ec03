"""SaslHandshake (key 17): choose the SASL mechanism for a connection.

Sent by the client after ApiVersions to a listener with SASL, before anything else. The next step depends on the
version: after version 1 each token of the mechanism is sent in a SaslAuthenticate request; after version 0 the tokens
are sent without headers, each after its 4-byte length, in both directions, and the broker signals a failure by closing
the connection.

If the broker limits sessions, the client sends it again on an open connection to re-authenticate
(`connections.max.reauth.ms`, KIP-368).

The request was never made flexible, because old clients would choose its version wrongly (KAFKA-9577).

Errors:
    UNSUPPORTED_SASL_MECHANISM: the available ones are in `mechanisms`; the broker closes the connection.
    ILLEGAL_SASL_STATE: the listener has no SASL, or the connection is already authenticated.

Versions:
    0 (0.10.0): tokens without headers follow (KIP-43).
    1 (1.0): the same bytes; SaslAuthenticate follows (KIP-152).
"""

from ottla.codec.wire import Array, Int16, String, message, wire


@message(key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = wire(String)
    """``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512``, ``OAUTHBEARER`` or ``GSSAPI``."""


@message(key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int = wire(Int16)
    mechanisms: tuple[str, ...] = wire(Array(String))
    """The mechanisms of the listener."""
