"""CreateDelegationToken (key 38): get a token with which other processes can act as its owner.

Sent by a client (Admin.createDelegationToken, kafka-delegation-tokens.sh --create), over an authenticated connection,
to any broker, which forwards it to the controller. Workers with the token need neither Kerberos tickets nor
certificates: they log in with SASL/SCRAM, with `token_id` as the user name, the base64 of `hmac` as the password, and
the extension ``tokenauth=true``, and are then authenticated as the token's owner. With the token they cannot create,
renew, expire or list tokens.

A token ends at `expiry_timestamp_ms` unless it is renewed (RenewDelegationToken), and at `max_timestamp_ms` in any
case. Brokers learn of a new token a little after the response, so the first login may fail.

Errors:
    DELEGATION_TOKEN_AUTH_DISABLED: the brokers have no `delegation.token.secret.key`.
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection is plaintext, TLS without a client certificate, or logged in
        with a token itself.
    DELEGATION_TOKEN_AUTHORIZATION_FAILED: the principal may not create tokens for this owner.
    INVALID_PRINCIPAL_TYPE: a renewer is not a ``User``.

Versions:
    0 (1.1)
    1 (2.0): throttled after the answer (KIP-219).
    2 (2.4): flexible.
    3 (3.3): tokens for other owners (KIP-373).

Source: KafkaApis.scala, handleCreateTokenRequest; DelegationTokenControlManager.java; KIP-48.
"""

from ottla.codec.wire import Array, Bytes, Int16, Int32, Int64, String, message, struct, wire


@struct
class CreatableRenewers:
    """One principal who may renew the token, besides its owner."""

    principal_type: str = wire(String)
    """Only ``User``."""
    principal_name: str = wire(String)


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = wire(String, "3+", null="3+", default="")
    """``User``; ignored if there is no name."""
    owner_principal_name: str | None = wire(String, "3+", null="3+", default="")
    """The owner of the token; ``None`` or ``""``: the sender."""
    renewers: tuple[CreatableRenewers, ...] = wire(Array(CreatableRenewers))
    max_lifetime_ms: int = wire(Int64)
    """From now on. The maximum, also used if this is not above 0, is `delegation.token.max.lifetime.ms` (7 days)."""


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = wire(Int16)
    principal_type: str = wire(String)
    """The owner's."""
    principal_name: str = wire(String)
    """The owner's."""
    token_requester_principal_type: str = wire(String, "3+", default="")
    """The sender of the request, who need not be the owner."""
    token_requester_principal_name: str = wire(String, "3+", default="")
    issue_timestamp_ms: int = wire(Int64)
    """Milliseconds since 1970, by the controller's clock; so are the next two."""
    expiry_timestamp_ms: int = wire(Int64)
    """When the token ends unless renewed: after `delegation.token.expiry.time.ms` (1 day)."""
    max_timestamp_ms: int = wire(Int64)
    """When the token ends for good."""
    token_id: str = wire(String)
    """The user name. It is not secret."""
    hmac: bytes = wire(Bytes)
    """The secret: HMAC-SHA-512 of the token id with the brokers' key. The other APIs identify a token by it."""
    throttle_time_ms: int = wire(Int32, default=0)
