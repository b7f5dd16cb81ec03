"""Sequences the batches of one producer id for one partition of upstream, so that each is stored once and in order.

A broker compares only producer id, epoch, first and last sequence. So the worst failure is a false duplicate: new
records under a sequence that is stored already are acknowledged, and never stored.

Rules:
- A sequence that may have been sent is never reused for other records in its epoch. If a batch is refused, later
  batches are renumbered from 0 in the next epoch, once no batch is in flight.
- At most five batches are unsettled, because a broker remembers five. Further parts wait, and share batches.
- Until upstream has stored a batch of an epoch, only one batch is in flight: a broker without state for a producer
  accepts any sequence, so it would accept a second batch although the first was lost. The same holds after every error,
  and after a long rest.
- After a refusal for size, later batches are at most as large as the halves of the refused one, until the stream rests
  or the topic changes, even if the refused batch is not sent again. Each further refusal would cost a pause and an
  epoch.
- If a partition refuses all records for now (too few replicas, no leader, a deleted topic), senders may take back parts
  that are surely not stored, and their clients send them again. The refused sequence is kept for the same records: if
  others come first, they get the next epoch.
- A batch whose outcome is unknown is retried with the same bytes and the same sequence, so upstream stores it once. If
  the retry is refused for any reason, or the batch expires, its outcome stays unknown: the reason may not have held for
  the first attempt, because for example upstream's limit has changed.
- A recreated topic knows no earlier batches. A batch sent by topic id (Produce 13) cannot be in the new topic, so it is
  sent there under the next epoch. A batch sent by name may be in either, so its outcome is unknown. So is that of a
  batch that may be stored under a topic id that upstream names again: the topic was not replaced, a broker's metadata
  was old. Parts that were never sent go back to the client to retry: their keys may belong to other partitions now.
- The epoch is the proxy's own. A client that bumps its epoch in one partition may still retry an old batch in another,
  and the proxy may send both to the same partition.
- In transactions the epoch is the client's, because upstream's coordinator allocated it. If a batch is refused, later
  batches take over its sequence, as in Kafka's clients, if surely none of them is stored. Otherwise the sequence of
  this epoch is lost: the transaction cannot be committed, and no more batches are sent before the next epoch.

The client's producer follows the same rules (`ottla.sdk.produce.batches`), but for two. It splits a batch that is too
large, and the halves keep their sequences; here parts of several clients share a batch, so the proxy builds new batches
with new sequences. It tries a batch again until the batch expires; here a client behind each part would send it again.

Source: ProducerStateManager.java, ProducerAppendInfo.java (NUM_BATCHES_TO_RETAIN = 5).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
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
from ottla.proxy.upstream.batches import Part, PartOwner, PartResult, UpstreamBatch, built

if TYPE_CHECKING:
    from uuid import UUID

UNSETTLED = 5
"""The most unsettled batches of a stream; a broker remembers as many."""
LAST_EPOCH = 2**15 - 1
_SEQUENCES = 2**31
_CRC = slice(17, 21)
"""The bytes of a batch's CRC."""

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
"""Errors that say that the broker's state of the producer differs from the proxy's."""
PASSED_ON = {
    NotEnoughReplicas.code: NotEnoughReplicas.code,
    UnknownTopicId.code: UnknownTopicOrPartition.code,  # clients that name topics do not know the former
}
"""Errors of a partition that refuses all records for now, before the append -> the error for clients."""
SURELY_NOT_STORED = frozenset(
    each.code for each in (NotEnoughReplicas, CorruptMessage, UnknownTopicId, ConcurrentTransactions)
)
"""Retriable errors before the append. Others, also NOT_LEADER_OR_FOLLOWER, can come after it."""
TOO_LARGE = frozenset(each.code for each in (MessageTooLarge, RecordListTooLarge))
WITHDRAWN = PartResult(OutOfOrderSequenceNumber.code, message="a batch before it failed")
ABORTED = PartResult(TransactionAbortable.code, message="the transaction is aborted")
CLIENT_GONE = PartResult(NotEnoughReplicas.code, message="the proxy's buffer is full, because upstream is too slow")
RECREATED = PartResult(NotLeaderOrFollower.code, message="the topic was deleted and created again")
"""The client retries, and its records go to the new topic's partitions."""
OVERTAKEN = PartResult(InvalidProducerEpoch.code, message="the producer has a newer epoch")

Settled = list[tuple[Part, PartResult]]


