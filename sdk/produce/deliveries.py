"""Reports the results of records: callbacks, failures that no caller has seen, flushes.

Rules:
- Callbacks and interceptors' acknowledgements are the user's code: they are handed out (`ClientCore.run`), one `Run`
  per batch. Each is removed before it is called, so that a `Run` interrupted by Ctrl-C can resume with the next one.
- Waits for a batch, such as `flush` and `send`, are settled by a `Run` behind it, so that they end after the callbacks,
  and never in a thread of the user's, where Ctrl-C could keep other callers waiting.
- A callback that does not return ends no wait for ever: after `delivery_timeout`, `send` gets its result, and a flush
  fails with an error that names the thread.
- Failures that neither a caller nor a callback received are counted and raised by the next call; a cancelled caller
  does not receive them. A callback that raises does no harm: its error is logged, and the next call raises the first.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

from ottla.errors import ConfigurationError, DeliveryFailed, InvalidRecord, OttlaError, TimeoutExpired
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import Calling, ClientCore
from ottla.sdk.events import RunMode
from ottla.sdk.logs import logger
from ottla.sdk.outcome import AfterCallbacks, Outcome
from ottla.sdk.produce.batches import ProducerBatch
from ottla.sdk.produce.records import AwaitedReceipt, DeliveryCallback, PendingRecord, Receipt, awaited_by, unseen
from ottla.sdk.produce.room import Room

log = logger("ottla.sdk.producer")

Callbacks = list[DeliveryCallback | None]
"""The callbacks of a batch's records."""


