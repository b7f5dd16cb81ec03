"""A client whose batches upstream refuses because of one record: without a key in a compacted topic, or too large.

Rules:
- The client is told which records are refused, and no record of the batch is stored.
- The same batch without that record is stored.
"""

from random import Random

from ottla.codec import frames
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.records import BatchBuilder
from ottla.errors import InvalidRecord, MessageTooLarge
from ottla.sdk.events import Connect, Connected, Event, Received, Send
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess
from tests.sim.proxy.ledger import Ledger, Sent
from tests.sim.users import Violation

COMPACTED = "compacted"
"""The topic."""
PRODUCE = 8
"""The first version whose responses name refused records."""
IN_PART = "a batch is stored in part, and refused"
UNTOLD = "a client does not learn which record is refused"


class Faulty(SimulatedProcess):
    """Sends batches of ten records, each first with a record that upstream refuses, and then without it."""

    def __init__(
        self, name: str, clock: Clock, network: Network, history: History, ledger: Ledger, chance: Random, node: int,
        largest: int,
    ) -> None:  # fmt: skip
        super().__init__(name, clock, network, history)
        self._ledger, self._chance, self._largest = ledger, chance, largest
        self._key = node, name
        self._reader = frames.FrameReader()
        self._refused: list[Sent] = []
        self._answers: list[tuple[int, list[int]]] = []
        self._expected: list[tuple[int, list[int]]] = []
        self._left = 4
        network.connect(self, Connect(self._key, f"n{node}", PORT + node))

    def hear(self, event: Event) -> None:
        match event:
            case Connected():
                self._go_on()
            case Received(_, data):
                for frame in self._reader.feed(data):
                    _, answer = frames.parse_response(ProduceResponse, PRODUCE, frame)
                    told = answer.responses[0].partition_responses[0]
                    self._answers.append((told.error_code, [each.batch_index for each in told.record_errors]))
                    self._left -= 1
                    if self._left:
                        self._go_on()

    def _go_on(self) -> None:
        wrong, large = self._chance.randrange(10), self._left <= 2
        refused = self._left % 2 == 0
        code = MessageTooLarge.code if large else InvalidRecord.code
        self._expected.append((code, [wrong]) if refused else (0, []))
        builder = BatchBuilder()
        for index in range(10):
            key = None if refused and index == wrong and not large else b"k%d" % self._chance.randrange(20)
            value = f"{self.name}-{len(self._ledger.sent)}".encode()
            value += b"." * (self._largest if refused and index == wrong and large else 0)
            number = len(self._ledger.sent)
            sent = self._ledger.add(Sent(value, key, COMPACTED, 0, self.name, number, once=False))
            sent.acknowledged = not refused
            if refused:
                self._refused.append(sent)
            builder.append(sent.timestamp, key, value, ())
        topic = TopicProduceData(
            name=COMPACTED, partition_data=(PartitionProduceData(index=0, records=builder.build()),)
        )
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))
        self.network.send(self, Send(self._key, (frames.build_request(request, PRODUCE, 1, self.name),)))

    def check(self, stored: set[bytes]) -> None:
        """Check its answers and the cluster's logs.

        Raises:
            Violation: a rule is broken.
        """
        if wrong := {each.value for each in self._refused} & stored:
            raise Violation(IN_PART, f"{len(wrong)} of {len(self._refused)} records")
        if self._answers != self._expected:
            raise Violation(UNTOLD, f"{self._answers} instead of {self._expected}")
