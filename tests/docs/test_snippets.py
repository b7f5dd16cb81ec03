"""Every snippet of the documentation runs: in order, file by file, against brokers of its own.

Rule: `localhost:9092` in a snippet is the broker, `localhost:19092` the proxy, `localhost:18080` the health port of
the proxy, `localhost:18082` that of the broker, and `localhost:18081` the report of the proxy; the tests replace them
by free ports.
A shell line that starts a server leaves it running; the same line again first stops it, as the page tells its reader.
Other shell lines run to their end. `make` and `pip` do not run.
A line that stops a program after some seconds does so at an event (`AT_EVENTS`), which no busy machine misses.
Python and TOML that begin with a file name in a comment are saved under that name. All snippets with Spark run in one
process, with one JVM.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kafka import free_ports
from tests.patience import HUNG, PROGRAM

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"recipes.md": "tests/sdk/test_recipes.py, which kills them"}
ON_BOTH = "howto-share-groups.md"
"""A page that starts no broker: its snippets run against Apache Kafka and against brokerlite."""
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SERVERS = ("ottla broker", "ottla proxy")
PROGRAM_OF_TUTORIAL = f"timeout --foreground --signal INT {PROGRAM} python service.py"
"""Runs in the background, where a shell would make it ignore SIGINT without `timeout`."""
GROUP_OF_TUTORIAL = "ottla groups describe invoices --members --bootstrap localhost:9092"


def _invoiced(count: int) -> str:
    """Wait for so many invoices, or for the end of the program $pid."""
    rows = 'sqlite3.connect("invoices.db").execute("SELECT count(*) FROM invoices").fetchone()[0]'
    asking = f"python -c 'import sqlite3; assert {rows} >= {count}' 2>/dev/null"
    return f"until {asking} || ! kill -0 $pid; do sleep 0.1; done"


AT_EVENTS = {
    "timeout --signal KILL 5 python service.py ||": (
        f"python service.py & pid=$!; {_invoiced(1)}; kill -KILL $pid; wait $pid ||"
    ),
    "timeout --foreground --signal INT 30 python service.py ||": (
        f"{PROGRAM_OF_TUTORIAL} & pid=$!; {_invoiced(1000)}; kill -INT $pid; wait $pid ||"
    ),
    "timeout --foreground --signal INT 12 python service.py & timeout --foreground --signal INT 12 python service.py & "
    f"sleep 6; {GROUP_OF_TUTORIAL}; wait": (
        f"{PROGRAM_OF_TUTORIAL} & {PROGRAM_OF_TUTORIAL} & "
        f"until {GROUP_OF_TUTORIAL} | grep -q 'Stable, .* 2 members'; do sleep 0.1; done; "
        f"{GROUP_OF_TUTORIAL}; kill -INT $(jobs -p); wait"
    ),
}
"""Parts of lines in the tutorial, and the shell's words that the tests run in their place."""
END = "-- the snippet has ended --"
WITH_SPARK = f"""
import runpy, sys
for path in map(str.strip, sys.stdin):
    runpy.run_path(path, run_name="__main__")
    print({END!r}, flush=True)
"""
"""A program that runs other programs, whose paths it reads from standard input."""


