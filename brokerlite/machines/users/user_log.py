"""Stores the users' credentials as records of a log of their own, and loads them.

Rules:
- Clients cannot read this log (`HIDDEN`): its records help to guess passwords.
- The record of the empty name, which no user can have, holds the secret from which the salts of unknown users are
  derived.
- A damaged or lost record may have deleted a user or changed a password. So after damage only credentials that were
  stored behind it are valid.

Source: ScramImage.java, ScramControlManager.java; KIP-900.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.brokerlite.machines.topics.keyed_log import KeyedLog, KeyedRecord, Pair
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, parse_prefixed
from ottla.codec.stored.user_credentials import UserScramCredentialKey, UserScramCredentialValue
from ottla.codec.wire import api
from ottla.errors import DecodeError
from ottla.sasl_server.scram import SHA_256, SHA_512, ScramCredential

log = logging.getLogger("ottla.brokerlite")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 * 2**20), "max.message.bytes": str(64 * 2**20)}
MECHANISMS: Mapping[int, str] = {1: SHA_256, 2: SHA_512}
_NUMBERS = {name: number for number, name in MECHANISMS.items()}
_VERSION = 0
_SECRET_OF = ""


class UserChange(NamedTuple):
    """A change of one credential.

    Attributes:
        credential: ``None``: it is deleted.
    """

    user: str
    mechanism: str
    credential: ScramCredential | None


class LoadedUsers(NamedTuple):
    """The content of the log.

    Attributes:
        secret: ``None`` if there is none.
        credentials: user -> mechanism -> credential.
    """

    secret: bytes | None
    credentials: dict[str, dict[str, ScramCredential]]


class UserLog:
    """Writes and loads the log."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log

    def store(self, secret: bytes, changes: Iterable[UserChange]) -> None:
        """Write changes in one batch.

        Raises:
            KafkaStorageError: the disk refused; none of them is stored.
        """
        of_secret = UserScramCredentialValue(
            name=_SECRET_OF, mechanism=0, salt=secret, stored_key=b"", server_key=b"", iterations=0
        )
        pairs = [(_key(_SECRET_OF, 0), build_prefixed(of_secret, _VERSION))]
        self._log.write([*pairs, *map(_pair, changes)])

    def load(self) -> LoadedUsers:
        """Read the whole log; leave out damaged records, and credentials that may be outdated, and log that."""
        secret: bytes | None = None
        users: dict[str, dict[str, ScramCredential]] = {}
        loaded = self._log.load()
        damaged, values = loaded.damaged_offset, list[tuple[int, UserScramCredentialValue]]()
        for entry in loaded.entries:
            try:
                values.append((entry.offset, _value(entry)))
            except DecodeError as error:
                log.error("damaged record of %s skipped: %s", self._log.name, error.path or "value")
                damaged = max(damaged, entry.offset)
        outdated = sorted({each.name for offset, each in values if offset < damaged} - {_SECRET_OF})
        if outdated:
            log.error(
                "stored credentials are damaged, so users that were stored before cannot log in",
                extra={"users": ", ".join(outdated)},
            )
        for offset, value in values:
            if value.name == _SECRET_OF:
                secret = value.salt
            elif offset >= damaged:
                mechanism = MECHANISMS[value.mechanism]
                users.setdefault(value.name, {})[mechanism] = ScramCredential(
                    mechanism, value.salt, value.iterations, value.stored_key, value.server_key
                )
        return LoadedUsers(secret, users)


def _key(name: str, mechanism: int) -> bytes:
    key = UserScramCredentialKey(name=name, mechanism=mechanism)
    return api(UserScramCredentialKey).key.to_bytes(SIZE, "big") + messages.build(key, 0)


def _pair(change: UserChange) -> Pair:
    number, credential = _NUMBERS[change.mechanism], change.credential
    if credential is None:
        return _key(change.user, number), None
    value = UserScramCredentialValue(
        name=change.user,
        mechanism=number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
    return _key(change.user, number), build_prefixed(value, _VERSION)


def _value(entry: KeyedRecord) -> UserScramCredentialValue:
    _, value, _ = parse_prefixed(UserScramCredentialValue, entry.value or b"")
    if value.name != _SECRET_OF and value.mechanism not in MECHANISMS:
        raise DecodeError(f"unknown mechanism {value.mechanism}", "UserScramCredentialValue.mechanism", 0)
    return value
