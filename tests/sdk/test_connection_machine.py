"""The promises of a connection: ApiVersions goes first, the last failure is reported, each exchange ends once."""

import gc
import random
import weakref
from functools import partial
from typing import Any

import pytest

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeResponse
from ottla.codec.wire import Buffer
from ottla.errors import (
    AuthenticationFailed,
    ConnectionLost,
    EncodeError,
    OttlaError,
    RemoteProtocolError,
    SaslAuthenticationFailed,
    TimeoutExpired,
    UnsupportedVersion,
)
from ottla.sasl import Mechanism, OAuthBearer, Plain, Token
from ottla.sdk.connection.connection import TRANSITIONS, Connection, ConnectionInput, ConnectionState
from ottla.sdk.connection.credentials import Credentials
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.handshake import Handshake, HandshakeRequest
from ottla.sdk.connection.peer import Peer
from ottla.sdk.connection.versions import SPOKEN, since
from ottla.sdk.events import Action, Close, Connect, Finish, Node, Send, TokenFetched
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options
from ottla.sdk.timers import Timers

KEY = (1, "general")
SERVED = {0: (3, 9), 3: (0, 8)}
SASL_SERVED = SERVED | {17: (0, 1), 36: (0, 1)}


class Ends:
    """Collects the results of exchanges."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, answer: Any, now: float) -> None:
        self.all.append(answer)


class Quick(Connection):
    """A connection whose driver writes everything at once."""

    def poll(self, now: float) -> list[Action]:
        actions = super().poll(now)
        return actions + self.written(now) if any(isinstance(each, Send) for each in actions) else actions


class Hello:
    """Replaces TLS: the handshake is one word from each side; then the last bit of each byte is flipped."""

    agreed = ended = False

    def begin(self) -> bytes:
        return b"hello"

    def feed(self, data: Buffer) -> bytes:
        if not self.agreed:
            if data != b"hello":
                raise AuthenticationFailed(f"{bytes(data)!r} is no greeting")
            self.agreed, data = True, b""
        if bytes(data).endswith(b"bye"):
            self.ended, data = True, data[:-3]
        self._arrived = bytes(each ^ 1 for each in data)
        return b""

    def read(self, size: int) -> bytes:
        read, self._arrived = self._arrived[:size], self._arrived[size:]
        return read

    def read_into(self, room: memoryview) -> int:
        read = self.read(len(room))
        room[: len(read)] = read
        return len(read)

    def seal(self, parts: tuple[Buffer, ...]) -> tuple[bytes, ...]:
        return tuple(bytes(each ^ 1 for each in part) for part in parts)

    def finish(self) -> bytes:
        return b"bye"


class Greeting:
    """Replaces `ottla.TLS`."""

    stale = ""

    def connection(self, host: str) -> Hello:
        assert host == "b"
        return Hello()


def connection(
    metrics: Metrics | None = None,
    kind: type[Connection] = Quick,
    tls: Greeting | None = None,
    sasl: Mechanism | None = None,
) -> Connection:
    options = Options(tls=tls, sasl=sasl)  # type: ignore[arg-type]
    rng = random.Random(1)
    credentials = Credentials(options, rng, Timers(), [], lambda: None)
    return kind(KEY, Peer(Node(1, "b", 9092), options, metrics or Metrics(), rng, credentials), "test")


def metadata(ended: Ends, deadline: float = 30.0) -> Exchange:
    return Exchange(MetadataRequest(topics=()), ended, deadline)


def versions(keys: dict[int, tuple[int, int]], version: int = 3, error: int = 0, correlation_id: int = 0) -> bytes:
    listed = tuple(ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in keys.items())
    return frames.build_response(ApiVersionsResponse(error_code=error, api_keys=listed), version, correlation_id)


def ready(
    keys: dict[int, tuple[int, int]], metrics: Metrics | None = None, kind: type[Connection] = Quick
) -> Connection:
    one = connection(metrics, kind)
    one.submit(metadata(Ends(), 1000), 0)
    assert one.poll(0) == [Connect(KEY, "b", 9092)]
    one.connected(0)
    one.written(0)
    for action in one.received(versions(keys), 0):  # no request is sent for APIs that the broker lacks
        one.received(answer_to(sent([action])), 0)
        one.written(0)
    assert one.state is ConnectionState.READY and not one.load
    return one


def let_in(lifetime: float = 10.0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=int(lifetime * 1000)
    )


def authenticated(lifetime: float = 10.0) -> Connection:
    """A connection whose session lasts for so many seconds."""
    one = connection(sasl=Plain("alice", "secret"))
    one.submit(metadata(Ends(), 1000), 0)
    one.poll(0)
    one.connected(0)
    one.written(0)
    asked = sent(one.received(versions(SASL_SERVED), 0))
    for answer in (SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)), let_in(lifetime)):
        asked = sent(one.received(frames.build_response(answer, 1, asked.header.correlation_id), 0))
    one.received(answer_to(asked), 0)
    assert one.state is ConnectionState.READY and not one.load
    return one


def sent(actions: list[Any]) -> frames.Request:
    [send] = actions
    assert isinstance(send, Send)
    return frames.parse_request(b"".join(send.parts)[4:])


def cut(actions: list[Any]) -> list[bytes]:
    [send] = actions
    assert isinstance(send, Send)
    return list(frames.FrameReader().feed(b"".join(send.parts)))


def answer_to(request: frames.Request, throttle_time_ms: int = 0) -> bytes:
    answer = MetadataResponse(brokers=(), topics=(), throttle_time_ms=throttle_time_ms)
    return frames.build_response(answer, request.header.api_version, request.header.correlation_id)


def test_nobody_connects_before_somebody_asks() -> None:
    one = connection()
    assert one.poll(0) == [] and one.deadline is None


def test_the_first_request_asks_for_versions_and_the_next_uses_the_highest_common_one() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(ends), 0)
    assert one.poll(0) == [Connect(KEY, "b", 9092)]
    asked = sent(one.connected(0.1))
    assert (asked.header.api_key, asked.header.api_version) == (18, 3)
    request = sent(one.received(versions({3: (0, 8)}), 0.2))
    assert (request.header.api_key, request.header.api_version, request.header.client_id) == (3, 8, "test")


@pytest.mark.parametrize("offered", [{}, {18: (0, 2)}], ids=["0.10", "2.0"])
def test_a_broker_that_does_not_know_version_3_is_asked_again_in_version_0(offered: dict[int, tuple[int, int]]) -> None:
    one = connection()
    one.submit(metadata(Ends()), 0)
    one.poll(0)
    one.connected(0)
    again = sent(one.received(versions(offered, version=0, error=35), 0))
    assert (again.header.api_key, again.header.api_version) == (18, 0)
    request = sent(one.received(versions({3: (0, 1)}, version=0, correlation_id=1), 0))
    assert request.header.api_version == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_answers_may_arrive_in_any_pieces(size: int) -> None:
    one, ends = ready({3: (0, 12)}), Ends()
    one.submit(metadata(ends), 0)
    request = sent(one.poll(0))
    answer = answer_to(request)
    for start in range(0, len(answer), size):
        assert not ends.all
        one.received(answer[start : start + size], 0)
    assert isinstance(ends.all[0], MetadataResponse)


def test_a_lost_connection_fails_what_is_sent_and_what_waits_and_says_why() -> None:
    one, first, second = ready({3: (0, 12)}), Ends(), Ends()
    one.submit(metadata(first), 0)
    one.poll(0)
    one.submit(metadata(second), 0)
    one.lost("reset by peer", 1)
    for ends in (first, second):
        assert isinstance(ends.all[0], ConnectionLost)
        assert str(ends.all[0]).startswith("b:9092 (node 1): reset by peer")


def test_a_connection_that_ends_keeps_nothing_of_a_large_answer_that_was_under_way() -> None:
    one = ready({3: (0, 12)})
    one.submit(metadata(Ends()), 0)
    one.poll(0)
    one.received((2**20).to_bytes(4, "big") + bytes(100), 1)
    assert one.room is not None
    one.lost("reset", 2)
    assert one.room is None


def test_attempts_come_at_growing_intervals_up_to_a_second_give_or_take_a_fifth() -> None:
    one, now, pauses = connection(), 0.0, []
    for _ in range(9):
        one.submit(metadata(Ends(), now + 1000), now)
        one.poll(now)
        assert one.state is ConnectionState.CONNECTING
        one.lost("refused", now)
        one.submit(metadata(Ends(), now + 1000), now)
        assert one.poll(now) == []
        assert one.deadline is not None
        pauses.append(one.deadline - now)
        now = one.deadline
        one.requests.waiting.clear()
    expected = [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]
    assert all(0.79 < pause / each < 1.21 for pause, each in zip(pauses, expected, strict=True)), pauses
    assert len(set(pauses)) == 9


def test_two_connections_that_see_one_failure_count_it_once_and_one_that_works_clears_it() -> None:
    one, shared = connection(), Ends()
    other = Connection((1, "fetch"), one.peer, "test")
    for each in (one, other):
        each.submit(metadata(shared), 0)
        assert each.poll(0) == [Connect(each.key, "b", 9092)]
    for each in (one, other):
        each.lost("refused", 1.0)
    assert one.peer.failures == 1 and other.peer.trouble == "b:9092 (node 1): refused"
    one.submit(metadata(Ends(), 100), 2.0)
    assert one.poll(2.0) == [Connect(KEY, "b", 9092, attempt=1)]
    one.connected(2.0)
    one.received(versions({3: (0, 8)}), 2.0)
    assert (one.peer.failures, one.peer.trouble, one.peer.attempts(2.0)) == (0, "", "")


def test_the_time_for_setting_up_grows_with_each_attempt_that_needs_more() -> None:
    one, now, allowed = connection(), 0.0, []
    for _ in range(4):
        one.submit(metadata(Ends(), now + 1000), now)
        one.poll(now)
        assert one.deadline is not None
        allowed.append(one.deadline - now)
        now = one.deadline
        assert one.poll(now) == [Close(KEY)]
        now += 2
    assert allowed == [10, 20, 30, 30]


def test_a_connection_that_nobody_needs_is_closed_and_made_again_for_the_next_request() -> None:
    one = ready({3: (0, 12)})
    one.submit(metadata(Ends(), 600), 539.0)
    request = sent(one.poll(539.0))
    one.received(answer_to(request), 539.5)
    assert one.poll(1079.0) == [] and one.deadline == 539.5 + 540
    assert one.poll(1079.5) == [Close(KEY)] and one.state is ConnectionState.DOWN
    assert one.deadline is None and one.peer.trouble == ""
    ends = Ends()
    one.submit(metadata(ends, 2000), 1079.5)
    assert one.poll(1079.5) == [Connect(KEY, "b", 9092)] and not ends.all


def test_a_request_that_comes_when_its_connection_is_about_to_be_closed_is_sent() -> None:
    one = ready({3: (0, 12)})
    one.submit(metadata(Ends(), 1000), 540.0)
    sent(one.poll(540.0))


def test_what_is_cancelled_before_it_is_sent_never_is() -> None:
    one, cancelled, wanted = connection(), Ends(), Ends()
    exchange = metadata(cancelled)
    one.submit(exchange, 0)
    exchange.cancel()
    assert one.poll(0) == [] and one.deadline is None
    one = ready({3: (0, 8)})
    exchange = metadata(cancelled)
    one.submit(exchange, 0)
    one.submit(metadata(wanted), 0)
    exchange.cancel()
    request = sent(one.poll(0))
    one.received(answer_to(request), 0)
    assert isinstance(wanted.all[0], MetadataResponse) and not cancelled.all


def test_the_answer_to_what_is_cancelled_after_it_was_sent_is_thrown_away() -> None:
    one, cancelled, wanted = ready({3: (0, 8)}), Ends(), Ends()
    exchange = metadata(cancelled)
    one.submit(exchange, 0)
    first = sent(one.poll(0))
    exchange.cancel()
    one.submit(metadata(wanted), 0)
    second = sent(one.poll(0))
    assert one.received(answer_to(first) + answer_to(second), 0) == []
    assert isinstance(wanted.all[0], MetadataResponse) and not cancelled.all and one.load == 0


def test_a_request_that_has_ended_leaves_nothing_to_the_garbage_collector() -> None:
    one, ends = ready({3: (0, 1)}), Ends()

    def circle() -> weakref.ref[Any]:
        def ended(answer: Any, now: float) -> None:
            ends(exchange.version, now)  # a real callback refers to its exchange, too

        exchange = Exchange(MetadataRequest, ended, 30.0, build=lambda version: MetadataRequest(topics=()))
        one.submit(exchange, 0)
        return weakref.ref(ended)

    gc.disable()
    try:
        kept = circle()
        one.received(answer_to(sent(one.poll(0))), 0)
        assert ends.all == [1] and kept() is None
    finally:
        gc.enable()


def test_answers_that_do_not_parse_are_no_flood(caplog: pytest.LogCaptureFixture) -> None:
    one = ready({3: (0, 8)})
    for now in (0.0, 1.0, 9.9, 10.0, 11.0):
        one.submit(metadata(Ends()), now)
        asked = sent(one.poll(now))
        one.written(now)
        one.received(frames.framed(asked.header.correlation_id.to_bytes(4, "big") + bytes(3) + b"\xff" * 9), now)
    assert [each.levelname for each in caplog.records if "does not parse" in each.message] == ["ERROR"] * 2


def test_an_answer_that_does_not_parse_ends_its_request_alone_and_is_named() -> None:
    one, broken, fine = ready({3: (0, 8)}), Ends(), Ends()
    one.submit(metadata(broken), 0)
    first = sent(one.poll(0))
    one.submit(metadata(fine), 0)
    second = sent(one.poll(0))
    bad = frames.framed(first.header.correlation_id.to_bytes(4, "big") + bytes(3) + b"\xff" * 9)
    assert one.received(bad + answer_to(second), 0) == []
    assert isinstance(broken.all[0], RemoteProtocolError)
    assert "b:9092 (node 1): the response to Metadata v8 does not parse: MetadataResponse." in str(broken.all[0])
    assert isinstance(fine.all[0], MetadataResponse)


@pytest.mark.parametrize("newest_fetch, waits", [(7, False), (8, True)])
def test_a_client_over_its_quota_waits_as_long_as_the_broker_says_where_the_broker_does_not(
    newest_fetch: int, waits: bool
) -> None:
    one, ends = ready({1: (0, newest_fetch), 3: (0, 8)}), Ends()
    one.submit(metadata(ends), 0)
    one.received(answer_to(sent(one.poll(0)), throttle_time_ms=2000), 1.0)
    assert isinstance(ends.all[0], MetadataResponse)
    one.submit(metadata(Ends()), 1.0)
    if waits:
        assert one.poll(1.0) == [] and one.deadline == 3.0
        why = "the client is over its quota, and the broker asks it to pause for 1.5 s"
        assert list(one.explain(1.5)) == [f"b:9092 (node 1), general: 1 request(s) not sent: {why}"]
        sent(one.poll(3.0))
    else:
        sent(one.poll(1.0))


def test_a_deadline_behind_another_request_counts_as_well() -> None:
    one, parked, beat = ready({3: (0, 12)}), Ends(), Ends()
    one.submit(metadata(parked, deadline=300.0), 0)
    one.submit(metadata(beat, deadline=10.0), 0)
    one.poll(0)
    assert one.deadline == 10.0 and one.poll(10.0) == [Close(KEY)]
    assert "b:9092 (node 1) did not answer Metadata v12 within 10 s" in str(beat.all[0])
    assert isinstance(parked.all[0], TimeoutExpired)


def test_many_requests_may_wait_each_with_a_deadline_of_its_own() -> None:
    one, ends = connection(), Ends()
    for number in range(5_000):
        one.submit(metadata(ends, 100.0 + number / 1000), 0)
    one.poll(0)
    one.lost("refused", 0)
    assert len(ends.all) == 5_000
    one.peer.retry_at = 1e9
    for number in range(5_000):
        one.submit(metadata(ends, 100.0 + number / 1000), 0)
    for number in range(5_000):
        assert one.deadline is not None and one.poll(one.deadline) == []
        assert len(ends.all) == 5_000 + number + 1


def test_the_first_closing_broker_is_told_to_be_too_old_and_a_later_one_to_want_a_login() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    one.connected(0)
    one.lost("closed by the broker", 0)
    for each in ("HTTP servers", "Kafka 0.9 and older", "give tls=ottla.TLS(…), or security.protocol=SSL or SASL_SSL"):
        assert each in str(ends.all[0])
    one, ends = connection(), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    one.connected(0)
    one.received(versions({3: (0, 8)}), 0)
    one.lost("closed by the broker", 0)
    assert "SASL" in str(ends.all[0])


def test_each_node_has_its_metrics_by_kafkas_names() -> None:
    metrics = Metrics()
    one = ready({3: (0, 8)}, metrics)
    one.submit(metadata(Ends()), 1.0)
    request = sent(one.poll(1.0))
    value = partial(metrics.value, now=1.25, node_id="node-1")
    assert value("requests-in-flight") == 1
    one.received(answer_to(request), 1.25)
    assert value("requests-in-flight") == 0
    assert value("request-total") == value("response-total") == 3
    assert (value("request-latency-avg"), value("request-latency-max")) == (125.0, 250.0)
    assert value("connection-count") == value("connection-creation-total") == 1
    assert value("incoming-byte-total") > 0 and value("outgoing-byte-total") > 0 and value("network-io-total") == 6
    one.lost("reset", 1.25)
    assert value("connection-count") == 0 and value("connection-close-total") == 1


def test_a_slow_answer_is_logged_but_not_each_of_many(caplog: pytest.LogCaptureFixture) -> None:
    one = ready({3: (0, 8)})
    for now in (0.0, 16.0, 17.0, 34.0):
        one.submit(metadata(Ends(), now + 30), now)
        one.submit(metadata(Ends(), now + 30), now)
        first, second = (frames.parse_request(each) for each in cut(one.poll(now)))
        one.received(answer_to(first) + answer_to(second), now + 15.5)
    slow: list[Any] = [each for each in caplog.records if each.message.startswith("slow response")]
    assert [(each.request, each.node, each.seconds) for each in slow] == [("Metadata", 1, 15.5)] * 3


def test_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    one, ends = ready({3: (0, 12)}), Ends()
    one.submit(metadata(ends, deadline=30.0), 0)
    one.poll(0)
    assert one.deadline == 30.0
    assert one.poll(29.9) == []
    assert one.poll(30.0) == [Close(KEY)]
    assert isinstance(ends.all[0], TimeoutExpired) and "did not answer Metadata" in str(ends.all[0])
    assert one.state is ConnectionState.DOWN


def arriving(ends: Ends, count: int = 1) -> tuple[Connection, bytes]:
    """A connection with so many requests in flight until 30, and a large response to the first of them."""
    one = ready({3: (0, 12)})
    for _ in range(count):
        one.submit(metadata(ends, deadline=30.0), 0)
    request = frames.parse_request(cut(one.poll(0))[0])
    brokers = tuple(MetadataResponseBroker(node_id=i, host="h" * 100, port=1) for i in range(10_000))
    answer = MetadataResponse(brokers=brokers, topics=())
    return one, frames.build_response(answer, request.header.api_version, request.header.correlation_id)


def test_a_large_answer_that_arrives_steadily_on_a_slow_link_is_waited_for() -> None:
    one, answer = arriving(ends := Ends())
    second = 4096  # bytes
    for start in range(0, len(answer), second):
        assert not ends.all
        now = 1.0 + start / second
        assert one.received(answer[start : start + second], now) == []
        assert one.deadline is not None and one.deadline >= now
        assert one.trouble(now) is None, "a broker that is sending is available"
    assert now > 250.0 and len(ends.all) == 1 and isinstance(ends.all[0], MetadataResponse)
    assert one.state is ConnectionState.READY and one.poll(600.0) == []


@pytest.mark.parametrize("rate", [0, 1, 1000])
def test_an_answer_that_only_trickles_is_not_waited_for(rate: int) -> None:
    one, answer = arriving(ends := Ends())
    one.received(answer[:100_000], 0.5)
    at, now = 100_000, 0.5
    while one.state is ConnectionState.READY:
        now += 1.0
        assert now < 62.0
        one.received(answer[at : at + rate], now) if rate else one.poll(now)
        at += rate
    assert now > 60.0, "the first 30 seconds were not slow"
    assert isinstance(ends.all[0], TimeoutExpired)


def test_even_a_steady_answer_is_not_waited_for_without_an_end() -> None:
    one, answer = arriving(ends := Ends())
    now = 0.0
    while one.state is ConnectionState.READY:
        now += 1.0
        one.received(answer[int(now - 1) * 1100 : int(now) * 1100], now)
    assert now == 30.0 * 21 and isinstance(ends.all[0], TimeoutExpired)


def test_a_request_behind_a_slow_answer_ends_in_time() -> None:
    one, answer = arriving(ends := Ends(), count=2)
    one.received(answer[:500_000], 29.0)
    assert one.poll(30.0) == [Close(KEY)]
    assert [type(each) for each in ends.all] == [TimeoutExpired] * 2


def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(ends, 100), 0)
    one.poll(0)
    assert one.poll(10.0) == [Close(KEY)]
    assert "no connection within 10 s" in str(ends.all[0])


def test_a_broker_that_does_not_tell_its_versions_is_given_up_after_a_round_number_of_seconds() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(ends, 100), 0)
    one.poll(0)
    one.connected(0.00101)
    assert one.poll(10.0) == [Close(KEY)]
    assert "no answer to ApiVersions within 10 s" in str(ends.all[0])


def test_the_log_names_a_node_whose_id_is_not_known_by_its_address(caplog: pytest.LogCaptureFixture) -> None:
    one = ready({3: (0, 8)})
    caplog.set_level("INFO", logger="ottla.sdk")
    one.node = Node(-3, "b", 9092)
    one.lost("the wire broke", 1.0)
    (lost,) = [each.__dict__ for each in caplog.records if each.message.startswith("connection failed")]
    assert (lost["node"], lost["address"]) == ("bootstrap", "b:9092")


def test_a_request_that_waits_too_long_ends_with_the_last_trouble() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(Ends(), 100), 0)
    one.poll(0)
    one.lost("refused", 0)
    one.submit(metadata(ends, 0.01), 0)
    one.poll(0.01)
    assert isinstance(ends.all[0], TimeoutExpired) and "refused" in str(ends.all[0])


@pytest.mark.parametrize("correlation_id", [7, -1])
def test_an_answer_out_of_turn_breaks_the_protocol(correlation_id: int) -> None:
    one, ends = ready({3: (0, 8)}), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    answer = frames.build_response(MetadataResponse(brokers=(), topics=()), 8, correlation_id)
    assert one.received(answer, 0) == [Close(KEY)]
    assert isinstance(ends.all[0], RemoteProtocolError)


def brought_to(state: ConnectionState) -> Connection:
    """A connection in this state, with a pending request unless it is ready."""
    if state is ConnectionState.REAUTHENTICATING:
        one = authenticated()
        one.submit(metadata(Ends(), 1000), 9.0)
        assert sent(one.poll(9.0)).header.api_key == 17
        return one
    if state in (ConnectionState.READY, ConnectionState.FINISHING):
        one = authenticated()
        if state is ConnectionState.FINISHING:
            assert one.finish(0) == [Finish(KEY)]
        return one
    one = connection(tls=Greeting() if state in (ConnectionState.CONNECTING, ConnectionState.SECURING) else None)
    one.submit(metadata(Ends(), 1000), 0)
    if state is not ConnectionState.DOWN:
        one.poll(0)
    if state in (ConnectionState.SECURING, ConnectionState.HANDSHAKE):
        one.connected(0)
    assert one.state is state
    return one


@pytest.mark.parametrize("what", ConnectionInput)
@pytest.mark.parametrize("state", ConnectionState)
def test_every_input_leads_from_every_state_to_what_the_table_says(
    state: ConnectionState, what: ConnectionInput
) -> None:
    one = brought_to(state)
    expected = TRANSITIONS.get((state, what))
    assert one._enter(what, 1.0) is (expected is not None)
    assert one.state is (expected or state)


def happens(one: Connection, what: ConnectionInput) -> None:
    """Cause the input through the connection's public methods where possible."""
    match what:
        case ConnectionInput.DIALED:
            one.poll(1.0)
        case ConnectionInput.CONNECTED:
            one.connected(1.0)
        case ConnectionInput.SECURED:
            one.received(b"hello", 1.0)
        case ConnectionInput.AGREED if one.state is ConnectionState.REAUTHENTICATING:
            for request in (SaslHandshakeResponse(error_code=0, mechanisms=()), let_in()):
                one.received(frames.build_response(request, 1, one.requests.in_flight[0].correlation_id), 9.0)
        case ConnectionInput.AGREED:
            one.received(versions(SERVED), 1.0)
        case ConnectionInput.EXPIRING:
            one._session.renew_at = 1.0
            one.submit(metadata(Ends(), 1000), 1.0)
            one.poll(1.0)
        case ConnectionInput.FINISHED:
            assert one.finish(0.0) in ([Finish(KEY)], [Close(KEY)], [])
        case ConnectionInput.IDLE:
            one.poll(600.0)
        case ConnectionInput.ENDED:
            one.lost("reset", 1.0)


