"""Transactions on a rewritten topic, with an upstream that records its requests."""

from typing import Any

import pytest

from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.partitioners import murmur2_partition
from ottla.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidRequest,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OperationNotAttempted,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    ProducerFenced,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownProducerId,
    UnknownTopicOrPartition,
)
from ottla.proxy.clients import producers, transactions, unknown_epochs
from ottla.proxy.clients.acceptance import UNDER_WAY
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.dialects import UNNAMED
from ottla.proxy.clients.routed_topics import METADATA_WAIT
from ottla.proxy.clients.transaction_handler import CONCURRENT_WAIT, LONGEST_TRANSACTIONAL_ID
from ottla.proxy.clients.transactions import MOST_WAITING
from ottla.proxy.clients.unknown_epochs import UnknownEpochs
from ottla.proxy.upstream.stream_sender import IMPLICIT, LONG_REST
from tests.proxy.simulated import ANSWERED, CUT_AFTER, CUT_BEFORE, Pair, Reply, Upstream, World, batch
from tests.proxy.test_producers_upstream import numbers
from tests.proxy.test_rewriting import SIX, key_at, world_of

NAME = "payments"
ABORTABLE = {9: PolicyViolation.code, 11: TransactionAbortable.code}
"""Version of Produce -> the error that makes clients abort."""


def opened(world: World, client: int = 1) -> tuple[int, int]:
    """The id and epoch of a new transactional producer."""
    reply = world.request(client, InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=1000), 4)
    if reply.frame is None:  # upstream aborts the transaction before first
        world.settle(1)
    answer: InitProducerIdResponse = reply.parsed(InitProducerIdResponse)
    return answer.producer_id, answer.producer_epoch


def produce(
    world: World, producer: tuple[int, int], sequence: int, *places: int, version: int = 9, adds: bool = True
) -> Reply:
    """Send records of these partitions to partition 0; before version 2, with AddPartitionsToTxn first if ``adds``."""
    if adds and version < IMPLICIT:
        add(world, producer, {"flights": (0,)})
    records: list[Pair] = [(key_at(place), b"%d" % sequence) for place in places]
    data = batch(records, *producer, sequence, transactional=True)
    return world.produce(1, {("flights", 0): data}, transactional_id=NAME, version=version)


def end(world: World, producer: tuple[int, int], *, commit: bool, version: int = 4, client: int = 2) -> Reply:
    request = EndTxnRequest(
        transactional_id=NAME, producer_id=producer[0], producer_epoch=producer[1], committed=commit
    )
    return world.request(client, request, version)


def code(reply: Reply) -> int:
    answer: EndTxnResponse = reply.parsed(EndTxnResponse)
    return answer.error_code


def add(world: World, producer: tuple[int, int], topics: dict[str, tuple[int, ...]]) -> dict[tuple[str, int], int]:
    """The errors of the partitions in the response to AddPartitionsToTxn."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=tuple(AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()),
    )
    answer: AddPartitionsToTxnResponse = world.request(2, request, 3).parsed(AddPartitionsToTxnResponse)
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def added(world: World) -> dict[str, tuple[int, ...]]:
    """The partitions in upstream's latest AddPartitionsToTxn request."""
    request: AddPartitionsToTxnRequest = world.upstream.asked(AddPartitionsToTxnRequest)[-1]
    assert (request.v3_and_below_transactional_id, request.v3_and_below_producer_id) == (NAME, 1001)
    return {topic.name: topic.partitions for topic in request.v3_and_below_topics}


def ends(world: World) -> list[EndTxnRequest]:
    """Upstream's EndTxn requests."""
    return world.upstream.asked(EndTxnRequest)


def test_all_partitions_that_keys_go_to_are_added_and_those_that_were_named_are_answered() -> None:
    world = world_of()
    producer = opened(world)
    assert add(world, producer, {"flights": (2,), "plain": (1,)}) == {("flights", 2): 0, ("plain", 1): 0}
    assert added(world) == {"flights": tuple(range(SIX)), "plain": (1,)}


def test_so_many_wait_until_a_topic_is_described_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_WIDENING", 3)
    world = world_of(rule="*=rewrite")
    producer = opened(world)
    world.upstream.hide("plain")
    topics = (AddPartitionsToTxnTopic(name="plain", partitions=(0,)),)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics,
    )
    replies = [world.request(2, request, 3) for _ in range(5)]
    assert [reply.frame is None for reply in replies] == [True, True, True, False, False]
    for _ in range(2):
        world.settle(METADATA_WAIT + 1)
        assert all(reply.frame is not None for reply in replies), "the abandoned ones leave their place"
        replies = [world.request(2, request, 3) for _ in range(3)]
        assert all(reply.frame is None for reply in replies)


