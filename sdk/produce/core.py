"""The producer as a state machine: accepts records and reports their results; makes the decisions of all its calls.

    fast path ──► the open batch of the partition      nearly every record (`append.py`), without an object
      │ no
    append ─────► known topic: `Accumulator`           `BufferFull` if the buffer is full
      │  └──────► unknown topic: `UnplacedRecords`
      │ full
    offer ──────► `Room`: first come, first served     settled once the record is accepted

    `Sender` sends the batches, `Results` interprets the responses, `Deliveries` reports to the user

Rules:
- A record is accepted or refused at once; once accepted it ends in exactly one way: stored, or failed with a reason,
  within `delivery_timeout` of being offered, whether it waits for space, its topic, a producer id or a response.
- A call that is cancelled before its record is accepted sends nothing; after that delivery goes on, and the next call
  raises failures. A call that sends lets other tasks run *before* it accepts, so that a cancellation there means that
  no record was accepted: `send` and `send_many` each time, `send_soon` every two milliseconds.
- Records are accepted in the order of the calls that wait: `send`, `send_soon`, `send_many`. `send_nowait` overtakes
  calls that only let other tasks run (`Turns`), but no call that waits for space: then it is refused.
- Any unusual condition hides the topics from the fast path, so that the next record comes here.

Source: KafkaProducer.java (doSend, close).
"""

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.codec.records import HEADER_SIZE, check_bytes
from ottla.errors import Closed, ConfigurationError, DeliveryFailed, EncodeError, OttlaError, RecordTooLarge
from ottla.sdk.arguments import is_async
from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.core import ClientCore
from ottla.sdk.events import RunMode
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.accumulator import Accumulator
from ottla.sdk.produce.append import RECORD_OVERHEAD, AppendFastPath
from ottla.sdk.produce.deliveries import Deliveries
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import Keyed, named
from ottla.sdk.produce.placing import Placing
from ottla.sdk.produce.records import Acknowledgement, AwaitedReceipt, PendingRecord, Receipt
from ottla.sdk.produce.room import Room
from ottla.sdk.produce.sender import Sender
from ottla.sdk.produce.turns import Turns
from ottla.sdk.produce.unplaced_records import UnplacedRecords
from ottla.sdk.steps import Outside, Shielded, Steps, settled
from ottla.sdk.transaction.producer_transactions import ProducerTransactions
from ottla.sdk.transaction.states import TransactionalProducerState

if TYPE_CHECKING:
    from random import Random  # a machine is given its randomness

log = logger("ottla.sdk.producer")

