"""The seeds: recorded frames and files, and examples of every message."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.codecs import Codec
from tests.fuzz.inputs import LONGEST, Input

WIRE = Path(__file__).parents[1] / "wire"
_DUMPS = {".log": 2, ".kafka": 3, ".jafka": 3, ".index": 4, ".timeindex": 5, ".txnindex": 6, ".snapshot": 7}
_DUMPS_BY_NAME = {"leader-epoch-checkpoint": 8, "partition.metadata": 9}
"""The first byte of an input for `exercises.dump`, by the suffix or the name of a file."""


def seeds(codec: Codec) -> Iterator[Input]:
    """All seeds that fit into `LONGEST`."""
    for given in (*_frames(codec), *_kafka07(), *_files(), *_texts(), *_compressed(codec), *_examples(codec)):
        if len(given.data) <= LONGEST:
            yield given


def _frames(codec: Codec) -> Iterator[Input]:
    """The message of every recorded frame, and one frame of each kind."""
    names = {(cls, version): name for name, (cls, version) in codec.declared.items()}
    keys = list(codec.apis.APIS)
    seen: set[object] = set()
    for path in sorted((WIRE / "frames").glob("*.gz")):
        for exchange in _lines(path):
            request, response = exchange["request"], exchange["response"]
            key, version = exchange["api_key"], exchange["api_version"]
            is_new = (key, version) not in seen
            seen.add((key, version))
            if is_new:
                yield Input("frames", request)
                yield Input("dump", b"\1\x20\0\0" + codec.frames.framed(request))
            classes = codec.apis.APIS.get(key)
            if classes is None or (classes.request, version) not in names:
                continue
            _, start = codec.frames.parse_header(request)
            yield Input(names[classes.request, version], request[start:])
            if response is None:
                continue
            start = 4 + codec.frames.response_header_version(key, version)
            yield Input(names[classes.response, version], response[start:])
            yield from _record_sets(response)
            if is_new:
                chosen = bytes((keys.index(key), version - classes.response.__api__.versions.low))
                yield Input("response", chosen + response)
                yield Input("dump", b"\0\x20" + chosen + codec.frames.framed(response))


def _record_sets(response: bytes) -> Iterator[Input]:
    """Batches within a response, found by their magic and length."""
    at = response.find(b"\2", 16)
    while at >= 0:
        start = at - 16
        size = 12 + int.from_bytes(response[start + 8 : start + 12], "big")
        if 61 <= size <= len(response) - start:
            yield Input("batch", response[start : start + size])
            return
        at = response.find(b"\2", at + 1)


def _kafka07() -> Iterator[Input]:
    for exchange in _lines(WIRE / "kafka07" / "exchanges.jsonl.gz"):
        for frame in (exchange["request"], exchange["response"]):
            if frame is not None:
                yield Input("kafka07_frames", frame)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        for line in lines:
            fields = json.loads(line)
            for side in ("request", "response"):
                fields[side] = base64.b64decode(fields[side]) if fields[side] else None
            yield fields


def _files() -> Iterator[Input]:
    for path in sorted(each for each in WIRE.rglob("*") if each.is_file()):
        data = path.read_bytes()
        kind = _DUMPS.get(path.suffix, _DUMPS_BY_NAME.get(path.name))
        if kind is None:
            continue
        topic = {"__consumer_offsets": 0, "__transaction_state": 1}.get(path.parent.name.rpartition("-")[0], 3)
        chosen = bytes((kind, topic, 1, 0))
        yield Input("dump", chosen + data[: LONGEST - 4])
        match path.suffix:
            case ".log":
                yield from _batches(data)
            case ".kafka" | ".jafka":
                yield Input("kafka07_messages", data[:LONGEST])
            case ".index" | ".timeindex" | ".txnindex":
                yield Input("stored", b"\5" + data[: LONGEST // 408 * 408])
            case ".snapshot":
                yield Input("stored", b"\4" + data)
        if path.name in _DUMPS_BY_NAME:
            yield Input("stored", bytes((0 if kind == 8 else 2,)) + data)


def _batches(data: bytes, count: int = 10) -> Iterator[Input]:
    """The first batches of a segment, or messages."""
    for _ in range(count):
        if len(data) < 17:
            return
        size = 12 + int.from_bytes(data[8:12], "big")
        batch, data = data[:size], data[size:]
        yield Input("batch" if batch[16] == 2 else "record_set", batch)
        if batch[16] == 2:
            yield Input("body", bytes((batch[60], 0, 0)) + batch[61:])


def _texts() -> Iterator[Input]:
    """The text files of a data folder, each as a stored file and as a dump."""
    for stored, dumped, text in (
        (0, b"\x08\0\0\0", b"0\n2\n0 0\n1 4690\n"),
        (1, b"\x09\0\0\0", b"0\n2\nflights 0 4711\nflights 1 4690\n"),
        (2, b"\x09\0\1\0", b"version: 0\ntopic_id: xYdL1zCESuKvJhEKqcSGWQ"),
        (3, b"\x09\0\2\0", b"#Sat Nov 21 11:46:43 UTC 2026\nnode.id=1\nversion=1\nlog\\:dir = a\\=b\n"),
    ):
        yield Input("stored", bytes((stored,)) + text)
        yield Input("dump", dumped + text)


def _compressed(codec: Codec) -> Iterator[Input]:
    plain = b"flights " * 20 + bytes(100)
    for compression in codec.compression.Compression:
        data = codec.compression.compress(compression, plain)
        yield Input("decompress", bytes((compression, 3)) + data)
        yield Input("decompress", bytes((compression, 2)) + data)
    yield Input("decompress", b"\x02\3" + bytes(codec.compression.cramjam.snappy.compress_raw(plain)))
    for magic in (0, 1):
        inner = codec.message_sets.build_message_set(
            [codec.records.Record(offset, 77 + offset, b"key", b"value") for offset in range(3)], magic=magic
        )
        size = len(inner) // 3
        parts = [inner[at : at + size] for at in range(0, len(inner), size)]
        packed = [bytes((size - 8,)) + part[:8] + part[16:] for part in parts]
        for compression in range(3):
            yield Input("wrapped", bytes((compression * 4 + magic, 9)) + b"".join(packed))


def _examples(codec: Codec) -> Iterator[Input]:
    """Every message twice: with a value in each field, and with as few values as possible."""
    # A late import: it imports the codec, and must get this copy.
    from tests.codec import strategies

    def examples(cls: type[Any], version: int) -> Iterator[bytes]:
        for make in (strategies.example, strategies.least):
            yield codec.reference.build(make(strategies.tree(cls, version)), version)

    for name, (cls, version) in codec.declared.items():
        for data in examples(cls, version):
            yield Input(name, data)
    for types in codec.modules["stored.internal_topics"].INTERNAL_TOPICS.values():
        for number, (_, key_class, value_class) in types.items():
            versions = value_class.__api__.versions
            key = number.to_bytes(2, "big") + next(examples(key_class, 0))
            for version in (versions.low, versions.high):
                value = version.to_bytes(2, "big") + next(examples(value_class, version))
                yield Input("stored", bytes((7, len(key))) + key + value)
    control = codec.modules["stored.control"]
    for number, (_, cls) in control.CONTROL_TYPES.items():
        record = control.ControlRecord(number, 0, strategies.example(strategies.tree(cls, 0)))
        key, value = control.build_control(record)
        yield Input("stored", bytes((6, len(key))) + key + value)
