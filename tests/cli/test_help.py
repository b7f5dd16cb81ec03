"""The first steps of a new user: help, version, start-up."""

import re
import resource
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import ottla
import ottla.codec
from ottla.cli import help
from ottla.cli.commands import app
from tests.cli.program import ENVIRONMENT

COMMANDS = [
    ["broker"],
    ["proxy"],
    ["topics", "create"],
    ["topics", "list"],
    ["topics", "describe"],
    ["topics", "configure"],
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


def words(text: str) -> list[str]:
    """The words of a help without its boxes; Typer shows that some of its own options are flags."""
    return re.sub("[╭╮╰╯│─]|<bool>", " ", text).split()


@pytest.mark.parametrize("width", [50, 80, 200])
def test_the_help_of_the_program_has_the_words_of_typers(width: int) -> None:
    lines = list(help.lines(width, colored=False))
    assert max(map(len, lines)) == width
    typers = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert words("\n".join(lines)) == words(typers)
    colored = "\n".join(help.lines(width, colored=True))
    assert re.sub("\33\\[[0-9;]*m", "", colored) == "\n".join(lines) != colored


def printed(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    code = (
        "import sys, ottla.cli\n"
        "try: ottla.cli.main()\n"
        "finally: print(*[m for m in ('typer', 'rich', 'inspect', 'ottla.cli.commands') if m in sys.modules],"
        " file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=ENVIRONMENT | env
    )


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_help_of_the_program_imports_no_command(flag: str) -> None:
    done = printed(flag)
    assert done.stdout.splitlines() == list(help.lines(100, colored=False))
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.parametrize("env", [{"COLUMNS": "49"}, {"PYTHONIOENCODING": "ascii"}])
def test_typer_prints_the_help_where_it_does_not_fit(env: dict[str, str]) -> None:
    done = printed("--help", **env)
    assert done.returncode == 0 and "Usage: ottla" in done.stdout and "ottla.cli.commands" in done.stderr


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
