"""How a producer accepts records: the hot loop of everything that sends, in one place.

    SendFastPath ──► AppendFastPath ── topics ──► TopicBuffer ── partitions ──► PartitionBuffer ── open ──► OpenBatch

`AppendFastPath.append` does nearly every record, in C where that is built: hash the key, look whether there is room,
append. It knows nothing of time, of sequences or of what becomes of a batch, and leaves to its caller whatever is out
of the ordinary: a full batch, a partition that nothing was sent to yet, headers, values that are not bytes, another
thread, a client that is in the midst of a step.

A `SendFastPath` is for a caller that has one record at a time: `await fast.send_soon(topic, value)` is one call in C,
which makes no coroutine where there is nothing to wait for.

The classes are made to be derived from: a producer's own batches and partitions are those that records go into, so
nothing has to be kept twice.

The classes themselves are among the loops: `ottla.codec._loops` in Python, `ottla.codec._records` in C.
"""

from typing import TYPE_CHECKING

from ottla.codec._engine import ENGINE
from ottla.codec._loops import RECORD_OVERHEAD

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import AppendFastPath, OpenBatch, PartitionBuffer, SendFastPath, TopicBuffer
else:
    from ottla.codec._records import AppendFastPath, OpenBatch, PartitionBuffer, SendFastPath, TopicBuffer

__all__ = ["RECORD_OVERHEAD", "AppendFastPath", "OpenBatch", "PartitionBuffer", "SendFastPath", "TopicBuffer"]
