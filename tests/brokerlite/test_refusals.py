"""What a full disk has the log say: it refuses as many batches as clients send."""

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.brokerlite.storage.refusals import Refusals
from ottla.complaints import INTERVAL
from ottla.errors import KafkaStorageError
from tests.brokerlite.machine import Machine, a_batch, producing
from tests.brokerlite.model_disk import ModelDisk

FULL = OSError(errno.ENOSPC, "No space left on device")
FOLDER = Path("/data/t-0")


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "ottla.brokerlite"):
        yield


def test_a_full_disk_is_one_line_however_many_batches_it_refuses(caplog: pytest.LogCaptureFixture) -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk)
    for topic in ("t", "u"):
        machine.core.create_topic(topic, 1, {})
    disk.room = 0
    caplog.clear()
    for topic in ("t", "u") * 50:
        answer = machine.ask(producing(a_batch(), topic=topic))
        assert answer.responses[0].partition_responses[0].error_code == KafkaStorageError.code
    assert caplog.messages == ["the disk refused to write: No space left on device"]
    machine.folder.abandon()
    [_, last] = caplog.messages
    assert last.startswith("the disk refused to write: No space left on device: 99 more in ")


def test_while_the_disk_stays_full_there_is_a_line_a_minute_with_the_number(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    for _ in range(int(3 * INTERVAL)):
        assert "cannot write in /data/t-0" in str(refusals.error("write", FOLDER, FULL))
        now += 1.0
    first, *counted = caplog.messages
    assert caplog.records[0].folder == str(FOLDER)  # type: ignore[attr-defined] # given as ``extra``
    assert counted == [f"{first}: 59 more in 60 s", f"{first}: 60 more in 60 s"]


def test_what_else_the_disk_refuses_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(lambda: 0.0)
    refusals.tell("write", FOLDER, FULL)
    refusals.tell("read", FOLDER, FULL)
    refusals.tell("write", FOLDER, OSError(errno.EIO, "Input/output error"))
    assert len(caplog.messages) == 3
