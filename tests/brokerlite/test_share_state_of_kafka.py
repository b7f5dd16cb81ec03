"""The broker reads `__share_group_state` as Apache Kafka has written it, and Kafka's own tool has decoded it."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.share_partitions.stored_state import StoredState, StoredStates
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog, KeyedRecord
from ottla.codec.records import read_batches

STORED = Path(__file__).parents[1] / "wire" / "stored"
FOLDERS = sorted(STORED.glob("__share_group_state-*"))


class Replayed:
    """A log that has these records."""

    name = "__share_group_state"

    def __init__(self, records: Sequence[KeyedRecord]) -> None:
        self._records = records

    def replay(self) -> Iterator[KeyedRecord]:
        return iter(self._records)


def written(folder: Path) -> list[KeyedRecord]:
    (path,) = folder.glob("*.log")
    return [
        KeyedRecord(record.offset, record.key or b"", record.value)
        for batch in read_batches(path.read_bytes())
        for record in batch.records()
    ]


def decoded(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(STORED / "decoded.jsonl.gz", "rt") as lines:
        return [each for each in map(json.loads, lines) if each["folder"] == folder.name]


class Model:
    """One share partition, offset by offset."""

    def __init__(self) -> None:
        self.known: tuple[int, int] | None = None
        """Snapshot epoch and start offset."""
        self.offsets: dict[int, tuple[int, int]] = {}

    def take(self, record: dict[str, Any]) -> None:
        value = record["value"]
        if value is None:
            self.known, self.offsets = None, {}
            return
        if record["type"] == 0:
            self.offsets = {}
        elif self.known is None or self.known[0] != value["snapshotEpoch"]:
            return
        self.known = value["snapshotEpoch"], value["startOffset"]
        for each in value["stateBatches"]:
            for offset in range(each["firstOffset"], each["lastOffset"] + 1):
                self.offsets[offset] = each["deliveryState"], each["deliveryCount"]
        start = value["startOffset"]
        self.offsets = {offset: each for offset, each in self.offsets.items() if offset >= start}


def by_offset(state: StoredState) -> dict[int, tuple[int, int]]:
    return {
        offset: (each.state, each.deliveries) for each in state.batches for offset in range(each.first, each.last + 1)
    }


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_what_apache_kafka_wrote_is_read_up_to_each_record(folder: Path) -> None:
    records, model = written(folder), Model()
    assert records and len(records) == len(decoded(folder))
    for count, record in enumerate(decoded(folder), 1):
        model.take(record)
        states = StoredStates(cast(KeyedLog, Replayed(records[:count])), Clock.at(0.0, 0))
        states.load()
        if model.known is None:
            assert not len(states)
            continue
        (key,) = states
        state = states.get(key)
        assert state is not None and (state.snapshot_epoch, state.start_offset) == model.known
        assert by_offset(state) == model.offsets
