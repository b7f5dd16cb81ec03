"""DescribeDelegationToken (key 41): list delegation tokens.

Sent by a client (Admin.describeDelegationToken, kafka-delegation-tokens.sh --describe) to any broker, which answers
from its own copy. The response has the tokens that the sender owns, may renew, or may describe, and those of owners
whose tokens it may describe; others are left out without an error. It contains the secrets, so everybody who reads it
can log in. For tokens see CreateDelegationToken.

Errors:
    DELEGATION_TOKEN_AUTH_DISABLED: the broker has no `delegation.token.secret.key`.
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is plaintext, TLS without a client certificate, or logged in
        with a token itself.

Versions:
    0 (1.1)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.5): flexible.
    3 (3.3): who requested the token (KIP-373).

Source: KafkaApis.scala, handleDescribeTokensRequest; DelegationTokenManager.scala, filterToken; KIP-48.
"""

from ottla.codec.wire import Array, Bytes, Int16, Int32, Int64, String, message, struct, wire


@struct
class DescribeDelegationTokenOwner:
    principal_type: str = wire(String)
    """``User``."""
    principal_name: str = wire(String)


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: tuple[DescribeDelegationTokenOwner, ...] | None = wire(Array(DescribeDelegationTokenOwner), null="0+")
    """Only tokens that one of these principals owns or may renew; ``None``: all; ``()``: none."""


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str = wire(String)
    principal_name: str = wire(String)


@struct
class DescribedDelegationToken:
    principal_type: str = wire(String)
    """The owner's."""
    principal_name: str = wire(String)
    """The owner's."""
    token_requester_principal_type: str = wire(String, "3+", default="")
    """The principal that requested the token, which need not be the owner."""
    token_requester_principal_name: str = wire(String, "3+", default="")
    issue_timestamp: int = wire(Int64)
    """Milliseconds since 1970; so are the next two."""
    expiry_timestamp: int = wire(Int64)
    """When the token ends unless renewed."""
    max_timestamp: int = wire(Int64)
    """When the token ends for good."""
    token_id: str = wire(String)
    hmac: bytes = wire(Bytes)
    """The secret. The other APIs identify the token by it."""
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = wire(Array(DescribedDelegationTokenRenewer))
    """Principals who may renew the token, besides the owner."""


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = wire(Int16)
    tokens: tuple[DescribedDelegationToken, ...] = wire(Array(DescribedDelegationToken))
    throttle_time_ms: int = wire(Int32, default=0)
