"""The topics whose metadata are kept fresh, and those that are known besides.

Rules:
- A topic is kept fresh while it is held. What is known of one that is not, because it was released, or because somebody
  only asked for it, is not forgotten at once, for another part may have learned it and not hold it yet; but it counts
  as old once it was released, or metadata of others came, and goes after `metadata_max_age`.
"""

import math
from collections.abc import Callable, Collection

from ottla.sdk.cluster.cluster import Cluster


class HeldTopics:
    """Of ``cluster``; ``max_age`` in seconds."""

    def __init__(self, cluster: Cluster, max_age: float) -> None:
        self._cluster, self._max_age = cluster, max_age
        self.held: dict[str, int] = {}
        """How many hold each topic."""
        self._loose: dict[str, float] = {}
        """Topics that are not held, and when metadata came first since then, or were last about them; at first inf."""
        self._fresh: set[str] = set()
        """Topics that the last answer was about, and nobody has released since."""

    def is_old(self, name: str) -> bool:
        """What is known of the topic is neither kept fresh nor from the last answer."""
        return name in self._loose and name not in self._fresh

    def hold(self, name: str) -> Callable[[], None]:
        """Keep the topic's metadata fresh until what this returns is called."""
        self.held[name] = self.held.get(name, 0) + 1
        if name in self._fresh:  # kept fresh without a gap: it is not old when metadata of others come
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
        """Nothing is known of the topic."""
        self._loose.pop(name, None)
        self._cluster.forget(name)

    def learned(self, names: Collection[str], now: float) -> None:
        """There are new metadata of these; forget topics that nobody has held, or asked for, for long."""
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
