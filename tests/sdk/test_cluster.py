"""The client's view of topics: leader epochs never go back, and a recreated topic is another topic."""

import uuid

import pytest

from ottla.codec.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import InconsistentClusterId, LeaderNotAvailable, UnknownTopicOrPartition
from ottla.sdk.cluster.cluster import Cluster

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def told(cluster: Cluster, topic_id: uuid.UUID | None, leader_epoch: int = 0) -> None:
    """Receive metadata of the topic ``t``; without an id the topic is gone."""
    nodes = (MetadataResponseBroker(node_id=1, host="h", port=1), MetadataResponseBroker(node_id=2, host="h", port=2))
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1 + leader_epoch % 2,
        leader_epoch=leader_epoch,
        replica_nodes=(),
        isr_nodes=(),
    )
    code = UnknownTopicOrPartition.code if topic_id is None else 0
    partitions = () if topic_id is None else (partition,)
    topic = MetadataResponseTopic(error_code=code, name="t", topic_id=topic_id or NO_UUID, partitions=partitions)
    cluster.update(MetadataResponse(brokers=nodes, controller_id=1, topics=(topic,)))


def test_a_topic_that_was_gone_for_a_moment_goes_on_with_its_epochs() -> None:
    cluster = Cluster()
    told(cluster, FIRST, 5)
    told(cluster, None)
    assert cluster.leader("t", 0) is None
    told(cluster, FIRST, 4)  # from a broker that has just started
    assert cluster.leader_epoch("t", 0) == 5 and cluster.incarnation("t") == 1


@pytest.mark.parametrize("gone", [False, True])
def test_another_topic_of_the_same_name_begins_with_its_own_epochs(gone: bool) -> None:
    cluster = Cluster()
    told(cluster, FIRST, 5)
    if gone:
        told(cluster, None)
    told(cluster, SECOND, 0)
    assert cluster.leader_epoch("t", 0) == 0 and cluster.incarnation("t") == 2


def test_without_ids_a_topic_that_was_gone_is_another_one() -> None:
    cluster = Cluster()
    told(cluster, NO_UUID, 5)
    told(cluster, None)
    told(cluster, NO_UUID, 0)
    assert cluster.leader_epoch("t", 0) == 0 and cluster.incarnation("t") == 2


def test_without_ids_an_epoch_that_falls_is_another_topic_whose_older_leaders_are_not_taken_over() -> None:
    cluster = Cluster()
    told(cluster, NO_UUID, 5)
    told(cluster, NO_UUID, 4)
    assert cluster.leader_epoch("t", 0) == 5 and cluster.incarnation("t") == 2


def test_without_ids_an_epoch_that_stays_lower_is_taken_over_and_a_newer_one_at_once() -> None:
    cluster = Cluster()
    told(cluster, NO_UUID, 5)
    for _ in range(2):
        told(cluster, NO_UUID, 0)
    assert cluster.leader_epoch("t", 0) == 5
    told(cluster, NO_UUID, 0)
    assert cluster.leader_epoch("t", 0) == 0 and cluster.incarnation("t") == 2
    told(cluster, NO_UUID, 1)
    assert cluster.leader_epoch("t", 0) == 1 and cluster.incarnation("t") == 2


def test_a_broker_that_is_behind_does_not_bring_the_leader_of_a_deleted_topic_back() -> None:
    cluster = Cluster()
    told(cluster, FIRST, 4)
    told(cluster, SECOND, 0)
    assert not cluster.moved("t", 0, 2, 5, [])  # KIP-951, in an answer that has the topic's name and no id
    told(cluster, SECOND, 1)
    assert cluster.leader_epoch("t", 0) == 1


def test_a_topic_without_partitions_is_not_there_yet() -> None:
    cluster = Cluster()
    told(cluster, FIRST)
    topic = MetadataResponseTopic(error_code=0, name="t", topic_id=FIRST, partitions=())
    cluster.update(MetadataResponse(brokers=(), controller_id=1, topics=(topic,)))
    assert "t" not in cluster.topics and cluster.errors["t"] == LeaderNotAvailable.code
    told(cluster, FIRST)
    assert cluster.leader("t", 0) and not cluster.errors


def test_a_broker_that_does_not_say_its_clusters_id_makes_no_client_forget_it() -> None:
    cluster, nodes = Cluster(), (MetadataResponseBroker(node_id=1, host="h", port=1),)
    cluster.update(MetadataResponse(brokers=nodes, cluster_id="mine", topics=()))
    cluster.update(MetadataResponse(brokers=nodes, cluster_id=None, topics=()))
    foreign = MetadataResponse(brokers=nodes, cluster_id="another", topics=())
    assert isinstance(cluster.refusal(foreign), InconsistentClusterId)
