"""What the answer to a Fetch holds for one partition: whole batches, a torn one, and what of them the user may see.

Rules:
- A damaged batch does not hide the good ones before it, and is never left out for what it seems to be.
- Brokers before Kafka 0.10.1 cut a batch that does not fit; its beginning says how large it is.

Source: CompletedFetch.java.
"""

from collections import deque
from collections.abc import Iterable

from ottla.codec.apis.fetch import AbortedTransaction
from ottla.codec.message_sets import Message, read_record_set
from ottla.codec.records import RecordBatch, read_plain
from ottla.codec.wire import Buffer
from ottla.errors import ChecksumMismatch, CorruptMessage, DecodeError, OttlaError, RecordTooLarge
from ottla.sdk.cluster.cluster import TopicPartition

AnyBatch = RecordBatch | Message
"""A batch of any format; both have `records`, `columns`, `next_offset` and `data`."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LENGTH_END = 12
"""Bytes of a batch or message up to the end of its length, which counts what follows."""
_ABORT = b"\x00\x00"
"""The type of the control record that ends an aborted transaction; it stands behind the version in the key."""


def found(records: Buffer, offset: int, isolation: int) -> tuple[list[AnyBatch], OttlaError | None]:
    """The batches up to the first that is known to be damaged, and what is wrong with that.

    Most checksums are compared later, by `sound`: that takes longer than all the rest, and the next Fetch only has to
    know where these batches end. Those of batches that may be left out are compared at once, for later they would not
    be: of what lies before ``offset``, which was asked for, and of what `visible` looks at.
    """

    batches: list[AnyBatch] = []
    plain, at = read_plain(records, offset, transactional=isolation == READ_UNCOMMITTED)
    batches += plain
    end = plain[-1].next_offset if plain else -1

    def at_once(batch: RecordBatch) -> bool:
        return batch.next_offset <= offset or _may_be_hidden(batch, isolation)

    try:
        for batch in read_record_set(records, at, verify=at_once):
            if isinstance(batch, RecordBatch) and batch.base_offset < end:
                raise _overlap(batches.pop(), batch)
            batches.append(batch)
            end = batch.next_offset
    except OttlaError as error:
        return batches, error
    return batches, None


def _overlap(before: AnyBatch, batch: AnyBatch) -> DecodeError:
    """Nothing says which of the two is wrong: CRCs do not cover offsets."""
    first, second = (f"{each.base_offset} to {each.last_offset}" for each in (before, batch))
    reason = f"a batch has offsets {first}, the next has {second}: one of them is damaged"
    return DecodeError(reason, "RecordBatch.base_offset")


def sound(batches: list[AnyBatch], isolation: int) -> tuple[list[AnyBatch], OttlaError | None]:
    """Of what was `found` behind the offset, all before the first that is damaged, and what is wrong with that."""
    for index, batch in enumerate(batches):
        if isinstance(batch, RecordBatch) and not _may_be_hidden(batch, isolation):
            try:
                batch.check_crc()
            except ChecksumMismatch as damage:
                damage.reason += f"; to leave the batch out, seek to {batch.next_offset}, where it seems to end"
                return batches[:index], damage
    return batches, None


def _may_be_hidden(batch: RecordBatch, isolation: int) -> bool:
    """The user may be not to see it."""
    return batch.control or (isolation != READ_UNCOMMITTED and batch.transactional)


def needed(torn: Buffer) -> int:
    """Bytes that the batch or message says it has which begins ``torn``; where that is cut, those up to its end."""
    if len(torn) < _LENGTH_END:
        return _LENGTH_END
    return _LENGTH_END + int.from_bytes(memoryview(torn)[_LENGTH_END - 4 : _LENGTH_END], "big", signed=True)


def cut(torn: Buffer) -> DecodeError:
    """What to say of a batch that did not come whole, though it was asked for with room for all of it."""
    reason = (
        f"{needed(torn)} bytes were asked for, as it says, and {len(torn)} came: its length is damaged, or it is cut"
    )
    return DecodeError(reason, "RecordBatch.length", _LENGTH_END - 4)


def too_large(size: int, limit: int) -> RecordTooLarge:
    """What to say of a batch that says it has more than ``limit`` bytes."""
    larger = f"a batch of {size} bytes is larger than fetch_max_bytes, which is {limit}"
    return RecordTooLarge(f"{larger}: raise that, unless its length is damaged")


def corrupt(place: TopicPartition, offset: int) -> CorruptMessage:
    """What to say where the broker itself finds damage. Asking again does not help, though the code says so."""
    what = f"{place[0]}-{place[1]} from offset {offset}: the broker cannot read its log there"
    error = CorruptMessage(f"{what}; to go on behind the damage, seek")
    error.retriable = False
    return error


def about(place: TopicPartition, offset: int, error: OttlaError) -> OttlaError:
    """The error, with the partition, and the offset from which it was to be read."""
    where = f"{place[0]}-{place[1]} from offset {offset}"
    if isinstance(error, DecodeError):
        error.within = ", ".join(filter(None, (where, error.within)))
        return error.with_traceback(None)
    return type(error)(f"{where}: {error}")


def visible(
    batches: Iterable[AnyBatch], aborted: Iterable[AbortedTransaction] | None, isolation: int
) -> list[AnyBatch]:
    """The batches whose records the user may see: no control batches, and with read_committed none of aborted
    transactions.

    ``aborted`` is of one answer, which names every aborted transaction that has records in it, wherever it began.
    """
    if isolation == READ_UNCOMMITTED:
        return [each for each in batches if not each.control]
    waiting = deque(sorted(aborted or (), key=lambda each: each.first_offset))
    dropping: set[int] = set()
    seen: list[AnyBatch] = []
    for batch in batches:
        while waiting and waiting[0].first_offset <= batch.last_offset:
            dropping.add(waiting.popleft().producer_id)
        if batch.control:
            if any((each.key or b"")[2:4] == _ABORT for each in batch.records()):
                dropping.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in dropping):
            seen.append(batch)
    return seen
