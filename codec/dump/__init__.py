"""Turns bytes into readable items, and items into text, for `ottla dump`. No I/O here.

    for item in dump_segment(pieces, Options(topic="flights")):
        print(text(item))

Rules:
- Bytes come in pieces, and memory does not grow with the file: only a batch, a frame or an entry is held at a time.
  Snapshots and checkpoints, which are small, are held as a whole.
- The readable part comes first. Then an item of kind `BROKEN` says where the first broken byte of a batch, a frame or
  an entry is, and the dump continues with the next one. If it is impossible to tell where that begins, the dump ends,
  and the item says so (``rest``).
- The dump neither repairs bytes nor leaves them out silently. Anything that is only unknown (an API, a type of record)
  stays bytes.

`items` has what all dumps share, `readable` turns messages into plain values, `segments`, `files` and `captures` turn
bytes into items, and `text` turns items into text.
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
from ottla.codec.dump.items import BROKEN, DumpOptions, Item
from ottla.codec.dump.segments import dump_segment, dump_segment_07
from ottla.codec.dump.text import text

__all__ = [
    "BROKEN",
    "DumpOptions",
    "Item",
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
