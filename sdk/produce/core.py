"""The accepting half of a producer: places records, keeps its memory, tells everybody what became of theirs.

    intake ────► the open batch of the partition       nearly every record: `ottla.codec.intake`, no object made
      │ no
    append ────► places it, waits for its topic         `BufferFull` where there is no room
      │ full
    offer ─────► first come, first served               settled once it is accepted

Rules:
- A record is accepted or refused at once; once accepted it ends in exactly one way: stored, or failed with a reason
  within `delivery_timeout` of being offered, whether it waits for room, its topic, a producer id or an answer.
- A batch ends by the deadline of its first record, so it takes only those that were offered within about a second of
  that one, even if it cannot be sent: no record fails much earlier than it has to.
- A topic to which nothing was sent for five minutes is forgotten when new metadata come, with all that is kept of it.
- Failures that nobody was told of are counted and raised by the next call; whoever no longer awaits a record hears of
  it so, too. A callback that raises does no harm: its
  error is logged, and the first is raised by the next call.
- Memory is counted by what records take at the most, uncompressed. Who waits for room is served in the order of asking;
  nobody overtakes, and who gives up lets the next one pass.
- The intake is cut short, by hiding the lanes from it, while anything out of the ordinary is the matter.
- A key's partition is its hash over the partitions known when it is appended; keyless records stay with one partition
  for about 16 KiB, then move on, away from partitions that are slow (KIP-794).

Source: KafkaProducer.java (doSend), RecordAccumulator.java, BufferPool.java, BuiltInPartitioner.java.
"""

