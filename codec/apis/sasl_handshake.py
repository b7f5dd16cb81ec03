"""SaslHandshake (key 17): name the SASL mechanism with which the connection is to be authenticated.

Sent by the client after ApiVersions to a listener with SASL, before anything else. What follows depends on the version:
after version 1 each token of the mechanism travels in a SaslAuthenticate request; after version 0 the tokens are sent
bare, each behind its 4-byte length and without any header, both ways, and a failure is told by closing the connection.

It is sent again on a living connection to re-authenticate, where the broker limits sessions
(`connections.max.reauth.ms`, KIP-368).

The request was never made flexible, as old clients would choose its version wrongly (KAFKA-9577).

Errors:
    UNSUPPORTED_SASL_MECHANISM: `mechanisms` says which there are; the broker closes the connection.
    ILLEGAL_SASL_STATE: the listener has no SASL, or the connection is authenticated already.

Versions:
    0 (0.10.0): then bare tokens (KIP-43).
    1 (1.0): the same bytes; then SaslAuthenticate (KIP-152).
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
    """Those that the listener has."""
