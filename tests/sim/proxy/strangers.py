"""A client that gets many producer ids and writes nothing with them.

Rule: such a client costs no other its place in the proxy's memory.
"""

from ottla.codec import frames
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.sdk.events import Close, Connect, Connected, Event, Send
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess

VERSION = 1
"""A version that all releases serve."""


class Stranger(SimulatedProcess):
    """Requests ``count`` producer ids over one connection, and leaves."""

    def __init__(self, name: str, clock: Clock, network: Network, history: History, count: int) -> None:
        super().__init__(name, clock, network, history)
        self._key, self._count = (1, name), count
        network.connect(self, Connect(self._key, "n1", PORT + 1))

    def hear(self, event: Event) -> None:
        if isinstance(event, Connected):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            for number in range(self._count):
                self.network.send(self, Send(self._key, (frames.build_request(request, VERSION, number, self.name),)))
            self.network.close(self, Close(self._key))
            self.alive = False
