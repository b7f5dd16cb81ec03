"""Requests of users with few rights, for Apache Kafka with its StandardAuthorizer and for brokerlite.

A scene sends requests, and yields each with a summary of the response: error codes, names, and the fields that show
rights. Ids of topics are replaced by names, and internal topics are left out.
`python -m tests.brokerlite.record_acls` records the responses of Apache Kafka.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.client_info import ANONYMOUS
from ottla.codec.apis import APIS, alter_configs
from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.codec.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.codec.apis.consumer_group_heartbeat import LEAVE, ConsumerGroupHeartbeatRequest
from ottla.codec.apis.create_acls import (
    AclCreation,
    AclOperation,
    AclPermissionType,
    CreateAclsRequest,
    PatternType,
    ResourceType,
)
from ottla.codec.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.codec.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.codec.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.codec.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.codec.apis.describe_acls import DescribeAclsRequest
from ottla.codec.apis.describe_cluster import DescribeClusterRequest
from ottla.codec.apis.describe_configs import BROKER, TOPIC, DescribeConfigsRequest, DescribeConfigsResource
from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.codec.apis.describe_producers import DescribeProducersRequest
from ottla.codec.apis.describe_producers import TopicRequest as ProducersTopic
from ottla.codec.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.codec.apis.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.codec.apis.list_groups import ListGroupsRequest
from ottla.codec.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.codec.apis.list_transactions import ListTransactionsRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.codec.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.codec.apis.share_fetch import ShareFetchRequest
from ottla.codec.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.codec.apis.sync_group import SyncGroupRequest
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.apis.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import NO_UUID, api
from ottla.errors import TopicAuthorizationFailed
from tests.brokerlite.brokers import Remote
from tests.brokerlite.machine import NEWEST, TODAY, Machine, a_batch
from tests.brokerlite.peer import Peer
from tests.brokerlite.sharing import acknowledge as share_acknowledge_request
from tests.brokerlite.sharing import beat, configure
from tests.brokerlite.sharing import fetch as share_fetch_request
from tests.patience import HUNG

Said = tuple[str, Any]

USERS = ("alice", "bob")
PASSWORD = "tell-nobody"
MECHANISM = "PLAIN"
_SUMMED = frozenset(
    (
        "topics",
        "responses",
        "groups",
        "results",
        "topic_results",
        "results_by_topic_v3_and_below",
        "results_by_transaction",
        "markers",
        "partitions",
        "partition_responses",
        "results_by_partition",
        "coordinators",
        "transaction_states",
        "resources",
        "acls",
        "filter_results",
        "matching_acls",
        "configs",
        "api_keys",
        "name",
        "topic",
        "topic_id",
        "topic_name",
        "group_id",
        "transactional_id",
        "key",
        "partition_index",
        "index",
        "partition",
        "error_code",
        "partition_error_code",
        "acknowledge_error_code",
        "topic_config_error_code",
        "is_internal",
        "num_partitions",
        "replication_factor",
        "authorized_operations",
        "topic_authorized_operations",
        "cluster_authorized_operations",
        "group_state",
        "committed_offset",
        "transaction_state",
        "high_watermark",
        "resource_type",
        "resource_name",
        "pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
        "member_id",
        "generation_id",
    )
)
"""The fields in a summary."""
_COUNTED = frozenset(("configs", "api_keys"))
"""Fields of which only the presence counts."""


class AclBroker(Protocol):
    """Takes requests of users; its super user is anonymous."""

    def ask(self, message: Any, version: int | None = None, user: str | None = None) -> Any: ...

    @property
    def timestamp(self) -> int: ...


class AclsInProcess:
    """brokerlite's machine with ACLs."""

    def __init__(self, data: Path, *, allow_if_none: bool = False) -> None:
        settings = AclSettings(super_users=frozenset((ANONYMOUS,)), allow_if_none=allow_if_none)
        self.machine = Machine(data, acls=settings)

    def ask(self, message: Any, version: int | None = None, user: str | None = None) -> Any:
        key = api(type(message)).key
        version = NEWEST[key] if version is None else version
        principal = ANONYMOUS if user is None else f"User:{user}"
        answer = build_response(self.machine.ask(message, version, principal=principal), version, 0)
        return parse_response(APIS[key].response, version, answer[4:])[1]

    @property
    def timestamp(self) -> int:
        return TODAY


class AclsRemote:
    """Apache Kafka with SASL/PLAIN: each user has a connection."""

    def __init__(self, bootstrap: str, secured: str) -> None:
        self._admin = Remote(bootstrap)
        self._peers = {user: _authenticated(secured, user) for user in USERS}

    def ask(self, message: Any, version: int | None = None, user: str | None = None) -> Any:
        return self._admin.ask(message, version) if user is None else self._peers[user].ask(message, version)

    @property
    def timestamp(self) -> int:
        return self._admin.timestamp

    def close(self) -> None:
        self._admin.close()
        for peer in self._peers.values():
            peer.close()


def _authenticated(address: str, user: str) -> Peer:
    peer = Remote.peer(address)
    for message, version in (
        (SaslHandshakeRequest(mechanism=MECHANISM), 1),
        (SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 2),
    ):
        answer = peer.ask(message, version)
        assert answer.error_code == 0, answer
    return peer


def rule(text: str) -> AclCreation:
    """Parse an ACL: ``allow alice Read Topic orders [prefixed] [@host]``."""
    permission, user, operation, kind, name, *more = text.split()
    hosts = [each[1:] for each in more if each.startswith("@")]
    return AclCreation(
        resource_type=_code(ResourceType, kind),
        resource_name=name,
        resource_pattern_type=PatternType.PREFIXED if "prefixed" in more else PatternType.LITERAL,
        principal=f"User:{user}",
        host=hosts[0] if hosts else "*",
        operation=_code(AclOperation, operation),
        permission_type=_code(AclPermissionType, permission),
    )


def _code(codes: Any, name: str) -> int:
    (found,) = (int(each) for each in codes if each.name.replace("_", "").lower() == name.lower())
    return found


