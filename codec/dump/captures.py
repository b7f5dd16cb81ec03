"""Captured frames: what one side of a connection has sent, each frame behind its length.

Requests tell what they are. A response does not: its API and version are the request's, and must be given.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.codec import frames, messages
from ottla.codec.apis import APIS, NAMES
from ottla.codec.dump.items import Broken, Dump, Item, Options, View
from ottla.codec.dump.readable import Plain
from ottla.codec.dump.segments import batch_fields, is_control, readable_records, record_fields, wrong_crc
from ottla.codec.frames import ResponseHeader
from ottla.codec.message_sets import Message, read_record_set
from ottla.codec.pieces import Pieces
from ottla.codec.records import RecordBatch
from ottla.codec.stored.segments import LENGTH_AT, LENGTH_END
from ottla.codec.wire import Buffer, api
from ottla.errors import DecodeError, UnsupportedVersion

_LENGTH = 4
_UNSUPPORTED_VERSION = UnsupportedVersion.code.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class _Opened:
    """A frame whose header has been read.

    Attributes:
        cls: of the message, ``None`` where the API or the version is not known.
        start: where the message begins in the frame.
    """

    kind: str
    fields: dict[str, Any]
    cls: type[Any] | None
    version: int
    start: int

    def __str__(self) -> str:
        return f"{self.kind} {self.fields['api']} v{self.version}"


def dump_requests(pieces: Iterable[Buffer], options: Options) -> Dump:
    """What a client has sent.

    Raises:
        Broken: (while iterating) at the first broken byte.
    """
    for at, frame in _frames(pieces):
        yield from _items(at, frame, _open_request(at, frame), options)


def dump_responses(pieces: Iterable[Buffer], options: Options, *, api_key: int, version: int) -> Dump:
    """What a broker has sent, all of it in answer to requests of one API and version.

    Raises:
        Broken: (while iterating) at the first broken byte.
    """
    for at, frame in _frames(pieces):
        yield from _items(at, frame, _open_response(at, frame, api_key, version), options)


def _frames(pieces: Iterable[Buffer]) -> Iterator[tuple[int, bytes]]:
    """Where each frame begins, and what is behind its length."""
    source = Pieces(pieces)
    while head := source.take(_LENGTH):
        at = source.position - len(head)
        size = int.from_bytes(head, "big", signed=True)
        view = View(head + source.peek(_LENGTH), at)
        if len(head) == _LENGTH and not 0 <= size <= frames.MAX_FRAME:
            seems = frames.looks_like(bytes(view.data))
            hint = f": this looks like {seems}" if seems else ""
            error = DecodeError(f"{size} is no length of a frame{hint}", "length")
            raise Broken(error, at=at, within=f"frame at {at}", view=view)
        frame = source.take(size)
        if len(head) < _LENGTH or len(frame) < size:
            error = DecodeError(f"a frame of {size} bytes, of which there are {len(frame)}", "length")
            raise Broken(error, at=at, within=f"frame at {at}", view=view)
        yield at, frame


def _open_request(at: int, frame: bytes) -> _Opened:
    try:
        header, start = frames.parse_header(frame)
    except DecodeError as error:
        raise _broken(error, at, frame, "request") from None
    fields = {"api": NAMES.get(header.api_key, "?"), **Plain(0).message(header)}
    cls = APIS[header.api_key].request if header.api_key in APIS else None
    if cls is not None and header.api_version not in api(cls).versions:
        cls = None
    return _Opened("request", fields, cls, header.api_version, start)


def _open_response(at: int, frame: bytes, api_key: int, version: int) -> _Opened:
    try:
        header, start = messages.parse(ResponseHeader, frames.response_header_version(api_key, version), frame)
    except DecodeError as error:
        raise _broken(error, at, frame, f"response {NAMES[api_key]} v{version}") from None
    if api_key == frames.API_VERSIONS and frame[start : start + 2] == _UNSUPPORTED_VERSION:
        version = 0  # in which it is said that the version of the request is not known (KIP-511)
    fields = {"api": NAMES[api_key], "api_key": api_key, "api_version": version, **Plain(0).message(header)}
    return _Opened("response", fields, APIS[api_key].response, version, start)


def _items(at: int, frame: bytes, opened: _Opened, options: Options) -> Dump:
    """The frame, and `Broken` if something in it is."""
    fields = {"at": at, "size": len(frame), **opened.fields}
    if opened.cls is None:
        yield Item(opened.kind, {**fields, "message": frame[opened.start :]})
        return
    sets = _RecordSets(options)
    plain = Plain(opened.version, options.deep, sets.plain)
    try:
        message, end = messages.parse(opened.cls, opened.version, frame, opened.start)
    except DecodeError as error:
        begun = plain.begun(opened.cls, frame, opened.start, error.offset)
        yield Item(opened.kind, {**fields, "message": begun})
        raise _broken(error, at, frame, str(opened)) from None
    left = {"leftover": frame[end:]} if end < len(frame) else {}
    yield Item(opened.kind, {**fields, "message": plain.message(message), **left})
    for damage, record_set in sets.damages:
        damage.offset += frame.find(record_set)
        raise _broken(damage, at, frame, str(opened))
    if left and opened.kind == "response":  # of a request, brokers put up with it
        raise _broken(DecodeError(f"{len(frame) - end} bytes left over", "", end), at, frame, str(opened))


def _broken(error: DecodeError, at: int, frame: bytes, what: str) -> Broken:
    start = at + _LENGTH
    return Broken(error, at=start + max(error.offset, 0), within=f"{what} at {at}", view=View(frame, start))


class _RecordSets:
    """Makes plain values of the record sets in a message.

    Attributes:
        damages: what is wrong with them; the offset of an error is that in its set.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.damages: list[tuple[DecodeError, Buffer]] = []

    def plain(self, path: str, data: Buffer) -> dict[str, Any]:
        """The batches of a set."""
        batches: list[dict[str, Any]] = []
        at = 0
        try:
            for batch in read_record_set(data, verify=False):
                size = LENGTH_END + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_END], "big")
                batches.append(batch_fields(batch, size))
                if self._options.records:
                    batches[-1]["records"] = self._records(batch, f"{path}.batches[{len(batches) - 1}]", at, data)
                at += size
        except DecodeError as error:
            error.path = f"{path}.batches[{len(batches)}]{error.path}"
            self.damages.append((error, data))
        torn = {"torn_bytes": len(data) - at} if at < len(data) else {}
        return {"size": len(data), "batches": batches, **torn}

    def _records(self, batch: RecordBatch | Message, path: str, at: int, data: Buffer) -> list[dict[str, Any]]:
        records, damage = readable_records(batch)
        if damage is None and not batch.crc_matches:
            damage = wrong_crc(batch)
        if damage is not None:
            self.damages.append((DecodeError(damage.reason, f"{path}.{damage.path}", at), data))
        return [record_fields(record, is_control(batch), Options(raw=True)) for record in records]
