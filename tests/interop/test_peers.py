"""The peers against Apache Kafka: each reads back the same records, whichever client wrote them."""

from dataclasses import replace

import pytest

from tests.interop.lines import Message, Outcome, Received
from tests.interop.peers import (
    CLIENTS,
    JAVA,
    KAFKAJS,
    LIBRDKAFKA,
    Client,
    PeerFailed,
    create_topic,
    kcat_consume,
    kcat_metadata,
    kcat_produce,
)
from tests.kafka import ApacheKafka, free_ports

MESSAGES = [
    Message("", b"key", b"value", timestamp=1_700_000_000_000),
    Message("", None, b"without a key", partition=2),
    Message("", b"", b"an empty key", partition=0),
    Message("", b"tombstone", None),
    Message("", b"\x00\xff\t\n", b"headers", headers=(("trace", b"\x01\x02"), ("none", None), ("empty", b""))),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_line_reads_back_as_the_message_it_was_made_from(message: Message) -> None:
    assert Message.parse(message.line() + "\n") == message


def test_outcomes_and_records_read_back_from_their_lines() -> None:
    for outcome in (Outcome(3, 17), Outcome(error="NotEnoughReplicas", message="of two lines")):
        assert Outcome.parse(outcome.line() + "\n") == outcome
    received = Received(1, 2, 3, None, b"", (("a", None), ("b", b"x")))
    assert Received.parse(received.line() + "\n") == received


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_what_a_client_writes_every_client_reads_back(kafka: ApacheKafka, client: Client) -> None:
    topic = f"peers-{client}"
    create_topic(kafka.bootstrap, topic, partitions=3)
    messages = [client.sendable(replace(message, topic=topic)) for message in MESSAGES]
    outcomes = client.produce(kafka.bootstrap, messages, client.idempotence)

    assert all(outcome.error is None and outcome.offset >= 0 for outcome in outcomes)
    placed = {(o.partition, o.offset): (m.key, m.value, m.headers) for o, m in zip(outcomes, messages, strict=True)}
    for m, outcome in zip(messages, outcomes, strict=True):
        assert m.partition in (None, outcome.partition)
    for reader in CLIENTS:
        seen = reader.consume(kafka.bootstrap, topic)
        assert {(r.partition, r.offset): (r.key, r.value, r.headers) for r in seen} == placed, reader
        assert 1_700_000_000_000 in {r.timestamp for r in seen if r.key == b"key"}
    without_headers = {place: (key, value) for place, (key, value, _) in placed.items()}
    assert {(r.partition, r.offset): (r.key, r.value) for r in kcat_consume(kafka.bootstrap, topic)} == without_headers


@pytest.mark.slow
def test_kcat_writes_and_describes_a_topic(kafka: ApacheKafka) -> None:
    create_topic(kafka.bootstrap, "peers-kcat")
    kcat_produce(kafka.bootstrap, "peers-kcat", [("a", "1"), ("b", "2")])
    assert [(r.key, r.value) for r in LIBRDKAFKA.consume(kafka.bootstrap, "peers-kcat")] == [(b"a", b"1"), (b"b", b"2")]
    topics = {topic["topic"]: topic for topic in kcat_metadata(kafka.bootstrap)["topics"]}
    assert len(topics["peers-kcat"]["partitions"]) == 1


@pytest.mark.deep
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_a_producer_that_finds_no_broker_is_ended_when_its_time_is_over(client: Client) -> None:
    [nobody] = free_ports(1)
    with pytest.raises(PeerFailed):
        client.produce(f"127.0.0.1:{nobody}", [Message("t", None, b"v")], timeout=3.0)


@pytest.mark.deep
def test_a_header_without_a_value_is_what_kafkajs_cannot_send(kafka: ApacheKafka) -> None:
    create_topic(kafka.bootstrap, "peers-null-header")
    message = Message("peers-null-header", None, b"v", headers=(("none", None),))
    (outcome,) = KAFKAJS.produce(kafka.bootstrap, [message])
    assert outcome.error == "TypeError", outcome


@pytest.mark.deep
def test_a_producer_tells_the_error_of_each_message_and_goes_on(kafka: ApacheKafka) -> None:
    create_topic(kafka.bootstrap, "peers-limit", max_message_bytes="1000")
    values = [b"small", bytes(5000), b"small again"]
    # Batches are below the topic's limit: Java splits larger ones by its own batch.size, and would split for ever.
    with JAVA.producing(kafka.bootstrap, {"batch.size": "500"}) as producer:
        for value in values:
            producer.send(Message("peers-limit", None, value))
        outcomes = producer.finish()
    assert outcomes[1].error == "RecordTooLargeException", outcomes
    assert outcomes[0].error is outcomes[2].error is None
