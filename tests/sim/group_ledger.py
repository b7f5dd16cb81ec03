"""The promises of a group: records are handled, commits last and never go back, members keep to their partitions.

Rules:
- A member that is assigned a partition begins at the group's committed offset. Within a partition records come in
  order, so the group repeats only records between the last commit and the end of an assignment.
- No commit goes back, is ahead of the handled records, or concerns a partition that another member has. A commit that
  the network holds back may arrive after a later one, and set the offset back: its client commits the later one again,
  unless the member ends before. Then the next owner begins at the offset that was set back.
- A member of a consumer group (KIP-848) repeats all fields if the coordinator may not have got them. After each new
  assignment it reports its partitions, also unchanged ones: the coordinator may wait for a report without a partition
  that the member never had.
- A member that chooses its protocol (``auto``) asks for the group before each join, and converts no classic group that
  had members then.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.codec.apis.describe_groups import DescribeGroupsResponse
from ottla.codec.apis.join_group import JoinGroupRequest
from ottla.codec.apis.leave_group import LeaveGroupRequest
from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.codec.consumer_protocol import parse_assignment
from ottla.errors import FencedMemberEpoch, UnknownMemberId
from tests.sim.data import PASSING, Place
from tests.sim.groups import Group
from tests.sim.ledger import Ledger
from tests.sim.network import Link
from tests.sim.passing import Passing
from tests.sim.users import Violation

BACKWARDS = "a commit goes backwards"
AHEAD = "a commit is ahead of the handled records"
FOREIGN = "a member commits a partition of another member"
NOT_MINE = "a member reads a partition that it does not have"
BEGINNING = "a member does not begin at the group's committed offset"
STAYS = "a member leaves in order, and its group still has it"
AGAIN_IN = "a consumer joins its group again after its LeaveGroup"
CHANGES = "a heartbeat lacks fields, although the one before was refused or had no response"
REPORTS = "a heartbeat after a new assignment lacks the partitions"
CONVERTS = "a member that chooses its protocol converts a classic group with members"
BLIND = "a member that chooses its protocol joins without asking for the group"
OLD_ASSIGNMENT = "a member has reconciled an assignment that was not the last one"
FEW = 10
"""Offsets that a client may commit twice: it does so after a later commit whose outcome is unknown."""
AGAIN = "an acknowledged offset is committed again"
UNCOMMITTED = "an acknowledged commit is lost"
UNREPAIRED = "an offset that a late commit has set back is not committed again"


@dataclass(slots=True)
class GroupLedger:
    ledger: Ledger
    group: str
    places: list[Place]
    _handled: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    _upto: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    """All offsets before it have been handled."""
    _given: dict[tuple[str, int], set[Place]] = field(default_factory=dict)
    """(member, generation) -> the partitions that SyncGroup assigned."""
    _told: dict[str, set[Place]] = field(default_factory=dict)
    """Member -> the partitions that the coordinator of a consumer group (KIP-848) assigned last."""
    _reported: dict[str, set[Place]] = field(default_factory=dict)
    """Member -> the partitions that it reported to own: it may still have to give them up."""
    _assigned: dict[str, set[tuple[UUID, int]]] = field(default_factory=dict)
    """Member -> the partitions that the coordinator assigned last, by the ids of their topics."""
    _must_report: set[str] = field(default_factory=set)
    """Members that have got a new assignment since their last heartbeat."""
    _complete: set[str] = field(default_factory=set)
    """Members whose last heartbeat the coordinator took: it knows all their fields."""
    _stands: dict[tuple[str, Place], list[int]] = field(default_factory=lambda: defaultdict(list))
    """(process, partition) -> the committed offsets that the coordinator returned since the last assignment began."""
    _unanswered: Counter[str] = field(default_factory=Counter)
    """Per process, commits without an answer."""
    _has: dict[tuple[str, str, Place], int] = field(default_factory=dict)
    """(process, member, partition) -> the offset that was acknowledged last."""
    _again: Counter[str] = field(default_factory=Counter)
    """Per process, acknowledged offsets that were committed again."""
    _leaving: dict[str, bool] = field(default_factory=dict)
    """Processes whose consumer's block was left, and whether LeaveGroup has been sent since."""
    _coordinators: dict[str, int] = field(default_factory=dict)
    """Process -> the epoch of the coordinator when the consumer's block was left."""
    _set_back: dict[Place, tuple[str, float]] = field(default_factory=dict)
    """Partitions whose offset a late commit has set back: the member, and when that was."""
    choosing: set[str] = field(default_factory=set)
    """Processes whose only member chooses its protocol."""
    _classic: dict[str, bool] = field(default_factory=dict)
    """Process -> whether the group had members, and was classic, in the last answer since the process joined it."""
    shared: set[str] = field(default_factory=set)
    """Processes with several consumers."""
    everything: bool = False
    """Members commit every record that they got, without naming offsets."""
    passing: Passing | None = None
    """The topic that is deleted and recreated, if there is one; it has no other promises."""
    repeats: int = 0
    """Records that were handled more than once."""

    # -- requests and answers ----------------------------------------------------------------------------------------

    def delivered(self, process: str, request: Any, answer: Any) -> None:
        """A client got an answer."""
        match answer:
            case OffsetCommitResponse():
                self._unanswered[process] -= 1
                given = {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}
                for told in answer.topics:
                    for one in told.partitions:
                        place = (told.name, one.partition_index)
                        if not one.error_code:
                            self._has[process, request.member_id, place] = given[place]
            case SyncGroupResponse(error_code=0) if isinstance(request, SyncGroupRequest):
                self._given[request.member_id, request.generation_id] = assigned(answer.assignment)
            case ConsumerGroupHeartbeatResponse() if isinstance(request, ConsumerGroupHeartbeatRequest):
                self._heard(request, answer)
            case DescribeGroupsResponse():
                found = answer.groups[0]
                self._classic[process] = not found.error_code and found.group_state not in ("Dead", "Empty")
            case OffsetFetchResponse(error_code=0) if isinstance(request, OffsetFetchRequest):
                topics: list[Any] = [*answer.topics, *(topic for group in answer.groups for topic in group.topics)]
                for topic in topics:
                    for each in topic.partitions:
                        self._stands[process, (topic.name, each.partition_index)].append(each.committed_offset)

    def _heard(self, request: ConsumerGroupHeartbeatRequest, answer: ConsumerGroupHeartbeatResponse) -> None:
        member = request.member_id
        if not answer.error_code:
            self._complete.add(member)
        if answer.error_code in (UnknownMemberId.code, FencedMemberEpoch.code):
            self._told[member], self._reported[member] = set(), set()
        elif answer.assignment is not None:
            parts = {(t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions}
            if parts != self._assigned.get(member, set()):
                self._must_report.add(member)
            self._assigned[member] = parts
            self._told[member] = self._named(answer.assignment.topic_partitions)
            if request.topic_partitions is not None:
                self._reported[member] = self._named(request.topic_partitions)

    def _named(self, topics: Iterable[Any]) -> set[Place]:
        return {(self.ledger.cluster.ever_named(each), index) for each in topics for index in each.partitions}

    def committed(self, group: Group, member: str, place: Place, offset: int) -> None:
        """The coordinator accepts a commit."""
        if place[0] == PASSING:
            return
        where = f"{member} commits {place[0]}-{place[1]} at {offset}"
        before = group.offsets[place][0] if place in group.offsets else 0
        if offset < before and self.ledger.cluster.network.serves_late:
            self.ledger.cluster.data.features["a late commit sets an offset back"] += 1
            self._set_back[place] = member, self.ledger.cluster.clock.now
        elif offset < before:
            raise Violation(BACKWARDS, f"{where}, the group's offset is {before}")
        else:
            self._set_back.pop(place, None)
        if offset > self._upto[place]:
            raise Violation(AHEAD, f"{where}, the records before {self._upto[place]} are handled")
        for each in group.members.values():
            if each.id != member and place in assigned(each.assignment):
                raise Violation(FOREIGN, f"{where} in generation {group.generation}, where {each.id} has it")
        if group.modern is not None and member:
            for other in group.modern.members.values():
                if other.id != member and place in self.ledger.cluster.groups.modern.places(other.has):
                    raise Violation(FOREIGN, f"{where} in epoch {group.modern.epoch}, where {other.id} has it")

    # -- users -------------------------------------------------------------------------------------------------------

    def may_read(self, who: str, member: str, generation: int, place: Place) -> None:
        if member in self._told and place not in self._told[member] | self._reported.get(member, set()):
            raise Violation(NOT_MINE, f"{who} ({member}) gets {place[0]}-{place[1]} in epoch {generation}")
        given = self._given.get((member, generation))
        if given is not None and place not in given:
            raise Violation(NOT_MINE, f"{who} ({member}) gets {place[0]}-{place[1]} in generation {generation}")

    def begins(self, who: str, place: Place, offset: int) -> int:
        """The first record of an assignment; returns its offset."""
        stands = {max(each, 0) for each in self._stands[who, place]}
        if who not in self.shared:  # else the answer may have been for another consumer of the process
            del self._stands[who, place]
        if offset not in stands:
            where = f"{who} begins {place[0]}-{place[1]} at {offset}"
            raise Violation(BEGINNING, f"{where}, the coordinator returned {sorted(stands) or 'nothing'}")
        return offset

    def read(self, who: str, place: Place, expected: int, records: list[tuple[int, bytes]]) -> int:
        return self.ledger.read(who, place, expected, records)

    def handled(self, place: Place, records: list[tuple[int, bytes]]) -> None:
        if place[0] == PASSING and self.passing is not None:
            self.passing.handled(place, records)
            return
        done = self._handled[place]
        for offset, _ in records:
            self.repeats += offset in done
            done.add(offset)
        while self._upto[place] in done:
            self._upto[place] += 1

    def acknowledged(self, who: str, offsets: Mapping[Place, int]) -> None:
        """A commit that a caller awaited has succeeded."""
        group = self.ledger.cluster.groups.groups.get(self.group)
        for place, offset in offsets.items():
            if place in self._set_back or place[0] == PASSING:
                continue
            if group is None or place not in group.offsets or group.offsets[place][0] < offset:
                raise Violation(UNCOMMITTED, f"{who}: {place[0]}-{place[1]} at {offset}")

    def check_set_back(self, since: float, running: Collection[str]) -> None:
        """Check that the offsets that were set back before ``since`` were committed again by their members.

        Only by the ``running`` ones: the group keeps a killed or static member until its session expires.
        """
        group = self.ledger.cluster.groups.groups.get(self.group)
        for place, (member, when) in self._set_back.items():
            if group is not None and when < since and member in running and place in self._of(group, member):
                raise Violation(UNREPAIRED, f"{member}: {place[0]}-{place[1]} since {when:.4f}")

    def _of(self, group: Group, member: str) -> set[Place]:
        """The partitions of a member, as the coordinator knows them."""
        if group.modern is not None and (modern := group.modern.members.get(member)) is not None:
            return self.ledger.cluster.groups.modern.places(modern.has)
        return assigned(group.members[member].assignment) if member in group.members else set()

    def leaves(self, process: str) -> None:
        """The user has begun to leave a consumer's block."""
        self._leaving[process] = False
        self._coordinators[process] = self.coordinator()

    def coordinator(self) -> int:
        """The epoch of the group's coordinator."""
        groups = self.ledger.cluster.groups
        return self.ledger.cluster.leaders[groups.place(self.group)].epoch

    def left(self, who: str, member: str, instance: str | None) -> None:
        """A member has left in order and in time: the group need not wait until its session expires.

        The next coordinator loads the group as it was stored last, before the goodbye, so the member may be back.
        """
        if self._coordinators.get(who, self.coordinator()) != self.coordinator():
            return
        group = self.ledger.cluster.groups.groups.get(self.group)
        members = {} if group is None else group.members | (group.modern.members if group.modern is not None else {})
        if instance is None and member in members:
            raise Violation(STAYS, f"{who} ({member})")

    def sent(self, link: Link, message: Any) -> None:
        if isinstance(message, ConsumerGroupHeartbeatRequest):
            self._beats(message)
            name = link.client.name
            if message.member_epoch == JOIN and name in self.choosing - self.shared:
                classic = self._classic.pop(name, None)
                if classic is not False:
                    raise Violation(CONVERTS if classic else BLIND, name)
        if self.passing is not None:
            self.passing.sent(link, message)
        self._stays_away(link, message)
        self._commits(link, message)

    def _beats(self, message: ConsumerGroupHeartbeatRequest) -> None:
        """Check that a member repeats all fields, unless the coordinator is known to have them."""
        member, goes = message.member_id, message.member_epoch in (LEAVE, LEAVE_STATIC)
        if member not in self._complete and message.rebalance_timeout_ms < 0 and not goes:
            raise Violation(CHANGES, f"{member} in epoch {message.member_epoch}")
        if member in self._must_report and message.topic_partitions is None and not goes:
            raise Violation(REPORTS, f"{member} in epoch {message.member_epoch}")
        self._must_report.discard(member)
        if goes or message.member_epoch == JOIN:
            self._assigned.pop(member, None)
        self._complete.discard(member)

    def reconciled(self, who: str, member: str, owned: Collection[Place]) -> None:
        """A member that has reconciled its assignment sends a heartbeat."""
        if member in self._told and set(owned) != self._told[member]:
            where = f"{who} ({member}) owns {sorted(owned)}, and was told {sorted(self._told[member])}"
            raise Violation(OLD_ASSIGNMENT, where)

    def _stays_away(self, link: Link, message: Any) -> None:
        """Check that a member that is leaving does not join again."""
        if link.client.name in self._leaving and link.client.name not in self.shared:
            epoch = message.member_epoch if isinstance(message, ConsumerGroupHeartbeatRequest) else 1
            leaves = isinstance(message, LeaveGroupRequest) or epoch in (LEAVE, LEAVE_STATIC)
            joins = isinstance(message, JoinGroupRequest) or epoch == JOIN
            self._leaving[link.client.name] |= leaves
            if self._leaving[link.client.name] and joins:
                raise Violation(AGAIN_IN, link.client.name)

    def _commits(self, link: Link, message: Any) -> None:
        """Check that a member commits no acknowledged offset again, unless an answer is missing."""
        if not self.everything or not isinstance(message, OffsetCommitRequest):
            return
        client = link.client.name
        if self._unanswered[client] <= 0:
            for topic in message.topics:
                for each in topic.partitions:
                    place = (topic.name, each.partition_index)
                    if self._has.get((client, message.member_id, place)) == each.committed_offset:
                        self._again[client] += 1
                        if self._again[client] > FEW:
                            where = f"{message.member_id} commits {place[0]}-{place[1]} at {each.committed_offset}"
                            raise Violation(AGAIN, where)
        self._unanswered[client] += 1

    def behind(self) -> str:
        """The records that are not handled or not committed yet, for people; empty if there are none."""
        group = self.ledger.cluster.groups.groups.get(self.group)
        left = []
        for place in self.places:
            end = self.ledger.cluster.logs[place].high_watermark
            stands = group.offsets[place][0] if group and place in group.offsets else 0
            if self._upto[place] < end or stands < end:
                left.append(f"{place[0]}-{place[1]}: handled {self._upto[place]}, committed {stands} of {end}")
        return f"group {self.group!r} is not done with {'; '.join(left)}" if left else ""


def assigned(assignment: bytes) -> set[Place]:
    """The partitions of an assignment in the format of the protocol."""
    if not assignment:
        return set()
    found = parse_assignment(assignment)[1].assigned_partitions
    return {(each.topic, index) for each in found for index in each.partitions}
