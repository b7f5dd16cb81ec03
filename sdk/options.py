"""Declares options, and has the options of a client; every duration in seconds, every size in bytes.

Rules:
- An option is declared once, as a field of a dataclass: its name, type, default and bounds, and Kafka's names for it.
- The docstring of the class explains a client's options. The options of producers, consumers and transforms are in
  `ottla.sdk.produce.options`, `ottla.sdk.consume.options`, `ottla.sdk.group.options` and
  `ottla.sdk.transaction.options`: there the string after a field explains the option, and tools/options.py generates
  the arguments of `Client.producer`, `Client.consumer` and `Client.transform` from the fields.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.addresses import parse_address
from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk import kafka_values as kafka

if TYPE_CHECKING:
    from ottla.sasl import Mechanism
    from ottla.tls import TLS  # given by the caller: a machine does not import OpenSSL

T = TypeVar("T")

MOST = 2**31 - 1
"""The protocol's limit of 32 bits, in bytes and in milliseconds: 24 days."""
_SECONDS = (0.001, MOST / 1000)
_BYTES = (1, MOST)
FROM_ZERO = (0.0, MOST / 1000)
"""Bounds of seconds that may be 0."""
MEMORY = (1, 2**53)
"""Bounds of bytes that never go on the wire."""
_DEFAULT_PORT = 9092
"""Kafka's port, for bootstrap addresses without one."""
_LONGEST_PAUSE = 1.0
_BROKERS_PART = 0.8
"""The broker's share of the time that the client waits for an answer; the rest is for the network."""

Convert = Callable[[Any], Any]
"""Turns a value of Kafka's configuration into ottla's."""
_NONE: Mapping[str, Convert] = {}


def option(default: T, names: Mapping[str, Convert] = _NONE, *, bounds: tuple[float, float] | None = None) -> T:
    """Declare an option, as a field of a dataclass.

    Args:
        names: Kafka's names for it, the main one first, each with the converter of its values.
        bounds: the least and the most; by default those of seconds or bytes in the protocol.
    """
    return field(default=default, metadata={"kafka": names, "bounds": bounds})


