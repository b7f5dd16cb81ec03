"""Hands answered requests to a thread, for observers that may block: a disk, a pipe, an exporter."""

import math
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from ottla.serve.answered import AnsweredRequest

MOST_WAITING = 10_000
"""The most requests that wait for the thread; those beyond are dropped and counted."""
_TOGETHER = 1000
"""The most requests that are handed over at a time."""
END = 1.0
"""Seconds for the last requests when the observer, or the server, ends."""


class ObserverThread(ABC):
    """An observer of requests, with a thread of this name."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[AnsweredRequest | None] = queue.SimpleQueue()
        self._dropped = 0
        self._ends_by = math.inf
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __call__(self, request: AnsweredRequest) -> None:
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(request)
        else:
            self._dropped += 1

    def end(self) -> None:
        """Let the thread end behind the requests that wait, soon."""
        self._ends_by = time.monotonic() + END
        self._waiting.put(None)

    def join(self) -> None:
        """After `end`: block until the thread has ended, for up to a second."""
        self._thread.join(END)

    # -- in the thread

    def is_late(self) -> bool:
        """Whether the observer should have ended by now."""
        return time.monotonic() >= self._ends_by

    @abstractmethod
    def _take(self, requests: Sequence[AnsweredRequest], dropped: int) -> None:
        """Take some requests, and how many were dropped since the last call; it raises nothing."""

    @abstractmethod
    def _close(self) -> None:
        """Called behind the last requests."""

    def _run(self) -> None:
        told, ends = 0, False
        while not ends:
            requests = [self._waiting.get()]
            while len(requests) < _TOGETHER and not self._waiting.empty():
                requests.append(self._waiting.get())
            ends = None in requests
            dropped = self._dropped
            self._take([each for each in requests if each is not None], dropped - told)
            told = dropped
        self._close()
