"""Has a client's later requests wait while the proxy reads the records of an earlier one.

Rules:
- A broker handles the requests of a connection in order. Records of a later request would get sequences that upstream
  does not expect yet, and EndTxn would end a transaction without its last records.
"""

from collections import deque
from collections.abc import Callable

from ottla.proxy.clients.buffered import Buffered


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
        self._waiting: deque[tuple[Callable[[float], None], int]] = deque()
        """Calls that handle a request each, and the bytes of the request."""

    def in_turn(self, call: Callable[[float], None], size: int, now: float) -> None:
        """Call ``call``, which raises nothing, at once, or after all earlier ones; ``size``: bytes of its request."""
        if self.held:
            self._waiting.append((call, size))
            self._buffered.count(self._client, size)
        else:
            call(now)

    def hold(self, size: int) -> None:
        """Have later requests wait until `release`; ``size``: bytes of the request that is kept meanwhile."""
        self.held, self._kept = True, size
        self._buffered.count(self._client, size)

    def release(self, now: float) -> None:
        """Handle the waiting requests, until one of them holds the line again."""
        self.held = False
        self._buffered.count(self._client, -self._kept)
        while self._waiting and not self.held:
            call, size = self._waiting.popleft()
            self._buffered.count(self._client, -size)
            call(now)
