"""AlterUserScramCredentials (key 51)."""

from ottla.codec.wire import Array, Bytes, Int8, Int16, Int32, String, message, struct, wire


@struct
class ScramCredentialDeletion:
    name: str = wire(String)
    mechanism: int = wire(Int8)


@struct
class ScramCredentialUpsertion:
    name: str = wire(String)
    mechanism: int = wire(Int8)
    iterations: int = wire(Int32)
    salt: bytes = wire(Bytes)
    salted_password: bytes = wire(Bytes)


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramCredentialDeletion, ...] = wire(Array(ScramCredentialDeletion))
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire(Array(ScramCredentialUpsertion))


@struct
class AlterUserScramCredentialsResult:
    user: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[AlterUserScramCredentialsResult, ...] = wire(Array(AlterUserScramCredentialsResult))
