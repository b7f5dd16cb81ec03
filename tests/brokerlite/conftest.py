"""Fixtures of brokerlite's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokerlite.machine import Machine
from tests.steps import no_step_holds_the_loop  # noqa: F401 # it watches each test here


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A broker's machine with the topic ``t`` of three partitions."""
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 3, {})
    yield machine
    machine.folder.abandon()
