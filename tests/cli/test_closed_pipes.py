"""Unusable files, pipes and descriptors end a command with one line, never with a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.patience import HUNG


def shell(line: str, broker: Broker) -> subprocess.CompletedProcess[str]:
    """Run ``line`` in bash, with ``ottla`` from this Python and the broker as its bootstrap."""
    command = f'ottla() {{ {sys.executable} -m ottla "$@" --bootstrap {broker.bootstrap}; }}; set -o pipefail; {line}'
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=HUNG)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("ottla produce t --file /nowhere", 2, "cannot read /nowhere"),
        ("ottla produce t --file /", 2, "cannot read /: is a directory"),
        ("ottla produce t <&-", 2, "stdin is closed"),
        ("ottla topics list >/dev/full", 1, "ottla: cannot write to stdout: no space left"),
        ("ottla topics describe t >/dev/full", 1, "ottla: cannot write to stdout: no space left"),
        ("ottla consume t --until-end >/dev/full", 1, "ottla: cannot write to stdout: no space left"),
        ("ottla consume u 2>/dev/full", 1, ""),
        ("ottla produce t --file /proc/self/mem", 1, "ottla: cannot read /proc/self/mem: input/output error"),
        ("head -c 20000000 /dev/zero | ottla produce t", 1, "a line is longer than"),
        ("ottla topics list | true", None, ""),
        ("seq 1 20000 | ottla produce t --receipts | head -1", None, ""),
    ],
)
def test_what_cannot_be_read_or_written_is_said_in_a_line(
    ottla_broker: Broker, line: str, code: int | None, says: str, tmp_path: Path
) -> None:
    ottla_broker.create_topic("t")
    seeded = shell("seq 1 10 | ottla produce t", ottla_broker)
    assert seeded.returncode == 0, seeded.stderr
    done = shell(line, ottla_broker)
    assert "Traceback" not in done.stderr, done.stderr
    assert says in done.stderr.lower()
    if code is not None:
        assert done.returncode == code, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("--help >/dev/full", 1, "cannot write to stdout: no space left on device"),
        ("--version >/dev/full", 1, "cannot write to stdout: no space left on device"),
        ("topics --help >/dev/full", 1, "cannot write to stdout: no space left on device"),
        ("broker check $FILE >/dev/full", 1, "cannot write to stdout: no space left on device"),
        ("dump --type log /proc/self/mem", 2, "cannot read /proc/self/mem: input/output error"),
        ("broker check /nowhere.toml 2>/dev/full", 2, ""),
    ],
)
def test_a_disk_that_is_full_is_told_by_what_could_not_be_written(
    line: str, code: int, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('listen = "localhost:9092"\n')
    command = f"{sys.executable} -m ottla {line.replace('$FILE', str(file))}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=HUNG)
    assert (done.returncode, done.stderr) == (code, f"ottla: {says}\n" if says else "")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["consume t", "consume t --group g", "groups describe g --watch 3600 --json"])
def test_a_command_that_waits_ends_with_the_reader_of_its_output(ottla_broker: Broker, line: str) -> None:
    ottla_broker.create_topic("t")
    prepared = "seq 1 100 | ottla produce t && ottla groups reset g --to-earliest --topic t --execute"
    done = shell(f"{prepared} >/dev/null && ottla {line} | head -1", ottla_broker)
    assert done.stdout.count("\n") == 1
    assert done.stderr.splitlines()[2:] == []
