"""What keeps a bug to itself: one client, or one upstream connection, must never end the proxy.

Rules:
- Whatever a client's bytes provoke ends at most that client's connection; whatever an answer of upstream provokes ends
  at most the connection that it came on. Both are logged.
- Who is called back by others (a session by the delivery, a batch by the partition that it went to) is contained where
  it is called, so that the callers' own work goes on.
- What can be refused is refused before anything has changed. The rest here is for what nobody has thought of.
"""

import logging

from ottla.errors import OttlaError

log = logging.getLogger("ottla.proxy")


class contained:
    """Log what the block raises, and go on."""

    # A class, because one is made for each part of a batch, and `contextmanager` takes four times as long.
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
    """``error`` for those who are told why a connection ended."""
    return error if isinstance(error, OttlaError) else OttlaError(f"internal error: {type(error).__name__}: {error}")
