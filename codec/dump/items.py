"""What all dumps share: options, items, and the report of a broken byte."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.codec.wire import Buffer
from ottla.errors import DecodeError
from ottla.late_dataclass import dataclass

BROKEN = "broken"
"""The kind of items that report an error in the bytes."""
_BEFORE, _BEHIND = 8, 16
"""How many bytes are shown before the broken one, and from it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What to show, and how.

    Attributes:
        topic: topic of the segment; the records of internal topics are parsed.
        base_offset: the base of the offsets in an index; ``None`` if it is unknown.
        start: first offset to show, of a segment or an index.
        records: show the records of batches.
        deep: parse the data that members of a group exchange.
        raw: leave the keys and values of internal topics and control records as bytes.
    """

    topic: str = ""
    base_offset: int | None = None
    start: int = 0
    records: bool = True
    deep: bool = False
    raw: bool = False

    def skips(self, offset: int) -> bool:
        """Whether ``offset`` is before `start`. With the default start none is, not even a broken offset below 0."""
        return self.start > 0 and offset < self.start


class Item(NamedTuple):
    """A part of a dump: ``kind`` names it, ``fields`` are plain values (see `readable`).

    The field ``at`` is its position in the file.
    """

    kind: str
    fields: dict[str, Any]


Dump = Iterator[Item]


@dataclass(frozen=True, slots=True)
class View:
    """Bytes to show around a broken one.

    Attributes:
        at: offset of the first of them.
        of: the name of the bytes, if they are not the file's.
    """

    data: Buffer
    at: int = 0
    of: str = ""


def broken(error: DecodeError, *, at: int, within: str, view: View, inner: int | None = None, rest: str = "") -> Item:
    """Report a broken byte.

    Args:
        at: its position in the file or stream; in compressed records, the position of the compressed data.
        within: the enclosing part, for example ``batch at 4096 (offsets 17-20)``.
        inner: its position in the view, if the view does not show the file.
        rest: why the bytes after it are not read, if they are not.
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
