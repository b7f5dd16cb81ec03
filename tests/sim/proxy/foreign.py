"""A producer that behaves like Java's: it sends, and handles errors, by Java's rules.

Rules of Java's idempotent producer (Sender.java, TransactionManager.java, Kafka 4.3):
- At most five requests of a connection are unanswered, and five batches of a partition. A batch gets its sequence when
  it is first sent, and keeps it.
- After a leader has moved, new batches wait for those that the old leader has not answered. (Java's do not wait. But if
  five of them are stored before a silent leader's are sent again, Kafka does not keep its promises either.)
- After a retriable error or a lost connection the batch is sent again. Retried batches of a partition go one by one,
  the lowest sequence first.
- OUT_OF_ORDER_SEQUENCE_NUMBER for the next batch makes it fail; for any other batch, or for a renumbered one, the batch
  is sent again.
- When a batch has failed, the epoch is bumped, and all unanswered batches of its partition are renumbered from 0 on.
- MESSAGE_TOO_LARGE for a batch of several records splits it; the parts take over the sequences of the batch.
- PRODUCER_FENCED ends the producer.

Some of these producers differ from Java's in two rules of sarama (async_producer.go):
- A batch that is sent again has new times.
- When a batch has failed, all unanswered batches of its partition fail with it, so no record comes again in the next
  epoch.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from random import Random
from zlib import crc32

from crc32c import crc32c

from ottla.codec import frames
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.records import CRC_AT, BatchBuilder
from ottla.errors import (
    BY_CODE,
    DuplicateSequenceNumber,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownServerError,
    broker_error,
)
from ottla.sdk.events import Close, Connect, Connected, Event, Lost, Received, Send
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess
from tests.sim.proxy.ledger import Ledger, Sent
from tests.sim.users import Violation

PRODUCE, METADATA, INIT = 9, 9, 4
"""The versions that it uses."""
IN_FLIGHT = 5
BACKOFF = 0.1
NEW_TIMES = 0.3
"""The fraction of producers that behave like sarama's."""
DAMAGED = 0.02
"""The fraction of its batches that are damaged."""
ATTEMPTS = 100
"""The most attempts after OUT_OF_ORDER_SEQUENCE_NUMBER, as if `delivery.timeout.ms` ended then. If a batch is answered
after the client has renumbered it, the new epoch begins behind it, and Java's client tries for as long."""
PATIENCE = 30.0
"""Seconds to wait for an answer."""

SEEN = "a client sees several partitions of a topic in mode fan-out"

Place = tuple[str, int]


@dataclass(eq=False)
class _Batch:
    place: Place
    records: list[Sent]
    sequence: int = -1
    epoch: int = -1
    attempts: int = 0
    renumbered: bool = False
    in_flight: bool = False
    node: int = -1
    """Where it was last sent."""
    not_before: float = 0.0
    damaged: bool = False
    """Its records cannot be decoded."""
    new_times: bool = False
    """Each attempt has new times."""

    def data(self, producer_id: int) -> bytes:
        builder = BatchBuilder()
        for sent in self.records:
            value, headers = (sent.value, ()) if self.damaged else sent.content
            later = self.attempts if self.new_times else 0
            builder.append(sent.timestamp + later, sent.key, value, headers)
        data = builder.build(producer_id=producer_id, producer_epoch=self.epoch, base_sequence=self.sequence)
        if not self.damaged:
            return data
        behind_crc = data[CRC_AT + 4 : -1] + b"\x01"  # the last byte counts the headers of the last record
        return data[:CRC_AT] + crc32c(behind_crc).to_bytes(4, "big") + behind_crc


@dataclass(eq=False)
class _Partition:
    """Batches with a sequence, in its order, and new batches without one."""

    numbered: list[_Batch] = field(default_factory=list)
    fresh: deque[_Batch] = field(default_factory=deque)
    next_sequence: int = 0
    acknowledged: int = -1
    """The last acknowledged sequence."""
    epoch: int = 0

    def may_number(self, node: int) -> bool:
        """Whether a new batch can be sent to this node."""
        at_another_node = any(each.node != node for each in self.numbered)
        return bool(self.fresh) and len(self.numbered) < IN_FLIGHT and not at_another_node


class _Wire:
    def __init__(self, number: int, node: int) -> None:
        self.key = (node, f"java {number}")
        self.node = node
        self.ready = False
        self.reader = frames.FrameReader()
        self.unanswered: deque[tuple[int, str, list[_Batch], float]] = deque()