@pytest.mark.parametrize(("before", "after"), TRANSITIONS.items())
def test_every_transition_is_made_by_what_it_stands_for(
    before: tuple[ConnectionState, ConnectionInput], after: ConnectionState
) -> None:
    one = brought_to(before[0])
    happens(one, before[1])
    assert one.state is after


@pytest.mark.parametrize("state", ConnectionState)
@pytest.mark.parametrize("what", [ConnectionInput.CONNECTED, ConnectionInput.ENDED])
def test_what_a_driver_reports_late_changes_nothing(state: ConnectionState, what: ConnectionInput) -> None:
    one = brought_to(state)
    one.requests.waiting.clear()
    if (state, what) not in TRANSITIONS:
        happens(one, what)
        assert one.state is state
    else:
        one.written(1.0)
        assert one.state is state


def test_a_connection_that_is_finished_sends_nothing_more_and_its_end_is_nobodys_fault() -> None:
    one, ends = ready(SERVED), Ends()
    assert one.finish(0) == [Finish(KEY)]
    one.submit(metadata(ends), 1.0)
    assert one.poll(1.0) == []
    one.lost("closed by the broker", 2.0)
    assert isinstance(ends.all[0], ConnectionLost) and one.peer.failures == 0 and one.state is ConnectionState.DOWN


