"""The protocol of Kafka 0.7: recorded requests and responses of Jafka and its client are read whole and rebuilt."""

import base64
import gzip
import json
import tracemalloc
import zlib
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.codec.compression import Compression, compress
from ottla.codec.kafka07 import (
    ANY_PARTITION,
    EARLIEST,
    LATEST,
    REQUESTS,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    Message,
    MultiFetchRequest,
    MultiFetchResponse,
    MultiProduceRequest,
    OffsetsRequest,
    OffsetsResponse,
    ProduceRequest,
    build_message,
    build_messages,
    build_request,
    build_response,
    parse_fetch_response,
    parse_multi_fetch_response,
    parse_offsets_response,
    parse_request,
    read_messages,
)
from ottla.codec.records import Record
from ottla.errors import ChecksumMismatch, DecodeError, EncodeError
from tests.codec.recorded import WIRE
from tests.examples import examples

LARGEST = 2**31 - 1
JAFKA_ONLY = {5, 6}
"""Types of requests that Kafka 0.7 lacks: create and delete a topic."""
PARSERS = {
    FetchRequest: parse_fetch_response,
    MultiFetchRequest: parse_multi_fetch_response,
    OffsetsRequest: parse_offsets_response,
}
WRAPPERS = pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY])


@dataclass
class Exchange:
    """A line of the frames file; frames are without their length."""

    scenario: str
    request: bytes
    response: bytes | None

    @property
    def request_type(self) -> int:
        return int.from_bytes(self.request[:2], "big")

    def parsed_response(self) -> Any:
        assert self.response is not None
        return PARSERS[REQUESTS[self.request_type]](self.response)


@cache
def exchanges() -> list[Exchange]:
    with gzip.open(WIRE / "kafka07" / "exchanges.jsonl.gz", "rt") as lines:
        return [_exchange(json.loads(line)) for line in lines]


def _exchange(fields: dict[str, Any]) -> Exchange:
    response = fields["response"] and base64.b64decode(fields["response"])
    return Exchange(fields["scenario"], base64.b64decode(fields["request"]), response)


def spoken() -> list[Exchange]:
    return [each for each in exchanges() if each.request_type not in JAFKA_ONLY]


def named(scenario: str) -> tuple[Any, Any]:
    """Request and response of a scenario."""
    [each] = [each for each in spoken() if each.scenario == scenario]
    return parse_request(each.request), each.parsed_response() if each.response else None


def values(message_set: Any) -> list[bytes]:
    return [record.value or b"" for each in read_messages(message_set) for record in each.records()]


# --- recorded exchanges


def test_every_recorded_request_is_read_whole_and_builds_the_same_bytes() -> None:
    types = Counter(each.request_type for each in spoken())
    assert set(types) == set(REQUESTS)
    for each in spoken():
        assert build_request(parse_request(each.request))[4:] == each.request, each.scenario


def test_every_recorded_response_is_read_whole_and_builds_the_same_bytes() -> None:
    answered = [each for each in spoken() if each.response is not None]
    assert {each.request_type for each in answered} == {1, 2, 4}
    for each in answered:
        assert build_response(each.parsed_response())[4:] == each.response, each.scenario


def test_requests_that_only_jafka_knows_are_refused() -> None:
    refused = [each for each in exchanges() if each.request_type in JAFKA_ONLY]
    assert len(refused) == 2
    for each in refused:
        with pytest.raises(DecodeError, match=rf"{each.request_type} is not one of \[0, 1, 2, 3, 4\]"):
            parse_request(each.request)


def test_every_recorded_message_is_whole_and_plain_ones_build_the_same_bytes() -> None:
    sets = [part.message_set for each in spoken() for part in parts(parse_request(each.request), "produces")]
    sets += [
        part.message_set for each in spoken() if each.response for part in parts(each.parsed_response(), "responses")
    ]
    sets += [log.read_bytes() for log in (WIRE / "kafka07").glob("*/*.jafka")]
    kinds: Counter[int] = Counter()
    for message_set in sets:
        for each in read_messages(message_set):
            assert each.crc_matches
            kinds[each.compression] += 1
            built = build_message(each.payload, magic=each.head.magic, attributes=each.head.attributes)
            assert built == bytes(message_set[each.offset : each.next_offset])
            if each.compression:
                [again] = read_messages(build_messages(values(built), compression=Compression(each.compression)))
                assert values(built) == [record.value for record in again.records()]
    assert kinds[Compression.NONE] >= 20
    assert kinds[Compression.GZIP] >= 6


