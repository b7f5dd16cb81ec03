"""The users of a server, with their salted hashes."""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Protocol

from ottla.sasl_server.scram import HASHES, LEAST_ITERATIONS, SHA_512, ScramCredential, credential_of

_SALT = 20
"""Bytes of a derived salt, if there is no user yet."""


class Users(Protocol):
    """Finds credentials."""

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """The credential for a mechanism of SCRAM. No password matches the credential of an unknown user."""
        ...

    def any_credential(self, user: str) -> ScramCredential:
        """A credential of the user for some mechanism, against which to check a password; else as `credential`."""
        ...


class UserTable:
    """Keeps the credentials of all users.

    Rules:
    - The credentials that unknown users seem to have are derived from the name and `secret`, so that they stay the same
      over restarts. They look like real ones as long as all users have equally many iterations.

    Args:
        secret: random bytes of this server.
        credentials: user -> mechanism -> credential.
    """

    def __init__(self, secret: bytes, credentials: Mapping[str, Mapping[str, ScramCredential]]) -> None:
        self.secret = secret
        self._users = {user: dict(theirs) for user, theirs in credentials.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._users))

    def __len__(self) -> int:
        return len(self._users)

    def credentials(self, user: str) -> Mapping[str, ScramCredential]:
        """The user's credentials by mechanism; empty for unknown users."""
        return self._users.get(user, {})

    def changed(self, user: str, mechanism: str, credential: ScramCredential | None) -> "UserTable":
        """A copy with another credential, or without one."""
        theirs = {name: each for name, each in self.credentials(user).items() if name != mechanism}
        if credential is not None:
            theirs[mechanism] = credential
        others = {name: each for name, each in self._users.items() if name != user}
        return UserTable(self.secret, others | ({user: theirs} if theirs else {}))

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """See `Users.credential`."""
        unknown = self._unknown(mechanism, user)  # also for users that exist, so that both take the same time
        return self.credentials(user).get(mechanism, unknown)

    def any_credential(self, user: str) -> ScramCredential:
        """See `Users.any_credential`."""
        theirs, unknown = self.credentials(user), self._unknown(self._usual(), user)
        return theirs.get(SHA_512) or next(iter(theirs.values()), unknown)

    def _usual(self) -> str:
        """The mechanism that the first user has."""
        first = next(iter(self._users.values()), {})
        return SHA_512 if SHA_512 in first else next(iter(first), SHA_512)

    def _unknown(self, mechanism: str, user: str) -> ScramCredential:
        known = (theirs[mechanism] for theirs in self._users.values() if mechanism in theirs)
        like = next(known, None)
        iterations = LEAST_ITERATIONS if like is None else like.iterations
        length = _SALT if like is None else len(like.salt)
        salt = self._derived("salt", mechanism, user)
        salt = (salt * (length // len(salt) + 1))[:length]
        salted = hashlib.new(HASHES[mechanism], self._derived("key", mechanism, user)).digest()
        return credential_of(mechanism, salted, salt, iterations)

    def _derived(self, purpose: str, mechanism: str, user: str) -> bytes:
        """Bytes that only this server can compute."""
        return hmac.digest(self.secret, f"{purpose} {mechanism} {user}".encode(errors="surrogatepass"), "sha512")
