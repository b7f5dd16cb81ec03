"""Transactional records and offsets need the producer id of the transactional id that their request names."""

import pytest

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.codec.error_codes import error_codes
from ottla.codec.frames import build_request
from ottla.errors import (
    IllegalGeneration,
    InvalidProducerIdMapping,
    OutOfOrderSequenceNumber,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
)
from ottla.proxy.clients.access import owners
from ottla.proxy.clients.access.owners import ProducerOwners
from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.producers import ClientProducers
from ottla.proxy.upstream.producer import UpstreamTransaction
from tests.proxy.secured import rules
from tests.proxy.simulated import World, batch
from tests.proxy.test_acls import AnsweringAll, client, world_of

ALICE, MALLORY = 1, 4
"""Client 4 is bob; both may write to the topic, each with a transactional id of its own."""
RIGHTS = (
    "allow alice Write TransactionalId alices",
    "allow bob Write TransactionalId bobs",
    *(f"allow {user} {right}" for user in ("alice", "bob") for right in ("Write Topic orders", "Read Topic orders")),
    *(f"allow {user} Read Group readers" for user in ("alice", "bob")),
)


@pytest.fixture
def world() -> World:
    return world_of(*RIGHTS)


def begins(world: World, number: int, transactional_id: str) -> tuple[int, int]:
    """Get the producer id and the epoch of a transactional id."""
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answer = world.request(number, asked, 4).parsed(InitProducerIdResponse)
    assert not answer.error_code
    return answer.producer_id, answer.producer_epoch


def adds(world: World, number: int, transactional_id: str, producer: tuple[int, int]) -> None:
    """Add the partition to the transaction, as before transactions of version 2."""
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=(AddPartitionsToTxnTopic(name="orders", partitions=(0,)),),
    )
    world.request(number, asked, 3)


def writes(world: World, number: int, transactional_id: str, producer: tuple[int, int], sequence: int = 0) -> int:
    """Write a record; returns the error code."""
    data = batch([(None, b"by %d" % number)], *producer, sequence, transactional=True)
    return world.produce(number, {("orders", 0): data}, transactional_id=transactional_id).code


def commits(world: World, number: int, transactional_id: str, producer: tuple[int, int], version: int = 3) -> set[int]:
    """Commit an offset; returns the error codes."""
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    asked = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id="readers",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=(TxnOffsetCommitRequestTopic(name="orders", partitions=(partition,)),),
    )
    before = len(world.upstream.asked(TxnOffsetCommitRequest))
    answer = world.request(number, asked, version).parsed(TxnOffsetCommitResponse)
    assert len(world.upstream.asked(TxnOffsetCommitRequest)) == before, "upstream might take it"
    return set(error_codes(answer))


def test_nobody_writes_into_the_open_transaction_of_another(world: World) -> None:
    of_alice, of_mallory = begins(world, ALICE, "alices"), begins(world, MALLORY, "bobs")
    adds(world, ALICE, "alices", of_alice)
    assert writes(world, ALICE, "alices", of_alice) == 0
    assert writes(world, MALLORY, "bobs", of_alice, 1) == TransactionalIdAuthorizationFailed.code
    adds(world, MALLORY, "bobs", of_mallory)
    assert writes(world, MALLORY, "bobs", of_mallory) == 0, "its own"
    assert world.upstream.values("orders") == [b"by 1", b"by 4"]


@pytest.mark.parametrize(
    "topics", [(), (AddPartitionsToTxnTopic(name="orders", partitions=()),)], ids=["none", "empty"]
)
def test_a_request_for_no_partition_is_no_consent(world: World, topics: tuple[AddPartitionsToTxnTopic, ...]) -> None:
    of_alice = begins(world, ALICE, "alices")
    adds(world, ALICE, "alices", of_alice)
    assert writes(world, ALICE, "alices", of_alice) == 0
    world.restart()
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="bobs",
        v3_and_below_producer_id=of_alice[0],
        v3_and_below_producer_epoch=of_alice[1],
        v3_and_below_topics=topics,
    )
    world.request(MALLORY, asked, 3)
    assert writes(world, MALLORY, "bobs", of_alice, 1) != 0
    assert world.upstream.values("orders") == [b"by 1"]


def test_nobody_commits_offsets_in_the_transaction_of_another(world: World) -> None:
    of_alice = begins(world, ALICE, "alices")
    assert commits(world, MALLORY, "bobs", of_alice) == {TransactionalIdAuthorizationFailed.code}


def test_rights_on_both_ids_do_not_mix_their_transactions() -> None:
    world = world_of(*RIGHTS, "allow bob Write TransactionalId alices")
    of_alice = begins(world, ALICE, "alices")
    assert writes(world, MALLORY, "bobs", of_alice) == InvalidProducerIdMapping.code


