"""Requests that take so much computing that a thread does it first; meanwhile other connections are served.

Rules:
- The requests of a connection stay in order: the driver hands in no other of one that is held (`Hold`).
- First come, first served, and only a few at once, because each may take hundreds of megabytes meanwhile.
- What waits is bounded, too: beyond that a request is told so instead. One that nobody waits for any more, because its
  connection is gone, is dropped, unless it is under way.
- What the work was about may have changed meanwhile: then there is more work first, and the connection stays held.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.brokerlite.machines.jobs import Job, Work

log = logging.getLogger("ottla.brokerlite")

AT_ONCE = 2
"""Requests that threads work for at the same time."""
MOST_BYTES = 256 * 2**20
"""Bytes of requests that wait, or are worked for."""


class WorkFirst(NamedTuple):
    """What a handler returns where a thread has to work before there is an answer.

    Attributes:
        work: is run in a thread.
        then: returns what the handler would, perhaps another of these. Its argument is whether the work was done, which
            it was not if too much waits already.
        size: bytes of the request.
    """

    work: Work
    then: Callable[[bool], Any]
    size: int


class _Waiting(NamedTuple):
    connection: int
    first: WorkFirst
    settle: Callable[[Any], None]
    fail: Callable[[], None]


class RequestWork:
    """All requests that threads work for.

    Args:
        start: has a job done.
    """

    def __init__(self, start: Callable[[Job], None]) -> None:
        self._start = start
        self._waiting: deque[_Waiting] = deque()
        self._under_way = 0
        self._bytes = 0

    def add(self, first: WorkFirst, connection: int, settle: Callable[[Any], None], fail: Callable[[], None]) -> None:
        """Have the work of a request done.

        Args:
            settle: takes what ``first.then`` returns, which may be more work.
            fail: called where there is nothing to take.
        """
        if self._bytes + first.size > MOST_BYTES:
            settle(first.then(False))
            return
        self._bytes += first.size
        self._waiting.append(_Waiting(connection, first, settle, fail))
        self._begin()

    def disconnected(self, connection: int) -> None:
        """Nobody waits for the answers of this connection any more."""
        dropped = [each for each in self._waiting if each.connection == connection]
        for each in dropped:
            self._waiting.remove(each)
            self._bytes -= each.first.size

    def _begin(self) -> None:
        while self._waiting and self._under_way < AT_ONCE:
            self._under_way += 1
            self._start(self._do(self._waiting.popleft()))

    def _do(self, request: _Waiting) -> Job:
        try:
            try:
                yield request.first.work
            finally:
                self._under_way -= 1
                self._bytes -= request.first.size
            request.settle(request.first.then(True))
        except Exception:  # a mistake of ours, or no memory
            log.exception("a request failed")
            request.fail()
        self._begin()
