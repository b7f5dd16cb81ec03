"""The fixture itself: Kafka starts, dies, restarts on its data, and runs its tools."""

import pytest

from tests.kafka import ApacheKafka, need

TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_peer_is_a_visible_skip_and_in_ci_a_failure(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"needs `no-such-peer`.*install it from somewhere"):
        need("no-such-peer", "it from somewhere")


@pytest.mark.deep
def test_a_killed_node_lives_again_on_its_data(kafka: ApacheKafka) -> None:
    kafka.run(TOPICS, "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "kept")
    kafka.kill()
    assert kafka.nodes[0].known_brokers() == 0
    kafka.revive()
    assert "kept" in kafka.run(TOPICS, "--bootstrap-server", kafka.bootstrap, "--list")
    dumped = kafka.run("org.apache.kafka.tools.DumpLogSegments", "--files", kafka.data() / "kept-0" / f"{0:020}.log")
    assert "starting offset: 0" in dumped


@pytest.mark.deep
def test_the_cluster_notices_a_lost_node_and_takes_it_back(kafka_cluster: ApacheKafka) -> None:
    kafka_cluster.kill(2)
    kafka_cluster.await_nodes()  # each of the other two knows just the two
    kafka_cluster.revive(2)  # returns once each of the three knows all three
