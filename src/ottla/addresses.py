"""Addresses as people write them: the one parser and the one formatter of all parts.

Rules:
- ``host:port``. An IPv6 address has brackets if a port follows, ``[::1]:9092``, and may have them without one; a scope
  belongs to the address, ``[fe80::1%eth0]:9092``.
- If the port is optional, an IPv6 address without brackets is a host, unless its last part could be a port.
- Everywhere else a host is a name or an address without brackets, as on the wire.

Source: RFC 3986, section 3.2.2; RFC 5952, section 6; Utils.java, getHost and getPort.
"""

from ipaddress import ip_network

from ottla.errors import ConfigurationError

EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})
"""Hosts that stand for every address of the machine."""
_LOCALHOST = frozenset({"localhost", "127.0.0.1", "::1"})
_EXAMPLE_PORT = 9092
_HIGHEST = 65535
_LONGEST = 20
"""Digits of a port, with zeros in front of it."""


def network_of(host: str) -> str:
    """The address of a host, for limits by host; with IPv6 its network, because a host has 2**64 addresses."""
    return str(ip_network((host.partition("%")[0], 64), strict=False)) if ":" in host else host


def without_user(text: str) -> str:
    """An address for messages: what precedes ``@`` may be a user with a password, and is left out."""
    before, _, host = text.rpartition("@")
    return f"…@{host}" if before else text


def parse_address(
    text: str,
    what: str = "address",
    *,
    default_port: int | None = None,
    any_port: bool = False,
    example_port: int = _EXAMPLE_PORT,
) -> tuple[str, int]:
    """Split an address into the host, without brackets, and the port.

    Args:
        what: the name of the address in errors.
        default_port: the port if the text has none; ``None``: a port is required.
        any_port: allow port 0, by which servers mean any free port.
        example_port: the port of the example in errors.

    Raises:
        ConfigurationError: it is not an address; the message shows the right form.
    """
    forms = "host:port" if default_port is None else "host or host:port"
    host, port = _split(text.strip(), what, forms)
    if port is None:
        if default_port is None:
            example = format_address(host, example_port)
            raise ConfigurationError(f"{what} {without_user(text)!r} has no port: write host:port, such as {example}")
        return host, default_port
    if not (port.isascii() and port.isdigit()):
        raise _not_one(text, what, forms)
    number = int(port) if len(port) <= _LONGEST else -1  # Python refuses to read numbers of thousands of digits
    if not (0 if any_port else 1) <= number <= _HIGHEST:
        lowest = "0 (any free one)" if any_port else "1"
        raise ConfigurationError(
            f"{what} {without_user(text)!r:.100} has no such port: ports are {lowest} to {_HIGHEST}"
        )
    return host, number


def format_address(host: str, port: int) -> str:
    """``host:port``, as `parse_address` and clients of all languages read it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def overlap(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether a server of this machine that listens on one address leaves no room for the other, as far as the texts
    say: a host that is another name of the machine is not noticed."""
    if one[1] != other[1] or not one[1]:
        return False
    hosts = {one[0].lower(), other[0].lower()}
    return len(hosts) == 1 or bool(hosts & EVERY_ADDRESS) or ("localhost" in hosts and hosts <= _LOCALHOST)


def is_own(listening: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether connections to the other address, perhaps of another machine, reach the server that listens."""
    every = listening[0] in EVERY_ADDRESS
    return overlap(listening, other) and (not every or other[0].lower() in _LOCALHOST | EVERY_ADDRESS)


def _split(text: str, what: str, forms: str) -> tuple[str, str | None]:
    """The host and the port; ``None`` if there is no port."""
    port: str | None
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _not_one(text, what, forms)
        port = rest[1:] if rest else None
        if not _is_ipv6(host):
            raise ConfigurationError(
                f"{what} {without_user(text)!r}: {host!r} is not an IPv6 address, and only those have brackets"
            )
        return host, port
    host, colon, last = text.rpartition(":")
    if ":" in host:
        if not _is_ipv6(text):
            if _is_ipv6(host):
                raise ConfigurationError(
                    f"{what} {without_user(text)!r}: an IPv6 address needs brackets: write [{host}]:{last}"
                )
            raise _not_one(text, what, forms)
        if _is_ipv6(host) and last.isdigit():
            raise ConfigurationError(f"{what} {without_user(text)!r} is ambiguous: write [{host}]:{last}, or [{text}]")
        return text, None
    host, port = (host, last) if colon else (text, None)
    if not host or any(each.isspace() or each in "/[],;@" for each in host):
        raise _not_one(text, what, forms)
    if host.isdigit():  # a resolver reads 5 as 0.0.0.5
        raise ConfigurationError(f"{what} {without_user(text)!r} is only a number, not host:port, as in localhost:9092")
    return host, port


def _not_one(text: str, what: str, forms: str) -> ConfigurationError:
    return ConfigurationError(f"{what} {without_user(text)!r} is not {forms}, such as 127.0.0.1:{_EXAMPLE_PORT}")


def _is_ipv6(text: str) -> bool:
    from ipaddress import AddressValueError, IPv6Address  # most addresses do not need it

    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True