def parts(message: Any, name: str) -> list[Any]:
    """The parts of a multi-request or -response that carry messages, or its one part."""
    return [each for each in getattr(message, name, [message]) if hasattr(each, "message_set")]


def test_a_log_holds_what_was_produced_and_positions_are_offsets() -> None:
    log = (WIRE / "kafka07" / "plain-0" / "00000000000000000000.jafka").read_bytes()
    found = list(read_messages(log))
    assert [each.offset for each in found] == [0, 15, 28, 38, 53]
    assert [each.next_offset for each in found] == [15, 28, 38, 53, 65]
    assert [list(each.records()) for each in found] == [
        [Record(0, -1, None, b"hello")],
        [Record(15, -1, None, b"one")],
        [Record(28, -1, None, b"")],
        [Record(38, -1, None, b"three")],
        [Record(53, -1, None, b"m1")],
    ]
    request, response = named("fetch: second message on")
    assert request == FetchRequest(topic="plain", partition=0, offset=15, max_size=200_000)
    assert [each.offset for each in read_messages(response.message_set, request.offset)] == [15, 28, 38, 53]


def test_records_of_a_wrapper_have_its_offset_because_a_fetch_can_only_begin_there() -> None:
    log = (WIRE / "kafka07" / "gzip-0" / "00000000000000000000.jafka").read_bytes()
    first, second = read_messages(log, 1000)
    assert [record.offset for record in first.records()] == [1000] * 3
    assert [len(record.value or b"") for record in first.records()] == [100, 200, 1]
    assert (first.next_offset, second.offset, second.next_offset) == (1100, 1100, 1186)
    assert second.records()[0].value == b"m4"


def test_an_answer_cut_by_its_size_ends_in_whole_messages() -> None:
    request, response = named("fetch: cut by max size")
    assert len(response.message_set) == request.max_size == 40
    assert values(response.message_set) == [b"hello", b"one", b""]


def test_answers_say_what_is_wrong() -> None:
    assert named("fetch: offset out of range")[1] == FetchResponse(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert named("fetch: wrong partition")[1] == FetchResponse(ErrorCode.WRONG_PARTITION)
    _, response = named("multi-fetch")
    assert [each.error_code for each in response.responses] == [0, 0, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert [len(values(each.message_set)) for each in response.responses] == [5, 5, 0]


def test_requests_and_answers_carry_these_values() -> None:
    request, response = named("offsets: time -1")
    assert request == OffsetsRequest(topic="plain", partition=0, time=LATEST, max_offsets=10)
    assert response == OffsetsResponse(error_code=0, offsets=(65, 0))
    assert named("offsets: time -2")[0].time == EARLIEST
    assert named("produce: random partition (-1)")[0].partition == ANY_PARTITION
    request, _ = named("multi-produce")
    assert [(each.topic, each.partition) for each in request.produces] == [("plain", 0), ("plain", 1), ("gzip", 0)]
    request, _ = named("multi-fetch")
    assert [each.offset for each in request.fetches] == [0, 0, 99_999_999]


# --- messages


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.SNAPPY])
@given(payloads=st.lists(st.binary(max_size=50) | st.just(b"x" * 70_000), max_size=5))
@settings(max_examples=20)
def test_payloads_come_back(compression: Compression, payloads: list[bytes]) -> None:
    built = build_messages(payloads, compression=compression)
    found = list(read_messages(built, 7))
    assert [record.value for each in found for record in each.records()] == payloads
    assert len(found) == (len(payloads) if compression == Compression.NONE else bool(payloads))
    assert all(each.compression == compression for each in found)
    assert [7, *(each.next_offset for each in found)] == [*(each.offset for each in found), 7 + len(built)]


def test_a_message_of_magic_0_has_no_attributes() -> None:
    built = build_message(b"hello", magic=0)
    assert built == (10).to_bytes(4, "big") + b"\0" + zlib.crc32(b"hello").to_bytes(4, "big") + b"hello"
    assert values(built) == [b"hello"]
    [each] = read_messages(built)
    assert (each.head.magic, each.head.attributes, each.compression) == (0, 0, 0)


