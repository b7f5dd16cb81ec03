"""A compacted topic: the log has, of each key, the last acknowledged value or a later one.

There is one writer with one request at a time, which it repeats until it is answered. The values of a key are numbered.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ottla.brokerlite.machines.core import BrokerCore
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.records import BatchBuilder
from ottla.errors import KafkaStorageError
from tests.sim.broker.peer import Ask, Peer, Steps
from tests.sim.history import code
from tests.sim.users import Violation

TOPIC = "k"
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "1000",
}
KEYS = 5
LOST = "the last value of a key is lost"
BACK = "a key has an older value after a newer one"


@dataclass(slots=True, eq=False)
class Keyed:
    """Attributes: acknowledged: key -> the number of its last acknowledged value, and whether that was a tombstone."""

    peer: Peer
    chance: Random
    features: Counter[str]
    pause: float
    over: Callable[[], bool]
    acknowledged: dict[int, tuple[int, bool]] = field(default_factory=dict)
    _sent: dict[int, int] = field(default_factory=dict)
    _removed: int = 0

    def script(self) -> Steps:
        while not self.over():
            yield self.chance.uniform(0.0, 2 * self.pause)
            key, empty = self.chance.randrange(KEYS), self.chance.random() < 0.15
            number = self._sent[key] = self._sent.get(key, 0) + 1
            builder = BatchBuilder()
            timestamp = 1_700_000_000_000 + round(self.peer.clock.now * 1000)
            builder.append(
                timestamp, b"%d" % key, None if empty else b"%d" % number + b"." * 60, [("n", b"%d" % number)]
            )
            data = PartitionProduceData(index=0, records=builder.build())
            request = ProduceRequest(
                acks=-1, timeout_ms=1000, topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),)
            )
            yield from self._until_answered(request)
            self.acknowledged[key] = number, empty

    def _until_answered(self, request: ProduceRequest) -> Steps:
        while True:
            answer = yield Ask(request, 9)
            if answer is not None:
                error = answer.responses[0].partition_responses[0].error_code
                if not error:
                    return
                if error != KafkaStorageError.code:
                    raise Violation("a valid request is refused", f"{self.peer.name}: {code(error)}")
            yield self.chance.uniform(0.05, 0.3)

    def check(self, core: BrokerCore) -> None:
        """Check the log."""
        partition = core.topics.partition(TOPIC, 0)
        if partition is None:
            return
        last: dict[int, int] = {}
        offset = count = 0
        for batch in partition.batches():
            for record in batch.records():
                if record.offset < offset:
                    raise Violation(BACK, f"offset {record.offset} after {offset}")
                offset, count = record.offset + 1, count + 1
                key, number = int(bytes(record.key or b"")), int(bytes(dict(record.headers)["n"] or b""))
                if number < last.get(key, 0):
                    raise Violation(BACK, f"key {key}: {number} at {record.offset}, after {last[key]}")
                last[key] = number
        self.features["records that compaction has removed"] += max(0, offset - count - self._removed)
        self._removed = max(self._removed, offset - count)
        for key, (number, empty) in self.acknowledged.items():
            if key in last and last[key] < number:
                raise Violation(LOST, f"key {key} has {last[key]}, {number} was acknowledged")
            if key not in last and not empty:
                raise Violation(LOST, f"key {key} is gone, {number} was acknowledged")
