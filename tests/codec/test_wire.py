"""The codec against bytes that real clients and brokers exchanged (tests/wire/README.md says which).

Every frame is read to its last byte, with the values that Apache Kafka's own classes read from it, and builds again
to the same bytes. What is otherwise stands in the lists at the top.
"""

import base64
import dataclasses
import gzip
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.codec import frames, wire
from ottla.codec.apis import APIS
from ottla.codec.compression import Compression
from ottla.codec.records import MAGIC, BatchBuilder, RecordBatch, read_batches
from ottla.errors import DecodeError, OttlaError

WIRE = Path(__file__).parents[1] / "wire"
NAMES = sorted(api.name for api in APIS.values())
UNSUPPORTED_VERSION = 35

REFUSED: dict[tuple[str, int, str], type[OttlaError]] = {
    ("ApiVersions", 5, ""): frames.UnknownApi,
    ("ApiVersions", 99, ""): frames.UnknownApi,
    ("Metadata", 99, ""): frames.UnknownApi,
    ("FindCoordinator", 2, "truncated request"): DecodeError,
    ("Produce", 2, "unsupported api key 0 version 2"): DecodeError,  # it is cut short, too
    ("Fetch", 3, "unsupported api key 1 version 3"): DecodeError,  # it is cut short, too
}
"""Requests that cannot be read: (API, version, scenario or "" for all) -> what the codec says."""

NEVER_RECORDED = {("CreateTopics", 0)}
"""Versions of which there is no frame, because nothing was found that speaks them."""

OTHER_NAMES = {"enable2Pc": "enable2pc"}
"""Names of Kafka's that do not become ours by the rule."""


@dataclass
class Exchange:
    """A line of a frames file."""

    line: int
    client: str
    scenario: str
    api: str
    version: int
    request: bytes
    response: bytes | None
    decoded_request: dict[str, Any] | None
    decoded_response: dict[str, Any] | None

    def __str__(self) -> str:
        return f"{self.api}.jsonl line {self.line} ({self.client}, version {self.version}, {self.scenario})"

    @property
    def refused(self) -> type[OttlaError] | None:
        return REFUSED.get((self.api, self.version, self.scenario)) or REFUSED.get((self.api, self.version, ""))

    @property
    def response_version(self) -> int:
        """A broker that does not know the version of an ApiVersions request answers in version 0 (KIP-511)."""
        assert self.response is not None
        refused = self.api == "ApiVersions" and int.from_bytes(self.response[4:6], "big") == UNSUPPORTED_VERSION
        return 0 if refused else self.version

    def parsed_response(self) -> tuple[int, Any]:
        assert self.response is not None
        [cls] = [api.response for api in APIS.values() if api.name == self.api]
        return frames.parse_response(cls, self.response_version, self.response)


@cache
def exchanges(api: str) -> list[Exchange]:
    with gzip.open(WIRE / "frames" / f"{api}.jsonl.gz", "rt") as lines:
        return [_exchange(api, number, json.loads(line)) for number, line in enumerate(lines, 1)]


def _exchange(api: str, number: int, fields: dict[str, Any]) -> Exchange:
    return Exchange(
        line=number,
        client=fields["client"],
        scenario=fields["scenario"],
        api=api,
        version=fields["api_version"],
        request=base64.b64decode(fields["request"]),
        response=base64.b64decode(fields["response"]) if fields["response"] else None,
        decoded_request=fields["decoded_request"],
        decoded_response=fields["decoded_response"],
    )


@pytest.mark.parametrize("api", NAMES)
def test_a_recorded_request_is_read_whole_and_builds_the_same_bytes(api: str) -> None:
    for exchange in exchanges(api):
        if exchange.refused:
            continue
        request = frames.parse_request(exchange.request)
        header = request.header
        assert request.leftover == 0, exchange
        built = frames.build_request(request.message, header.api_version, header.correlation_id, header.client_id)
        assert built[4:] == exchange.request, exchange


@pytest.mark.parametrize("api", NAMES)
def test_a_recorded_response_is_read_whole_and_builds_the_same_bytes(api: str) -> None:
    for exchange in exchanges(api):
        if exchange.response is not None:
            correlation_id, message = exchange.parsed_response()
            built = frames.build_response(message, exchange.response_version, correlation_id)
            assert built[4:] == exchange.response, exchange


def test_requests_that_no_broker_takes_are_refused_and_no_others() -> None:
    refused = [exchange for api in NAMES for exchange in exchanges(api) if exchange.refused]
    assert {(exchange.api, exchange.version) for exchange in refused} == {key[:2] for key in REFUSED}
    for exchange in refused:
        assert exchange.refused is not None
        with pytest.raises(exchange.refused):
            frames.parse_request(exchange.request)


def test_every_version_of_every_message_was_recorded() -> None:
    recorded: dict[str, set[int]] = {api: {exchange.version for exchange in exchanges(api)} for api in NAMES}
    declared = {
        (api.name, version)
        for api in APIS.values()
        for version in range(wire.api(api.request).versions.low, wire.api(api.request).versions.high + 1)
    }
    assert {(api, version) for api, version in declared if version not in recorded[api]} == NEVER_RECORDED