def test_messages_torn_at_any_byte_yield_those_that_are_whole() -> None:
    pieces = [
        build_message(b"one"),
        build_message(b"two", magic=0),
        build_messages([b"x"], compression=Compression.GZIP),
    ]
    whole = b"".join(pieces)
    for size in range(len(whole)):
        expected = sum(size >= sum(map(len, pieces[: n + 1])) for n in range(3))
        assert len(list(read_messages(whole[:size]))) == expected


def test_a_changed_byte_of_a_payload_is_corruption() -> None:
    whole = build_message(b"one") + build_messages([b"two"] * 9, compression=Compression.GZIP)
    for at in (*range(10, 13), *range(23, len(whole))):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        with pytest.raises(
            ChecksumMismatch, match="message at offset 1013" if at > 13 else "message at offset 1000"
        ) as caught:
            list(read_messages(damaged, 1000))
        assert (caught.value.path, caught.value.offset) == ("Message.crc", 19 if at > 13 else 6)
        assert [each.crc_matches for each in read_messages(damaged, verify=False)] == [at > 13, at < 13]


def test_a_crc_within_a_wrapper_is_compared_too() -> None:
    inner = bytearray(build_message(b"one"))
    inner[-1] ^= 1
    with pytest.raises(ChecksumMismatch, match="decompressed payload of the message at offset 0") as caught:
        wrapped(bytes(inner)).records()
    assert (caught.value.path, caught.value.offset) == ("Message.payload[0].crc", 6)


def test_a_payload_that_does_not_decompress_says_where() -> None:
    [each] = read_messages(build_message(b"no such format", attributes=Compression.GZIP), 1000)
    with pytest.raises(DecodeError, match=r"offset 1000: Message\.payload at byte 10: gzip data is damaged"):
        each.records()


def wrapped(inner: bytes, compression: Compression = Compression.GZIP) -> Message:
    """A wrapper of whatever."""
    [each] = read_messages(build_message(compress(compression, inner), attributes=compression))
    return each


@pytest.mark.parametrize(
    ("inner", "complaint"),
    [
        (b"", "a wrapper ends in 0 bytes of a message"),
        (build_message(b"one")[:-1], "a wrapper ends in 12 bytes of a message"),
        (build_message(b"one") + b"\0\0", "a wrapper ends in 2 bytes of a message"),
        (build_message(b"one") + bytes(8), r"Message.payload\[1\].size at byte 13: message of 0 bytes"),
        (build_messages([b"x"], compression=Compression.SNAPPY), "a wrapper within a wrapper"),
    ],
)
def test_a_wrapper_that_is_none_is_refused_and_says_why(inner: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        wrapped(inner).records()


def test_a_compression_of_later_times_is_refused() -> None:
    [each] = read_messages(build_message(b"abc", attributes=3))
    with pytest.raises(DecodeError, match=r"compression 3 is unknown in Kafka 0\.7"):
        each.records()


@pytest.mark.parametrize("size", [-2, -1, 0, 1, 5, LARGEST, -(2**31), 100])
def test_a_size_that_lies_is_refused_or_torn(size: int) -> None:
    damaged = size.to_bytes(4, "big", signed=True) + build_message(b"payload")[4:]
    torn = size > len(damaged) - 4
    with nullcontext() if torn else pytest.raises(DecodeError):
        assert list(read_messages(damaged)) == []


@pytest.mark.parametrize("magic", [2, 127, 255])
def test_another_format_is_refused(magic: int) -> None:
    damaged = bytearray(build_message(b"one") * 2)
    damaged[17] = magic
    with pytest.raises(DecodeError, match=rf"\(magic\) {magic}") as caught:
        list(read_messages(damaged))
    assert caught.value.offset == 17


@WRAPPERS
def test_a_bomb_is_bounded_by_the_callers_limit(compression: Compression) -> None:
    each = wrapped(build_message(bytes(16 * 2**20)), compression)
    limit = 4 * len(each.payload) + 2**20
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=f"over the limit of {limit} bytes"):
            each.records(limit)
        assert tracemalloc.get_traced_memory()[1] < 4 * limit
    finally:
        tracemalloc.stop()
    assert len(each.records(limit=17 * 2**20)) == 1


