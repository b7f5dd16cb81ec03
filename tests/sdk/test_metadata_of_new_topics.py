"""`Metadata` with new topics: each is requested alone, and held topics are still refreshed in time."""

from dataclasses import replace

import pytest

from ottla.errors import ConnectionLost, RebootstrapRequired
from tests.sdk.client_of_parts import Client
from tests.sdk.test_metadata_machine import cluster


class Broker:
    """A cluster with topics, which may create others.

    Attributes:
        asked: the topics of each answered request.
    """

    def __init__(self, client: Client, *topics: str) -> None:
        self.client, self.topics = client, {*topics}
        self.asked: list[list[str]] = []

    def answer(self, index: int = 0) -> None:
        """Answer a pending request, by default the oldest."""
        _, exchange = self.client.asked.pop(index)
        names = [each.name for each in exchange.message.topics]
        self.asked.append(names)
        if exchange.message.allow_auto_topic_creation:
            self.topics |= {*names}
        exchange.settle(cluster(*(each for each in names if each in self.topics)), self.client.now)
        self.client.passes(0.0)


def under_way(client: Client) -> list[list[str]]:
    return [[each.name for each in exchange.message.topics] for _, exchange in client.asked]


def holding(*topics: str) -> tuple[Client, Broker]:
    """A client that has requested these topics one after the other, and holds them; it has no request in flight."""
    client = Client()
    broker = Broker(client, *topics)
    client.metadata.connect(0.0)
    client.passes(0.0)
    broker.answer()
    for name in topics:
        found = client.metadata.topic(name, client.now)
        client.passes(0.0)
        broker.answer()
        assert found.done and found.error is None
        client.metadata.hold(name)
    client.passes(1.0)
    assert not client.asked
    broker.asked.clear()
    return client, broker


def new_topics(client: Client, broker: Broker, seconds: float) -> float | None:
    """Add a topic every 20 ms, and answer requests after 30 ms.

    Returns:
        The seconds until the first request for all topics, if there was one."""
    began, asked_at = client.now, client.now
    for step in range(int(seconds / 0.01)):
        if step % 2 == 0:
            broker.topics.add(f"n{step}")
            client.metadata.topic(f"n{step}", client.now)
        idle = not client.asked
        client.passes(0.01)
        if any("a" in each for each in under_way(client)):
            return client.now - began
        asked_at = client.now if idle else asked_at
        if client.asked and client.now - asked_at > 0.025:
            broker.answer()
            asked_at = client.now
    return None


def test_a_new_topic_is_asked_for_alone_and_all_that_are_held_when_they_are_old() -> None:
    client, broker = holding("a", "b")
    for name in ("c", "d"):
        found = client.metadata.topic(name, client.now, create=True)
        client.passes(0.0)
        broker.answer()
        assert found.done and found.error is None
        client.metadata.hold(name)
    client.passes(client.options.metadata_max_age - 2.0)
    assert broker.asked == [["c"], ["d"]] and not client.asked
    client.passes(1.0)
    assert under_way(client) == [["a", "b", "c", "d"]]


@pytest.mark.parametrize("how", ["refresh", "suspect", "grows old"])
def test_no_stream_of_new_topics_puts_off_what_all_are_asked_for(how: str) -> None:
    client, broker = holding("a", "b")
    if how == "grows old":
        client.passes(client.options.metadata_max_age - 2.0)
        assert new_topics(client, broker, 2.0) is not None
        return
    getattr(client.metadata, how)(client.now, 0.05)
    waited = new_topics(client, broker, 5.0)
    assert waited is not None and waited < 3 * client.options.retry_backoff


def test_no_stream_of_topics_to_create_puts_it_off() -> None:
    client, broker = holding("a")
    client.metadata.refresh(client.now)
    for number in range(3):
        client.metadata.topic(f"t{number}", client.now, create=True)
        client.passes(0.0)
        while client.asked:
            broker.answer()
    assert ["a"] in [each[:1] for each in broker.asked]


def test_a_topic_is_created_by_the_first_request_however_many_were_before() -> None:
    client, broker = holding("a")
    for number in range(3):
        client.passes(20.0)
        created = client.metadata.topic(f"t{number}", client.now, create=True)
        client.passes(0.0)
        broker.answer()
        assert created.done and created.error is None
        client.metadata.hold(f"t{number}")


def test_where_a_node_does_not_answer_for_all_another_is_asked_for_all() -> None:
    client, broker = holding("a", "b")
    client.metadata.refresh(client.now)
    broker.topics.add("new")
    client.metadata.topic("new", client.now)
    client.passes(1.0)
    assert under_way(client) == [["a", "b", "new"]] * 2


def test_a_request_for_all_that_fails_is_made_for_all_again() -> None:
    client, _ = holding("a", "b")
    client.metadata.refresh(client.now)
    client.passes(0.0)
    client.metadata.topic("new", client.now)
    client.answer(ConnectionLost("gone"))
    assert under_way(client) == [["a", "b", "new"]]


def test_what_is_suspected_while_a_node_cannot_be_reached_is_asked_for() -> None:
    client, broker = holding("a", "b")
    broker.topics.add("new")
    client.metadata.topic("new", client.now)
    client.passes(0.0)
    client.answer(ConnectionLost("refused"))
    assert under_way(client) == [["new"]]
    client.metadata.suspect(client.now, 0.0)
    broker.answer()
    client.passes(client.options.retry_backoff)
    assert under_way(client) == [["a", "b"]]


