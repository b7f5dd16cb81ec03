"""What becomes of records: callbacks, failures that nobody has seen, flushes.

Rules:
- Callbacks and interceptors' acknowledgements are code of the user's: they are handed out (`ClientCore.run`), one `Run`
  for a batch. Each is forgotten as it is called, so that a `Run` which Ctrl-C cuts short between two of them goes on.
- What waits for a batch, such as `flush` and `send`, is settled by a `Run` behind it, so that it ends after them, and
  never in a thread of the user's, where Ctrl-C could keep others waiting.
- Failures that no caller or callback was given are counted and raised by the next call; a caller that was cancelled
  counts as none. A callback that raises does no harm: its error is logged, and the first is raised by the next call.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

from ottla.errors import ConfigurationError, DeliveryFailed, InvalidRecord, OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Place
from ottla.sdk.logs import logger
from ottla.sdk.outcome import AfterCallbacks, Outcome
from ottla.sdk.produce.batches import Batch
from ottla.sdk.produce.records import Awaited, DeliveryCallback, PendingRecord, Receipt, awaited_by, unseen
from ottla.sdk.produce.room import Room

log = logger("ottla.sdk.producer")

Callbacks = list[DeliveryCallback | None]
"""Of the records of a batch."""


class Deliveries:
    """Keeps account of a producer's batches; ``changed`` is called when there is something to raise, or no more."""

    def __init__(self, core: ClientCore, room: Room, changed: Callable[[], None]) -> None:
        self._core, self._room, self._changed = core, room, changed
        self._unsettled: OrderedDict[int, int] = OrderedDict()
        """Numbers of batches, and of unplaced records, oldest first; and how many parts each has."""
        self._placed: defaultdict[int, list[int]] = defaultdict(list)
        """By the number of a batch, those of records that a flush has waited for since before they were in it."""
        self._numbers = 0
        self._flushes: list[tuple[int, Outcome[None]]] = []
        """With the number of the youngest that each waits for."""
        self._failed: dict[TopicPartition, int] = {}
        self._first_failure: OttlaError | None = None
        self._callback_error: Exception | None = None
        self.doom: Callable[[TopicPartition, int, OttlaError], None] | None = None
        """Of a transactional producer: called with what fails, in place of raising it later."""
        self.chained = False
        """Set by callbacks that send records themselves."""

    # -- numbers and flushes -----------------------------------------------------------------------------------------

    def number(self) -> int:
        """The number of something new that is to be settled."""
        self._numbers += 1
        self._unsettled[self._numbers] = 1
        return self._numbers

    def flush(self) -> Outcome[None]:
        """Settled once everything that has a number is, and its callbacks were called."""
        outcome: Outcome[None] = AfterCallbacks()
        flush = (self._numbers, outcome)
        self._flushes.append(flush)
        outcome.when_done(lambda: self._flushes.remove(flush) if flush in self._flushes else None)
        self._settle_flushes()
        return outcome

    def placed(self, number: int, batch: Batch) -> bool:
        """The record with the number is in ``batch`` now, and settled with it; whether a flush waits for that."""
        awaited = bool(self._flushes) and number <= self._flushes[-1][0]
        if awaited:
            self._placed[batch.number].append(number)
        else:
            self.settled(number)  # a flush that begins later waits for the batch
        return awaited

    def split(self, batch: Batch) -> None:
        """There are two batches of its number now."""
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
        """Nothing will ever be settled any more."""
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
            if self._core.closed:  # which calls nobody back any more
                outcome.succeed(None)
            else:
                self._core.run(partial(outcome.succeed, None), Place.BEHIND)

    # -- what becomes of batches -------------------------------------------------------------------------------------

    def stored(self, batch: Batch, base_offset: int, append_time: int) -> None:
        self.release(batch)
        place = batch.place

        def call(callbacks: Callbacks) -> None:
            batch.callbacks = callbacks
            batch.call_back(Receipt, *place, base_offset, append_time, self._callback_failed, refuse_awaitable)

        if batch.callbacks:
            self._run(call, batch.callbacks)
        self.settled(batch.number)

    def failed(self, batch: Batch, error: OttlaError, guilty: Mapping[int, OttlaError] | None = None) -> None:
        """A batch fails with ``error``; where some of its records are ``guilty``, these with their own."""
        error_of = _each(error, guilty)
        callbacks, place = batch.callbacks, batch.place
        unheard = batch.count - sum(each is not None for each in callbacks)
        if self.doom is not None:
            self.doom(place, batch.count, error)
        elif unheard:
            self.count(place, unheard, error)

        def call(callbacks: Callbacks) -> None:
            for index in range(len(callbacks)):
                self._call_back(callbacks, index, error_of(index), place)

        if callbacks:
            if self._core.closed:
                for index, callback in enumerate(callbacks):
                    if callback is not None and (awaited := awaited_by(callback)):
                        awaited.fail(error_of(index))
            self._run(call, callbacks)
        self.settled(batch.number)

    def refused(self, record: PendingRecord, error: OttlaError) -> None:
        """A record that was accepted fails before it is in a batch."""
        callback = record.callback
        if self.doom is not None:
            self.doom(record.aim, 1, error)
        if callback is None:
            self.count(record.aim, 1, error)
            return
        if self._core.closed and (awaited := awaited_by(callback)):
            awaited.fail(error)
        self._run(lambda callbacks: self._call_back(callbacks, 0, error, record.aim), [callback])

    def _run(self, call: Callable[[Callbacks], object], callbacks: Callbacks) -> None:
        """Have ``call`` call callbacks; those that only settle an outcome are none of the user's."""

        def run(callbacks: Callbacks) -> None:
            used = self._room.used
            call(callbacks)
            self.chained |= self._room.used > used

        kinds = set(map(type, callbacks))
        if kinds <= {Awaited, type(None)}:
            self._core.run(partial(run, callbacks))
        elif Awaited not in kinds:
            self._core.run(partial(run, callbacks), Place.CALLBACK, resumable=True)
        else:
            users: Callbacks = [None if type(each) is Awaited else each for each in callbacks]
            awaited: Callbacks = [each if type(each) is Awaited else None for each in callbacks]
            self._core.run(partial(run, users), Place.CALLBACK, resumable=True)
            self._core.run(partial(call, awaited), Place.BEHIND)

    def release(self, batch: Batch) -> None:
        """The batch needs no memory any more, nor is it waited for."""
        batch.cancel_timers()
        self._room.give_back(batch.charged)

    def count(self, place: TopicPartition, count: int, error: OttlaError) -> None:
        """Records have failed, and nobody has seen it."""
        if self.doom is not None:
            return
        self._failed[place] = self._failed.get(place, 0) + count
        self._first_failure = self._first_failure or error
        self._changed()

    @property
    def to_raise(self) -> bool:
        return self._first_failure is not None or self._callback_error is not None

    def raise_failures(self) -> None:
        """Raise `DeliveryFailed` for records that failed since the last time without anybody seeing it.

        And what a callback raised, as it is; after those.
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
        except BaseException as raised:  # as in `stored`
            self._callback_failed(raised, error)

    def _callback_failed(self, error: BaseException, result: Receipt | OttlaError) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):  # once the others are called
            self._core.come_back(lambda: self._core.run(partial(_raise, error), Place.CALLBACK))
            return
        if not isinstance(error, Exception):  # a cancellation of something else, which is not the caller's
            error, raised = OttlaError(f"on_delivery raised {error!r}"), error
            error.__cause__ = raised
        log.error("on_delivery raised; the next call to the producer raises it too", exc_info=error)
        self._core.come_back(partial(self._keep, error, result))

    def _keep(self, error: Exception, result: Receipt | OttlaError) -> None:
        """Raise by the next call what a callback raised first."""
        if self._callback_error is None:
            error.add_note(f"raised by on_delivery, which was called with: {result}")
            self._callback_error = error
            self._changed()


def _raise(error: BaseException) -> None:
    raise error


def refuse_awaitable(result: object) -> None:
    """Raise `ConfigurationError` for a callback that returned a coroutine, which nobody would await."""
    if isinstance(result, Coroutine):
        result.close()
        what = f"on_delivery returned a coroutine ({getattr(result, '__qualname__', result)}), which nobody awaits"
        raise ConfigurationError(f"{what}: give it a function, which may start a task of yours")


def _each(error: OttlaError, guilty: Mapping[int, OttlaError] | None) -> Callable[[int], OttlaError]:
    """The error of each record, by its index.

    Source: KIP-467; Sender.java, failBatch.
    """
    if not guilty:
        return lambda index: error
    innocent = InvalidRecord(f"not this one, but others of its batch, which fails as a whole: {error}; send it again")
    return lambda index: guilty.get(index, innocent)
