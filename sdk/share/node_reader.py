"""Sends the requests of a share consumer to one leader, one after the other: `NodeReader._serve`, from top to bottom.

Rules:
- A session has one request in flight. So when a record is delivered again, because its lock expired, the client knows
  before it sends an acknowledgement of the delivery before, which then fails: it would count for the new delivery.
- Acknowledgements go out before the next ShareFetch.
- A lost response, and every error of a whole request, ends the session: the next one begins with epoch 0.
- NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH: the locks are gone with the leader, so the records are lost.
- INVALID_RECORD_STATE: one of the records is not locked any more, and no acknowledgement of the partition counts. They
  are sent again in halves.
- Other retriable errors of a partition: its acknowledgements are sent again after a pause, in which ShareFetches go on,
  until the locks have expired. A report of a gap has no lock, and is not sent again: another delivery has the gap.

Source: ShareConsumeRequestManager.java; SharePartition.java, acknowledge.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from ottla.codec.apis.share_acknowledge import PartitionData as AcknowledgedPartition
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.codec.apis.share_fetch import GAP, RELEASE, RENEW, PartitionData, ShareFetchRequest, ShareFetchResponse
from ottla.errors import (
    FencedLeaderEpoch,
    GroupAuthorizationFailed,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotLeaderOrFollower,
    OttlaError,
    ShareSessionNotFound,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.consume.partitions.record_sets import located
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.flow import LoneFlow, ask, sleep
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, own
from ottla.sdk.share.acquired import acquired
from ottla.sdk.share.lock_watch import ADVICE
from ottla.sdk.share.locked_record import Lock, LockedRecord, RecordAcknowledgement, RecordTally, SharedPartition
from ottla.sdk.share.member import NO_SHARE_GROUPS
from ottla.sdk.share.share_metrics import ShareMetrics
from ottla.sdk.share.share_session import ShareFetchLimits, ShareSession
from ottla.sdk.steps import Steps, settled
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

_LEADER_MOVED = (NotLeaderOrFollower, FencedLeaderEpoch)
_NOT_STORED = (
    ShareSessionNotFound,
    InvalidShareSessionEpoch,
    UnsupportedVersion,
    GroupAuthorizationFailed,
    InvalidRequest,
)
"""Errors of a request that the broker answers before it looks at acknowledgements."""


class Reading(Protocol):
    """The consumer's side of its readers: `ShareReader`."""

    def allowance(self, reader: "NodeReader") -> int:
        """The number of records to ask the node for now; 0: none."""
        ...

    def patience(self, reader: "NodeReader") -> float:
        """Seconds for which the node may hold back the response."""
        ...

    def acquired(self, reader: "NodeReader", lock: Lock, records: Sequence[LockedRecord]) -> None:
        """Take over new records, in order."""
        ...

    def delivered_again(self, partition: SharedPartition, offset: int) -> None:
        """Take note that the record at this offset is about to be delivered, perhaps not for the first time."""
        ...

    def renewed(self, lock: Lock) -> None:
        """Take note of a new lock, which renewed records have."""
        ...

    def refused(
        self, partition: SharedPartition, error: OttlaError, leader: tuple[int, int], nodes: Iterable[Node]
    ) -> None:
        """Act on a partition's error; ``leader``: the id and the epoch of its leader, or -1."""
        ...

    def failed(self, error: OttlaError) -> None:
        """Have the user's next call raise ``error``."""
        ...

    def changed(self) -> None:
        """Take note that there may be room for more records."""
        ...