def test_within_tls_what_goes_out_is_sealed_and_what_comes_in_is_read_after_both_have_agreed() -> None:
    one, ends = connection(tls=Greeting()), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    assert one.connected(0) == [Send(KEY, (b"hello",))]
    assert next(one.explain(2.0)).endswith("connected, TLS handshake incomplete for 2.0 s")
    (first,) = one.received(b"hello", 0)
    assert isinstance(first, Send)
    (asked,) = first.parts
    assert frames.parse_request(bytes(each ^ 1 for each in asked)[4:]).header.api_key == 18

    def told(frame: bytes) -> bytes:
        return bytes(each ^ 1 for each in frame)

    large = versions(dict.fromkeys(range(12000), (0, 8)))
    assert one.received(told(large[:70_000]), 0) == [] and one.room is None, "no buffer for direct reads"
    one.received(told(large[70_000:]), 0)
    assert one.state is ConnectionState.READY
    assert one.finish(0) == [Send(KEY, (b"bye",)), Finish(KEY)]


@pytest.mark.parametrize("finishes", [False, True])
def test_a_broker_that_ends_tls_has_closed_the_connection(finishes: bool) -> None:
    one, ends = connection(tls=Greeting()), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    one.connected(0)
    one.received(b"hello", 0)
    if finishes:
        keys = {3: (0, 12)}
        one.received(bytes(each ^ 1 for each in versions(keys)), 0)
        one.finish(0)
        assert one.state is ConnectionState.FINISHING
    assert one.received(b"bye", 0) == [Close(KEY, (b"bye",))]
    assert one.state is ConnectionState.DOWN
    (error,) = ends.all
    assert isinstance(error, ConnectionLost)
    if finishes:
        assert str(error) == "b:9092 (node 1): closed by the broker" and one.peer.failures == 0
    else:
        assert "closed by the broker at the request for its versions" in str(error) and one.peer.failures == 1