class Deliveries:
    """Tracks the unsettled batches of a producer.

    Args:
        changed: called when there is an error to raise, or no more.
        doom: called with each failure of a transactional producer, which does not raise it later.
        timeout: seconds after which a wait is ended although a callback has not returned.
    """

    def __init__(
        self,
        core: ClientCore,
        room: Room,
        changed: Callable[[], None],
        doom: Callable[[TopicPartition, int, OttlaError], None] | None,
        timeout: float,
    ) -> None:
        self._core, self._room, self._changed, self._doom = core, room, changed, doom
        self._timeout = timeout
        self._unsettled: OrderedDict[int, int] = OrderedDict()
        """Numbers of batches, and of unplaced records, oldest first; and how many parts each was split into."""
        self._placed: defaultdict[int, list[int]] = defaultdict(list)
        """By the number of a batch, the numbers of records that joined it after a flush had begun to wait for them."""
        self._numbers = 0
        self._flushes: list[tuple[int, Outcome[None]]] = []
        """Flushes, with the youngest number that each waits for."""
        self._failed: dict[TopicPartition, int] = {}
        self._first_failure: OttlaError | None = None
        self._callback_error: Exception | None = None
        self._chained = False
        """A callback has sent a record itself."""

    def take_chained(self) -> bool:
        """Whether a callback has sent a record itself since the last time this was asked."""
        chained, self._chained = self._chained, False
        return chained

    # -- numbers and flushes -----------------------------------------------------------------------------------------

    def number(self) -> int:
        """The number of a new batch or record, which has to be settled."""
        self._numbers += 1
        self._unsettled[self._numbers] = 1
        return self._numbers

    def flush(self) -> Outcome[None]:
        """Settled once everything with a number is, and its callbacks have been called."""
        outcome: Outcome[None] = AfterCallbacks()
        flush = (self._numbers, outcome)
        self._flushes.append(flush)
        outcome.when_done(lambda: self._flushes.remove(flush) if flush in self._flushes else None)
        self._settle_flushes()
        return outcome

    def placed(self, number: int, batch: ProducerBatch) -> bool:
        """The numbered record is in ``batch`` now, and is settled with it; returns whether a flush waits for that."""
        awaited = bool(self._flushes) and number <= self._flushes[-1][0]
        if awaited:
            self._placed[batch.number].append(number)
        else:
            self.settled(number)  # a later flush waits for the batch itself
        return awaited

    def split(self, batch: ProducerBatch) -> None:
        """The batch was split: two batches have its number now."""
        self._unsettled[batch.number] += 1

    def settled(self, number: int) -> None:
        parts = self._unsettled.get(number, 1)
        if parts > 1:
            self._unsettled[number] = parts - 1
        else:
            for each in (number, *self._placed.pop(number, ())):
                self._unsettled.pop(each, None)
        self._settle_flushes()

    def settle_all(self) -> None:
        """Settle all flushes: no batch will be settled any more."""
        self._unsettled.clear()
        self._placed.clear()
        self._settle_flushes()

    def _settle_flushes(self) -> None:
        if not self._flushes:
            return
        oldest = next(iter(self._unsettled), self._numbers + 1)
        done = [outcome for number, outcome in self._flushes if number < oldest]
        self._flushes = [each for each in self._flushes if each[0] >= oldest]
        for outcome in done:
            # After a bug the driver may never carry out a `Run` (`Pump._broken`), and callers must not wait for it.
            if self._core.closed:
                outcome.succeed(None)
            else:
                self._run_behind(partial(outcome.succeed, None), partial(self._callbacks_hang, outcome))

    def _callbacks_hang(self, flush: Outcome[None], calling: Calling) -> None:
        why = f"a callback has not returned within {self._timeout:g} s: {calling.explain(self._core.now)}"
        flush.fail(TimeoutExpired(f"all records are stored or have failed, but {why}"))

    def _run_behind(self, call: Callable[[], object], late: Callable[[Calling], object]) -> None:
        """Run ``call`` once the callbacks so far have returned; before that, ``late`` if one of them takes too long."""
        returned: Outcome[None] = Outcome()

        def run() -> None:
            returned.succeed(None)
            call()

        def look(now: float) -> None:
            calling = self._core.calling()
            due = (now if calling is None else calling.since) + self._timeout
            if calling is not None and now >= due:
                late(calling)
            else:
                returned.when_done(self._core.later(due, look).cancel)

        returned.when_done(self._core.later(self._core.now + self._timeout, look).cancel)
        self._core.run(run, RunMode.BEHIND)

    # -- what becomes of batches -------------------------------------------------------------------------------------

    def stored(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        self.release(batch)
        place = batch.place

        def call(callbacks: Callbacks) -> None:
            batch.call_back(
                callbacks, Receipt, *place, base_offset, append_time, self._callback_failed, refuse_awaitable
            )

        if batch.callbacks:
            self._run(call, batch.callbacks)
        self.settled(batch.number)

    def failed(self, batch: ProducerBatch, error: OttlaError, guilty: Mapping[int, OttlaError] | None = None) -> None:
        """Fail a batch with ``error``; if only some of its records are ``guilty``, these get their own errors."""
        error_of = _each(error, guilty)
        callbacks, place = batch.callbacks, batch.place
        unheard = batch.count - sum(each is not None for each in callbacks)
        if self._doom is not None:
            self._doom(place, batch.count, error)
        elif unheard:
            self.count(place, unheard, error)

        def call(callbacks: Callbacks) -> None:
            for index in range(len(callbacks)):
                self._call_back(callbacks, index, error_of(index), place)

        if callbacks:
            if self._core.closed:  # as in `_settle_flushes`
                for index, callback in enumerate(callbacks):
                    if callback is not None and (awaited := awaited_by(callback)):
                        awaited.fail(error_of(index))
            self._run(call, callbacks)
        self.settled(batch.number)

    def refused(self, record: PendingRecord, error: OttlaError) -> None:
        """Fail an accepted record before it is in a batch."""
        callback = record.callback
        if self._doom is not None:
            self._doom(record.aim, 1, error)
        if callback is None:
            self.count(record.aim, 1, error)
            return
        if self._core.closed and (awaited := awaited_by(callback)):  # as in `_settle_flushes`
            awaited.fail(error)
        self._run(lambda callbacks: self._call_back(callbacks, 0, error, record.aim), [callback])

    def _run(self, call: Callable[[Callbacks], object], callbacks: Callbacks) -> None:
        """Have ``call`` run callbacks; callbacks that only settle an outcome do not count as the user's code."""

        def run(callbacks: Callbacks) -> None:
            used = self._room.used
            call(callbacks)
            self._chained |= self._room.used > used

        kinds = set(map(type, callbacks))
        if kinds <= {AwaitedReceipt, type(None)}:
            self._core.run(partial(call, callbacks))
        elif AwaitedReceipt not in kinds:
            self._core.run(partial(run, callbacks), RunMode.CALLBACK, resumable=True)
        else:
            users: Callbacks = [None if type(each) is AwaitedReceipt else each for each in callbacks]
            awaited: Callbacks = [each if type(each) is AwaitedReceipt else None for each in callbacks]
            self._core.run(partial(run, users), RunMode.CALLBACK, resumable=True)
            settle = partial(call, awaited)
            self._run_behind(settle, lambda calling: self._core.run(settle))

    def release(self, batch: ProducerBatch) -> None:
        """Free the memory and the timers of a batch."""
        batch.cancel_timers()
        self._room.give_back(batch.charged)

    def count(self, place: TopicPartition, count: int, error: OttlaError) -> None:
        """Count failed records that no caller or callback has seen."""
        if self._doom is not None:
            return
        self._failed[place] = self._failed.get(place, 0) + count
        self._first_failure = self._first_failure or error
        self._changed()

    @property
    def to_raise(self) -> bool:
        return self._first_failure is not None or self._callback_error is not None

    def raise_failures(self) -> None:
        """Raise `DeliveryFailed` for records that failed since the last call, and that no caller or callback has seen.

        After those, raise the error of a callback, unchanged.
        """
        if self._first_failure is not None:
            failed, cause = self._failed, self._first_failure
            self._failed, self._first_failure = {}, None
            self._changed()
            raise DeliveryFailed(sum(failed.values()), failed, cause)
        if self._callback_error is not None:
            error, self._callback_error = self._callback_error, None
            self._changed()
            raise error

    # -- outside of the gate -----------------------------------------------------------------------------------------

    def _call_back(self, callbacks: Callbacks, index: int, error: OttlaError, place: TopicPartition) -> None:
        callback = callbacks[index]
        if callback is None:
            return
        try:
            callbacks[index] = None
            if unseen(callback):
                self._core.come_back(partial(self.count, place, 1, error))
            refuse_awaitable(callback(error))
        except BaseException as raised:  # of any kind; `_callback_failed` sorts them
            self._callback_failed(raised, error)

    def _callback_failed(self, error: BaseException, result: Receipt | OttlaError) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):  # raised once the other callbacks have been called
            self._core.come_back(lambda: self._core.run(partial(_raise, error), RunMode.CALLBACK))
            return
        if not isinstance(error, Exception):  # a cancellation of something else, not of the caller
            error, raised = OttlaError(f"on_delivery raised {error!r}"), error
            error.__cause__ = raised
        log.error("on_delivery raised; the next call to the producer raises it too", exc_info=error)
        self._core.come_back(partial(self._keep, error, result))

    def _keep(self, error: Exception, result: Receipt | OttlaError) -> None:
        """Keep the first error of a callback for the next call to raise."""
        if self._callback_error is None:
            error.add_note(f"raised by on_delivery, which was called with: {result}")
            self._callback_error = error
            self._changed()


def _raise(error: BaseException) -> None:
    raise error


def refuse_awaitable(result: object) -> None:
    """Raise `ConfigurationError` for a callback that returned a coroutine, which nothing would await."""
    if isinstance(result, Coroutine):
        result.close()
        what = f"on_delivery returned a coroutine ({getattr(result, '__qualname__', result)}), which is never awaited"
        raise ConfigurationError(f"{what}: pass a plain function, which may start a task of yours")


def _each(error: OttlaError, guilty: Mapping[int, OttlaError] | None) -> Callable[[int], OttlaError]:
    """The error of each record, by its index.

    Source: KIP-467; Sender.java, failBatch.
    """
    if not guilty:
        return lambda index: error
    innocent = InvalidRecord(
        f"another record of its batch is invalid, so the whole batch failed: {error}; send it again"
    )
    return lambda index: guilty.get(index, innocent)
