"""A client's process: start it, give it its task, end it."""

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable

from tests.bench.clients.task import READY, Figures, Task


class Broken(Exception):
    """A client's process did not give its figures; the text is its last line of output."""


def run(task: Task, timeout: float, meanwhile: Callable[[float], None] | None = None) -> Figures:
    """The figures of a task.

    Args:
        timeout: seconds after which the process is killed.
        meanwhile: called with the seconds of the task once its clock runs.

    Raises:
        Broken: it failed, or took too long.
    """
    command = [sys.executable, "-m", "tests.bench.clients.task", json.dumps(dataclasses.asdict(task))]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            with process.stdout:
                if meanwhile is not None and process.stdout.readline().strip() == READY:
                    meanwhile(task.seconds)
                said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Broken(f"did not end within {timeout:.0f} s") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            errors.seek(0)
            raise Broken((errors.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    figures: Figures = json.loads(said.splitlines()[-1])
    return figures
