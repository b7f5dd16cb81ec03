"""The small text files of a data folder.

    leader-epoch-checkpoint   recovery-point-offset-checkpoint   partition.metadata    meta.properties
    0                         0                                  version: 0            #Sat Nov 21 11:46:43 UTC 2026
    1                         2                                  topic_id: xYdL1zCE…   node.id=1
    0 0                       flights 0 4711                                           version=1
                              flights 1 4690

The first two begin with their version and the number of lines that follow. So do ``replication-offset-checkpoint``
(high watermarks), ``log-start-offset-checkpoint`` and ``cleaner-offset-checkpoint``, which look like the second.

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
from ottla.errors import DecodeError

T = TypeVar("T")

_VERSION = "0"
_INT32, _INT64 = 1 << 31, 1 << 63


class LeaderEpoch(NamedTuple):
    """A line of ``leader-epoch-checkpoint``: the leader of `epoch` wrote from `start_offset` on."""

    epoch: int
    start_offset: int


class PartitionOffset(NamedTuple):
    """A line of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


def parse_leader_epochs(data: Buffer) -> Iterator[LeaderEpoch]:
    """The lines of ``leader-epoch-checkpoint``.

    Raises:
        DecodeError: (while iterating) a line is not as it should be.
    """
    return _parse(data, _leader_epoch)


def build_leader_epochs(lines: Iterable[LeaderEpoch]) -> bytes:
    """The opposite."""
    return _build(lines)


def parse_offsets(data: Buffer) -> Iterator[PartitionOffset]:
    """The lines of any offset checkpoint.

    Raises:
        DecodeError: (while iterating) a line is not as it should be.
    """
    return _parse(data, _partition_offset)


def build_offsets(lines: Iterable[PartitionOffset]) -> bytes:
    """The opposite."""
    return _build(lines)


def _leader_epoch(epoch: str, start_offset: str) -> LeaderEpoch:
    return LeaderEpoch(_number(epoch, _INT32), _number(start_offset, _INT64))


def _partition_offset(topic: str, partition: str, offset: str) -> PartitionOffset:
    return PartitionOffset(topic, _number(partition, _INT32), _number(offset, _INT64))


def _number(text: str, limit: int) -> int:
    """A number as Java writes it."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) or not -limit <= int(text) < limit:
        raise ValueError(f"{text!r:.40} is not a number that fits")
    return int(text)


def _parse(data: Buffer, make: Callable[..., T]) -> Iterator[T]:
    """The lines behind the version and the count, each made of its words; an empty file has none, and is not wrong."""
    if not (lines := list(_lines(data))):
        return
    _check(lines, 0, "version", lambda text: text == _VERSION, f"{_VERSION} (the only version)")
    _check(lines, 1, "count", _is_count, "the number of lines that follow")
    for index, (start, text) in enumerate(lines[2:], 2):
        try:
            yield make(*text.split(" "))
        except (TypeError, ValueError) as error:  # too few or too many words, or one that is no number
            reason = f"{text!r:.80} is no such line" if isinstance(error, TypeError) else str(error)
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
    """Where each line begins, and the line."""
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
    """A UUID as Kafka writes it: 22 characters of base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_short_id(text: str) -> uuid.UUID:
    """The opposite.

    Raises:
        DecodeError: it is none.
    """
    try:
        return uuid.UUID(bytes=base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise DecodeError(f"{text!r:.40} is no id: 22 characters of base64 are") from None


def parse_partition_metadata(data: Buffer) -> uuid.UUID:
    """``partition.metadata``: the id of the partition's topic.

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
    """The opposite."""
    return f"version: {_VERSION}\ntopic_id: {short_id(topic_id)}".encode()


class Properties(NamedTuple):
    """A file of Java's properties, such as ``meta.properties``."""

    entries: Mapping[str, str]
    comments: tuple[str, ...] = ()
    """Lines above the entries, without their ``#``."""


def parse_properties(data: Buffer) -> Properties:
    """What java.util.Properties writes; as there, any bytes are such a file."""
    entries, comments = {}, []
    for line in bytes(data).decode("latin-1").splitlines():
        if line.startswith("#"):
            comments.append(line[1:])
        elif line.strip():
            key, _, value = line.partition("=")
            entries[key.strip()] = re.sub(r"\\(.)", r"\1", value.strip())
    return Properties(entries, tuple(comments))


def build_properties(properties: Properties) -> bytes:
    """The opposite."""
    comments = [f"#{comment}" for comment in properties.comments]
    entries = ["=".join((key, re.sub(r"([\\=:#!])", r"\\\1", value))) for key, value in properties.entries.items()]
    return "".join(f"{line}\n" for line in (*comments, *entries)).encode("latin-1")
