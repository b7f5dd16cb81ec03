"""The users of a server, with their salted hashes.

Rules:
- Each name without a user has a real user as its model, chosen by the name and the secret of the server. It gets the
  mechanisms, iterations and kind of salt that its model has, so it looks like one user more: all users may have been
  made by different tools.
- Salts and keys of such names are derived from the name and the secret, so they stay the same over restarts.
- A model changes with the users: of n users a new or a deleted one is the model of about one name in n.
"""

import hashlib
import hmac
import string
from bisect import bisect, insort
from collections.abc import Iterator, Mapping
from typing import Protocol

from ottla.sasl_server.scram import HASHES, LEAST_ITERATIONS, SHA_512, ScramCredential, credential_of

_SALT = 20
"""Bytes of a derived salt, if there is no user yet."""
_ALPHABETS = tuple(
    each.encode()
    for each in (
        string.digits,
        string.digits + "abcdef",
        string.digits + string.ascii_lowercase,  # of Kafka's own tools
        string.digits + string.ascii_letters,
        string.digits + string.ascii_letters + "+/=",
        "".join(map(chr, range(32, 127))),
    )
)
"""Alphabets of tools that write salts as text; a salt's alphabet is the first with all of its bytes."""
_EVERY_BYTE = bytes(range(256))


class Users(Protocol):
    """Finds credentials."""

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """The credential for a mechanism of SCRAM. No password matches the credential of an unknown user."""
        ...

    def any_credential(self, user: str) -> ScramCredential:
        """A credential of the user for some mechanism, against which to check a password; else as `credential`."""
        ...

    def knows(self, user: str) -> bool:
        """Whether there is such a user."""
        ...


class UserTable:
    """Keeps the credentials of all users.

    Args:
        secret: random bytes of this server.
        credentials: user -> mechanism -> credential.
        circle: the users by a number that only this server can compute; ``None``: compute it.
    """

    def __init__(
        self,
        secret: bytes,
        credentials: Mapping[str, Mapping[str, ScramCredential]],
        circle: list[tuple[bytes, str]] | None = None,
    ) -> None:
        self.secret = secret
        self._users = {user: dict(theirs) for user, theirs in credentials.items() if theirs}
        if circle is None:
            circle = sorted((self._point("model", user), user) for user in self._users)
        self._circle = circle

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._users))

    def __len__(self) -> int:
        return len(self._users)

    def knows(self, user: str) -> bool:
        """See `Users.knows`."""
        return user in self._users

    def credentials(self, user: str) -> Mapping[str, ScramCredential]:
        """The user's credentials by mechanism; empty for unknown users."""
        return self._users.get(user, {})

    def changed(self, user: str, mechanism: str, credential: ScramCredential | None) -> "UserTable":
        """A copy with another credential, or without one."""
        theirs = {name: each for name, each in self.credentials(user).items() if name != mechanism}
        if credential is not None:
            theirs[mechanism] = credential
        circle = self._circle
        if bool(theirs) != (user in self._users):
            circle = [each for each in circle if each[1] != user]
            if theirs:
                insort(circle, (self._point("model", user), user))
        return UserTable(self.secret, {**self._users, user: theirs}, circle)

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """See `Users.credential`."""
        unknown = self._unknown(mechanism, user)  # also for users that exist, so that both take the same time
        return self.credentials(user).get(mechanism, unknown)

    def any_credential(self, user: str) -> ScramCredential:
        """See `Users.any_credential`."""
        model = self._model(user)
        unknown = self._unknown(_best(self._users[model]) if model is not None else SHA_512, user)
        theirs = self.credentials(user)
        return theirs[_best(theirs)] if theirs else unknown

    def _model(self, user: str, mechanism: str | None = None) -> str | None:
        """The first user behind the point of a name on the circle, with this mechanism; ``None``: there is no such."""
        start = bisect(self._circle, (self._point("name", user), ""))
        for at in range(len(self._circle)):
            _, each = self._circle[(start + at) % len(self._circle)]
            if mechanism is None or mechanism in self._users[each]:
                return each
        return None

    def _unknown(self, mechanism: str, user: str) -> ScramCredential:
        model = self._model(user, mechanism)
        like = None if model is None else self._users[model][mechanism]
        iterations = LEAST_ITERATIONS if like is None else like.iterations
        seed = self._derived("salt", mechanism, user)
        salt = hashlib.shake_256(seed).digest(_SALT) if like is None else _salt_like(like.salt, seed)
        salted = hashlib.new(HASHES[mechanism], self._derived("key", mechanism, user)).digest()
        return credential_of(mechanism, salted, salt, iterations)

    def _point(self, purpose: str, user: str) -> bytes:
        return self._derived(purpose, "", user)

    def _derived(self, purpose: str, mechanism: str, user: str) -> bytes:
        """Bytes that only this server can compute."""
        return hmac.digest(self.secret, f"{purpose} {mechanism} {user}".encode(errors="surrogatepass"), "sha512")


def _best(theirs: Mapping[str, ScramCredential]) -> str:
    """The mechanism whose credential checks the user's password."""
    return SHA_512 if SHA_512 in theirs else next(iter(theirs))


def _salt_like(salt: bytes, seed: bytes) -> bytes:
    """A salt of the same length and alphabet, the same for the same seed.

    The first character is the same, too: Kafka's tools write a number, whose first digit is usually 1.
    """
    alphabet = next((each for each in _ALPHABETS if set(salt) <= set(each)), _EVERY_BYTE)
    random = hashlib.shake_256(seed).digest(2 * len(salt))
    numbers = (int.from_bytes(random[at : at + 2], "big") for at in range(0, len(random), 2))
    made = bytes(alphabet[number % len(alphabet)] for number in numbers)
    return made if alphabet is _EVERY_BYTE else salt[:1] + made[1:]
