"""Appends records from columns: many at a time go into the open batch of their partition, without an object for each.

    columns ──► `append` ──► the open batch of the partition          as many rows as fit
                  │ 0
                  └────────► `ColumnRecords.record` ──► `ProducerCore.offer`    one row, which opens the next batch

Rules:
- As in the fast path for single records (`ottla.sdk.produce.append`), the caller handles everything unusual: a full
  batch, a new partition, a topic that is hidden from the fast path.
- Rows keep their order within a partition, because the caller offers the row at which `append` stopped, and continues
  after it.
"""

from array import array

from ottla.codec.columns import BinaryColumn, HeaderColumn
from ottla.sdk.produce.append import AppendFastPath
from ottla.sdk.produce.records import RECORD_OVERHEAD, PendingRecord

_HEADER_OVERHEAD = 10
"""Maximum bytes that a header takes in addition to its name and value."""


class ColumnRecords:
    """Records of one topic, field by field; every column has a row for each record.

    Attributes:
        keys: ``None`` if no record has a key.
        headers: ``None`` if no record has headers.
    """

    __slots__ = ("headers", "keys", "values")

    def __init__(
        self, values: BinaryColumn, keys: BinaryColumn | None = None, headers: HeaderColumn | None = None
    ) -> None:
        self.values, self.headers = values, headers
        self.keys = (
            BinaryColumn(bytes(4 * len(values) + 4), b"", bytes((len(values) + 7) // 8)) if keys is None else keys
        )

    def __len__(self) -> int:
        return len(self.values)

    def size(self, start: int, stop: int) -> int:
        """Maximum bytes that the records from ``start`` up to ``stop`` take."""
        keys, values, headers = self.keys.offsets, self.values.offsets, self.headers
        size = RECORD_OVERHEAD * (stop - start) + keys[stop] - keys[start] + values[stop] - values[start]
        if headers is not None:
            first, last = headers.offsets[start], headers.offsets[stop]
            names, contents = headers.names.offsets, headers.values.offsets
            size += _HEADER_OVERHEAD * (last - first)
            size += names[last] - names[first] + contents[last] - contents[first]
        return size

    def fitting(self, start: int, stop: int, room: int) -> int:
        """The row, at most ``stop``, up to which the records from ``start`` on take no more than ``room`` bytes."""
        if self.size(start, stop) <= room:
            return stop
        low, high = start, stop  # the records up to `low` fit, those up to `high` do not
        while high - low > 1:
            middle = (low + high) // 2
            if self.size(start, middle) <= room:
                low = middle
            else:
                high = middle
        return low

    def record(self, row: int, topic: str, partition: int | None, timestamp: int) -> PendingRecord:
        """One of the records, for `ottla.sdk.produce.core.ProducerCore.offer`."""
        headers = () if self.headers is None else self.headers[row]
        return PendingRecord(topic, self.values[row], self.keys[row], partition, headers, timestamp)


def append(
    appends: AppendFastPath,
    topic: str,
    partition: int | None,
    records: ColumnRecords,
    start: int,
    stop: int,
    timestamp: int,
) -> int:
    """Append records from ``start`` up to ``stop`` to the open batch of a partition, as many as fit.

    Args:
        partition: a partition of the topic; ``None``: the current one for keyless records, whether or not these have
            keys.
        timestamp: of all of them, in milliseconds since 1970.

    Returns:
        How many were appended; 0: the caller has to offer the first one separately.

    Raises:
        EncodeError: the timestamp is too far from others in its batch, or a header's name is not UTF-8.
    """
    buffer = appends.topics.get(topic)
    if buffer is None or (partition is not None and partition >= len(buffer.partitions)):
        return 0
    queue = buffer.sticky if partition is None else buffer.partitions[partition]
    if queue is None:
        return 0
    batch = queue.open
    end = records.fitting(start, stop, min(batch.left, appends.free))
    if end <= start:
        return 0
    headers = None if records.headers is None else records.headers.slice(start, end)
    stamps = array("q", [timestamp]) * (end - start)
    size = records.size(start, end)
    batch.add_columns(
        size, memoryview(stamps), records.keys.slice(start, end), records.values.slice(start, end), headers
    )
    appends.reserve(size)
    return end - start
