"""`Metadata` alone: which node it asks, when, and how it uses the answers. No connection, no clock."""

from ottla.codec.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.errors import AuthenticationFailed, BrokerUnreachable, ConnectionLost, UnknownTopicOrPartition
from ottla.sdk.cluster.hedged_requests import HEDGE_DELAY
from ottla.sdk.events import Found
from tests.sdk.client_of_parts import Client


def cluster(*topics: str, name: str = "c1") -> MetadataResponse:
    partition = MetadataResponsePartition(error_code=0, partition_index=0, leader_id=1, replica_nodes=(), isr_nodes=())
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="n", port=1),),
        cluster_id=name,
        topics=tuple(MetadataResponseTopic(error_code=0, name=each, partitions=(partition,)) for each in topics),
    )


def test_the_first_answer_settles_connect() -> None:
    client = Client()
    connected = client.metadata.connect(0.0)
    client.passes(0.0)
    assert len(client.asked) == 1 and not connected.done
    client.answer(cluster())
    assert connected.done and connected.error is None and client.done == ["changed"]


def test_another_node_is_asked_when_the_first_does_not_answer_and_none_twice() -> None:
    client = Client(seeds=2)
    client.metadata.connect(0.0)
    client.passes(HEDGE_DELAY - 0.1)
    assert len(client.asked) == 1
    client.passes(5.0)
    assert len({node.id for node, _ in client.asked}) == len(client.asked) == 2


def test_a_node_that_was_busy_when_the_first_did_not_answer_is_asked_once_it_has_answered() -> None:
    client = Client(seeds=1)  # the seed, and the broker in its answer
    client.metadata.topic("a", client.now)
    client.passes(0.0)
    client.answer(cluster("a"))
    client.metadata.refresh(client.now)
    client.passes(1.0)
    client.metadata.topic("b", client.now)
    client.passes(HEDGE_DELAY)
    (silent, _), (other, busy) = client.asked
    assert [each.name for each in busy.message.topics] == ["b"]
    client.asked.pop()
    busy.settle(cluster("b"), client.now)
    client.passes(client.options.retry_backoff)
    assert [node for node, _ in client.asked] == [silent, other]


def test_a_refresh_without_an_answer_is_hedged_again_if_the_hedge_had_to_ask_for_a_topic_to_create() -> None:
    client = Client(seeds=1)  # the seed, and the broker in its answer
    client.metadata.topic("a", client.now)
    client.passes(0.0)
    client.answer(cluster("a"))
    for name in "ab":
        client.metadata.hold(name)
    client.metadata.refresh(client.now)
    client.passes(client.options.retry_backoff)
    client.metadata.topic("b", client.now, create=True)
    client.passes(HEDGE_DELAY)
    (silent, refresh), (other, hedge) = client.asked
    assert [[each.name for each in asked.message.topics] for asked in (refresh, hedge)] == [["a", "b"], ["b"]]
    client.asked.pop()
    hedge.settle(cluster("b"), client.now)
    client.passes(client.options.retry_backoff)
    assert [node for node, _ in client.asked] == [silent, other]
    assert [each.name for each in client.asked[-1][1].message.topics] == ["a", "b"]


def test_after_a_round_of_failures_brokers_are_looked_for_and_a_pause_is_made() -> None:
    client = Client(seeds=2)
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(ConnectionLost("refused"))
    assert len(client.asked) == 1, "the next address follows without a pause"
    client.answer(ConnectionLost("refused"))
    assert client.done == ["find"] and not client.asked
    client.metadata.found(Found((("other", 9),)), client.now)
    client.passes(0.0)
    assert [node.host for node, _ in client.asked] == ["other"]


def test_a_connected_node_that_knows_nothing_is_not_asked_again_before_the_others() -> None:
    client = Client(seeds=3)
    client.connected = client.nodes.seeds[0]
    client.metadata.connect(0.0)
    client.passes(0.0)
    asked = []
    for _ in range(3):
        asked.append(client.asked[0][0].id)
        client.answer(MetadataResponse(brokers=(), cluster_id="c1", topics=()))
    assert asked[0] == client.connected.id and sorted(asked) == [-3, -2, -1]
    assert not client.asked, "all nodes were asked, so a pause follows"


def test_while_one_node_does_not_answer_another_that_knows_nothing_is_asked_after_pauses() -> None:
    client = Client(seeds=2)
    client.connected = client.nodes.seeds[0]
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(ConnectionLost("refused"))  # the other node is silent
    client.passes(0.0)
    assert [node.id for node, _ in client.asked] == [client.nodes.seeds[1].id]
    times = 0
    while client.now < 5.0:
        client.passes(0.01)
        if len(client.asked) > 1:
            times += 1
            client.asked.pop()[1].settle(ConnectionLost("refused"), client.now)
    assert 5 <= times <= 10