class Asking:
    """A broker with topics, a group and a transaction, of which the scenes ask."""

    def __init__(self, broker: AclBroker) -> None:
        self.broker = broker
        self.ids: dict[str, uuid.UUID] = {}
        for name in ("orders", "orders-eu", "bills", "secret"):
            self.create(name)
        for name in ("orders", "bills"):
            self.commit("readers", name)
        self.commit("writers", "orders")
        begun = broker.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=600_000), 4)
        self.producer = begun.producer_id, begun.producer_epoch
        joined = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in ("orders", "bills")
            ),
        )
        broker.ask(joined, 3)

    def create(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
        (made,) = self.broker.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 7).topics
        assert made.error_code == 0, made
        self.ids[name] = made.topic_id
        deadline = time.monotonic() + HUNG
        while self.broker.ask(list_offsets(name), 7).topics[0].partitions[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def commit(self, group: str, topic: str) -> None:
        (answer,) = self.broker.ask(offset_commit(group, topic), 9).topics
        assert answer.partitions[0].error_code == 0, answer

    def grant(self, *acls: str) -> None:
        """Make these the only ACLs, and wait until the broker applies them."""
        everything = DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermissionType.ANY,
        )
        self.broker.ask(DeleteAclsRequest(filters=(everything,)), 3)
        if acls:
            results = self.broker.ask(CreateAclsRequest(creations=tuple(map(rule, acls))), 3).results
            assert all(each.error_code == 0 for each in results), results
        deadline = time.monotonic() + HUNG
        while self.known_acls() != len(set(acls)):
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def known_acls(self) -> int:
        return sum(len(each.acls) for each in self.broker.ask(all_acls(), 3).resources)

    def summary(self, answer: Any) -> Any:
        return self._summed(answer)

    def _summed(self, value: Any, field: str = "") -> Any:
        if field in _COUNTED:
            return bool(value)
        if isinstance(value, uuid.UUID):
            named = (name for name, known in self.ids.items() if known == value)
            return next(named, "no topic") if value != NO_UUID else ""
        if isinstance(value, tuple | list):
            summed = [self._summed(each) for each in value if not str(getattr(each, "name", "")).startswith("__")]
            return sorted(summed, key=json.dumps)
        if hasattr(value, "__dataclass_fields__"):
            fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
            if "port" in fields:  # the host of a broker, and not of an ACL
                del fields["host"]
            if "topic_config_error_code" in fields:  # Kafka invents an id where it only validates
                del fields["topic_id"]
            return {name: self._summed(each, name) for name, each in fields.items() if name in _SUMMED}
        return value

    def said(self, case: str, message: Any, version: int | None = None, user: str = "alice") -> Said:
        """Send a request, and return the case and the summary."""
        return case, self.summary(self.broker.ask(message, version, user))


# -- requests


def all_acls() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )


def replace_configs(*names: str) -> alter_configs.AlterConfigsRequest:
    resources = tuple(
        alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=()) for name in names
    )
    return alter_configs.AlterConfigsRequest(resources=resources, validate_only=True)


def change_configs(*names: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", config_operation=SET, value="5")
    resources = tuple(
        AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=(config,)) for name in names
    )
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


def list_offsets(*names: str) -> ListOffsetsRequest:
    each = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=tuple(ListOffsetsTopic(name=name, partitions=(each,)) for name in names)
    )


def offset_commit(group: str, *topics: str, ids: Iterable[uuid.UUID] = ()) -> OffsetCommitRequest:
    each = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    named: list[dict[str, Any]] = [{"name": topic} for topic in topics] or [{"topic_id": each_id} for each_id in ids]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=tuple(OffsetCommitRequestTopic(**name, partitions=(each,)) for name in named),
    )


def metadata(*names: str, create: bool = False, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
    )


def cluster_rights() -> MetadataRequest:
    return MetadataRequest(topics=(), include_cluster_authorized_operations=True)


def produce(asking: Asking, *names: str, ids: Iterable[uuid.UUID] = (), **others: Any) -> ProduceRequest:
    build = others.pop("build", {})
    data = PartitionProduceData(index=0, records=a_batch(b"v", timestamp=asking.broker.timestamp, **build))
    named: list[dict[str, Any]] = [{"name": name} for name in names] or [{"topic_id": each_id} for each_id in ids]
    return ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=tuple(TopicProduceData(**name, partition_data=(data,)) for name in named),
        **others,
    )


def fetch(*names: str, ids: Iterable[uuid.UUID] = (), **others: Any) -> FetchRequest:
    each = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    named: list[dict[str, Any]] = [{"topic": name} for name in names] or [{"topic_id": each_id} for each_id in ids]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=2**20,
        topics=tuple(FetchTopic(**name, partitions=(each,)) for name in named),
        **({"session_epoch": -1} | others),
    )


def create_topics(*names: str, validate_only: bool = True) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
            for name in names
        ),
        timeout_ms=10_000,
        validate_only=validate_only,
    )


def deleting(*topics: DeleteTopicState) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=topics, timeout_ms=9000)


def txn_offset_commit(asking: Asking, *names: str) -> TxnOffsetCommitRequest:
    each = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    producer_id, epoch = asking.producer
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="readers",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=tuple(TxnOffsetCommitRequestTopic(name=name, partitions=(each,)) for name in names),
    )


def idempotent() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


def add_partitions(asking: Asking, *names: str) -> AddPartitionsToTxnRequest:
    producer_id, epoch = asking.producer
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=tuple(AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in names),
    )


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


def fetch_offsets(group: str, *names: str, everything: bool = False) -> OffsetFetchRequest:
    topics = (
        None if everything else tuple(OffsetFetchRequestTopics(name=name, partition_indexes=(0,)) for name in names)
    )
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=topics),))


# -- scenes

ON_TOPIC = ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs", "All")


