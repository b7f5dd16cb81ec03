"""The soak itself: which findings fail it, and a short one."""

from collections import Counter
from pathlib import Path

import pytest

from tests.proxy.soak import ARCHIVE, COPIED, PASSED, WRITTEN, Findings, soaked

SECONDS = 10.0
STEADY = [(float(second), 50.0 + second % 2) for second in range(100)]


def found(*, grows: float = 0.0, lacks: int = 0, errors: tuple[str, ...] = ()) -> Findings:
    stored = Counter({PASSED: 10, COPIED: 5})
    return Findings(
        [(second, size * (1 + grows * second / 100)) for second, size in STEADY],
        stored,
        stored + Counter({ARCHIVE: 5 - lacks}),
        [*errors],
    )


def test_a_soak_passes_if_the_memory_stays_and_all_records_are_read() -> None:
    assert found().failures() == []


def test_growth_before_the_end_of_the_warm_up_does_not_matter() -> None:
    findings = found()
    findings.memory = [(second, size if second > 20 else size / 2) for second, size in findings.memory]
    assert findings.failures() == []


def test_a_soak_fails_if_the_memory_grows_after_the_warm_up() -> None:
    [failure] = found(grows=0.05).failures()
    assert failure.startswith("the memory grew by")


def test_a_soak_fails_if_a_copy_is_not_read() -> None:
    assert found(lacks=1).failures() == ["archive: 4 records read of 5"]


def test_a_soak_fails_if_a_producer_is_fenced() -> None:
    findings = found(errors=("PRODUCER_FENCED", "a timeout"))
    assert (findings.fenced, findings.failures()) == (1, ["error: PRODUCER_FENCED", "error: a timeout"])


@pytest.mark.deep
def test_a_short_soak_reads_every_record_once(tmp_path: Path) -> None:
    findings = soaked(tmp_path, SECONDS, said=lambda line: None)
    assert not findings.errors
    assert findings.read == findings.expected
    assert all(findings.acknowledged[topic] for topic in WRITTEN)
    assert findings.memory