# ---------------------------------------------------------------------------------------------------------------------
# Values, compared with what Apache Kafka's own classes read.


@pytest.mark.parametrize("api", NAMES)
def test_the_values_are_those_that_kafka_itself_reads(api: str) -> None:
    compared = 0
    for exchange in exchanges(api):
        if exchange.decoded_request is not None and not exchange.refused:
            message = frames.parse_request(exchange.request).message
            assert not list(differences(exchange.decoded_request, message, "request")), exchange
            compared += 1
        if exchange.decoded_response is not None:
            _, message = exchange.parsed_response()
            assert not list(differences(exchange.decoded_response, message, "response")), exchange
            compared += 1
    assert compared > 0


def differences(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    """Where Kafka's JSON and our message say different things."""
    if isinstance(theirs, dict):
        left = {field.name: field for field in dataclasses.fields(ours)}
        for name, value in theirs.items():
            yield from differences(value, _attribute(ours, name), f"{path}.{name}")
            del left[_our_name(name)]
        for field in left.values():  # fields that the version lacks, and tagged ones that were not sent
            default = field.default_factory() if callable(field.default_factory) else field.default
            if getattr(ours, field.name) != default:
                yield f"{path}.{field.name} is {getattr(ours, field.name)!r}, which Kafka did not read"
    elif isinstance(theirs, list):
        if len(theirs) != len(ours):
            yield f"{path} has {len(ours)} elements instead of {len(theirs)}"
        for number, (their, our) in enumerate(zip(theirs, ours, strict=False)):
            yield from differences(their, our, f"{path}[{number}]")
    elif (ours := _json(ours)) != theirs or type(ours) is not type(theirs):
        yield f"{path} is {ours!r} instead of {theirs!r}"


def _our_name(name: str) -> str:
    name = name.removesuffix("SizeInBytes")
    return OTHER_NAMES.get(name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _attribute(message: Any, name: str) -> Any:
    value = getattr(message, _our_name(name))
    return len(value) if name.endswith("SizeInBytes") and value is not None else value


def _json(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


# ---------------------------------------------------------------------------------------------------------------------
# Record batches, as produced, as fetched, and as they lie on disk.


def record_sets() -> Iterator[tuple[str, bytes]]:
    """Who wrote it, and a record set that begins with a batch of magic 2."""
    for exchange in exchanges("Produce"):
        if not exchange.refused:
            for topic in frames.parse_request(exchange.request).message.topic_data:
                yield from ((str(exchange), p.records) for p in topic.partition_data if _is_magic_2(p.records))
    for exchange in exchanges("Fetch"):
        if exchange.response is not None:
            for topic in exchange.parsed_response()[1].responses:
                yield from ((str(exchange), p.records) for p in topic.partitions if _is_magic_2(p.records))
    for log in sorted((WIRE / "segments").glob("*/*.log")):
        yield str(log), log.read_bytes()


def _is_magic_2(records: bytes | None) -> bool:
    return records is not None and len(records) > 16 and records[16] == MAGIC


@cache
def batches() -> list[tuple[str, RecordBatch]]:
    return [(who, batch) for who, records in record_sets() for batch in read_batches(records)]


def rebuilt(batch: RecordBatch) -> bytes:
    builder = BatchBuilder()
    for record in batch.records():
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build(
        base_offset=batch.base_offset,
        compression=Compression(batch.compression),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        transactional=batch.transactional,
        control=batch.control,
    )


def test_an_uncompressed_batch_builds_the_same_bytes() -> None:
    same = 0
    for who, batch in batches():
        # A builder makes what producers make: the timestamps count from the first record's, and are not the broker's.
        ours = not batch.log_append_time and batch.records()[0].timestamp == batch.base_timestamp
        if batch.compression == Compression.NONE and ours:
            assert rebuilt(batch) == bytes(batch.data), who
            same += 1
    assert same > 1000


@pytest.mark.parametrize("compression", [each for each in Compression if each is not Compression.NONE])
def test_a_compressed_batch_builds_the_same_records(compression: Compression) -> None:
    writers: dict[str, int] = defaultdict(int)
    for who, batch in batches():
        if batch.compression == compression:
            [again] = read_batches(rebuilt(batch))
            assert again.records() == batch.records(), who
            writers[who.partition("(")[2].partition(",")[0]] += 1
    assert len(writers) >= 4, "too few clients wrote it"


def test_log_append_time_is_the_time_of_every_record() -> None:
    stamped = [batch for _, batch in batches() if batch.log_append_time]
    assert stamped
    for batch in stamped:
        assert {record.timestamp for record in batch.records()} == {batch.max_timestamp}


def test_a_segment_holds_every_offset_once_and_in_order() -> None:
    for log in (WIRE / "segments").glob("*/*.log"):
        data = log.read_bytes()
        segment = list(read_batches(data))
        assert sum(len(batch.data) for batch in segment) == len(data)
        offsets = [record.offset for batch in segment for record in batch.records()]
        assert offsets == list(range(len(offsets))), log
