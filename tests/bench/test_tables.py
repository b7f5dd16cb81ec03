"""The tables of `make bench-all`: cells follow from figures, failures are named, runs resume, and the page has a place
for each table."""

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import ottla.sync
from ottla.testing import Broker
from tests.bench.clients.canned import CannedBroker, topic_names
from tests.bench.clients.task import Figures, Task, of_passes
from tests.bench.tables import growth, page, plot, result
from tests.bench.tables.stage import TINY, Stage, contest
from tests.bench.tables.table import EACH, Column, Found, Line, Row, Table

RATE = Column("records/s", "rate", "ottla", "peer", digits=1)


def figures(*values: float, name: str = "rate") -> list[Figures]:
    return [{name: value} for value in values]


def table(*columns: Column, lines: tuple[Line, ...] = (), name: str = "codec") -> Table:
    return Table(name=name, heads=("values",), columns=columns, lines=lines)


def rows(columns: tuple[Column, ...], *found: tuple[str, Found]) -> list[str]:
    """The lines of a table below its head."""
    return list(table(*columns).markdown([Row((label,), each) for label, each in found]))[2:]


# -- cells -----------------------------------------------------------------------------------------------------------


def test_a_ratio_is_taken_within_each_round() -> None:
    found: Found = {"ottla": figures(1.0, 20.0, 300.0), "peer": figures(1.0, 10.0, 100.0)}
    assert rows((RATE,), ("1 KB", found)) == ["| 1 KB | 2.0 (1.5–2.5) |"]


def test_a_ratio_says_how_many_times_better_ottla_is_if_less_is_better() -> None:
    found: Found = {"ottla": figures(2.0), "peer": figures(5.0)}
    better = Column("processor time", "rate", "ottla", "peer", "better")
    more = Column("latency", "rate", "peer", "ottla", "more")
    assert rows((better, more), ("1 KB", found)) == ["| 1 KB | 2.50 | 3.00 |"]


def test_a_figure_of_its_own_has_its_unit() -> None:
    column = Column("thousands", "rate", "ottla", digits=0, unit=1000.0)
    assert rows((column,), ("1 KB", {"ottla": figures(1_234_000.0)})) == ["| 1 KB | 1,234 |"]


def test_a_contestant_that_failed_is_shown_as_such_and_one_that_did_not_take_part_is_not() -> None:
    other = Column("other", "rate", "ottla", "other")
    assert rows((RATE, other), ("1 KB", {"ottla": figures(1.0), "peer": "it broke"})) == ["| 1 KB | failed | |"]


def test_each_contestant_has_a_row_and_labels_are_not_repeated() -> None:
    columns = Column("rate", "rate", EACH, digits=0), Column("×", "rate", EACH, "peer", digits=0)
    found: Found = {"ottla": figures(6.0), "peer": figures(2.0)}
    made = list(Table(name="t", heads=("tasks", "client"), columns=columns, lines=()).markdown([Row(("50",), found)]))
    assert made == [
        "| tasks | client | rate | × |",
        "|---|---|---|---|",
        "| 50 | ottla | 6 | 3 |",
        "| | peer | 2 | |",
    ]


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_another_contestant_works_first_in_each_round() -> None:
    worked: list[str] = []

    def work(name: str) -> Callable[[], Figures]:
        return lambda: worked.append(name) or {"rate": 1.0}  # type: ignore[func-returns-value]

    contest({name: work(name) for name in "abc"}, 3, flushed=False)
    assert "".join(worked) == "abcbcacab"


def test_a_contestant_that_fails_is_named_with_the_reason_and_the_others_go_on() -> None:
    attempts: list[int] = []

    def broken() -> Figures:
        attempts.append(1)
        raise ValueError("no\nluck")

    found = contest({"peer": broken, "ottla": lambda: {"rate": 1.0}}, 2, flushed=False)
    assert found == {"peer": "ValueError: no luck", "ottla": figures(1.0, 1.0)}
    assert len(attempts) == 1


