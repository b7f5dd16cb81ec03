"""Tracks which topics are held, so that their metadata stays fresh, and when to forget the others.

Rules:
- A topic's metadata is refreshed while the topic is held.
- A topic that was released, or only looked up, is not forgotten at once: another part of the client may have looked it
  up and not hold it yet.
- Its metadata counts as old once the topic is released, or once an update about other topics arrives. After
  `metadata_max_age` the topic is forgotten.
"""

import math
from collections.abc import Callable, Collection

from ottla.sdk.cluster.cluster import Cluster


class HeldTopics:
    """Counts the holders of each topic, and deletes old topics from ``cluster``; ``max_age`` is in seconds."""

    def __init__(self, cluster: Cluster, max_age: float) -> None:
        self._cluster, self._max_age = cluster, max_age
        self.held: dict[str, int] = {}
        """The number of holders of each topic."""
        self._loose: dict[str, float] = {}
        """Topics that are not held, and the time of the last metadata about them, or of the first update since they
        were released (inf until there is one)."""
        self._fresh: set[str] = set()
        """Topics in the last response that were not released since."""

    def is_old(self, name: str) -> bool:
        """Whether the topic's metadata is not kept fresh and does not come from the last response."""
        return name in self._loose and name not in self._fresh

    def hold(self, name: str) -> Callable[[], None]:
        """Keep the topic's metadata fresh; return a function that releases the topic."""
        self.held[name] = self.held.get(name, 0) + 1
        if name in self._fresh:  # fresh without a gap, so updates about other topics do not make it old
            self._loose.pop(name, None)
        released = False

        def release() -> None:
            nonlocal released
            if released:
                return
            released = True
            self.held[name] -= 1
            if not self.held[name]:
                del self.held[name]
                self._loose[name] = math.inf
                self._fresh.discard(name)

        return release

    def forget(self, name: str) -> None:
        """Delete all that is known about the topic."""
        self._loose.pop(name, None)
        self._cluster.forget(name)

    def learned(self, names: Collection[str], now: float) -> None:
        """Record new metadata of these topics; forget topics not held or looked up for `metadata_max_age`."""
        self._fresh = set(names)
        for name in names:
            if name in self.held:
                self._loose.pop(name, None)
            else:
                self._loose[name] = now
        for name, since in list(self._loose.items()):
            self._loose[name] = min(since, now)
            if name not in self.held and now - since >= self._max_age:
                self.forget(name)
