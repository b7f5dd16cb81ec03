"""The producer as a state machine: accepts records and reports their results; makes the decisions of all its calls.

    send, send_soon, send_many, send_nowait ──► fast path ──► the open batch of the partition (`append.py`), mostly
                                             │ no
    send, send_soon, send_many ── offer ─────┤          `Room` if the buffer is full: first come, first served
    send_nowait ── append ───────────────────┤          `BufferFull` if the buffer is full
                                             ▼
                                          _accept ──► known topic: `Accumulator`
                                             └──────► unknown topic: `UnplacedRecords`

    `Sender` sends the batches, `Results` interprets the responses, `Deliveries` reports to the user

    `ProducerLeaving` ends the user's block

Rules:
- A record is accepted or refused at once; once accepted it ends in exactly one way: stored, or failed with a reason,
  within `delivery_timeout` of being offered, whether it waits for space, its topic, a producer id or a response.
- A call that is cancelled before its record is accepted sends nothing; after that delivery goes on, and the next call
  raises failures. `send_soon` and `send_many` let other tasks run if those have not for two milliseconds (`Turns`).
  They do so *before* they accept a record, so that a cancellation there means that it was not accepted. `send` need
  not, because other tasks run while it waits for its record: it only raises a cancellation that is already pending.
- A record belongs to the transaction that was open when its call began, or is refused: serializers, and iterators of
  `send_many`, may take long, and another thread may end the transaction meanwhile.
- Records are accepted in the order of the calls that wait: `send`, `send_soon`, `send_many`. `send_nowait` overtakes
  calls that only let other tasks run (`Turns`), but no call that waits for space: then it is refused.
- Any unusual condition hides the topics from the fast path, so that the next record comes here.

Source: KafkaProducer.java (doSend, close).
"""

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.errors import Closed, ConfigurationError, OttlaError
from ottla.sdk.arguments import is_async
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.events import RunMode
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.accumulator import Accumulator
from ottla.sdk.produce.append import AppendFastPath
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import Keyed, named
from ottla.sdk.produce.placing import Placing
from ottla.sdk.produce.producer_leaving import ProducerLeaving
from ottla.sdk.produce.records import Acknowledgement, AwaitedReceipt, PendingRecord, Receipt
from ottla.sdk.produce.room import Room
from ottla.sdk.produce.sender import Sender
from ottla.sdk.produce.turns import Turns
from ottla.sdk.produce.unplaced_records import UnplacedRecords
from ottla.sdk.steps import Outside, Steps, settled
from ottla.sdk.transaction.producer_transactions import ProducerTransactions
from ottla.sdk.transaction.states import TransactionalProducerState

if TYPE_CHECKING:
    from random import Random  # a machine is given its randomness

log = logger("ottla.sdk.producer")

Take = Callable[[], tuple[Any, Any] | tuple[()] | None]
"""Calls `ProducerCore.appends.append_many`, and returns its result."""


