"""The four compressions of record batches and message sets, behind two functions.

Rules:
- `decompress` never makes more than ``limit`` bytes, whatever size the input claims.
- `decompressed_bound` trusts such a claim only if `decompress` refuses input that makes more.
- Every call into a compression library releases the GIL.
- LZ4 frames have independent blocks, because Java's reader refuses linked ones. `lz4_end` refuses them too.
- Snappy is written in xerial's framing, as Java writes it, and read in both that framing and the raw form (librdkafka).
- Kafka's first LZ4 format, used by messages of magic 0, has a header checksum that also covers the magic number.
  `lz4_rechecked` turns such a frame into a standard one, and back (KAFKA-3160).

Source: KIP-110 (zstd), KIP-57 (LZ4), CompressionType.java, snappy-java's SnappyOutputStream, the LZ4 frame format, RFC
8878 (zstd), RFC 1951 and 1952 (gzip), format_description.txt of snappy.
"""

import mmap
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam
import lz4.frame

from ottla.errors import DecodeError, EncodeError, MemoryLimitExceeded

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The compression of a batch, as in the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Compression":
        """Return the member for ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``.

        Raises:
            ValueError: the name is another.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(
                f"compression {name!r} is not one of {', '.join(each.name.lower() for each in cls)}"
            ) from None


LEVELS = {Compression.GZIP: (0, 9), Compression.LZ4: (0, 12), Compression.ZSTD: (-131072, 22)}
"""Default limit for the bytes that one batch may take: decompressed, and as objects."""
DEFAULT_LEVELS = {Compression.GZIP: 6, Compression.LZ4: 0, Compression.ZSTD: 3}

DECOMPRESSED_LIMIT = 128 * 2**20
"""Default limit of the bytes that one batch may take: decompressed, and as objects."""
UNLIMITED = (1 << 63) - 1
"""The limit for data that this process has compressed itself."""
_FIRST_GUESS = 16 * 2**10
_LARGE = 4 * 2**20
"""Larger buffers are memory mappings."""
DECOMPRESSED = "decompressed"
"""`DecodeError.within` begins with this if the offset counts in the decompressed bytes."""

_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK = 2**20
"""Java writes blocks of 32 kB, and reads blocks of any size. Larger blocks compress better, in fewer calls."""


def checked_level(compression: Compression, level: int | None) -> int:
    """Return ``level``, or the default for ``None``; 0 if the compression has no levels.

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
        raise EncodeError(f"{name} has levels {lowest} to {highest}, not {level!r}")
    return level


