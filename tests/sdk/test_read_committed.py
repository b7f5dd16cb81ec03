"""``isolation="read_committed"`` on every path by which the client reads, over real sockets.

The log has overlapping transactions, aborted and open ones, and an aborted one at its very end.
"""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal

import pytest
import trio

import ottla
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.sdk.client import Client
from ottla.sdk.consume.reading import stable_offsets
from ottla.testing import Broker
from tests.kafka import ApacheKafka
from tests.patience import HUNG
from tests.sdk.loops import Loop, Trio

Isolation = Literal["read_uncommitted", "read_committed"]

BOTH: tuple[Isolation, Isolation] = ("read_uncommitted", "read_committed")
COMMITTED = [b"plain", b"a-0", b"between", b"a-1", b"c-0", b"c-1", b"c-2"]
IN_VAIN = [b"b-0", b"b-1", b"b-2", b"d-0", b"d-1"]


class Failed(Exception):
    """The reason to abort a transaction."""


async def write(client: Client, topic: str) -> None:
    """Write overlapping transactions, one with several records, and an aborted one at the end."""
    async with (
        client.producer() as producer,
        client.producer(transactional_id=f"{topic}-first") as first,
        client.producer(transactional_id=f"{topic}-second") as second,
    ):
        await producer.send(topic, b"plain")
        with contextlib.suppress(Failed):
            async with second.transaction() as in_vain:
                await in_vain.send(topic, b"b-0")
                async with first.transaction() as txn:
                    await txn.send(topic, b"a-0")
                    await producer.send(topic, b"between")
                    await in_vain.send(topic, b"b-1")
                    await txn.send(topic, b"a-1")
                await in_vain.send(topic, b"b-2")
                raise Failed
        async with first.transaction() as txn:
            await txn.send_many(topic, [b"c-0", b"c-1", b"c-2"])
        with contextlib.suppress(Failed):
            async with first.transaction() as txn:
                for value in (b"d-0", b"d-1"):
                    await txn.send(topic, value)
                raise Failed


@contextlib.asynccontextmanager
async def one_is_open(client: Client, topic: str) -> AsyncIterator[None]:
    """Keep a transaction open during the block, with a record without a transaction after it."""
    async with (
        client.producer() as producer,
        client.producer(transactional_id=f"{topic}-third") as third,
        third.transaction() as txn,
    ):
        await txn.send(topic, b"e-0")
        await producer.send(topic, b"behind")
        yield


async def end_of(client: Client, topic: str, isolation: Isolation) -> int:
    end: int = (await client.offsets({(topic, 0): "end"}, isolation=isolation))[topic, 0]
    return end


async def by_consumer(
    client: Client, topic: str, isolation: Isolation, *, columns: bool = False, max_records: int | None = None
) -> list[bytes | None]:
    """All records up to the end, even if the last offsets belong to markers or aborted records."""
    end, found = await end_of(client, topic, isolation), list[bytes | None]()
    async with client.consumer(
        assign={(topic, 0): "beginning"}, isolation=isolation, max_records=max_records
    ) as consumer:
        while consumer.position(topic, 0) < end:
            if (batch := await consumer.poll(0.05)) is None:
                continue
            assert max_records is None or len(batch) <= max_records
            found += batch.columns().values.tolist() if columns else [record.value for record in batch]
        assert consumer.lag == {(topic, 0): 0}
    return found


async def by_fetches(client: Client, topic: str, isolation: Isolation, max_bytes: int) -> list[bytes | None]:
    end, offset, found = await end_of(client, topic, isolation), 0, list[bytes | None]()
    while offset < end:
        fetched = await client.fetch(topic, 0, offset, isolation=isolation, max_bytes=max_bytes)
        assert fetched.next_offset > offset
        found += [record.value for record in fetched]
        offset = fetched.next_offset
    assert list(await client.fetch(topic, 0, offset, isolation=isolation, wait=0.0)) == [] or end == offset
    return found


async def by_every_path(client: Client, topic: str, isolation: Isolation) -> list[bytes | None]:
    """The values that this reader gets, after a check that every path returns the same."""
    found = await by_consumer(client, topic, isolation)
    assert await by_consumer(client, topic, isolation, columns=True) == found
    assert await by_consumer(client, topic, isolation, max_records=1) == found
    assert await by_consumer(client, topic, isolation, columns=True, max_records=2) == found
    for max_bytes in (1, 2**20):
        assert await by_fetches(client, topic, isolation, max_bytes) == found
    return found


