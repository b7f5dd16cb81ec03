"""What a proxy is told before it starts: options, topic rules, and the same as a TOML file.

A file has the options of `ProxyConfig` under their names, with dashes or underscores, and the rules as a table:

    upstream = "kafka-1:9092"
    listen = "0.0.0.0:19092"
    advertise = "proxy.example"

    [topics]
    flights = "rewrite"
    "audit-*" = "observe:crc32"
"""

import re
import tomllib
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.addresses import parse_address
from ottla.codec.partitioners import PARTITIONERS
from ottla.errors import ConfigurationError
from ottla.proxy.threads import STEP
from ottla.unknown_options import naming_options

if TYPE_CHECKING:
    from ottla.sasl import Mechanism
    from ottla.tls import TLS

DEFAULT_PARTITIONER = "murmur2"
_NOT_IN_A_FILE = ("tls", "sasl")
EVERY_ADDRESS = ("0.0.0.0", "::")


class Mode(Enum):
    """What happens to the records of a topic."""

    OBSERVE = "observe"
    """They go where the client said; keys that land elsewhere than the partitioner would put them are counted."""
    REWRITE = "rewrite"
    """Those with a key go to the partition of their key."""


@dataclass(frozen=True, kw_only=True)
class TopicRule:
    """``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``: how the topics whose names match are treated.

    Raises:
        ConfigurationError: the glob is empty, the partitioner unknown, or the partitions are less than one.
    """

    glob: str
    """As the shell matches: ``*``, ``?``, ``[a-z]``; the case counts."""
    mode: Mode
    partitioner: str = DEFAULT_PARTITIONER
    partitions: int | None = None
    """How many the keys go to; ``None``: as many as the topic has when the proxy first sees it."""

    def __post_init__(self) -> None:
        if not self.glob:
            raise ConfigurationError("a topic rule begins with the topics' name or glob, as in 'flights=rewrite'")
        if self.mode is Mode.REWRITE and self.glob.startswith("__"):
            raise ConfigurationError(
                f"{self.glob!r}: topics that begin with __ are the brokers' own, and never rewritten"
            )
        if self.partitioner not in PARTITIONERS:
            known = ", ".join(PARTITIONERS)
            raise ConfigurationError(f"partitioner {self.partitioner!r} of topic {self.glob!r} is not one of {known}")
        if self.partitions is not None and self.partitions < 1:
            raise ConfigurationError(f"topic {self.glob!r} must have at least 1 partition, not {self.partitions}")


def parse_rule(text: str) -> TopicRule:
    """The rule ``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``.

    So ``'flights=rewrite'``, ``'audit-*=observe:crc32'`` or, with the usual partitioner, ``'flights=rewrite::6'``.

    Raises:
        ConfigurationError: it is none; the message says what would do.
    """
    glob, equals, treatment = text.rpartition("=")
    if not equals:
        raise ConfigurationError(
            f"{text!r} is not a topic rule: write GLOB=MODE[:PARTITIONER[:PARTITIONS]], as in 'flights=rewrite'"
        )
    return _rule(glob.strip(), treatment)


def _rule(glob: str, treatment: str) -> TopicRule:
    mode, *rest = treatment.strip().split(":", 2)
    try:
        chosen = Mode(mode)
    except ValueError:
        known = " or ".join(each.value for each in Mode)
        raise ConfigurationError(f"mode {mode!r} of topic {glob!r} is not {known}") from None
    if len(rest) < 2:
        return TopicRule(glob=glob, mode=chosen, partitioner=rest[0] if rest else DEFAULT_PARTITIONER)
    partitioner, partitions = rest
    if not re.fullmatch("[0-9]{1,10}", partitions):
        raise ConfigurationError(
            f"{partitions!r:.100} is not a number of partitions of topic {glob!r}, as in 'rewrite::6'"
        )
    return TopicRule(glob=glob, mode=chosen, partitioner=partitioner or DEFAULT_PARTITIONER, partitions=int(partitions))


