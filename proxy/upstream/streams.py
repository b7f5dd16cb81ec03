"""What one producer id sends to one partition of upstream: numbered without a gap, stored once, in order.

A broker compares nothing but producer id, epoch, first and last sequence. So the worst that can happen is a false
duplicate: other records under a sequence that is stored already, acknowledged and never stored.

Rules:
- A sequence that may have been sent is never given to other records in its epoch. Where a batch is refused, what
  follows it is renumbered in the next epoch, from 0 on, once nothing is in flight.
- At most five batches are unsettled, because a broker remembers five. What comes beyond waits, and shares batches with
  what waits there.
- Until upstream has stored something in an epoch its batches travel one by one: a broker without state for a producer
  takes any sequence, and so a second batch in place of a first that was lost. The same after every error, and after a
  long rest.
- A stream remembers a refusal for size: later batches are at most as large as the halves of the refused one, until the
  stream rests or the topic changes. Each further refusal would cost a pause and an epoch.
- A batch whose outcome is unknown is sent again, the same bytes under the same sequence: upstream stores it once. If
  it is refused then, whatever for, or not taken within the time that there is, nobody can ever know: also a limit of
  upstream's may be another than it was for the first attempt.
- Another topic of the same name knows nothing of what was sent to the one before it. What goes by the topic's id
  (Produce 13) cannot have come to another one, so it goes there under the next epoch; of what goes by name nobody can
  know. Nor of what may be stored by a topic's id that upstream names again: it had not been replaced, a node lagged
  behind. What surely went nowhere is given back, for its client to send it again: keys may have other places now.
- The epoch is the proxy's own. A client that raises its epoch in one partition may still repeat an old batch in
  another, and both may go to the same partition here.
- In transactions the epoch is the client's, because upstream's coordinator gave it. What follows a refused batch gets
  its sequence then, as clients do it themselves, where it is sure that none of them is stored. Otherwise the numbers of
  this epoch are lost: the transaction cannot be committed, and nothing more is sent before the next epoch.

Source: ProducerStateManager.java, ProducerAppendInfo.java (NUM_BATCHES_TO_RETAIN = 5).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ottla.codec.frames import MAX_FRAME
from ottla.codec.wire import NO_UUID, Buffer
from ottla.errors import (
    BY_CODE,
    ConcurrentTransactions,
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    LeaderNotAvailable,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLarge,
    RequestTimedOut,
    TransactionAbortable,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.proxy.upstream.batches import Batch, Part, Result, built

if TYPE_CHECKING:
    from uuid import UUID

UNSETTLED = 5
"""Batches that may be; a broker remembers as many."""
LAST_EPOCH = 2**15 - 1
_SEQUENCES = 2**31

STORED = frozenset({0, DuplicateSequenceNumber.code})
SEQUENCE_LOST = frozenset(
    each.code
    for each in (
        OutOfOrderSequenceNumber,
        UnknownProducerId,
        InvalidProducerEpoch,
        ProducerFenced,
        InvalidProducerIdMapping,
    )
)
"""Upstream's idea of the producer differs from the proxy's."""
SURELY_NOT_STORED = frozenset(
    each.code for each in (NotEnoughReplicas, CorruptMessage, UnknownTopicId, ConcurrentTransactions)
)
"""Retriable errors that say that nothing was stored. Others, NOT_LEADER_OR_FOLLOWER too, can come after the append."""
TOO_LARGE = frozenset(each.code for each in (MessageTooLarge, RecordListTooLarge))
WITHDRAWN = Result(OutOfOrderSequenceNumber.code, message="a batch before it failed")
ABORTED = Result(TransactionAbortable.code, message="the transaction is aborted")
UNAWAITED = Result(NotEnoughReplicas.code, message="the proxy's buffer is full, and the client has gone")
RECREATED = Result(NotLeaderOrFollower.code, message="the topic was deleted and created again")
"""Sent again, the records go to the partitions that it has now."""
OVERTAKEN = Result(InvalidProducerEpoch.code, message="the producer has gone on in another epoch")

Settled = list[tuple[Part, Result]]


class Stream:
    """The batches of one producer id for one partition.

    Attributes:
        topic_id: `NO_UUID` while it is not known.
        transactional: the epoch is the client's.
        lost: it cannot be known in this epoch which sequence is next.
        sent: numbered and not settled, in the order of their sequences; some may not have been sent yet.
        waiting: not numbered yet.
        in_flight: how many of ``sent`` wait for an answer.
        broken: an attempt has failed: nothing is sent before `mend`.
        patient: the failure may pass, so that it is better to wait a while before that.
        next_sequence: of the next batch in ``epoch``.
        most: bytes before compression that a batch of several records may have: upstream has refused more.
        last_offset: of the last batch that was stored: another that is new lies behind it.
        failures: attempts that failed since something was stored, and ``last_error`` why the last one did.
        sent_at: when a batch was sent last.
    """

    __slots__ = (
        "_known",
        "broken",
        "epoch",
        "failures",
        "in_flight",
        "last_error",
        "last_offset",
        "lost",
        "most",
        "next_sequence",
        "partition",
        "patient",
        "sent",
        "sent_at",
        "topic",
        "topic_id",
        "transactional",
        "waiting",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        epoch: int = 0,
        topic_id: "UUID" = NO_UUID,
        *,
        transactional: bool = False,
    ) -> None:
        self.topic, self.partition, self.topic_id, self.transactional = topic, partition, topic_id, transactional
        self.sent: list[Batch] = []  # no deque, which takes 600 bytes when it is empty
        self.waiting: deque[Part] = deque()
        self.in_flight = 0
        self.broken = self.patient = False
        self.failures = 0
        self.last_error = LeaderNotAvailable.code
        self.sent_at = 0.0
        self.last_offset = -1
        self.most = MAX_FRAME
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self.epoch, self.next_sequence, self._known, self.lost = epoch, 0, False, False

    def _lose_count(self) -> None:
        """The numbers of this epoch are of no use any more."""
        if self.transactional:
            self.lost = True
        else:
            self._begin(self.epoch + 1)

    @property
    def idle(self) -> bool:
        return not self.sent and not self.waiting

    @property
    def oldest(self) -> Part | None:
        """What has waited longest for its end."""
        first = self._first_unsettled
        return first.parts[0] if first else next(iter(self.waiting), None)

    @property
    def _first_unsettled(self) -> Batch | None:
        return next((each for each in self.sent if each.parts and not each.stored), None)

    @property
    def maybe_stored(self) -> bool:
        """What has waited longest may be stored."""
        first = self._first_unsettled
        return first is not None and (first.maybe_stored or first.in_flight)

    @property
    def exhausted(self) -> bool:
        """There is no other epoch."""
        return self.epoch > LAST_EPOCH

    # -- out

    def may_send(self) -> bool:
        """Whether `next` would give a batch."""
        if self.broken or self.lost or (self.in_flight and not self._known):
            return False
        for batch in self.sent:
            if batch.refused:
                return False
            if not batch.stored and not batch.in_flight:
                return True
        return bool(self.waiting) and len(self.sent) < UNSETTLED and not self.waiting[0].building

    def unbuilt(self, is_long: Callable[[int, int], bool]) -> Part | None:
        """What `next` would make a batch of, if that is new and takes long, by its bytes before compression."""
        if any(not batch.stored and not batch.in_flight for batch in self.sent):
            return None
        first = self._first_waiting()
        return first if first.whole is None and is_long(first.size, first.compression) else None

    def next(self, producer_id: int, limit: int, *, by_id: bool = False) -> Batch:
        """The batch that goes now, which `may_send` has allowed.

        Args:
            limit: bytes before compression up to which parts share a batch.
            by_id: it goes to the topic of this id, and to no other of its name.
        """
        batch = next((each for each in self.sent if not each.stored and not each.in_flight), None)
        if batch is None:
            batch = self._numbered(producer_id, limit)
        batch.in_flight = True
        batch.tries += 1
        batch.named = batch.named or not by_id
        self.in_flight += 1
        return batch

    def _numbered(self, producer_id: int, limit: int) -> Batch:
        parts = self._fitting(limit)
        count, data = built(parts, producer_id, self.epoch, self.next_sequence, transactional=self.transactional)
        return self.number(count, data)

    def _fitting(self, limit: int) -> list[Part]:
        """The parts that may share the next batch."""
        first = self._first_waiting()
        parts, size = [first], first.size
        limit = min(limit, self.most)
        if not first.alone:
            for part in islice(self.waiting, 1, None):
                size += part.size
                if part.alone or part.compression != first.compression or size > limit:
                    break
                parts.append(part)
        return parts

    def _first_waiting(self) -> Part:
        """What goes next; in parts, where upstream has refused as much before."""
        while (first := self.waiting[0]).size > self.most and len(first.records) > 1 and not first.building:
            first.sender.parted()
            self.waiting.popleft()
            self.waiting.extendleft(reversed(first.halves()))
        return first

    def number(self, count: int, data: Buffer) -> Batch:
        """Give the next sequence to the first ``count`` parts that wait."""
        batch = Batch([self.waiting.popleft() for _ in range(count)], data, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES
        self.sent.append(batch)
        return batch

    # -- answers

    def unanswered(self, batch: Batch) -> None:
        """No answer will come for what is in flight."""
        if not batch.given_up:
            self._landed(batch)
            self._failed(batch, RequestTimedOut.code, maybe_stored=True)

    def answered(self, batch: Batch, code: int, base_offset: int, message: str | None) -> Settled:
        """Upstream has answered for a batch that is in flight; which parts are settled."""
        if batch.given_up:
            return []
        self._landed(batch)
        if code in STORED:
            return self._stored(batch, code, base_offset if code == 0 else -1)
        if code in SEQUENCE_LOST:
            return self._sequence_lost(batch, code)
        if code == UnknownServerError.code or BY_CODE.get(code, UnknownServerError).retriable:
            self._failed(batch, code, maybe_stored=code not in SURELY_NOT_STORED)
            return []
        if batch.maybe_stored:
            return self._give_up(batch, Result(code, message=message, unknown=True))
        return self._refused(batch, code, message)

    def _landed(self, batch: Batch) -> None:
        batch.in_flight = False
        self.in_flight -= 1

    def _failed(self, batch: Batch, code: int, *, maybe_stored: bool) -> None:
        batch.maybe_stored = batch.maybe_stored or maybe_stored
        self.last_error = code
        self.pause()

    def pause(self) -> None:
        """Nothing can be sent for a while."""
        self.broken = self.patient = True

    def _stored(self, batch: Batch, code: int, offset: int) -> Settled:
        if batch.tries == 1 and (code == DuplicateSequenceNumber.code or 0 <= offset <= self.last_offset):
            # It was taken for one that is stored already: acknowledged, and not stored.
            return self._give_up(batch, Result(UnknownServerError.code, message=_FALSE_DUPLICATE, unknown=True))
        self.last_offset = max(self.last_offset, offset)
        self._known = True
        self.failures, self.last_error = 0, LeaderNotAvailable.code
        return self._keep(batch, offset)

    def _keep(self, batch: Batch, offset: int) -> Settled:
        """Upstream has a batch."""
        batch.stored = True
        settled: Settled = []
        for part in batch.parts:
            settled.append((part, Result(0, offset)))
            offset += len(part.records) if offset >= 0 else 0
        while self.sent and self.sent[0].stored:
            del self.sent[0]
        return settled

    def _sequence_lost(self, batch: Batch, code: int) -> Settled:
        if batch is not next(each for each in self.sent if not each.stored):  # it was refused for the one before it
            self.broken = True
            return []
        if batch.maybe_stored:
            message = f"{broker_error(code).name}: upstream no longer knows whether it stored this batch"
            return self._give_up(batch, Result(code, message=message, unknown=True))
        if self.transactional:
            return self._give_up(batch, Result(code))
        batch.refused = True
        self._failed(batch, code, maybe_stored=False)
        return []

    def _refused(self, batch: Batch, code: int, message: str | None) -> Settled:
        """For what is in it, so that it is stored under no sequence."""
        batch.refused = True
        self.broken = True
        parts, batch.parts = batch.parts, []
        if len(parts) > 1:  # one of them is to blame
            batch.parts = parts
            for part in parts:
                part.alone = True
            if code in TOO_LARGE:
                self.most = max(part.size for part in parts)
        elif code in TOO_LARGE and len(parts[0].records) > 1:  # it has grown, or upstream's limit is another
            parts[0].sender.parted()
            batch.parts = [*parts[0].halves()]
            self.most = max(part.size for part in batch.parts)
        else:
            return [(parts[0], Result(code, message=message))]
        return []

    def rested(self) -> None:
        """After a long rest upstream may have forgotten the producer."""
        self._known = False

    def forget_limit(self) -> None:
        """Upstream may have another limit for the size of batches by now.

        Only an idle stream forgets it: the parts of a batch that was too large would be refused again one by one.
        """
        self.most = MAX_FRAME

    # -- another epoch

    @property
    def needs_mending(self) -> bool:
        """`mend` has to be called before anything is sent; it can be once nothing is in flight."""
        return self.broken or bool(self.sent and self.sent[0].refused)

    def mend(self) -> Settled:
        """Go on after a failure; nothing is in flight. Which parts are withdrawn."""
        self.broken = self.patient = self._known = False
        if not self.sent or not self.sent[0].refused:
            return []
        if self.transactional and (unsure := next((each for each in self.sent if each.maybe_stored), None)):
            return self._give_up(unsure, Result(self.last_error, message=_BEHIND, unknown=True))
        return self.start_over()

    def expire(self, result: Result) -> Settled:
        """What has waited longest comes to no end in time; nothing is in flight, or ``result`` is unknown."""
        batch = self._first_unsettled
        if batch is None:
            return [(self.waiting.popleft(), result)]
        if result.unknown:
            return self._give_up(batch, result)
        parts, batch.parts = batch.parts, []
        batch.refused = self.broken = True
        return [(part, result) for part in parts]

    def start_over(self) -> Settled:
        """Have what is not settled renumbered, in another epoch; nothing is in flight.

        In a transaction that is in the same epoch, from the first on that is not stored.
        """
        unsettled = [batch for batch in self.sent if not batch.stored]
        self.sent.clear()
        self.waiting.extendleft(reversed([part for batch in unsettled for part in batch.parts]))
        if not self.transactional:
            self._begin(self.epoch + 1)
        elif unsettled:
            self.next_sequence = unsettled[0].sequence
        return self.withdraw()

    def withdraw(self) -> Settled:
        """Take back what waits of clients' batches that are not to be stored any more."""
        if not any(part.sender.refused for part in self.waiting):
            return []
        parts, self.waiting = self.waiting, deque(part for part in self.waiting if not part.sender.refused)
        return [(part, WITHDRAWN) for part in parts if part.sender.refused]

    def give_back_unsent(self, result: Result) -> Settled:
        """Take back what waits, and was not sent yet."""
        parts, self.waiting = self.waiting, deque(part for part in self.waiting if part.building)
        return [(part, result) for part in parts if not part.building]

    def _give_up(self, batch: Batch, result: Result) -> Settled:
        """A batch comes to no other end than ``result``, nor do others that may be stored; the rest go in the next
        epoch."""
        given_up: Settled = []
        kept: list[Part] = []
        for each in self.sent:
            each.given_up = True
            if each is batch or (not each.stored and (each.maybe_stored or each.in_flight)):
                given_up += [(part, result) for part in each.parts]
            elif not each.stored:
                kept += each.parts
        self.waiting.extendleft(reversed(kept))
        self._forget_what_is_sent()
        self._lose_count()
        if self.lost:
            given_up += [(part, WITHDRAWN) for part in self.waiting]
            self.waiting.clear()
        return given_up

    def _forget_what_is_sent(self) -> None:
        self.sent.clear()
        self.in_flight = 0
        self.broken = self.patient = False
        self.failures, self.last_error = 0, LeaderNotAvailable.code

    def overtaken(self, epoch: int) -> Settled:
        """The client goes on in another epoch: what is of the one before comes to no other end."""
        given_up = [(part, OVERTAKEN) for batch in self.sent if not batch.stored for part in batch.parts]
        given_up += [(part, OVERTAKEN) for part in self.waiting]
        for batch in self.sent:
            batch.given_up = True
        self.waiting.clear()
        self._forget_what_is_sent()
        self._begin(epoch)
        return given_up

    def described(self, topic_id: "UUID") -> Settled:
        """The topic has this id, and another one than before if it was recreated; then nothing may be in flight."""
        old, self.topic_id = self.topic_id, topic_id
        if NO_UUID in (old, topic_id) or old == topic_id:
            return []
        self.last_offset, self.most = -1, MAX_FRAME
        unsettled = (each for each in self.sent if not each.stored)
        lost = next((each for each in unsettled if self.transactional or (each.maybe_stored and each.named)), None)
        if lost is not None:
            return self._give_up(lost, Result(UnknownTopicOrPartition.code, message=_RECREATED, unknown=True))
        for batch in self.sent:
            if batch.maybe_stored and not batch.stored:
                for part in batch.parts:
                    part.maybe_in |= {old}
        settled = self.start_over()
        if any(topic_id in part.maybe_in for part in self.waiting):  # it had not been replaced: a node lagged behind
            unknown = Result(UnknownTopicOrPartition.code, message=_RETURNED, unknown=True)
            settled += [(part, unknown) for part in self.waiting if topic_id in part.maybe_in]
            self.waiting = deque(part for part in self.waiting if topic_id not in part.maybe_in)
        while self.waiting and not self.waiting[-1].maybe_in:
            settled.append((self.waiting.pop(), RECREATED))
        return settled

    def resume(self, next_sequence: int, last_offset: int, sent: Iterable[Batch], waiting: Iterable[Part]) -> None:
        """Go on where another process has stopped."""
        self.next_sequence, self.last_offset = next_sequence, last_offset
        self.sent.extend(sent)
        self.waiting.extend(waiting)

    def renewed(self, epoch: int) -> None:
        """Another producer id, with which it begins again; nothing is in flight or numbered."""
        assert not self.sent, "what is numbered belongs to a producer id"
        self._begin(epoch)


_FALSE_DUPLICATE = "upstream took new records for others that it had stored already"
_BEHIND = "upstream did not say whether it stored this batch, which came behind one that it refused"
_RETURNED = "upstream said that its topic was replaced, which was not so, while these records were on their way"
_RECREATED = "the topic was deleted and created again while these records were on their way"


def first_parts(streams: Iterable[Stream]) -> Iterator[tuple[Stream, Part]]:
    """Of each stream that has any, what has waited longest."""
    for stream in streams:
        if part := stream.oldest:
            yield stream, part
