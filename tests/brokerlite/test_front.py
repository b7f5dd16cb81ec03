"""A failure with one client's response affects no other: the broker's service in front of a core that fails."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from ottla.brokerlite import serve
from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.core import Action, Answer, BrokerCore, Call
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.jobs import Job
from ottla.brokerlite.serve import _BrokerService
from ottla.codec.apis.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from ottla.codec.apis.heartbeat import HeartbeatResponse
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.frames import build_request, build_response
from tests.brokerlite.machine import Machine, a_batch, fetching, producing
from tests.pairs import Place, listening, peer
from tests.serving import LOCAL, closed, received, until

HEARTBEAT = b"\0\x0c\0\4\0\0\0"
"""The beginning of a Heartbeat v4; the last byte of the correlation id and the rest follow."""
REST = b"\0\1x\0\2g\0\0\0\1\2m\0\0"
FINE = HeartbeatResponse(error_code=0)


def heartbeat(number: int) -> bytes:
    frame = HEARTBEAT + bytes([number]) + REST
    return len(frame).to_bytes(4, "big") + frame


class Core:
    """Stands for `BrokerCore`: it keeps the tickets, and answers each request as the test says."""

    def __init__(self) -> None:
        self.tickets: list[Any] = []
        self.actions: list[Action] = []
        self.on_request: Callable[[], None] = lambda: None
        self.on_poll: Callable[[], None] = lambda: None
        self.deadline: float | None = None
        self.unsynced: int | None = None
        self.polls = 0
        self.clock = Clock.at(0.0, 0)

    def handle(self, ticket: Any, call: Call) -> None:
        assert call.session.peer_host == LOCAL and call.session.principal == "User:ANONYMOUS"
        self.tickets.append(ticket)
        self.on_request()

    def poll(self, now: float) -> list[Action]:
        self.polls += 1
        self.on_poll()
        actions, self.actions = self.actions, []
        return actions

    def jobs(self) -> list[Job]:
        return []

    def lost(self, connection: int, now: float) -> None: ...

    def disconnected(self, connection: int, now: float) -> None: ...


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@asynccontextmanager
async def a_front(core: Core | BrokerCore) -> AsyncIterator[Place]:
    front = _BrokerService()
    front.core = cast(BrokerCore, core)
    async with listening(front) as (_, place), trio.open_nursery() as nursery:
        nursery.start_soon(front.pump)
        yield place
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("message", [HeartbeatResponse(error_code=10**6), object()], ids=["does not fit", "none"])
async def test_an_answer_that_cannot_be_built_closes_only_its_own_connection(
    clock: MockClock, caplog: pytest.LogCaptureFixture, message: object
) -> None:
    core = Core()
    async with a_front(core) as place, peer(place) as waiting, peer(place) as asking:
        await waiting.send_all(heartbeat(1))
        await until(lambda: core.tickets)

        def answer_both() -> None:
            core.actions += [Answer(core.tickets[0], message, 4), Answer(core.tickets[1], FINE, 4)]

        core.on_request = answer_both
        await asking.send_all(heartbeat(2))
        expected = build_response(FINE, 4, 2)
        assert await received(asking, len(expected)) == expected
        await closed(waiting)
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_request_that_fails_half_way_keeps_no_answer_from_others(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    core = Core()
    async with a_front(core) as place, peer(place) as waiting, peer(place) as asking:
        await waiting.send_all(heartbeat(1))
        await until(lambda: core.tickets)

        def fail() -> None:
            core.actions.append(Answer(core.tickets[0], FINE, 4))
            raise ZeroDivisionError

        core.on_request = fail
        await asking.send_all(heartbeat(2))
        await closed(asking)
        expected = build_response(FINE, 4, 1)
        assert await received(waiting, len(expected)) == expected


async def test_a_core_that_fails_to_poll_ends_nothing_and_is_asked_again(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    core = Core()
    async with a_front(core) as place, peer(place) as asking:

        def fail() -> None:
            if core.polls < 3:
                core.deadline = trio.current_time()
                raise ZeroDivisionError
            core.deadline = None

        core.on_poll = fail
        core.on_request = lambda: core.actions.append(Answer(core.tickets[0], FINE, 4))
        await asking.send_all(heartbeat(1))
        expected = build_response(FINE, 4, 1)
        assert await received(asking, len(expected)) == expected
        assert core.polls == 3 and len(caplog.records) == 2


async def test_an_answer_that_is_too_large_for_a_frame_closes_its_connection_and_is_no_bug(
    clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    core = Core()
    large = DescribeGroupsResponse(
        groups=(
            DescribedGroup(
                error_code=0,
                group_id="g",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="a",
                members=(
                    DescribedGroupMember(
                        member_id="m",
                        client_id="c",
                        client_host="h",
                        member_metadata=bytes(2**20),
                        member_assignment=b"",
                    ),
                )
                * 2100,
            ),
        )
    )

    def answer() -> None:
        core.actions.append(Answer(core.tickets[-1], large, 4))

    async with a_front(core) as port, peer(port) as one:
        core.on_request = answer
        await one.send_all(heartbeat(1))
        await closed(one)
    (line,) = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert "its response is too large: a frame of" in line.getMessage() and line.exc_info is None


@pytest.mark.parametrize("waiting", ["Fetch", "JoinGroup"])
async def test_a_vanished_client_with_a_waiting_request_is_noticed_soon_and_its_other_requests_are_carried_out(
    clock: MockClock, tmp_path: Path, waiting: str
) -> None:
    long = 100_000.0
    machine = Machine(tmp_path / "data", groups=GroupSettings(initial_rebalance_delay=long))
    machine.core.create_topic("t", 1, {})
    joining = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=int(long * 1000),
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    fetch = build_request(fetching(wait=long), 12, 1, "c")
    requests = [
        fetch if waiting == "Fetch" else build_request(joining, 3, 1, "c"),
        fetch,
        build_request(producing(a_batch(), acks=0), 9, 3, "c"),
    ]
    async with a_front(machine.core) as place:
        async with peer(place) as stream:
            await stream.send_all(b"".join(requests))
            await trio.sleep(2)
            assert place.open
        await until(lambda: machine.log().end_offset and not place.open)
    assert trio.current_time() < 10
    machine.folder.abandon()


@pytest.mark.parametrize("names", [20, 21])
async def test_a_request_with_too_many_names_is_refused_before_it_delays_others(
    clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, names: int
) -> None:
    monkeypatch.setattr(serve, "MOST_NAMES", 20)
    core = Core()
    core.on_request = lambda: core.actions.append(Answer(core.tickets[-1], FINE, 4))
    topics = tuple(MetadataRequestTopic(name=f"t{i}") for i in range(names))
    async with a_front(core) as place, peer(place) as asking, peer(place) as other:
        await asking.send_all(build_request(MetadataRequest(topics=topics), 9, 1, "c"))
        expected = build_response(FINE, 4, 1)
        if names > 20:
            await closed(asking)
        else:
            assert await received(asking, len(expected)) == expected
        await other.send_all(heartbeat(1))
        assert await received(other, len(expected)) == expected
    lines = [record.getMessage() for record in caplog.records]
    refusal = "connection refused: Metadata names more than 20 topics, partitions or groups"
    assert lines == ([refusal] if names > 20 else [])
