"""The benchmark of the first record itself: every program reads the record that the broker has."""

import pytest

from tests.bench import first


@pytest.mark.slow  # it starts each program twice
def test_every_program_reads_the_first_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert first.main(["--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line[:20].strip() for line in lines] == list(first.PROGRAMS)
    assert lines[list(first.PROGRAMS).index(first.AIOKAFKA)].endswith("1.00 (1.00-1.00)")