@given(data=st.binary(max_size=60), size=st.integers(-2, 60), magic=st.integers(0, 2), attributes=st.integers(0, 3))
@examples(200)
def test_garbage_is_refused_or_read_never_anything_else(data: bytes, size: int, magic: int, attributes: int) -> None:
    garbage = size.to_bytes(4, "big", signed=True) + bytes((magic, attributes)) + data
    with suppress(DecodeError):
        for each in read_messages(garbage, verify=False):
            each.records(limit=1 << 16)


# --- frames


@pytest.mark.parametrize("each", spoken(), ids=lambda each: each.scenario)
def test_a_frame_torn_or_too_long_is_refused(each: Exchange) -> None:
    for size in {*range(min(len(each.request), 200)), len(each.request) - 1}:
        with pytest.raises(DecodeError):
            parse_request(each.request[:size])
    with pytest.raises(DecodeError, match="1 bytes left over"):
        parse_request(each.request + b"\0")


def test_a_torn_response_is_refused_where_its_parts_have_lengths() -> None:
    for scenario, parse in (("multi-fetch", parse_multi_fetch_response), ("offsets: time -1", parse_offsets_response)):
        [response] = [each.response for each in spoken() if each.scenario == scenario]
        assert response is not None
        complete = {len(response), 2, 2 + 71, 2 + 71 + 192} if scenario == "multi-fetch" else {len(response)}
        for size in set(range(len(response))) - complete:
            with pytest.raises(DecodeError):
                parse(response[:size])
    with pytest.raises(DecodeError):
        parse_fetch_response(b"\0")
    assert parse_fetch_response(b"\0\0") == FetchResponse(0)


@pytest.mark.parametrize("length", [-2, -1, LARGEST, -(2**31)])
def test_lengths_of_parts_that_lie_are_refused(length: int) -> None:
    lie = length.to_bytes(4, "big", signed=True)
    with pytest.raises(DecodeError, match=r"MultiFetchResponse\.responses\[1\]"):
        parse_multi_fetch_response(b"\0\0" + b"\0\0\0\2\0\0" + lie + b"\0\0")
    with pytest.raises(DecodeError, match=r"OffsetsResponse\.offsets"):
        parse_offsets_response(b"\0\0" + lie + bytes(8))
    produce = ProduceRequest(topic="t", partition=0, message_set=b"")
    with pytest.raises(DecodeError, match=r"ProduceRequest\.message_set"):
        parse_request(build_request(produce)[4:-4] + lie)


# --- values that cannot be built


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: build_message(b"", magic=2), r"magic 2: a message of Kafka 0\.7 has 0 or 1"),
        (
            lambda: build_message(b"", magic=0, attributes=1),
            "MessageHead.attributes: version 0 has no such field",
        ),
        (lambda: build_message(b"", attributes=200), "MessageHead.attributes: 200 does not fit"),
        (lambda: build_message("text"), "Message.payload: bytes wanted, not str"),  # type: ignore[arg-type] # on purpose
        (lambda: build_messages([b"x"], compression=Compression.LZ4), "does not support lz4, only gzip and snappy"),
        (lambda: build_messages([b"x"], compression=Compression.GZIP, level=10), "gzip has levels 0 to 9"),
        (
            lambda: build_request(FetchRequest(topic="t" * 2**15, partition=0, offset=0, max_size=1)),
            "FetchRequest.topic: string of 32768 is longer",
        ),
        (
            lambda: build_request(MultiProduceRequest(produces=(None,) * 2)),  # type: ignore[arg-type] # on purpose
            r"MultiProduceRequest\.produces\[0\]: ProduceRequest wanted",
        ),
        (lambda: build_response(FetchResponse(2**15)), "ResponseHeader.error_code: 32768 does not fit"),
        (lambda: build_response(FetchResponse(0, "x")), "FetchResponse.message_set: bytes wanted"),  # type: ignore[arg-type] # on purpose
        (
            lambda: build_response(MultiFetchResponse(0, (FetchResponse(0, None),))),  # type: ignore[arg-type] # on purpose
            "FetchResponse.message_set: bytes wanted, not NoneType",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_says_why(make: Any, complaint: str) -> None:
    with pytest.raises(EncodeError, match=complaint):
        make()