def decisions(asking: Asking) -> Iterator[Said]:
    """What ACLs allow: ListOffsets needs Describe on the topic, DeleteRecords needs Delete."""
    sets: dict[str, tuple[str, ...]] = {
        "no ACL": (),
        **{f"allow {operation}": (f"allow alice {operation} Topic orders",) for operation in ON_TOPIC},
        "another user": ("allow bob Describe Topic orders",),
        "everyone": ("allow * Describe Topic orders",),
        "every topic": ("allow alice Describe Topic *",),
        "everyone, every topic": ("allow * All Topic *",),
        "a prefix": ("allow alice Describe Topic ord prefixed",),
        "the whole name as a prefix": ("allow alice Describe Topic orders prefixed",),
        "a longer prefix": ("allow alice Describe Topic orders-e prefixed",),
        "one letter": ("allow alice Describe Topic o prefixed",),
        "a star as a prefix": ("allow alice Describe Topic * prefixed",),
        "a literal prefix": ("allow alice Describe Topic ord",),
        "prefixes with others between": (
            "allow alice Describe Topic o prefixed",
            "allow bob All Topic ora prefixed",
            "allow bob All Topic ordeal prefixed",
            "allow bob All Topic order-x prefixed",
        ),
        "a group of that name": ("allow alice Describe Group orders",),
        "the cluster": ("allow alice All Cluster kafka-cluster",),
        "this host": ("allow alice Describe Topic orders @127.0.0.1",),
        "another host": ("allow alice Describe Topic orders @10.0.0.1",),
        "a host name": ("allow alice Describe Topic orders @localhost",),
        "deny": ("deny alice Describe Topic orders",),
        "deny beside allow": ("allow alice Describe Topic orders", "deny alice Describe Topic orders"),
        "deny all topics": ("allow alice Describe Topic orders", "deny alice Describe Topic *"),
        "deny a prefix": ("allow alice Describe Topic orders", "deny alice Describe Topic or prefixed"),
        "deny everyone": ("allow alice Describe Topic orders", "deny * Describe Topic orders"),
        "deny another user": ("allow alice Describe Topic orders", "deny bob Describe Topic orders"),
        "deny another host": ("allow alice Describe Topic orders", "deny alice Describe Topic orders @10.0.0.1"),
        "deny this host": ("allow alice Describe Topic orders", "deny alice Describe Topic orders @127.0.0.1"),
        "deny everything": ("allow alice All Topic orders", "deny alice All Topic orders"),
        "deny Read, which includes nothing": ("allow alice Describe Topic orders", "deny alice Read Topic orders"),
        "deny Read, allow all": ("allow alice All Topic *", "deny alice Read Topic orders"),
        "deny Describe, allow Read": ("allow alice Read Topic orders", "deny alice Describe Topic orders"),
        "deny Delete, allow all": ("allow alice All Topic orders", "deny alice Delete Topic orders"),
    }
    for name, acls in sets.items():
        asking.grant(*acls)
        yield asking.said(f"{name}: Describe", list_offsets("orders", "orders-eu"), 7)
        begin = DeleteRecordsTopic(name="orders", partitions=(DeleteRecordsPartition(partition_index=0, offset=0),))
        yield asking.said(f"{name}: Delete", DeleteRecordsRequest(topics=(begin,), timeout_ms=5000), 2)
    asking.grant("allow alice Read Topic orders")
    yield asking.said("a super user's ACLs do not matter to others", list_offsets("orders"), 7, "bob")


def topics(asking: Asking) -> Iterator[Said]:
    unknown = uuid.UUID(int=77)
    ids = [asking.ids["orders"], asking.ids["secret"], unknown]
    everything = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    by_id = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=None, topic_id=each) for each in ids),
        include_topic_authorized_operations=True,
    )
    sets: dict[str, tuple[str, ...]] = {
        "nothing": (),
        "Describe": ("allow alice Describe Topic orders",),
        "Read": ("allow alice Read Topic orders",),
        "Write": ("allow alice Write Topic orders",),
        "all but Write": ("allow alice All Topic orders", "deny alice Write Topic orders"),
        "a prefix": ("allow alice Read Topic orders prefixed", "allow alice Write Topic none"),
        "DescribeConfigs": ("allow alice DescribeConfigs Topic orders",),
        "AlterConfigs": ("allow alice AlterConfigs Topic orders",),
        "cluster": ("allow alice Describe Cluster kafka-cluster",),
        "all on the cluster": ("allow alice All Cluster kafka-cluster",),
    }
    for name, acls in sets.items():
        asking.grant(*acls)
        yield asking.said(f"{name}: Metadata of all", everything, 9)
        yield asking.said(f"{name}: Metadata by name", metadata("orders", "secret", "none", operations=True), 9)
        yield asking.said(f"{name}: Metadata by id", by_id, 12)
        yield asking.said(f"{name}: Metadata of the cluster", cluster_rights(), 9)
        for endpoints in (1, 2, 9) if name == "cluster" else (1,):
            cluster = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=endpoints)
            yield asking.said(f"{name}: DescribeCluster {endpoints}", cluster, 2)
        yield asking.said(f"{name}: Metadata v0", MetadataRequest(topics=()), 0)
        yield asking.said(f"{name}: Produce", produce(asking, "orders", "secret", "none"), 9)
        yield asking.said(f"{name}: Produce by id", produce(asking, ids=ids), 13)
        yield asking.said(f"{name}: Fetch", fetch("orders", "secret", "none"), 11)
        yield asking.said(f"{name}: Fetch by id", fetch(ids=ids), 13)
        yield asking.said(f"{name}: Fetch as a replica", fetch("orders", "secret", replica_id=1), 11)
        yield asking.said(f"{name}: ListOffsets", list_offsets("orders", "secret", "none"), 7)
        epochs = OffsetForLeaderEpochRequest(
            replica_id=-2,
            topics=tuple(
                OffsetForLeaderTopic(topic=topic, partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=0),))
                for topic in ("orders", "secret", "none")
            ),
        )
        yield asking.said(f"{name}: OffsetForLeaderEpoch", epochs, 4)
        producers = DescribeProducersRequest(
            topics=tuple(ProducersTopic(name=topic, partition_indexes=(0,)) for topic in ("orders", "secret", "a b"))
        )
        yield asking.said(f"{name}: DescribeProducers", producers, 0)
        configs = DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(resource_type=TOPIC, resource_name="orders", configuration_keys=None),
                DescribeConfigsResource(resource_type=TOPIC, resource_name="secret", configuration_keys=None),
                DescribeConfigsResource(resource_type=TOPIC, resource_name="none", configuration_keys=None),
                DescribeConfigsResource(resource_type=BROKER, resource_name="", configuration_keys=None),
            )
        )
        yield asking.said(f"{name}: DescribeConfigs", configs, 4)


