"""The bytes of Kafka's protocol: messages, frames, record batches, compressions, partitioners.

No I/O, no clock. Messages are declared in `ottla.codec.apis`, one file per API; `ottla.codec.wire` says how.
"""

from ottla.codec.compression import Compression
from ottla.codec.messages import build, parse
from ottla.codec.partitioners import PARTITIONERS
from ottla.codec.records import BatchBuilder, Record, RecordBatch, read_batches

__all__ = ["PARTITIONERS", "BatchBuilder", "Compression", "Record", "RecordBatch", "build", "parse", "read_batches"]
