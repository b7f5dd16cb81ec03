"""Clients that a process keeps: a Python worker of Spark's serves many tasks, one after the other.

A process that was forked makes its own: two of them on one connection would read each other's answers, and two under
one producer id would refuse each other's records.
"""

import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


ConfigT = TypeVar("ConfigT", bound=Hashable)
ClientT = TypeVar("ClientT", bound=Closable)

MOST = 16
"""More than tasks of one process use at once; the others are closed, the one that was not used for longest first."""


class Kept(Generic[ConfigT, ClientT]):
    """Clients by their configuration.

    Args:
        make: connects one.
        unharmed: exceptions that a client may be used after. After all others it is closed, because it may be in the
            midst of something, and the next task starts with another.
    """

    def __init__(self, make: Callable[[ConfigT], ClientT], unharmed: tuple[type[BaseException], ...] = ()) -> None:
        self._make, self._unharmed = make, unharmed
        self._clients: dict[tuple[int, ConfigT], ClientT] = {}
        """By process id, because a fork copies this dictionary."""

    def __iter__(self) -> Iterator[ClientT]:
        return iter(list(self._clients.values()))

    def close(self) -> None:
        """Close them all."""
        while self._clients:
            self._clients.popitem()[1].close()

    @contextmanager
    def use(self, config: ConfigT) -> Iterator[ClientT]:
        key = (os.getpid(), config)
        client = self._clients.pop(key, None) or self._make(config)
        self._clients[key] = client  # the one that was used last stands last
        while len(self._clients) > MOST:
            self._clients.pop(next(iter(self._clients))).close()
        try:
            yield client
        except self._unharmed:
            raise
        except BaseException:
            self._clients.pop(key, None)
            client.close()
            raise
