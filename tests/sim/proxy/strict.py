"""A client of a topic in mode `reject` that puts some keys into wrong partitions, and never sends anything twice.

Promises:
- A batch with a misplaced key is refused with INVALID_RECORD, which names these records and their partitions, and none
  of its records is stored. A batch without one gets no such error.
- Batches that were sent over one connection are stored in their order, however long the proxy reads some of them.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from ottla.codec import frames
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import BatchBuilder
from ottla.errors import InvalidRecord, broker_error
from ottla.sdk.events import Close, Connect, Connected, Event, Lost, Received, Send
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess
from tests.sim.proxy.ledger import Ledger, Sent
from tests.sim.users import Violation

TOPIC = "strict"
PARTITIONS = 3
PRODUCE, METADATA = 8, 9
"""The versions that it uses."""
PATIENCE = 30.0
"""Seconds to wait for an answer."""
KEYS = [b"k%d" % number for number in range(30)]
MISPLACED = 0.25
"""The fraction of its batches with misplaced keys."""
NAMES = "a refused batch names other records than the misplaced ones"
REFUSED = "a batch without misplaced keys is refused because of its keys"
ORDER = "batches of one connection are stored in another order than they were sent"


@dataclass(eq=False)
class _Batch:
    partition: int
    records: list[Sent]
    misplaced: dict[int, int]
    """The index of a record -> the partition of its key."""


class Strict(SimulatedProcess):
    """Sends ``rounds`` bursts of batches, each over a connection of its own."""

    def __init__(
        self, name: str, clock: Clock, network: Network, history: History, ledger: Ledger, chance: Random, nodes: int
    ) -> None:
        super().__init__(name, clock, network, history)
        self.ledger, self.chance, self.nodes = ledger, chance, nodes
        self.done = False
        self.violation: Violation | None = None
        self._rounds = chance.choice((5, 10, 20))
        self._node = 1
        self._connections = self._number = 0
        self._key: tuple[int, str] | None = None
        self._reader = frames.FrameReader()
        self._unanswered: deque[_Batch | None] = deque()
        """``None`` stands for the Metadata request."""
        self._last: dict[int, int] = {}
        """Partition -> the last acknowledged offset on this connection."""
        self._begin()

    def _begin(self) -> None:
        if self.held(self._begin):
            return
        self._connections += 1
        self._key = self._node, f"{self.name} {self._connections}"
        self._reader, self._last = frames.FrameReader(), {}
        self._unanswered.clear()
        self.network.connect(self, Connect(self._key, f"n{self._node}", PORT + self._node))
        self.clock.later(PATIENCE, partial(self._end, self._key))

    def _end(self, key: tuple[int, str], node: int | None = None) -> None:
        """Close the connection, and begin another one, to ``node`` or any."""
        if self._key != key or self.held(partial(self._end, key, node)):
            return
        self.network.close(self, Close(key))
        self._over(node)

    def _over(self, node: int | None) -> None:
        self._key = None
        self._node = node or self.chance.randint(1, self.nodes)
        if self._rounds:
            self.clock.later(self.chance.uniform(0.0, 0.5), self._begin)
        else:
            self.done = True
            self._gone()

    def _send(self, request: Any, version: int, batch: _Batch | None) -> None:
        assert self._key is not None, "it is connected"
        self._unanswered.append(batch)
        data = frames.build_request(request, version, len(self._unanswered), self.name)
        self.network.send(self, Send(self._key, (data,)))

    def hear(self, event: Event) -> None:
        if self.held(partial(self.hear, event)) or getattr(event, "key", None) != self._key or self._key is None:
            return
        match event:
            case Connected():
                topics = (MetadataRequestTopic(name=TOPIC),)
                self._send(MetadataRequest(topics=topics), METADATA, None)
            case Lost():
                self._rounds = max(self._rounds - 1, 0)
                self._over(None)
            case Received(_, data):
                for frame in self._reader.feed(data):
                    self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        batch = self._unanswered.popleft()
        assert self._key is not None, "it is connected"
        if batch is None:
            _, metadata = frames.parse_response(MetadataResponse, METADATA, frame)
            leaders = {each.partition_index: each.leader_id for topic in metadata.topics for each in topic.partitions}
            here = [partition for partition, node in leaders.items() if node == self._node]
            if here:
                self._burst(self.chance.choice(here))
            else:
                self._end(self._key, next((node for node in leaders.values() if node > 0), None))
            return
        _, produced = frames.parse_response(ProduceResponse, PRODUCE, frame)
        self._judge(batch, produced.responses[0].partition_responses[0])
        if not self._unanswered:
            self._rounds -= 1
            self._end(self._key)

    def _burst(self, partition: int) -> None:
        for _ in range(self.chance.choice((1, 3, 6))):
            batch, data = self._batch(partition)
            sets = (PartitionProduceData(index=partition, records=data),)
            topic = TopicProduceData(name=TOPIC, partition_data=sets)
            self._send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,)), PRODUCE, batch)

    def _batch(self, partition: int) -> tuple[_Batch, bytes]:
        chance, builder = self.chance, BatchBuilder()
        batch = _Batch(partition, [], {})
        count = chance.choice((1, 3, 30))
        wrong = {chance.randrange(count)} if chance.random() < MISPLACED else set()
        for row in range(count):
            self._number += 1
            keys = [key for key in KEYS if (murmur2_partition(key, PARTITIONS) == partition) != (row in wrong)]
            key = chance.choice(keys) if row in wrong or chance.random() < 0.9 else None
            if row in wrong and key is not None:
                batch.misplaced[row] = murmur2_partition(key, PARTITIONS)
            value = f"{self.name}-{self._number}".encode()
            sent = self.ledger.add(Sent(value, key, TOPIC, partition, self.name, self._number, once=False))
            builder.append(sent.timestamp, key, value, ())
            batch.records.append(sent)
        return batch, builder.build()

    def _judge(self, batch: _Batch, told: Any) -> None:
        if not told.error_code:
            for index, sent in enumerate(batch.records):
                sent.acknowledged, sent.offset = True, told.base_offset + index
            if told.base_offset <= self._last.get(batch.partition, -1):
                self._violated(ORDER, batch)
            self._last[batch.partition] = told.base_offset
            return
        for sent in batch.records:
            sent.error = str(broker_error(told.error_code, told.error_message or ""))
        if told.error_code != InvalidRecord.code:
            return
        for sent in batch.records:
            sent.refused = True
        texts = {each.batch_index: each.batch_index_error_message or "" for each in told.record_errors}
        if not batch.misplaced:
            self._violated(REFUSED, batch)
        elif texts.keys() != batch.misplaced.keys() or not all(
            f"belongs to partition {place} " in texts[row] for row, place in batch.misplaced.items()
        ):
            self._violated(NAMES, batch)

    def _violated(self, promise: str, batch: _Batch) -> None:
        self.violation = self.violation or Violation(promise, f"{batch.records[0].value.decode()} to {batch.partition}")

    def check(self) -> None:
        """Raises `Violation` if a promise was broken."""
        if self.violation is not None:
            raise self.violation
