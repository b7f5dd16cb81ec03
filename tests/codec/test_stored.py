"""Kafka's stored data: files and internal topics that Apache Kafka wrote (tests/wire/stored), and damage to them."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.codec import prefixed, wire
from ottla.codec.consumer_protocol import parse_assignment, parse_subscription
from ottla.codec.records import Record, read_batches
from ottla.codec.stored import checkpoints, classic_groups, control, indexes, snapshots
from ottla.codec.stored.control import ControlRecord, build_control, parse_control
from ottla.codec.stored.indexes import AbortedTxn, OffsetIndexEntry, TimeIndexEntry
from ottla.codec.stored.internal_topics import INTERNAL_TOPICS, InternalRecord, build_internal, parse_internal
from ottla.codec.stored.snapshots import ProducerEntry
from ottla.errors import DecodeError, EncodeError
from tests.codec.kafka_json import to_json
from tests.codec.strategies import tree

WIRE = Path(__file__).parents[1] / "wire"
STORED = WIRE / "stored"
FOLDERS = sorted(path for parent in ("segments", "stored") for path in (WIRE / parent).iterdir() if path.is_dir())

NOT_WRITTEN = {"LegacyOffsetCommit", "ConsumerGroupPartitionMetadata"}
"""Types of records that brokers of 4.3 no longer write."""
NOT_RECORDED = {"StreamsGroupTargetAssignmentMember", "StreamsGroupTargetAssignmentMetadata"}
"""Types that the recorded broker did not happen to write."""


@cache
def records(folder: Path) -> list[tuple[bool, Record]]:
    """The records of a folder's segment, and whether each is a control record."""
    [log] = folder.glob("*.log")
    return [(batch.control, record) for batch in read_batches(log.read_bytes()) for record in batch.records()]


def internal_records() -> Iterator[tuple[str, int, bytes, bytes | None]]:
    """Folder, offset, key and value of each record of an internal topic, without control records."""
    for folder in FOLDERS:
        if folder.name.rpartition("-")[0] in INTERNAL_TOPICS:
            for is_control, record in records(folder):
                if not is_control:
                    assert record.key is not None
                    yield folder.name, record.offset, record.key, record.value


def parsed(folder: str, key: bytes, value: bytes | None) -> InternalRecord:
    record = parse_internal(folder.rpartition("-")[0], key, value)
    assert record is not None
    return record


# ---------------------------------------------------------------------------------------------------------------------
# Internal topics.


def test_every_record_of_an_internal_topic_is_known_and_builds_the_same_bytes() -> None:
    seen: Counter[str] = Counter()
    for folder, _, key, value in internal_records():
        record = parsed(folder, key, value)
        assert build_internal(record) == (key, value), (folder, record)
        seen[record.name] += value is not None
    names = {each.name for types in INTERNAL_TOPICS.values() for each in types.values()}
    assert names - {name for name, count in seen.items() if count} == NOT_WRITTEN | NOT_RECORDED


def test_every_record_of_an_internal_topic_says_what_kafka_itself_reads() -> None:
    with gzip.open(STORED / "decoded.jsonl.gz", "rt") as lines:
        decoded = {(each["folder"], each["offset"]): each for each in map(json.loads, lines)}
    for folder, offset, key, value in internal_records():
        record, theirs = parsed(folder, key, value), decoded.pop((folder, offset))
        assert (record.type, record.version) == (theirs["type"], theirs["version"])
        assert to_json(record.key, tree(type(record.key), 0)) == theirs["key"]
        if value is not None:
            assert kafkas_reading(record.value, record.version) == theirs["value"]
    assert not decoded


def kafkas_reading(value: Any, version: int) -> Any:
    """The value as Kafka's tool shows it: the tool also parses subscriptions and assignments within."""
    made = to_json(value, tree(type(value), version))
    if isinstance(value, classic_groups.GroupMetadataValue) and value.protocol_type == "consumer":
        for shown, member in zip(made["members"], value.members, strict=True):
            for name, parse in (("subscription", parse_subscription), ("assignment", parse_assignment)):
                data = getattr(member, name)
                said, message = parse(data)
                if said == prefixed.version_of(data):  # otherwise it is kafka-go's, which Kafka's tool cannot read
                    shown[name] = to_json(message, tree(type(message), said))
    return made


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("flights", b"\0\1\0\1g\0\1t\0\0\0\0"),
        ("__consumer_offsets", None),
        ("__consumer_offsets", b""),
        ("__consumer_offsets", b"\0"),
        ("__consumer_offsets", b"\0\x18\0\1g"),
        ("__consumer_offsets", b"\xff\xff"),
        ("__transaction_state", b"\0\1\0\1t"),
    ],
)
def test_a_record_of_no_known_type_is_nobodys(topic: str, key: bytes | None) -> None:
    assert parse_internal(topic, key, b"value") is None


