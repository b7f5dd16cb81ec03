"""`.snapshot` files: the producers of a partition as they were at an offset.

Rules:
- Version 1 of Kafka's format: of each producer only its last batch, which is why recovery also reads the log's tail.
- A file that does not parse, or whose CRC is wrong, is as good as none.

Source: ProducerStateManager.java (readSnapshot, writeSnapshot), ProducerSnapshot.json.
"""

import logging
from pathlib import Path

from crc32c import crc32c

from ottla.brokerlite.machines.producers import BatchMetadata, Producer, Producers
from ottla.codec import messages, wire
from ottla.codec.wire import Array, Int16, Int32, Int64, UInt32
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

VERSION = 1
SUFFIX = ".snapshot"
_ENTRIES = 6
"""Where the CRC begins to count: behind the version and itself."""


@wire.struct
class ProducerEntry:
    producer_id: int = wire.wire(Int64)
    epoch: int = wire.wire(Int16)
    last_sequence: int = wire.wire(Int32)
    last_offset: int = wire.wire(Int64)
    offset_delta: int = wire.wire(Int32)
    timestamp: int = wire.wire(Int64)
    coordinator_epoch: int = wire.wire(Int32)
    current_txn_first_offset: int = wire.wire(Int64, default=-1)


@wire.message(key=-1, versions="1")
class ProducerSnapshot:
    version: int = wire.wire(Int16)
    crc: int = wire.wire(UInt32)
    producer_entries: tuple[ProducerEntry, ...] = wire.wire(Array(ProducerEntry))


def snapshot_path(folder: Path, offset: int) -> Path:
    return folder / f"{offset:020}{SUFFIX}"


def write_snapshot(folder: Path, offset: int, producers: Producers) -> None:
    """Keep ``producers``, which know every batch before ``offset``; of older snapshots keep one."""
    entries = tuple(_entry(producer_id, producer) for producer_id, producer in producers.entries.items())
    data = bytearray(messages.build(ProducerSnapshot(version=VERSION, crc=0, producer_entries=entries), VERSION))
    data[2:_ENTRIES] = crc32c(memoryview(data)[_ENTRIES:]).to_bytes(4, "big")
    snapshot_path(folder, offset).write_bytes(data)
    for old in sorted(folder.glob(f"*{SUFFIX}"))[:-2]:
        old.unlink()


def _entry(producer_id: int, producer: Producer) -> ProducerEntry:
    last = producer.batches[-1] if producer.batches else BatchMetadata(-1, -1, 0, -1)
    return ProducerEntry(
        producer_id=producer_id,
        epoch=producer.epoch,
        last_sequence=last.last_sequence,
        last_offset=last.last_offset,
        offset_delta=last.offset_delta,
        timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
    )


def read_snapshot(path: Path) -> dict[int, Producer] | None:
    """The producers in the file; ``None`` if it is damaged."""
    data = path.read_bytes()
    try:
        snapshot, _ = messages.parse(ProducerSnapshot, VERSION, data)
    except DecodeError as error:
        log.warning("producer snapshot is damaged: %s", error, extra={"file": str(path)})
        return None
    if snapshot.version != VERSION or snapshot.crc != crc32c(data[_ENTRIES:]):
        log.warning("producer snapshot is damaged: wrong version or CRC", extra={"file": str(path)})
        return None
    producers = {}
    for entry in snapshot.producer_entries:
        producer = Producer(entry.epoch, entry.timestamp, entry.coordinator_epoch)
        if entry.last_offset >= 0:
            producer.batches.append(
                BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            )
        producers[entry.producer_id] = producer
    return producers