def test_a_side_that_is_not_trusted_ends_what_waits_for_good() -> None:
    one, ends = connection(tls=Greeting()), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    one.connected(0)
    assert one.received(b"who are you?", 0) == [Close(KEY, (b"bye",))], "the broker can log the reason"
    (error,) = ends.all
    assert isinstance(error, AuthenticationFailed) and not error.retriable
    assert str(error) == "b:9092 (node 1): b'who are you?' is no greeting"


def test_a_request_in_flight_whose_side_is_not_trusted_any_more_has_an_unknown_outcome() -> None:
    class Leaving(Hello):
        def feed(self, data: Buffer) -> bytes:
            if data == b"go away":
                raise AuthenticationFailed("the broker does not accept this side's certificate")
            return super().feed(data)

    class Meeting(Greeting):
        def connection(self, host: str) -> Hello:
            return Leaving()

    one, in_flight, waiting = connection(tls=Meeting()), Ends(), Ends()
    one.submit(metadata(in_flight), 0)
    one.poll(0)
    one.connected(0)
    one.written(0)
    one.received(b"hello", 0)
    one.received(bytes(each ^ 1 for each in versions(SERVED)), 0)
    one.submit(metadata(waiting), 0)
    assert one.received(b"go away", 0) == [Close(KEY, (b"bye",))]
    assert [type(each) for each in in_flight.all] == [ConnectionLost]
    assert [type(each) for each in waiting.all] == [AuthenticationFailed]


