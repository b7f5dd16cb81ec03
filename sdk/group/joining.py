"""JoinGroup and SyncGroup: the requests that wait at the coordinator for other members, legitimately for minutes.

Rules:
- If the coordinator's machine dies meanwhile, the connection stays open, so the client asks other nodes for the group's
  coordinator. If it has moved, the connection is closed, and the member joins again at the new coordinator.
- If other members delay the rebalance for more than a few seconds, because they are busy or dead, the member is
  notified.

Source: AbstractCoordinator.java, JoinGroupResponseHandler, SyncGroupResponseHandler.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.errors import InvalidSessionTimeout, MemberIdRequired, OttlaError, broker_error
from ottla.sdk.connection.versions import STATIC_MEMBERS
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.flow import LoneFlow, ask, sleep
from ottla.sdk.group.seat import Seat
from ottla.sdk.logs import logger
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")

_JOIN_SLACK = 5.0
"""Seconds that JoinGroup and SyncGroup may take beyond the time that members have to join."""
_ASK_AGAIN = 10.0
"""Seconds between two lookups of the group's coordinator while a request waits there."""
_LONG = 5.0
"""Seconds that JoinGroup or SyncGroup waits at the coordinator before the log gets a line: more than the three by which
brokers delay the first rebalance of a group (group.initial.rebalance.delay.ms)."""


def join(
    core: ClientCore,
    seat: Seat,
    node: Node,
    protocols: Sequence[JoinGroupRequestProtocol],
    held_up: Callable[[float], None],
) -> Steps[JoinGroupResponse]:
    """Send JoinGroup, and take the member id and the generation from its response, until the generation is complete.

    Args:
        held_up: called if the wait gets long.
    """
    options, began = seat.options, core.now
    request = JoinGroupRequest(
        group_id=seat.group,
        session_timeout_ms=int(options.session_timeout * 1000),
        rebalance_timeout_ms=int(options.max_poll_interval * 1000),
        member_id=seat.member_id,
        group_instance_id=options.instance_id,
        protocol_type="consumer",
        protocols=tuple(protocols),
    )
    versions = STATIC_MEMBERS if options.instance_id is not None else None
    answer = yield from _wait_there(core, seat, node, request, held_up, versions)
    seat.metrics.join_time.record(core.now - began, core.now)
    if answer.error_code:
        if answer.error_code == MemberIdRequired.code:
            seat.take(answer)
        asked_for = f" with session_timeout={options.session_timeout:g}"
        asked_for = asked_for if answer.error_code == InvalidSessionTimeout.code else ""
        raise broker_error(answer.error_code, f"JoinGroup of {seat.group!r}{asked_for}", repeatable=True)
    seat.take(answer)
    return answer  # type: ignore[no-any-return]


def sync(
    core: ClientCore,
    seat: Seat,
    node: Node,
    protocol: str,
    assignments: Sequence[SyncGroupRequestAssignment],
    held_up: Callable[[float], None],
) -> Steps[bytes]:
    """Send SyncGroup, with the assignments of all members if this one leads; return the member's own."""
    request = SyncGroupRequest(
        group_id=seat.group,
        generation_id=seat.generation,
        member_id=seat.member_id,
        group_instance_id=seat.options.instance_id,
        protocol_type="consumer",
        protocol_name=protocol,
        assignments=tuple(assignments),
    )
    answer = yield from _wait_there(core, seat, node, request, held_up)
    if answer.error_code:
        raise broker_error(answer.error_code, f"SyncGroup of {seat.group!r}", repeatable=True)
    return answer.assignment  # type: ignore[no-any-return]


def _wait_there(
    core: ClientCore,
    seat: Seat,
    node: Node,
    request: Any,
    held_up: Callable[[float], None],
    versions: tuple[int, int] | None = None,
) -> Steps[Any]:
    """Send a request that waits for other members; look up the coordinator regularly meanwhile."""
    until = core.now + seat.options.max_poll_interval + _JOIN_SLACK
    watch = LoneFlow(core, _watch_coordinator(core, seat, node))
    long = core.later(core.now + _LONG, held_up)
    try:
        return (yield from settled(ask(core, node, request, until, channel=seat.channel, versions=versions)))
    finally:
        watch.cancel()
        long.cancel()


def _watch_coordinator(core: ClientCore, seat: Seat, node: Node) -> Steps[None]:
    """Close the member's connection once the group's coordinator is another than ``node``."""
    while True:
        yield from sleep(core, _ASK_AGAIN)
        try:
            found = yield from settled(core.coordinators.ask(seat.group, core.now))
        except OttlaError:
            continue
        if found.id != node.id:
            log.warning("the group has another coordinator, rejoining", extra={"group": seat.group, "node": found.id})
            core.retire(seat.channel)  # this fails the waiting request, so the member joins again
            return