def changes(asking: Asking) -> Iterator[Said]:
    sets: dict[str, tuple[str, ...]] = {
        "nothing": (),
        "Create": ("allow alice Create Topic new",),
        "Create and DescribeConfigs": ("allow alice Create Topic new", "allow alice DescribeConfigs Topic new"),
        "Create on the cluster": ("allow alice Create Cluster kafka-cluster",),
        "Describe": ("allow alice Describe Topic * ",),
        "Describe and Create": ("allow alice Describe Topic *", "allow alice Create Topic new"),
        "Alter": ("allow alice Alter Topic orders",),
        "AlterConfigs": ("allow alice AlterConfigs Topic orders",),
        "Delete": ("allow alice Delete Topic orders",),
    }
    for name, acls in sets.items():
        asking.grant(*acls)
        topics = "orders", "secret", "none", "a b"
        yield asking.said(f"{name}: AlterConfigs", replace_configs(*topics), 2)
        yield asking.said(f"{name}: IncrementalAlterConfigs", change_configs(*topics), 1)
        yield asking.said(f"{name}: CreateTopics", create_topics("new", "orders"), 7)
        yield asking.said(f"{name}: CreateTopics v4", create_topics("new", "orders"), 4)
        yield asking.said(f"{name}: CreateTopics twice", create_topics("new", "new"), 7)
        more = CreatePartitionsRequest(
            topics=tuple(
                CreatePartitionsTopic(name=topic, count=5, assignments=None) for topic in ("orders", "secret", "none")
            ),
            timeout_ms=10_000,
            validate_only=True,
        )
        yield asking.said(f"{name}: CreatePartitions", more, 3)
    for name, acls in sets.items():
        if name not in ("Delete",):
            asking.grant(*acls)
            yield asking.said(
                f"{name}: DeleteTopics", DeleteTopicsRequest(topic_names=("secret", "none"), timeout_ms=9000), 5
            )
            states = [DeleteTopicState(name=None, topic_id=asking.ids["secret"])]
            states += [DeleteTopicState(name=None, topic_id=uuid.UUID(int=78))]
            yield asking.said(
                f"{name}: DeleteTopics by id", DeleteTopicsRequest(topics=tuple(states), timeout_ms=9000), 6
            )
            both = [DeleteTopicState(name="secret", topic_id=NO_UUID), states[0]]
            yield asking.said(
                f"{name}: DeleteTopics twice", DeleteTopicsRequest(topics=tuple(both), timeout_ms=9000), 6
            )
    for name, acls in {
        "Delete": ("allow alice Delete Topic gone",),
        "Delete without Describe": ("allow alice Delete Topic gone", "deny alice Describe Topic gone"),
        "Delete on the cluster": ("allow alice Delete Cluster kafka-cluster",),
    }.items():
        asking.grant(*acls)
        for how in ("name", "id"):
            asking.create("gone")
            gone = DeleteTopicState(
                name="gone" if how == "name" else None, topic_id=NO_UUID if how == "name" else asking.ids["gone"]
            )
            case, summary = asking.said(
                f"{name}: DeleteTopics by {how}", DeleteTopicsRequest(topics=(gone,), timeout_ms=9000), 6
            )
            yield case, summary
            if summary["responses"][0]["error_code"]:
                asking.broker.ask(DeleteTopicsRequest(topics=(gone,), timeout_ms=9000), 6)
            _await_end_of(asking, "gone")
    for number, (name, acls) in enumerate(sets.items()):
        asking.grant(*(each.replace("new", f"auto-{number}") for each in acls))
        request = metadata(f"auto-{number}", create=True, operations=True)
        case, summary = asking.said(f"{name}: Metadata that creates", request, 9)
        codes = [each["error_code"] for each in summary["topics"]]
        yield case, [0 if code in (3, 5) else code for code in codes]  # Kafka creates it a little later


def _await_end_of(asking: Asking, name: str) -> None:
    deadline = time.monotonic() + HUNG
    while asking.broker.ask(metadata(name), 9).topics[0].error_code == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def groups(asking: Asking) -> Iterator[Said]:
    sets: dict[str, tuple[str, ...]] = {
        "nothing": (),
        "Describe": ("allow alice Describe Group readers", "allow alice Describe Topic orders"),
        "Read": ("allow alice Read Group readers", "allow alice Read Topic orders"),
        "Read on the group alone": ("allow alice Read Group readers",),
        "Delete": ("allow alice Delete Group readers", "allow alice Read Topic orders"),
        "Delete on the group alone": ("allow alice Delete Group readers",),
        "all groups": ("allow alice Read Group *", "allow alice Read Topic *"),
        "cluster": ("allow alice Describe Cluster kafka-cluster",),
    }
    ids = [asking.ids["orders"], asking.ids["secret"], uuid.UUID(int=77)]
    for name, acls in sets.items():
        asking.grant(*acls)
        yield asking.said(f"{name}: ListGroups", ListGroupsRequest(), 5)
        described = DescribeGroupsRequest(groups=("readers", "writers", "none"), include_authorized_operations=True)
        yield asking.said(f"{name}: DescribeGroups", described, 6)
        yield asking.said(f"{name}: DescribeGroups v5", described, 5)
        for key_type, keys in ((GROUP, ("readers", "none")), (TRANSACTION, ("tx",))):
            finding = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            yield asking.said(f"{name}: FindCoordinator {key_type}", finding, 4)
        yield asking.said(f"{name}: FindCoordinator v1", FindCoordinatorRequest(key="readers", key_type=GROUP), 1)
        yield asking.said(f"{name}: OffsetCommit", offset_commit("readers", "orders", "secret", "none"), 9)
        yield asking.said(f"{name}: OffsetCommit by id", offset_commit("readers", ids=ids), 10)
        yield asking.said(f"{name}: OffsetFetch", fetch_offsets("readers", "orders", "bills", "none"), 8)
        yield asking.said(f"{name}: OffsetFetch of all", fetch_offsets("readers", everything=True), 8)
        by_id = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id="readers",
                    topics=tuple(OffsetFetchRequestTopics(topic_id=each, partition_indexes=(0,)) for each in ids),
                ),
            )
        )
        yield asking.said(f"{name}: OffsetFetch by id", by_id, 10)
        old = OffsetFetchRequest(
            group_id="readers",
            topics=tuple(OffsetFetchRequestTopic(name=each, partition_indexes=(0,)) for each in ("orders", "bills")),
        )
        for version in (1, 5):
            yield asking.said(f"{name}: OffsetFetch v{version}", old, version)
        kept = HeartbeatRequest(group_id="readers", generation_id=1, member_id="m")
        yield asking.said(f"{name}: Heartbeat", kept, 4)
        sync = SyncGroupRequest(
            group_id="readers",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
            assignments=(),
        )
        yield asking.said(f"{name}: SyncGroup", sync, 5)
        leave = LeaveGroupRequest(group_id="readers", members=(MemberIdentity(member_id="m"),))
        yield asking.said(f"{name}: LeaveGroup", leave, 4)
        yield asking.said(f"{name}: LeaveGroup v1", LeaveGroupRequest(group_id="readers", member_id="m"), 1)
        case, summary = asking.said(f"{name}: JoinGroup", join("readers"), 5)
        yield case, {key: value for key, value in summary.items() if key != "member_id" or not value}
        offsets = OffsetDeleteRequest(
            group_id="readers",
            topics=tuple(
                OffsetDeleteRequestTopic(name=each, partitions=(OffsetDeleteRequestPartition(partition_index=0),))
                for each in ("secret", "none", "orders")
            ),
        )
        yield asking.said(f"{name}: OffsetDelete", offsets, 0)
        asking.commit("readers", "orders")
    for name, acls in {"nothing": (), "Delete": ("allow alice Delete Group writers",)}.items():
        asking.grant(*acls)
        yield asking.said(f"{name}: DeleteGroups", DeleteGroupsRequest(groups_names=("writers", "none")), 2)


