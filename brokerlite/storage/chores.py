"""Hands out the chores of a data folder: work that waits for the disk, and that no request waits for."""

from collections.abc import Callable
from pathlib import Path

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.storage.refusals import Refusals
from ottla.brokerlite.storage.topic_disk import TopicDeleted


class Chores:
    """Runs chores in a thread.

    Args:
        path: of the data folder, for the log.
        run: takes a chore, to run it in a thread.
    """

    def __init__(self, path: Path, refusals: Refusals, run: Callable[[Work], None]) -> None:
        self._path = path
        self._refusals = refusals
        self._run = run

    def later(self, chore: Work) -> None:
        """Run ``chore`` in a thread. A disk error in it does not stop the broker: recovery checks what was missed."""

        def work() -> None:
            try:
                chore()
            except TopicDeleted:
                pass
            except OSError as error:
                self._refusals.tell("write", self._path, error)

        self._run(work)
