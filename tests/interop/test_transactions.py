"""Transactional producers of other clients: the same tests against brokerlite and Apache Kafka."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import CLIENTS, KAFKAJS, LIBRDKAFKA, Client, create_topic
from tests.interop.raw_reader import RawReader
from tests.interop.transacting import TRANSACTORS, Record, Refused, Transactor, TransactorClient
from tests.kafka import run
from tests.patience import HUNG

pytestmark = pytest.mark.slow

PARTITIONS = 3
COMMITTED, UNCOMMITTED = {"isolation.level": "read_committed"}, {"isolation.level": "read_uncommitted"}
ADMIN = "org.apache.kafka.tools.TransactionsCommand"
LONG = "900000"
"""The longest transaction timeout that brokers allow, in milliseconds: for a transaction that stays open in a test."""


ALL = [("brokerlite", each) for each in TRANSACTORS.values()]
SOME = [("kafka", TRANSACTORS[name]) for name in ("java", "librdkafka")]
"""One client for each version of transactions: enough to check the tests themselves."""
with_each_client = pytest.mark.parametrize(("bootstrap", "client"), ALL + SOME, indirect=["bootstrap"], ids=str)
FEW = [("brokerlite", TRANSACTORS[name]) for name in ("java", "librdkafka", "franz-go", "aiokafka")]
"""For tests in which other clients would show nothing new."""
with_some_clients = pytest.mark.parametrize(("bootstrap", "client"), FEW + SOME[:1], indirect=["bootstrap"], ids=str)


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield from either(request, tmp_path)


def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a broker, brokerlite's or Apache Kafka's, as the fixture's parameter says."""
    if request.param == "brokerlite":
        config = BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER, group_initial_rebalance_delay=0)
        broker = Broker(config)
        yield broker.bootstrap
        broker.stop()
    else:
        yield request.getfixturevalue("kafka").bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of `PARTITIONS` partitions."""
    return new_topic(bootstrap)


def new_topic(bootstrap: str) -> str:
    name = f"transactions-{secrets.token_hex(4)}"
    create_topic(bootstrap, name, PARTITIONS)
    return name


@contextmanager
def producing(client: TransactorClient, bootstrap: str, name: str, **config: str) -> Iterator[Transactor]:
    """A producer with the transactional id ``name``; settings have underscores in place of dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with client.start(bootstrap, name, settings) as producer:
        producer.insist("init")
        yield producer


def transact(producer: Transactor, topic: str, *values: bytes, end: str = "commit") -> None:
    """Run a transaction that sends each value to each partition."""
    producer.do("begin")
    for value in values:
        for partition in range(PARTITIONS):
            producer.send(topic, partition, b"key", value)
    if end == "abort":
        producer.do("flush")  # otherwise there would be nothing to abort
    producer.do(end)


def committed(
    bootstrap: str, topic: str, *, ended: bool = True, readers: Sequence[Client] = (LIBRDKAFKA,)
) -> list[list[bytes | None]]:
    """The committed values of each partition, on which every client must agree with the raw reader.

    Args:
        ended: whether every transaction has ended, so that the last markers will come.
    """
    with RawReader(bootstrap) as reader:
        if ended:
            until(lambda: not any(reader.is_open(topic, partition) for partition in range(PARTITIONS)))
        expected = [(r.partition, r.offset, r.value) for r in reader.committed(topic)]
    for each in readers:
        seen = sorted(each.consume(bootstrap, topic, COMMITTED), key=lambda r: (r.partition, r.offset))
        assert [(r.partition, r.offset, r.value) for r in seen] == expected, each
    return [[value for index, _, value in expected if index == partition] for partition in range(PARTITIONS)]


