"""Each API, sent to the machine in every served version."""

import uuid
from typing import Any

import pytest

from ottla.brokerlite.handlers import SERVED
from ottla.brokerlite.handlers.api_versions import unsupported
from ottla.brokerlite.handlers.known_errors import known
from ottla.brokerlite.handlers.produce import MOST_NAMED
from ottla.brokerlite.machines.core import Call
from ottla.brokerlite.machines.partitions.validation import MOST_INDEXES
from ottla.codec.apis import APIS
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.codec.apis.describe_cluster import DescribeClusterRequest
from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.frames import RequestHeader, build_response, parse_response
from ottla.codec.records import BatchBuilder
from ottla.codec.wire import NO_UUID, api
from ottla.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    FetchSessionIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    InvalidTxnState,
    LeaderNotAvailable,
    MismatchedEndpointType,
    NotEnoughReplicas,
    OffsetOutOfRange,
    PolicyViolation,
    ProducerFenced,
    TopicAlreadyExists,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
    UnsupportedVersion,
)
from tests.brokerlite.machine import TODAY, Machine, a_batch, a_session, fetching, producing, values_of

NOT_ASKED = -(2**31)


def asked(machine: Machine, message: Any, version: int) -> Any:
    """The response as a client parses it."""
    answer = machine.ask(message, version)
    frame = build_response(answer, version, 5)
    correlation_id, read = parse_response(type(answer), version, frame[4:])
    assert correlation_id == 5
    return read


def versions(key: int) -> range:
    return range(SERVED[key].lowest, SERVED[key].highest + 1)


def creating(name: str, partitions: int = 1, replicas: int = 1, **others: Any) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=others.pop("assignments", ()),
        configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in others.pop("configs", {}).items()),
    )
    return CreateTopicsRequest(topics=(topic,), **others)


def listing(timestamp: int, *, topic: str = "t", partition: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    each = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(each,)),))


# -- ApiVersions


