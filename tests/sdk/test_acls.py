"""The client's calls about ACLs, against a broker of ours and Apache Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.sync
from ottla import AclBinding, AclBindingFilter
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.errors import ClusterAuthorizationFailed, ConfigurationError, SecurityDisabled
from ottla.testing import Broker
from tests import kafka as apache_kafka
from tests.brokerlite.record_acls import SETTINGS

READ = AclBinding("User:alice", "read", "topic", "orders")
PREFIX = AclBinding("User:*", "Describe", "Topic", "ord", prefixed=True)
DENIED = AclBinding("User:bob", "All", "Group", "g", host="10.0.0.1", deny=True)
CLUSTER = AclBinding("User:alice", "Alter", "Cluster", "kafka-cluster")


def a_broker(data: Path, *super_users: str) -> Broker:
    return Broker(BrokerConfig(port=0, data=data, sync=Sync.NEVER, acls=True, super_users=super_users))


@pytest.fixture(params=["brokerlite", pytest.param("Apache Kafka", marks=pytest.mark.slow)])
def bootstrap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "brokerlite":
        with a_broker(tmp_path / "data", "User:ANONYMOUS") as broker:
            yield broker.bootstrap
    else:
        running = apache_kafka.start(tmp_path / "kafka", 1, SETTINGS, listeners={"BARE": "SASL_PLAINTEXT"})
        try:
            yield running.bootstrap
        finally:
            running.stop()


def test_acls_are_created_described_and_deleted(bootstrap: str) -> None:
    with ottla.sync.connect(bootstrap) as client:
        client.create_acls([READ, PREFIX, DENIED, CLUSTER, READ])
        client.create_acls([])
        assert client.describe_acls() == (CLUSTER, DENIED, PREFIX, READ)
        for wanted, found in (
            (AclBindingFilter(principal="User:alice"), (CLUSTER, READ)),
            (AclBindingFilter(resource_type="topic"), (PREFIX, READ)),
            (AclBindingFilter(resource_type="topic", name="orders"), (READ,)),
            (AclBindingFilter(resource_type="topic", name="orders", pattern="match"), (PREFIX, READ)),
            (AclBindingFilter(pattern="prefixed"), (PREFIX,)),
            (AclBindingFilter(pattern="literal"), (CLUSTER, DENIED, READ)),
            (AclBindingFilter(operation="all"), (DENIED,)),
            (AclBindingFilter(host="*"), (CLUSTER, PREFIX, READ)),
            (AclBindingFilter(deny=True), (DENIED,)),
            (AclBindingFilter(deny=False, name="g"), ()),
        ):
            assert client.describe_acls(wanted) == found, wanted
        assert client.delete_acls([AclBindingFilter("User:alice"), AclBindingFilter(name="orders")]) == (CLUSTER, READ)
        assert client.delete_acls([]) == ()
        assert client.delete_acls([AclBindingFilter()]) == (DENIED, PREFIX)
        assert client.describe_acls() == ()


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with a_broker(tmp_path / "data", "User:admin") as broker, ottla.sync.connect(broker.bootstrap) as client:
        for call in (
            lambda: client.create_acls([READ, PREFIX]),
            lambda: client.describe_acls(),
            lambda: client.delete_acls([AclBindingFilter()]),
        ):
            with pytest.raises(ClusterAuthorizationFailed, match=r"User:ANONYMOUS may not (Alter|Describe) Cluster"):
                call()
        for acl, says in (
            (AclBinding("User:alice", "ClusterAction", "Topic", "t"), "ClusterAction has no meaning on Topic"),
            (AclBinding("alice", "Read", "Topic", "t"), "must be a type and a name, as in User:alice"),
            (AclBinding("User:alice", "Read", "Topic", ""), "the name of the resource is empty"),
            (AclBinding("User:alice", "Alter", "Cluster", "c"), "the name of the cluster is kafka-cluster, not 'c'"),
        ):
            with pytest.raises(ConfigurationError, match=says):
                client.create_acls([acl])
        with pytest.raises(ConfigurationError, match="each of acls must be an AclBinding"):
            client.create_acls([("User:alice", "Read")])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="do you mean 'Read'"):
        AclBinding("User:alice", "Raed", "Topic", "t")
    with pytest.raises(ConfigurationError, match="'Topics' is not a known resource type: do you mean 'Topic'"):
        AclBindingFilter(resource_type="Topics")


def test_a_broker_without_acls_says_so(ottla_broker: Broker) -> None:
    with ottla.sync.connect(ottla_broker.bootstrap) as client, pytest.raises(SecurityDisabled, match="start it with"):
        client.create_acls([READ])


def test_acls_read_as_sentences() -> None:
    assert [str(each) for each in (READ, PREFIX, DENIED)] == [
        "allow User:alice Read on Topic orders",
        "allow User:* Describe on Topic ord*",
        "deny User:bob All on Group g from 10.0.0.1",
    ]
