"""The options of a client; every duration in seconds, every size in bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.addresses import parse_address
from ottla.errors import ConfigurationError

if TYPE_CHECKING:
    from ottla.sasl import Mechanism
    from ottla.tls import TLS  # a machine is given it: by itself it knows of no OpenSSL

T = TypeVar("T")

MOST = 2**31 - 1
"""What the protocol's 32 bits hold of bytes, and of milliseconds: 24 days."""
_SECONDS = (0.001, MOST / 1000)
_MEMORY = (1, 2**53)
_OTHERS = {
    "linger": (0.0, MOST / 1000),
    "max_wait": (0.0, MOST / 1000),
    "fetch_max_wait": (0.0, MOST / 1000),
    "connections_max_idle": (0.001, math.inf),
    "buffer_memory": _MEMORY,
    "fetch_buffer_bytes": _MEMORY,
    "fetch_batch_memory": _MEMORY,
}
"""What has bounds of its own: it may be 0, or no request says it."""
_DEFAULT_PORT = 9092
"""Kafka's, of a bootstrap address without one."""
_LONGEST_PAUSE = 1.0
_BROKERS_PART = 0.8
"""Of the time that an answer is waited for, what the broker may take; the rest is for the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of the client as a whole. Durations are in seconds, sizes in bytes.

    Attributes:
        client_id: how brokers name this client in their logs and quotas.
        tls: how connections are secured (`ottla.TLS`); by default they are not.
        sasl: how this client proves who it is (`ottla.Plain`, `ottla.ScramSha256`, `ottla.ScramSha512`,
            `ottla.OAuthBearer`).
        rack: where this client is, as the brokers' ``broker.rack`` says it; consumers then read from near replicas.
        connect_timeout: for `connect` to reach any broker, and for one connection; where it was too short, the next
            attempt there may take twice as long, and after that three times.
        request_timeout: for one request to one broker.
        api_timeout: for a whole call (admin, offsets), retries included. A topic that no broker knows is an error
            after 5 s.
        delivery_timeout: from `send` to the broker's acknowledgement, retries included.
        max_request_size: of one Produce request, and so of one record.
        fetch_max_bytes, partition_max_bytes: of one answer to Fetch, and of one partition in it.
        fetch_buffer_bytes: what a consumer has fetched ahead at most, all partitions together.
        fetch_batch_memory: memory that a consumer's batch may take, decompressed and as objects. A single batch of the
            log that needs more raises `MemoryLimitExceeded`.
        fetch_max_wait: how long a broker may hold back a Fetch that finds nothing; records are never held back. With 0
            an idle consumer asks without end.
        connections_max_idle: how long a connection that nobody needs stays open; brokers close theirs after 600 s.
        metadata_max_age: how old what is known of brokers and leaders may become.
        reconnect_backoff, reconnect_backoff_max: the pause after a connection failed; doubles from one to the other,
            which is 1 s by default, or the first pause where that is longer.
        retry_backoff, retry_backoff_max: the same, before a request is repeated.

    Raises:
        ConfigurationError: an option makes no sense; says which, and what would do.
    """

    client_id: str = "ottla"
    tls: "TLS | None" = None
    sasl: "Mechanism | None" = None
    rack: str | None = None
    connect_timeout: float = 10.0
    request_timeout: float = 30.0
    api_timeout: float = 60.0
    delivery_timeout: float = 120.0
    max_request_size: int = 2**20
    fetch_max_bytes: int = 50 * 2**20
    partition_max_bytes: int = 2**20
    fetch_buffer_bytes: int = 64 * 2**20
    fetch_batch_memory: int = 128 * 2**20
    fetch_max_wait: float = 0.5
    connections_max_idle: float = 540.0
    metadata_max_age: float = 300.0
    reconnect_backoff: float = 0.05
    reconnect_backoff_max: float = None  # type: ignore[assignment] # is filled in
    retry_backoff: float = 0.1
    retry_backoff_max: float = None  # type: ignore[assignment] # is filled in

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
            raise ConfigurationError(f"{needs}, not a {type(self.sasl).__name__}")  # which may hold a password
        within_bounds(self)
        for pause in ("reconnect_backoff", "retry_backoff"):
            first, most = getattr(self, pause), getattr(self, f"{pause}_max")
            if first > most:
                needs = f"{pause} must be at most {pause}_max, {most:g} s, not {first:g} s"
                raise ConfigurationError(f"{needs}: lower the one, or leave out the other")


@dataclass(frozen=True, slots=True)
class ClientOptions(Options):
    """What `ottla.connect` takes.

    Attributes:
        bootstrap: ``host:port`` (several separated by commas, or a list or tuple of such), ``zeroconf://name``, or
            ``zeroconf://`` for whatever is announced on the network.
    """

    bootstrap: str | Sequence[str]

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.client_id is None or not isinstance(self.client_id, str):
            raise ConfigurationError(f"client_id must be a string, not {self.client_id!r}")
        if self.rack is not None and not isinstance(self.rack, str):
            raise ConfigurationError(f"rack must be a string or None, not {self.rack!r}")
        if not announced_name(self.bootstrap)[0]:
            parse_bootstrap(self.bootstrap)


def within_bounds(options: T) -> T:
    """The options, a dataclass, whose numbers are all such as the protocol can say: seconds are floats, sizes integers.

    Raises:
        ConfigurationError: one is not; says which, and what would do.
    """
    given: Any = options
    for each in fields(given):
        value = getattr(given, each.name)
        if each.type in (float, float | None):
            (least, most), unit, kind = _OTHERS.get(each.name, _SECONDS), "number of seconds", Real
        elif each.name.endswith(("size", "bytes", "memory")):
            (least, most), unit, kind = _OTHERS.get(each.name, (1, MOST)), "whole number of bytes", Integral
        else:
            continue
        if value is None and each.type not in (float, int):
            continue
        if not isinstance(value, kind) or isinstance(value, bool) or not least <= float(value) <= most:
            wanted = f"a {unit} from {least:g} to {most}"
            raise ConfigurationError(f"{each.name} must be {wanted}, not {value!r}")
    return options


def broker_timeout_ms(timeout: float) -> int:
    """The timeout given to a broker where the client waits ``timeout`` seconds: less, so that it answers in time."""
    return int(timeout * 1000 * _BROKERS_PART)


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[tuple[str, int]]:
    """``"host:port,host:port"`` (or several such) as pairs; the port defaults to 9092.

    Raises:
        ConfigurationError: there is none, a port is not a number, or a number is all there is.
    """
    if not isinstance(bootstrap, Sequence) or not all(isinstance(each, str) for each in bootstrap):
        raise ConfigurationError(f"bootstrap is host:port, or a list of such, not {bootstrap!r}")
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = [
        parse_address(text, "bootstrap address", default_port=_DEFAULT_PORT) for each in texts if (text := each.strip())
    ]
    if not addresses:
        raise ConfigurationError("bootstrap names no address; it is host:port, several separated by commas")
    return addresses


def announced_name(bootstrap: str | Sequence[str]) -> tuple[bool, str | None]:
    """Whether the brokers are to be found by zeroconf, and the name to look for (``None``: any).

    ``zeroconf://name`` names one, ``zeroconf://`` takes what there is.
    """
    if not isinstance(bootstrap, str) or not bootstrap.startswith("zeroconf:"):
        return False, None
    return True, bootstrap.removeprefix("zeroconf:").strip("/") or None
