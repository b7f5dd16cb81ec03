"""The first steps of a new user: help, version, start-up."""

import re
import resource
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import ottla
import ottla.codec
from ottla.cli.commands import app

COMMANDS = [
    ["broker"],
    ["proxy"],
    ["topics", "create"],
    ["topics", "list"],
    ["topics", "describe"],
    ["topics", "grow"],
    ["topics", "delete"],
    ["groups", "list"],
    ["groups", "describe"],
    ["groups", "delete"],
    ["groups", "reset"],
    ["transactions", "list"],
    ["transactions", "describe"],
    ["transactions", "find-hanging"],
    ["transactions", "abort"],
    ["transactions", "fence"],
    ["offsets"],
    ["produce"],
    ["consume"],
    ["perf", "produce"],
    ["perf", "consume"],
    ["dump"],
    ["demo"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    assert re.search(rf"Example:.*ottla {' '.join(command)}", result.output), result.output
    assert "``" not in result.output, "docstring markup in the output"
    assert not re.search(r"--(?!help)\S+ .*<(bool|int|float|str|path|list)", result.output), "a Python type"


def test_without_a_command_help_is_shown() -> None:
    result = CliRunner().invoke(app, [])
    assert "Usage: ottla" in result.output
    assert result.exit_code == 2


def test_the_version_and_the_engine_are_printed() -> None:
    expected = f"ottla {ottla.__version__} (codec: {ottla.codec.engine})\n"
    assert CliRunner().invoke(app, ["--version"]).output == expected


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom ottla.cli.commands import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('trio', 'pyspark', 'pyarrow', 'zeroconf', 'construct', 'confluent_kafka', 'ottla.sdk')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_help_takes_less_than_a_second_of_cpu() -> None:
    def cpu() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "ottla.cli", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)

    # The lowest CPU time of several runs: programs that share a core and its caches raise each other's CPU time, too.
    assert any(cpu() < 1.0 for _ in range(5))
