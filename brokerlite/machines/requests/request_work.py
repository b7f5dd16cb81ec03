"""Runs requests that need much computing in threads, while the loop serves other connections.

Rules:
- The requests of a connection stay in order: the driver hands in no request of a connection that is held
  (`HoldConnection`).
- The work of a request comes in pieces, and the result of a piece is used before the next begins, so a request takes no
  more memory than its largest piece. Requests with remaining pieces take turns, and only `AT_ONCE` of them run at once.
- Waiting requests are bounded by `MOST_BYTES`; beyond that a request is refused. A request whose connection is gone is
  still processed: with ``acks=0`` the client does not wait for an answer anyway.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ottla.brokerlite.machines.jobs import Job, Work

log = logging.getLogger("ottla.brokerlite")

AT_ONCE = 2
"""Requests whose work runs in threads at the same time."""
MOST_BYTES = 256 * 2**20
"""The most bytes of all requests that wait or run."""


class WorkFirst(NamedTuple):
    """Returned by a handler if threads have to work before there is an answer.

    Attributes:
        pieces: yields each piece of the work, which runs in a thread; is resumed on the loop when the piece is done;
            returns the handler's result.
        refuse: returns the handler's result if the request is refused because too many are waiting.
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
    """Schedules the requests that need threads.

    Args:
        start: starts a job.
    """

    def __init__(self, start: Callable[[Job], None]) -> None:
        self._start = start
        self._waiting: deque[tuple[_Request, Work]] = deque()
        """Requests with their next piece."""
        self._under_way = 0
        self._bytes = 0

    def add(self, first: WorkFirst, settle: Callable[[Any], None], fail: Callable[[], None]) -> None:
        """Run the work of a request in threads, or refuse it.

        Args:
            settle: called with the handler's result.
            fail: called if the work raised.
        """
        if self._bytes + first.size > MOST_BYTES:
            settle(first.refuse())
            return
        self._bytes += first.size
        self._go_on(_Request(first, settle, fail))
        self._begin()

    def _go_on(self, request: _Request, raised: Exception | None = None) -> None:
        """Run a request up to its next piece, which then waits for its turn, or to its end."""
        pieces = request.first.pieces
        try:
            try:
                work = next(pieces) if raised is None else pieces.throw(raised)
            except StopIteration as done:
                request.settle(done.value)
            else:
                self._waiting.append((request, work))
                return
        except Exception:  # a bug, or out of memory
            log.exception("request failed, client disconnected")
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
