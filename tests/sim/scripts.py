"""Users that produce, and users that read partitions without a group.

They run the steps of the shipped cores, as the drivers do, and check each result.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.records import Headers
from ottla.errors import (
    BufferFull,
    Closed,
    DeliveryFailed,
    DeliveryTimeout,
    LocalProtocolError,
    OffsetOutOfRange,
    OttlaError,
)
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerPlan, TopicFilter
from ottla.sdk.consume.reading.fetcher import Fetcher, Offset, Start, Time
from ottla.sdk.core import FINISH_TIMEOUT
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.batches import NOT_OPEN, PartitionQueue, ProducerBatch
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.producer_leaving import CLOSE_TIMEOUT
from ottla.sdk.produce.records import (
    Acknowledgement,
    AwaitedReceipt,
    PendingRecord,
    ProducerInterceptor,
    ProducerRecord,
    Receipt,
)
from ottla.sdk.steps import Steps
from tests.sim.bounds import Memory
from tests.sim.data import PASSING, RECREATED, Place
from tests.sim.ledger import Ledger, Sent, brief
from tests.sim.users import Cancelled, Process, Script, Tasks, Violation, Wait

if TYPE_CHECKING:
    from tests.sim.members import Consuming

TIME = 1000
"""The timestamp of a producer's first record; each following record is a millisecond younger."""


