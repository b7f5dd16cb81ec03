"""Recognizes the brokers of upstream before clients log in there: another cluster may have an address by now.

Rules:
- A broker tells its cluster id only to those who have logged in. So the proxy logs in first, as itself, on a new
  connection, and closes it when it knows: an open one could still lead to a broker that has moved.
- What it learns holds for `HOLDS` seconds. A cluster that takes the address within them gets what clients send until
  then: only the certificates of TLS tell it apart at each connection.
- If the proxy does not get that far, the links that wait for it end with the same error.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.errors import OttlaError
from ottla.proxy.events import Address

HOLDS = 5.0


class UpstreamProbe(Protocol):
    """An upstream connection."""

    def close(self) -> None: ...


class OpenProbe(Protocol):
    """Opens a link on which the proxy logs in as itself."""

    def __call__(
        self,
        address: Address,
        now: float,
        *,
        ready: Callable[[float], None],
        lost: Callable[[OttlaError, float], None],
    ) -> UpstreamProbe: ...


class Recognition:
    """Remembers which addresses have belonged to upstream in the last seconds.

    Args:
        recognized: called when an address was recognized.
        failed: called with an address that was not, and the reason.
    """

    def __init__(
        self,
        connect: OpenProbe,
        recognized: Callable[[float], None],
        failed: Callable[[Address, OttlaError, float], None],
    ) -> None:
        self._connect, self._recognized, self._failed = connect, recognized, failed
        self._links: dict[Address, UpstreamProbe] = {}
        """Those on which a broker is asked now."""
        self._until: dict[Address, float] = {}

    def holds(self, address: Address, now: float) -> bool:
        """Whether this address has belonged to upstream just now."""
        return now < self._until.get(address, now)

    def begin(self, address: Address, now: float) -> None:
        """Ask the broker at an address for its cluster, unless it is being asked."""
        if address not in self._links:
            ready, lost = partial(self._ready, address), partial(self._lost, address)
            self._links[address] = self._connect(address, now, ready=ready, lost=lost)

    def _ready(self, address: Address, now: float) -> None:
        self._links.pop(address).close()
        self._until = {each: until for each, until in self._until.items() if now < until} | {address: now + HOLDS}
        self._recognized(now)

    def _lost(self, address: Address, error: OttlaError, now: float) -> None:
        del self._links[address]
        self._failed(address, error, now)
