"""Message sets and Apache Kafka: its own classes read ottla's sets, and ottla reads theirs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec.compression import Compression
from ottla.codec.message_sets import build_message_set
from ottla.codec.records import Record
from tests.codec.test_message_sets import FORMATS, NOW, THREE, every_format, items, numbered, read, recorded
from tests.kafka import java

pytestmark = pytest.mark.slow


class Kafka:
    """Apache Kafka's own classes for records, in a JVM: see MessageSets.java."""

    def __init__(self) -> None:
        program = Path(__file__).parent / "java" / "MessageSets.java"
        self._jvm = subprocess.Popen(java(str(program)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, record_set: bytes) -> list[Record]:
        return [Record(int(a), int(b), unhex(c), unhex(d)) for a, b, c, d in self._fields("read", record_set.hex())]

    def build(self, magic: int, compression: Compression, stamp: int | None, records: list[Record]) -> bytes:
        lines = [f"{each.offset}:{each.timestamp}:{tohex(each.key)}:{tohex(each.value)}" for each in records]
        stamped = "-1" if stamp is None else str(stamp)
        return bytes.fromhex(self._ask("build", str(magic), compression.name.lower(), stamped, *lines))

    def _fields(self, *words: str) -> Iterator[list[str]]:
        return (record.split(":") for record in self._ask(*words).split())

    def _ask(self, *words: str) -> str:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        print(*words, file=self._jvm.stdin, flush=True)
        answer = self._jvm.stdout.readline()
        assert answer, "the JVM has ended"
        assert not answer.startswith("!"), answer
        return answer

    def close(self) -> None:
        self._jvm.communicate()


def tohex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def unhex(field: str) -> bytes | None:
    return None if field == "-" else bytes.fromhex(field)


@pytest.fixture(scope="module")
def kafka_records() -> Iterator[Kafka]:
    kafka = Kafka()
    yield kafka
    kafka.close()


@pytest.mark.parametrize(
    ("magic", "compression", "stamp"),
    [(*each, None) for each in FORMATS] + [(*each, NOW + 12_345) for each in FORMATS if each[0] == 1],
)
def test_kafka_itself_agrees_both_ways(
    kafka_records: Kafka, magic: int, compression: Compression, stamp: int | None
) -> None:
    @given(given=items, first=st.sampled_from([0, 1, 1 << 40]))
    @settings(max_examples=40)
    def check(given: list[tuple[int, Any, Any]], first: int) -> None:
        written = [replace_offsets(numbered(given, 1), first), THREE]
        for records in written:
            expected = [
                Record(each.offset, -1 if magic == 0 else stamp or each.timestamp, each.key, each.value)
                for each in records
            ]
            ours = build_message_set(records, magic=magic, compression=compression, log_append_time=stamp)
            assert kafka_records.read(ours) == read(ours) == expected
            theirs = kafka_records.build(magic, compression, stamp, records)
            assert read(theirs) == expected
            if compression == Compression.NONE:
                assert ours == theirs

    check()


def replace_offsets(records: list[Record], first: int) -> list[Record]:
    return [Record(first + each.offset, each.timestamp, each.key, each.value) for each in records]


def test_kafka_itself_reads_the_same_from_what_was_recorded(kafka_records: Kafka) -> None:
    for who, record_set in recorded():
        assert kafka_records.read(record_set) == read(record_set), who


@every_format
def test_kafka_itself_reads_large_blocks(kafka_records: Kafka, magic: int, compression: Compression) -> None:
    value = b"".join(b"%x" % (number * number) for number in range(400_000))
    records = [Record(0, -1 if magic == 0 else NOW, None, value)]
    assert kafka_records.read(build_message_set(records, magic=magic, compression=compression)) == records