def compress(compression: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress ``data``.

    Args:
        level: see `LEVELS`; ``None`` for the default.

    Raises:
        EncodeError: the compression does not exist, or it has no such level.
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


def decompress(compression: int, data: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Buffer:
    """Decompress ``data``; the result is read-only.

    Raises:
        DecodeError: the bytes are damaged, or the compression is unknown.
        MemoryLimitExceeded: the result would be larger than ``limit`` bytes.
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
    raise DecodeError(f"compression {compression} is unknown")


def _grow(into: Callable[[Buffer, bytearray | mmap.mmap], int], name: str, data: Buffer, limit: int) -> Buffer:
    """Decompress into a buffer that grows fourfold for as long as it is too small.

    Clearing and copying tens of megabytes takes a tenth of a second, while other threads wait for the GIL. The pages of
    a mapping are cleared on first use, and then the GIL is released.
    """
    room = min(max(_FIRST_GUESS, 8 * len(data)), limit)
    while True:
        out = bytearray(room) if room <= _LARGE else mmap.mmap(-1, room)
        try:
            size = into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DecodeError(f"{name} data is damaged: {error}") from None
        else:
            made = memoryview(out)[:size]
            return bytes(made) if size <= _LARGE else made.toreadonly()
        if room >= limit:
            raise MemoryLimitExceeded(f"{name} data would grow over the limit of {limit} bytes")
        room = min(4 * room, limit)


def gzip_end(data: Buffer, limit: int) -> int:
    """Return the size of the gzip members at the start of ``data``: Java's client ignores other bytes after them.

    0 if there is no member, or the members make more than ``limit`` bytes, or one of them is truncated.
    """
    rest = memoryview(data)
    while rest:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            limit -= len(member.decompress(rest, max(limit, 0) + 1))
        except zlib.error:
            break
        if limit < 0 or not member.eof:
            return 0
        rest = memoryview(member.unused_data)
    return len(data) - len(rest)


# ---------------------------------------------------------------------------------------------------------------------
# Upper bounds of decompressed sizes, from the headers of compressed data.

_MOST_BLOCKS = 1024
"""How many headers of blocks and frames are read. With more of them, the bound is computed from the size alone."""
_PER_BLOCK = 2**10
"""Bytes that the bound adds for each block or frame. Otherwise an attacker could send many empty ones: their headers
would keep a reader busy that only stops at a limit of bytes."""
_GZIP_RATIO, _SNAPPY_RATIO, _LZ4_RATIO = 1032, 22, 255
"""Most bytes that one compressed byte makes: deflate's 258 for 2 bits, snappy's 64 for 3 bytes, LZ4's lengths."""
_GZIP_MEMBER = b"\x1f\x8b\x08"
"""Each gzip member begins with these bytes."""
_LZ4_FRAME, _ZSTD_FRAME, _SKIPPABLE_FRAME = 0x184D2204, 0xFD2FB528, 0x184D2A50
"""Magic numbers. In a skippable frame's, the low four bits are free."""
_ZSTD_BLOCK = 128 * 2**10
"""Most bytes that one zstd block makes."""
_REPEATED, _COMPRESSED = 1, 2
"""Types of zstd blocks: one repeated byte, and a compressed block. A raw block has type 0."""


def decompressed_bound(compression: int, data: Buffer) -> int:
    """Return an upper bound of the bytes that `decompress` makes of ``data``, from the headers of frames and blocks.

    Takes microseconds, and never raises. If `decompress` refuses the data, the bound may be any number from 0 on.
    """
    view = memoryview(data)
    match compression:
        case Compression.NONE:
            return len(view)
        case Compression.GZIP:
            return _gzip_bound(view)
        case Compression.SNAPPY:
            return _snappy_bound(view)
        case Compression.LZ4:
            return _lz4_bound(view)
        case Compression.ZSTD:
            return _zstd_bound(view)
    return 0


def _gzip_bound(data: memoryview) -> int:
    """Return the size at the end of the last member, if it is the only one. The ends of the others are unknown, so with
    several members, or if a member's first bytes occur by chance, use the largest possible ratio.
    """
    most = _GZIP_RATIO * len(data)
    if most >> 32 or bytes(data).find(_GZIP_MEMBER, 1) > 0:
        return most
    return int.from_bytes(data[-4:], "little")


def _snappy_bound(data: memoryview) -> int:
    size = 0
    try:
        blocks = _xerial_blocks(data) if data[: len(_XERIAL)] == _XERIAL else iter((data,))
        for number, block in enumerate(blocks):
            if number == _MOST_BLOCKS:
                return _SNAPPY_RATIO * len(data)
            size += _PER_BLOCK + cramjam.snappy.decompress_raw_len(block)
    except (DecodeError, cramjam.DecompressionError):
        pass  # `decompress` will refuse it
    return size


def _lz4_bound(data: memoryview) -> int:
    size = at = blocks = 0
    while len(data) - at > _CHECKSUM_AT:
        if (blocks := blocks + 1) > _MOST_BLOCKS:
            return _LZ4_RATIO * len(data)
        magic = _number(data, at, 4)
        if magic & ~0xF == _SKIPPABLE_FRAME:
            at += 8 + _number(data, at + 4, 4)
            continue
        if magic != _LZ4_FRAME:
            break
        flags, largest = data[at + _FLAGS_AT], 1 << 8 + 2 * (data[at + _FLAGS_AT + 1] >> 4 & 7)
        at += _CHECKSUM_AT
        content = 0
        if flags & _HAS_CONTENT_SIZE:
            content, at = _number(data, at, 8), at + 8
        at += 5 if flags & _HAS_DICTIONARY else 1
        made, extra = 0, 4 if flags & _HAS_BLOCK_CHECKSUMS else 0
        while head := _number(data, at, 4):
            if (blocks := blocks + 1) > _MOST_BLOCKS:
                return _LZ4_RATIO * len(data)
            stored = head & ~_LZ4_PLAIN
            made += stored if head & _LZ4_PLAIN else min(largest, _LZ4_RATIO * stored)
            at += 4 + stored + extra
        at += 8 if flags & _HAS_CONTENT_CHECKSUM else 4
        size += min(made, content or made)  # readers ignore a content size of 0
    return size + _PER_BLOCK * blocks


def _zstd_bound(data: memoryview) -> int:
    size = at = blocks = 0
    while len(data) - at > _FLAGS_AT:
        if (blocks := blocks + 1) > _MOST_BLOCKS:
            return _ZSTD_BLOCK * (len(data) // 3)
        magic = _number(data, at, 4)
        if magic & ~0xF == _SKIPPABLE_FRAME:
            at += 8 + _number(data, at + 4, 4)
            continue
        if magic != _ZSTD_FRAME:
            break
        flags = data[at + _FLAGS_AT]
        single, width = flags >> 5 & 1, flags >> 6
        at += _FLAGS_AT + 1 + (1 - single) + (0, 1, 2, 4)[flags & 3]  # the window, the id of a dictionary
        made, content = 0, None
        if width or single:
            content = _number(data, at, 1 << width) + (256 if width == 1 else 0)
            at += 1 << width
        last = False
        while not last:
            if (blocks := blocks + 1) > _MOST_BLOCKS:
                return _ZSTD_BLOCK * (len(data) // 3)
            head = _number(data, at, 3)
            last, kind, stored = bool(head & 1) or at >= len(data), head >> 1 & 3, head >> 3
            made += _ZSTD_BLOCK if kind == _COMPRESSED else stored
            at += 3 + (1 if kind == _REPEATED else stored)
        at += flags & 4  # the checksum
        size += made if content is None else min(made, content)
    return size + _PER_BLOCK * blocks


def _number(data: memoryview, at: int, size: int) -> int:
    """Return the little-endian number in ``size`` bytes; bytes after the end count as 0."""
    return int.from_bytes(data[at : at + size], "little")


# ---------------------------------------------------------------------------------------------------------------------
# Snappy in xerial's framing: a header, then blocks, each with a 4-byte size in front.


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
                raise MemoryLimitExceeded(f"snappy data would grow over the limit of {limit} bytes")
            out.append(bytes(cramjam.snappy.decompress_raw(block)))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy data is damaged: {error}") from None
    return b"".join(out)


def snappy_end(data: Buffer) -> int:
    """Return how many bytes of snappy data Java's client reads: it ignores up to three bytes after xerial's blocks."""
    view = memoryview(data)
    end = len(_XERIAL_HEADER)
    if view[: len(_XERIAL)] != _XERIAL:
        return len(view)
    while end + 4 <= len(view):
        end += 4 + int.from_bytes(view[end : end + 4], "big")
    return min(end, len(view))


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    position = len(_XERIAL_HEADER)
    while position != len(data):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data):
            raise DecodeError("snappy data is damaged: a block extends beyond the end")
        yield data[start:position]


# ---------------------------------------------------------------------------------------------------------------------
# The header of an LZ4 frame: magic number, flags, block size, optionally the size of the content and the id of a
# dictionary, and one byte of checksum.

_FLAGS_AT, _CHECKSUM_AT = 4, 6
_VERSION_AND_RESERVED, _VERSION_1, _INDEPENDENT = 0xC3, 0x40, 0x20
_HAS_BLOCK_CHECKSUMS, _HAS_CONTENT_SIZE, _HAS_CONTENT_CHECKSUM, _HAS_DICTIONARY = 0x10, 0x08, 0x04, 0x01
_LZ4_PLAIN = 1 << 31
"""This bit in a block's size means that the block is not compressed."""
_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
"""The primes of xxHash."""


def lz4_end(data: Buffer) -> int:
    """Return the size of the first LZ4 frame in ``data``: Java's client reads that frame and ignores the rest.

    Raises:
        DecodeError: Java's client refuses the frame: it has another version, a dictionary, linked blocks or an empty
            block; or the frame is truncated.

    Source: Lz4BlockInputStream.java.
    """
    view = memoryview(data)
    if len(view) <= _CHECKSUM_AT or _number(view, 0, 4) != _LZ4_FRAME:
        raise DecodeError("lz4 data does not begin with a frame")
    flags = view[_FLAGS_AT]
    if flags & _VERSION_AND_RESERVED != _VERSION_1:
        raise DecodeError(f"lz4 flags {flags:#04x} are of another version, or have a dictionary")
    if not flags & _INDEPENDENT:
        raise DecodeError("lz4 blocks are linked, which Java's client cannot read")
    at = _CHECKSUM_AT + 1 + (8 if flags & _HAS_CONTENT_SIZE else 0)
    extra = 4 if flags & _HAS_BLOCK_CHECKSUMS else 0
    while head := _number(view, at, 4):
        if head == _LZ4_PLAIN:
            raise DecodeError("an lz4 block is empty, which Java's client takes for the end")
        at += 4 + (head & ~_LZ4_PLAIN) + extra
    at += 8 if flags & _HAS_CONTENT_CHECKSUM else 4
    if at > len(view):
        raise DecodeError("the lz4 frame is truncated")
    return at


def lz4_rechecked(frame: Buffer, *, old: bool) -> bytes:
    """Return an LZ4 frame with the standard header checksum, or with that of Kafka's ``old`` format.

    A frame that is too short for a header, or that has a dictionary, which Kafka never uses, is returned unchanged:
    decompressing it will fail.
    """
    head = bytes(frame[: _CHECKSUM_AT + 8 + 1])
    flags = head[_FLAGS_AT] if len(head) > _FLAGS_AT else 0
    at = _CHECKSUM_AT + (8 if flags & _HAS_CONTENT_SIZE else 0)
    if len(head) <= at or flags & _HAS_DICTIONARY:
        return bytes(frame)
    checksum = _xxh32(head[0 if old else _FLAGS_AT : at]) >> 8 & 0xFF
    return b"".join((head[:at], bytes((checksum,)), frame[at + 1 :]))


def _xxh32(data: bytes) -> int:
    """Compute XXH32 with seed 0 of fewer than 16 bytes. (The algorithm differs for more.)"""
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
    """Rotate the low 32 bits of ``value`` to the left."""
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
