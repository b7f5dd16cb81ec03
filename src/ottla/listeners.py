"""A listener of a server, as its configuration describes it."""

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.addresses import format_address, parse_address
from ottla.errors import ConfigurationError
from ottla.unknown_options import naming_options

if TYPE_CHECKING:  # the command line reads this module before it needs TLS
    from ottla.sasl_server.settings import SaslSettings
    from ottla.subject_mapping import SubjectMapping
    from ottla.tls import ServerTLS

WILDCARDS = ("", "0.0.0.0", "::")
"""Hosts that stand for every address of the machine."""


class SecurityProtocol(enum.StrEnum):
    """Kafka's names for the kinds of listeners."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether bytes are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@naming_options
@dataclass(frozen=True, kw_only=True)
class ListenerConfig:
    """A listener: its address, and how its clients are secured.

    Attributes:
        name: the listener's name; by default the one of its protocol.
        host, port: the address to listen on; ``0.0.0.0`` and ``::`` mean every address, port 0 any free one.
        advertise: ``host`` or ``host:port`` for clients; ``None``: the address that each client connected to if the
            broker listens on every address, else the address that it listens on.
        tls: the certificate of the server; needed with SSL and SASL_SSL.
        subjects: how the subject of a client's certificate becomes its principal (`ssl.principal.mapping.rules`).
        sasl: how clients authenticate; needed with SASL_PLAINTEXT and SASL_SSL.

    Raises:
        ConfigurationError: a value is invalid, or does not fit the protocol.
    """

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    name: str = ""
    host: str = "127.0.0.1"
    port: int = 9092
    advertise: str | None = None
    tls: "ServerTLS | None" = None
    subjects: "SubjectMapping | None" = None
    sasl: "SaslSettings | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", SecurityProtocol(self.protocol))
        if not self.name:
            object.__setattr__(self, "name", str(self.protocol))
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"listener {self.name}: port is {self.port}; it must be 0 to 65535")
        if self.advertise is not None:
            parse_address(self.advertise, "advertise", default_port=self.port)
        for what, given, wanted in (
            ("a certificate (ssl.keystore.location)", self.tls is not None, self.protocol.has_tls),
            ("mechanisms of SASL (sasl.enabled.mechanisms)", self.sasl is not None, self.protocol.has_sasl),
        ):
            if given != wanted:
                verb = "needs" if wanted else "cannot have"
                raise ConfigurationError(f"listener {self.name}: {self.protocol} {verb} {what}")
        shown = self.tls is not None and self.tls.client_certificates != "none" and self.sasl is None
        if self.subjects is not None and not shown:
            raise ConfigurationError(
                f"listener {self.name}: subjects (ssl.principal.mapping.rules) have no effect: they need SSL, and "
                "clients that have to show a certificate (ssl.client.auth)"
            )

    @property
    def address(self) -> str:
        """``host:port``."""
        return format_address(self.host, self.port)

    @property
    def is_open(self) -> bool:
        """Whether anyone in the network can connect and use it without authentication."""
        if self.sasl is not None or (self.tls is not None and self.tls.client_certificates == "required"):
            return False
        return not (self.host == "localhost" or self.host.startswith("127.") or self.host == "::1")

    def advertised(self, port: int) -> tuple[str | None, int]:
        """The host (``None``: the one that a client connected to) and the port for clients.

        Args:
            port: on which it listens.
        """
        if self.advertise is not None:
            return parse_address(self.advertise, "advertise", default_port=port)
        return None if self.host in WILDCARDS else self.host, port
