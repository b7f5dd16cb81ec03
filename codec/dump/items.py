"""What every dump is made of: options, items, and the report of a broken byte."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ottla.codec.wire import Buffer
from ottla.errors import DecodeError

_BEFORE, _BEHIND = 8, 16
"""Bytes that are shown before and from a broken one on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is shown, and how.

    Attributes:
        topic: whose segment it is: the records of internal topics are messages.
        base_offset: what the offsets of an index count from; ``None`` where that is not known.
        start: the offset to begin with, of a segment or an index.
        records: show the records of batches.
        deep: take apart the bytes in which members of a group speak to each other.
        raw: leave the keys and values of internal topics and control records as bytes.
    """

    topic: str = ""
    base_offset: int | None = None
    start: int = 0
    records: bool = True
    deep: bool = False
    raw: bool = False

    def skips(self, offset: int) -> bool:
        """Whether ``offset`` is before the one to begin with; by default none is, also no broken one below 0."""
        return self.start > 0 and offset < self.start


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a dump: ``kind`` says what it is, ``fields`` are plain values (see `readable`).

    ``at`` among the fields is where it begins in the file.
    """

    kind: str
    fields: dict[str, Any]


Dump = Iterator[Item]


@dataclass(frozen=True, slots=True)
class View:
    """Bytes to show around a broken one.

    Attributes:
        at: the offset of the first.
        of: what they are, unless they are the file's.
    """

    data: Buffer
    at: int = 0
    of: str = ""


class Broken(DecodeError):
    """The first broken byte.

    Attributes:
        offset: where it is in the file or stream; of compressed records, where these begin.
        within: what it belongs to, such as ``batch at 4096 (offsets 17-20)``.
        around: the bytes around it, from `around_at` on.
        mark: which of them it is.
    """

    def __init__(self, error: DecodeError, *, at: int, within: str, view: View, inner: int | None = None) -> None:
        """``inner`` is its offset within the view, where the view is not of the file."""
        super().__init__(error.reason, error.path, at)
        self.within = within
        self.what = view.of
        place = max(0, (at if inner is None else inner) - view.at)
        start = max(0, place - _BEFORE)
        self.around = bytes(view.data[start : place + _BEHIND])
        self.around_at = view.at + start
        self.mark = place - start

    def item(self) -> Item:
        """The same as an item, for machines."""
        fields = {"at": self.offset, "within": self.within, "path": self.path, "reason": self.reason}
        view = {"bytes_of": self.what} if self.what else {}
        return Item("broken", {**fields, "bytes": self.around.hex(" "), "bytes_from": self.around_at, **view})

    def text(self) -> str:
        """The same for people, in several lines."""
        digits = [f"[{each:02x}]" if index == self.mark else f"{each:02x}" for index, each in enumerate(self.around)]
        if len(digits) == self.mark:
            digits.append("[end]")
        report = {
            "first broken byte": f"{self.offset} (0x{self.offset:x})",
            "within": self.within,
            "field": self.path,
            "problem": self.reason,
            f"bytes from {self.around_at} on{f' of {self.what}' if self.what else ''}": " ".join(digits),
        }
        return "\n".join(f"  {name}: {value}" for name, value in report.items() if value)