def test_a_value_of_an_unknown_version_stays_bytes() -> None:
    key = b"\0\1\0\1g\0\1t\0\0\0\7"
    for version in (5, -1, 0x7FFF):
        value = version.to_bytes(2, "big", signed=True) + b"what comes then"
        record = parse_internal("__consumer_offsets", key, value)
        assert record is not None
        assert (record.key.partition, record.version, record.value) == (7, version, value)
        assert build_internal(record) == (key, value)


def test_a_record_that_is_cut_or_too_long_is_told_by_its_message_and_byte() -> None:
    key, value = b"\0\1\0\1g\0\1t\0\0\0\7", b"\0\1" + bytes(8) + b"\0\1m" + bytes(16)
    assert parse_internal("__consumer_offsets", key, value) is not None
    for size in range(2, len(key)):
        with pytest.raises(DecodeError, match=r"OffsetCommitKey"):
            parse_internal("__consumer_offsets", key[:size], value)
    for size in range(len(value)):
        with pytest.raises(DecodeError):
            parse_internal("__consumer_offsets", key, value[:size])
    with pytest.raises(DecodeError, match=r"OffsetCommitValue at byte 29: 1 bytes left over"):
        parse_internal("__consumer_offsets", key, value + b"\0")


# ---------------------------------------------------------------------------------------------------------------------
# Control records.


def test_every_control_record_is_known_and_builds_the_same_bytes() -> None:
    seen = set()
    for folder in FOLDERS:
        for is_control, record in records(folder):
            if is_control:
                marker = parse_control(record.key, record.value)
                assert marker is not None
                assert build_control(marker) == (record.key, record.value)
                seen.add(marker.name)
    assert seen == {"abort", "commit", "leader_change", "kraft_version", "kraft_voters"}


def test_a_snapshot_of_kraft_is_made_of_control_records() -> None:
    [path] = STORED.glob("__cluster_metadata-0/*.checkpoint")
    markers = [parse_control(r.key, r.value) for batch in read_batches(path.read_bytes()) for r in batch.records()]
    assert [marker and marker.name for marker in markers] == [
        "snapshot_header",
        "kraft_version",
        "kraft_voters",
        "snapshot_footer",
    ]
    voters = markers[2]
    assert voters is not None
    [voter] = voters.value.voters
    assert (voter.voter_id, voter.endpoints[0].name) == (0, "CONTROLLER")


def test_a_leader_change_names_directories_from_version_1_on() -> None:
    voter = control.ElectionVoter(voter_id=1, voter_directory_id=checkpoints.parse_short_id("xYdL1zCEReaugr0dWiRRjA"))
    message = control.LeaderChangeMessage(version=1, leader_id=1, voters=(voter,), granting_voters=(voter,))
    record = ControlRecord(control.LEADER_CHANGE, 1, message)
    assert parse_control(*build_control(record)) == record


@pytest.mark.parametrize("key", [None, b"", b"\0\0", b"\0\0\0", b"\0\0\0\7", b"\0\1\0\0"])
def test_a_control_record_of_no_known_type_is_left_alone(key: bytes | None) -> None:
    if key in (b"\0\0", b"\0\0\0"):
        with pytest.raises(DecodeError):
            parse_control(key, b"\0\0\0\0\0\0")
    else:
        assert parse_control(key, b"\0\0\0\0\0\0") is None


def test_a_control_record_of_an_unknown_version_stays_bytes() -> None:
    marker = parse_control(b"\0\0\0\1", b"\0\7whatever")
    assert marker == ControlRecord(control.COMMIT, 7, b"\0\7whatever")
    assert build_control(marker) == (b"\0\0\0\1", b"\0\7whatever")


def test_a_marker_that_is_cut_or_too_long_is_damage() -> None:
    for value in (b"", b"\0", b"\0\0", b"\0\0\0\0\0", b"\0\0\0\0\0\0\0"):
        with pytest.raises(DecodeError):
            parse_control(b"\0\0\0\1", value)


# ---------------------------------------------------------------------------------------------------------------------
# Files.


def files(suffix: str) -> list[Path]:
    found = [path for folder in FOLDERS for path in folder.glob(f"*{suffix}")]
    assert found
    return found


