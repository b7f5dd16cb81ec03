"""Credentials of SCRAM users, as Apache Kafka stores them in the log of its controllers.

Apache Kafka writes `UserScramCredentialValue` (its UserScramCredentialRecord) into ``__cluster_metadata``, and
RemoveUserScramCredentialRecord to delete it; these records have no keys. brokerlite keeps them in a compacted log,
which needs a key (`UserScramCredentialKey`), and deletes one with a null value. No other program reads that log.

The stored key and the server key are derived from the password (RFC 5802): nobody can log in with them, but guesses can
be compared with them.

Source: UserScramCredentialRecord.json; KIP-900.
"""

from ottla.codec.wire import Bytes, Int8, Int32, String, message, wire


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialKey:
    name: str = wire(String)
    mechanism: int = wire(Int8)
    """1: SCRAM-SHA-256. 2: SCRAM-SHA-512."""


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialValue:
    name: str = wire(String)
    mechanism: int = wire(Int8)
    salt: bytes = wire(Bytes)
    stored_key: bytes = wire(Bytes)
    server_key: bytes = wire(Bytes)
    iterations: int = wire(Int32)