def test_nothing_is_asked_within_the_pause_after_a_round_of_failures() -> None:
    client = Client(seeds=1)
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(ConnectionLost("refused"))
    for _ in range(9):
        client.metadata.refresh(client.now)
        client.metadata.topic("t", client.now)
        client.passes(0.05)
    assert not client.asked
    client.passes(0.06)
    assert len(client.asked) == 1


def test_an_outage_after_brokers_that_knew_no_topic_as_they_started_makes_none_gone() -> None:
    client = Client(seeds=1)
    topic = client.metadata.topic("t", client.now)
    client.passes(0.0)
    client.answer(cluster())
    started = client.now
    for _ in range(8):
        client.passes(2.0)
        while client.asked:
            client.answer(ConnectionLost("refused"))
    assert client.metadata.heard_for(started, client.now) == 0.0
    client.passes(2.0)
    client.answer(cluster())
    assert not topic.done, "the brokers may have just restarted"
    while not topic.done and client.now < started + 60:
        client.passes(1.0)
        client.answer(cluster())
    assert isinstance(topic.error, UnknownTopicOrPartition)


def test_a_refusal_fails_those_who_wait_then_and_not_those_who_wait_when_nobody_answers_later() -> None:
    client = Client(seeds=1)
    first = client.metadata.topic("t", client.now)
    client.passes(0.0)
    client.answer(AuthenticationFailed("no such user"))
    assert isinstance(first.error, AuthenticationFailed)
    second = client.metadata.topic("t", client.now)
    client.passes(1.0)
    client.answer(ConnectionLost("refused"))
    assert not second.done


def test_refreshes_come_once_in_a_backoff_and_a_topic_that_is_waited_for_at_once() -> None:
    client = Client()
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(cluster())
    client.metadata.refresh(client.now)
    client.passes(0.05)
    assert not client.asked
    known = client.metadata.topic("t", client.now)
    client.passes(0.0)
    client.answer(cluster("t"))
    assert known.done and known.error is None
    client.metadata.refresh(client.now)
    client.passes(0.09)
    assert not client.asked
    client.passes(0.01)
    assert len(client.asked) == 1


def test_a_refresh_that_was_planned_while_an_answer_was_awaited_comes_a_backoff_after_the_answer() -> None:
    client = Client()
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.metadata.refresh(client.now, 0.05)
    client.passes(0.04)
    client.answer(cluster())
    client.passes(0.09)
    assert not client.asked
    client.passes(0.01)
    assert len(client.asked) == 1


def test_a_foreign_cluster_is_given_up_and_named_in_the_error() -> None:
    client = Client(seeds=1)
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(cluster())
    wanted = client.metadata.topic("t", client.now)
    client.passes(0.0)
    client.answer(cluster("t", name="c2"))
    assert client.done[-1] == "it belongs to cluster 'c2', and this client to 'c1'"
    assert not wanted.done and client.metadata.cluster.topics == {}
    assert any("it belongs to cluster 'c2'" in line for line in client.metadata.explain(client.now))
    client.passes(client.options.api_timeout)
    assert isinstance(wanted.error, BrokerUnreachable)


def known(client: Client, topic: str) -> None:
    wanted = client.metadata.topic(topic, client.now)
    client.passes(0.0)
    client.answer(cluster(topic))
    assert wanted.done


def test_a_topic_that_nobody_ever_held_is_asked_for_again_once_metadata_of_others_came() -> None:
    client = Client()
    known(client, "t")
    assert client.metadata.topic("t", client.now).done, "the last answer contained the topic"
    client.passes(client.options.metadata_max_age)
    client.answer(cluster())
    again = client.metadata.topic("t", client.now)
    client.passes(0.0)
    assert not again.done and [each.name for each in client.asked[-1][1].message.topics] == ["t"]


def test_a_topic_that_nobody_ever_held_is_forgotten_in_the_end() -> None:
    client = Client()
    known(client, "t")
    refused = client.metadata.topic("missing", client.now)
    client.passes(0.0)
    while not refused.done:
        client.answer(cluster())
        client.passes(1.0)
    for _ in range(2):
        client.passes(client.options.metadata_max_age)
        while client.asked:
            client.answer(cluster())
    assert not client.metadata.cluster.topics and not client.metadata.cluster.errors


def test_a_topic_that_is_held_as_soon_as_it_is_known_is_not_asked_for_again() -> None:
    client = Client()
    known(client, "t")
    client.metadata.hold("t")
    client.passes(client.options.retry_backoff)
    assert not client.asked


def test_what_is_to_be_fresh_is_not_what_was_asked_for_before() -> None:
    client = Client()
    client.metadata.connect(0.0)
    client.passes(0.0)
    client.answer(cluster("t"))
    client.metadata.hold("t")
    client.metadata.refresh(client.now)
    client.passes(client.options.retry_backoff)
    assert len(client.asked) == 1
    client.passes(0.1)
    fresh = client.metadata.topic("t", client.now, fresh=True)
    client.passes(0.1)
    client.answer(cluster("t"))
    assert not fresh.done, "the leader may have changed since that request"
    client.passes(0.0)
    client.answer(cluster("t"))
    assert fresh.done
