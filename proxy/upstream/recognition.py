"""Recognizes the brokers of upstream before clients log in there: another cluster may have an address by now.

Rules:
- A broker tells its cluster id only to clients that have logged in. So the proxy logs in first, as itself, on a new
  connection, and closes it when it knows: an open one could still lead to a broker that has moved.
- The proxy trusts the answer for `HOLDS` seconds, and a connection that began in time may take as long to open. A
  cluster that takes the address meanwhile gets a login of a client, and no request: the client's connection is checked
  as well, once upstream has let the client in (`ottla.proxy.clients.relay`).
- If the proxy does not recognize the broker, the links that wait for it end, and the next attempt comes `PAUSE` seconds
  later: each is a login of the proxy's own user, and clients may come in any number before their login.
- These checks are against mistakes, such as an address that is given to another cluster. Only the certificate tells a
  broker apart that lies about its cluster.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.addresses import format_address
from ottla.errors import ConnectionLost, OttlaError
from ottla.proxy.events import Address

HOLDS = 5.0
"""Seconds for which a recognized address counts as upstream's."""
PAUSE = 1.0
"""Seconds from a failure to the next attempt."""


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


class WaitingLink(Protocol):
    """A link that does not connect before its broker is recognized."""

    def connect(self, now: float) -> None: ...
    def end(self, error: OttlaError, now: float) -> None: ...


class Recognition:
    """Has links wait until their brokers are recognized.

    Args:
        probe: opens a link as the proxy itself, whose cluster is checked.
    """

    def __init__(self, probe: OpenProbe) -> None:
        self._probe = probe
        self._probes: dict[Address, UpstreamProbe] = {}
        self._until: dict[Address, float] = {}
        """Until when an address is recognized."""
        self._not_before: dict[Address, float] = {}
        """After a failure: when the next attempt may begin."""
        self._waiting: dict[Address, dict[WaitingLink, None]] = {}

    def admit(self, link: WaitingLink, address: Address, now: float) -> None:
        """Have a link connect, at once or when its broker is recognized."""
        if now < self._until.get(address, now):
            link.connect(now)
        else:
            self._waiting.setdefault(address, {})[link] = None
            self._begin(address, now)

    def withdraw(self, link: WaitingLink, address: Address) -> None:
        """Forget a link that has ended."""
        waiting = self._waiting.get(address, {})
        waiting.pop(link, None)
        if not waiting:
            self._waiting.pop(address, None)

    def try_again(self, now: float) -> None:
        """Begin the attempts that have waited for long enough; called about once a second."""
        for address in list(self._waiting):
            self._begin(address, now)

    def _begin(self, address: Address, now: float) -> None:
        if address in self._probes or now < self._not_before.get(address, now):
            return
        ready, lost = partial(self._recognized, address), partial(self._failed, address)
        self._probes[address] = self._probe(address, now, ready=ready, lost=lost)

    def _recognized(self, address: Address, now: float) -> None:
        self._probes.pop(address).close()
        self._forget(now)
        self._until[address] = now + HOLDS
        for link in self._waiting.pop(address, {}):
            link.connect(now)

    def _failed(self, address: Address, error: OttlaError, now: float) -> None:
        del self._probes[address]
        self._forget(now)
        self._not_before[address] = now + PAUSE
        where = f"upstream {format_address(*address)}"
        for link in self._waiting.pop(address, {}):
            link.end(ConnectionLost(f"{where} is not recognized: {str(error).removeprefix(f'{where}: ')}"), now)

    def _forget(self, now: float) -> None:
        """Forget old answers and pauses: addresses come and go."""
        for known in (self._until, self._not_before):
            for address in [address for address, until in known.items() if until <= now]:
                del known[address]