async def tell_the_whole_story(loop: Loop, bootstrap: str, topic: str) -> None:
    with loop.fail_after(HUNG):
        async with loop.connect(bootstrap) as client:
            await client.create_topic(topic, partitions=1)
            await write(client, topic)
            place = (topic, 0)
            assert await by_every_path(client, topic, "read_committed") == COMMITTED
            everything = await by_every_path(client, topic, "read_uncommitted")
            assert sorted(everything) == sorted([*COMMITTED, *IN_VAIN])  # type: ignore[type-var] # no value is None
            before = await end_of(client, topic, "read_uncommitted")
            assert before == await end_of(client, topic, "read_committed") == len(everything) + 4
            async with one_is_open(client, topic):
                assert await by_every_path(client, topic, "read_committed") == COMMITTED
                assert await by_every_path(client, topic, "read_uncommitted") == [*everything, b"e-0", b"behind"]
                ends = {each: await client.list_offsets({place: "end"}, isolation=each) for each in BOTH}
                assert [ends[each][place].offset for each in BOTH] == [before + 2, before]
                async with client.consumer(topic, isolation="read_committed", start="end") as consumer:
                    assert consumer.position(topic, 0) == before
            assert await by_every_path(client, topic, "read_committed") == [*COMMITTED, b"e-0", b"behind"]


async def test_every_path_reads_the_same_and_nothing_that_is_open_or_aborted(loop: Loop, ottla_broker: Broker) -> None:
    await tell_the_whole_story(loop, ottla_broker.bootstrap, "t")


@pytest.mark.slow
async def test_the_same_on_apache_kafka(loop: Loop, kafka: ApacheKafka) -> None:
    await tell_the_whole_story(loop, kafka.bootstrap, f"t-{uuid.uuid4().hex}")


@pytest.mark.deep
async def test_the_same_on_older_brokers(old_kafka: ApacheKafka) -> None:
    if not old_kafka.release.version.startswith("0.10"):  # 0.10 has no transactions
        await tell_the_whole_story(Trio(), old_kafka.bootstrap, "t")


