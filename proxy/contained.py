"""Contains bugs, so that one client or one upstream connection never ends the proxy.

Rules:
- An exception while handling a client's bytes ends at most that client's connection; one while handling a response of
  upstream ends at most the connection of the response. Both are logged.
- Callbacks (of a session to the delivery, of a batch to its stream) are contained at the call, so that the caller
  continues.
- Invalid input is refused before any state changes. Containment is only for bugs.
"""

import logging

from ottla.errors import OttlaError

log = logging.getLogger("ottla.proxy")


class contained:
    """Log an exception of the block, and continue after it."""

    # A class, because it is used for each part of a batch, and `contextmanager` takes four times as long.
    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        log.error("a bug in the proxy, please report it: %s", self._what, exc_info=error)
        return True


def as_ottla_error(error: Exception) -> OttlaError:
    """``error`` as an `OttlaError`, for callbacks that get the reason why a connection ended."""
    return error if isinstance(error, OttlaError) else OttlaError(f"internal error: {type(error).__name__}: {error}")
