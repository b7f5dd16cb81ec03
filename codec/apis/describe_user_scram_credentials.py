"""DescribeUserScramCredentials (key 50): which users can log in with SCRAM.

Sent by administrators (Admin.describeUserScramCredentials, kafka-configs.sh --describe --entity-type users) to any
broker, which answers from its own copy (up to 3.4 only clusters with ZooKeeper had it). Requires the right to describe
the cluster. The response shows that credentials exist, but neither passwords nor salts.

Errors:
    RESOURCE_NOT_FOUND: for a user: it does not exist, or has no SCRAM credential.
    DUPLICATE_RESOURCE: for a user: the request names it twice.

Versions:
    0 (2.7)

Source: ScramImage.java, describe; KIP-554, KIP-900.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, String, message, struct, wire


@struct
class UserName:
    name: str = wire(String)


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: tuple[UserName, ...] | None = wire(Array(UserName), null="0+")
    """``None`` or ``()``: all users that have a credential."""


@struct
class CredentialInfo:
    mechanism: int = wire(Int8)
    """1: SCRAM-SHA-256. 2: SCRAM-SHA-512."""
    iterations: int = wire(Int32)
    """How many times the password was hashed."""


@struct
class DescribeUserScramCredentialsResult:
    user: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    credential_infos: tuple[CredentialInfo, ...] = wire(Array(CredentialInfo))
    """One for each mechanism that the user may use."""


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    """Error of the request as a whole; each user has its own."""
    error_message: str | None = wire(String, null="0+")
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire(Array(DescribeUserScramCredentialsResult))
