"""DescribeDelegationToken (key 41)."""

from ottla.codec.wire import Array, Bytes, Int16, Int32, Int64, String, message, struct, wire


@struct
class DescribeDelegationTokenOwner:
    principal_type: str = wire(String)
    principal_name: str = wire(String)


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: tuple[DescribeDelegationTokenOwner, ...] | None = wire(Array(DescribeDelegationTokenOwner), null="0+")


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str = wire(String)
    principal_name: str = wire(String)


@struct
class DescribedDelegationToken:
    principal_type: str = wire(String)
    principal_name: str = wire(String)
    token_requester_principal_type: str = wire(String, "3+", default="")
    token_requester_principal_name: str = wire(String, "3+", default="")
    issue_timestamp: int = wire(Int64)
    expiry_timestamp: int = wire(Int64)
    max_timestamp: int = wire(Int64)
    token_id: str = wire(String)
    hmac: bytes = wire(Bytes)
    renewers: tuple[DescribedDelegationTokenRenewer, ...] = wire(Array(DescribedDelegationTokenRenewer))


@message(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = wire(Int16)
    tokens: tuple[DescribedDelegationToken, ...] = wire(Array(DescribedDelegationToken))
    throttle_time_ms: int = wire(Int32, default=0)
