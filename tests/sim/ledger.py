"""Checks the promises to producers and readers, and the rules of Kafka for their requests.

Each violation names the promise, and the record or the partition that breaks it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.list_offsets import ListOffsetsRequest
from ottla.codec.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.codec.apis.produce import ProduceRequest, ProduceResponse
from ottla.codec.records import RecordBatch, parse_batch
from ottla.errors import DeliveryFailed, DuplicateSequenceNumber, OttlaError
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.records import Receipt
from tests.sim.cluster import ModelCluster
from tests.sim.data import Place
from tests.sim.log import PartitionLog
from tests.sim.network import Link
from tests.sim.users import Violation

LOST = "an acknowledged record is lost"
WITHDRAWN = "a record is in the log whose call ended before it was accepted"
TWICE = "a record is in the log twice"
ORDER = "records of a producer are out of order"
SILENT = "a record failed, and no call raised an error"
RECEIPT = "a receipt names an offset where the record is not"
LATE = "a record is sent that was reported as failed"
STORED = "a record is in the log that was reported as certainly not stored"
UNWRITTEN = "a flush ends before records with acks=0 are written"
GAP = "a reader skips or repeats records"
OLD_LEADER = "a client goes back to an older leader"
CROWD = "more than five Produce requests are in flight on a connection"
TOGETHER = "the first batch of an epoch does not travel alone"
OLD_EPOCH = "new records go to the log of a recreated topic in the old epoch"
FALSE = "a reader gets a record that is not in the log"


WITH_EPOCHS = 4
"""The first version of ListOffsets with leader epochs."""


def brief(value: bytes) -> str:
    """A record's value without its padding."""
    return value.rstrip(b".").decode()


@dataclass(slots=True, eq=False)
class Sent:
    """A record that a user handed to a producer."""

    value: bytes
    producer: str
    number: int
    topic: str
    durable: bool
    """Sent with acks=all."""
    once: bool
    """Sent with idempotence."""
    outcome: Outcome[Receipt] | None
    """The result that the user awaits or gets by a callback; ``None`` if it does neither."""
    accepted: Outcome[None] | None = None
    """The producer's acceptance; ``None`` before the record was offered."""
    withdrawn: bool = False
    """Its call was cancelled or failed before the record was accepted."""
    rank: int = -1
    """Its number in the order in which records were offered."""

    @property
    def is_accepted(self) -> bool:
        return self.accepted is not None and self.accepted.done and self.accepted.error is None

    @property
    def failure(self) -> OttlaError | None:
        """The error that the user got for the record."""
        return self.outcome.error if self.outcome is not None and self.is_accepted else None

    @property
    def receipt(self) -> Receipt | None:
        done = self.outcome is not None and self.outcome.done and self.outcome.error is None
        return self.outcome.value if done and self.outcome else None


