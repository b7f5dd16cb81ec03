"""Find brokers and proxies, or announce one, by zeroconf (mDNS) as ``_kafka._tcp.local.``; these functions block.

`announced` announces a service, `find` looks for services; `resolve` understands ``"zeroconf://"`` and
``"zeroconf://name"``, and calls `find`.
`ottla.sdk.discovery` has the same functions for trio.

Rules of this file:
- A program that does not use zeroconf never imports it.
- IPv4 only. A service that listens on the loopback address is announced there and nowhere else.
- Answers of several clusters are never mixed: a client that bootstraps from two of them would write to either.
"""

import math
import queue
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from ottla.addresses import format_address
from ottla.errors import BrokerUnreachable, ConfigurationError
from ottla.late_dataclass import dataclass

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, Zeroconf

SCHEME = "zeroconf://"
SERVICE_TYPE = "_kafka._tcp.local."
CLUSTER = "cluster"
"""The property by which announcements of the same cluster are recognised."""

_LISTEN = 1.5
"""Minimum seconds that a search for any name listens: a service that has just answered waits 1 s (RFC 6762, 6)."""
_SETTLE = 0.5
"""Seconds without a further answer after which such a search ends."""
_PROBE = 1.5
"""Seconds to wait for a service that has our name already: as `_LISTEN`, in case its fast unicast answer is lost."""
_RESOLVE = 2.0
"""Seconds for an announced name to be resolved to its addresses."""


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """One announced broker or proxy; ``addresses`` are ``host:port``."""

    name: str
    addresses: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)


