"""A topic whose old records are deleted by time, by size and by DeleteRecords. No other records go, and none come back.

Rules:
- From the log's start offset on, every record is there that was acknowledged or read.
- The start offset never goes back, whatever happens to the broker.
- Retention deletes no record younger than `retention.ms`, as long as the rest of the log would be smaller than
  `retention.bytes`.
- A reader of deleted records gets OFFSET_OUT_OF_RANGE. All other readers get each offset in order, and no error.

Each record has a key of its own, so compaction removes no records; it only merges segments.
"""

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from ottla.brokerlite.machines.core import BrokerCore
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.records import BatchBuilder, parse_batch, read_batches
from ottla.errors import KafkaStorageError, OffsetOutOfRange
from tests.sim.broker.logs import batches_of
from tests.sim.broker.peer import Ask, Peer, Steps
from tests.sim.history import code
from tests.sim.users import Violation

TOPIC = "d"
LOST = "a record behind the start offset is lost"
BACK = "the start offset has gone back"
EARLY = "records are deleted before their time"
GONE = "a reader gets deleted records"
SKIPPED = "a reader skips records"
REFUSED = "a valid request is refused"
_EARLIEST = -2


class Manner(NamedTuple):
    """The retention of the topic; -1: no limit."""

    retention_ms: int
    retention_bytes: int
    compacted: bool

    @classmethod
    def drawn(cls, chance: Random) -> "Manner":
        limits = chance.choice(((800, -1), (3000, -1), (-1, 1500), (-1, 3000), (2000, 3000), (-1, -1)))
        return cls(*limits, chance.random() < 0.4)

    @property
    def configs(self) -> dict[str, str]:
        return {
            "cleanup.policy": "compact,delete" if self.compacted else "delete",
            "min.cleanable.dirty.ratio": "0.01",
            "retention.bytes": str(self.retention_bytes),
            "retention.ms": str(self.retention_ms),
            "segment.bytes": "1024",
        }


class Batch(NamedTuple):
    """A batch in the log."""

    base: int
    end: int
    timestamp: int
    """The largest timestamp, in milliseconds."""
    size: int