@dataclass(slots=True)
class Ledger:
    """Compares the logs at the end with the results that users got."""

    cluster: ModelCluster
    sent: dict[bytes, Sent] = field(default_factory=dict)
    written: set[bytes] = field(default_factory=set)
    """Records that were sent with acks=0."""
    failures: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """(producer, topic) -> how many unawaited records were reported as failed."""
    forgotten: set[tuple[Place, int, str]] = field(default_factory=set)
    """(partition, number of times that it was recreated, producer): the log has lost the producer's state unnoticed.

    Such a log accepts any sequence. Of two batches sent together it may refuse the first and store the second, and it
    stores a retry again whose first answer was lost. A client that names topics by name, as before Produce 13, can
    hardly notice that.
    """
    ranks: int = 0
    flushed: set[str] = field(default_factory=set)
    """Producers that have closed in order and reported all failures."""
    _parsed: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    def reported(self, producer: str, error: DeliveryFailed) -> None:
        for (topic, _), count in error.partitions.items():
            self.failures[producer, topic] += count

    def offered(self, sent: Sent) -> None:
        """The record is offered to the producer, after all earlier ones."""
        self.ranks += 1
        sent.rank = self.ranks

    def generation(self, place: Place) -> int:
        """How often the topic was recreated so far."""
        return len(self.cluster.buried.get(place, ()))

    def forget(self, place: Place, producer: str) -> None:
        """The log has lost the state of a producer that may not notice it; unless strict, it accepts any sequence."""
        if not self.cluster.data.strict:
            self.forgotten.add((place, self.generation(place), producer))

    def sent_off(self, message: Any, *, earlier: bool) -> None:
        """The bytes of a request are written, which is the only outcome of a record with acks=0.

        Args:
            earlier: the request was handed over earlier; an error reported since then came too late to stop it.
        """
        if not isinstance(message, ProduceRequest):
            return
        for topic in message.topic_data:
            for data in topic.partition_data:
                values = [record.value or b"" for record in parse_batch(data.records or b"").records()]
                if not message.acks:
                    self.written.update(values)
                for sent in [] if earlier else filter(None, map(self.sent.get, values)):
                    if sent.failure is not None:
                        raise Violation(LATE, f"{brief(sent.value)} of {sent.producer}: {sent.failure}")

    def check_written(self, sent: Collection[Sent]) -> None:
        """A flush of the records in ``sent``, with acks=0, has ended."""
        missing = [
            each for each in sent if each.value not in self.written and not (each.outcome and each.outcome.error)
        ]
        if missing and not any(self.failures[each.producer, each.topic] for each in missing):
            raise Violation(UNWRITTEN, f"{brief(missing[0].value)} of {missing[0].producer}")

    # -- reading -----------------------------------------------------------------------------------------------------

    def contents(self, place: Place) -> list[tuple[int, bytes]]:
        """(offset, value) of all records below the high watermark."""
        return self._records(self.cluster.logs[place]) if place in self.cluster.logs else []

    def _records(self, log: PartitionLog) -> list[tuple[int, bytes]]:
        return [
            (record.offset, record.value or b"")
            for stored in log.batches
            if stored.end <= log.high_watermark
            for record in parse_batch(stored.data).records()
        ]

    def read(self, who: str, place: Place, expected: int, records: list[tuple[int, bytes]]) -> int:
        """A user got records from the offset ``expected`` on; returns the next offset."""
        log = self.cluster.logs[place]
        for offset, value in records:
            where = f"{who} at {place[0]}-{place[1]}"
            if offset != expected:
                raise Violation(GAP, f"{where} gets offset {offset} where {expected} is next ({brief(value)})")
            if offset >= log.high_watermark:
                raise Violation(FALSE, f"{where} gets offset {offset}, the high watermark is {log.high_watermark}")
            if value not in self.sent:
                raise Violation(FALSE, f"{where} gets {brief(value)} at offset {offset}, which no producer sent")
            expected += 1
        return expected

    def holds(self, sent: Sent) -> bool:
        """Whether the record is in a log of its topic, below the high watermark."""
        logs = [log for place, log in self.cluster.logs.items() if place[0] == sent.topic]
        return any(value == sent.value for log in logs for _, value in self._records(log))

    # -- the end -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        found: dict[bytes, list[tuple[Place, int]]] = defaultdict(list)
        topics = {each.topic for each in self.sent.values()}
        logs = [(place, log) for place, log in self.cluster.logs.items() if place[0] in topics]
        logs += [(place, log) for place, old in self.cluster.buried.items() if place[0] in topics for log in old]
        for place, log in logs:
            self._check_log(place, log, found)
        self._check_promises(found)

    def _check_log(self, place: Place, log: PartitionLog, found: dict[bytes, list[tuple[Place, int]]]) -> None:
        """Check one log. If the topic was recreated, a record may also be in the other topic's log."""
        recreated = place in self.cluster.buried
        generation = next((n for n, old in enumerate(self.cluster.buried.get(place, ())) if old is log), None)
        generation = self.generation(place) if generation is None else generation
        seen: dict[bytes, int] = {}
        last: dict[str, int] = {}
        for offset, value in self._records(log):
            sent = self.sent.get(value)
            where = f"{place[0]}-{place[1]} at {offset}"
            if sent is None:
                raise Violation(FALSE, f"{brief(value)} in {where} was never sent to a producer")
            if sent.withdrawn:
                raise Violation(WITHDRAWN, f"{brief(value)} of {sent.producer} in {where}")
            if "and are not stored" in str(sent.failure):
                raise Violation(STORED, f"{brief(value)} of {sent.producer} in {where}: {sent.failure}")
            excused = (place, generation, sent.producer) in self.forgotten
            if sent.once and value in seen:
                raise Violation(TWICE, f"{brief(value)} in {where} and in {place[0]}-{place[1]} at {seen[value]}")
            if sent.once and value in found and not recreated:
                (topic, partition), first = found[value][0]
                raise Violation(TWICE, f"{brief(value)} in {where} and in {topic}-{partition} at {first}")
            if sent.once and last.get(sent.producer, -1) >= sent.rank and not excused:
                raise Violation(ORDER, f"{brief(value)} in {where} after number {last[sent.producer]}")
            last[sent.producer] = sent.rank
            seen[value] = offset
            found[value].append((place, offset))

    def _check_promises(self, found: dict[bytes, list[tuple[Place, int]]]) -> None:
        missing: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        for sent in self.sent.values():
            if sent.withdrawn:
                continue
            if sent.durable and sent.outcome is None and sent.value not in found and sent.producer in self.flushed:
                missing[sent.producer, sent.topic].append(sent.value)
            receipt = sent.receipt
            if receipt is None or not sent.durable:
                continue
            if sent.value not in found:
                place = f"{receipt.topic}-{receipt.partition} at {receipt.offset}"
                raise Violation(LOST, f"{brief(sent.value)} of {sent.producer}, acknowledged for {place}")
            there = [place for place, _ in found[sent.value]]
            offsets = [-1, *(at for _, at in found[sent.value])]
            if sent.once and (receipt[:2] not in there or receipt.offset not in offsets):
                told = f"{receipt.topic}-{receipt.partition} at {receipt.offset}"
                place_found, offset = found[sent.value][0]
                stored = f"{place_found[0]}-{place_found[1]} at {offset}"
                raise Violation(RECEIPT, f"{brief(sent.value)} of {sent.producer}: receipt {told}, stored in {stored}")
        for (producer, topic), values in missing.items():
            if len(values) > self.failures[producer, topic]:
                reported = self.failures[producer, topic]
                lost = f"{len(values)} are missing, {reported} were reported; first {brief(values[0])}"
                raise Violation(SILENT, f"{producer} to {topic!r}: {lost}")


