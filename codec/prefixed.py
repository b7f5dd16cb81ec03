"""Messages with a version in front: two bytes of version, then the message.

Kafka writes messages this way where no header precedes them: in records of internal topics, in embedded protocols, in
files. Non-flexible messages may grow at their end: a reader parses a newer version as the newest known one, and ignores
the rest.
"""

from ottla.codec import messages
from ottla.codec.wire import Buffer, Declared, M, api
from ottla.errors import DecodeError

SIZE = 2
"""Size of the version in bytes."""


def version_of(data: Buffer, offset: int = 0) -> int:
    """Return the version at the start of ``data[offset:]``.

    Raises:
        DecodeError: fewer than two bytes are left.
    """
    if (left := len(data) - offset) < SIZE:
        raise DecodeError(f"{left} bytes are too few for a version, which takes {SIZE}", offset=offset)
    return int.from_bytes(data[offset : offset + SIZE], "big", signed=True)


def parse_prefixed(cls: type[M], data: Buffer, offset: int = 0, *, newer: bool = False) -> tuple[int, M, int]:
    """Return the version, the message, and the offset of its end.

    Args:
        newer: parse an unknown newer version as the newest known one, as Kafka does for formats that only grow.

    Raises:
        DecodeError: the version is unknown, or the bytes are not such a message.
    """
    version = version_of(data, offset)
    versions = api(cls).versions
    if version not in versions and not (newer and version > versions.high):
        raise DecodeError(f"version {version} is unknown, known are {versions.text}", cls.__name__, offset)
    message, end = messages.parse(cls, min(version, versions.high), data, offset + SIZE)
    return version, message, end


def build_prefixed(message: Declared, version: int) -> bytes:
    """Build the version and the message.

    Raises:
        EncodeError: the message does not fit the version.
        UnknownVersion: its class has no such version.
    """
    return version.to_bytes(SIZE, "big", signed=True) + messages.build(message, version)