@pytest.mark.parametrize("version", versions(18))
def test_api_versions_names_what_is_served_and_nothing_else(machine: Machine, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0.1")
    answer = asked(machine, request, version)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert ranges == {
        0: (0, 13),
        1: (4, 18),
        2: (1, 11),
        3: (0, 13),
        8: (2, 10),
        9: (1, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 6),
        16: (0, 5),
        17: (0, 1),
        18: (0, 4),
        19: (2, 7),
        20: (1, 6),
        21: (0, 2),
        22: (0, 5),
        23: (2, 4),
        24: (0, 5),
        25: (0, 4),
        26: (0, 5),
        27: (1, 2),
        28: (0, 5),
        29: (1, 3),
        30: (1, 3),
        31: (1, 3),
        32: (1, 4),
        33: (0, 2),
        36: (0, 2),
        37: (0, 3),
        42: (0, 2),
        44: (0, 1),
        47: (0, 0),
        50: (0, 0),
        51: (0, 0),
        60: (0, 2),
        61: (0, 0),
        65: (0, 0),
        66: (0, 1),
        68: (0, 1),
        69: (0, 1),
        76: (1, 1),
        77: (1, 1),
        78: (1, 2),
        79: (1, 2),
        90: (0, 1),
        91: (0, 0),
        92: (0, 0),
    }
    assert all(key in APIS for key in ranges)


@pytest.mark.parametrize("version", versions(18))
def test_api_versions_names_the_finalized_features_and_their_levels(machine: Machine, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0.1")
    answer = asked(machine, request, version)
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    if version < 3:
        assert (levels, supported) == ({}, {})
        return
    # Apache Kafka 4.3.1 answers the same for these three.
    assert levels == {"group.version": (1, 1), "share.version": (1, 1), "transaction.version": (2, 2)}
    assert supported == {"group.version": (0, 1), "share.version": (0, 1), "transaction.version": (0, 2)}
    assert answer.finalized_features_epoch == 0, "-1 is an unknown epoch"


@pytest.mark.parametrize("name", ["", "-x", "a b", "ünicode"])
def test_api_versions_with_a_bad_software_name_is_an_invalid_request(machine: Machine, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert asked(machine, request, 4).error_code == InvalidRequest.code
    assert asked(machine, request, 2).error_code == 0


def test_api_versions_of_an_unknown_version_is_answered_in_v0_with_one_entry() -> None:
    answer = unsupported(SERVED)
    assert answer.error_code == UnsupportedVersion.code
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]


# -- Metadata


@pytest.mark.parametrize("version", versions(3))
def test_metadata_tells_the_broker_and_the_topic(machine: Machine, version: int) -> None:
    answer = asked(machine, MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "broker", 9092)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (i, 1, (1,), (1,)) for i in range(3)
    ]
    assert topic.topic_authorized_operations == NOT_ASKED == answer.cluster_authorized_operations
    assert version < 10 or topic.topic_id != NO_UUID


def test_metadata_of_all_topics_is_an_empty_list_in_v0_and_null_after(machine: Machine) -> None:
    assert len(asked(machine, MetadataRequest(topics=()), 0).topics) == 1
    for version in range(1, 14):
        assert len(asked(machine, MetadataRequest(topics=()), version).topics) == 0
        assert len(asked(machine, MetadataRequest(topics=None), version).topics) == 1


@pytest.mark.parametrize("version", versions(3))
def test_metadata_creates_a_topic_if_both_sides_allow_it(machine: Machine, version: int) -> None:
    new = (MetadataRequestTopic(name="new"),)
    if version >= 4:
        forbidding = asked(machine, MetadataRequest(topics=new, allow_auto_topic_creation=False), version)
        assert forbidding.topics[0].error_code == UnknownTopicOrPartition.code
    created = asked(machine, MetadataRequest(topics=new), version).topics[0]
    assert created.error_code == 0 and len(created.partitions) == 1


def test_metadata_tells_each_topic_once_however_often_it_is_named(machine: Machine) -> None:
    topics = tuple(MetadataRequestTopic(name=name) for name in ("t", "no", "t", "no"))
    answer = asked(machine, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 13)
    assert [topic.name for topic in answer.topics] == ["t", "no"]


def test_metadata_creates_some_topics_at_once_and_the_others_when_they_are_asked_for_again(machine: Machine) -> None:
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"new{i}") for i in range(70)))
    codes = [topic.error_code for topic in asked(machine, request, 13).topics]
    assert codes == [0] * 50 + [LeaderNotAvailable.code] * 20
    assert [topic.error_code for topic in asked(machine, request, 13).topics] == [0] * 70


def test_names_that_cannot_be_keep_no_topic_from_being_created(machine: Machine) -> None:
    names = [*(f"b d{i}" for i in range(60)), "good"]
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names))
    assert asked(machine, request, 13).topics[-1].error_code == 0


def test_metadata_creates_nothing_where_the_broker_does_not_allow_it(tmp_path: Any) -> None:
    machine = Machine(tmp_path / "other", auto_create=False)
    answer = asked(machine, MetadataRequest(topics=(MetadataRequestTopic(name="new"),)), 13)
    assert answer.topics[0].error_code == UnknownTopicOrPartition.code
    assert not machine.core.topics.by_name
    machine.folder.abandon()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250])
def test_metadata_of_a_name_that_cannot_be_is_an_invalid_topic(machine: Machine, name: str) -> None:
    answer = asked(machine, MetadataRequest(topics=(MetadataRequestTopic(name=name),)), 13)
    assert answer.topics[0].error_code == InvalidTopic.code


def test_metadata_by_id_finds_the_topic_and_knows_no_other(machine: Machine) -> None:
    topic_id = machine.core.topics.by_name["t"].topic_id
    for version in (12, 13):
        wanted = MetadataRequest(
            topics=(
                MetadataRequestTopic(name=None, topic_id=topic_id),
                MetadataRequestTopic(name=None, topic_id=uuid.UUID(int=9)),
            )
        )
        known, unknown = asked(machine, wanted, version).topics
        assert (known.error_code, known.name) == (0, "t")
        assert (unknown.error_code, unknown.name, unknown.topic_id) == (UnknownTopicId.code, None, uuid.UUID(int=9))


