"""Tells the coordinator that a member leaves, so that the others need not wait until its session times out.

The coordinator is looked up, and the request is retried after retriable errors, until the deadline.

Source: AbstractCoordinator.java, maybeLeaveGroup.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ottla.codec.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.errors import OttlaError, UnknownMemberId, broker_error
from ottla.sdk.connection.versions import LEAVE_AS_MEMBERS, LEAVE_WITH_REASON, Range
from ottla.sdk.core import ClientCore
from ottla.sdk.events import GENERAL
from ottla.sdk.flow import Flow, FlowExpired, ask, sleep
from ottla.sdk.group.seat import Seat
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, settled_with
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")


class Goodbye(NamedTuple):
    """The request by which a member leaves, in the terms of its group protocol.

    Attributes:
        request: the message, for example a LeaveGroupRequest.
        fit: adapts the message to the version of the API.
        gone: error codes that say that the group does not have the member any more.
        facts: for the line of the log that says that the coordinator did not answer.
    """

    group: str
    request: Any
    gone: frozenset[int]
    facts: Mapping[str, object]
    fit: Callable[[int], Any] | None = None
    versions: Range | None = None
    channel: str = GENERAL


def leave_group(core: ClientCore, seat: Seat, why: str, until: float) -> Outcome[None]:
    """Leave a classic group for one member, whose ``seat`` a new member may take over at once.

    A static member (KIP-345) does not send LeaveGroup: its partitions stay assigned until it returns, or its session
    times out.
    """
    if not seat.member_id or seat.options.instance_id is not None:
        return nothing_to_say()
    seat = replace(seat)
    goodbye = Goodbye(
        seat.group,
        LeaveGroupRequest,
        frozenset((UnknownMemberId.code,)),
        {"session_timeout": seat.options.session_timeout},
        # Not on the member's own connection: JoinGroup may block it.
        fit=partial(_request, seat, why),
    )
    return say_good_bye(core, goodbye, until)


def nothing_to_say() -> Outcome[None]:
    """The outcome of a goodbye that no coordinator has to know of."""
    return settled_with(None)


def say_good_bye(core: ClientCore, goodbye: Goodbye, until: float) -> Outcome[None]:
    """Send a goodbye. Settled when the coordinator has answered, or when there will be no more attempts; then the log
    says why.
    """
    if core.closed is not None:
        return nothing_to_say()
    return Flow(core, _leave(core, goodbye, until), until).outcome


def _leave(core: ClientCore, goodbye: Goodbye, until: float) -> Steps[None]:
    attempts = itertools.count()
    group = goodbye.group
    try:
        while True:
            try:
                node = yield from settled(core.coordinators.find(group, core.now))
                answer = yield from settled(
                    ask(
                        core,
                        node,
                        goodbye.request,
                        until,
                        channel=goodbye.channel,
                        build=goodbye.fit,
                        versions=goodbye.versions,
                    )
                )
                if not answer.error_code or answer.error_code in goodbye.gone:
                    return
                raise broker_error(answer.error_code, f"leaving group {group!r}")
            except FlowExpired:
                raise
            except OttlaError as error:
                core.coordinators.heard(group, error)
                if not error.retriable or core.now >= until:
                    raise
            yield from sleep(core, core.backoff(next(attempts)))
    except OttlaError as error:
        why = core.coordinators.where(group) if isinstance(error, FlowExpired) else str(error)
        log.warning(
            "leaving the group was not confirmed: the group waits for the session timeout",
            extra={"group": group, **goodbye.facts, "why": why},
        )


def _request(seat: Seat, why: str, version: int) -> LeaveGroupRequest:
    if version < LEAVE_AS_MEMBERS:
        return LeaveGroupRequest(group_id=seat.group, member_id=seat.member_id)
    # KIP-800; like Java's client, which truncates the reason to 255 characters (JoinGroupRequest.java).
    leaving = MemberIdentity(member_id=seat.member_id, reason=why[:255] if version >= LEAVE_WITH_REASON else None)
    return LeaveGroupRequest(group_id=seat.group, members=(leaving,))
