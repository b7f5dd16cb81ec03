"""Which Python Spark runs on this machine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla.spark
from ottla.spark.local.session import _python
from tests.patience import PROGRAM

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
        ([*ARCHIVES, "/a", *ARCHIVES, *ARCHIVES, "/b"], "/a:/b"),  # of a source that Spark found without help
        (["/elsewhere/pyspark.zip", "/*"], "/elsewhere/pyspark.zip:/*"),
    ],
)
def test_workers_run_this_python_without_the_archives_of_the_installed_pyspark(
    given: list[str], left: str, cache: Path
) -> None:
    assert _python().startswith(str(cache))
    assert _run(given) == [sys.prefix, left, "two words", "*"]


def test_without_a_writable_cache_workers_run_this_python_directly(cache: Path) -> None:
    cache.write_text("no folder")
    assert _python() == sys.executable


@pytest.mark.slow
def test_a_session_that_runs_already_keeps_its_settings(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "OTTLA_SPARK_CORES"):
        monkeypatch.delenv(name, raising=False)
    names = ("spark.app.name", "spark.master", "spark.sql.shuffle.partitions", "spark.redaction.regex")
    spark.conf.set("spark.sql.shuffle.partitions", "48")
    try:
        before, environment = [spark.conf.get(name) for name in names], dict(os.environ)
        assert ottla.spark.session("other", master="local[7]") is spark
        assert ([spark.conf.get(name) for name in names], dict(os.environ)) == (before, environment)
        ottla.spark.session("other", "local[7]", **{"spark.sql.shuffle.partitions": 3})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.slow
def test_settings_that_a_running_spark_cannot_take_are_named_and_not_pretended(
    spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    context = spark.sparkContext
    given: dict[str, str | int | bool] = {
        "spark.ui.enabled": True,
        "spark.driver.memory": "9g",
        "spark.sql.warehouse.dir": "/elsewhere",
        "spark.hadoop.fs.example": "1",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.catalog.example": "a.Class",
    }
    names = [name for name in given if not name.startswith(("spark.sql.shuffle", "spark.sql.catalog"))]
    before = [spark.conf.get(name, None) for name in (*names, "spark.master", "spark.app.name")]
    try:
        assert ottla.spark.session("other", "local[7]", **given) is spark
        [line] = [each.getMessage() for each in caplog.records if each.name == "ottla.spark"]
        told = ["spark.app.name", "spark.master", *names]
        assert line == f"Spark is already running and keeps its {', '.join(told)}: stop it first, with spark.stop()"
        assert [spark.conf.get(name, None) for name in (*names, "spark.master", "spark.app.name")] == before
        assert spark.conf.get("spark.sql.catalog.example") == "a.Class"
        caplog.clear()
        ottla.spark.session(context.appName, context.master, **{"spark.ui.enabled": False})
        assert not [each for each in caplog.records if each.name == "ottla.spark"]
    finally:
        spark.conf.unset("spark.sql.catalog.example")


PROBE = """
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "probe"

    def schema(self):
        return "home string"

    def reader(self, schema):
        return Reader()

class Reader(DataSourceReader):
    def __init__(self):
        self.planned = pyspark.__file__

    def read(self, partition):
        yield (self.planned,)
        yield (pyspark.__file__,)
"""
SHOW_PROBE = """
import ottla.spark

spark = ottla.spark.session(**{"spark.driver.extraJavaOptions": "-Dours=kept"})
print(*(row.home for row in spark.read.format("probe").load().collect()))
java = spark.sparkContext._jvm.System
print(java.getProperty("arrow.enable_unsafe_memory_access"), java.getProperty("ours"))
"""


@pytest.mark.deep
def test_processes_that_plan_and_read_import_the_installed_pyspark_and_java_does_not_check_arrow(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyspark_probe.py").write_text(PROBE)  # a data source that Spark finds without help
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    path = os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SHOW_PROBE],
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PROGRAM,
    )
    assert done.stdout.split() == [*[pyspark.__file__] * 2, "true", "kept"], done.stderr