def kafka_names(option: "Field[Any]") -> Mapping[str, Convert]:
    """Kafka's names for an option, each with the converter of its values."""
    names: Mapping[str, Convert] = option.metadata.get("kafka", _NONE)
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the client as a whole. Durations are in seconds, sizes in bytes.

    Attributes:
        client_id: the name of this client in the brokers' logs and quotas.
        tls: how connections are encrypted (`ottla.TLS`); by default they are not.
        sasl: how this client authenticates (`ottla.Plain`, `ottla.ScramSha256`, `ottla.ScramSha512`,
            `ottla.OAuthBearer`).
        rack: where this client is, in the terms of the brokers' ``broker.rack``; consumers then read from near
            replicas, and members of groups use the classic protocol by default: its assignors prefer near replicas,
            Kafka's of the new protocol do not.
        connect_timeout: for `connect` to reach any broker, and for a single connection attempt; if it was too short,
            the next attempt to the same broker may take twice as long, and after that three times.
        request_timeout: for one request to one broker; up to twenty times as long while a large response is arriving.
        api_timeout: for a whole call (admin, offsets), retries included. A topic that no broker knows is an error
            after 5 s.
        delivery_timeout: from `send` to the broker's acknowledgement, retries included.
        max_request_size: of one Produce request, and so of one record.
        fetch_max_bytes, partition_max_bytes: of one Fetch response, and of one partition in it.
        fetch_buffer_bytes: the most that a consumer fetches ahead, for all partitions together.
        fetch_batch_memory: memory that a consumer's batch may take, decompressed and as objects. A single batch of the
            log that needs more raises `MemoryLimitExceeded`.
        fetch_max_wait: how long a broker may hold back an empty Fetch response; records are never held back. With 0 an
            idle consumer sends requests without a pause.
        connections_max_idle: how long an unused connection stays open; brokers close theirs after 600 s.
        metadata_max_age: the maximum age of metadata about brokers and leaders.
        reconnect_backoff, reconnect_backoff_max: the pause after a failed connection; doubles from the first to the
            second, which defaults to 1 s, or to the first if that is longer.
        retry_backoff, retry_backoff_max: the same, before a request is retried.

    Raises:
        ConfigurationError: an option is invalid; the message names it, and the valid values.
    """

    client_id: str = option("ottla", {"client.id": kafka.text})
    tls: "TLS | None" = None
    sasl: "Mechanism | None" = None
    rack: str | None = option(None, {"client.rack": kafka.text})
    connect_timeout: float = option(10.0, {"socket.connection.setup.timeout.ms": kafka.timeout})
    request_timeout: float = option(30.0, {"request.timeout.ms": kafka.timeout})
    api_timeout: float = option(60.0, {"default.api.timeout.ms": kafka.timeout})
    delivery_timeout: float = option(120.0, {"delivery.timeout.ms": kafka.milliseconds_or_unlimited})
    max_request_size: int = option(2**20, {"max.request.size": kafka.number})
    fetch_max_bytes: int = option(50 * 2**20, {"fetch.max.bytes": kafka.size})
    partition_max_bytes: int = option(2**20, {"max.partition.fetch.bytes": kafka.size})
    fetch_buffer_bytes: int = option(64 * 2**20, {"queued.max.messages.kbytes": kafka.kilobytes}, bounds=MEMORY)
    fetch_batch_memory: int = option(128 * 2**20, bounds=MEMORY)
    fetch_max_wait: float = option(0.5, {"fetch.max.wait.ms": kafka.milliseconds}, bounds=FROM_ZERO)
    connections_max_idle: float = option(
        540.0, {"connections.max.idle.ms": kafka.milliseconds_or_never}, bounds=(0.001, math.inf)
    )
    metadata_max_age: float = option(
        300.0, {"metadata.max.age.ms": kafka.pause, "topic.metadata.refresh.interval.ms": kafka.milliseconds_or_longest}
    )
    reconnect_backoff: float = option(0.05, {"reconnect.backoff.ms": kafka.pause})
    reconnect_backoff_max: float = option(None, {"reconnect.backoff.max.ms": kafka.pause})  # type: ignore[assignment] # is filled in
    retry_backoff: float = option(0.1, {"retry.backoff.ms": kafka.pause})
    retry_backoff_max: float = option(None, {"retry.backoff.max.ms": kafka.pause})  # type: ignore[assignment] # is filled in

    def __post_init__(self) -> None:
        for pause in ("reconnect_backoff", "retry_backoff"):
            first, most = getattr(self, pause), getattr(self, f"{pause}_max")
            if most is None and isinstance(first, Real):
                object.__setattr__(self, f"{pause}_max", max(first, _LONGEST_PAUSE))
        if self.tls is not None and not hasattr(self.tls, "connection"):
            raise ConfigurationError(
                f"tls must be ottla.TLS(ca=…), or ottla.TLS() for the system's CAs, not {self.tls!r}"
            )
        if self.sasl is not None and not hasattr(self.sasl, "exchange"):
            needs = "sasl must be ottla.Plain(…), ottla.ScramSha256(…), ottla.ScramSha512(…) or ottla.OAuthBearer(…)"
            raise ConfigurationError(f"{needs}, not a {type(self.sasl).__name__}")  # its repr may show a password
        within_bounds(self)
        for pause in ("reconnect_backoff", "retry_backoff"):
            first, most = getattr(self, pause), getattr(self, f"{pause}_max")
            if first > most:
                needs = f"{pause} must be at most {pause}_max, {most:g} s, not {first:g} s"
                raise ConfigurationError(f"{needs}: lower the first, or leave out the second")


@dataclass(frozen=True, slots=True)
class ClientOptions(Options):
    """The options of `ottla.connect`.

    Attributes:
        bootstrap: ``host:port`` (several separated by commas, or as a list or tuple), ``zeroconf://name``, or
            ``zeroconf://`` for any cluster announced on the network.
    """

    bootstrap: str | Sequence[str] = field(metadata={"kafka": {"bootstrap.servers": kafka.servers}})

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.client_id is None or not isinstance(self.client_id, str):
            raise ConfigurationError(f"client_id must be a string, not {self.client_id!r}")
        if self.rack is not None and not isinstance(self.rack, str):
            raise ConfigurationError(f"rack must be a string or None, not {self.rack!r}")
        if not announced_name(self.bootstrap)[0]:
            parse_bootstrap(self.bootstrap)
        if not isinstance(self.bootstrap, str):
            object.__setattr__(self, "bootstrap", tuple(self.bootstrap))  # the caller may change theirs later


def as_arguments(*options: Any) -> dict[str, Any]:
    """The fields of dataclasses as keyword arguments."""
    return {each.name: getattr(some, each.name) for some in options for each in fields(some)}


def within_bounds(options: object) -> None:
    """Check that all numbers of ``options``, a dataclass, are within their bounds: seconds are floats, sizes integers.

    Raises:
        ConfigurationError: one does not; the message names it, and the valid values.
    """
    given: Any = options
    for each in fields(given):
        value = getattr(given, each.name)
        if each.type in (float, float | None):
            bounds, unit, kind = _SECONDS, "number of seconds", Real
        elif each.name.endswith(("size", "bytes", "memory")):
            bounds, unit, kind = _BYTES, "whole number of bytes", Integral
        else:
            continue
        if value is None and each.type not in (float, int):
            continue
        least, most = each.metadata.get("bounds") or bounds
        if not isinstance(value, kind) or isinstance(value, bool) or not least <= float(value) <= most:
            wanted = f"a {unit} from {least:g} to {most}"
            raise ConfigurationError(f"{each.name} must be {wanted}, not {value!r}")


def broker_timeout_ms(timeout: float) -> int:
    """The timeout to give a broker if the client waits ``timeout`` seconds: shorter, so that it answers in time."""
    return int(timeout * 1000 * _BROKERS_PART)


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[tuple[str, int]]:
    """Parse ``"host:port,host:port"`` (or several of them) into pairs; the port defaults to 9092.

    Raises:
        ConfigurationError: there is no address, a port is not a number, or an address is only a number.
    """
    if not isinstance(bootstrap, Sequence) or not all(isinstance(each, str) for each in bootstrap):
        raise ConfigurationError(f"bootstrap must be host:port, or a list of them, not {bootstrap!r}")
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = [
        parse_address(text, "bootstrap address", default_port=_DEFAULT_PORT) for each in texts if (text := each.strip())
    ]
    if not addresses:
        raise ConfigurationError("bootstrap has no address; it must be host:port, several separated by commas")
    return addresses


def announced_name(bootstrap: str | Sequence[str]) -> tuple[bool, str | None]:
    """Whether to find the brokers by zeroconf, and the name to look for (``None``: any).

    ``zeroconf://name`` looks for one name, ``zeroconf://`` accepts any.
    """
    if not isinstance(bootstrap, str) or not bootstrap.startswith("zeroconf:"):
        return False, None
    return True, bootstrap.removeprefix("zeroconf:").strip("/") or None