def test_a_topic_that_is_named_again_and_again_is_widened_once() -> None:
    world = world_of()
    producer = opened(world)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name="flights", partitions=(each % SIX,)) for each in range(1000)
        ),
    )
    answer = world.request(2, request, 3).parsed(AddPartitionsToTxnResponse)
    results = [each for topic in answer.results_by_topic_v3_and_below for each in topic.results_by_partition]
    assert {each.partition_error_code for each in results} == {0}
    asked = world.upstream.asked(AddPartitionsToTxnRequest)[-1]
    assert [(topic.name, topic.partitions) for topic in asked.v3_and_below_topics] == [("flights", tuple(range(SIX)))]


def test_a_partition_that_cannot_be_added_fails_the_one_that_was_named() -> None:
    world = world_of()
    producer = opened(world)
    world.upstream.unaddable = {("flights", each): OperationNotAttempted.code for each in range(SIX)}
    world.upstream.unaddable["flights", 4] = TopicAuthorizationFailed.code
    assert add(world, producer, {"flights": (2,)}) == {("flights", 2): TopicAuthorizationFailed.code}


def test_partitions_are_added_once_their_topic_is_described() -> None:
    world = world_of(rule="*=rewrite")
    producer = opened(world)
    assert add(world, producer, {"plain": (0,)}) == {("plain", 0): 0}
    assert added(world) == {"plain": (0, 1)}


def test_a_transactions_records_go_under_its_producer_and_its_epoch() -> None:
    world = world_of()
    opened(world)
    producer = opened(world)
    assert producer[1] == 1
    assert produce(world, producer, 0, 3).code == 0
    assert produce(world, producer, 1, 3, 4).code == 0
    assert code(end(world, producer, commit=True)) == 0
    assert produce(world, producer, 3, 3).code == 0
    assert numbers(world) == [(*producer, 0), (*producer, 1), (*producer, 0), (*producer, 2)]
    assert {request.transactional_id for _, request in world.upstream.produced} == {NAME}


@pytest.mark.parametrize(("version", "sent"), [(9, 11), (11, 11), (12, 13)])
def test_version_1_is_never_sent_as_version_2(version: int, sent: int) -> None:
    world = world_of()
    assert produce(world, opened(world), 0, 3, version=version).code == 0
    assert world.upstream.versions == [sent]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended_when_all_its_records_are_settled(commit: bool) -> None:
    world = world_of()
    producer = opened(world)
    world.slow = True
    records = produce(world, producer, 0, 3, 4)
    ending = end(world, producer, commit=commit)
    world.settle(1)
    assert ending.frame is None and not ends(world)
    world.release()
    assert code(ending) == 0
    assert records.code == (0 if commit else ABORTABLE[9])
    (request,) = ends(world)
    assert request.committed is commit


def test_records_of_a_doomed_transaction_are_sent_again_only_if_they_could_arrive_late() -> None:
    for version, again in ((11, 2), (12, 1)):  # in version 2, the records would have the epoch of the ended transaction
        world = world_of()
        producer = opened(world)
        fates = iter([CUT_AFTER])
        world.upstream.fate = lambda request, fates=fates: next(fates, ANSWERED)  # type: ignore[misc]
        produce(world, producer, 0, 3, version=version)
        ending = end(world, producer, commit=False)
        world.settle(5)
        assert code(ending) == 0
        assert len(numbers(world)) == again
        assert len(world.upstream.values("flights")) == 1


def test_what_may_be_stored_can_only_be_aborted_and_the_next_epoch_goes_on() -> None:
    world = world_of(delivery_timeout=1.0)
    producer = opened(world)
    world.upstream.fate = lambda request: CUT_AFTER
    unknown = [produce(world, producer, 0, 3, version=9), produce(world, producer, 1, 3, version=11)]
    world.settle(LONG_REST)
    assert [each.code for each in unknown] == [ABORTABLE[9], UNNAMED.abort]
    another_epoch = {3: UnknownProducerId.code, 4: UnknownProducerId.code, 5: TransactionAbortable.code}
    for version, told in another_epoch.items():  # from version 5 on the new epoch comes with the response
        assert code(end(world, producer, commit=True, version=version)) == told
    assert not ends(world)
    assert code(end(world, producer, commit=False)) == 0
    world.upstream.fate = lambda request: ANSWERED
    following = opened(world)
    assert produce(world, following, 0, 3).code == 0
    assert code(end(world, following, commit=True)) == 0


