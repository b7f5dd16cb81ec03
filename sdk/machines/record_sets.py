"""What the answer to a Fetch holds for one partition: whole batches, a torn one, and what of them the user may see.

Rules:
- A damaged batch does not hide the good ones before it, and is never left out for what it seems to be.
- Brokers before Kafka 0.10.1 cut a batch that does not fit; the beginning of it tells how much it needs.

Source: CompletedFetch.java.
"""

from collections import deque
from collections.abc import Iterable

from ottla.codec.apis.fetch import AbortedTransaction
from ottla.codec.message_sets import Message, read_record_set
from ottla.codec.records import RecordBatch
from ottla.codec.wire import Buffer
from ottla.errors import ChecksumMismatch, OttlaError

AnyBatch = RecordBatch | Message
"""A batch of any format; both have `records`, `columns`, `next_offset` and `data`."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LENGTH_END = 12
"""Bytes of a batch or message up to the end of its length, which counts what follows."""
_ABORT = b"\x00\x00"
"""The type of the control record that ends an aborted transaction; it stands behind the version in the key."""


def found(records: Buffer, offset: int) -> tuple[list[AnyBatch], OttlaError | None]:
    """The batches up to the first that is known to be damaged, and what is wrong with that.

    Most checksums are compared later, by `sound`: that takes longer than all the rest, and the next Fetch only waits to
    hear where these batches end. Those of batches that may be left out are compared at once, for later they would not
    be: of what lies before ``offset``, which was asked for, and of what belongs to transactions.
    """
    batches: list[AnyBatch] = []
    try:
        for batch in read_record_set(records, verify=False):
            plain = isinstance(batch, RecordBatch) and not (batch.control or batch.transactional)
            if not plain or batch.next_offset <= offset:
                batch.check_crc()
            batches.append(batch)
    except OttlaError as error:
        return batches, error
    return batches, None


def sound(batches: list[AnyBatch]) -> tuple[list[AnyBatch], OttlaError | None]:
    """Of what was `found`, the batches before the first that is damaged, and what is wrong with that."""
    for index, batch in enumerate(batches):
        if isinstance(batch, RecordBatch):
            try:
                batch.check_crc()
            except ChecksumMismatch as damage:
                return batches[:index], damage
    return batches, None


def needed(torn: Buffer, max_bytes: int) -> int:
    """Bytes that the batch needs which begins ``torn``, the answer to a Fetch of at most ``max_bytes``."""
    if len(torn) < _LENGTH_END:
        return 2 * max_bytes
    length = int.from_bytes(memoryview(torn)[_LENGTH_END - 4 : _LENGTH_END], "big")
    return max(_LENGTH_END + length, max_bytes + 1)


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
