"""Bounds the memory for the records of refused batches, which windows remember (`ottla.proxy.clients.windows`).

Rules:
- A client decides how long: until it sends other records to the partition, maybe for as long as its producer exists. So
  these records count in the budget. They count together, as one more client: their own client may have disconnected.
- They take at most `FRACTION` of the budget. Beyond that the proxy forgets the idle producer that has most of them, and
  fences it if it sends again: a record that is not recognised would be stored twice.
- Windows change within steps that need them. So they are measured, and producers forgotten, between the steps.
"""

from collections import Counter

from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.producers import KnownProducer
from ottla.proxy.clients.windows import Window

HOLDER = -2
"""The number under which they count in the budget; no client has it."""
FRACTION = 4
"""They may take one part in so many of the budget."""


class RefusedMemory:
    """Measures the windows of clients' producers, and chooses the producer to forget."""

    def __init__(self, buffered: Buffered) -> None:
        self._buffered = buffered
        self._changed: dict[Window[ClientBatch], KnownProducer[ClientBatch]] = {}
        self._windows: dict[Window[ClientBatch], int] = {}
        """Window -> the bytes that are counted for it."""
        self._producers: Counter[KnownProducer[ClientBatch]] = Counter()

    @property
    def total(self) -> int:
        return self._buffered.of[HOLDER]

    def changed(self, producer: KnownProducer[ClientBatch], window: Window[ClientBatch]) -> None:
        """Note that a window changes in this step."""
        self._changed[window] = producer

    def measure(self) -> None:
        """Count the records of the changed windows."""
        changed, self._changed = self._changed, {}
        for window, producer in changed.items():
            self._count(producer, window, window.memory)

    def excess(self) -> KnownProducer[ClientBatch] | None:
        """The producer to forget; ``None`` if the bound holds, or no producer may be forgotten now."""
        if self.total <= self._buffered.most // FRACTION:
            return None
        idle = (each for each in self._producers if each.may_be_forgotten)
        return max(idle, key=self._producers.__getitem__, default=None)

    def forgotten(self, producer: KnownProducer[ClientBatch]) -> None:
        """Remove the records of a forgotten producer from the count."""
        for window in producer.windows.values():
            self._changed.pop(window, None)
            self._count(producer, window, 0)

    def _count(self, producer: KnownProducer[ClientBatch], window: Window[ClientBatch], size: int) -> None:
        more = size - self._windows.get(window, 0)
        if not more:
            return
        self._windows[window] = size
        if not size:
            del self._windows[window]
        self._producers[producer] += more
        if not self._producers[producer]:
            del self._producers[producer]
        self._buffered.count(HOLDER, more)