@pytest.fixture
def eager(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose cleaner runs fifty times a second."""
    broker = Broker(BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER, log_cleaner_backoff=0.02))
    yield broker
    broker.stop()


@pytest.mark.slow
async def test_a_compacted_log_shows_the_last_committed_value_of_each_key(loop: Loop, eager: Broker) -> None:
    last: dict[bytes, bytes] = {}
    with loop.fail_after(HUNG):
        async with loop.connect(eager.bootstrap) as client:
            configs = {
                "cleanup.policy": "compact",
                "internal.segment.bytes": "1024",
                "min.cleanable.dirty.ratio": "0.01",
            }
            await client.create_topic("t", partitions=1, configs=configs)
            async with client.producer(transactional_id="t-1") as producer:
                for number in range(40):
                    key, value = b"%d" % (number // 2 % 7), b"%d " % number + b"x" * 200
                    with contextlib.suppress(Failed):
                        async with producer.transaction() as txn:
                            await txn.send("t", value, key=key)
                            if number % 2:
                                raise Failed
                            last[key] = value
            await compaction(loop, eager)
            seen = await by_every_path(client, "t", "read_committed")
            assert len(seen) < 20 and set(last.values()) <= set(seen)
            assert all(int((value or b"").split()[0]) % 2 == 0 for value in seen)


async def compaction(loop: Loop, broker: Broker) -> None:
    """Wait until all segments except the active one are compacted."""
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    while True:
        active = max(int(path.stem) for path in (broker.data / "t-0").glob("*.log"))
        if checkpoint.exists() and f"t 0 {active}" in checkpoint.read_text().splitlines():
            return
        await loop.sleep(0.02)  # the broker has no event for it


async def test_what_is_committed_goes_on_over_what_a_reader_may_not_see(loop: Loop, ottla_broker: Broker) -> None:
    """Otherwise the group would show a lag for ever, and retention would delete its committed offset from the log."""
    with loop.fail_after(HUNG):
        async with (
            loop.connect(ottla_broker.bootstrap) as client,
            client.producer(transactional_id="t-1") as producer,
        ):
            await client.create_topic("t", partitions=1)
            async with (
                client.consumer("t", group="auto", isolation="read_committed", auto_commit=0.05) as automatic,
                client.consumer("t", group="by-hand", isolation="read_committed") as manual,
            ):
                async with producer.transaction() as txn:
                    await txn.send("t", b"v")
                for consumer in (automatic, manual):
                    await anext(consumer)
                await manual.commit()
                while not await client.committed("auto"):
                    await automatic.poll(0.05)
                for _ in range(2):
                    with contextlib.suppress(Failed):
                        async with producer.transaction() as txn:
                            await txn.send("t", b"in vain")
                            raise Failed
                    end = await end_of(client, "t", "read_committed")
                    for consumer in (automatic, manual):
                        while consumer.position("t", 0) < end:
                            assert await consumer.poll(0.05) is None
                    await manual.commit()
                    assert (await client.committed("by-hand"))["t", 0].offset == end
                    while (await client.committed("auto"))["t", 0].offset < end:
                        await automatic.poll(0.05)


async def test_a_batch_in_hand_is_not_committed_by_what_is_hidden_behind_it(loop: Loop, ottla_broker: Broker) -> None:
    with loop.fail_after(HUNG):
        async with (
            loop.connect(ottla_broker.bootstrap) as client,
            client.producer(transactional_id="t-1") as producer,
        ):
            await client.create_topic("t", partitions=1)
            async with client.consumer("t", group="g", isolation="read_committed", auto_commit=0.02) as consumer:
                async with producer.transaction() as txn:
                    await txn.send("t", b"v")
                batch = await anext(consumer)
                with contextlib.suppress(Failed):
                    async with producer.transaction() as txn:
                        await txn.send("t", b"in vain")
                        raise Failed
                end = await end_of(client, "t", "read_committed")
                while consumer.position("t", 0) < end:
                    await loop.sleep(0.02)
                await loop.sleep(0.2)  # ten times auto_commit
                assert await client.committed("g") == {} and len(batch) == 1
                while (at := (await client.committed("g")).get(("t", 0))) is None or at.offset < end:
                    await consumer.poll(0.05)


async def test_the_lag_of_a_group_ends_where_its_readers_do(loop: Loop, ottla_broker: Broker) -> None:
    with loop.fail_after(HUNG):
        async with loop.connect(ottla_broker.bootstrap) as client:
            await client.create_topic("t", partitions=1)
            await write(client, "t")
            async with one_is_open(client, "t"):
                async with client.consumer("t", group="g", isolation="read_committed") as consumer:
                    while consumer.lag.get(("t", 0)) != 0:
                        await consumer.poll(0.05)
                    await consumer.commit()
                lags = {each: (await client.group_lag("g", isolation=each)).total for each in BOTH}
                assert lags == {"read_uncommitted": 2, "read_committed": 0}


async def wait_and_ask_why(loop: Loop, bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with loop.fail_after(HUNG):
        async with loop.connect(bootstrap) as client:
            await client.create_topic(topic, partitions=1)
            async with (
                one_is_open(client, topic),
                client.consumer(topic, isolation="read_committed") as consumer,
            ):
                open_ = (await client.describe_transactions(f"{topic}-third"))[f"{topic}-third"]
                while f"transactional id '{topic}-third'" not in client.explain() or not caplog.records:
                    assert await consumer.poll(0.1) is None
                # A paused process may also wait for a response.
                [line] = [each for each in client.explain().splitlines() if each.startswith(f"{topic}-0")]
                assert line.startswith(f"{topic}-0 at 0: the last stable offset has not moved for ")
                assert "with 2 record(s) behind it" in line
                assert f"(producer id {open_.producer_id}, epoch {open_.producer_epoch}) is open there, for " in line
                assert "until that ends it or its timeout of 60 s expires; " in line
                assert line.endswith(f"`ottla transactions fence {topic}-third` ends it now")
            [record] = [each for each in caplog.records if "wait behind" in each.getMessage()]
            assert (record.__dict__["topic"], record.__dict__["producer_id"]) == (topic, open_.producer_id)
            assert f"{topic}-0" not in client.explain()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the seconds after which the client reports a wait for a transaction."""
    monkeypatch.setattr(stable_offsets, "STILL", 0.2)
    monkeypatch.setattr(stable_offsets, "REPORT", 0.4)


async def test_explain_names_the_transaction_for_which_a_reader_waits(
    loop: Loop, ottla_broker: Broker, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    await wait_and_ask_why(loop, ottla_broker.bootstrap, "t", caplog)


@pytest.mark.deep
async def test_explain_names_it_on_apache_kafka_too(
    kafka: ApacheKafka, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    await wait_and_ask_why(Trio(), kafka.bootstrap, f"t-{uuid.uuid4().hex}", caplog)


@pytest.mark.deep
async def test_explain_says_what_older_brokers_tell(old_kafka: ApacheKafka, impatient: None) -> None:
    if old_kafka.release.version.startswith("0.10"):  # 0.10 has no transactions
        return
    async with ottla.connect(old_kafka.bootstrap) as client:
        await client.create_topic("waiting", partitions=1)
        async with one_is_open(client, "waiting"), client.consumer("waiting", isolation="read_committed") as consumer:
            known = "transactional id 'waiting-third' (producer id"
            if old_kafka.release.version.startswith("2.8"):  # 2.8 names the producer, but no transactional id
                known = "the transaction of producer id"
            with trio.fail_after(HUNG):
                while known not in client.explain():
                    assert await consumer.poll(0.1) is None
            assert "waiting-0 at 0: the last stable offset has not moved" in client.explain()
