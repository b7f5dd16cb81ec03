"""The log lines about a full disk, which refuses as many batches as clients send."""

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
    full = "disk full, writes are refused: free space or delete records (/data)"
    assert caplog.messages == [full]
    machine.folder.abandon()
    [_, last] = caplog.messages
    assert last.startswith(f"{full}: 99 more in ")


def test_a_disk_that_has_room_again_is_said_once_and_a_later_lack_at_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(Path("/data"), lambda: now)
    for round_ in range(2):
        caplog.clear()
        for _ in range(3):
            refusals.tell("write", FOLDER, FULL)
            now += 1.0
            refusals.written()
        assert refusals.is_full, "a small batch found room between two large ones"
        now += 4.0
        refusals.written()
        refusals.written()
        assert not refusals.is_full
        full, more, room = caplog.records
        assert "disk full" in full.message and "2 more in" in more.message, round_
        assert room.message == "disk has free space again, accepting writes"
        assert vars(room)["folder"] == "/data" and vars(room)["seconds"] == 7


def test_the_first_batch_that_is_stored_after_a_full_disk_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ModelDisk()
    machine = Machine(Path("/data"), disk=disk)
    machine.core.create_topic("t", 1, {})
    disk.room = 0
    machine.ask(producing(a_batch()))
    disk.room = None
    monkeypatch.setattr("ottla.brokerlite.storage.refusals._STILL_FULL", 0.0)
    assert machine.ask(producing(a_batch())).responses[0].partition_responses[0].error_code == 0
    assert caplog.messages[-1] == "disk has free space again, accepting writes"


def test_while_the_disk_stays_full_there_is_a_line_a_minute_with_the_number(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(Path("/data"), lambda: now)
    for _ in range(int(3 * INTERVAL)):
        assert "cannot write in /data/t-0" in str(refusals.error("write", FOLDER, FULL))
        now += 1.0
    first, *counted = caplog.messages
    assert caplog.records[0].folder == str(FOLDER)  # type: ignore[attr-defined] # given as ``extra``
    assert counted == [f"{first}: 59 more in 60 s", f"{first}: 60 more in 60 s"]


def test_what_else_the_disk_refuses_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals(Path("/data"), lambda: 0.0)
    refusals.tell("write", FOLDER, FULL)
    refusals.tell("read", FOLDER, OSError(errno.EIO, "Input/output error"))
    refusals.tell("write", FOLDER, OSError(errno.EIO, "Input/output error"))
    assert len(caplog.messages) == 3
