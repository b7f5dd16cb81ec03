"""Requests that take so much computing that threads do it; meanwhile other connections are served.

Rules:
- The requests of a connection stay in order: the driver hands in no other of one that is held (`Hold`).
- The work of a request comes in pieces, and what a piece has made is used before the next begins: a request takes no
  more memory than its largest piece. Those that have pieces left take turns, and only a few are at work at once.
- What waits is bounded, too: beyond that a request is told so instead. One whose connection is gone is done as well:
  with ``acks=0`` nobody waits for an answer anyway.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ottla.brokerlite.machines.jobs import Job, Work

log = logging.getLogger("ottla.brokerlite")

AT_ONCE = 2
"""Requests that threads work for at the same time."""
MOST_BYTES = 256 * 2**20
"""Bytes of requests that wait, or are worked for."""


class WorkFirst(NamedTuple):
    """What a handler returns where threads have to work before there is an answer.

    Attributes:
        pieces: gives each piece of the work, to be run in a thread, is resumed on the loop when that is done, and
            returns what the handler would.
        refuse: returns what the handler would if nothing is done because too much waits already.
        size: bytes of the request.
    """

    pieces: Generator[Work, None, Any]
    refuse: Callable[[], Any]
    size: int


class _Request(NamedTuple):
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
        self._waiting: deque[tuple[_Request, Work]] = deque()
        """Requests with their next piece."""
        self._under_way = 0
        self._bytes = 0

    def add(self, first: WorkFirst, settle: Callable[[Any], None], fail: Callable[[], None]) -> None:
        """Have the work of a request done.

        Args:
            settle: takes what the handler would have returned.
            fail: called where there is nothing to take.
        """
        if self._bytes + first.size > MOST_BYTES:
            settle(first.refuse())
            return
        self._bytes += first.size
        self._go_on(_Request(first, settle, fail))
        self._begin()

    def _go_on(self, request: _Request, raised: Exception | None = None) -> None:
        """Take a request up to its next piece, with which it waits for its turn, or to its end."""
        pieces = request.first.pieces
        try:
            try:
                work = next(pieces) if raised is None else pieces.throw(raised)
            except StopIteration as done:
                request.settle(done.value)
            else:
                self._waiting.append((request, work))
                return
        except Exception:  # a mistake of ours, or no memory
            log.exception("request failed")
            request.fail()
        self._bytes -= request.first.size

    def _begin(self) -> None:
        while self._waiting and self._under_way < AT_ONCE:
            self._under_way += 1
            self._start(self._do(*self._waiting.popleft()))

    def _do(self, request: _Request, work: Work) -> Job:
        raised: Exception | None = None
        try:
            yield work
        except Exception as error:
            raised = error
        finally:
            self._under_way -= 1
        self._go_on(request, raised)
        self._begin()
