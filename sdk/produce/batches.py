"""Batches of one partition on their way to the broker: their order and their sequences.

    append ──► open ── full, linger, flush ──► due ── sent ──► in flight ── answer ──► settled
                                                ▲                 │
                                                └─── retriable ───┘

Rules:
- A partition's batches go out oldest first. With idempotence up to five are in flight, because the broker remembers
  five; after a retry, only the oldest is sent until it is settled. Without idempotence only one is in flight, so that a
  retry cannot change the order.
- The first batch under a producer id goes alone: a broker without state for the id accepts any sequence, so if the
  first batch were refused and the second stored, the first could never be stored.
- A batch gets its sequence when it is first sent and keeps it in every retry, so the broker recognises a duplicate.
  Sequences wrap from 2**31 - 1 to 0.
- A batch that certainly was not stored gives its sequence numbers back if no batch was sent after it. Otherwise the
  batches after it are renumbered in a new epoch once all batches before it are settled and none is in flight: old
  requests that are still in the network then find a gap before them, and are refused (KIP-360). A batch with an unknown
  outcome fails instead of being renumbered: a broker that has lost its state of the producer may have stored it, and
  would store it again. A batch fails, too, if one after it is stored already, as may happen in a recreated topic: it
  would be out of order.
- The log of a recreated topic has no state for the producer, and accepts any first sequence, in any epoch. So batches
  that were sent before are settled first, one at a time and each under its old sequence, because an unanswered attempt
  may yet reach the new log. Later batches are sent in a new epoch, from sequence 0 on, the first one alone. If it turns
  out that the topic was not recreated, this was safe, too.
- Apart from that, a partition adopts a new producer id or epoch only when no batch sent under the old one has an
  unknown outcome.
- A batch that was too large is split into halves that keep its sequences, its position and its deadline.
- A batch that ends before the driver has its request is removed from it: a batch reported as failed is never sent.

Source: RecordAccumulator.java, ProducerBatch.java (split), TransactionManager.java (canRetry, handleFailedBatch),
TxnPartitionEntry.java, ProducerStateEntry.java (NUM_BATCHES_TO_RETAIN = 5).
"""

import math
from collections import deque
from collections.abc import Callable
from itertools import islice

from ottla.codec.compression import UNLIMITED, Compression
from ottla.codec.message_sets import build_message_set
from ottla.codec.records import BatchBuilder, Records, parse_batch
from ottla.codec.wire import Buffer
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import PRODUCE_RECORD_BATCHES
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.append import OpenBatch, PartitionBuffer
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.timers import Timer

MAX_IN_FLIGHT = 5
"""Batches of a partition in flight: a broker remembers as many of each producer, to recognise repeats."""
_SEQUENCES = 2**31


