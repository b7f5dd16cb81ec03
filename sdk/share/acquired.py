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
    found = Acquired([], [], [], None)
    at = ranges[0].first_offset
    """The first acquired offset that is not looked at yet."""
    index = 0
    """The range in which it is, or the one behind it."""
    damage: DecodeError | None = None
    try:
        for batch in read_batches(data or b""):
            if batch.next_offset <= at:
                continue
            records = None if batch.control else batch.records(memory)
            while ranges[index].first_offset < batch.next_offset:
                each = ranges[index]
                at = max(at, each.first_offset)
                stop = min(each.last_offset + 1, batch.next_offset)
                for record in records.between(at, stop) if records is not None else ():
                    if record.offset > at:
                        found.gaps.append((at, record.offset - 1))
                    found.records.append((record, each.delivery_count))
                    at = record.offset + 1
                if at < stop:
                    found.gaps.append((at, stop - 1))
                    at = stop
                if each.last_offset >= batch.next_offset:
                    break
                index += 1
                if index == len(ranges):
                    return found
    except DecodeError as error:
        damage = error
    rest = found.gaps if damage is None else found.unread
    rest += [(max(at, each.first_offset), each.last_offset) for each in ranges[index:] if each.last_offset >= at]
    return found._replace(damage=damage)
