"""Has a client's later requests wait while the proxy reads the records of an earlier one, or may not send it yet.

Rules:
- A broker handles the requests of a connection in order. Records of a later request would get sequences that upstream
  does not expect yet, and EndTxn would end a transaction without its last records.
- A client that has disconnected may leave any number of requests. So they are handled in a loop: a call that holds the
  line, and releases it at once, does not handle the next request within itself.
"""

from collections import deque
from collections.abc import Callable

from ottla.proxy.clients.buffered import Buffered

Call = Callable[[float], None]
"""Handles a request; raises nothing."""


class RequestLine:
    """The requests of one client that wait.

    Args:
        client: the client's number.
    """

    def __init__(self, client: int, buffered: Buffered) -> None:
        self._client, self._buffered = client, buffered
        self.held = False
        """Later requests wait."""
        self._kept = 0
        self._waiting: deque[tuple[Call, int]] = deque()
        """Calls that handle a request each, and the bytes of the request."""
        self._is_handling = False
        """`release` is handling waiting requests."""

    def in_turn(self, call: Call, size: int, now: float) -> None:
        """Call ``call`` at once, or after all earlier ones; ``size``: bytes of its request."""
        if self.held or self._waiting:
            self._waiting.append((call, size))
            self._buffered.count(self._client, size)
        else:
            call(now)

    def hold(self, size: int) -> None:
        """Have later requests wait until `release`; ``size``: bytes of the request that is kept meanwhile."""
        self.held, self._kept = True, size
        self._buffered.count(self._client, size)

    def release(self, now: float, first: Call | None = None) -> None:
        """Handle the waiting requests, ``first`` before all others, until one of them holds the line again."""
        self.held = False
        self._buffered.count(self._client, -self._kept)
        if first is not None:
            self._waiting.appendleft((first, 0))
        if self._is_handling:  # the loop goes on
            return
        self._is_handling = True
        try:
            while self._waiting and not self.held:
                call, size = self._waiting.popleft()
                self._buffered.count(self._client, -size)
                call(now)
        finally:
            self._is_handling = False
