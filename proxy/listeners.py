"""The listeners of a proxy: the broker's, and who authenticates their clients.

Rules:
- Each listener has a port for every node of upstream. Its own port is the one for the first node.
- A listener that authenticates clients needs ACLs: upstream sees all clients as the proxy's user, so without ACLs every
  user of the listener would have all rights of the proxy.
- In mode `relay` upstream authenticates the clients, each on a connection of its own, and applies its own ACLs.
- So it does in mode `forward`; and where the proxy needs connections of its own for a client, it logs in there with the
  client's password or token. Only PLAIN and OAUTHBEARER give it these, and only TLS keeps them from others.
"""

import enum
from dataclasses import dataclass

from ottla.addresses import EVERY_ADDRESS, parse_address
from ottla.errors import ConfigurationError
from ottla.listeners import ListenerConfig
from ottla.unknown_options import naming_options

MODE = "client.authentication"
"""The setting of a file, without the name of the listener."""
FORWARDED = ("PLAIN", "OAUTHBEARER")
"""The mechanisms whose first token is enough for another login."""


class ClientMode(enum.StrEnum):
    """Who authenticates the clients of a listener."""

    TERMINATE = "terminate"
    """The proxy does; its own user speaks for them at upstream."""
    RELAY = "relay"
    """Upstream does: the proxy passes the requests of SASL on."""
    FORWARD = "forward"
    """The same, and the proxy logs in as the clients' users where it rewrites their records."""

    @property
    def at_upstream(self) -> bool:
        """Whether clients log in to upstream itself."""
        return self is not ClientMode.TERMINATE


@naming_options
@dataclass(frozen=True, kw_only=True)
class ProxyListener(ListenerConfig):
    """A listener of the proxy.

    Attributes:
        mode: who authenticates its clients.

    Raises:
        ConfigurationError: a value is invalid, or does not fit the others.
    """

    mode: ClientMode = ClientMode.TERMINATE

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "mode", ClientMode(self.mode))
        if self.host in EVERY_ADDRESS and self.advertise is None:
            raise ConfigurationError(
                f"listener {self.name} listens on every address: name the host that clients reach in "
                f"advertised.listeners, as in {self.name}://proxy.example:{self.port}"
            )
        if self.mode is ClientMode.RELAY and self.sasl is None:
            raise ConfigurationError(
                f"listener {self.name}: {MODE} is relay, but {self.protocol} has no SASL that could be relayed: use "
                "SASL_SSL"
            )
        if self.mode is ClientMode.FORWARD:
            self._check_forward()

    def _check_forward(self) -> None:
        """Check that the proxy gets the password or the token of a client, and that the network cannot read it."""
        if self.sasl is None or self.tls is None:
            raise ConfigurationError(
                f"listener {self.name}: {MODE} is forward, which needs SASL, and TLS to protect passwords and tokens, "
                f"but the listener is {self.protocol}: use SASL_SSL"
            )
        if other := next((each for each in self.sasl.mechanisms if each not in FORWARDED), None):
            raise ConfigurationError(
                f"listener {self.name}: {MODE} is forward, but {other} gives the proxy nothing to log in with at "
                f"upstream: leave only {' and '.join(FORWARDED)} in sasl.enabled.mechanisms, or use relay"
            )

    @property
    def authenticates(self) -> bool:
        """Whether the proxy finds out who a client is."""
        if self.mode.at_upstream:
            return False
        return self.sasl is not None or (self.tls is not None and self.tls.client_certificates != "none")

    @property
    def needs_users(self) -> bool:
        """Whether clients log in with passwords that the proxy checks."""
        sasl = None if self.mode.at_upstream else self.sasl
        return sasl is not None and any(each != "OAUTHBEARER" for each in sasl.mechanisms)

    @property
    def advertised_host(self) -> str:
        """The host that clients get for every broker."""
        host, _ = self.advertised(self.port)
        assert host is not None, "a listener on every address advertises a host"
        return host

    def advertised_for(self, above: int, port: int) -> int:
        """The port that clients get for a node.

        Args:
            above: the difference of the node's id to the id of the first node.
            port: on which the listener listens for the node.
        """
        first = None if self.advertise is None else parse_address(self.advertise, "advertise", default_port=0)[1]
        return first + above if first else port
