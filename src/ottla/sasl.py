"""SASL's mechanisms: how a client proves who it is, token by token. Others carry the tokens.

    ottla.connect("broker:9093", tls=TLS(), sasl=ScramSha512("alice", "secret"))
    ottla.connect("broker:9093", tls=TLS(), sasl=OAuthBearer(ClientCredentials("https://idp/token", "id", "secret")))

    exchange = sasl.exchange()              # for each connection
    token = exchange.begin()
    while token is not None:
        token = exchange.answered(ask(token))

Rules:
- Names and passwords are as they are given. SCRAM would have them prepared by SASLprep (RFC 4013), which Kafka does not
  do: those that it would change are refused. A password or a token is in no ``repr``, no message and no log.
- PLAIN shows the password to all who can read the connection: use it within TLS.
- With SCRAM the broker proves that it knows the password, too, and one that does not is refused.

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
"""Of a hash, a tenth of a second of work; Kafka's brokers ask for 4,096 to 16,384."""


class SaslExchange(Protocol):
    """The client's side of one authentication."""

    def begin(self) -> bytes:
        """The first token."""
        ...

    def answered(self, token: bytes) -> bytes | None:
        """Take the broker's answer to the last token; the next one, or ``None`` when all is said.

        Raises:
            AuthenticationFailed: the broker does not know the password, or does not keep to the mechanism.
        """
        ...


class Mechanism(Protocol):
    """How a client proves who it is.

    Attributes:
        mechanism: its name, as Kafka has it.
        who: as messages name the client.
        bearer: itself, if it shows tokens that have to be fetched.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def who(self) -> str: ...

    @property
    def bearer(self) -> "OAuthBearer | None": ...

    def exchange(self) -> SaslExchange:
        """For one connection."""
        ...


@dataclass(frozen=True)
class _Password:
    """What is proved by a password.

    Attributes:
        username: as the broker knows it.
        password: that of the user.

    Raises:
        ConfigurationError: one of them is missing, or cannot be said.
    """

    username: str
    password: str = field(repr=False)
    mechanism: ClassVar[str]
    bearer: ClassVar[None] = None

    @property
    def who(self) -> str:
        """As messages name the client."""
        return f"user {self.username!r} by {self.mechanism}"

    def __post_init__(self) -> None:
        for name, value in (("username", self.username), ("password", self.password)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"sasl: the {name} for {self.mechanism} must be a string that is not empty")
            if "\0" in value:
                raise ConfigurationError(f"sasl: the {name} for {self.mechanism} has a zero in it")
        try:
            self.exchange().begin()
        except (ScramException, UnicodeEncodeError):  # which may show the password
            raise ConfigurationError(
                f"sasl: the username or the password has a character that {self.mechanism} cannot carry"
            ) from None

    def exchange(self) -> SaslExchange:
        """For one connection."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plain(_Password):
    """PLAIN: the password itself, for use within TLS."""

    mechanism: ClassVar[str] = "PLAIN"

    def exchange(self) -> SaslExchange:
        """For one connection."""
        return _Once(f"\0{self.username}\0{self.password}".encode())


@dataclass(frozen=True)
class ScramSha256(_Password):
    """SCRAM-SHA-256: a proof of the password that is of no use to others."""

    mechanism: ClassVar[str] = "SCRAM-SHA-256"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(saslprep(each) != each for each in (self.username, self.password)):
            raise ConfigurationError(
                f"sasl: the username or the password has a character that {self.mechanism} replaces by another (as "
                "a no-break space), and Kafka's brokers do not: it could never match; set it without such characters"
            )

    def exchange(self) -> SaslExchange:
        """For one connection."""
        return _Scram(self.mechanism, self.username, self.password)


@dataclass(frozen=True)
class ScramSha512(ScramSha256):
    """SCRAM-SHA-512: a proof of the password that is of no use to others."""

    mechanism: ClassVar[str] = "SCRAM-SHA-512"