def test_a_batch_that_is_stored_in_part_can_only_be_aborted() -> None:
    world = world_of()
    producer = opened(world)
    world.upstream.errors["flights", 4].append(InvalidRecord.code)
    assert produce(world, producer, 0, 3, 4).code == InvalidRecord.code
    assert code(end(world, producer, commit=True)) == TransactionAbortable.code
    assert produce(world, producer, 0, 5).code == UNNAMED.abort
    assert code(end(world, producer, commit=False)) == 0
    assert produce(world, producer, 0, 3, 4).code == 0  # the epoch stays the same, and its sequences continue
    assert code(end(world, producer, commit=True)) == 0


def test_what_is_stored_behind_a_batch_that_is_refused_later_can_only_be_aborted() -> None:
    world = world_of(delivery_timeout=1.0)
    producer = opened(world)
    world.upstream.errors["flights", 3] += [ConcurrentTransactions.code] * 1000
    first, second = produce(world, producer, 0, 3), produce(world, producer, 1, 4, 5)
    assert len(world.upstream.values("flights")) == 2 and second.frame is None
    world.settle(3)
    assert (first.code, second.code) == (ABORTABLE[9], ABORTABLE[9])
    assert code(end(world, producer, commit=True)) == TransactionAbortable.code


def test_a_batch_of_which_nothing_is_stored_is_for_the_client_to_judge() -> None:
    world = world_of()
    producer = opened(world)
    world.upstream.errors["flights", 3].append(InvalidRecord.code)
    assert produce(world, producer, 0, 3).code == InvalidRecord.code
    assert produce(world, producer, 0, 3).code == 0
    assert code(end(world, producer, commit=True)) == 0


def test_an_epoch_that_the_proxy_does_not_know_gets_no_records_in_and_is_not_fenced() -> None:
    world = world_of()
    producer = opened(world)
    assert produce(world, (producer[0], 7), 0, 3).code == UNNAMED.abort
    following = opened(world)
    assert produce(world, producer, 0, 3).code == InvalidProducerEpoch.code
    assert produce(world, following, 0, 3).code == 0


def test_upstream_tells_the_next_epoch_of_version_2() -> None:
    world = world_of()
    world.upstream.cluster.transaction_version = 2
    producer = opened(world)
    assert produce(world, producer, 0, 3, version=12).code == 0
    answer: EndTxnResponse = end(world, producer, commit=True, version=5).parsed(EndTxnResponse)
    following = answer.producer_id, answer.producer_epoch
    assert following == (producer[0], producer[1] + 1)
    assert produce(world, following, 0, 3, version=12).code == 0
    assert numbers(world) == [(*producer, 0), (*following, 0)]


@pytest.mark.parametrize(("lacks", "offered"), [({}, True), ({0: 11}, False), ({26: 4}, False), ({28: 4}, False)])
def test_version_2_is_offered_where_upstream_has_all_that_it_takes(lacks: dict[int, int], offered: bool) -> None:
    world = world_of()
    world.upstream.cluster.release |= {key: (0, newest) for key, newest in lacks.items()}
    world.upstream.cluster.transaction_version = 2
    world.upstream.features["group.version"] = 1
    asked = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    answer: Any = world.request(9, asked, 4).parsed(ApiVersionsResponse)
    names = {each.name for each in answer.finalized_features}
    assert names == {"group.version", *(["transaction.version"] if offered else [])}
    assert answer.finalized_features_epoch == 1


def test_the_answer_to_an_older_end_does_not_end_what_is_open_now() -> None:
    world = world_of()
    producer = opened(world)
    hold: list[Any] = []
    answered = world.core.transactions.ended
    world.core.transactions.ended = lambda *given: hold.append(given)  # type: ignore[method-assign]
    end(world, producer, commit=False)
    end(world, producer, commit=False)
    answered(*hold[1])
    world.core.transactions.ended = answered  # type: ignore[method-assign]
    world.upstream.errors["flights", 4].append(InvalidRecord.code)
    produce(world, producer, 0, 3, 4)
    answered(*hold[0])
    assert code(end(world, producer, commit=True)) == TransactionAbortable.code


