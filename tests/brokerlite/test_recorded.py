"""The broker's machine and storage against recordings of Apache Kafka and its clients (tests/wire/README.md)."""

import base64
import gzip
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.handlers import SERVED
from ottla.brokerlite.machines.core import Answer, Call
from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.storage.disk import FileSystem
from ottla.brokerlite.storage.partition_segments import PartitionSegments
from ottla.brokerlite.storage.snapshot import read_snapshot, write_snapshot
from ottla.brokerlite.storage.txn_index import COPY
from ottla.codec.apis import APIS
from ottla.codec.frames import build_response, parse_request, parse_response
from ottla.errors import RemoteProtocolError
from tests.brokerlite.machine import TODAY, Flushes, Machine, a_session, records_of

WIRE = Path(__file__).parents[1] / "wire"
SEGMENTS = sorted((WIRE / "segments").iterdir())
OURS = (COPY, ".indexcheck")
"""The files that Apache Kafka does not have."""
KAFKAS_INTERVAL = 512
"""`index.interval.bytes` of the broker that wrote them."""


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("recorded", SEGMENTS, ids=lambda path: path.name)
def test_a_folder_of_apache_kafka_opens_and_its_indexes_are_remade_to_the_same_bytes(
    tmp_path: Path, recorded: Path, clean: bool
) -> None:
    folder = tmp_path / recorded.name
    shutil.copytree(recorded, folder)
    segments = PartitionSegments(folder, KAFKAS_INTERVAL, Flushes())
    producers = segments.open(clean=clean, recovery_point=0)
    assert segments.truncated == 0
    files = [
        {path.name: path.read_bytes() for path in each.iterdir() if path.suffix not in OURS}
        for each in (folder, recorded)
    ]
    assert files[0] == files[1]
    records = records_of(segments.read(segments.start_offset, 2**30, True))
    assert records[-1].offset == segments.end_offset - 1
    (snapshot,) = recorded.glob("*.snapshot")
    for producer_id, known in (read_snapshot(FileSystem(), snapshot) or Producers()).entries.items():
        found = producers.entries[producer_id]
        assert (found.epoch, found.last_timestamp) == (known.epoch, known.last_timestamp)
        assert [batch[:3] for batch in list(found.batches)[-1:]] == [batch[:3] for batch in known.batches]


@pytest.mark.parametrize("recorded", SEGMENTS, ids=lambda path: path.name)
def test_a_producer_snapshot_of_apache_kafka_is_written_back_to_the_same_bytes(tmp_path: Path, recorded: Path) -> None:
    (snapshot,) = recorded.glob("*.snapshot")
    known = read_snapshot(FileSystem(), snapshot)
    assert known is not None
    write_snapshot(FileSystem(), tmp_path, int(snapshot.stem), known)
    assert (tmp_path / snapshot.name).read_bytes() == snapshot.read_bytes()


def exchanges(*apis: str) -> Iterator[dict[str, Any]]:
    """The recorded exchanges of all APIs, or of the named ones."""
    for path in sorted((WIRE / "frames").glob("*.jsonl.gz")):
        if apis and path.name.partition(".")[0] not in apis:
            continue
        with gzip.open(path, "rt") as lines:
            for line in lines:
                exchange = json.loads(line)
                exchange["request"] = base64.b64decode(exchange["request"])
                yield exchange


def answered(machine: Machine, frame: bytes) -> str:
    """The outcome of a request; every response must be valid in its version."""
    try:
        request = parse_request(frame)
        machine.core.handle(1, Call(1, a_session(), request.header, request.message, machine.now, TODAY))
    except RemoteProtocolError:
        return "refused"
    machine.now += 120
    for action in machine.poll():
        if isinstance(action, Answer) and action.message is not None:
            answer = build_response(action.message, action.version, 1)
            parse_response(APIS[request.header.api_key].response, action.version, answer[4:])
    return "answered"


@pytest.mark.slow
def test_every_recorded_request_is_answered_or_refused_as_its_version_demands(machine: Machine) -> None:
    for exchange in exchanges():
        served = SERVED.get(exchange["api_key"])
        known = served is not None and served.lowest <= exchange["api_version"] <= served.highest
        expected = "answered" if known else "refused"
        if exchange["client"] == "kafka-clients-messages" and exchange["response"] is None:
            continue  # damaged on purpose
        assert answered(machine, exchange["request"]) == expected, (exchange["client"], exchange["scenario"])


def test_no_damaged_request_makes_the_machine_fail(machine: Machine) -> None:
    rng = random.Random(20)
    frames = [exchange["request"] for exchange in exchanges() if len(exchange["request"]) < 5000]
    for _ in range(3000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randint(1, 4)):
            match rng.choice(("byte", "byte", "cut", "version")):
                case "byte":
                    frame[rng.randrange(len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
                case "cut":
                    del frame[rng.randrange(1, len(frame) + 1) :]
                case _:
                    frame[2:4] = rng.randrange(19).to_bytes(2, "big")
        answered(machine, bytes(frame))
