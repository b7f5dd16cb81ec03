"""DescribeUserScramCredentials (key 50)."""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@struct
class UserName:
    name: str = wire(String)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: tuple[UserName, ...] | None = wire(Array(UserName), null="0+")


@struct
class CredentialInfo:
    mechanism: int = wire(Int8)
    iterations: int = wire(Int32)


@struct
class DescribeUserScramCredentialsResult:
    user: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    credential_infos: tuple[CredentialInfo, ...] = wire(Array(CredentialInfo))


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire(Array(DescribeUserScramCredentialsResult))