def test_metadata_tells_all_operations_when_asked(machine: Machine) -> None:
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert asked(machine, request, 13).topics[0].topic_authorized_operations == 3576
    request.include_cluster_authorized_operations = True
    assert asked(machine, request, 10).cluster_authorized_operations == 8096


def test_who_is_told_no_host_is_told_the_address_they_came_by(tmp_path: Any) -> None:
    machine = Machine(tmp_path / "other", host=None)
    assert asked(machine, MetadataRequest(topics=()), 13).brokers[0].host == "here"
    machine.folder.abandon()


@pytest.mark.parametrize("version", versions(60))
def test_describe_cluster_names_this_broker(machine: Machine, version: int) -> None:
    answer = asked(machine, DescribeClusterRequest(include_cluster_authorized_operations=version > 0), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "c", 1)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.is_fenced) == (1, "broker", 9092, False)
    assert answer.cluster_authorized_operations == (8096 if version else NOT_ASKED)
    for endpoints, error in ((2, MismatchedEndpointType), (9, UnsupportedEndpointType)) if version else ():
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoints)
        answer = asked(machine, request, version)
        assert (answer.error_code, answer.brokers) == (error.code, ())


# -- Produce and Fetch


@pytest.mark.parametrize("version", versions(0))
def test_what_is_produced_in_each_version_is_fetched_in_each(machine: Machine, version: int) -> None:
    topic_id = machine.core.topics.by_name["t"].topic_id
    by_id = version >= 13
    data = TopicProduceData(
        name="" if by_id else "t",
        topic_id=topic_id if by_id else NO_UUID,
        partition_data=(PartitionProduceData(index=1, records=a_batch(b"a", b"b")),),
    )
    answer = asked(machine, ProduceRequest(acks=-1, timeout_ms=5, topic_data=(data,)), version)
    (partition,) = answer.responses[0].partition_responses
    assert (partition.index, partition.error_code, partition.base_offset) == (1, 0, 0)
    for fetch_version in versions(1):
        by_id = fetch_version >= 13
        wanted = FetchTopic(
            topic="" if by_id else "t",
            topic_id=topic_id if by_id else NO_UUID,
            partitions=(FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1000),),
        )
        fetched = asked(machine, FetchRequest(max_wait_ms=100, min_bytes=1, topics=(wanted,)), fetch_version)
        (partition,) = fetched.responses[0].partitions
        assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
        assert values_of(partition.records) == [b"a", b"b"]
        assert fetched.session_id == 0


def test_an_unknown_id_is_unknown_topic_id(machine: Machine) -> None:
    stranger = uuid.UUID(int=9)
    data = TopicProduceData(topic_id=stranger, partition_data=(PartitionProduceData(index=0, records=a_batch()),))
    produced = asked(machine, ProduceRequest(acks=-1, timeout_ms=5, topic_data=(data,)), 13)
    assert produced.responses[0].partition_responses[0].error_code == UnknownTopicId.code
    wanted = FetchTopic(
        topic_id=stranger, partitions=(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1),)
    )
    fetched = asked(machine, FetchRequest(max_wait_ms=100, min_bytes=1, topics=(wanted,)), 18)
    assert fetched.responses[0].partitions[0].error_code == UnknownTopicId.code


def test_each_partition_of_a_produce_request_has_its_own_answer(machine: Machine) -> None:
    answer = asked(machine, producing(a_batch(b"a"), b"", a_batch(b"c"), a_batch(b"no such")), 12)
    codes = [partition.error_code for partition in answer.responses[0].partition_responses]
    assert codes == [0, InvalidRecord.code, 0, UnknownTopicOrPartition.code]
    assert answer.responses[0].partition_responses[1].error_message
    assert [machine.log("t", i).end_offset for i in range(3)] == [1, 0, 1]


