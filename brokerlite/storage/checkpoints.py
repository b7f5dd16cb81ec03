"""The small files of the data folder, written whole; their formats are those of `ottla.codec.stored.checkpoints`."""

from collections.abc import Mapping
from pathlib import Path

from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.checkpoints import PartitionOffset, build_offsets, parse_offsets
from ottla.errors import DecodeError

TEMPORARY = ".tmp"


def replace(disk: Disk, path: Path, data: bytes, *, sync: bool, old: Path | None = None) -> None:
    """Give a file other content such that it has either the old or the new, whatever happens.

    Args:
        sync: also if the power goes: the disk has the content before the name, and the name at the end. This waits.
        old: the name that the file with the old content is given.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    disk.write_file(temporary, data)
    if sync:
        disk.sync(temporary)
    if old is not None and disk.exists(path):
        disk.rename(path, old)
    disk.rename(temporary, path)
    if sync:
        disk.sync_folder(path.parent)


def write_offsets(disk: Disk, path: Path, offsets: Mapping[tuple[str, int], int], *, sync: bool) -> None:
    """An offset checkpoint: (topic, partition) -> offset."""
    lines = (PartitionOffset(*place, offset) for place, offset in offsets.items())
    replace(disk, path, build_offsets(lines), sync=sync)


def read_offsets(disk: Disk, path: Path) -> dict[tuple[str, int], int]:
    """The opposite; a file that is gone or damaged is an empty one: then nothing is taken for on the disk unseen."""
    try:
        return {(topic, partition): offset for topic, partition, offset in parse_offsets(disk.read_file(path))}
    except (FileNotFoundError, DecodeError):
        return {}
