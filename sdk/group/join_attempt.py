"""Runs one attempt of a member to get an assignment: JoinGroup, then SyncGroup.

Rules:
- The subscription's user data may come from a user's own assignor, so it is built outside of the core.
- JoinGroup and SyncGroup wait at the coordinator for other members, which may legitimately take minutes. If the
  coordinator's machine dies meanwhile, the connection stays open, so the client asks other nodes for the group's
  coordinator. If it has moved, the attempt ends, and the next one goes to the new coordinator.
- If other members delay the rebalance for more than a few seconds, because they are busy or dead, the member is
  notified.
- After the attempt has ended, late responses are ignored.

Source: AbstractCoordinator.java, JoinGroupResponseHandler, SyncGroupResponseHandler.
"""

from dataclasses import dataclass
from typing import Protocol

from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.errors import (
    DecodeError,
    InvalidSessionTimeout,
    MemberIdRequired,
    OttlaError,
    RemoteProtocolError,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.group.assignors import Assignor, build_subscription, parse_assigned, parse_member
from ottla.sdk.group.leader import Assignments, Leader, run_assignor
from ottla.sdk.group.seat import Seat
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

_JOIN_SLACK = 5.0
"""Seconds that JoinGroup and SyncGroup may take beyond the time that members have to join."""
_ASK_AGAIN = 10.0
"""Seconds between two lookups of the group's coordinator while a request waits there."""


_LONG = 5.0
"""Seconds that JoinGroup or SyncGroup waits at the coordinator before the log gets a line: more than the three by which
brokers delay the first rebalance of a group (group.initial.rebalance.delay.ms)."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The contents of a member's subscription.

    Attributes:
        owned: the partitions that the member continues to read; in an eager group, its last ones.
        generation: the generation in which ``owned`` was assigned.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    generation: int
    cooperative: bool


class JoiningMember(Protocol):
    """The member, as seen by its attempt to join; called inside the core."""

    def join_sent(self, now: float) -> None: ...
    def joined(self, now: float) -> None: ...
    def sync_sent(self, now: float) -> None: ...
    def synced(self, places: tuple[TopicPartition, ...], now: float) -> None: ...
    def held_up(self, now: float) -> None: ...
    def join_failed(self, error: OttlaError, now: float) -> None: ...
    def fail(self, error: OttlaError, now: float) -> None: ...


class JoinAttempt:
    """Joins the group, beginning after ``delay`` seconds, and notifies ``member`` of the progress."""

    def __init__(
        self,
        core: ClientCore,
        seat: Seat,
        claim: MemberSubscription,
        leader: Leader,
        member: JoiningMember,
        now: float,
        delay: float,
    ) -> None:
        self._core, self._seat, self.claim, self._leader, self._member = core, seat, claim, leader, member
        self._over: Outcome[None] = Outcome()
        self._waiting: Timer | None = None
        """The next lookup of the coordinator, to see whether the request waits at the right node."""
        self._long: Timer | None = None
        """When the member is notified of a long wait."""
        self._begin: Timer = core.later(now + delay, self._find)

    def end(self) -> None:
        """End the attempt: the member no longer needs it."""
        self._over.succeed(None)
        self._begin.cancel()
        self._unpark()

    # -- JoinGroup ---------------------------------------------------------------------------------------------------

    def _find(self, now: float) -> None:
        found = self._core.coordinators.find(self._seat.group, now)
        found.when_done(lambda: self._core.soon(lambda now: self._found(found, now)))

    def _found(self, found: Outcome[Node], now: float) -> None:
        if self._over.done:
            return
        if found.error is not None:
            self._member.join_failed(found.error, now)
            return
        node = found.result()
        built: Outcome[tuple[JoinGroupRequestProtocol, ...]] = Outcome()
        assignors = self._seat.options.assignors

        def build() -> tuple[JoinGroupRequestProtocol, ...]:
            return tuple(JoinGroupRequestProtocol(name=each.name, metadata=self._describe(each)) for each in assignors)

        built.when_done(lambda: self._core.soon(lambda now: self._join(node, built, now)))
        run_assignor(self._core, "', '".join(each.name for each in assignors), build, built)

    def _describe(self, assignor: Assignor) -> bytes:
        return build_subscription(
            assignor,
            self.claim.topics,
            owned=self.claim.owned,
            generation=self.claim.generation,
            cooperative=self.claim.cooperative,
            rack=self._core.options.rack,
        )

    def _join(self, node: Node, built: Outcome[tuple[JoinGroupRequestProtocol, ...]], now: float) -> None:
        if self._over.done:
            return
        if built.error is not None:
            self._member.join_failed(built.error, now)
            return
        seat, options = self._seat, self._seat.options
        request = JoinGroupRequest(
            group_id=seat.group,
            session_timeout_ms=int(options.session_timeout * 1000),
            rebalance_timeout_ms=int(options.max_poll_interval * 1000),
            member_id=seat.member_id,
            group_instance_id=options.instance_id,
            protocol_type="consumer",
            protocols=built.result(),
        )

        def ended(answer: JoinGroupResponse | OttlaError, answered: float) -> None:
            if not self._over.done:
                self._unpark()
                if isinstance(answer, JoinGroupResponse):
                    seat.metrics.join_time.record(answered - now, answered)
                self._join_answered(node, answer, answered)

        # Brokers before 2.3 do not know static members; a version error says so.
        versions = (5, 9) if options.instance_id is not None else None
        self._member.join_sent(now)
        self._park(node, Exchange(request, ended, self._give_up_at(now), versions=versions), now)

    def _join_answered(self, node: Node, answer: JoinGroupResponse | OttlaError, now: float) -> None:
        seat = self._seat
        if isinstance(answer, JoinGroupResponse) and answer.error_code:
            if answer.error_code == MemberIdRequired.code:
                seat.member_id = answer.member_id
            asked_for = f" with session_timeout={seat.options.session_timeout:g}"
            asked_for = asked_for if answer.error_code == InvalidSessionTimeout.code else ""
            answer = broker_error(answer.error_code, f"JoinGroup of {seat.group!r}{asked_for}", repeatable=True)
        if isinstance(answer, OttlaError):
            self._member.join_failed(answer, now)
            return
        seat.member_id, seat.generation = answer.member_id, answer.generation_id
        self._member.joined(now)
        assignor = next((each for each in seat.options.assignors if each.name == answer.protocol_name), None)
        if assignor is None:
            wrong = f"group {seat.group!r} chose {answer.protocol_name!r}, which this member did not offer"
            self._member.fail(RemoteProtocolError(wrong), now)
        elif answer.leader == answer.member_id:
            self._lead(node, assignor, answer, now)
        else:
            self._leader.resign()
            self._sync(node, assignor, (), now)

    # -- SyncGroup ---------------------------------------------------------------------------------------------------

    def _lead(self, node: Node, assignor: Assignor, answer: JoinGroupResponse, now: float) -> None:
        try:
            members = [parse_member(each.member_id, each.group_instance_id, each.metadata) for each in answer.members]
        except DecodeError as error:
            wrong = f"a member of group {self._seat.group!r} sent a subscription that cannot be parsed: {error}"
            self._member.fail(RemoteProtocolError(wrong), now)
            return
        divided = self._leader.assign(assignor, members, skip=answer.skip_assignment, now=now)

        def sync(now: float) -> None:
            if self._over.done:
                return
            if divided.error is not None:
                self._member.join_failed(divided.error, now)
            else:
                self._sync(node, assignor, divided.result(), now)

        divided.when_done(lambda: self._core.soon(sync))
        self._over.when_done(divided.cancel)

    def _sync(self, node: Node, assignor: Assignor, assignments: Assignments, now: float) -> None:
        seat = self._seat
        request = SyncGroupRequest(
            group_id=seat.group,
            generation_id=seat.generation,
            member_id=seat.member_id,
            group_instance_id=seat.options.instance_id,
            protocol_type="consumer",
            protocol_name=assignor.name,
            assignments=assignments,
        )

        def ended(answer: SyncGroupResponse | OttlaError, now: float) -> None:
            if not self._over.done:
                self._unpark()
                self._sync_answered(answer, now)

        self._member.sync_sent(now)
        self._park(node, Exchange(request, ended, self._give_up_at(now)), now)

    def _sync_answered(self, answer: SyncGroupResponse | OttlaError, now: float) -> None:
        if isinstance(answer, SyncGroupResponse) and answer.error_code:
            answer = broker_error(answer.error_code, f"SyncGroup of {self._seat.group!r}", repeatable=True)
        if isinstance(answer, OttlaError):
            self._member.join_failed(answer, now)
            return
        try:
            places = parse_assigned(answer.assignment)
        except DecodeError as error:
            wrong = f"the leader of {self._seat.group!r} sent an assignment that cannot be parsed: {error}"
            self._member.fail(RemoteProtocolError(wrong), now)
        else:
            self._member.synced(places, now)

    # -- waiting at the coordinator ----------------------------------------------------------------------------------

    def _give_up_at(self, now: float) -> float:
        """The deadline of a request that waits for other members."""
        return now + self._seat.options.max_poll_interval + _JOIN_SLACK

    def _park(self, node: Node, exchange: Exchange, now: float) -> None:
        """Send a request that waits at the coordinator; look up the coordinator regularly meanwhile."""
        self._core.submit(node, exchange, now, self._seat.channel)
        self._waiting = self._core.later(now + _ASK_AGAIN, lambda now: self._ask(node, now))
        self._long = self._core.later(now + _LONG, self._member.held_up)

    def _ask(self, node: Node, now: float) -> None:
        waiting = self._waiting = self._core.later(now + _ASK_AGAIN, lambda now: self._ask(node, now))
        found = self._core.coordinators.ask(self._seat.group, now)

        def compare() -> None:
            if self._waiting is waiting and found.error is None and found.result().id != node.id:
                log.warning(
                    "the group has another coordinator", extra={"group": self._seat.group, "node": found.result().id}
                )
                self._core.retire(self._seat.channel)  # this fails the waiting request, so the member joins again

        found.when_done(compare)

    def _unpark(self) -> None:
        """Stop the timers: the waiting request was answered, or is no longer needed."""
        for timer in (self._waiting, self._long):
            if timer is not None:
                timer.cancel()
        self._waiting = self._long = None
