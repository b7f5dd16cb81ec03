"""Transactions of real producers, others' and ottla's, on a rewritten topic: brokerlite and Apache Kafka behind it."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio

import ottla
from ottla.codec.partitioners import murmur2_partition
from tests.interop.peers import create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.test_transactions import either, until
from tests.interop.transacting import TRANSACTORS, Refused, Transactor, TransactorClient
from tests.kafka import free_ports
from tests.proxy.running import ProxyThread, proxied

pytestmark = pytest.mark.slow

SIX = 6
KEYS = [b"key-%d" % n for n in range(12)]

ALL = [("brokerlite", each) for each in TRANSACTORS.values()]
SOME = [("kafka", TRANSACTORS[name]) for name in ("java", "librdkafka", "franz-go", "aiokafka")]
RESTARTED = [*SOME, ("brokerlite", TRANSACTORS["java"])]
"""Without sarama: after the loss of its only broker it may request metadata for ever, with or without a rewrite."""
with_each_client = pytest.mark.parametrize(("upstream", "client"), ALL + SOME, indirect=["upstream"], ids=str)


@pytest.fixture
def upstream(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from either(request, tmp_path)


@pytest.fixture
def topic(upstream: str) -> str:
    """A new topic that the proxy rewrites, and that refuses records without a key."""
    name = f"moved-{secrets.token_hex(4)}"
    create_topic(upstream, name, SIX, cleanup_policy="compact")
    return name


@contextmanager
def producing(client: TransactorClient, proxy: ProxyThread, name: str) -> Iterator[Transactor]:
    # Otherwise aiokafka would send each record in a batch of its own.
    config = {"linger.ms": "200"} if client.name == "aiokafka" else {}
    with client.start(proxy.bootstrap, name, config) as producer:
        producer.insist("init")
        yield producer


def send(producer: Transactor, topic: str, *values: bytes) -> None:
    """Send each value under each key, always to a wrong partition."""
    for value in values:
        for key in KEYS:
            producer.send(topic, (murmur2_partition(key, SIX) + 1) % SIX, key, value)


def transact(producer: Transactor, topic: str, *values: bytes, end: str = "commit") -> None:
    producer.do("begin")
    send(producer, topic, *values)
    if end == "abort":
        producer.do("flush")  # otherwise there would be nothing to abort
    producer.do(end)


def committed(upstream: str, topic: str) -> dict[bytes | None, list[bytes | None]]:
    """The committed values of each key, once every transaction has ended; all must be in the key's partition."""
    values: dict[bytes | None, list[bytes | None]] = {}
    with RawReader(upstream) as reader:
        until(lambda: not any(reader.is_open(topic, partition) for partition in range(SIX)))
        for each in reader.committed(topic):
            assert each.partition == murmur2_partition(each.key or b"", SIX)
            values.setdefault(each.key, []).append(each.value)
    return values


@with_each_client
def test_what_is_committed_is_in_the_partitions_of_its_keys(
    client: TransactorClient, upstream: str, topic: str
) -> None:
    with proxied(upstream, "moved-*=rewrite") as proxy, producing(client, proxy, topic) as producer:
        transact(producer, topic, b"1", b"2")
        transact(producer, topic, b"aborted", end="abort")
        transact(producer, topic, b"3")
        producer.do("begin")
        producer.do("commit")  # an empty transaction
        transact(producer, topic, b"4")
        producer.close()
    assert committed(upstream, topic) == {key: [b"1", b"2", b"3", b"4"] for key in KEYS}


@pytest.mark.deep
@pytest.mark.parametrize(("upstream", "client"), SOME, indirect=["upstream"], ids=str)
def test_a_batch_that_is_refused_in_part_is_not_committed_in_part(
    client: TransactorClient, upstream: str, topic: str
) -> None:
    with proxied(upstream, "moved-*=rewrite") as proxy, producing(client, proxy, topic) as producer:
        transact(producer, topic, b"1")
        producer.do("begin")
        place = murmur2_partition(KEYS[0], SIX)
        producer.send(topic, (place + 1) % SIX, KEYS[0], b"stored")
        producer.do("send", topic, str((place + 1) % SIX), "-", b"refused, for the topic is compacted".hex())
        if client.name == "aiokafka":
            producer.do("commit")  # as on Kafka itself, aiokafka commits what was not refused
        else:
            with pytest.raises(Refused):
                producer.do("commit")
        producer.open()  # some clients can continue with the same one
        producer.insist("init")
        transact(producer, topic, b"2")
        producer.close()
    found = committed(upstream, topic)
    if client.name == "aiokafka" and b"stored" in found[KEYS[0]]:  # it was alone in its batch: the machine was busy
        found[KEYS[0]].remove(b"stored")
    assert found == {key: [b"1", b"2"] for key in KEYS}


