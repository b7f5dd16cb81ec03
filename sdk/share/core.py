"""Implements a share consumer's calls: what each does, and in which order. The face only passes calls on.

    enter ──► next_record ──► acknowledge ──► next_record ──► … ──► leave

Rules:
- A record is handed out once for each delivery. Any number of tasks may ask for records; with ``"implicit"``, asking
  accepts the task's record before, so only one task may ask.
- An acknowledgement is reported exactly once if it fails: to the call that waits for it; otherwise (`acknowledge_soon`,
  or a call that was cancelled) by the next call for a record, by `flush`, or by the end of the block.
- A block that ends normally sends all acknowledgements, closes the sessions, which releases all other records, and
  leaves the group. A block that ends by an error does the same, within a moment.

Source: ShareConsumerImpl.java.
"""

import math
from collections.abc import Container, Iterator, Mapping
from typing import Any

from ottla.codec.apis.share_fetch import ACCEPT, GAP, REJECT, RELEASE, RENEW
from ottla.errors import AcknowledgementFailed, Closed, LocalProtocolError, OttlaError, TimeoutExpired
from ottla.sdk.consume.assignment.subscription import know_topics
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import Flow
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, any_of, own
from ottla.sdk.share.activity_watch import ActivityWatch
from ottla.sdk.share.locked_record import LockedRecord, RecordAcknowledgement, RecordState, SharedPartition
from ottla.sdk.share.member import ShareMember
from ottla.sdk.share.options import ShareConsumerOptions
from ottla.sdk.share.reader import ShareReader
from ottla.sdk.share.unreported_failures import UnreportedFailures
from ottla.sdk.steps import CHECK, TURN, Shielded, Steps

log = logger("ottla.sdk.consumer")

