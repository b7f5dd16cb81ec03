"""Other people's clients against brokerlite: what one writes every other reads back the same."""

import time
from functools import partial

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic as RdNewTopic

from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import (
    AIOKAFKA,
    CLIENTS,
    JAVA,
    LIBRDKAFKA,
    Client,
    create_topic,
    kcat,
    kcat_consume,
    kcat_metadata,
    kcat_produce,
)

pytestmark = pytest.mark.slow

MESSAGES = [
    Message("t", b"key", b"value", timestamp=1_700_000_000_000),
    Message("t", None, b"without a key", partition=2),
    Message("t", b"", b"an empty key", partition=0),
    Message("t", b"tombstone", None),
    Message("t", b"\x00\xff\t\n", b"headers", headers=(("trace", b"\x01\x02"), ("none", None), ("empty", b""))),
]


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_what_a_client_writes_every_client_reads_back(ottla_broker: Broker, client: Client) -> None:
    ottla_broker.create_topic("t", partitions=3)
    outcomes = client.produce(ottla_broker.bootstrap, MESSAGES, client.idempotence)

    assert all(outcome.error is None and outcome.offset >= 0 for outcome in outcomes)
    placed = {(o.partition, o.offset): (m.key, m.value, m.headers) for o, m in zip(outcomes, MESSAGES, strict=True)}
    for reader in CLIENTS:
        seen = reader.consume(ottla_broker.bootstrap, "t")
        assert {(r.partition, r.offset): (r.key, r.value, r.headers) for r in seen} == placed, reader
        assert 1_700_000_000_000 in {r.timestamp for r in seen if r.key == b"key"}
    without_headers = {place: (key, value) for place, (key, value, _) in placed.items()}
    read_by_kcat = kcat_consume(ottla_broker.bootstrap, "t")
    assert {(r.partition, r.offset): (r.key, r.value) for r in read_by_kcat} == without_headers


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_each_compression_of_each_client_is_stored_and_read_back(
    ottla_broker: Broker, client: Client, compression: str
) -> None:
    messages = [Message("t", b"%d" % i, b"the same words again and again" * 20, partition=0) for i in range(300)]
    outcomes = client.produce(ottla_broker.bootstrap, messages, {"compression.type": compression, **client.idempotence})
    assert [outcome.offset for outcome in outcomes] == list(range(300))
    size = sum(path.stat().st_size for path in ottla_broker.data.glob("t-0/*.log"))
    assert size < 300 * 600 / 4, "stored as it came: compressed"
    assert [(r.key, r.value) for r in LIBRDKAFKA.consume(ottla_broker.bootstrap, "t")] == [
        (m.key, m.value) for m in messages
    ]
