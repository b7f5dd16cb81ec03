"""Mutations of the broker's coordinator of consumer groups (KIP-848); see `tests.sim.mutations`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ottla.brokerlite.machines.consumer_groups import consumer_groups, reconciliation
from ottla.brokerlite.machines.consumer_groups.consumer_groups import JOIN, ConsumerGroups
from ottla.brokerlite.machines.consumer_groups.member import AssignedMember
from tests.sim.mutations import Mutations

OF_BROKER_GROUPS = Mutations("broker-groups", within=60)
MUTATIONS, _mutation = OF_BROKER_GROUPS.known, OF_BROKER_GROUPS.add


def _taken_ones_too(next_step: Any) -> Any:
    return lambda member, goal, epoch: next_step(member, replace(goal, is_owned=lambda *_: False), epoch)


def _only_assigned_ones(_: Any) -> Any:
    def broken(self: AssignedMember) -> Iterator[Any]:
        return ((topic_id, index) for topic_id, each in self.assigned.items() for index in each)

    return broken


def _never(_: Any) -> Any:
    return lambda revoking, goal: False


def _whatever_it_owns(check: Any) -> Any:
    def broken(member: AssignedMember, asked: Any) -> None:
        if asked.epoch != member.previous_epoch:
            check(member, asked)

    return broken


def _silence_is_an_empty_list(lead: Any) -> Any:
    def broken(self: ConsumerGroups, change: Any, member: Any, told: Any, asked: Any) -> Any:
        return lead(self, change, member, told, replace(asked, has=asked.has or {}))

    return broken


def _an_empty_list_is_silence(lead: Any) -> Any:
    def broken(self: ConsumerGroups, change: Any, member: Any, told: Any, asked: Any) -> Any:
        return lead(self, change, member, told, asked if asked.epoch == JOIN else replace(asked, has=asked.has or None))

    return broken


_mutation("a member gets partitions that others still have", (reconciliation, "_next", _taken_ones_too))
_mutation("a partition that has to be given up is free", (AssignedMember, "places", _only_assigned_ones))
_mutation("a member need not give up partitions", (reconciliation, "_still_has", _never))
_mutation("the epoch before counts whatever the member owns", (consumer_groups, "_check_epoch", _whatever_it_owns))
_mutation("a heartbeat without partitions gives up all", (ConsumerGroups, "_lead", _silence_is_an_empty_list))
_mutation("a heartbeat with an empty list gives up none", (ConsumerGroups, "_lead", _an_empty_list_is_silence))
