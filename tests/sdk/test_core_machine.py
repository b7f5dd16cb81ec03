"""The core as a whole: which node gets metadata requests, and how it finds the cluster again after a move."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.apis.produce import ProduceRequest
from ottla.errors import (
    BrokerUnreachable,
    Closed,
    ConnectionLost,
    RebootstrapRequired,
    TimeoutExpired,
    UnknownTopicOrPartition,
)
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import FETCH, GENERAL, PRODUCE, Key, Node
from ottla.sdk.options import Options
from tests.sim.wire import Link, Wire

Address = tuple[str, int]
REFUSES, SILENT, MUTE = "refuses", "never connects", "connects and says nothing"


class Net(Wire):
    """Addresses with a `Fake` behind each, or the way in which it fails; time jumps from event to event."""

    def __init__(self, seeds: list[Address], options: Options | None = None, findable: bool = False) -> None:
        find = (lambda: [f"{host}:{port}" for host, port in self.found or ()]) if findable else None
        super().__init__(core=ClientCore(seeds, options or Options(), random.Random(1), find=find))
        self.at: dict[Address, Fake | str] = {}
        self.found: list[Address] | None = None
        self.tried: list[Address] = []

    def stop(self, address: Address, how: str = REFUSES) -> None:
        """Stop the broker at an address, with its connections."""
        gone, self.at[address] = self.at[address], how
        for key in [key for key, link in self.links.items() if link.peer is gone]:
            self.cut(key, "closed by the broker")

    def delay(self) -> float:
        return 0.0005

    def accepts(self, link: Link) -> bool | None:
        self.tried.append(link.address)
        link.peer = self.at[link.address]
        return None if link.peer is SILENT else link.peer is not REFUSES

    def serve(self, key: Key, link: Link, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        if isinstance(link.peer, Closing) and isinstance(frames.parse_request(frame).message, MetadataRequest):
            self.cut(key, "closed by the broker")
        elif isinstance(link.peer, Fake):
            reply(link.peer.answer(frame))


class Fake:
    """A broker that knows a cluster; ``says`` may answer Metadata instead."""

    def __init__(self, cluster: dict[int, Address], topics: tuple[str, ...] = (), name: str = "c1") -> None:
        self.cluster, self.topics, self.name = cluster, topics, name
        self.asked: list[MetadataRequest] = []
        self.says: Callable[[], MetadataResponse | None] = lambda: None

    def answer(self, frame: bytes) -> bytes:
        request = frames.parse_request(frame)
        message: Any
        if isinstance(request.message, ApiVersionsRequest):
            served = {1: (0, 11), 3: (0, 13), 18: (0, 3)}
            keys = tuple(ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in served.items())
            message = ApiVersionsResponse(error_code=0, api_keys=keys)
        else:
            self.asked.append(request.message)
            message = self.says() or self._metadata(request.message)
        return frames.build_response(message, request.header.api_version, request.header.correlation_id)

    def named(self, which: int) -> list[str | None]:
        """The topics in a request."""
        return [each.name for each in self.asked[which].topics or ()]

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        first = min(self.cluster)
        partition = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=first, leader_epoch=0, replica_nodes=(first,), isr_nodes=(first,)
        )
        return MetadataResponse(
            brokers=tuple(MetadataResponseBroker(node_id=n, host=h, port=p) for n, (h, p) in self.cluster.items()),
            cluster_id=self.name,
            topics=tuple(
                MetadataResponseTopic(error_code=0, name=each.name, partitions=(partition,))
                if each.name in self.topics
                else MetadataResponseTopic(error_code=UnknownTopicOrPartition.code, name=each.name, partitions=())
                for each in request.topics or ()
            ),
        )


A, B, C, D = ("a", 1), ("b", 1), ("c", 1), ("d", 1)


def connected(net: Net) -> Net:
    outcome = net.core.connect(net.now)
    net.run(outcome)
    outcome.result()
    return net


def ask(net: Net, node: Node, channel: str = GENERAL) -> Any:
    """The answer of a node to a request on this channel."""
    answers: list[Any] = []
    request = Exchange(MetadataRequest(topics=()), lambda answer, now: answers.append(answer), net.now + 30.0)
    net.core.submit(node, request, net.now, channel)
    net.run(lambda: bool(answers))
    return answers[0]


@pytest.mark.parametrize("how, costs", [(REFUSES, 0.1), (SILENT, 3.1), (MUTE, 3.1)])
def test_dead_bootstrap_addresses_cost_little(how: str, costs: float) -> None:
    net = Net([A, B, C])
    net.at = {A: how, B: how, C: how}
    last = net.core._nodes.seeds[2]
    net.at[last.host, last.port] = Fake({1: (last.host, last.port)})
    assert connected(net).now <= costs


def test_nobody_reachable_is_an_error_that_says_what_each_address_said() -> None:
    net = Net([A, B, C])
    net.at = {A: REFUSES, B: SILENT, C: MUTE}
    outcome = net.core.connect(0.0)
    net.run(outcome)
    assert net.now == 10.0
    with pytest.raises(BrokerUnreachable) as caught:
        outcome.result()
    assert "no broker answered within 10 s" in str(caught.value)
    for words in ("a:1: connection refused", "b:1: ", "c:1: "):
        assert words in str(caught.value)


class Closing(Fake):
    """Closes the connection at Metadata, as a listener with SASL does."""


@pytest.mark.parametrize("other", [REFUSES, MUTE])
def test_an_address_that_closes_the_connection_is_not_called_silent(other: str) -> None:
    net = Net([A, B])
    net.at = {A: Closing({1: A}), B: other}
    outcome = net.core.connect(0.0)
    net.run(outcome)
    with pytest.raises(BrokerUnreachable) as caught:
        outcome.result()
    says = str(caught.value)
    assert "no usable connection within 10 s. Tried " in says and "check the address" not in says
    assert (
        "a:1: closed by the broker at the first request; listeners that require authentication (SASL) do that" in says
    )
    assert "security.protocol=SASL_SSL or SASL_PLAINTEXT, sasl.mechanism, sasl.username and sasl.password" in says


def test_a_slow_node_is_given_time_while_another_is_asked_as_well() -> None:
    net = Net([A, B])
    net.at = {A: Fake({1: A, 2: B}, ("t",)), B: Fake({1: A, 2: B}, ("t",))}
    connected(net)
    used = next(node for node in net.core._nodes.seeds if any(key[0] == node.id for key in net.links))
    for link in net.links.values():
        link.peer = MUTE  # it is stopped, and sends no more answers
    net.at[used.host, used.port] = MUTE
    before = net.now
    topic = net.core.metadata.topic("t", net.now)
    net.run(topic)
    assert topic.result().name == "t" and 1.0 <= net.now - before < 3.1


def test_a_node_that_says_nothing_keeps_nobody_from_being_asked_later() -> None:
    net = Net([A, B])
    silent, works = net.core._nodes.seeds
    net.at = {(silent.host, silent.port): MUTE, (works.host, works.port): Fake({1: (works.host, works.port)}, ("t",))}
    connected(net)
    before = net.now
    topic = net.core.metadata.topic("t", net.now)
    net.run(topic)
    assert topic.result().name == "t" and net.now - before < 0.2


@pytest.mark.parametrize("given_up", [True, False])
def test_a_node_that_stopped_to_answer_is_waited_for_only_while_the_cluster_has_it(given_up: bool) -> None:
    net = Net([A])
    fake = Fake({1: A, 2: B})
    net.at = {A: fake, B: Fake({1: A, 2: B})}
    connected(net)
    ended: list[tuple[float, Any]] = []

    def ask() -> None:
        wait = Exchange(MetadataRequest(topics=()), lambda answer, now: ended.append((now, answer)), 30.0)
        net.core.submit(Node(2, *B), wait, net.now)

    ask()
    net.run(lambda: bool(ended))
    ended.clear()
    for key, link in net.links.items():
        if key[0] == 2:
            link.peer = MUTE  # its machine is stopped: it sends no answer, and closes no connection
    if given_up:
        fake.cluster = {1: A}
    ask()
    net.run(lambda: bool(ended))
    when, error = ended[0]
    assert isinstance(error, ConnectionLost if given_up else TimeoutExpired) and "node 2" in str(error)
    assert 5.0 <= when < 10.0 if given_up else when == 30.0


def test_a_cluster_that_comes_back_elsewhere_is_found_by_its_bootstrap_name() -> None:
    net = Net([A])
    net.at = {A: Fake({1: B, 2: C}, ("t",)), B: Fake({1: B, 2: C}), C: Fake({1: B, 2: C})}
    connected(net)
    for each in (A, B, C):
        net.stop(each)
    net.at[A] = Fake({1: D, 2: ("e", 2)}, ("t",))  # the name resolves to another address now
    net.at[D] = Fake({1: D}, ("t",))
    net.core.metadata.refresh(net.now)
    net.run(lambda: net.core.cluster.nodes[1].host == "d")
    answers: list[Any] = []
    net.core.submit(
        Node(1, *B), Exchange(MetadataRequest(topics=()), lambda a, now: answers.append(a), net.now + 30), net.now
    )
    net.run(lambda: bool(answers))
    fake = net.at[D]
    assert isinstance(answers[0], MetadataResponse) and isinstance(fake, Fake) and fake.asked


def test_what_waits_for_a_node_goes_to_its_new_address() -> None:
    net = Net([A])
    net.at = {A: Fake({1: B}), B: SILENT, C: Fake({1: C})}
    connected(net)
    answers: list[Any] = []
    net.core.submit(
        net.core.cluster.nodes[1], Exchange(MetadataRequest(topics=()), lambda a, now: answers.append(a), 30.0), net.now
    )
    net.run(lambda: B in net.tried)
    fake = net.at[A]
    assert isinstance(fake, Fake)
    fake.cluster = {1: C}
    net.core.metadata.refresh(net.now)
    net.run(lambda: bool(answers))
    assert isinstance(answers[0], MetadataResponse) and net.now < 2.0


def test_brokers_found_by_zeroconf_are_looked_for_again_when_none_answers() -> None:
    net = Net([A], findable=True)
    net.at = {A: Fake({1: A}), B: Fake({1: B})}
    connected(net)
    net.stop(A)
    net.core.metadata.refresh(net.now)
    net.found = []
    net.run(lambda: net.now > 3.0)
    net.found = [B]
    net.run(lambda: net.core.cluster.nodes[1].host == "b")


def test_a_broker_may_ask_for_a_new_start() -> None:
    net = Net([A])
    fake = Fake({1: A, 2: B}, ("t",))
    net.at = {A: fake, B: MUTE}
    connected(net)
    answers: list[Any] = []
    wait = Exchange(MetadataRequest(topics=()), lambda a, now: answers.append(a), 1000.0)
    net.core.submit(net.core.cluster.nodes[2], wait, net.now)
    net.run(lambda: len(net.links) == 2)
    asked = []

    def once() -> MetadataResponse | None:
        asked.append(1)
        return MetadataResponse(brokers=(), topics=(), error_code=RebootstrapRequired.code) if len(asked) == 1 else None

    fake.says = once
    net.core.metadata.refresh(net.now)
    net.run(lambda: len(asked) == 2 and 2 in net.core.cluster.nodes)
    assert "asks the client to start again" in str(answers[0])


def test_a_broker_that_knows_no_broker_yet_is_asked_again() -> None:
    net = Net([A])
    fake = Fake({1: A})
    net.at = {A: fake}
    fake.says = lambda: MetadataResponse(brokers=(), topics=()) if len(fake.asked) < 4 else None
    connected(net)
    assert len(fake.asked) == 4


def test_metadata_of_another_cluster_are_refused_and_the_error_says_so(caplog: pytest.LogCaptureFixture) -> None:
    net = Net([A])
    fake = Fake({1: A}, ("t",))
    net.at = {A: fake}
    connected(net)
    net.core.metadata.hold("t")
    net.run(net.core.metadata.topic("t", net.now))
    fake.name, fake.cluster = "c2", {7: A}
    net.core.metadata.refresh(net.now)
    net.run(10.0)
    assert net.core.cluster.cluster_id == "c1" and list(net.core.cluster.nodes) == [1]
    line: Any
    [line] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert (line.cluster_known, line.cluster_there, line.address) == ("c1", "c2", "a:1")
    told = [each for each in net.core.explain(net.now) if "it belongs to cluster 'c2', and this client to 'c1'" in each]
    assert told and len(fake.asked) < 50, "requests to it have a backoff"
    missing = net.core.metadata.topic("other", net.now)
    net.run(missing)
    assert isinstance(missing.error, BrokerUnreachable) and "belongs to cluster 'c2'" in str(missing.error)


def test_the_known_cluster_is_kept_to_while_one_of_its_nodes_answers() -> None:
    net = Net([A, B])
    good, foreign = Fake({1: A, 2: B}, ("t",)), Fake({1: B}, ("t",), name="c2")
    net.at = {A: good, B: good}
    connected(net)
    net.stop(B)
    net.at[B] = foreign
    for _ in range(5):
        before = net.core.metadata.updated_at
        net.core.metadata.refresh(net.now)
        net.run(lambda: net.core.metadata.updated_at > before)  # noqa: B023 # called within the iteration
    assert net.core.cluster.cluster_id == "c1" and set(net.core.cluster.nodes) == {1, 2}


def test_nodes_that_are_gone_are_forgotten_with_their_connections_and_metrics() -> None:
    net = Net([A])
    fake = Fake({1: A, 2: B, 3: C})
    net.at = {A: fake, B: fake, C: fake}
    connected(net)
    for node in list(net.core.cluster.nodes.values()):
        ask(net, node)
    assert len(net.links) == 4, "one to the bootstrap address, and one to each node"
    fake.cluster = {1: A}
    net.core.metadata.refresh(net.now)
    net.run(lambda: list(net.core.cluster.nodes) == [1])
    net.core.poll(net.now)
    assert {key[0] for key in net.links} == {-1, 1} and set(net.core.connections._peers) == {-1, 1}
    tags = {each.tags.get("node-id") for each in net.core.metrics.snapshot(net.now)}
    assert "node-1" in tags and not tags & {"node-2", "node-3"}


def test_a_node_that_is_gone_is_kept_until_what_is_under_way_there_has_ended() -> None:
    net = Net([A])
    fake = Fake({1: A, 2: B})
    net.at = {A: fake, B: MUTE}
    connected(net)
    answers: list[Any] = []
    wait = Exchange(MetadataRequest(topics=()), lambda answer, now: answers.append(answer), net.now + 3.0)
    net.core.submit(net.core.cluster.nodes[2], wait, net.now)
    fake.cluster = {1: A}
    net.core.metadata.refresh(net.now)
    net.run(lambda: list(net.core.cluster.nodes) == [1])
    assert 2 in net.core.connections._peers
    net.run(lambda: bool(answers))
    before = net.core.metadata.updated_at
    net.core.metadata.refresh(net.now)
    net.run(lambda: net.core.metadata.updated_at > before)
    assert 2 not in net.core.connections._peers


def test_metadata_are_refreshed_once_in_a_backoff_however_often_it_is_asked_for() -> None:
    net = Net([A])
    fake = Fake({1: A}, ("t",))
    net.at = {A: fake}
    connected(net)
    net.core.metadata.hold("t")
    before, end = len(fake.asked), net.now + 10.0

    def complain(now: float) -> None:
        net.core.metadata.refresh(now)
        if now < end:
            net.core.later(now + 0.001, complain)

    net.core.soon(complain)
    net.run(lambda: net.now >= end)
    assert 50 < len(fake.asked) - before <= 10.0 / net.core.options.retry_backoff


def test_a_topic_that_somebody_waits_for_is_asked_for_at_once_nevertheless() -> None:
    net = Net([A])
    net.at = {A: Fake({1: A}, ("t",))}
    connected(net)
    before = net.now
    net.run(net.core.metadata.topic("t", net.now))
    assert net.now - before < 0.01


def test_each_channel_of_a_node_has_a_connection_of_its_own_that_is_opened_at_once_and_closed_when_idle() -> None:
    net = Net([A], Options(connections_max_idle=60.0, metadata_max_age=20.0))
    fake = Fake({1: A})
    net.at = {A: fake}
    connected(net)
    node = net.core.cluster.nodes[1]
    ask(net, node)
    before = net.now
    for channel in (PRODUCE, FETCH):
        ask(net, node, channel)
    assert net.now - before < 0.01 and {(1, GENERAL), (1, PRODUCE), (1, FETCH)} <= set(net.links)
    net.core.connections._connections[1, GENERAL].lost("reset", net.now)
    assert not net.core.connected(node), "only the data channel counts"
    net.run(100.0)
    assert not {(1, PRODUCE), (1, FETCH)} & set(net.links)


def test_what_waits_on_one_channel_keeps_nothing_of_another() -> None:
    net = Net([A])
    slow = Fake({1: A})
    net.at = {A: slow}
    connected(net)
    node, ends = net.core.cluster.nodes[1], list[str]()
    ask(net, node)
    ask(net, node, PRODUCE)
    net.links[1, PRODUCE].peer = MUTE  # the broker waits for its replicas
    net.core.submit(node, Exchange(MetadataRequest(topics=()), lambda *_: ends.append("p"), 1e3), net.now, PRODUCE)
    before = net.now
    net.core.submit(node, Exchange(MetadataRequest(topics=()), lambda *_: ends.append("c"), 1e3), net.now)
    net.run(lambda: bool(ends))
    assert ends == ["c"] and net.now - before < 0.01


def test_a_topic_asked_for_while_metadata_are_under_way_costs_no_pause() -> None:
    net = Net([A])
    net.at = {A: Fake({1: A}, ("t", "u"))}
    connected(net)
    one = net.core.metadata.topic("t", net.now)
    net.act()
    two = net.core.metadata.topic("u", net.now)
    before = net.now
    net.run(two)
    assert one.done and net.now - before < 0.01


def test_a_topic_that_one_has_been_told_of_stays_known_though_another_lets_go_of_it() -> None:
    net = Net([A])
    fake = Fake({1: A}, ("t", "u"))
    net.at = {A: fake}
    connected(net)
    core = net.core
    net.run(core.metadata.topic("t", net.now))
    release = core.metadata.hold("t")
    told, other = core.metadata.topic("t", net.now), core.metadata.topic("u", net.now)
    release()
    net.run(other)
    assert told.done and core.cluster.topics["t"] is told.result(), "while another topic is still unknown"
    asked = len(fake.asked)
    release = core.metadata.hold("t")
    net.run(lambda: len(fake.asked) > asked)
    assert fake.named(-1) == ["t"], "a new holder gets a fresh answer"
    net.run(lambda: core.metadata.updated_at == net.now)
    release()
    assert not core.metadata.topic("t", net.now).done, "a later caller asks again"


def test_topics_that_nobody_holds_are_forgotten_in_the_end() -> None:
    net = Net([A], Options(metadata_max_age=5.0))
    net.at = {A: Fake({1: A}, ("t",))}
    connected(net)
    net.run(net.core.metadata.topic("t", net.now))
    net.core.metadata.hold("t")()
    net.run(lambda: net.now > 4.0)
    assert "t" in net.core.cluster.topics
    net.run(lambda: net.now > 20.0)
    assert "t" not in net.core.cluster.topics


def test_a_topic_that_is_being_made_holds_up_no_other_and_is_not_asked_for_in_a_hurry() -> None:
    net = Net([A])
    fake = Fake({1: A}, ("t",))
    net.at = {A: fake}
    connected(net)
    made, other = net.core.metadata.topic("new", net.now, create=True), net.core.metadata.topic("t", net.now)
    net.run(other)
    assert net.now < 0.1
    net.run(lambda: net.now > 1.0)
    assert len(fake.asked) < 30
    fake.topics = ("t", "new")
    net.run(made)
    made.result()


def test_what_a_node_supports_is_known_once_it_has_said() -> None:
    net = Net([A])
    net.at = {A: Fake({1: A})}
    seed = net.core._nodes.seeds[0]
    assert net.core.supports(seed, FetchRequest) is None
    connected(net)
    assert net.core.supports(seed, FetchRequest) == range(12)
    assert net.core.supports(seed, MetadataRequest) == range(1, 14)
    assert not net.core.supports(seed, ProduceRequest) and net.core.supports(seed, ProduceRequest) is not None


def test_what_waits_is_explained_and_ends_when_the_client_is_closed() -> None:
    net = Net([A])
    net.at = {A: Fake({1: B})}
    connected(net)
    net.stop(A)
    net.at[B] = REFUSES
    topic = net.core.metadata.topic("t", net.now)
    net.run(lambda: net.now > 2.0)
    text = "\n".join(net.core.explain(net.now))
    assert "metadata: a:1 failed: connection refused" in text
    assert "metadata: b:1 failed: connection refused" in text
    assert "topic 't': waiting for its metadata" in text
    net.core.close(net.now)
    with pytest.raises(Closed):
        topic.result()


def test_what_is_asked_of_a_closed_client_ends_once_and_keeps_nobody() -> None:
    net = Net([A])
    net.core.close(net.now)
    ended: list[Any] = []
    exchange = Exchange(MetadataRequest(topics=()), lambda answer, now: ended.append(answer), 1.0)
    net.core.submit(Node(1, *A), exchange, net.now)
    exchange.ended(None, net.now)
    assert [type(each) for each in ended] == [Closed]
