"""The client over real sockets against brokerlite, in each supported loop."""

import math
import socket
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ottla
from ottla import OAuthBearer, Token
from ottla.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    Closed,
    ConfigurationError,
    DeliveryFailed,
    DeliveryTimeout,
    EncodeError,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
    TimeoutExpired,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from ottla.sdk.options import parse_bootstrap
from ottla.testing import Broker
from tests.kafka import free_ports
from tests.patience import HUNG, longer_and_longer
from tests.sdk.loops import Loop

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_what_is_sent_comes_back_whole(loop: Loop, ottla_broker: Broker, compression: str) -> None:
    headers = (("trace", b"1"), ("trace", None), ("größe", b""))
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer(compression=compression) as producer:
            full = await producer.send("t", b"value", key=b"key", headers=headers, timestamp=1_700_000_000_000)
            null = await producer.send("t", None, key=None)
            empty = await producer.send("t", b"", key=b"")
        async with client.consumer("t") as consumer:
            records = await _take(loop, consumer, 3)
    assert (full.topic, full.partition, full.offset, full.timestamp) == ("t", 0, 0, 1_700_000_000_000)
    assert [r.offset for r in records] == [full.offset, null.offset, empty.offset] == [0, 1, 2]
    assert [(r.key, r.value) for r in records] == [(b"key", b"value"), (None, None), (b"", b"")]
    assert records[0].headers == headers and records[0].timestamp == 1_700_000_000_000