def test_a_host_that_tls_cannot_ask_for_fails_the_connection_and_not_the_client() -> None:
    class Never(Greeting):
        def connection(self, host: str) -> Hello:
            raise AuthenticationFailed(f"no certificate can name the host {host!r}")

    one, ends = connection(tls=Never()), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    assert one.connected(0) == [Close(KEY)]
    assert one.state is ConnectionState.DOWN
    (error,) = ends.all
    assert isinstance(error, AuthenticationFailed)
    assert str(error) == "b:9092 (node 1): no certificate can name the host 'b'"


@pytest.mark.parametrize(
    ("noticed", "says"), [(30.5, ""), (55.0, "; this process was blocked for at least 25 s of that")]
)
def test_a_blocked_process_is_not_blamed_on_the_broker(noticed: float, says: str) -> None:
    one, ends = ready(SERVED), Ends()
    one.submit(metadata(ends, 30.0), 0)
    one.poll(0)
    one.written(0)
    one.poll(noticed)
    within = f"within {noticed:g} s{says}; the connection is closed"
    assert str(ends.all[0]) == f"b:9092 (node 1) did not answer Metadata v8 {within}"


def test_tls_that_is_never_agreed_on_is_given_up() -> None:
    one, ends = connection(tls=Greeting()), Ends()
    one.submit(metadata(ends, 100), 0)
    one.poll(0)
    one.connected(0)
    assert one.poll(10.0) == [Close(KEY)]
    assert "the TLS handshake was not complete within 10 s" in str(ends.all[0])


