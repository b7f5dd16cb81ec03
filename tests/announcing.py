"""Announcements by zeroconf on the loopback interface, where all tests of this machine meet."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone() -> Iterator[None]:
    """During this block no other test announces a node: some tests search for every announcement."""
    with Path(tempfile.gettempdir(), "ottla-test-discovery.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