def test_large_records_of_another_are_not_passed_on_before_they_are_read(world: World) -> None:
    of_alice = begins(world, ALICE, "alices")
    world.produce(MALLORY, {("orders", 0): batch([(None, b"plain")])})
    for number, transactional_id, passes in ((MALLORY, "bobs", False), (ALICE, "alices", True)):
        data = batch([(None, b"v" * 10_000)], *of_alice, 0, transactional=True)
        topic = TopicProduceData(name="orders", partition_data=(PartitionProduceData(index=0, records=data),))
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=(topic,))
        frame = build_request(request, 9, 1, "client")[4:]
        if number == ALICE:
            adds(world, ALICE, "alices", of_alice)  # which opens its connection to upstream
        assert (world.begin(number, frame, 1000, 9) is not None) == passes


def test_after_a_restart_a_client_aborts_once_and_goes_on(world: World) -> None:
    of_alice = begins(world, ALICE, "alices")
    adds(world, ALICE, "alices", of_alice)
    world.restart()
    assert writes(world, ALICE, "alices", of_alice) == UnknownProducerId.code, "clients without a name abort for it"
    assert commits(world, ALICE, "alices", of_alice) == {IllegalGeneration.code}
    assert commits(world, ALICE, "alices", of_alice, 4) == {TransactionAbortable.code}
    ending = EndTxnRequest(
        transactional_id="alices", producer_id=of_alice[0], producer_epoch=of_alice[1], committed=False
    )
    assert not world.request(ALICE, ending, 3).parsed(EndTxnResponse).error_code
    of_alice = begins(world, ALICE, "alices")
    adds(world, ALICE, "alices", of_alice)
    assert writes(world, ALICE, "alices", of_alice) == 0


def test_after_a_restart_javas_client_gets_the_error_for_which_it_aborts(world: World) -> None:
    of_alice = begins(world, ALICE, "alices")
    world.restart()
    world.request(ALICE, ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4"), 3)
    assert writes(world, ALICE, "alices", of_alice) == OutOfOrderSequenceNumber.code


@pytest.mark.parametrize("adding", ["partitions", "offsets"])
def test_after_a_restart_the_next_transaction_goes_on_once_the_coordinator_has_taken_it(
    world: World, adding: str
) -> None:
    of_alice = begins(world, ALICE, "alices")
    world.restart()
    if adding == "partitions":
        adds(world, ALICE, "alices", of_alice)
    else:
        asked = AddOffsetsToTxnRequest(
            transactional_id="alices", producer_id=of_alice[0], producer_epoch=of_alice[1], group_id="readers"
        )
        world.request(ALICE, asked, 3)
        adds(world, ALICE, "alices", of_alice)
    assert writes(world, ALICE, "alices", of_alice) == 0
    assert writes(world, MALLORY, "bobs", of_alice, 1) == TransactionalIdAuthorizationFailed.code


def test_a_coordinator_that_refuses_confirms_nothing(world: World) -> None:
    of_alice = begins(world, ALICE, "alices")
    begins(world, MALLORY, "bobs")
    world.restart()
    adds(world, MALLORY, "bobs", of_alice)
    assert writes(world, MALLORY, "bobs", of_alice) == UnknownProducerId.code
    assert world.upstream.produced == []


def test_a_state_directory_keeps_the_owners() -> None:
    world = World(AnsweringAll({"orders": 1}), acls=rules(*RIGHTS), journal=True)
    world.infos |= {ALICE: client("alice", ALICE), MALLORY: client("bob", MALLORY)}
    of_alice = begins(world, ALICE, "alices")
    adds(world, ALICE, "alices", of_alice)
    world.restart()
    assert writes(world, ALICE, "alices", of_alice) == 0
    assert writes(world, MALLORY, "bobs", of_alice, 1) == TransactionalIdAuthorizationFailed.code


def test_a_super_user_is_not_asked_for_its_producer_id(world: World) -> None:
    of_alice = begins(world, ALICE, "alices")
    world.restart()
    adds(world, 3, "alices", of_alice)
    assert writes(world, 3, "alices", of_alice) == 0


def test_the_newest_of_an_allocation_and_a_consent_of_the_coordinator_holds() -> None:
    producers: ClientProducers[ClientBatch] = ClientProducers()
    known = ProducerOwners(producers)
    producer = producers.allocated(7, 0, "host")
    producer.begin_epoch(UpstreamTransaction("allocated", 0))
    assert known.of(7) == "allocated"
    known.confirm("confirmed", 7, "alice")
    assert known.of(7) == "confirmed"
    known.confirm("confirmed later", 7, "bob")
    assert known.of(7) == "confirmed later"
    producer.begin_epoch(UpstreamTransaction("allocated", 1))
    assert known.of(7) == "allocated"
    producers.pop(7)
    assert known.of(7) == "confirmed later", "nothing else is known"


def test_the_pairs_of_one_user_take_no_room_from_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "MOST_CONFIRMED", 100)
    known = ProducerOwners(ClientProducers())
    for number in range(5):
        known.confirm(f"alices-{number}", number, "alice")
    for number in range(1000, 1095):
        known.confirm(f"mallorys-{number}", number, "mallory")
    assert known.of(1000) == "mallorys-1000"
    for number in range(1095, 1189):
        known.confirm(f"mallorys-{number}", number, "mallory")
    assert [known.of(number) for number in range(5)] == [f"alices-{number}" for number in range(5)]
    assert known.of(1000) == "mallorys-1000", "it was used"
    assert known.of(1001) is None