@dataclass(slots=True, eq=False)
class Producing:
    """A user who sends ``count`` records to ``topics`` within about ``seconds``, by every call that sends."""

    process: Process
    ledger: Ledger
    options: ProducerOptions
    chance: Random
    topics: dict[str, int]
    """With the number of partitions of each."""
    count: int
    seconds: float
    keys: int
    """The number of different keys; 1: all records go to one partition."""
    seed: int = 0
    impatient: float = 0.0
    """Chance that a waiting call is cancelled."""
    lulls: float = 0.0
    """Chance of a pause so long that the producer forgets its topics."""
    new: list[str] = field(default_factory=list)
    """The topics that are created when a producer sends to them: first the first one, later all."""
    rush: int = 0
    """How many bursts are still to be sent to the topic that was just recreated."""
    avoided: float = 0.0
    """Until when this user sends nothing to the topic that is recreated, unless the client learns of that earlier."""
    member: "Consuming | None" = None
    """A member in the same process; delivery callbacks commit for it."""
    done: bool = False
    reader: "Reading | None" = None
    """A reader in the same process; delivery callbacks pause and resume it."""
    machine: ProducerCore | None = None
    _number: int = 0
    _tasks: int = 0
    """Tasks that await a receipt."""
    whims: Random = field(init=False)
    _with_callback: list[Sent] = field(default_factory=list)
    _sent_by_callbacks: dict[Sent, int] = field(default_factory=dict)
    """Records that delivery callbacks sent, with the loop turn of each."""
    _leaving: bool = False
    _wrong: str = ""
    """A violation that a callback saw: a callback cannot raise it itself."""

    def __post_init__(self) -> None:
        self.whims = Random(f"{self.seed} {self.process.name} whims")

    def script(self) -> Script:
        process, chance = self.process, self.chance
        yield from process.connect()
        machine = self.machine = process.do(lambda: ProducerCore(process.core, self.options, chance))
        self._watch(machine)
        pause = self.seconds / self.count
        self._feature(f"acks={self.options.required_acks}")
        while self._number < self.count:
            burst = min(chance.choice((1, 1, 3, 10, 40)), self.count - self._number)
            if self.rush and self.process.clock.now >= self.avoided:
                self.rush -= 1
                self.count += 30
                yield from self._send_many(machine, 30, RECREATED)
                yield chance.uniform(0.0, 0.1)
                continue
            if chance.random() < 0.15:
                yield from self._send_many(machine, burst)
            else:
                for _ in range(burst):
                    yield from self._send(machine)
            yield chance.uniform(0.0, 2 * 10 * pause)
            if self.whims.random() < self.lulls:
                yield 1.0
            if chance.random() < (0.05 if self.options.acks else 0.4):
                yield from self._flush(machine)
        yield from self._leave(machine)
        while self._tasks:
            yield 0.01
        self._check_callbacks(self._with_callback)
        self.done = True

    @property
    def leaving(self) -> bool:
        return self._leaving

    def avoid(self, soon: float) -> None:
        """Send nothing to the topic that is recreated in ``soon`` seconds until the client knows, and then much."""
        core, clock = self.process.core, self.process.clock
        known, self.avoided = core.cluster.incarnation(RECREATED), clock.now + 4.0

        def look() -> None:
            if clock.now < self.avoided and self.process.alive:
                if core.cluster.incarnation(RECREATED) in (-1, known):
                    self.process.do(lambda: core.metadata.refresh(clock.now))
                    clock.later(0.02, look)
                else:
                    self._feature("a producer learns of a new topic before it sends there")
                    self.avoided = 0.0
                    self.rush = 3

        clock.later(soon, look)

    def batches_at(self, place: Place) -> bool:
        """Whether batches for the partition are queued or in flight."""
        queue = self.machine._sender.queues.partitions.get(place) if self.machine else None
        return bool(queue and queue.batches)

    def following(self, topic: str) -> dict[Place, int]:
        """The next sequence of each partition of a topic that this producer has sent to."""
        queues = self.machine._sender.queues.partitions.values() if self.machine else ()
        return {each.place: each.next_sequence for each in queues if each.place[0] == topic and each.identity}

    def heard_late(self, place: Place) -> bool:
        """Whether the log has a batch that the producer does not know to be stored, as its answer is in flight."""
        queue = self.machine._sender.queues.partitions.get(place) if self.machine else None
        if queue is None or queue.identity is None or place not in self.ledger.cluster.logs:
            return False
        log = self.ledger.cluster.logs[place]
        state = log.producers.get(queue.identity.producer_id)
        stored = [span[0] for span, base in state.recent.items() if base < log.high_watermark] if state else []
        return any(each.in_flight and each.sequence in stored for each in queue.batches)

    def producer_id_at(self, place: Place) -> int:
        """The producer id that was last used for a partition."""
        queue = self.machine._sender.queues.partitions.get(place) if self.machine else None
        return queue.identity.producer_id if queue and queue.identity else -1

    def _watch(self, machine: ProducerCore) -> None:
        """Observe the order in which records are offered, and when each is accepted."""
        offer = machine.offer

        def offered(record: PendingRecord, now: float) -> Outcome[None]:
            sent = self.ledger.sent[bytes(record.value or b"")]
            self.ledger.offered(sent)
            sent.accepted = offer(record, now)
            if machine._room.waiters:
                self._check_nothing_lingers(machine)
            return sent.accepted

        start_flush = machine.start_flush
        flushes: dict[Outcome[None], int] = {}

        def check_flushes() -> None:
            oldest = next(iter(machine._deliveries._unsettled), machine._deliveries._numbers + 1)
            if any(youngest < oldest for youngest in flushes.values()):
                raise Violation("a flush waits for records that were accepted after it began", process.name)

        def flushing(now: float) -> Outcome[None]:
            before = [each for each in self._with_callback if each.is_accepted]
            flushed = start_flush(now)
            flushes[flushed] = machine._deliveries._numbers

            def ended() -> None:
                del flushes[flushed]
                late = [each for each in before if each.outcome and not each.outcome.done]
                if late and flushed.error is None and not process.core.closed:
                    self._wrong = f"a flush ends before the delivery of {brief(late[0].value)}"

            flushed.when_done(ended)
            return flushed

        memory, add = Memory(self.process.name, lambda: machine._room.used), machine._sender.add

        def added(queue: PartitionQueue, batch: ProducerBatch) -> None:
            add(queue, batch)
            memory.added(batch)

        forget = machine._sender.forget

        def forgotten(topic: str) -> None:
            self._feature("an idle topic is forgotten")
            forget(topic)

        process = self.process
        process.checks += [memory.check, check_flushes, partial(self._check_hurry, machine)]
        machine._sender.forget = forgotten  # type: ignore[method-assign]
        machine._sender.add = added  # type: ignore[method-assign]
        machine.offer = offered  # type: ignore[method-assign]
        machine.start_flush = flushing  # type: ignore[method-assign]

    def _check_hurry(self, machine: ProducerCore) -> None:
        """A batch that a caller awaits is due, or waits for a response."""
        queues = machine._sender.queues
        for queue in queues.partitions.values():
            batch = queue.open
            if batch.hurried and not batch.due:
                if not any(node.in_flight and queue.place in node._collected for node in queues._nodes.values()):
                    raise Violation("an awaited record lingers", f"{self.process.name}: {queue.place}")
                self._feature("awaited records are collected")

    def _check_nothing_lingers(self, machine: ProducerCore) -> None:
        for queue in machine._sender.queues.partitions.values():
            if queue.open is not NOT_OPEN and not queue.open.due:
                raise Violation("a batch lingers while a caller waits for room", f"{self.process.name}: {queue.place}")

    # -- calls -------------------------------------------------------------------------------------------------------

    def _send(self, machine: ProducerCore) -> Script:
        sent, record = self._record()
        way = self.chance.random()
        if way < 0.5:
            self._tasks += 1
            sent.outcome = Outcome()
            self.process.run(self._awaiting(machine, sent, record), self._ended)
            if self.chance.random() < 0.3:
                yield 0.0
        elif way < 0.75:
            self._call_back(sent, record)
            self._take(machine, sent, record)
            _overwrite(record.value)
        else:
            if way < 0.9:
                self._call_back(sent, record)
            within = self.process.core.options.delivery_timeout
            result = yield from self._result(machine.send_soon(record), "room in the buffer", within)
            if isinstance(result, Cancelled) and sent.is_accepted:
                raise Violation("a cancelled call has sent its record", f"{brief(sent.value)}: send_soon")
            self._judge(sent, result)
            _overwrite(record.value)

    def _ended(self) -> None:
        self._tasks -= 1

    def _awaiting(self, machine: ProducerCore, sent: Sent, record: PendingRecord) -> Script:
        within = self.process.core.options.delivery_timeout
        steps = self._received(machine, sent, record) or machine.send(record)
        result = yield from self._result(steps, f"the receipt of {brief(sent.value)}", within)
        if sent.is_accepted and sent.outcome is not None:
            if isinstance(result, Cancelled):
                sent.outcome = None
                self._feature("a send is cancelled after it was accepted")
            else:
                sent.outcome.settle(result)
                self._check_not_stored(sent, result)
        else:
            self._judge(sent, result)

    def _received(self, machine: ProducerCore, sent: Sent, record: PendingRecord) -> Steps[Receipt] | None:
        """Append a record directly, as the face does; returns the wait for its receipt, if that is possible."""
        awaited = AwaitedReceipt()
        given = (record.topic, record.value, record.key, record.timestamp, awaited, True)
        if record.partition is not None or record.headers or record.callback or not machine.appends.append(*given):
            return None
        self.ledger.offered(sent)
        sent.accepted = accepted()
        self._feature("an awaited record is appended directly")

        return machine.received(awaited, (record.topic, -1))

    def _check_not_stored(self, sent: Sent, result: object) -> None:
        """A record that an error calls certainly not stored is in no log."""
        if isinstance(result, DeliveryTimeout) and "and are not stored" in str(result):
            self._feature("a record times out, and is certainly not stored")
            if self.ledger.holds(sent):
                self._wrong = f"{brief(sent.value)} is in the log, and its error says that it is not"

    def _take(self, machine: ProducerCore, sent: Sent, record: PendingRecord) -> None:
        """Call `send_nowait`, as the face does."""
        self.ledger.offered(sent)
        given = (record.topic, record.value, record.key, record.timestamp, record.callback)

        def send() -> None:
            machine.send_nowait(record)
            sent.accepted = accepted()

        try:
            if record.partition is None and not record.headers and machine.appends.append(*given):
                sent.accepted = accepted()
                self.process.pump()
            else:
                self.process.do(send)
        except (BufferFull, DeliveryFailed, Whim, Closed) as error:
            self._heard(error)
            self._judge(sent, error)

    def _send_many(self, machine: ProducerCore, count: int, to: str = "") -> Script:
        topic, made = to or self._topic(), list[Sent]()

        def pairs() -> Iterator[tuple[bytes, bytes | None]]:
            for _ in range(count):
                sent, record = self._record(topic)
                self.ledger.offered(sent)
                sent.accepted = accepted()
                made.append(sent)
                yield sent.value, record.key

        left = pairs()

        def take() -> Any:
            return machine.appends.append_many(topic, left, TIME + self._number, None, 16)

        def make(value: bytes, key: bytes | None) -> PendingRecord:
            made[-1].accepted = None
            return PendingRecord(topic, value, key, None, (), TIME + made[-1].number, None)

        result = yield from self._result(machine.send_many(take, make), "room for many", None)
        if made:
            self._judge(made[-1], result)
        self._feature("send_many")

    def _flush(self, machine: ProducerCore) -> Script:
        mine = [each for each in self.ledger.sent.values() if each.producer == self.process.name and each.is_accepted]
        before = [each for each in self._with_callback if each.is_accepted]
        within = self.process.core.options.delivery_timeout
        result = yield from self._result(machine.flush(), "flush", within)
        if not isinstance(result, Cancelled):
            self._check_callbacks(before)
            if not self.options.acks:
                self.ledger.check_written(mine)

    def _leave(self, machine: ProducerCore) -> Script:
        self._leaving = True
        error = Whim("the user's own") if self.chance.random() < self.impatient else None
        within = CLOSE_TIMEOUT if error else 2 * self.process.core.options.delivery_timeout + FINISH_TIMEOUT
        self._feature("a producer is left by an error" if error else "a producer is left in order")
        began, cut_short = self.process.clock.now, self.ledger.cluster.network.cut_short[self.process.name]
        result = yield from self._result(machine.leave(error), "the end of a producer", within)
        given_up = error or (result if isinstance(result, Cancelled) else None)
        if given_up is None or not getattr(given_up, "__notes__", ()):
            self.ledger.flushed.add(self.process.name)
            late = self.process.clock.now - began >= FINISH_TIMEOUT
            cut_short = self.ledger.cluster.network.cut_short[self.process.name] - cut_short
            if not (self.options.acks or late or given_up) and cut_short:
                raise Violation(
                    "a connection is closed before the node has read records with acks=0", self.process.name
                )
            if not self.options.acks:
                self.ledger.check_written(
                    [e for e in self.ledger.sent.values() if e.producer == self.process.name and e.is_accepted]
                )

    def _result(self, steps: Steps[Any], what: str, within: float | None) -> Generator[float | Wait, None, Any]:
        """Run a call, and return its result or its error."""
        enough: Outcome[None] = Outcome()
        if self.chance.random() < self.impatient:
            self.process.clock.later(self.chance.choice((0.0, 0.001, 0.01, 0.1)), lambda: enough.succeed(None))
        try:
            return (yield from self.process.perform(steps, what, within=within, cancel=enough))
        except (Cancelled, OttlaError, Whim) as error:
            self._heard(error)
            return error

    def _heard(self, error: BaseException) -> None:
        if isinstance(error, DeliveryFailed):
            self.process.history.add("·", self.process.name, str(error))
            self.ledger.reported(self.process.name, error)
        elif isinstance(error, Whim):
            self._feature("what a callback raised is raised by the next call")
        elif isinstance(error, Cancelled):
            self._feature("a call of a producer is cancelled")

    def _judge(self, sent: Sent, result: object) -> None:
        """A call that sends a record has ended; if the record was not accepted, the result must be a reason."""
        if sent.is_accepted:
            return
        sent.withdrawn = True
        reasons = (Cancelled, DeliveryFailed, DeliveryTimeout, BufferFull, Whim, *((Closed,) if self._leaving else ()))
        if not isinstance(result, reasons):
            raise Violation("a record is refused without a reason", f"{brief(sent.value)}: {result!r}")
        if isinstance(result, Cancelled):
            self._feature("a send is cancelled before it is accepted")

    # -- records -----------------------------------------------------------------------------------------------------

    def _topic(self) -> str:
        if self.new and self.whims.random() < 0.2:
            self._feature("a record is sent to a topic that comes into being")
            begun = self.process.clock.now / self.seconds
            return self.whims.choice([name for n, name in enumerate(self.new) if n <= begun * len(self.new)])
        topics = [each for each in self.topics if each not in self.new]
        if RECREATED in self.topics and self.chance.random() < 0.4 and self.process.clock.now >= self.avoided:
            return RECREATED
        return self.chance.choice([each for each in topics if each != RECREATED][: self.keys])

    def _record(self, topic: str = "") -> tuple[Sent, PendingRecord]:
        chance, number = self.chance, self._number
        self._number += 1
        topic = topic or self._topic()
        value = f"{self.process.name}.{number}".encode() + b"." * chance.choice((0, 0, 20, 300))
        key = b"k%d" % chance.randrange(self.keys) if chance.random() < 0.8 else None
        partition = chance.randrange(self.topics[topic]) if chance.random() < 0.1 else None
        idempotent = bool(self.options.idempotent)
        sent = Sent(value, self.process.name, number, topic, self.options.required_acks == -1, idempotent, None)
        self.ledger.sent[value] = sent
        given: bytes | bytearray = value
        if self.whims.random() < 0.1:
            given = bytearray(value)
            self._feature("a value is changed once it is accepted")
        headers: Headers = Nosy(self._from_within) if self.whims.random() < 0.03 else ()
        record = PendingRecord(topic, given, key, partition, headers, TIME + number, None)  # type: ignore[arg-type]
        if self.whims.random() < 0.05:
            seen = ProducerRecord(topic, value, key, partition, (), TIME + number)
            record.callback = Acknowledgement([Interceptor(self._intercepted)], seen, None)
        return sent, record

    # -- callbacks ---------------------------------------------------------------------------------------------------

    def _call_back(self, sent: Sent, record: PendingRecord) -> None:
        sent.outcome = Outcome()
        told = partial(self._told, sent)
        if isinstance(record.callback, Acknowledgement):
            record.callback.callback = told
        else:
            record.callback = told
        self._with_callback.append(sent)

    def _told(self, sent: Sent, result: Receipt | OttlaError) -> None:
        assert sent.outcome is not None
        if sent.outcome.done:
            self._wrong = f"the callback of {brief(sent.value)} is called twice"
        if self._sent_by_callbacks.pop(sent, -1) == self.process.turn:
            self._wrong = f"{brief(sent.value)} was sent by a callback, and delivered without a loop turn between"
        if not sent.is_accepted:
            self._wrong = f"{brief(sent.value)} was refused, and its callback is called"
        sent.outcome.settle(result)
        self._check_not_stored(sent, result)
        if self.process.history.wanted:
            self.process.history.add("·", self.process.name, f"{brief(sent.value)}: {result!r}")
        chance, machine = self.chance, self.machine
        if machine is None or self._leaving:
            return
        if chance.random() < 0.1 and self._number < 2 * self.count:
            self._feature("a callback sends")
            made, answering = self._record()
            if self.whims.random() < 0.5:
                self._call_back(made, answering)
                self._sent_by_callbacks[made] = self.process.turn
            self._take(machine, made, answering)
        if self.reader is not None and self.reader.machine is not None and chance.random() < 0.3:
            self._feature("a callback pauses and resumes a reader")
            self.reader.pause(chance.choice((0.0, 0.05, 0.3)))
        if self.member is not None and self.member.handled is not None and self.whims.random() < 0.3:
            self._feature("a callback commits for a member")
            self.member.commit_handled()
        if chance.random() < 0.02:
            self._feature("a callback raises")
            raise Whim("a callback's")

    def _intercepted(self) -> None:
        """An interceptor gets the result of a record; it may call the client."""
        if self.whims.random() < 0.5:
            self._feature("an interceptor sends")
            self.send_from("an interceptor")

    def send_from(self, who: str) -> None:
        """Send a record from a user's code that runs where calls are allowed."""
        try:
            self.send_one()
        except LocalProtocolError:
            self._wrong = f"{who} runs where it cannot call the client"

    def _from_within(self) -> None:
        """Try a call from a user's method that the machines call: there the client must refuse every call."""
        try:
            self.process.do(lambda: None)
        except LocalProtocolError:
            self._feature("a call from within is refused")
        else:
            self._wrong = "a call from inside the machines is not refused"

    def send_one(self) -> None:
        """Send a record for a listener."""
        if self.machine is not None and not self._leaving and self._number < 2 * self.count:
            self._take(self.machine, *self._record())

    def _check_callbacks(self, told: list[Sent]) -> None:
        for each in told:
            if each.is_accepted and each.outcome is not None and not each.outcome.done:
                raise Violation("a flush ends before the callbacks", f"{brief(each.value)} of {self.process.name}")
        if self._wrong:
            raise Violation("a callback is called wrongly, or not once", self._wrong)

    def _feature(self, what: str) -> None:
        self.ledger.cluster.data.features[what] += 1


