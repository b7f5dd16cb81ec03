"""Kafka's configuration names: each is supported, or refused with a reason."""

import inspect
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.errors import ConfigurationError
from ottla.sdk.client import Client
from ottla.sdk.kafka_config import from_kafka_config
from ottla.sdk.kafka_meanings import MEANINGS, SAME, UNITED, To, meaning
from ottla.sdk.kafka_security import is_security
from ottla.sdk.produce.partitioners import CHOOSERS, KEYED
from ottla.testing import Broker
from tests.kafka import java
from tests.patience import HUNG
from tests.sdk.loops import Loop


async def test_a_client_is_made_of_kafkas_names(loop: Loop, ottla_broker: Broker) -> None:
    config = from_kafka_config(
        {
            "bootstrap.servers": ottla_broker.bootstrap,
            "client.id": "me",
            "linger.ms": "0",
            "acks": "-1",
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
    )
    async with loop.connect(**config) as client:
        async with client.producer(**config.producer) as producer:
            await producer.send("t", b"1")
        async with client.consumer("t", **config.consumer) as consumer:
            async for batch in consumer:
                assert [record.value for record in batch] == [b"1"]
                break


async def test_a_share_consumer_is_made_of_kafkas_names(loop: Loop, ottla_broker: Broker) -> None:
    config = from_kafka_config(
        {
            "bootstrap.servers": ottla_broker.bootstrap,
            "group.id": "workers",
            "share.acknowledgement.mode": "implicit",
            "share.acquire.mode": "batch_optimized",
            "max.poll.records": "7",
        }
    )
    ottla_broker.create_topic("t", partitions=1)
    async with loop.connect(**config) as client:
        await client.reset_share_offsets("workers", "beginning", topics=["t"], execute=True)
        async with client.producer() as producer:
            await producer.send("t", b"1")
        with loop.fail_after(HUNG):
            async with client.share_consumer("t", **config.share_consumer) as jobs:
                async for record in jobs:
                    assert record.value == b"1"
                    break
                assert await jobs.poll(0.1) is None  # this accepts the record
            assert (await client.share_offsets("workers"))["t", 0].lag == 0


def test_a_share_consumer_has_its_own_options_and_those_of_consumers_that_it_knows() -> None:
    made = from_kafka_config(
        {
            "group.id": "g",
            "max.poll.records": 5,
            "max.poll.interval.ms": 60000,
            "session.timeout.ms": 20000,
            "isolation.level": "read_committed",
            "share.acknowledgement.mode": "EXPLICIT",
        }
    )
    common = {"group": "g", "max_records": 5, "max_poll_interval": 60.0}
    assert made.share_consumer == common | {"acknowledge": "explicit"} == made.part("share_consumer")
    assert made.consumer == common | {"session_timeout": 20.0, "isolation": "read_committed"}


async def test_what_may_be_zero_works_so(loop: Loop, ottla_broker: Broker) -> None:
    zero = ("fetch.max.wait.ms", "fetch.max.bytes", "max.partition.fetch.bytes", "message.timeout.ms", "batch.size")
    config = from_kafka_config(dict.fromkeys(zero, 0))
    ottla_broker.create_topic("t", partitions=2)
    async with loop.connect(ottla_broker.bootstrap, **config) as client, client.consumer("t") as consumer:
        async with client.producer(**config.producer) as producer:
            for number in range(10):
                await producer.send_soon("t", b"%d" % number, partition=number % 2)
        values: list[bytes | None] = []
        batches = 0
        with loop.fail_after(HUNG):
            while len(values) < 10:
                values += [record.value for record in await anext(consumer)]
                batches += 1
        assert sorted(values, key=str) == [b"%d" % number for number in range(10)] and batches == 10


@pytest.mark.parametrize(
    "given, client, producer, consumer",
    [
        ({"bootstrap.servers": ["a:1", "b:2"]}, {"bootstrap": "a:1,b:2"}, {}, {}),
        ({"metadata.broker.list": "PLAINTEXT://a:1"}, {"bootstrap": "a:1"}, {}, {}),
        ({"request.timeout.ms": "15000"}, {"request_timeout": 15.0}, {}, {}),
        ({"socket.connection.setup.timeout.ms": 500}, {"connect_timeout": 0.5}, {}, {}),
        ({"connections.max.idle.ms": -1}, {"connections_max_idle": math.inf}, {}, {}),
        ({"topic.metadata.refresh.interval.ms": -1}, {"metadata_max_age": (2**31 - 1) / 1000}, {}, {}),
        ({"queued.max.messages.kbytes": 1024}, {"fetch_buffer_bytes": 2**20}, {}, {}),
        ({"acks": "all", "request.required.acks": -1}, {}, {"acks": "all"}, {}),
        (
            {"compression.codec": "gzip", "compression.level": -1},
            {},
            {"compression": "gzip", "compression_level": None},
            {},
        ),
        (
            {"heartbeat.interval.ms": 60000, "session.timeout.ms": 90000},
            {},
            {},
            {"heartbeat_interval": 60.0, "session_timeout": 90.0},
        ),
        ({"security.protocol": "plaintext"}, {}, {}, {}),
        ({"enable.partition.eof": False, "enable.auto.offset.store": True}, {}, {}, {}),
        ({"acks": "all"}, {}, {"acks": "all"}, {}),
        ({"acks": -1}, {}, {"acks": "all"}, {}),
        ({"request.required.acks": "1"}, {}, {"acks": 1}, {}),
        ({"enable.idempotence": "True"}, {}, {"idempotent": True}, {}),
        ({"queue.buffering.max.ms": "0.5"}, {}, {"linger": 0.0005}, {}),
        ({"queue.buffering.max.kbytes": 1024}, {}, {"buffer_memory": 2**20}, {}),
        (
            {"compression.type": "zstd", "compression.zstd.level": 7, "compression.lz4.level": 1},
            {},
            {"compression": "zstd", "compression_level": 7},
            {},
        ),
        ({"partitioner": "consistent_random"}, {}, {"partitioner": "consistent_random"}, {}),
        ({"partitioner.class": "org.x.RoundRobinPartitioner"}, {}, {"partitioner": "round_robin"}, {}),
        ({"delivery.timeout.ms": 60000}, {"delivery_timeout": 60.0}, {}, {}),
        ({"enable.auto.commit": "true"}, {}, {}, {"auto_commit": 5.0}),
        ({"enable.auto.commit": True, "auto.commit.interval.ms": 100}, {}, {}, {"auto_commit": 0.1}),
        ({"enable.auto.commit": False, "auto.commit.interval.ms": 100}, {}, {}, {}),
        ({"auto.offset.reset": "latest"}, {}, {}, {"start": "end", "reset": "end"}),
        ({"auto.offset.reset": "none"}, {}, {}, {"start": "error", "reset": "error"}),
        (
            {"auto.offset.reset": "by_duration:P1DT6H"},
            {},
            {},
            {"start": timedelta(hours=30), "reset": timedelta(hours=30)},
        ),
        ({"isolation.level": "read_committed"}, {}, {}, {"isolation": "read_committed"}),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor,range"},
            {},
            {},
            {"assignors": ("cooperative-sticky", "range")},
        ),
        ({"fetch.message.max.bytes": "1000"}, {"partition_max_bytes": 1000}, {}, {}),
        ({"fetch.max.wait.ms": 0}, {"fetch_max_wait": 0.0}, {}, {}),
        (
            {"fetch.max.bytes": 0, "max.partition.fetch.bytes": "0"},
            {"fetch_max_bytes": 1, "partition_max_bytes": 1},
            {},
            {},
        ),
        ({"batch.size": 0}, {}, {"batch_size": 1}, {}),
        ({"message.timeout.ms": "0"}, {"delivery_timeout": (2**31 - 1) / 1000}, {}, {}),
        (
            {"transactional.id": "t-1", "transaction.timeout.ms": "10000"},
            {},
            {"transactional_id": "t-1", "transaction_timeout": 10.0},
            {},
        ),
    ],
)
def test_names_become_arguments_with_our_units(
    given: Mapping[str, Any], client: dict[str, Any], producer: dict[str, Any], consumer: dict[str, Any]
) -> None:
    made = from_kafka_config(given)
    assert (dict(made), made.producer, made.consumer) == (client, producer, consumer)


