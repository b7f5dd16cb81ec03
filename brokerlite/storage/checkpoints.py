"""The small text files on disk, written whole; their formats are those of `ottla.codec.stored.checkpoints`."""

import os
from collections.abc import Mapping
from pathlib import Path

from ottla.codec.stored.checkpoints import PartitionOffset, build_offsets, parse_offsets
from ottla.errors import DecodeError


def replace(path: Path, data: bytes) -> None:
    """Write a whole file such that it has either its old content or the new, whatever happens."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def sync(path: Path) -> None:
    """Have the disk hold the content of a file, or the entries of a folder; one that is gone is no matter."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """An offset checkpoint: (topic, partition) -> offset."""
    replace(path, build_offsets(PartitionOffset(*place, offset) for place, offset in offsets.items()))


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """The opposite; a file that is gone or damaged is an empty one: then nothing is taken for on the disk unseen."""
    try:
        return {(topic, partition): offset for topic, partition, offset in parse_offsets(path.read_bytes())}
    except (FileNotFoundError, DecodeError):
        return {}
