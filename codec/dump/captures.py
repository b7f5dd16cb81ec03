"""Captured frames: the bytes that one side of a connection has sent, each frame after its length.

Requests name their API and version. Responses do not: theirs are the request's, and must be given.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.codec import frames, messages
from ottla.codec.apis import APIS, NAMES
from ottla.codec.dump.items import Dump, DumpOptions, Item, View, broken
from ottla.codec.dump.readable import PlainValues
from ottla.codec.dump.segments import (
    LOST,
    batch_fields,
    in_record,
    is_control,
    place,
    readable_records,
    record_fields,
    wrong_crc,
)
from ottla.codec.frames import ResponseHeader
from ottla.codec.message_sets import Message, read_record_set
from ottla.codec.pieces import Pieces
from ottla.codec.records import RecordBatch
from ottla.codec.stored.segments import LENGTH_AT, LENGTH_END
from ottla.codec.wire import Buffer, api
from ottla.errors import DecodeError, UnsupportedVersion
from ottla.late_dataclass import dataclass

_LENGTH = 4
_UNSUPPORTED_VERSION = UnsupportedVersion.code.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame; the last one may be truncated.

    Attributes:
        at: position of its length in the stream.
        size: the size that its length claims.
        data: the bytes after the length.
    """

    at: int
    size: int
    data: bytes

    @property
    def torn(self) -> bool:
        return len(self.data) < self.size

    def broken(self, error: DecodeError, what: str, at: int = 0) -> Item:
        """Report an error within `data`. If the frame is truncated, report that instead.

        Args:
            at: where the bytes begin in which the error has its offset.
        """
        start = self.at + _LENGTH
        place = start + max(error.offset + at, 0)
        if self.torn:
            error = DecodeError(f"a frame of {self.size} bytes, but only {len(self.data)} follow", "length")
            place = self.at
        view = View(self.size.to_bytes(_LENGTH, "big") + self.data, self.at)
        return broken(error, at=place, within=f"{what} at {self.at}", view=view)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The header of a frame.

    Attributes:
        cls: class of the message; ``None`` if the API or the version is unknown.
        start: position of the message in the frame.
    """

    kind: str
    fields: dict[str, Any]
    cls: type[Any] | None
    version: int
    start: int

    def __str__(self) -> str:
        return f"{self.kind} {self.fields['api']} v{self.version}"


def dump_requests(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump the frames that a client has sent."""
    for frame in _frames(pieces):
        if isinstance(frame, Item):
            yield frame
            continue
        try:
            opened = _open_request(frame.data)
        except DecodeError as error:
            yield frame.broken(error, "request")
            continue
        yield from _items(frame, opened, options)


def dump_responses(pieces: Iterable[Buffer], options: DumpOptions, *, api_key: int, version: int) -> Dump:
    """Dump the frames that a broker has sent, all of them responses of one API and version.

    Raises:
        UnknownVersion: (while iterating) the API has no such version.
    """
    for frame in _frames(pieces):
        if isinstance(frame, Item):
            yield frame
            continue
        try:
            opened = _open_response(frame.data, api_key, version)
        except DecodeError as error:
            yield frame.broken(error, f"response {NAMES[api_key]} v{version}")
            continue
        yield from _items(frame, opened, options)


def _frames(pieces: Iterable[Buffer]) -> Iterator[_Frame | Item]:
    """Yield the frames; an invalid length is the last item."""
    source = Pieces(pieces)
    while head := source.take(_LENGTH):
        at = source.position - len(head)
        if len(head) < _LENGTH:
            error = DecodeError(f"the stream ends after {len(head)} of the {_LENGTH} bytes of a length", "length")
            yield broken(error, at=at, within=f"frame at {at}", view=View(head, at))
            return
        size = int.from_bytes(head, "big", signed=True)
        if not 0 <= size <= frames.MAX_FRAME:
            start = head + source.peek(_LENGTH)
            hint = f": this looks like {seems}" if (seems := frames.looks_like(start)) else ""
            error = DecodeError(f"{head.hex(' ')} is not the length of a frame{hint}", "length")
            yield broken(error, at=at, within=f"frame at {at}", view=View(start, at), rest=LOST.format("frame"))
            return
        yield _Frame(at, size, source.take(size))


