"""Imports without garbage collection.

Python collects while it imports, a dozen times for a client, and each time scans modules and classes that are there to
stay: a tenth of the time until the first record.
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
            _let_age()
            gc.enable()


def _let_age() -> None:
    """Move all objects to the oldest generation: the next collection, of the youngest, would scan them all."""
    if gc.get_freeze_count() == 0:  # the program has frozen none that would thaw
        gc.freeze()
        gc.unfreeze()
