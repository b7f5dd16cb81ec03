"""The fixture itself: Kafka starts, dies, lives again on its data, and runs its tools."""

import pytest

from tests.kafka import ApacheKafka

pytestmark = pytest.mark.slow

TOPICS = "org.apache.kafka.tools.TopicCommand"


def test_a_killed_node_lives_again_on_its_data(kafka: ApacheKafka) -> None:
    kafka.run(TOPICS, "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "kept")
    kafka.kill()
    assert kafka.nodes[0].known_brokers() == 0
    kafka.revive()
    assert "kept" in kafka.run(TOPICS, "--bootstrap-server", kafka.bootstrap, "--list")
    dumped = kafka.run("org.apache.kafka.tools.DumpLogSegments", "--files", kafka.data() / "kept-0" / f"{0:020}.log")
    assert "starting offset: 0" in dumped


def test_the_cluster_notices_a_lost_node_and_takes_it_back(kafka_cluster: ApacheKafka) -> None:
    kafka_cluster.kill(2)
    kafka_cluster.await_nodes()
    assert kafka_cluster.nodes[0].known_brokers() == 2
    kafka_cluster.revive(2)
    assert kafka_cluster.nodes[0].known_brokers() == 3
