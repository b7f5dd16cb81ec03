"""SASL's mechanisms: how a client authenticates, token by token. Other modules send the tokens.

    ottla.connect("broker:9093", tls=TLS(), sasl=ScramSha512("alice", "secret"))
    ottla.connect("broker:9093", tls=TLS(), sasl=OAuthBearer(ClientCredentials("https://idp/token", "id", "secret")))

    exchange = sasl.exchange()              # for each connection
    token = exchange.begin()
    while token is not None:
        token = exchange.answered(ask(token))

Rules:
- Names and passwords are used as given. SCRAM prepares them by SASLprep (RFC 4013), which Kafka does not: those that
  SASLprep would change are refused. A password or a token never appears in a ``repr``, a message or a log.
- PLAIN sends the password itself: use it over TLS.
- With SCRAM the broker has to prove that it knows the password, too; a broker that does not is refused.

Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER); PlainSaslServer.java,
ScramSaslClient.java, ScramFormatter.java, OAuthBearerClientInitialResponse.java.
"""

import base64
import inspect
import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from scramp import ScramClient, ScramException
from scramp.core import saslprep

from ottla.errors import AuthenticationFailed, ConfigurationError

_MOST_ITERATIONS = 100_000
"""Iterations of a hash that take a tenth of a second; Kafka's brokers ask for 4,096 to 16,384."""


class SaslExchange(Protocol):
    """The client's side of one authentication."""

    def begin(self) -> bytes:
        """Return the first token."""
        ...

    def answered(self, token: bytes) -> bytes | None:
        """Take the broker's answer to the last token; return the next one, or ``None`` when done.

        Raises:
            AuthenticationFailed: the broker does not know the password, or violates the mechanism.
        """
        ...


