"""Worlds of consumer groups, and mutations of the coordinator that they must catch."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.consumer_groups import (
    assignors,
    consumer_group_log,
    consumer_groups,
    reconciliation,
    roster,
    target,
)
from ottla.brokerlite.machines.consumer_groups.consumer_group import Change, ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.member import AssignedMember
from tests.brokerlite.consumer_group_world import Broken, World

SEEDS = 15
MUTATED_SEEDS = 40
"""The most worlds that a mutation may survive before one catches it."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_a_world_of_lost_answers_kills_and_full_disks_every_partition_has_one_owner(
    seed: int, tmp_path: Path
) -> None:
    world = World(tmp_path / "data", seed)
    world.run()
    world.machine.folder.abandon()


def gives_before_it_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "is_owned", lambda self, topic_id, partition: False)


def does_not_wait_for_revocation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciliation, "_still_has", lambda revoking, goal: False)


def takes_silence_for_revocation(patch: pytest.MonkeyPatch) -> None:
    correct = reconciliation._still_has
    patch.setattr(
        reconciliation,
        "_still_has",
        lambda revoking, goal: goal.has is not None and correct(revoking, goal) and len(goal.has) > 1,
    )


def forgets_what_is_being_revoked(patch: pytest.MonkeyPatch) -> None:
    correct = reconciliation.reconciled
    broken = lambda member, goal: replace(correct(member, goal), revoking={})  # noqa: E731
    patch.setattr(consumer_groups, "reconciled", broken)


def keeps_the_epoch_of_a_group_that_a_member_leaves(patch: pytest.MonkeyPatch) -> None:
    def fence(self: roster.Roster, group: ConsumerGroup, leaving: Iterable[AssignedMember], now: float) -> None:
        change = Change(group)
        for member in leaving:
            change.remove(member.member_id)
        self.commit(change, now)

    patch.setattr(roster.Roster, "fence", fence)


def does_not_store_progress(patch: pytest.MonkeyPatch) -> None:
    correct = consumer_group_log.records_of
    broken = lambda change: [pair for pair in correct(change) if pair[0][:2] != b"\0\x08"]  # noqa: E731
    patch.setattr(roster, "records_of", broken)


def does_not_store_targets(patch: pytest.MonkeyPatch) -> None:
    correct = consumer_group_log.records_of
    broken = lambda change: [pair for pair in correct(change) if pair[0][:2] != b"\0\x07"]  # noqa: E731
    patch.setattr(roster, "records_of", broken)


def stores_after_it_has_changed(patch: pytest.MonkeyPatch) -> None:
    correct = roster.Roster.commit

    def commit(self: roster.Roster, change: Change, now: float) -> None:
        group = change.group
        known = group.group_id in self.by_id
        if known:
            group.apply(change)
        correct(self, change, now)

    patch.setattr(roster.Roster, "commit", commit)


def lets_commit_with_any_epoch(patch: pytest.MonkeyPatch) -> None:
    correct = AssignedMember.epoch_of
    patch.setattr(
        AssignedMember, "epoch_of", lambda self, topic_id, partition: correct(self, topic_id, partition) and 0
    )


def takes_partitions_for_as_old_as_the_member(patch: pytest.MonkeyPatch) -> None:
    correct = reconciliation._next

    def next_(member: AssignedMember, goal: reconciliation.Goal, epoch: int) -> AssignedMember:
        led = correct(member, goal, epoch)
        return replace(led, assigned={t: dict.fromkeys(each, 1) for t, each in led.assigned.items()})

    patch.setattr(reconciliation, "_next", next_)


def does_not_notice_new_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target, "hash_of", lambda names, topics: 1)


def gives_the_odd_partitions_to_the_first(patch: pytest.MonkeyPatch) -> None:
    def uniform(members: assignors.Candidates, counts: assignors.Counts) -> assignors.Assignment:
        free = [(topic_id, i) for topic_id, count in counts.items() for i in range(count)]
        first, *others = sorted(members)
        assigned = {member_id: assignors._frozen({}) for member_id in others}
        parts: dict[Any, list[int]] = {}
        for topic_id, index in free:
            parts.setdefault(topic_id, []).append(index)
        return {**assigned, first: assignors._frozen(parts)}

    patch.setattr(target, "ASSIGNORS", {"uniform": uniform, "range": uniform})


def forgets_static_members_that_are_away(patch: pytest.MonkeyPatch) -> None:
    correct = ConsumerGroup._remember

    def remember(self: ConsumerGroup, member: AssignedMember) -> None:
        correct(self, member)
        if member.epoch == -2:
            for place in member.places():
                self._owners.pop(place, None)

    patch.setattr(ConsumerGroup, "_remember", remember)


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    each.__name__: each
    for each in (
        gives_before_it_is_free,
        does_not_wait_for_revocation,
        takes_silence_for_revocation,
        forgets_what_is_being_revoked,
        keeps_the_epoch_of_a_group_that_a_member_leaves,
        does_not_store_progress,
        does_not_store_targets,
        stores_after_it_has_changed,
        lets_commit_with_any_epoch,
        takes_partitions_for_as_old_as_the_member,
        does_not_notice_new_partitions,
        gives_the_odd_partitions_to_the_first,
        forgets_static_members_that_are_away,
    )
}


@pytest.mark.deep
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_coordinator_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in range(MUTATED_SEEDS):
        world = World(tmp_path / f"data-{seed}", seed)
        try:
            world.run()
        except Broken:
            return
        finally:
            world.machine.folder.abandon()
    pytest.fail(f"{name} survived {MUTATED_SEEDS} worlds")
