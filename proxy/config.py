"""The configuration of a proxy: options and topic rules, from Python or a TOML file.

A file has the options of `ProxyConfig` by name, with dashes or underscores, and the rules as a table:

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
    """How the proxy handles the records of a topic."""

    OBSERVE = "observe"
    """Records pass unchanged; keys in another partition than the partitioner chooses are counted."""
    REWRITE = "rewrite"
    """Records with a key go to the partition that the partitioner chooses."""


@dataclass(frozen=True, kw_only=True)
class TopicRule:
    """``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``: how the proxy handles topics whose names match.

    Raises:
        ConfigurationError: the glob is empty, the partitioner unknown, or the number of partitions is not
            1 to 2147483647.
    """

    glob: str
    """As in a shell: ``*``, ``?``, ``[a-z]``; case-sensitive. Internal topics of Kafka Streams match their full name
    only."""
    mode: Mode
    partitioner: str = DEFAULT_PARTITIONER
    partitions: int | None = None
    """How many partitions keys go to; ``None``: the partition count when the proxy first sees the topic."""

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
        if self.partitions is not None and not 1 <= self.partitions < 2**31:
            raise ConfigurationError(f"topic {self.glob!r} must have 1 to 2147483647 partitions, not {self.partitions}")


def parse_rule(text: str) -> TopicRule:
    """Parse a rule ``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``.

    For example ``'flights=rewrite'``, ``'audit-*=observe:crc32'`` or, with the default partitioner,
    ``'flights=rewrite::6'``.

    Raises:
        ConfigurationError: the text is not a rule; the message shows the syntax.
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
    connect_timeout: float = 10.0
    """The timeout for one connection to upstream, and for reaching upstream when the proxy starts."""
    request_timeout: float = 30.0
    """The timeout for a response to one of the proxy's own requests, which is then retried on another connection."""
    delivery_timeout: float = 120.0
    """The time until unconfirmed records fail with upstream's error. If their outcome is unknown, an idempotent client
    is fenced."""
    max_buffered: int = 64 * 2**20
    """The most bytes of unsettled records of rewritten topics; above it the proxy pauses reading from their clients."""
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
        """The host that clients get, and the port for the first node; ``None``: the port of `listen`."""
        if self.advertise is None:
            return self.listens[0], None
        host, port = parse_address(self.advertise, "advertise", default_port=0)
        return host, port or None


def read_config(path: Path, **options: Any) -> ProxyConfig:
    """The configuration in a TOML file; ``options`` that are not ``None`` override it, and rules stand before its own.

    Raises:
        ConfigurationError: the file cannot be read, or has an unknown option or an invalid value.
    """
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}; put names with * in quotation marks") from None
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
        raise ConfigurationError(f'{path} has no upstream: add it, as in upstream = "localhost:9092"')
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
        raise ConfigurationError(
            f"{path}: {key} is {value!r}, and must be {'a string' if wanted is str else 'a number'}"
        )
    return value


def _dashed(name: str) -> str:
    return name.replace("_", "-")