CLOSE_TIMEOUT = 1.5
"""Seconds for unacknowledged records when the block ends by an error or a cancellation."""
_CHAIN = 100
"""The longest chain of records, each sent by the callback of the one before, that the end of a block waits for."""


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
            full=self._all_due,
            changed=self._show_topics,
        )
        self._deliveries = Deliveries(core, self._room, self._show_topics)
        self._sender = Sender(core, options, self._deliveries, self.give_up, self._show_topics)
        self.placing = Placing(core, options, partitioner, rng, self._sender)
        self._accumulator = Accumulator(core, options, self.placing, self._room, self._deliveries, self._sender)
        self._unplaced = UnplacedRecords(
            core, self.placing, self._accumulator, self._room, self._deliveries, self._delivery_timeout
        )
        identity = self._sender.identity
        self.transactions = identity if isinstance(identity, ProducerTransactions) else None
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
            # Other tasks run while this one waits for its record. A cancellation may come just after space was found.
            yield from self._enter(record, due=False)
            if not awaited.done:
                yield awaited
        except BaseException:  # a cancellation: delivery goes on, and the next call raises a failure
            awaited.unseen = True
            if awaited.error is not None:
                self._deliveries.count(record.aim, 1, awaited.error)
            raise
        return awaited.result()

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

    def turn(self, *, due: bool | None = None) -> Steps[None]:
        """Let other tasks run, as in `Turns.take`.

        Raises:
            LocalProtocolError: the open transaction has ended meanwhile, and another one has begun.
        """
        transactions = self.transactions
        number = transactions.number if transactions is not None else 0
        yield from self._turns.take(due=due)
        if transactions is not None and transactions.number != number:
            transactions.check(number)

    def flush(self) -> Steps[None]:
        """Send lingering batches, and wait until everything accepted so far is stored or has failed."""
        yield from settled(self.start_flush(self._core.now))
        self._deliveries.raise_failures()

    def aclose(self) -> Steps[None]:
        """Flush all records, also records that callbacks send meanwhile, then refuse records and close."""
        try:
            yield from self._abort_transaction()
            until = self._core.now + self._delivery_timeout
            for _ in range(_CHAIN):
                self._deliveries.take_chained()  # of earlier callbacks
                yield from settled(self.start_flush(self._core.now))
                if not self._deliveries.take_chained() or self._core.now >= until:
                    break
            yield from settled(self.shut(self._core.now))
            if self._options.acks == 0:
                yield from settled(self._core.finish(self._sender.channel))
            self._deliveries.raise_failures()
        except GeneratorExit:  # the call is being freed
            raise
        except BaseException as error:  # a cancellation included
            yield from self._hurry(error)
            raise
        finally:
            self.close(Closed("the producer is closed"))

    def leave(self, error: BaseException | None) -> Steps[None]:
        """End the user's block, with the ``error`` that ended it."""
        if error is None:
            yield from self.aclose()
            return
        try:
            yield from self._abort_transaction()
            yield from self._hurry(error)
        finally:
            self.close(Closed("the producer is closed"))

    def wait(self, outcome: Outcome[Any], until: float) -> Steps[None]:
        """Wait for ``outcome``, despite cancellation, but only until the time ``until``."""
        if not outcome.done:
            yield Shielded(self._core.bounded(outcome, until))

    def _abort_transaction(self) -> Steps[None]:
        """Abort a transaction that is open when the block ends: otherwise readers would wait for its timeout."""
        transactions = self.transactions
        if transactions is None or not transactions.is_open:
            return
        log.warning("transaction aborted: its producer was closed", extra={"id": transactions.transactional_id})
        transactions.stop()
        self.withdraw(Closed("the producer was closed before the transaction had ended"))
        yield from self.wait(transactions.abort(self._core.now), self._core.now + CLOSE_TIMEOUT)

    def _enter(self, record: PendingRecord, *, due: bool | None = None) -> Steps[None]:
        try:
            yield from self.turn(due=due)
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

    def _hurry(self, error: BaseException) -> Steps[None]:
        """Give unacknowledged records a moment, and report undelivered ones: no record is lost silently."""
        flushed = self.shut(self._core.now)
        late = self._core.later(self._core.now + CLOSE_TIMEOUT, lambda now: flushed.cancel())
        flushed.when_done(late.cancel)
        if not flushed.done:
            yield Shielded(flushed)
        if left := self.pending:
            log.error("records abandoned: the producer was closed", extra={"records": left})
            error.add_note(f"{left} record(s) of the closed producer may not have been stored")
        for _ in range(2):  # failed records, and an error of a callback
            try:
                self._deliveries.raise_failures()
            except Exception as failed:  # of any kind: it must not hide the error that ended the block
                log.error("records were not delivered", extra={"why": str(failed)})
                error.add_note(str(failed) if isinstance(failed, DeliveryFailed) else repr(failed))

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
            self.transactions.check()
        key, value = record.key, record.value
        if not isinstance(record.topic, str) or not record.topic:
            raise EncodeError(f"a topic's name must be a non-empty str, not {record.topic!r}")
        if record.partition is not None and type(record.partition) is not int:
            raise EncodeError(f"a partition must be an int, not {record.partition!r}")
        if record.headers != () or type(value) is not bytes or not (key is None or type(key) is bytes):
            check_bytes(key, value, record.headers)
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in record.headers:
            size += 10 + (len(name) if name.isascii() else 4 * len(name)) + (len(content) if content else 0)
        if HEADER_SIZE + size > self._core.options.max_request_size:
            limit = self._core.options.max_request_size
            raise RecordTooLarge(
                f"a record for {record.topic!r} has about {size} bytes, and max_request_size is {limit}: raise it, and "
                "the topic's max.message.bytes, or make the record smaller"
            )
        record.size, record.deadline = size, now + self._delivery_timeout

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

    def _show_topics(self) -> None:
        """Let the fast path append if nothing unusual is going on."""
        waiting = self._turns or self._room.waiters
        closed = (
            self.fatal
            or self._shut
            or (self.transactions and self.transactions.state is not TransactionalProducerState.OPEN)
        )
        ordinary = not (waiting or self._deliveries.to_raise or closed)
        self.appends.topics = self._accumulator.topics if ordinary and self._keyed else {}

    def _metadata_changed(self, now: float) -> None:
        self._accumulator.metadata_changed(now, self._unplaced.topics)

    # -- flushing and closing ----------------------------------------------------------------------------------------

    def start_flush(self, now: float) -> Outcome[None]:
        """Send lingering batches; settled when everything accepted so far is."""
        self._all_due()
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

    def _all_due(self) -> None:
        self._accumulator.all_due()

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
        if self._options.acks == 0:
            self._core.retire(self._sender.channel)
        self.give_up(error)

    def _client_closes(self, error: OttlaError) -> None:
        """The client closes before the producer: no later call may report the lost records, so log them."""
        if left := self.pending:
            log.error("records abandoned: the client was closed before its producer", extra={"records": left})
        self.close(error)

    def give_up(self, error: OttlaError) -> None:
        """Fail everything: the producer can never send again."""
        self.fatal = self.fatal or error
        self._sender.stop()
        for queue in list(self._sender.queues.values()):
            for batch in list(queue.batches):
                batch.withdraw()
                queue.drop(batch, stored=None)
                self._deliveries.release(batch)
                if not batch.abandoned:
                    self._deliveries.failed(batch, error)
        self._unplaced.give_up(error)
        self._room.turn_away(error)
        self._deliveries.settle_all()
        self._show_topics()

    # -- to see what happens -----------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Records that are neither stored nor failed."""
        placed = sum(batch.count for queue in self._sender.queues.values() for batch in queue.batches)
        return placed + len(self._unplaced) + len(self._room.waiters)

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """Records, and their bytes before compression, that cannot be sent without these nodes."""
        leader, queues = self._core.cluster.leader, self._sender.queues
        batches = [
            batch
            for place, queue in queues.items()
            if nodes is None or ((led := leader(*place)) is not None and led.id in nodes)
            for batch in queue.batches
        ]
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
