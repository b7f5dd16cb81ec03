"""Mutations of the client's second group protocol (KIP-848), as `tests.sim.mutations`."""

from tests.sim.mutations import Mutations

OF_GROUPS = Mutations("groups", within=300)
MUTATIONS, _mutation = OF_GROUPS.known, OF_GROUPS.add
