"""The bytes of Kafka's protocol: messages, frames, record batches, compression, partitioners.

    request, end = parse(MetadataRequest, 9, data)      # the opposite: build(request, 9)
    for batch in read_record_set(records):              # of any age: a `RecordBatch`, or a `Message` from before 0.11
        for record in batch.records():                  # or batch.columns(), field by field
            print(record.offset, record.key, record.value)

No I/O, no clock. Messages are declared in `ottla.codec.apis`, one file per API; `ottla.codec.wire` says how.
Tagged fields that a message's class does not know are kept and written back; ``unknown_tags(message)`` returns them.
`read_batches` is `read_record_set` for data without formats older than Kafka 0.11, like responses to Fetch v4+;
`read_columns` puts the records of many such batches into one `Columns`.
`ottla.codec.stored` declares brokers' files and the records of internal topics; `ottla.codec.dump` makes them readable.
Bytes that do not parse raise `DecodeError`, as do wrong CRCs; values that do not fit raise `EncodeError`.
`engine` says which implementation runs: ``"c"``, or ``"python"`` if the extensions were not built or
``OTTLA_ENGINE=python`` is set.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.codec._engine import ENGINE as engine
    from ottla.codec.columns import Columns
    from ottla.codec.compression import Compression
    from ottla.codec.message_sets import Message, read_record_set
    from ottla.codec.messages import build, parse
    from ottla.codec.partitioners import PARTITIONERS
    from ottla.codec.records import BatchBuilder, Record, RecordBatch, Records, read_batches, read_columns
    from ottla.codec.wire import unknown_tags

_HOMES = {
    "PARTITIONERS": "partitioners",
    "BatchBuilder": "records",
    "Columns": "columns",
    "Compression": "compression",
    "Message": "message_sets",
    "Record": "records",
    "RecordBatch": "records",
    "Records": "records",
    "build": "messages",
    "engine": "_engine",
    "parse": "messages",
    "read_batches": "records",
    "read_columns": "records",
    "read_record_set": "message_sets",
    "unknown_tags": "wire",
}

__all__ = [
    "PARTITIONERS",
    "BatchBuilder",
    "Columns",
    "Compression",
    "Message",
    "Record",
    "RecordBatch",
    "Records",
    "build",
    "engine",
    "parse",
    "read_batches",
    "read_columns",
    "read_record_set",
    "unknown_tags",
]


def __getattr__(name: str) -> object:
    # Lazily, because of threads: a thread that imports a module first holds its lock, while it imports this package.
    # If that imported its modules, two threads could wait for each other, and Python hands out half-made modules then.
    if home := _HOMES.get(name):
        found: object = getattr(import_module(f"{__name__}.{home}"), "ENGINE" if name == "engine" else name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
