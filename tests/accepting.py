"""A thread that accepts connections, for peers of tests that have no event loop."""

import contextlib
import socket
import threading
from collections.abc import Callable

from tests.patience import HUNG


class AcceptingThread:
    """Passes each connection of a listener to a function, from `start` to `close`.

    The close of a listener does not end a call of accept() in another thread. A process that continues after a pause
    (SIGCONT) does: the system then repeats the call with the same number of a file descriptor. By then the number may
    belong to the next listener, and the thread takes a connection from it.

    Args:
        listener: this object closes it.
        serve: runs in the thread, and should return soon.
    """

    def __init__(self, listener: socket.socket, serve: Callable[[socket.socket], object]) -> None:
        self._listener = listener
        self._serve = serve
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, name=f"accepts at {self.address}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and wait until the thread has ended."""
        with contextlib.suppress(OSError):  # on macOS: "not connected"; the thread wakes all the same
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(HUNG)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._serve(connection)
