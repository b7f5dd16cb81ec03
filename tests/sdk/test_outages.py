"""A missing broker is reported once when a request needs it, and once when it is available again."""

import random
from typing import Any

import pytest

from ottla.codec.apis.metadata import MetadataRequest
from ottla.errors import OttlaError
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.handshake import HINT_SILENT
from ottla.sdk.events import GENERAL, Node
from ottla.sdk.options import Options
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from tests.sdk.test_core_machine import MUTE, REFUSES, SILENT, A, B, C, Fake, Net, connected


class Caller:
    """Sends requests to a node in a loop, as all parts of a client do; stops after ``until``."""

    def __init__(self, net: Net, node: int, until: float = 1e9, channel: str = GENERAL) -> None:
        self.net, self.node, self.until, self.channel = net, node, until, channel
        self._ask(net.now)

    def _ask(self, now: float) -> None:
        def ended(answer: Any, now: float) -> None:
            if now < self.until:
                self.net.core.later(now + (0.7 if isinstance(answer, OttlaError) else 0.1), self._ask)

        node = self.net.core.cluster.nodes.get(self.node) or Node(self.node, *A)
        self.net.core.submit(node, Exchange(MetadataRequest(topics=()), ended, now + 30.0), now, self.channel)


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="ottla.sdk.outages")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [each.__dict__ for each in caplog.records if each.name == "ottla.sdk.outages"]


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each["msg"].event for each in lines(caplog)]


def wait(net: Net, seconds: float) -> None:
    """Let so much time pass."""
    end = net.now + seconds
    over: list[float] = []
    net.core.later(end, over.append)
    net.run(lambda: bool(over), seconds + 1.0)


def three() -> Net:
    net = Net([A], Options(fetch_max_wait=0.5))
    net.at = dict.fromkeys((A, B, C), Fake({1: A, 2: B, 3: C}))
    net.at = {each: Fake({1: A, 2: B, 3: C}) for each in (A, B, C)}
    return connected(net)


def many(count: int) -> Net:
    cluster = {each: (f"host{each}", 1) for each in range(1, count + 1)}
    net = Net([cluster[1]])
    net.at = {each: Fake(cluster) for each in cluster.values()}
    return connected(net)


def test_an_outage_is_over_where_any_connection_works_and_the_next_is_reported_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net = three()
    Caller(net, 1)
    Caller(net, 2, channel="produce")
    wait(net, 3.0)
    for _ in range(2):
        fake = net.at[B]
        net.stop(B, REFUSES)
        wait(net, 8.0)
        net.at[B] = fake
        wait(net, 8.0)
    assert texts(caplog) == ["a broker is not available", "a broker is available again"] * 2


