"""Sends the heartbeats that show the coordinator that a member is alive, even while its user gives partitions up.

One heartbeat at a time is sent on the member's own connection, and none while JoinGroup or SyncGroup waits there: the
coordinator then knows that the member is alive. Heartbeats begin with the JoinGroup response, because no request waits
while the leader divides the partitions.

Source: AbstractCoordinator.java, HeartbeatThread and JoinGroupResponseHandler; Heartbeat.java.
"""

from typing import Protocol

from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.errors import OttlaError, RebalanceInProgress, broker_error
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, ask
from ottla.sdk.group.seat import Seat
from ottla.sdk.steps import Steps, settled
from ottla.sdk.timers import Timer


class Living(Protocol):
    """The member, as seen by its heartbeats; called inside the core."""

    @property
    def in_group(self) -> bool:
        """Whether heartbeats are due."""
        ...

    @property
    def parked(self) -> bool:
        """Whether a request waits at the coordinator, so that the connection is blocked."""
        ...

    def alive(self, now: float) -> None:
        """Take note that the coordinator knows the member."""
        ...

    def troubled(self, error: OttlaError, now: float) -> None:
        """Take note that a heartbeat failed, or that its response is an error."""
        ...


class Heartbeats:
    """Sends the heartbeats of one member, from the first `schedule` on."""

    def __init__(self, core: ClientCore, seat: Seat, member: Living) -> None:
        self._core, self._seat, self._member = core, seat, member
        self._timer: Timer | None = None
        self._beat: LoneFlow | None = None
        """The last heartbeat, which may be in flight."""

    def schedule(self, when: float) -> None:
        """Send the next heartbeat at ``when``."""
        self.stop()
        self._timer = self._core.later(when, self._begin)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, now: float) -> None:
        if not self._member.in_group:
            return
        self.schedule(now + self._seat.options.heartbeat_interval)
        if not self._member.parked and (self._beat is None or self._beat.outcome.done):
            self._beat = LoneFlow(self._core, self._heartbeat())

    def _heartbeat(self) -> Steps[None]:
        """Send one heartbeat, and tell the member how it went."""
        core, member, seat = self._core, self._member, self._seat
        generation = seat.generation
        try:
            node = yield from settled(core.coordinators.find(seat.group, core.now))
        except OttlaError as error:
            if self._is_due(generation):
                member.troubled(error, core.now)
            return
        if not self._is_due(generation):
            return
        request = HeartbeatRequest(
            group_id=seat.group,
            generation_id=generation,
            member_id=seat.member_id,
            group_instance_id=seat.options.instance_id,
        )
        sent, timeout = core.now, min(core.options.request_timeout, seat.options.session_timeout)
        trouble: OttlaError | None = None
        try:
            answer = yield from settled(ask(core, node, request, sent + timeout, channel=seat.channel))
            if answer.error_code:
                raise broker_error(answer.error_code, f"Heartbeat of {seat.group!r}", repeatable=True)
        except OttlaError as error:
            trouble = error
        if generation != seat.generation or not member.in_group:
            return  # the answer comes too late to say anything about the member
        seat.metrics.heartbeats.record(core.now - sent, core.now)
        # With REBALANCE_IN_PROGRESS, too, the coordinator knows the member and restarts its session timeout.
        if trouble is None or isinstance(trouble, RebalanceInProgress):
            member.alive(core.now)
        if trouble is not None:
            member.troubled(trouble, core.now)

    def _is_due(self, generation: int) -> bool:
        """Whether the heartbeat still concerns the member, after the lookup of the coordinator."""
        return generation == self._seat.generation and self._member.in_group and not self._member.parked