class JavaLike(SimulatedProcess):
    """Sends ``count`` records within about ``seconds``, to partitions by its own partitioner."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        network: Network,
        history: History,
        ledger: Ledger,
        chance: Random,
        topics: dict[str, int],
        nodes: int,
        count: int,
        seconds: float,
        keys: int,
        keyed: float,
    ) -> None:
        super().__init__(name, clock, network, history)
        self.ledger, self.chance, self.topics, self.nodes = ledger, chance, topics, nodes
        self.count, self.pause, self.keys = count, seconds / count, keys
        self._keyed = keyed
        self.batch_size = chance.choice((1, 3, 10))
        self._alike = Random(f"{name} {count} {seconds} alike").random() < 0.5
        self._damage = Random(f"{name} {count} {seconds} {self.batch_size} damage")
        self._new_times = Random(f"{name} {count} {seconds} {self.batch_size} times").random() < NEW_TIMES
        self.producer_id = -1
        self.epoch = 0
        self.done = False
        self._number = 0
        self._leaders: dict[Place, int] = {}
        self._partitions: defaultdict[Place, _Partition] = defaultdict(_Partition)
        self._wires: dict[int, _Wire] = {}
        self._wire_numbers = 0
        self._correlation = 0
        self._asked = -10.0
        self._tick()
        self._produce()

    # -- sending

    def _produce(self) -> None:
        if self.held(self._produce) or self.done:
            return
        for _ in range(min(self.chance.choice((1, 3, 10, 30)), self.count - self._number)):
            self._number += 1
            topic = self.chance.choice(list(self.topics))
            key = b"k%d" % self.chance.randrange(self.keys) if self.chance.random() < self._keyed else None
            place = topic, crc32(key or b"%d" % self.chance.randrange(99)) % self.topics[topic]
            value = b"%s-%d" % (self.name.encode(), self._number)
            sent = self.ledger.add(Sent(value, key, *place, self.name, self._number, True, self._alike))
            fresh = self._partitions[place].fresh
            if not fresh or len(fresh[-1].records) >= self.batch_size:
                damaged = self._damage.random() < DAMAGED
                fresh.append(_Batch(place, [], damaged=damaged, new_times=self._new_times))
            fresh[-1].records.append(sent)
        if self._number < self.count:
            self.clock.later(self.chance.uniform(0.0, 20 * self.pause), self._produce)
        self._go()

    def _tick(self) -> None:
        """Check timeouts and pauses every 0.05 s."""
        if self.done or not self.alive:
            return
        if not self.frozen:
            for wire in list(self._wires.values()):
                if wire.unanswered and self.clock.now > wire.unanswered[0][3]:
                    self.network.close(self, Close(wire.key))
                    self._broken(wire)
            self._go()
        self.clock.later(0.05, self._tick)

    def _go(self) -> None:
        if not self.alive or self.done:
            return
        if self.producer_id < 0 or any(self.topics[t] > sum(t == n for n, _ in self._leaders) for t in self.topics):
            self._begin()
            return
        for place, partition in self._partitions.items():
            self._drain(place, partition)
        self.done = self._number == self.count and not any(
            each.numbered or each.fresh for each in self._partitions.values()
        )
        if self.done:
            self._gone()

    def _begin(self) -> None:
        wire = self._wire(1 + self._correlation % self.nodes)
        if not wire.ready or wire.unanswered:
            return
        if self.topics.keys() - {topic for topic, _ in self._leaders}:
            self._ask_metadata(wire)
        else:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            self._send(wire, request, INIT, "init", [])

    def _ask_metadata(self, wire: _Wire) -> None:
        self._asked = self.clock.now
        topics = tuple(MetadataRequestTopic(name=name) for name in self.topics)
        self._send(wire, MetadataRequest(topics=topics), METADATA, "metadata", [])

    def _refresh(self) -> None:
        wire = next((each for each in self._wires.values() if each.ready and len(each.unanswered) < IN_FLIGHT), None)
        if not self._wires:
            self._wire(1 + self._correlation % self.nodes)
        if wire is not None and self.clock.now > self._asked + BACKOFF:
            self._ask_metadata(wire)

    def _drain(self, place: Place, partition: _Partition) -> None:
        wire = self._wire(self._leaders[place]) if self._leaders.get(place, -1) > 0 else None
        if wire is None:
            self._refresh()
        while wire is not None and wire.ready and len(wire.unanswered) < IN_FLIGHT:
            waiting = [each for each in partition.numbered if not each.in_flight]
            if waiting:
                batch = waiting[0]
                if batch is not partition.numbered[0] or self.clock.now < batch.not_before:
                    return  # retried batches go one by one
            elif not partition.may_number(wire.node):
                return
            else:
                batch = partition.fresh.popleft()
                if partition.epoch != self.epoch and not partition.numbered:
                    partition.epoch, partition.next_sequence, partition.acknowledged = self.epoch, 0, -1
                batch.sequence, batch.epoch = partition.next_sequence, partition.epoch
                partition.next_sequence += len(batch.records)
                partition.numbered.append(batch)
            batch.in_flight, batch.node, batch.attempts = True, wire.node, batch.attempts + 1
            data = PartitionProduceData(index=place[1], records=batch.data(self.producer_id))
            topic = TopicProduceData(name=place[0], partition_data=(data,))
            self._send(wire, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,)), PRODUCE, "produce", [batch])

    # -- connections

    def _wire(self, node: int) -> _Wire:
        if node not in self._wires:
            self._wire_numbers += 1
            wire = self._wires[node] = _Wire(self._wire_numbers, node)
            self.network.connect(self, Connect(wire.key, f"n{node}", PORT + node))
        return self._wires[node]

    def _send(self, wire: _Wire, request: object, version: int, what: str, batches: list[_Batch]) -> None:
        self._correlation += 1
        wire.unanswered.append((self._correlation, what, batches, self.clock.now + PATIENCE))
        data = frames.build_request(request, version, self._correlation, self.name)
        self.network.send(self, Send(wire.key, (data,)))

    def hear(self, event: Event) -> None:
        if self.held(partial(self.hear, event)):
            return
        wire = next((each for each in self._wires.values() if each.key == getattr(event, "key", None)), None)
        if wire is None:
            return
        match event:
            case Connected():
                wire.ready = True
            case Lost():
                self._broken(wire)
            case Received(_, data):
                for frame in wire.reader.feed(data):
                    self._answered(wire, frame)
        self._go()

    def _broken(self, wire: _Wire) -> None:
        del self._wires[wire.node]
        self._correlation += 1  # so that `_begin` turns to another node
        for _, _, batches, _ in wire.unanswered:
            for batch in batches:
                self._again(batch)
        self._refresh()

    def _answered(self, wire: _Wire, frame: bytes) -> None:
        _, what, batches, _ = wire.unanswered.popleft()
        if what == "metadata":
            _, metadata = frames.parse_response(MetadataResponse, METADATA, frame)
            for topic in metadata.topics:
                if self.topics.get(topic.name or "") == 1 < len(topic.partitions):
                    raise Violation(SEEN, f"{topic.name} has {len(topic.partitions)}")
                for each in topic.partitions:
                    self._leaders[topic.name or "", each.partition_index] = each.leader_id
        elif what == "init":
            _, answer = frames.parse_response(InitProducerIdResponse, INIT, frame)
            if not answer.error_code and self.producer_id < 0:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        else:
            _, produced = frames.parse_response(ProduceResponse, PRODUCE, frame)
            told = produced.responses[0].partition_responses[0]
            for batch in batches:
                self._judge(batch, told.error_code, told.base_offset)

    # -- outcomes

    def _judge(self, batch: _Batch, code: int, offset: int) -> None:
        partition = self._partitions[batch.place]
        if batch not in partition.numbered:  # it has failed with one before it
            return
        if code in (0, DuplicateSequenceNumber.code):
            for index, sent in enumerate(batch.records):
                sent.acknowledged, sent.offset = True, offset + index if offset >= 0 else -1
            partition.acknowledged = max(partition.acknowledged, batch.sequence + len(batch.records) - 1)
            partition.numbered.remove(batch)
        elif code == ProducerFenced.code:
            self.ledger.fenced[self.name] += 1
            for each in self._partitions.values():
                each.numbered.clear()
                each.fresh.clear()
            self._number = self.count
        elif (
            code == OutOfOrderSequenceNumber.code
            and (batch.renumbered or batch.sequence != partition.acknowledged + 1)
            and batch.attempts < ATTEMPTS
        ):
            self._again(batch)
        elif code == MessageTooLarge.code and len(batch.records) > 1:
            self._split(batch, partition)
        elif code != UnknownServerError.code and BY_CODE.get(code, UnknownServerError).retriable:
            self._again(batch)
            self._refresh()
        else:
            self._failed(batch, partition, code)

    def _again(self, batch: _Batch) -> None:
        batch.in_flight = False
        batch.not_before = self.clock.now + BACKOFF

    def _split(self, batch: _Batch, partition: _Partition) -> None:
        """Split the batch in two, which share its sequences."""
        half = len(batch.records) // 2
        first, second = _Batch(batch.place, batch.records[:half]), _Batch(batch.place, batch.records[half:])
        first.sequence, second.sequence = batch.sequence, batch.sequence + half
        first.epoch = second.epoch = batch.epoch
        first.new_times = second.new_times = batch.new_times
        at = partition.numbered.index(batch)
        partition.numbered[at : at + 1] = [first, second]

    def _failed(self, batch: _Batch, partition: _Partition, code: int) -> None:
        failed = [*partition.numbered] if self._new_times else [batch]
        for each in failed:
            for sent in each.records:
                sent.error = str(broker_error(code, ""))
            partition.numbered.remove(each)
        self.epoch += 1
        partition.epoch, partition.next_sequence, partition.acknowledged = self.epoch, 0, -1
        for each in partition.numbered:
            each.epoch, each.sequence, each.renumbered = self.epoch, partition.next_sequence, True
            partition.next_sequence += len(each.records)
