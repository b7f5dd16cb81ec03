"""Tracks files and names that have to be flushed to disk."""

import threading
from pathlib import Path

from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.storage.disk import Disk


class Unsynced:
    """Tracks written small files, and folders in which names have changed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._guard = threading.Lock()
        self._count = 0
        self._files: dict[Path, int] = {}
        """Path -> the number of its last change."""
        self._folders: dict[Path, int] = {}

    def __bool__(self) -> bool:
        return bool(self._files or self._folders)

    def file(self, path: Path) -> None:
        """Note that a file was written, and perhaps created."""
        self._note(self._files, path)
        self._note(self._folders, path.parent)

    def folder(self, path: Path) -> None:
        """Note that a name in a folder was created, changed or removed."""
        self._note(self._folders, path)

    def begin_sync(self) -> Work:
        """Return work that flushes everything noted before this call; it may run while more is noted."""
        files, folders = dict(self._files), dict(self._folders)

        def sync() -> None:
            for path in files:
                self._disk.sync(path)
            for path in folders:  # names last, so that no name on disk refers to missing content
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
