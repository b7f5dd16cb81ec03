"""Mutations of the broker's share groups (KIP-932); see `tests.sim.mutations`."""

from tests.sim.mutations import Mutations

OF_BROKER_SHARES = Mutations("broker-shares", within=100)
MUTATIONS, _mutation = OF_BROKER_SHARES.known, OF_BROKER_SHARES.add
