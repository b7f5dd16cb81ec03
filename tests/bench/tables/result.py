"""The result of a table as a JSON file, with the state of the machine and of the code while it was measured."""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import confluent_kafka

from ottla.codec import engine
from tests import kafka
from tests.bench.tables.table import Row

PEERS = ("confluent-kafka", "aiokafka", "kafka-python", "kio", "trio", "uvloop", "pyspark")
_OUTSIDE = (":!docs", ":!*.md", ":!newsfragments")
"""What decides no figure: the page itself, above all."""


@dataclass(frozen=True)
class State:
    """The circumstances of a measurement.

    Attributes:
        code: a digest of all files that may decide a figure; empty outside of a git repository.
        commit: the abbreviated name, with a plus if files differ from it.
        date: the day of its end, as the page writes it.
        load: the lowest, the median and the highest load average of a minute.
        versions: program -> its version.
    """

    code: str
    commit: str
    date: str
    seconds: float
    processors: int
    processor: str
    python: str
    load: tuple[float, float, float]
    versions: dict[str, str]


@dataclass(frozen=True)
class Result:
    """A table that was measured."""

    table: str
    state: State
    rows: list[Row]

    @property
    def failures(self) -> list[str]:
        return [why for row in self.rows for why in row.failures]

    @property
    def rounds(self) -> int:
        found = [each for row in self.rows for each in row.found.values() if not isinstance(each, str)]
        return max(map(len, found), default=0)

    @property
    def remark(self) -> str:
        """The line below the table."""
        now, (low, _, high) = self.state, self.state.load
        return (
            f"Commit {now.commit}, {now.date}, Python {now.python}, {now.processors} processors ({now.processor}), "
            f"load {low:.1f} to {high:.1f}, rounds: {self.rounds}."
        )


def path_of(folder: Path, table: str) -> Path:
    return folder / f"{table}.json"


def save(folder: Path, result: Result) -> None:
    """Write the file at once or not at all: an interrupted run must not leave half of it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, result.table)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False))
    partial.rename(path)


def saved(folder: Path, table: str) -> Result | None:
    """The result of a table, if there is one."""
    path = path_of(folder, table)
    if not path.exists():
        return None
    given = json.loads(path.read_text())
    state = State(**given["state"] | {"load": tuple(given["state"]["load"])})
    return Result(table, state, [Row(tuple(row["labels"]), row["found"]) for row in given["rows"]])


class Watch:
    """Notes the circumstances while a table is measured."""

    def __init__(self, code: str) -> None:
        self._code, self._began = code, time.monotonic()
        self._loads: list[float] = []
        self.look()

    def look(self) -> None:
        """Take a sample of the load."""
        self._loads.append(os.getloadavg()[0])

    def state(self) -> State:
        self.look()
        changed = "+" if _git("status", "--porcelain", "--", ".", *_OUTSIDE) else ""
        return State(
            code=self._code,
            commit=_git("rev-parse", "--short", "HEAD").strip() + changed,
            date=f"{time.localtime().tm_mday} {time.strftime('%B %Y')}",
            seconds=round(time.monotonic() - self._began, 1),
            processors=os.cpu_count() or 1,
            processor=_processor(),
            python=platform.python_version(),
            load=(min(self._loads), statistics.median(self._loads), max(self._loads)),
            versions=dict(versions()),
        )


def digest_of_code() -> str:
    """A digest of all files in git that may decide a figure."""
    digest = hashlib.sha256()
    for command in (
        ["ls-files", "--stage", "--", ".", *_OUTSIDE],
        ["diff", "--binary", "--", ".", *_OUTSIDE],
    ):
        digest.update(_git(*command).encode())
    return digest.hexdigest() if _git("rev-parse", "HEAD") else ""


def versions() -> Iterator[tuple[str, str]]:
    yield "Apache Kafka", kafka.VERSION
    yield "Java", _java()
    for name in PEERS:
        yield name, importlib.metadata.version(name)
    yield "librdkafka", confluent_kafka.libversion()[0]
    yield "ottla's codec", engine


def _java() -> str:
    """For example ``17.0.15``, from ``openjdk version "17.0.15" 2025-04-15``."""
    if shutil.which("java") is None:
        return "none"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.split('"')
    return said[1] if len(said) > 1 else "unknown"


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], capture_output=True, text=True, errors="replace").stdout


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
