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
        self._held_back: list[Callable[[], object]] = []
        """Calls held until the process thaws."""

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
        self._held_back.clear()  # a restarted process knows nothing of them
        self.network.abandon(self)

    def held(self, call: Callable[[], object]) -> bool:
        """Whether ``call`` must not run now: a dead process never runs it, a frozen one when it thaws, in their order.

        A second freeze may follow before the end of the first. Then the calls of both wait for the later end.
        """
        if not self.alive or not (self.frozen or self._held_back):
            return not self.alive
        if not self._held_back:
            self.clock.at(self.thawed, self._thaw)
        self._held_back.append(call)
        return True

    def _thaw(self) -> None:
        if self.frozen:
            self.clock.at(self.thawed, self._thaw)
            return
        waiting, self._held_back = self._held_back, []
        for call in waiting:
            call()