def _open_request(data: bytes) -> _Opened:
    header, start = frames.parse_header(data)
    fields = {"api": NAMES.get(header.api_key, "?"), **PlainValues(0).message(header)}
    cls = APIS[header.api_key].request if header.api_key in APIS else None
    if cls is not None and header.api_version not in api(cls).versions:
        cls = None
    return _Opened("request", fields, cls, header.api_version, start)


def _open_response(data: bytes, api_key: int, version: int) -> _Opened:
    header, start = messages.parse(ResponseHeader, frames.response_header_version(api_key, version), data)
    if api_key == frames.API_VERSIONS and data[start : start + 2] == _UNSUPPORTED_VERSION:
        version = 0  # a broker that does not know the request's version answers in this one (KIP-511)
    fields = {"api": NAMES[api_key], "api_key": api_key, "api_version": version, **PlainValues(0).message(header)}
    return _Opened("response", fields, APIS[api_key].response, version, start)


def _items(frame: _Frame, opened: _Opened, options: DumpOptions) -> Dump:
    """Yield the frame, and the errors in it."""
    fields = {"at": frame.at, "size": frame.size, **opened.fields}
    if opened.cls is None:
        yield Item(opened.kind, {**fields, "message": frame.data[opened.start :]})
        return
    sets = _RecordSets(options)
    plain = PlainValues(opened.version, options.deep, sets.plain)
    try:
        message, end = messages.parse(opened.cls, opened.version, frame.data, opened.start)
    except DecodeError as error:
        readable = len(frame.data) if frame.torn else error.offset
        yield Item(opened.kind, {**fields, "message": plain.begun(opened.cls, frame.data, opened.start, readable)})
        yield frame.broken(error, str(opened))
        return
    left = {"leftover": frame.data[end:]} if end < len(frame.data) else {}
    yield Item(opened.kind, {**fields, "message": plain.message(message), **left})
    if frame.torn or (left and opened.kind == "response"):  # brokers accept extra bytes after a request
        yield frame.broken(DecodeError(f"{len(frame.data) - end} bytes left over", "", end), str(opened))
    if sets.damages and not frame.torn:
        starts = plain.record_sets_at(opened.cls, frame.data, opened.start)
        for number, damage in sets.damages:
            yield frame.broken(damage, str(opened), starts[number])


class _RecordSets:
    """Turns the record sets in a message into plain values.

    Attributes:
        damages: the errors in them: the number of the set, and an error whose offset counts within the set.
    """

    def __init__(self, options: DumpOptions) -> None:
        self._options = options
        self._number = -1
        self.damages: list[tuple[int, DecodeError]] = []

    def plain(self, path: str, data: Buffer) -> dict[str, Any]:
        """Return the batches of a set."""
        batches: list[dict[str, Any]] = []
        self._number += 1
        at = 0
        try:
            for batch in read_record_set(data, verify=False):
                size = LENGTH_END + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_END], "big")
                batches.append(batch_fields(batch, size))
                records = self._records(batch, f"{path}.batches[{len(batches) - 1}]", at)
                if self._options.records:
                    batches[-1]["records"] = records
                at += size
        except DecodeError as error:
            where = _joined(f"{path}.batches[{len(batches)}]", error.path)
            self.damages.append((self._number, DecodeError(error.reason, where, max(error.offset, at))))
        torn = {"torn_bytes": len(data) - at} if at < len(data) else {}
        return {"size": len(data), "batches": batches, **torn}

    def _records(self, batch: RecordBatch | Message, path: str, at: int) -> list[dict[str, Any]]:
        records, damage = readable_records(batch) if self._options.records else ((), None)
        shown = []
        for row, record in enumerate(records):
            try:
                shown.append(record_fields(record, is_control(batch), self._options))
            except DecodeError as error:
                damage = in_record(error, batch, row)
                break
        damage = damage or wrong_crc(batch)
        if damage is not None:
            where = _joined(path, damage.path)
            self.damages.append((self._number, DecodeError(damage.reason, where, at + place(damage, batch))))
        return shown


def _joined(path: str, inner: str) -> str:
    """Return the path of a field of a batch; ``inner`` begins with the class, which is dropped."""
    return path + "".join(inner.partition(".")[1:])
