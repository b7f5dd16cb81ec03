"""SaslAuthenticate (key 36): carry one token of a SASL exchange.

Sent by every client of a SASL listener after SaslHandshake v1 has agreed on a mechanism: one request per token, until
both sides of the mechanism are satisfied; no other request may be sent meanwhile. (After SaslHandshake v0 the tokens
are sent without this API, each after its 4-byte length.) PLAIN takes one request, ``\\0user\\0password``, with an empty
response; SCRAM takes two of each.

Sessions may be limited (`connections.max.reauth.ms`, or a token that expires). Then the client authenticates again on
the same connection, SaslHandshake first, as the same principal and with the same mechanism, before
`session_lifetime_ms` have passed; Java's clients do so after 85 to 95 % of that time. Otherwise the broker closes the
connection at the next other request.

After a failure the broker closes the connection, after up to `connection.failed.authentication.delay.ms`.

Errors:
    SASL_AUTHENTICATION_FAILED: wrong credentials; fatal, do not retry. `error_message` may say why, but nothing that
        helps to guess. After transient failures of Kerberos the broker closes the connection without a response: retry.
    ILLEGAL_SASL_STATE: the connection is already authenticated, or no token is expected now.

Versions:
    0 (1.0)
    1 (2.2): `session_lifetime_ms`; tells the broker that the client can authenticate again (KIP-368).
    2 (2.5): flexible.

Source: SaslServerAuthenticator.java; SaslClientAuthenticator.java; KIP-152.
"""

from ottla.codec.wire import Bytes, Int16, Int64, String, message, wire


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = wire(Bytes)
    """The client's token, as the mechanism defines it."""


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    auth_bytes: bytes = wire(Bytes)
    """The broker's token; empty if it has none to send."""
    session_lifetime_ms: int = wire(Int64, "1+", default=0, ignorable=True)
    """In the last response of an exchange: how long the session lasts from now on. 0: as long as the connection."""
