"""A connection's promises: the first request negotiates, the last failure is told, every exchange ends once."""

from typing import Any

import pytest

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.apis.produce import ProduceRequest
from ottla.errors import ConnectionLost, EncodeError, RemoteProtocolError, TimeoutExpired, UnsupportedVersion
from ottla.sdk.machines.actions import Close, Connect, Node, Send
from ottla.sdk.machines.connection import Connection, Exchange, State, Timing

KEY = (1, "data")


class Ends:
    """Collects what exchanges end with."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, answer: Any, now: float) -> None:
        self.all.append(answer)


def connection() -> Connection:
    return Connection(KEY, Node(1, "b", 9092), "test", Timing())


def metadata(ended: Ends, deadline: float = 30.0) -> Exchange:
    return Exchange(MetadataRequest(topics=()), ended, deadline)


def versions(keys: dict[int, tuple[int, int]], version: int = 3, error: int = 0, correlation_id: int = 0) -> bytes:
    listed = tuple(ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in keys.items())
    return frames.build_response(ApiVersionsResponse(error_code=error, api_keys=listed), version, correlation_id)


def ready(keys: dict[int, tuple[int, int]]) -> Connection:
    one = connection()
    one.submit(metadata(Ends(), 1000))
    assert one.poll(0) == [Connect(KEY, "b", 9092)]
    one.connected(0)
    one.received(versions(keys), 0)
    assert one.state is State.READY
    one.in_flight.clear()
    return one


def sent(actions: list[Any]) -> frames.Request:
    [send] = actions
    assert isinstance(send, Send)
    return frames.parse_request(send.data[4:])


def test_nobody_connects_before_somebody_asks() -> None:
    one = connection()
    assert one.poll(0) == [] and one.deadline is None


def test_the_first_request_asks_for_versions_and_the_next_uses_the_highest_common_one() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(ends))
    assert one.poll(0) == [Connect(KEY, "b", 9092)]
    asked = sent(one.connected(0.1))
    assert (asked.header.api_key, asked.header.api_version) == (18, 3)
    request = sent(one.received(versions({3: (0, 8)}), 0.2))
    assert (request.header.api_key, request.header.api_version, request.header.client_id) == (3, 8, "test")


def test_a_broker_that_does_not_know_version_3_is_asked_again_in_version_0() -> None:
    one = connection()
    one.submit(metadata(Ends()))
    one.poll(0)
    one.connected(0)
    again = sent(one.received(versions({18: (0, 2)}, version=0, error=35), 0))
    assert (again.header.api_key, again.header.api_version) == (18, 0)
    request = sent(one.received(versions({3: (0, 1)}, version=0, correlation_id=1), 0))
    assert request.header.api_version == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_answers_may_arrive_in_any_pieces(size: int) -> None:
    one, ends = ready({3: (0, 12)}), Ends()
    one.submit(metadata(ends))
    request = sent(one.poll(0))
    answer = frames.build_response(
        MetadataResponse(brokers=(), topics=()), request.header.api_version, request.header.correlation_id
    )
    for start in range(0, len(answer), size):
        assert not ends.all
        one.received(answer[start : start + size], 0)
    assert isinstance(ends.all[0], MetadataResponse)


def test_a_lost_connection_fails_what_is_sent_and_what_waits_and_says_why() -> None:
    one, first, second = ready({3: (0, 12)}), Ends(), Ends()
    one.submit(metadata(first))
    one.poll(0)
    one.submit(metadata(second))
    one.lost("reset by peer", 1)
    for ends in (first, second):
        assert isinstance(ends.all[0], ConnectionLost)
        assert str(ends.all[0]) == "b:9092 (node 1): reset by peer"


def test_attempts_come_at_growing_intervals_up_to_a_second() -> None:
    one, now, pauses = connection(), 0.0, []
    for _ in range(9):
        one.submit(metadata(Ends(), now + 1000))
        one.poll(now)
        assert one.state is State.CONNECTING
        one.lost("refused", now)
        one.submit(metadata(Ends(), now + 1000))
        assert one.poll(now) == []
        assert one.deadline is not None
        pauses.append(round(one.deadline - now, 3))
        now = one.deadline
        one.waiting.clear()
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]


def test_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    one, ends = ready({3: (0, 12)}), Ends()
    one.submit(metadata(ends, deadline=30.0))
    one.poll(0)
    assert one.deadline == 30.0
    assert one.poll(29.9) == []
    assert one.poll(30.0) == [Close(KEY)]
    assert isinstance(ends.all[0], TimeoutExpired) and "did not answer Metadata" in str(ends.all[0])
    assert one.state is State.DOWN


def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(ends, 100))
    one.poll(0)
    assert one.poll(10.0) == [Close(KEY)]
    assert "no connection within 10 s" in str(ends.all[0])


def test_a_request_that_waits_too_long_ends_with_the_last_trouble() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(Ends(), 100))
    one.poll(0)
    one.lost("refused", 0)
    one.submit(metadata(ends, 0.01))
    one.poll(0.01)
    assert isinstance(ends.all[0], TimeoutExpired) and "refused" in str(ends.all[0])


@pytest.mark.parametrize("correlation_id", [7, -1])
def test_an_answer_out_of_turn_breaks_the_protocol(correlation_id: int) -> None:
    one, ends = ready({3: (0, 8)}), Ends()
    one.submit(metadata(ends))
    one.poll(0)
    answer = frames.build_response(MetadataResponse(brokers=(), topics=()), 8, correlation_id)
    assert one.received(answer, 0) == [Close(KEY)]
    assert isinstance(ends.all[0], RemoteProtocolError)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x03\x00\x02\x02\x46", bytes(50)])
def test_garbage_ends_the_connection_and_every_request(garbage: bytes) -> None:
    one, ends = ready({3: (0, 8)}), Ends()
    one.submit(metadata(ends))
    one.poll(0)
    actions = one.received(garbage, 0)
    if Close(KEY) not in actions:
        one.poll(30.0)
    assert isinstance(ends.all[0], RemoteProtocolError | TimeoutExpired)


def test_an_api_that_the_broker_lacks_fails_its_request_alone() -> None:
    one, lacking, fine = ready({3: (0, 8)}), Ends(), Ends()
    one.submit(Exchange(ProduceRequest(acks=1, timeout_ms=1, topic_data=()), lacking, 30))
    one.submit(metadata(fine))
    sent(one.poll(0))
    assert isinstance(lacking.all[0], UnsupportedVersion)
    assert "Produce: ottla speaks versions 3 to 12, b:9092 (node 1) does not offer it" in str(lacking.all[0])
    assert not fine.all


def test_a_message_that_cannot_be_encoded_fails_alone() -> None:
    one, broken, fine = ready({0: (3, 9), 3: (0, 8)}), Ends(), Ends()
    one.submit(Exchange(ProduceRequest(acks=99999, timeout_ms=1, topic_data=()), broken, 30))
    one.submit(metadata(fine))
    sent(one.poll(0))
    assert isinstance(broken.all[0], EncodeError) and broken.all[0].path == "ProduceRequest.acks"
