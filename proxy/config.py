"""The configuration of a proxy: options and topic rules, from Python or a TOML file.

A file has the options of `ProxyConfig` by name, with dashes or underscores, and the rules as a table:

    upstream = "kafka-1:9092"
    listen = "0.0.0.0:19092"
    advertise = "proxy.example"

    [topics]
    flights = "rewrite"
    "audit-*" = "observe:crc32"
"""

from collections.abc import Container
from dataclasses import dataclass, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ottla.addresses import EVERY_ADDRESS, is_own, overlap, parse_address
from ottla.config_file import ConfigFile, dashed
from ottla.errors import ConfigurationError
from ottla.proxy.routing import check_copies
from ottla.proxy.threads import STEP
from ottla.proxy.topic_rule import TopicRule, rule_of
from ottla.unknown_options import naming_options

if TYPE_CHECKING:
    from ottla.sasl import Mechanism
    from ottla.tls import TLS

_NOT_IN_A_FILE = ("tls", "sasl")
LEAST_BUFFERED = 2**20
"""The least `max-buffered` that an operator may set: with less, clients wait for one another all the time."""
_BYTES = ("max-batch", "max-buffered", "max-request-bytes")


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
        if self.max_request_bytes >= 2**31:
            raise ConfigurationError(f"max-request-bytes is {self.max_request_bytes}; it must be below 2147483648")
        if self.first_node is not None and self.first_node < 0:
            raise ConfigurationError(f"first-node is {self.first_node}; node ids are 0 or more")
        for name in ("upstream_config", "state", "access_log"):
            if getattr(self, name) == "":
                raise ConfigurationError(f"{dashed(name)} is empty: leave it out, or name a path")
        if self.max_batch > STEP:
            raise ConfigurationError(f"max-batch is {self.max_batch}; it must be at most {STEP}, which is 2 MiB")
        self._check_addresses()
        check_copies(self.topics)
        if self.report_keys and self.report is None:
            raise ConfigurationError("report-keys needs report, the address of the report")
        host, _ = self.listens
        if self.advertise is not None and self.advertised[0] in EVERY_ADDRESS:
            raise ConfigurationError(f"advertise is {self.advertise}: clients need the name or address of one host")
        if host in EVERY_ADDRESS and self.advertise is None:
            raise ConfigurationError(
                f"listen {self.listen!r} is every address: name the host that clients reach, as in --advertise "
                "proxy.example"
            )

    def _check_addresses(self) -> None:
        """Check each address, and that no two need the same port."""
        own = {"listen": self.listens}
        for name in ("health", "report"):
            if (text := getattr(self, name)) is not None:
                own[name] = parse_address(text, name, any_port=True)
        for (one, first), (other, second) in combinations(own.items(), 2):
            if overlap(first, second):
                raise ConfigurationError(f"{other} has the port of {one}, {first[1]}: give {other} another port")
        if self.upstream.startswith("zeroconf://"):
            return
        for text in self.upstream.split(","):
            if is_own(self.listens, parse_address(text, "upstream")):
                raise ConfigurationError(
                    f"listen {self.listen!r} is upstream's own address: give the proxy another port, such as --listen "
                    "localhost:19092"
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
            raise file.unknown(key, map(dashed, kinds), "proxy")
        values[name] = _rules(file, value, kinds) if name == "topics" else _typed(file, key, value, kinds[name])
    rules = (*options.pop("topics", ()), *values.pop("topics", ()))
    values |= {name: value for name, value in options.items() if value is not None}
    if "upstream" not in values:
        raise ConfigurationError(f'{file.path} has no upstream: add it, as in upstream = "localhost:9092"')
    try:
        config = ProxyConfig(topics=rules, **values)
        if config.max_buffered < LEAST_BUFFERED:
            raise ConfigurationError(
                f"max-buffered is {config.max_buffered}; it must be at least {LEAST_BUFFERED}, which is 1 MiB"
            )
    except ConfigurationError as error:
        raise file.error(str(error)) from None
    return config


def _rules(file: ConfigFile, table: Any, options: Container[str]) -> tuple[TopicRule, ...]:
    if not isinstance(table, dict):
        raise file.error('[topics] is a table such as flights = "rewrite"')
    rules = []
    for glob, treatment in table.items():
        try:
            if not isinstance(treatment, str):
                raise ConfigurationError(_no_rule(glob, treatment))
            rules.append(rule_of(glob, treatment))
        except ConfigurationError as error:
            moved = f"; {glob} is an option: put it above [topics]" if glob.replace("-", "_") in options else ""
            raise file.error(f"{error}{moved}") from None
    return tuple(rules)


def _no_rule(glob: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{glob} is a table in [topics]; a name with dots stands in quotation marks"
    said = str(value).lower() if isinstance(value, bool) else value
    return f'{glob} is {said}; it must be a text such as "rewrite"'


def _typed(file: ConfigFile, key: str, value: Any, kind: Any) -> Any:
    if key.replace("_", "-") == "access-log" and isinstance(value, bool):
        return "true" if value else None
    if kind is bool:
        if not isinstance(value, bool):
            raise file.error(f"{key} is {value!r}; it must be true or false")
        return value
    wanted = {int: int, int | None: int, float: int | float}.get(kind, str)
    if not isinstance(value, wanted) or isinstance(value, bool):
        form = "a text" if wanted is str else "an integer" if wanted is int else "a number of seconds"
        if dashed(key) in _BYTES:
            form = "a number of bytes, such as 67108864"
        raise file.error(f"{key} is {value!r}; it must be {form}")
    return value
