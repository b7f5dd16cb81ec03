"""The bytes of Kafka's protocol: messages, frames, record batches, compressions, partitioners.

No I/O, no clock. Messages are declared in `ottla.codec.apis`, one file per API; `ottla.codec.wire` says how.
What brokers store is in `ottla.codec.stored`, and `ottla.codec.dump` makes any of it readable.
`engine` is what runs: ``"c"``, or ``"python"`` where the extensions were not built or ``OTTLA_ENGINE=python`` is set.
"""

from ottla.codec._engine import ENGINE as engine
from ottla.codec.compression import Compression
from ottla.codec.messages import build, parse
from ottla.codec.partitioners import PARTITIONERS
from ottla.codec.records import BatchBuilder, Record, RecordBatch, read_batches
from ottla.codec.wire import unknown_tags

__all__ = [
    "PARTITIONERS",
    "BatchBuilder",
    "Compression",
    "Record",
    "RecordBatch",
    "build",
    "engine",
    "parse",
    "read_batches",
    "unknown_tags",
]
