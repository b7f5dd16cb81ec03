"""DescribeDelegationToken (key 41): list delegation tokens.

Sent by a client (Admin.describeDelegationToken, kafka-delegation-tokens.sh --describe) to any broker, which answers
from what it knows. The answer has the tokens that the sender owns or may renew, those it may describe, and those of
owners whose tokens it may describe; the rest is left out without an error. It holds the secrets: whoever reads it can
log in. What tokens are says CreateDelegationToken.

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
    """Only tokens that one of these owns or may renew; ``None``: all; ``()``: none."""


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
    """Of who had the token made, which may be another than the owner."""
    token_requester_principal_name: str = wire(String, "3+", default="")
    issue_timestamp: int = wire(Int64)
    """Milliseconds since 1970, as all three."""
    expiry_timestamp: int = wire(Int64)
    """When it ends unless renewed."""
    max_timestamp: int = wire(Int64)
    """When it ends for good."""
    token_id: str = wire(String)
    hmac: bytes = wire(Bytes)
    """The secret, and how the other APIs name the token."""
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = wire(Array(DescribedDelegationTokenRenewer))
    """Who may renew it, besides the owner."""


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = wire(Int16)
    tokens: tuple[DescribedDelegationToken, ...] = wire(Array(DescribedDelegationToken))
    throttle_time_ms: int = wire(Int32, default=0)
