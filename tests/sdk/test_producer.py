"""A producer, over real sockets against brokerlite."""

import asyncio
import contextlib
import gc
import inspect
import json
import threading
import weakref
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import pytest

import ottla
from ottla.errors import (
    Closed,
    ConfigurationError,
    DeliveryFailed,
    DeliveryTimeout,
    EncodeError,
    InvalidTopic,
    LocalProtocolError,
    MessageTooLarge,
    OttlaError,
    RecordTooLarge,
)
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord, Receipt
from ottla.sdk.producer import Producer, ProducerHooks, ProducerInterceptor, ProducerRecord
from ottla.testing import Broker
from tests.patience import FAR, HUNG
from tests.sdk.loops import Loop, Trio


async def stored(loop: Loop, client: ottla.Client, topic: str, count: int) -> list[ottla.Record]:
    records: list[ottla.Record] = []
    with loop.fail_after(HUNG):
        async with client.consumer(topic) as consumer:
            async for batch in consumer:
                records += batch
                if len(records) >= count:
                    return records
    raise AssertionError


@contextlib.contextmanager
def hung(broker: Broker) -> Iterator[None]:
    """The broker answers nothing meanwhile: its thread waits."""
    hangs, over = threading.Event(), threading.Event()

    def hang(running: object) -> None:
        hangs.set()
        over.wait(HUNG)

    thread = threading.Thread(target=broker._call, args=(hang,))
    thread.start()
    try:
        assert hangs.wait(HUNG)
        yield
    finally:
        over.set()
        thread.join()


def requests_sent(client: ottla.Client, loop: Loop) -> float:
    return client._driver.core.metrics.value("request-total", loop.current_time())


async def test_a_record_after_a_lull_is_sent_when_the_call_returns(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(linger=0) as producer:
        await producer.send("t", b"first")
        await loop.sleep(0.01)
        before = requests_sent(client, loop)
        await producer.send_soon("t", b"after a lull")
        assert requests_sent(client, loop) == before + 1


async def test_serializers_turn_what_is_sent_into_bytes(loop: Loop, ottla_broker: Broker) -> None:
    def as_json(value: dict[str, int]) -> bytes:
        return json.dumps(value).encode()

    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(key_serializer=str.encode, value_serializer=as_json) as producer,
    ):
        await producer.send("t", {"n": 1}, key="ä")
        await producer.send_soon("t", None, key="gone")
        await producer.send_many("t", [{"n": 2}, {"n": 3}], keys=["a", None])
        await producer.flush()
        records = await stored(loop, client, "t", 4)
        with pytest.raises(TypeError):  # the serializer's own error arrives unchanged
            await producer.send("t", {"n": object()})  # type: ignore[dict-item] # on purpose
    assert [(r.key, r.value) for r in records] == [
        ("ä".encode(), b'{"n": 1}'),
        (b"gone", None),
        (b"a", b'{"n": 2}'),
        (None, b'{"n": 3}'),
    ]


async def test_a_timestamp_is_milliseconds_or_a_time_with_a_zone(loop: Loop, ottla_broker: Broker) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        receipts = [await producer.send("t", b"", timestamp=each) for each in (at, 1_767_323_045_678, None)]
        with pytest.raises(EncodeError, match="has no time zone"):
            await producer.send("t", b"", timestamp=datetime(2026, 1, 1))
    assert receipts[0].timestamp == receipts[1].timestamp == 1_767_323_045_678
    assert abs(receipts[2].timestamp - datetime.now(UTC).timestamp() * 1000) < 60_000


async def test_many_records_go_in_one_call_in_order(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=3)
    told: list[Any] = []
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(batch_size=2000) as producer:
        await producer.send_many("t", (b"%d" % i for i in range(5000)), on_delivery=told.append)
        await producer.send_many("t", [b"x"] * 100, keys=[b"k%d" % i for i in range(100)])
        with pytest.raises(ValueError, match="zip"):
            await producer.send_many("t", iter([b"1", b"2"]), keys=[b"k"])
        await producer.flush()
        ends = await client.offsets({("t", partition): "end" for partition in range(3)})
    assert len(told) == 5000 and all(isinstance(each, Receipt) for each in told)
    assert sum(ends.values()) == 5101


