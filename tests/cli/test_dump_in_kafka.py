"""`ottla dump` compared with Kafka's own tool, on the same files: batches, records, indexes, producers."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ottla.cli.commands import app
from tests import kafka
from tests.codec.recorded import WIRE

pytestmark = pytest.mark.slow  # a JVM

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FILES = sorted(path for part in ("segments", "stored") for path in WIRE.glob(f"{part}/*/*") if path.suffix in SUFFIXES)

BATCH = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "count",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "isTransactional": "transactional",
    "isControl": "control",
    "position": "at",
    "size": "size",
    "magic": "magic",
    "compresscodec": "compression",
    "crc": "crc",
    "isvalid": "crc_matches",
}
PRODUCER = {
    "producerId": "producer_id",
    "producerEpoch": "epoch",
    "coordinatorEpoch": "coordinator_epoch",
    "lastTimestamp": "timestamp",
}
LAST_BATCH = {"lastSequence": "last_sequence", "lastOffset": "last_offset", "offsetDelta": "offset_delta"}
ABORTED = {
    "producerId": "producer_id",
    "firstOffset": "first_offset",
    "lastOffset": "last_offset",
    "lastStableOffset": "last_stable_offset",
}


@cache
def theirs() -> dict[Path, list[str]]:
    """The lines that Kafka's tool prints about each file."""
    out = kafka.run("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", ",".join(map(str, FILES)))
    said: dict[Path, list[str]] = {}
    for line in out.split("\n"):
        if line.startswith("Dumping "):
            said[current := Path(line.removeprefix("Dumping "))] = []
        elif re.match(r"(\| )?(baseOffset|offset|timestamp|version|producerId): ", line):  # others continue a payload
            said[current].append(line)
    return said


def ours(path: Path) -> Iterator[dict[str, Any]]:
    done = CliRunner().invoke(app, ["dump", "--json", "--raw", str(path)])
    assert (done.exit_code, done.stderr) == (0, "")
    return map(json.loads, done.stdout.splitlines())


def pairs(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


def renamed(item: dict[str, Any], names: dict[str, str]) -> dict[str, str]:
    """ottla's fields under Kafka's names, in the format of Kafka's tool."""
    return {name: str(item[field]).lower() for name, field in names.items()}


def test_kafka_reads_every_file() -> None:
    assert set(theirs()) == set(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}{path.suffix}")
def test_both_say_the_same(path: Path) -> None:
    said = iter(theirs()[path])
    for item in ours(path):
        if item["kind"] == "snapshot":
            assert item["producers"] == len(theirs()[path])
            continue
        line = next(said)
        found = pairs(line)
        match item["kind"]:
            case "batch":
                expected = renamed(item, BATCH)
                expected[item["timestamp_type"]] = str(item["max_timestamp"])
            case "record":
                assert line.startswith("| ")
                size = len(item["value"].encode()) if isinstance(item.get("value"), str) else None
                expected = {"offset": str(item["offset"])}
                expected |= {"valueSize": str(size)} if size is not None else {}
                assert str(item["timestamp"]) in found.values()
                assert f"headerKeys: [{','.join(each['key'] for each in item['headers'])}]" in line
            case "producer":
                expected = renamed(item, PRODUCER | (LAST_BATCH if item["last_offset"] >= 0 else {}))
            case "entry" if "producer_id" in item:
                expected = renamed(item, ABORTED)
            case "entry":
                expected = {"offset": str(item["offset"])}
                expected |= {name: str(item[name]) for name in ("position", "timestamp") if name in item}
        assert {name: found.get(name) for name in expected} == expected
    assert list(said) == []