class TwoRounds:
    """A handshake of two requests, like SASL's."""

    name, hint = "TwoRounds", " in the second stage"

    def __init__(self) -> None:
        self.rounds = 0

    def begin(self) -> HandshakeRequest:
        return HandshakeRequest(MetadataRequest(topics=()), 1)

    def answered(self, frame: Buffer) -> HandshakeRequest | None:
        self.rounds += 1
        return HandshakeRequest(MetadataRequest(topics=()), 2) if self.rounds == 1 else None


def test_the_stages_of_the_handshake_follow_one_another_before_the_first_request() -> None:
    one, second = brought_to(ConnectionState.HANDSHAKE), TwoRounds()
    one._session._handshake = Handshake(second)
    first = sent(one.received(versions(SERVED), 0))
    again = sent(one.received(answer_to(first), 0))
    assert (first.header.api_version, again.header.api_version) == (1, 2)
    assert "connected, but TwoRounds has had no answer for 2.0 s" in next(one.explain(2.0))
    request = sent(one.received(answer_to(again), 0))
    assert one.state is ConnectionState.READY and request.header.api_version == 8, "the waiting request follows"


class Refused(TwoRounds):
    def answered(self, frame: Buffer) -> HandshakeRequest | None:
        raise SaslAuthenticationFailed("wrong password")


def test_a_stage_in_which_the_two_sides_do_not_agree_ends_the_connection_with_its_error() -> None:
    one, ends = connection(), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    one.connected(0)
    one._session._handshake = Handshake(Refused())
    first = sent(one.received(versions(SERVED), 0))
    assert one.received(answer_to(first), 0) == [Close(KEY)]
    assert one.state is ConnectionState.DOWN and isinstance(ends.all[0], SaslAuthenticationFailed)
    one, ends = connection(), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    one.connected(0)
    one._session._handshake = Handshake(TwoRounds())
    one.received(versions(SERVED), 0)
    one.lost("closed by the broker", 0)
    assert str(ends.all[0]).endswith("closed by the broker in the second stage")


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n", b"\x15\x03\x03\x00\x02\x02\x46", bytes(50)])
def test_garbage_ends_the_connection_and_every_request(garbage: bytes) -> None:
    one, ends = ready({3: (0, 8)}), Ends()
    one.submit(metadata(ends), 0)
    one.poll(0)
    actions = one.received(garbage, 0)
    if Close(KEY) not in actions:
        one.poll(30.0)
    assert isinstance(ends.all[0], RemoteProtocolError | TimeoutExpired)


def test_an_api_that_the_broker_lacks_fails_its_request_alone() -> None:
    one, lacking, fine = ready({3: (0, 8)}), Ends(), Ends()
    one.submit(Exchange(ProduceRequest(acks=1, timeout_ms=1, topic_data=()), lacking, 30), 0)
    one.submit(metadata(fine), 0)
    sent(one.poll(0))
    assert isinstance(lacking.all[0], UnsupportedVersion)
    assert "Produce: ottla speaks versions 2 to 12, b:9092 (node 1) does not offer it" in str(lacking.all[0])
    assert not fine.all


@pytest.mark.parametrize(
    "theirs, says",
    [((0, 2), "has versions 0 to 2; you need Kafka 0.11.0 or newer"), ((20, 21), "has versions 20 to 21; use a newer")],
)
def test_what_a_broker_cannot_do_is_said_by_name(theirs: tuple[int, int], says: str) -> None:
    one, lacking = ready({0: theirs}), Ends()
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=())
    one.submit(Exchange(request, lacking, 30, versions=(3, 12)), 0)
    one.poll(0)
    assert f"Produce: ottla speaks versions 3 to 12, b:9092 (node 1) {says}" in str(lacking.all[0])


def test_the_release_that_first_had_a_version_is_known_for_all_that_the_client_sends() -> None:
    for request, (low, _, _) in SPOKEN.items():
        assert since(request, low), request


def test_a_request_may_be_made_of_its_version_and_held_to_some() -> None:
    one, ends, made = ready({3: (0, 12)}), Ends(), []

    def build(version: int) -> MetadataRequest:
        made.append(version)
        return MetadataRequest(topics=())

    one.submit(Exchange(MetadataRequest, ends, 30, build=build, versions=(2, 5)), 0)
    request = sent(one.poll(0))
    assert request.header.api_version == 5 and made == [5]
    one.received(answer_to(request), 0)
    assert isinstance(ends.all[0], MetadataResponse)
    one.submit(Exchange(MetadataRequest, ends, 30, build=build, versions=(13, 13)), 0)
    assert one.poll(0) == []
    assert "speaks versions 13 to 13, b:9092 (node 1) has versions 0 to 12; you need Kafka 4.0" in str(ends.all[1])


def produce(ended: Ends, size: int, *, acks: int = -1, deadline: float = 30.0) -> Exchange:
    topic = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=bytes(size)),))
    message = ProduceRequest(acks=acks, timeout_ms=1, topic_data=(topic,))
    return Exchange(message, ended, deadline, one_way=not acks)