@pytest.mark.parametrize("how", [REFUSES, SILENT, MUTE])
def test_a_broker_that_is_needed_and_away_is_reported_once_and_once_when_it_is_back(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    net = three()
    for node in (1, 2, 3):
        Caller(net, node)
    wait(net, 3.0)
    fake = net.at[B]
    net.stop(B, how)
    wait(net, 4.9)
    assert lines(caplog) == []
    wait(net, 2.0)
    (away,) = lines(caplog)
    assert away["levelname"] == "WARNING" and away["msg"].event == "a broker is not available"
    assert (away["node"], away["address"], away["requests"]) == (2, "b:1", 1)
    assert 5.0 <= away["seconds"] <= 6.5 and away["why"]
    wait(net, 60.0)
    assert len(lines(caplog)) == 1
    net.at[B] = fake
    wait(net, 40.0)
    back = lines(caplog)[-1]
    assert texts(caplog) == ["a broker is not available", "a broker is available again"]
    assert back["node"] == 2 and 60.0 < back["seconds"] < 110.0


def test_a_broker_that_answers_nothing_any_more_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    net = three()
    Caller(net, 1)
    Caller(net, 2)
    wait(net, 3.0)
    fake = net.at[B]
    assert isinstance(fake, Fake)
    usual, fake.answer = fake.answer, lambda frame: b""  # type: ignore[method-assign]
    wait(net, 8.0)
    (away,) = lines(caplog)
    assert away["node"] == 2 and away["why"].startswith("Metadata is not answered for 5")
    fake.answer = usual  # type: ignore[method-assign]
    wait(net, 40.0)
    assert texts(caplog)[1:] == ["a broker is available again"]


def test_a_broker_that_nobody_needs_may_be_away(caplog: pytest.LogCaptureFixture) -> None:
    net = three()
    Caller(net, 1)
    Caller(net, 2, until=2.0)
    wait(net, 3.0)
    net.stop(B)
    wait(net, 100.0)
    assert lines(caplog) == []
    Caller(net, 2)
    wait(net, 4.0)
    assert lines(caplog) == []
    wait(net, 3.0)
    (away,) = lines(caplog)
    assert away["node"] == 2 and away["seconds"] < 7.0


def test_an_idle_client_keeps_no_watch_and_reports_nothing(caplog: pytest.LogCaptureFixture) -> None:
    net = three()
    Caller(net, 1, until=net.now)
    wait(net, 20.0)
    for each in (A, B, C):
        net.stop(each)
    wait(net, 100.0)
    assert lines(caplog) == []
    assert net.core._outages._next is None or net.core._outages._needs == {}


def test_what_is_not_needed_any_more_is_said(caplog: pytest.LogCaptureFixture) -> None:
    net = three()
    Caller(net, 1)
    Caller(net, 2, until=net.now + 10.0)
    net.stop(B)
    wait(net, 30.0)
    assert texts(caplog) == [
        "a broker is not available",
        "an unavailable broker is no longer needed",
    ]


@pytest.mark.slow
def test_many_brokers_that_are_away_at_once_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    net = many(25)
    for node in range(1, 26):
        Caller(net, node)
    wait(net, 3.0)
    fakes = {each: net.at[each] for each in list(net.at)[1:]}
    for number, each in enumerate(fakes):
        net.stop(each)
        if number % 10 == 9:
            wait(net, 0.4)
    wait(net, 30.0)
    assert len(lines(caplog)) <= 2
    assert sum(each["brokers"] for each in lines(caplog)) == 24
    assert lines(caplog)[0]["nodes"] == list(range(2, 12))
    caplog.clear()
    net.at |= fakes
    wait(net, 30.0)
    assert 1 <= len(lines(caplog)) <= 2 and sum(each["brokers"] for each in lines(caplog)) == 24


def test_a_broker_that_comes_and_goes_floods_nobody(caplog: pytest.LogCaptureFixture) -> None:
    net = three()
    for node in (1, 2, 3):
        Caller(net, node)
    begin = net.now
    while net.now < begin + 120.0:
        fakes = {each: net.at[each] for each in (B, C)}
        net.stop(B)
        wait(net, 1.5)
        net.stop(C)
        wait(net, 5.0)
        net.at |= fakes
        wait(net, 1.5)
    assert len(lines(caplog)) <= 2 * 120.0 / 5.0 + 2
    said = texts(caplog)
    assert "a broker is not available" in said and "a broker is available again" in said


def test_where_no_broker_is_left_one_line_is_about_all(caplog: pytest.LogCaptureFixture) -> None:
    net = three()
    for node in (1, 2, 3):
        Caller(net, node)
    wait(net, 3.0)
    fakes = dict(net.at)
    for each in fakes:
        net.stop(each)
    wait(net, 30.0)
    (away,) = lines(caplog)
    assert away["msg"].event == "no broker is available" and 5.0 <= away["seconds"] < 6.0
    assert "a:1: connection refused" in away["tried"] and away["requests"] >= 1
    net.at |= fakes
    wait(net, 10.0)
    assert texts(caplog)[1:] == ["brokers are available again"]
    assert 30.0 <= lines(caplog)[1]["seconds"] <= 33.0
    wait(net, 100.0)
    assert len(lines(caplog)) == 2


def test_a_client_that_cannot_connect_says_so_before_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    net = Net([A])
    net.at = {A: REFUSES}
    outcome = net.core.connect(net.now)
    net.run(outcome)
    assert texts(caplog) == ["no broker is available"]


@pytest.mark.parametrize("how", [SILENT, MUTE])
def test_where_nobody_answers_it_is_said_whom_that_means(caplog: pytest.LogCaptureFixture, how: Any) -> None:
    net = Net([A])
    net.at = {A: how}
    net.core.connect(net.now)
    wait(net, 9.0)
    (away,) = lines(caplog)
    assert away["msg"].event == "no broker is available"
    assert away["tried"] == f"a:1: no answer yet{HINT_SILENT if how == MUTE else ''}"


def test_a_line_says_how_many_records_wait(caplog: pytest.LogCaptureFixture) -> None:
    net = Net([A])
    net.at = {A: Fake({1: A}, topics=("t",))}
    connected(net)
    net.run(net.core.metadata.topic("t", net.now))
    producer = ProducerCore(net.core, ProducerOptions(idempotent=False), random.Random(1))
    net.stop(A)
    wait(net, 0.1)
    for _ in range(3):
        producer.append(PendingRecord("t", b"x" * 100, None, 0, (), 0), net.now)
    wait(net, 7.0)
    (away,) = lines(caplog)
    assert away["records"] == 3 and away["bytes"] > 300


def test_of_a_slow_answer_nothing_is_said_while_the_broker_answers_others(caplog: pytest.LogCaptureFixture) -> None:
    net = three()
    fake = net.at[B]
    assert isinstance(fake, Fake)
    Caller(net, 2)
    slow = Exchange(MetadataRequest(topics=None), lambda answer, now: None, net.now + 30.0)
    usual = fake.answer

    def answer(frame: bytes) -> bytes:
        said = usual(frame)
        return b"" if fake.asked and fake.asked[-1].topics is None else said

    fake.answer = answer  # type: ignore[method-assign]
    net.core.submit(Node(2, *B), slow, net.now, "slow")
    wait(net, 20.0)
    assert lines(caplog) == []
    assert net.core.connections._connections[2, GENERAL].load <= 1