@dataclass(frozen=True)
class Token:
    """What a client of OAUTHBEARER shows.

    Attributes:
        value: the token, a JWT in most cases.
        expires_at: seconds since 1970.

    Raises:
        ConfigurationError: it is none.
    """

    value: str = field(repr=False)
    expires_at: float

    def __post_init__(self) -> None:
        if not isinstance(self.value, str) or not re.fullmatch(r"[!-~]+", self.value):
            raise ConfigurationError("sasl: a token is a string of letters, digits and signs, without spaces")
        if not isinstance(self.expires_at, int | float):
            kind = type(self.expires_at).__name__
            raise ConfigurationError(f"sasl: a token expires at a number of seconds since 1970, not a {kind}")

    @property
    def lifetime(self) -> float:
        """Seconds that are left."""
        return self.expires_at - time.time()


@dataclass(frozen=True)
class OAuthBearer:
    """OAUTHBEARER: a token that proves who the client is, and does not last.

        OAuthBearer(ClientCredentials("https://idp.example.com/token", "billing", "secret", scope="kafka"))
        OAuthBearer(lambda: read_token())

    Attributes:
        token: called whenever another token is needed, in a thread, so that it may block, and should not do so for
            long: returns a JWT, whose ``exp`` says when it expires, or a `Token`. What it raises is logged, and it is
            called again after a pause; `AuthenticationFailed` says that another attempt would end alike.
        extensions: names and values that are sent along, as Confluent Cloud wants ``logicalCluster``.

    Raises:
        ConfigurationError: one of them makes no sense.
    """

    token: Callable[[], "str | Token"] = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    mechanism: ClassVar[str] = "OAUTHBEARER"
    who: ClassVar[str] = "the token by OAUTHBEARER"

    def __post_init__(self) -> None:
        if not callable(self.token):
            kind = type(self.token).__name__  # which may be one, and is not to be shown
            raise ConfigurationError(
                f"sasl: the token of OAuthBearer must be a function that returns one, not a {kind}"
            )
        if inspect.iscoroutinefunction(self.token):
            raise ConfigurationError(
                "sasl: the token function runs in a thread, where it may block: it cannot be async"
            )
        for name, value in self.extensions.items():
            if not isinstance(name, str) or not re.fullmatch("[A-Za-z]+", name) or name == "auth":
                raise ConfigurationError(f"sasl: an extension is named by letters, and not 'auth': {name!r}")
            if not isinstance(value, str) or not re.fullmatch(r"[\x20-\x7e\t\r\n]+", value):
                raise ConfigurationError(f"sasl: the extension {name!r} must be a string of printable ASCII")

    @property
    def bearer(self) -> "OAuthBearer":
        """Itself."""
        return self

    def fetch(self) -> Token:
        """Have the function called; blocks.

        Raises:
            ConfigurationError: it returned no token.
            Exception: what it raised.
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
        """For one connection, with a token that is fetched for it; blocks."""
        return self.exchange_for(self.fetch())

    def exchange_for(self, token: Token) -> SaslExchange:
        """For one connection, with a token that was fetched before."""
        pairs = "".join(f"{name}={value}\x01" for name, value in self.extensions.items())
        return _Bearer(f"n,,\x01auth=Bearer {token.value}\x01{pairs}\x01".encode())


def jwt_expiry(token: str) -> float:
    """The ``exp`` of a JWT, seconds since 1970. It is not verified, as that is the broker's part.

    Raises:
        ConfigurationError: it has none, or is no JWT.
    """
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise ConfigurationError(
            "sasl: the token is no JWT with a time at which it expires (exp): return ottla.Token(value, expires_at)"
        ) from None


class _Once:
    """A mechanism of one token."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def begin(self) -> bytes:
        return self._token

    def answered(self, token: bytes) -> bytes | None:
        return None


class _Bearer(_Once):
    """What the broker says in a token of its own, why it refuses one, has to be answered before the error comes."""

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
            why = f"{self._mechanism}: the broker does not prove that it knows the password: {error}"
            raise AuthenticationFailed(why) from None
        return following.encode()

    def _run(self) -> Generator[str, str, None]:
        client = self._client
        first = yield client.get_client_first()
        iterations = dict(each.partition("=")[::2] for each in first.split(",")).get("i", "")
        if iterations.isdecimal() and int(iterations) > _MOST_ITERATIONS:
            raise ValueError(f"it asks for {iterations} iterations, and {_MOST_ITERATIONS} at most are calculated here")
        client.set_server_first(first)
        final = yield client.get_client_final()
        client.set_server_final(final)