def until(condition: Callable[[], bool], timeout: float = HUNG) -> None:
    """Wait for the broker's own work."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s"
        time.sleep(0.05)  # another process gives the test no event to wait on


@with_each_client
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: TransactorClient, bootstrap: str, topic: str
) -> None:
    with producing(client, bootstrap, topic) as producer:
        transact(producer, topic, b"1", b"2")
        transact(producer, topic, b"aborted", end="abort")
        transact(producer, topic, b"3")
        producer.do("begin")
        producer.do("commit")  # an empty transaction
        producer.do("begin")
        producer.do("abort")
        transact(producer, topic, b"aborted", b"too", end="abort")
        transact(producer, topic, b"4")
        producer.close()
    assert committed(bootstrap, topic, readers=CLIENTS) == [[b"1", b"2", b"3", b"4"]] * PARTITIONS
    everything = [b"1", b"2", b"aborted", b"3", b"aborted", b"too", b"4"]
    for each in CLIENTS:
        seen = [r for r in each.consume(bootstrap, topic, UNCOMMITTED) if r.partition == 0]
        assert [r.value for r in seen] == everything, each


@pytest.mark.deep
@pytest.mark.parametrize("bootstrap", ["brokerlite", "kafka"], indirect=True)
def test_where_transactions_overlap_all_but_kafkajs_leave_out_what_is_aborted(bootstrap: str, topic: str) -> None:
    client = TRANSACTORS["librdkafka"]
    with (
        producing(client, bootstrap, f"{topic}-1") as first,
        producing(client, bootstrap, f"{topic}-2") as second,
        RawReader(bootstrap) as reader,
    ):
        for producer, value in ((first, b"first"), (second, b"second")):
            producer.do("begin")
            producer.send(topic, 0, b"key", value)
            producer.do("flush")
        second.do("abort")
        # Brokers list aborted transactions in the order of their markers, and Kafka answers before it writes a marker.
        until(lambda: reader.end(topic, 0, 0) == 3)
        first.do("abort")
    right = [each for each in CLIENTS if each.leaves_out_aborted]
    assert committed(bootstrap, topic, readers=right) == [[]] * PARTITIONS
    shown = [r.value for r in KAFKAJS.consume(bootstrap, topic, COMMITTED)]
    assert shown == [b"first"], "kafkajs now skips aborted records: change `peers.KAFKAJS`"


@pytest.mark.deep
@with_some_clients
def test_what_comes_behind_an_open_transaction_waits_for_its_end(
    client: TransactorClient, bootstrap: str, topic: str
) -> None:
    with producing(client, bootstrap, topic) as producer, RawReader(bootstrap) as reader:
        producer.do("begin")
        producer.send(topic, 0, b"key", b"open")
        producer.do("flush")
        LIBRDKAFKA.produce(bootstrap, [Message(topic, b"key", b"%d" % i, partition=i % 2) for i in range(4)])
        assert reader.end(topic, 0) == 0 and reader.end(topic, 0, 0) == 3
        assert committed(bootstrap, topic, ended=False) == [[], [b"1", b"3"], []]
        producer.do("commit")
        assert committed(bootstrap, topic) == [[b"open", b"0", b"2"], [b"1", b"3"], []]


@pytest.mark.deep
@with_each_client
def test_what_is_consumed_is_produced_again_exactly_once(client: TransactorClient, bootstrap: str, topic: str) -> None:
    output = new_topic(bootstrap)
    LIBRDKAFKA.produce(bootstrap, [Message(topic, b"key", b"%d" % i, partition=i % PARTITIONS) for i in range(30)])
    with producing(client, bootstrap, topic) as first:
        first.subscribe(topic, topic)
        passed = pass_on(first, output, "abort", at_least=5)
        first.subscribe(topic, topic)
        passed = pass_on(first, output, "commit", at_least=5)
        if len(passed) < 30:
            first.do("begin")
            pass_some(first, output, at_least=1)
            first.do("offsets")
        first.kill()  # in the midst of a transaction, or after the last one
    LIBRDKAFKA.produce(bootstrap, [Message(topic, b"key", b"%d" % i, partition=i % PARTITIONS) for i in range(30, 60)])
    with producing(client, bootstrap, topic) as second:
        second.subscribe(topic, topic)
        while len(passed) < 60:
            passed += pass_on(second, output, "commit", at_least=1)
        second.close()
    values = [value for partition in committed(bootstrap, output) for value in partition]
    assert sorted(int(value or b"") for value in values) == list(range(60))


def pass_on(worker: Transactor, output: str, end: str, at_least: int) -> list[Record]:
    """Run a transaction that copies records to ``output``, and commits the consumer's position."""
    worker.do("begin")
    records = pass_some(worker, output, at_least)
    worker.do(end)
    return records


