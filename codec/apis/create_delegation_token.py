"""CreateDelegationToken (key 38)."""

from ottla.codec.wire import Array, Bytes, Int16, Int32, Int64, String, message, struct, wire


@struct
class CreatableRenewers:
    principal_type: str = wire(String)
    principal_name: str = wire(String)


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = wire(String, "3+", null="3+", default="")
    owner_principal_name: str | None = wire(String, "3+", null="3+", default="")
    renewers: tuple[CreatableRenewers, ...] = wire(Array(CreatableRenewers))
    max_lifetime_ms: int = wire(Int64)


@message(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = wire(Int16)
    principal_type: str = wire(String)
    principal_name: str = wire(String)
    token_requester_principal_type: str = wire(String, "3+", default="")
    token_requester_principal_name: str = wire(String, "3+", default="")
    issue_timestamp_ms: int = wire(Int64)
    expiry_timestamp_ms: int = wire(Int64)
    max_timestamp_ms: int = wire(Int64)
    token_id: str = wire(String)
    hmac: bytes = wire(Bytes)
    throttle_time_ms: int = wire(Int32, default=0)