def transactions(asking: Asking) -> Iterator[Said]:
    producer_id, epoch = asking.producer
    sets: dict[str, tuple[str, ...]] = {
        "nothing": (),
        "Describe": ("allow alice Describe TransactionalId tx", "allow alice Describe Topic orders"),
        "Write": ("allow alice Write TransactionalId tx",),
        "Write and the topic": ("allow alice Write TransactionalId tx", "allow alice Write Topic orders"),
        "Write and the group": (
            "allow alice Write TransactionalId tx",
            "allow alice Read Group readers",
            "allow alice Read Topic orders",
        ),
        "the topic alone": ("allow alice Write Topic orders", "allow alice Read Topic orders"),
        "ClusterAction": ("allow alice ClusterAction Cluster kafka-cluster",),
        "Alter on the cluster": ("allow alice Alter Cluster kafka-cluster",),
    }
    for name, acls in sets.items():
        asking.grant(*acls)
        begin = InitProducerIdRequest(transactional_id="tx-other", transaction_timeout_ms=60_000)
        yield asking.said(f"{name}: InitProducerId of another", begin, 4)
        yield asking.said(
            f"{name}: ListTransactions", ListTransactionsRequest(state_filters=("Ongoing",), producer_id_filters=()), 1
        )
        describing = DescribeTransactionsRequest(transactional_ids=("tx", "none"))
        yield asking.said(f"{name}: DescribeTransactions", describing, 0)
        yield asking.said(f"{name}: AddPartitionsToTxn", add_partitions(asking, "orders", "secret", "none"), 3)
        yield asking.said(f"{name}: AddPartitionsToTxn of one", add_partitions(asking, "orders"), 3)
        verifying = AddPartitionsToTxnRequest(
            transactions=(
                AddPartitionsToTxnTransaction(
                    transactional_id="tx",
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    verify_only=True,
                    topics=(AddPartitionsToTxnTopic(name="orders", partitions=(0,)),),
                ),
            )
        )
        yield asking.said(f"{name}: AddPartitionsToTxn v4", verifying, 4)
        adding = AddOffsetsToTxnRequest(
            transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, group_id="readers"
        )
        yield asking.said(f"{name}: AddOffsetsToTxn", adding, 3)
        yield asking.said(f"{name}: TxnOffsetCommit", txn_offset_commit(asking, "orders", "secret", "none"), 3)
        build = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 7, "transactional": True}
        wrong = produce(asking, "orders", transactional_id="tx-other", build=build)
        yield asking.said(f"{name}: Produce in another's transaction", wrong, 9)
        nameless = produce(asking, "orders", build=build)
        yield asking.said(f"{name}: Produce without the id", nameless, 9)
        plain = produce(asking, "orders", transactional_id="tx-other")
        yield asking.said(f"{name}: Produce outside of transactions", plain, 9)
        ending = EndTxnRequest(
            transactional_id="tx-other", producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        yield asking.said(f"{name}: EndTxn of another", ending, 3)
        stale = EndTxnRequest(transactional_id="tx", producer_id=producer_id, producer_epoch=epoch + 9, committed=True)
        yield asking.said(f"{name}: EndTxn, wrong epoch", stale, 3)
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            coordinator_epoch=0,
            topics=(WritableTxnMarkerTopic(name="none", partition_indexes=(0,)),),
        )
        yield asking.said(f"{name}: WriteTxnMarkers", WriteTxnMarkersRequest(markers=(marker,)), 1)
    for name, acls in {
        "nothing": (),
        "IdempotentWrite": ("allow alice IdempotentWrite Cluster kafka-cluster",),
        "Write on a topic": ("allow alice Write Topic orders",),
        "Write on a topic of another": ("allow bob Write Topic orders",),
        "Write on a prefix": ("allow alice Write Topic or prefixed",),
        "Write everywhere": ("allow alice Write Topic *",),
        "All on a topic": ("allow alice All Topic orders",),
        "Read on a topic": ("allow alice Read Topic orders",),
        "Write from another host": ("allow alice Write Topic orders @10.0.0.1",),
        "Write denied": ("allow alice Write Topic orders", "deny alice Write Topic orders"),
        "Write denied by a prefix": ("allow alice Write Topic orders", "deny alice Write Topic ord prefixed"),
        "Write denied by a longer prefix": (
            "allow alice Write Topic ord prefixed",
            "deny alice Write Topic orders prefixed",
        ),
        "Write denied literally": ("allow alice Write Topic ord prefixed", "deny alice Write Topic ord"),
        "Write denied everywhere": ("allow alice Write Topic orders", "deny alice Write Topic *"),
        "Write denied to everyone": ("allow alice Write Topic orders", "deny * Write Topic *"),
        "one of two denied": (
            "allow alice Write Topic orders",
            "allow alice Write Topic bills",
            "deny alice Write Topic orders",
        ),
        "everywhere but one": ("allow alice Write Topic *", "deny alice Write Topic orders"),
    }.items():
        asking.grant(*acls)
        yield asking.said(
            f"{name}: InitProducerId", InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4
        )


def sessions(asking: Asking) -> Iterator[Said]:
    """Fetch sessions: each fetch checks again."""
    for name, request, version in (
        ("by name", fetch("orders", "bills", session_epoch=0), 11),
        ("by id", fetch(ids=(asking.ids["orders"], asking.ids["bills"]), session_epoch=0), 13),
    ):
        asking.grant("allow alice Read Topic orders")
        first = asking.broker.ask(request, version, "alice")
        yield f"{name}: the first fetch", asking.summary(first)

        def again(epoch: int, session_id: int = first.session_id, version: int = version) -> Any:
            empty = fetch(session_id=session_id, session_epoch=epoch)
            return asking.broker.ask(empty, version, "alice")

        asking.grant("allow alice Read Topic bills")
        yield f"{name}: the other topic is allowed", asking.summary(again(1))
        asking.grant()
        yield f"{name}: none is allowed", asking.summary(again(2))
        asking.grant("allow alice Read Topic *")
        yield f"{name}: both are allowed", asking.summary(again(3))


