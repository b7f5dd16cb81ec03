"""The small text files of a data folder.

    leader-epoch-checkpoint   recovery-point-offset-checkpoint   partition.metadata    meta.properties
    0                         0                                  version: 0            #Sat Nov 21 11:46:43 UTC 2026
    1                         2                                  topic_id: xYdL1zCE…   node.id=1
    0 0                       flights 0 4711                                           version=1
                              flights 1 4690

The first two begin with their version and the number of lines that follow. ``replication-offset-checkpoint`` (high
watermarks), ``log-start-offset-checkpoint`` and ``cleaner-offset-checkpoint`` look like the second.

Source: CheckpointFile.java, LeaderEpochCheckpointFile.java, OffsetCheckpointFile.java, PartitionMetadataFile.java, and
java.util.Properties.
"""

import base64
import binascii
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from ottla.codec.wire import Buffer
from ottla.errors import DecodeError, EncodeError

T = TypeVar("T")

_VERSION = "0"
_INT32, _INT64 = 1 << 31, 1 << 63


class LeaderEpoch(NamedTuple):
    """A line of ``leader-epoch-checkpoint``: the leader of `epoch` wrote the records from `start_offset` on."""

    epoch: int
    start_offset: int


class PartitionOffset(NamedTuple):
    """A line of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


def parse_leader_epochs(data: Buffer) -> Iterator[LeaderEpoch]:
    """Yield the lines of ``leader-epoch-checkpoint``.

    Raises:
        DecodeError: (while iterating) a line is invalid.
    """
    return _parse(data, _leader_epoch)


def build_leader_epochs(lines: Iterable[LeaderEpoch]) -> bytes:
    """Build the content of ``leader-epoch-checkpoint``."""
    return _build(lines)


def parse_offsets(data: Buffer) -> Iterator[PartitionOffset]:
    """Yield the lines of any offset checkpoint.

    Raises:
        DecodeError: (while iterating) a line is invalid.
    """
    return _parse(data, _partition_offset)


def build_offsets(lines: Iterable[PartitionOffset]) -> bytes:
    """Build the content of an offset checkpoint."""
    return _build(lines)


def _leader_epoch(epoch: str, start_offset: str) -> LeaderEpoch:
    return LeaderEpoch(_number(epoch, _INT32), _number(start_offset, _INT64))


def _partition_offset(topic: str, partition: str, offset: str) -> PartitionOffset:
    return PartitionOffset(topic, _number(partition, _INT32), _number(offset, _INT64))


def _number(text: str, limit: int) -> int:
    """Parse a number as Java writes it."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) or not -limit <= int(text) < limit:
        raise ValueError(f"{text!r:.40} is not a number that fits")
    return int(text)


def _parse(data: Buffer, make: Callable[..., T]) -> Iterator[T]:
    """Parse the lines after the version and the count; ``make`` takes a line's words. An empty file is valid."""
    if not (lines := list(_lines(data))):
        return
    _check(lines, 0, "version", lambda text: text == _VERSION, f"{_VERSION} (the only version)")
    _check(lines, 1, "count", _is_count, "the number of lines that follow")
    for index, (start, text) in enumerate(lines[2:], 2):
        try:
            yield make(*text.split(" "))
        except (TypeError, ValueError) as error:  # too few or too many words, or a word that is not a number
            reason = f"{text!r:.80} is not such a line" if isinstance(error, TypeError) else str(error)
            raise DecodeError(reason, f"line[{index}]", start) from None
    start, count = lines[1]
    if len(lines) - 2 != int(count):
        raise DecodeError(f"{int(count)} lines announced, {len(lines) - 2} follow", "line[1] (count)", start)


def _is_count(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,10}", text) is not None


def _check(lines: list[tuple[int, str]], index: int, what: str, fits: Callable[[str], bool], wanted: str) -> None:
    start, text = lines[index] if index < len(lines) else (lines[-1][0] if lines else 0, "")
    if not fits(text):
        raise DecodeError(f"{text!r:.40} instead of {wanted}", f"line[{index}] ({what})", start)


def _lines(data: Buffer) -> Iterator[tuple[int, str]]:
    """Yield the start of each line, and the line."""
    start = 0
    for line in bytes(data).splitlines(keepends=True):
        try:
            yield start, line.rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"not UTF-8: {error.reason}", offset=start + error.start) from None
        start += len(line)


def _build(lines: Iterable[tuple[object, ...]]) -> bytes:
    texts = [" ".join(map(str, line)) for line in lines]
    return "\n".join((_VERSION, str(len(texts)), *texts, "")).encode()


