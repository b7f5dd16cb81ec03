"""`.snapshot` files on disk: the producers of a partition as they were at an offset.

A file that does not parse, or whose CRC is wrong, is as good as none. The format is that of
`ottla.codec.stored.snapshots`: of each producer only its last batch, which is why recovery also reads the log's tail.

Source: ProducerStateManager.java.
"""

import logging
from pathlib import Path

from ottla.brokerlite.machines.producers import BatchMetadata, Producer, Producers
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.snapshots import ProducerEntry, build_snapshot, parse_snapshot
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

SUFFIX = ".snapshot"


def snapshot_path(folder: Path, offset: int) -> Path:
    return folder / f"{offset:020}{SUFFIX}"


def snapshot_offsets(disk: Disk, folder: Path) -> list[int]:
    """The offsets of all snapshots in a folder, in order."""
    names = (Path(name) for name in disk.names(folder))
    return sorted(int(name.stem) for name in names if name.suffix == SUFFIX and name.stem.isdigit())


def write_snapshot(disk: Disk, folder: Path, offset: int, producers: Producers) -> None:
    """Keep ``producers``, which know every batch before ``offset``."""
    entries = [
        _entry(producer_id, producer, producers.ongoing.get(producer_id, -1))
        for producer_id, producer in producers.entries.items()
    ]
    disk.write_file(snapshot_path(folder, offset), build_snapshot(entries))


def _entry(producer_id: int, producer: Producer, first_offset: int) -> ProducerEntry:
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


def read_snapshot(disk: Disk, path: Path) -> Producers | None:
    """The producers in the file; ``None`` if it is damaged."""
    try:
        entries = parse_snapshot(disk.read_file(path))
    except DecodeError as error:
        log.warning("producer snapshot is damaged: %s", error, extra={"file": str(path)})
        return None
    producers = {}
    for entry in entries:
        producer = Producer(entry.epoch, entry.timestamp, entry.coordinator_epoch)
        if entry.last_offset >= 0:
            producer.batches.append(
                BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            )
        producers[entry.producer_id] = producer
    begun = sorted(
        (entry.current_txn_first_offset, entry.producer_id) for entry in entries if entry.current_txn_first_offset >= 0
    )
    return Producers(producers, {producer_id: offset for offset, producer_id in begun})
