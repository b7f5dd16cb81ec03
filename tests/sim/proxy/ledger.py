"""The records that clients of the proxy have sent, with the answers they got, and checks of the cluster's logs."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import Record, parse_batch
from tests.sim.cluster import ModelCluster
from tests.sim.data import Place
from tests.sim.log import PartitionLog
from tests.sim.users import Violation

LOST = "an acknowledged record is in no log"
TWICE = "a record of an idempotent producer is stored twice"
MISPLACED = "a record is not in the partition of its key"
ORDER = "records of a key are stored in another order than they were sent"
FALSE = "a record is stored that was refused for good"
FENCED = "a producer is fenced"
UNKNOWN = "a record is stored that no client sent"
OFFSET = "a producer got another offset than its record has"
UNCOPIED = "an acknowledged record has no copy"
COPIED = "a record has a copy although no rule says so"
STAMP = "a producer got another time than its record has"
TOGETHER = "records without a key are not spread over the partitions of a topic in mode fan-out"
MANY = 30
"""So many records without a key are in several partitions, unless the proxy keeps them together."""
TIME = 1_700_000_000_000
ALIKE = b"as any other"
"""The value of records that differ only in a header."""


@dataclass(slots=True, eq=False)
class Sent:
    """A record.

    Attributes:
        value: the record's name; it is sent as the value or in a header.
        number: its number among the records of its producer.
        alike: it differs from other records of its key only in a header.
        offset: the acknowledged offset, if the producer got one.
        stamp: the acknowledged time, if the producer's client tells it.
        once: its producer is idempotent.
        copied: the rule of its topic copies it, if that is in mode `copy`; ``None``: the rule has changed meanwhile.
        acknowledged: its producer got an acknowledgement.
        error: the error that the producer got instead.
        refused: it got INVALID_RECORD, so the record must not be stored.
    """

    value: bytes
    key: bytes | None
    topic: str
    partition: int
    producer: str
    number: int
    once: bool
    alike: bool = False
    copied: bool | None = True
    acknowledged: bool = False
    offset: int = -1
    stamp: int = -1
    error: str = ""
    refused: bool = False

    @property
    def timestamp(self) -> int:
        return TIME if self.alike else TIME + self.number

    @property
    def content(self) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
        """The value and the headers that are sent."""
        return (ALIKE, (("name", self.value),)) if self.alike else (self.value, ())


def name_of(record: Record) -> bytes:
    """The `Sent.value` of a stored record."""
    return bytes((record.headers[0][1] if record.headers else record.value) or b"")


@dataclass(slots=True)
class Ledger:
    cluster: ModelCluster
    rewritten: dict[str, int]
    """Topic -> the number of partitions over which its keys are spread."""
    sent: dict[bytes, Sent] = field(default_factory=dict)
    fans_out: frozenset[str] = frozenset()
    """The topics of which clients see one partition, and choose none."""
    copied: dict[str, str] = field(default_factory=dict)
    """Topic in mode `copy` -> the topic that gets its records, too."""
    strict: dict[str, int] = field(default_factory=dict)
    """Topic in mode `reject` -> the number of its partitions."""
    fenced: Counter[str] = field(default_factory=Counter)
    """Producers that got PRODUCER_FENCED."""
    _keyless: Counter[int] = field(default_factory=Counter)
    """Partition -> the stored records of topic ``a`` without a key, if clients choose no partition."""

    def add(self, sent: Sent) -> Sent:
        self.sent[sent.value] = sent
        return sent

    def stored(self) -> set[bytes]:
        """The names of all records below a high watermark."""
        return {
            name_of(record)
            for log in self.cluster.logs.values()
            for stored in log.batches
            if stored.end <= log.high_watermark and stored.commits is None
            for record in parse_batch(stored.data).records()
        }

    def check(self, *, fences: bool, by_id: bool) -> None:
        """Compare the logs with the clients' records.

        Args:
            fences: the proxy may fence producers.
            by_id: records go to a topic by its id, not to a later topic of that name.

        Raises:
            Violation: they do not match.
        """
        if self.fenced and not fences:
            raise Violation(FENCED, ", ".join(self.fenced))
        stored: defaultdict[bytes, set[int]] = defaultdict(set)
        copies: set[bytes] = set()
        for place, log in self.cluster.logs.items():
            former = self.cluster.buried.get(place, [])
            for each in (*former, log):
                for value, offset in self._check_log(place, each, ordered=by_id or not former).items():
                    if value in self.sent and place[0] != self.sent[value].topic:
                        copies.add(value)
                    else:
                        stored[value].add(offset)
        if len(self._keyless) == 1 and self._keyless.total() >= MANY:
            raise Violation(TOGETHER, f"{self._keyless.total()} in {self.rewritten['a']} partitions: {self._keyless}")
        for sent in self.sent.values():
            if sent.acknowledged and sent.value not in stored:
                raise Violation(LOST, f"{sent.value.decode()} of {sent.producer}")
            if sent.acknowledged and sent.copied and sent.topic in self.copied and sent.value not in copies:
                raise Violation(UNCOPIED, f"{sent.value.decode()} of {sent.producer}")
            if sent.copied is False and sent.value in copies:
                raise Violation(COPIED, f"{sent.value.decode()} of {sent.producer}")
            if sent.refused and sent.value in stored:
                raise Violation(FALSE, f"{sent.value.decode()} of {sent.producer}")
            if sent.once and sent.offset >= 0 and sent.offset not in stored[sent.value]:
                raise Violation(OFFSET, f"{sent.value.decode()}: {sent.offset}, stored at {stored[sent.value]}")
            if sent.offset >= 0 and sent.stamp not in (-1, max(self.cluster.data.append_time, sent.timestamp)):
                raise Violation(STAMP, f"{sent.value.decode()}: {sent.stamp}")

    def _check_log(self, place: Place, log: PartitionLog, *, ordered: bool) -> dict[bytes, int]:
        """Check one log; return the records in it, by name, with their offsets."""
        values: dict[bytes, int] = {}
        order: dict[tuple[str, str, bytes | int], int] = {}
        for stored in log.batches:
            if stored.end > log.high_watermark or stored.commits is not None:
                continue
            for record in parse_batch(stored.data).records():
                value = name_of(record)
                sent = self.sent.get(value)
                where = f"{value.decode()} in {place[0]}-{place[1]} at {record.offset}"
                if sent is None:
                    if place[0] in self.rewritten:
                        raise Violation(UNKNOWN, where)
                    continue
                self._check_place(sent, place, where)
                before = values.setdefault(value, record.offset)
                if not sent.once:
                    continue
                if before != record.offset:
                    raise Violation(TWICE, f"{where}, and at {before}")
                # Records without a key, of several partitions, may be copied to the same partition.
                of = sent.topic, sent.producer, sent.partition if sent.key is None else sent.key
                # A batch without keys may go elsewhere when it is sent again, with other times.
                spread = place[0] in self.fans_out and sent.key is None
                if ordered and not spread and order.get(of, -1) > sent.number:
                    raise Violation(ORDER, f"{where} after number {order[of]}")
                order[of] = sent.number
        return values

    def _check_place(self, sent: Sent, place: Place, where: str) -> None:
        wanted, topic = sent.partition, sent.topic
        if place[0] == self.copied.get(sent.topic):
            topic = place[0]
            wanted %= self.rewritten[topic]
        if topic in self.fans_out and sent.key is None:
            self._keyless[place[1]] += topic == "a"
            wanted = min(place[1], self.rewritten[topic] - 1)
        if topic in self.rewritten and sent.key is not None:
            wanted = murmur2_partition(sent.key, self.rewritten[topic])
        elif sent.topic in self.strict and sent.key is not None:
            wanted = murmur2_partition(sent.key, self.strict[sent.topic])
        if place != (topic, wanted):
            raise Violation(MISPLACED, f"{where}, sent to {sent.topic}-{sent.partition}")