@dataclass(slots=True)
class Epochs:
    """Checks that no client goes back to an older leader epoch (KIP-320) while it remembers the topic.

    A Fetch is checked when it is sent. A lookup of offsets or epochs is checked when the client requests it: it may
    wait for its connection, and if the client finds a newer leader meanwhile it ignores the answer.
    """

    cluster: ModelCluster
    shared: set[str] = field(default_factory=set)
    """Processes with several consumers, each with its own knowledge."""
    ids: bool = True
    """Topics have ids. Without ids, a client cannot tell a stale broker from a broker with a recreated topic."""
    _newest: dict[tuple[str, Place], int] = field(default_factory=dict)

    def sent(self, process: str, message: Any, channel: str) -> None:
        process = self._who(process, channel)
        if isinstance(message, FetchRequest):
            for topic in message.topics:
                for each in topic.partitions:
                    self._look(process, (self.cluster.ever_named(topic), each.partition), each.current_leader_epoch)

    def submitted(self, process: str, exchange: Exchange, channel: str) -> None:
        process = self._who(process, channel)
        if exchange.kind is OffsetForLeaderEpochRequest:
            for topic in exchange.message.topics:
                for each in topic.partitions:
                    self._look(process, (topic.topic, each.partition), each.current_leader_epoch)
        elif exchange.kind is ListOffsetsRequest and exchange.build:
            for topic in exchange.build(WITH_EPOCHS).topics:
                for each in topic.partitions:
                    self._look(process, (topic.name, each.partition_index), each.current_leader_epoch)

    def forgot(self, process: str, topic: str) -> None:
        for key in [key for key in self._newest if key[0].split(" ")[0] == process and key[1][0] == topic]:
            del self._newest[key]

    def _who(self, process: str, channel: str) -> str:
        return f"{process} {channel}" if process in self.shared else process

    def _look(self, process: str, place: Place, epoch: int) -> None:
        newest = self._newest.get((process, place), -1)
        if 0 <= epoch < newest and self.ids:
            raise Violation(OLD_LEADER, f"{process} asks for {place[0]}-{place[1]} with epoch {epoch} after {newest}")
        self._newest[process, place] = max(newest, epoch)


