"""Ctrl-C arrives between two lines of anything; in the midst of a step of the core it waits until the step is done."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import trio

import ottla
from ottla.brokerlite.config import BrokerConfig
from ottla.sdk.core import ClientCore
from ottla.testing import Broker

STEPS = {ClientCore.handle.__code__, ClientCore.poll.__code__}
RECORDS = 20
PLACES = 12
"""Lines at which it comes, spread over all that the core executes."""


class CtrlC:
    """Comes at the line number ``at`` of those that the core executes in its steps, counted from when it is armed.

    Attributes:
        lines: executed so far.
        in_a_step: it was raised there, and what the step had not done yet is not done.
    """

    def __init__(self, at: int | None) -> None:
        self.lines, self.in_a_step, self.armed = 0, False, False
        self._at, self._depth = at, 0

    @contextmanager
    def coming(self) -> Iterator[None]:
        handler, tracer = signal.signal(signal.SIGINT, signal.default_int_handler), sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(tracer)
            signal.signal(signal.SIGINT, handler)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code in STEPS:
            self._depth += 1
            return self._in_step
        return self._in_step if self._depth else None

    def _in_step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            self._depth -= frame.f_code in STEPS
        elif event == "line" and self.armed:
            self.lines += 1
            if self.lines - 1 == self._at:
                try:
                    signal.raise_signal(signal.SIGINT)  # trio's handler raises, or has the main task raise later
                except KeyboardInterrupt:
                    self.in_a_step = True
                    raise
        return self._in_step


def produce(broker: Broker, ctrl_c: CtrlC) -> list[str]:
    """What a program saw that goes on after Ctrl-C."""
    seen: list[str] = []

    async def main() -> None:
        async with ottla.connect(broker.bootstrap) as client, client.producer(linger=0) as producer:
            await producer.send("t", b"before")
            try:
                ctrl_c.armed = True
                for number in range(RECORDS):
                    await producer.send("t", b"%d" % number)
                await trio.lowlevel.checkpoint()
            except KeyboardInterrupt:
                seen.append("Ctrl-C")
            ctrl_c.armed = False
            await producer.send("t", b"after")
            seen.append("sent")

    with ctrl_c.coming():
        try:
            trio.run(main)
        except BaseException as error:
            seen.append(f"the client has ended: {error!r}")
    return seen


@pytest.fixture(scope="module")
def lines() -> Iterator[int]:
    """How many lines the core executes while nobody interrupts it, about."""
    broker = Broker(BrokerConfig(port=0))
    try:
        undisturbed = CtrlC(None)
        assert produce(broker, undisturbed) == ["sent"]
        yield undisturbed.lines
    finally:
        broker.stop()


def test_the_core_is_traced_while_it_steps(lines: int) -> None:
    assert lines > 50 * RECORDS


@pytest.mark.parametrize("place", range(PLACES))
def test_ctrl_c_never_leaves_a_step_half_done(ottla_broker: Broker, lines: int, place: int) -> None:
    ctrl_c = CtrlC(lines * place // PLACES)
    seen = produce(ottla_broker, ctrl_c)
    assert not ctrl_c.in_a_step
    assert seen == ["Ctrl-C", "sent"]
