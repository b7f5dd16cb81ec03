"""The Python of a Spark on this machine."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.local import _python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pyspark = pytest.importorskip("pyspark")
ARCHIVES = sorted(map(str, (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")))
SHOW = "import sys, os; print(sys.prefix, os.environ['PYTHONPATH'], *sys.argv[1:], sep='\\n')"


def _run(path: list[str]) -> list[str]:
    done = subprocess.run(
        [_python(), "-c", SHOW, "two words", "*"],
        env={"PYTHONPATH": ":".join(path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "the cache"))
    return tmp_path / "the cache"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ([*ARCHIVES, "/a b", "/c"], "/a b:/c"),
        (["/a", *reversed(ARCHIVES)], "/a"),
        (["/a", ARCHIVES[0], "/b", ARCHIVES[1]], "/a:/b"),
        (ARCHIVES, ""),
        (["/elsewhere/pyspark.zip", "/*"], "/elsewhere/pyspark.zip:/*"),
    ],
)
def test_it_is_the_one_that_runs_without_the_archives_of_the_installed_pyspark(
    given: list[str], left: str, cache: Path
) -> None:
    assert _python().startswith(str(cache))
    assert _run(given) == [sys.prefix, left, "two words", "*"]


def test_where_nothing_can_be_kept_it_is_the_one_that_runs_itself(cache: Path) -> None:
    cache.write_text("no folder")
    assert _python() == sys.executable


@pytest.mark.slow
def test_processes_of_spark_import_the_installed_pyspark(spark: "SparkSession") -> None:
    def where(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [pyspark.__file__]
