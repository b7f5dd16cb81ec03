"""The table of users, and the requests that change it.

Rules:
- A request may name a user once. Each user succeeds or fails independently.
- A change is in the log before it is in effect.

Source: ScramControlManager.java; KIP-554.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from ottla.brokerlite.machines.users.user_log import MECHANISMS, UserChange, UserLog
from ottla.errors import (
    BrokerError,
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from ottla.sasl_server.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS, ScramCredential, credential_of
from ottla.sasl_server.users import UserTable

_LONGEST_NAME = 1000
_LONGEST_SALT = 1024


class UserCredentials:
    """The users of the broker.

    Args:
        secret: random bytes, for a log that has none yet.

    Attributes:
        table: the users now.
    """

    def __init__(self, log: UserLog, secret: bytes) -> None:
        self._log = log
        found = log.load()
        self.table = UserTable(found.secret or secret, found.credentials)

    def alter(
        self, deletions: Sequence[tuple[str, int]], upsertions: Sequence[tuple[str, int, int, bytes, bytes]]
    ) -> dict[str, BrokerError | None]:
        """Change credentials.

        Args:
            deletions: user, number of the mechanism.
            upsertions: user, number of the mechanism, iterations, salt, salted password.

        Returns:
            user -> the error, or ``None``.
        """
        wanted: list[tuple[str, Callable[[], UserChange]]] = [
            *((each[0], partial(self._deletion, *each)) for each in deletions),
            *((each[0], partial(self._upsertion, *each)) for each in upsertions),
        ]
        named = Counter(user for user, _ in wanted)
        results: dict[str, BrokerError | None] = {}
        changes = []
        for user, change in wanted:
            try:
                if named[user] > 1:
                    raise DuplicateResource("A user credential cannot be altered twice in the same request")
                changes.append(change())
                results[user] = None
            except BrokerError as error:
                results[user] = error
        try:
            self._change(changes)
        except BrokerError as error:
            results |= dict.fromkeys((each.user for each in changes), error)
        return results

    def store(self, user: str, credential: ScramCredential) -> None:
        """Store a credential of a user.

        Raises:
            BrokerError: the name is not allowed, or the disk refused.
        """
        _check_name(user)
        self._change([UserChange(user, credential.mechanism, credential)])

    def delete(self, user: str) -> None:
        """Delete all credentials of a user.

        Raises:
            BrokerError: there is no such user, or the disk refused.
        """
        if not (theirs := self.table.credentials(user)):
            raise ResourceNotFound(f"there is no user {user!r}")
        self._change([UserChange(user, mechanism, None) for mechanism in theirs])

    def _change(self, changes: Sequence[UserChange]) -> None:
        if changes:
            self._log.store(self.table.secret, changes)
        for each in changes:
            self.table = self.table.changed(*each)

    def _deletion(self, user: str, mechanism: int) -> UserChange:
        name = _checked(user, mechanism)
        if name not in self.table.credentials(user):
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")
        return UserChange(user, name, None)

    def _upsertion(self, user: str, mechanism: int, iterations: int, salt: bytes, salted: bytes) -> UserChange:
        name = _checked(user, mechanism)
        if iterations < LEAST_ITERATIONS:
            raise UnacceptableCredential("Too few iterations")
        if iterations > MOST_ITERATIONS:
            raise UnacceptableCredential("Too many iterations")
        if len(salted) != hashlib.new(HASHES[name]).digest_size or not 0 < len(salt) <= _LONGEST_SALT:
            raise UnacceptableCredential("The salt or the salted password has a wrong length")
        return UserChange(user, name, credential_of(name, salted, salt, iterations))


def _checked(user: str, mechanism: int) -> str:
    """The name of the mechanism."""
    if mechanism not in MECHANISMS:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    _check_name(user)
    return MECHANISMS[mechanism]


def _check_name(user: str) -> None:
    if not user:
        raise UnacceptableCredential("Username must not be empty")
    if len(user) > _LONGEST_NAME:
        raise UnacceptableCredential(f"Username is longer than {_LONGEST_NAME} characters")
