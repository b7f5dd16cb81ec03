"""What was written and the disk need not hold yet."""

import threading
from pathlib import Path

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.storage.disk import Disk


class Unsynced:
    """Small files, and folders in which names have changed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._guard = threading.Lock()
        self._count = 0
        self._files: dict[Path, int] = {}
        """With the number of the last change."""
        self._folders: dict[Path, int] = {}

    def __bool__(self) -> bool:
        return bool(self._files or self._folders)

    def file(self, path: Path) -> None:
        """A file was written, and perhaps made."""
        self._note(self._files, path)
        self._note(self._folders, path.parent)

    def folder(self, path: Path) -> None:
        """A name in a folder was made, changed or removed."""
        self._note(self._folders, path)

    def begin_sync(self) -> Work:
        """Work that has the disk hold all that was noted before this call; it may run while more is noted."""
        files, folders = dict(self._files), dict(self._folders)

        def sync() -> None:
            for path in files:
                self._disk.sync(path)
            for path in folders:  # names last: the disk has what they are the names of
                self._disk.sync_folder(path)
            self._forget(self._files, files)
            self._forget(self._folders, folders)

        return sync

    def _note(self, where: dict[Path, int], path: Path) -> None:
        with self._guard:
            self._count += 1
            where[path] = self._count

    def _forget(self, where: dict[Path, int], synced: dict[Path, int]) -> None:
        with self._guard:
            for path, number in synced.items():
                if where.get(path) == number:
                    del where[path]