@naming_options
@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """The configuration of one proxy. Sizes are bytes, times seconds.

    Raises:
        ConfigurationError: a value cannot be used; the message names the option.
    """

    upstream: str
    """``host:port[,host:port…]`` of brokers, or ``zeroconf://name``."""
    upstream_config: str | None = None
    """A file of properties with Kafka's names, as for Kafka's own tools: the command takes `tls` and `sasl` from it."""
    tls: "TLS | None" = None
    """How connections to upstream are secured; ``None``: not at all. Not in a file."""
    sasl: "Mechanism | None" = None
    """What the proxy proves to upstream with who it is, for all of its clients; ``None``: nothing. Not in a file."""
    listen: str = "127.0.0.1:9092"
    """The address of upstream's first node; another has a port as much higher as its id is. Port 0: any free ones."""
    first_node: int | None = None
    """The id of the node that has the port of `listen`; ``None``: the lowest that upstream names at the start. Say it
    where several proxies have to agree, also if one starts while that node is down."""
    advertise: str | None = None
    """``host`` or ``host:port`` that clients are told for the first node, with the ports of others as with `listen`;
    ``None``: where the proxy listens."""
    topics: tuple[TopicRule, ...] = ()
    """The first that matches counts; topics without a rule pass untouched."""
    state: str | None = None
    """A directory for what outlives a restart, so that none fences a producer. ``None``: nothing does, and each fences
    the idempotent producers of rewritten topics."""
    health: str | None = None
    """``host:port`` of ``/health`` and ``/ready``; ``None``: nowhere."""
    connect_timeout: float = 10.0
    """For one connection to upstream, and for all of upstream when the proxy starts."""
    request_timeout: float = 30.0
    """For an answer to one of the proxy's own requests; then it is sent again over another connection."""
    delivery_timeout: float = 120.0
    """After how long records that upstream does not take, or of which it does not say whether it has, are given back to
    their client with upstream's error; of the latter an idempotent client is fenced."""
    max_buffered: int = 64 * 2**20
    """Records of rewritten topics on their way; above it clients that produce to them are not read."""
    max_batch: int = 512 * 2**10
    """Up to here the records of several client batches share one upstream batch, before compression; 2 MiB at most."""
    max_request_bytes: int = 100 * 2**20
    """The largest request (`socket.request.max.bytes`); a larger one closes its connection."""
    max_connections: int = 2000
    stats_interval: float = 60.0
    """How often a line of statistics is logged, if there is news."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "request_timeout", "delivery_timeout", "stats_interval"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"{_dashed(name)} is {getattr(self, name)}; it must be more than 0 seconds")
        for name in ("max_buffered", "max_batch", "max_request_bytes", "max_connections"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{_dashed(name)} is {getattr(self, name)}; it must be at least 1")
        if self.max_batch > STEP:
            raise ConfigurationError(f"max-batch is {self.max_batch}; it must be at most {STEP}, which is 2 MiB")
        if not self.upstream.startswith("zeroconf://"):
            for address in self.upstream.split(","):
                parse_address(address, "upstream")
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
        """The host that clients are told, and the port for the first node; ``None``: the port it listens on."""
        if self.advertise is None:
            return self.listens[0], None
        host, port = parse_address(self.advertise, "advertise", default_port=0)
        return host, port or None


def read_config(path: Path, **options: Any) -> ProxyConfig:
    """The configuration in a TOML file; ``options`` that are not ``None`` override it, and rules stand before its own.

    Raises:
        ConfigurationError: the file cannot be read, or says what a proxy does not understand.
    """
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}; names with * stand in quotation marks") from None
    values: dict[str, Any] = {}
    kinds = {field.name: field.type for field in fields(ProxyConfig) if field.name not in _NOT_IN_A_FILE}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in kinds:
            raise ConfigurationError(f"{path}: {key!r} is not an option; known are {', '.join(map(_dashed, kinds))}")
        values[name] = _rules(path, value) if name == "topics" else _typed(path, key, value, kinds[name])
    rules = (*options.pop("topics", ()), *values.pop("topics", ()))
    values |= {name: value for name, value in options.items() if value is not None}
    if "upstream" not in values:
        raise ConfigurationError(f'{path} does not say upstream, as in upstream = "localhost:9092"')
    return ProxyConfig(topics=rules, **values)


def _rules(path: Path, table: Any) -> tuple[TopicRule, ...]:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        hint = ""
        if isinstance(table, dict):
            wrong = next(name for name, value in table.items() if not isinstance(value, str))
            hint = f", and {wrong} has no text; a name with dots stands in quotation marks"
        raise ConfigurationError(f'{path}: [topics] is a table such as flights = "rewrite"{hint}')
    return tuple(_rule(glob, treatment) for glob, treatment in table.items())


def _typed(path: Path, key: str, value: Any, kind: Any) -> Any:
    wanted = {int: int, int | None: int, float: int | float}.get(kind, str)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ConfigurationError(f"{path}: {key} is {value!r}, and must be {'a text' if wanted is str else 'a number'}")
    return value


def _dashed(name: str) -> str:
    return name.replace("_", "-")