@dataclass(slots=True)
class Window:
    """Checks that a connection has at most five unanswered Produce requests: a broker remembers five batches."""

    _unanswered: Counter[Link] = field(default_factory=Counter)

    def sent(self, link: Link, message: Any) -> None:
        if isinstance(message, ProduceRequest) and message.acks:
            self._unanswered[link] += 1
            if self._unanswered[link] > 5:
                raise Violation(CROWD, f"{link.label} has {self._unanswered[link]}")

    def delivered(self, link: Link, request: Any) -> None:
        if isinstance(request, ProduceRequest):
            self._unanswered[link] -= 1


@dataclass(slots=True)
class Identities:
    """Checks which batches are sent under which producer id and epoch.

    - The first batch of an epoch travels alone: a log without state for the producer accepts any sequence.
    - New records for a recreated topic get a new epoch. Records with a sequence from before the client learned of the
      recreation keep it: an attempt may have reached either log.
    """

    name: Callable[[Any], str]
    """The name of a topic in a request or an answer."""
    _last: dict[tuple[str, Place], tuple[int, int]] = field(default_factory=dict)
    """(client, partition) -> the producer id and epoch that were last sent."""
    _old: dict[tuple[str, Place], tuple[tuple[int, int], int]] = field(default_factory=dict)
    """(client, partition) -> id and epoch when the client learned of the recreation, and the next sequence then."""
    _acknowledged: dict[tuple[str, Place], tuple[int, int]] = field(default_factory=dict)
    """(client, partition) -> the newest id and epoch with an acknowledged batch."""
    _under_way: dict[tuple[str, Place], list[tuple[Link, int]]] = field(default_factory=lambda: defaultdict(list))
    """(client, partition) -> the first sequences of batches in flight."""

    def recreated(self, client: str, following: dict[Place, int]) -> None:
        """A client learns that a topic was recreated; ``following`` has the next sequence of each partition."""
        for place, sequence in following.items():
            if last := self._last.get((client, place)):
                self._old[client, place] = last, sequence

    def sent(self, link: Link, message: Any) -> None:
        for key, batch in self._batches(link, message):
            identity, sequence = (batch.producer_id, batch.producer_epoch), batch.base_sequence
            where = f"{link.label} to {key[1][0]}-{key[1][1]}: sequence {sequence} of {identity}"
            old, following = self._old.get(key, ((-1, -1), 0))
            if identity == old and sequence >= following:
                raise Violation(OLD_EPOCH, where)
            waiting = self._under_way[key] = [each for each in self._under_way[key] if each[0].open]
            if waiting and identity not in (old, self._acknowledged.get(key)):
                raise Violation(TOGETHER, where)
            waiting.append((link, sequence))
            self._last[key] = identity

    def delivered(self, link: Link, request: Any, answer: Any) -> None:
        if not isinstance(answer, ProduceResponse):
            return
        good = {
            (self.name(topic), each.index)
            for topic in answer.responses
            for each in topic.partition_responses
            if each.error_code in (0, DuplicateSequenceNumber.code)
        }
        for key, batch in self._batches(link, request):
            under_way = self._under_way[key]
            if (link, batch.base_sequence) in under_way:
                under_way.remove((link, batch.base_sequence))
            if key[1] in good:
                self._acknowledged[key] = batch.producer_id, batch.producer_epoch

    def _batches(self, link: Link, message: Any) -> Iterator[tuple[tuple[str, Place], RecordBatch]]:
        """The batches of a request that have a producer id."""
        if isinstance(message, ProduceRequest) and message.acks == -1:
            for topic in message.topic_data:
                for data in topic.partition_data:
                    batch = parse_batch(data.records or b"")
                    if batch.producer_id >= 0:
                        yield (link.client.name, (self.name(topic), data.index)), batch
