"""The configuration of a proxy: options and topic rules, from Python or a TOML file (`ottla.proxy.config_file`)."""

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from ottla.addresses import EVERY_ADDRESS, format_address, is_own, overlap, parse_address
from ottla.config_file import dashed
from ottla.errors import ConfigurationError
from ottla.proxy.acl_rules import AclRules
from ottla.proxy.denied_apis import NONE_DENIED, DeniedApis
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.proxy.routing import check_copies
from ottla.proxy.threads import STEP
from ottla.proxy.topic_rule import TopicRule
from ottla.unknown_options import naming_options

if TYPE_CHECKING:
    from ottla.sasl import Mechanism
    from ottla.tls import TLS

LEAST_BUFFERED = 2**20
"""The least `max-buffered` that an operator may set: with less, clients wait for one another all the time."""


@naming_options
@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """The configuration of one proxy. Sizes are in bytes, times in seconds.

    Raises:
        ConfigurationError: a value is invalid; the message names the option.
    """

    upstream: str
    """``host:port[,host:port…]`` of brokers, or ``zeroconf://name``."""
    upstream_config: str | None = None
    """A file of properties with Kafka's names, as for Kafka's own tools: the command takes `tls` and `sasl` from it."""
    tls: "TLS | None" = None
    """TLS settings for upstream; ``None``: plaintext. Not in a file."""
    sasl: "Mechanism | None" = None
    """SASL credentials of the proxy for upstream, on behalf of all clients; ``None``: no SASL. Not in a file."""
    listen: str = "127.0.0.1:9092"
    """The address for upstream's first node. Each other node has a port higher by the difference of the ids. Port 0:
    any free ports."""
    first_node: int | None = None
    """The id of the node with the port of `listen`; ``None``: the lowest id that upstream names at the start. Set it if
    several proxies must agree on the ports, even if one starts while that node is down."""
    advertise: str | None = None
    """``host`` or ``host:port`` that clients get for the first node; the ports of others follow as with `listen`.
    ``None``: the address of `listen`."""
    listeners: tuple[ProxyListener, ...] = ()
    """The listeners; the first is the main one. ``()``: one in plain text, as `listen` and `advertise` say, which are
    left out otherwise. In a file they have Kafka's names."""
    acls: AclRules | None = None
    """Who may do what; ``None``: everyone may do everything that the proxy's user may do."""
    users: str | None = None
    """The file with the users who log in with a password, written by ``ottla proxy users``."""
    deny_apis: DeniedApis = NONE_DENIED
    """APIs that no client gets: ``AlterConfigs``, or some of its versions, ``Produce:0-8``."""
    topics: tuple[TopicRule, ...] = ()
    """The first rule that matches applies; topics without a rule pass unchanged."""
    state: str | None = None
    """A directory for the state that survives a restart, so that a restart fences no producer. ``None``: no state, and
    each restart fences the idempotent producers of rewritten topics."""
    health: str | None = None
    """``host:port`` of ``/health`` and ``/ready``; ``None``: no probes."""
    access_log: str | None = None
    """A file that gets a line for each request, or ``true``: stderr gets them; ``None``: no such lines."""
    report: str | None = None
    """``host:port`` of ``/report``: which clients put keys where a topic's partitioner would not; ``None``: no report.
    It has no login, so the address should be of this machine, or of a network of operators."""
    report_keys: bool = False
    """The report shows keys; otherwise a hash of each."""
    observe_sample: int = 1
    """Mode `observe` counts the keys of one batch in so many, each so many times."""
    connect_timeout: float = 10.0
    """The timeout for one connection to upstream, and for reaching upstream when the proxy starts."""
    request_timeout: float = 30.0
    """The timeout for a response to one of the proxy's own requests, which is then retried on another connection."""
    delivery_timeout: float = 120.0
    """The time until unconfirmed records fail with upstream's error. If their outcome is unknown, an idempotent client
    is fenced."""
    max_buffered: int = 64 * 2**20
    """The budget in bytes for all that the proxy holds for clients; above it each client may use an equal share."""
    max_batch: int = 512 * 2**10
    """The most bytes before compression of an upstream batch that several client batches share; at most 2 MiB."""
    max_request_bytes: int = 100 * 2**20
    """The largest request (`socket.request.max.bytes`); a larger one closes its connection."""
    max_connections: int = 2000
    stats_interval: float = 60.0
    """Seconds between log lines with statistics, which are only written if there is news."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "request_timeout", "delivery_timeout", "stats_interval"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"{dashed(name)} is {getattr(self, name)}; it must be more than 0 seconds")
        for name in ("max_buffered", "max_batch", "max_request_bytes", "max_connections", "observe_sample"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{dashed(name)} is {getattr(self, name)}; it must be at least 1")
        if self.max_request_bytes >= 2**31:
            raise ConfigurationError(f"max-request-bytes is {self.max_request_bytes}; it must be below 2147483648")
        if self.first_node is not None and self.first_node < 0:
            raise ConfigurationError(f"first-node is {self.first_node}; node ids are 0 or more")
        for name in ("upstream_config", "state", "access_log", "users"):
            if getattr(self, name) == "":
                raise ConfigurationError(f"{dashed(name)} is empty: leave it out, or name a path")
        if self.max_batch > STEP:
            raise ConfigurationError(f"max-batch is {self.max_batch}; it must be at most {STEP}, which is 2 MiB")
        self._check_listeners()
        self._check_addresses()
        check_copies(self.topics)
        if self.report_keys and self.report is None:
            raise ConfigurationError("report-keys needs report, the address of the report")

    def _check_listeners(self) -> None:
        """Check each listener, and the other options that it needs."""
        if self.listeners and (self.listen, self.advertise) != (ProxyConfig.listen, ProxyConfig.advertise):
            raise ConfigurationError("listeners have addresses of their own: leave out listen and advertise")
        if not self.listeners:
            self._check_plain()
        names = [each.name for each in self.listeners]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigurationError(f"listeners has two of the name {twice}")
        for each in self.listeners:
            if each.authenticates and self.acls is None:
                raise ConfigurationError(
                    f"listener {each.name} authenticates clients, and there are no ACLs: each of them would have all "
                    "rights of the proxy's user; write [[acls]], or super-users for those who may do everything"
                )
            if each.needs_users and self.users is None:
                raise ConfigurationError(
                    f'listener {each.name} checks passwords, and there are no users: write users = "users.json", and '
                    "add them with ottla proxy users add"
                )
            if each.mode is ClientMode.RELAY:
                self._check_relay(each)
        if self.upstream_config is None:  # otherwise `proxy_config` and the start check it, with the file's settings
            self.check_forward()

    def _check_plain(self) -> None:
        """Check the only listener, in plain text."""
        host, _ = self.listens
        if self.advertise is not None and self.advertised[0] in EVERY_ADDRESS:
            raise ConfigurationError(f"advertise is {self.advertise}: clients need the name or address of one host")
        if host in EVERY_ADDRESS and self.advertise is None:
            raise ConfigurationError(
                f"listen {self.listen!r} is every address: name the host that clients reach, as in --advertise "
                "proxy.example"
            )

    def _check_relay(self, listener: ProxyListener) -> None:
        """Check that upstream can authenticate the clients of a listener."""
        moved = next((rule for rule in self.topics if rule.mode.moves), None)
        if moved is not None:
            raise ConfigurationError(
                f"listener {listener.name} relays, and the rule {moved.glob!r} rewrites topics, which needs "
                "connections of the proxy's own: use client.authentication=forward (with PLAIN or OAUTHBEARER), or "
                "terminate"
            )
        if self.sasl is None and self.upstream_config is None:  # the command reads that file later
            raise ConfigurationError(
                f"listener {listener.name} relays, so upstream has SASL, but the proxy has no user there for metadata: "
                "give upstream-config"
            )

    def check_forward(self) -> None:
        """Check that no password or token of a client travels to upstream in clear text.

        Raises:
            ConfigurationError: a listener has mode `forward`, and upstream has no TLS or no SASL.
        """
        forwards = next((each.name for each in self.listeners if each.mode is ClientMode.FORWARD), None)
        if forwards is None:
            return
        if self.tls is None:
            raise ConfigurationError(
                f"listener {forwards} forwards passwords and tokens, which need TLS on the way to upstream: give "
                "security.protocol=SASL_SSL in the file of upstream-config"
            )
        if self.sasl is None:
            raise ConfigurationError(
                f"listener {forwards} forwards, so upstream has SASL, but the proxy has no user there for metadata: "
                "give sasl.mechanism and the user in the file of upstream-config"
            )

    def _check_addresses(self) -> None:
        """Check each address, and that no two need the same port."""
        listens = {each.name if self.listeners else "listen": (each.host, each.port) for each in self.all_listeners}
        own = dict(listens)
        for name in ("health", "report"):
            if (text := getattr(self, name)) is not None:
                own[name] = parse_address(text, name, any_port=True)
        for (one, first), (other, second) in combinations(own.items(), 2):
            if overlap(first, second):
                raise ConfigurationError(f"{other} has the port of {one}, {first[1]}: give {other} another port")
        if self.upstream.startswith("zeroconf://"):
            return
        for text in self.upstream.split(","):
            for name, address in listens.items():
                if is_own(address, parse_address(text, "upstream")):
                    raise ConfigurationError(
                        f"{name} {format_address(*address)!r} is upstream's own address: give the proxy another port, "
                        "such as --listen localhost:19092"
                    )

    @property
    def all_listeners(self) -> tuple[ProxyListener, ...]:
        """The listeners, the main one first."""
        if self.listeners:
            return self.listeners
        host, port = self.listens
        return (ProxyListener(host=host, port=port, advertise=self.advertise),)

    @property
    def listens(self) -> tuple[str, int]:
        """The host and the port of `listen`."""
        return parse_address(self.listen, "listen", any_port=True)

    @property
    def advertised(self) -> tuple[str, int | None]:
        """The host that clients get, and the port for the first node; ``None``: the port of `listen`."""
        if self.advertise is None:
            return self.listens[0], None
        host, port = parse_address(self.advertise, "advertise", default_port=0)
        return host, port or None