def administration(asking: Asking) -> Iterator[Said]:
    """The APIs of ACLs themselves."""
    some = (
        "allow alice Read Topic orders",
        "deny alice Write Topic orders @10.0.0.1",
        "allow bob Read Topic ord prefixed",
        "allow * Describe Topic *",
        "allow alice All Group readers",
        "allow alice Alter Cluster kafka-cluster",
        "allow alice Write TransactionalId tx prefixed",
        "allow alice CreateTokens User User:bob",
        "allow alice Describe DelegationToken abc",
    )
    asking.grant()
    yield asking.said("nothing: DescribeAcls", all_acls(), 3)
    yield asking.said("nothing: CreateAcls", CreateAclsRequest(creations=tuple(map(rule, some[:2]))), 3)
    yield asking.said("nothing: DeleteAcls", DeleteAclsRequest(filters=(filtering(), filtering())), 3)
    asking.grant("allow alice Describe Cluster kafka-cluster")
    yield asking.said("Describe: DescribeAcls", all_acls(), 3)
    yield asking.said("Describe: CreateAcls", CreateAclsRequest(creations=tuple(map(rule, some[:2]))), 3)
    asking.grant("allow alice Alter Cluster kafka-cluster")
    yield asking.said("Alter: DescribeAcls", all_acls(), 3)
    asking.grant(*some)
    filters: dict[str, dict[str, Any]] = {
        "all": {},
        "a topic": {"resource_type_filter": ResourceType.TOPIC, "resource_name_filter": "orders"},
        "literal": {"pattern_type_filter": PatternType.LITERAL},
        "prefixed": {"pattern_type_filter": PatternType.PREFIXED},
        "match": {"pattern_type_filter": PatternType.MATCH, "resource_name_filter": "orders"},
        "match without a name": {"pattern_type_filter": PatternType.MATCH},
        "any pattern of a name": {"resource_name_filter": "ord"},
        "a star": {"resource_name_filter": "*"},
        "a principal": {"principal_filter": "User:alice"},
        "everyone": {"principal_filter": "User:*"},
        "a host": {"host_filter": "10.0.0.1"},
        "all hosts": {"host_filter": "*"},
        "an operation": {"operation": AclOperation.READ},
        "the operation ALL": {"operation": AclOperation.ALL},
        "denied": {"permission_type": AclPermissionType.DENY},
        "nothing": {"principal_filter": "User:nobody"},
        "an empty principal": {"principal_filter": ""},
    }
    for name, changed in filters.items():
        request = all_acls()
        values = {field: getattr(request, field) for field in request.__dataclass_fields__} | changed
        yield asking.said(f"DescribeAcls of {name}", DescribeAclsRequest(**values), 3)
    valid = rule("allow bob Read Topic orders")
    fields = {field: getattr(valid, field) for field in valid.__dataclass_fields__}
    cases: dict[str, dict[str, Any]] = {
        "valid": {},
        "an existing one": {"principal": "User:alice"},
        "an empty name": {"resource_name": ""},
        "the cluster by another name": {"resource_type": ResourceType.CLUSTER, "resource_name": "orders"},
        "the type ANY": {"resource_type": ResourceType.ANY},
        "the pattern ANY": {"resource_pattern_type": PatternType.ANY},
        "the pattern MATCH": {"resource_pattern_type": PatternType.MATCH},
        "the operation ANY": {"operation": AclOperation.ANY},
        "the permission ANY": {"permission_type": AclPermissionType.ANY},
        "an operation that does not fit": {"operation": AclOperation.CLUSTER_ACTION},
        "a topic name that cannot exist": {"resource_name": "a/b c"},
        "a host name": {"host": "example.com"},
        "an empty host": {"host": ""},
        "a principal of another type": {"principal": "Role:admin"},
        "a prefix of the cluster": {
            "resource_type": ResourceType.CLUSTER,
            "resource_name": "kafka-cluster",
            "resource_pattern_type": PatternType.PREFIXED,
        },
    }
    for name, changed in cases.items():
        creation = AclCreation(**(fields | changed))
        yield asking.said(f"CreateAcls: {name}", CreateAclsRequest(creations=(creation, valid)), 3)
    yield asking.said("CreateAcls: nothing", CreateAclsRequest(creations=()), 3)
    twice = DeleteAclsRequest(
        filters=(
            filtering(principal_filter="User:bob"),
            filtering(resource_name_filter="orders", pattern_type_filter=PatternType.MATCH),
            filtering(principal_filter="User:nobody"),
        )
    )
    asking.grant(*some)
    yield asking.said("DeleteAcls with overlaps", twice, 3)
    _await_acls(asking, 5)
    yield asking.said("DeleteAcls again", twice, 3)
    yield asking.said("DeleteAcls v1", DeleteAclsRequest(filters=(filtering(host_filter="10.0.0.1"),)), 1)
    yield asking.said("DeleteAcls of the own right", DeleteAclsRequest(filters=(filtering(),)), 3)
    _await_acls(asking, 0)
    yield asking.said("DeleteAcls without it", DeleteAclsRequest(filters=(filtering(),)), 3)


def filtering(**changed: Any) -> DeleteAclsFilter:
    request = all_acls()
    return DeleteAclsFilter(**({field: getattr(request, field) for field in request.__dataclass_fields__} | changed))


def _await_acls(asking: Asking, number: int) -> None:
    deadline = time.monotonic() + HUNG
    while (known := asking.known_acls()) != number:
        assert time.monotonic() < deadline, f"{known} ACLs instead of {number}"
        time.sleep(0.005)


def without_acls(asking: Asking) -> Iterator[Said]:
    """With `allow.everyone.if.no.acl.found`, a resource without ACLs is open to everyone."""
    for name, acls in {
        "nothing": (),
        "another user's ACL": ("allow bob Read Topic orders",),
        "another user's prefix": ("allow bob Read Topic ord prefixed",),
        "another operation": ("allow alice Write Group readers",),
        "denied": ("deny alice All Topic orders",),
        "denied everywhere": ("deny alice Read Topic *",),
        "another user everywhere": ("allow bob Read Topic *",),
        "on the cluster": ("allow bob Describe Cluster kafka-cluster",),
        "denied to write": ("deny alice Write Topic *",),
        "denied idempotent writes": ("deny alice IdempotentWrite Cluster kafka-cluster",),
        "denied both": ("deny alice IdempotentWrite Cluster kafka-cluster", "deny alice Write Topic *"),
    }.items():
        asking.grant(*acls)
        yield asking.said(f"{name}: ListOffsets", list_offsets("orders", "secret"), 7)
        yield asking.said(f"{name}: Fetch", fetch("orders", "secret"), 11)
        yield asking.said(f"{name}: Metadata", metadata("orders", "secret", operations=True), 9)
        yield asking.said(f"{name}: Metadata of the cluster", cluster_rights(), 9)
        yield asking.said(f"{name}: OffsetFetch", fetch_offsets("readers", everything=True), 8)
        yield asking.said(f"{name}: ListGroups", ListGroupsRequest(), 5)
        yield asking.said(f"{name}: InitProducerId", idempotent(), 4)
        yield asking.said(f"{name}: DescribeAcls", all_acls(), 3)