def short_id(value: uuid.UUID) -> str:
    """Return a UUID as Kafka writes it: 22 characters of base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_short_id(text: str) -> uuid.UUID:
    """Parse a UUID as Kafka writes it.

    Raises:
        DecodeError: the text is not such a UUID.
    """
    try:
        return uuid.UUID(bytes=base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise DecodeError(f"{text!r:.40} is not an id, which is 22 characters of base64") from None


def parse_partition_metadata(data: Buffer) -> uuid.UUID:
    """Parse ``partition.metadata``; return the id of the partition's topic.

    Raises:
        DecodeError: it is not such a file.
    """
    lines = list(_lines(data))
    _check(lines, 0, "version", lambda text: text == f"version: {_VERSION}", f"version: {_VERSION}")
    _check(lines, 1, "topic_id", lambda text: text.startswith("topic_id: "), "topic_id: and an id")
    start, text = lines[1]
    try:
        return parse_short_id(text.removeprefix("topic_id: "))
    except DecodeError as error:
        raise DecodeError(error.reason, "line[1] (topic_id)", start + len("topic_id: ")) from None


def build_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """Build the content of ``partition.metadata``."""
    return f"version: {_VERSION}\ntopic_id: {short_id(topic_id)}".encode()


class Properties(NamedTuple):
    """The content of a Java properties file, for example ``meta.properties``."""

    entries: Mapping[str, str]
    comments: tuple[str, ...] = ()
    """The comment lines, without their ``#``."""


_BLANKS = " \t\f"
_ENTRY = re.compile(r"((?:[^\\=: \t\f]++|\\.)*+)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
"""The key ends at the first ``=``, ``:`` or blank that is not escaped."""
_ESCAPED = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LETTERS = {character: letter for letter, character in _ESCAPES.items()}
_TO_ESCAPE = re.compile(r"[\\=:#!]|[^ -~]")


def parse_properties(data: Buffer) -> Properties:
    """Parse as java.util.Properties does, including escaped and continued lines.

    Raises:
        DecodeError: a ``\\u`` is not followed by four hex digits, or half of a surrogate pair is missing.
    """
    entries: dict[str, str] = {}
    comments: list[str] = []
    for index, (start, line) in enumerate(_continued(bytes(data), comments)):
        match = _ENTRY.fullmatch(line)
        assert match is not None  # every line is an entry
        try:
            key, value = map(_unescaped, match.groups())
        except ValueError:
            raise DecodeError(
                r"a \u is not followed by four hex digits of a character", f"entry[{index}]", start
            ) from None
        entries[key] = value
    return Properties(entries, tuple(comments))


def _continued(data: bytes, comments: list[str]) -> Iterator[tuple[int, str]]:
    """Yield each entry's start and text; a backslash at the end joins the next line. Comments are collected."""
    held: list[str] = []
    start = at = 0
    for raw in data.splitlines(keepends=True):  # for bytes, splits at \r and \n only, as Java does
        line = raw.rstrip(b"\r\n").decode("latin-1").lstrip(_BLANKS)
        start, at = start if held else at, at + len(raw)
        if not held and line.startswith(("#", "!")):
            comments.append(line[1:])
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        held.append(line[:-1] if goes_on else line)
        if not goes_on:
            if whole := "".join(held):
                yield start, whole
            held = []
    if whole := "".join(held):
        yield start, whole


def _unescaped(text: str) -> str:
    """Resolve the escapes of a text. Raises ValueError if that is not possible."""
    return _paired(_ESCAPED.sub(_character, text))


def _character(escaped: re.Match[str]) -> str:
    digits, character = escaped.groups()
    if character == "u":
        raise ValueError
    return chr(int(digits, 16)) if digits else _ESCAPES.get(character, character)


def _paired(text: str) -> str:
    """Join surrogate pairs: in Java, characters beyond 16 bits are two."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def build_properties(properties: Properties) -> bytes:
    """Build the file as java.util.Properties writes it.

    Raises:
        EncodeError: a comment has several lines or is not Latin-1, or a text has half of a surrogate pair.
    """
    try:
        comments = [f"#{comment}".encode("latin-1") for comment in properties.comments]
        entries = [
            f"{_escaped(key, r' ')}={_escaped(value, r'^ ')}".encode("ascii")
            for key, value in properties.entries.items()
        ]
    except UnicodeEncodeError as error:
        raise EncodeError(f"{error.object!r:.80} cannot be written: {error.reason}") from None
    for comment in comments:
        if len(comment.splitlines()) > 1 or comment.endswith((b"\r", b"\n")):
            raise EncodeError(f"{comment!r:.80} is more than one line of comment")
    return b"".join(line + b"\n" for line in (*comments, *entries))


def _escaped(text: str, blanks: str) -> str:
    """Escape a key or value; ``blanks`` matches blanks that would end the key or be dropped before the value."""
    return re.sub(blanks, r"\\ ", _TO_ESCAPE.sub(_escape, text))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if " " < character <= "~":
        return f"\\{character}"
    if character in _LETTERS:
        return f"\\{_LETTERS[character]}"
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2))
