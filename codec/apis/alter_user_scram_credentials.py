"""AlterUserScramCredentials (key 51): give users SCRAM passwords, or take them away.

Sent by administrators (Admin.alterUserScramCredentials, kafka-configs.sh --alter --entity-type users) to any broker,
which forwards it to the controller (up to 3.4 only clusters with ZooKeeper had it). Requires the right to alter the
cluster.

The password itself is never sent: the sender salts and hashes it (RFC 5802's ``Hi``, which is PBKDF2 with the
mechanism's HMAC), and the controller stores values derived from that. An eavesdropper who sees `salted_password` can
still log in, so use TLS. Connections that are already open stay valid with the old password.

A user has one credential per mechanism, and a request may change one credential of each user. Each user succeeds or
fails independently.

Errors:
    RESOURCE_NOT_FOUND: nothing to delete.
    DUPLICATE_RESOURCE: the request names the user more than once; none of these changes was made.
    UNSUPPORTED_SASL_MECHANISM: the cluster does not know the mechanism.
    UNACCEPTABLE_CREDENTIAL: an empty user name, or too few or too many iterations.
    UNSUPPORTED_VERSION: the cluster's `metadata.version` is older than SCRAM in KRaft.
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. See Metadata.

Versions:
    0 (2.7)

Source: ScramControlManager.java; KIP-554, KIP-900.
"""

from ottla.codec.wire import Array, Bytes, Int8, Int16, Int32, String, message, struct, wire

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2


@struct
class ScramCredentialDeletion:
    name: str = wire(String)
    mechanism: int = wire(Int8)
    """`SCRAM_SHA_256` or `SCRAM_SHA_512`."""


@struct
class ScramCredentialUpsertion:
    """A credential to create, or to replace an existing one."""

    name: str = wire(String)
    mechanism: int = wire(Int8)
    """`SCRAM_SHA_256` or `SCRAM_SHA_512`."""
    iterations: int = wire(Int32)
    """From 4096 to 16384."""
    salt: bytes = wire(Bytes)
    """Random bytes that the sender chose."""
    salted_password: bytes = wire(Bytes)
    """``Hi(password, salt, iterations)``: 32 bytes with SHA-256, 64 with SHA-512."""


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
    """One for each user."""
