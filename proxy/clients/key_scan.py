"""Finds the keys of a batch outside the partition that the topic's partitioner chooses, without making records.

Rules:
- Only the keys are read. Values and headers are skipped by the records' sizes; upstream checks them.
- The functions may run in a thread. They return ``None`` for a batch that cannot be read.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.codec.compression import Compression, decompressed_bound
from ottla.codec.records import COMPRESSION_MASK, HEADER_SIZE, MAGIC, RecordBatch, parse_batch, scan_keys
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError
from ottla.proxy.clients.opening import ATTRIBUTES_AT, DECOMPRESSED_LIMIT, MAGIC_AT, count_in
from ottla.proxy.routing import Routes

LOOKS = 8
"""How many keys of a batch the report looks at."""
LOOKED_THROUGH = 256
"""Among how many records of a batch it chooses them."""
_ANY = -1
"""No partition: every key counts as misplaced."""

LONGEST_KEY = 1000
"""Bytes of the longest keys that the report gets: it hashes them on the loop, several times."""

Example = tuple[int, bytes | None, int]
"""The index of a record in its batch, its key, and the key's partition; no key if it is longer than `LONGEST_KEY`."""


class FoundKeys(NamedTuple):
    """The keys of a batch.

    Attributes:
        misplaced: how many belong to another partition.
        examples: some of the misplaced records, the first ones.
        looked: some of all records with a key, if the report looks at them.
    """

    records: int
    keyless: int
    misplaced: int
    examples: Sequence[Example] = ()
    looked: Sequence[Example] = ()


def is_plain(data: Buffer) -> bool:
    """Whether a record set is an uncompressed batch of Kafka 0.11 or later, as far as its header says."""
    return len(data) > HEADER_SIZE and data[MAGIC_AT] == MAGIC and not data[ATTRIBUTES_AT] & COMPRESSION_MASK


def scan_plain(data: Buffer, routes: Routes, partition: int, most: int, *, looks: bool = False) -> FoundKeys | None:
    """Find the keys of an uncompressed batch.

    Args:
        most: the most examples.
        looks: whether to return some of all keys.
    """
    return _scan(data, HEADER_SIZE, count_in(data), routes, partition, most, looks)


def scan_batch(batch: RecordBatch, routes: Routes, partition: int, most: int, looks: bool = False) -> FoundKeys | None:
    """Find the keys of a batch, which may be compressed. For the arguments see `scan_plain`."""
    try:
        body = batch.body(DECOMPRESSED_LIMIT, decompressed_bound(batch.compression, batch.data[HEADER_SIZE:]))
    except DecodeError:
        return None
    return _scan(body, 0, batch.count, routes, partition, most, looks)


def memory_to_scan(batch: RecordBatch) -> int:
    """Bytes of memory while a batch is scanned: the batch itself and, if it is compressed, its content."""
    if batch.compression == Compression.NONE:
        return len(batch.data)
    content = decompressed_bound(batch.compression, batch.data[HEADER_SIZE:])
    return len(batch.data) + min(content, DECOMPRESSED_LIMIT)


def parsed(data: Buffer) -> RecordBatch | None:
    """The first batch of a record set."""
    try:
        return parse_batch(data)
    except DecodeError:
        return None


def _scan(
    body: Buffer, start: int, count: int, routes: Routes, partition: int, most: int, looks: bool
) -> FoundKeys | None:
    partitioner, partitions = routes.partitioner, routes.partitions
    end, keyless, misplaced, examples = scan_keys(body, start, count, partitioner, partitions, partition, most)
    if end != len(body):
        return None
    looked: Sequence[Example] = ()
    if looks:
        among = min(count, LOOKED_THROUGH)
        _, _, _, looked = scan_keys(body, start, among, partitioner, partitions, _ANY, LOOKS, among // LOOKS)
    return FoundKeys(count, keyless, misplaced, [*map(shortened, examples)], [*map(shortened, looked)])


def shortened(example: Example) -> Example:
    """An example without its key if that is too long for the report."""
    row, key, partition = example
    return (row, key if key is None or len(key) <= LONGEST_KEY else None, partition)
