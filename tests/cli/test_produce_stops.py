"""A signal stops `ottla produce`: every line that it has read is stored, or reported as possibly lost."""

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from dataclasses import dataclass
from socket import socket

import pytest

from ottla.testing import Broker
from tests.cli import program
from tests.patience import HUNG
from tests.sdk.scripted import scripted

LINES = 5_000
"""The lines fit into a pipe, and sending them takes longer than a signal."""


@dataclass
class Stopped:
    """A run of `ottla produce` that a signal stopped."""

    code: int
    out: bytes
    err: bytes
    seconds: float
    """Seconds from the signal to the end."""
    unread: int
    """Lines left in its pipe."""
    stored: int


PATIENT = f"""
from ottla.cli import exits, main, produce
from ottla.sdk.produce import producer_leaving
exits._BLOCKED = produce._GRACE = producer_leaving.CLOSE_TIMEOUT = {HUNG}
main()
"""
"""`ottla` with more time after a signal for lines that it has read, so that no pause makes it give them up."""


def stopped(answer: int, *options: str, muted: bool = False) -> Stopped:
    """Run `ottla produce`, and stop it just before this answer, the first that a ``muted`` broker withholds."""
    started = threading.Event()
    answers, began = 0, 0.0
    patient = [sys.executable, "-X", "dev", "-c", PATIENT]
    run: subprocess.Popen[bytes]

    def manner(connection: socket, data: bytes) -> None:
        nonlocal answers, began
        answers += 1
        if answers == answer:
            assert started.wait(HUNG)
            began = time.monotonic()
            run.send_signal(signal.SIGTERM)
        if not muted or answers < answer:
            connection.sendall(data)

    with scripted({"t": 1}, manner=manner) as (address, broker):
        reads, writes = os.pipe()
        try:
            os.write(writes, b"a\n" * LINES)
            run = subprocess.Popen(
                [*(program.COMMAND if muted else patient), "produce", "t", "--bootstrap", address, *options],
                stdin=reads,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=program.ENVIRONMENT,
            )
            started.set()
            try:
                out, err = run.communicate(timeout=HUNG)
            finally:
                run.kill()
                run.wait()
            unread = int.from_bytes(fcntl.ioctl(reads, termios.FIONREAD, bytes(4)), "little") // 2
        finally:
            os.close(reads)
            os.close(writes)
        stored = sum(log.end for log in broker.model.logs.values())
    return Stopped(run.returncode, out, err, time.monotonic() - began, unread, stored)


@pytest.mark.parametrize(
    "answer",
    [pytest.param(each, marks=pytest.mark.slow if each in (5, 7) else pytest.mark.deep) for each in range(1, 8)],
)
def test_all_that_was_read_is_stored_whenever_the_signal_comes(answer: int) -> None:
    end = stopped(answer, "--log-level", "error")  # a broker that is slow to answer would be a warning
    stored = b"%d records are stored in t\n" % end.stored if end.stored else b""
    assert (end.code, end.err) == (143, stored)
    assert end.stored + end.unread == LINES
    if answer >= 5:  # it requires a line from stdin; two connect the client, and two are about the topic
        assert end.stored == LINES


@pytest.mark.slow
def test_lines_that_there_is_no_time_for_are_counted() -> None:
    end = stopped(7, "--receipts", muted=True)
    assert end.code == 143
    assert end.stored == 1
    assert b"stopped by a signal: %d lines may have been read but not sent\n" % LINES in end.err
    assert end.seconds < program.PROMPT


@pytest.mark.slow
def test_lines_typed_at_a_terminal_are_not_overwritten_and_are_counted_at_the_end(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [*program.COMMAND, "produce", "t", "--bootstrap", ottla_broker.bootstrap],
        stdin=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    try:
        said = b""
        while b"Ctrl-D ends" not in said:
            chunk = _read(ours)
            assert chunk, said
            said += chunk
        os.write(ours, b"one\ntwo\n")
        with program.running("consume", "t", "--bootstrap", ottla_broker.bootstrap) as consume:
            assert [consume.line(), consume.line()] == [b"one", b"two"]
        run.send_signal(signal.SIGINT)
        while chunk := _read(ours):
            said += chunk
        assert run.wait(HUNG) == 130
    finally:
        run.kill()
        run.wait()
        os.close(ours)
    assert said.endswith(b"\r\n2 records are stored in t\r\n")
    assert b"\x1b" not in said, "no line is overwritten"


def _read(terminal: int) -> bytes:
    if not select.select([terminal], [], [], HUNG)[0]:
        return b""
    try:
        return os.read(terminal, 65536)
    except OSError:  # the error with which Linux reports that the other side is closed
        return b""