@dataclass(slots=True, eq=False)
class Deleting:
    """A topic, and the clients that use it.

    Args:
        timestamp: the current time, in milliseconds since 1970.
        is_well: whether the disk refuses no operation at present.

    Attributes:
        told: offset -> value of the records that were acknowledged or read.
        start: the start of the log; `sure`: its start when the disk last refused nothing. On a full disk whole segments
            go before the broker can store the new start.
        asked: the highest offset before which DeleteRecords was asked to delete.
        batches: the batches in the log, when it was last looked at.
    """

    manner: Manner
    chance: Random
    features: Counter[str]
    pause: float
    over: Callable[[], bool]
    timestamp: Callable[[], int]
    is_well: Callable[[], bool]
    told: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    sure: int = 0
    asked: int = 0
    batches: list[Batch] = field(default_factory=list)
    _written: int = 0

    @property
    def scripts(self) -> list[Callable[[Peer], Steps]]:
        return [self._write, self._delete, self._read]

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    # -- observation

    def look(self, core: BrokerCore) -> None:
        """Look at new batches, and at a new start offset."""
        if (partition := core.topics.partition(TOPIC, 0)) is None:
            return
        for stored in batches_of(partition, max(self.end, partition.start_offset)):
            batch = parse_batch(stored.data)
            self.batches.append(Batch(stored.base, stored.end, batch.max_timestamp, len(batch.data)))
        start = partition.start_offset
        if start < self.start:
            raise Violation(BACK, f"{start} after {self.start}")
        if start > self.start:
            self._check_gone(start)
            self.batches = [each for each in self.batches if each.end > start]
            self.start = start
            if self.is_well():
                self.sure = start

    def _check_gone(self, start: int) -> None:
        """Check that the records before ``start`` may go."""
        kept = max(self.start, min(start, self.asked))
        self.features["records that were deleted by request"] += kept - self.start
        gone = [each for each in self.batches if each.end > kept and each.base < start]
        if not gone or start == kept:
            return
        manner, now = self.manner, self.timestamp()
        left = sum(each.size for each in self.batches if each.end > start)
        if manner.retention_ms >= 0 and all(now - each.timestamp > manner.retention_ms for each in gone):
            self.features["records that were deleted by time"] += start - kept
        elif 0 <= manner.retention_bytes <= left:
            self.features["records that were deleted by size"] += start - kept
        else:
            youngest = now - max(each.timestamp for each in gone)
            raise Violation(EARLY, f"{kept} to {start}, the last {youngest} ms old; {left} bytes are left")
        self.features["records that were deleted from a compacted topic"] += manner.compacted * (start - kept)

    def compare(self, core: BrokerCore) -> None:
        """After a start, check that the records in `told` are there."""
        if (partition := core.topics.partition(TOPIC, 0)) is None:
            return
        start, there = partition.start_offset, dict[int, bytes]()
        self.start = min(self.start, max(start, self.sure))
        before, self.batches = self.batches, []
        for stored in batches_of(partition, start):
            batch = parse_batch(stored.data)
            there.update((record.offset, bytes(record.value or b"")) for record in batch.records())
            self.batches.append(Batch(stored.base, stored.end, batch.max_timestamp, len(batch.data)))
        for offset, value in self.told.items():
            if offset >= start and there.get(offset) != value:
                raise Violation(LOST, f"{offset} of {start} to {partition.end_offset}")
        if self.told and partition.end_offset <= max(self.told):
            raise Violation(LOST, f"the log ends at {partition.end_offset}, and a client knows {max(self.told)}")
        self.batches = [each for each in before if each.end <= start] + self.batches  # `look` checks the deleted ones
        self.look(core)

    # -- the clients

    def _write(self, peer: Peer) -> Steps:
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        producer = yield from self._asked(init, 4, lambda answer: answer)
        while not self.over():
            sequence = self._written
            yield self.chance.uniform(0.0, 2 * self.pause)
            values = []
            age = 10_000 if self.chance.random() < 0.1 else 0
            builder = BatchBuilder()
            for _ in range(self.chance.choice((1, 1, 3))):
                self._written += 1
                values.append(b"%d" % self._written + b"." * self.chance.choice((20, 150)))
                builder.append(self.timestamp() - age, b"%d" % self._written, values[-1])
            records = builder.build(
                producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=sequence
            )
            data = PartitionProduceData(index=0, records=records)
            request = ProduceRequest(
                acks=-1, timeout_ms=1000, topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),)
            )
            answer = yield from self._asked(request, 9, lambda answer: answer.responses[0].partition_responses[0])
            self._tell(zip(range(answer.base_offset, answer.base_offset + len(values)), values, strict=True))

    def _delete(self, peer: Peer) -> Steps:
        while not self.over():
            yield self.chance.uniform(0.0, 30 * self.pause)
            if self.told:
                most = max(0, max(self.told) + 1 - self.start)
                offset = self.start + self.chance.randint(0, round(most * self.chance.choice((0.1, 0.3, 1.0))))
                self.asked = max(self.asked, offset)
                asked = DeleteRecordsPartition(partition_index=0, offset=offset)
                request = DeleteRecordsRequest(
                    topics=(DeleteRecordsTopic(name=TOPIC, partitions=(asked,)),), timeout_ms=1000
                )
                answer = yield from self._asked(request, 2, lambda answer: answer.topics[0].partitions[0])
                if not offset <= answer.low_watermark <= self.start:
                    raise Violation(BACK, f"{answer.low_watermark} for {offset}, and the log starts at {self.start}")
                self.features["a request to delete records is answered"] += 1

    def _read(self, peer: Peer) -> Steps:
        position = 0
        while not self.over():
            if self.chance.random() < 0.05:
                yield self.chance.uniform(0.5, 3.0)
            asked = FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=500)
            topics = (FetchTopic(topic=TOPIC, partitions=(asked,)),)
            start = self.start
            answer = yield Ask(FetchRequest(max_wait_ms=200, min_bytes=1, max_bytes=2**20, topics=topics), 12)
            if answer is None:
                yield 0.1
                continue
            data = answer.responses[0].partitions[0]
            if data.error_code == OffsetOutOfRange.code and position < self.start:
                self.features["a reader is out of range"] += 1
                position = yield from self._earliest()
            elif data.error_code not in (0, KafkaStorageError.code):
                raise Violation(REFUSED, f"a reader at {position}, from {self.start}: {code(data.error_code)}")
            elif data.records:
                if position < start:
                    raise Violation(GONE, f"{position}, and the log starts at {start}")
                position = self._take(data.records, position)
            yield 0.01

    def _take(self, records: Any, position: int) -> int:
        """Check the records that a reader gets from ``position`` on; return its next position."""
        for batch in read_batches(records, verify=True):
            for record in batch.records():
                if record.offset < position:
                    continue
                value = bytes(record.value or b"")
                if record.offset > position:
                    raise Violation(SKIPPED, f"{position} to {record.offset}")
                if self.told.get(position, value) != value:
                    raise Violation(LOST, f"{position} is another record now")
                self._tell([(position, value)])
                position += 1
        return position

    def _earliest(self) -> Generator[Ask | float, Any, int]:
        start = self.start
        asked = ListOffsetsPartition(partition_index=0, timestamp=_EARLIEST)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=TOPIC, partitions=(asked,)),))
        answer = yield from self._asked(request, 7, lambda answer: answer.topics[0].partitions[0])
        if answer.offset < start:
            raise Violation(BACK, f"the first offset is {answer.offset}, and it was {start}")
        return int(answer.offset)

    def _tell(self, records: Any) -> None:
        self.told.update(records)

    def _asked(self, request: Any, version: int, part: Callable[[Any], Any]) -> Generator[Ask | float, Any, Any]:
        """Repeat a request until it succeeds; return the part of the answer about the partition."""
        while True:
            answer = yield Ask(request, version)
            if answer is not None:
                if not (result := part(answer)).error_code:
                    return result
                if result.error_code != KafkaStorageError.code:
                    raise Violation(REFUSED, f"{type(request).__name__}: {code(result.error_code)}")
            yield self.chance.uniform(0.05, 0.3)