class Mechanism(Protocol):
    """How a client authenticates.

    Attributes:
        mechanism: Kafka's name of the mechanism.
        who: the client's name in messages.
        bearer: itself, if it uses tokens that have to be fetched.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def who(self) -> str: ...

    @property
    def bearer(self) -> "OAuthBearer | None": ...

    def exchange(self) -> SaslExchange:
        """Begin an exchange for one connection."""
        ...


@dataclass(frozen=True)
class _Password:
    """A mechanism with a password.

    Attributes:
        username: as the broker knows it.
        password: the user's.

    Raises:
        ConfigurationError: one of them is missing, or cannot be encoded.
    """

    username: str
    password: str = field(repr=False)
    mechanism: ClassVar[str]
    bearer: ClassVar[None] = None

    @property
    def who(self) -> str:
        """The client's name in messages."""
        return f"user {self.username!r} by {self.mechanism}"

    def __post_init__(self) -> None:
        for name, value in (("username", self.username), ("password", self.password)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"sasl: the {name} for {self.mechanism} must be a non-empty string")
            if "\0" in value:
                raise ConfigurationError(f"sasl: the {name} for {self.mechanism} contains a zero character")
        try:
            self.exchange().begin()
        except (ScramException, UnicodeEncodeError):  # whose messages may show the password
            raise ConfigurationError(
                f"sasl: the username or the password has a character that {self.mechanism} cannot carry"
            ) from None

    def exchange(self) -> SaslExchange:
        """Begin an exchange for one connection."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plain(_Password):
    """PLAIN: sends the password itself; use it over TLS."""

    mechanism: ClassVar[str] = "PLAIN"

    def exchange(self) -> SaslExchange:
        """Begin an exchange for one connection."""
        return _Once(f"\0{self.username}\0{self.password}".encode())


@dataclass(frozen=True)
class ScramSha256(_Password):
    """SCRAM-SHA-256: sends a proof of the password that is useless to others."""

    mechanism: ClassVar[str] = "SCRAM-SHA-256"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(saslprep(each) != each for each in (self.username, self.password)):
            raise ConfigurationError(
                f"sasl: the username or the password has a character that {self.mechanism} replaces by another (such "
                "as a no-break space), and Kafka's brokers do not: it could never match; avoid such characters"
            )

    def exchange(self) -> SaslExchange:
        """Begin an exchange for one connection."""
        return _Scram(self.mechanism, self.username, self.password)


@dataclass(frozen=True)
class ScramSha512(ScramSha256):
    """SCRAM-SHA-512: sends a proof of the password that is useless to others."""

    mechanism: ClassVar[str] = "SCRAM-SHA-512"


@dataclass(frozen=True)
class Token:
    """The token of an OAUTHBEARER client.

    Attributes:
        value: the token, usually a JWT.
        expires_at: seconds since 1970.

    Raises:
        ConfigurationError: it is not a valid token.
    """

    value: str = field(repr=False)
    expires_at: float

    def __post_init__(self) -> None:
        if not isinstance(self.value, str) or not re.fullmatch(r"[!-~]+", self.value):
            raise ConfigurationError("sasl: a token must be a string of printable ASCII, without spaces")
        if not isinstance(self.expires_at, int | float):
            kind = type(self.expires_at).__name__
            raise ConfigurationError(f"sasl: expires_at must be a number of seconds since 1970, not a {kind}")

    @property
    def lifetime(self) -> float:
        """Seconds until it expires."""
        return self.expires_at - time.time()


@dataclass(frozen=True)
class OAuthBearer:
    """OAUTHBEARER: authenticates with a token that expires.

        OAuthBearer(ClientCredentials("https://idp.example.com/token", "billing", "secret", scope="kafka"))
        OAuthBearer(lambda: read_token())

    Attributes:
        token: called whenever another token is needed, in a thread, so that it may block, but not for long: returns a
            JWT, whose ``exp`` says when it expires, or a `Token`. Its errors are logged, and it is called again after a
            pause; raise `AuthenticationFailed` if another attempt would end the same way.
        extensions: names and values to send along; Confluent Cloud wants ``logicalCluster``, for example.

    Raises:
        ConfigurationError: one of them is invalid.
    """

    token: Callable[[], "str | Token"] = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    mechanism: ClassVar[str] = "OAUTHBEARER"
    who: ClassVar[str] = "the token by OAUTHBEARER"

    def __post_init__(self) -> None:
        if not callable(self.token):
            kind = type(self.token).__name__  # the value may be a token, and must not be shown
            raise ConfigurationError(
                f"sasl: the token of OAuthBearer must be a function that returns a token, not a {kind}"
            )
        if inspect.iscoroutinefunction(self.token):
            raise ConfigurationError(
                "sasl: the token function runs in a thread, where it may block: it cannot be async"
            )
        for name, value in self.extensions.items():
            if not isinstance(name, str) or not re.fullmatch("[A-Za-z]+", name) or name == "auth":
                raise ConfigurationError(f"sasl: the name of an extension must be letters, and not 'auth': {name!r}")
            if not isinstance(value, str) or not re.fullmatch(r"[\x20-\x7e\t\r\n]+", value):
                raise ConfigurationError(f"sasl: the extension {name!r} must be a string of printable ASCII")

    @property
    def bearer(self) -> "OAuthBearer":
        """This mechanism itself."""
        return self

    def fetch(self) -> Token:
        """Call the function; blocks.

        Raises:
            ConfigurationError: it did not return a token.
            Exception: the function's own error.
        """
        token = self.token()
        if isinstance(token, Token):
            return token
        if isinstance(token, str):
            return Token(token, jwt_expiry(token))
        kind = type(token).__name__
        raise ConfigurationError(
            f"sasl: the token function must return a JWT as a string, or an ottla.Token, not a {kind}"
        )

    def exchange(self) -> SaslExchange:
        """Begin an exchange for one connection, with a newly fetched token; blocks."""
        return self.exchange_for(self.fetch())

    def exchange_for(self, token: Token) -> SaslExchange:
        """Begin an exchange for one connection, with the given token."""
        pairs = "".join(f"{name}={value}\x01" for name, value in self.extensions.items())
        return _Bearer(f"n,,\x01auth=Bearer {token.value}\x01{pairs}\x01".encode())


def jwt_expiry(token: str) -> float:
    """The ``exp`` of a JWT, in seconds since 1970. The token is not verified: the broker does that.

    Raises:
        ConfigurationError: it has none, or is not a JWT.
    """
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise ConfigurationError(
            "sasl: the token is not a JWT with an expiry time (exp): return ottla.Token(value, expires_at)"
        ) from None


class _Once:
    """A mechanism with a single token."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def begin(self) -> bytes:
        return self._token

    def answered(self, token: bytes) -> bytes | None:
        return None


class _Bearer(_Once):
    """If the broker sends a token that says why it refuses, it has to be answered before the error comes."""

    def answered(self, token: bytes) -> bytes | None:
        return b"\x01" if token else None


class _Scram:
    def __init__(self, mechanism: str, username: str, password: str) -> None:
        self._client = ScramClient([mechanism], username, password)
        self._mechanism = mechanism
        self._steps = self._run()

    def begin(self) -> bytes:
        return next(self._steps).encode()

    def answered(self, token: bytes) -> bytes | None:
        try:
            following = self._steps.send(token.decode())
        except StopIteration:
            return None
        except (ScramException, ValueError) as error:
            why = f"{self._mechanism}: the broker did not prove that it knows the password: {error}"
            raise AuthenticationFailed(why) from None
        return following.encode()

    def _run(self) -> Generator[str, str, None]:
        client = self._client
        first = yield client.get_client_first()
        iterations = dict(each.partition("=")[::2] for each in first.split(",")).get("i", "")
        if iterations.isdecimal() and int(iterations) > _MOST_ITERATIONS:
            raise ValueError(f"it asks for {iterations} iterations, but ottla computes at most {_MOST_ITERATIONS}")
        client.set_server_first(first)
        final = yield client.get_client_final()
        client.set_server_final(final)
