"""RenewDelegationToken (key 39): extend the life of a delegation token.

Sent by the token's owner, or one of its renewers (Admin.renewDelegationToken, kafka-delegation-tokens.sh --renew), to
any broker, which forwards it to the controller. The time counts from now, and never exceeds the token's
`max_timestamp_ms`; a short period can even shorten a token's life. For tokens see CreateDelegationToken.

Errors:
    DELEGATION_TOKEN_NOT_FOUND: no such token, or it has expired and was removed.
    DELEGATION_TOKEN_EXPIRED: too late, create a new token.
    DELEGATION_TOKEN_OWNER_MISMATCH: the principal is neither the owner nor a renewer.
    DELEGATION_TOKEN_AUTH_DISABLED: the brokers have no `delegation.token.secret.key`.
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is plaintext, TLS without a client certificate, or logged in
        with a token itself.

Versions:
    0 (1.1)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.5): flexible.

Source: DelegationTokenControlManager.java, renewDelegationToken; KIP-48.
"""

from ottla.codec.wire import Bytes, Int16, Int32, Int64, message, wire


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: bytes = wire(Bytes)
    """Identifies the token; the bytes, not their base64."""
    renew_period_ms: int = wire(Int64)
    """From now on. The maximum, also used if this is not above 0, is `delegation.token.expiry.time.ms` (1 day)."""


@message(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = wire(Int16)
    expiry_timestamp_ms: int = wire(Int64)
    """The new expiry time, in milliseconds since 1970, by the controller's clock."""
    throttle_time_ms: int = wire(Int32, default=0)
