"""The relay against a server that counts its frames: each cut happens at exactly its moment."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.interop.lines import Message
from tests.interop.peers import CLIENTS, Client, create_topic
from tests.interop.relay import FETCH, PRODUCE, Moment, Relay
from tests.kafka import ApacheKafka
from tests.patience import HUNG


class Echo:
    """Answers each frame with its correlation id and its own bytes; keeps the correlation ids."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rb") as stream:
                while len(head := stream.read(4)) == 4:
                    body = stream.read(*struct.unpack(">i", head))
                    if body == b"stop":
                        return
                    self.seen.append(struct.unpack_from(">i", body, 4)[0])
                    connection.sendall(struct.pack(">i", len(body)) + body[4:8] + body[:4] + body[8:])

    def stop(self) -> None:
        with socket.create_connection(self.address) as last:
            last.sendall(struct.pack(">i", 4) + b"stop")
        self._thread.join(HUNG)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.stop()


def call(relay: Relay, *correlation_ids: int, api_key: int = PRODUCE) -> list[int]:
    """Send a request for each id over one connection; returns the correlation ids of the responses."""
    answered: list[int] = []
    with socket.create_connection((relay.host, relay.port), timeout=HUNG) as client, client.makefile("rb") as stream:
        for correlation_id in correlation_ids:
            body = struct.pack(">hhi", api_key, 9, correlation_id) + b"body"
            try:
                client.sendall(struct.pack(">i", len(body)) + body)
                answer = stream.read(4 + len(body))
            except ConnectionError:
                break
            if not answer:
                break
            answered.append(struct.unpack_from(">i", answer, 4)[0])
    return answered


def test_frames_pass_unchanged_in_both_directions(echo: Echo) -> None:
    with Relay(echo.address) as relay:
        assert call(relay, 1, 2, 3) == [1, 2, 3]
        assert [request.correlation_id for request in relay.requests] == [1, 2, 3]
        assert relay.requests[0].api_version == 9


def test_requests_are_counted_by_client_and_api(echo: Echo) -> None:
    with Relay(echo.address) as relay, socket.create_connection((relay.host, relay.port), timeout=HUNG) as client:
        for api_key, name in ((FETCH, b"billing"), (FETCH, b"billing"), (FETCH, b"audit"), (PRODUCE, b"billing")):
            body = struct.pack(">hhih", api_key, 9, 7, len(name)) + name + b"body"
            client.sendall(struct.pack(">i", len(body)) + body)
            assert client.recv(4 + len(body), socket.MSG_WAITALL)
        assert relay.counts == {("billing", FETCH): 2, ("audit", FETCH): 1, ("billing", PRODUCE): 1}


def test_an_answer_is_lost_after_the_broker_has_given_it(echo: Echo) -> None:
    with Relay(echo.address) as relay:
        order = relay.cut(PRODUCE, Moment.BEFORE_ANSWER, every=2)
        assert call(relay, 1, 2, 3) == [1]
        assert order.wait(HUNG)
        assert echo.seen == [1, 2]


def test_a_request_is_lost_before_the_broker_sees_it(echo: Echo) -> None:
    with Relay(echo.address) as relay:
        relay.cut(PRODUCE, Moment.BEFORE_REQUEST, every=2)
        assert call(relay, 1, 2, 3) == [1]
        assert call(relay, 4, 5) == [4, 5]
        assert echo.seen == [1, 4, 5]


def test_an_order_counts_its_own_api_and_ends_after_its_times(echo: Echo) -> None:
    with Relay(echo.address) as relay:
        order = relay.cut(PRODUCE, Moment.AFTER_REQUEST, every=2, times=2)
        assert call(relay, 1, api_key=3) == [1]
        assert call(relay, 2, 3, 4) == [2]
        assert call(relay, 5, 6, 7) == [5]
        assert call(relay, 8, 9, 10) == [8, 9, 10]
        assert order.wait(HUNG)
        assert (order.seen, order.done) == (7, 2)


def test_every_connection_is_cut_on_command(echo: Echo) -> None:
    with Relay(echo.address) as relay, socket.create_connection((relay.host, relay.port), timeout=HUNG) as client:
        client.sendall(struct.pack(">ihhi", 8, PRODUCE, 0, 7))
        assert client.recv(12, socket.MSG_WAITALL)
        assert relay.cut_all() == 1
        assert client.recv(1) == b""


def test_idle_connections_stay(echo: Echo) -> None:
    with Relay(echo.address) as relay, socket.create_connection((relay.host, relay.port), timeout=HUNG) as client:
        client.sendall(struct.pack(">ihhi", 8, PRODUCE, 0, 7))
        assert client.recv(12, socket.MSG_WAITALL)
        assert [(each.client.gettimeout(), each.broker.gettimeout()) for each in relay._links] == [(None, None)]


def test_a_client_of_a_broker_that_is_down_is_turned_away() -> None:
    with socket.socket() as down:
        down.bind(("127.0.0.1", 0))  # without listen(): the port refuses connections, and no other process gets it
        with Relay(down.getsockname()) as relay:
            assert call(relay, 1) == []


@pytest.mark.deep
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_idempotent_clients_of_apache_kafka_survive_cuts(kafka: ApacheKafka, client: Client, moment: Moment) -> None:
    """Tests the relay on Apache Kafka; the proxy and brokerlite must later pass the same."""
    topic = f"relayed-{client}-{moment.name.lower()}"
    create_topic(kafka.bootstrap, topic)
    messages = [Message(topic, b"key", b"%d" % number) for number in range(2000)]
    with Relay(kafka.relayed(), listen=kafka.relay()) as relay:
        cuts = relay.cut(PRODUCE, moment, every=2, times=5)
        with client.producing(relay.address, {**client.idempotence, **client.small_batches}) as producer:
            for message in messages:
                producer.send(message)
            outcomes = producer.finish()
        assert cuts.wait(HUNG), f"only {cuts.done} cuts"
    assert [outcome.error for outcome in outcomes] == [None] * len(messages)
    assert [r.value for r in client.consume(kafka.bootstrap, topic)] == [m.value for m in messages]
