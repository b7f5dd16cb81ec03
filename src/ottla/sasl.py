"""SASL's mechanisms: how a client proves who it is, token by token. Others carry the tokens.

    ottla.connect("broker:9093", tls=TLS(), sasl=ScramSha512("alice", "secret"))

    exchange = sasl.exchange()              # for each connection
    token = exchange.begin()
    while token is not None:
        token = exchange.answered(ask(token))

Rules:
- Names and passwords are as they are given; a password is in no ``repr``, no message and no log.
- PLAIN shows the password to all who can read the connection: use it within TLS.
- With SCRAM the broker proves that it knows the password, too, and one that does not is refused.

Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM); PlainSaslServer.java, ScramSaslClient.java.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from scramp import ScramClient, ScramException

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
        username: as messages name the client.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def username(self) -> str: ...

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

    def __post_init__(self) -> None:
        for name, value in (("username", self.username), ("password", self.password)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"sasl: the {name} for {self.mechanism} must be a string that is not empty")
            if "\0" in value:
                raise ConfigurationError(f"sasl: the {name} for {self.mechanism} has a zero in it")


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

    def exchange(self) -> SaslExchange:
        """For one connection."""
        return _Scram(self.mechanism, self.username, self.password)


@dataclass(frozen=True)
class ScramSha512(ScramSha256):
    """SCRAM-SHA-512: a proof of the password that is of no use to others."""

    mechanism: ClassVar[str] = "SCRAM-SHA-512"


class _Once:
    """A mechanism of one token."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def begin(self) -> bytes:
        return self._token

    def answered(self, token: bytes) -> bytes | None:
        return None


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
