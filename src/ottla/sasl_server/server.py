"""The mechanisms of one listener, ready for its connections."""

import base64
from collections.abc import Callable
from functools import partial

from ottla.sasl_server.exchanges import OAUTHBEARER, PLAIN, Exchange, bearer, plain, scram_exchange
from ottla.sasl_server.passwords import PasswordCheck
from ottla.sasl_server.session import Mechanism, SaslSession
from ottla.sasl_server.settings import SaslSettings
from ottla.sasl_server.tokens import TokenCheck
from ottla.sasl_server.users import Users

_NONCE = 24
"""Bytes."""


class SaslServer:
    """Begins the `SaslSession` of each connection.

    Args:
        users: for PLAIN and SCRAM.
        random: returns so many unpredictable bytes.

    Raises:
        ConfigurationError: the keys for OAUTHBEARER cannot be read, or joserfc is missing.
    """

    def __init__(self, settings: SaslSettings, users: Users, random: Callable[[int], bytes]) -> None:
        self.settings = settings
        self.users, self._random = users, random
        self._mechanisms = {name: self._mechanism(name) for name in settings.mechanisms}

    def session(self) -> SaslSession:
        """The session of a new connection."""
        return SaslSession(self._mechanisms, self.settings)

    def _mechanism(self, name: str) -> Mechanism:
        if name == PLAIN:
            return partial(plain, PasswordCheck(self.users, self._random(32)))
        if name == OAUTHBEARER:
            assert self.settings.oauth is not None
            return partial(bearer, TokenCheck(self.settings.oauth))
        return partial(self._scram, name)

    def _scram(self, name: str, token: bytes) -> Exchange:
        nonce = base64.b64encode(self._random(_NONCE)).decode()
        return scram_exchange(name, self.users, nonce, token)
