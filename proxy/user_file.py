"""The users of a proxy, with their salted hashes, in a file.

Rules:
- The file has no passwords: hashes of SCRAM only, as brokers store them. PLAIN is checked against the same hashes.
- A change replaces the file as a whole, so that no reader sees half of it. Only its owner can read it.
- The proxy reads the file again when it has changed. If it cannot be used then, the proxy keeps the previous users, and
  logs one line.
- The file has a secret of its own, from which the proxy derives the salts that unknown users seem to have.
"""

import base64
import binascii
import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla._pem import stamp
from ottla.errors import ConfigurationError, reason
from ottla.sasl_server.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS, ScramCredential
from ottla.sasl_server.users import UserTable

log = logging.getLogger("ottla.proxy")

_LOOK = 1.0
"""Seconds between two looks at the file."""
_SECRET = 32
"""Bytes."""
_MOST = 64 * 2**20
"""Bytes of the largest file."""


def new_users() -> UserTable:
    """A table without users."""
    return UserTable(secrets.token_bytes(_SECRET), {})


def read_users(path: Path) -> UserTable:
    """Read the users.

    Raises:
        ConfigurationError: the file cannot be read, or has other contents; no message shows a hash.
    """
    try:
        if path.stat().st_size > _MOST:
            raise ConfigurationError(f"users: {path} is larger than {_MOST} bytes")
        data = path.read_bytes()
    except OSError as error:
        advice = "; add the first user with ottla proxy users add" if isinstance(error, FileNotFoundError) else ""
        raise ConfigurationError(f"users: cannot read {path}: {reason(error)}{advice}") from None
    try:
        content = json.loads(data)
        users = {name: _credentials(theirs) for name, theirs in content["users"].items()}
        return UserTable(_decoded(content["secret"]), users)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(f"users: {path} is not a file of ottla proxy users") from None


def _credentials(theirs: Any) -> dict[str, ScramCredential]:
    found = {
        mechanism: ScramCredential(
            mechanism,
            _decoded(each["salt"]),
            each["iterations"],
            _decoded(each["stored-key"]),
            _decoded(each["server-key"]),
        )
        for mechanism, each in theirs.items()
    }
    for mechanism, credential in found.items():
        if mechanism not in HASHES or not isinstance(credential.iterations, int):
            raise ValueError("no credential")
        if not LEAST_ITERATIONS <= credential.iterations <= MOST_ITERATIONS:
            raise ValueError("iterations")
    return found


def _decoded(text: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    if not data:
        raise binascii.Error("empty")
    return data


def write_users(path: Path, users: UserTable) -> None:
    """Replace the file, and let only its owner read it.

    Raises:
        ConfigurationError: it cannot be written.
    """
    content = {
        "secret": _encoded(users.secret),
        "users": {
            name: {
                mechanism: {
                    "iterations": each.iterations,
                    "salt": _encoded(each.salt),
                    "stored-key": _encoded(each.stored_key),
                    "server-key": _encoded(each.server_key),
                }
                for mechanism, each in users.credentials(name).items()
            }
            for name in users
        },
    }
    path = path.resolve()  # a link stays a link
    try:
        descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # only its owner can read it
        try:
            with open(descriptor, "w") as file:
                json.dump(content, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            if path.exists():  # a proxy of another user has to read it as before
                owner = path.stat()
                if (owner.st_uid, owner.st_gid) != (os.stat(new).st_uid, os.stat(new).st_gid):
                    os.chown(new, owner.st_uid, owner.st_gid)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
    except OSError as error:
        raise ConfigurationError(f"users: cannot write {path}: {reason(error)}") from None


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


class UserFile:
    """Finds the users of a file, as `ottla.sasl_server.users.Users`; ``None``: there are none.

    Raises:
        ConfigurationError: the file cannot be used.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._seen = self._stamp()
        self._looked_at = clock()
        self._table = self._compared = new_users() if path is None else read_users(path)

    @property
    def table(self) -> UserTable:
        """The users in the file, as of the last second."""
        self._look()
        return self._table

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """See `ottla.sasl_server.users.Users`."""
        return self.table.credential(mechanism, user)

    def any_credential(self, user: str) -> ScramCredential:
        """See `ottla.sasl_server.users.Users`."""
        return self.table.any_credential(user)

    def knows(self, user: str) -> bool:
        """See `ottla.sasl_server.users.Users`."""
        return self.table.knows(user)

    def changed(self) -> frozenset[str]:
        """The users who have other credentials than at the last call, or none any more; blocks."""
        before, now = self._compared, self.table
        self._compared = now
        if before is now:
            return frozenset()
        return frozenset(user for user in before if before.credentials(user) != now.credentials(user))

    def _stamp(self) -> tuple[int, int, int] | None:
        return None if self._path is None else stamp(str(self._path))

    def _look(self) -> None:
        if self._path is None or self._clock() < self._looked_at + _LOOK:
            return
        self._looked_at = self._clock()
        if (seen := self._stamp()) == self._seen:
            return
        self._seen = seen
        try:
            self._table = read_users(self._path)
            log.info("users reloaded", extra={"file": str(self._path), "users": len(self._table)})
        except ConfigurationError as error:
            log.error("new file of users cannot be used, keeping the previous users: %s", error)
