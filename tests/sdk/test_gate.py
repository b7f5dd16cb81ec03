"""The gate alone: which code is inside, and when log lines are written."""

import logging
import random
from collections.abc import Callable

import pytest

from ottla.errors import LocalProtocolError
from ottla.sdk.core import ClientCore
from ottla.sdk.gate import Gate
from ottla.sdk.logs import HELD, logger
from ottla.sdk.options import Options
from tests.sdk.virtual import Virtual

log = logger("ottla.sdk.test_gate")


def test_lines_are_held_until_the_step_is_over(caplog: pytest.LogCaptureFixture) -> None:
    later: list[Callable[[], None]] = []
    gate = Gate(later.append)
    with gate:
        log.warning("within")
        with pytest.raises(LocalProtocolError, match="the client is busy"):
            gate.__enter__()
    assert not caplog.records
    later.pop()()
    log.warning("outside")
    assert [each.getMessage() for each in caplog.records] == ["within", "outside"]


def test_an_interrupt_between_entering_and_leaving_holds_no_lines_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    later: list[Callable[[], None]] = []
    gate = Gate(later.append)
    gate.__enter__()  # without `__exit__`, as if Ctrl-C came at its first line
    log.warning("within")
    gate.release()
    gate.release()
    assert HELD.lines is None
    log.warning("after")
    (write,) = later
    write()
    assert [each.getMessage() for each in caplog.records] == ["after", "within"]
    with gate:
        pass


def test_a_client_that_ctrl_c_has_thrown_out_of_its_step_is_closed_and_holds_no_lines() -> None:
    virtual = Virtual()
    driver = virtual(ClientCore([("h", 1)], Options(), random.Random(1)))
    driver.core.gate.__enter__()
    driver._broken(KeyboardInterrupt())
    assert HELD.lines is None and driver.core.closed is not None
    assert logging.getLogger("ottla.sdk").isEnabledFor(logging.WARNING)
