"""Chooses the group protocol: the classic one, or that of KIP-848.

Rules:
- ``auto`` chooses the new protocol only if the cluster has finalized it (`group.version`), and the group is empty or
  uses it already. The choice is made when the member first joins.
- Before each heartbeat that joins, the member asks again: when a member of the new protocol has left or was expelled,
  the broker makes the group of the other members a classic one, and epoch 0 would convert it.
- So no group is converted that had classic members when this client asked. The broker may still convert one that
  another client begins between that answer and the heartbeat: no request joins only if the group has a certain type.
- If the group is not for the new protocol any more, or the coordinator refuses it, a classic member takes over.
- A group that is neither classic nor a consumer group is a share group: the member fails, and names the type.
- Static members, and clients with a ``rack``, are classic. With the new protocol, Kafka refuses the successor of a
  killed static member until the session has timed out, and its own assignors ignore racks.

Source: GroupVersion.java; GroupMetadataManager.java, describeGroups.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.errors import (
    GroupIdNotFound,
    OttlaError,
    RemoteProtocolError,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.versions import CLIENT_MADE_MEMBER_ID
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.flow import LoneFlow, ask, sleep
from ottla.sdk.group.classic_member import ClassicMember
from ottla.sdk.group.consumer_group_member import REFUSED, ConsumerGroupMember
from ottla.sdk.group.coordinator_trouble import CoordinatorTrouble
from ottla.sdk.group.goodbye import nothing_to_say
from ottla.sdk.group.group_types import consumer_refused, is_of_another_type
from ottla.sdk.group.membership import AssignmentChange, Lose, Membership
from ottla.sdk.group.offset_commits import CommittingMember
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")

FEATURE = "group.version"
"""The broker feature whose level is 1 if the brokers have the protocol of KIP-848."""

Notify = Callable[[AssignmentChange | None, float], None]


def member_of(
    core: ClientCore, group: str, options: MemberOptions, channel: str, notify: Notify, regex: str | None = None
) -> Membership:
    """A member of ``group`` that speaks the protocol in ``options``; arguments as in `ConsumerGroupMember`."""
    if options.group_protocol == "consumer":
        return ConsumerGroupMember(core, group, options, channel, notify, regex)
    if options.group_protocol == "auto" and core.options.rack is None:
        return ChoosingMember(core, group, options, channel, notify)
    return ClassicMember(core, group, options, channel, notify)


class ChoosingMember:
    """Chooses the protocol when it first joins, and becomes a classic member if the group turns classic later.

    Implements `ottla.sdk.group.membership.Membership`; arguments as in `ConsumerGroupMember`.
    """

    def __init__(self, core: ClientCore, group: str, options: MemberOptions, channel: str, notify: Notify) -> None:
        self._core, self._group, self._options, self._channel, self._notify = core, group, options, channel, notify
        self._member: ClassicMember | ConsumerGroupMember | None = None
        self._choosing: LoneFlow | None = None
        """Chooses the protocol; it may have ended."""
        self._asking = False
        """A flow asks what kind of group this is."""
        self._free_at = -math.inf
        """When the group was last for the new protocol."""
        self._is_of_new_type = False
        """When last asked, the coordinator had a group under this name that is not classic."""
        self._failed: OttlaError | None = None
        """Its own failure; its member may have another."""
        self._topics: tuple[str, ...] = ()
        self._trouble = CoordinatorTrouble(core, group)
        self._closed = False
        self._refused_left = nothing_to_say()
        """Settled when the goodbye of the refused member, if there was one, has ended."""
        self._nothing: deque[AssignmentChange] = deque()

    @property
    def identity(self) -> CommittingMember | None:
        return None if self._member is None else self._member.identity

    @property
    def member_id(self) -> str:
        return "" if self._member is None else self._member.member_id

    @property
    def generation(self) -> int:
        return -1 if self._member is None else self._member.generation

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return () if self._member is None else self._member.owned

    @property
    def changes(self) -> deque[AssignmentChange]:
        return self._nothing if self._member is None else self._member.changes

    @property
    def failed(self) -> OttlaError | None:
        return self._failed or (None if self._member is None else self._member.failed)

    def subscribe(self, topics: Sequence[str], now: float) -> None:
        self._topics = tuple(topics)
        if self._member is not None:
            self._member.subscribe(topics, now)

    def join(self, now: float) -> None:
        if self._member is not None:
            self._member.join(now)
        elif not self._closed and (self._choosing is None or self._choosing.outcome.done):
            self._choosing = LoneFlow(self._core, self._choose())

    def done(self, change: AssignmentChange, now: float) -> None:
        if self._member is not None:
            self._member.done(change, now)

    def refused(self, error: OttlaError, identity: CommittingMember, now: float) -> bool:
        return self._member is not None and self._member.refused(error, identity, now)

    def leave(self, why: str, now: float) -> None:
        self._stop_choosing()
        if self._member is not None:
            self._member.leave(why, now)

    def close(self, why: str, now: float, until: float | None = None) -> Outcome[None]:
        self._closed = True
        self._stop_choosing()
        if self._member is not None:
            return all_of((self._refused_left, self._member.close(why, now, until)))
        return nothing_to_say()

    def explain(self, now: float) -> Iterator[str]:
        if self._asking:
            last = f"; last error: {self._trouble.text}" if self._trouble.text else ""
            where = self._core.coordinators.where(self._group)
            yield f"group {self._group!r}: this member chooses the group protocol; {where}{last}"
        elif self._member is not None:
            yield from self._member.explain(now)

    def _stop_choosing(self) -> None:
        if self._choosing is not None:
            self._choosing.cancel()

    # -- the choice --------------------------------------------------------------------------------------------------

    def _choose(self) -> Steps[None]:
        """Ask the coordinator what kind of group this is, and join it."""
        core, group, options, channel = self._core, self._group, self._options, self._channel
        if (yield from self._is_for_the_new_protocol()):
            self._become(
                ConsumerGroupMember(core, group, options, channel, self._hear, may_join=self._may_join), core.now
            )
        else:
            self._become(ClassicMember(core, group, options, channel, self._notify), core.now)

    def _become(self, member: ClassicMember | ConsumerGroupMember, now: float) -> None:
        self._member = member
        member.subscribe(self._topics, now)
        member.join(now)

    def _hear(self, change: AssignmentChange | None, now: float) -> None:
        """Pass a change on; if the group is not for the new protocol, begin again as a classic member."""
        member = self._member
        if change is None and member is not None and isinstance(member.failed, REFUSED) and not self._closed:
            if self._is_of_new_type and isinstance(member, ConsumerGroupMember) and member.has_wrong_group:
                self._failed = consumer_refused(self._group)
                facts = {"group": self._group, "why": str(self._failed)}
                log.error("membership ended, the consumer raises the error", extra=facts)
                self._notify(None, now)
                return
            log.warning(
                "the group cannot use the new group protocol, joining by the classic one",
                extra={"group": self._group, "why": str(member.failed)},
            )
            self._refused_left = member.close("it joins by the classic protocol", now)
            # The failed member has lost its partitions: `lost` comes before `assigned` for the next ones.
            unreported = [each for each in member.changes if isinstance(each, Lose)]
            # Its goodbye may be under way, and closes its channel in the end: a JoinGroup there would fail.
            channel = f"{self._channel}-classic"
            classic = ClassicMember(self._core, self._group, self._options, channel, self._notify, unreported)
            self._become(classic, now)
            return
        self._notify(change, now)

    def _may_join(self) -> Steps[bool]:
        """Whether the group is for the new protocol at this moment: at the first time, the choice has just said so."""
        if self._free_at == self._core.now:
            return True
        return (yield from self._is_for_the_new_protocol())

    def _is_for_the_new_protocol(self) -> Steps[bool]:
        """Ask whether the cluster has the new protocol, and the group is empty or uses it."""
        self._asking = True
        try:
            free = yield from self._asked()
        finally:
            self._asking = False
        if free:
            self._free_at = self._core.now
        self._trouble.over()
        return free

    def _asked(self) -> Steps[bool]:
        core = self._core
        if core.connections.feature(FEATURE) < 1:
            return False
        while True:
            try:
                node = yield from settled(core.coordinators.find(self._group, core.now))
                return (yield from self._is_free(node))
            except UnsupportedVersion:
                return False
            except OttlaError as error:
                core.coordinators.heard(self._group, error)
                if not (error.retriable or isinstance(error, RemoteProtocolError)):
                    return False  # the classic member gets the error, too, and reports it
                yield from sleep(core, self._trouble.report(error, core.now))

    def _is_free(self, node: Node) -> Steps[bool]:
        """Whether ``node`` has no members of a classic group under this name."""
        core = self._core
        until = core.now + core.options.request_timeout
        # DescribeGroups does not know groups of the new type. ConsumerGroupDescribe would name all members of such a
        # group: if a thousand members join, each would receive a description of a thousand. DescribeGroups does send
        # that for a classic group. Only ListGroups leaves the members out, but it lists all groups of the node.
        asked = ask(core, node, DescribeGroupsRequest(groups=(self._group,)), until)
        groups = (yield from settled(asked)).groups
        if len(groups) != 1:
            raise RemoteProtocolError(f"DescribeGroups of one group was answered with {len(groups)} groups")
        [classic] = groups
        if classic.error_code not in (0, GroupIdNotFound.code):
            raise broker_error(classic.error_code, f"DescribeGroups of {self._group!r}", repeatable=True)
        self._is_of_new_type = is_of_another_type(classic.error_code, classic.error_message)
        offered = core.supports(node, ConsumerGroupHeartbeatRequest)
        if offered is not None and CLIENT_MADE_MEMBER_ID[0] not in offered:
            return False
        return bool(classic.error_code) or classic.group_state in ("Dead", "Empty")