def test_produce_refuses_other_acks_and_transactions_that_nobody_began(machine: Machine) -> None:
    transactional = a_batch(transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    for request, code in (
        (producing(a_batch(), acks=5), InvalidRequiredAcks.code),
        (producing(transactional), TransactionalIdAuthorizationFailed.code),
        (producing(transactional, transactional_id="x"), InvalidProducerIdMapping.code),
    ):
        assert asked(machine, request, 9).responses[0].partition_responses[0].error_code == code
    assert machine.log().end_offset == 0


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_topic_that_wants_more_replicas_in_sync_than_there_are_is_content_with_those(
    machine: Machine, caplog: pytest.LogCaptureFixture, acks: int
) -> None:
    machine.core.create_topic("safe", 1, {"min.insync.replicas": "2"})
    assert "stored, but it has no effect: min.insync.replicas" in caplog.text
    answer = asked(machine, producing(a_batch(), topic="safe", acks=acks), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_record_errors_name_the_records(machine: Machine) -> None:
    machine.core.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    answer = asked(machine, producing(a_batch(b"a", b"b", key=None), topic="compacted"), 8)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == InvalidRecord.code
    assert [each.batch_index for each in partition.record_errors] == [0, 1]


def test_a_response_names_a_bounded_number_of_records_of_all_batches_together(machine: Machine) -> None:
    machine.core.create_topic("compacted", 20, {"cleanup.policy": "compact"})
    wrong = a_batch(*[b"v"] * MOST_INDEXES, key=None)
    data = tuple(PartitionProduceData(index=index, records=wrong) for index in range(20))
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name="compacted", partition_data=data),),
    )
    [topic] = asked(machine, request, 8).responses
    named = [len(each.record_errors) for each in topic.partition_responses]
    assert named == [MOST_INDEXES] * (MOST_NAMED // MOST_INDEXES) + [0] * 10
    assert {each.error_code for each in topic.partition_responses} == {InvalidRecord.code}


@pytest.mark.parametrize(("policy", "named"), [("delete", [1, 3]), ("compact", [1, 2, 3])])
def test_record_errors_name_the_records_of_other_times(machine: Machine, policy: str, named: list[int]) -> None:
    hour = 3_600_000
    machine.core.create_topic("recent", 1, {"cleanup.policy": policy, "message.timestamp.before.max.ms": str(hour)})
    builder = BatchBuilder()
    for timestamp, key in ((TODAY, b"k"), (TODAY - 2 * hour, b"k"), (-1, None), (TODAY + 2 * hour, b"k")):
        builder.append(timestamp, key, b"v")
    answer = asked(machine, producing(builder.build(), topic="recent"), 8)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == InvalidTimestamp.code
    assert [each.batch_index for each in partition.record_errors] == named


def test_the_limits_of_a_fetch_hold_but_for_the_first_batch(machine: Machine) -> None:
    size = len(a_batch(bytes(1000)))
    for partition in range(3):
        machine.produce(a_batch(bytes(1000)), a_batch(bytes(1000)), partition=partition)

    def sizes(**limits: Any) -> list[int]:
        answer = machine.ask(fetching(partitions=(0, 1, 2), **limits))
        return [len(partition.records) for partition in answer.responses[0].partitions]

    assert sizes() == [2 * size, 2 * size, 2 * size]
    assert sizes(partition_max_bytes=1) == [size, 0, 0], "Java's consumer fails on less than one batch"
    assert sizes(max_bytes=1) == [size, 0, 0]
    assert sizes(max_bytes=size) == [size, 0, 0]
    assert sizes(max_bytes=2 * size + 7) == [2 * size, 0, 0]
    assert sizes(max_bytes=3 * size + 7) == [2 * size, size + 7, 0], "but the last may be cut"
    assert sizes(max_bytes=0, partition_max_bytes=0) == [size, 0, 0]


def test_a_broker_gives_no_more_than_its_own_limit(tmp_path: Any) -> None:
    machine = Machine(tmp_path / "other", fetch_max_bytes=1500)
    machine.core.create_topic("t", 1, {})
    machine.produce(a_batch(bytes(1000)), a_batch(bytes(1000)))
    assert len(machine.ask(fetching()).responses[0].partitions[0].records) == 1500
    machine.folder.abandon()


def test_an_older_segment_is_given_without_waiting_for_more(tmp_path: Any) -> None:
    machine = Machine(tmp_path / "other")
    machine.core.create_topic("t", 1, {"segment.bytes": "1100"})
    machine.produce(a_batch(bytes(1000)), a_batch(bytes(1000)))
    answer = machine.ask(fetching(min_bytes=5000))
    assert len(values_of(answer.responses[0].partitions[0].records)) == 1
    machine.folder.abandon()


def test_a_fetch_of_a_session_that_nobody_has_is_told_so(machine: Machine) -> None:
    for session_id, epoch in ((5, 1), (0, 3)):
        answer = asked(machine, fetching(session_id=session_id, session_epoch=epoch), 12)
        assert answer.error_code == FetchSessionIdNotFound.code
    assert asked(machine, fetching(wait=0, session_id=0, session_epoch=0), 12).error_code == 0


def test_a_reader_from_a_future_epoch_is_told_so(machine: Machine) -> None:
    request = fetching()
    request.topics[0].partitions[0].current_leader_epoch = 1
    assert asked(machine, request, 12).responses[0].partitions[0].error_code == UnknownLeaderEpoch.code
    answer = asked(machine, listing(-1, epoch=1), 11)
    assert answer.topics[0].partitions[0].error_code == UnknownLeaderEpoch.code


def test_read_committed_has_a_list_of_aborted_transactions_and_read_uncommitted_null(machine: Machine) -> None:
    machine.produce(a_batch())
    for level, expected in ((0, None), (1, ())):
        answer = asked(machine, fetching(isolation_level=level), 12)
        assert answer.responses[0].partitions[0].aborted_transactions == expected


# -- ListOffsets


@pytest.mark.parametrize("version", versions(2))
def test_offsets_of_both_ends_and_of_a_time(machine: Machine, version: int) -> None:
    machine.produce(a_batch(b"a", b"b"), a_batch(b"c", timestamp=TODAY + 100))

    def offset(timestamp: int) -> tuple[int, int, int]:
        (partition,) = asked(machine, listing(timestamp), version).topics[0].partitions
        return partition.error_code, partition.offset, partition.timestamp

    assert offset(-1) == (0, 3, -1)
    assert offset(-2) == (0, 0, -1)
    assert offset(TODAY) == (0, 0, TODAY)
    assert offset(TODAY + 1) == (0, 1, TODAY + 1)
    assert offset(TODAY + 2) == (0, 2, TODAY + 100)
    assert offset(TODAY + 101) == (0, -1, -1)
    special = {-3: (7, (0, 2, TODAY + 100)), -4: (8, (0, 0, -1)), -5: (9, (0, -1, -1)), -6: (11, (0, -1, -1))}
    for timestamp, (since, expected) in special.items():
        assert offset(timestamp) == (expected if version >= since else (UnsupportedVersion.code, -1, -1))
    assert offset(-7) == (UnsupportedVersion.code, -1, -1)


def test_offsets_of_what_is_not_there(machine: Machine) -> None:
    for request in (listing(-1, topic="no-such"), listing(-1, partition=3), listing(-1, partition=-1)):
        answer = asked(machine, request, 6)
        assert answer.topics[0].partitions[0].error_code == UnknownTopicOrPartition.code


def test_a_partition_named_twice_is_an_invalid_request(machine: Machine) -> None:
    request = listing(-1)
    request.topics = request.topics * 2
    for topic in asked(machine, request, 6).topics:
        assert topic.partitions[0].error_code == InvalidRequest.code


# -- InitProducerId and FindCoordinator


@pytest.mark.parametrize("version", versions(22))
def test_a_producer_gets_an_id_and_an_empty_transactional_one_is_refused(machine: Machine, version: int) -> None:
    for transactional_id, code in ((None, 0), ("mine", 0), ("", InvalidRequest.code)):
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
        answer = asked(machine, request, version)
        assert answer.error_code == code
        assert (answer.producer_id >= 0, answer.producer_epoch) == ((True, 0) if code == 0 else (False, -1))


@pytest.mark.parametrize("version", versions(10))
def test_the_coordinator_of_a_group_is_this_broker_and_others_there_are_not(machine: Machine, version: int) -> None:
    def found(key: str, key_type: int) -> Any:
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=(key,), key_type=key_type)
            return asked(machine, request, version).coordinators[0]
        return asked(machine, FindCoordinatorRequest(key=key, key_type=key_type), version)

    group = found("g", 0)
    assert (group.error_code, group.node_id, group.host, group.port) == (0, 1, "broker", 9092)
    assert found("", 0).error_code == 0
    if version >= 1:
        assert (found("x", 1).error_code, found("x", 1).node_id) == (0, 1)
        assert (found("", 1).error_code, found("", 1).node_id) == (0, 1)


