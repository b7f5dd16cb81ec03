"""The benchmark of reading in Spark: the output follows from the figures, and every case runs."""

import warnings

import pytest

from tests.bench.spark.run import OURS, THEIRS, Cost, cases, line

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python uses deprecated parts of Python at its import
    from tests.bench.__main__ import main


def test_a_case_that_there_is_not_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(case.name in said.err for case in cases())


def test_a_ratio_is_taken_within_each_round() -> None:
    ours, theirs = [Cost(1.0, 2.0), Cost(2.0, 2.0), Cost(3.0, 2.0)], [Cost(3.0, 4.0), Cost(4.0, 2.0), Cost(9.0, 8.0)]
    said = line("all columns", 6_000_000, {OURS: ours, THEIRS: theirs}).split()
    assert said[2:6] == ["3.00", "1.50", "×3.00", "(2.00-3.00)"]
    assert said[6:] == ["3.00", "1.50", "×2.00", "(1.00-4.00)"]