class ProducerBatch(OpenBatch):
    """Records of one partition that are sent together."""

    __slots__ = (
        "_expiry",
        "abandoned",
        "again",
        "attempts",
        "charged",
        "deadline",
        "due",
        "node",
        "number",
        "opened",
        "outcome_unknown",
        "overtaken",
        "place",
        "request",
        "retry_at",
        "sequence",
        "trouble",
    )

    builder: BatchBuilder

    def __init__(
        self, number: int, place: TopicPartition, opened: float, deadline: float, room: int, charged: int = 0
    ) -> None:
        super().__init__(BatchBuilder(), room)
        self.number = number
        """Counts up over all batches of a producer; the halves of a split batch keep its number."""
        self.place = place
        self.opened = opened
        self.deadline = deadline
        """When its delivery times out."""
        self.charged = charged
        """Bytes of the producer's memory; while the batch is open, without its records' bytes."""
        self.due = False
        """Whether it may be sent."""
        self._expiry: Timer | None = None
        self.request: InFlightBatches | None = None
        """The request in which it is in flight."""
        self.again = False
        """In flight, or waiting to be sent, again with the same sequence."""
        self.outcome_unknown = False
        """An attempt under this sequence ended without a definite answer: it may be stored."""
        self.overtaken = False
        """A later batch is stored, so this one can no longer be in order."""
        self.node = -1
        """The node to which it was last sent."""
        self.attempts = 0
        self.retry_at = 0.0
        self.trouble = ""
        """Why the last attempt failed, for people."""
        self.sequence: int | None = None
        self.abandoned = False
        """Its deadline passed after it was sent: it has failed already, and is dropped when its response comes."""

    @property
    def count(self) -> int:
        return self.builder.count

    @property
    def size(self) -> int:
        """Bytes of the batch before compression."""
        return self.builder.size

    @property
    def in_flight(self) -> bool:
        """Whether a connection has it, which may not have sent it yet."""
        return self.request is not None

    @property
    def maybe_stored(self) -> bool:
        """Whether an unacknowledged batch may be stored."""
        return self.in_flight or self.outcome_unknown

    @property
    def renumberable(self) -> bool:
        """Whether it is safe to send it under another sequence: neither a duplicate nor out of order."""
        return not (self.outcome_unknown or self.overtaken)

    def seal(self) -> int:
        """Accept no more records; returns the bytes of the batch's records, which it is charged for now."""
        size = self.room - self.left
        self.charged += size
        self.left = -1
        return size

    def hurry(self) -> None:
        """Note that a caller awaits one of its records."""
        self.hurried = True

    def make_due(self) -> bool:
        """Allow the batch to be sent; returns whether it was not allowed before."""
        before, self.due = self.due, True
        return not before

    def sent(self, request: "InFlightBatches", node: int, sequence: int | None) -> None:
        """Note that the batch went to the connection to ``node``, in ``request``.

        Args:
            sequence: for the first attempt; each further one repeats it. ``None`` without idempotence.
        """
        self.request, self.node = request, node
        self.attempts += 1
        if self.sequence is not None:
            self.again = True
        else:
            self.sequence = sequence

    def answered(self) -> None:
        """Note that its request has ended, with or without a response."""
        self.request = None

    def refused(self, why: str, *, maybe_stored: bool) -> None:
        """Note that an attempt failed; until the batch is acknowledged, its outcome stays unknown if it once was."""
        self.trouble = why
        self.outcome_unknown |= maybe_stored

    def retry(self, when: float) -> None:
        """Allow the next attempt from ``when`` on."""
        self.retry_at = when

    def drop_sequence(self) -> None:
        """Give up the sequence, because the batch is sent in another epoch next, as if for the first time."""
        self.sequence, self.again = None, False

    def overtake(self) -> None:
        """Note that a later batch is stored before this one: the log has lost its state of the producer."""
        self.overtaken = True

    def withdraw(self) -> None:
        """Remove the batch from its request, unless the driver has that."""
        if self.request is not None and not self.request.sent:
            request, self.request = self.request, None
            request.remove(self)

    def abandon(self) -> None:
        """Note that the batch, which is in flight, has failed already, whatever its response will be."""
        self.abandoned = True

    def watch(self, core: ClientCore, expired: Callable[[float], None]) -> None:
        """Call ``expired`` when the deadline passes, unless the timers are cancelled before."""
        self._expiry = core.later(self.deadline, expired)

    def cancel_timers(self) -> None:
        """Cancel the timers of a settled batch, so that they do not keep it alive."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def halves(self) -> tuple["ProducerBatch", "ProducerBatch"]:
        """Split the batch in two; records keep their sequences."""
        records: Records = parse_batch(self.builder.build()).records(UNLIMITED)
        middle = self.count // 2
        charged = self.charged * middle // self.count
        first = BatchHalf(self, records[:middle], 0, charged)
        return first, BatchHalf(self, records[middle:], middle, self.charged - charged)


class BatchHalf(ProducerBatch):
    """The ``records`` of ``whole`` from index ``start`` on: sent again, with the sequences that they have had."""

    __slots__ = ()

    def __init__(self, whole: ProducerBatch, records: Records, start: int, charged: int) -> None:
        super().__init__(whole.number, whole.place, whole.opened, whole.deadline, -1, charged)
        self.builder.extend(records)
        stop = start + len(records)
        self.callbacks, self.timestamps = whole.callbacks[start:stop], whole.timestamps[start:stop]
        self.due = self.again = True
        self.outcome_unknown, self.overtaken = whole.outcome_unknown, whole.overtaken
        self.attempts, self.trouble = whole.attempts, whole.trouble
        if whole.sequence is not None:
            self.sequence = (whole.sequence + start) % _SEQUENCES


class InFlightBatches:
    """Batches that are in flight together, each with its partition's queue; ``exchange`` is their request."""

    __slots__ = ("batches", "exchange")

    def __init__(self, batches: "dict[ProducerBatch, PartitionQueue]", exchange: Exchange) -> None:
        self.batches, self.exchange = batches, exchange

    @property
    def sent(self) -> bool:
        """Whether the driver has the request."""
        return self.exchange.correlation_id >= 0

    def remove(self, batch: ProducerBatch) -> None:
        """Send the request without ``batch``; if that was the only one, end the request without sending it."""
        del self.batches[batch]
        if not self.batches and self.exchange.withdraw:
            self.exchange.withdraw(self.exchange)


