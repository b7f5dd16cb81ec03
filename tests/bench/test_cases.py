"""The benchmark itself: its cases run, and an error lists them."""

from types import ModuleType

import pytest

from tests.codec.record_engines import RECORDS


def test_a_case_that_there_is_not_is_told_with_those_that_there_are(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["nosuch"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("no case has 'nosuch' in its name; there are:\n")
    assert all(case.name in said.err for case in bench.CASES)


def test_every_way_with_records_does_all_of_the_work(bench: ModuleType) -> None:
    for case in bench.records.CASES:
        for name, way in (case.ours | case.theirs).items():
            assert way() in (bench.records.COUNT, bench.records.COUNT * bench.records.BATCHES), (case.name, name)


def test_what_is_measured_on_mixed_records_is_the_same_work(bench: ModuleType) -> None:
    for module in RECORDS.values():
        [batch] = module.read_batches(bench.records.MIXED_BATCH)
        shown = [(each.timestamp, each.key, each.value, each.headers) for each in batch.records()]
        assert shown == bench.records.MIXED
    for builder in bench.records.BUILDERS:
        [batch] = module.read_batches(bench.records.built_mixed_theirs(builder))
        assert [each.value for each in batch.records()] == [row[2] for row in bench.records.MIXED]