LEAVE_TIMEOUT = 30.0
"""Seconds to send acknowledgements and leave the group when the block ends normally; the same as Java's."""
CLOSE_TIMEOUT = 1.5
"""The same when an error or a cancellation ends the block."""
TURN_EVERY = 0.001
"""Seconds for which records are handed out before other tasks run."""
_CLOSED = "the consumer's block has ended, which releases the record"
_DONE = {GAP: "reported", ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected", RENEW: "renewed"}


class ShareConsumerCore:
    """Runs one share consumer on a `ClientCore`.

    Attributes:
        ended: settled when the consumer is closed, or its client.
        watch: makes the member leave if the user's code hangs.
    """

    def __init__(self, core: ClientCore, topics: tuple[str, ...], options: ShareConsumerOptions) -> None:
        self._core, self._topics, self._options = core, topics, options
        number = core.number()
        self.ended: Outcome[None] = Outcome()
        self._member = ShareMember(
            core, options.group, topics, f"share-member-{number}", self._assign, self._membership_failed
        )
        self._reader = ShareReader(core, options, self._member.id, f"share-{number}")
        self._failed: OttlaError | None = None
        """The error that has ended the membership."""
        self._open: dict[RecordAcknowledgement, None] = {}
        """Acknowledgements without a result."""
        self._failures = UnreportedFailures()
        self._in_hand: LockedRecord | None = None
        """With ``"implicit"``: the record that the next call accepts."""
        self._task: Any = None
        """With ``"implicit"``: the task that waits for a record."""
        self.watch = ActivityWatch(core, options.group, options.max_poll_interval, self._member.leave)
        self._others_ran_at = -math.inf
        """When other tasks last ran."""
        self._left = False
        self._held = [core.metadata.hold(name) for name in topics]
        core.parts[self] = None
        self._forget_end = core.on_close(lambda error: self.close())

    # -- the block ---------------------------------------------------------------------------------------------------

    def enter(self) -> Steps[None]:
        """Open the consumer: the topics are known, and the member begins to join.

        Raises:
            UnknownTopicOrPartition, InvalidTopic, TopicAuthorizationFailed: a topic cannot be read.
        """
        try:
            yield from know_topics(self._core, self._topics, ())
        except BaseException:  # a cancellation included
            self.close()
            raise
        self.watch.begin(self._core.now)
        self._core.members[self._leave_group] = None
        self._member.join(self._core.now)

    def leave(self, error: BaseException | None) -> Steps[None]:
        """End the block, normally or by ``error``.

        Raises:
            AcknowledgementFailed, TimeoutExpired: the block ended normally, but some of the work failed.
        """
        self._left = True
        self.watch.stop()
        self._reader.wake_waiting()
        try:
            if self._core.closed is not None:
                self.close()
                self._failures.note_on(error)
                self._failures.raise_all()
            elif error is None:
                try:
                    yield from self._finish(min(LEAVE_TIMEOUT, self._core.options.api_timeout))
                except (Exception, GeneratorExit):
                    raise
                except BaseException as cancelled:
                    yield from self._finish_at_once(cancelled)
                    raise
            else:
                yield from self._finish_at_once(error)
        finally:
            self.close()

    def _finish(self, limit: float) -> Steps[None]:
        """Send all acknowledgements, close the sessions, leave the group."""
        core = self._core
        until = core.now + limit
        yield core.bounded(self._reader.finish(), until)
        stuck = len(self._open)
        waits = "; ".join(self.explain(core.now)) if stuck else ""
        self._reader.stop(_CLOSED)
        until = max(until, core.now + CLOSE_TIMEOUT / 2)
        yield core.bounded(self._member.close(core.now, until), until)  # an earlier goodbye has a deadline of its own
        if stuck:
            raise TimeoutExpired(f"{stuck} acknowledgement(s) had no result within {limit:g} s: {waits}")
        self._failures.raise_all()

    def _finish_at_once(self, error: BaseException) -> Steps[None]:
        core = self._core
        yield Shielded(core.bounded(self._reader.finish(), core.now + CLOSE_TIMEOUT / 2))
        self._reader.stop(_CLOSED)
        until = core.now + CLOSE_TIMEOUT / 2
        yield Shielded(core.bounded(self._member.close(core.now, until), until))
        self._failures.note_on(error)

    @property
    def closed(self) -> bool:
        return self.ended.done

    def close(self) -> None:
        """Close the consumer at once, and its session with the group, unless `leave` has done so in order."""
        if self.closed:
            return
        self.ended.succeed(None)
        self._forget_end()
        self.watch.stop()
        self._core.members.pop(self._leave_group, None)
        self._reader.stop(_CLOSED)
        self._member.close(self._core.now)
        for release in self._held:
            release()
        self._core.parts.pop(self, None)
        if self._failures:  # if the client closes first, `leave` may raise them, but perhaps it is never called
            failed = self._failures.together()
            log.error(
                "acknowledgements failed when the consumer was closed, and the records will be delivered again",
                extra={"group": self._options.group, "records": len(failed.records), "why": failed.reason},
            )

    def _leave_group(self, why: str, now: float, until: float) -> Outcome[None]:
        """For a client that closes first: send acknowledgements, and leave the group. Settled afterwards."""
        return Flow(self._core, self._leave_until(until), until + CLOSE_TIMEOUT).outcome

    def _leave_until(self, until: float) -> Steps[None]:
        self._left = True
        self.watch.stop()
        yield self._core.bounded(self._reader.finish(), until)
        self._reader.stop(_CLOSED)
        yield own(self._member.close(self._core.now, until))

    def _refuse_closed(self) -> None:
        if self.closed:
            raise Closed("the share consumer is closed, or its client is")
        if self._left:
            raise Closed("the block of the share consumer was left")

    # -- records -----------------------------------------------------------------------------------------------------

    def next_record(self, task: Any, timeout: float | None = None) -> Steps[LockedRecord | None]:
        """The next record; ``None`` if there is none within ``timeout`` seconds.

        Raises:
            OttlaError: the membership has ended, a partition cannot be read, or acknowledgements have failed.
            Closed: the consumer or its client is closed, or a task is leaving the block.
            LocalProtocolError: another task waits for a record, and ``acknowledge`` is ``"implicit"``.
        """
        self._refuse_closed()
        core, implicit = self._core, self._options.acknowledge == "implicit"
        if implicit:
            self._accept_before(task)
        over = None if timeout is None else core.at(core.now + timeout)
        waits = False
        try:
            # Other tasks run before a record is taken, so that a cancellation here loses none.
            if core.now - self._others_ran_at >= TURN_EVERY:
                yield TURN
                self._others_ran_at = core.now
            while True:
                self._refuse_closed()
                self.watch.active(core.now)
                if self.watch.absent:
                    self.watch.begin(core.now)
                    self._member.join(core.now)
                if self._failed is not None:
                    raise self._failed
                self._failures.raise_all()
                if (locked := self._reader.take()) is not None:
                    if implicit:
                        self._in_hand = locked
                    return locked
                if over is not None and over.done:
                    return None
                if not waits:
                    waits = True
                    self.watch.begin_wait()
                    self._reader.begin_wait()
                yield any_of((self._reader.news, over)) if over is not None else own(self._reader.news)
                self._others_ran_at = core.now
        finally:
            if waits:
                self.watch.end_wait(core.now)
                self._reader.end_wait()
            if over is not None:
                over.succeed(None)
            if implicit:
                self._task = None

    def put_back(self, locked: LockedRecord | None) -> None:
        """Take back the record that `next_record` returned last, because it did not reach the caller."""
        if locked is not None:
            self._in_hand = None
            self._reader.put_back(locked)

    def _accept_before(self, task: Any) -> None:
        if self._task is not None:
            raise LocalProtocolError(
                "another task waits for a record of this consumer, and acknowledge is 'implicit': asking would accept "
                "that task's record; choose acknowledge='explicit', or open several consumers of the group"
            )
        self._task = task
        before, self._in_hand = self._in_hand, None
        if before is not None and before.state is RecordState.HANDED_OUT:
            self.acknowledge_soon(before, ACCEPT)
        elif before is not None and before.kind is None and before.lost is not None:
            self._report(before.lost)  # its lock expired while the loop worked on it

    # -- acknowledgements --------------------------------------------------------------------------------------------

    def accept(self, locked: LockedRecord) -> Steps[None]:
        return self.acknowledge(locked, ACCEPT)

    def release(self, locked: LockedRecord) -> Steps[None]:
        return self.acknowledge(locked, RELEASE)

    def reject(self, locked: LockedRecord) -> Steps[None]:
        return self.acknowledge(locked, REJECT)

    def accept_soon(self, locked: LockedRecord) -> None:
        self.acknowledge_soon(locked, ACCEPT)

    def release_soon(self, locked: LockedRecord) -> None:
        self.acknowledge_soon(locked, RELEASE)

    def reject_soon(self, locked: LockedRecord) -> None:
        self.acknowledge_soon(locked, REJECT)

    def lock_left(self, locked: LockedRecord, now: float) -> float:
        """Seconds for which the record is surely still locked; 0: not any more, or it is acknowledged."""
        return max(0.0, locked.lock.safe_until - now) if locked.state is RecordState.HANDED_OUT else 0.0

    def acknowledge(self, locked: LockedRecord, kind: int) -> Steps[None]:
        """Acknowledge a record, and wait until the leader has stored it.

        If cancelled, the acknowledgement goes on, and the next call reports its failure.

        Raises:
            AcknowledgementFailed: it does not count, or its outcome is unknown.
            LocalProtocolError: the record is acknowledged already.
        """
        yield CHECK
        acknowledgement = self._begin(locked, kind)
        yield from self._result(acknowledgement)

    def acknowledge_soon(self, locked: LockedRecord, kind: int) -> None:
        """Acknowledge a record; the next call reports a later failure. Raises the same errors as `acknowledge`."""
        acknowledgement = self._begin(locked, kind)
        acknowledgement.outcome.when_done(lambda: self._report_failed(acknowledgement))

    def renew(self, locked: LockedRecord) -> Steps[None]:
        """Lock a record for as long again, from now on.

        Raises:
            AcknowledgementFailed: the record is not locked any more.
            LocalProtocolError: the record is acknowledged already.
            UnsupportedVersion: the broker cannot renew locks.
        """
        yield CHECK
        self._refuse(locked)
        renewal = locked.renew()
        yield own(renewal.outcome)
        renewal.outcome.result()

    def flush(self) -> Steps[None]:
        """Wait until every acknowledgement so far has a result.

        Raises:
            AcknowledgementFailed: some of them do not count, or their outcome is unknown.
            TimeoutExpired: not all have a result within `api_timeout`.
        """
        core = self._core
        timeout = core.options.api_timeout
        until = core.now + timeout
        for each in list(self._open):
            if not each.outcome.done:
                yield core.bounded(own(each.outcome), until)
            if not each.outcome.done:
                waits = "; ".join(self.explain(core.now))
                raise TimeoutExpired(
                    f"{len(self._open)} acknowledgement(s) had no result within {timeout:g} s: {waits}"
                )
        self._failures.raise_all()

    def _begin(self, locked: LockedRecord, kind: int) -> RecordAcknowledgement:
        self._refuse(locked)
        acknowledgement = locked.acknowledge(kind)
        self._open[acknowledgement] = None
        acknowledgement.outcome.when_done(lambda: self._open.pop(acknowledgement, None))
        self._reader.changed()
        return acknowledgement

    def _refuse(self, locked: LockedRecord) -> None:
        """Refuse a record that cannot be acknowledged."""
        self.watch.active(self._core.now)
        if locked.kind is not None:
            where = f"{locked.partition} at offset {locked.offset}"
            raise LocalProtocolError(f"the record {where} is {_DONE[locked.kind]} already: acknowledge it once")
        if locked.lost is not None:
            raise AcknowledgementFailed(locked.lost.reason, locked.lost.records)

    def _result(self, acknowledgement: RecordAcknowledgement) -> Steps[None]:
        outcome = acknowledgement.outcome
        try:
            if not outcome.done:
                yield own(outcome)
        except BaseException:  # a cancellation: the acknowledgement goes on
            outcome.when_done(lambda: self._report_failed(acknowledgement))
            raise
        if outcome.error is not None:
            raise _copy(outcome.error)

    def _report_failed(self, acknowledgement: RecordAcknowledgement) -> None:
        error = acknowledgement.outcome.error
        if isinstance(error, AcknowledgementFailed):
            self._report(error)

    def _report(self, error: AcknowledgementFailed) -> None:
        """Have the next call raise the error."""
        self._failures.add(error)
        self._reader.wake_waiting()

    # -- the group's side --------------------------------------------------------------------------------------------

    def _assign(self, partitions: frozenset[SharedPartition], now: float) -> None:
        self._reader.assign(partitions, now)

    def _membership_failed(self, error: OttlaError, now: float) -> None:
        self._failed = error
        self._reader.wake_waiting()

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        return self._reader.waiting(nodes)

    def explain(self, now: float) -> Iterator[str]:
        yield from self._member.explain(now)
        yield from self._reader.explain(now)
        group = f"share group {self._options.group!r}"
        if self._open:
            yield f"{group}: {len(self._open)} acknowledgement(s) wait for their result"


def _copy(error: OttlaError) -> OttlaError:
    """The error to raise: several callers may wait for the same outcome."""
    return AcknowledgementFailed(error.reason, error.records) if isinstance(error, AcknowledgementFailed) else error
