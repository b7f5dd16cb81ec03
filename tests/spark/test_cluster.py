"""Spark on a cluster: a master and two workers. Their executors have ottla from a wheel, and tests kill them.

Each part is a process on the loopback address: the master, the workers, the drivers (`cluster_jobs.py`), and the
executors that workers start. To kill executors, the tests look for descendants of the workers.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.spark import ensure_java
from ottla.testing import Broker
from tests.interop.lines import Message, Received
from tests.interop.peers import LIBRDKAFKA, create_topic
from tests.kafka import HOST, ApacheKafka, free_ports
from tests.patience import HUNG, PROGRAM
from tests.processes import below

pytestmark = pytest.mark.slow

JOBS = Path(__file__).with_name("cluster_jobs.py")
SPARK_HOME = Path(pyspark.__path__[0])
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONFS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
EXECUTOR, DAEMON = "CoarseGrainedExecutorBackend", "pyspark.daemon"
"""Words in the command lines: of Java's executors, and of Python's workers and the daemons that fork them."""


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PROGRAM
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass
class Cluster:
    """A standalone cluster that runs.

    Attributes:
        python: the Python of its drivers and executors.
        workers: the processes of the workers; each starts one executor.
    """

    folder: Path
    python: Path
    master: str = ""
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: set[int] = field(default_factory=set)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return kept | {
            "JAVA_HOME": str(ensure_java()),
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        }

    def start(self) -> None:
        [port] = free_ports(1)
        self.master = f"spark://{HOST}:{port}"
        self._serve("master", "Master", "--port", str(port))
        until(partial(self._has_said, "master", "I have been elected leader"), "the master does not start")
        for name in ("worker-0", "worker-1"):
            limits = ("--cores", "1", "--memory", "600m", "--work-dir", str(self.folder / name))
            self._serve(name, "Worker", *limits, self.master)
            self.workers.add(self.servers[-1].pid)
            until(partial(self._has_said, name, "Successfully registered"), f"{name} does not register")

    def _serve(self, name: str, role: str, *arguments: str) -> None:
        kind = f"org.apache.spark.deploy.{role.lower()}.{role}"
        command = [str(SPARK_HOME / "bin" / "spark-class"), kind, "--host", HOST, "--webui-port", "0", *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.servers.append(
                subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _has_said(self, name: str, words: str) -> bool:
        return words in (self.folder / f"{name}.log").read_text(errors="replace")

    def executors(self) -> list[int]:
        return [pid for pid, (_, command) in below(self.workers).items() if EXECUTOR in command]

    def python_workers(self) -> list[int]:
        """The processes that run tasks: children of the daemons, without the daemons themselves."""
        found = {pid: parent for pid, (parent, command) in below(self.workers).items() if DAEMON in command}
        return [pid for pid, parent in found.items() if parent in found]

    def stop(self) -> None:
        started = below({each.pid for each in self.servers})
        for each in self.servers:
            each.kill()
            each.wait(HUNG)
        for pid in started:
            kill(pid)


@dataclass
class Driver:
    """A running job, which reports in lines of JSON."""

    process: subprocess.Popen[bytes]
    out: Path
    log: Path

    def reports(self) -> list[dict[str, Any]]:
        lines = self.out.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def finish(self) -> list[dict[str, Any]]:
        """Wait until the job has ended, and return its reports."""
        code = self.process.wait(PROGRAM)
        assert code == 0, self.log.read_text(errors="replace")[-5000:]
        return self.reports()

    def kill(self) -> None:
        started = below({self.process.pid})
        self.process.kill()
        self.process.wait(HUNG)
        for pid in started:  # the driver's Java, which would stay
            kill(pid)


@contextlib.contextmanager
def driving(
    cluster: Cluster, folder: Path, job: str, confs: dict[str, str] | None = None, **given: Any
) -> Iterator[Driver]:
    """Run a job, and end it with the block."""
    name = f"{job}-{time.monotonic_ns()}"
    out, log = folder / f"{name}.out", folder / f"{name}.log"
    arguments = {"master": cluster.master, "confs": CONFS | (confs or {}), **given}
    with out.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            [cluster.python, JOBS, job, json.dumps(arguments)],
            cwd=folder,
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
    driver = Driver(process, out, log)
    try:
        yield driver
    finally:
        driver.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, python_with_wheel: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), python_with_wheel)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def brokerlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = Broker(BrokerConfig(port=0, data=tmp_path_factory.mktemp("broker"), sync=Sync.NEVER))
    yield broker.bootstrap
    broker.stop()


def numbered(topic: str, first: int, count: int, keys: int = 20) -> list[Message]:
    """Messages with the numbers as values; a number's remainder is its key, so each key has its numbers in order."""
    return [Message(topic, b"%d" % (number % keys), b"%d" % number) for number in range(first, first + count)]


