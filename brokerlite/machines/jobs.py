"""Jobs: background work that runs partly in threads and partly on the event loop.

A job is a generator that yields `Work`. The driver runs each piece in a thread and resumes the job on the loop when the
piece is done; an exception of the work is thrown into the job. So the code of a job shows, in one place and in order,
the steps of the thread and the steps of the loop.
"""

from collections.abc import Callable, Generator

Work = Callable[[], None]
"""Runs in a thread; work that waits for the disk may raise `OSError`."""
Job = Generator[Work, None, None]
