"""The benchmark of brokers itself: every case runs on both with tiny amounts, and prints its figures."""

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests import kafka
from tests.bench.brokers import crowd
from tests.bench.brokers.cases import CLIENTS, ROWS, Case, Found, Options, cases
from tests.bench.brokers.run import measured, table
from tests.bench.brokers.server import Apache, Broker, Brokerlite, Server
from tests.bench.clients.process import Broken

TINY = Options(
    sizes=(100,),
    seconds=0.3,
    warm_up=0.1,
    volume=4_000_000,
    read_back=40_000_000,
    restarted=4_000_000,
    settle=0.0,
    idle=20,
    busy=10,
)
UNHURRIED = replace(TINY, seconds=60.0, warm_up=60.0)
"""The volume ends the work: a consumer must have more to read than the first fetch returns."""
CASES = cases(TINY)


def test_a_broker_that_there_is_no_case_for_is_told_with_those_that_there_are(
    bench: ModuleType,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.main(["brokers", "nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(case.name in said.err for case in cases(Options()))


def test_a_ratio_is_taken_within_each_round_and_is_that_of_brokerlite_to_apache_kafka() -> None:
    ours: list[Found] = [{"x": {"rate": 10.0, "p99_ms": 1.0}}, {"x": {"rate": 30.0, "p99_ms": 1.0}}]
    theirs: list[Found] = [{"x": {"rate": 20.0, "p99_ms": 4.0}}, {"x": {"rate": 30.0, "p99_ms": 4.0}}]
    head, what, rate, p99 = table(Case("work", lambda server, options: {}), ours, theirs)
    assert head.split() == ["work", "brokerlite", *Apache.name.split(), "ratio"]
    assert what == "  x"
    assert rate.split() == ["records/s", "20", "25", "0.75", "(0.62-0.88)", "more", "is", "better"]
    assert p99.split() == ["p99", "in", "ms", "1.00", "4.00", "0.25", "(0.25-0.25)", "less", "is", "better"]


@pytest.mark.parametrize(("client", "broker", "limited"), [(0.95, 0.3, True), (0.95, 0.95, False), (0.5, 0.3, False)])
def test_a_load_generator_at_its_limit_is_told(client: float, broker: float, limited: bool) -> None:
    found: list[Found] = [{"x": {"rate": 1.0, "client_cores": client, "broker_cores": broker}}]
    assert ("the load generator was the limit in 2 of 2 runs" in table(CASES[0], found, found)[1]) is limited


def test_a_broker_that_ends_while_it_starts_is_told_with_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    server = Server(Brokerlite(), tmp_path)
    with pytest.raises(Broken, match=r"the broker ended while it started:\n.*data"):
        server.start()
    server.close()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("broker", "case"),
    [
        *(pytest.param(Brokerlite(), case, id=f"brokerlite, {case.name}") for case in (CASES[0], *CASES[3:])),
        pytest.param(Apache(), CASES[0], id=f"Apache, {CASES[0].name}"),
    ],
)
def test_every_case_gives_its_figures(broker: Broker, case: Case, tmp_path: Path) -> None:
    kafka.classpath()  # without Kafka the test is skipped, since a load generator needs it
    server = Server(broker, tmp_path)
    try:
        found = case.measure(server, UNHURRIED if "plain" in case.name or "lz4" in case.name else TINY)
    finally:
        server.close()
    assert found
    for figures in found.values():
        assert figures.keys() <= ROWS.keys()
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures.values())
    if "produce" in case.name:
        assert found.keys() == {f"{way}, {client}" for client in CLIENTS for way in ("produce", "consume")}
    assert not (tmp_path / "data").exists(), "the benchmark has removed its data"


@pytest.mark.deep
def test_a_case_that_breaks_is_told_and_does_not_end_the_run() -> None:
    def broken(server: Server, options: Options) -> Found:
        raise Broken("no luck")

    assert measured(Case("work", broken), TINY, 1) == ["work", "  failed on brokerlite: no luck"]


@pytest.mark.deep
def test_a_crowd_that_is_refused_says_why() -> None:
    [port] = kafka.free_ports(1)
    nobody = crowd.Crowd(port=port, topic="t", partitions=1, idle=1, busy=1, size=1, seconds=0.1, warm_up=0.0)
    with pytest.raises(Broken, match="ConnectionRefusedError"):
        crowd.run(nobody)