async def test_on_delivery_is_told_and_then_nothing_is_raised(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("small", configs={"max.message.bytes": "1000"})
    told: list[Any] = []
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        producer.send_nowait("small", bytes(5000), on_delivery=told.append)
        await producer.send_soon("small", b"fits", on_delivery=told.append)
        await producer.flush()
    assert isinstance(told[0], MessageTooLarge) and told[1].offset == 0


async def test_what_on_delivery_raises_is_raised_by_the_next_call(loop: Loop, ottla_broker: Broker) -> None:
    def broken(result: Receipt | OttlaError) -> None:
        raise KeyError("mine")

    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as producer:
            await producer.send_soon("t", b"1", on_delivery=broken)
            with pytest.raises(KeyError, match="mine"):
                await producer.flush()
            assert (await producer.send("t", b"2")).offset == 1
        with pytest.raises(KeyError, match="mine"):
            async with client.producer() as producer:
                await producer.send_soon("t", b"3", on_delivery=broken)


class Counting(ProducerInterceptor):
    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.heard: list[tuple[bytes | None, object]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return replace(record, headers=(*record.headers, ("seen", b"1")))

    def on_acknowledgement(self, record: ProducerRecord, result: Receipt | OttlaError) -> None:
        self.heard.append((record.value, type(result)))


class Broken(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise KeyError("on_send")

    def on_acknowledgement(self, record: ProducerRecord, result: Receipt | OttlaError) -> None:
        raise KeyError("on_acknowledgement")


async def test_interceptors_change_records_and_hear_of_them_and_one_that_raises_is_only_logged(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    ottla_broker.create_topic("small", configs={"max.message.bytes": "1000"})
    counting = Counting()
    async with loop.connect(ottla_broker.bootstrap) as client:
        with pytest.raises(DeliveryFailed, match=r"1 record\(s\)"):  # an interceptor does not replace it
            async with client.producer(interceptors=[Broken(), counting, Broken()]) as producer:
                receipt = await producer.send("small", b"one", headers=[("mine", None)])
                with pytest.raises(EncodeError):
                    await producer.send("small", "text")  # type: ignore[arg-type] # on purpose
                await producer.send_soon("small", bytes(5000))
        [record] = await stored(loop, client, "small", 1)
    assert receipt.offset == 0 and record.headers == (("mine", None), ("seen", b"1"))
    assert counting.heard == [(b"one", Receipt), ("text", EncodeError), (bytes(5000), MessageTooLarge)]
    raised = [each.message for each in caplog.records if "interceptor" in each.message]
    assert len(raised) == 12


async def test_who_waits_for_room_and_is_cancelled_sends_nothing(loop: Loop, ottla_broker: Broker) -> None:
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(buffer_memory=1000, linger=0.3) as producer,
    ):
        await producer.send_soon("t", bytes(700))
        with loop.cancel_scope() as scope:
            scope.cancel()
            await producer.send_soon("t", b"cancelled" * 50)
        assert scope.cancelled_caught
        with loop.fail_after(HUNG):
            await producer.send_soon("t", bytes(700))  # waits until the first record is stored
        await producer.flush()
        records = await stored(loop, client, "t", 2)
    assert [len(record.value or b"") for record in records] == [700, 700]


@pytest.mark.parametrize("intercepted", [False, True])
async def test_what_a_cancelled_send_had_accepted_and_then_failed_is_raised_by_the_next_call(
    loop: Loop, ottla_broker: Broker, intercepted: bool
) -> None:
    ottla_broker.create_topic("small", configs={"max.message.bytes": "1000"})
    interceptors = [Counting()] if intercepted else []
    async with loop.connect(ottla_broker.bootstrap) as client:
        with loop.fail_after(HUNG), pytest.raises(DeliveryFailed, match=r"1 record\(s\).*small-0"):
            async with client.producer(linger=HUNG, delivery_timeout=FAR, interceptors=interceptors) as producer:
                await producer.send_soon("small", b"fits")
                await producer.flush()  # now the topic is known, and a send accepts its record at once
                with hung(ottla_broker), loop.move_on_after(0.05) as scope:
                    await producer.send("small", bytes(5000))
                assert scope.cancelled_caught
                with pytest.raises(DeliveryFailed, match=r"1 record\(s\).*small-0"):
                    await producer.flush()
                with hung(ottla_broker), loop.move_on_after(0.05) as scope:  # the block's exit must raise this one, too
                    await producer.send("small", bytes(5000))
                assert scope.cancelled_caught


async def test_what_a_cancelled_send_lost_is_raised_though_its_batch_has_callbacks(
    loop: Loop, ottla_broker: Broker
) -> None:
    heard: list[Receipt | OttlaError] = []
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as patient:
            await patient.send("t", b"0", partition=0)  # now the client knows the leader
        producer = await client.producer(delivery_timeout=2.0, linger=0.2).__aenter__()
        await loop.in_thread(ottla_broker.kill)
        await producer.send_soon("t", b"1", partition=0, on_delivery=heard.append)
        with loop.move_on_after(0.05) as scope:
            await producer.send("t", b"2", partition=0)
        assert scope.cancelled_caught
        with loop.fail_after(HUNG), pytest.raises(DeliveryFailed, match=r"1 record\(s\)"):
            await producer.flush()
        assert [type(each) for each in heard] == [DeliveryTimeout]


async def test_a_flush_raises_what_a_cancelled_send_lost_while_it_waits(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as patient:
            await patient.send("t", b"0", partition=0)  # now the client knows the leader
        producer = await client.producer(delivery_timeout=2.0).__aenter__()
        await loop.in_thread(ottla_broker.kill)
        with loop.move_on_after(0.05) as scope:
            await producer.send("t", b"1", partition=0)
        assert scope.cancelled_caught
        with loop.fail_after(HUNG), pytest.raises(DeliveryFailed, match=r"1 record\(s\)"):
            await producer.flush()


async def test_a_send_that_is_cancelled_just_when_its_record_fails_loses_no_word_of_it(
    loop: Loop, ottla_broker: Broker
) -> None:
    class Hasty(ProducerInterceptor):
        def on_acknowledgement(self, record: ProducerRecord, result: Receipt | OttlaError) -> None:
            scope.cancel()

    async with loop.connect(ottla_broker.bootstrap) as client:
        producer = await client.producer(delivery_timeout=0.3, interceptors=[Hasty()]).__aenter__()
        await loop.in_thread(ottla_broker.kill)
        with loop.fail_after(HUNG):
            with loop.cancel_scope() as scope:
                await producer.send("t", b"1")
            assert scope.cancelled_caught
            with pytest.raises(DeliveryFailed):
                await producer.flush()
            await producer.aclose()


async def test_the_block_ends_within_the_delivery_timeout_and_says_what_was_lost(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        await client.create_topic("t")
        with loop.fail_after(HUNG), pytest.raises(DeliveryFailed, match=r"1 record\(s\).*t-0.*within 0.5 s"):
            async with client.producer() as patient, client.producer(delivery_timeout=0.5) as producer:
                await patient.send("t", b"1")  # now the client knows the leader
                await loop.in_thread(ottla_broker.kill)
                await producer.send_soon("t", b"2")


async def test_nobody_waits_for_room_longer_than_the_delivery_timeout(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        producer = await client.producer(delivery_timeout=2.0, buffer_memory=1000).__aenter__()
        await producer.send("t", b"1")
        await loop.in_thread(ottla_broker.kill)
        await producer.send_soon("t", bytes(800))
        await loop.sleep(0.4)
        with loop.fail_after(HUNG):
            await producer.send_soon("t", bytes(900))  # the first record fails, which frees its space
            with pytest.raises(DeliveryFailed):
                await producer.send_soon("t", b"")
            with pytest.raises(DeliveryTimeout):
                await producer.send("t", bytes(900))
            with contextlib.suppress(DeliveryFailed):  # if the record before the last has already failed
                await producer.aclose()
        with pytest.raises(Closed):
            await producer.send("t", b"")


async def test_text_is_refused_unless_a_serializer_takes_it(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        await producer.send_soon("t", b"opens a batch")
        for send in (producer.send_soon, producer.send_nowait):
            with pytest.raises(
                EncodeError, match=r"the value is a str: encode it first, as in 'text'\.encode\(\)"
            ) as caught:
                if awaitable := send("t", "text"):  # type: ignore[arg-type] # on purpose
                    await awaitable
            assert "value_serializer=str.encode" in caught.value.__notes__[0]


async def test_acks_0_and_1_are_served_in_order(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        for acks in (0, 1):
            async with client.producer(acks=acks, batch_size=100, linger=0) as producer:
                for i in range(50):
                    await producer.send_soon(f"t{acks}", b"%d" % i)
                last = await producer.send(f"t{acks}", b"last")
            records = await stored(loop, client, f"t{acks}", 51)
            assert [r.value for r in records] == [*(b"%d" % i for i in range(50)), b"last"]
            assert last.offset == (50 if acks else -1)


async def test_acks_0_loses_nothing_at_a_normal_end_and_keeps_to_its_memory(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        driver = client._driver

        def waits() -> int:
            """The bytes that the system has not accepted yet; a thread of the client changes them meanwhile."""
            return sum(len(part) for link in driver._links.values() for part in link.outbox)

        async with client.producer(acks=0, buffer_memory=2**20) as producer:
            for _ in range(200):
                await producer.send_soon("t", bytes(100_000))
                assert driver.do(waits) < 2 * 2**20
            await producer.flush()
        assert len(await stored(loop, client, "t", 200)) == 200


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compression": {"a": "zstd", "b": "brotli"}}, "'brotli' is not one of none, gzip"),
        ({"compression": {"a": ("gzip", 99)}}, "gzip has levels 0 to 9, not 99"),
        ({"compression": "snappy", "compression_level": 3}, "snappy has no levels"),
        ({"compression_level": 3}, "needs a compression, as in compression='zstd'"),
        ({"partitioner": "md5"}, "'md5' is not one of murmur2"),
        ({"delivery_timeout": 0}, "delivery_timeout must be a number of seconds from 0.001 to"),
        ({"linger": -1}, "linger must be a number of seconds from 0 to"),
        ({"acks": 1, "idempotent": True}, "acks='all'"),
        ({"acks": 2}, "acks must be 'all', 1 or 0"),
    ],
)
async def test_options_that_make_no_sense_are_refused_with_what_would(
    loop: Loop, ottla_broker: Broker, options: dict[str, Any], says: str
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        with pytest.raises(ConfigurationError, match=says):
            client.producer(**options)


async def test_topics_have_compressions_of_their_own(loop: Loop, ottla_broker: Broker) -> None:
    compression: dict[str, str | tuple[str, int]] = {"a": "zstd", "b": ("gzip", 9), "*": "lz4"}
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(compression=compression) as producer:
        for topic in ("a", "b", "c"):
            await producer.send(topic, bytes(1000))
        for topic in ("a", "b", "c"):
            assert (await stored(loop, client, topic, 1))[0].value == bytes(1000)
        rate = client.metrics()
    assert any(each.name == "compression-rate-avg" and each.value < 0.2 for each in rate)


async def test_a_record_over_the_request_size_is_refused_whichever_way_it_is_sent(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap, max_request_size=10_000) as client, client.producer() as producer:
        await producer.send_soon("t", b"opens a batch")
        with pytest.raises(RecordTooLarge, match="max_request_size is 10000"):
            producer.send_nowait("t", bytes(20_000))
        with pytest.raises(RecordTooLarge):
            await producer.send_many("t", [b"fine", bytes(20_000)])


async def test_a_loop_that_sends_lets_other_tasks_run(loop: Loop, ottla_broker: Broker) -> None:
    ran, tries = 0, 1 if inspect.iscoroutinefunction(loop.checkpoint) else 20  # the OS schedules threads

    async def other() -> None:
        nonlocal ran
        while True:
            await loop.checkpoint()
            ran += 1

    def values() -> Iterator[bytes]:
        for _ in range(100_000):
            yield b"v"

    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer() as producer,
        loop.open_nursery() as nursery,
    ):
        nursery.start_soon(other)
        for _ in range(tries):
            for value in values():
                await producer.send_soon("t", value)
            if ran > 3:
                break
        assert ran > 3
        before = ran
        for _ in range(tries):
            await producer.send_many("t", values())
            if ran > before:
                break
        assert ran > before
        nursery.cancel_scope.cancel()


async def test_a_producer_that_was_not_opened_says_so_rather_than_lose_what_it_is_given(
    loop: Loop, ottla_broker: Broker
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        producer = client.producer()
        for attempt in (producer.send, producer.send_soon):
            with pytest.raises(Closed, match="async with"):
                await attempt("t", b"1")
        with pytest.raises(Closed, match="async with"):
            producer.send_nowait("t", b"1")


async def test_a_client_left_before_its_producer_says_that_records_are_given_up(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        producer = await client.producer(linger=60.0).__aenter__()
        await producer.send_soon("t", b"1")
        await producer.send_soon("t", b"2")
    assert "records abandoned: the client was closed before its producer (records=2)" in caplog.text


@pytest.mark.parametrize("name", ["a\ud800", "a" * 250])
async def test_a_topic_that_no_request_can_name_is_refused_at_once(loop: Loop, ottla_broker: Broker, name: str) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        with pytest.raises(InvalidTopic, match=r"cannot be encoded|250 characters"):
            async with client.producer() as producer:
                with pytest.raises(InvalidTopic):
                    await producer.send(name, b"")
                with pytest.raises(DeliveryFailed) as failed:
                    await producer.send_soon(name, b"")
                    await producer.flush()
                raise failed.value.__cause__ or failed.value
        with pytest.raises(InvalidTopic):
            await client.consumer(name).__aenter__()


@pytest.mark.parametrize("headers", [None, {}, "", 0, {"a": b"b"}])
async def test_headers_that_are_none_are_refused_whether_a_batch_is_open_or_not(
    loop: Loop, ottla_broker: Broker, headers: Any
) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(linger=60.0) as producer:
        for _ in range(2):
            with pytest.raises(EncodeError, match="headers are a list or tuple"):
                await producer.send_soon("t", b"", headers=headers)
            await producer.send_soon("t", b"", headers=[])  # opens a batch


@pytest.mark.parametrize("partition", [0.0, "0", True])
async def test_a_partition_is_an_int(loop: Loop, ottla_broker: Broker, partition: Any) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        with pytest.raises(EncodeError, match=f"a partition must be an int, not {partition!r}"):
            await producer.send("t", b"", partition=partition)


@pytest.mark.parametrize("chosen", ["x", 7, None, 0.5])
async def test_a_partitioner_that_chooses_what_there_is_not_is_at_fault(
    loop: Loop, ottla_broker: Broker, chosen: Any
) -> None:
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(partitioner=lambda key, partitions: chosen) as producer,
    ):
        with pytest.raises(EncodeError, match="the partitioner"):
            await producer.send("t", b"", key=b"k")


async def test_an_interceptor_that_forgets_to_return_changes_nothing(
    loop: Loop, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgetful(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return None  # type: ignore[return-value] # on purpose

    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(interceptors=[Forgetful()]) as producer,
    ):
        assert (await producer.send("t", b"1")).offset == 0
    assert "Forgetful.on_send returned None, which is not a ProducerRecord" in caplog.text


async def test_callbacks_are_not_kept_and_each_kind_is_looked_at(loop: Loop, ottla_broker: Broker) -> None:
    class Big:
        def told(self, result: object) -> None: ...

    async def later(result: object) -> None: ...

    async with loop.connect(ottla_broker.bootstrap) as client, client.producer(linger=0) as producer:
        big = Big()
        await producer.send_soon("t", b"", on_delivery=big.told)
        await producer.flush()
        gone = weakref.ref(big)
        del big
        gc.collect()
        assert gone() is None
        with pytest.raises(ConfigurationError, match="async def"):
            await producer.send_soon("t", b"", on_delivery=later)
        with pytest.raises(ConfigurationError, match="not a function"):
            await producer.send_soon("t", b"", on_delivery=5)  # type: ignore[arg-type] # on purpose


async def test_what_was_accepted_goes_out_though_the_next_record_is_refused(loop: Loop, ottla_broker: Broker) -> None:
    stored: list[object] = []
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer(linger=30.0, batch_size=2000) as producer,
    ):
        await producer.send_soon("t", b"")
        await producer.flush()  # from now on the topic is known
        await producer.send_soon("t", bytes(100), on_delivery=stored.append)
        with loop.fail_after(HUNG):
            producer._core.offer(
                PendingRecord("t", bytes(1900), None, None, (), 1), loop.current_time()
            )  # closes that batch
            with pytest.raises(EncodeError):
                await producer.send_soon("t", "text")  # type: ignore[arg-type] # on purpose
            while not stored:
                await loop.checkpoint()


async def test_a_producer_is_used_where_its_client_lives(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        with pytest.raises(LocalProtocolError, match=r"belongs to the .* loop in thread"):
            await loop.in_thread(loop.run, partial(producer.send, "t", b"1"))
        with pytest.raises(LocalProtocolError, match=r"belongs to the .* loop in thread"):
            await loop.in_thread(producer.send_nowait, "t", b"1")
        assert (await producer.send("t", b"1")).offset == 0
        await producer.send_soon("t", b"2")  # into the open batch
        with pytest.raises(LocalProtocolError, match=r"belongs to the .* loop in thread"):
            await loop.in_thread(loop.run, partial(producer.send_soon, "t", b"not"))
        with pytest.raises(LocalProtocolError, match=r"belongs to the .* loop in thread"):
            await loop.in_thread(loop.run, partial(producer.send_many, "t", [b"not"]))
        with pytest.raises(LocalProtocolError, match=r"belongs to the .* loop in thread"):
            await loop.in_thread(producer.send_nowait, "t", b"not")
        assert (await producer.send("t", b"3")).offset == 2


async def test_what_is_put_before_send_soon_sees_every_record(
    loop: Loop, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []
    original = Producer.send_soon

    async def watched(self: Producer, topic: str, value: bytes, **rest: Any) -> None:
        seen.append(value)
        await original(self, topic, value, **rest)

    monkeypatch.setattr(Producer, "send_soon", watched)
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for number in range(20):
            await producer.send_soon("t", b"%d" % number)
        assert seen == [b"%d" % number for number in range(20)]
        async with client.producer(transactional_id="t") as transactional, transactional.transaction() as txn:
            for number in range(20, 40):
                await txn.send_soon("t", b"%d" % number)
        assert seen == [b"%d" % number for number in range(40)]


async def test_a_derived_class_that_extends_send_soon_sees_every_record(loop: Loop, ottla_broker: Broker) -> None:
    class Counting(Producer[bytes, bytes]):
        count = 0

        def send_soon(self, *args: Any, **rest: Any) -> Coroutine[Any, Any, None]:
            self.count += 1
            return super().send_soon(*args, **rest)

    async with loop.connect(ottla_broker.bootstrap) as client:
        async with Counting(client._driver, ProducerOptions(), Random(0), ProducerHooks()) as producer:
            for number in range(20):
                await producer.send_soon("t", b"%d" % number)
            assert producer.count == 20
        assert [each.value for each in await stored(loop, client, "t", 20)] == [b"%d" % number for number in range(20)]


async def test_a_producer_that_was_left_leaves_no_circle(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as producer:
            await producer.send_soon("t", b"1")
        with pytest.raises(Closed):
            await producer.send_soon("t", b"2")
        await loop.wait_all_tasks_blocked()
        gc.collect()
        gc.disable()
        try:
            async with client.producer() as producer:
                await producer.send_soon("t", b"3")
            left = weakref.ref(producer)
            del producer
            assert left() is None
        finally:
            gc.enable()


async def test_what_callbacks_send_while_the_producer_is_left_is_stored_and_then_nothing_is_accepted(
    loop: Loop,
    ottla_broker: Broker,
) -> None:
    ottla_broker.create_topic("small", configs={"max.message.bytes": "200"})
    told: list[object] = []

    def dead_letter(result: Receipt | OttlaError) -> None:
        assert isinstance(result, MessageTooLarge)
        producer.send_nowait("dead", b"letter", on_delivery=once_more)

    def once_more(result: Receipt | OttlaError) -> None:
        told.append(result)
        producer.send_nowait("dead", b"and another")

    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as producer:
            await producer.send("dead", b"warm")
            await producer.send_soon("small", bytes(1000), on_delivery=dead_letter)
        with pytest.raises(Closed):
            producer.send_nowait("dead", b"too late")
        assert [type(each) for each in told] == [Receipt]
        assert [each.value for each in await stored(loop, client, "dead", 3)] == [b"warm", b"letter", b"and another"]


async def test_others_who_send_while_the_producer_is_left_are_stored_or_hear_that(
    loop: Loop, ottla_broker: Broker
) -> None:
    accepted = refused = 0

    async def send(number: int) -> None:
        nonlocal accepted, refused
        while not refused:
            try:
                await producer.send_soon("t", b"%04d" % number * 25)
                accepted += 1
            except Closed:
                refused += 1

    async with loop.connect(ottla_broker.bootstrap) as client:
        async with loop.open_nursery() as nursery, client.producer(buffer_memory=5000, linger=0.01) as producer:
            await producer.send("t", b"first")
            for number in range(100):
                nursery.start_soon(send, number)
            await loop.sleep(0.05)
        assert refused and accepted
        assert len(await stored(loop, client, "t", accepted + 1)) == accepted + 1


async def test_cancelled_is_not_accepted(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client:
        async with client.producer() as producer:
            await producer.send("t", b"first")
            sent = 0
            while sent < 3000:
                with loop.move_on_after(0.001):
                    while sent < 3000:
                        await producer.send_soon("t", b"%d" % sent)
                        sent += 1
            for send in (partial(producer.send, "t", b"not"), partial(producer.send_many, "t", [b"not"])):
                if isinstance(loop, Trio):
                    with loop.cancel_scope() as own:
                        own.cancel()
                        await send()
                    assert own.cancelled_caught
                elif task := asyncio.current_task():
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await send()
                    task.uncancel()
            with loop.cancel_scope() as scope:
                scope.cancel()
                while True:  # the loop ends within a millisecond
                    await producer.send_soon("t", b"%d" % sent)
                    sent += 1
        values = [each.value for each in await stored(loop, client, "t", sent + 1)]
        assert values == [b"first", *(b"%d" % number for number in range(sent))]


async def test_what_cannot_be_a_time_or_a_pair_is_refused_at_the_call(loop: Loop, ottla_broker: Broker) -> None:
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        bad: list[Any] = [True, -5, 1.5, "now", datetime(1969, 1, 1, tzinfo=UTC)]
        for timestamp in bad:
            with pytest.raises(EncodeError, match="timestamp"):
                await producer.send_soon("t", b"", timestamp=timestamp)  # while the topic is still unknown
        with pytest.raises(ValueError, match="3 values and 2 keys"):
            await producer.send_many("t", [b"1", b"2", b"3"], keys=[b"a", b"b"])
        assert (await producer.send("t", b"first")).offset == 0


async def test_sending_soon_is_what_loops_take_for_a_task(loop: Loop, ottla_broker: Broker) -> None:
    stored: list[Any] = []
    async with (
        loop.connect(ottla_broker.bootstrap) as client,
        client.producer() as producer,
        loop.open_nursery() as nursery,
    ):
        await producer.send("t", b"0")
        run_in_loop = loop.from_threads()
        for number in range(1, 50):
            nursery.start_soon(partial(producer.send_soon, on_delivery=stored.append), "t", b"%d" % number)
            await loop.in_thread(run_in_loop, producer.send_soon, "t", b"from a thread")
        await producer.flush()
    assert len(stored) == 49 and all(isinstance(each, Receipt) for each in stored)
    assert max(each.offset for each in stored) <= 98


@pytest.mark.usefixtures("long_goodbyes")
async def test_a_cancellation_around_the_client_leaves_what_is_accepted_its_moment(
    loop: Loop, ottla_broker: Broker
) -> None:
    ottla_broker.create_topic("t")
    with loop.cancel_scope() as around:
        async with loop.connect(ottla_broker.bootstrap) as client, client.producer(linger=60) as producer:
            for _ in range(100):
                await producer.send_soon("t", b"v")  # without metadata of the topic or a connection to its leader
            around.cancel()
            await loop.sleep_forever()
    assert around.cancelled_caught
    async with loop.connect(ottla_broker.bootstrap) as client:
        assert len(await stored(loop, client, "t", 100)) == 100
