"""A client that sends to a topic in trouble and to a healthy one, over one connection.

Rules:
- The acknowledgement of the healthy topic is not held up by the other, although responses are in request order.
- Records that the client is told are not stored, and does not send again, are not stored.
"""

from collections.abc import Callable
from random import Random

from ottla.codec import frames
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.records import BatchBuilder
from ottla.errors import LeaderNotAvailable, NotEnoughReplicas, UnknownTopicOrPartition
from ottla.sdk.events import Connect, Connected, Event, Received, Send
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess
from tests.sim.proxy.ledger import Ledger, Sent
from tests.sim.users import Violation

PRODUCE, INIT = 7, 1
"""Versions that all releases serve."""
NOT_STORED = {each.code for each in (NotEnoughReplicas, UnknownTopicOrPartition, LeaderNotAvailable)}
SOON = 5.0
"""Seconds within which the healthy topic acknowledges its records: nodes need some to learn that a topic is deleted."""
HELD_UP = "a topic in trouble holds up another one"
STORED = "a record is stored although its client was told that it is not"


class Neighbours(SimulatedProcess):
    """Sends ``rounds`` pairs of requests: to the topic in trouble, and to the healthy one.

    Attributes:
        acknowledged: how many requests to the healthy topic were answered in time.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        network: Network,
        history: History,
        ledger: Ledger,
        chance: Random,
        partitions: int,
        rounds: int,
        node: int,
        *,
        idempotent: bool,
    ) -> None:
        super().__init__(name, clock, network, history)
        self.rounds, self.acknowledged = rounds, 0
        self.codes: set[int] = set()
        self._ledger, self._chance, self._partitions, self._idempotent = ledger, chance, partitions, idempotent
        self._key = node, name
        self._producer, self._sequence = -1, 0
        self._reader = frames.FrameReader()
        self._waiting: list[tuple[Sent | None, float]] = []
        """The record of each request to the topic in trouble, and when its response is late."""
        self._untold: list[Sent] = []
        network.connect(self, Connect(self._key, f"n{node}", PORT + node))

    def hear(self, event: Event) -> None:
        match event:
            case Connected():
                if self._idempotent:
                    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
                    data = frames.build_request(request, INIT, 0, self.name)
                    self.network.send(self, Send(self._key, (data,)))
                else:
                    self._go_on()
            case Received(_, data):
                for frame in self._reader.feed(data):
                    self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        if self._idempotent and self._producer < 0:
            self._producer = frames.parse_response(InitProducerIdResponse, INIT, frame)[1].producer_id
            self._go_on()
            return
        _, answer = frames.parse_response(ProduceResponse, PRODUCE, frame)
        told = answer.responses[0].partition_responses[0]
        sent, late = self._waiting.pop(0)
        if sent is not None:
            self.codes.add(told.error_code)
            if told.error_code in NOT_STORED:
                self._untold.append(sent)
            elif not told.error_code:
                sent.acknowledged = True
                self._sequence += 1
        else:
            self.acknowledged += not told.error_code and self.clock.now <= late
            self.rounds -= 1
            if self.rounds:
                self.clock.later(0.05, self._go_on)

    def _go_on(self) -> None:
        key = b"k%d" % self._chance.randrange(20)
        bad = self._record("a", self._chance.randrange(self._partitions), key)
        for sent in (bad, self._record("plain", 0, None)):
            builder = BatchBuilder()
            builder.append(sent.timestamp, sent.key, sent.value, ())
            numbered = self._idempotent and sent is bad
            data = builder.build(
                producer_id=self._producer if numbered else -1,
                producer_epoch=0 if numbered else -1,
                base_sequence=self._sequence if numbered else -1,
            )
            topic = TopicProduceData(
                name=sent.topic, partition_data=(PartitionProduceData(index=sent.partition, records=data),)
            )
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))
            self._waiting.append((sent if sent is bad else None, self.clock.now + SOON))
            self.network.send(self, Send(self._key, (frames.build_request(request, PRODUCE, 1, self.name),)))

    def _record(self, topic: str, partition: int, key: bytes | None) -> Sent:
        number = len(self._ledger.sent)
        value = f"{self.name}-{number}".encode()
        partition = 0 if self._idempotent and topic == "a" else partition
        return self._ledger.add(Sent(value, key, topic, partition, self.name, number, once=False))

    def check(self, rounds: int, stored: Callable[[], set[bytes]]) -> None:
        """Check the answers, after the trouble.

        Raises:
            Violation: a rule is broken.
        """
        if self.acknowledged < rounds:
            raise Violation(HELD_UP, f"{self.acknowledged} of {rounds} requests were acknowledged in time")
        if wrong := {each.value for each in self._untold} & stored():
            raise Violation(STORED, b", ".join(wrong).decode())