def test_executors_that_have_the_wheel_read_and_write_every_row_once(
    cluster: Cluster, brokerlite: str, kafka: ApacheKafka, tmp_path: Path
) -> None:
    brokers = (brokerlite, kafka.bootstrap)
    for bootstrap in brokers:
        create_topic(bootstrap, "whole", 4)
        create_topic(bootstrap, "whole-copy", 3)
        LIBRDKAFKA.produce(bootstrap, numbered("whole", 0, 5000))
    with driving(cluster, tmp_path, "batch", brokers=brokers, source="whole", target="whole-copy") as driver:
        *of_brokers, where = driver.finish()
    wheel = str(cluster.python.parents[1])
    assert all(each.startswith(wheel) for each in (where["driver"], *where["executors"])), where
    for bootstrap, found in zip(brokers, of_brokers, strict=True):
        there = [(each.key, each.value, each.partition, each.offset) for each in stored(bootstrap, "whole")]
        rows = [(row[0].encode(), row[1].encode(), row[2], row[3]) for row in found["rows"]]
        assert sorted(rows) == sorted(there)
        copied = Counter(each.value for each in stored(bootstrap, "whole-copy"))
        assert copied == Counter(b"%d" % n for n in range(5000))


def stored(bootstrap: str, topic: str) -> list[Received]:
    return LIBRDKAFKA.consume(bootstrap, topic)


@pytest.mark.deep
def test_a_stream_loses_nothing_when_executors_workers_and_its_driver_are_killed(
    cluster: Cluster, brokerlite: str, tmp_path: Path
) -> None:
    chance, end, step, written = random.Random(1), tmp_path / "end", 3000, 0
    create_topic(brokerlite, "followed", 4)
    create_topic(brokerlite, "copy", 3)
    given: dict[str, Any] = {
        "bootstrap": brokerlite,
        "source": "followed",
        "target": "copy",
        "most": 1000,
        "where": "reflect('java.lang.Thread', 'sleep', 1L) = 'null'",
        "checkpoint": str(tmp_path / "checkpoint"),
        "end": str(end),
    }
    # Rows come slowly, a few at a time, so that most of the killed processes are in the midst of a task.
    confs = {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}
    killed: Counter[str] = Counter()

    def go_on(driver: Driver, batches: int) -> None:
        """Write more, and wait until the driver has copied some of it."""
        nonlocal written
        LIBRDKAFKA.produce(brokerlite, numbered("followed", written, step))
        written += step
        seen = len(driver.reports())
        until(lambda: len(driver.reports()) >= seen + batches, f"the query has stopped; killed so far: {killed}")

    def kill_some(what: str, find: Callable[[], list[int]], most: int) -> None:
        until(lambda: bool(find()), f"there is no {what}")
        time.sleep(chance.uniform(0, 0.3))
        found = find()
        for pid in chance.sample(found, min(most, len(found))):
            kill(pid)
            killed[what] += 1

    with driving(cluster, tmp_path, "follow", confs, **given) as driver:
        go_on(driver, 1)
        for what, most in (("executor", 1), ("worker", 2), ("executor", 2)):
            kill_some(what, cluster.python_workers if what == "worker" else cluster.executors, most)
            go_on(driver, 2)
        first = driver.reports()
        driver.kill()
        killed["driver"] += 1
    with driving(cluster, tmp_path, "follow", confs, **given) as driver:
        go_on(driver, 1)
        end.touch()
        reports = driver.finish()
    assert reports[-1] == {"done": True}

    copies = stored(brokerlite, "copy")
    of_keys: dict[bytes | None, list[int]] = defaultdict(list)
    for each in copies:
        assert each.key is not None and each.value is not None
        of_keys[each.key].append(int(each.value))
    failed = [each["failed"] for each in first + reports if "failed" in each]
    print(f"killed {dict(killed)}, {len(failed)} restarts, {len(copies) - written} of {written} records again")
    assert len(of_keys) == 20
    for key, numbers in of_keys.items():
        once = list(dict.fromkeys(numbers))
        assert once == list(range(int(key or b""), written, 20)), key


@pytest.mark.deep
def test_executors_that_come_and_go_copy_every_record_once(cluster: Cluster, brokerlite: str, tmp_path: Path) -> None:
    create_topic(brokerlite, "rounds", 4)
    create_topic(brokerlite, "rounds-copy", 3)
    confs = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
    }
    given: dict[str, Any] = {
        "bootstrap": brokerlite,
        "source": "rounds",
        "target": "rounds-copy",
        "most": 100_000,
        "where": "true",
        "checkpoint": str(tmp_path / "checkpoint"),
        "rounds": 2,
        "count": 10_000,
    }
    with driving(cluster, tmp_path, "elastic", confs, **given) as driver:
        assert [each["rounds"] for each in driver.finish()] == [1, 2]
    values = Counter(each.value for each in stored(brokerlite, "rounds-copy"))
    assert values == Counter(b"%d" % n for n in range(20_000))
