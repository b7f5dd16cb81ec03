"""The benchmark tools of Apache Kafka, ProducerPerformance and ConsumerPerformance, in a JVM each."""

import resource
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests import kafka
from tests.bench.clients.canned import values
from tests.bench.clients.process import Broken
from tests.bench.clients.task import Figures, Task

PACE = 100 * 2**20, 500_000
"""The maximum bytes and records for each second of the task: the tool needs the number of records in advance."""
_TIMEOUT = 300.0
_FLAGS = ("-Xmx512M", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
"""The options of kafka-producer-perf-test.sh."""
_PRODUCER = {
    "acks": "all",
    "linger.ms": "5",
    "batch.size": str(256 * 2**10),
    "buffer.memory": str(128 * 2**20),
}


def produce(task: Task) -> Figures:
    """Send random words to the topic of a task, up to its count, or up to `PACE` times its seconds.

    The first quarter does not count towards the rate, because the JVM still compiles then.

    Raises:
        Broken: the tool failed.
    """
    [topic], most = task.names, task.count or 10**9
    count = max(min(most, int(task.seconds * PACE[0]) // task.size, int(task.seconds * PACE[1])), 4)
    with tempfile.TemporaryDirectory() as home:
        payload = Path(home) / "values"
        payload.write_bytes(b"\n".join(values(task.size)))
        settings = {**_PRODUCER, "bootstrap.servers": task.bootstrap, "compression.type": task.compression}
        said, cpu = _run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--warmup-records", str(count // 4)),
            *("--throughput", "-1", "--payload-file", str(payload)),
            *("--command-property", *(f"{key}={value}" for key, value in settings.items())),
        )
    # 75000 records sent, 310000.0 records/sec (29.56 MB/sec), 12.3 ms avg latency, ...
    words = [line.split() for line in said.splitlines() if " records/sec (" in line][-1]
    return {"records": count, "rate": float(words[words.index("records/sec") - 1]), "cpu_us": cpu / count * 1e6}


def consume(task: Task) -> Figures:
    """Read as many records of the task's topic as it counts; the time to join the group does not count.

    Raises:
        Broken: the tool failed, or the records did not come.
    """
    [topic] = task.names
    said, cpu = _run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--topic", topic, "--num-records", str(task.count), "--bootstrap-server", task.bootstrap),
        *("--group", f"{topic}-java", "--timeout", "30000"),
    )
    lines = [[each.strip() for each in line.split(",")] for line in said.splitlines() if line.count(",") >= 9]
    found = dict(zip(*lines, strict=True))  # a line of titles, and a line of figures
    records = float(found["data.consumed.in.nMsg"])
    return {"records": records, "rate": float(found["fetch.nMsg.sec"]), "cpu_us": cpu / records * 1e6}


WAYS: dict[str, Callable[[Task], Figures]] = {"produce": produce, "consume": consume}


def _run(main: str, *arguments: str) -> tuple[str, float]:
    """The output of a tool, and the processor time of its JVM in seconds, its start included."""
    command = [kafka.need("java", "a JDK, 17 or newer"), *_FLAGS, "-cp", kafka.classpath(), main, *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise Broken(f"{main} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