class Nosy(tuple[tuple[str, bytes], ...]):
    """Headers that call the client when they are read."""

    def __new__(cls, call: Callable[[], None]) -> "Nosy":
        made = super().__new__(cls, [("nosy", b"")])
        made.call = call
        return made

    call: Callable[[], None]

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        self.call()
        return super().__iter__()


class Interceptor(ProducerInterceptor):
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_acknowledgement(self, record: ProducerRecord, result: Receipt | OttlaError) -> None:
        self._call()


def _overwrite(value: object) -> None:
    """Overwrite a value, as a user may once the call has returned, if its type allows that."""
    if isinstance(value, bytearray):
        value[:] = b"?" * len(value)


class Whim(Exception):
    """An error that a user's own code raises."""


def accepted() -> Outcome[None]:
    done: Outcome[None] = Outcome()
    done.succeed(None)
    return done


@dataclass(slots=True)
class Reading:
    """A user who reads partitions without a group, from their beginning, and sometimes seeks back."""

    process: Process
    ledger: Ledger
    chance: Random
    places: list[Place]
    pattern: bool
    """The user subscribes to a pattern; otherwise to partitions."""
    expected: dict[Place, int] = field(default_factory=dict)
    machine: ConsumerCore | None = None
    astray: Place | None = None
    """The partition sought beyond its end. The user chose no `reset`, so it waits for a seek."""
    _raised: bool = False
    """The reader has got the error of ``astray``."""
    _waits: float = math.inf
    """Since when a topic is known that matches the pattern and is not read."""

    def script(self) -> Script:
        process, chance = self.process, self.chance
        yield from process.connect()
        yield from known(process, sorted({topic for topic, _ in self.places}))
        reset = Time(EARLIEST) if chance.random() < 0.3 else None
        fetcher, whims = Fetcher(process.core, reset=reset), Random(chance.getrandbits(32))
        starts: dict[Place, Start] = {
            place: Offset(0) if chance.random() < 0.5 else Time(EARLIEST) for place in self.places
        }
        self.expected = dict.fromkeys(self.places, 0)
        plan = ConsumerPlan(start=Time(EARLIEST))
        if self.pattern:
            self.ledger.cluster.data.features["topics are found by a pattern"] += 1
            plan, starts = ConsumerPlan(start=Time(EARLIEST), matches=TopicFilter("[a-z]")), {}
            process.checks.append(self._check_topics)
        machine = self.machine = process.do(lambda: ConsumerCore(process.core, plan, fetcher, Tasks()))
        try:
            yield from process.perform(machine.enter(dict(starts), process.name), "opening a consumer")
        except OttlaError as error:
            raise Violation("a reader cannot start", f"{process.name}: {error!r}") from error
        while True:
            try:
                fetched, _ = yield from process.perform(machine.next_batch(process.name), "records")
            except OffsetOutOfRange as error:
                if self.astray is None or self._raised:
                    raise Violation("a reader gets an error twice", f"{process.name}: {error!r}") from error
                self._raised = True
                self.ledger.cluster.data.features["a partition is out of range, and the others are read on"] += 1
                yield from self._bring_back(machine)
                continue
            except OttlaError as error:
                raise Violation("a reader is stopped by a transient error", f"{process.name}: {error!r}") from error
            place = (fetched.topic, fetched.partition)
            records = [
                (record.offset, record.value or b"")
                for batch in fetched.batches
                for record in batch.records()
                if record.offset >= fetched.first_offset
            ]
            if process.history.wanted:
                process.history.add("·", process.name, f"reads {place[0]}-{place[1]} {[each for each, _ in records]}")
            if place[0] == PASSING:  # it begins again whenever it is recreated
                continue
            self.expected[place] = self.ledger.read(process.name, place, self.expected[place], records)
            if chance.random() < 0.3:
                yield chance.uniform(0.0, 0.1)
            if self._raised:
                yield from self._bring_back(machine)
            if reset is None and self.astray is None and whims.random() < 0.03:
                self.astray = whims.choice(self.places)
                yield from process.perform(machine.navigation.seek({self.astray: Offset(10**6)}), "seek")
            if chance.random() < 0.04:
                back = {each: max(0, at - chance.randrange(30)) for each, at in self.expected.items()}
                place = chance.choice([each for each in fetcher.assignment if each in back and each != self.astray])
                process.history.add("·", process.name, f"seeks {place[0]}-{place[1]} to {back[place]}")
                self.expected[place] = back[place]
                yield from process.perform(machine.navigation.seek({place: Offset(back[place])}), "seek")

    def end(self) -> None:
        """Leave the client without leaving the consumer."""
        self.process.close()
        if self.machine is not None and not self.machine.closed:
            raise Violation("a consumer outlives its client", self.process.name)

    def _bring_back(self, machine: ConsumerCore) -> Script:
        """Once all other partitions are read, seek the partition that is out of range back to its last position."""
        place = self.astray
        if place is not None and not self._left(but=place):
            self.astray, self._raised = None, False
            seek = machine.navigation.seek({place: Offset(self.expected[place])})
            yield from self.process.perform(seek, "seek")

    def _check_topics(self) -> None:
        """A known topic that matches is read, and waits for no other topic."""
        process, machine = self.process, self.machine
        if machine is None or machine.closed:
            return
        there = [each for each in machine._subscription.topics if each in process.core.cluster.topics]
        if all((each, 0) in machine.fetcher.places for each in there):
            self._waits = math.inf
            return
        self._waits = min(self._waits, process.clock.now)
        if process.clock.now > max(self._waits, process.thawed) + 1.0:
            raise Violation("a topic that matches is not read", f"{process.name}: {there} since {self._waits:.3f}")

    def pause(self, seconds: float) -> None:
        """Pause some partitions for a while."""
        process, machine = self.process, self.machine
        if machine is None or not (there := machine.fetcher.assignment):
            return
        places = self.chance.sample(there, self.chance.randint(1, len(there)))
        process.do(lambda: machine.navigation.pause(places))

        def resume() -> None:  # only partitions that are left: a topic may have been recreated with fewer
            there = machine.fetcher.assignment
            machine.navigation.resume([each for each in places if each in there])

        if seconds:
            process.clock.later(seconds, lambda: process.do(resume))
        else:
            process.do(resume)

    def behind(self) -> str:
        """The records that are not read yet, for people; empty if there are none."""
        if not self.expected:
            return f"{self.process.name} has not begun"
        left = self._left()
        return f"{self.process.name} has not read {', '.join(left)}" if left else ""

    def _left(self, but: Place | None = None) -> list[str]:
        return [
            f"{topic}-{index} at {self.expected[topic, index]} of {log.high_watermark}"
            for (topic, index) in self.places
            if (topic, index) != but
            and self.expected[topic, index] < (log := self.ledger.cluster.logs[topic, index]).high_watermark
        ]


def known(process: Process, topics: Iterable[str]) -> Script:
    """Request the metadata of topics until the client knows them."""
    for topic in topics:
        while True:
            within = process.core.options.api_timeout
            found: Any = yield from process.asked(
                partial(process.core.metadata.topic, topic), f"topic {topic!r}", within
            )
            if not isinstance(found, OttlaError):
                break
            process.history.add("·", process.name, f"no topic {topic!r}: {found}")
            yield 0.5
