"""Clients that a process keeps open, because a Python worker of Spark runs many tasks, one after the other.

A forked process makes its own clients: two processes on one connection would read each other's responses, and two with
one producer id would have each other's records refused.
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
"""More than the tasks of one process use at once. Beyond this number, the least recently used client is closed."""


class ClientCache(Generic[ConfigT, ClientT]):
    """Keeps one client per configuration.

    Args:
        make: connects a client.
        unharmed: exceptions after which a client can be used again. After any other exception it is closed, because a
            request may be half done, and the next task gets a new client.
    """

    def __init__(self, make: Callable[[ConfigT], ClientT], unharmed: tuple[type[BaseException], ...] = ()) -> None:
        self._make, self._unharmed = make, unharmed
        self._clients: dict[tuple[int, ConfigT], ClientT] = {}
        """Keyed by process id too, because a fork copies this dictionary."""

    def __iter__(self) -> Iterator[ClientT]:
        return iter(list(self._clients.values()))

    def close(self) -> None:
        """Close all clients."""
        while self._clients:
            self._clients.popitem()[1].close()

    @contextmanager
    def use(self, config: ConfigT) -> Iterator[ClientT]:
        key = (os.getpid(), config)
        client = self._clients.pop(key, None) or self._make(config)
        self._clients[key] = client  # the most recently used client comes last
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
