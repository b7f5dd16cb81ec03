"""Connections that are cut, held back and half closed under load; `tests.proxy.storms` describes the checks.

python -m tests.proxy.cuts --leg client --strikes 100
python -m tests.proxy.cuts --leg upstream --strikes 100
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from tests.brokerlite.running import BrokerProcess
from tests.interop.peers import PRODUCERS, Client
from tests.proxy.storms import ProxyProcess, Storm, parser, play
from tests.proxy.wires import Wires

HELD = (0.1, 4.0)
"""Durations in seconds: below and above `REQUEST_TIMEOUT`."""
REQUEST_TIMEOUT = 2.0
"""Seconds after which the proxy gives up a request to upstream."""

Leg = Literal["client", "upstream"]


class Cuts(Storm):
    """Faults of the connections between clients and proxy, or between the proxy and its upstream, brokerlite."""

    def __init__(self, folder: Path, leg: Leg, seed: int, clients: Sequence[Client] = PRODUCERS) -> None:
        self._stack = ExitStack()
        self.wires = self._stack.enter_context(Wires())
        told = ("--advertise", self.wires.address) if leg == "upstream" else ()
        broker = BrokerProcess(folder / "data", *told)
        self._stack.callback(broker.kill)
        if leg == "upstream":
            self.wires.upstream = _address(broker.bootstrap)
        super().__init__(broker.bootstrap, seed, clients)
        options = ("--request-timeout", str(REQUEST_TIMEOUT), "--state", str(folder / "state"), *self.rules)
        if leg == "upstream":
            proxy = ProxyProcess(folder, self.wires.address, *options)
            self.begin(proxy, proxy.bootstrap)
        else:
            proxy = ProxyProcess(folder, broker.bootstrap, "--advertise", self.wires.address, *options)
            self.wires.upstream = _address(proxy.bootstrap)
            self.begin(proxy, self.wires.address)
        self._kinds: list[Callable[[], None]] = [
            lambda: self.wires.cut(self.rng),
            lambda: self.wires.cut_in_a_frame(self.rng),
            lambda: self.wires.half(self.rng),
            lambda: self.wires.hold(self.rng, self.rng.choice(HELD)),
        ]

    def strike(self) -> None:
        self._kinds[self.strikes % len(self._kinds)]()

    def said(self) -> str:
        return f"{super().said()}; connections: {self.wires.done}"

    def end(self) -> None:
        super().end()
        self._stack.close()


def _address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--leg", choices=("client", "upstream"), default="upstream")
    asked = options.parse_args()
    play(asked, lambda folder, clients, stack: Cuts(folder, asked.leg, asked.seed, clients))


if __name__ == "__main__":
    main()
