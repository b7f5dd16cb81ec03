"""Dumps indexes, snapshots and checkpoints."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from ottla.codec import prefixed
from ottla.codec.dump.items import Dump, DumpOptions, Item, View, broken
from ottla.codec.dump.readable import PlainValues
from ottla.codec.pieces import Pieces
from ottla.codec.stored import checkpoints, snapshots
from ottla.codec.stored.indexes import ENTRY_SIZES, AbortedTxn, OffsetIndexEntry, TimeIndexEntry, parse_entry
from ottla.codec.stored.snapshots import ProducerSnapshot
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError

_LARGEST = 256 * 2**20
"""The largest file, in bytes, that is held as a whole."""

_NOT_READ = "not read: such a file is valid only as a whole"

_RISING: dict[type[Any], dict[str, int]] = {
    OffsetIndexEntry: {"relative_offset": 0, "position": 4},
    TimeIndexEntry: {"timestamp": 0, "relative_offset": 8},
    AbortedTxn: {},
}
"""Fields that never decrease from one entry to the next, and their positions in an entry."""


# ---------------------------------------------------------------------------------------------------------------------
# Indexes.


def dump_offset_index(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump an ``.index`` file."""
    return _index(OffsetIndexEntry, pieces, options)


def dump_time_index(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump a ``.timeindex`` file."""
    return _index(TimeIndexEntry, pieces, options)


def dump_transaction_index(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump a ``.txnindex`` file."""
    return _index(AbortedTxn, pieces, options)


def _index(cls: type[Any], pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    source, size = Pieces(pieces), ENTRY_SIZES[cls]
    previous: Any = None
    zeros = 0
    while data := source.take(size):
        if not any(data):
            zeros += 1
            continue
        at = source.position - len(data)
        for entry_at, entry_data in chain(_zeros(at, zeros, size), [(at, data)]):
            zeros = 0
            try:
                entry = parse_entry(cls, entry_data)
            except DecodeError as error:
                yield _broken_entry(error, entry_data, entry_at)
                continue
            yield from _entry_items(entry, entry_at, options)
            if (fall := _fall(previous, entry)) is not None:
                yield _broken_entry(fall, entry_data, entry_at)
            previous = entry
    if zeros:
        yield Item("unused", {"at": source.position - zeros * size, "size": zeros * size})


def _zeros(end: int, count: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield entries of zeros that are not the unused end of the file, because a non-zero entry follows them."""
    return ((end - left * size, bytes(size)) for left in range(count, 0, -1))


def _fall(before: Any, entry: Any) -> DecodeError | None:
    """Return the error if ``entry`` must not follow ``before``."""
    cls = type(entry)
    for name, offset in _RISING[cls].items() if before is not None else ():
        if (now := getattr(entry, name)) < (last := getattr(before, name)):
            return DecodeError(f"{now} after {last}, but entries ascend", f"{cls.__name__}.{name}", offset)
    return None


def _broken_entry(error: DecodeError, data: bytes, at: int) -> Item:
    return broken(error, at=at + max(error.offset, 0), within=f"entry at {at}", view=View(data, at))


def _entry_items(entry: Any, at: int, options: DumpOptions) -> Dump:
    fields = PlainValues(0).message(entry)
    if isinstance(entry, AbortedTxn):
        last = entry.last_offset
    else:
        last = entry.relative_offset + (options.base_offset or 0)
        if options.base_offset is not None:
            fields = {"offset": last, **fields}
    if not options.skips(last):
        yield Item("entry", {"at": at, **fields})


# ---------------------------------------------------------------------------------------------------------------------
# Files that are held as a whole.


def dump_snapshot(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump a ``.snapshot`` file: the producers of a partition."""
    return _whole(pieces, _snapshot)


def _snapshot(data: bytes) -> Dump:
    try:
        version, snapshot, _ = prefixed.parse_prefixed(ProducerSnapshot, data)
        fields = PlainValues(version).message(snapshot)
    except DecodeError:
        fields = PlainValues(snapshots.VERSION).begun(ProducerSnapshot, data, prefixed.SIZE, len(data))
    producers = fields.pop("producer_entries", [])
    yield Item("snapshot", {"at": 0, **fields, "producers": len(producers)})
    yield from (Item("producer", producer) for producer in producers)
    snapshots.parse_snapshot(data)


def dump_leader_epochs(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump ``leader-epoch-checkpoint``: the leader epochs, each with its start offset."""
    return _whole(
        pieces, lambda data: (Item("leader_epoch", line._asdict()) for line in checkpoints.parse_leader_epochs(data))
    )


def dump_offsets(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump an ``…-offset-checkpoint``: an offset for each partition."""
    return _whole(pieces, lambda data: (Item("offset", line._asdict()) for line in checkpoints.parse_offsets(data)))


def dump_partition_metadata(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump ``partition.metadata``: the topic's id."""
    return _whole(pieces, _partition_metadata)


def _partition_metadata(data: bytes) -> Dump:
    topic_id = checkpoints.parse_partition_metadata(data)
    yield Item("partition_metadata", {"topic_id": checkpoints.short_id(topic_id)})


def dump_properties(pieces: Iterable[Buffer], options: DumpOptions) -> Dump:
    """Dump ``meta.properties``: the node that the data folder belongs to."""
    return _whole(pieces, _properties)


def _properties(data: bytes) -> Dump:
    yield Item("properties", {"properties": dict(checkpoints.parse_properties(data).entries)})


def _whole(pieces: Iterable[Buffer], items: Callable[[bytes], Dump]) -> Dump:
    """Yield the items of a file that is held as a whole, up to the first broken byte."""
    data = Pieces(pieces).take(_LARGEST + 1)
    if len(data) > _LARGEST:
        error = DecodeError(f"the file is larger than {_LARGEST} bytes, the limit for files of its kind")
        yield broken(error, at=_LARGEST, within="", view=View(data), rest=_NOT_READ)
        return
    try:
        yield from items(data)
    except DecodeError as error:
        yield broken(error, at=max(error.offset, 0), within="", view=View(data), rest=_NOT_READ)
