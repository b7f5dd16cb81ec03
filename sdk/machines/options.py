"""What a client can be told; every duration in seconds, every size in bytes."""

from dataclasses import dataclass, fields

from ottla.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of the client as a whole.

    Attributes:
        client_id: how brokers name this client in their logs and quotas.
        connect_timeout: for one connection, and for `connect` to hear from any broker.
        request_timeout: for one request to one broker.
        api_timeout: for a whole call (admin, offsets, unknown topics), retries included.
        delivery_timeout: from `send` to the broker's acknowledgement, retries included.
        max_request_size: of one Produce request, and so of one record.
        fetch_max_bytes, partition_max_bytes: of one answer to Fetch, and of one partition in it.
        fetch_max_wait: how long a broker may hold an empty Fetch back.
    """

    client_id: str = "ottla"
    connect_timeout: float = 10.0
    request_timeout: float = 30.0
    api_timeout: float = 60.0
    delivery_timeout: float = 120.0
    max_request_size: int = 2**20
    fetch_max_bytes: int = 50 * 2**20
    partition_max_bytes: int = 2**20
    fetch_max_wait: float = 0.5

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "client_id":
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
                unit = "bytes" if "size" in each.name or "bytes" in each.name else "seconds"
                raise ConfigurationError(f"{each.name} must be a positive number of {unit}, not {value!r}")


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
