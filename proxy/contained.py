"""What keeps a bug to itself: one client, or one upstream connection, must never end the proxy.

Rules:
- Whatever a client's bytes provoke ends at most that client's connection; whatever an answer of upstream provokes ends
  at most the connection that it came on. Both are logged.
- Who is called back by others (a session by the delivery, a batch by the partition that it went to) is contained where
  it is called, so that the callers' own work goes on.
- What can be refused is refused before anything has changed. The rest here is for what nobody has thought of.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.errors import OttlaError

log = logging.getLogger("ottla.proxy")


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Log what the block raises, and go on."""
    try:
        yield
    except Exception:
        log.exception("a bug in the proxy, please report it: %s", what)


def as_ottla_error(error: Exception) -> OttlaError:
    """``error`` for those who are told why a connection ended."""
    return error if isinstance(error, OttlaError) else OttlaError(f"internal error: {type(error).__name__}: {error}")
