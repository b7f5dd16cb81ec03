"""Checks passwords against salted hashes: in a thread, because a hash takes milliseconds, and with a short cache.

Rules:
- Only right passwords are cached, so guesses cannot fill the memory; of these, at most `_MOST`, for `_KEPT` seconds.
- The cache has HMACs with a random key, and each belongs to one credential: a changed password is another credential.
"""

import hmac
import threading
import time
from collections.abc import Callable

from ottla.sasl_server.scram import ScramCredential
from ottla.sasl_server.users import Users

_KEPT = 60.0
_MOST = 1000


class PasswordCheck:
    """Checks the passwords of users.

    Args:
        secret: random bytes, the key of the cache.
    """

    def __init__(self, users: Users, secret: bytes, clock: Callable[[], float] = time.monotonic) -> None:
        self._users, self._secret, self._clock = users, secret, clock
        self._right: dict[str, tuple[ScramCredential, bytes, float]] = {}
        """User -> credential, the password's HMAC, and the time until which it is kept."""
        self._guard = threading.Lock()

    def known(self, user: str, password: str) -> bool:
        """See `PasswordChecker.known`."""
        kept = self._right.get(user)
        if kept is None or self._clock() >= kept[2] or self._users.any_credential(user) != kept[0]:
            return False
        return hmac.compare_digest(kept[1], self._digest(password))

    def check(self, user: str, password: str) -> bool:
        """See `PasswordChecker.check`."""
        credential = self._users.any_credential(user)
        if not credential.accepts(password) or self._users.any_credential(user) != credential:  # changed meanwhile
            return False
        with self._guard:
            self._right.pop(user, None)
            while len(self._right) >= _MOST:
                del self._right[next(iter(self._right))]
            self._right[user] = credential, self._digest(password), self._clock() + _KEPT
        return True

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._secret, password.encode(), "sha256")