# -- CreateTopics, DeleteTopics, DescribeConfigs


@pytest.mark.parametrize("version", versions(19))
def test_a_topic_is_created_with_its_partitions_and_configuration(machine: Machine, version: int) -> None:
    answer = asked(machine, creating("new", 4, configs={"retention.ms": "1000"}), version)
    (topic,) = answer.topics
    assert topic.error_code == 0
    assert len(machine.core.topics.by_name["new"].partitions) == 4
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (4, 1)
        configs = {each.name: (each.value, each.config_source) for each in topic.configs}
        assert configs["retention.ms"] == ("1000", 1) and configs["cleanup.policy"] == ("delete", 5)
    if version >= 7:
        assert topic.topic_id == machine.core.topics.by_name["new"].topic_id
    assert asked(machine, creating("new"), version).topics[0].error_code == TopicAlreadyExists.code


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (creating("a/b"), InvalidTopic),
        (creating("x", 0), InvalidPartitions),
        (creating("x", -2), InvalidPartitions),
        (creating("x", 100_000), PolicyViolation),
        (creating("x", 1, 3), InvalidReplicationFactor),
        (creating("x", 1, 0), InvalidReplicationFactor),
        (creating("x", configs={"no.such": "1"}), InvalidConfig),
        (creating("x", configs={"retention.ms": "soon"}), InvalidConfig),
        (creating("x", configs={"retention.ms": "-2"}), InvalidConfig),
        (creating("x", configs={"retention.ms": None}), InvalidConfig),
        (creating("x", configs={"cleanup.policy": "shred"}), InvalidConfig),
        (creating("x", configs={"compression.type": "brotli"}), InvalidConfig),
        (creating("x", configs={"preallocate": "maybe"}), InvalidConfig),
        (
            creating("x", -1, -1, assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(2,)),)),
            InvalidReplicaAssignment,
        ),
        (
            creating("x", -1, -1, assignments=(CreatableReplicaAssignment(partition_index=1, broker_ids=(1,)),)),
            InvalidReplicaAssignment,
        ),
        (
            creating("x", 1, 1, assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),)),
            InvalidRequest,
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_a_message(
    machine: Machine, request_: CreateTopicsRequest, error: type[Any]
) -> None:
    answer = asked(machine, request_, 7)
    assert answer.topics[0].error_code == error.code and answer.topics[0].error_message
    request_.validate_only = True
    assert asked(machine, request_, 7).topics[0].error_code == error.code
    assert list(machine.core.topics.by_name) == ["t"]


