"""The four compressions of record batches, behind two functions.

Rules:
- `decompress` never makes more than ``limit`` bytes, whatever the input claims of itself.
- LZ4 frames have independent blocks, because Java's reader refuses linked ones.
- Snappy is written in xerial's framing, as Java writes it, and read in both that and the raw form (librdkafka).

Source: KIP-110 (zstd), CompressionType.java, snappy-java's SnappyOutputStream.
"""

from collections.abc import Callable
from enum import IntEnum

import cramjam

from ottla.errors import DecodeError

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


DECOMPRESSED_LIMIT = 128 * 2**20
"""Bytes that one batch may take when decompressed, unless the caller says otherwise."""
_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK = 32 * 2**10
_FIRST_GUESS = 64 * 2**10


def compress(compression: Compression, data: Buffer, level: int | None = None) -> bytes:
    """``data`` compressed; ``level`` as the library of the compression counts it (snappy has none)."""
    match compression:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=6 if level is None else level))
        case Compression.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Compression.LZ4:
            compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


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
            return _decompress_snappy(bytes(data), limit)
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


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    blocks = [data]
    if data.startswith(_XERIAL):
        blocks, position = [], len(_XERIAL_HEADER)
        while position != len(data):
            start = position + 4
            position = start + int.from_bytes(data[position:start], "big")
            if position > len(data):
                raise DecodeError("snappy data is damaged: a block runs over the end")
            blocks.append(data[start:position])
    out, left = [], limit
    for block in blocks:
        try:
            left -= cramjam.snappy.decompress_raw_len(block)
            if left < 0:
                raise DecodeError(f"snappy data would grow over the limit of {limit} bytes")
            out.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError as error:
            raise DecodeError(f"snappy data is damaged: {error}") from None
    return b"".join(out)