@pytest.mark.parametrize(
    "given, says",
    [
        ({"bootstrap.server": "a"}, "'bootstrap.server' is not a name that .* did you mean 'bootstrap.servers'?"),
        ({"bootstrap_servers": "a"}, "did you mean 'bootstrap.servers'?"),
        ({"max.poll.interval": 1}, "did you mean 'max.poll.interval.ms'?"),
        ({"zzz.y": 1}, "'zzz.y' is not a name that Kafka's clients know; .*ignore=\\('zzz.y',\\)"),
        ({"key.deserializer": "x.StringDeserializer"}, "'key.deserializer' has no meaning here: .*bytes"),
        ({"transaction.two.phase.commit.enable": "true"}, "KIP-939"),
        ({"transactional.id": "t", "acks": "1"}, "transactions need acks='all'"),
        ({"linger.ms": "5 ms"}, "'linger.ms': '5 ms' is not a number of milliseconds"),
        ({"enable.idempotence": "maybe"}, "'enable.idempotence': 'maybe' is neither true nor false"),
        ({"auto.offset.reset": "nonne"}, "'nonne' is not one of earliest, latest, none, by_duration"),
        ({"auto.offset.reset": "by_duration:soon"}, "has no duration such as"),
        ({"auto.commit.interval.ms": 100}, "without enable.auto.commit=true"),
        ({"isolation.level": "dirty"}, "'isolation.level': 'dirty' is not one of read_uncommitted, read_committed"),
        ({"share.acquire.mode": "all"}, "'share.acquire.mode': 'all' is not one of record_limit, batch_optimized"),
        ({"linger.ms": "x", "zzz.y": 1}, "'linger.ms': .*; 'zzz.y' is not a name"),
        ({"compression.type": "brotli"}, r"'compression.type' \('brotli'\): .*none, gzip, snappy, lz4, zstd"),
        ({"acks": 7}, r"'acks' \(7\): acks must be 'all', 1 or 0"),
        ({"acks": 1, "enable.idempotence": "true"}, r"'acks' \(1\) and 'enable.idempotence' \('true'\): .*needs acks"),
        ({"linger.ms": -1}, r"'linger.ms' \(-1\): linger must be"),
        ({"linger.ms": "nan"}, "'linger.ms': 'nan' is not a number of milliseconds"),
        ({"request.timeout.ms": "inf"}, "'request.timeout.ms': 'inf' is not a number of milliseconds"),
        ({"batch.size": -1}, r"'batch.size' \(-1\): batch.size must be a whole number of bytes"),
        ({"buffer.memory": 0}, r"'buffer.memory' \(0\): buffer.memory must be a whole number of bytes"),
        (
            {"delivery.timeout.ms": -1},
            r"'delivery.timeout.ms' \(-1\): delivery.timeout.ms must be a number of milliseconds from 1 to 2147483647, "
            "not -1$",
        ),
        ({"retry.backoff.ms": 0}, "'retry.backoff.ms': 0 would mean .* without a pause: the minimum is 1"),
        ({"reconnect.backoff.max.ms": "0"}, "'reconnect.backoff.max.ms': 0 would mean .* without a pause"),
        ({"metadata.max.age.ms": 0}, "'metadata.max.age.ms': 0 would mean .* without a pause"),
        ({"default.api.timeout.ms": 0}, "'default.api.timeout.ms': 0 would leave no time for anything"),
        (
            {"enable.auto.commit": True, "auto.commit.interval.ms": 0},
            "'auto.commit.interval.ms': 0 means at every poll to Java and never to librdkafka",
        ),
        ({"metadata.max.age.ms": -1}, r"'metadata.max.age.ms' \(-1\): metadata.max.age.ms must be a number"),
        ({"connections.max.idle.ms": -2}, r"'connections.max.idle.ms' \(-2\)"),
        ({"heartbeat.interval.ms": 60000}, r"'heartbeat.interval.ms' \(60000\): .*below session.timeout.ms"),
        (
            {"session.timeout.ms": 1000},
            r"'session.timeout.ms' \(1000\): .*\(heartbeat.interval.ms is 3000 by default\)$",
        ),
        (
            {"linger.ms": 200_000},
            r"'linger.ms' \(200000\): linger must be below delivery.timeout.ms, 120000 ms, not 200000 ms",
        ),
        (
            {"reconnect.backoff.ms": 5000, "reconnect.backoff.max.ms": 2000},
            r"\(2000\): reconnect.backoff.ms must be at most reconnect.backoff.max.ms, 2000 ms, not 5000 ms: lower",
        ),
        (
            {"retry.backoff.max.ms": 10},
            r"retry.backoff.ms must be at most retry.backoff.max.ms, 10 ms, .* \(retry.backoff.ms is 100 by default\)$",
        ),
        ({"bootstrap.servers": 5}, "'bootstrap.servers': 5 is neither host:port nor a list of them"),
        (
            {"bootstrap.servers": "5"},
            r"'bootstrap.servers' \('5'\): bootstrap address '5' is only a number, not host:port",
        ),
        ({"bootstrap.servers": ["a", 5]}, "is neither host:port nor a list of them"),
        (
            {"compression.type": "zstd", "compression.zstd.level": 7, "compression.level": 1},
            "'compression.level' and 'compression.zstd.level' have the same meaning here, so they cannot differ",
        ),
        ({"bootstrap.servers": "a:b"}, r"'bootstrap.servers' \('a:b'\): bootstrap address 'a:b'"),
        (
            {"linger.ms": 5, "queue.buffering.max.ms": 7},
            r"'linger.ms' \(5\) and 'queue.buffering.max.ms' \(7\) have the same meaning",
        ),
        ({"auto.offset.reset": "by_duration:P99999999999999D"}, "is not a valid duration"),
        ({"error_cb": print}, "'error_cb' has no meaning here: errors are raised"),
        ({"ssl_ca": b""}, "'ssl_ca' has no meaning here: use tls="),
        (
            {
                "acks": 7,
                "linger.ms": -1,
                "session.timeout.ms": 60000,
                "max.poll.interval.ms": 0,
                "request.timeout.ms": 0,
            },
            "^'request.timeout.ms'[^;]*; 'acks' [^;]*; 'linger.ms' [^;]*; 'max.poll.interval.ms' [^;]*$",
        ),
    ],
)
def test_what_cannot_be_understood_is_refused_with_the_reason_all_at_once(given: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        from_kafka_config(given)


def test_a_lenient_reading_leaves_out_what_nobody_would_miss_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    shared = {
        "bootstrap.servers": "b:1",
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "metric.reporters": "",
        "socket.keepalive.enable": True,
        "ssl.truststore.location": "/etc/trust.jks",
        "max.in.flight.requests.per.connection": 1,
        "retries": 2147483647,
        "fetch.queue.backoff.ms": 100,
        "broker.address.family": "v4",
    }
    with pytest.raises(ConfigurationError, match=r"'key.serializer' has no meaning here.*lenient=True"):
        from_kafka_config(shared)
    config = from_kafka_config(shared, lenient=True)
    assert config == {"bootstrap": "b:1"}
    assert sorted(config.left_out) == sorted(set(shared) - {"bootstrap.servers", "retries"})
    [line] = [each.getMessage() for each in caplog.records]
    assert all(name in line for name in config.left_out)
    caplog.clear()
    assert from_kafka_config({"bootstrap.servers": "b:1"}, lenient=True).left_out == {} and not caplog.records


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interceptor.classes", "org.example.Audit"),
        ("group.protocol.type", "connect"),
        ("retries", "0"),
        ("max.block.ms", 60000),
        ("error_cb", print),
        ("on_delivery", print),
        ("value.serializer", str),
        ("enable.auto.offset.store", "false"),
        ("config.providers", "vault"),
        ("metric.reportes", "a typo"),
        ("linger.ms", "soon"),
    ],
)
def test_a_lenient_reading_refuses_what_a_program_may_rely_on(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(name)):
        from_kafka_config({"bootstrap.servers": "b:1", name: value}, lenient=True)


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        (
            {"compression.type": "ZSTD", "compression.gzip.level": 3, "compression.zstd.level": 7},
            {"compression.gzip.level": "compression.type is zstd"},
        ),
        ({"compression.gzip.level": 3}, {"compression.gzip.level": "compression.type is none"}),
        ({"compression.level": 3}, {"compression.level": "compression.type is none"}),
        ({"compression.type": "none", "compression.level": -1}, {}),
        (
            {"enable.auto.commit": False, "auto.commit.interval.ms": 100},
            {"auto.commit.interval.ms": "enable.auto.commit is false"},
        ),
    ],
)
def test_what_another_name_makes_idle_is_left_out_and_told(
    given: Mapping[str, Any], left_out: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert from_kafka_config(given).left_out == left_out
    assert len(caplog.records) == bool(left_out)


def test_repetitions_that_time_bounds_are_not_counted() -> None:
    assert from_kafka_config({"retries": 5}, lenient=True).left_out.keys() == {"retries"}


def test_names_of_other_programs_are_ignored_where_they_are_named() -> None:
    shared = {"linger.ms": 5, "schema.registry.url": "http://r:8081", "max.block.ms": 60000}
    config = from_kafka_config(shared, ignore=("schema.registry.url", "max.block.ms", "not.there"))
    assert config.producer == {"linger": 0.005}
    assert config.left_out.keys() == {"schema.registry.url", "max.block.ms"}


def test_what_is_no_configuration_is_refused() -> None:
    config: Any = None
    with pytest.raises(ConfigurationError, match=r"^config must be a mapping of names to values, not None$"):
        from_kafka_config(config)
    config = "x"
    with pytest.raises(ConfigurationError, match=r"name must be one of 'client', .*'share_consumer', not 'x'"):
        from_kafka_config({}).part(config)


def test_a_variable_that_is_not_set_names_no_group() -> None:
    with pytest.raises(ConfigurationError, match=r"'group.id' is None"):
        from_kafka_config({"group.id": None})


@pytest.mark.parametrize("name", ["reconnect", "retry"])
def test_a_pause_that_begins_above_the_usual_maximum_stays_as_it_is(name: str) -> None:
    client = ottla.connect("b:1", **from_kafka_config({f"{name}.backoff.ms": 5000}))
    options = client._options
    pauses = options.reconnect_backoff_max, options.retry_backoff_max
    assert pauses == ((5.0, 1.0) if name == "reconnect" else (1.0, 5.0))
    with pytest.raises(ConfigurationError, match=f"{name}_backoff must be at most {name}_backoff_max, 1 s, not 5 s"):
        ottla.connect("b:1", **{f"{name}_backoff": 5.0, f"{name}_backoff_max": 1.0})  # type: ignore[arg-type]


def test_every_name_leads_to_an_argument_that_there_is() -> None:
    known = {
        "client": inspect.signature(ottla.connect).parameters,
        "producer": inspect.signature(Client.producer).parameters,
        "consumer": inspect.signature(Client.consumer).parameters,
        "share_consumer": inspect.signature(Client.share_consumer).parameters,
    }
    for name, each in MEANINGS.items():
        if isinstance(each, To):
            assert UNITED.get(each.option, each.option) in known[each.part], name


@pytest.mark.parametrize("name", ["consistent", "consistent_random", "fnv1a_random", "murmur2_random", "random"])
def test_a_partitioner_of_librdkafkas_is_one_of_ours(name: str) -> None:
    [chosen] = from_kafka_config({"partitioner": name}).producer.values()
    assert chosen in KEYED | CHOOSERS


def test_other_names_stand_for_known_ones() -> None:
    assert all(each in MEANINGS and other not in MEANINGS for other, each in SAME.items())


def test_no_name_of_librdkafkas_is_overlooked() -> None:
    package = Path(pytest.importorskip("confluent_kafka").__file__).parent
    libraries = [*package.parent.glob("confluent_kafka.libs/librdkafka*")]
    if not libraries:
        pytest.skip("librdkafka is not where Linux's wheels of confluent-kafka have it")
    code = (
        "import ctypes, sys; lib, libc = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None);"
        "libc.fdopen.restype = ctypes.c_void_p; out = ctypes.c_void_p(libc.fdopen(1, b'w'));"
        "lib.rd_kafka_conf_properties_show(out); libc.fflush(out)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, *map(str, libraries)], capture_output=True, text=True, check=True
    )
    names = re.findall(r"^([a-z_.]+) +\| +[*CP] ", shown.stdout, re.MULTILINE)
    assert len(names) > 100
    assert [name for name in names if meaning(name) is None and not is_security(name)] == []


@pytest.mark.slow
def test_no_name_of_kafkas_clients_is_overlooked() -> None:
    program = Path(__file__).parent / "java" / "Names.java"
    names = subprocess.run(java(str(program), log="off"), capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 100
    assert [name for name in names if meaning(name) is None and not is_security(name)] == []
