"""ExpireDelegationToken (key 40): end a delegation token now, or set another expiry time.

Sent by the token's owner, or one of its renewers (Admin.expireDelegationToken, kafka-delegation-tokens.sh --expire), to
any broker, which forwards it to the controller. Connections that logged in with the token continue until their session
ends. For tokens see CreateDelegationToken.

Errors:
    DELEGATION_TOKEN_NOT_FOUND: no such token, or it has expired and was removed.
    DELEGATION_TOKEN_EXPIRED: it has already ended, so it can only be removed (a negative period).
    DELEGATION_TOKEN_OWNER_MISMATCH: the principal is neither the owner nor a renewer.
    DELEGATION_TOKEN_AUTH_DISABLED: the brokers have no `delegation.token.secret.key`.
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is plaintext, TLS without a client certificate, or logged in
        with a token itself.

Versions:
    0 (1.1)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.5): flexible.

Source: DelegationTokenControlManager.java, expireDelegationToken; KIP-48.
"""

from ottla.codec.wire import Bytes, Int16, Int32, Int64, message, wire


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = wire(Bytes)
    """Identifies the token; the bytes, not their base64."""
    expiry_time_period_ms: int = wire(Int64)
    """From now on, but not beyond the token's `max_timestamp_ms`; negative: remove it at once."""


@message(key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = wire(Int16)
    expiry_timestamp_ms: int = wire(Int64)
    """The new expiry time, in milliseconds since 1970, by the controller's clock."""
    throttle_time_ms: int = wire(Int32, default=0)
