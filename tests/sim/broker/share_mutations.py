"""Mutations of the broker's share groups (KIP-932); see `tests.sim.mutations`."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ottla.brokerlite.handlers import share_acknowledge, share_fetch
from ottla.brokerlite.handlers.share_fetch import _ShareFetch
from ottla.brokerlite.machines.share_groups.share_groups import ShareGroups
from ottla.brokerlite.machines.share_partitions import share_partition
from ottla.brokerlite.machines.share_partitions.delivery_states import DeliveryInput, DeliveryState
from ottla.brokerlite.machines.share_partitions.in_flight import RecordRun
from ottla.brokerlite.machines.share_partitions.share_partition import SharePartition
from ottla.brokerlite.machines.share_partitions.share_partitions import SharePartitions
from ottla.brokerlite.machines.share_partitions.stored_state import StoredBatch, StoredStates
from ottla.errors import CoordinatorNotAvailable
from tests.sim.mutations import Mutations

OF_BROKER_SHARES = Mutations("broker-shares", within=100)
MUTATIONS, _mutation = OF_BROKER_SHARES.known, OF_BROKER_SHARES.add


def _nothing(original: Any) -> Any:
    return lambda *given, **named: None


# -- deliveries --------------------------------------------------------------------------------------------------------


def _available(acquire: Any) -> Any:
    return lambda self, member, deadline: acquire(self, member, deadline)._replace(state=DeliveryState.AVAILABLE)


def _uncounted(release: Any) -> Any:
    return lambda self, limit: release(self, limit)._replace(deliveries=self.deliveries - 1)


def _unlimited(_: Any) -> Any:
    return lambda self, limit: self.go(DeliveryInput.RELEASED)


def _none_aborted(_: Any) -> Any:
    return lambda self, log, offset, batches: set()


_mutation("a record has as many members as ask for it", (RecordRun, "acquire", _available))
_mutation("a delivery that ends without a result does not count", (RecordRun, "release", _uncounted))
_mutation("a record is delivered without a limit", (RecordRun, "release", _unlimited))
_mutation("records of aborted transactions are delivered", (_ShareFetch, "_aborted", _none_aborted))


# -- locks -------------------------------------------------------------------------------------------------------------


def _of_before(settled: Any) -> Any:
    return lambda self, batch, spans, member, now: settled(self, batch, spans, member, now - 0.5)


def _of_any_member(check: Any) -> Any:
    return lambda run, member: check(run, run.member)


_mutation("locks never expire", (SharePartitions, "_expire", _nothing))
_mutation("a renewed lock ends too early", (SharePartition, "_settled", _of_before))
_mutation(
    "any member may acknowledge",
    (share_partition, "_check_run", _of_any_member),
    (share_partition, "_check_batch", _of_any_member),
)


# -- the stored state --------------------------------------------------------------------------------------------------


def _in_memory(_: Any) -> Any:
    def broken(self: SharePartition, changes: Any) -> None:
        changes.apply()
        self._may_be_available = True
        self._advance()

    return broken


def _behind_all(_: Any) -> Any:
    return lambda self, changes: (self.next_offset, 0)


def _as_if_stored(store: Any) -> Any:
    def broken(
        self: SharePartitions, key: Any, partition: Any, start: int, final: int, batches: Iterable[StoredBatch]
    ) -> None:
        with suppress(CoordinatorNotAvailable):
            store(self, key, partition, start, final, batches)

    return broken


def _only_the_last(update: Any) -> Any:
    def broken(self: StoredStates, key: Any, start_offset: int, final: int, batches: Any, leader_epoch: int) -> None:
        update(self, key, start_offset, final, batches, leader_epoch)
        self._states[key] = replace(self._states[key], since=())

    return broken


def _all_is_well(acknowledge: Any) -> Any:
    return lambda *given, **named: dict.fromkeys(acknowledge(*given, **named))


_mutation(
    "errors of results are not told",
    *((each, "acknowledge", _all_is_well) for each in (share_acknowledge, share_fetch)),
)
_mutation("results are not stored", (SharePartition, "_commit", _in_memory))
_mutation("the stored start is behind the records in flight", (SharePartition, "_progress", _behind_all))
_mutation("a result that the disk refuses counts", (SharePartitions, "_store", _as_if_stored))
_mutation("an update has the last change only", (StoredStates, "update", _only_the_last))
_mutation("the stored state is not read", (StoredStates, "load", _nothing))


# -- members -----------------------------------------------------------------------------------------------------------


_mutation("a member that dies keeps its partitions", (ShareGroups, "_time_out", _nothing))
