"""A simulated process with a client of any kind: it can freeze, and it can be killed."""

from collections.abc import Callable

from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import Client, Network


class SimulatedProcess(Client):
    """A process on the simulated network; it asks `held` before each of its actions."""

    def __init__(self, name: str, clock: Clock, network: Network, history: History) -> None:
        self.name, self.clock, self.network, self.history = name, clock, network, history
        self.alive = True
        self.thawed = 0.0
        """The end of the last freeze."""

    @property
    def frozen(self) -> bool:
        return self.clock.now < self.thawed

    def freeze(self, seconds: float) -> None:
        """Stop the process for a while; it does not notice that."""
        self.history.add("!", self.name, f"freezes for {seconds:.2f} s")
        self.thawed = max(self.thawed, self.clock.now + seconds)

    def kill(self) -> None:
        """End the process and its connections at once."""
        self.history.add("!", self.name, "is killed")
        self._gone()

    def _gone(self) -> None:
        self.alive = False
        self.network.abandon(self)

    def held(self, call: Callable[[], object]) -> bool:
        """Whether ``call`` must not run now: a dead process never runs it, a frozen one runs it when it thaws."""
        if self.alive and self.frozen:
            self.clock.at(self.thawed, call)
        return not self.alive or self.frozen
