"""Splits the records of one partition in a Fetch response into batches, and finds damaged, truncated and hidden ones.

Rules:
- A damaged batch does not hide the intact ones before it. It is never skipped as hidden from the user, because the
  bytes that say so may be damaged.
- Brokers before Kafka 0.10.1 truncate a batch that does not fit; its first bytes give its size.

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
"""Bytes of a batch or message up to the end of its length field; the field counts the bytes after it."""
_ABORT = b"\x00\x00"
"""The type of the control record that ends an aborted transaction; in the key it follows the version."""


def found(records: Buffer, offset: int, isolation: int) -> tuple[list[AnyBatch], OttlaError | None]:
    """The batches before the first one known to be damaged, and the damage, if any.

    Most checksums are compared later, by `sound`: comparing takes longer than all the rest, and the next Fetch only
    needs to know where these batches end. The checksums of batches that may be left out are compared at once, because
    later they would not be: batches before the requested ``offset``, and batches that `visible` may hide.
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
    """The error for two batches whose offsets overlap. CRCs do not cover offsets, so either may be the damaged one."""
    first, second = (f"{each.base_offset} to {each.last_offset}" for each in (before, batch))
    reason = f"a batch has offsets {first}, the next has {second}: one of them is damaged"
    return DecodeError(reason, "RecordBatch.base_offset")


def sound(batches: list[AnyBatch], isolation: int) -> tuple[list[AnyBatch], OttlaError | None]:
    """The intact batches before the first damaged one, and the damage, if any; ``batches`` come from `found`."""
    for index, batch in enumerate(batches):
        if isinstance(batch, RecordBatch) and not _may_be_hidden(batch, isolation):
            try:
                batch.check_crc()
            except ChecksumMismatch as damage:
                advice = f"; to skip the batch, seek to {batch.next_offset}, where it seems to end"
                return batches[:index], located(damage, advice=advice)
    return batches, None


def _may_be_hidden(batch: RecordBatch, isolation: int) -> bool:
    """Whether the batch might be hidden from the user; `visible` decides."""
    return batch.control or (isolation != READ_UNCOMMITTED and batch.transactional)


def needed(torn: Buffer) -> int:
    """The size that a truncated batch or message states; if its length field is cut off, the size up to that field."""
    if len(torn) < _LENGTH_END:
        return _LENGTH_END
    return _LENGTH_END + int.from_bytes(memoryview(torn)[_LENGTH_END - 4 : _LENGTH_END], "big", signed=True)


def cut(torn: Buffer) -> DecodeError:
    """The error for a batch that arrived truncated although the request had room for all of it."""
    reason = (
        f"the batch says it has {needed(torn)} bytes, but {len(torn)} arrived: its length is damaged, or it was cut"
    )
    return DecodeError(reason, "RecordBatch.length", _LENGTH_END - 4)


def too_large(size: int, limit: int) -> RecordTooLarge:
    """The error for a batch that states a size of more than ``limit`` bytes."""
    larger = f"a batch of {size} bytes is larger than fetch_max_bytes, which is {limit}"
    return RecordTooLarge(f"{larger}: raise that, unless its length is damaged")


def corrupt(place: TopicPartition, offset: int) -> CorruptMessage:
    """The error for damage that the broker itself reports. A retry does not help, although the code is retriable."""
    what = f"{place[0]}-{place[1]} from offset {offset}: the broker cannot read its log there"
    error = CorruptMessage(f"{what}; to skip the damage, seek")
    error.retriable = False
    return error


def about(place: TopicPartition, offset: int, error: OttlaError) -> OttlaError:
    """Add the partition, and the offset that was requested, to an error."""
    where = f"{place[0]}-{place[1]} from offset {offset}"
    if isinstance(error, DecodeError):
        return located(error, where).with_traceback(None)
    return type(error)(f"{where}: {error}")


def located(error: DecodeError, where: str = "", advice: str = "") -> DecodeError:
    """Add to an error where the damage is, and what to do about it."""
    error.within = ", ".join(filter(None, (where, error.within)))
    error.reason += advice
    return error


def visible(
    batches: Iterable[AnyBatch], aborted: Iterable[AbortedTransaction] | None, isolation: int
) -> list[AnyBatch]:
    """The batches whose records the user may see: no control batches, and with read_committed none of aborted
    transactions.

    Args:
        aborted: from the same response, which names every aborted transaction with records in it, wherever it began.
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
