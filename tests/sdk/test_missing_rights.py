"""A denied client hears which right it needs, and the command with which an administrator grants it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.sync
from ottla import AclBinding
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.codec.apis.find_coordinator import FindCoordinatorResponse
from ottla.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ottla.sdk.cluster.coordinators import Coordinators, Kind
from ottla.testing import Broker
from tests.sdk.client_of_parts import Client

READ = AclBinding("User:alice", "Read", "Topic", "orders")
GRANT = "An administrator grants it with `ottla acls add User:NAME --operation"


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[ottla.sync.Client]:
    """A client that may only read topic `orders`."""
    config = BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER, acls=True, super_users=("User:admin",))
    with Broker(config, users={"admin": "a", "alice": "b"}) as broker:
        with ottla.sync.connect(broker.bootstrap, sasl=ottla.Plain("admin", "a")) as admin:
            admin.create_topic("orders")
            admin.create_acls([READ])
        with ottla.sync.connect(broker.bootstrap, sasl=ottla.Plain("alice", "b")) as client:
            yield client


def test_a_producer_that_gets_no_id_hears_that_it_needs_write_on_its_topic(alice: ottla.sync.Client) -> None:
    with pytest.raises(ClusterAuthorizationFailed) as raised, alice.producer() as producer:
        producer.send("orders", b"an order")
    said = str(raised.value)
    needs = "it needs Write on a topic (it has records for 'orders') or IdempotentWrite on the cluster"
    assert needs in said and f"{GRANT} Write --topic orders`" in said, said
    assert "Grant the right on the cluster" not in said


def test_a_consumer_hears_that_it_needs_read_on_the_group(alice: ottla.sync.Client) -> None:
    with pytest.raises(GroupAuthorizationFailed) as raised, alice.consumer("orders", group="g 1") as consumer:
        next(consumer)
    said = str(raised.value)
    assert "to consume, it needs Read on the group" in said and f"{GRANT} Read --group 'g 1'`" in said, said
    assert said.endswith("[User:alice may not Describe Group g 1]"), said


def test_a_transactional_producer_hears_that_it_needs_write_on_its_id(alice: ottla.sync.Client) -> None:
    with (
        pytest.raises(TransactionalIdAuthorizationFailed) as raised,
        alice.producer(transactional_id="pay") as producer,
        producer.transaction(),
    ):
        pass
    said = str(raised.value)
    assert "it needs Write on the id" in said and f"{GRANT} Write --transactional-id pay`" in said, said


@pytest.mark.parametrize(
    ("kind", "code", "right"),
    [(Kind.GROUP, 30, "Read --group k"), (Kind.TRANSACTIONAL_ID, 53, "Write --transactional-id k")],
    ids=["group", "transactional id"],
)
def test_a_broker_without_a_text_is_explained_too(kind: Kind, code: int, right: str) -> None:
    client = Client()
    outcome = Coordinators(client, kind).find("k", 0.0)
    client.answer(FindCoordinatorResponse(error_code=code, error_message=None, node_id=-1, host="", port=-1))
    assert right in str(outcome.error) and str(outcome.error).endswith(f"[coordinator of {kind} 'k']")


def test_the_client_does_not_send_the_denied_user_to_commands_that_are_denied_too(alice: ottla.sync.Client) -> None:
    with pytest.raises(ClusterAuthorizationFailed) as raised:
        alice.describe_acls()
    assert "an administrator sees why" in str(raised.value)
    with pytest.raises(TopicAuthorizationFailed) as denied:
        alice.delete_topic("orders")
    assert "an administrator sees why" in str(denied.value)
