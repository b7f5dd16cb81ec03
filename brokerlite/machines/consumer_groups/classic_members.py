"""Serves the members of consumer groups that still use the classic protocol, so that a group migrates member by member.

A classic member joins and gets its epoch as its generation at once, without waiting for the others. SyncGroup returns
the partitions that the coordinator has assigned. A heartbeat tells the member to join again when there is something to
give up or to get: its JoinGroup then says which partitions it has, as a heartbeat of the new protocol does.

Rule: the client cannot tell that its group is a consumer group.

Source: GroupMetadataManager.java (classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ottla.brokerlite.machines.consumer_groups.consumer_group import Change, ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import MigrationPolicy
from ottla.brokerlite.machines.consumer_groups.consumer_groups import join_static
from ottla.brokerlite.machines.consumer_groups.conversions import assignment_of
from ottla.brokerlite.machines.consumer_groups.member import (
    AssignedMember,
    ClassicPart,
    MemberProgress,
    Partitions,
    grouped,
    without_epochs,
)
from ottla.brokerlite.machines.consumer_groups.reconciliation import reconciled
from ottla.brokerlite.machines.consumer_groups.roster import Roster
from ottla.brokerlite.machines.groups.group import CONSUMER, Joined, Synced
from ottla.brokerlite.machines.groups.groups import Groups, LeavingMember, SyncRequest
from ottla.brokerlite.machines.groups.joins import JoinRequest, member_id_for, refusal
from ottla.codec.consumer_protocol import ConsumerProtocolSubscription, parse_subscription
from ottla.errors import (
    BrokerError,
    DecodeError,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)

log = logging.getLogger("ottla.brokerlite.groups")


class ClassicMembers:
    """Takes the classic protocol's requests to consumer groups.

    Args:
        classic: the coordinator of classic groups, which takes over a group that becomes classic.
    """

    def __init__(self, roster: Roster, classic: Groups) -> None:
        self._roster = roster
        self._classic = classic

    @property
    def by_id(self) -> Mapping[str, ConsumerGroup]:
        """The consumer groups."""
        return self._roster.by_id

    def remove(self, group_id: str) -> None:
        """Forget a group without members.

        Raises:
            BrokerError: the disk refused; the group stays.
        """
        self._roster.remove(self._roster.by_id[group_id])

    # -- joining

    def join(self, asked: JoinRequest, now: float) -> None:
        """Handle JoinGroup."""
        group = self._roster.by_id[asked.group_id]
        if group.is_empty:
            self._join_first(group, asked, now)
            return
        try:
            asked.answer(self._join(group, asked, now))
        except BrokerError as error:
            asked.answer(Joined(error.code))

    def _join_first(self, group: ConsumerGroup, asked: JoinRequest, now: float) -> None:
        """Let the first member of an empty group in: the group takes its protocol."""
        asked = replace(asked, creator=group.creator)
        try:
            # Kafka removes the group before it checks the request, and its offsets are nobody's if that is refused.
            self._classic.check_first_join(asked)
            self._roster.make_way(group)
        except BrokerError as error:
            asked.answer(refusal(asked, error))
        else:
            self._classic.join(asked, now)

    def _join(self, group: ConsumerGroup, asked: JoinRequest, now: float) -> Joined:
        if self._roster.settings.migration_policy is MigrationPolicy.DISABLED:
            raise InconsistentGroupProtocol(f"group {group.group_id} may not migrate to the classic protocol")
        self._classic.check_join(asked)
        change = Change(group)
        self._roster.check_room(change, asked.member_id)
        self._check_protocols(group, asked)
        member_id = asked.member_id or member_id_for(asked, self._classic.new_id)
        if not asked.member_id and asked.instance_id is None and asked.requires_id:
            return Joined(MemberIdRequired.code, member_id)
        member = self._find(change, asked, member_id)
        subscription = _subscription(asked)
        told = replace(
            member,
            instance_id=asked.instance_id if asked.instance_id is not None else member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=asked.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            pattern="",
            client_id=asked.client_id,
            client_host=asked.client_host,
            classic=ClassicPart(asked.session_timeout_ms, asked.protocols),
        )
        self._roster.check_room(change, member_id, told)
        change.put(told)
        led = self._lead(change, member, told, subscription, now)
        answer = Joined(0, led.member_id, led.epoch, CONSUMER, asked.protocols[0].name)
        return answer

    def _check_protocols(self, group: ConsumerGroup, asked: JoinRequest) -> None:
        """Check that the member has an assignor in common with all classic members: the group may be downgraded."""
        others = [set(_names(each.classic)) for each in group.members.values() if each.classic is not None]
        common = set(_names(ClassicPart(0, asked.protocols))).intersection(*others)
        if asked.protocol_type != CONSUMER or not common:
            raise InconsistentGroupProtocol(f"group {group.group_id} has no protocol in common with this member")

    def _find(self, change: Change, asked: JoinRequest, member_id: str) -> AssignedMember:
        group = change.group
        if asked.instance_id is None:
            return group.members.get(member_id) or AssignedMember(member_id=member_id)
        holder = group.static_member(asked.instance_id)
        if not asked.member_id:
            return join_static(change, holder, member_id, asked.instance_id, classic=True)
        return _own(group, holder, member_id, asked.instance_id)

    def _lead(
        self,
        change: Change,
        member: AssignedMember,
        told: AssignedMember,
        subscription: ConsumerProtocolSubscription,
        now: float,
    ) -> AssignedMember:
        """Bring the group up to date, and lead the member one step further; the group may become a classic one."""
        roster, group = self._roster, change.group
        changed = told.topics != member.topics or told.pattern != member.pattern
        roster.targets.drop_patterns(change)
        roster.targets.raise_epoch(change, needed=changed)
        has = self._places(subscription)
        if self._replaces_the_last(group, told):
            led = told
            rebalance = change.target_epoch < change.epoch
            if not rebalance:
                led = reconciled(told, roster.goal(change, told, has, subscription_changed=changed))
                change.put(led)
                # A stable classic group gives partitions to no member that waits for them: only a rebalance does. Kafka
                # begins none here, and the partitions stay unread until the next one.
                members = change.all_members().values()
                rebalance = not all(each.is_reconciled_to(change.target_epoch) for each in members)
            if roster.downgrade(change, (), now, rebalance=rebalance):
                return led
        roster.targets.assign(change, roster.timestamp)
        led = reconciled(told, roster.goal(change, told, has, subscription_changed=changed))
        change.put(led)
        roster.commit(change, now)
        roster.renew(group.group_id, led, now)
        roster.sessions.joined(group.group_id, led, now)
        return led

    def _replaces_the_last(self, group: ConsumerGroup, told: AssignedMember) -> bool:
        """Whether a static member takes the place of the group's last member of the new protocol."""
        holder = group.static_member(told.instance_id)
        if holder is None or holder.classic is not None:
            return False
        others = [member for member in group.members.values() if member is not holder]
        all_classic = all(member.classic is not None for member in others)
        return all_classic and self._roster.may_downgrade(group, len(group.members))

    def _places(self, subscription: ConsumerProtocolSubscription) -> Partitions:
        known = self._roster.topics.by_name
        return grouped(
            (known[each.topic].topic_id, each.partitions)
            for each in subscription.owned_partitions
            if each.topic in known
        )

    # -- assignments and heartbeats

    def sync(self, asked: SyncRequest, now: float) -> None:
        """Handle SyncGroup."""
        group = self._roster.by_id[asked.group_id]
        try:
            asked.answer(self._sync(group, asked, now))
        except BrokerError as error:
            asked.answer(Synced(error.code))

    def _sync(self, group: ConsumerGroup, asked: SyncRequest, now: float) -> Synced:
        member, classic = _classic_member(group, asked.member_id, asked.instance_id)
        _check_generation(group, member, asked.generation)
        protocol = classic.protocols[0]
        if asked.protocol_type not in (None, CONSUMER) or asked.protocol not in (None, protocol.name):
            raise InconsistentGroupProtocol(
                f"protocol {asked.protocol_type} {asked.protocol}; member {member.member_id} has {protocol.name}"
            )
        if group.epoch > member.epoch and member.state is not MemberProgress.UNREVOKED:
            self._roster.sessions.await_join(group.group_id, member, now)
            raise RebalanceInProgress(f"member {member.member_id} of group {group.group_id} must join again")
        self._roster.sessions.synced(group.group_id, member.member_id)
        self._roster.renew(group.group_id, member, now)
        version, _ = parse_subscription(protocol.metadata)
        assignment = assignment_of(without_epochs(member.assigned), self._roster.topics, version)
        return Synced(0, asked.protocol_type, asked.protocol, assignment)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
        """Renew a member's session.

        Raises:
            RebalanceInProgress: the session is renewed, and the member must join again.
            UnknownMemberId, FencedInstanceId, IllegalGeneration: the member is not in the group, or not as it says.
        """
        group = self._roster.by_id[group_id]
        member, _ = _classic_member(group, member_id, instance_id)
        _check_generation(group, member, generation)
        self._roster.renew(group_id, member, now)
        gets = member.state is MemberProgress.UNRELEASED and not group.waits_for_others(member)
        if member.epoch < group.epoch or member.state is MemberProgress.UNREVOKED or gets:
            self._roster.sessions.await_join(group_id, member, now)
            raise RebalanceInProgress(f"member {member_id} of group {group_id} must join again")

    def leave(self, group_id: str, leavers: Sequence[LeavingMember], now: float) -> list[int]:
        """Remove members, which may also use the new protocol; return an error code for each.

        Raises:
            CoordinatorLoadInProgress, UnknownServerError: the disk refused; all stay.
        """
        group = self._roster.by_id[group_id]
        leaving: dict[str, AssignedMember] = {}
        codes = []
        for leaver in leavers:
            try:
                member = _member(group, leaver.member_id, leaver.instance_id, by_instance=True)
            except BrokerError as error:
                codes.append(error.code)
                continue
            if member.member_id in leaving:
                codes.append(0)
                continue
            why = f": {leaver.reason}" if leaver.reason else ""
            log.info("member %s left%s", member.member_id, why, extra={"group": group_id})
            leaving[member.member_id] = member
            codes.append(0)
        if leaving:
            self._roster.fence(group, list(leaving.values()), now)
        return codes


