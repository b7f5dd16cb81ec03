"""Readers of committed records that wait for a transaction: the log lines, their times, and the requests they cost."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ottla.codec.apis.describe_producers import DescribeProducersRequest
from ottla.codec.apis.list_transactions import ListTransactionsRequest
from ottla.codec.records import BatchBuilder
from ottla.errors import TopicAuthorizationFailed
from ottla.sdk.consume.reading.fetcher import READ_COMMITTED, READ_UNCOMMITTED, Fetcher, Offset
from ottla.sdk.consume.reading.stable_offsets import REPORT, STILL
from tests.sdk.leaders import NEW, Leaders
from tests.sdk.reading import read, reader
from tests.sim.data import Place
from tests.sim.transactions import COMPLETE_ABORT, ONGOING, Transaction

ASKED = {10: (0, 3), 61: (0, 0), 65: (0, 0), 66: (0, 2)}
WALL = 1_000_000.0
"""The time of day when the machine's clock is 0."""
PRODUCER = 4711


class Cluster(Leaders):
    """Leaders of partitions that may have an open transaction of one producer.

    Attributes:
        code: the error code of DescribeProducers.
        listed: whether the client is authorized for the transactional id.
    """

    def __init__(
        self,
        topics: dict[str, int],
        *,
        versions: Mapping[int, tuple[int, int]] = ASKED,
        state: str = ONGOING,
        **more: Any,
    ) -> None:
        super().__init__(topics, versions=NEW | dict(versions), **more)
        self._transaction = Transaction(
            name="billing", producer_id=PRODUCER, epoch=3, timeout_ms=60_000, state=state, started=WALL - 2
        )
        self.listed, self.code = True, 0
        self.bend = self._conceal

    def open(self, place: Place, *committed: bytes) -> None:
        """Append these committed records, and two records of an open transaction."""
        for number, value in enumerate(committed):
            self._append(place, 1, number, value)
        self._append(place, PRODUCER, 0, b"open", b"open, too")
        if self._transaction.state == ONGOING:
            self._transaction = replace(self._transaction, places=(*self._transaction.places, place))
        self.cluster.transactions.known["billing"] = self._transaction

    def end(self, place: Place) -> None:
        self.cluster.logs[place].mark((PRODUCER, 3), commits=True, coordinator_epoch=0, leader_epoch=0, rises=False)
        self.logs[place].replicate()

    def _append(self, place: Place, producer: int, sequence: int, *values: bytes) -> None:
        builder, opens = BatchBuilder(), producer == PRODUCER
        builder.extend((0, None, value, ()) for value in values)
        data = builder.build(
            producer_id=producer, producer_epoch=3 * opens, base_sequence=sequence, transactional=opens
        )
        assert self.cluster.logs[place].append(data, 0)[0] == 0
        self.logs[place].replicate()

    def _conceal(self, node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, DescribeProducersRequest) and self.code:
            for each in answer.topics[0].partitions:
                each.error_code, each.active_producers = self.code, ()
        if isinstance(request, ListTransactionsRequest) and not self.listed:
            answer.transaction_states = ()
        return answer


def waiting(cluster: Cluster, isolation: int = READ_COMMITTED) -> Fetcher:
    """A reader of all partitions that has read every stable record."""
    starts = {place: Offset(0) for place in cluster.logs}
    fetcher = reader(cluster, starts, isolation=isolation, wall=lambda: WALL + cluster.now)
    before = sum(cluster.cluster.logs[place].stable for place in cluster.logs)
    read(cluster, fetcher, before if isolation == READ_COMMITTED else before + 2 * len(cluster.logs))
    return fetcher


def lines(cluster: Cluster) -> list[str]:
    return list(cluster.core.explain(cluster.now))


