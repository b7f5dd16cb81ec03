"""``python -m tests.bench all``: every table and plot of docs/benchmarks.md, from the data to the page.

Each table has a JSON file in `.cache/bench` with the figures of all rounds, and with the state of the code and of the
machine. A table is measured unless its file has a result without a failure for the present code, so a run that was
interrupted continues where it was. Then the page and the plot are written from the files. A table that fails is named
at the end, after all others were measured; the page keeps its earlier contents there.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.brokers.run import allow_many_connections
from tests.bench.tables import (
    growth,
    of_brokers,
    of_clients,
    of_codec,
    of_proxies,
    of_proxy,
    of_requests,
    of_security,
    of_spark,
    page,
    plot,
)
from tests.bench.tables.result import Result, Watch, digest_of_code, save, saved
from tests.bench.tables.stage import TINY, Amounts, Stage
from tests.bench.tables.table import Line, Row, Table

FOLDER = Path(".cache/bench")
QUICK = FOLDER / "quick"
TABLES: tuple[Table, ...] = (
    *of_codec.TABLES,  # before any broker runs beside it
    *of_clients.TABLES,
    *of_requests.TABLES,
    *of_brokers.TABLES,
    *of_proxy.TABLES,
    *of_proxies.TABLES,
    *of_security.TABLES,
    growth.GROWTH,
    *of_spark.TABLES,  # last, because Spark's JVM stays
)
ALL = "all contestants"


def measured(table: Table, stage: Stage, code: str) -> Result:
    """Measure a table, line by line; a line that fails has one contestant, with the reason."""
    watch, rows = Watch(code), []
    for line in table.lines if stage.amounts.every else table.lines[:1]:
        rows.append(_row(line, stage))
        watch.look()
        print(f"  {', '.join(line.labels) or 'done'}", flush=True)
    return Result(table.name, watch.state(), rows)


def _row(line: Line, stage: Stage) -> Row:
    try:
        return Row(line.labels, line.measure(stage))
    except (Exception, pytest.skip.Exception) as error:  # whatever it is, the other lines and tables are measured
        return Row(line.labels, {ALL: f"{type(error).__name__}: {error}"})


def shown(table: Table, result: Result) -> Iterator[str]:
    """The lines of a table on the page."""
    yield from table.markdown(result.rows)
    if table is growth.GROWTH:
        yield from ("", f"![The same as a plot on logarithmic axes]({page.PLOT.name})")
    yield from ("", result.remark)


def write(folder: Path, text: str) -> str:
    """The page with the results of a folder that have no failure."""
    newest: Result | None = None
    for table in TABLES:
        result = saved(folder, table.name)
        if result is None or result.failures:
            continue
        newest = result
        text = page.written(text, table.name, shown(table, result))
    if newest is not None:
        said = ", ".join(f"{name} {version}" for name, version in newest.state.versions.items())
        text = page.written(text, page.VERSIONS, [f"{said}."])
    return text


def parsed(arguments: list[str]) -> argparse.Namespace:
    names = "\n".join(f"  {table.name}" for table in TABLES)
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench all",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"tables:\n{names}",
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="those with one of these words in their name")
    parser.add_argument("--quick", action="store_true", help="tiny amounts, which show that it works; leaves the page")
    parser.add_argument("--again", action="store_true", help="measure tables that have a result, too")
    parser.add_argument("--folder", type=Path, help=f"of the results, in place of {FOLDER}")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Make the given tables, or all without any; return the exit code."""
    given = parsed(arguments)
    folder: Path = given.folder or (QUICK if given.quick else FOLDER)
    chosen = [table for table in TABLES if not given.tables or any(word in table.name for word in given.tables)]
    if not chosen:
        names = "".join(f"\n  {table.name}" for table in TABLES)
        print(f"no table has {' or '.join(given.tables)} in its name; there are:{names}", file=sys.stderr)
        return 2
    # When a run is ended, as by `timeout`, it must end its brokers and remove their data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    allow_many_connections()
    code, began, failures = digest_of_code(), time.monotonic(), []
    with Stage(TINY if given.quick else Amounts()) as stage:
        for number, table in enumerate(chosen, 1):
            print(f"{(time.monotonic() - began) / 60:6.1f} min  {table.name} ({number} of {len(chosen)})", flush=True)
            result = saved(folder, table.name)
            if given.again or result is None or result.failures or not code or result.state.code != code:
                result = measured(table, stage, code)
                save(folder, result)
                print("", *shown(table, result), "", sep="\n", flush=True)
            else:
                print("  measured before", flush=True)
            failures += [f"{table.name}: {why}" for why in result.failures]
            if table is growth.GROWTH:
                print(*growth.steep(result.rows), sep="\n", flush=True)
    if not given.quick:
        page.PAGE.write_text(write(folder, page.PAGE.read_text()))
        grown = saved(folder, growth.GROWTH.name)
        if grown is not None and not grown.failures:
            page.PLOT.write_text(plot.svg(grown.rows))
    print(f"{(time.monotonic() - began) / 60:6.1f} min  {len(chosen)} tables in {folder}")
    print(*(f"FAILED {each}" for each in failures), sep="\n", end="\n" if failures else "", file=sys.stderr)
    return 1 if failures else 0
