"""Reads the records that a ShareFetch response has acquired for this member.

Rules:
- The response has whole batches of the log: only the records within the acquired ranges belong to this member.
- An acquired offset without a record is a gap: compaction removed it, or it is a control record. The member has to
  acknowledge it, too.
- From a batch on that is damaged, or needs too much memory, the member reads no record of the response and releases the
  offsets, because other members may be able to read them. It then reads the partition no more: each attempt would use
  up a delivery, until the leader archives the records.

Source: ShareCompletedFetch.java, fetchRecords.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.codec.apis.share_fetch import AcquiredRecords
from ottla.codec.records import Record, read_batches
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError


class Acquired(NamedTuple):
    """The content of a partition in a ShareFetch response.

    Attributes:
        records: each with its delivery count, in order.
        gaps: ``(first offset, last offset)`` without records.
        unread: the same, for offsets that could not be read, because of `damage`.
    """

    records: list[tuple[Record, int]]
    gaps: list[tuple[int, int]]
    unread: list[tuple[int, int]]
    damage: DecodeError | None


def acquired(data: Buffer | None, ranges: Sequence[AcquiredRecords], memory: int) -> Acquired:
    """Read the acquired records.

    Args:
        memory: the most bytes that a batch may take, decompressed and as objects.
    """
    last = ranges[-1].last_offset
    found = Acquired([], [], [], None)
    at = ranges[0].first_offset
    """The first acquired offset that is not looked at yet."""
    damage: DecodeError | None = None
    try:
        for batch in read_batches(data or b""):
            if batch.next_offset > at and not batch.control:
                records = batch.records(memory)
                for each in ranges:
                    if each.last_offset >= at and each.first_offset < batch.next_offset:
                        for record in records.between(max(at, each.first_offset), each.last_offset + 1):
                            _skip(found.gaps, ranges, at, record.offset)
                            found.records.append((record, each.delivery_count))
                            at = record.offset + 1
            if batch.next_offset > last:
                break
            if batch.next_offset > at:
                _skip(found.gaps, ranges, at, batch.next_offset)
                at = batch.next_offset
    except DecodeError as error:
        damage = error
    _skip(found.unread if damage is not None else found.gaps, ranges, at, last + 1)
    return found._replace(damage=damage)


def _skip(into: list[tuple[int, int]], ranges: Sequence[AcquiredRecords], start: int, stop: int) -> None:
    """Add the acquired offsets from ``start`` up to, not including, ``stop``."""
    for each in ranges:
        first, last = max(start, each.first_offset), min(stop - 1, each.last_offset)
        if first <= last:
            into.append((first, last))
