"""Bytes to readable items, and those to text; `ottla dump` is made of it. No I/O here.

    for item in dump_segment(pieces, Options(topic="flights")):
        print(text(item))

Rules:
- Bytes come in pieces, and what is held of them does not grow with the file: a batch, a frame, an entry. Snapshots and
  checkpoints, which are small, are held whole.
- What can be read is given before it is said what cannot: an item of kind `BROKEN` says where the first broken byte of
  a batch, a frame or an entry is. Then the dump goes on with the next one. Where nothing tells where that begins, the
  dump ends, and the item says so (``rest``).
- Nothing is repaired or left out silently. What is merely not known (an API, a type of record) stays bytes.

`items` has what all share, `readable` makes plain values of messages, `segments`, `files` and `captures` make items of
bytes, and `text` makes text of items.
"""

from ottla.codec.dump.captures import dump_requests, dump_responses
from ottla.codec.dump.files import (
    dump_leader_epochs,
    dump_offset_index,
    dump_offsets,
    dump_partition_metadata,
    dump_properties,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from ottla.codec.dump.items import BROKEN, Item, Options
from ottla.codec.dump.segments import dump_segment, dump_segment_07
from ottla.codec.dump.text import text

__all__ = [
    "BROKEN",
    "Item",
    "Options",
    "dump_leader_epochs",
    "dump_offset_index",
    "dump_offsets",
    "dump_partition_metadata",
    "dump_properties",
    "dump_requests",
    "dump_responses",
    "dump_segment",
    "dump_segment_07",
    "dump_snapshot",
    "dump_time_index",
    "dump_transaction_index",
    "text",
]
