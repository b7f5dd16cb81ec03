"""What a client can be told; every duration in seconds, every size in bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, TypeVar

from ottla.errors import ConfigurationError

T = TypeVar("T")

MOST = 2**31 - 1
"""What the protocol's 32 bits hold of bytes, and of milliseconds: 24 days."""
_SECONDS = (0.001, MOST / 1000)
_MEMORY = (1, 2**53)
_OTHERS = {
    "linger": (0.0, MOST / 1000),
    "fetch_max_wait": (0.0, MOST / 1000),
    "connections_max_idle": (0.001, math.inf),
    "buffer_memory": _MEMORY,
    "fetch_buffer_bytes": _MEMORY,
}
"""What has bounds of its own: it may be 0, or no request says it."""
_LONGEST_PAUSE = 1.0
_BROKERS_PART = 0.8
"""Of the time that an answer is waited for, what the broker may take; the rest is for the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of the client as a whole.

    Attributes:
        client_id: how brokers name this client in their logs and quotas.
        rack: where this client is, as the brokers' `broker.rack` says it; consumers then read from near replicas.
        connect_timeout: for `connect` to hear from any broker, and for one connection; where it was too short, the next
            attempt there may take twice as long, and after that three times.
        request_timeout: for one request to one broker.
        api_timeout: for a whole call (admin, offsets, unknown topics), retries included.
        delivery_timeout: from `send` to the broker's acknowledgement, retries included.
        max_request_size: of one Produce request, and so of one record.
        fetch_max_bytes, partition_max_bytes: of one answer to Fetch, and of one partition in it.
        fetch_buffer_bytes: what a consumer has fetched ahead at most, all partitions together.
        fetch_max_wait: how long a broker may hold an empty Fetch back.
        connections_max_idle: how long a connection that nobody needs stays open; brokers close theirs after 600 s.
        metadata_max_age: how old what is known of brokers and leaders may become.
        reconnect_backoff, reconnect_backoff_max: the pause after a connection failed; doubles from one to the other.
        retry_backoff, retry_backoff_max: the same, before a request is repeated.
    """

    client_id: str = "ottla"
    rack: str | None = None
    connect_timeout: float = 10.0
    request_timeout: float = 30.0
    api_timeout: float = 60.0
    delivery_timeout: float = 120.0
    max_request_size: int = 2**20
    fetch_max_bytes: int = 50 * 2**20
    partition_max_bytes: int = 2**20
    fetch_buffer_bytes: int = 64 * 2**20
    fetch_max_wait: float = 0.5
    connections_max_idle: float = 540.0
    metadata_max_age: float = 300.0
    reconnect_backoff: float = 0.05
    reconnect_backoff_max: float = _LONGEST_PAUSE
    retry_backoff: float = 0.1
    retry_backoff_max: float = _LONGEST_PAUSE

    def __post_init__(self) -> None:
        within_bounds(self)
        for pause in ("reconnect_backoff", "retry_backoff"):
            first, most = getattr(self, pause), getattr(self, f"{pause}_max")
            if first > most:
                needs = f"{pause} must be at most {pause}_max, {most:g} s, not {first:g} s"
                raise ConfigurationError(f"{needs}: lower the one, or leave out the other")


def longest_pause(first: float, most: float | None) -> float:
    """What a pause of ``first`` seconds grows to: ``most``; where nobody says so, it may be long from the beginning."""
    return max(first, _LONGEST_PAUSE) if most is None else most


def within_bounds(options: T) -> T:
    """The options, a dataclass, whose numbers are all such as the protocol can say: seconds are floats, sizes integers.

    Raises:
        ConfigurationError: one is not; says which, and what would do.
    """
    told: Any = options
    for each in fields(told):
        value = getattr(told, each.name)
        if each.type in (float, float | None):
            (least, most), unit = _OTHERS.get(each.name, _SECONDS), "seconds"
        elif each.name.endswith(("size", "bytes", "memory")):
            (least, most), unit = _OTHERS.get(each.name, (1, MOST)), "bytes"
        else:
            continue
        if value is None and each.type is not float:
            continue
        if not isinstance(value, Real) or isinstance(value, bool) or not least <= float(value) <= most:
            wanted = f"a number of {unit} from {least:g} to {most}"
            raise ConfigurationError(f"{each.name} must be {wanted}, not {value!r}")
    return options


def broker_timeout_ms(timeout: float) -> int:
    """What a broker is told to take at most where it is waited for ``timeout`` seconds: less, so that it is heard."""
    return int(timeout * 1000 * _BROKERS_PART)


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[tuple[str, int]]:
    """``"host:port,host:port"`` (or several such) as pairs; the port defaults to 9092.

    Raises:
        ConfigurationError: there is none, a port is not a number, or a number is all there is.
    """
    if not isinstance(bootstrap, Sequence) or not all(isinstance(each, str) for each in bootstrap):
        raise ConfigurationError(f"bootstrap is host:port, or a list of such, not {bootstrap!r}")
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = []
    for text in (each.strip() for each in texts):
        if not text:
            continue
        if text.isdigit():  # to resolvers 5 is 0.0.0.5
            raise ConfigurationError(f"bootstrap address {text!r} is a number, not host:port, as in localhost:9092")
        host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
        if not colon:
            host, port = text, "9092"
        if "/" in host or host.split() != [host] or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigurationError(f"bootstrap address {text!r} is not host:port; several are separated by commas")
        addresses.append((host.strip("[]"), int(port)))
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