def test_names_that_metrics_cannot_tell_apart_collide(machine: Machine) -> None:
    machine.core.create_topic("a.b", 1, {})
    assert asked(machine, creating("a_b"), 7).topics[0].error_code == InvalidTopic.code


def test_a_topic_named_twice_in_a_request_is_an_invalid_request(machine: Machine) -> None:
    request = creating("x")
    request.topics = request.topics * 2
    assert [topic.error_code for topic in asked(machine, request, 7).topics] == [InvalidRequest.code]


def test_a_request_makes_ten_thousand_partitions_at_most(machine: Machine) -> None:
    request = creating("x", 5001, validate_only=True)
    request.topics += creating("y", 5000).topics
    assert [topic.error_code for topic in asked(machine, request, 7).topics] == [PolicyViolation.code] * 2
    by_hand = tuple(CreatableReplicaAssignment(partition_index=i, broker_ids=(1,)) for i in range(5001))
    request.topics = creating("x", -(2**31)).topics + creating("y", -1, -1, assignments=by_hand).topics * 2
    assert [topic.error_code for topic in asked(machine, request, 7).topics] == [PolicyViolation.code] * 2
    request.topics = creating("x", 5000).topics + creating("y", 5000).topics
    assert [topic.error_code for topic in asked(machine, request, 7).topics] == [0, 0]


