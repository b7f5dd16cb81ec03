"""Ctrl-C arrives between two lines of anything; in the midst of a step of the core it waits until the step is done.

asyncio cancels the main task the first time, and interrupts whatever runs the second time: that may be half of a step,
after which the client is of no use, but it still ends soon.
"""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from ottla.brokerlite.config import BrokerConfig
from ottla.sdk.core import ClientCore
from ottla.testing import Broker
from tests.sdk.loops import LOOPS, Loop

STEPS = {ClientCore.handle.__code__, ClientCore.poll.__code__}
RECORDS = 20
PLACES = 12
"""Lines at which it comes, spread over all that the core executes."""


class CtrlC:
    """Raises Ctrl-C ``times`` in a row, at one of the lines that the core executes in its steps: line ``at``, from 0.

    Attributes:
        armed: whether lines count.
        lines: executed so far.
        in_a_step: it was raised inside a step, which did not finish.
    """

    def __init__(self, at: int | None, times: int = 1) -> None:
        self.lines, self.in_a_step, self.armed = 0, False, False
        self._at, self.times, self._depth = at, times, 0

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
                    for _ in range(self.times):  # the loop's handler raises, or makes the main task raise later
                        signal.raise_signal(signal.SIGINT)
                except KeyboardInterrupt:
                    self.in_a_step = True
                    raise
        return self._in_step


def produce(loop: Loop, broker: Broker, ctrl_c: CtrlC) -> list[str]:
    """The events of a program that continues after Ctrl-C."""
    seen: list[str] = []

    async def main() -> None:
        async with loop.connect(broker.bootstrap) as client, client.producer(linger=0) as producer:
            await producer.send("t", b"before")
            try:
                ctrl_c.armed = True
                for number in range(RECORDS):
                    await producer.send("t", b"%d" % number)
                await loop.checkpoint()
            except (KeyboardInterrupt, asyncio.CancelledError):
                seen.append("Ctrl-C")
                if ctrl_c.times > 1:
                    raise
            ctrl_c.armed = False
            await producer.send("t", b"after")
            seen.append("sent")

    with ctrl_c.coming():
        try:
            loop.run(main)
        except BaseException as error:
            seen.append(f"the client has ended: {error!r}")
    return seen


COUNTED: dict[Loop, int] = {}


def lines(loop: Loop) -> int:
    """About how many lines the core executes without an interrupt."""
    if loop not in COUNTED:
        broker = Broker(BrokerConfig(port=0))
        try:
            undisturbed = CtrlC(None)
            assert produce(loop, broker, undisturbed) == ["sent"]
            COUNTED[loop] = undisturbed.lines
        finally:
            broker.stop()
    return COUNTED[loop]


def test_the_core_is_traced_while_it_steps(loop: Loop) -> None:
    assert lines(loop) > 50 * RECORDS


@pytest.mark.parametrize("place", range(PLACES))
def test_ctrl_c_never_leaves_a_step_half_done(loop: Loop, ottla_broker: Broker, place: int) -> None:
    ctrl_c = CtrlC(lines(loop) * place // PLACES)
    seen = produce(loop, ottla_broker, ctrl_c)
    assert not ctrl_c.in_a_step
    assert seen == ["Ctrl-C", "sent"]


@pytest.mark.parametrize("place", range(PLACES))
def test_a_second_ctrl_c_ends_an_asyncio_program_wherever_it_comes(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr("ottla.sdk.produce.producer_leaving.CLOSE_TIMEOUT", 0.1)
    loop = LOOPS["asyncio"]
    ctrl_c = CtrlC(lines(loop) * place // PLACES, times=2)
    seen = produce(loop, ottla_broker, ctrl_c)
    assert ctrl_c.in_a_step
    assert seen[-1].startswith("the client has ended")  # with KeyboardInterrupt, or with the consequence of half a step
