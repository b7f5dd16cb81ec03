"""The benchmark of reading in Spark: the output follows from the figures, and every case runs."""

from types import ModuleType

import pytest

from tests.bench.spark.run import OURS, THEIRS, Cost, cases, line


def test_a_case_that_there_is_not_is_told_with_those_that_there_are(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["spark", "nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(case.name in said.err for case in cases())


def test_a_ratio_is_taken_within_each_round() -> None:
    ours, theirs = [Cost(1.0, 2.0), Cost(2.0, 2.0), Cost(3.0, 2.0)], [Cost(3.0, 4.0), Cost(4.0, 2.0), Cost(9.0, 8.0)]
    said = line("all columns", 6_000_000, {OURS: ours, THEIRS: theirs}).split()
    assert said[2:6] == ["3.00", "1.50", "×3.00", "(2.00-3.00)"]
    assert said[6:] == ["3.00", "1.50", "×2.00", "(1.00-4.00)"]