@pytest.mark.deep
@pytest.mark.parametrize(("upstream", "client"), RESTARTED, indirect=["upstream"], ids=str)
def test_a_proxy_that_is_killed_within_a_transaction_is_not_noticed(
    client: TransactorClient, upstream: str, topic: str, tmp_path: Path
) -> None:
    with (
        proxied(upstream, "moved-*=rewrite", state=tmp_path / "state") as first,
        client.start(first.bootstrap, topic) as producer,
    ):
        producer.insist("init")
        transact(producer, topic, b"1")
        producer.do("begin")
        send(producer, topic, b"2")
        producer.do("flush")
        first.kill()
        with proxied(upstream, "moved-*=rewrite", state=tmp_path / "state", listen=first.bootstrap):
            send(producer, topic, b"3")
            producer.do("commit")
            transact(producer, topic, b"4")
            producer.close()
    assert committed(upstream, topic) == {key: [b"1", b"2", b"3", b"4"] for key in KEYS}


WITHOUT_STATE = [*SOME, ("brokerlite", TRANSACTORS["java"]), ("brokerlite", TRANSACTORS["librdkafka"])]


@pytest.mark.deep
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "nothing-stored"])
@pytest.mark.parametrize(("upstream", "client"), WITHOUT_STATE, indirect=["upstream"], ids=str)
def test_a_proxy_that_is_killed_and_has_no_state_has_the_transaction_aborted_and_the_producer_goes_on(
    client: TransactorClient, upstream: str, topic: str, stored: bool
) -> None:
    with (
        proxied(upstream, "moved-*=rewrite") as first,
        client.start(first.bootstrap, topic) as producer,
    ):
        producer.insist("init")
        transact(producer, topic, b"1")
        producer.do("begin")
        if stored:
            send(producer, topic, b"lost")
            producer.do("flush")
        first.kill()
        with proxied(upstream, "moved-*=rewrite", listen=first.bootstrap):
            with pytest.raises(Refused):
                send(producer, topic, b"lost, too")
                producer.do("commit")
            if client.name == "aiokafka":  # it cannot get another epoch
                producer.open()
                producer.insist("init")
            else:
                producer.insist("abort")
            transact(producer, topic, b"2")
            transact(producer, topic, b"3")
            producer.close()
    assert committed(upstream, topic) == {key: [b"1", b"2", b"3"] for key in KEYS}


@pytest.mark.deep
@pytest.mark.parametrize("upstream", ["brokerlite", "kafka"], indirect=True)
def test_our_own_client_is_not_concerned_either(upstream: str, topic: str, tmp_path: Path) -> None:
    async def sending(bootstrap: str, restart: Callable[[], None]) -> None:
        async with ottla.connect(bootstrap) as client, client.producer(transactional_id=topic) as producer:
            for number in range(6):
                values = [b"%d" % number, b"%d again" % number]
                with contextlib.suppress(Changed):
                    async with producer.transaction() as txn:
                        for value in values:
                            for key in KEYS:
                                elsewhere = (murmur2_partition(key, SIX) + 1) % SIX
                                await txn.send_soon(topic, value, key=key, partition=elsewhere)
                            if number in (2, 3):
                                await trio.to_thread.run_sync(restart)
                        if number == 3:
                            raise Changed

    with ExitStack() as stack:
        options = {"state": tmp_path / "state", "listen": f"127.0.0.1:{free_ports(1)[0]}"}
        proxies = [stack.enter_context(proxied(upstream, "moved-*=rewrite", **options))]

        def restart() -> None:
            proxies[-1].kill()
            proxies.append(stack.enter_context(proxied(upstream, "moved-*=rewrite", **options)))

        trio.run(sending, proxies[0].bootstrap, restart)
    assert len(proxies) == 5
    expected = [value for number in (0, 1, 2, 4, 5) for value in (b"%d" % number, b"%d again" % number)]
    assert committed(upstream, topic) == dict.fromkeys(KEYS, expected)


class Changed(Exception):
    """The application raises it to abort."""