NOT_OPEN = ProducerBatch(0, ("", -1), 0.0, 0.0, -1)
"""Placeholder if no batch is open: it never has space."""


class PartitionQueue(PartitionBuffer):
    """The batches of one partition, oldest first; the last one may be open."""

    __slots__ = (
        "_known_in",
        "_linger",
        "_missing_since",
        "_sticky_until",
        "_taken",
        "acknowledged",
        "batches",
        "gap",
        "identity",
        "incarnation",
        "moved_at",
        "next_sequence",
        "place",
        "renumber_from",
        "transactional",
    )

    open: ProducerBatch

    def __init__(self, place: TopicPartition, incarnation: int = -1, *, transactional: bool = False) -> None:
        super().__init__(NOT_OPEN)
        self.place, self.transactional = place, transactional
        self.batches: deque[ProducerBatch] = deque()
        self._taken = 0
        self._sticky_until = 0
        """The keyless records of a topic move to another partition once this one was given so many bytes."""
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.acknowledged = False
        """The broker has stored a batch under `identity`."""
        self.gap = False
        """A batch with an unknown outcome was given up, so the broker may lack its sequence."""
        self.renumber_from: int | None = None
        """Batches from this number on must be sent in a new epoch: the broker lacks a sequence before them."""
        self.incarnation = incarnation
        """The incarnation of the topic (`Topic.incarnation`) for which `identity` was adopted."""
        self._known_in = incarnation
        """The last incarnation of the topic that had this partition."""
        self._missing_since: float | None = None
        """Since when the topic is a recreated one without this partition."""
        self.moved_at = -math.inf
        """When its oldest batch became the oldest, or could first be sent."""
        self._linger: Timer | None = None
        """The timer of the open batch."""

    @property
    def taken(self) -> int:
        """Bytes that were ever appended to it."""
        return self._taken + self.open.room - self.open.left

    @property
    def outcome_unknown(self) -> bool:
        """Whether a sent batch may or may not be stored."""
        return any(each.maybe_stored for each in self._sent())

    def stick(self, size: int) -> None:
        """Become the partition for the next ``size`` bytes of its topic's keyless records."""
        self._sticky_until = self.taken + size

    def sticks(self, size: int) -> bool:
        """Whether it is also the partition for a keyless record of ``size`` bytes."""
        return self.taken + size <= self._sticky_until

    # -- the topic's metadata ----------------------------------------------------------------------------------------

    def found_in(self, incarnation: int) -> None:
        """Note that this incarnation of the topic has the partition."""
        self._known_in, self._missing_since = incarnation, None

    def missing_in(self, incarnation: int, now: float) -> float | None:
        """Note that the topic lacks the partition; returns since when, if the topic was recreated without it.

        A topic never loses partitions, so in the same incarnation a broker does not know yet that the topic has grown.
        """
        if self._known_in in (-1, incarnation):
            return None
        if self._missing_since is None:
            self._missing_since = now
        return self._missing_since

    # -- sending -----------------------------------------------------------------------------------------------------

    def sendable(self, now: float) -> ProducerBatch | None:
        """The batch that may be sent now, if any."""
        in_flight = 0
        for batch in self.batches:
            if batch.in_flight:
                in_flight += 1
                continue
            if not batch.due or batch.retry_at > now:
                return None
            if self.renumber_from is not None and batch.number >= self.renumber_from and not self._alone(batch):
                return None
            most = MAX_IN_FLIGHT if self.acknowledged and not self._retrying() else 1
            return batch if in_flight < most else None
        return None

    def adopt(self, identity: Identity) -> bool:
        """Number batches under ``identity`` from now on if that is safe; returns whether batches can be sent now.

        Called when a batch is `sendable`, so that everything before a batch to renumber is settled.
        """
        renumbered = self.renumbering
        if self.identity != identity and (renumbered or (self.renumber_from is None and not self.outcome_unknown)):
            self.identity, self.next_sequence = identity, 0
            self.acknowledged = self.gap = False
            self.renumber_from = None
            for batch in self._sent():
                batch.drop_sequence()
            return True
        return self.identity is not None and not renumbered

    @property
    def renumbering(self) -> bool:
        """Whether the oldest batch has to be sent in a new epoch."""
        return self.renumber_from is not None and self.batches[0].number >= self.renumber_from

    def unrenumberable(self) -> list[ProducerBatch]:
        """Batches that are due to be renumbered but must not be."""
        return [each for each in self._sent() if not each.renumberable] if self.batches and self.renumbering else []

    def renumber(self, batch: ProducerBatch) -> None:
        """The broker lacks the sequences before ``batch``, the oldest: send it in a new epoch."""
        self.renumber_from = batch.number

    def recreate(self, incarnation: int) -> None:
        """The topic was recreated: its log has no state of this producer."""
        self.incarnation = incarnation
        if self.identity is None:
            return
        self.acknowledged = False
        unsent = next((each.number for each in self.batches if each.sequence is None), 0)
        after = unsent or (self.batches[-1].number + 1 if self.batches else 0)
        self.renumber_from = after if self.renumber_from is None else min(after, self.renumber_from)

    # -- batches -----------------------------------------------------------------------------------------------------

    def begin(self, batch: ProducerBatch) -> None:
        """Add ``batch``, which is open from now on; the one before it is closed."""
        self.open = batch
        self.batches.append(batch)

    def close(self) -> ProducerBatch | None:
        """Let the open batch accept no more records; return it, if there is one."""
        if (batch := self.open) is NOT_OPEN:
            return None
        self.open = NOT_OPEN
        self._cancel_linger()
        self._taken += batch.seal()
        return batch

    def linger(self, core: ClientCore, until: float, over: Callable[[float], None]) -> None:
        """Call ``over`` at ``until``, unless the open batch is due or closed before."""
        self._linger = core.later(until, over)

    def make_due(self, batch: ProducerBatch, now: float) -> bool:
        """Allow ``batch`` to be sent; returns whether it was not allowed before. It may still grow."""
        if batch is self.open:
            self._cancel_linger()
        if not batch.make_due():
            return False
        if batch is self.batches[0]:
            self.moved_at = now
        return True

    def _cancel_linger(self) -> None:
        """Cancel the linger of the open batch; its timer would keep the batch alive."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def send(self, batch: ProducerBatch, node: int, request: InFlightBatches, *, idempotent: bool = True) -> None:
        """Account for ``batch`` going to the connection to ``node``; the first time it gets its sequence."""
        if batch is self.open:
            self.close()
        first = idempotent and batch.sequence is None
        batch.sent(request, node, self.next_sequence if first else None)
        if first:
            self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCES

    def encode(self, batch: ProducerBatch, version: int, compression: Compression, level: int | None) -> Buffer:
        """Encode ``batch`` for a ``version`` of Produce.

        Raises:
            EncodeError: the format of that version cannot hold it.
        """
        if version < PRODUCE_RECORD_BATCHES:
            records = parse_batch(batch.builder.build()).records(UNLIMITED)
            return build_message_set(records, magic=1, compression=compression, level=level)
        if self.identity is None or batch.sequence is None:
            return batch.builder.build_in_place(compression=compression, level=level)
        return batch.builder.build_in_place(
            compression=compression,
            level=level,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=batch.sequence,
            transactional=self.transactional,
        )

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Replace ``batch``, which certainly was not stored, with its halves."""
        index = self.batches.index(batch)
        halves = batch.halves()
        del self.batches[index]
        self.batches.insert(index, halves[1])
        self.batches.insert(index, halves[0])
        return halves

    def stored(self, batch: ProducerBatch, now: float) -> None:
        """Remove ``batch``, which a broker has stored."""
        index = self._remove(batch)
        self.moved_at = now
        if batch.sequence is None:
            return
        self.acknowledged, self.gap = True, False
        for earlier in islice(self.batches, index):
            earlier.overtake()

    def failed(self, batch: ProducerBatch, *, maybe_stored: bool) -> None:
        """Remove ``batch``, which has failed and is not in flight; a broker may have stored it all the same."""
        index = self._remove(batch)
        if batch.sequence is None:
            return
        if maybe_stored:
            self.gap = True
        elif batch.overtaken or any(each.sequence is not None for each in islice(self.batches, index, None)):
            self.renumber_from = batch.number if self.renumber_from is None else min(self.renumber_from, batch.number)
        else:
            self.next_sequence = batch.sequence

    def _remove(self, batch: ProducerBatch) -> int:
        """Remove ``batch``; returns its index."""
        index = self.batches.index(batch)
        del self.batches[index]
        if batch is self.open:
            self.close()
        return index

    def _alone(self, batch: ProducerBatch) -> bool:
        """Whether everything before ``batch`` is settled, and no request is in flight."""
        return batch is self.batches[0] and not any(each.in_flight for each in self._sent())

    def _retrying(self) -> bool:
        return any(each.again or not each.in_flight for each in self._sent())

    def _sent(self) -> list[ProducerBatch]:
        """The batches with a sequence: always the first ones."""
        sent = []
        for batch in self.batches:
            if batch.sequence is None:
                break
            sent.append(batch)
        return sent
