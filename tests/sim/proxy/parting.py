"""A client that sends requests and leaves at once, without waiting for an answer.

Rule: without faults, all requests that a client sent before it left are carried out.
"""

from random import Random

from ottla.codec import frames
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.records import BatchBuilder
from ottla.sdk.events import Close, Connect, Connected, Event, Send
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess
from tests.sim.proxy.ledger import Ledger, Sent

PRODUCE = 7
"""A version that all releases serve."""


class Parting(SimulatedProcess):
    """Sends a few requests to a node, and closes its connection before any answer comes.

    Attributes:
        sent: its records, which all have to be stored.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        network: Network,
        history: History,
        ledger: Ledger,
        chance: Random,
        node: int,
        places: list[Place],
    ) -> None:
        super().__init__(name, clock, network, history)
        self.sent: list[Sent] = []
        self._key = node, name
        self._requests = [self._request(ledger, chance, place) for place in chance.choices(places, k=3)]
        network.connect(self, Connect(self._key, f"n{node}", PORT + node))

    def _request(self, ledger: Ledger, chance: Random, place: Place) -> ProduceRequest:
        builder = BatchBuilder()
        value = f"{self.name}-{len(self.sent)}".encode()
        sent = ledger.add(Sent(value, None, *place, self.name, len(self.sent), once=False))
        self.sent.append(sent)
        builder.append(sent.timestamp, None, value, ())
        data = PartitionProduceData(index=place[1], records=builder.build())
        topic = TopicProduceData(name=place[0], partition_data=(data,))
        return ProduceRequest(acks=chance.choice((0, 0, -1)), timeout_ms=1000, topic_data=(topic,))

    def hear(self, event: Event) -> None:
        if isinstance(event, Connected):
            for number, request in enumerate(self._requests):
                data = frames.build_request(request, PRODUCE, number, self.name)
                self.network.send(self, Send(self._key, (data,)))
            self.network.close(self, Close(self._key))
            self.alive = False
