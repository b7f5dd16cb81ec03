"""Frames and headers in both roles: cut out of any stream, and bytes of other protocols are recognized."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.frames import (
    FrameReader,
    RequestHeader,
    UnknownApi,
    build_request,
    build_response,
    framed,
    looks_like,
    parse_header,
    parse_request,
    parse_response,
)
from ottla.errors import DecodeError, EncodeError, RemoteProtocolError

# --- cutting


def test_a_frame_that_comes_byte_by_byte_is_whole_at_its_last() -> None:
    reader, data = FrameReader(), framed(b"hello")
    for at, byte in enumerate(data):
        frames = list(reader.feed(bytes((byte,))))
        assert frames == ([b"hello"] if at == len(data) - 1 else [])
    assert reader.pending == 0


def test_several_frames_in_one_chunk_come_in_order() -> None:
    reader = FrameReader()
    assert list(reader.feed(framed(b"a") + framed(b"") + framed(b"bc") + framed(b"torn")[:-1])) == [b"a", b"", b"bc"]
    assert reader.pending == 7
    assert list(reader.feed(b"n")) == [b"torn"]


@given(st.lists(st.binary(max_size=20), max_size=6), st.data())
def test_frames_do_not_depend_on_how_they_are_chunked(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, payloads))
    reader, got = FrameReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += list(reader.feed(memoryview(stream)[:size]))
        stream = stream[size:]
    assert got == payloads


def test_frames_that_nobody_took_come_first_the_next_time() -> None:
    reader = FrameReader()
    reader.feed(framed(b"a"))
    for frame in reader.feed(framed(b"b") + framed(b"c")):
        assert frame == b"a"
        break
    assert list(reader.feed(b"")) == [b"b", b"c"]


def test_a_frame_may_be_as_long_as_the_limit_and_no_longer() -> None:
    assert list(FrameReader(5).feed(framed(b"12345"))) == [b"12345"]
    reader = FrameReader(5)
    got = []
    with pytest.raises(RemoteProtocolError, match="a frame of 6 bytes is over the limit of 5"):
        for frame in reader.feed(framed(b"good") + framed(b"123456")[:4]):
            got.append(frame)
    assert got == [b"good"], "frames before the bad one count"
    with pytest.raises(RemoteProtocolError, match="over the limit"):
        list(reader.feed(b"more"))


@pytest.mark.parametrize(
    ("start", "complaint"),
    [
        (b"\xff\xff\xff\xff", r"a frame of -1 bytes: this is not Kafka's protocol"),
        (b"\x80\0\0\0", r"a frame of -2147483648 bytes"),
        (b"\x16\x03\x01\x02\x00\x01\x00", r"looks like a TLS hello \(TLS is on at the client, but not on this port\)"),
        (b"\x15\x03\x01\0\x02\x02\x0a", r"a TLS alert .*; clients give tls=ottla.TLS\(…\), or security.protocol=SSL"),
        (b"GET / HTTP/1.1\r\n", "looks like an HTTP request"),
        (b"OPTIONS * HTTP/1.1\r\n", "looks like an HTTP request"),
        (b"HTTP/1.1 400 Bad Request\r\n", "looks like an HTTP server"),
        (b"SSH-2.0-OpenSSH\r\n", "looks like an SSH client"),
        (b"abcdefgh", "a frame of 1633837924 bytes is over the limit"),
    ],
)
def test_what_is_not_kafka_is_called_by_its_name(start: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        list(FrameReader().feed(start))


def test_what_looks_like_nothing_known_has_no_name() -> None:
    assert looks_like(b"") is None
    assert looks_like(framed(b"x")) is None


def test_a_frame_longer_than_its_length_can_say_is_refused() -> None:
    with mmap.mmap(-1, 1 << 31) as huge, memoryview(huge) as view, pytest.raises(EncodeError, match="a frame of 2147"):
        framed(view)


# --- requests


def test_a_request_comes_back_with_its_header() -> None:
    sent = build_request(MetadataRequest(topics=None), 12, 77, "me")
    request = parse_request(sent[4:])
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    assert request.header == RequestHeader(api_key=3, api_version=12, correlation_id=77, client_id="me")
    assert request.message == MetadataRequest(topics=None)
    assert request.leftover == 0


def test_headers_are_flexible_where_their_messages_are() -> None:
    assert build_request(MetadataRequest(topics=None), 8, 1, "me")[4:].startswith(
        bytes.fromhex("0003 0008 00000001 0002") + b"me\xff\xff\xff\xff"
    )
    assert build_request(MetadataRequest(topics=None), 9, 1, None)[4:].startswith(
        bytes.fromhex("0003 0009 00000001 ffff 00 00")
    )


def test_bytes_behind_a_request_are_counted_not_refused() -> None:
    sent = build_request(MetadataRequest(topics=None), 12, 77, "librdkafka")
    assert parse_request(sent[4:] + b"x").leftover == 1


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (3, 14), (3, -1), (18, 99), (0, 32767)])
def test_an_api_or_version_that_is_not_known_still_has_a_header(key: int, version: int) -> None:
    head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes.fromhex("00000005")
    shown = f"version {version}" if 0 <= version < 32 else "with a version that no API has"
    with pytest.raises(UnknownApi, match=f"API key {key} {shown} is not served") as caught:
        parse_request(head + b"\0\x02me" + b"\xff" * 9)
    assert caught.value.header == RequestHeader(api_key=key, api_version=version, correlation_id=5, client_id="me")
    assert isinstance(caught.value, RemoteProtocolError)
    assert parse_header(head + b"\0\x02me" + b"\xff" * 9) == (caught.value.header, len(head) + 4)


def test_a_request_cut_at_any_byte_is_refused() -> None:
    whole = build_request(MetadataRequest(topics=()), 12, 77, "me")[4:]
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            parse_request(whole[:size])


def test_a_request_that_does_not_fit_its_header_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"RequestHeader\.correlation_id"):
        build_request(MetadataRequest(topics=None), 12, 1 << 31, None)
    with pytest.raises(EncodeError, match=r"RequestHeader\.client_id"):
        build_request(MetadataRequest(topics=None), 12, 1, "x" * (1 << 15))


# --- responses


def test_a_response_comes_back_with_its_correlation_id() -> None:
    answer = MetadataResponse(brokers=(), topics=(), cluster_id="c")
    sent = build_response(answer, 12, 77)
    assert sent[4:9] == bytes.fromhex("0000004d 00"), "a flexible header ends in tags"
    assert parse_response(MetadataResponse, 12, sent[4:]) == (77, answer)
    assert build_response(answer, 8, 77)[4:12] == bytes.fromhex("0000004d 00000000")


def test_api_versions_answers_with_the_oldest_header_in_every_version() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=())
    for version in range(5):
        sent = build_response(answer, version, 1)
        assert sent[4:10] == bytes.fromhex("00000001 0023")
        assert parse_response(ApiVersionsResponse, version, sent[4:]) == (1, answer)
    assert frames.header_version(18, 3) == 2, "while its request has the new one"
    assert parse_request(build_request(ApiVersionsRequest(), 3, 1, "me")[4:]).message == ApiVersionsRequest()


def test_bytes_behind_a_response_are_refused() -> None:
    sent = build_response(MetadataResponse(brokers=(), topics=()), 12, 77)
    with pytest.raises(DecodeError, match="1 bytes left over") as caught:
        parse_response(MetadataResponse, 12, sent[4:] + b"x")
    assert (caught.value.path, caught.value.offset) == ("MetadataResponse", len(sent) - 4)
