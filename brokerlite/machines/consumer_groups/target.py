"""Computes the target assignment of a consumer group, and the epoch for which it is needed.

Rules:
- The group's epoch rises when members, subscriptions or the subscribed topics change.
- A new target is computed at most once in `assignment_interval`, so that members that join together cause one
  assignment (KIP-1263).
- The assignor that most members want divides the partitions of all of them.

Source: GroupMetadataManager.java (updateSubscriptionMetadata, maybeUpdateTargetAssignment),
TargetAssignmentBuilder.java.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.brokerlite.machines.consumer_groups.assignors import ASSIGNORS, Candidate, Candidates
from ottla.brokerlite.machines.consumer_groups.consumer_group import Change, preferred, subscribed, topics_of
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.brokerlite.machines.consumer_groups.member import AssignedMember
from ottla.brokerlite.machines.consumer_groups.subscriptions import counts_of, hash_of, ids_of, resolve
from ottla.brokerlite.machines.topics.topics import Topics

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite.groups")


class Targets:
    """Keeps the epochs and target assignments of groups up to date with their members and topics."""

    def __init__(self, settings: ConsumerGroupSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics

    def resolve_patterns(self, change: Change, describable: Callable[[str], bool], timestamp: int) -> bool:
        """Resolve the patterns that are new or old, or all if topics have changed; return whether one differs.

        The group also takes over a result that is the same as before: otherwise each heartbeat would resolve it again.

        Args:
            describable: tells whether the client of this request may describe a topic.

        Raises:
            InvalidRegularExpression, UnsupportedVersion: a member brings an invalid pattern, or RE2 is missing.
        """
        wanted = {member.pattern for member in change.all_members().values() if member.pattern}
        known = change.all_patterns()
        oldest = timestamp - round(self._settings.pattern_refresh_interval * 1000)
        changed = False
        for pattern in sorted(wanted | known.keys()):
            old = known.get(pattern)
            if pattern not in wanted:
                change.patterns[pattern] = None
            elif old is None or old.version != self._topics.version or old.timestamp < oldest:
                new = change.patterns[pattern] = resolve(pattern, self._topics, describable, timestamp)
                changed = changed or old is None or old.topics != new.topics
        return changed

    def drop_patterns(self, change: Change) -> None:
        """Forget the patterns to which no member subscribes any more."""
        wanted = {member.pattern for member in change.all_members().values()}
        for pattern in change.group.patterns.keys() - wanted:
            change.patterns[pattern] = None

    def raise_epoch(self, change: Change, *, needed: bool) -> None:
        """Begin the next epoch if it is needed, or the subscribed topics have changed."""
        if not needed and change.topics_version == self._topics.version:
            return
        now = hash_of(subscribed(change.all_members().values(), change.all_patterns()), self._topics)
        if needed or now != change.topics_hash:
            change.raise_epoch(now)
        change.mark_refreshed(self._topics.version)

    def assign(self, change: Change, timestamp: int) -> None:
        """Compute the target assignment if the group is in a newer epoch, and the last one is old enough."""
        if change.target_epoch >= change.epoch:
            return
        interval = round(self._settings.assignment_interval * 1000)
        if interval and change.target_timestamp and timestamp < change.target_timestamp + interval:
            return
        members = change.all_members()
        name = preferred(members.values(), self._settings.assignors[0])
        names = subscribed(members.values(), change.all_patterns())
        assigned = ASSIGNORS[name](self._candidates(change), counts_of(names, self._topics))
        change.set_target({member_id: assigned.get(member_id, {}) for member_id in members}, timestamp)
        extra = {"group": change.group.group_id, "members": len(members), "assignor": name}
        log.info("target assignment of epoch %d computed", change.epoch, extra=extra)

    def _candidates(self, change: Change) -> Candidates:
        return {
            member_id: Candidate(
                self.topic_ids(change, member),
                change.target_of(member_id) or {},
                member.instance_id,
                (member.topics, member.pattern),
            )
            for member_id, member in change.all_members().items()
        }

    def topic_ids(self, change: Change, member: AssignedMember) -> "frozenset[UUID]":
        """Return the ids of the existing topics to which a member subscribes."""
        return ids_of(topics_of(member, change.all_patterns()), self._topics)