@pytest.mark.parametrize(
    ("suffix", "cls"), [(".index", OffsetIndexEntry), (".timeindex", TimeIndexEntry), (".txnindex", AbortedTxn)]
)
def test_an_index_builds_the_same_bytes(suffix: str, cls: type[Any]) -> None:
    entries = 0
    for path in files(suffix):
        found = list(indexes.parse_entries(cls, path.read_bytes()))
        assert b"".join(map(indexes.build_entry, found)) == path.read_bytes()
        entries += len(found)
    assert entries > 10


@pytest.mark.parametrize("cls", [OffsetIndexEntry, TimeIndexEntry, AbortedTxn])
def test_the_size_of_an_entry_is_what_its_declaration_takes(cls: type[Any]) -> None:
    whole = indexes.build_entry(cls(**{field.name: 0 for field in cls.__wire__}))
    assert len(whole) == indexes.ENTRY_SIZES[cls]
    for size in range(1, len(whole)):
        with pytest.raises(DecodeError, match=r"\[1\]\."):
            list(indexes.parse_entries(cls, whole + whole[:size]))


def test_an_aborted_transaction_of_an_unknown_version_is_damage() -> None:
    with pytest.raises(DecodeError, match=r"version 1 is unknown, known are 0"):
        indexes.parse_entry(AbortedTxn, b"\0\1" + bytes(32))


def test_a_snapshot_builds_the_same_bytes() -> None:
    producers = 0
    for path in files(".snapshot"):
        entries = snapshots.parse_snapshot(path.read_bytes())
        assert snapshots.build_snapshot(entries) == path.read_bytes()
        producers += len(entries)
    assert producers > 10


def test_a_snapshot_with_any_byte_changed_or_cut_is_damaged() -> None:
    entry = ProducerEntry(
        producer_id=1,
        epoch=2,
        last_sequence=3,
        last_offset=4,
        offset_delta=0,
        timestamp=5,
        coordinator_epoch=-1,
        current_txn_first_offset=-1,
    )
    whole = snapshots.build_snapshot([entry])
    assert snapshots.parse_snapshot(whole) == (entry,)
    for index in range(len(whole)):
        with pytest.raises(DecodeError):
            snapshots.parse_snapshot(whole[:index])
        changed = bytearray(whole)
        changed[index] ^= 1
        with pytest.raises(DecodeError):
            snapshots.parse_snapshot(changed)
    with pytest.raises(DecodeError, match="1 bytes left over"):
        snapshots.parse_snapshot(whole + b"\0")


def _leader_epochs(data: bytes) -> bytes:
    return checkpoints.build_leader_epochs(checkpoints.parse_leader_epochs(data))


def _offsets(data: bytes) -> bytes:
    return checkpoints.build_offsets(checkpoints.parse_offsets(data))


def _metadata(data: bytes) -> bytes:
    return checkpoints.build_partition_metadata(checkpoints.parse_partition_metadata(data))


def _properties(data: bytes) -> bytes:
    return checkpoints.build_properties(checkpoints.parse_properties(data))


@pytest.mark.parametrize(
    ("again", "pattern"),
    [
        (_leader_epochs, "*/*/leader-epoch-checkpoint"),
        (_offsets, "*/*-offset-checkpoint"),
        (_metadata, "*/*/partition.metadata"),
        (_properties, "*/meta.properties"),
    ],
)
def test_a_checkpoint_builds_the_same_bytes(again: Callable[[bytes], bytes], pattern: str) -> None:
    paths = list(WIRE.glob(pattern))
    assert paths
    for path in paths:
        assert again(path.read_bytes()) == path.read_bytes()


def test_a_checkpoint_without_a_byte_has_no_lines() -> None:
    assert list(checkpoints.parse_offsets(b"")) == []


