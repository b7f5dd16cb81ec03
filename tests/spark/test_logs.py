"""The lines that Spark's Python processes write to stderr."""

import os
import re
import subprocess
import sys

import pytest

from tests.patience import HUNG

PROGRAM = """
import logging
import ottla.spark
from ottla.spark.logs import set_up_logging
{before}
set_up_logging()
set_up_logging()
logging.getLogger("ottla.spark").info("orders: 3 records behind")
logging.getLogger("ottla.sdk").info("connected")
logging.getLogger("ottla.sdk").warning("no broker is available")
"""
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (\w+) ([\w.]+): (.*)")


def written(before: str = "", **environment: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM.format(before=before)]
    env = {name: value for name, value in os.environ.items() if name != "OTTLA_LOG_LEVEL"} | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=HUNG).stderr.splitlines()


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (None, ["3 records behind", "no broker"]),
        ("info", ["3 records behind", "no broker"]),
        ("WARNING", ["no broker"]),
        ("ERROR", []),
        ("", ["3 records behind", "no broker"]),
        ("loud", ["which is not a log level", "3 records behind", "no broker"]),
    ],
)
def test_lines_have_their_time_level_and_logger_and_the_environment_says_which(
    level: str | None, said: list[str]
) -> None:
    lines = written(**({} if level is None else {"OTTLA_LOG_LEVEL": level}))
    found = [match.groups() for match in map(LINE.fullmatch, lines) if match]
    assert len(found) == len(lines) == len(said), lines
    known = {("INFO", "ottla.spark", "orders: 3 records behind"), ("WARNING", "ottla.sdk", "no broker is available")}
    assert {each for each in found if each[1] != "ottla"} <= known
    assert all(wanted in text for wanted, (_, _, text) in zip(said, found, strict=True))


def test_logging_that_is_already_configured_stays() -> None:
    mine = "logging.basicConfig(format='mine: %(message)s')"
    assert written(mine) == ["mine: no broker is available"]
    assert written(f"set_up_logging(); {mine}") == ["mine: orders: 3 records behind", "mine: no broker is available"]