def shares(asking: Asking) -> Iterator[Said]:
    """Share groups: ``sharers`` has a member, ``idle`` has none."""
    broker, names = asking.broker, ("shared", "shared-secret")
    for name in names:
        asking.create(name)
    ids = [asking.ids[name] for name in names]
    joining = beat("member", group="sharers", subscribed_topic_names=(*names, "no-such"))
    epoch = broker.ask(joining, 1).member_epoch
    describing = ShareGroupDescribeRequest(group_ids=("sharers", "none"), include_authorized_operations=True)
    deadline = time.monotonic() + HUNG
    while not broker.ask(describing, 1).groups[0].members[0].assignment.topic_partitions:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        epoch = broker.ask(beat("member", epoch, group="sharers"), 1).member_epoch
    for topic_id in ids:  # Apache Kafka loads the share partitions
        while True:
            (topic,) = broker.ask(fetch_shared(topic_id, 0, "member", group="sharers"), 1).responses or (None,)
            if topic is not None and time.monotonic() < deadline:
                break
            time.sleep(0.1)
    sets: dict[str, tuple[str, ...]] = {
        "nothing": (),
        "Read": ("allow alice Read Group sharers", "allow alice Read Group idle"),
        "Read, and on a topic": (
            "allow alice Read Group sharers",
            "allow alice Read Group idle",
            "allow alice Read Topic shared",
        ),
        "Describe": ("allow alice Describe Group sharers",),
        "Describe, and on a topic": ("allow alice Describe Group sharers", "allow alice Describe Topic shared"),
        "Describe, and on the topics that exist": (
            "allow alice Describe Group sharers",
            "allow alice Describe Topic shared",
            "allow alice Describe Topic shared-secret",
        ),
        "Describe, and on all topics": ("allow alice Describe Group sharers", "allow alice Describe Topic *"),
        "Delete": ("allow alice Delete Group idle",),
        "Delete, and Read on a topic": ("allow alice Delete Group idle", "allow alice Read Topic shared"),
        "DescribeConfigs": ("allow alice DescribeConfigs Group sharers",),
        "AlterConfigs": ("allow alice AlterConfigs Group sharers",),
    }
    altering = AlterShareGroupOffsetsRequest(
        group_id="idle",
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=(AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0),),
            )
            for name in names
        ),
    )
    offsets = tuple(DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=(0,)) for name in names)
    for name, acls in sets.items():
        broker.ask(altering, 0)
        asking.grant(*acls)
        for topics_ in (("shared",), names):
            told = beat("stranger", 3, group="sharers", subscribed_topic_names=topics_)
            yield asking.said(f"{name}: ShareGroupHeartbeat {topics_}", told, 1)
        yield f"{name}: ShareGroupDescribe", described_groups(broker.ask(describing, 1, "alice"))
        yield asking.said(f"{name}: ShareFetch", fetch_shared(ids, 0, "alice", group="sharers"), 1)
        given = acknowledge_shared(ids, 1, "alice", group="sharers")
        yield asking.said(f"{name}: ShareAcknowledge", given, 1)
        yield asking.said(f"{name}: ShareFetch, the end", fetch_shared(ids, -1, "alice", group="sharers"), 1)
        for what, asked in (("some", offsets), ("all", None)):
            wanted = (DescribeShareGroupOffsetsRequestGroup(group_id="sharers", topics=asked),)
            request = DescribeShareGroupOffsetsRequest(groups=wanted)
            yield asking.said(f"{name}: DescribeShareGroupOffsets of {what}", request, 0)
        case, summary = asking.said(f"{name}: AlterShareGroupOffsets", altering, 0)
        for topic in summary["responses"]:  # Apache Kafka shows the ids of topics that the user may not read
            del topic["topic_id"]
        yield case, summary
        gone = tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in names)
        deleting_ = DeleteShareGroupOffsetsRequest(group_id="idle", topics=gone)
        yield asking.said(f"{name}: DeleteShareGroupOffsets", deleting_, 0)
        resource = DescribeConfigsResource(resource_type=32, resource_name="sharers", configuration_keys=None)
        yield asking.said(f"{name}: DescribeConfigs of a group", DescribeConfigsRequest(resources=(resource,)), 4)
        changing = configure("sharers", isolation_level="read_uncommitted")
        yield asking.said(f"{name}: IncrementalAlterConfigs of a group", changing, 1)
        yield asking.said(f"{name}: ListGroups with shares", ListGroupsRequest(types_filter=("share",)), 5)


def fetch_shared(ids: Iterable[uuid.UUID] | uuid.UUID, epoch: int, member: str, *, group: str) -> ShareFetchRequest:
    """Partition 0 of some topics, without a wait."""
    topics_ = (ids,) if isinstance(ids, uuid.UUID) else tuple(ids)
    parts = [share_fetch_request(each, epoch, member, partitions=(0,), group=group) for each in topics_]
    return replace(parts[0], topics=tuple(topic for each in parts for topic in each.topics) if epoch >= 0 else ())


def acknowledge_shared(ids: Iterable[uuid.UUID], epoch: int, member: str, *, group: str) -> ShareAcknowledgeRequest:
    """Records that the member does not have."""
    parts = [share_acknowledge_request(each, epoch, {0: [(0, 0, [1])]}, member, group=group) for each in ids]
    return replace(parts[0], topics=tuple(topic for each in parts for topic in each.topics))


def described_groups(answer: Any) -> list[Any]:
    """The summary of a description of groups whose members have topics; the text if a topic hides a group."""
    return sorted(
        [
            each.group_id,
            each.error_code,
            each.error_message if each.error_code == TopicAuthorizationFailed.code else None,
            [each.group_state, each.group_epoch > 0, each.assignment_epoch > 0, each.assignor_name],
            each.authorized_operations,
            sorted(
                [member.member_id, sorted(member.subscribed_topic_names), sorted(topics_of(member.assignment))]
                for member in each.members
            ),
        ]
        for each in answer.groups
    )


def topics_of(assignment: Any) -> list[str]:
    return [each.topic_name for each in assignment.topic_partitions]


def keep(member: str, epoch: int, *, group: str, **told: Any) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of a consumer group's member."""
    if epoch == 0:
        told = {"rebalance_timeout_ms": 60_000, "topic_partitions": ()} | told
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **told)


def enter(asking: Asking, group: str, count: int, user: str | None = None, **told: Any) -> Any:
    """Join a consumer group, and send heartbeats until the member has this number of topics, or gets an error."""
    answer = asking.broker.ask(keep("member", 0, group=group, **told), 1, user)
    deadline = time.monotonic() + HUNG
    while not answer.error_code and (answer.assignment is None or len(answer.assignment.topic_partitions) < count):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)  # only the next response says whether Kafka has assigned topics
        # A request with all fields gets the whole assignment.
        full = {"rebalance_timeout_ms": 60_000, "topic_partitions": ()} | told
        answer = asking.broker.ask(keep("member", answer.member_epoch, group=group, **full), 1, user)
    return answer