def interfaces_of(host: str) -> list[str] | None:
    """The IPv4 addresses under which a service that listens on ``host`` can be reached; None means all of this machine.

    Raises:
        ConfigurationError: the host has no IPv4 address.
    """
    if host in ("", "0.0.0.0", "::"):
        return None
    try:
        found = socket.getaddrinfo(host, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError(f"cannot announce a service on {host!r}: it has no IPv4 address") from error
    return sorted({str(address[0]) for *_, address in found})


def resolve(bootstrap: str, timeout: float) -> list[str]:
    """The addresses, ``host:port``, in ``bootstrap``, or found by ``zeroconf://[name]``.

    Raises:
        BrokerUnreachable, ConfigurationError: as in `find`.
    """
    if not bootstrap.startswith(SCHEME):
        return bootstrap.split(",")
    return find(bootstrap.removeprefix(SCHEME).rstrip("/") or None, timeout)


def find(name: str | None, timeout: float, *, interfaces: Sequence[str] | None = None) -> list[str]:
    """The addresses, ``host:port``, of the broker or proxy announced as ``name``.

    Args:
        name: None accepts all that answer, if they are of one cluster.
        timeout: in seconds; returns when the name has answered, or, without a name, when no more answers come.
        interfaces: the IPv4 addresses of the interfaces to ask on; None means all.

    Raises:
        BrokerUnreachable: no service answered; the message says where and how long it looked, and what to check.
        ConfigurationError: more than one cluster answered, or no interface can be used.
    """
    if name is not None:
        found = _look_up(name, timeout, interfaces)
        if found is None:
            raise BrokerUnreachable(_nothing(f"no broker or proxy named {name!r}", timeout, interfaces))
        return list(found.addresses)
    announcements = browse(timeout, interfaces=interfaces)
    if not announcements:
        raise BrokerUnreachable(_nothing("no broker or proxy", timeout, interfaces))
    if len({a.properties.get(CLUSTER) for a in announcements}) > 1:
        names = ", ".join(f"zeroconf://{a.name}" for a in announcements)
        raise ConfigurationError(f"zeroconf:// found more than one cluster; name the one you mean: {names}")
    return [address for announcement in announcements for address in announcement.addresses]


def browse(timeout: float, *, interfaces: Sequence[str] | None = None) -> list[Announcement]:
    """All announced services, by name; takes 1.5 seconds, or ``timeout`` if there are none."""
    from zeroconf import DNSQuestionType, ServiceBrowser, ServiceStateChange

    names: queue.SimpleQueue[str] = queue.SimpleQueue()

    def changed(zeroconf: "Zeroconf", service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Added:
            names.put(name)

    found: dict[str, Announcement] = {}
    start = time.monotonic()
    deadline = start + timeout
    with _opened(interfaces) as zeroconf:
        # QM, answers by multicast: otherwise the first question would ask for unicast, and on a machine where several
        # programs share port 5353 the kernel hands that answer to any of them; ours comes a second later.
        browser = ServiceBrowser(zeroconf, SERVICE_TYPE, handlers=[changed], question_type=DNSQuestionType.QM)
        try:
            silence = math.inf
            while (left := min(deadline, silence) - time.monotonic()) > 0:
                try:
                    name = names.get(timeout=left)
                except queue.Empty:
                    break
                seconds = min(_RESOLVE, max(0.0, deadline - time.monotonic()))
                if announcement := _resolve(zeroconf, name, seconds):
                    found[name] = announcement
                    silence = max(start + _LISTEN, time.monotonic() + _SETTLE)
        finally:
            browser.cancel()
    return sorted(found.values(), key=lambda announcement: announcement.name)


@contextmanager
def announced(
    name: str, port: int, *, properties: Mapping[str, str] | None = None, interfaces: Sequence[str] | None = None
) -> Iterator[Announcement]:
    """Announce a service under a name for as long as the block runs; entering it takes two seconds.

    Args:
        name: at most 63 bytes, without a dot at its end; ``zeroconf://name`` finds it.
        properties: part of each answer; `CLUSTER` says which announcements belong together.
        interfaces: the IPv4 addresses on which the service listens (`interfaces_of`); None means all of this machine.

    Raises:
        ConfigurationError: the name is taken or malformed, or no interface can be used.
    """
    from zeroconf import (  # type: ignore[attr-defined]  # get_all_addresses is public, but left out of __all__
        BadTypeInNameException,
        ServiceInfo,
        get_all_addresses,
    )

    addresses = list(interfaces) if interfaces is not None else get_all_addresses()
    # A client on another machine must not mistake 127.0.0.1 for its own address.
    addresses = [a for a in addresses if not a.startswith("127.")] or addresses
    try:
        info = ServiceInfo(
            SERVICE_TYPE,
            f"{name}.{SERVICE_TYPE}",
            port=port,
            properties=dict(properties or {}),
            parsed_addresses=addresses,
            server=f"{name}.local.",  # zeroconf's default is the service's own name, and lookups by name then fail
        )
    except BadTypeInNameException as error:
        raise ConfigurationError(f"cannot announce the name {name!r}: {error}") from error
    with _opened(interfaces) as zeroconf:
        if other := _resolve(zeroconf, info.name, _PROBE):
            raise ConfigurationError(
                f"{name!r} is announced already, by {', '.join(other.addresses)}: choose another name"
            )
        # zeroconf's own check whether a name is free takes as long, and has been seen to miss the other service.
        zeroconf.register_service(info, cooperating_responders=True)
        try:
            yield _announcement(info)
        finally:
            zeroconf.unregister_service(info)


@contextmanager
def _opened(interfaces: Sequence[str] | None) -> "Iterator[Zeroconf]":
    from zeroconf import InterfaceChoice, IPVersion, Zeroconf

    where = InterfaceChoice.All if interfaces is None else list(interfaces)
    try:
        for interface in interfaces or ():  # zeroconf's own error says less, and leaves a socket open
            with socket.socket(type=socket.SOCK_DGRAM) as probe:
                probe.bind((interface, 0))
        zeroconf = Zeroconf(interfaces=where, ip_version=IPVersion.V4Only)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no interface at all
        raise ConfigurationError(f"zeroconf cannot use {_place(interfaces)}: {error}") from error
    with zeroconf:
        yield zeroconf


def _look_up(name: str, timeout: float, interfaces: Sequence[str] | None) -> Announcement | None:
    with _opened(interfaces) as zeroconf:
        return _resolve(zeroconf, f"{name}.{SERVICE_TYPE}", timeout)


def _resolve(zeroconf: "Zeroconf", full_name: str, timeout: float) -> Announcement | None:
    info = zeroconf.get_service_info(SERVICE_TYPE, full_name, round(timeout * 1000))
    return _announcement(info) if info else None


def _announcement(info: "ServiceInfo") -> Announcement:
    return Announcement(
        name=info.name.removesuffix(f".{SERVICE_TYPE}"),
        addresses=tuple(format_address(address, info.port or 0) for address in info.parsed_addresses()),
        properties={key: value or "" for key, value in info.decoded_properties.items()},
    )


def _place(interfaces: Sequence[str] | None) -> str:
    return f"the interfaces {', '.join(interfaces)}" if interfaces else "the interfaces of this machine"


def _nothing(what: str, timeout: float, interfaces: Sequence[str] | None) -> str:
    return (
        f"{what} announced itself as {SERVICE_TYPE} on {_place(interfaces)} within {timeout:g} s: "
        "was it started with --announce, on this network, and does the network allow multicast (UDP port 5353)?"
    )