def _names(classic: ClassicPart) -> list[str]:
    return [each.name for each in classic.protocols]


def _subscription(asked: JoinRequest) -> ConsumerProtocolSubscription:
    """Return the member's subscription, which is the same for each of its assignors."""
    try:
        return parse_subscription(asked.protocols[0].metadata)[1]
    except DecodeError as error:
        raise InconsistentGroupProtocol(f"the subscription cannot be parsed: {error}") from None


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[AssignedMember, ClassicPart]:
    """Return the member that a request comes from, and its settings of the classic protocol.

    Raises:
        UnknownMemberId: the group has no such member, or it does not use the classic protocol.
        FencedInstanceId: another process has its instance id.
    """
    member = _member(group, member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"member {member.member_id} does not use the classic protocol")
    return member, member.classic


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, by_instance: bool = False
) -> AssignedMember:
    """Return the member that a request names.

    Args:
        by_instance: the request may name a static member by its instance id alone, as administrators do.

    Raises:
        UnknownMemberId, FencedInstanceId.
    """
    if instance_id is None:
        return group.member(member_id)
    holder = group.static_member(instance_id)
    return _own(group, holder, holder.member_id if holder and by_instance and not member_id else member_id, instance_id)


def _own(group: ConsumerGroup, holder: AssignedMember | None, member_id: str, instance_id: str) -> AssignedMember:
    if holder is None:
        raise UnknownMemberId(f"group {group.group_id} has no instance {instance_id}")
    if holder.member_id != member_id:
        raise FencedInstanceId(f"instance {instance_id} of group {group.group_id} has member id {holder.member_id} now")
    return holder


def _check_generation(group: ConsumerGroup, member: AssignedMember, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGeneration(
            f"generation {generation}; member {member.member_id} of group {group.group_id} is at {member.epoch}"
        )
