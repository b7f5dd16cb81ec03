"""The whole demo, started as a user starts it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ottla.sync
from ottla.testing import Broker
from tests.kafka import ApacheKafka
from tests.patience import PROGRAM

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "ottla.cli", "demo")
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}


def demo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=PROGRAM, env=ENVIRONMENT
    )


def row(output: str, name: str) -> list[str]:
    """The cells of a table's row."""
    found = re.search(rf"^│ *{re.escape(name)} *│(.*)│$", output, re.MULTILINE)
    assert found, f"no row {name!r} in:\n{output}"
    return [cell.strip() for cell in found[1].split("│")]


def test_the_story_is_true_on_brokerlite(tmp_path: Path) -> None:
    done = demo("--keep", tmp_path / "data")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert row(done.stdout, "flights") == ["336,776", "336,776"]
    assert row(done.stdout, "without a known aircraft (no key)") == ["2,512", "2,512"]
    assert row(done.stdout, "aircraft in more than one partition") == ["3,131", "0"]
    assert row(done.stdout, "United Air Lines") == ["58,665", "620", "94.6", "3.6 min", "177"]
    for topic in ("flights-direct", "flights"):
        assert f"│ {topic:<14} │ 336,776 │    0 │     0 │       0 │" in done.stdout
    assert "The busiest of 364 days, counted by a stream" in done.stdout
    assert row(done.stdout, "2013-12-02") == ["369", "317", "336", "1,022"]
    assert "Every count is right" in done.stdout
    assert float(row(done.stdout, "total")[0]) > 0
    assert (tmp_path / "data" / "flights-0").is_dir()
    again = demo("--keep", tmp_path / "data", "--rows", "10")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "exists already" in again.stderr


def test_the_story_is_true_with_tls_users_and_rights(tmp_path: Path) -> None:
    done = demo("--secured", "--keep", tmp_path / "data", "--rows", "3000")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "make certificates, users and rights" in done.stdout and "Every count is right" in done.stdout
    assert [each.name for each in (tmp_path / "data").glob("__user_credentials-0")], "clients log in at the broker"


def test_the_story_is_true_on_apache_kafka(kafka: ApacheKafka) -> None:
    done = demo("--kafka", kafka.bootstrap, "--rows", "40000")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    scattered, together = row(done.stdout, "aircraft in more than one partition")
    assert (int(scattered.replace(",", "")) > 1000, together) == (True, "0")
    assert re.search(r"ottla topics delete flights-direct-\S+ flights-\S+ -b", done.stdout)


@pytest.mark.deep  # test_story.py tests that each wrong count is named
def test_a_flight_that_nobody_sent_is_noticed(ottla_broker: Broker) -> None:
    with subprocess.Popen(
        [*COMMAND, "--kafka", ottla_broker.bootstrap, "--rows", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        topic = _await_topic(ottla_broker)
        process.send_signal(signal.SIGSTOP)  # so PySpark is not told to begin before the record is there
        try:
            with ottla.sync.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
                producer.send(topic, b"a flight of fancy")
        finally:
            process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=PROGRAM)
    assert process.returncode == 1
    assert err.startswith("ottla: ") and "foreign=1" in err and err.count("\n") == 1, err
    assert "Every count is right" not in out


def _await_topic(broker: Broker) -> str:
    """The name of the demo's first topic, as soon as its folder exists."""
    deadline = time.monotonic() + PROGRAM
    while time.monotonic() < deadline:
        if found := sorted(broker.data.glob("flights-direct-*-0")):
            return found[0].name.removesuffix("-0")
        time.sleep(0.05)
    raise TimeoutError("the demo made no topic")


def test_a_kafka_that_is_not_there_is_told_in_a_line_and_by_code_3() -> None:
    done = demo("--kafka", "127.0.0.1:1", "--rows", "10")
    assert done.returncode == 3
    *warnings, last = done.stderr.splitlines()
    assert last.startswith("ottla: ") and "127.0.0.1:1" in last
    assert all("no broker is available" in each for each in warnings) and len(warnings) <= 1


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.deep)],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_a_signal_ends_the_demo_and_everything_it_has_started(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    # The marker in the environment identifies the demo's processes, including Spark's JVM.
    marker = f"OTTLA_DEMO_TEST={os.getpid()}-{number}"
    with subprocess.Popen(
        [*COMMAND, "--keep", tmp_path / "data"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT | {"OTTLA_DEMO_TEST": f"{os.getpid()}-{number}"},
        start_new_session=True,
    ) as process:
        # Flights are being sent, and Spark is starting.
        _await(lambda: len(_marked(marker)) >= 6 and any((tmp_path / "data").glob("flights-direct-*/*.log")))
        process.send_signal(number)
        _, err = process.communicate(timeout=PROGRAM)
    assert (process.returncode, err) == (code, b"")
    _await(lambda: not _marked(marker))


def _await(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + PROGRAM
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _marked(marker: str) -> list[int]:
    """The processes with the marker in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found
