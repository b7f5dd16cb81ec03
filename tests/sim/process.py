"""A simulated process, of a client of any kind: it can freeze, and it can be killed."""

from collections.abc import Callable

from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import Client, Network


class SimulatedProcess(Client):
    """A process on the simulated network; whatever it does it does by `held`."""

    def __init__(self, name: str, clock: Clock, network: Network, history: History) -> None:
        self.name, self.clock, self.network, self.history = name, clock, network, history
        self.alive = True
        self.thawed = 0.0
        """When it was frozen last, the end of that."""

    @property
    def frozen(self) -> bool:
        return self.clock.now < self.thawed

    def freeze(self, seconds: float) -> None:
        """The process does nothing for a while, and does not know it."""
        self.history.add("!", self.name, f"freezes for {seconds:.2f} s")
        self.thawed = max(self.thawed, self.clock.now + seconds)

    def kill(self) -> None:
        """The process ends at once, and its connections with it."""
        self.history.add("!", self.name, "is killed")
        self._gone()

    def _gone(self) -> None:
        self.alive = False
        self.network.abandon(self)

    def held(self, call: Callable[[], object]) -> bool:
        """Whether nothing is to be done now: a dead process never does it, a frozen one does when it thaws."""
        if self.alive and self.frozen:
            self.clock.at(self.thawed, call)
        return not self.alive or self.frozen