def test_an_upstream_that_begins_again_is_believed_to_have_nothing() -> None:
    world = world_of()
    for _ in range(2):
        idempotent, transactional = world.producer_id(1), opened(world)
        assert world.produce(1, {("flights", 0): batch([(key_at(3), b"x")], idempotent, 0, 0)}).code == 0
        assert produce(world, transactional, 0, 4).code == 0
        assert len(world.upstream.values("flights")) == 2
        world.upstream = Upstream({"flights": SIX, "plain": 2})


def test_only_the_transactional_id_of_a_producer_ends_its_transaction_or_adds_to_it() -> None:
    world = world_of()
    producer = opened(world)
    world.slow = True
    records = produce(world, producer, 0, 3)
    foreign = EndTxnRequest(
        transactional_id="other", producer_id=producer[0], producer_epoch=producer[1], committed=False
    )
    assert code(world.request(2, foreign, 4)) == InvalidProducerIdMapping.code  # what upstream's coordinator says
    world.slow = False
    world.release()
    assert records.code == 0
    data = batch([(key_at(3), b"x")], *producer, 1, transactional=True)
    assert world.produce(2, {("flights", 0): data}, transactional_id="other").code == InvalidProducerIdMapping.code
    plain = batch([(key_at(3), b"x")], *producer, 1)
    assert world.produce(2, {("flights", 0): plain}).code == InvalidTxnState.code
    unowned = batch([(key_at(3), b"x")], transactional=True)
    assert world.produce(2, {("flights", 0): unowned}, transactional_id=NAME).code == InvalidRecord.code


def test_so_many_ends_wait_and_no_more() -> None:
    world = world_of()
    producer = opened(world)
    world.slow = True
    produce(world, producer, 0, 3)
    ends = [end(world, producer, commit=False) for _ in range(MOST_WAITING + 1)]
    assert code(ends[-1]) == ConcurrentTransactions.code
    assert not any(each.frame for each in ends[:-1])


@pytest.mark.parametrize("restarts", [False, True])
def test_records_go_to_partitions_only_that_were_added(restarts: bool) -> None:
    world = world_of(journal=True)
    producer = opened(world)
    assert produce(world, producer, 0, 3).code == 0
    world.upstream.cluster.recreate("flights", 2 * SIX)
    if restarts:
        world.restart()
    world.core.control.request_topics("flights")
    world.settle(1)
    places = {murmur2_partition(b"%d" % n, 2 * SIX): b"%d" % n for n in range(99)}
    data = batch([(places[SIX + 1], b"v")], *producer, 1, transactional=True)
    assert world.produce(1, {("flights", 0): data}, transactional_id=NAME).code == ABORTABLE[9]
    assert not world.upstream.logs["flights", SIX + 1]


def test_what_was_added_belongs_to_one_transaction() -> None:
    world = world_of()
    producer = opened(world)
    assert produce(world, producer, 0, 3).code == 0
    assert code(end(world, producer, commit=True)) == 0
    assert produce(world, producer, 1, 3, adds=False).code == ABORTABLE[9]
    assert produce(world, producer, 1, 3, version=12).code == 0  # upstream adds the partition


@pytest.mark.parametrize("restarts", [False, True])
def test_records_that_come_behind_the_end_of_their_transaction_are_not_sent(restarts: bool) -> None:
    world = world_of(journal=True)
    producer = opened(world)
    add(world, producer, {"flights": (0,)})
    world.upstream.busy = 1
    assert code(end(world, producer, commit=False)) == ConcurrentTransactions.code
    if restarts:
        world.restart()
        world.settle(1)
    assert produce(world, producer, 0, 3, adds=False).code == ABORTABLE[9]
    assert not world.upstream.values("flights")
    assert code(end(world, producer, commit=False)) == 0
    assert produce(world, producer, 0, 3).code == 0


def test_what_an_earlier_proxy_without_state_has_sent_is_not_committed_without_what_was_refused() -> None:
    world = world_of()
    producer = opened(world)
    assert produce(world, producer, 0, 3).code == 0
    world.restart()
    world.settle(1)
    assert produce(world, producer, 1, 3, adds=False).code == UNNAMED.abort
    assert code(end(world, producer, commit=True)) == UnknownProducerId.code
    assert code(end(world, producer, commit=False)) == 0


