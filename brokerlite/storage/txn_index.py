"""Keeps the index of aborted transactions of one segment: the transactions whose abort markers are in it.

    00000000000000000000.txnindex   Kafka's (`ottla.codec.stored.indexes`), which has no checksum
    00000000000000000000.aborted    ours: the same entries, each with its CRC

A damaged index would deliver aborted records to read_committed consumers. Apache Kafka trusts its index. Checking it
would take a read of the whole log, and a damaged log may have lost the markers. So the broker keeps a copy.

Rules:
- The files are created with the first entry. Entries are in the order of the markers; `add` ignores a known entry, so
  recovery can add the transactions that it finds again.
- An entry is written to the copy first. The copy is right up to the first entry whose CRC does not match. If Kafka's
  file begins with all of these entries, Kafka's file counts, and a copy that is missing or has lost its end is
  rebuilt from it. Otherwise the copy counts.
- An incomplete entry ends a file: replaying the log writes the rest again.

Source: TransactionIndex.java.
"""

import logging
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.checksums import crc32c
from ottla.codec.stored.indexes import ENTRY_SIZES, AbortedTxn, build_entry, parse_entries
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

COPY = ".aborted"
_SIZE = ENTRY_SIZES[AbortedTxn]
_CRC = struct.Struct(">I")
_COPIED = _SIZE + _CRC.size
_ALL = 2**63


class TxnIndex:
    """Reads and writes the index of one segment.

    Attributes:
        paths: of the two files, which exist only if a transaction was aborted.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self.paths = _paths(path)
        self._disk = disk
        self._entries: list[AbortedTxn] | None = None
        """``None``: not read yet."""

    @property
    def entries(self) -> list[AbortedTxn]:
        """All intact entries, in the order of the markers."""
        if self._entries is None:
            self._entries = _agreed(self._contents())
        return self._entries

    def since(self, offset: int) -> Iterator[AbortedTxn]:
        """Iterate over entries whose markers are at ``offset`` or later."""
        entries = self.entries
        return (entries[i] for i in range(_index(entries, offset), len(entries)))

    def keep(self, before: int = _ALL) -> None:
        """Keep exactly the entries of markers before an offset in both files; log a warning about a damaged file."""
        contents = self._contents()
        entries = _agreed(contents) if self._entries is None else self._entries
        self._entries = entries[: _index(entries, before)]
        wanted = [b"".join(each) for each in zip(*map(_built, self._entries), strict=True)] or [b"", b""]
        for path, content, want in zip(self.paths, contents, wanted, strict=True):
            if content == want:
                continue
            if not content.startswith(want) and (content or path.suffixes[0] != COPY):  # an older broker made no copy
                log.warning("index of aborted transactions is damaged, rewriting it", extra={"file": str(path)})
            if want:
                self._disk.write_file(path, want)
            else:
                self._disk.unlink(path)

    def add(self, entry: AbortedTxn) -> None:
        """Add an entry, unless it or a later one is there; an `OSError` leaves everything as it was."""
        entries = self.entries
        if entries and entries[-1].last_offset >= entry.last_offset:
            return
        plain, copied = _built(entry)
        self._disk.write(self.paths[1], len(entries) * _COPIED, copied)
        self._disk.write(self.paths[0], len(entries) * _SIZE, plain)
        entries.append(entry)

    def rename(self, path: Path) -> None:
        """Rename the files that exist."""
        new = _paths(path)
        for old, name in zip(self.paths, new, strict=True):
            if self._disk.exists(old):
                self._disk.rename(old, name)
        self.paths = new

    def _contents(self) -> list[bytes]:
        return [self._disk.read_file(path) if self._disk.exists(path) else b"" for path in self.paths]


def _paths(path: Path) -> tuple[Path, Path]:
    """Return the paths of Kafka's file and ours; both names may end in a suffix of the segment."""
    return path, path.with_name(path.name.replace(".txnindex", COPY))


def _built(entry: AbortedTxn) -> tuple[bytes, bytes]:
    """Build an entry in the formats of both files."""
    plain = build_entry(entry)
    return plain, plain + _CRC.pack(crc32c(plain))


def _agreed(contents: Sequence[bytes]) -> list[AbortedTxn]:
    """Return the entries that count, given the contents of both files."""
    plain, copied = _parsed(contents[0]), _parsed(_checked(contents[1]))
    return plain if plain[: len(copied)] == copied else copied


def _checked(copy: bytes) -> bytes:
    """Return the entries of a copy, up to the first whose CRC does not match."""
    whole = []
    for at in range(0, len(copy) - _COPIED + 1, _COPIED):
        plain = copy[at : at + _SIZE]
        if _CRC.unpack_from(copy, at + _SIZE)[0] != crc32c(plain):
            break
        whole.append(plain)
    return b"".join(whole)


def _parsed(data: bytes) -> list[AbortedTxn]:
    """Parse the entries, up to the first invalid one."""
    entries: list[AbortedTxn] = []
    with suppress(DecodeError):
        for entry in parse_entries(AbortedTxn, data):
            entries.append(entry)
    return entries


def _index(entries: Sequence[AbortedTxn], offset: int) -> int:
    """Return the index of the first entry whose marker is at ``offset`` or later."""
    return bisect_left(entries, offset, key=lambda entry: entry.last_offset)
