"""What every dump is made of: options, items, and the report of a broken byte."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.codec.wire import Buffer
from ottla.errors import DecodeError

BROKEN = "broken"
"""The kind of the items that say what is wrong with the bytes."""
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


class Item(NamedTuple):
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


def broken(error: DecodeError, *, at: int, within: str, view: View, inner: int | None = None, rest: str = "") -> Item:
    """The report of a broken byte.

    Args:
        at: where it is in the file or stream; of compressed records, where these begin.
        within: what it belongs to, such as ``batch at 4096 (offsets 17-20)``.
        inner: where it is in the view, if the view is not of the file.
        rest: why what follows is not read, if that is so.
    """
    place = max(0, (at if inner is None else inner) - view.at)
    start = max(0, place - _BEFORE)
    around = bytes(view.data[start : place + _BEHIND])
    fields: dict[str, Any] = {"at": at, "within": within, "path": error.path, "reason": error.reason}
    fields |= {"bytes": around.hex(" "), "bytes_from": view.at + start, "first_broken": min(place - start, len(around))}
    if view.of:
        fields["bytes_of"] = view.of
    if rest:
        fields["rest"] = rest
    return Item(BROKEN, fields)
