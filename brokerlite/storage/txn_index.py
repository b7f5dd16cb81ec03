"""The index of aborted transactions of one segment: those whose markers are in it.

Rules:
- The file is made with the first entry. Entries come in the order of the markers; one that is there already is left
  out, so that recovery can add what it finds again.
- An entry that is not whole ends the file: the rest is written again when the log is replayed.

Source: TransactionIndex.java.
"""

from bisect import bisect_left
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.indexes import ENTRY_SIZES, AbortedTxn, build_entry, parse_entry
from ottla.errors import DecodeError

_SIZE = ENTRY_SIZES[AbortedTxn]


class TxnIndex:
    """The index of one segment.

    Attributes:
        path: of the file, which there is only where a transaction was aborted.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._entries: list[AbortedTxn] | None = None
        """``None``: not read yet."""

    @property
    def entries(self) -> list[AbortedTxn]:
        """All that are whole, in the order of the markers."""
        if self._entries is None:
            data = self._disk.read_file(self.path) if self._disk.exists(self.path) else b""
            self._entries = []
            for at in range(0, len(data) - _SIZE + 1, _SIZE):
                try:
                    self._entries.append(parse_entry(AbortedTxn, data, at))
                except DecodeError:
                    break
        return self._entries

    def is_whole(self) -> bool:
        """Whether the file has whole entries and nothing else."""
        size = self._disk.size(self.path) if self._disk.exists(self.path) else 0
        return size == len(self.entries) * _SIZE

    def add(self, entry: AbortedTxn) -> None:
        """Add an entry, unless it or a later one is there; an `OSError` leaves everything as it was."""
        entries = self.entries
        if entries and entries[-1].last_offset >= entry.last_offset:
            return
        self._disk.write(self.path, len(entries) * _SIZE, build_entry(entry))
        entries.append(entry)

    def rename(self, path: Path) -> None:
        """Give the file another name, if there is one."""
        if self._disk.exists(self.path):
            self._disk.rename(self.path, path)
        self.path = path

    def keep_before(self, offset: int) -> None:
        """Drop what is about markers at ``offset`` or behind it, or not whole."""
        entries = self.entries
        self._entries = entries[: bisect_left(entries, offset, key=lambda entry: entry.last_offset)]
        if not self._entries:
            self._disk.unlink(self.path)
        else:
            self._disk.truncate(self.path, len(self._entries) * _SIZE)
