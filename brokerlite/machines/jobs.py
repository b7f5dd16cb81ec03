"""Work for threads, and what is decided between two pieces of it.

A job is a generator that gives `Work`. The driver runs each piece in a thread, and resumes the job on the loop when it
is done; what the work raises is thrown into the job. So a job says in one place, and in order, what the thread does and
what the loop does to the machines.
"""

from collections.abc import Callable, Generator

Work = Callable[[], None]
"""It is run in a thread; what waits for the disk may raise `OSError`."""
Job = Generator[Work, None, None]
