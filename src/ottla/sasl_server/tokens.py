"""Checks JWTs, as OAUTHBEARER carries them; blocks, so it runs in threads.

Rules:
- Only algorithms with a public key are allowed (`_ALGORITHMS`): with HMAC anyone who knows the public key could sign,
  and a token of ``none`` has no signature.
- The header's ``kid`` names the key. A token without one is accepted if there is only one key.
- ``exp`` and the subject are required; ``nbf`` and ``iat`` are checked if the token has them.
- The client learns ``invalid_token`` only (RFC 7628); the server's log has the reason, without the token. The reason
  shows the key's id and the algorithm, which anyone may choose, escaped and cut.

Source: OAuthBearerValidatorCallbackHandler.java, BrokerJwtValidator.java; RFC 7519, RFC 8725.
"""

import math
import time
from types import ModuleType
from typing import Any

from ottla.errors import ConfigurationError
from ottla.sasl_server.exchanges import Refused
from ottla.sasl_server.keys import SigningKeys, UnknownKey
from ottla.sasl_server.settings import OAuthSettings

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
        claims: dict[str, Any] = {}
        header: dict[str, Any] = {}
        try:
            if len(token) > _LONGEST:
                raise _Unfit(f"the token is longer than {_LONGEST} bytes")
            header = self._jose.jws.extract_compact(token.encode()).headers()
            key = self._keys.key(header.get("kid"))
            claims = self._jose.jwt.decode(token, key, algorithms=list(_ALGORITHMS)).claims
            self._claims.validate(claims)
            user, expires_at = claims[self._settings.subject], float(claims["exp"])
            if not isinstance(user, str) or not user or not math.isfinite(expires_at):
                raise _Unfit(f"the token's {self._settings.subject} is not a name")
            return user, expires_at
        except Exception as error:  # of the library, for whatever a client may send; also RecursionError
            raise Refused("invalid_token", why=self._reason(error, header, claims)) from None

    def _reason(self, error: Exception, header: dict[str, Any], claims: dict[str, Any]) -> str:
        """The reason of a refusal, as the log shows it."""
        if isinstance(error, _Unfit | UnknownKey):
            return str(error)
        kind, claim = type(error).__name__, getattr(error, "claim", "")
        match kind, claim:
            case "BadSignatureError", _:
                return f"the signature is not by key {header.get('kid')!r:.80}"
            case (("UnsupportedAlgorithmError" | "ConflictAlgorithmError"), _):
                return f"the algorithm {header.get('alg')!r:.40} is not allowed"
            case "MissingClaimError", _:
                return f"the token has no {claim}"
            case "ExpiredTokenError", _:
                return f"the token expired {time.time() - max(claims['exp'], 0):.0f} s ago"
            case "InvalidClaimError", "iss":
                return f"its iss is not {self._settings.issuer!r}"
            case "InvalidClaimError", "aud":
                return f"its aud is none of {', '.join(map(repr, self._settings.audience))}"
            case "InvalidClaimError", ("nbf" | "iat"):
                return f"its {claim} is in the future: check the clocks"
            case "InvalidClaimError", _:
                return f"its {claim} cannot be used"
        return f"it is not a token that can be checked ({kind})"


class _Unfit(ValueError):
    """The token cannot be used; the text is for the log."""


def _jose() -> Any:
    try:
        from joserfc import jwk, jws, jwt
    except ImportError:
        raise ConfigurationError("OAUTHBEARER needs joserfc: run pip install 'ottla[oauth]'") from None
    modules = ModuleType("jose")
    vars(modules).update(jwk=jwk, jws=jws, jwt=jwt)
    return modules