class Stream:
    """Sequences, retries and settles the batches of one producer id for one partition.

    Attributes:
        topic_id: `NO_UUID` while it is unknown.
        transactional: the epoch is the client's.
        lost: the next sequence of this epoch is unknown.
        sent: numbered and unsettled batches, in the order of their sequences; some may not have been sent yet.
        waiting: parts without a sequence.
        in_flight: how many of ``sent`` are in flight.
        broken: an attempt failed: no batch is sent before `mend`.
        patient: the failure may be temporary: `mend` after a backoff.
        refusal: the error for clients while the partition accepts no records; 0: it may accept them.
        next_sequence: the sequence of the next batch in ``epoch``.
        most: the most bytes before compression of a batch with several records: upstream has refused more.
        last_offset: the offset of the last stored batch: every new batch gets a higher one.
        failures: failed attempts since a batch was last stored.
        last_error: why the last of them failed.
        sent_at: when a batch was last sent.
    """

    __slots__ = (
        "_known",
        "_offered",
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
        "refusal",
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
        self.sent: list[UpstreamBatch] = []  # no deque, which takes 600 bytes when it is empty
        self.waiting: deque[Part] = deque()
        self.in_flight = 0
        self.broken = self.patient = False
        self.refusal = self.failures = 0
        self.last_error = LeaderNotAvailable.code
        self.sent_at = 0.0
        self.last_offset = -1
        self.most = MAX_FRAME
        self._begin(epoch)

    def _begin(self, epoch: int) -> None:
        self.epoch, self.next_sequence, self._known, self.lost = epoch, 0, False, False
        self._offered: bytes | None = None
        """The CRC of the batch with this sequence that upstream has refused for now, and its senders took back."""

    def _lose_count(self) -> None:
        """Stop using the sequences of this epoch."""
        if self.transactional:
            self.lost = True
        else:
            self._begin(self.epoch + 1)

    @property
    def idle(self) -> bool:
        return not self.sent and not self.waiting

    @property
    def oldest(self) -> Part | None:
        """The oldest unsettled part."""
        first = self._first_unsettled
        return first.parts[0] if first else next(iter(self.waiting), None)

    @property
    def _first_unsettled(self) -> UpstreamBatch | None:
        return next((each for each in self.sent if each.parts and not each.stored), None)

    @property
    def maybe_stored(self) -> bool:
        """Whether the oldest unsettled batch may be stored."""
        first = self._first_unsettled
        return first is not None and (first.maybe_stored or first.in_flight)

    @property
    def exhausted(self) -> bool:
        """All epochs of the producer id are used up."""
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
        """The part for the next batch, if a thread should build it because it is long, by its bytes before compression.

        ``None`` if `next` can build the batch, or retries one.
        """
        if any(not batch.stored and not batch.in_flight for batch in self.sent):
            return None
        first = self._first_waiting()
        return first if first.whole is None and is_long(first.size, first.compression) else None

    def next(self, producer_id: int, limit: int, now: float, *, by_id: bool = False) -> UpstreamBatch:
        """Mark the next batch as in flight and return it; only after `may_send`.

        Args:
            limit: the most bytes before compression of parts that share a batch.
            by_id: the request has the topic's id, so no other topic of this name can store the batch.
        """
        self.sent_at = now
        batch = next((each for each in self.sent if not each.stored and not each.in_flight), None)
        if batch is None:
            batch = self._numbered(producer_id, limit)
        batch.sent(by_id=by_id)
        self.in_flight += 1
        return batch

    def _numbered(self, producer_id: int, limit: int) -> UpstreamBatch:
        parts = self._fitting(limit)
        count, data = built(parts, producer_id, self.epoch, self.next_sequence, transactional=self.transactional)
        if self._offered not in (None, _crc(data)):  # other records were sent with this sequence
            self._begin(self.epoch + 1)
            count, data = built(parts, producer_id, self.epoch, self.next_sequence)
        self._offered = None
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
        """The next part, split first if upstream has refused a batch of its size before."""
        while (first := self.waiting[0]).size > self.most and len(first.records) > 1 and not first.building:
            self.waiting.popleft()
            self.waiting.extendleft(reversed(first.halves()))
        return first

    def number(self, count: int, data: Buffer) -> UpstreamBatch:
        """Make a batch of the first ``count`` waiting parts, with the next sequence."""
        batch = UpstreamBatch([self.waiting.popleft() for _ in range(count)], data, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES
        self.sent.append(batch)
        return batch

    # -- answers

    def has(self, batch: UpstreamBatch) -> bool:
        """Whether a batch in flight still belongs to the stream; if not, a late answer is ignored.

        Otherwise the stream has given it up: its parts are settled, or wait again.
        """
        return batch in self.sent

    def unanswered(self, batch: UpstreamBatch) -> None:
        """Handle a request without response: the outcome of the batch is unknown."""
        if self.has(batch):
            self._landed(batch)
            self._failed(batch, RequestTimedOut.code, maybe_stored=True)

    def answered(
        self, batch: UpstreamBatch, code: int, base_offset: int, message: str | None, append_time: int = -1
    ) -> Settled:
        """Handle upstream's response to a batch; returns the settled parts."""
        if not self.has(batch):
            return []
        self._landed(batch)
        if code in STORED:
            return self._stored(batch, code, base_offset if code == 0 else -1, append_time)
        if code in SEQUENCE_LOST:
            return self._sequence_lost(batch, code)
        if code == UnknownServerError.code or BY_CODE.get(code, UnknownServerError).retriable:
            self._failed(batch, code, maybe_stored=code not in SURELY_NOT_STORED)
            return []
        if code in TOO_LARGE:
            self._lower_most(batch)
        if batch.maybe_stored:
            return self._give_up(batch, PartResult(code, message=message, unknown=True))
        return self._refused(batch, code, message)

    def _landed(self, batch: UpstreamBatch) -> None:
        batch.landed()
        self.in_flight -= 1

    def _failed(self, batch: UpstreamBatch, code: int, *, maybe_stored: bool) -> None:
        batch.failed(maybe_stored=maybe_stored, unless_gone=code == UnknownTopicOrPartition.code)
        self.last_error = code
        self.pause(PASSED_ON.get(code, 0))

    def pause(self, refusal: int = 0) -> None:
        """Stop sending until `mend`, after a backoff; ``refusal`` is the error for clients meanwhile, if any."""
        self.broken = self.patient = True
        self.refusal = refusal

    def halt(self) -> None:
        """Stop sending until `mend`, which follows once no batch is in flight."""
        self.broken = True

    def count_failure(self) -> int:
        """Count a failed attempt; returns how many have failed since a batch was last stored."""
        self.failures = min(self.failures + 1, 10)
        return self.failures

    def _stored(self, batch: UpstreamBatch, code: int, offset: int, append_time: int) -> Settled:
        if batch.tries == 1 and (code == DuplicateSequenceNumber.code or 0 <= offset <= self.last_offset):
            # Upstream took this first attempt for a duplicate of an earlier batch: acknowledged, but not stored.
            return self._give_up(batch, PartResult(UnknownServerError.code, message=_FALSE_DUPLICATE, unknown=True))
        self.last_offset = max(self.last_offset, offset)
        self._known = True
        self.refusal = self.failures = 0
        self.last_error = LeaderNotAvailable.code
        return self._keep(batch, offset, append_time)

    def _keep(self, batch: UpstreamBatch, offset: int, append_time: int) -> Settled:
        """Settle the parts of a stored batch."""
        batch.confirmed()
        settled: Settled = []
        for part in batch.parts:
            settled.append((part, PartResult(0, offset, append_time=append_time)))
            offset += len(part.records) if offset >= 0 else 0
        while self.sent and self.sent[0].stored:
            del self.sent[0]
        return settled

    def _sequence_lost(self, batch: UpstreamBatch, code: int) -> Settled:
        if batch is not next(each for each in self.sent if not each.stored):  # refused because of the one before it
            self.broken = True
            return []
        if batch.maybe_stored:
            message = f"{broker_error(code).name}: upstream no longer knows whether it stored this batch"
            return self._give_up(batch, PartResult(code, message=message, unknown=True))
        if self.transactional:
            return self._give_up(batch, PartResult(code))
        batch.sequence_refused()
        self._failed(batch, code, maybe_stored=False)
        return []

    def _refused(self, batch: UpstreamBatch, code: int, message: str | None) -> Settled:
        """Handle a refusal because of the records; a batch of several parts, or one that is too large, is split and
        retried."""
        self.broken = True
        refused = batch.records_refused(too_large=code in TOO_LARGE)
        return [] if refused is None else [(refused, PartResult(code, message=message))]

    def _lower_most(self, batch: UpstreamBatch) -> None:
        """Make later batches smaller than this batch, which upstream has refused as too large."""
        first = batch.parts[0]
        if len(batch.parts) > 1:
            size = max(part.size for part in batch.parts)
        elif len(first.records) > 1:
            size = first.size_of_half
        else:
            size = first.size - 1  # it goes back to its client, but a larger batch would not fit either
        self.most = min(self.most, size)

    def rested(self) -> None:
        """Send the next batch alone: after a long rest upstream may have forgotten the producer."""
        self._known = False

    def forget_limit(self) -> None:
        """Try larger batches again: upstream may have raised its limit.

        Only for an idle stream: others would try each part of the refused batch at its full size again.
        """
        self.most = MAX_FRAME

    # -- refusals for now

    @property
    def puts_off(self) -> bool:
        """Whether senders may take their parts back, because the partition accepts no records for now.

        Outside of transactions each time may cost an epoch. With half of them left, the stream waits instead.
        """
        spare = self.transactional or self.epoch <= LAST_EPOCH // 2
        return self.refusal != 0 and self.broken and not self.in_flight and spare

    @property
    def senders(self) -> "list[PartOwner]":
        """The senders of its unsettled parts."""
        sent = (part for batch in self.sent if not batch.stored for part in batch.parts)
        return list(dict.fromkeys(part.sender for part in chain(sent, self.waiting)))

    def open_records(self, sender: "PartOwner") -> int:
        """How many records of a sender are unsettled."""
        sent = (part for batch in self.sent if not batch.stored for part in batch.parts)
        return sum(len(part.records) for part in chain(sent, self.waiting) if part.sender is sender)

    def may_store(self, sender: "PartOwner") -> bool:
        """Whether a part of a sender is in flight, or may be stored, so that it cannot be taken back.

        In a transaction the sequence is used again, so no batch behind it may be stored either.
        """
        unsure = [each for each in self.sent if not each.stored and (each.maybe_stored or each.in_flight)]
        if self.transactional and unsure:
            return True
        sent = (part for batch in unsure for part in batch.parts)
        return any(part.sender is sender for part in sent) or any(
            part.sender is sender and part.maybe_in for part in self.waiting
        )

    def take_back(self, sender: "PartOwner", result: PartResult) -> Settled:
        """Give a sender its parts back; only if it does not `may_store` them."""
        taken = [part for batch in self.sent if not batch.stored for part in batch.take_back(sender)]
        taken += [part for part in self.waiting if part.sender is sender]
        self.waiting = deque(part for part in self.waiting if part.sender is not sender)
        return [(part, result) for part in taken]

    def gone(self) -> None:
        """Take note that the topic was deleted, and batches that it did not accept are stored nowhere."""
        for batch in self.sent:
            batch.gone()
        self.refusal = UnknownTopicOrPartition.code

    @property
    def resumes_at(self) -> tuple[int, int]:
        """The epoch and the sequence of the next batch after a restart."""
        return (self.epoch, self.next_sequence) if self._offered is None else (self.epoch + 1, 0)

    # -- another epoch

    @property
    def needs_mending(self) -> bool:
        """Whether `mend` must be called before the next batch is sent; it needs no batch in flight."""
        return self.broken or bool(self.sent and self.sent[0].refused)

    def mend(self) -> Settled:
        """Continue after a failure, with no batch in flight; returns the settled parts."""
        self.broken = self.patient = self._known = False
        if not self.sent or not self.sent[0].refused:
            return []
        if self.transactional and (unsure := next((each for each in self.sent if each.maybe_stored), None)):
            return self._give_up(unsure, PartResult(self.last_error, message=_BEHIND, unknown=True))
        return self.start_over()

    def expire(self, result: PartResult) -> Settled:
        """Settle the oldest batch or part with ``result``; if a batch is in flight, ``result`` must be unknown."""
        batch = self._first_unsettled
        if batch is None:
            return [(self.waiting.popleft(), result)]
        if result.unknown:
            return self._give_up(batch, result)
        self.broken = True
        return [(part, result) for part in batch.expired()]

    def start_over(self) -> Settled:
        """Renumber the unsettled batches in the next epoch, with no batch in flight.

        In a transaction the epoch stays, and the first unsettled batch keeps its sequence.
        """
        unsettled = [batch for batch in self.sent if not batch.stored]
        self.sent.clear()
        self.waiting.extendleft(reversed([part for batch in unsettled for part in batch.parts]))
        if self.transactional:
            self.next_sequence = unsettled[0].sequence if unsettled else self.next_sequence
        elif len(unsettled) == 1 and unsettled[0].taken_back:
            # Its client sends it again soon: an epoch for each time would use up all of them.
            self.next_sequence, self._offered = unsettled[0].sequence, _crc(unsettled[0].data)
        else:
            self._begin(self.epoch + 1)
        return self.withdraw()

    def withdraw(self) -> Settled:
        """Take back the waiting parts of clients' batches that must not be stored: a batch before them failed."""
        if not any(part.sender.refused for part in self.waiting):
            return []
        parts, self.waiting = self.waiting, deque(part for part in self.waiting if not part.sender.refused)
        return [(part, WITHDRAWN) for part in parts if part.sender.refused]

    def give_back_unsent(self, result: PartResult) -> Settled:
        """Take back all waiting parts, except one that a thread is building."""
        parts, self.waiting = self.waiting, deque(part for part in self.waiting if part.building)
        return [(part, result) for part in parts if not part.building]

    def _give_up(self, batch: UpstreamBatch, result: PartResult) -> Settled:
        """Settle a batch, and all others that may be stored, with ``result``; the rest goes into the next epoch."""
        given_up: Settled = []
        kept: list[Part] = []
        for each in self.sent:
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
        self.refusal = self.failures = 0
        self.last_error = LeaderNotAvailable.code

    def overtaken(self, epoch: int) -> Settled:
        """Fail all unsettled parts, because the client has a newer epoch."""
        given_up = [(part, OVERTAKEN) for batch in self.sent if not batch.stored for part in batch.parts]
        given_up += [(part, OVERTAKEN) for part in self.waiting]
        self.waiting.clear()
        self._forget_what_is_sent()
        self._begin(epoch)
        return given_up

    def described(self, topic_id: "UUID") -> Settled:
        """Take over the topic's id; if it has changed, the topic was recreated, and no batch may be in flight."""
        old, self.topic_id = self.topic_id, topic_id
        if NO_UUID in (old, topic_id) or old == topic_id:
            return []
        self.last_offset, self.most = -1, MAX_FRAME
        unsettled = (each for each in self.sent if not each.stored)
        lost = next((each for each in unsettled if self.transactional or (each.maybe_stored and each.named)), None)
        if lost is not None:
            return self._give_up(lost, PartResult(UnknownTopicOrPartition.code, message=_RECREATED, unknown=True))
        for batch in self.sent:
            if batch.maybe_stored and not batch.stored:
                for part in batch.parts:
                    part.maybe_stored_in(old)
        settled = self.start_over()
        if any(topic_id in part.maybe_in for part in self.waiting):  # not replaced: a broker's metadata was old
            unknown = PartResult(UnknownTopicOrPartition.code, message=_RETURNED, unknown=True)
            settled += [(part, unknown) for part in self.waiting if topic_id in part.maybe_in]
            self.waiting = deque(part for part in self.waiting if topic_id not in part.maybe_in)
        while self.waiting and not self.waiting[-1].maybe_in:
            settled.append((self.waiting.pop(), RECREATED))
        return settled

    def resume(
        self,
        next_sequence: int,
        last_offset: int,
        sent: Iterable[UpstreamBatch],
        waiting: Iterable[Part],
        *,
        lost: bool = False,
    ) -> None:
        """Restore the state that the journal has of this stream."""
        self.next_sequence, self.last_offset, self.lost = next_sequence, last_offset, lost
        self.sent.extend(sent)
        self.waiting.extend(waiting)

    def renewed(self, epoch: int) -> None:
        """Start over with a new producer id; no batch may be numbered."""
        assert not self.sent, "a numbered batch belongs to its producer id"
        self._begin(epoch)


_FALSE_DUPLICATE = "upstream took new records for a duplicate of stored ones"
_BEHIND = "upstream did not confirm whether it stored this batch, which was sent after one that it refused"
_RETURNED = "upstream gave a wrong id for the topic while these records were being delivered"
_RECREATED = "the topic was deleted and created again while these records were being delivered"


def _crc(data: Buffer) -> bytes:
    """The CRC of a batch; it covers the records, the producer id, the epoch and the sequence."""
    return bytes(data[_CRC])


def first_parts(streams: Iterable[Stream]) -> Iterator[tuple[Stream, Part]]:
    """The oldest unsettled part of each stream that has one."""
    for stream in streams:
        if part := stream.oldest:
            yield stream, part