def test_passes_are_counted_together_and_the_first_one_warms_up() -> None:
    passes: Iterator[Figures] = iter(
        [
            {"records": 10, "rate": 1.0, "cpu_us": 99.0, "seen": 11},  # it warms up
            {"records": 10, "rate": 10.0, "cpu_us": 1.0, "seen": 11},
            {"records": 30, "rate": 15.0, "cpu_us": 3.0, "seen": 31},
        ]
    )
    task = Task(client="", way="", bootstrap="", seconds=3.0)
    assert of_passes(task, lambda _: next(passes)) == {"records": 40, "rate": 40 / 3, "cpu_us": 2.5, "seen": 53}


# -- the new ways of clients -----------------------------------------------------------------------------------------


def done(client: str, way: str, bootstrap: str, **more: object) -> Figures:
    task = Task(client=client, way=way, bootstrap=bootstrap, **more)  # type: ignore[arg-type]
    found: Figures = getattr(importlib.import_module(f"tests.bench.clients.of_{client}"), way)(task)
    return found


@pytest.mark.parametrize("client", ["ottla", "ottla_asyncio", "ottla_sync", "confluent", "aiokafka"])
def test_tasks_that_work_together_have_every_counted_record_acknowledged(client: str) -> None:
    broker = CannedBroker()
    try:
        found = done(client, "together", broker.bootstrap, seconds=0.05, together=4)
        assert 0 < found["records"] <= broker.produced
    finally:
        broker.close()


def test_a_waiting_consumer_gets_each_record(ottla_broker: Broker) -> None:
    [topic] = topic_names(1, "relayed")
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic(topic, partitions=1)
    found = done("confluent", "relayed", ottla_broker.bootstrap, prefix="relayed", partitions=1, seconds=0.05)
    assert found["p50_ms"] > 0 and 0 < found["read_p50_ms"] <= found["read_p99_ms"]


def test_members_join_until_each_has_a_partition(ottla_broker: Broker) -> None:
    [topic] = topic_names(1, "joined")
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.create_topic(topic, partitions=3)
    found = done("ottla", "join", ottla_broker.bootstrap, prefix="joined", partitions=3, together=3)
    assert found["ready_s"] > 0 and found["memory_mb"] > 0


# -- growth ----------------------------------------------------------------------------------------------------------


def grown(**each_ms: float) -> list[Row]:
    found: Found = {
        f"{int(name[1:]):,}": [{"each_ms": each, "seconds": each * int(name[1:]) / 1000, "client_mb": 50.0}]
        for name, each in each_ms.items()
    }
    return [Row(("members",), found)]


def test_what_grows_faster_than_linearly_is_named() -> None:
    assert list(growth.steep(grown(n1=300.0, n10=31.0, n100=4.0, n1000=4.4))) == []
    [line] = growth.steep(grown(n1=300.0, n10=31.0, n100=4.0, n1000=8.0))
    assert line.startswith(
        "members: time grows faster than linearly from 100 to 1,000: each takes 8.00 ms, 4.00 before"
    )


def test_the_plot_has_a_curve_for_each_kind_in_each_panel() -> None:
    drawn = ElementTree.fromstring(plot.svg([*grown(n1=300.0, n100=4.0), *grown(n1=1.0, n10=1.0, n1000=1.0)]))
    curves = [each.attrib["points"].split() for each in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(points) for points in curves] == [2, 3, 2, 3]
    places = [tuple(map(float, point.split(","))) for points in curves for point in points]
    assert all(0 <= x <= plot.WIDTH and 0 <= y <= plot.HEIGHT for x, y in places)


# -- the page and the run ----------------------------------------------------------------------------------------------


@pytest.fixture
def run(bench: ModuleType) -> ModuleType:
    """`tests.bench.tables.run`, which takes a second to import."""
    tables: ModuleType = bench.tables
    return tables


