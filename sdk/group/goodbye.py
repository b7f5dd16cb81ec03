"""Sends LeaveGroup, so that the other members need not wait until this member's session times out.

The coordinator is looked up, and the request is retried after retriable errors, until the deadline. A static member
(KIP-345) does not send LeaveGroup: its partitions stay assigned until it returns, or its session times out.

Source: AbstractCoordinator.java, maybeLeaveGroup.
"""

import itertools
from dataclasses import replace
from functools import partial

from ottla.codec.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.errors import OttlaError, UnknownMemberId, broker_error
from ottla.sdk.connection.versions import LEAVE_AS_MEMBERS, LEAVE_WITH_REASON
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import Flow, FlowExpired, ask, sleep
from ottla.sdk.group.seat import Seat
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")


def leave_group(core: ClientCore, seat: Seat, why: str, until: float) -> Outcome[None]:
    """Leave the group for one member, whose ``seat`` a new member may take over at once.

    Settled when the coordinator has answered, or when there will be no more attempts; then the log says why.
    """
    if not seat.member_id or seat.options.instance_id is not None or core.closed is not None:
        nothing: Outcome[None] = Outcome()
        nothing.succeed(None)
        return nothing
    return Flow(core, _leave(core, replace(seat), why, until), until).outcome


def _leave(core: ClientCore, seat: Seat, why: str, until: float) -> Steps[None]:
    attempts = itertools.count()
    try:
        while True:
            try:
                node = yield from settled(core.coordinators.find(seat.group, core.now))
                # Not on the member's own connection: JoinGroup may block it.
                answer = yield from settled(
                    ask(core, node, LeaveGroupRequest, until, build=partial(_request, seat, why))
                )
                if answer.error_code in (0, UnknownMemberId.code):
                    return
                raise broker_error(answer.error_code, f"LeaveGroup of {seat.group!r}")
            except FlowExpired:
                raise
            except OttlaError as error:
                core.coordinators.heard(seat.group, error)
                if not error.retriable or core.now >= until:
                    raise
            yield from sleep(core, core.backoff(next(attempts)))
    except OttlaError as error:
        log.warning(
            "a member left, but LeaveGroup failed, so its group waits until the session times out",
            extra={
                "group": seat.group,
                "session_timeout": seat.options.session_timeout,
                "why": core.coordinators.where(seat.group) if isinstance(error, FlowExpired) else str(error),
            },
        )


def _request(seat: Seat, why: str, version: int) -> LeaveGroupRequest:
    if version < LEAVE_AS_MEMBERS:
        return LeaveGroupRequest(group_id=seat.group, member_id=seat.member_id)
    # KIP-800; like Java's client, which truncates the reason to 255 characters (JoinGroupRequest.java).
    leaving = MemberIdentity(member_id=seat.member_id, reason=why[:255] if version >= LEAVE_WITH_REASON else None)
    return LeaveGroupRequest(group_id=seat.group, members=(leaving,))
