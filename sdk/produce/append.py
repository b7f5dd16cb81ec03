"""How a producer accepts records: the hot path of sending, in one place.

    SendSoon ──► AppendFastPath ── topics ──► TopicBuffer ── partitions ──► PartitionBuffer ── open ──► OpenBatch

`AppendFastPath.append` handles nearly every record of `send`, `send_soon`, `send_many` and `send_nowait`, in C if the
extension is built: it hashes the key, checks that there is room, and appends. It knows nothing of time, sequences or
the fate of a batch. Anything unusual it leaves to its caller: a full batch, the first record of a partition, headers,
values that are not bytes, a call from another thread, or a call while the client is in the middle of a step.

`SendSoon`, a base class of the faces, is for a caller that has one record at a time: `await producer.send_soon(topic,
value)` is one call in C, and makes no coroutine if it need not wait. `BlockingSendSoon` is its like for blocking code.

Derive from these classes: a producer's own batches and partitions are the objects that records go into, so no data has
to be kept twice.

The classes themselves are in `ottla.sdk.produce._append_in_python` in Python, and in `ottla.sdk.produce._append` in C.
The records are encoded by the codec's `Appender`, which a batch has.
"""

from typing import TYPE_CHECKING

from ottla.codec._engine import engine_of

if TYPE_CHECKING or engine_of("producer", "ottla.sdk.produce._append") == "python":
    from ottla.sdk.produce._append_in_python import (
        AppendFastPath,
        BlockingSendSoon,
        OpenBatch,
        PartitionBuffer,
        SendSoon,
        TopicBuffer,
    )
else:
    from ottla.sdk.produce._append import (
        AppendFastPath,
        BlockingSendSoon,
        OpenBatch,
        PartitionBuffer,
        SendSoon,
        TopicBuffer,
    )

__all__ = [
    "AppendFastPath",
    "BlockingSendSoon",
    "OpenBatch",
    "PartitionBuffer",
    "SendSoon",
    "TopicBuffer",
]
