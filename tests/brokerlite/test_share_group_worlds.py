"""Worlds of share groups, and mutations of the broker that they must catch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.handlers import share_fetch
from ottla.brokerlite.machines.core import BrokerCore
from ottla.brokerlite.machines.share_partitions import share_partition, stored_state
from ottla.brokerlite.machines.share_partitions.delivery_states import DeliveryState
from ottla.brokerlite.machines.share_partitions.in_flight import InFlightBatch, RecordRun
from ottla.brokerlite.machines.share_partitions.share_partition import SharePartition
from ottla.brokerlite.machines.share_partitions.share_partitions import SharePartitions
from ottla.brokerlite.machines.share_partitions.stored_state import StoredStates
from ottla.errors import InvalidRecordState
from tests.brokerlite.consumer_group_world import Broken
from tests.brokerlite.share_group_world import ShareWorld

SEEDS = 12
MUTATED_SEEDS = 40
"""The most worlds that a mutation may survive before one catches it."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_a_world_of_lost_answers_kills_and_full_disks_each_record_has_one_member_and_is_done_in_the_end(
    seed: int, tmp_path: Path
) -> None:
    world = ShareWorld(tmp_path / "data", seed)
    world.run()
    world.machine.folder.abandon()


def test_small_snapshots_and_updates_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "UPDATES", 2)
    monkeypatch.setattr(stored_state, "BATCHES", 2)
    for seed in range(3):
        world = ShareWorld(tmp_path / f"data-{seed}", seed)
        world.run()
        world.machine.folder.abandon()


def stores_no_results(patch: pytest.MonkeyPatch) -> None:
    correct = StoredStates.update

    def update(self: StoredStates, *arguments: Any) -> None:
        write, self._log = self._log, _Nowhere()  # type: ignore[assignment]
        try:
            correct(self, *arguments)
        finally:
            self._log = write

    patch.setattr(StoredStates, "update", update)


class _Nowhere:
    def write(self, pairs: object) -> int:
        return 0


def counts_results_before_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    correct = SharePartition._commit

    def commit(self: SharePartition, changes: Any) -> None:
        changes.apply()
        correct(self, changes)

    patch.setattr(SharePartition, "_commit", commit)


def gives_records_that_others_have(patch: pytest.MonkeyPatch) -> None:
    correct = SharePartition.acquire

    def acquire(self: SharePartition, *arguments: Any) -> Any:
        for batch in self._batches:
            batch.runs = [
                run._replace(state=DeliveryState.AVAILABLE) if run.state is DeliveryState.ACQUIRED else run
                for run in batch.runs
            ]
        return correct(self, *arguments)

    patch.setattr(SharePartition, "acquire", acquire)


def never_expires_locks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartitions, "watch", lambda self, key: None)


def keeps_the_records_of_a_member_that_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartitions, "release", lambda self, member, keys: None)


def lets_waiting_fetches_of_lost_connections_acquire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerCore, "lost", lambda self, connection, now: None)
    patch.setattr(BrokerCore, "disconnected", lambda self, connection, now: None)


def forgets_deliveries(patch: pytest.MonkeyPatch) -> None:
    correct = RecordRun.release
    patch.setattr(RecordRun, "release", lambda self, limit: correct(self, limit)._replace(deliveries=0))


def delivers_without_a_limit(patch: pytest.MonkeyPatch) -> None:
    correct = RecordRun.release
    patch.setattr(RecordRun, "release", lambda self, limit: correct(self, 2**15))


def archives_at_the_first_release(patch: pytest.MonkeyPatch) -> None:
    correct = RecordRun.release
    patch.setattr(RecordRun, "release", lambda self, limit: correct(self, 1))


def takes_results_of_anyone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_partition, "_check_batch", lambda run, member: None)
    patch.setattr(
        share_partition,
        "_check_run",
        lambda run, member: None if run.state is DeliveryState.ACQUIRED else _refuse(),
    )


def _refuse() -> None:
    raise InvalidRecordState


def moves_the_start_over_acquired_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeliveryState, "is_final", property(lambda self: self is not DeliveryState.AVAILABLE))


def ignores_updates_after_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredStates, "_load_update", lambda self, key, data: None)


def forgets_older_changes_in_updates(patch: pytest.MonkeyPatch) -> None:
    correct = stored_state._built
    patch.setattr(stored_state, "_built", lambda batches: correct(list(batches)[-1:]))


def takes_a_batch_for_unsplit(patch: pytest.MonkeyPatch) -> None:
    def take(self: InFlightBatch, runs: list[RecordRun], *, split: bool = True) -> None:
        self.runs = runs

    patch.setattr(InFlightBatch, "take", take)


def skips_the_records_between_stored_ones(patch: pytest.MonkeyPatch) -> None:
    correct = InFlightBatch.__init__

    def init(self: InFlightBatch, runs: list[RecordRun], split: bool = False, fresh: bool = False) -> None:
        correct(self, [run._replace(state=DeliveryState.ARCHIVED) for run in runs] if fresh else runs, split, fresh)

    patch.setattr(InFlightBatch, "__init__", init)


def delivers_aborted_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_fetch._ShareFetch, "_aborted", lambda self, log, offset, batches: set())


def slices_records_too_early(patch: pytest.MonkeyPatch) -> None:
    correct = share_fetch._sliced
    patch.setattr(share_fetch, "_sliced", lambda data, batches, first, last: correct(data, batches, first, last - 1))


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    each.__name__: each
    for each in (
        stores_no_results,
        counts_results_before_they_are_stored,
        gives_records_that_others_have,
        never_expires_locks,
        keeps_the_records_of_a_member_that_is_gone,
        lets_waiting_fetches_of_lost_connections_acquire,
        forgets_deliveries,
        delivers_without_a_limit,
        archives_at_the_first_release,
        takes_results_of_anyone,
        moves_the_start_over_acquired_records,
        ignores_updates_after_a_snapshot,
        forgets_older_changes_in_updates,
        takes_a_batch_for_unsplit,
        skips_the_records_between_stored_ones,
        delivers_aborted_records,
        slices_records_too_early,
    )
}


@pytest.mark.deep
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_broker_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in range(MUTATED_SEEDS):
        world = ShareWorld(tmp_path / f"data-{seed}", seed)
        try:
            world.run()
        except Broken:
            return
        finally:
            world.machine.folder.abandon()
    pytest.fail(f"{name} survived {MUTATED_SEEDS} worlds")