def test_behind_a_new_start_all_are_asked_for() -> None:
    client, _ = holding("a", "b")
    client.metadata.topic("new", client.now)
    client.passes(0.0)
    client.answer(replace(cluster(), error_code=RebootstrapRequired.code))
    assert under_way(client) == [["a", "b", "new"]]


def test_what_is_held_is_known_whatever_was_asked_for_since() -> None:
    client, _ = holding("a", "b", "c")
    assert client.metadata.topic("a", client.now).done
    client.metadata.hold("b")
    client.passes(1.0)
    assert not client.asked


def test_topics_that_were_looked_up_together_and_are_held_one_by_one_are_asked_for_alone() -> None:
    client, broker = holding("a", "b")
    names = [f"n{number}" for number in range(20)]
    broker.topics |= {*names}
    for name in names:
        client.metadata.topic(name, client.now)
    client.passes(0.0)
    broker.answer()
    client.metadata.topic("b", client.now, fresh=True)
    client.passes(0.0)
    broker.answer()  # an answer without these topics: their metadata is old now
    broker.asked.clear()
    for name in names:
        client.metadata.hold(name)
        client.metadata.hold(name)
        client.passes(0.05)
        while client.asked:
            broker.answer()
    assert sorted(name for asked in broker.asked for name in asked) == sorted(names)
    assert len(broker.asked) <= 10 + 1, "at most one request per retry_backoff"
    client.metadata.hold("a")
    client.passes(1.0)
    assert not client.asked, "the topic was held all the time"


def test_a_topic_that_is_held_again_and_gone_meanwhile_is_not_known_any_more() -> None:
    client, broker = holding("a")
    broker.topics.add("new")
    client.metadata.topic("new", client.now)
    client.passes(0.0)
    broker.answer()
    client.metadata.hold("new")()
    broker.topics.remove("new")
    client.metadata.hold("new")
    client.passes(client.options.retry_backoff)
    broker.answer()
    assert "new" not in client.metadata.cluster.topics
    client.passes(1.0)
    assert not client.asked


def test_a_new_topic_does_not_wait_for_a_slow_answer_about_all() -> None:
    client, broker = holding("a", "b")
    client.metadata.refresh(client.now)
    client.passes(0.0)
    broker.topics |= {"new", "newer"}
    found = client.metadata.topic("new", client.now)
    client.passes(0.0)
    assert under_way(client) == [["a", "b"], ["new"]]
    newer = client.metadata.topic("newer", client.now)
    client.passes(0.0)
    assert len(client.asked) == 2, "a request for one topic is pending, and gets its answer soon"
    broker.answer(1)
    assert found.done and found.error is None and not newer.done
    client.passes(0.0)
    assert under_way(client) == [["a", "b"], ["newer"]]
    broker.answer(1)
    assert newer.done and newer.error is None
    client.passes(1.0)
    assert under_way(client)[0] == ["a", "b"] and "a" in under_way(client)[1], "another node is asked for all topics"
    broker.answer(1)
    client.passes(1.0)
    assert len(client.asked) == 1, "the answer had all topics"


def test_a_caller_who_waits_for_what_is_asked_for_already_asks_no_other_node() -> None:
    client, _ = holding("a", "b")
    client.metadata.forget("a")
    client.metadata.refresh(client.now)
    client.passes(0.0)
    client.metadata.topic("a", client.now)
    client.passes(0.5)
    assert under_way(client) == [["a", "b"]]


def test_an_answer_about_some_makes_the_others_no_younger() -> None:
    client, broker = holding("a")
    was = client.metadata.all_updated_at
    broker.topics.add("new")
    client.metadata.topic("new", client.now)
    client.passes(0.0)
    broker.answer()
    assert client.metadata.all_updated_at == was < client.metadata.updated_at == client.now


def test_nothing_is_asked_for_a_caller_that_has_gone_before_it_is_time() -> None:
    client, _ = holding("a")
    client.metadata.topic("new", client.now).cancel()
    client.passes(client.options.metadata_max_age - 2.0)
    assert not client.asked
    client.passes(1.0)
    assert under_way(client) == [["a"]]


def test_a_late_answer_to_an_older_question_about_all_is_none_to_the_newer() -> None:
    client, broker = holding("a", "b")
    client.metadata.refresh(client.now)
    client.passes(1.0)  # the first node is slow, so another one gets the request
    broker.answer(1)
    client.passes(1.0)
    client.metadata.refresh(client.now)
    client.passes(0.0)
    assert under_way(client) == [["a", "b"]] * 2
    broker.answer(0)
    broker.topics.add("new")
    client.metadata.topic("new", client.now)
    client.passes(2.0)
    assert under_way(client) == [["a", "b"], ["new"], ["a", "b", "new"]]


def test_a_question_about_a_new_topic_that_fails_asks_for_no_others() -> None:
    client, broker = holding("a", "b")
    broker.topics.add("new")
    client.metadata.topic("new", client.now)
    client.passes(1.0)
    broker.answer(1)
    client.answer(ConnectionLost("gone"))
    client.passes(0.0)
    assert under_way(client) == [[]]