def test_assignments_by_hand_and_the_brokers_default(machine: Machine) -> None:
    by_hand = tuple(CreatableReplicaAssignment(partition_index=i, broker_ids=(1,)) for i in range(2))
    assert asked(machine, creating("a", -1, -1, assignments=by_hand), 7).topics[0].num_partitions == 2
    assert asked(machine, creating("b", -1, -1), 7).topics[0].num_partitions == 1


def test_validate_only_makes_nothing(machine: Machine) -> None:
    assert asked(machine, creating("x", validate_only=True), 7).topics[0].error_code == 0
    assert "x" not in machine.core.topics.by_name


def deleting(offset: int, topic: str = "t", partition: int = 0) -> DeleteRecordsRequest:
    asked_for = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=(asked_for,)),), timeout_ms=1000)


@pytest.mark.parametrize("version", versions(21))
def test_records_are_deleted_up_to_an_offset(machine: Machine, version: int) -> None:
    def deleted(offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
        (answer,) = asked(machine, deleting(offset, topic, partition), version).topics
        (result,) = answer.partitions
        assert (answer.name, result.partition_index) == (topic, partition)
        return result.error_code, result.low_watermark

    machine.produce(*(a_batch(b"a", b"b") for _ in range(5)))
    assert deleted(3) == (0, 3), "within a batch"
    assert deleted(1) == (0, 3), "the start offset never decreases"
    assert machine.ask(fetching(2)).responses[0].partitions[0].error_code == OffsetOutOfRange.code
    answer = machine.ask(fetching(3)).responses[0].partitions[0]
    assert answer.log_start_offset == 3 and values_of(bytes(answer.records))[:2] == [b"a", b"b"]
    assert deleted(11) == (OffsetOutOfRange.code, -1) == deleted(-2)
    assert deleted(0, "no-such") == (UnknownTopicOrPartition.code, -1) == deleted(0, "t", 77)
    assert deleted(-1) == (0, 10), "up to the high watermark"
    assert (machine.log().start_offset, machine.log().end_offset) == (10, 10)
    machine.produce(a_batch())
    assert machine.log().end_offset == 11


@pytest.mark.parametrize("clean", [True, False])
def test_records_that_were_deleted_are_gone_after_a_restart(machine: Machine, clean: bool) -> None:
    machine.produce(*(a_batch(b"a", b"b") for _ in range(5)))
    asked(machine, deleting(3), 2)
    again = machine.restart(clean=clean)
    assert (again.log().start_offset, again.log().end_offset) == (3, 10)
    again.folder.abandon()


def test_nothing_is_deleted_from_a_topic_that_is_only_compacted_or_the_brokers_own(machine: Machine) -> None:
    machine.core.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    machine.core.create_topic("both", 1, {"cleanup.policy": "compact,delete"})
    machine.core.offsets_log.write([(b"k", b"v")])
    codes = [
        asked(machine, deleting(0, topic), 2).topics[0].partitions[0].error_code
        for topic in ("compacted", "both", "__consumer_offsets")
    ]
    assert codes == [PolicyViolation.code, 0, InvalidTopic.code]


@pytest.mark.parametrize("version", versions(20))
def test_a_topic_is_deleted_by_name_and_from_v6_on_by_id(machine: Machine, version: int) -> None:
    topic_id = machine.core.topics.by_name["t"].topic_id
    if version < 6:
        answer = asked(machine, DeleteTopicsRequest(topic_names=("t", "no-such"), timeout_ms=5), version)
        codes = [each.error_code for each in answer.responses]
        assert codes == [0, UnknownTopicOrPartition.code]
    else:
        states = (
            DeleteTopicState(name="t", topic_id=topic_id),
            DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicState(name=None, topic_id=uuid.UUID(int=9)),
            DeleteTopicState(name="no-such", topic_id=NO_UUID),
            DeleteTopicState(name=None, topic_id=NO_UUID),
        )
        answer = asked(machine, DeleteTopicsRequest(topics=states, timeout_ms=5), version)
        codes = [each.error_code for each in answer.responses]
        assert codes == [
            InvalidRequest.code,
            0,
            UnknownTopicId.code,
            UnknownTopicOrPartition.code,
            InvalidRequest.code,
        ]
        assert answer.responses[1].name == "t"
    assert not machine.core.topics.by_name and not machine.core.topics.by_id


@pytest.mark.parametrize("version", versions(32))
def test_configurations_of_topics_and_of_the_broker_are_described(machine: Machine, version: int) -> None:
    machine.core.create_topic("x", 1, {"retention.ms": "1000"})

    def described(kind: int, name: str, keys: tuple[str, ...] | None = None) -> Any:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
        return asked(machine, request, version).results[0]

    topic = described(2, "x")
    values = {each.name: (each.value, each.config_source) for each in topic.configs}
    assert topic.error_code == 0 and values["retention.ms"] == ("1000", 1) and values["segment.ms"][1] == 5
    assert [each.name for each in described(2, "x", ("retention.ms",)).configs] == ["retention.ms"]
    assert described(2, "no-such").error_code == UnknownTopicOrPartition.code
    assert described(4, "1").error_code == 0
    assert described(4, "2").error_code == InvalidRequest.code
    assert described(8, "1").error_code == InvalidRequest.code


def test_every_served_api_has_a_test_above() -> None:
    """Adding an API to `SERVED` without a line here fails; APIs of groups, users and so on have files of their own."""
    groups = {8, 9, 11, 12, 13, 14, 15, 16, 23, 37, 42, 47, 68, 69}
    groups |= {44, 76, 77, 78, 79, 90, 91, 92}  # share groups
    transactions = {24, 25, 26, 27, 28, 61, 65, 66}
    acls, users, configs = {29, 30, 31}, {17, 36, 50, 51}, {33}
    assert set(SERVED) == {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 32, 60} | groups | transactions | acls | users | configs
    for key, served in SERVED.items():
        known = api(APIS[key].request).versions
        assert served.lowest in known and served.highest in known


@pytest.mark.parametrize(
    ("api_key", "version", "error", "told"),
    [
        (0, 13, ProducerFenced, InvalidProducerEpoch),
        (0, 10, TransactionAbortable, InvalidTxnState),
        (0, 11, TransactionAbortable, TransactionAbortable),
        (0, 13, CoordinatorNotAvailable, NotEnoughReplicas),
        (0, 11, ConcurrentTransactions, NotEnoughReplicas),
        (0, 12, ConcurrentTransactions, ConcurrentTransactions),
        (22, 3, ProducerFenced, InvalidProducerEpoch),
        (22, 4, ProducerFenced, ProducerFenced),
        (24, 1, ProducerFenced, InvalidProducerEpoch),
        (25, 2, ProducerFenced, ProducerFenced),
        (26, 1, ProducerFenced, InvalidProducerEpoch),
        (26, 1, CoordinatorNotAvailable, CoordinatorNotAvailable),
        (28, 5, ProducerFenced, InvalidProducerEpoch),
        (28, 3, TransactionAbortable, InvalidTxnState),
        (28, 4, TransactionAbortable, TransactionAbortable),
    ],
)
def test_a_client_is_told_only_of_errors_that_it_knows(
    api_key: int, version: int, error: type[BrokerError], told: type[BrokerError]
) -> None:
    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=1, client_id=None)
    answer = known(error("why"), Call(1, a_session(), header, None, 0.0, 0))
    assert type(answer) is told and answer.detail == "why"
