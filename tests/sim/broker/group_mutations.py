"""Mutations of the broker's coordinator of consumer groups (KIP-848); see `tests.sim.mutations`."""

from dataclasses import replace
from typing import Any

from ottla.brokerlite.machines.consumer_groups import reconciliation
from tests.sim.mutations import Mutations

OF_BROKER_GROUPS = Mutations("broker-groups", within=60)
MUTATIONS, _mutation = OF_BROKER_GROUPS.known, OF_BROKER_GROUPS.add


def _taken_ones_too(next_step: Any) -> Any:
    return lambda member, goal, epoch: next_step(member, replace(goal, is_owned=lambda *_: False), epoch)


_mutation("a member gets partitions that others still have", (reconciliation, "_next", _taken_ones_too))