def apis(actions: list[Action]) -> list[int]:
    """The API keys of the requests in one `Send`."""
    return [frames.parse_request(each).header.api_key for each in cut(actions)]


def test_a_large_request_is_sent_in_parts_and_the_small_ones_around_it_joined() -> None:
    one, ends = ready(SERVED), Ends()
    for exchange in (metadata(ends), metadata(ends), produce(ends, 100_000), metadata(ends)):
        one.submit(exchange, 0)
    [small_and_large, small] = one.poll(0)
    assert isinstance(small_and_large, Send)
    sizes = [len(each) for each in small_and_large.parts]
    assert len(sizes) == 3 and sizes[0] < 300 and sizes[1] == 100_000 and sizes[2] < 300
    assert apis([small_and_large]) == [3, 3, 0] and apis([small]) == [3]


def test_nothing_is_sent_before_what_was_sent_last_is_written() -> None:
    one, ends = ready(SERVED, kind=Connection), Ends()
    for _ in range(5):
        one.submit(produce(ends, 40_000), 0)
    assert apis(one.poll(0)) == [0, 0], "64 kB, and the rest of the last request"
    assert one.poll(0) == [] and one.deadline == 30.0
    assert "the socket has not accepted the requests before it" in next(iter(one.explain(0)))
    assert apis(one.written(1)) == [0, 0] and one.poll(1) == []
    assert apis(one.written(2)) == [0] and one.written(3) == []
    assert one.load == 5 and not ends.all


def test_what_waits_for_the_socket_is_cancelled_and_never_sent() -> None:
    one, ends = ready(SERVED, kind=Connection), Ends()
    given, waiting, last = (produce(ends, 100_000) for _ in range(3))
    for exchange in (given, waiting, last):
        one.submit(exchange, 0)
    assert apis(one.poll(0)) == [0]
    for exchange in (given, waiting):
        exchange.cancel()
    assert one.load == 2, "the request in the driver's hands still gets an answer"
    [send] = one.written(0)
    assert isinstance(send, Send) and apis([send]) == [0]
    assert one.written(0) == [] and not ends.all and waiting.correlation_id < 0 <= last.correlation_id


def test_a_request_without_an_answer_ends_when_it_is_written() -> None:
    one, ends = ready(SERVED, kind=Connection), Ends()
    one.submit(produce(ends, 10, acks=0), 0)
    assert apis(one.poll(0)) == [0] and one.load == 1 and not ends.all
    assert one.deadline == 30.0, "the connection is not idle"
    one.written(1)
    assert ends.all == [None] and one.load == 0 and one.deadline == 1 + 540


def test_a_request_without_an_answer_fails_with_its_connection_if_it_was_not_written() -> None:
    one, ends = ready(SERVED, kind=Connection), Ends()
    one.submit(produce(ends, 10, acks=0), 0)
    one.poll(0)
    one.lost("reset", 1)
    assert isinstance(ends.all[0], ConnectionLost)
    assert one.written(1) == [] and len(ends.all) == 1


def test_a_socket_that_takes_nothing_ends_the_connection_at_the_deadline_of_what_it_was_given() -> None:
    one, ends = ready(SERVED, kind=Connection), Ends()
    one.submit(produce(ends, 10, acks=0, deadline=30.0), 0)
    one.poll(0)
    one.submit(metadata(ends, deadline=20.0), 0)
    assert one.poll(20.0) == []
    assert "Metadata could not be sent" in str(ends.all[0]) and "socket has not accepted" in str(ends.all[0])
    assert one.poll(30.0) == [Close(KEY)]
    assert "b:9092 (node 1) did not take Produce v9 within 30 s" in str(ends.all[1])


def test_a_message_that_cannot_be_encoded_fails_alone() -> None:
    one, broken, fine = ready({0: (3, 9), 3: (0, 8)}), Ends(), Ends()
    one.submit(Exchange(ProduceRequest(acks=99999, timeout_ms=1, topic_data=()), broken, 30), 0)
    one.submit(metadata(fine), 0)
    sent(one.poll(0))
    assert isinstance(broken.all[0], EncodeError) and broken.all[0].path == "ProduceRequest.acks"


# -- sessions that end (KIP-368) ---------------------------------------------------------------------------------------


def test_a_session_is_renewed_before_it_ends_ahead_of_what_waits() -> None:
    one, before, after = authenticated(), Ends(), Ends()
    one.submit(metadata(before), 7.0)
    first = sent(one.poll(7.0))
    one.submit(metadata(after), 9.0)
    handshake = sent(one.poll(9.0))
    assert handshake.header.api_key == 17, "after the requests in flight"
    assert (one.state, one.load) == (ConnectionState.REAUTHENTICATING, 2)
    assert one.received(answer_to(first), 9.0) == []
    assert len(before.all) == 1 and not isinstance(before.all[0], OttlaError)
    hello = SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
    token = sent(one.received(frames.build_response(hello, 1, handshake.header.correlation_id), 9.1))
    assert (token.header.api_key, token.message.auth_bytes) == (36, b"\0alice\0secret")
    request = sent(one.received(frames.build_response(let_in(), 1, token.header.correlation_id), 9.1))
    assert one.state is ConnectionState.READY and request.header.api_key == 3
    one.received(answer_to(request), 9.2)
    assert len(after.all) == 1 and not isinstance(after.all[0], OttlaError)
    one.submit(metadata(Ends(), 1000), 10.0)
    assert sent(one.poll(10.0)).header.api_key == 3, "the new session lasts until 19.1"


def test_a_renewal_has_its_time_once_what_was_sent_before_is_answered() -> None:
    one, slow, ends = authenticated(), Ends(), Ends()
    one.submit(metadata(slow, 1000), 7.0)
    first = sent(one.poll(7.0))
    one.submit(metadata(ends, 1000), 9.0)
    one.poll(9.0)
    one.received(answer_to(first), 18.95)
    assert one.poll(19.1) == [], "the broker has had no time to answer"
    assert one.poll(28.9) == [] and one.poll(29.0) == [Close(KEY)]


