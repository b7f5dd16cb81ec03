"""Kafka's own tool, librdkafka, and clients with few rights, against a broker that applies ACLs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import ottla.sync
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.errors import ClusterAuthorizationFailed, GroupAuthorizationFailed, TopicAuthorizationFailed
from ottla.testing import Broker
from tests import kafka
from tests.patience import HUNG

pytestmark = pytest.mark.slow

ANYONE = "User:ANONYMOUS"


def a_broker(data: Path, **options: Any) -> Broker:
    return Broker(
        BrokerConfig(port=0, data=data, sync=Sync.NEVER, acls=True, group_initial_rebalance_delay=0, **options)
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with a_broker(tmp_path / "data", super_users=(ANYONE,)) as running:
        yield running


def test_kafkas_own_tool_adds_lists_and_removes_acls(broker: Broker) -> None:
    def acls(*arguments: str) -> str:
        return kafka.run("org.apache.kafka.tools.AclCommand", "--bootstrap-server", broker.bootstrap, *arguments)

    acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    acls("--add", "--deny-principal", "User:bob", "--operation", "Read", "--topic", "ord", *_PREFIXED)
    listed = acls("--list")
    assert "name=orders, patternType=LITERAL" in listed and "principal=User:alice, host=*, operation=WRITE" in listed
    assert "name=ord, patternType=PREFIXED" in listed and "operation=READ, permissionType=DENY" in listed
    acls("--remove", "--force", "--topic", "orders")
    assert "orders" not in acls("--list")


_PREFIXED = ("--resource-pattern-type", "prefixed")


def test_librdkafka_creates_describes_and_deletes_acls(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    acl = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([acl]).values():
        future.result(HUNG)
    of_none: Any = None  # its annotations allow no None, which stands for everything
    everything = AclBindingFilter(
        ResourceType.ANY, of_none, ResourcePatternType.ANY, of_none, of_none, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.describe_acls(everything).result(HUNG) == [acl]
    (deleted,) = admin.delete_acls([everything]).values()
    assert deleted.result(HUNG) == [acl] and admin.describe_acls(everything).result(HUNG) == []


def test_clients_with_few_rights_get_the_error_at_once_and_the_others_work(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with a_broker(data, super_users=(ANYONE,)) as broker, ottla.sync.connect(broker.bootstrap) as client:
        for topic in ("orders", "secret"):
            client.create_topic(topic, partitions=1)
        client.create_acls(
            [
                ottla.AclBinding(ANYONE, "Write", "Topic", "orders"),
                ottla.AclBinding(ANYONE, "Read", "Topic", "orders"),
                ottla.AclBinding(ANYONE, "Read", "Group", "billing"),
            ]
        )
    with a_broker(data) as broker, ottla.sync.connect(broker.bootstrap) as client:
        assert client.list_topics() == ["orders"]
        with client.producer() as producer:
            producer.send("orders", b"v")
            with pytest.raises(TopicAuthorizationFailed):
                producer.send("secret", b"v")
        with client.consumer("orders", group="billing", start="beginning") as consumer:
            assert [record.value for record in next(iter(consumer))] == [b"v"]
        with pytest.raises(GroupAuthorizationFailed), client.consumer("orders", group="others") as consumer:
            next(iter(consumer))
        with pytest.raises(TopicAuthorizationFailed), client.consumer("secret", start="beginning") as consumer:
            next(iter(consumer))
        with pytest.raises(ClusterAuthorizationFailed):
            client.describe_acls()
        with pytest.raises(TopicAuthorizationFailed):
            client.create_topic("new", partitions=1)
