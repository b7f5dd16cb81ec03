"""Recognizes the brokers of upstream before clients log in there: another cluster may have an address by now.

Rules:
- A broker tells its cluster id only to clients that have logged in. So the proxy logs in first, as itself, on a new
  connection (a probe), and closes it when it knows: an open one could still lead to a broker that has moved.
- The proxy trusts the answer for `HOLDS` seconds from the beginning of that connection. A client's connection that
  begins within them may take as long to open. A cluster that takes the address meanwhile gets a login of a client, and
  no request: the client's connection is checked as well, once upstream has let the client in
  (`ottla.proxy.clients.relay`).
- While links wait, one probe a second begins: a connection may be lost on the way, and another one works. Each is a
  login of the proxy's own user, and clients may come in any number before theirs, so there are no more. The links end
  when no probe is left, or after `connect-timeout`.
- The proxy asks again at once when a connection to the address is lost, or shows another cluster.
- These checks are against mistakes, such as an address that is given to another cluster. Only the certificate tells a
  broker apart that lies about its cluster.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

from ottla.addresses import format_address
from ottla.errors import ConnectionLost, OttlaError
from ottla.proxy.events import Address

HOLDS = 5.0
"""Seconds for which a recognized address counts as upstream's."""
LEAST = 1.0
"""The same for a broker that needs longer than that for a login, from its answer on."""
PAUSE = 1.0
"""Seconds from the beginning of a probe to that of the next."""


class UpstreamProbe(Protocol):
    """A link on which the proxy logs in as itself, and checks the cluster."""

    connecting_since: float

    def close(self) -> None: ...


class OpenProbe(Protocol):
    """Opens such a link."""

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
        probe: opens a link as the proxy itself.
    """

    def __init__(self, probe: OpenProbe) -> None:
        self._probe = probe
        self._probes: dict[Address, dict[int, UpstreamProbe]] = {}
        """Those under way, by their numbers; the newest last."""
        self._numbers = count()
        self._until: dict[Address, float] = {}
        """Until when an address is recognized."""
        self._not_before: dict[Address, float] = {}
        """When the next probe may begin."""
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

    def distrust(self, address: Address) -> None:
        """Recognize an address again before the next link: a connection to it was lost, or showed another cluster."""
        self._until.pop(address, None)

    def try_again(self, now: float) -> None:
        """Begin further probes for links that wait; called about once a second."""
        for address in list(self._waiting):
            self._begin(address, now)

    def _begin(self, address: Address, now: float) -> None:
        if now < self._not_before.get(address, now):
            return
        self._forget(now)
        self._not_before[address] = now + PAUSE
        number = next(self._numbers)
        ready, lost = partial(self._recognized, address, number), partial(self._failed, address, number)
        self._probes.setdefault(address, {})[number] = self._probe(address, now, ready=ready, lost=lost)

    def _recognized(self, address: Address, number: int, now: float) -> None:
        probes = self._probes.pop(address)
        since = probes[number].connecting_since
        for each in probes.values():
            each.close()
        self._until[address] = max(since + HOLDS, now + LEAST)
        for link in self._waiting.pop(address, {}):
            link.connect(now)

    def _failed(self, address: Address, number: int, error: OttlaError, now: float) -> None:
        probes = self._probes[address]
        del probes[number]
        if probes:  # others may succeed: one connection may be lost on the way
            return
        del self._probes[address]
        where = f"upstream {format_address(*address)}"
        for link in self._waiting.pop(address, {}):
            link.end(ConnectionLost(f"{where} is not recognized: {str(error).removeprefix(f'{where}: ')}"), now)

    def _forget(self, now: float) -> None:
        """Forget old answers and pauses: addresses come and go."""
        for known in (self._until, self._not_before):
            for address in [address for address, until in known.items() if until <= now]:
                del known[address]
