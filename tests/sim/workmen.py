"""Workmen: group members who turn input records into output records, exactly once, as users of `ottla.sdk.transform`.

Most run the steps of its loop. Some read, send and commit offsets by hand, with a consumer and a producer; when a
transaction of theirs is not committed they end, and another process reads its input again. Some have whims
(`tests.sim.whims`).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import (
    FencedInstanceId,
    InvalidProducerEpoch,
    OttlaError,
    TimeoutExpired,
    TransactionAborted,
    TransactionOutcomeUnknown,
    UnknownTopicOrPartition,
)
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.assignment.leaving import LEAVE_TIMEOUT
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.reading.fetcher import READ_COMMITTED, Fetched, Fetcher, Time
from ottla.sdk.outcome import Outcome, any_of
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.producer_leaving import CLOSE_TIMEOUT
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.transaction.core import ABORT_TIMEOUT, BatchOffset, TransactionCore
from ottla.sdk.transaction.options import TransformOptions
from ottla.sdk.transaction.transform import TransformCore, TransformTransactionCore
from tests.sim.data import PASSING, Place
from tests.sim.scripts import known
from tests.sim.transaction_ledger import ABORTED, COMMITTED, ENDING, UNCERTAIN, Written
from tests.sim.users import Cancelled, Process, Script, Tasks, Violation, Wait, pause
from tests.sim.whims import Whim, Whims

if TYPE_CHECKING:
    from tests.sim.transforms import Transforms

T = TypeVar("T")
Part = Generator[float | Wait, None, T]
"""A part of a script that returns a value."""

GROUP = "billing"
OUT = "o"
"""The topic of the outputs."""
_LATE = 5
"""Most handlers in a world that take longer than a group's or a transaction's timeout."""


class Mishap(Exception):
    """An error of the handler itself."""


@dataclass(slots=True, eq=False)
class Attempt(Written):
    """A transaction of a workman."""

    claims: dict[Place, int] = field(default_factory=dict)
    """The offsets that it commits."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How the handlers of a world behave. Each value is a chance for each block, unless it says otherwise."""

    mishaps: float
    quits: float
    """Per error: the error ends the loop, and another process follows."""
    slow: float
    lost: float
    """Returned batches do not reach the caller."""
    waits: float
    """Per record: the handler awaits the delivery."""
    dawdles: float
    """Per call: a listener is slow."""
    by_hand: float
    """Per member: it uses no transform."""

    @classmethod
    def drawn(cls, chance: Random) -> "Habits":
        return cls(
            mishaps=chance.choice((0.0, 0.05, 0.2)),
            quits=chance.choice((0.0, 0.2, 0.5)),
            slow=chance.choice((0.0, 0.0, 0.05)),
            lost=chance.choice((0.0, 0.0, 0.05)),
            waits=chance.choice((0.0, 0.0, 0.2)),
            dawdles=chance.choice((0.0, 0.0, 0.3)),
            by_hand=chance.choice((0.0, 0.0, 0.3)),
        )