def test_an_answer_to_an_older_producer_changes_nothing_of_the_newer_one() -> None:
    world = world_of()
    transactions = world.core.transactions
    older = transactions.newest
    newer = opened(world), opened(world)
    assert produce(world, newer[1], 0, 3).code == 0
    transactions.initialized(NAME, *newer[0], Origin(1, "10.0.0.1:9"), world.now, older=older)
    assert produce(world, newer[1], 1, 3).code == 0


def test_an_end_waits_for_records_whose_topic_is_not_described() -> None:
    world = world_of(rule="*=rewrite")
    producer = opened(world)
    add(world, producer, {"flights": (0,)})
    data = batch([(b"k", b"v")], *producer, 0, transactional=True)
    world.upstream.hide("plain")
    records = world.produce(1, {("plain", 0): data}, transactional_id=NAME, version=12)
    ending = end(world, producer, commit=False)
    assert records.frame is None and ending.frame is None
    world.settle(METADATA_WAIT + 1)
    assert records.code == UnknownTopicOrPartition.code
    assert code(ending) == 0


def test_an_end_that_waits_goes_on_when_the_producer_has_another_epoch() -> None:
    world = world_of()
    producer = opened(world)
    world.slow = True
    records, ending = produce(world, producer, 0, 3), end(world, producer, commit=True)
    assert ending.frame is None
    following = opened(world)
    # Upstream judges the latter.
    assert (records.code, code(ending)) == (InvalidProducerEpoch.code, ProducerFenced.code)
    world.release()
    world.slow = False
    assert produce(world, following, 0, 3).code == 0


def test_a_coordinator_that_is_busy_has_ended_nothing() -> None:
    world = world_of()
    producer = opened(world)
    world.upstream.errors["flights", 4].append(InvalidRecord.code)
    produce(world, producer, 0, 3, 4)
    world.upstream.busy = 1
    assert code(end(world, producer, commit=False)) == ConcurrentTransactions.code
    assert code(end(world, producer, commit=True)) == TransactionAbortable.code
    assert code(end(world, producer, commit=False)) == 0
    assert code(end(world, producer, commit=True)) == InvalidTxnState.code  # what upstream's coordinator says


@pytest.mark.parametrize("refused", [False, True])
def test_what_waits_for_another_try_is_given_up_at_once_when_it_is_to_be_aborted(refused: bool) -> None:
    world = world_of()
    producer = opened(world)
    world.upstream.errors["flights", 3] += [ConcurrentTransactions.code] * 9
    world.upstream.errors["flights", 4] += [InvalidRecord.code] * refused
    records, ending = produce(world, producer, 0, 3, 4), end(world, producer, commit=False)
    assert records.code == (InvalidRecord.code if refused else ABORTABLE[9])
    assert code(ending) == 0


def test_a_transaction_of_version_2_goes_on_as_such_after_a_restart() -> None:
    world = world_of(journal=True)
    producer = opened(world)
    world.slow = True
    produce(world, producer, 0, 3, version=12)
    world.slow = False
    world.restart()
    world.settle(1)
    assert world.upstream.versions == [13, 13]


def test_an_epoch_whose_numbers_are_lost_takes_nothing_more() -> None:
    world = world_of()
    producer = opened(world)
    world.upstream.errors["flights", 3].append(OutOfOrderSequenceNumber.code)
    assert produce(world, producer, 0, 3).code == ABORTABLE[9]
    assert code(end(world, producer, commit=False)) == 0
    assert produce(world, producer, 0, 4).code == UNNAMED.abort
    assert produce(world, opened(world), 0, 3).code == 0


def test_behind_a_doubt_of_version_1_another_epoch_is_needed() -> None:
    world = world_of(delivery_timeout=1.0)
    producer = opened(world)
    world.upstream.fate = lambda request: CUT_BEFORE
    unknown = produce(world, producer, 0, 3)
    world.settle(5)
    assert unknown.code == ABORTABLE[9]
    world.upstream.fate = lambda request: ANSWERED
    assert code(end(world, producer, commit=False)) == 0
    assert produce(world, producer, 0, 4).code == UNNAMED.abort
    assert produce(world, opened(world), 0, 4).code == 0


def test_a_producer_of_which_something_is_under_way_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "REMEMBERED_PRODUCERS", 20)
    world = world_of()
    payer = opened(world)
    world.upstream.errors["flights", 3] += [NotLeaderOrFollower.code] * 6
    told = produce(world, payer, 0, 3)
    for _ in range(40):
        world.producer_id(9)
    assert len(list(world.core.admission.producers)) == 20 + 1
    end(world, payer, commit=True)
    assert not ends(world), "its records are still in flight"
    world.settle(20)
    assert told.code == 0
    assert len(ends(world)) == 1
    assert world.upstream.values("flights") == [b"0"]