import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ottla.codec.compression import Compression, checked_level
from ottla.codec.intake import RECORD_OVERHEAD, Intake, Lane
from ottla.codec.records import HEADER_SIZE, Headers, check_bytes
from ottla.errors import (
    BufferFull,
    Closed,
    ConfigurationError,
    DeliveryFailed,
    DeliveryTimeout,
    EncodeError,
    OttlaError,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from ottla.sdk.arguments import is_async
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.accumulator import SHUT, Batch, DeliveryCallback, PartitionQueue, Receipt
from ottla.sdk.produce.partitioners import Choice, Chooser, Hash, Keyed, named
from ottla.sdk.produce.sender import Compressor, Sender, SenderOptions
from ottla.sdk.timers import Timer

if TYPE_CHECKING:
    from random import Random  # a machine is given chance, it does not take any

log = logger("ottla.sdk.producer")

_STICK = 16 * 2**10
"""Bytes after which keyless records move on with their next batch. Source: ProducerConfig.java, batch.size."""
_EARLY = 1.0
"""Seconds, beside the linger, that a record may fail before its own deadline; less where that is near."""
_IDLE = 300.0
"""Seconds without a record after which a topic is forgotten. Source: ProducerConfig.java, metadata.max.idle.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(SenderOptions):
    """See `ottla.sdk.client.Client.producer`."""

    linger: float = 0.005
    batch_size: int = 256 * 2**10
    partitioner: str | Hash | Keyed | Chooser = "murmur2"
    buffer_memory: int = 32 * 2**20


def compressors(
    compression: str | Mapping[str, str | tuple[str, int]], level: int | None = None
) -> tuple[Compressor, dict[str, Compressor]]:
    """The compression of all topics but some, and of those; as `ottla.sdk.client.Client.producer` takes them.

    Raises:
        ConfigurationError: there is no such compression, or it has no such level.
    """

    def compressor(given: str | tuple[str, int]) -> Compressor:
        name, own_level = (given, level) if isinstance(given, str) else given
        try:
            known = Compression.named(name)
            # A level that goes with several compressions goes with none where there is nothing to compress.
            checked = own_level if known or own_level is None else None
            checked_level(known, checked)
        except (ValueError, EncodeError) as error:
            raise ConfigurationError(str(error)) from None
        return known, checked

    if isinstance(compression, str):
        default = compressor(compression)
        if level is not None and not default[0]:
            raise ConfigurationError("a compression_level needs a compression to go with, as in compression='zstd'")
        return default, {}
    by_topic = {topic: compressor(given) for topic, given in compression.items()}
    return by_topic.pop("*", (Compression.NONE, None)), by_topic


class Awaited(Outcome[Receipt]):
    """What becomes of a record, for somebody who awaits it; `ProducerCore.leave` once that is given up."""

    __slots__ = ("unseen",)

    def __init__(self) -> None:
        super().__init__()
        self.unseen = False
        """Nobody awaits it any more."""

    def __call__(self, result: Receipt | OttlaError) -> None:
        self.settle(result)


@dataclass(slots=True, eq=False)
class PendingRecord:
    """A record on its way in.

    Attributes:
        outcome: is settled with what became of it; ``None`` where nobody awaits it.
        told: is called with what became of it.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: Headers
    timestamp: int
    outcome: Outcome[Receipt] | None = None
    told: DeliveryCallback | None = None
    size: int = 0
    """Bytes that it takes at the most; the machine's to fill in, as is the deadline."""
    deadline: float = 0.0

    @property
    def tell(self) -> DeliveryCallback | None:
        """Whom to tell what became of it."""
        return self.told if self.outcome is None else self.outcome.settle


@dataclass(slots=True, eq=False)
class Unplaced:
    """Records whose topic is not known yet; ``number`` is among the unsettled."""

    number: int
    records: deque[PendingRecord]


@dataclass(slots=True, eq=False)
class Waiter:
    """A record that waits for room."""

    record: PendingRecord
    accepted: Outcome[None]


def refuse_deaf(told: object) -> None:
    """Raise `ConfigurationError` for what cannot be told of a record."""
    if not callable(told) or is_async(told):
        sort = "written with `async def`" if callable(told) else "no function"
        raise ConfigurationError(f"on_delivery is called, and not awaited: {told!r} is {sort}")


class ProducerCore:
    """One producer on a `ClientCore`; ``rng`` chooses the partitions of keyless records."""

    def __init__(self, core: ClientCore, options: ProducerOptions, rng: "Random") -> None:
        self._core, self._options, self._rng = core, options, rng
        self._partitioner = named(options.partitioner, rng)
        keyed = self._partitioner if isinstance(self._partitioner, Keyed) else None
        self.intake = Intake(keyed.hash if keyed else None, options.buffer_memory, refuse_deaf)
        """Takes a record at once, as nearly all can be; `append` and `offer` have to look at the others."""
        self._lanes: dict[str, Lane] = {}
        self._unplaced: dict[str, Unplaced] = {}
        self._holds: dict[str, Callable[[], None]] = {}
        """Topics whose metadata are kept fresh for this producer, and what ends that."""
        self._used: dict[str, tuple[int, float]] = {}
        """Topics, the bytes that they were ever given, and when that was last seen to have changed."""
        self._unsettled: OrderedDict[int, int] = OrderedDict()
        """Numbers of batches, and of unplaced topics' records, oldest first; and how many parts each has."""
        self._numbers = 0
        self._waiters: deque[Waiter] = deque()
        self._flushes: list[tuple[int, Outcome[None]]] = []
        self._failed: dict[TopicPartition, int] = {}
        self._first_failure: OttlaError | None = None
        self._callback_error: Exception | None = None
        self._shut = self._closed = False
        self.fatal: OttlaError | None = None
        """Set once the producer can never send again."""
        self._sender = Sender(core, options, self)
        self._span = options.linger + min(_EARLY, self._sender.delivery_timeout / 10)
        """Seconds between the first and the last record of a batch."""
        self._sealing: Timer | None = None
        core.metadata.observers.append(self._metadata_changed)
        core.parts[self] = None
        self._forget = core.on_close(self._left)
        self._gauges = (
            core.metrics.share("buffer-total-bytes", lambda now: options.buffer_memory),
            core.metrics.share("buffer-available-bytes", lambda now: self.intake.free),
            core.metrics.share("waiting-threads", lambda now: len(self._waiters)),
        )
        """What this producer adds to the client's, and what ends that."""
        self._look_out()

    # -- the user's side ---------------------------------------------------------------------------------------------

    def append(self, record: PendingRecord, now: float) -> None:
        """Accept a record.

        Raises:
            BufferFull: no room now, or others wait for it; `offer` waits.
            RecordTooLarge: it would never fit a request.
            EncodeError: key, value or a header is not bytes.
            UnknownTopicOrPartition: the topic has no such partition.
        """
        self._check(record, now)
        if self._waiters or not self._fits(record):
            used = self._options.buffer_memory - self.intake.free
            others = f", and {len(self._waiters)} others wait for room" if self._waiters else ""
            raise BufferFull(f"{used} of {self._options.buffer_memory} bytes wait for the brokers{others}")
        self._accept(record, now)

    def offer(self, record: PendingRecord, now: float) -> Outcome[None]:
        """Accept a record as soon as there is room for it and all that were offered before; settled when that is so.

        Fails as `append` does, or with `DeliveryTimeout` where there was no room in time. `withdraw` takes it back.
        """
        accepted: Outcome[None] = Outcome()
        try:
            self._check(record, now)
            if self._waiters or not self._fits(record):
                self._wait_for_room(Waiter(record, accepted))
            else:
                self._accept(record, now)
                accepted.succeed(None)
        except OttlaError as error:
            accepted.fail(error)
        return accepted

    def withdraw(self, accepted: Outcome[None]) -> None:
        """Whoever offered a record does not want to wait any more; what is accepted already stays so."""
        for waiter in self._waiters:
            if waiter.accepted is accepted:
                self._waiters.remove(waiter)
                self._core.soon(self._let_in)
                break

    def leave(self, record: PendingRecord, awaited: Awaited) -> None:
        """Nobody awaits any more what becomes of the record: if it fails, or just has, the next call raises it."""
        awaited.unseen = True
        if awaited.error is not None:
            self._count_failure(_aim(record), 1, awaited.error)

    def flush(self, now: float) -> Outcome[None]:
        """Send what lingers; settled when everything accepted so far is."""
        outcome: Outcome[None] = Outcome()
        self._flushes.append((self._numbers, outcome))
        self._all_due()
        self._settle_flushes()
        return outcome

    def shut(self, now: float) -> Outcome[None]:
        """Refuse records from now on, also those that wait for room, and `flush` the others."""
        self._shut = True
        self._turn_away(Closed("the producer is being left"))
        self._look_out()
        return self.flush(now)

    def _all_due(self) -> None:
        for queue in self._sender.queues.values():
            if queue.open is not SHUT:
                self._sender.due(queue, queue.open)

    def raise_failures(self) -> None:
        """Raise `DeliveryFailed` for records that failed since the last time and that nobody was told of.

        And what a callback raised, as it is; after those.
        """
        if self._first_failure is not None:
            failed, cause = self._failed, self._first_failure
            self._failed, self._first_failure = {}, None
            self._look_out()
            raise DeliveryFailed(sum(failed.values()), failed, cause)
        if self._callback_error is not None:
            error, self._callback_error = self._callback_error, None
            self._look_out()
            raise error

    def _left(self, error: OttlaError) -> None:
        """The client closes before the producer: nobody may ever ask what became of the records."""
        if left := self.pending:
            log.error("records are given up: the client was left before its producer", extra={"records": left})
        self.close(error)

    def close(self, error: OttlaError) -> None:
        """Fail what is left; the producer is of no more use."""
        if self._closed:
            return
        self._closed = True
        self._forget()
        for release in self._holds.values():
            release()
        self._core.metadata.observers.remove(self._metadata_changed)
        self._core.parts.pop(self, None)
        for leave in self._gauges:
            leave()
        self._sender.close()
        self.give_up(error)

    @property
    def pending(self) -> int:
        """Records that are neither stored nor failed."""
        placed = sum(batch.count for queue in self._sender.queues.values() for batch in queue.batches)
        return placed + sum(len(each.records) for each in self._unplaced.values()) + len(self._waiters)

    def explain(self, now: float) -> Iterator[str]:
        if self._waiters:
            since = now - (self._waiters[0].record.deadline - self._sender.delivery_timeout)
            yield f"producer: {len(self._waiters)} record(s) wait for room in the buffer, the first since {since:.1f} s"
        for name, each in self._unplaced.items():
            yield f"producer: {len(each.records)} record(s) wait until topic {name!r} is known"
        yield from self._sender.explain(now)

    # -- accepting ---------------------------------------------------------------------------------------------------

    def _check(self, record: PendingRecord, now: float) -> None:
        """See whether a record can be sent at all, and how large it is."""
        if self.fatal:
            raise self.fatal
        if self._shut:
            raise Closed("the producer is being left: it takes no more records")
        key, value = record.key, record.value
        if not isinstance(record.topic, str) or not record.topic:
            raise EncodeError(f"a topic is named by a str, not {record.topic!r}")
        if record.partition is not None and type(record.partition) is not int:
            raise EncodeError(f"a partition is an int, not {record.partition!r}")
        if record.headers != () or type(value) is not bytes or type(key) is not bytes:
            check_bytes(key, value, record.headers)
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in record.headers:
            size += 10 + 4 * len(name) + (len(content) if content else 0)
        if HEADER_SIZE + size > self._core.options.max_request_size:
            limit = self._core.options.max_request_size
            raise RecordTooLarge(f"a record of about {size} bytes for {record.topic!r}; max_request_size is {limit}")
        record.size, record.deadline = size, now + self._sender.delivery_timeout

    def _fits(self, record: PendingRecord) -> bool:
        return record.size <= self.intake.free or self.intake.free >= self._options.buffer_memory

    def _accept(self, record: PendingRecord, now: float) -> None:
        known = self._core.cluster.topics.get(record.topic)
        waiting = self._unplaced.get(record.topic)
        if waiting is not None:
            waiting.records.append(record)
        elif known is not None:
            self._place(record, known, now)
        else:
            self._unplaced[record.topic] = Unplaced(self._number(), deque([record]))
            self._find(record.topic, now)
            topic = record.topic  # the record itself is not to be kept until then
            self._core.later(record.deadline, lambda now: self._expire_unplaced(topic, now))
        self.intake.free -= record.size

    def _wait_for_room(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)
        self._look_out()
        late = self._core.later(waiter.record.deadline, lambda now: self._no_room(waiter))
        waiter.accepted.when_done(late.cancel)

    def _let_in(self, now: float) -> None:
        """Accept whoever has waited longest, as long as there is room."""
        while self._waiters and (self._waiters[0].accepted.done or self._fits(self._waiters[0].record)):
            waiter = self._waiters.popleft()
            if waiter.accepted.done:
                continue
            try:
                self._accept(waiter.record, now)
            except OttlaError as error:
                waiter.accepted.fail(error)
            else:
                waiter.accepted.succeed(None)
        self._look_out()

    def _no_room(self, waiter: Waiter) -> None:
        record, memory = waiter.record, self._options.buffer_memory
        self._waiters.remove(waiter)
        self._core.soon(self._let_in)
        why = f"{memory - self.intake.free} of {memory} bytes of buffer_memory wait for the brokers"
        waited = f"there was no room within {self._sender.delivery_timeout:g} s"
        waiter.accepted.fail(DeliveryTimeout(f"a record for {record.topic!r} was not accepted: {waited}, {why}"))

    def _look_out(self) -> None:
        """Show the lanes to the intake if all is well."""
        ordinary = not (self._waiters or self._first_failure or self._callback_error or self.fatal or self._shut)
        self.intake.lanes = self._lanes if ordinary and isinstance(self._partitioner, Keyed) else {}

    # -- topics ------------------------------------------------------------------------------------------------------

    def _find(self, name: str, now: float) -> None:
        found = self._core.metadata.topic(name, now, create=True)
        found.when_done(lambda: self._core.soon(lambda now: self._found(name, found, now)))

    def _found(self, name: str, found: Outcome[Topic], now: float) -> None:
        """Somebody said where the topic is, or that it is nowhere; or nobody could be asked, which is asked again."""
        if name not in self._unplaced:
            return
        if found.error and found.error.retriable and not isinstance(found.error, UnknownTopicOrPartition):
            self._find(name, now)
            return
        unplaced = self._unplaced.pop(name)
        for record in unplaced.records:
            try:
                self._place(record, found.result(), now)
            except OttlaError as error:
                self._fail_unplaced(record, error)
        if self._flushes:
            # Who flushes waits for the batches that these records went into.
            self._flushes = [(self._numbers, outcome) for _, outcome in self._flushes]
            self._all_due()
        self._settled(unplaced.number)

    def _expire_unplaced(self, name: str, now: float) -> None:
        if (unplaced := self._unplaced.get(name)) is None:
            return
        records = unplaced.records
        while records and records[0].deadline <= now:
            why = self._core.metadata.why_no_topic(name)
            within = f"{self._sender.delivery_timeout:g} s"
            error = DeliveryTimeout(f"a record waited {within} for topic {name!r}, of which nothing is known: {why}")
            self._fail_unplaced(records.popleft(), error)
        if records:
            self._core.later(records[0].deadline, lambda now: self._expire_unplaced(name, now))
        else:
            del self._unplaced[name]
            self._settled(unplaced.number)

    def _fail_unplaced(self, record: PendingRecord, error: OttlaError) -> None:
        self._give_back(record.size)
        if record.tell is not None:
            self._tell(record.tell, error)
        if record.tell is None or unseen(record.tell):
            self._count_failure(_aim(record), 1, error)

    def _metadata_changed(self, now: float) -> None:
        """A topic that has more partitions now, or is gone, has its keys placed anew."""
        for name, lane in list(self._lanes.items()):
            known = self._core.cluster.topics.get(name)
            if known is None or len(known.partitions) != len(lane.slots):
                del self._lanes[name]
        self._forget_idle(now)

    def _forget_idle(self, now: float) -> None:
        """Forget the topics that nothing was sent to for long: a producer may meet ever new ones."""
        taken = dict.fromkeys(self._holds, 0)
        busy = set(self._unplaced)
        for (name, _), queue in self._sender.queues.items():
            taken[name] += queue.taken
            if queue.batches:
                busy.add(name)
        for name, count in taken.items():
            before, since = self._used.get(name, (-1, now))
            if name in busy or count != before:
                self._used[name] = (count, now)
            elif now - since >= _IDLE:
                self._lanes.pop(name, None)
                self._sender.forget(name)
                del self._used[name]
                self._holds.pop(name)()

    # -- placing -----------------------------------------------------------------------------------------------------

    def _place(self, record: PendingRecord, topic: Topic, now: float) -> None:
        lane = self._lanes.get(topic.name)
        if lane is None:
            lane = self._lanes[topic.name] = Lane(len(topic.partitions))
            if topic.name not in self._holds:
                self._holds[topic.name] = self._core.metadata.hold(topic.name)
        partition = self._partition(record, topic, lane)
        queue = self._sender.queue((topic.name, partition))
        if partition < len(lane.slots):  # metadata may leave partitions out
            lane.slots[partition] = queue
        if queue.open.left < record.size or record.deadline - queue.open.deadline > self._span:
            self._open(queue, record, now)
        batch = queue.open
        batch.add(record.size, record.timestamp, record.key, record.value, record.headers, record.tell)
        if batch.left <= 0:
            self._sender.due(queue, batch)

    def _partition(self, record: PendingRecord, topic: Topic, lane: Lane) -> int:
        has = f"{topic.name!r} has partitions 0 to {len(topic.partitions) - 1}"
        if record.partition is not None:
            if record.partition not in topic.partitions:
                raise UnknownTopicOrPartition(f"{has}, not {record.partition}")
            return record.partition
        key, partitioner = record.key, self._partitioner
        try:
            if not isinstance(partitioner, Keyed):
                partition = operator.index(partitioner.choose(self._choice(record, topic)))
            elif key or (partitioner.hash_null if key is None else partitioner.hash_empty):
                partition = operator.index(partitioner.hash(key or b"", len(lane.slots)))
            else:
                return self._stick(topic, lane, record.size)
            known = partition in topic.partitions
        except OttlaError:
            raise
        except Exception as error:  # the user's own code, which must not break the machine
            raise EncodeError(f"the partitioner raised {error!r}") from error
        if not known:
            raise EncodeError(f"the partitioner chose {partition!r}, but {has}")
        return partition

    def _choice(self, record: PendingRecord, topic: Topic) -> Choice:
        led = [each.partition for each in topic.partitions.values() if each.leader >= 0]

        def queued(partition: int) -> int:
            queue = self._sender.queues.get((topic.name, partition))
            return sum(batch.size for batch in queue.batches) if queue else 0

        return Choice(topic.name, record.key, record.value, sorted(topic.partitions), sorted(led), queued)

    def _stick(self, topic: Topic, lane: Lane, size: int) -> int:
        """The partition of keyless records; once a batch went to it another one, likelier one with a short queue."""
        sticky = cast("PartitionQueue | None", lane.sticky)
        if sticky and sticky.taken + size <= sticky.sticky_until and sticky.place[1] in topic.partitions:
            return sticky.place[1]
        nodes = self._core.cluster.nodes
        well = {each.id for each in nodes.values() if not self._core.trouble(each)}
        led = [each.partition for each in topic.partitions.values() if each.leader in nodes]
        able = [each for each in led if topic.partitions[each].leader in well]
        among = able or led or list(topic.partitions)
        queues = [self._sender.queues.get((topic.name, each)) for each in among]
        waiting = [len(queue.batches) if queue else 0 for queue in queues]
        most = max(waiting)
        partition = self._rng.choices(among, [most + 1 - each for each in waiting])[0]
        lane.sticky = sticky = self._sender.queue((topic.name, partition))
        sticky.sticky_until = sticky.taken + min(self._options.batch_size, _STICK)
        return partition

    def _open(self, queue: PartitionQueue, record: PendingRecord, now: float) -> None:
        """Begin a new batch, large enough for the record; the old one is full, or too old."""
        if (before := queue.close()) is not None:
            self._sender.due(queue, before)
        room = max(min(self._options.batch_size, self._core.options.max_request_size), record.size)
        batch = queue.open = Batch(self._number(), queue.place, now, record.deadline, room)
        self._sender.add(queue, batch)
        if self._options.linger:
            self._core.later(now + self._options.linger, lambda now: self._sender.due(queue, batch))
        else:
            self._sender.due(queue, batch)

        if self._sealing is None:
            self._sealing = self._core.later(now + self._span, self._seal)

    def _seal(self, now: float) -> None:
        """Batches that are open for long, because they cannot be sent, take no more: what comes now has more time."""
        self._sealing = None
        latest = now + self._sender.delivery_timeout - self._span
        for queue in self._sender.queues.values():
            if (batch := queue.open) is SHUT:
                continue
            if batch.deadline <= latest:
                queue.close()
                self._sender.due(queue, batch)
            elif self._sealing is None:
                self._sealing = self._core.later(now + self._span / 2, self._seal)

    def _number(self) -> int:
        self._numbers += 1
        self._unsettled[self._numbers] = 1
        return self._numbers

    # -- what becomes of batches -------------------------------------------------------------------------------------

    def stored(self, batch: Batch, base_offset: int, append_time: int, now: float) -> None:
        self.free(batch)
        self._settled(batch.number)
        batch.tell(Receipt, *batch.place, base_offset, append_time, self._callback_failed)

    def failed(self, batch: Batch, error_of: Callable[[int], OttlaError], now: float) -> None:
        count = batch.count - sum(told is not None and not unseen(told) for told in batch.told)
        if count:
            self._count_failure(batch.place, count, error_of(0))
        self._settled(batch.number)
        for index, told in enumerate(batch.told):
            if told is not None:
                self._tell(told, error_of(index))

    def split(self, queue: PartitionQueue, batch: Batch, halves: tuple[Batch, Batch]) -> None:
        if batch.expiry is not None:
            batch.expiry.cancel()
        self._unsettled[batch.number] += 1
        for half in halves:
            self._sender.watch(queue, half)

    def free(self, batch: Batch) -> None:
        """The batch needs no memory any more."""
        if batch.expiry is not None:
            batch.expiry.cancel()
        self._give_back(batch.charged)

    def give_up(self, error: OttlaError) -> None:
        """The producer can never send again."""
        self.fatal = self.fatal or error
        self._sender.stopped = True
        for queue in list(self._sender.queues.values()):
            for batch in list(queue.batches):
                queue.drop(batch, stored=None)
                self.free(batch)
                if not batch.abandoned:
                    self.failed(batch, lambda index: error, 0.0)
        unplaced, self._unplaced = self._unplaced, {}
        for each in unplaced.values():
            for record in each.records:
                self._fail_unplaced(record, error)
        self._turn_away(error)
        self._unsettled.clear()
        self._settle_flushes()
        self._look_out()

    def _turn_away(self, error: OttlaError) -> None:
        while self._waiters:
            self._waiters.popleft().accepted.fail(error)

    def _tell(self, told: DeliveryCallback, result: Receipt | OttlaError) -> None:
        try:
            told(result)
        except Exception as error:  # as in `stored`
            self._callback_failed(error, result)

    def _callback_failed(self, error: Exception, result: Receipt | OttlaError) -> None:
        log.error("on_delivery raised; the next call to the producer raises it too", exc_info=error)
        if self._callback_error is None:
            error.add_note(f"raised by on_delivery, which was told: {result}")
            self._callback_error = error
            self._look_out()

    def _count_failure(self, place: TopicPartition, count: int, error: OttlaError) -> None:
        self._failed[place] = self._failed.get(place, 0) + count
        self._first_failure = self._first_failure or error
        self._look_out()

    def _give_back(self, size: int) -> None:
        self.intake.free += size
        if self._waiters:
            self._core.soon(self._let_in)

    def _settled(self, number: int) -> None:
        parts = self._unsettled.get(number, 1)
        if parts > 1:
            self._unsettled[number] = parts - 1
        else:
            self._unsettled.pop(number, None)
        self._settle_flushes()

    def _settle_flushes(self) -> None:
        if not self._flushes:
            return
        oldest = next(iter(self._unsettled), self._numbers + 1)
        for each in [each for each in self._flushes if each[0] < oldest]:
            self._flushes.remove(each)
            each[1].succeed(None)


def _aim(record: PendingRecord) -> TopicPartition:
    """Where a record without a place was to go; partition -1 where nobody has chosen one."""
    return record.topic, -1 if record.partition is None else record.partition


def unseen(told: DeliveryCallback) -> bool:
    """Whether the user hears nothing by it: interceptors listen, but do not count, nor does who has left."""
    return bool(getattr(told, "unseen", False))
