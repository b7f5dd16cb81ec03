"""What a client can be told; every duration in seconds, every size in bytes."""

from dataclasses import dataclass, fields

from ottla.errors import ConfigurationError

_BROKERS_PART = 0.8
"""Of the time that an answer is waited for, what the broker may take; the rest is for the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of the client as a whole.

    Attributes:
        client_id: how brokers name this client in their logs and quotas.
        rack: where this client is, as the brokers' `broker.rack` says it; consumers then read from near replicas.
        connect_timeout: for one connection, and for `connect` to hear from any broker.
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
    reconnect_backoff_max: float = 1.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in ("client_id", "rack"):
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
                unit = "bytes" if "size" in each.name or "bytes" in each.name else "seconds"
                raise ConfigurationError(f"{each.name} must be a positive number of {unit}, not {value!r}")


def broker_timeout_ms(timeout: float) -> int:
    """What a broker is told to take at most where it is waited for ``timeout`` seconds: less, so that it is heard."""
    return int(timeout * 1000 * _BROKERS_PART)


def parse_bootstrap(bootstrap: str | list[str] | tuple[str, ...]) -> list[tuple[str, int]]:
    """``"host:port,host:port"`` (or a list of such) as pairs; the port defaults to 9092.

    Raises:
        ConfigurationError: there is none, or a port is not a number.
    """
    if not isinstance(bootstrap, str | list | tuple):
        raise ConfigurationError(f"bootstrap is host:port, or a list of such, not {bootstrap!r}")
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = []
    for text in (each.strip() for each in texts):
        if not text:
            continue
        host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
        if not colon:
            host, port = text, "9092"
        if "/" in host or not port.isdigit() or not 0 < int(port) < 65536 or not host:
            raise ConfigurationError(f"bootstrap address {text!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ConfigurationError("bootstrap names no address; it is host:port, several separated by commas")
    return addresses


def announced_name(bootstrap: str | list[str] | tuple[str, ...]) -> tuple[bool, str | None]:
    """Whether the brokers are to be found by zeroconf, and the name to look for (``None``: any).

    ``zeroconf://name`` names one, ``zeroconf://`` takes what there is.
    """
    if not isinstance(bootstrap, str) or not bootstrap.startswith("zeroconf:"):
        return False, None
    return True, bootstrap.removeprefix("zeroconf:").strip("/") or None
