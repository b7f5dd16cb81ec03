"""OpenID Connect's client credentials: a service gets a token for its own id and secret.

    OAuthBearer(ClientCredentials("https://idp.example.com/token", "billing", "secret", scope="kafka"))

Rules:
- An endpoint's refusal of the client (a wrong secret, an unknown scope) is `AuthenticationFailed`: another attempt
  would end the same way. An endpoint that cannot be reached, or is overloaded, is `ConnectionLost`.
- Redirects are not followed: they would send the secret to another host.
- Id, secret and token are sent in the body and in headers only, and no message contains them.
- One deadline bounds the whole exchange, however slowly its parts arrive; only the system's name look-up has its own
  timeouts.

Source: RFC 6749, 2.3.1 and 4.4; KIP-768 (OAuthBearerLoginCallbackHandler.java, HttpAccessTokenRetriever.java).
"""

import base64
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import Request

from ottla import bounded_http
from ottla.errors import AuthenticationFailed, ConfigurationError, ConnectionLost
from ottla.sasl import Token, jwt_expiry
from ottla.tls import TLS

_REFUSED = (400, 401, 403)
"""HTTP statuses for a refused client; 404 and others may come from a proxy on the way."""


@dataclass(frozen=True)
class ClientCredentials:
    """Fetches tokens from an endpoint; blocks.

    Attributes:
        endpoint: the URL of the token endpoint.
        client_id: the id of this service.
        client_secret: its secret.
        scope: the scope of the token, if the endpoint requires one.
        parameters: further parameters, such as ``{"audience": "kafka"}``.
        tls: has the CA that signed the endpoint's certificate, if it is not one of the system's.
        timeout: seconds for the whole exchange, from the connection to the last byte of the response.
        urlencode_header: URL-encode id and secret before they go into the header, as in RFC 6749; Java's clients do so
            only if `sasl.oauthbearer.header.urlencode` is set.

    Raises:
        ConfigurationError: one of them is invalid.
    """

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: TLS | None = None
    timeout: float = 10.0
    urlencode_header: bool = True

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.endpoint)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.username is None and parts.port != 0
        except ValueError:  # not a valid address or port
            usable = False
        if not usable:
            raise ConfigurationError("sasl: the token endpoint must be a URL like https://host/path, without a user")
        if not (self.client_id and self.client_secret):
            raise ConfigurationError("sasl: a token endpoint needs client_id and client_secret")
        try:
            self._request()
        except (UnicodeError, TypeError):  # whose messages show a secret
            raise ConfigurationError("sasl: a token endpoint accepts only strings that UTF-8 can encode") from None
        if not isinstance(self.urlencode_header, bool):
            raise ConfigurationError(f"sasl: urlencode_header must be True or False, not {self.urlencode_header!r}")
        if not self.timeout > 0:
            raise ConfigurationError(f"sasl: timeout must be more than 0 s, not {self.timeout!r}")

    def __call__(self) -> Token:
        """Fetch a token.

        Raises:
            AuthenticationFailed: the endpoint refuses this client, or cannot be trusted.
            ConnectionLost: it cannot be reached, or its response has no token.
        """
        until = time.monotonic() + self.timeout
        try:
            with bounded_http.opener(self.tls, until).open(self._request(), timeout=self.timeout) as answer:
                body = bounded_http.read(answer)
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        answered = _parsed(body)
        token, lasts = answered.get("access_token"), answered.get("expires_in")
        if not isinstance(token, str) or not token:
            raise ConnectionLost(f"{self.endpoint} answered without a token (access_token)")
        try:
            return Token(token, time.time() + float(lasts) if lasts else jwt_expiry(token))
        except (TypeError, ValueError):
            raise ConnectionLost(f"{self.endpoint} does not say how long its token lasts (expires_in)") from None

    def _request(self) -> Request:
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {}), **self.parameters}
        pair = self.client_id, self.client_secret
        login = base64.b64encode(":".join(map(quote_plus, pair) if self.urlencode_header else pair).encode()).decode()
        headers = {
            "Authorization": f"Basic {login}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return Request(self.endpoint, urlencode(form).encode(), headers, method="POST")

    def _refusal(self, error: HTTPError) -> Exception:
        try:
            said = _parsed(bounded_http.read(error))
        except (OSError, HTTPException):
            said = {}
        why = ": ".join(str(said[each])[:200] for each in ("error", "error_description") if said.get(each))
        if error.code in _REFUSED:
            return AuthenticationFailed(
                f"{self.endpoint} refuses client {self.client_id!r}: HTTP {error.code} {why or error.reason}"
            )
        return ConnectionLost(f"{self.endpoint} answered with HTTP {error.code} {why or error.reason}")

    def _unreachable(self, error: OSError | HTTPException) -> Exception:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "give the CA that signed it as ClientCredentials(tls=TLS(ca=…))"
            return AuthenticationFailed(f"{self.endpoint} is not trusted: {cause.verify_message}; {advice}")
        if isinstance(cause, TimeoutError):
            cause = f"it has not answered within {self.timeout:g} s"
        return ConnectionLost(f"{self.endpoint} cannot be reached: {cause}")


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
