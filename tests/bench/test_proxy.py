"""The benchmark of the proxy itself: cases run with tiny amounts, and the output follows from the figures."""

import dataclasses
from types import ModuleType

import pytest

from tests.bench.proxy.load import Load, requests
from tests.bench.proxy.run import DIRECT, JOURNAL, REWRITE, Case, cases, measured, table

KINDS = ("latency, one record", "ottla's client", "memory")
ONE_OF_EACH_KIND = [case for case in cases([1000], ["none"]) if any(kind in case.name for kind in KINDS)]
LOAD = Load(port=0, topic="t", partitions=12, size=1000, batch=16_384)


def test_a_case_that_there_is_not_is_told_with_those_that_there_are(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["proxy", "nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(case.name in said.err for case in cases([100], ["none"]))


def test_a_ratio_is_taken_within_each_round() -> None:
    case = Case(name="work", measure=lambda port, pid, seconds: {}, rows=("rate", "p50_ms"), ways=(DIRECT, REWRITE))
    direct = [{"rate": 10.0, "p50_ms": 1.0}, {"rate": 20.0, "p50_ms": 1.0}]
    head, *lines = table(case, {DIRECT: direct, REWRITE: [{"rate": 5.0, "p50_ms": 3.0}, {"rate": 15.0, "p50_ms": 3.0}]})
    assert head == "work"
    assert lines[1].split() == ["records/s,", "rewrite", "10", "×0.62", "(0.56–0.69)"]
    assert lines[3].split() == ["p50", "in", "ms,", "rewrite", "3.00", "+2.00", "(2.00–2.00)"]


@pytest.mark.parametrize("together", [1, 12])
def test_batches_have_the_size_that_they_are_to_have(together: int) -> None:
    made = requests(dataclasses.replace(LOAD, together=together))
    assert all(len(each.batches) == together for each in made)
    assert all(16_384 - 2000 < each.end - each.start < 16_384 + 2000 for request in made for each in request.batches)
    assert {each.partition for request in made for each in request.batches} == set(range(12))


@pytest.mark.deep
@pytest.mark.parametrize("case", ONE_OF_EACH_KIND, ids=lambda case: case.name)
def test_every_case_gives_its_figures(case: Case) -> None:
    lines = measured(case, 1, 0.3)
    assert "failed" not in lines[1], lines
    assert sum(JOURNAL in line for line in lines) == len(case.rows)
