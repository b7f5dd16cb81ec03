"""Checks JWTs, as OAUTHBEARER carries them; blocks, so it runs in threads.

Rules:
- Only algorithms with a public key are allowed (`_ALGORITHMS`): with HMAC anyone who knows the public key could sign,
  and a token of ``none`` has no signature.
- The header's ``kid`` names the key. A token without one is accepted if there is only one key.
- ``exp`` and the subject are required; ``nbf`` and ``iat`` are checked if the token has them.
- The client learns ``invalid_token`` only (RFC 7628); the server's log has the reason, without the token.

Source: OAuthBearerValidatorCallbackHandler.java, BrokerJwtValidator.java; RFC 7519, RFC 8725.
"""

import logging
import math
from types import ModuleType
from typing import Any

from ottla.errors import ConfigurationError
from ottla.sasl_server.exchanges import Refused
from ottla.sasl_server.keys import SigningKeys
from ottla.sasl_server.settings import OAuthSettings

log = logging.getLogger("ottla.serve")

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LONGEST = 64 * 2**10
"""Bytes of a token; real ones have one to four thousand."""


class TokenCheck:
    """Checks tokens against the keys of one JWKS.

    Raises:
        ConfigurationError: joserfc is missing, or the keys cannot be read from a file.
    """

    def __init__(self, settings: OAuthSettings) -> None:
        self._settings = settings
        self._jose = _jose()
        self._keys = SigningKeys(settings, self._jose.jwk)
        wanted: dict[str, Any] = {"exp": {"essential": True}, settings.subject: {"essential": True}}
        if settings.issuer is not None:
            wanted["iss"] = {"essential": True, "value": settings.issuer}
        if settings.audience:
            wanted["aud"] = {"essential": True, "values": list(settings.audience)}
        self._claims = self._jose.jwt.JWTClaimsRegistry(leeway=int(settings.clock_skew), **wanted)

    def check(self, token: str) -> tuple[str, float]:
        """See `TokenChecker.check`."""
        who: str | None = None
        try:
            if len(token) > _LONGEST:
                raise ValueError("it is too long")
            header = self._jose.jws.extract_compact(token.encode()).headers()
            key = self._keys.key(header.get("kid"))
            decoded = self._jose.jwt.decode(token, key, algorithms=list(_ALGORITHMS))
            claims = decoded.claims
            self._claims.validate(claims)
            user, expires_at = claims[self._settings.subject], float(claims["exp"])
            if not isinstance(user, str) or not user or not math.isfinite(expires_at):
                raise ValueError("its subject is not a name")
            return user, expires_at
        except Exception as error:  # of the library, for whatever a client may send; also RecursionError
            log.debug("token refused: %s", type(error).__name__)
            raise Refused("invalid_token", who) from None


def _jose() -> Any:
    try:
        from joserfc import jwk, jws, jwt
    except ImportError:
        raise ConfigurationError("OAUTHBEARER needs joserfc: run pip install 'ottla[oauth]'") from None
    modules = ModuleType("jose")
    vars(modules).update(jwk=jwk, jws=jws, jwt=jwt)
    return modules
