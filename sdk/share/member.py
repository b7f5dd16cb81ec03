"""A member of a share group: joins, keeps its place by heartbeats, learns its partitions, leaves (KIP-932).

`ShareMember._live` sends the heartbeats, from the first to the last; one API does all.

Rules:
- Every state change goes through the table of `ottla.sdk.share.member_states`, in `_enter`.
- The client makes the member's id, and keeps it as long as the consumer lasts. One heartbeat at a time is in flight;
  the next is due after the interval that the coordinator names.
- All fields are sent when the member joins, and after an error or a lost response: the coordinator may not have them.
- UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH: the group has continued without the member. It joins again with epoch 0 and
  the same id, and reads nothing until it is assigned partitions again. Locks belong to the leaders of partitions, not
  to the group's coordinator, so acknowledgements go on.
- The coordinator answers the first heartbeat of a new group before it has prepared the partitions (share state). While
  the member has no partitions, it asks again soon, with growing pauses: Java's member waits for a whole interval.
- The member leaves with epoch -1, on its own connection, behind its last heartbeat.

Source: ShareMembershipManager.java, ShareHeartbeatRequestManager.java; GroupMetadataManager.java, shareGroupHeartbeat.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.codec.apis.share_group_heartbeat import (
    JOIN,
    LEAVE,
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    OttlaError,
    RemoteProtocolError,
    UnknownMemberId,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.flow import LoneFlow, ask, sleep
from ottla.sdk.group.assigned_topics import look_up, names_of
from ottla.sdk.group.coordinator_trouble import CoordinatorTrouble
from ottla.sdk.group.goodbye import Goodbye, nothing_to_say, say_good_bye
from ottla.sdk.group.group_metrics import MemberMetrics
from ottla.sdk.group.group_types import is_of_another_type, share_consumer_refused
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, any_of
from ottla.sdk.share.locked_record import SharedPartition
from ottla.sdk.share.member_states import TRANSITIONS, ShareMemberInput, ShareMemberState
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
_GONE = frozenset(each.code for each in (UnknownMemberId, FencedMemberEpoch, GroupIdNotFound))
"""Answers to a goodbye which say that the group does not have this member."""
NO_SHARE_GROUPS = (
    "this cluster has no share groups: they need Kafka 4.2 or newer, and the feature share.version, which "
    "`kafka-features.sh upgrade --feature share.version=1` enables"
)

S, On = ShareMemberState, ShareMemberInput
_DOING = {
    S.OUT: "is out until your code asks for a record",
    S.JOINING: "is about to join",
    S.STABLE: "gets no heartbeat through",
    S.FAILED: "has ended",
    S.CLOSED: "has left",
}


class ShareMember:
    """Runs a member of ``group`` on its own ``channel``.

    Args:
        assigned: called, inside the core, with all partitions of each new assignment, by name.
        failed: called, inside the core, with the error that has ended the membership for good.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        topics: tuple[str, ...],
        channel: str,
        assigned: Callable[[frozenset[SharedPartition], float], None],
        failed: Callable[[OttlaError, float], None],
    ) -> None:
        self._core, self._group, self._topics, self._channel = core, group, topics, channel
        self._assigned, self._failed = assigned, failed
        self.id = _new_id(core.rng)
        self.state = S.OUT
        self.epoch = -1
        self._all = True
        """The next heartbeat has all fields."""
        self._interval = 0.0
        """Seconds between heartbeats, as the coordinator wants them; 0: unknown."""
        self._partitions: frozenset[tuple[UUID, int]] = frozenset()
        """The partitions that the coordinator assigned last."""
        self._idle = 0
        """Consecutive heartbeats after which the member had no partitions."""
        self._metrics = MemberMetrics(core.metrics, group)
        self._trouble = CoordinatorTrouble(core, group)
        self._living: LoneFlow | None = None
        """Sends heartbeats; it may have ended."""
        self._naming: LoneFlow | None = None
        """Looks up the topics of an assignment; it may have ended."""
        self._there = False
        """The coordinator may have this member."""
        self._leaving = nothing_to_say()
        self._since = 0.0
        """When the current state began."""
        self._seen = 0.0
        """When the coordinator last confirmed this member."""

    # -- for the consumer --------------------------------------------------------------------------------------------

    def join(self, now: float) -> None:
        """Start to send heartbeats, the first of which joins."""
        if self._enter(On.JOIN, now):
            self._living = LoneFlow(self._core, self._live())

    def leave(self, now: float) -> None:
        """Leave the group until `join`, and drop the assignment."""
        if self._enter(On.LEAVE, now):
            self._say_good_bye(now + _LEAVE_TIMEOUT)
            self._stop()
            self._drop(now)

    def close(self, now: float, until: float | None = None) -> Outcome[None]:
        """Leave the group for good. Settled when the coordinator has answered, or at the deadline ``until``."""
        if self._enter(On.CLOSE, now):
            self._metrics.close()
            self._say_good_bye(now + _LEAVE_TIMEOUT if until is None else until)
            self._stop()
            if self._leaving.done:
                self._core.retire(self._channel)
        return self._leaving

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about problems."""
        trouble = self._trouble.text
        if self.state in (S.STABLE, S.FAILED, S.CLOSED) and not trouble:
            return
        since = self._seen if self.state is S.STABLE else self._since
        where = f"; {self._core.coordinators.where(self._group)}" if self.state in (S.JOINING, S.STABLE) else ""
        last = f"; last error: {trouble}" if trouble else ""
        yield f"share group {self._group!r}: this member {_DOING[self.state]}, for {now - since:.1f} s{where}{last}"

    # -- states ------------------------------------------------------------------------------------------------------

    def _enter(self, what: ShareMemberInput, now: float) -> bool:
        """Enter the state that follows ``what``; return whether the current state has a transition for it."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        if state is not self.state:
            self.state, self._since = state, now
        return True

    def _stop(self) -> None:
        for flow in (self._living, self._naming):
            if flow is not None:
                flow.cancel()

    def _fail(self, error: OttlaError, now: float) -> None:
        """End the membership with an error that is not retriable."""
        if not self._enter(On.FAIL, now):
            return
        if isinstance(error, UnsupportedVersion):
            error = UnsupportedVersion(error.detail, told=NO_SHARE_GROUPS)
        log.error("membership ended, the consumer raises the error", extra={"group": self._group, "why": str(error)})
        self._say_good_bye(now + _LEAVE_TIMEOUT)
        self._stop()
        self._failed(error, now)

    def _say_good_bye(self, until: float) -> None:
        """Leave the group, if the coordinator may have this member."""
        if not self._there:
            return
        self._there = False
        if self._living is not None:
            self._living.cancel()  # no heartbeat may follow the goodbye
        request = ShareGroupHeartbeatRequest(group_id=self._group, member_id=self.id, member_epoch=LEAVE)
        self._leaving = say_good_bye(self._core, Goodbye(self._group, request, _GONE, {}, channel=self._channel), until)
        self._leaving.when_done(lambda: self._core.retire(self._channel))

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def _live(self) -> Steps[None]:
        """Join with the first heartbeat, then send one whenever it is due, until this flow is cancelled."""
        core = self._core
        if not self._leaving.done:  # its goodbye would remove a member that joins before
            yield any_of((self._leaving,))
        while True:
            sent = core.now
            try:
                answer = yield from self._heartbeat()
            except OttlaError as error:
                yield from sleep(core, self._on_error(error, core.now))
            else:
                self._take(answer, core.now)
                soon = _SHORTEST * 2 ** min(self._idle, 16) if self._idle else self._interval
                yield from sleep(core, max(0.0, sent + min(soon, self._interval) - core.now))

    def _heartbeat(self) -> Steps[ShareGroupHeartbeatResponse]:
        """Send a heartbeat to the coordinator, and return its response.

        Raises:
            OttlaError: the coordinator refuses it, or there is no response.
        """
        core = self._core
        node = yield from settled(core.coordinators.find(self._group, core.now))
        joining = self.state is S.JOINING
        whole, self._all = self._all or joining, True  # until the response proves that the coordinator has the fields
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.id,
            member_epoch=JOIN if joining else self.epoch,
            rack_id=core.options.rack if whole else None,
            subscribed_topic_names=self._topics if whole else None,
        )
        before, self._there = self._there, True
        sent = core.now
        try:
            answer = yield from self._ask(node, request)
        except UnsupportedVersion:  # so it was not sent
            self._there = before
            raise
        self._metrics.heartbeats.record(core.now - sent, core.now)
        if answer.error_code:
            self._there = before
            if is_of_another_type(answer.error_code, answer.error_message):
                raise share_consumer_refused(self._group)
            what = f"ShareGroupHeartbeat of {self._group!r}"
            what += f": {answer.error_message}" if answer.error_message else ""
            raise broker_error(answer.error_code, what, repeatable=True)
        self._all = False
        return answer

    def _ask(self, node: Node, request: ShareGroupHeartbeatRequest) -> Steps[ShareGroupHeartbeatResponse]:
        timeout = self._core.options.request_timeout
        if self._interval:
            timeout = min(timeout, _INTERVALS * self._interval)
        until = self._core.now + timeout
        answer: ShareGroupHeartbeatResponse = yield from settled(
            ask(self._core, node, request, until, channel=self._channel)
        )
        return answer

    def _take(self, answer: ShareGroupHeartbeatResponse, now: float) -> None:
        """Take the epoch, and the assignment if there is one."""
        if self._enter(On.JOINED, now):
            self._metrics.join_time.record(now - self._since, now)
        self._trouble.over()
        self._seen, self._interval = now, max(answer.heartbeat_interval_ms / 1000, _SHORTEST)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assign(answer.assignment, now)
        self._idle = 0 if self._partitions else self._idle + 1

    def _assign(self, assignment: Assignment, now: float) -> None:
        """Take the partitions of an assignment."""
        partitions = frozenset(
            (each.topic_id, partition) for each in assignment.topic_partitions for partition in each.partitions
        )
        if partitions != self._partitions:
            self._partitions = partitions
            self._metrics.rebalances.add(1, now)
            if self._naming is not None:
                self._naming.cancel()
            self._naming = LoneFlow(self._core, self._name(partitions))

    def _name(self, partitions: "frozenset[tuple[UUID, int]]") -> Steps[None]:
        """Report the assignment, at once with the topics that the metadata has, and then with the others."""
        core, failures = self._core, 0
        while True:
            names = names_of(core)
            known = {SharedPartition(names[each], each, number) for each, number in partitions if each in names}
            self._assigned(frozenset(known), core.now)
            unknown = {each for each, _ in partitions if each not in names}
            if not unknown:
                return
            yield from look_up(core, unknown, self._topics)
            if unknown - names_of(core).keys():
                yield from sleep(core, core.backoff(failures))
                failures += 1

    # -- errors ------------------------------------------------------------------------------------------------------

    def _on_error(self, error: OttlaError, now: float) -> float:
        """Act on an error of a heartbeat; return the seconds before the next one."""
        self._core.coordinators.heard(self._group, error)
        if isinstance(error, UnknownMemberId | FencedMemberEpoch) and self.state is S.STABLE:
            self._expelled(error, now)
            return 0.0
        if error.retriable or isinstance(error, UnknownMemberId | FencedMemberEpoch | RemoteProtocolError):
            return self._trouble.report(error, now)
        self._fail(error, now)
        return 0.0

    def _expelled(self, error: UnknownMemberId | FencedMemberEpoch, now: float) -> None:
        log.warning(
            "the group continued without this member, rejoining", extra={"group": self._group, "why": error.name}
        )
        self._enter(On.EXPELLED, now)
        self._drop(now)

    def _drop(self, now: float) -> None:
        """Drop the epoch and the assignment."""
        self.epoch, self._partitions, self._idle = -1, frozenset(), 0
        if self._naming is not None:
            self._naming.cancel()
        self._assigned(frozenset(), now)


def _new_id(rng: "Random") -> str:
    """A random UUID in Kafka's own text form: brokers parse it with their class `Uuid`."""
    bits = rng.getrandbits(128) & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    return urlsafe_b64encode(bits.to_bytes(16, "big")).decode().rstrip("=")
