"""The access log: a line for each request while it is on, written by a thread."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from ottla.client_info import ClientInfo
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.frames import build_request, framed
from ottla.errors import ConfigurationError, NotLeaderOrFollower, RequestTimedOut
from ottla.serve import PendingAnswer, observer_thread
from ottla.serve.access_log import AccessLog, text_of
from ottla.serve.answered import AnsweredRequest, ObservedRequest
from ottla.serve.line_file import STDERR
from tests.pairs import listening, peer
from tests.patience import HUNG
from tests.serving import Desk, received, until

REQUEST = build_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 7, 'sh"op\n\x9b2J\u202e')


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def answer(frame: bytes, pending: PendingAnswer) -> None:
    pending.send(framed(b"answer"), errors=(0, RequestTimedOut.code, NotLeaderOrFollower.code, RequestTimedOut.code))


async def test_a_request_has_a_line(clock: MockClock, tmp_path: Path) -> None:
    file = tmp_path / "access"
    async with listening(Desk(answer)) as (listener, place):
        listener.log_access(str(file))
        async with peer(place) as stream:
            await stream.send_all(REQUEST + framed(b"short"))
            await received(stream, 2 * len(framed(b"answer")))
    first, second = lines(file)
    assert first["time"].endswith("Z") and first["milliseconds"] >= 0 and first["peer"]
    expected = {"client_id": 'sh"op\n\x9b2J\u202e', "request": "Heartbeat", "version": 4}
    assert file.read_text().isascii(), "a terminal that shows it obeys nobody"
    expected |= {"bytes": len(REQUEST) - 4, "response_bytes": 10, "error": "NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT"}
    assert expected.items() <= first.items()
    assert (second["request"], second["client_id"], second["bytes"]) == ("unknown (-1)", None, 5)


async def test_a_request_whose_connection_ends_before_its_response_has_a_line(clock: MockClock, tmp_path: Path) -> None:
    file, desk = tmp_path / "access", Desk()
    async with listening(desk) as (listener, place):
        listener.log_access(str(file))
        async with peer(place) as stream:
            await stream.send_all(REQUEST)
            await until(lambda: desk.asked)
    [line] = lines(file)
    assert (line["response_bytes"], line["error"]) == (None, "no response: the connection has ended")


async def test_it_is_switched_while_connections_are_open(clock: MockClock, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with listening(Desk(answer)) as (listener, place), peer(place) as stream:
        for to in (None, str(one), str(two), None):
            listener.log_access(to)
            with pytest.raises(ConfigurationError, match="access-log: cannot write to"):
                listener.log_access(str(tmp_path / "no folder" / "file"))
            await stream.send_all(REQUEST)
            await received(stream, len(framed(b"answer")))
    for thread in threading.enumerate():
        if thread.name == "access log":
            thread.join(HUNG)
    assert [len(lines(file)) for file in (one, two)] == [1, 1]


CLIENT = ClientInfo(local_host="here", local_port=1, peer_host="there", peer_port=2)


def request_of(number: int) -> AnsweredRequest:
    return AnsweredRequest(CLIENT, 0, 9, f"c{number}", 100, 50, (), 10**9, 0.001)


def test_a_file_that_was_renamed_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "access"
    log = AccessLog(str(file))
    file.rename(tmp_path / "access.1")
    log(request_of(1))
    log.end()
    log.join()
    assert [line["client_id"] for line in lines(file)] == ["c1"]


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="the pipe has no reader"):
        AccessLog(str(pipe))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(pipe))
    log(request_of(1))
    log.end()
    log.join()
    assert json.loads(os.read(reader, 1000))["client_id"] == "c1"
    os.close(reader)


@pytest.mark.parametrize("late", [False, True])
def test_a_full_pipe_keeps_no_thread_and_no_descriptor(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_thread, "END", 0.0 if not late else HUNG)
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    filler = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(filler, bytes(4096))
    log = AccessLog(str(pipe))
    log(request_of(1))
    log.end()
    if late:
        assert os.read(reader, 2**16)
    for thread in threading.enumerate():
        if thread.name == "access log":
            thread.join(HUNG)
            assert not thread.is_alive()
    os.close(filler)
    rest = b""
    while data := os.read(reader, 2**16):  # it ends, so no other descriptor can write
        rest += data
    assert rest.endswith(b"}\n") == late
    os.close(reader)


def test_lines_beyond_the_bound_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer_thread, "MOST_WAITING", 0)
    log = AccessLog(str(tmp_path / "access"))
    for number in range(3):
        log(request_of(number))
    log.end()
    log.join()
    assert [line.get("dropped_lines") for line in lines(tmp_path / "access")] == [3]


def test_lines_may_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog(STDERR)
    log(request_of(1))
    log.end()
    log.join()
    # librdkafka's clients of earlier tests may write to the same descriptor.
    [line] = [each for each in capfd.readouterr().err.splitlines() if each.startswith("{")]
    assert json.loads(line)["client_id"] == "c1"


@pytest.mark.parametrize("size", range(len(REQUEST)))
def test_a_header_may_be_cut_off_anywhere(size: int) -> None:
    seen: list[AnsweredRequest] = []
    ObservedRequest(CLIENT, REQUEST[4 : 4 + size], min(size, len(REQUEST) - 4)).answered((seen.append,), None, ())
    assert [each.size for each in seen] == [min(size, len(REQUEST) - 4)]


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0correct horse battery",
        b"\0A\0correct horse battery",
        b"\0\0correct horse battery",
        b"\0A\0\tcorrect horse battery",
        b"\0Z\0\x1fcorrect horse battery",
        b"\0A\0\xc3\xa9correct horse battery",
    ],
)
def test_a_token_without_a_header_has_a_line_without_any_part_of_it(token: bytes) -> None:
    seen: list[AnsweredRequest] = []
    ObservedRequest(CLIENT, token, len(token)).answered((seen.append,), None, ())
    [request] = seen
    assert (request.key, request.version, request.client_id, request.size) == (-1, -1, None, len(token))
    line = json.loads(text_of(request))
    assert (line["request"], line["version"], line["client_id"]) == ("unknown (-1)", -1, None)


def test_a_newer_api_versions_has_a_line_because_clients_ask_so_for_the_versions() -> None:
    seen: list[AnsweredRequest] = []
    ObservedRequest(CLIENT, b"\0\x12\0\5\0\0\0\1\0\2id", 12).answered((seen.append,), 6, (35,))
    assert [(each.key, each.version, each.client_id) for each in seen] == [(18, 5, "id")]