async def test_thousands_of_records_keep_their_order_per_key(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=4)
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer(batch_size=2000, compression="lz4") as producer:
            for i in range(3000):
                await producer.send_soon("t", b"%d" % i, key=b"k%d" % (i % 50))
        async with client.consumer("t") as consumer:
            records = await _take(loop, consumer, 3000)
    by_key: dict[bytes | None, list[int]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(int(record.value or b""))
    assert by_key == {b"k%d" % k: list(range(k, 3000, 50)) for k in range(50)}


async def test_a_time_an_end_and_an_offset_are_places_to_start(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for second in range(10):
            await producer.send("t", b"%d" % second, timestamp=1_700_000_000_000 + 1000 * second)
        at = datetime.fromtimestamp(1_700_000_004, UTC)
        places: dict[Any, int] = {"beginning": 0, "end": 10, at: 4, 7: 7}
        for where, offset in places.items():
            assert await client.offsets({("t", 0): where}) == {("t", 0): offset}
            async with client.consumer(assign={("t", 0): where}) as consumer:
                assert consumer.position("t", 0) == offset
                assert consumer.assignment == [("t", 0)]
        assert await client.offsets({("t", 0): datetime.fromtimestamp(1_800_000_000, UTC)}) == {("t", 0): -1}
        async with client.consumer("t", start=at) as consumer:
            assert [r.value for r in await _take(loop, consumer, 6)] == [b"4", b"5", b"6", b"7", b"8", b"9"]
            await consumer.seek({("t", 0): 2})
            assert (await _take(loop, consumer, 1))[0].value == b"2"


async def test_a_consumer_is_polled_with_a_deadline(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("polled")
    async with loop.connect(ottla_broker.bootstrap) as client, client.consumer("polled", start="beginning") as consumer:
        with loop.fail_after(HUNG):
            for timeout in (0, 0.01, 0.05):
                assert await consumer.poll(timeout) is None
            async with client.producer() as producer:
                for value in (b"1", b"2"):
                    await producer.send("polled", value)
                    batch = await consumer.poll(HUNG)
                    assert batch is not None and [each.value for each in batch] == [value]
            assert await consumer.poll(0) is None
            assert consumer.position("polled", 0) == 2
        for wrong in (-1, math.nan, math.inf, "1", None, True):
            with pytest.raises(ConfigurationError, match="timeout must be a number of seconds"):
                await consumer.poll(wrong)  # type: ignore[arg-type] # refused


async def test_a_consumer_waits_for_what_is_sent_later(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    got: list[ottla.Record] = []
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer() as producer,
        client.consumer("t", start="end") as consumer,
        loop.open_nursery() as nursery,
    ):

        async def read() -> None:
            got.extend(await _take(loop, consumer, 1))

        nursery.start_soon(read)
        await loop.wait_all_tasks_blocked(0.01)
        assert not got
        await producer.send("t", b"late")
    assert [r.value for r in got] == [b"late"]


async def test_topics_are_made_described_listed_and_removed(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        made = await client.create_topic("orders", partitions=3, configs={"max.message.bytes": "2000000"})
        assert [p.partition for p in made.partitions] == [0, 1, 2]
        described = await client.describe_topic("orders")
        assert described.partitions == made.partitions and described.topic_id == made.topic_id
        assert described.configs == {"max.message.bytes": "2000000"}
        assert await client.list_topics() == ["orders"]
        with pytest.raises(TopicAlreadyExists):
            await client.create_topic("orders")
        with pytest.raises(InvalidTopic):
            await client.create_topic("no spaces, please")
        await client.delete_topic("orders")
        assert await client.list_topics() == []
        with pytest.raises(UnknownTopicOrPartition, match="orders"):
            await client.delete_topic("orders")
        with pytest.raises(UnknownTopicOrPartition, match="orders"):
            await client.describe_topic("orders")


async def test_nobody_there_is_an_error_in_time_that_names_the_addresses(loop: Loop) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    for timeout in longer_and_longer(0.4):
        with loop.fail_after(HUNG), pytest.raises(BrokerUnreachable) as caught:
            async with loop.connect(",".join(addresses), connect_timeout=timeout):
                pass
        said = str(caught.value)
        assert f"within {timeout:g} s" in said
        if all(f"{each}: connection refused" in said for each in addresses):
            return
    pytest.fail(said)


async def test_somebody_who_never_answers_is_an_error_in_time(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with loop.fail_after(HUNG), pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
            async with loop.connect(f"127.0.0.1:{port}", connect_timeout=0.5):
                pass


async def test_a_token_is_fetched_later_where_the_system_allows_no_more_threads(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, 0

    def too_many(thread: threading.Thread) -> None:
        nonlocal refused
        io_thread = thread.name == "ottla" and hasattr(getattr(thread, "_target", None), "__self__")
        if refused < 2 and thread.name.startswith(("ottla", "Trio thread")) and not io_thread:
            refused += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", too_many)
    sasl = OAuthBearer(lambda: Token("opaque", time.time() + 60))
    # The broker refuses SASL, so a token was fetched.
    with loop.fail_after(HUNG), pytest.raises(AuthenticationFailed, match="the listener has no SASL"):
        async with loop.connect(ottla_broker.bootstrap, sasl=sasl):
            pass


async def test_one_address_that_works_is_enough(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect([f"127.0.0.1:{free_ports(1)[0]}", ottla_broker.bootstrap]) as client:
        assert await client.list_topics() == []


async def test_text_where_bytes_belong_is_refused_with_advice(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        with pytest.raises(EncodeError, match=r"the value is a str: encode it first, as in 'text'\.encode\(\)"):
            await producer.send("t", "text")  # type: ignore[arg-type] # on purpose
        with pytest.raises(EncodeError, match="the key is a str"):
            producer.send_nowait("t", b"", key="k")  # type: ignore[arg-type] # on purpose
        with pytest.raises(EncodeError, match="headers are pairs"):
            await producer.send_soon("t", b"", headers=[("h", "v")])  # type: ignore[list-item] # on purpose


async def test_a_record_larger_than_the_broker_takes_fails_alone(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("small", configs={"max.message.bytes": "1000"})
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        with pytest.raises(MessageTooLarge):
            await producer.send("small", bytes(5000))
        assert (await producer.send("small", b"fits")).offset == 0


async def test_an_unknown_topic_is_an_error_where_none_is_created(
    loop: Loop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from ottla.brokerlite.config import BrokerConfig, Sync

    broker = Broker(BrokerConfig(port=0, data=tmp_path_factory.mktemp("strict"), auto_create=False, sync=Sync.NEVER))
    try:
        async with loop.connect(broker.bootstrap, api_timeout=1.0) as client, client.producer() as producer:
            with pytest.raises(UnknownTopicOrPartition, match="topic 'nope'"):
                await producer.send("nope", b"")
            with pytest.raises(UnknownTopicOrPartition, match="topic 'nope'"):
                async with client.consumer("nope"):
                    pass
    finally:
        broker.stop()


async def test_a_partition_that_does_not_exist_is_named(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 7"):
            await producer.send("t", b"", partition=7)
        with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1, not 7"):
            await client.offsets({("t", 7): "end"})


async def test_a_position_outside_the_log_is_an_error_or_reset_as_told(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as producer:
            await producer.send("t", b"only")
        async with client.consumer(assign={("t", 0): 99}) as consumer:
            with pytest.raises(OffsetOutOfRange, match="t-0 at 99"):
                await _take(loop, consumer, 1)
        async with client.consumer(assign={("t", 0): 99}, reset="beginning") as consumer:
            assert (await _take(loop, consumer, 1))[0].value == b"only"


async def test_what_nobody_awaited_is_raised_at_the_end_of_the_block(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("small", configs={"max.message.bytes": "1000"})
    async with loop.connect(ottla_broker.bootstrap) as client:
        with pytest.raises(DeliveryFailed, match=r"1 record\(s\).*small-0"):
            async with client.producer() as producer:
                producer.send_nowait("small", bytes(5000))


@pytest.mark.usefixtures("long_goodbyes")
async def test_the_users_own_error_passes_unwrapped(loop: Loop, ottla_broker: Broker) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
            await producer.send_soon("t", b"on its way")
            raise KeyError("mine")
    async with loop.connect(ottla_broker.bootstrap) as client, client.consumer("t") as consumer:
        assert (await _take(loop, consumer, 1))[0].value == b"on its way"


async def test_a_broker_that_is_gone_ends_a_send_at_its_deadline(loop: Loop, ottla_broker: Broker) -> None:
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer() as patient,
        client.producer(delivery_timeout=1.0) as producer,
    ):
        await patient.send("t", b"1")  # now the client knows the leader
        ottla_broker.kill()
        # On a busy machine no attempt to connect again may have ended yet.
        why = r"t-0.*within 1 s.*(connection|closed by the broker)"
        with loop.fail_after(HUNG), pytest.raises(DeliveryTimeout, match=why):
            await producer.send("t", b"2")


async def test_the_producer_goes_on_where_the_broker_comes_back(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        await producer.send("t", b"1")
        await loop.in_thread(ottla_broker.kill)
        await producer.send_soon("t", b"2")
        await loop.in_thread(ottla_broker.start)
        with loop.fail_after(HUNG):
            assert (await producer.send("t", b"3")).offset == 2


async def test_cancelling_a_send_leaves_the_producer_whole(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(linger=0.05) as producer:
        await producer.send("t", b"first")  # now the topic is known, and a send accepts its record at once
        async with loop.open_nursery() as nursery:
            nursery.start_soon(producer.send, "t", b"cancelled")
            await loop.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        receipts = [await producer.send("t", b"%d" % i) for i in range(3)]
    assert [receipt.offset for receipt in receipts] == [2, 3, 4]


async def test_a_cancelled_read_loses_no_batch(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    seen: list[tuple[int, int]] = []
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for i in range(8):
            await producer.send("t", b"", partition=i % 2)
        async with client.consumer("t") as consumer:
            with loop.fail_after(HUNG):
                while len(seen) < 8:
                    with loop.move_on_after(0.05):
                        async for batch in consumer:
                            seen += [(batch.partition, record.offset) for record in batch]
                            time.sleep(0.06)  # the user's own work, after which the loop is cancelled
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(4)]


@pytest.mark.usefixtures("long_goodbyes")
async def test_what_a_left_producer_could_not_deliver_is_noted_on_the_error(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("small", configs={"max.message.bytes": "1000"})
    async with loop.connect(ottla_broker.bootstrap) as client:
        with pytest.raises(KeyError) as caught:
            async with client.producer() as producer:
                producer.send_nowait("small", bytes(5000))
                raise KeyError("mine")
    assert "1 record(s) were not delivered (small-0: 1)" in caught.value.__notes__[0]


@pytest.mark.usefixtures("long_goodbyes")
async def test_a_producer_that_is_cancelled_while_it_flushes_still_delivers(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        with loop.cancel_scope() as scope:
            async with client.producer(linger=0.5) as producer:
                producer.send_nowait("t", b"1")
                scope.cancel()
        assert await client.offsets({("t", 0): "end"}) == {("t", 0): 1}


async def test_consumers_leave_no_connections_behind(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        await producer.send("t", b"")
        for _ in range(10):
            async with client.consumer("t") as consumer:
                await anext(consumer)
        await client.list_topics()
        assert len(client._driver.core.connections._connections) <= 3


async def test_a_closed_client_says_so(loop: Loop, ottla_broker: Broker) -> None:
    client = loop.connect(ottla_broker.bootstrap)
    with pytest.raises(Closed, match="async with"):
        await client.list_topics()
    async with client:
        producer = client.producer()
    with pytest.raises(Closed):
        await producer.send("t", b"")


@pytest.mark.parametrize(
    "bad", ["", "host:port", "host:0", ",", "host:99999", "kafka://host:9092", "host 9092", "a:1 b:2", None, "5", ["5"]]
)
def test_a_bootstrap_that_is_no_address_is_refused_at_once(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="bootstrap"):
        ottla.connect(bad)


def test_a_number_is_no_address_not_even_among_others() -> None:
    for bad in ("9092", "a:1, 9092", ["a", "9092"]):
        with pytest.raises(ConfigurationError, match="bootstrap address '9092' is only a number, not host:port"):
            ottla.connect(bad)


@pytest.mark.parametrize("several", [["a:1", "b:2"], ("a:1", "b:2"), "a:1,b:2"])
def test_several_addresses_are_given_in_any_sequence(several: Any) -> None:
    assert parse_bootstrap(several) == [("a", 1), ("b", 2)]
    ottla.connect(several)


@pytest.mark.parametrize(
    ("method", "option", "value", "range"),
    [
        ("connect", "request_timeout", math.inf, "seconds from 0.001 to 2147483.647, not inf"),
        ("connect", "request_timeout", math.nan, "seconds from 0.001"),
        ("connect", "api_timeout", math.nan, "seconds from 0.001"),
        ("connect", "fetch_max_wait", math.inf, "seconds from 0 to"),
        ("connect", "metadata_max_age", 2**31 / 1000, "seconds from 0.001"),
        ("connect", "partition_max_bytes", 2**31, "bytes from 1 to 2147483647, not 2147483648"),
        ("connect", "max_request_size", 0, "bytes from 1"),
        ("producer", "buffer_memory", 10**30, "bytes from 1"),
        ("producer", "batch_size", 0, "bytes from 1"),
        ("producer", "linger", math.nan, "seconds from 0 to 2147483.647, not nan"),
        ("producer", "linger", math.inf, "seconds from 0"),
        ("producer", "delivery_timeout", math.inf, "seconds from 0.001"),
        ("consumer", "session_timeout", math.inf, "seconds from 0.001"),
        ("consumer", "session_timeout", math.nan, "seconds from 0.001"),
        ("consumer", "max_poll_interval", math.inf, "seconds from 0.001"),
        ("consumer", "auto_commit", 1e-12, "seconds from 0.001 to 2147483.647, not 1e-12"),
    ],
)
async def test_numbers_that_the_protocol_cannot_say_are_refused_with_their_bounds(
    loop: Loop, ottla_broker: Broker, method: str, option: str, value: float, range: str
) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=rf"^{option} must be a (whole )?number of {range}"):
        if method == "connect":
            loop.connect("b:1", **given)
        async with loop.connect(ottla_broker.bootstrap) as client:
            if method == "producer":
                client.producer(**given)
            client.consumer("t", group="g", **given)


def test_a_connection_that_nobody_needs_may_stay_forever() -> None:
    ottla.connect("b:1", connections_max_idle=math.inf)


async def test_a_batch_cannot_linger_until_it_is_late(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap, delivery_timeout=5.0) as client:
        for linger, timeout in ((5.0, None), (2.0, 1.0)):
            with pytest.raises(ConfigurationError, match=r"linger must be below delivery_timeout, [51] s, not [52]"):
                client.producer(linger=linger, delivery_timeout=timeout)
        client.producer(linger=5.0, delivery_timeout=6.0)


async def test_options_that_make_no_sense_are_refused_with_what_would(loop: Loop, ottla_broker: Broker) -> None:
    with pytest.raises(ConfigurationError, match="request_timeout must be a number of seconds"):
        loop.connect("b:1", request_timeout=-1)
    async with loop.connect(ottla_broker.bootstrap) as client:
        with pytest.raises(ConfigurationError, match="'brotli' is not one of none, gzip, snappy, lz4, zstd"):
            client.producer(compression="brotli")
        with pytest.raises(ConfigurationError, match="partitioner 'md5' is not one of murmur2"):
            client.producer(partitioner="md5")
        with pytest.raises(ConfigurationError, match="acks='all'"):
            client.producer(acks=1, idempotent=True)
        with pytest.raises(ConfigurationError, match="topics, a pattern, or an assignment"):
            client.consumer()
        with pytest.raises(ConfigurationError, match=r"^2026-01-01 00:00:00 has no time zone"):
            client.consumer("t", start=datetime(2026, 1, 1))
        with pytest.raises(ConfigurationError, match="cannot be negative: -3600 s"):
            client.consumer("t", start=timedelta(hours=-1))


async def test_the_callers_mistakes_are_told_at_once(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer(partitioner=lambda key, count: count + 5) as producer:
            with pytest.raises(EncodeError, match="a topic's name must be a non-empty str, not b't'"):
                await producer.send(b"t", b"")  # type: ignore[arg-type] # on purpose
            with pytest.raises(EncodeError, match="the partitioner chose 6, but 't' has partitions 0 to 0"):
                await producer.send("t", b"", key=b"k")
        with pytest.raises(ConfigurationError, match="named by strings"):
            client.consumer(["t"])  # type: ignore[arg-type] # on purpose


async def test_several_topics_are_read_at_once(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("a")
    ottla_broker.create_topic("b", partitions=2)
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for topic, partition in (("a", 0), ("b", 0), ("b", 1)):
            await producer.send(topic, b"x", partition=partition)
        async with client.consumer("a", "b") as consumer:
            seen = Counter((batch.topic, batch.partition) for batch in [await anext(consumer) for _ in range(3)])
    assert seen == Counter({("a", 0): 1, ("b", 0): 1, ("b", 1): 1})


async def _take(loop: Loop, consumer: ottla.Consumer, count: int) -> list[ottla.Record]:
    """The next ``count`` records, of any partition."""
    records: list[ottla.Record] = []
    with loop.fail_after(HUNG):
        async for batch in consumer:
            records += batch
            if len(records) >= count:
                break
    return records[:count]


async def test_who_waits_in_vain_again_and_again_leaves_nothing_behind(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t", partitions=1)
        async with client.consumer("t") as consumer, client.producer() as producer:
            for _ in range(200):
                with loop.move_on_after(0.001):
                    await consumer.__anext__()
            machine = consumer._core
            outcomes = (machine._moved, machine._news, machine.fetcher._changes.news)
            assert max(len(each._callbacks) for each in outcomes) <= 2
            for number in range(20):
                await producer.send("t", b"%d" % number)
                assert [record.value for record in await consumer.__anext__()] == [b"%d" % number]
            assert (
                max(len(each._callbacks) for each in (machine._moved, machine._news, machine.fetcher._changes.news))
                <= 2
            )


async def test_a_call_that_only_waits_tells_at_its_deadline_what_for(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap, api_timeout=0.3) as client:
        await loop.in_thread(ottla_broker.kill)
        with pytest.raises(TimeoutExpired, match=rf"finding the leader of t-0: .* 0\.3 s; .*{ottla_broker.bootstrap}"):
            await client.leader("t", 0)


async def test_a_loop_over_small_batches_lets_other_tasks_run(loop: Loop, ottla_broker: Broker) -> None:
    ran = 0

    async def other() -> None:
        nonlocal ran
        while True:
            await loop.checkpoint()
            ran += 1

    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(linger=0.0) as producer:
        names = [f"t{number}" for number in range(50)]
        for name in names:
            ottla_broker.create_topic(name)
            await producer.send_soon(name, b"v")
        await producer.flush()
        async with client.consumer(*names) as consumer, loop.open_nursery() as nursery:
            nursery.start_soon(other)
            await loop.sleep(0.1)  # so that some records are fetched
            left, turns = set(names), []
            async for batch in consumer:
                left.discard(batch.topic)
                turns.append(ran)
                if not left:
                    break
                time.sleep(0.001)
            nursery.cancel_scope.cancel()
    assert len(set(turns)) > len(turns) // 4, "each batch took longer than another task should wait"


async def test_a_consumer_reads_also_where_no_thread_can_be_started_to_watch_its_loop(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "ottla watchdog":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with loop.fail_after(HUNG):
        async with loop.connect(ottla_broker.bootstrap) as client:
            async with client.producer() as producer:
                await producer.send("t", b"1")
            async with client.consumer("t", group="g", start="beginning") as consumer:
                assert [r.value for r in await _take(loop, consumer, 1)] == [b"1"]
    # On a busy machine ottla.sdk.connection warns about slow answers.
    warnings = [
        each.getMessage()
        for each in caplog.records
        if each.levelname == "WARNING" and each.name != "ottla.sdk.connection"
    ]
    assert all("can't start new thread" in each for each in warnings)


async def test_a_consumer_that_was_never_left_ends_with_its_client(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", 2)
    with loop.fail_after(HUNG):
        async with loop.connect(ottla_broker.bootstrap) as client:
            consumer = client.consumer("t", group="g", auto_commit=1.0)
            await consumer.__aenter__()
            with loop.move_on_after(0.3):
                await anext(consumer)
        with pytest.raises(Closed):
            await anext(consumer)
    watching = [each for each in threading.enumerate() if each.name == "ottla watchdog"]
    for each in watching:
        await loop.in_thread(each.join, 20)
    assert not any(each.is_alive() for each in watching)
