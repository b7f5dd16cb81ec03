"""The configuration of a proxy: options and topic rules, from Python or a TOML file.

A file has the options of `ProxyConfig` by name, with dashes or underscores, and the rules as a table:

    upstream = "kafka-1:9092"
    listen = "0.0.0.0:19092"
    advertise = "proxy.example"

    [topics]
    flights = "rewrite"
    "audit-*" = "observe:crc32"
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ottla.addresses import parse_address
from ottla.config_file import ConfigFile, dashed
from ottla.errors import ConfigurationError
from ottla.proxy.threads import STEP
from ottla.proxy.topic_rule import TopicRule, rule_of
from ottla.unknown_options import naming_options

if TYPE_CHECKING:
    from ottla.sasl import Mechanism
    from ottla.tls import TLS

_NOT_IN_A_FILE = ("tls", "sasl")
EVERY_ADDRESS = ("0.0.0.0", "::")


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
        if self.max_batch > STEP:
            raise ConfigurationError(f"max-batch is {self.max_batch}; it must be at most {STEP}, which is 2 MiB")
        if not self.upstream.startswith("zeroconf://"):
            for address in self.upstream.split(","):
                parse_address(address, "upstream")
        for name, host_port in (("report", self.report), ("health", self.health)):
            parse_address(host_port or "localhost:1", name, any_port=True)
        if (
            self.report is not None
            and self.report in (self.health, self.listen)
            and self.report.rpartition(":")[2] != "0"
        ):
            raise ConfigurationError(f"report is {self.report}, as another address: give it another port")
        if self.report_keys and self.report is None:
            raise ConfigurationError("report-keys needs report, the address of the report")
        probes = None if self.health is None else parse_address(self.health, "health", any_port=True)
        if probes and probes[1] and probes == self.listens:
            raise ConfigurationError(f"health and listen are both {self.listen}: give the probes another port")
        host, _ = self.listens
        if self.advertise is not None:
            _ = self.advertised
        if host in EVERY_ADDRESS and self.advertise is None:
            raise ConfigurationError(
                f"listen {self.listen!r} is every address: name the host that clients reach, as in --advertise "
                "proxy.example"
            )

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


def read_config(file: ConfigFile, **options: Any) -> ProxyConfig:
    """The configuration in a file; ``options`` that are not ``None`` override it, and rules stand before its own.

    Raises:
        ConfigurationError: the file has an unknown option or an invalid value.
    """
    values: dict[str, Any] = {}
    kinds = {field.name: field.type for field in fields(ProxyConfig) if field.name not in _NOT_IN_A_FILE}
    for key, value in file.others():
        name = key.replace("-", "_")
        if name not in kinds:
            raise file.unknown(key, map(dashed, kinds))
        values[name] = _rules(file, value) if name == "topics" else _typed(file, key, value, kinds[name])
    rules = (*options.pop("topics", ()), *values.pop("topics", ()))
    values |= {name: value for name, value in options.items() if value is not None}
    if "upstream" not in values:
        raise ConfigurationError(f'{file.path} has no upstream: add it, as in upstream = "localhost:9092"')
    try:
        return ProxyConfig(topics=rules, **values)
    except ConfigurationError as error:
        raise file.error(str(error)) from None


def _rules(file: ConfigFile, table: Any) -> tuple[TopicRule, ...]:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        hint = ""
        if isinstance(table, dict):
            wrong = next(name for name, value in table.items() if not isinstance(value, str))
            hint = f", and {wrong} has no text; a name with dots stands in quotation marks"
        raise file.error(f'[topics] is a table such as flights = "rewrite"{hint}')
    try:
        return tuple(rule_of(glob, treatment) for glob, treatment in table.items())
    except ConfigurationError as error:
        raise file.error(str(error)) from None


def _typed(file: ConfigFile, key: str, value: Any, kind: Any) -> Any:
    if key.replace("_", "-") == "access-log" and isinstance(value, bool):
        return "true" if value else None
    if kind is bool:
        if not isinstance(value, bool):
            raise file.error(f"{key} is {value!r}, and must be true or false")
        return value
    wanted = {int: int, int | None: int, float: int | float}.get(kind, str)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise file.error(f"{key} is {value!r}, and must be {'a string' if wanted is str else 'a number'}")
    return value
