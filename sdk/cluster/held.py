"""The topics whose metadata are kept fresh, and those that are known from before.

Rules:
- A topic is kept fresh while it is held. What is known of it is not forgotten at once then, for another part may have
  learned it and not hold it yet; but it counts as old, and goes after `metadata_max_age`.
"""

import math
from collections.abc import Callable, Iterable

from ottla.sdk.cluster.cluster import Cluster


class HeldTopics:
    """Of ``cluster``; ``max_age`` in seconds."""

    def __init__(self, cluster: Cluster, max_age: float) -> None:
        self._cluster, self._max_age = cluster, max_age
        self.held: dict[str, int] = {}
        """How many hold each topic."""
        self.released: dict[str, float] = {}
        """Topics that are not held any more, and when metadata came first since then, or covered them; at first inf."""

    def hold(self, name: str) -> Callable[[], None]:
        """Keep the topic's metadata fresh until what this returns is called."""
        self.held[name] = self.held.get(name, 0) + 1
        released = False

        def release() -> None:
            nonlocal released
            if released:
                return
            released = True
            self.held[name] -= 1
            if not self.held[name]:
                del self.held[name]
                self.released[name] = math.inf

        return release

    def forget(self, name: str) -> None:
        """Nothing is known of the topic."""
        self.released.pop(name, None)
        self._cluster.topics.pop(name, None)
        self._cluster.errors.pop(name, None)

    def learned(self, names: Iterable[str], now: float) -> None:
        """There are new metadata of these; forget topics that were released long ago."""
        for name in names:
            if name in self.held:
                self.released.pop(name, None)
            elif name in self.released:
                self.released[name] = now
        for name, since in list(self.released.items()):
            self.released[name] = min(since, now)
            if name not in self.held and now - since >= self._max_age:
                self.forget(name)
