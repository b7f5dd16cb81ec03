"""A member of a classic consumer group: joins, rebalances, leaves.

`ClassicMember._rebalance` is the way to an assignment, from top to bottom. Its parts are the requests that wait at the
coordinator (`joining`), the assignors (`OfferedAssignors`), the `Leader`'s duties, `Heartbeats`, and LeaveGroup
(`goodbye`).

Rules:
- Every state change goes through the table of `ottla.sdk.group.member_states`, in `_enter`.
- With eager assignors (range, roundrobin, sticky), a member gives up all partitions before JoinGroup. With cooperative
  ones (KIP-429) it keeps them. If the new assignment revokes some, it gives those up and joins again.
- UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION mean that the group has continued without the member. All partitions are
  lost at once, and it joins again: after UNKNOWN_MEMBER_ID as a new member, after ILLEGAL_GENERATION with its member
  id. With a new id, the group would wait for the old one until its session times out. FENCED_INSTANCE_ID and any other
  non-retriable error end the membership.
- A consumer that has not asked for records within `max_poll_interval` is considered gone: the member leaves, so that
  others get its partitions, and joins again at the consumer's next call.

Source: AbstractCoordinator.java, ConsumerCoordinator.java, ClassicKafkaConsumer.java.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ottla.errors import (
    IllegalGeneration,
    MemberIdRequired,
    OttlaError,
    RebalanceInProgress,
    RemoteProtocolError,
    UnknownMemberId,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.core import ClientCore
from ottla.sdk.flow import LoneFlow, sleep
from ottla.sdk.group.coordinator_trouble import CoordinatorTrouble
from ottla.sdk.group.goodbye import leave_group, nothing_to_say
from ottla.sdk.group.group_metrics import MemberMetrics
from ottla.sdk.group.heartbeats import Heartbeats
from ottla.sdk.group.joining import join, sync
from ottla.sdk.group.leader import Assignments, Leader
from ottla.sdk.group.member_states import IN_GROUP, TRANSITIONS, MemberInput, MemberState
from ottla.sdk.group.membership import AssignmentChange, Lose
from ottla.sdk.group.offered import Incompatible, OfferedAssignors
from ottla.sdk.group.offset_commits import CommittingMember
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.group.owned_partitions import OwnedPartitions
from ottla.sdk.group.seat import Seat
from ottla.sdk.logs import logger, named
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")

_GONE = (UnknownMemberId, IllegalGeneration)
_LEAVE_TIMEOUT = 5.0
"""Seconds for LeaveGroup if the caller gives no deadline."""

S, On = MemberState, MemberInput
_HELD_UP = {
    S.JOINING: "rebalance waits for another member of the group, which is busy or dead",
    S.SYNCING: "rebalance waits for the leader of the group, which is busy or dead",
}
_DOING = {
    S.OUT: "has left the group until your loop asks for the next batch: {left}",
    S.PREPARING: "is about to join",
    S.JOINING: "waits for all members to join, {most:.0f} s more at most",
    S.ASSIGNING: "divides the partitions",
    S.SYNCING: "waits for the leader's assignment, {most:.0f} s more at most",
    S.STABLE: "gets no response to its heartbeats",
    S.REVOKING: "waits for your loop to give up {owned} partition(s)",
    S.FAILED: "has ended",
    S.CLOSED: "has left",
}


class ClassicMember:
    """Runs a member of ``group`` on its own ``channel``; implements `ottla.sdk.group.membership.Membership`.

    Args:
        notify: called, inside the core, with each new change before the user is notified, and with ``None`` when the
            membership has failed or the generation changed.
        unreported: losses of the member whose place this one takes, of which the user has not been notified yet.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        options: MemberOptions,
        channel: str,
        notify: Callable[[AssignmentChange | None, float], None],
        unreported: Iterable[Lose] = (),
    ) -> None:
        self._core, self._notify = core, notify
        self._seat = Seat(group, channel, options, MemberMetrics(core.metrics, group))
        self.state = S.OUT
        self._partitions = OwnedPartitions(group, notify, unreported)
        self.failed: OttlaError | None = None
        self.topics: tuple[str, ...] = ()
        self._offered = OfferedAssignors(group, options.chosen_assignors(), core.options.rack)
        self._leader = Leader(core, group, self.rejoin)
        self._heartbeats = Heartbeats(core, self._seat, self)
        self._rebalancing: LoneFlow | None = None
        """The last attempt to get an assignment, which may have ended."""
        self._trouble = CoordinatorTrouble(core, group)
        self._since = 0.0
        """When the current state began."""
        self._seen = 0.0
        """When the coordinator last confirmed this member."""
        self._left = ""
        """Why this member left the group."""
        self._leaving = nothing_to_say()
        """Settled when no goodbye is under way any more."""
        self._complained = False
        """The log has a line that the current rebalance takes long."""

    # -- for the consumer --------------------------------------------------------------------------------------------

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return self._partitions.places

    @property
    def changes(self) -> deque[AssignmentChange]:
        return self._partitions.changes

    @property
    def identity(self) -> CommittingMember | None:
        if self._seat.generation < 0 or self.state in (S.ASSIGNING, S.SYNCING):
            return None
        return CommittingMember(self._seat.generation, self._seat.member_id, self._seat.options.instance_id)

    @property
    def member_id(self) -> str:
        return self._seat.member_id

    @property
    def generation(self) -> int:
        return self._seat.generation

    def subscribe(self, topics: Sequence[str], now: float) -> None:
        """Subscribe to these topics; a rebalance in progress is finished first."""
        if tuple(topics) != self.topics:
            self.topics = tuple(topics)
            self.rejoin("the subscription changed", now)

    def join(self, now: float) -> None:
        if self._enter(On.JOIN, now):
            self._left = ""
            self._begin(now)

    def rejoin(self, why: str, now: float) -> None:
        """Join again; with an eager assignor, once all partitions are given up."""
        eager = bool(self.owned) and not self._offered.cooperative
        if not self._enter(On.REVOKE if eager else On.REBALANCE, now):
            return
        log.info("rebalance started", extra={"group": self._seat.group, "why": why})
        if eager:
            self._partitions.revoke(self.owned, now, self._seat.options.max_poll_interval)
        else:
            self._begin(now)

    def done(self, change: AssignmentChange, now: float) -> None:
        if self._partitions.done(change) and self._enter(On.GIVEN_UP, now):
            self._begin(now)

    def leave(self, why: str, now: float) -> None:
        if self._enter(On.LEAVE, now):
            self._left = why
            self._depart(why, now)

    def close(self, why: str, now: float, until: float | None = None) -> Outcome[None]:
        if self._enter(On.CLOSE, now):
            self._leader.close()
        self._seat.metrics.close()
        self._depart(why, now, until)
        return self._leaving

    def _depart(self, why: str, now: float, until: float | None = None) -> None:
        """Leave the group, if this client is a member; all partitions are lost."""
        self._leader.resign()
        self._say_good_bye(why, now, until)
        self._forget(why, now)
        self._core.retire(self._seat.channel)

    def _say_good_bye(self, why: str, now: float, until: float | None = None) -> None:
        left = leave_group(self._core, self._seat, why, now + _LEAVE_TIMEOUT if until is None else until)
        # The goodbye of an earlier member id may be under way, after `max_poll_interval` or an error.
        self._leaving = left if self._leaving.done else all_of((self._leaving, left))

    def refused(self, error: OttlaError, identity: CommittingMember, now: float) -> bool:
        # The coordinator may have begun the next generation while the JoinGroup response that says so is in flight.
        # Then the commit only came late, and the JoinGroup response decides about the membership.
        overtaken = self.state in (S.PREPARING, S.JOINING) and isinstance(error, IllegalGeneration)
        if identity == self.identity and not overtaken:
            self._on_error(error, now)
        return True

    def explain(self, now: float) -> Iterator[str]:
        if self.state in (S.OUT, S.STABLE, S.FAILED, S.CLOSED) and not self._trouble.text and not self._left:
            return
        since = self._seen if self.state is S.STABLE else self._since
        remote = self.state in IN_GROUP and self.state is not S.REVOKING
        where = f"; {self._core.coordinators.where(self._seat.group)}" if remote else ""
        doing = _DOING[self.state].format(left=self._left, owned=len(self.owned), most=self._most(now))
        trouble = f"; last error: {self._trouble.text}" if self._trouble.text else ""
        yield f"group {self._seat.group!r}: this member {doing}, for {now - since:.1f} s{where}{trouble}"

    def _most(self, now: float) -> float:
        """The most seconds that a request still waits for other members: then the coordinator continues without them.

        The real maximum may be higher, if other members have a larger `max_poll_interval`.
        """
        return max(self._since + self._seat.options.max_poll_interval - now, 0.0)

    # -- states ------------------------------------------------------------------------------------------------------

    def _enter(self, what: MemberInput, now: float) -> bool:
        """Enter the state that follows ``what``; return whether the current state has a transition for it."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        if state is not self.state:
            self.state, self._since = state, now
        return True

    def _begin(self, now: float, delay: float = 0.0) -> None:
        """Start an attempt to get an assignment, in state PREPARING."""
        self._end_attempt()
        self._rebalancing = LoneFlow(self._core, self._rebalance(delay))

    def _end_attempt(self) -> None:
        if self._rebalancing is not None:
            self._rebalancing.cancel()

    def _retry(self, delay: float, now: float) -> None:
        if self._enter(On.RETRY, now):
            self._begin(now, delay)

    def _forget(self, why: str, now: float, *, keep_id: bool = False) -> None:
        """Drop the generation, and the member id too unless the member keeps it; all owned partitions are lost."""
        self._seat.vacate(keep_id=keep_id)
        self._end_attempt()
        self._heartbeats.stop()
        self._partitions.lose(why, now)

    def _fail(self, error: OttlaError, now: float) -> None:
        """End the membership with an error that is not retriable."""
        if not self._enter(On.FAIL, now):
            return
        log.error(
            "membership ended, the consumer raises the error", extra={"group": self._seat.group, "why": str(error)}
        )
        self._leader.resign()
        self.failed = error
        if self.generation >= 0:  # otherwise the other members would wait until its session times out
            self._say_good_bye(str(error), now)
        self._forget(str(error), now)
        self._notify(None, now)

    # -- a rebalance -------------------------------------------------------------------------------------------------

    def _rebalance(self, delay: float) -> Steps[None]:
        """Get an assignment: JoinGroup, the division of the partitions if this member leads, then SyncGroup."""
        core, seat, topics, offered = self._core, self._seat, self.topics, self._offered
        # With 0, too: otherwise the first steps would run within the call that begins the attempt, and before
        # `_rebalancing` has it.
        yield from sleep(core, delay)
        try:
            node = yield from settled(core.coordinators.find(seat.group, core.now))
            topics = self.topics  # only now: the subscription may have changed during the pause or the lookup
            protocols = yield from offered.subscriptions(topics, self.owned, seat.generation)
            self._enter(On.JOIN_SENT, core.now)
            joined = yield from join(core, seat, node, protocols, self._held_up)
            self._enter(On.JOINED, core.now)
            self._seen = core.now
            self._notify(None, core.now)  # the generation changed; commits still wait, for the SyncGroup response
            # No request waits at the coordinator while the leader divides the partitions, so heartbeats are due.
            self._heartbeats.schedule(core.now + seat.options.heartbeat_interval)
            assignor = offered.chosen(joined.protocol_name)
            assignments: Assignments = ()
            if joined.leader == joined.member_id:
                members = offered.members(joined)
                assignments = yield from self._leader.assign(assignor, members, skip=joined.skip_assignment)
            else:
                self._leader.resign()
            self._enter(On.SYNC_SENT, core.now)
            assignment = yield from sync(core, seat, node, assignor.name, assignments, self._held_up)
            places = offered.assigned(assignment, seat.generation)
        except Incompatible as error:
            self._fail(RemoteProtocolError(str(error)), core.now)
        except OttlaError as error:
            self._rebalance_failed(error, core.now)
        else:
            self._take(places, core.now)
            if topics != self.topics:
                self.rejoin("the subscription changed", core.now)

    def _take(self, places: tuple[TopicPartition, ...], now: float) -> None:
        """Take the assignment: revoke partitions that it lacks, and receive new ones."""
        had, has = set(self.owned), set(places)
        revoked = tuple(each for each in self.owned if each not in has)
        added = tuple(each for each in places if each not in had)
        # No other member may get a revoked partition before this one has given it up: that takes a second rebalance.
        self._enter(On.ASSIGNED_LESS if revoked else On.ASSIGNED, now)
        self._trouble.over()
        self._seen, self._complained = now, False
        self._seat.metrics.rebalances.add(1, now)
        log.info(
            "partitions assigned",
            extra={
                "group": self._seat.group,
                "generation": self.generation,
                "member": self.member_id,
                "partitions": named(places),
            },
        )
        if revoked:
            self._partitions.revoke(revoked, now, self._seat.options.max_poll_interval)
        if added:
            self._partitions.receive(added, now)
        self._notify(None, now)

    def _held_up(self, now: float) -> None:
        """Log, once per rebalance, that the coordinator waits for other members."""
        if self._complained or self.state not in _HELD_UP:
            return
        self._complained = True
        extra = {"group": self._seat.group, "seconds": round(now - self._since, 1), "at_most": round(self._most(now))}
        log.warning(_HELD_UP[self.state], extra=extra)

    def _rebalance_failed(self, error: OttlaError, now: float) -> None:
        if isinstance(error, RebalanceInProgress | MemberIdRequired):
            # In response to SyncGroup, REBALANCE_IN_PROGRESS means that the coordinator waits for the members' next
            # JoinGroup. In response to JoinGroup, it may mean that the broker could not replicate in time: pause.
            # (AbstractCoordinator.java, JoinGroupResponseHandler)
            # KIP-394: the first JoinGroup of a new member only returns its member id; the second contains the id.
            at_once = self.state is S.SYNCING or isinstance(error, MemberIdRequired)
            self._retry(self._trouble.sent_back(error) if at_once else self._trouble.pause, now)
        else:
            self._on_error(error, now)

    # -- for heartbeats and commits ----------------------------------------------------------------------------------

    @property
    def in_group(self) -> bool:
        return self.state in IN_GROUP and self._seat.generation >= 0

    @property
    def parked(self) -> bool:
        return self.state in (S.JOINING, S.SYNCING)

    def alive(self, now: float) -> None:
        self._seen = now
        self._trouble.answered()
        self._trouble.confirmed()

    def troubled(self, error: OttlaError, now: float) -> None:
        self._on_error(error, now)

    def _on_error(self, error: OttlaError, now: float) -> None:
        """Act on an error of the coordinator, or of its connection."""
        self._core.coordinators.heard(self._seat.group, error)
        if self.state not in IN_GROUP:
            return
        if isinstance(error, RebalanceInProgress):
            self.rejoin("the group rebalances", now)  # does nothing if this member takes part already
        elif isinstance(error, _GONE):
            self._expelled(error, now)
        elif error.retriable or isinstance(error, RemoteProtocolError):
            pause = self._trouble.report(error, now)
            if (self.state, On.RETRY) in TRANSITIONS:
                self._retry(pause, now)
            else:
                self._heartbeats.schedule(now + pause)
        else:
            self._fail(error, now)

    def _expelled(self, error: UnknownMemberId | IllegalGeneration, now: float) -> None:
        pause = self._trouble.sent_back(error)
        say = log.info if pause else log.warning
        say("the group continued without this member, rejoining", extra={"group": self._seat.group, "why": error.name})
        self._enter(On.EXPELLED, now)
        why = f"the group has continued without this member ({error.name})"
        self._forget(why, now, keep_id=isinstance(error, IllegalGeneration))
        self._begin(now, pause)