def consumers(asking: Asking) -> Iterator[Said]:
    """Consumer groups (KIP-848): ``consumers`` has all topics; ``hopeful`` also subscribes to a missing topic."""
    broker, names = asking.broker, ("consumed", "consumed-secret")
    for name in names:
        asking.create(name)
    enter(asking, "consumers", 2, subscribed_topic_names=names)
    enter(asking, "hopeful", 1, subscribed_topic_names=("consumed", "no-such"))
    ids = ("consumers", "hopeful", "none")
    describing = ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=True)
    describe, read = (tuple(f"allow alice {each} Group {group}" for group in ids) for each in ("Describe", "Read"))
    sets: dict[str, tuple[str, ...]] = {
        "nothing": (),
        "Describe": describe,
        "Describe, and on a topic": (*describe, "allow alice Describe Topic consumed"),
        "Describe, and on the other topic": (*describe, "allow alice Describe Topic consumed-secret"),
        "Describe, and on all topics but one": (
            *describe,
            "allow alice Describe Topic *",
            "deny alice Describe Topic consumed-secret",
        ),
        "Describe, and on all topics": (*describe, "allow alice Describe Topic *"),
        "Describe on a group, and on all topics": (describe[0], "allow alice Describe Topic *"),
        "Read": read,
        "Read, and on a topic": (*read, "allow alice Read Topic consumed"),
        "Read, and Write on a topic": (*read, "allow alice Write Topic consumed"),
        "Read, and Describe on a prefix": (*read, "allow alice Describe Topic consumed prefixed"),
        "Read, and Describe on all topics": (*read, "allow alice Describe Topic *"),
        "Delete": tuple(f"allow alice Delete Group {group}" for group in ids),
    }
    told: dict[str, dict[str, Any]] = {
        "a topic": {"subscribed_topic_names": ("consumed",)},
        "two topics": {"subscribed_topic_names": names},
        "a missing topic": {"subscribed_topic_names": ("consumed", "no-such")},
        "no topic": {"subscribed_topic_names": ()},
        "nothing new": {},
        "no pattern": {"subscribed_topic_regex": ""},
    }
    for name, acls in sets.items():
        asking.grant(*acls)
        for what, fields in told.items():
            beating = keep("stranger", 3, group="consumers", **fields)
            yield asking.said(f"{name}: ConsumerGroupHeartbeat with {what}", beating, 1)
        joining = keep("stranger", 0, group="consumers", subscribed_topic_names=("consumed-secret", "no-such"))
        if "all topics" not in name and "prefix" not in name:
            yield asking.said(f"{name}: ConsumerGroupHeartbeat of a new member", joining, 1)
        yield asking.said(f"{name}: ConsumerGroupHeartbeat, the end", keep("stranger", LEAVE, group="consumers"), 1)
        yield f"{name}: ConsumerGroupDescribe", described_groups(broker.ask(describing, 1, "alice"))
        yield asking.said(f"{name}: ListGroups with consumers", ListGroupsRequest(types_filter=("consumer",)), 5)


PATTERNS: dict[str, tuple[int, tuple[str, ...]]] = {
    "nothing": (0, ()),
    "Describe on a topic": (1, ("allow alice Describe Topic matched",)),
    "Read on a topic": (1, ("allow alice Read Topic matched",)),
    "Describe on a prefix": (2, ("allow alice Describe Topic matched prefixed",)),
    "Describe on all topics": (2, ("allow alice Describe Topic *",)),
    "Read on all topics": (2, ("allow alice Read Topic *",)),
    "all topics but one": (1, ("allow alice Describe Topic *", "deny alice Describe Topic matched-secret")),
    "all topics but a prefix": (1, ("allow alice Read Topic *", "deny alice All Topic matched- prefixed")),
    "all topics, one denied to another": (2, ("allow * Describe Topic *", "deny bob Describe Topic matched-secret")),
    "all topics, one denied on another host": (
        2,
        ("allow alice Describe Topic *", "deny alice Describe Topic matched-secret @10.0.0.1"),
    ),
    "all topics, Read of one denied": (2, ("allow alice Describe Topic *", "deny alice Read Topic matched-secret")),
}
"""Rights on topics, and how many of two topics a pattern finds with them."""
PATTERNS_IF_NONE: dict[str, tuple[int, tuple[str, ...]]] = {
    "no ACL": (2, ()),
    "another's right on a topic": (1, ("allow bob Read Topic matched-secret",)),
    "another's right on a prefix": (1, ("allow bob Read Topic matched- prefixed",)),
    "another's right on all topics": (0, ("allow bob Read Topic *",)),
    "a right on a topic": (2, ("allow alice Read Topic matched-secret",)),
    "a right on a prefix of others' topics": (
        2,
        ("allow alice Describe Topic m prefixed", "allow bob Read Topic matched-s prefixed"),
    ),
    "a denied topic": (1, ("deny alice Describe Topic matched-secret",)),
}
"""The same for a broker that allows everything on resources without ACLs."""


def patterns(asking: Asking) -> Iterator[Said]:
    """Members of consumer groups that subscribe to a pattern; each has a group of its own."""
    yield from _patterns(asking, PATTERNS)
    asking.grant("allow alice Describe Topic *")
    yield asking.said("a pattern without Read on the group", keep("m", 0, group="closed", **_PATTERN), 1)
    asking.grant("allow alice Read Group open", "allow alice Describe Topic *")
    yield asking.said("a pattern and a denied group", keep("m", 0, group="closed", **_PATTERN), 1)


def patterns_without_acls(asking: Asking) -> Iterator[Said]:
    yield from _patterns(asking, PATTERNS_IF_NONE)


_PATTERN = {"subscribed_topic_regex": "matched.*"}


def _patterns(asking: Asking, sets: dict[str, tuple[int, tuple[str, ...]]]) -> Iterator[Said]:
    for name in ("matched", "matched-secret"):
        asking.create(name)
    for number, (name, (count, acls)) in enumerate(sets.items()):
        asking.grant(f"allow alice Read Group matching-{number}", *acls)
        answer = enter(asking, f"matching-{number}", count, "alice", **_PATTERN)
        found = [] if answer.assignment is None else answer.assignment.topic_partitions
        said = [answer.error_code, sorted(asking.summary([each.topic_id for each in found]))]
        yield f"a pattern with {name}", said


Scene = Callable[[Asking], Iterator[Said]]
SCENES: dict[str, Scene] = {
    "decisions": decisions,
    "topics": topics,
    "changes": changes,
    "groups": groups,
    "transactions": transactions,
    "sessions": sessions,
    "administration": administration,
    "share groups": shares,
    "consumer groups": consumers,
    "patterns": patterns,
}
"""For brokers with ACLs."""
SCENES_IF_NONE: dict[str, Scene] = {
    "without ACLs": without_acls,
    "patterns where there is no ACL": patterns_without_acls,
}
"""For brokers with ACLs that also allow everything on resources without ACLs."""


def answers(broker: AclBroker, scenes: dict[str, Scene]) -> Iterator[tuple[str, str, Any]]:
    """Each scene, each of its requests, and the summary of the response."""
    asking = Asking(broker)
    for name, scene in scenes.items():
        for case, said in scene(asking):
            yield name, case, said
