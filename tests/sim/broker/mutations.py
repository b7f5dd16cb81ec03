"""Mutations of the broker: they break it on purpose, to prove that the simulator notices; see `tests.sim.mutations`."""

from dataclasses import replace
from typing import Any

from ottla.brokerlite.machines.core import BrokerCore
from ottla.brokerlite.machines.groups.group_log import GroupLog
from ottla.brokerlite.machines.groups.offsets import Offsets
from ottla.brokerlite.machines.partitions import retention
from ottla.brokerlite.machines.partitions.compaction import OffsetMap
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.machines.requests.sync_waits import SyncWaits
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.brokerlite.machines.transactions.transaction_coordinator import TransactionCoordinator
from ottla.brokerlite.machines.transactions.transaction_ends import TransactionEnds
from ottla.brokerlite.machines.transactions.transaction_markers import TransactionMarkers
from ottla.brokerlite.storage import snapshot
from ottla.brokerlite.storage.data_folder import DataFolder
from ottla.brokerlite.storage.partition_segments import PartitionSegments
from ottla.brokerlite.storage.start_offsets import StartOffsets
from ottla.brokerlite.storage.state_file import StateFile
from ottla.brokerlite.storage.txn_index import TxnIndex
from ottla.brokerlite.storage.unflushed import Unflushed
from tests.sim.mutations import Mutations

OF_BROKER = Mutations("broker", within=200)
MUTATIONS, SEEDS, _mutation = OF_BROKER.known, OF_BROKER.seeds, OF_BROKER.add


# -- transactions ------------------------------------------------------------------------------------------------------


def _without_storing(decide: Any) -> Any:
    def broken(self: TransactionEnds, known: Any, commit: bool, version: int) -> Any:
        store, self._ids._store = self._ids._store, lambda transaction, gone: None
        try:
            return decide(self, known, commit, version)
        finally:
            self._ids._store = store

    return broken


def _takes_older(of: Any) -> Any:
    def broken(self: TransactionCoordinator, asked: Any) -> Any:
        known = self.by_id.get(asked.transactional_id)
        newer = known is not None and known.producer_id == asked.producer_id and known.epoch > asked.epoch
        return of(self, asked._replace(epoch=known.epoch) if newer and known is not None else asked)

    return broken


def _leaves_what_is_decided(resume: Any) -> Any:
    def broken(self: TransactionCoordinator, now: float) -> None:
        decided = {name: each for name, each in self.by_id.items() if each.is_decided}
        for name in decided:
            del self.by_id[name]
        resume(self, now)
        self.by_id.update(decided)

    return broken


def _one_marker(mark: Any) -> Any:
    def broken(self: TransactionMarkers, transaction: Any) -> Any:
        return mark(self, replace(transaction, partitions=transaction.partitions[:1]))

    return broken


def _always_valid(end_transaction: Any) -> Any:
    def broken(self: Offsets, producer_id: int, *, commit: bool) -> None:
        end_transaction(self, producer_id, commit=True)

    return broken


def _valid_at_once(commit: Any) -> Any:
    return lambda self, group, offsets, transactional=None: commit(self, group, offsets)


def _pending_forgotten(load: Any) -> Any:
    def broken(self: KeyedLog) -> Any:
        loaded = load(self)
        loaded.pending.clear()
        return loaded

    return broken


def _without_open(entry: Any) -> Any:
    return lambda producer_id, producer, first_offset: entry(producer_id, producer, -1)


_mutation("markers are written before their outcome is stored", (TransactionEnds, "decide", _without_storing))
_mutation("the coordinator takes an older epoch", (TransactionCoordinator, "_of", _takes_older))
_mutation("partitions take an older epoch", (Producers, "_check_epoch", lambda _: lambda self, pid, epoch: None))
_mutation("outcomes without markers are left at a restart", (TransactionCoordinator, "resume", _leaves_what_is_decided))
_mutation("only one partition gets a marker", (TransactionMarkers, "write_all", _one_marker))
_mutation("transactions are not timed out", (TransactionEnds, "watch", lambda _: lambda self, transaction: None))
_mutation("offsets of an aborted transaction hold", (Offsets, "end_transaction", _always_valid))
_mutation("offsets of an open transaction hold", (Offsets, "commit", _valid_at_once))
_mutation("offsets of an open transaction are forgotten at a restart", (KeyedLog, "load", _pending_forgotten))
_mutation("snapshots have no open transactions", (snapshot, "_entry", _without_open))
_mutation(
    "the last stable offset is the end offset",
    (PartitionLog, "last_stable_offset", lambda _: property(lambda self: self.high_watermark)),
)
_mutation("aborted transactions are not named", (PartitionLog, "aborted", lambda _: lambda self, offset, up_to: ()))
_mutation("aborted transactions are not indexed", (TxnIndex, "add", lambda _: lambda self, entry: None))


# -- producers, offsets ------------------------------------------------------------------------------------------------


def _from_the_beginning(write: Any) -> Any:
    return lambda self, state: write(self, state._replace(next_producer_id=0))


def _not_stored(store_offsets: Any) -> Any:
    def broken(self: GroupLog, group_id: str, offsets: Any, transactional: Any) -> int:
        return 0 if transactional is None else int(store_offsets(self, group_id, offsets, transactional))

    return broken


_mutation("producer ids begin again after a kill", (StateFile, "write", _from_the_beginning))
_mutation("repeats are not recognised", (Producers, "duplicate", lambda _: lambda self, batch: None))
_mutation("committed offsets are not stored", (GroupLog, "store_offsets", _not_stored))


# -- the disk ----------------------------------------------------------------------------------------------------------


def _at_once(when_written: Any) -> Any:
    return lambda self, then, ticket=None: then()


def _names_only(begin_flush: Any) -> Any:
    return lambda self, partitions=None: begin_flush(self, ())


def _not_raised(lead: Any) -> Any:
    return lambda self, node_id, found, partitions, raised: lead(self, node_id, found, partitions, False)


def _not_counted(create_topic: Any) -> Any:
    def broken(self: BrokerCore, *args: Any) -> Any:
        topic = create_topic(self, *args)
        self._sync_waits._writes -= 1
        return topic

    return broken


_mutation("an answer does not wait for the disk", (SyncWaits, "when_written", _at_once))
_mutation("a sync has the disk hold the names only", (Unflushed, "begin_flush", _names_only))
_mutation("the leader epoch is not raised after a kill", (DataFolder, "_lead", _not_raised))
_mutation("topics are told of before the disk has them", (BrokerCore, "create_topic", _not_counted))


# -- compaction --------------------------------------------------------------------------------------------------------


def _the_same_counts(knows_later: Any) -> Any:
    return lambda self, key, offset: knows_later(self, key, offset - 1)


_mutation("compaction drops the last value of a key", (OffsetMap, "knows_later", _the_same_counts))


# -- start offsets of logs ---------------------------------------------------------------------------------------------


def _half_time(beyond_time: Any) -> Any:
    return lambda candidates, limit, now: beyond_time(candidates, limit // 2, now)


def _half_size(beyond_size: Any) -> Any:
    return lambda segments, candidates, limit: beyond_size(segments, candidates, limit // 2)


def _without_start(open_partition: Any) -> Any:
    return lambda self, **known: open_partition(self, **known | {"start_offset": 0})


_mutation("retention deletes too early", (retention, "_beyond_time", _half_time))
_mutation("retention makes a log too small", (retention, "_beyond_size", _half_size))
_mutation("where a log begins is not noted", (StartOffsets, "write", lambda _: lambda self: None))
_mutation("deleted segments come back at a start", (PartitionSegments, "open", _without_start))