def pass_some(worker: Transactor, output: str, at_least: int) -> list[Record]:
    """Poll until there are records, and send them on."""
    deadline = time.monotonic() + HUNG
    records: list[Record] = []
    while len(records) < at_least:
        assert time.monotonic() < deadline, records
        if got := worker.poll():
            records += got
            for record in got:
                worker.send(output, record.partition, record.key or b"", record.value or b"")
            worker.do("offsets")
    return records


@pytest.mark.deep
@with_some_clients
def test_a_newer_producer_fences_the_one_before(client: TransactorClient, bootstrap: str, topic: str) -> None:
    with producing(client, bootstrap, topic) as first:
        transact(first, topic, b"1")
        first.do("begin")
        first.send(topic, 0, b"key", b"left open")
        first.do("flush")
        with producing(client, bootstrap, topic) as second, RawReader(bootstrap) as reader:
            assert not reader.is_open(topic, 0), "it was aborted before the second one began"
            with pytest.raises(Refused) as refused:
                first.send(topic, 1, b"key", b"too late")
                first.do("commit")
            # Produce returns INVALID_PRODUCER_EPOCH, possibly first, and kafka-python then asks for an abort.
            assert refused.value.kind == "fatal" or client.name == "kafka-python"
            transact(second, topic, b"2")
    assert committed(bootstrap, topic) == [[b"1", b"2"]] * PARTITIONS


@pytest.mark.deep
@with_some_clients
def test_a_transaction_that_takes_too_long_is_aborted(client: TransactorClient, bootstrap: str, topic: str) -> None:
    with producing(client, bootstrap, topic) as before:
        transact(before, topic, b"1")
    timeout = {"transaction_timeout_ms": "15000"}  # longer than any pause of a busy machine between send and flush
    with producing(client, bootstrap, topic, **timeout) as producer, RawReader(bootstrap) as reader:
        producer.do("begin")
        producer.send(topic, 0, b"key", b"too slow")
        producer.do("flush")
        assert reader.is_open(topic, 0)
        until(lambda: not reader.is_open(topic, 0))
        with pytest.raises(Refused):
            producer.do("commit")
    with producing(client, bootstrap, topic) as successor:
        transact(successor, topic, b"2")
    assert committed(bootstrap, topic) == [[b"1", b"2"]] * PARTITIONS


def tool(bootstrap: str, *arguments: str) -> list[dict[str, str]]:
    """The output of `kafka-transactions.sh`: a dict for each row, with the names of the header."""
    head, *rows = [line.split("\t") for line in run(ADMIN, "--bootstrap-server", bootstrap, *arguments).splitlines()]
    names = [name.strip() for name in head]
    return [dict(zip(names, (field.strip() for field in row), strict=False)) for row in rows]


@pytest.mark.parametrize("bootstrap", ["brokerlite", "kafka"], indirect=True)
def test_kafkas_tool_lists_describes_and_aborts_transactions(bootstrap: str, topic: str) -> None:
    with (
        producing(TRANSACTORS["java"], bootstrap, topic, transaction_timeout_ms=LONG) as producer,
        RawReader(bootstrap) as reader,
    ):
        transact(producer, topic, b"1")
        producer.do("begin")
        producer.send(topic, 0, b"key", b"hangs")
        producer.do("flush")
        (listed,) = [row for row in tool(bootstrap, "list") if row["TransactionalId"] == topic]
        assert listed["TransactionState"] == "Ongoing"
        (described,) = tool(bootstrap, "describe", "--transactional-id", topic)
        assert described["TransactionState"] == "Ongoing" and described["TopicPartitions"] == f"{topic}-0"
        assert described["ProducerId"] == listed["ProducerId"]
        (known,) = tool(bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
        assert known["ProducerId"] == listed["ProducerId"] and known["ProducerEpoch"] == described["ProducerEpoch"]
        start = known["CurrentTransactionStartOffset"]
        assert start == "2"
        run(
            ADMIN,
            "--bootstrap-server",
            bootstrap,
            "abort",
            "--topic",
            topic,
            "--partition",
            "0",
            "--start-offset",
            start,
        )
        assert not reader.is_open(topic, 0)
        (known,) = tool(bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
        assert known["CurrentTransactionStartOffset"] == "None"
    assert committed(bootstrap, topic) == [[b"1"]] * PARTITIONS
