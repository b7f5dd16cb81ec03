"""Ctrl-C while a command still imports its modules ends it with 130, without a traceback."""

import subprocess
import sys

import pytest

from ottla.cli import exits
from tests.cli import program
from tests.patience import HUNG

CODE = """
import os, signal, sys
from ottla.cli import main

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
            list(range(10))  # Python calls a handler between two instructions

MODULE = sys.argv.pop(1)
sys.meta_path.insert(0, Interruption())
main()
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("typer", "produce t"),
        ("trio", "consume t"),
        ("ottla.sdk.client", "produce t"),
        pytest.param("ottla.cli.commands", "topics list", marks=pytest.mark.slow),
        pytest.param("trio", "topics list", marks=pytest.mark.slow),
        pytest.param("ottla.sdk.client", "topics list", marks=pytest.mark.slow),
        pytest.param("ottla.codec.dump", "dump nowhere", marks=pytest.mark.slow),
        pytest.param("ottla.brokerlite.serve", "broker", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_during_an_import(module: str, command: str) -> None:
    arguments = [sys.executable, "-c", CODE, module, *command.split()]
    done = subprocess.run(arguments, capture_output=True, timeout=HUNG, env=program.ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (exits.INTERRUPTED, b"", b"")