@dataclass(slots=True, eq=False)
class Workman:
    """A member of the group, and its own listener; ``instance`` is its instance id, if it has one."""

    world: "Transforms"
    name: str
    process: Process
    transactional_id: str
    instance: str | None
    chance: Random
    rival: bool
    """Another member has its instance id."""
    stop: Outcome[None] = field(default_factory=Outcome)
    """Settled when it has to leave."""
    ends_by: BaseException | None = None
    """The error that ended its loop."""
    initialized: bool = False
    """Its producer has had an epoch."""
    producer: ProducerCore | None = None
    ending: Outcome[None] = field(default_factory=Outcome)
    """Settled to cancel the call that ends a transaction."""
    timeout: float = field(init=False)
    """Timeout of its transactions."""
    whims: Whims = field(init=False)

    def __post_init__(self) -> None:
        self.timeout = self.chance.choice((3.0, 10.0, 60.0))
        self.whims = Whims(self, Random(f"{self.world.seed} {self.name} whims"))

    def script(self) -> Script:
        process, world, chance = self.process, self.world, self.chance
        yield from process.connect()
        yield from known(process, world.topics)
        produced = ProducerOptions(
            transactional_id=self.transactional_id,
            transaction_timeout=self.timeout,
            linger=chance.choice((0.0, 0.005)),
            batch_size=chance.choice((200, 2000)),
        )
        options = TransformOptions(
            group=GROUP,
            transactional_id=self.transactional_id,
            max_records=chance.choice((None, None, 1, 3, 10)),
            max_bytes=chance.choice((300, 8 * 2**20)),
            max_wait=chance.choice((0.0, 0.05, 0.5)),
            attempts=chance.choice((1, 5, 5)),
        )
        protocol = world.manner.protocol
        consumed = world.manner.plan(GROUP, tuple(world.topics), self.instance, lambda: None, protocol)
        limited = replace(consumed.options, max_records=options.max_records)
        consumed = replace(consumed, start=world.start, options=limited)
        producer = self.producer = process.do(lambda: ProducerCore(process.core, produced, chance))
        reset = Time(EARLIEST) if world.passing is not None else None
        fetcher = Fetcher(process.core, isolation=READ_COMMITTED, reset=reset)
        consumer = process.do(lambda: ConsumerCore(process.core, consumed, fetcher, Tasks(), self))
        try:
            yield from process.perform(consumer.enter({}, self.name), "opening a consumer")
        except OttlaError as error:  # no broker answers
            self.ends_by = error
        else:
            self.whims.begin()
            if chance.random() < world.habits.by_hand:
                world.features["a member does without a transform"] += 1
                yield from self._work_by_hand(consumer, producer)
            else:
                transform = process.do(lambda: TransformCore(process.core, consumer, producer, options))
                while self.ends_by is None and not self.stop.done:
                    self.ends_by = yield from self._turn(transform, options.max_records)
            yield from self._leave(consumer)
        yield from self.whims.end()
        yield from process.perform(producer.leave(self.ends_by), "leaving the producer", within=2 * CLOSE_TIMEOUT)

    # -- with a transform --------------------------------------------------------------------------------------------

    def _turn(self, transform: TransformCore, most: int | None) -> Part[BaseException | None]:
        """One turn of the loop; returns the error that ends the loop, or ``None``."""
        process, chance, world = self.process, self.chance, self.world
        try:
            taken = yield from process.perform(
                transform.next(self.name), "the next batches", cancel=self._until_stop(3.0)
            )
            if most is not None and sum(len(fetched.records()) for fetched, _ in taken) > most:
                raise Violation("a transaction has more records than max_records", self.name)
            if chance.random() < world.habits.lost:
                world.features["batches do not reach their caller"] += 1
                process.do(transform.give_back)
                return None
            transaction = process.do(lambda: transform.transaction(taken))
            if (yield from self.whims.intrude(transform, taken, transaction)):
                return None
            yield from self._begin(transaction)
        except Cancelled as cancelled:
            world.features["a call for batches is cancelled"] += not self.stop.done
            return cancelled if chance.random() < world.manner.leaves else None
        except OttlaError as error:
            return self._judged(error)
        attempt = world.attempt(self)
        for fetched, _ in taken:
            attempt.claims[fetched.topic, fetched.partition] = fetched.next_offset
        world.features["a transaction is about several partitions"] += len(attempt.claims) > 1
        world.say("·", self.name, f"{attempt.name} commits the offsets {attempt.claims}")
        left_by = yield from self._block(self.handle(transaction, [fetched for fetched, _ in taken], attempt))
        if left_by is None and taken:
            yield from self.whims.seek_back(transform.consumer, taken)
        return (yield from self._end(transaction, taken, attempt, left_by))

    def _block(self, block: Script) -> Part[BaseException | None]:
        """Run a block; return the error that it raised, or ``None``."""
        try:
            yield from block
        except Cancelled as raised:
            self.world.features["a block is cancelled"] += 1
            return raised
        except (Mishap, Whim) as raised:
            self.world.features["a handler raises"] += 1
            return raised
        except OttlaError as raised:
            return raised
        return None

    def _end(
        self,
        transaction: TransformTransactionCore,
        taken: Sequence[Taken],
        attempt: Attempt,
        error: BaseException | None,
    ) -> Part[BaseException | None]:
        """End the transaction of a block that raised ``error``; return the error that ends the loop, or ``None``."""
        world, process = self.world, self.process
        ended: BaseException | None = None
        again = False
        within = self._within(error, lost=_lost(taken))
        attempt.outcome = ENDING if error is None else ABORTED
        try:
            self.ending = self._impatience(1.0) or Outcome()
            again = yield from process.perform(transaction.end(error), "the end", within=within, cancel=self.ending)
        except Cancelled as raised:
            world.features["an end is cancelled"] += 1
            ended = raised
        except OttlaError as raised:
            ended = raised
        self._note(transaction, attempt, ended or error, lost=_lost(taken))
        told = f"{attempt.name}: {transaction.committed=}, {again=}, left by {error!r}, ended by {ended!r}"
        if error is None and ended is None and not again and not transaction.committed:
            raise Violation("a block ends without an error, and its transaction is not committed", told)
        if (again or (error is not None and ended is None)) and transaction.committed is not False:
            raise Violation("a failed transaction is not reported as aborted", told)
        if isinstance(ended, TransactionOutcomeUnknown) and transaction.committed is not None:
            raise Violation("a known outcome is reported as unknown", told)
        if again and not isinstance(ended or error, OttlaError | None):
            raise Violation("the end of a block swallows an error that is not a transaction's", told)
        if again:
            world.features["batches come again by themselves"] += 1
            world.say("·", self.name, f"the batches of {attempt.name} are handed out again")
            return None
        if isinstance(ended or error, OttlaError):
            return self._judged(ended or error)
        quits = (ended or error) is not None and self.chance.random() < world.habits.quits
        return (ended or error) if quits else None

    # -- by hand -----------------------------------------------------------------------------------------------------

    def _work_by_hand(self, consumer: ConsumerCore, producer: ProducerCore) -> Script:
        """Read within each transaction. If it is not committed, end; another process reads its records again."""
        attempt: Attempt | None = None
        while self.ends_by is None and not self.stop.done:
            before = attempt
            transaction = TransactionCore(self.process.core, producer)
            try:
                yield from self._begin(transaction)
            except Cancelled:
                continue
            except OttlaError as error:
                self.ends_by = self._judged(error)
                continue
            attempt, taken = self.world.attempt(self), list[Taken]()
            left_by = yield from self._block(self._read_and_handle(transaction, consumer, taken, attempt, before))
            within = self._within(left_by, lost=_lost(taken))
            attempt.outcome = ENDING if left_by is None else ABORTED
            try:
                self.ending = self._impatience(1.0) or Outcome()
                yield from self.process.perform(
                    transaction.leave(left_by), "the end", within=within, cancel=self.ending
                )
            except (Cancelled, OttlaError) as raised:
                left_by = raised
            self._note(transaction, attempt, left_by, lost=_lost(taken))
            if isinstance(left_by, OttlaError):
                self._judged(left_by)
            if not transaction.committed:
                self.ends_by = left_by

    def _read_and_handle(
        self,
        transaction: TransactionCore,
        consumer: ConsumerCore,
        taken: list[Taken],
        attempt: Attempt,
        before: Attempt | None,
    ) -> Script:
        """The block of a transaction; ``before`` is the previous one."""
        process = self.process
        for _ in range(self.chance.choice((1, 1, 2, 4))):
            steps = consumer.poll(self.name, self.chance.choice((0.02, 0.3)))
            found = yield from process.perform(steps, "a batch", cancel=self._until_stop(0.1))
            if found is None:
                return
            fetched, claim = found
            taken.append(found)
            yield from self.handle(transaction, [fetched], attempt)
            place, at = (fetched.topic, fetched.partition), CommittedOffset(fetched.next_offset, fetched.leader_epoch)
            attempt.claims[place] = at.offset
            self.whims.commit_again(consumer, before)
            offset = BatchOffset(consumer.committer, place, at, claim)
            process.do(partial(transaction.commit_offsets, [offset]))
            self.world.say("·", self.name, f"{attempt.name} commits {place} at {at.offset}")
            self.whims.commit_held(consumer, found)
            yield from self.whims.overlap(consumer, taken)

    # -- transactions ------------------------------------------------------------------------------------------------

    def _begin(self, transaction: TransactionCore) -> Script:
        within, cancel = self.process.core.options.api_timeout, self._impatience(0.3)
        yield from self.process.perform(transaction.begin(), "begin", within=within, cancel=cancel)
        self.initialized = True

    def handle(self, transaction: TransactionCore, batches: Sequence[Fetched], attempt: Attempt) -> Script:
        world, process, chance, producer = self.world, self.process, self.chance, transaction._producer
        fails = chance.random() < world.habits.mishaps
        late = chance.random() < world.habits.slow and world.late < _LATE
        world.late += late
        for fetched in batches:
            place = (fetched.topic, fetched.partition)
            if place[0] == PASSING and world.passing is not None:
                world.passing.handled(place, [(each.offset, each.value or b"") for each in fetched.records()])
            for record in fetched.records():
                for leg in range(world.legs(place, record.offset)):
                    value = f"{attempt.name}:{place[0]}-{place[1]}@{record.offset}.{leg}".encode()
                    attempt.values.append(((OUT, world.output(place)), value))
                    transaction.check()
                    made = PendingRecord(OUT, value, None, world.output(place), (), 1000)
                    call = producer.send(made) if chance.random() < world.habits.waits else producer.send_soon(made)
                    yield from process.perform(call, "send", cancel=self._impatience(0.1))
                    if late:
                        late = False
                        yield from self._take_too_long()
                    if fails and chance.random() < 0.3:
                        raise Mishap
            if chance.random() < 0.1:
                yield chance.choice((0.02, 0.1, 0.5))
        if fails:
            raise Mishap

    def _take_too_long(self) -> Script:
        """Exceed the session, the poll interval or the transaction's timeout; the process is frozen, or runs on."""
        manner = self.world.manner
        limits = [each for each in (self.timeout, manner.max_poll_interval, manner.session) if each <= 20]
        seconds = self.chance.choice(limits) * 1.3
        self.world.features["a handler takes too long"] += 1
        if self.chance.random() < 0.5:
            self.process.freeze(seconds)
            seconds = 0.0
        yield seconds

    def _within(self, error: BaseException | None, *, lost: bool) -> float:
        """Seconds within which the end of a block has to be done, without any needless wait."""
        options = self.process.core.options
        if error is not None or lost:
            return ABORT_TIMEOUT
        return ABORT_TIMEOUT + max(options.delivery_timeout, options.api_timeout) + options.api_timeout

    def _note(self, transaction: TransactionCore, attempt: Attempt, error: BaseException | None, *, lost: bool) -> None:
        """Record the end of a transaction, as the user learned it."""
        world, attempt.outcome = self.world, {True: COMMITTED, False: ABORTED, None: UNCERTAIN}[transaction.committed]
        world.features[f"a transaction of a workman is {attempt.outcome}"] += 1
        world.features["a transaction is aborted, as partitions are lost"] += attempt.outcome == ABORTED and lost
        world.features["a transaction fails"] += isinstance(error, TransactionAborted) and not lost
        why = f", by {error!r}" if error is not None else ""
        world.say("·", self.name, f"{attempt.name} is {attempt.outcome}{why}")
        patient = world.options.delivery_timeout >= 5 and self.timeout > 10 and world.options.api_timeout > 5
        if world.calm and patient and isinstance(error, OttlaError) and not lost and not world.returned:
            raise Violation("a transaction fails, and there was no fault", f"{attempt.name}: {error}") from error

    def _judged(self, error: BaseException | None) -> BaseException | None:
        """Judge the error of a call; return it if it ends the loop, or ``None``."""
        world, producer = self.world, self.producer
        world.say("·", self.name, f"{type(error).__name__}: {error}")
        if producer is not None and producer.fatal is not None:
            world.features["a producer is fenced"] += 1
            if world.calm and world.habits.slow == 0.0:
                raise Violation("a producer is fenced, and no other producer fenced it", f"{self.name}: {error}")
            return error
        if isinstance(error, FencedInstanceId):
            if not self.rival:
                raise Violation("a member is fenced, and no other member has its instance id", self.name)
            world.features["a member is fenced"] += 1
            return error
        if isinstance(error, UnknownTopicOrPartition) and not world.calm:
            world.features["a partition cannot be read on"] += 1
            return error  # a node that has just started answers so, maybe for longer than a short `api_timeout`
        if not isinstance(error, TransactionAborted | TimeoutExpired | InvalidProducerEpoch):
            raise Violation("a workman is stopped by a transient error", f"{self.name}: {error!r}")
        world.features["an outcome is unknown"] += isinstance(error, TransactionOutcomeUnknown)
        quits = self.chance.random() < world.habits.quits
        return error if quits else None

    # -- impatience --------------------------------------------------------------------------------------------------

    def _impatience(self, share: float) -> Outcome[None] | None:
        """Sometimes, the outcome that will cancel a call."""
        if self.chance.random() >= self.world.manner.impatient * share:
            return None
        cancelled: Outcome[None] = Outcome()
        after = self.chance.choice((0.0, 0.003, 0.02, 0.1, 1.0))
        self.process.clock.later(after, partial(cancelled.succeed, None))
        return cancelled

    def _until_stop(self, share: float = 1.0) -> Outcome[None]:
        """As `_impatience`, and settled at the latest when this member has to leave."""
        enough = self._impatience(share)
        return self.stop if enough is None else any_of((self.stop, enough))

    # -- the listener ------------------------------------------------------------------------------------------------

    async def assigned(self, places: Sequence[Place]) -> None:
        await self._dawdle("assigned", places)

    async def revoked(self, places: Sequence[Place]) -> None:
        await self._dawdle("revoked", places)

    async def lost(self, places: Sequence[Place]) -> None:
        await self._dawdle("lost", places)

    async def _dawdle(self, what: str, places: Sequence[Place]) -> None:
        self.process.history.add("·", self.name, f"its listener gets {what} {list(places)}")
        if self.chance.random() < self.world.habits.dawdles:
            await pause(self.chance.uniform(0.0, 0.5))

    # -- the end -----------------------------------------------------------------------------------------------------

    def _leave(self, consumer: ConsumerCore) -> Script:
        process, error = self.process, self.ends_by
        process.history.add("·", self.name, f"leaves by {error!r}" if error is not None else "leaves")
        limit = LEAVE_TIMEOUT + CLOSE_TIMEOUT if error is None else 2 * CLOSE_TIMEOUT
        try:
            yield from process.perform(consumer.leave(error, self.name), "leaving the group", within=limit)
        except TimeoutExpired as failed:
            process.history.add("·", self.name, f"leaves its group without LeaveGroup: {failed}")


def _lost(taken: Sequence[Taken]) -> bool:
    return any(claim is None or claim.assignment.over for _, claim in taken)
