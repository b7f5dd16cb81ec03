"""The proxy killed with SIGKILL again and again under load; `tests.proxy.storms` describes the checks.

python -m tests.proxy.kills --strikes 100
"""

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.brokerlite.running import BrokerProcess
from tests.interop.peers import PRODUCERS, Client
from tests.proxy.storms import ProxyProcess, Storm, parser, play

ORDERLY = 0.1
"""The share of ends in good order, instead of a kill."""
AT_ONCE = 0.1
"""The share of ends after which the next proxy is killed as soon as it accepts requests."""


class Kills(Storm):
    """Ends of the proxy, each followed by a restart."""

    def __init__(
        self, folder: Path, upstream: str, seed: int, clients: Sequence[Client] = PRODUCERS, *, in_place: bool = False
    ) -> None:
        super().__init__(upstream, seed, clients, in_place=in_place)
        self.state = folder / "state"
        proxy = ProxyProcess(folder, upstream, "--state", str(self.state), *self.rules)
        self.begin(proxy, proxy.bootstrap)

    def strike(self) -> None:
        self.proxy.end(signal.SIGTERM if self.rng.random() < ORDERLY else signal.SIGKILL)
        self.proxy.start()
        while self.rng.random() < AT_ONCE:
            self.proxy.end()
            self.proxy.start()
            self.strikes += 1


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--upstream", help="brokers that run already; else brokerlite")
    asked = options.parse_args()

    def made(folder: Path, clients: Sequence[Client], stack: ExitStack) -> Storm:
        upstream = asked.upstream
        if upstream is None:
            broker = BrokerProcess(folder / "data")
            stack.callback(broker.kill)
            upstream = broker.bootstrap
        return Kills(folder, upstream, asked.seed, clients, in_place=asked.in_place)

    play(asked, made)


if __name__ == "__main__":
    main()
