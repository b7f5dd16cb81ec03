"""A member of a consumer group whose coordinator assigns the partitions (KIP-848): joins, reconciles, leaves.

`ConsumerGroupMember._live` sends the heartbeats, from the first to the last; one API does all. `_reconcile` is the way
from an assignment to the partitions that the member owns: both are read from top to bottom.

Rules:
- Every state change goes through the table of `ottla.sdk.group.consumer_member_states`, in `_enter`.
- One heartbeat at a time is in flight. The next one is due after the interval that the coordinator names; at once if
  partitions were given up or received, if the subscription changed, or if a commit says that the epoch is old.
- The member first gives up partitions that an assignment lacks: finish, commit, and report it. Only then it receives
  new ones. A new assignment meanwhile takes the place of the one before.
- UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH mean that the group has continued without the member. All partitions are
  lost at once, and it joins again with epoch 0 and the same member id.
- A member without topics, because a pattern matches none yet, does not join before it has one.
- The coordinator may still have this member from before, if a response was lost or the member was fenced. It then
  refuses epoch 0 (FENCED_MEMBER_EPOCH, or UNRELEASED_INSTANCE_ID of a static member). So the member leaves first.
- The goodbye goes on the member's own connection, behind the heartbeats: it would not remove a member that joins after
  it was sent. The member joins again only once it has ended.
- A consumer that has not asked for records within `max_poll_interval` is considered gone, as in a classic group.

Source: AbstractMembershipManager.java, ConsumerHeartbeatRequestManager.java; GroupMetadataManager.java.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    OttlaError,
    RemoteProtocolError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnreleasedInstanceId,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE
from ottla.sdk.connection.versions import CLIENT_MADE_MEMBER_ID
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.flow import LoneFlow, ask, sleep
from ottla.sdk.group.assigned_topics import look_up, names_of
from ottla.sdk.group.consumer_member_states import IN_GROUP, TRANSITIONS, ConsumerMemberInput, ConsumerMemberState
from ottla.sdk.group.coordinator_trouble import CoordinatorTrouble
from ottla.sdk.group.goodbye import Goodbye, nothing_to_say, say_good_bye
from ottla.sdk.group.group_metrics import MemberMetrics
from ottla.sdk.group.group_types import is_of_another_type, new_protocol_refused
from ottla.sdk.group.heartbeat_fields import HeartbeatFields
from ottla.sdk.group.membership import AssignmentChange
from ottla.sdk.group.offset_commits import CommittingMember
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.group.owned_partitions import OwnedPartitions
from ottla.sdk.logs import logger, named
from ottla.sdk.outcome import Outcome, any_of, own
from ottla.sdk.steps import Steps, settled

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

log = logger("ottla.sdk.consumer")

_LEAVE_TIMEOUT = 5.0
"""Seconds for the goodbye if the caller gives no deadline."""
_INTERVALS = 3
"""Heartbeat intervals without a response after which the connection counts as broken: sessions last nine by default."""
_SHORTEST = 0.1
"""The least seconds between heartbeats, so that a wrong configuration of the broker causes no flood."""
_GONE = frozenset(each.code for each in (UnknownMemberId, FencedMemberEpoch, FencedInstanceId, GroupIdNotFound))
"""Answers to a goodbye which say that the group does not have this member."""
REFUSED = (UnsupportedVersion, GroupIdNotFound)
"""Errors by which a coordinator refuses this protocol, or has a group of another type under this name."""
_OLD_EPOCH = (StaleMemberEpoch, IllegalGeneration)
"""Errors of a commit in an old epoch; TxnOffsetCommit has no error of its own for it."""

S, On = ConsumerMemberState, ConsumerMemberInput
_DOING = {
    S.OUT: "has left the group until your loop asks for the next batch: {left}",
    S.JOINING: "is about to join",
    S.STABLE: "gets no response to its heartbeats",
    S.RECONCILING: "waits for your loop to give up partitions",
    S.FAILED: "has ended",
    S.CLOSED: "has left",
}


class ConsumerGroupMember:
    """Runs a member of ``group`` on its own ``channel``; implements `ottla.sdk.group.membership.Membership`.

    Args:
        notify: called, inside the core, with each new change before the user is notified, and with ``None`` when the
            membership has failed or the epoch changed.
        regex: a regular expression for the names of topics, which the coordinator resolves.
        may_join: asked before each heartbeat that joins; ``False`` ends the membership like a refusal.

    Attributes:
        generation: the member epoch; -1: none.
        has_wrong_group: the coordinator has said that the group is of another type.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        options: MemberOptions,
        channel: str,
        notify: Callable[[AssignmentChange | None, float], None],
        regex: str | None = None,
        may_join: Callable[[], Steps[bool]] | None = None,
    ) -> None:
        self._core, self._group, self._options, self._channel, self._notify = core, group, options, channel, notify
        self._may_join = may_join
        # KIP-1082: the client makes the id, and keeps it as long as the consumer lasts.
        self.member_id = _new_id(core.rng)
        self._fields = HeartbeatFields(group, self.member_id, options, core.options.rack, regex)
        self._named = regex is None
        """The subscription names its topics."""
        self.state = S.OUT
        self.generation = -1
        self.topics: tuple[str, ...] = ()
        self.failed: OttlaError | None = None
        self.has_wrong_group = False
        self._partitions = OwnedPartitions(group, notify)
        self._ids: dict[TopicPartition, UUID] = {}
        """The owned partitions, with the ids of their topics."""
        self._assigned: frozenset[tuple[UUID, int]] = frozenset()
        """The partitions that the coordinator assigned last."""
        self._interval = 0.0
        """Seconds between heartbeats, as the coordinator wants them; 0: unknown."""
        self._metrics = MemberMetrics(core.metrics, group)
        self._trouble = CoordinatorTrouble(core, group)
        self._living: LoneFlow | None = None
        """Sends heartbeats; it may have ended."""
        self._reconciling: LoneFlow | None = None
        self._urgent: Outcome[None] = Outcome()
        """Settled if a heartbeat is due at once; replaced before each heartbeat."""
        self._given_up: Outcome[None] = Outcome()
        """Settled, and then replaced, when the user has given up partitions."""
        self._may_be_registered = False
        """The coordinator may have this member."""
        self._leaving = nothing_to_say()
        """The last goodbye."""
        self._left = ""
        """Why this member left the group."""
        self._since = 0.0
        """When the current state began."""
        self._seen = 0.0
        """When the coordinator last confirmed this member."""

    # -- for the consumer --------------------------------------------------------------------------------------------

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return self._partitions.places

    @property
    def changes(self) -> deque[AssignmentChange]:
        return self._partitions.changes

    @property
    def identity(self) -> CommittingMember | None:
        if self.state not in (S.STABLE, S.RECONCILING):
            return None
        return CommittingMember(self.generation, self.member_id, self._options.instance_id, has_epoch=True)

    def subscribe(self, topics: Sequence[str], now: float) -> None:
        if tuple(topics) != self.topics:
            self.topics = tuple(topics)
            self._hurry()

    def join(self, now: float) -> None:
        if self._enter(On.JOIN, now):
            self._left = ""
            self._begin()

    def done(self, change: AssignmentChange, now: float) -> None:
        if self._partitions.done(change):
            self._ids = {place: self._ids[place] for place in self.owned}
            given_up, self._given_up = self._given_up, Outcome()
            given_up.succeed(None)
            self._hurry()  # others wait for the partitions

    def leave(self, why: str, now: float) -> None:
        if self._enter(On.LEAVE, now):
            self._left = why
            self._say_good_bye(now, now + _LEAVE_TIMEOUT)
            self._forget(why, now)

    def close(self, why: str, now: float, until: float | None = None) -> Outcome[None]:
        self._enter(On.CLOSE, now)
        self._metrics.close()
        self._say_good_bye(now, now + _LEAVE_TIMEOUT if until is None else until)
        self._forget(why, now)
        if self._leaving.done:
            self._core.retire(self._channel)
        return self._leaving

    def refused(self, error: OttlaError, identity: CommittingMember, now: float) -> bool:
        if identity != self.identity:
            return True  # the error concerns an earlier epoch
        if isinstance(error, _OLD_EPOCH):
            # The response with the new epoch is in flight, or was lost: the next heartbeat brings it.
            self._fields.send_all()
            self._hurry()
        else:
            self._on_error(error, now)
        return True

    def explain(self, now: float) -> Iterator[str]:
        errors = self._core.cluster.errors
        missing = [name for name in self.topics if errors.get(name) == UnknownTopicOrPartition.code]
        if missing and self._named and self.state is S.STABLE:
            yield f"group {self._group!r}: subscribed topics do not exist: {', '.join(missing)}"
        trouble = self._trouble.text
        if self.state in (S.OUT, S.STABLE, S.FAILED, S.CLOSED) and not trouble and not self._left:
            return
        since = self._seen if self.state is S.STABLE else self._since
        where = f"; {self._core.coordinators.where(self._group)}" if self.state in (S.JOINING, S.STABLE) else ""
        doing = _DOING[self.state].format(left=self._left)
        if self.state is S.RECONCILING and not self._partitions.revoking:
            doing = "looks up the topics of its new partitions"
        if self._has_nothing_to_read:
            doing = "does not join, because it has no topic to read"
        last = f"; last error: {trouble}" if trouble else ""
        yield f"group {self._group!r}: this member {doing}, for {now - since:.1f} s{where}{last}"

    # -- states ------------------------------------------------------------------------------------------------------

    def _enter(self, what: ConsumerMemberInput, now: float) -> bool:
        """Enter the state that follows ``what``; return whether the current state has a transition for it."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        if state is not self.state:
            self.state, self._since = state, now
        return True

    def _begin(self, delay: float = 0.0) -> None:
        """Start to send heartbeats, the first of which joins."""
        self._stop()
        self._living = LoneFlow(self._core, self._live(delay))

    def _stop(self) -> None:
        for flow in (self._living, self._reconciling):
            if flow is not None:
                flow.cancel()

    def _hurry(self) -> None:
        """Send the next heartbeat at once, or after the pause that follows an error."""
        self._urgent.succeed(None)

    def _forget(self, why: str, now: float) -> None:
        """Drop the epoch and the assignment; all owned partitions are lost."""
        self._stop()
        self.generation, self._assigned, self._ids = -1, frozenset(), {}
        self._partitions.lose(why, now)

    def _fail(self, error: OttlaError, now: float) -> None:
        """End the membership with an error that is not retriable."""
        if not self._enter(On.FAIL, now):
            return
        if self._options.group_protocol != "auto" or not isinstance(error, REFUSED):  # else a classic member takes over
            log.error(
                "membership ended, the consumer raises the error", extra={"group": self._group, "why": str(error)}
            )
        self.failed = error
        self._may_be_registered &= not isinstance(error, FencedInstanceId)  # else the goodbye would be another member's
        self._say_good_bye(now, now + _LEAVE_TIMEOUT)
        self._forget(str(error), now)
        self._notify(None, now)

    def _say_good_bye(self, now: float, until: float) -> None:
        """Leave the group, if the coordinator may have this member."""
        if not self._may_be_registered:
            return
        self._may_be_registered = False
        if self._living is not None:
            self._living.cancel()  # no heartbeat may follow the goodbye
        self._leaving = say_good_bye(
            self._core,
            Goodbye(
                self._group,
                self._fields.goodbye(),
                _GONE,
                {"instance_id": self._options.instance_id},
                versions=CLIENT_MADE_MEMBER_ID,
                channel=self._channel,
            ),
            until,
        )
        self._leaving.when_done(lambda: self._core.retire(self._channel))

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def _live(self, delay: float) -> Steps[None]:
        """Join with the first heartbeat, then send one whenever it is due, until this flow is cancelled."""
        core = self._core
        if not self._leaving.done:
            yield any_of((self._leaving,))  # not `settled`: if this flow is cancelled, the goodbye goes on
        if delay:
            yield from sleep(core, delay)
        while True:
            sent, self._urgent = core.now, Outcome()
            if self._has_nothing_to_read:
                yield own(self._urgent)
                continue
            try:
                if self._may_join is not None and self.state is S.JOINING and not (yield from self._may_join()):
                    raise GroupIdNotFound(told="the brokers describe no group that this member may join")
                answer = yield from self._heartbeat()
                self._take(answer, core.now)
            except OttlaError as error:
                if self._is_left_over(error):
                    yield from self._withdraw()
                else:
                    yield from sleep(core, self._on_error(error, core.now))
            else:
                yield from self._until(sent + self._interval)

    @property
    def _has_nothing_to_read(self) -> bool:
        """Whether the member would join without a subscription, as while a pattern matches no topic: Kafka answers
        INVALID_REQUEST to that.
        """
        return self.state is S.JOINING and self._named and not self.topics

    def _heartbeat(self) -> Steps[ConsumerGroupHeartbeatResponse]:
        """Send a heartbeat to the coordinator, and return its response.

        Raises:
            OttlaError: the coordinator refuses it, or there is no response.
        """
        core = self._core
        node = yield from settled(core.coordinators.find(self._group, core.now))
        joining = self.state is S.JOINING
        epoch = JOIN if joining else self.generation
        # Until a response says otherwise: the coordinator may register the member, and the response may be lost.
        before, self._may_be_registered = self._may_be_registered or not joining, True
        request = self._fields.build(epoch, self.topics, self._ids)
        sent = core.now
        try:
            answer = yield from self._ask(node, request)
        except UnsupportedVersion:  # so it was not sent
            self._may_be_registered = before
            raise
        self._metrics.heartbeats.record(core.now - sent, core.now)
        if answer.error_code:
            self._may_be_registered = before  # a refused heartbeat registers no member
            if is_of_another_type(answer.error_code, answer.error_message):
                self.has_wrong_group = True
                raise new_protocol_refused(self._group)
            what = f"ConsumerGroupHeartbeat of {self._group!r}"
            what += f": {answer.error_message}" if answer.error_message else ""
            raise broker_error(answer.error_code, what, repeatable=True)
        if answer.member_epoch < 0:  # the next heartbeat would be a goodbye
            what = f"ConsumerGroupHeartbeat of {self._group!r} was answered with member epoch {answer.member_epoch}"
            raise RemoteProtocolError(what)
        return answer

    def _ask(self, node: Node, request: ConsumerGroupHeartbeatRequest) -> Steps[ConsumerGroupHeartbeatResponse]:
        timeout = self._core.options.request_timeout
        if self._interval:
            timeout = min(timeout, _INTERVALS * self._interval)
        answer: ConsumerGroupHeartbeatResponse = yield from settled(
            ask(
                self._core,
                node,
                request,
                self._core.now + timeout,
                channel=self._channel,
                versions=CLIENT_MADE_MEMBER_ID,
            )
        )
        return answer

    def _until(self, when: float) -> Steps[None]:
        """Wait until the next heartbeat is due."""
        due = self._core.at(when)
        try:
            yield any_of((due, self._urgent))
        finally:
            due.succeed(None)

    def _take(self, answer: ConsumerGroupHeartbeatResponse, now: float) -> None:
        """Take the epoch, and the assignment if there is one."""
        joined = self._enter(On.JOINED, now)
        if joined:
            self._metrics.join_time.record(now - self._since, now)
        else:
            self._trouble.confirmed()
        self._trouble.over()
        self._seen, self._interval = now, max(answer.heartbeat_interval_ms / 1000, _SHORTEST)
        moved, self.generation = answer.member_epoch != self.generation, answer.member_epoch
        if answer.assignment is not None:
            assigned = frozenset(
                (each.topic_id, partition)
                for each in answer.assignment.topic_partitions
                for partition in each.partitions
            )
            if assigned != self._assigned:
                self._assigned = assigned
                self._fields.send_owned()
                self._metrics.rebalances.add(1, now)
                self._enter(On.ASSIGNED, now)
                if not self._partitions.revoking:  # else the flow goes on with this assignment afterwards
                    if self._reconciling is not None:
                        self._reconciling.cancel()
                    self._reconciling = LoneFlow(self._core, self._reconcile())
        if moved or joined:
            self._notify(None, now)  # commits may go on, in the new epoch

    # -- the assignment ----------------------------------------------------------------------------------------------

    def _reconcile(self) -> Steps[None]:
        """Own the assigned partitions, and no others: first give some up, then receive new ones."""
        core, failures = self._core, 0
        lost: set[str] = set()
        while True:
            assigned, names = self._assigned, names_of(core)
            owned = {(topic_id, partition) for (_, partition), topic_id in self._ids.items()}
            revoked = [place for place, topic_id in self._ids.items() if (topic_id, place[1]) not in assigned]
            added = sorted(
                (names[topic_id], partition) for topic_id, partition in assigned - owned if topic_id in names
            )
            if revoked:
                lost.update(topic for topic, _ in revoked)
                given_up = own(self._given_up)  # this flow may be cancelled, and later ones wait for it, too
                self._partitions.revoke(revoked, core.now, self._options.max_poll_interval)
                yield given_up
            elif added:
                self._ids |= {place: core.cluster.topic_id(place[0]) for place in added}
                self._partitions.receive(added, core.now)
            elif unknown := {topic_id for topic_id, _ in assigned - owned}:
                yield from look_up(core, unknown, self.topics if self._named else ())
                if unknown - names_of(core).keys():
                    yield from sleep(core, core.backoff(failures))
                    failures += 1
            else:
                break
        self._enter(On.RECONCILED, core.now)
        self._hurry()  # the acknowledgement
        log.info(
            "partitions assigned",
            extra={
                "group": self._group,
                "epoch": self.generation,
                "member": self.member_id,
                "partitions": named(self.owned),
            },
        )
        if self._named:
            yield from self._look_for(lost.intersection(self.topics) - {topic for topic, _ in self.owned})

    def _look_for(self, topics: Collection[str]) -> Steps[None]:
        """Warn about topics that were deleted. The coordinator says nothing about them, it only revokes the partitions,
        and no Fetch request fails any more.
        """
        missing = []
        for name in sorted(topics):
            found = self._core.metadata.topic(name, self._core.now, fresh=True, grace=KNOWN_TOPIC_GRACE)
            try:
                yield from settled(found)
            except UnknownTopicOrPartition:
                missing.append(name)
            except OttlaError:
                return  # the brokers are in trouble, and other log lines say so
        if missing:
            log.warning("subscribed topics do not exist", extra={"group": self._group, "topics": missing})

    # -- errors ------------------------------------------------------------------------------------------------------

    def _is_left_over(self, error: OttlaError) -> bool:
        """Whether the coordinator refuses to let the member join because it still has this member, from before."""
        joining = self.state is S.JOINING
        return joining and self._may_be_registered and isinstance(error, FencedMemberEpoch | UnreleasedInstanceId)

    def _withdraw(self) -> Steps[None]:
        """Leave, so that the member can join again."""
        core = self._core
        try:
            node = yield from settled(core.coordinators.find(self._group, core.now))
            answer = yield from self._ask(node, self._fields.goodbye())
            if answer.error_code and answer.error_code not in _GONE:
                raise broker_error(answer.error_code, f"leaving group {self._group!r}", repeatable=True)
        except OttlaError as error:
            yield from sleep(core, self._on_error(error, core.now))
        else:
            self._may_be_registered = (
                False  # if another member has the instance id, the next heartbeat is refused for good
            )

    def _on_error(self, error: OttlaError, now: float) -> float:
        """Act on an error of the coordinator, or of its connection; return the seconds before the next heartbeat."""
        self._core.coordinators.heard(self._group, error)
        self._fields.send_all()
        if self.state not in IN_GROUP:
            return 0.0
        if self.state is not S.JOINING and isinstance(error, UnknownMemberId | FencedMemberEpoch | GroupIdNotFound):
            self._expelled(error, now)
            return 0.0
        fenced = isinstance(error, UnknownMemberId | FencedMemberEpoch)
        if error.retriable or fenced or isinstance(error, RemoteProtocolError):
            return self._trouble.report(error, now)
        self._fail(error, now)
        return 0.0

    def _expelled(self, error: UnknownMemberId | FencedMemberEpoch | GroupIdNotFound, now: float) -> None:
        pause = self._trouble.sent_back(error)
        say = log.info if pause else log.warning
        say("the group continued without this member, rejoining", extra={"group": self._group, "why": error.name})
        self._may_be_registered = isinstance(error, FencedMemberEpoch)
        self._enter(On.EXPELLED, now)
        self._forget(f"the group has continued without this member ({error.name})", now)
        self._begin(pause)


def _new_id(rng: "Random") -> str:
    """A random UUID of version 4, as text."""
    bits = rng.getrandbits(128) & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    digits = f"{bits:032x}"
    return "-".join(digits[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
