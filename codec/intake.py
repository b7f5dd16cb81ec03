"""Where a producer lets records in: the hot loop of everything that sends, in one place.

    Door ──► Intake ── lanes ──► Lane ── slots ──► Slot ── open ──► OpenBatch ──► builder
    clock    memory              topic             partition        room, whom to tell

`Intake.put` does nearly every record, in C where that is built: hash the key, look whether there is room, append. It
knows nothing of time, of sequences or of what becomes of a batch, and it leaves to its caller whatever is out of the
ordinary: a full batch, a partition that nothing was sent to yet, headers, bytes that are none, another thread.

A `Door` is for who has one record at a time: `await door.send_soon(topic, value)` is one call in C, which makes no
coroutine where there is nothing to wait for.

The classes are made to be derived from: a producer's own batches and partitions are those that records go into, so
nothing has to be kept twice.

The classes themselves are among the loops: `ottla.codec._loops` in Python, `ottla.codec._records` in C.
"""

from typing import TYPE_CHECKING

from ottla.codec._engine import ENGINE
from ottla.codec._loops import RECORD_OVERHEAD

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import Door, Intake, Lane, OpenBatch, Slot
else:
    from ottla.codec._records import Door, Intake, Lane, OpenBatch, Slot

__all__ = ["RECORD_OVERHEAD", "Door", "Intake", "Lane", "OpenBatch", "Slot"]
