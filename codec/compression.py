"""The four compressions of record batches and message sets, behind two functions.

Rules:
- `decompress` never makes more than ``limit`` bytes, whatever the input claims of itself.
- Every call that does the work releases the GIL.
- LZ4 frames have independent blocks, because Java's reader refuses linked ones.
- Snappy is written in xerial's framing, as Java writes it, and read in both that and the raw form (librdkafka).
- The first LZ4 format of Kafka, which belongs to messages of magic 0, has a header checksum that covers the magic
  number, too. `lz4_rechecked` turns such a frame into one that everybody reads, and back (KAFKA-3160).

Source: KIP-110 (zstd), KIP-57 (LZ4), CompressionType.java, snappy-java's SnappyOutputStream, the LZ4 frame format.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam
import lz4.frame

from ottla.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Compression":
        """The member for ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``; `ValueError` for others."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(
                f"compression {name!r} is not one of {', '.join(each.name.lower() for each in cls)}"
            ) from None


LEVELS = {Compression.GZIP: (0, 9), Compression.LZ4: (0, 12), Compression.ZSTD: (-131072, 22)}
"""The lowest and the highest level of those that have any, as their libraries count: higher is smaller and slower."""
DEFAULT_LEVELS = {Compression.GZIP: 6, Compression.LZ4: 0, Compression.ZSTD: 3}

DECOMPRESSED_LIMIT = 128 * 2**20
"""Bytes that one batch may take, unless the caller says otherwise: decompressed, and what is made of that."""
UNLIMITED = (1 << 63) - 1
"""For what nobody else has built."""
_FIRST_GUESS = 16 * 2**10
DECOMPRESSED = "decompressed"
"""How `DecodeError.within` begins if the offset counts from what was decompressed, and not from what was parsed."""

_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK = 2**20
"""Java writes blocks of 32 kB and reads any; larger ones compress better, in fewer calls."""


def checked_level(compression: Compression, level: int | None) -> int:
    """``level``, or the default for ``None``; 0 where there are no levels.

    Raises:
        EncodeError: the compression has no such level.
    """
    if level is None:
        return DEFAULT_LEVELS.get(compression, 0)
    name = compression.name.lower()
    if compression not in LEVELS:
        raise EncodeError(f"compression {name} has no levels: leave out {level!r}")
    lowest, highest = LEVELS[compression]
    if not isinstance(level, int) or not lowest <= level <= highest:
        raise EncodeError(f"{name} has the levels {lowest} to {highest}, and not {level!r}")
    return level


def compress(compression: Compression, data: Buffer, level: int | None = None) -> bytes:
    """``data`` compressed.

    Args:
        level: as `LEVELS` says; ``None`` for the default.

    Raises:
        EncodeError: there is no such compression, or it has no such level.
    """
    try:
        compression = Compression(compression)
    except ValueError:
        choices = ", ".join(f"{each} ({each.name.lower()})" for each in Compression)
        raise EncodeError(f"compression {compression!r} is not one of {choices}") from None
    level = checked_level(compression, level)
    match compression:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=level))
        case Compression.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Compression.LZ4:
            framed: bytes = lz4.frame.compress(data, compression_level=level, block_linked=False, store_size=False)
            return framed
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(compression: int, data: Buffer, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """``data`` decompressed.

    Raises:
        DecodeError: the bytes are damaged, or would grow over ``limit`` bytes, or the compression is unknown.
    """
    match compression:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _grow(cramjam.gzip.decompress_into, "gzip", data, limit)
        case Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        case Compression.LZ4:
            return _grow(cramjam.lz4.decompress_into, "lz4", data, limit)
        case Compression.ZSTD:
            return _grow(cramjam.zstd.decompress_into, "zstd", data, limit)
    raise DecodeError(f"compression {compression} is not known")


def _grow(into: Callable[[Buffer, bytearray], int], name: str, data: Buffer, limit: int) -> bytes:
    """Decompress into a buffer that is made four times larger while it proves too small."""
    room = min(max(_FIRST_GUESS, 8 * len(data)), limit)
    while True:
        out = bytearray(room)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DecodeError(f"{name} data is damaged: {error}") from None
        else:
            return bytes(memoryview(out)[:size])
        if room >= limit:
            raise DecodeError(f"{name} data would grow over the limit of {limit} bytes")
        room = min(4 * room, limit)


# ---------------------------------------------------------------------------------------------------------------------
# Snappy in xerial's framing: a header, and blocks behind their 4-byte sizes.


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    out, left = [], limit
    try:
        for block in _xerial_blocks(data) if data[: len(_XERIAL)] == _XERIAL else [data]:
            left -= cramjam.snappy.decompress_raw_len(block)
            if left < 0:
                raise DecodeError(f"snappy data would grow over the limit of {limit} bytes")
            out.append(bytes(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy data is damaged: {error}") from None
    return b"".join(out)


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    position = len(_XERIAL_HEADER)
    while position != len(data):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data):
            raise DecodeError("snappy data is damaged: a block runs over the end")
        yield data[start:position]


# ---------------------------------------------------------------------------------------------------------------------
# The header of an LZ4 frame: magic number, flags, block size, perhaps the size of the content and the id of a
# dictionary, and one byte of checksum.

_FLAGS_AT, _CHECKSUM_AT = 4, 6
_HAS_CONTENT_SIZE, _HAS_DICTIONARY = 0x08, 0x01
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
"""The primes of xxHash."""


def lz4_rechecked(frame: Buffer, *, old: bool) -> bytes:
    """An LZ4 frame with the header checksum that is right, or with that of Kafka's ``old`` format.

    What is too short for a header, or names a dictionary, which Kafka has not, stays as it is: whoever decompresses it
    will refuse it.
    """
    head = bytes(frame[: _CHECKSUM_AT + 8 + 1])
    flags = head[_FLAGS_AT] if len(head) > _FLAGS_AT else 0
    at = _CHECKSUM_AT + (8 if flags & _HAS_CONTENT_SIZE else 0)
    if len(head) <= at or flags & _HAS_DICTIONARY:
        return bytes(frame)
    checksum = _xxh32(head[0 if old else _FLAGS_AT : at]) >> 8 & 0xFF
    return b"".join((head[:at], bytes((checksum,)), frame[at + 1 :]))


def _xxh32(data: bytes) -> int:
    """XXH32, with seed 0, of fewer than 16 bytes (more are added up in another way)."""
    value = _P5 + len(data)
    words = len(data) & ~3
    for at in range(0, words, 4):
        value = _rotated(value + int.from_bytes(data[at : at + 4], "little") * _P3, 17) * _P4
    for byte in data[words:]:
        value = _rotated(value + byte * _P5, 11) * _P1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * _P2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * _P3 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    """The low 32 bits of ``value``, turned left."""
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