def test_a_reader_that_waits_for_a_transaction_says_for_whose_since_when_and_until_when(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster({"t": 1})
    cluster.open(("t", 0), b"a", b"b", b"c")
    fetcher = waiting(cluster)
    cluster.run(STILL - 1)
    assert lines(cluster) == [] and not cluster.asked(DescribeProducersRequest)
    cluster.run(2.0)
    [line] = lines(cluster)
    assert line.startswith("t-0 at 3: the last stable offset has not moved for 6.0 s, with 2 record(s) behind it: ")
    whose = "the transaction of transactional id 'billing' (producer id 4711, epoch 3) is open there, for 8 s"
    until = "until that ends it or its timeout of 60 s expires; `ottla transactions fence billing` ends it now"
    assert line.endswith(f"{whose}, {until}")

    with caplog.at_level(logging.WARNING, "ottla.sdk.consumer"):
        cluster.run(10 * REPORT)
    [record] = caplog.records
    assert record.getMessage().startswith("committed records wait behind an open transaction (topic=t, partition=")
    facts = ("offset", "partition_count", "records", "producer_id", "producer_epoch", "transactional_id")
    assert [record.__dict__[name] for name in facts] == [3, 1, 2, PRODUCER, 3, "billing"]
    assert len(cluster.asked(DescribeProducersRequest)) == len(cluster.asked(ListTransactionsRequest)) == 1

    cluster.end(("t", 0))
    read(cluster, fetcher, 2)
    assert lines(cluster) == []


def test_a_transaction_in_many_partitions_is_one_line_and_one_request_to_each_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster({"t": 6}, nodes=2)
    for place in cluster.logs:
        cluster.open(place, b"a")
    fetcher = waiting(cluster)
    with caplog.at_level(logging.WARNING, "ottla.sdk.consumer"):
        cluster.run(REPORT + 2 * STILL)
    [line] = lines(cluster)
    assert line.startswith("t-0 at 1, t-1 at 1, t-2 at 1 and 3 more: the last stable offset has not moved for ")
    assert "with 12 record(s) behind it" in line
    assert [record.__dict__["partition_count"] for record in caplog.records] == [6]
    asked = [node for node, _, message in cluster.requests if isinstance(message, DescribeProducersRequest)]
    assert sorted(asked) == [1, 2]
    fetcher.close()
    assert lines(cluster) == []


@pytest.mark.parametrize("why", ["not offered", "not authorized", "no answer"])
def test_where_brokers_cannot_say_whose_it_is_or_may_not_they_are_asked_ever_more_rarely(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster({"t": 2}, versions={} if why == "not offered" else ASKED)
    if why == "not authorized":
        cluster.code = TopicAuthorizationFailed.code
    if why == "no answer":
        cluster.bend = lambda node, request, answer: None if isinstance(request, DescribeProducersRequest) else answer
    for place in cluster.logs:
        cluster.open(place, b"a")
    fetcher = waiting(cluster)
    with caplog.at_level(logging.WARNING, "ottla.sdk.consumer"):
        cluster.run(700.0, limit=800.0)
    [line] = [each for each in lines(cluster) if each.startswith("t-0 at 1, t-1 at 1: ")]
    assert "a transaction is open there; if it does not end, `ottla transactions find-hanging`" in line
    says = {
        "not offered": "is unknown: brokers before Kafka 2.8 cannot tell",
        "not authorized": "TOPIC_AUTHORIZATION_FAILED",
        "no answer": "is unknown: no answer within 30 s",
    }
    assert says[why] in line
    [record] = [each for each in caplog.records if "wait behind" in each.getMessage()]
    assert "producer_id" not in record.__dict__
    if why == "not authorized":
        assert len(cluster.asked(DescribeProducersRequest)) == 4
    for place in cluster.logs:
        cluster.end(place)
    read(cluster, fetcher, 4)


def test_a_transactional_id_that_is_not_told_is_left_out_and_asked_for_again() -> None:
    cluster = Cluster({"t": 1})
    cluster.listed = False
    cluster.open(("t", 0), b"a")
    waiting(cluster)
    cluster.run(2 * STILL)
    [line] = lines(cluster)
    assert "the transaction of producer id 4711, epoch 3 is open there, until it ends it or its timeout expires" in line
    cluster.listed = True
    cluster.run(60.0)
    assert "transactional id 'billing'" in lines(cluster)[0]
    assert len(cluster.asked(DescribeProducersRequest)) == 1


def test_a_transaction_that_its_coordinator_does_not_know_is_said_to_hang() -> None:
    cluster = Cluster({"t": 1}, state=COMPLETE_ABORT)
    cluster.open(("t", 0), b"a")
    waiting(cluster)
    cluster.run(2 * STILL)
    [line] = lines(cluster)
    assert "and hangs, because transactional id 'billing' is CompleteAbort" in line
    assert "`ottla transactions abort`" in line


def test_who_does_not_wait_for_a_transaction_says_nothing_of_it() -> None:
    cluster = Cluster({"t": 3})
    for place in cluster.logs:
        cluster.open(place, b"a")
    slow = reader(cluster, {("t", 0): Offset(0)}, isolation=READ_COMMITTED)
    cluster.run(slow.wait())
    fetcher = waiting(cluster)
    fetcher.pause([("t", 0)])
    fetcher.unassign([("t", 1)])
    waiting(cluster, READ_UNCOMMITTED).close()
    cluster.run(10 * REPORT)
    [line] = [each for each in lines(cluster) if "the last stable offset" in each]
    assert line.startswith("t-2 at 1: ")
    [request] = cluster.asked(DescribeProducersRequest)
    assert request.topics[0].partition_indexes == (2,)
