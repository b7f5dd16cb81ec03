"""A signal ends a command even if its stdout or its stderr is a full pipe."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.cli import exits
from tests.cli import program
from tests.patience import HUNG
from tests.sdk.scripted import scripted

pytestmark = pytest.mark.slow

ENDED_BY_SIGTERM = 128 + signal.SIGTERM
BLOCKED = """
import os
from ottla.cli import exits

def block():
    os.write(1, b"ready\\n")
    while True:
        os.write(2, b"x" * 4096)

class Running:
    def drain(self):
        pass

async def command():
    block()

async def server(task_status):
    task_status.started(Running())
    block()

async def beside(running, nursery):
    pass

"""


@contextmanager
def full_pipe() -> Iterator[int]:
    """The writing end of a full pipe."""
    reads, writes = os.pipe()
    try:
        os.set_blocking(writes, False)
        try:
            while True:
                os.write(writes, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writes, True)
        yield writes
    finally:
        os.close(reads)
        os.close(writes)


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + HUNG
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("stream", "arguments"),
    [
        ("stdout", ("produce", "t", "--receipts")),
        ("stdout", ("topics", "describe", "t")),
        ("stderr", ("produce", "t")),
    ],
)
def test_a_result_that_does_not_fit(stream: str, arguments: tuple[str, ...]) -> None:
    with full_pipe() as full, scripted({"t": 1}) as (address, broker):
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        pipes[stream] = full
        command = [*program.COMMAND, *arguments, "--bootstrap", address]
        with subprocess.Popen(command, env=program.ENVIRONMENT, **pipes) as run:
            try:
                assert run.stdin is not None
                run.stdin.write(b"a\n" * 1000)
                run.stdin.close()
                receipts = "--receipts" in arguments  # the other results come after the connections are closed
                wait_for(lambda: sum(log.end for log in broker.model.logs.values()) if receipts else broker.ended)
                run.send_signal(signal.SIGTERM)
                assert run.wait(HUNG) == ENDED_BY_SIGTERM
            finally:
                run.kill()
        if receipts:
            assert sum(log.end for log in broker.model.logs.values()) == 1, (
                "each record waits for the receipt before it"
            )


@pytest.mark.parametrize("run", ["exits.run(command)", "exits.run_server(server, beside)"])
def test_a_loop_that_is_blocked(run: str) -> None:
    arguments = [sys.executable, "-c", BLOCKED + run]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as blocked:
        try:
            assert blocked.stdout is not None and blocked.stdout.readline() == b"ready\n"
            blocked.send_signal(signal.SIGTERM)
            assert blocked.wait(HUNG) == ENDED_BY_SIGTERM
        finally:
            blocked.kill()


def test_a_second_signal_for_a_loop_that_is_blocked() -> None:
    code = f"exits._BLOCKED = {2 * HUNG}\n"
    arguments = [sys.executable, "-c", BLOCKED + code + "exits.run(command)"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as blocked:
        try:
            assert blocked.stdout is not None and blocked.stdout.readline() == b"ready\n"

            def ended() -> bool:
                blocked.send_signal(signal.SIGINT)
                return blocked.poll() is not None

            wait_for(ended)  # signals that come too soon after each other are one
            assert blocked.returncode == exits.INTERRUPTED
        finally:
            blocked.kill()