@pytest.mark.parametrize(
    ("data", "offset", "says"),
    [
        (b"1\n0\n", 0, "line[0] (version) at byte 0: '1' instead of 0 (the only version)"),
        (b"0\n", 0, "line[1] (count)"),
        (b"0\nmany\n", 2, "line[1] (count) at byte 2: 'many' instead of the number of lines that follow"),
        ("0\n\u0661\nt 0 1\n".encode(), 2, "instead of the number of lines that follow"),
        (b"0\n2\nt 0 1\n", 2, "2 lines announced, 1 follow"),
        (b"0\n1\nt 0\n", 4, "line[2] at byte 4: 't 0' is not such a line"),
        (b"0\n1\nt 0 1 2\n", 4, "is not such a line"),
        (b"0\n1\nt 0 x\n", 4, "'x' is not a number that fits"),
        (b"0\n1\nt 0 9223372036854775808\n", 4, "is not a number that fits"),
        (b"0\n2\nt 0 1\nt \xff 1\n", 12, "not UTF-8"),
    ],
)
def test_a_damaged_checkpoint_is_told_by_line_and_byte(data: bytes, offset: int, says: str) -> None:
    with pytest.raises(DecodeError) as caught:
        list(checkpoints.parse_offsets(data))
    assert caught.value.offset == offset
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "version: 1\ntopic_id: xYdL1zCEReaugr0dWiRRjA", "version: 0\n", "version: 0\ntopic_id: x"]
)
def test_a_damaged_partition_metadata_is_told(text: str) -> None:
    with pytest.raises(DecodeError):
        checkpoints.parse_partition_metadata(text.encode())


def test_properties_keep_what_java_escapes() -> None:
    properties = checkpoints.Properties({"path": r"C:\data", "sum": "1=1!"}, ("Sat",))
    data = checkpoints.build_properties(properties)
    assert data == b"#Sat\npath=C\\:\\\\data\nsum=1\\=1\\!\n"
    assert checkpoints.parse_properties(data) == properties


LINES = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"))
PROPERTIES = st.builds(
    checkpoints.Properties, st.dictionaries(st.text(), st.text()), st.lists(LINES, max_size=3).map(tuple)
)


@example(checkpoints.Properties({" a =:": "  b \x85\t", "": "", "#": "\u20ac\U0001f30a\\", "\\": "\\u0041"}))
@given(PROPERTIES)
def test_properties_come_back(properties: checkpoints.Properties) -> None:
    data = checkpoints.build_properties(properties)
    assert data.isascii() or not "".join(properties.comments).isascii()
    assert checkpoints.parse_properties(data) == properties


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (rb"a\=b=c", {"a=b": "c"}),
        (rb"a\\=b=c", {"a\\": "b=c"}),
        (b"a b = c ", {"a": "b = c "}),
        (b"  a : b\r\n\r\n ! no entry\rc", {"a": "b", "c": ""}),
        (b"a = 1,\\\n    2\nb\\\n", {"a": "1,2", "b": ""}),
        (rb"\u0061=\ud83C\udF0a\t\z", {"a": "\U0001f30a\tz"}),
        (b"a=\x85b\x0bc", {"a": "\x85b\x0bc"}),
        (b"a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(data: bytes, entries: dict[str, str]) -> None:
    assert checkpoints.parse_properties(data).entries == entries


@pytest.mark.parametrize("value", [rb"\u12", rb"\u12g4", rb"\ud83c", rb"\udf0a\ud83c"])
def test_properties_with_a_broken_character_are_refused(value: bytes) -> None:
    with pytest.raises(DecodeError, match=r"entry\[1\] at byte 4: a .u is not followed"):
        checkpoints.parse_properties(b"a=1\nb=" + value)


@pytest.mark.parametrize(
    "properties",
    [
        checkpoints.Properties({}, ("two\nlines",)),
        checkpoints.Properties({}, ("end\r",)),
        checkpoints.Properties({}, ("\u20ac",)),
        checkpoints.Properties({"a": "\ud83c"}),
    ],
)
def test_properties_that_cannot_be_written_are_refused(properties: checkpoints.Properties) -> None:
    with pytest.raises(EncodeError):
        checkpoints.build_properties(properties)


# ---------------------------------------------------------------------------------------------------------------------
# The package.


def test_nobody_pays_for_what_is_stored_before_asking_for_it() -> None:
    code = "import ottla.codec, ottla.codec.frames, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith(("ottla.codec.stored", "ottla.codec.dump"))]


def test_a_prefix_tells_the_version_and_a_newer_one_is_the_callers_choice() -> None:
    data = prefixed.build_prefixed(AbortedTxn(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=4), 0)
    newer = b"\0\3" + data[2:] + b"more"
    with pytest.raises(DecodeError, match=r"AbortedTxn at byte 0: version 3 is unknown, known are 0"):
        prefixed.parse_prefixed(AbortedTxn, newer)
    version, message, end = prefixed.parse_prefixed(AbortedTxn, newer, newer=True)
    assert (version, message.last_stable_offset, end) == (3, 4, 34)
    assert wire.api(AbortedTxn).versions.high == 0
