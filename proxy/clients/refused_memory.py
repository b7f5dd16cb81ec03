"""Bounds the memory for the records of refused batches, which windows remember (`ottla.proxy.clients.windows`).

Rules:
- A client decides how long: until it sends other records to the partition, maybe for as long as its producer exists. So
  these records count in the budget. They count together, as one more client: their own client may have disconnected.
- They take at most `FRACTION` of the budget. Beyond that the proxy forgets the idle producer that has most of them, of
  the host that has most, and fences it if it sends again: a record that is not recognised would be stored twice.
- A host within its equal share loses no producer, even if no producer of the others is idle. So a client with many
  producers has only its own fenced.
- Windows change within steps that need them. So they are measured, and producers forgotten, between the steps.
- A search looks at all producers. It is repeated only after a change that may let it find more.
"""

from collections import Counter
from heapq import heapify, heappop, heappush
from operator import itemgetter

from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.producers import KnownProducer
from ottla.proxy.clients.windows import Window

HOLDER = -2
"""The number under which they count in the budget; no client has it."""
FRACTION = 4
"""They may take one part in so many of the budget."""


class RefusedMemory:
    """Measures the windows of clients' producers, and chooses the producers to forget."""

    def __init__(self, buffered: Buffered) -> None:
        self._buffered = buffered
        self._changed: dict[Window[ClientBatch], KnownProducer[ClientBatch]] = {}
        self._windows: dict[Window[ClientBatch], int] = {}
        """Window -> the bytes that are counted for it."""
        self._hosts: dict[str, Counter[KnownProducer[ClientBatch]]] = {}
        """Host -> the bytes of its producers."""
        self._host_of: dict[KnownProducer[ClientBatch], str] = {}
        """The host for which a producer counts; its own may be another one since the last step."""
        self._searches = False
        """Since the last search a count has changed, or a producer has become idle."""

    @property
    def total(self) -> int:
        return self._buffered.of[HOLDER]

    def changed(self, producer: KnownProducer[ClientBatch], window: Window[ClientBatch]) -> None:
        """Note that a window changes in this step."""
        self._changed[window] = producer

    @property
    def _most(self) -> int:
        return self._buffered.most // FRACTION

    def measure(self) -> None:
        """Count the records of the changed windows."""
        changed, self._changed = self._changed, {}
        for window, producer in changed.items():
            self._count(producer, window, window.memory)
        if self.total > self._most and not self._searches:
            self._searches = any(each in self._host_of and each.may_be_forgotten for each in {*changed.values()})

    def excess(self) -> list[KnownProducer[ClientBatch]]:
        """The producers to forget: none if the bound holds, and too few if others may not be forgotten now."""
        above = self.total - self._most
        if above <= 0 or not self._searches:
            return []
        self._searches = False
        share = self._most // len(self._hosts)
        idle: dict[str, list[tuple[KnownProducer[ClientBatch], int]]] = {}
        largest: list[tuple[int, str]] = []
        for host, producers in self._hosts.items():
            size = producers.total()
            if size > share:
                found = [each for each in producers.items() if each[0].may_be_forgotten]
                idle[host] = sorted(found, key=itemgetter(1))
                largest.append((-size, host))
        heapify(largest)
        chosen = []
        while above > 0 and largest:
            negative, host = heappop(largest)
            if -negative > share and idle[host]:
                producer, size = idle[host].pop()
                chosen.append(producer)
                above -= size
                heappush(largest, (negative + size, host))
        return chosen

    def forgotten(self, producer: KnownProducer[ClientBatch]) -> None:
        """Remove the records of a forgotten producer from the count."""
        for window in producer.windows.values():
            self._changed.pop(window, None)
            self._count(producer, window, 0)

    def _count(self, producer: KnownProducer[ClientBatch], window: Window[ClientBatch], size: int) -> None:
        more = size - self._windows.get(window, 0)
        if more:
            self._windows[window] = size
            if not size:
                del self._windows[window]
            self._buffered.count(HOLDER, more)
        if more or self._host_of.get(producer, producer.host) != producer.host:
            self._searches = True
            self._move(producer, more)

    def _move(self, producer: KnownProducer[ClientBatch], more: int) -> None:
        """Count a producer for its present host, with ``more`` bytes than before."""
        host = self._host_of.pop(producer, producer.host)
        size = more + self._hosts.get(host, Counter()).pop(producer, 0)
        if host in self._hosts and not self._hosts[host]:
            del self._hosts[host]
        if size:
            self._hosts.setdefault(producer.host, Counter())[producer] = size
            self._host_of[producer] = producer.host