class NodeReader:
    """Reads the partitions that one node leads.

    Attributes:
        node: its address may change.
        wanted: the partitions to read.
        reserved: the number of records that a ShareFetch in flight may bring.
        has_more: the last ShareFetch brought records.
        asked_at: when the last ShareFetch went out.
    """

    def __init__(
        self, core: ClientCore, node: Node, session: tuple[str, str, str, bool], reading: Reading, tally: RecordTally
    ) -> None:
        group, member_id, self._channel, self._exact = session
        self._core, self.node, self._reading, self._tally = core, node, reading, tally
        self._group = group
        self.wanted: Mapping[SharedPartition, None] = {}
        self.reserved = 0
        self.has_more = False
        self.asked_at = 0.0
        self.session = ShareSession(group, member_id, self.wake)
        self._metrics = ShareMetrics(core.metrics)
        self._failures = 0
        self._trouble = ""
        """Why the last session was lost; empty while one works."""
        self._refusals = 0
        """The number of pauses of acknowledgements, one after the other."""
        self._resuming: Timer | None = None
        self._closing = False
        self._news: Outcome[None] = Outcome()
        """Settled if there may be something to send; replaced before each look."""
        self._serving = LoneFlow(core, self._serve())

    # -- for the reader ----------------------------------------------------------------------------------------------

    def want(self, wanted: Mapping[SharedPartition, None], node: Node) -> None:
        """Read these partitions from now on."""
        if wanted != self.wanted or node != self.node:
            self.wanted, self.node = wanted, node
            self.wake()

    def wake(self) -> None:
        """Look whether there is something to send."""
        self._news.succeed(None)

    def finish(self) -> Outcome[None]:
        """Send the acknowledgements that wait, and close the session. Settled afterwards."""
        self._closing = True
        self.wake()
        if not self.session.is_open and not self.reserved:
            self._serving.cancel()
        return self._serving.outcome

    def stop(self, why: str) -> None:
        """Send nothing more in the session; let the broker close it, if it is connected."""
        was_open = self.session.is_open
        self._serving.cancel()
        if self._resuming is not None:
            self._resuming.cancel()
        self._metrics.close()
        self.session.end(why, unknown=True)
        if was_open:
            self._core.soon(partial(self._close_late, self.session.close()))

    def _close_late(self, request: ShareAcknowledgeRequest, now: float) -> None:
        """Close the session on the ordinary channel, because the broker may hold back a ShareFetch on the other one."""
        if self._core.closed is None and self._core.connected(self.node):
            ask(self._core, self.node, request, now + self._core.options.request_timeout)

    def explain(self) -> Iterator[str]:
        """Lines for people about problems."""
        if self._trouble:
            attempts = f"{self._failures} attempt(s) failed, last error: {self._trouble}"
            yield f"share group {self._group!r}: no share session with node {self.node.id}: {attempts}"

    # -- requests ----------------------------------------------------------------------------------------------------

    def _serve(self) -> Steps[None]:
        """Send one request after the other, as long as there is something to send."""
        while True:
            self._news = Outcome()
            if self.session.is_due:
                yield from self._acknowledge()
            elif self._closing and self.session.is_paused:
                yield own(self._news)
            elif self._closing or not (self.wanted or self.session.is_locking):
                yield from self._close()
                if self._closing:
                    return
                yield own(self._news)
            elif most := self._reading.allowance(self):
                yield from self._fetch(most)
            else:
                yield own(self._news)

    def _fetch(self, most: int) -> Steps[None]:
        """Ask for records, and take over the locked ones."""
        core, options = self._core, self._core.options
        limits = ShareFetchLimits(self._reading.patience(self), options.fetch_max_bytes, most, self._exact)
        self.reserved, self.asked_at = most, core.now
        sent = core.now

        def build(version: int) -> ShareFetchRequest:
            nonlocal sent
            sent = core.now
            return self.session.fetch(self.wanted, limits)

        try:
            answer: ShareFetchResponse = yield from settled(
                ask(
                    core,
                    self.node,
                    ShareFetchRequest,
                    core.now + limits.wait + options.request_timeout,
                    channel=self._channel,
                    build=build,
                )
            )
            if answer.error_code:
                raise broker_error(answer.error_code, f"ShareFetch: {answer.error_message or ''}", repeatable=True)
        except OttlaError as error:
            self.reserved = 0
            yield from self._failed(error)
            return
        self._metrics.fetched(core.now - sent, answer.throttle_time_ms / 1000, core.now)
        self.session.answered()
        self._failures, self._trouble, self.reserved, self.has_more = 0, "", 0, False
        seconds = answer.acquisition_lock_timeout_ms / 1000
        self._take(answer, Lock(sent + seconds, core.now + seconds, seconds))
        self._reading.changed()

    def _acknowledge(self) -> Steps[None]:
        """Send acknowledgements that wait, and act on their results."""
        core = self._core
        sent = core.now
        try:
            answer: ShareAcknowledgeResponse = yield from settled(
                ask(
                    core,
                    self.node,
                    ShareAcknowledgeRequest,
                    core.now + core.options.request_timeout,
                    channel=self._channel,
                    build=self.session.acknowledge,
                )
            )
            if answer.error_code:
                raise broker_error(answer.error_code, f"ShareAcknowledge: {answer.error_message or ''}")
        except OttlaError as error:
            yield from self._failed(error)
            return
        self.session.answered()
        seconds = answer.acquisition_lock_timeout_ms / 1000
        lock = Lock(sent + seconds, core.now + seconds, seconds)
        renewed = False
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        for partition, result, acknowledgements in list(self.session.results(answer)):
            self._metrics.sent(len(acknowledgements), core.now)
            if result is None or result.error_code:
                self._refused(partition, result, acknowledgements, nodes)
                self._metrics.failed(sum(each.outcome.error is not None for each in acknowledgements), core.now)
                continue
            for each in acknowledgements:
                renewed |= each.kind == RENEW
                each.stored(lock)
        if renewed:
            self._reading.renewed(lock)
        self._reading.changed()
        if not self.session.is_paused:
            self._refusals = 0
        elif self._resuming is None:
            self._resuming = core.later(core.now + core.backoff(self._refusals), self._resume)
            self._refusals += 1

    def _resume(self, now: float) -> None:
        """Send acknowledgements again, after their pause."""
        self._resuming = None
        self.session.resume()

    def _close(self) -> Steps[None]:
        """Close the session, if the broker has it."""
        if not self.session.is_open:
            return
        request, until = self.session.close(), self._core.now + self._core.options.request_timeout
        try:
            yield from settled(ask(self._core, self.node, request, until, channel=self._channel))
        except OttlaError as error:
            log.info(
                "share session not closed: the broker releases its records when the connection ends",
                extra={"group": self._group, "node": self.node.id, "why": str(error)},
            )
        self.session.end("the consumer's block has ended, which releases the record", unknown=False)

    # -- responses ---------------------------------------------------------------------------------------------------

    def _take(self, answer: ShareFetchResponse, lock: Lock) -> None:
        """Take over the records of a response; report the errors of partitions."""
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        new: list[LockedRecord] = []
        size = 0
        for topic in answer.responses:
            for data in topic.partitions:
                size += len(data.records or b"")
                partition = self.session.partition(topic.topic_id, data.partition_index)
                if partition is None:
                    continue
                if data.error_code:
                    error = broker_error(data.error_code, str(partition), repeatable=True)
                    if isinstance(error, _LEADER_MOVED):
                        self._lose(partition, error)
                    hint = data.current_leader
                    self._reading.refused(partition, error, (hint.leader_id, hint.leader_epoch), nodes)
                elif data.acquired_records:
                    self.has_more = True
                    new += self._open(partition, data, lock)
        self._metrics.received(size, len(new), self._core.now)
        self._reading.acquired(self, lock, new)

    def _open(self, partition: SharedPartition, data: PartitionData, lock: Lock) -> list[LockedRecord]:
        """The records that the leader has locked in one partition."""
        found = acquired(data.records, data.acquired_records, self._core.options.fetch_batch_memory)
        new: list[LockedRecord] = []
        for record, delivery_count in found.records:
            self._reading.delivered_again(partition, record.offset)
            locked = LockedRecord(self.session, self._tally, partition, record, delivery_count, lock)
            self.session.hold(locked)
            new.append(locked)
        for kind, ranges in ((GAP, found.gaps), (RELEASE, found.unread)):
            for first, last in ranges:
                self.session.queue_for(partition, RecordAcknowledgement(first, last, kind, Outcome()))
        if found.damage is not None:
            self._reading.refused(partition, located(found.damage, str(partition)), (-1, -1), ())
        return new

    def _refused(
        self,
        partition: SharedPartition,
        result: AcknowledgedPartition | None,
        acknowledgements: list[RecordAcknowledgement],
        nodes: Sequence[Node],
    ) -> None:
        """Act on refused acknowledgements of a partition."""
        if result is None:
            for each in acknowledgements:
                each.failed("the leader's response lacks the partition")
            return
        error = broker_error(result.error_code, result.error_message or str(partition))
        if isinstance(error, InvalidRecordState) and len(acknowledgements) > 1:
            self.session.refused(partition, acknowledgements)
        elif isinstance(error, _LEADER_MOVED):
            self._lose(partition, error)
            hint = result.current_leader
            self._reading.refused(partition, error, (hint.leader_id, hint.leader_epoch), nodes)
        elif error.retriable:
            self._send_again(partition, error, acknowledgements)
        else:
            for each in acknowledgements:
                each.failed(f"the leader refuses it: {error}")

    def _send_again(
        self, partition: SharedPartition, error: OttlaError, acknowledgements: list[RecordAcknowledgement]
    ) -> None:
        """Send acknowledgements again later, except for those without a lock."""
        again: list[RecordAcknowledgement] = []
        for each in acknowledgements:
            if each.locked is None:
                continue
            lock = each.locked.lock
            if lock.gone_at > self._core.now:
                again.append(each)
            else:  # its timer has left it to the leader, because it was in flight
                each.refused(unsure=True)
                each.locked.lose(f"its lock has expired after {lock.seconds:g} s: {ADVICE} (the leader said: {error})")
        if again:
            self.session.again(partition, again)

    def _lose(self, partition: SharedPartition, error: OttlaError) -> None:
        """Lose the records of a partition whose leader has moved: the new leader knows no locks."""
        for each in self.session.locked(partition):
            each.lose(f"node {self.node.id} does not lead the partition any more, so the lock is gone ({error})")

    def _failed(self, error: OttlaError) -> Steps[None]:
        """Act on an error of a whole request: end the session, and wait before the next one."""
        why = f"the share session with node {self.node.id} is lost: {error}"
        lost = self.session.end(why, unknown=not isinstance(error, _NOT_STORED))
        self._metrics.failed(sum(each.kind is not None for each in lost), self._core.now)
        if lost:
            log.warning(
                "share session lost with locked records, which will be delivered again",
                extra={"group": self._group, "node": self.node.id, "records": len(lost), "why": str(error)},
            )
        if isinstance(error, UnsupportedVersion):
            error = UnsupportedVersion(error.detail, told=NO_SHARE_GROUPS)
        if not error.retriable:
            self._reading.failed(error)
        self._failures, self._trouble = self._failures + 1, str(error)
        self._reading.changed()
        if not self._closing:
            yield from sleep(self._core, self._core.backoff(self._failures - 1))