@dataclass
class Bench:
    """The environment in which the snippets of one file run."""

    folder: Path
    addresses: dict[str, str]
    servers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    """The shell line that started it -> a running server."""
    spark: subprocess.Popen[str] | None = None

    def run(self, language: str, code: str) -> str:
        for written, at_event in AT_EVENTS.items():
            code = code.replace(written, at_event)
        for written, real in self.addresses.items():
            code = code.replace(written, real)
        if named := re.match(r"# (\w+\.(py|toml))\n", code):
            (self.folder / named[1]).write_text(code)
            return ""
        if language == "python":
            return self._python(code)
        assert language == "sh", f"TOML without a name: {code}"
        return "".join(self._shell(line) for line in code.strip().splitlines())

    def _python(self, code: str) -> str:
        path = self.folder / ("test_snippet.py" if "def test_" in code else "snippet.py")
        path.write_text(code)
        if "spark" in code:
            return self._with_spark(path)
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if path.stem == "test_snippet" else ["-W", "error"]
        return self._finish([sys.executable, *command, str(path)])

    def _with_spark(self, path: Path) -> str:
        said = self.folder / "spark.log"
        if self.spark is None:
            with said.open("w") as log:
                self.spark = subprocess.Popen(
                    [sys.executable, "-c", WITH_SPARK],
                    cwd=self.folder,
                    env=environment(),
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        assert self.spark.stdin is not None and self.spark.stdout is not None
        self.spark.stdin.write(f"{path}\n")
        self.spark.stdin.flush()
        printed: list[str] = []
        for line in self.spark.stdout:
            if line.strip() == END:
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"{path.read_text()}\n{''.join(printed)}\n{said.read_text()}")

    def _shell(self, line: str) -> str:
        line = line.partition("#")[0].strip()
        if not line or line.startswith(("make ", "pip ")):
            return ""
        if not line.startswith(SERVERS) or line.split()[2] in ("check", "reload", "journal", "report", "user", "users"):
            return self._finish(["bash", "-c", line])
        if line in self.servers:
            end(self.servers.pop(line))
        server = subprocess.Popen(
            ["bash", "-c", f"exec {line} --json"],
            cwd=self.folder,
            env=environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.servers[line] = server
        assert server.stdout is not None
        assert server.stdout.readline(), f"{line} did not start"
        return ""

    def _finish(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=PROGRAM
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def environment() -> dict[str, str]:
    """An environment in which `ottla` belongs to this Python."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def end(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    server.wait(HUNG)
    assert server.stdout is not None
    server.stdout.close()


def snippets(path: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(python|sh|toml)\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    written = ("localhost:19092", "localhost:9092", "localhost:18080", "localhost:18081", "localhost:18082")
    ports = free_ports(len(written))
    made = Bench(tmp_path, {address: f"127.0.0.1:{port}" for address, port in zip(written, ports, strict=True)})
    yield made
    if made.spark is not None:
        try:
            made.spark.communicate(timeout=HUNG)
        finally:
            made.spark.kill()  # in case a snippet hangs
    for server in reversed(made.servers.values()):
        end(server)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [each for each in FILES if each.name not in {*ELSEWHERE, ON_BOTH}], ids=lambda path: path.name
)
def test_the_snippets_run(path: Path, bench: Bench) -> None:
    printed = [bench.run(language, code) for language, code in snippets(path)]
    if path.name == "tutorial.md":
        assert all(written in path.read_text() for written in AT_EVENTS)
        [of_members] = [each for each in printed if "2 members" in each]
        assert sorted(each.count(",") for each in re.findall(r"orders:([\d,]+)", of_members)) == [0, 1], of_members
    if path.name == "README.md":
        everything = "".join(printed)
        assert "stored in partition 0 at offset 0" in everything
        assert "[b'hello']" in everything
        # CRC-32 and murmur2 agree on the partition of customer-0, and differ on customer-10.
        for customer in ("customer-0", "customer-10"):
            assert re.search(rf"{customer}\|\s+1\|", everything), everything
        assert '{"total": 12}' in everything.replace("\\", "")


@pytest.mark.slow
def test_the_snippets_about_share_groups_run(bench: Bench, sharing: str) -> None:
    bench.addresses["localhost:9092"] = sharing
    for language, code in snippets(ROOT / "docs" / ON_BOTH):
        bench.run(language, code)
        if "jobs-dead" in code:
            bench.run(language, code)  # its topic exists now
        if "len(set(done))" in code:
            interrupt_the_pool(bench)


def interrupt_the_pool(bench: Bench) -> None:
    """Press Ctrl-C in the program that ran last, which waits for jobs now."""
    # The members of the first run have left. In the background a shell makes its programs ignore SIGINT.
    command = [sys.executable, "-W", "error", "snippet.py"]
    with subprocess.Popen(command, cwd=bench.folder, stderr=subprocess.PIPE, text=True) as pool:
        try:
            until = "until ottla share describe workers --bootstrap localhost:9092 | grep -q Stable; do sleep 0.1; done"
            bench.run("sh", until)
            pool.send_signal(signal.SIGINT)
            _, errors = pool.communicate(timeout=HUNG)
        finally:
            pool.kill()
    assert (pool.returncode, errors) == (0, "")


def test_links_lead_somewhere() -> None:
    for path in [*FILES, ROOT / "CONTRIBUTING.md", *(ROOT / "docs/reference").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} points to {target}"