def test_the_page_has_a_place_for_every_table_and_no_other(run: ModuleType) -> None:
    assert sorted(page.names(page.PAGE.read_text())) == sorted([page.VERSIONS, *(each.name for each in run.TABLES)])


def test_a_place_is_written_and_the_rest_of_the_page_stays() -> None:
    text = f"before\n{page.place('one', ['old'])}\nbetween\n{page.place('two', ['kept'])}\nafter"
    assert page.written(text, "one", [r"new \1"]) == text.replace("old", r"new \1")
    with pytest.raises(ValueError, match="0 places for the table 'three'"):
        page.written(text, "three", [])


class Measured:
    """A table whose line counts how often it was measured, and may fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run: ModuleType, *names: str) -> None:
        self.count = 0
        self.failing = False
        tables = tuple(table(RATE, lines=(Line(("1 KB",), self._measure),), name=name) for name in names)
        monkeypatch.setattr(run, "TABLES", tables)

    def _measure(self, stage: Stage) -> Found:
        self.count += 1
        if self.failing:
            raise RuntimeError("no broker")
        return {"ottla": figures(2.0), "peer": figures(1.0)}


def test_a_run_continues_with_the_tables_that_have_no_result_yet(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Measured(monkeypatch, run, "first", "codec")
    monkeypatch.setattr(run, "digest_of_code", lambda: "code")
    arguments = ["--quick", "--folder", str(tmp_path)]
    assert run.main([*arguments, "first"]) == 0
    assert run.main(arguments) == 0
    assert measured.count == 2
    assert "measured before" in capsys.readouterr().out
    monkeypatch.setattr(run, "digest_of_code", lambda: "other code")
    assert run.main(arguments) == 0
    assert measured.count == 4


def test_a_table_that_fails_is_named_at_the_end_and_measured_again_by_the_next_run(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = Measured(monkeypatch, run, "first", "codec")
    measured.failing = True
    assert run.main(["--quick", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"FAILED {name}: 1 KB, all contestants: RuntimeError: no broker" for name in ("first", "codec")
    ]
    measured.failing = False
    assert run.main(["--quick", "--folder", str(tmp_path)]) == 0
    assert measured.count == 4


def test_the_page_gets_the_results_without_a_failure_and_keeps_its_contents_for_the_others(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured = Measured(monkeypatch, run, "first", "codec")
    run.main(["--quick", "--folder", str(tmp_path), "first"])
    measured.failing = True
    run.main(["--quick", "--folder", str(tmp_path), "codec"])
    text = "\n".join(page.place(name, ["old"]) for name in ("first", "codec", page.VERSIONS))
    text = run.write(tmp_path, text)
    assert "| 1 KB | 2.0 |" in text and "rounds: 1." in text and "confluent-kafka " in text
    assert page.place("codec", ["old"]) in text


def test_a_result_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    made = result.Result("first", result.Watch("code").state(), [Row(("1 KB",), {"ottla": figures(math.pi)})])
    result.save(tmp_path, made)
    assert result.saved(tmp_path, "first") == made
    assert made.state.processors > 0 and len(made.state.load) == 3
    assert result.saved(tmp_path, "codec") is None


def test_a_table_that_there_is_not_is_told_with_those_that_there_are(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["all", "nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(each.name in said.err for each in bench.tables.TABLES)


@pytest.mark.deep
@pytest.mark.parametrize("name", [each for each in page.names(page.PAGE.read_text()) if each != page.VERSIONS])
def test_every_table_can_be_made(run: ModuleType, name: str, stage: Stage) -> None:
    [chosen] = [each for each in run.TABLES if each.name == name]
    made = run.measured(chosen, stage, "")
    assert not made.failures
    cells = [cell.strip() for line in list(chosen.markdown(made.rows))[2:] for cell in line.split("|")]
    assert "failed" not in cells


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(TINY) as stage:
        yield stage