def test_a_host_with_too_many_unknown_epochs_may_commit_none_and_others_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_epochs, "MOST", 10)
    world = world_of()
    payer = opened(world)
    assert produce(world, payer, 0, 3).code == 0
    world.restart()
    world.settle(1)
    for other in range(20):
        data = batch([(key_at(3), b"x")], 5_000_000 + other, 0, 0, transactional=True)
        world.produce(9, {("flights", 0): data}, transactional_id="other", version=12)
    assert code(end(world, payer, commit=True, client=9)) == UnknownProducerId.code, "some records may be refused"
    assert code(end(world, payer, commit=True)) == 0, "no records were refused on this host"
    assert produce(world, payer, 1, 3, adds=False).code == UNNAMED.abort
    assert code(end(world, payer, commit=True)) == UnknownProducerId.code


def test_who_invents_the_producer_of_another_host_hides_none_of_its_refused_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unknown_epochs, "MOST", 10)
    unknown = UnknownEpochs()
    for number in range(9):
        unknown.add(number, 0, "hostile")
    assert unknown.add(4, 0, "mine")
    for number in range(9, 20):
        unknown.add(number, 0, "hostile")
    assert not unknown.may_commit(4, 0, "mine") and not unknown.may_commit(100, 0, "hostile")
    assert unknown.may_commit(100, 0, "mine")


def test_where_too_many_hosts_have_unknown_epochs_nobody_commits_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_epochs, "MOST", 2)
    unknown = UnknownEpochs()
    assert unknown.may_commit(1, 0, "mine")
    for number in range(10):
        unknown.add(number, 0, f"host {number}")
    assert not unknown.may_commit(100, 0, "mine")


def test_all_topics_that_a_transaction_names_are_asked_for_at_once() -> None:
    names = [f"t{number}" for number in range(50)]
    world = World(Upstream({"flights": SIX, **dict.fromkeys(names, 3)}), "*=rewrite")
    payer, began = opened(world), world.now
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=payer[0],
        v3_and_below_producer_epoch=payer[1],
        v3_and_below_topics=tuple(AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in names),
    )
    reply = world.request(1, request, 3)
    while reply.frame is None:
        world.settle(0.1)
    assert world.now < began + 1


def test_a_client_has_so_many_batches_under_way_in_a_partition_and_no_more() -> None:
    world = world_of()
    own = world.producer_id(1)
    world.slow = True
    replies = [
        world.produce(1, {("flights", 0): batch([(key_at(3), b"x")], own, 0, sequence)})
        for sequence in range(UNDER_WAY + 1)
    ]
    assert [reply.frame is None for reply in replies] == [True] * UNDER_WAY + [False]
    assert replies[-1].code == NotEnoughReplicas.code


@pytest.mark.parametrize(("letter", "count"), [("x", LONGEST_TRANSACTIONAL_ID), ("é", LONGEST_TRANSACTIONAL_ID // 2)])
def test_a_transactional_id_that_is_too_long_is_refused(letter: str, count: int) -> None:
    world = world_of()
    for more, code in ((0, 0), (1, InvalidRequest.code)):
        asked = InitProducerIdRequest(transactional_id=letter * (count + more), transaction_timeout_ms=1000)
        assert world.request(1, asked, 4).parsed(InitProducerIdResponse).error_code == code
    assert len(world.upstream.asked(InitProducerIdRequest)) == 1


def test_a_producer_waits_here_until_its_coordinator_has_ended_the_transaction_before() -> None:
    world = world_of()
    asked = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=1000)
    world.upstream.busy = 3
    reply = world.request(1, asked, 4)
    assert reply.frame is None
    world.settle(1)
    assert (reply.parsed(InitProducerIdResponse).error_code, world.upstream.busy) == (0, 0)
    world.upstream.busy = 1000
    reply = world.request(1, asked, 4)
    world.settle(CONCURRENT_WAIT + 1)
    assert reply.parsed(InitProducerIdResponse).error_code == ConcurrentTransactions.code
    world.request(1, asked, 4)
    world.kill(0)
    world.upstream.down.clear()
    world.leave(1)
    left = world.upstream.busy
    world.settle(1)
    assert world.upstream.busy == left  # the proxy sends no requests for a client that has left
