"""Imports without garbage collection.

Python collects while it imports, a dozen times for a client, and each time scans modules and classes that are there to
stay: a tenth of the time of the import.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage in a block, which imports modules."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
