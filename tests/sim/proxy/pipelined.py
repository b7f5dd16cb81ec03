"""A client without idempotence that pipelines records for a topic whose rule changes meanwhile.

Rules:
- Its keys are in the partitions to which the proxy moves them, so every rule leads its records to the same partition.
- In each partition its records are in the order in which it sent them. It sends no record twice, and no fault occurs.
- The proxy may return records because the rule has just changed. These are not stored.
- A record is copied if the rule has mode `copy` from the time at which the record is sent until it is acknowledged, and
  is not copied if the rule has another mode all that time. The copies of each partition's records are in their order,
  and none is there twice.
"""

from collections import defaultdict
from functools import partial
from random import Random

from ottla.codec import frames
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import BatchBuilder, parse_batch
from ottla.errors import NotLeaderOrFollower
from ottla.sdk.events import Close, Connect, Connected, Event, Received, Send
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.history import History
from tests.sim.log import PartitionLog
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess
from tests.sim.proxy.ledger import Ledger, Sent, name_of
from tests.sim.users import Violation

PRODUCE = 7
"""A version that all releases serve."""
IN_FLIGHT = 5
REQUESTS = 60
PAUSES = (0.002, 0.02)
"""Most seconds between two requests."""
ORDER = "records overtake earlier ones of their client when the rule of their topic changes"
UNANSWERED = "a client is not answered when the rule of its topic changes"
REFUSED = "records are refused although only the rule of their topic changes"
COPIES = "copies overtake earlier ones of their client, or come twice, when the rule of their topic changes"
STORED = "records are stored that were returned because the rule of their topic has changed"


class Pipelined(SimulatedProcess):
    """Sends `REQUESTS` requests for partitions of topic ``a``, over one connection to their leader.

    Args:
        places: the partitions.
        count: the number of partitions over which keys are spread.
        copying: the rule is in mode `copy`.
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
        count: int,
        *,
        copying: bool,
    ) -> None:
        super().__init__(name, clock, network, history)
        self.returned = 0
        """Records that the proxy has returned."""
        self._ledger, self._chance, self._places = ledger, chance, places
        self._keys: defaultdict[int, list[bytes]] = defaultdict(list)
        for key in (b"k%d" % number for number in range(100)):
            self._keys[murmur2_partition(key, count)].append(key)
        self._key = node, name
        self._reader = frames.FrameReader()
        self._left, self._number = REQUESTS, 0
        self._copying = copying
        self._unanswered: list[list[Sent]] = []
        self._returned: list[Sent] = []
        self._errors: set[int] = set()
        network.connect(self, Connect(self._key, f"n{node}", PORT + node))

    def rule_changes(self, *, copying: bool) -> None:
        """Notice that the rule of the topic changes now."""
        self._copying = copying
        for sent in (sent for records in self._unanswered for sent in records):
            sent.copied = None

    def hear(self, event: Event) -> None:
        match event:
            case Connected():
                self._go_on()
            case Received(_, data):
                for frame in self._reader.feed(data):
                    self._answered(frame)

    def _go_on(self) -> None:
        if not self._left:
            return
        if len(self._unanswered) < IN_FLIGHT:
            self._left -= 1
            self._send(self._chance.choice(self._places), self._chance.choice((1, 3, 10)))
        self.clock.later(self._chance.uniform(0.0, self._chance.choice(PAUSES)), self._go_on)

    def _send(self, place: Place, count: int) -> None:
        builder, records = BatchBuilder(), list[Sent]()
        for _ in range(count):
            self._number += 1
            value = f"{self.name}-{self._number}".encode()
            key = self._chance.choice(self._keys[place[1]])
            sent = Sent(value, key, *place, self.name, self._number, once=False, copied=self._copying)
            self._ledger.add(sent)
            builder.append(sent.timestamp, key, value, ())
            records.append(sent)
        self._unanswered.append(records)
        data = PartitionProduceData(index=place[1], records=builder.build())
        topic = TopicProduceData(name=place[0], partition_data=(data,))
        request = ProduceRequest(acks=-1, timeout_ms=300_000, topic_data=(topic,))
        self.network.send(self, Send(self._key, (frames.build_request(request, PRODUCE, 1, self.name),)))

    def _answered(self, frame: bytes) -> None:
        _, answer = frames.parse_response(ProduceResponse, PRODUCE, frame)
        code, records = answer.responses[0].partition_responses[0].error_code, self._unanswered.pop(0)
        if not code:
            for sent in records:
                sent.acknowledged = True
        elif code == NotLeaderOrFollower.code:
            self._returned += records
            self.returned = len(self._returned)
        else:
            self._errors.add(code)
        if not self._left and not self._unanswered:
            self.clock.later(0.0, partial(self.network.close, self, Close(self._key)))

    def check(self, logs: dict[Place, PartitionLog]) -> None:
        """Check the answers and the logs, once everything is at rest.

        Raises:
            Violation: a rule is broken.
        """
        if self._left or self._unanswered:
            raise Violation(UNANSWERED, f"{len(self._unanswered)} requests, and {self._left} more are not sent")
        if self._errors:
            raise Violation(REFUSED, str(self._errors))
        returned = {each.value for each in self._returned}
        own = self.name.encode() + b"-"
        for place in self._places:
            stored = [name_of(record) for each in logs[place].batches for record in parse_batch(each.data).records()]
            stored = [value for value in stored if value.startswith(own)]
            if wrong := returned & {*stored}:
                raise Violation(STORED, b", ".join(wrong).decode())
            numbers = [int(value.removeprefix(own)) for value in stored]
            if numbers != sorted(numbers):
                raise Violation(ORDER, f"{place[0]}-{place[1]}: {numbers}")
        for place, log in logs.items():
            if place[0] in self._ledger.copied.values():
                self._check_copies(place, log)

    def _check_copies(self, place: Place, log: PartitionLog) -> None:
        """Check the copies of its records in one log."""
        of: defaultdict[int, list[int]] = defaultdict(list)
        for value in (name_of(record) for each in log.batches for record in parse_batch(each.data).records()):
            sent = self._ledger.sent.get(value)
            if sent is not None and sent.producer == self.name:
                of[sent.partition].append(sent.number)
        for numbers in of.values():
            if numbers != sorted({*numbers}):
                raise Violation(COPIES, f"{place[0]}-{place[1]}: {numbers}")
