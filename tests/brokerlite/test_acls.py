"""ACLs of a broker: stored before they are in effect, and there after a kill; damage opens nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.acls.stored_acls import MOST
from ottla.brokerlite.machines.topics.topics import ACCESS_CONTROL
from ottla.client_info import ANONYMOUS
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.create_acls import AclCreation, CreateAclsRequest
from ottla.codec.apis.delete_acls import DeleteAclsRequest
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.codec.apis.produce import ProduceResponse
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.errors import (
    InvalidProducerIdMapping,
    InvalidTopic,
    PolicyViolation,
    SecurityDisabled,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tests.brokerlite.acl_questions import (
    AclsInProcess,
    Asking,
    all_acls,
    deleting,
    fetch,
    filtering,
    list_offsets,
    offset_commit,
    produce,
    rule,
)
from tests.brokerlite.machine import Machine, a_batch, fetching, producing

ALICE = "User:alice"
ON = AclSettings(super_users=frozenset((ANONYMOUS,)))


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "data", acls=ON)
    machine.ask(MetadataRequest(topics=(MetadataRequestTopic(name="t"),), allow_auto_topic_creation=True))
    yield machine
    machine.folder.abandon()


def create(machine: Machine, *acls: str | AclCreation) -> list[int]:
    creations = tuple(each if isinstance(each, AclCreation) else rule(each) for each in acls)
    return [each.error_code for each in machine.ask(CreateAclsRequest(creations=creations)).results]


def delete(machine: Machine, **filters: Any) -> int:
    (result,) = machine.ask(DeleteAclsRequest(filters=(filtering(**filters),))).filter_results
    return len(result.matching_acls)


def number(machine: Machine) -> int:
    return sum(len(each.acls) for each in machine.ask(all_acls()).resources)


def describes(machine: Machine, principal: str = ALICE) -> bool:
    code = machine.ask(list_offsets("t"), principal=principal).topics[0].partitions[0].error_code
    assert code in (0, TopicAuthorizationFailed.code)
    return bool(code == 0)


@pytest.mark.parametrize("clean", [True, False])
def test_acls_survive_the_end_of_a_broker(secured: Machine, clean: bool) -> None:
    assert not describes(secured)
    assert create(secured, "allow alice Read Topic t", "allow bob Read Topic t", "allow bob Read Topic t") == [0, 0, 0]
    assert describes(secured) and number(secured) == 2
    again = secured.restart(clean=clean)
    assert describes(again) and number(again) == 2
    assert create(again, "allow alice Read Topic t") == [0] and number(again) == 2, "the ACL exists"
    assert delete(again, principal_filter=ALICE) == 1 and delete(again, principal_filter=ALICE) == 0
    assert not describes(again) and describes(again, "User:bob")
    third = again.restart(clean=clean)
    assert not describes(third) and describes(third, "User:bob") and number(third) == 1
    third.folder.abandon()


def test_without_acls_everyone_may_do_everything_and_stored_acls_do_not_apply(secured: Machine) -> None:
    create(secured, "deny * All Topic *")
    assert not describes(secured)
    secured.folder.close()
    open_to_all = Machine(secured.folder.path)
    assert describes(open_to_all)
    disabled = SecurityDisabled.code
    assert open_to_all.ask(all_acls()).error_code == disabled
    assert create(open_to_all, "allow alice Read Topic t", "allow bob Read Topic t") == [disabled, disabled]
    (result,) = open_to_all.ask(DeleteAclsRequest(filters=(filtering(),))).filter_results
    assert result.error_code == disabled
    open_to_all.folder.abandon()


def log_path(machine: Machine) -> Path:
    (path,) = (machine.folder.path / f"{ACCESS_CONTROL}-0").glob("*.log")
    return path


@pytest.mark.parametrize("lost", ["a byte", "the folder's file", "a record"])
def test_after_damage_only_super_users_may_do_anything(
    secured: Machine, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(secured, "allow * All Topic *")
    create(secured, "deny alice All Topic *")
    if lost == "a record":  # whole for the storage, but not an ACL
        secured.core._acls._log._log.write([(b"0" * 16, b"\0\0rubbish")])  # type: ignore[union-attr]
    secured.folder.close()
    path = log_path(secured)
    data = bytearray(path.read_bytes())
    if lost == "a byte":
        data[-1] ^= 1
        path.write_bytes(data)
    elif lost == "the folder's file":
        path.unlink()
    settings = AclSettings(super_users=frozenset((ANONYMOUS,)), allow_if_none=True)
    again = Machine(secured.folder.path, acls=settings)
    assert not describes(again) and not describes(again, "User:bob") and describes(again, ANONYMOUS)
    assert "stored ACLs are damaged, so only super users may do anything" in caplog.text
    again.folder.abandon()


def test_clients_neither_see_nor_change_the_log_of_acls(secured: Machine) -> None:
    """Not even a super user, or a client that may read all topics; DescribeAcls needs a right on the cluster."""
    named = MetadataRequest(topics=(MetadataRequestTopic(name=ACCESS_CONTROL),), allow_auto_topic_creation=True)
    for created in (False, True):
        if created:
            create(secured, "allow alice Read Topic *", "allow alice Describe Topic *")
        for who in (ANONYMOUS, ALICE):
            (topic,) = secured.ask(named, principal=who).topics
            assert topic.error_code in (InvalidTopic.code, UnknownTopicOrPartition.code, TopicAuthorizationFailed.code)
            assert ACCESS_CONTROL not in {each.name for each in secured.ask(MetadataRequest(topics=None)).topics}
            (partition,) = secured.ask(fetching(topic=ACCESS_CONTROL), 12, principal=who).responses[0].partitions
            assert partition.error_code in (UnknownTopicOrPartition.code, TopicAuthorizationFailed.code)
            assert not partition.records
    answer: ProduceResponse = secured.ask(producing(a_batch(), topic=ACCESS_CONTROL))
    assert answer.responses[0].partition_responses[0].error_code == UnknownTopicOrPartition.code
    (deleted,) = secured.ask(DeleteTopicsRequest(topic_names=(ACCESS_CONTROL,), timeout_ms=1000), 5).responses
    assert deleted.error_code == UnknownTopicOrPartition.code
    assert describes(secured)


def test_a_request_changes_a_bounded_number_of_acls_and_all_or_none(secured: Machine) -> None:
    many = [f"allow u{number} Read Topic t" for number in range(MOST + 1)]
    assert set(create(secured, *many)) == {PolicyViolation.code} and number(secured) == 0
    assert set(create(secured, *many[:MOST])) == {0}
    assert create(secured, many[-1]) == [0] and number(secured) == MOST + 1
    (result,) = secured.ask(DeleteAclsRequest(filters=(filtering(),))).filter_results
    assert (result.error_code, result.matching_acls) == (PolicyViolation.code, ())
    assert number(secured) == MOST + 1
    assert delete(secured, principal_filter="User:u7") == 1 and number(secured) == MOST


def test_an_acl_without_a_type_of_principal_is_refused(secured: Machine) -> None:
    creation = rule("allow alice Read Topic t")
    for principal in ("alice", "", "User:", ":alice"):
        fields = {name: getattr(creation, name) for name in creation.__dataclass_fields__}
        assert create(secured, AclCreation(**(fields | {"principal": principal})), creation) == [42, 0]
    assert number(secured) == 1


def test_a_waiting_fetch_ends_if_the_right_is_gone_when_records_come(secured: Machine) -> None:
    create(secured, "allow alice Read Topic t")
    ticket = secured.send(fetching(wait=30.0, min_bytes=1), principal=ALICE)
    assert not secured.poll()
    delete(secured)
    secured.send(producing(a_batch(b"secret")))
    (fetched,) = (each for each in secured.poll() if each.ticket == ticket)
    (partition,) = fetched.message.responses[0].partitions  # type: ignore[union-attr]
    assert (partition.error_code, bytes(partition.records)) == (TopicAuthorizationFailed.code, b"")


def test_clients_that_know_an_id_do_not_learn_the_name(tmp_path: Path) -> None:
    broker = AclsInProcess(tmp_path / "data")
    asking = Asking(broker)
    asking.grant("allow alice Read Group readers", "allow alice Delete Topic bills", "deny alice Describe Topic *")
    secret = asking.ids["secret"]
    by_id = OffsetFetchRequestTopics(topic_id=secret, partition_indexes=(0,))
    requests: list[tuple[Any, int]] = [
        (produce(asking, ids=(secret,)), 13),
        (fetch(ids=(secret,)), 13),
        (offset_commit("readers", ids=(secret,)), 10),
        (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="readers", topics=(by_id,)),)), 10),
        (MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=secret),)), 12),
        (deleting(DeleteTopicState(name=None, topic_id=secret)), 6),
    ]
    for request, version in requests:
        answer = broker.ask(request, version, "alice")
        assert f"error_code={TopicAuthorizationFailed.code}" in repr(answer) and "secret" not in repr(answer)
    bills = DeleteTopicState(name=None, topic_id=asking.ids["bills"])
    (deleted,) = broker.ask(deleting(bills), 6, "alice").responses
    assert deleted.error_code == 0, "Delete is enough, as in Apache Kafka"
    broker.machine.folder.abandon()


def test_denials_are_counted_by_right(secured: Machine) -> None:
    assert not describes(secured) and not describes(secured)
    assert {str(right): count for right, count in secured.core.audit.denials.items()} == {"Describe on Topic": 2}


def test_a_compacted_log_of_acls_is_complete(secured: Machine, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        create(secured, *(f"allow u{number} Read Topic t" for number in range(20)))
        delete(secured)
        secured.log(ACCESS_CONTROL).roll()
    create(secured, "allow bob Read Topic t")
    before = secured.log(ACCESS_CONTROL).segments.size
    secured.pass_time(120)
    assert secured.log(ACCESS_CONTROL).segments.size < before / 2, "tombstones stay for a day"
    again = secured.restart()
    assert describes(again, "User:bob") and not describes(again) and number(again) == 1
    assert "damaged" not in caplog.text
    again.folder.abandon()


@pytest.mark.parametrize("version", [3, 9, 11, 12])
def test_the_transaction_of_another_client_takes_no_batch_with_an_own_transactional_id(
    secured: Machine, version: int
) -> None:
    acls = ("Write Topic t", "Read Topic t", "Read Group g")
    create(secured, *(f"allow {who} {each}" for who in ("alice", "mallory") for each in acls))
    create(secured, "allow alice Write TransactionalId pay", "allow mallory Write TransactionalId m")

    def begin(who: str, name: str) -> int:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        return int(secured.ask(request, principal=who).producer_id)

    def send(who: str, name: str, producer_id: int, sequence: int) -> int:
        batch = a_batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        answer = secured.ask(producing(batch, transactional_id=name), version, principal=who)
        return int(answer.responses[0].partition_responses[0].error_code)

    def commit(who: str, name: str, producer_id: int) -> int:
        topics = (
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=(
                    TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=4, committed_metadata=""),
                ),
            ),
        )
        request = TxnOffsetCommitRequest(
            transactional_id=name, group_id="g", producer_id=producer_id, producer_epoch=0, topics=topics
        )
        return int(secured.ask(request, 5, principal=who).topics[0].partitions[0].error_code)

    alices, mallorys = begin(ALICE, "pay"), begin("User:mallory", "m")
    if version < 12:  # later clients need no AddPartitionsToTxn
        for who, name, producer_id in ((ALICE, "pay", alices), ("User:mallory", "m", mallorys)):
            adding = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=(AddPartitionsToTxnTopic(name="t", partitions=(0,)),),
            )
            secured.ask(adding, 3, principal=who)
    mapping = InvalidProducerIdMapping.code
    assert send(ALICE, "pay", alices, 0) == 0 == commit(ALICE, "pay", alices)
    assert send("User:mallory", "m", alices, 1) == mapping == commit("User:mallory", "m", alices)
    assert send("User:mallory", "pay", alices, 1) == TransactionalIdAuthorizationFailed.code
    assert send(ALICE, "pay", alices, 1) == 0 == commit(ALICE, "pay", alices)
    assert send("User:mallory", "m", mallorys, 0) == 0 == send("User:mallory", "m", mallorys, 1)
