"""Sends the heartbeats that show the coordinator that a member is alive, even while its user gives partitions up.

One heartbeat at a time is sent on the member's own connection, and none while JoinGroup or SyncGroup waits there: the
coordinator then knows that the member is alive. Heartbeats begin with the JoinGroup response, because no request waits
while the leader divides the partitions.

Source: AbstractCoordinator.java, HeartbeatThread and JoinGroupResponseHandler; Heartbeat.java.
"""

from typing import Protocol

from ottla.codec.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.errors import OttlaError, RebalanceInProgress, broker_error
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.group.seat import Seat
from ottla.sdk.outcome import Outcome
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
        self._due: Timer | None = None
        self._under_way: Outcome[None] | None = None
        """The heartbeat in flight."""

    def schedule(self, when: float) -> None:
        """Send the next heartbeat at ``when``."""
        self.stop()
        self._due = self._core.later(when, self._beat)

    def stop(self) -> None:
        if self._due is not None:
            self._due.cancel()

    def _beat(self, now: float) -> None:
        if not self._member.in_group:
            return
        self.schedule(now + self._seat.options.heartbeat_interval)
        if self._member.parked or self._under_way is not None:
            return
        beat = self._under_way = Outcome()
        beat.when_done(self._ended)
        found = self._core.coordinators.find(self._seat.group, now)
        generation = self._seat.generation

        def arrived() -> None:
            self._core.soon(lambda now: self._send(beat, found, generation, now))

        found.when_done(arrived)

    def _ended(self) -> None:
        self._under_way = None

    def _send(self, beat: Outcome[None], found: Outcome[Node], generation: int, now: float) -> None:
        member, seat = self._member, self._seat
        if found.error is not None:
            beat.succeed(None)
            member.troubled(found.error, now)
            return
        if generation != seat.generation or member.parked or not member.in_group:
            beat.succeed(None)
            return
        request = HeartbeatRequest(
            group_id=seat.group,
            generation_id=generation,
            member_id=seat.member_id,
            group_instance_id=seat.options.instance_id,
        )

        def ended(answer: HeartbeatResponse | OttlaError, answered: float) -> None:
            beat.succeed(None)
            if generation == seat.generation and member.in_group:
                seat.metrics.heartbeats.record(answered - now, answered)
                self._answered(answer, answered)

        until = now + min(self._core.options.request_timeout, seat.options.session_timeout)
        self._core.submit(found.result(), Exchange(request, ended, until), now, seat.channel)

    def _answered(self, answer: HeartbeatResponse | OttlaError, now: float) -> None:
        if isinstance(answer, HeartbeatResponse):
            # With REBALANCE_IN_PROGRESS, too, the coordinator knows the member and restarts its session timeout.
            if answer.error_code in (0, RebalanceInProgress.code):
                self._member.alive(now)
            if not answer.error_code:
                return
            answer = broker_error(answer.error_code, f"Heartbeat of {self._seat.group!r}", repeatable=True)
        self._member.troubled(answer, now)
