"""Sends LeaveGroup, so that the other members need not wait until this member's session times out.

The coordinator is looked up, and the request is retried after retriable errors, until the deadline. A static member
(KIP-345) does not send LeaveGroup: its partitions stay assigned until it returns, or its session times out.

Source: AbstractCoordinator.java, maybeLeaveGroup.
"""

from ottla.codec.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.errors import OttlaError, UnknownMemberId, broker_error
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import LEAVE_AS_MEMBERS, LEAVE_WITH_REASON
from ottla.sdk.core import ClientCore
from ottla.sdk.group.seat import Seat
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome

log = logger("ottla.sdk.consumer")


class Goodbye:
    """Leaves the group for one member; copies its ``seat``, which a new member may take over soon.

    Attributes:
        outcome: settled when the coordinator has answered, or when there will be no more attempts.
    """

    def __init__(self, core: ClientCore, seat: Seat, why: str, now: float, until: float) -> None:
        self._core, self._group, self._member_id, self._why, self._until = core, seat.group, seat.member_id, why, until
        self._session_timeout = seat.options.session_timeout
        self.outcome: Outcome[None] = Outcome()
        self._failures = 0
        if not seat.member_id or seat.options.instance_id is not None or core.closed is not None:
            self.outcome.succeed(None)
            return
        self.outcome.when_done(core.later(until, self._expire).cancel)
        core.fail_on_close(self.outcome)
        self._find(now)

    def _expire(self, now: float) -> None:
        self._given_up(f"{self._core.coordinators.where(self._group)}")

    def _given_up(self, why: str) -> None:
        if self.outcome.done:
            return
        log.warning(
            "a member left, but LeaveGroup failed, so its group waits until the session times out",
            extra={"group": self._group, "session_timeout": self._session_timeout, "why": why},
        )
        self.outcome.succeed(None)

    def _find(self, now: float) -> None:
        if self.outcome.done:
            return
        found = self._core.coordinators.find(self._group, now)

        def arrived() -> None:
            self._core.soon(send)

        def send(now: float) -> None:
            if self.outcome.done:
                return
            if found.error is not None:
                self._failed(found.error, now)
                return
            # Not on the member's own connection: JoinGroup may block it.
            exchange = Exchange(LeaveGroupRequest, self._answered, self._until, build=self._request)
            self._core.submit(found.result(), exchange, now)

        found.when_done(arrived)

    def _request(self, version: int) -> LeaveGroupRequest:
        if version < LEAVE_AS_MEMBERS:
            return LeaveGroupRequest(group_id=self._group, member_id=self._member_id)
        # KIP-800; like Java's client, which truncates the reason to 255 characters (JoinGroupRequest.java).
        leaving = MemberIdentity(
            member_id=self._member_id, reason=self._why[:255] if version >= LEAVE_WITH_REASON else None
        )
        return LeaveGroupRequest(group_id=self._group, members=(leaving,))

    def _answered(self, answer: LeaveGroupResponse | OttlaError, now: float) -> None:
        if self.outcome.done:
            return
        if isinstance(answer, LeaveGroupResponse) and answer.error_code:
            answer = broker_error(answer.error_code, f"LeaveGroup of {self._group!r}")
        if isinstance(answer, OttlaError) and not isinstance(answer, UnknownMemberId):
            self._failed(answer, now)
        else:
            self.outcome.succeed(None)

    def _failed(self, error: OttlaError, now: float) -> None:
        self._core.coordinators.heard(self._group, error)
        if not error.retriable or now >= self._until:
            self._given_up(str(error))
            return
        self._core.later(now + self._core.backoff(self._failures), self._find)
        self._failures += 1