class ProducerCore:
    """One producer on a `ClientCore`; ``rng`` chooses the partitions of keyless records."""

    def __init__(self, core: ClientCore, options: ProducerOptions, rng: "Random") -> None:
        self._core, self._options = core, options
        partitioner = named(options.partitioner, rng)
        self._keyed = isinstance(partitioner, Keyed)
        hash = partitioner.hash if isinstance(partitioner, Keyed) else None
        self.appends = AppendFastPath(hash, options.buffer_memory, check_callback, core.gate.entered, core.threaded)
        """Appends most records directly; `append` and `offer` handle the others."""
        self._delivery_timeout = options.delivery_timeout or core.options.delivery_timeout
        self._room = Room(
            core,
            self.appends,
            options.buffer_memory,
            self._delivery_timeout,
            accept=self._accept,
            full=self._make_all_due,
            changed=self._show_topics,
        )
        doom = self._doom if options.transactional_id is not None else None
        self._deliveries = Deliveries(core, self._room, self._show_topics, doom, self._delivery_timeout)
        self._sender = Sender(core, options, self._deliveries, self.give_up, self._show_topics)
        self._queues = self._sender.queues
        self.placing = Placing(core, options, partitioner, rng, self._queues)
        self._accumulator = Accumulator(core, options, self.placing, self._room, self._deliveries, self._sender)
        self._unplaced = UnplacedRecords(
            core, self.placing, self._accumulator, self._room, self._deliveries, self._delivery_timeout
        )
        identity = self._sender.identity
        self.transactions = identity if isinstance(identity, ProducerTransactions) else None
        self._leaving = ProducerLeaving(core, self, self._deliveries, self.transactions, self._delivery_timeout)
        self._shut = self._closed = False
        self.fatal: OttlaError | None = None
        """The error after which the producer can never send again."""
        self._turns = Turns(core, self._show_topics)
        core.metadata.observers.append(self._metadata_changed)
        core.parts[self] = None
        self._forget = core.on_close(self._client_closes)
        self._gauges = (
            core.metrics.share("buffer-total-bytes", lambda now: options.buffer_memory),
            core.metrics.share("buffer-available-bytes", lambda now: self.appends.free),
            core.metrics.share("waiting-threads", lambda now: len(self._room.waiters)),
        )
        """The producer's parts of the client's gauges, and functions that remove them."""
        self._show_topics()

    # -- calls -------------------------------------------------------------------------------------------------------

    def send(self, record: PendingRecord) -> Steps[Receipt]:
        """Accept a record and wait until it is stored."""
        awaited = AwaitedReceipt()
        record.await_by(awaited)
        try:
            # Not timed: other tasks run anyway while this one waits for its record.
            yield from self._enter(record, timed=False)
        except BaseException:  # refused; or cancelled, perhaps just after it was accepted: then delivery goes on
            self.abandon(awaited, record.aim)
            raise
        return (yield from self.received(awaited, record.aim))

    def received(self, awaited: AwaitedReceipt, aim: TopicPartition) -> Steps[Receipt]:
        """Wait until an accepted record is stored; raise its error if it fails."""
        try:
            if not awaited.done:
                yield awaited
        except BaseException:  # a cancellation: delivery goes on
            self.abandon(awaited, aim)
            raise
        return awaited.result()

    def abandon(self, awaited: AwaitedReceipt, aim: TopicPartition) -> None:
        """The caller does not wait for its record any more: if it fails, or has failed, the next call raises that.

        A refused record does not count: its own call raises the error.
        """
        if awaited.unseen:
            return
        awaited.abandon()
        if awaited.error is not None:
            self._deliveries.count(aim, 1, awaited.error)

    def send_soon(self, record: PendingRecord) -> Steps[None]:
        """Accept a record, waiting for space."""
        yield from self._enter(record)

    def send_many(self, take: Take, make: Callable[[Any, Any], PendingRecord]) -> Steps[None]:
        """Accept many records, waiting for space; ``make`` creates the record of a pair that ``take`` has refused."""
        yield from self.turn()
        while (refused := (yield Outside(take))) is not None:
            if refused:
                record = yield Outside(partial(make, *refused))
                yield from self.send_soon(record)
            else:
                yield from self.turn()

    def send_nowait(self, record: PendingRecord) -> None:
        """Accept a record at once, ahead of calls that let other tasks run.

        Raises:
            BufferFull: there is no space, or other calls wait for it.
        """
        self._deliveries.raise_failures()
        try:
            self.append(record, self._core.now)
        except OttlaError as error:
            self._refused(record, error)
            raise

    @property
    def transaction(self) -> int | None:
        """The number of the open transaction; ``None``: there is none. Any thread may ask."""
        transactions = self.transactions
        return transactions.number if transactions is not None and transactions.is_open else None

    def within(self, number: int, pairs: Iterator[Any]) -> Iterator[Any]:
        """Yield ``pairs`` while the transaction with this number accepts records; in another thread it may have ended.

        Raises:
            LocalProtocolError, TransactionAborted: it accepts no records.
        """
        transactions = self.transactions
        assert transactions is not None, "the number is of a transaction"
        for pair in pairs:  # the user's code, which may take long
            # Python switches threads at calls and backward jumps only, so none comes between these lines and the append
            # in C that follows.
            if transactions.number != number or transactions.state is not TransactionalProducerState.OPEN:
                transactions.check(number)
            yield pair

    def turn(self, *, timed: bool = True) -> Steps[None]:
        """Let other tasks run, as in `Turns.take`.

        Raises:
            LocalProtocolError: the open transaction has ended meanwhile, and another one has begun.
        """
        transactions = self.transactions
        number = transactions.number if transactions is not None else 0
        yield from self._turns.take(timed=timed)
        if transactions is not None and transactions.number != number:
            transactions.check(number)

    def flush(self) -> Steps[None]:
        """Send lingering batches, and wait until everything accepted so far is stored or has failed."""
        yield from settled(self.start_flush(self._core.now))
        self._deliveries.raise_failures()

    def leave(self, error: BaseException | None) -> Steps[None]:
        """End the user's block, with the ``error`` that ended it; without one, flush all records first."""
        yield from self._leaving.leave(error)

    def _enter(self, record: PendingRecord, *, timed: bool = True) -> Steps[None]:
        try:
            yield from self.turn(timed=timed)
            self._deliveries.raise_failures()
            yield from settled(self.offer(record, self._core.now))
        except OttlaError as error:
            self._refused(record, error)
            raise

    def _refused(self, record: PendingRecord, error: OttlaError) -> None:
        """A record was not accepted: call the interceptors, and note on the error that a str may need a serializer."""
        for what, given in (("key", record.key), ("value", record.value)):
            if isinstance(given, str):
                error.add_note(f"or give the producer a serializer: client.producer({what}_serializer=str.encode)")
        if isinstance(acknowledgement := record.callback, Acknowledgement):
            self._core.run(lambda: acknowledgement.intercept(error), RunMode.CALLBACK)

    # -- accepting ---------------------------------------------------------------------------------------------------

    def append(self, record: PendingRecord, now: float) -> None:
        """Accept a record.

        Raises:
            BufferFull: there is no space now, or other calls wait for it; `offer` waits.
            RecordTooLarge: the record would never fit a request.
            EncodeError: key, value or a header is not bytes.
        """
        self._check(record, now)
        if self._room.waiters or not self._room.fits(record):
            raise self._room.refuse()
        self._accept(record, now)

    def offer(self, record: PendingRecord, now: float) -> Outcome[None]:
        """Accept a record as soon as there is space for it and all that were offered before; settled when accepted.

        Fails like `append`, or with `DeliveryTimeout` if there was no space in time. If cancelled, it is not sent.
        """
        accepted: Outcome[None] = Outcome()
        try:
            self._check(record, now)
            if self._room.waiters or not self._room.fits(record):
                return self._room.wait(record)
            self._accept(record, now)
            accepted.succeed(None)
        except OttlaError as error:
            accepted.fail(error)
        return accepted

    def keyless_partition(self, topic: Topic) -> int:
        """The partition for the next records without a key."""
        return self.placing.stick(topic, self._accumulator.buffer(topic), 0)

    def _check(self, record: PendingRecord, now: float) -> None:
        """Check whether a record can be sent at all, and compute its size."""
        if self.fatal:
            raise self.fatal
        if self._shut:
            raise Closed("the producer is closing: it accepts no more records")
        if self.transactions is not None:
            self.transactions.check(record.transaction)
        record.prepare(self._core.options.max_request_size, now + self._delivery_timeout)

    def _accept(self, record: PendingRecord, now: float) -> None:
        known = self._core.cluster.topics.get(record.topic)
        partition = record.partition
        if (
            known is None
            or (partition is not None and partition not in known.partitions)  # the topic may have grown meanwhile
            or record.topic in self._unplaced.topics
            or self.placing.asks_user(record)
        ):
            self._unplaced.add(record, now)
        else:
            self._accumulator.append(record, known, now)

    def _doom(self, place: TopicPartition, count: int, cause: OttlaError) -> None:
        """Doom the transaction of records that have failed."""
        if self.transactions is not None:
            self.transactions.doom(place, count, cause)

    def _show_topics(self) -> None:
        """Let the fast path append if nothing unusual is going on."""
        waiting = self._turns or self._room.waiters
        closed = (
            self.fatal
            or self._shut
            or (self.transactions and self.transactions.state is not TransactionalProducerState.OPEN)
        )
        ordinary = not (waiting or self._deliveries.to_raise or closed)
        self.appends.show(self._accumulator.topics if ordinary and self._keyed else {})

    def _metadata_changed(self, now: float) -> None:
        self._accumulator.metadata_changed(now, self._unplaced.topics)

    # -- flushing and closing ----------------------------------------------------------------------------------------

    def start_flush(self, now: float) -> Outcome[None]:
        """Send lingering batches; settled when everything accepted so far is."""
        self._make_all_due()
        return self._deliveries.flush()

    def shut(self, now: float) -> Outcome[None]:
        """Refuse new records, also records that wait for space, and flush the others."""
        self._shut = True
        self._room.turn_away(Closed("the producer is closing"))
        return self.start_flush(now)

    def withdraw(self, error: OttlaError) -> Outcome[None]:
        """Send no more of the accepted records, and fail them; settled when no request is in flight."""
        self._unplaced.give_up(error)
        self._room.turn_away(error)
        return self._sender.withdraw(error)

    def turn_away(self, error: OttlaError) -> None:
        """Refuse the records that wait for space."""
        self._room.turn_away(error)

    def finish(self) -> Outcome[None]:
        """As `Sender.finish`."""
        return self._sender.finish()

    def _make_all_due(self) -> None:
        self._accumulator.make_all_due()

    def raise_failures(self) -> None:
        """See `Deliveries.raise_failures`."""
        self._deliveries.raise_failures()

    def close(self, error: OttlaError) -> None:
        """Fail the remaining records; the producer cannot be used any more."""
        if self._closed:
            return
        self._closed = True
        self._forget()
        self._accumulator.close()
        self._core.metadata.observers.remove(self._metadata_changed)
        self._core.parts.pop(self, None)
        for leave in self._gauges:
            leave()
        self._sender.close()
        self.give_up(error)

    def _client_closes(self, error: OttlaError) -> None:
        """The client closes before the producer: no later call may report the lost records, so log them."""
        if left := self.pending:
            log.error("records abandoned: the client was closed before its producer", extra={"records": left})
        self.close(error)

    def give_up(self, error: OttlaError) -> None:
        """Fail everything: the producer can never send again."""
        self.fatal = self.fatal or error
        self._sender.fail_all(error)
        self._unplaced.give_up(error)
        self._room.turn_away(error)
        self._deliveries.settle_all()
        self._show_topics()

    # -- to see what happens -----------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Records that are neither stored nor failed."""
        return self._queues.pending + len(self._unplaced) + len(self._room.waiters)

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """Records, and their bytes before compression, that cannot be sent without these nodes."""
        batches = self._queues.waiting_for(nodes)
        unplaced = len(self._unplaced) if nodes is None else 0
        records = sum(each.count for each in batches) + unplaced
        return {"records": records, "bytes": sum(each.size for each in batches)} if records else {}

    def explain(self, now: float) -> Iterator[str]:
        if waiters := self._room.waiters:
            since = now - (next(iter(waiters)).record.deadline - self._delivery_timeout)
            yield f"producer: {len(waiters)} record(s) wait for space in the buffer, the first for {since:.1f} s"
        if self.transactions is not None:
            yield from self.transactions.explain(now)
        yield from self._unplaced.explain()
        yield from self._sender.explain(now)


def check_callback(callback: object) -> None:
    """Raise `ConfigurationError` for a callback that is not a plain function."""
    if not callable(callback) or is_async(callback):
        sort = "written with `async def`" if callable(callback) else "not a function"
        raise ConfigurationError(f"on_delivery is called, and not awaited: {callback!r} is {sort}")
