"""The benchmark of writing in Spark: the output follows from the figures, and it runs with tiny amounts."""

import os
import subprocess
import sys

import pytest

from tests.bench.spark_write.run import FIGURES, JARS, processor_seconds, table
from tests.kafka import jar
from tests.patience import WHOLE


def test_a_ratio_is_taken_within_each_round() -> None:
    ours = [dict.fromkeys(FIGURES, rate) for rate in (10.0, 40.0)]
    theirs = [dict.fromkeys(FIGURES, rate) for rate in (10.0, 20.0)]
    head, *lines = table("case", ours, theirs)
    assert head.split() == ["case", "ottla", "kafka", "ratio"]
    assert [line.split()[-4:] for line in lines] == [["25", "15", "1.50", "(1.25-1.75)"]] * len(FIGURES)


def test_a_process_that_works_spends_time() -> None:
    before = processor_seconds(os.getpid())
    sum(range(5_000_000))
    assert processor_seconds(os.getpid()) > before


@pytest.mark.deep
def test_it_gives_its_figures() -> None:
    for each in JARS:  # from the network, the first time
        jar(each)
    # In a process of its own: a JVM with an earlier session finds no data source in the jars of a later one.
    command = [
        sys.executable,
        "-m",
        "tests.bench",
        "spark-write",
        "--rounds",
        "1",
        "--megabytes",
        "1",
        "--sizes",
        "100",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WHOLE)
    assert done.returncode == 0, done.stderr
    assert all(figure in done.stdout for figure in FIGURES)
