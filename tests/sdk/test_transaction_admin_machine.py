"""Calls about transactions, against a model of brokers: which node gets the request, retries, hanging transactions."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.codec.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.codec.apis.list_transactions import TransactionState as Listed
from ottla.codec.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    LocalProtocolError,
    NotCoordinator,
    NotLeaderOrFollower,
    PartialFailure,
    TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound,
    UnsupportedVersion,
)
from ottla.sdk import calls
from ottla.sdk.admin import HangingTransaction
from ottla.sdk.calls.transactions import Writer
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from tests.sim.world import ModelBroker, World

NEWEST = {10: (0, 6), 27: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2)}
SILENCE = object()
T0, T1 = ("t", 0), ("t", 1)
NOW = 1_000_000.0
"""The time of day when the world begins, in seconds."""
LOADING = ListTransactionsResponse(
    error_code=CoordinatorLoadInProgress.code, unknown_state_filters=(), transaction_states=()
)
HOUR_AGO = int((NOW - 3600) * 1000)


@dataclass
class Id:
    """A transactional id as its coordinator knows it."""

    producer_id: int = 7
    epoch: int = 0
    state: str = "Ongoing"
    partitions: tuple[tuple[str, int], ...] = (T0,)


@dataclass
class Open:
    """An open transaction as a partition knows it."""

    producer_id: int = 7
    epoch: int = 0
    start: int = 5
    timestamp: int = HOUR_AGO

    def state(self) -> ProducerState:
        return ProducerState(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            last_timestamp=self.timestamp,
            coordinator_epoch=-1,
            current_txn_start_offset=self.start,
        )


@dataclass
class Cluster(ModelBroker):
    """Coordinators and partitions that may contradict each other; ``script`` may answer in their place."""

    ids: dict[str, Id] = field(default_factory=dict)
    open: dict[tuple[str, int], Open] = field(default_factory=dict)
    coordinator: dict[str, int] = field(default_factory=dict)
    script: Callable[[int, Any], Any] = lambda node, message: None
    count: int = 2
    size: int = 1

    def __post_init__(self) -> None:
        super().__init__({"t": self.count}, self.size)
        self.versions.update(NEWEST)

    def asked(self, kind: type) -> list[tuple[int, Any]]:
        return [(node, message) for node, message in self.requests if isinstance(message, kind)]

    def _answer(self, node: int, message: Any) -> Any:
        if not isinstance(message, ApiVersionsRequest) and (answer := self.script(node, message)) is not None:
            return None if answer is SILENCE else answer
        match message:
            case FindCoordinatorRequest(key=key):
                where = self.coordinator.get(key, 1)
                return FindCoordinatorResponse(node_id=where, host=f"n{where}", port=9000 + where)
            case ListTransactionsRequest():
                return self._listed(node, message)
            case DescribeTransactionsRequest(transactional_ids=names):
                return DescribeTransactionsResponse(
                    transaction_states=tuple(self._described(node, each) for each in names)
                )
            case DescribeProducersRequest():
                return self._producers(node, message)
            case WriteTxnMarkersRequest():
                return self.marked(message, node)
        return super()._answer(node, message)

    def _listed(self, node: int, message: ListTransactionsRequest) -> ListTransactionsResponse:
        states, producers = message.state_filters, message.producer_id_filters
        return ListTransactionsResponse(
            error_code=0,
            unknown_state_filters=(),
            transaction_states=tuple(
                Listed(transactional_id=name, producer_id=each.producer_id, transaction_state=each.state)
                for name, each in self.ids.items()
                if self.coordinator.get(name, 1) == node
                and (not states or each.state in states)
                and (not producers or each.producer_id in producers)
            ),
        )

    def _described(self, node: int, name: str) -> TransactionState:
        known = self.ids.get(name)
        wrong = self.coordinator.get(name, 1) != node
        code = NotCoordinator.code if wrong else 0 if known else TransactionalIdNotFound.code
        each = known if known and not wrong else Id(partitions=())
        return TransactionState(
            error_code=code,
            transactional_id=name,
            transaction_state=each.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=HOUR_AGO,
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            topics=tuple(TopicData(topic=topic, partitions=(index,)) for topic, index in each.partitions),
        )

    def _producers(self, node: int, message: DescribeProducersRequest) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=tuple(
                TopicResponse(
                    name=topic.name,
                    partitions=tuple(self._remembered(node, (topic.name, index)) for index in topic.partition_indexes),
                )
                for topic in message.topics
            )
        )

    def _remembered(self, node: int, place: tuple[str, int]) -> PartitionResponse:
        code = 0 if self.cluster.leaders[place].node == node else NotLeaderOrFollower.code
        states = () if code or place not in self.open else (self.open[place].state(),)
        return PartitionResponse(partition_index=place[1], error_code=code, active_producers=states)

    def marked(self, message: WriteTxnMarkersRequest, node: int, code: int = 0) -> WriteTxnMarkersResponse:
        """Write the marker, unless ``code`` is an error."""
        [marker] = message.markers
        [topic] = marker.topics
        [index] = topic.partition_indexes
        if self.cluster.leaders[topic.name, index].node != node:
            code = NotLeaderOrFollower.code
        if not code:
            self.open.pop((topic.name, index), None)
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        of_topic = WritableTxnMarkerTopicResult(name=topic.name, partitions=(result,))
        return WriteTxnMarkersResponse(
            markers=(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=(of_topic,)),)
        )


def client(cluster: Cluster) -> World:
    world = World(cluster, options=Options(api_timeout=20.0, connect_timeout=2.0, request_timeout=3.0))
    world.call(world.core.connect)
    return world


def find(world: World, timeout: float = 900.0) -> tuple[HangingTransaction, ...]:
    found: tuple[HangingTransaction, ...] = world.call(
        lambda now: calls.find_hanging_transactions(world.core, None, timeout, now, NOW)
    )
    return found


def abort(world: World, which: int | Writer = 5, *, force: bool = False) -> None:
    world.call(lambda now: calls.abort_hanging_transaction(world.core, T0, which, force, now))


# -- coordinators -----------------------------------------------------------------------------------------------------


def test_each_coordinator_is_asked_once_for_all_of_its_ids() -> None:
    cluster = Cluster(ids={"a": Id(), "b": Id(8), "c": Id(9)}, coordinator={"b": 2}, size=2)
    world = client(cluster)
    described = world.call(lambda now: calls.describe_transactions(world.core, ["a", "b", "c"], now))
    assert [(each.producer_id, each.coordinator.id) for each in described.values()] == [(7, 1), (8, 2), (9, 1)]
    asked = {node: message.transactional_ids for node, message in cluster.asked(DescribeTransactionsRequest)}
    assert asked == {1: ("a", "c"), 2: ("b",)}
    assert {message.key_type for _, message in cluster.asked(FindCoordinatorRequest)} == {1}
    cluster.coordinator["b"] = 1
    world.call(lambda now: calls.describe_transactions(world.core, ["b"], now))
    assert [node for node, _ in cluster.asked(DescribeTransactionsRequest)][2:] == [2, 1]


def test_ids_of_all_brokers_are_listed() -> None:
    cluster = Cluster(ids={"b": Id(8), "a": Id(), "c": Id(9, state="Empty")}, coordinator={"a": 2, "c": 3}, size=3)
    world = client(cluster)
    listed = world.call(lambda now: calls.list_transactions(world.core, (), (), None, now))
    assert [(each.transactional_id, each.state, each.coordinator.id) for each in listed] == [
        ("a", "Ongoing", 2),
        ("b", "Ongoing", 1),
        ("c", "Empty", 3),
    ]
    listed = world.call(lambda now: calls.list_transactions(world.core, ["EMPTY"], [9], None, now))
    assert [each.transactional_id for each in listed] == ["c"]
    world.call(lambda now: calls.list_transactions(world.core, (), (), 1.5, now))
    sent = cluster.asked(ListTransactionsRequest)[-1][1]
    assert sent.duration_filter == 1500 and "Ongoing" in sent.state_filters and "Empty" not in sent.state_filters


def test_a_broker_that_cannot_tell_its_ids_is_named_beside_those_of_the_others() -> None:
    cluster = Cluster(ids={"a": Id(), "b": Id(8)}, coordinator={"b": 2}, size=2)
    cluster.script = lambda node, message: (
        LOADING if node == 2 and isinstance(message, ListTransactionsRequest) else None
    )
    world = client(cluster)
    with pytest.raises(PartialFailure, match=r"node 2 \(n2:9002\).*COORDINATOR_LOAD") as failed:
        world.call(lambda now: calls.list_transactions(world.core, (), (), None, now))
    assert [each.transactional_id for each in failed.value.found] == ["a"]


@pytest.mark.parametrize(
    ("start", "key", "since"),
    [
        (lambda core, now: calls.list_transactions(core, (), (), None, now), 66, "3.0"),
        (lambda core, now: calls.describe_transactions(core, ["a"], now), 65, "3.0"),
        (lambda core, now: calls.describe_transactions(core, ["a", "b"], now), 65, "3.0"),
        (lambda core, now: calls.describe_producers(core, [T0, T1], now), 61, "2.8"),
        (lambda core, now: calls.find_hanging_transactions(core, None, 0.0, now, NOW), 61, "2.8"),
        (lambda core, now: calls.find_hanging_transactions(core, None, 0.0, now, NOW), 66, "3.0"),
    ],
)
def test_an_api_that_brokers_lack_is_named_with_the_version_that_brought_it(
    start: Callable[..., Outcome[Any]], key: int, since: str
) -> None:
    cluster = Cluster(ids={"a": Id()}, open={T0: Open()}, size=2)
    del cluster.versions[key]
    world = client(cluster)
    with pytest.raises(UnsupportedVersion, match=rf"does not offer it; you need Kafka {since} or newer"):
        world.call(lambda now: start(world.core, now))


def test_how_long_a_transaction_is_open_is_not_asked_of_brokers_that_do_not_know_it() -> None:
    cluster = Cluster(ids={"a": Id()})
    cluster.versions[66] = (0, 0)
    world = client(cluster)
    with pytest.raises(UnsupportedVersion, match=r"since Kafka 3\.8; leave out running_longer"):
        world.call(lambda now: calls.list_transactions(world.core, (), (), 1.0, now))
    assert not cluster.asked(ListTransactionsRequest)


def test_ids_are_fenced_one_by_one_and_each_until_its_transaction_is_aborted() -> None:
    cluster = Cluster(ids={"a": Id(), "b": Id(8)}, coordinator={"b": 2}, size=2)
    ending = iter([True, True])

    def script(node: int, message: Any) -> Any:
        if not isinstance(message, InitProducerIdRequest):
            return None
        name = message.transactional_id or ""
        code = TransactionalIdAuthorizationFailed.code if name == "c" else 0
        if name == "b" and next(ending, False):
            code = ConcurrentTransactions.code
        return InitProducerIdResponse(error_code=code, producer_id=8, producer_epoch=3)

    cluster.script = script
    world = client(cluster)
    fenced = world.call(lambda now: calls.fence_producers(world.core, ["a", "b"], now))
    assert fenced == {"a": (8, 3), "b": (8, 3)}
    asked = cluster.asked(InitProducerIdRequest)
    assert sorted((node, message.transactional_id) for node, message in asked) == [(1, "a"), *[(2, "b")] * 3]
    assert {(message.producer_id, message.transaction_timeout_ms) for _, message in asked} == {(-1, 3000)}
    with pytest.raises(PartialFailure, match=r"transactional id 'c'") as failed:
        world.call(lambda now: calls.fence_producers(world.core, ["a", "c"], now))
    assert list(failed.value.found) == ["a"]


# -- partitions -------------------------------------------------------------------------------------------------------


def test_leaders_are_asked_for_some_hundred_partitions_at_a_time() -> None:
    cluster = Cluster(count=1201, size=2)
    world = client(cluster)
    places = [("t", index) for index in range(1201)]
    told = world.call(lambda now: calls.describe_producers(world.core, places, now))
    assert list(told) == places
    sizes = [
        (node, len(message.topics[0].partition_indexes)) for node, message in cluster.asked(DescribeProducersRequest)
    ]
    assert sorted(sizes) == [(1, 101), (1, 500), (2, 100), (2, 500)]


def test_a_partition_that_has_another_leader_by_now_is_asked_about_there() -> None:
    cluster = Cluster(open={T0: Open()}, size=2)
    world = client(cluster)
    world.call(lambda now: calls.describe_producers(world.core, [T0, T1], now))
    cluster.cluster.lead(T0, 2)
    told = world.call(lambda now: calls.describe_producers(world.core, [T0, T1], now))
    assert [each.transaction_start for each in told[T0]] == [5] and told[T1] == ()


# -- hanging transactions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (None, "no coordinator knows its producer id"),
        (Id(), ""),
        (Id(epoch=1), ""),
        (Id(epoch=1, state="PrepareAbort"), ""),
        (
            Id(state="PrepareCommit", partitions=(T1,)),
            "transactional id 'a' is PrepareCommit, and its transaction does not have this partition",
        ),
        (Id(partitions=(T1,)), "transactional id 'a' is Ongoing, and its transaction does not have this partition"),
        (
            Id(state="CompleteAbort", partitions=()),
            "transactional id 'a' is CompleteAbort, and its transaction does not have this partition",
        ),
        (Id(8), "no coordinator knows its producer id"),
    ],
)
def test_a_transaction_hangs_where_no_coordinator_is_going_to_end_it(known: Id | None, reason: str) -> None:
    world = client(Cluster(ids={"a": known} if known else {}, coordinator={"a": 2}, open={T0: Open()}, size=2))
    found = find(world)
    assert [each.reason for each in found] == ([reason] if reason else [])
    if not reason:
        with pytest.raises(LocalProtocolError, match="belongs to transactional id 'a'"):
            abort(world)


def test_a_marker_of_an_older_epoch_than_the_records_would_be_refused() -> None:
    world = client(Cluster(ids={"a": Id(epoch=2)}, open={T0: Open(epoch=3)}))
    [found] = find(world)
    assert (found.reason, found.transactional_id) == (
        "transactional id 'a' has epoch 2, whose marker would be refused",
        "a",
    )


def test_only_what_is_old_enough_is_looked_at() -> None:
    cluster = Cluster(open={T0: Open(), T1: Open(8)})
    world = client(cluster)
    assert find(world, timeout=3601.0 + world.now) == ()
    assert not cluster.asked(ListTransactionsRequest)
    assert [(each.partition, each.producer_id, each.start_offset) for each in find(world)] == [(0, 7, 5), (1, 8, 5)]
    assert set(cluster.asked(ListTransactionsRequest)[0][1].producer_id_filters) == {7, 8}


@pytest.mark.parametrize("then", [None, Open(start=9)], ids=["it ended", "another one began"])
def test_what_ends_while_its_coordinator_is_asked_does_not_hang(then: Open | None) -> None:
    cluster = Cluster(ids={"a": Id()}, open={T0: Open(), T1: Open(9)})

    def script(node: int, message: Any) -> None:
        if isinstance(message, ListTransactionsRequest):  # committed before the coordinator's next answer
            cluster.ids["a"] = Id(state="CompleteCommit", partitions=())
            cluster.open.pop(T0)
            if then:
                cluster.open[T0] = then

    cluster.script = script
    world = client(cluster)
    assert [each.partition for each in find(world)] == [1]


def test_what_a_broker_that_is_gone_may_know_does_not_count_as_hanging() -> None:
    cluster = Cluster(ids={"a": Id(partitions=())}, open={T0: Open(), T1: Open(8)}, size=3)
    cluster.cluster.lead(T1, 1)
    cluster.script = lambda node, message: SILENCE if node == 3 else None
    world = client(cluster)
    with pytest.raises(PartialFailure, match=r"node 3 \(n3:9003\)") as failed:
        find(world)
    assert [(each.partition, each.transactional_id) for each in failed.value.found] == [(0, "a")]
    cluster.open[T0] = Open(8)
    with pytest.raises(
        PartialFailure, match=r"it is unknown whether a coordinator is going to end the transaction.*node 3"
    ):
        abort(world)
    assert T0 in cluster.open
    abort(world, force=True)
    assert T0 not in cluster.open


def test_an_id_that_may_not_be_described_may_own_what_seems_to_hang() -> None:
    cluster = Cluster(ids={"a": Id()}, open={T0: Open()})
    refused = replace(cluster._described(1, "a"), error_code=TransactionalIdAuthorizationFailed.code)
    cluster.script = lambda node, message: (
        DescribeTransactionsResponse(transaction_states=(refused,))
        if isinstance(message, DescribeTransactionsRequest)
        else None
    )
    world = client(cluster)
    with pytest.raises(PartialFailure, match="transactional id 'a'") as failed:
        find(world)
    assert failed.value.found == ()


def test_a_partition_that_nobody_leads_is_named_beside_what_hangs_elsewhere() -> None:
    cluster = Cluster(open={T0: Open()})
    cluster.cluster.lead(T1, -1)
    world = client(cluster)
    with pytest.raises(PartialFailure, match="t-1 has no leader") as failed:
        find(world)
    assert [each.partition for each in failed.value.found] == [0] and world.now < 10


# -- aborting ---------------------------------------------------------------------------------------------------------


def test_the_marker_says_what_the_partition_remembers() -> None:
    cluster = Cluster(open={T0: Open(7, 3)})
    abort(client(cluster))
    [(_, message)] = cluster.asked(WriteTxnMarkersRequest)
    [marker] = message.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 0)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)


@pytest.mark.parametrize("written", [False, True], ids=["it was not written", "it was"])
def test_a_marker_without_an_answer_is_repeated_only_while_the_transaction_is_open(written: bool) -> None:
    cluster = Cluster(open={T0: Open()})

    def script(node: int, message: Any) -> Any:
        if isinstance(message, WriteTxnMarkersRequest) and len(cluster.asked(WriteTxnMarkersRequest)) == 1:
            if written:
                cluster.marked(message, node)
                cluster.open[T0] = Open(start=11)  # the producer has begun its next transaction
            return SILENCE
        return None

    cluster.script = script
    abort(client(cluster))
    assert len(cluster.asked(WriteTxnMarkersRequest)) == (1 if written else 2)
    assert (T0 in cluster.open) == written


@pytest.mark.parametrize("which", [5, Writer(7, 0, 0)], ids=["by its offset", "by its producer"])
@pytest.mark.parametrize("gone", [False, True], ids=["the leader has moved", "the leader is gone"])
def test_a_marker_goes_to_the_leader_that_there_is_by_then(which: int | Writer, gone: bool) -> None:
    cluster = Cluster(open={T0: Open()}, size=2)

    def script(node: int, message: Any) -> Any:
        if isinstance(message, WriteTxnMarkersRequest):
            cluster.cluster.lead(T0, 2)
        return SILENCE if gone and node == 1 and cluster.cluster.leaders[T0].node == 2 else None

    cluster.script = script
    abort(client(cluster), which)
    first, *_, last = [node for node, _ in cluster.asked(WriteTxnMarkersRequest)]
    assert (first, last) == (1, 2) and T0 not in cluster.open


def test_brokers_that_cannot_be_asked_who_owns_a_transaction_take_a_marker_by_force() -> None:
    cluster = Cluster(open={T0: Open()})
    for key in (61, 65, 66):
        del cluster.versions[key]
    world = client(cluster)
    writer = Writer(7, 0, -1)
    with pytest.raises(UnsupportedVersion, match=r"`force` skips the question: ListTransactions.*Kafka 3\.0"):
        abort(world, writer)
    abort(world, writer, force=True)
    assert cluster.asked(WriteTxnMarkersRequest)[0][1].markers[0].coordinator_epoch == 0 and T0 not in cluster.open


def test_a_proxy_is_named_where_markers_do_not_pass() -> None:
    cluster = Cluster(open={T0: Open()})
    del cluster.versions[27]
    with pytest.raises(UnsupportedVersion, match="a proxy does not forward it: connect to the brokers directly"):
        abort(client(cluster))


def test_nothing_more_is_asked_for_a_caller_that_is_gone() -> None:
    cluster = Cluster(ids={"a": Id(partitions=())}, open={T0: Open()}, size=2)
    world = client(cluster)
    cluster.script = lambda node, message: LOADING if isinstance(message, ListTransactionsRequest) else None
    outcome = calls.abort_hanging_transaction(world.core, T0, 5, False, world.now)
    world.run(lambda: len(cluster.asked(ListTransactionsRequest)) >= 2)
    with world.core.gate:
        outcome.cancel()
    before = len(cluster.requests)
    world.run(20.0)
    kinds = {type(message) for _, message in cluster.requests[before:]}
    assert not kinds & {ListTransactionsRequest, DescribeTransactionsRequest, WriteTxnMarkersRequest}
