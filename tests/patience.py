"""How long tests wait before they report a hang: the only such figures of all tests.

They make no promise about speed. A test passes as soon as the expected event happens, so that a large figure costs
nothing; a small one fails on a machine that is busy with other programs.
"""

from collections.abc import Iterator

HUNG = 120.0
"""Seconds to wait for the expected outcome of a task, a thread, a connection or a subprocess."""
PROGRAM = 10 * round(HUNG)  # PySpark takes no fractions
"""Seconds for a program of several steps to end: a build, an installation, a query of Spark."""
WHOLE = 30 * HUNG
"""Seconds for a whole slow or deep test, including the start of its peers: many times what the longest needs alone. No
test has a limit of its own, because a busy machine exceeds any figure that fits one test."""
FAR = 10 * HUNG
"""A timeout longer than any test: code that finishes within `HUNG` has not waited for it. That proves "at once" on any
machine, which an upper bound in seconds cannot."""


def longer_and_longer(seconds: float) -> Iterator[float]:
    """Timeouts, each twice as long as the one before, for code that fails in any case when its timeout has passed.

    Its error says what happened until then. On a busy machine that may be nothing yet, so try a longer timeout.
    """
    while seconds < HUNG:
        yield seconds
        seconds *= 2