def test_a_session_that_nobody_needs_is_renewed_when_somebody_does_even_after_its_end() -> None:
    one = authenticated()
    assert one.poll(60.0) == [] and one.state is ConnectionState.READY
    one.submit(metadata(Ends(), 1000), 60.0)
    assert sent(one.poll(60.0)).header.api_key == 17


def test_a_lifetime_that_is_none_ends_no_session() -> None:
    one = authenticated(-5.0)
    one.submit(metadata(Ends(), 1000), 60.0)
    assert sent(one.poll(60.0)).header.api_key == 3


def bearing(lifetime: float) -> Connection:
    """A connection with a session of ten seconds, whose token lasts for ``lifetime`` seconds."""
    one = connection(sasl=OAuthBearer(lambda: ""))
    one.peer.credentials.fetched(TokenFetched(Token("first", 0.0), lifetime), 0.0)
    one.submit(metadata(Ends(), 1000), 0)
    one.poll(0)
    one.connected(0)
    one.written(0)
    asked = sent(one.received(versions(SASL_SERVED), 0))
    for answer in (SaslHandshakeResponse(error_code=0, mechanisms=("OAUTHBEARER",)), let_in()):
        asked = sent(one.received(frames.build_response(answer, 1, asked.header.correlation_id), 0))
    one.received(answer_to(asked), 0)
    assert one.state is ConnectionState.READY and not one.load
    return one


def test_where_there_is_no_token_requests_go_on_until_the_session_is_over_and_then_wait_for_it() -> None:
    one, before, after = bearing(10.0), Ends(), Ends()
    one.submit(metadata(before), 9.5)
    first = sent(one.poll(9.5))
    assert first.header.api_key == 3, "the token expires before the next renewal, but the session still lasts"
    one.submit(metadata(after), 10.0)
    assert one.poll(10.0) == [] and one.deadline == 30.0, "it waits, and does not retry in a loop"
    assert "the session has ended, there is no token yet" in list(one.explain(11.0))[-1]
    one.peer.credentials.fetched(TokenFetched(Token("second", 0.0), 10.0), 12.0)
    assert sent(one.poll(12.0)).header.api_key == 17, "after the requests in flight"
    one.received(answer_to(first), 12.0)
    assert len(before.all) == 1 and not after.all


def test_a_session_that_is_over_is_renewed_by_a_token_that_lasts_a_little_if_there_is_no_other() -> None:
    one = bearing(14.0)
    one.submit(metadata(Ends(), 1000), 9.5)
    assert sent(one.poll(9.5)).header.api_key == 3, "with this token, the next renewal would soon follow"
    one.submit(metadata(Ends(), 1000), 10.5)
    assert sent(one.poll(10.5)).header.api_key == 17


def test_what_waits_for_a_token_ends_where_none_is_to_be_had() -> None:
    one, ends = bearing(10.0), Ends()
    one.submit(metadata(ends), 10.0)
    assert one.poll(10.0) == []
    one.peer.credentials.fetched(TokenFetched(error=AuthenticationFailed("no such client")), 11.0)
    assert one.poll(11.0) == [Close(KEY)]
    assert "no such client" in str(ends.all[0])


def test_where_no_token_is_to_be_had_the_outcome_of_what_is_in_flight_is_unknown() -> None:
    one, sent_before, waiting = bearing(10.0), Ends(), Ends()
    one.submit(metadata(sent_before), 9.5)
    one.poll(9.5)
    one.submit(metadata(waiting), 10.0)
    one.poll(10.0)
    one.peer.credentials.fetched(TokenFetched(error=AuthenticationFailed("no such client")), 11.0)
    assert one.poll(11.0) == [Close(KEY)]
    assert [type(each) for each in sent_before.all] == [ConnectionLost], "the broker may carry it out"
    assert "no such client" in str(sent_before.all[0])
    assert [type(each) for each in waiting.all] == [AuthenticationFailed]


def test_a_session_that_cannot_be_renewed_ends_what_waits_with_the_brokers_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, ends = authenticated(), Ends()
    one.submit(metadata(ends), 9.0)
    handshake = sent(one.poll(9.0))
    hello = SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
    token = sent(one.received(frames.build_response(hello, 1, handshake.header.correlation_id), 9.0))
    no = SaslAuthenticateResponse(error_code=SaslAuthenticationFailed.code, error_message="alice left", auth_bytes=b"")
    assert one.received(frames.build_response(no, 1, token.header.correlation_id), 9.0) == [Close(KEY)]
    (error,) = ends.all
    assert isinstance(error, AuthenticationFailed)
    assert str(error) == "b:9092 (node 1): user 'alice' by PLAIN is refused: alice left"
    assert [each.levelname for each in caplog.records] == ["WARNING"], "the broker had authenticated this client before"
    assert not one.peer.refused(60.0) and one.peer.refused(70.0), "no repeated warning for a minute"


def test_a_broker_that_does_not_answer_to_a_renewal_is_given_up_but_not_while_what_was_sent_before_waits() -> None:
    one, slow, ends = authenticated(), Ends(), Ends()
    one.submit(metadata(slow, 1000), 7.0)
    first = sent(one.poll(7.0))
    one.submit(metadata(ends, 1000), 9.0)
    one.poll(9.0)
    assert one.poll(30.0) == [], "the slow request's own deadline is far off"
    one.received(answer_to(first), 30.0)
    assert one.poll(50.0) == [Close(KEY)]
    assert "the session was not renewed within" in str(ends.all[0])


def test_a_connection_counts_once_however_often_its_session_is_renewed() -> None:
    one = brought_to(ConnectionState.REAUTHENTICATING)
    happens(one, ConnectionInput.AGREED)
    traffic = one.peer.traffic
    assert traffic.connections.value == 1
    one.lost("reset", 10.0)
    assert traffic.connections.value == 0


def test_a_connection_to_an_address_that_the_node_has_left_goes_on_until_it_ends() -> None:
    one, ends = ready(SERVED), Ends()
    assert one.peer.moved(Node(1, "elsewhere", 9092))
    one.moved(1.0)
    one.submit(metadata(ends), 1.0)
    assert apis(one.poll(1.0)) == [3] and not ends.all
