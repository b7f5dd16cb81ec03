"""Reads and writes snapshots of a partition's producers at an offset, which names two files.

    00000000000000004711.snapshot   Kafka's (`ottla.codec.stored.snapshots`): the last batch of each producer
    00000000000000004711.window     ours: the earlier batches that are remembered, if there are producers

A file with a wrong CRC counts as missing. Without a window file, as in a folder of Kafka's, recovery reads the log's
tail instead.

Source: ProducerStateManager.java.
"""

import logging
import struct
from bisect import bisect_right
from pathlib import Path

from ottla.brokerlite.machines.partitions.producers import BatchMetadata, Producers, ProducerStateEntry
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.checksums import crc32c
from ottla.codec.stored.snapshots import ProducerEntry, build_snapshot, parse_snapshot
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

SUFFIX, WINDOW_SUFFIX = ".snapshot", ".window"
_KEPT = 2
"""The least number of snapshots kept, because the newest may be damaged."""

_CRC = struct.Struct(">I")
_WINDOW = struct.Struct(">qhi")
"""A producer's id, its epoch, and how many batches follow."""
_BATCH = struct.Struct(">iqiq")
"""The fields of a `BatchMetadata`."""


def snapshot_path(folder: Path, offset: int) -> Path:
    return folder / f"{offset:020}{SUFFIX}"


def snapshot_offsets(disk: Disk, folder: Path) -> list[int]:
    """Return the offsets of all snapshots in a folder, in order."""
    names = (Path(name) for name in disk.names(folder))
    return sorted(int(name.stem) for name in names if name.suffix == SUFFIX and name.stem.isdigit())


def write_snapshot(disk: Disk, folder: Path, offset: int, producers: Producers) -> list[Path]:
    """Write a snapshot of ``producers``, which know every batch before ``offset``; return the paths, to be flushed."""
    path = snapshot_path(folder, offset)
    entries = [
        _entry(producer_id, producer, producers.ongoing.get(producer_id, -1))
        for producer_id, producer in producers.entries.items()
    ]
    disk.write_file(path, build_snapshot(entries))
    if not entries:
        return [path]
    window = path.with_suffix(WINDOW_SUFFIX)
    disk.write_file(window, _window(producers))
    return [path, window]


def drop_snapshot(disk: Disk, folder: Path, offset: int) -> None:
    path = snapshot_path(folder, offset)
    for each in (path, path.with_suffix(WINDOW_SUFFIX)):
        disk.unlink(each)


def drop_snapshots(disk: Disk, folder: Path, offset: int) -> None:
    """Drop snapshots older than the newest one at or before ``offset``, but keep at least `_KEPT`."""
    known = snapshot_offsets(disk, folder)
    needed = bisect_right(known, offset) - 1
    for each in known[: max(0, min(needed, len(known) - _KEPT))]:
        drop_snapshot(disk, folder, each)


def _entry(producer_id: int, producer: ProducerStateEntry, first_offset: int) -> ProducerEntry:
    last = producer.batches[-1] if producer.batches else BatchMetadata(-1, -1, 0, -1)
    return ProducerEntry(
        producer_id=producer_id,
        epoch=producer.epoch,
        last_sequence=last.last_sequence,
        last_offset=last.last_offset,
        offset_delta=last.offset_delta,
        timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=first_offset,
    )


def _window(producers: Producers) -> bytes:
    parts = []
    for producer_id, producer in producers.entries.items():
        older = list(producer.batches)[:-1]
        parts.append(_WINDOW.pack(producer_id, producer.epoch, len(older)))
        parts += [_BATCH.pack(*batch) for batch in older]
    data = b"".join(parts)
    return _CRC.pack(crc32c(data)) + data


def read_snapshot(disk: Disk, path: Path) -> Producers | None:
    """Read the producers in the file, each with its last batch; ``None`` if the file is damaged."""
    try:
        entries = parse_snapshot(disk.read_file(path))
    except DecodeError as error:
        log.warning("producer snapshot is damaged: %s", error, extra={"file": str(path)})
        return None
    producers = {}
    for entry in entries:
        producer = ProducerStateEntry(entry.epoch, entry.timestamp, entry.coordinator_epoch)
        if entry.last_offset >= 0:
            producer.batches.append(
                BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            )
        producers[entry.producer_id] = producer
    begun = sorted(
        (entry.current_txn_first_offset, entry.producer_id) for entry in entries if entry.current_txn_first_offset >= 0
    )
    return Producers(producers, {producer_id: offset for offset, producer_id in begun})


def complete(disk: Disk, path: Path, producers: dict[int, ProducerStateEntry]) -> bool:
    """Add the earlier batches to ``producers``, read from the snapshot at ``path``; return whether the window file is
    intact."""
    window = path.with_suffix(WINDOW_SUFFIX)
    data = disk.read_file(window) if disk.exists(window) else b""
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32c(memoryview(data)[_CRC.size :]):
        return not producers
    at = _CRC.size
    while at < len(data):
        producer_id, epoch, count = _WINDOW.unpack_from(data, at)
        at += _WINDOW.size
        older = [BatchMetadata(*_BATCH.unpack_from(data, at + i * _BATCH.size)) for i in range(count)]
        at += count * _BATCH.size
        producer = producers.get(producer_id)
        if producer is not None and producer.epoch == epoch:
            producer.batches.extendleft(reversed(older))
    return True
