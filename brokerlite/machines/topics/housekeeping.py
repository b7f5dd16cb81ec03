"""Periodic work on the logs: retention, compaction and flushes.

- Every `retention_check` seconds expired segments are deleted, and producers that were idle for long are forgotten.
- Every `cleaner_backoff` seconds the log with the highest dirty ratio is compacted, then the next, one at a time, until
  no log is dirty enough.
- A log whose topic has `flush.messages` or `flush.ms` is flushed after that many records, or that long after the first
  unflushed one. Requests do not wait for the flush.

Source: LogManager.java (cleanupLogs, flushDirtyLogs), LogCleaner.java, ProducerStateManager.java
(removeExpiredProducers).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.jobs import Job
from ottla.brokerlite.machines.partitions.compaction import LastBatch, Round, next_round
from ottla.brokerlite.machines.partitions.log_settings import LONGEST
from ottla.brokerlite.machines.partitions.partition_log import CompactionRound, PartitionLog
from ottla.brokerlite.machines.partitions.retention import deletable
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.topics import Storage, TopicPartition, Topics
from ottla.errors import KafkaStorageError

log = logging.getLogger("ottla.brokerlite")

_AT_ONCE, _PAUSE = 500, 0.005
"""Partitions checked for retention in one step, and seconds between steps, so that requests get their turn."""
_RETENTION, _CLEANER = "log retention", "log cleaner"
"""Names of timers."""


@dataclass(frozen=True, kw_only=True)
class HousekeepingSettings:
    """Intervals of the periodic work, in seconds."""

    retention_check: float = 300.0
    """`log.retention.check.interval.ms`."""
    cleaner_backoff: float = 15.0
    """`log.cleaner.backoff.ms`."""


class Expired(NamedTuple):
    """Segments of a log that are to be deleted.

    Attributes:
        start_offset: the new start offset of the log.
        more: the active segment must go, too. It goes after the others, whose deletion makes room for a new segment.
    """

    segments: int
    start_offset: int
    why: str
    more: bool = False


class Housekeeping:
    """Does the periodic work of one broker.

    Args:
        start: starts a job.
    """

    def __init__(
        self,
        settings: HousekeepingSettings,
        topics: Topics,
        clock: Clock,
        timers: Timers,
        storage: Storage,
        *,
        start: Callable[[Job], None],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._timers = timers
        self._storage = storage
        self._start = start
        self._left: Iterator[tuple[TopicPartition, PartitionLog]] = iter(())
        """Partitions that this check of retention has not reached yet."""
        self._uncleanable: set[PartitionLog] = set()
        """Partitions whose last compaction failed; it is retried after the next check of retention."""
        self._flushing: set[PartitionLog] = set()
        self._compaction: CompactionRound | None = None
        """The round of compaction that is running."""
        self._stopped = False

    def resume(self, now: float) -> None:
        """Set the timers, after a start."""
        self._timers.set(_RETENTION, now + self._settings.retention_check, self._check_retention)
        self._timers.set(_CLEANER, now + self._settings.cleaner_backoff, self._clean_next)

    def stop(self) -> None:
        """Stop at shutdown: end the running compaction soon, and begin nothing new."""
        self._timers.cancel(_RETENTION)
        self._timers.cancel(_CLEANER)
        self._stopped = True
        if self._compaction is not None:
            self._compaction.stop()

    # -- retention

    def _check_retention(self, now: float) -> None:
        self._uncleanable.clear()
        self._left = iter(
            [
                ((topic.name, index), partition)
                for topic in self._topics.all()
                for index, partition in enumerate(topic.partitions)
            ]
        )
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        """Check the retention of the next partitions."""
        some = dict(islice(self._left, _AT_ONCE))
        for partition in some.values():
            partition.producers.expire(now)
        self._delete_expired(some)
        if len(some) == _AT_ONCE:
            self._timers.set(_RETENTION, now + _PAUSE, self._go_on)
        else:
            self._timers.set(_RETENTION, now + self._settings.retention_check, self._check_retention)

    def _delete_expired(self, partitions: Mapping[TopicPartition, PartitionLog]) -> None:
        """Delete the expired segments of ``partitions``."""
        due: dict[TopicPartition, Expired] = {}
        for place, partition in partitions.items():
            if self._topics.partition(*place) is not partition:  # it was deleted meanwhile
                continue
            try:
                if (found := expired(partition, self._clock.record_timestamp)) is not None:
                    due[place] = found
            except KafkaStorageError as error:
                log.error("deleting expired segments of %s failed: %s", partition.name, error)
        if due:
            starts = {place: each.start_offset for place, each in due.items()}
            self._start(self._storage.set_start_offsets(starts, partial(self._deleted, partitions, due)))

    def _deleted(
        self,
        partitions: Mapping[TopicPartition, PartitionLog],
        due: Mapping[TopicPartition, Expired],
        refused: OSError | None,
    ) -> None:
        for place, each in due.items():
            if refused is None:
                log.info(
                    "%s: %d segments up to offset %d deleted: %s",
                    partitions[place].name,
                    each.segments,
                    each.start_offset,
                    each.why,
                )
            else:
                log.error("deleting expired segments of %s failed: %s", partitions[place].name, refused)
        if refused is None and not self._stopped:
            self._delete_expired({place: partitions[place] for place, each in due.items() if each.more})

    def _is_there(self, partition: PartitionLog) -> bool:
        """Return whether the partition still exists."""
        return any(each is partition for each in self._partitions())

    def _partitions(self) -> Iterator[PartitionLog]:
        return (partition for topic in self._topics.all() for partition in topic.partitions)

    # -- compaction

    def _clean_next(self, now: float) -> None:
        """Compact the log with the highest dirty ratio."""
        rounds = [
            (due, partition)
            for partition in self._partitions()
            if partition.settings.compacted
            and partition not in self._uncleanable
            and (due := due_round(partition, self._clock.record_timestamp)) is not None
        ]
        if rounds:
            self._start(self._clean(*max(rounds, key=lambda each: each[0].ratio)))
        else:
            self._timers.set(_CLEANER, now + self._settings.cleaner_backoff, self._clean_next)

    def _clean(self, due: Round, partition: PartitionLog) -> Job:
        producers = {
            producer_id: LastBatch(each.batches[-1].last_offset if each.batches else -1, each.epoch)
            for producer_id, each in partition.producers.entries.items()
        }
        compaction = partition.segments.compact(due, partition.settings, producers, self._clock.record_timestamp)
        self._compaction = compaction
        try:
            yield from compaction.job()
            yield self._storage.note_cleaned()
        except (KafkaStorageError, OSError) as error:
            if self._is_there(partition):
                log.error("compaction of %s failed: %s", partition.name, error)
                self._uncleanable.add(partition)
        finally:
            self._compaction = None
            if not self._stopped:
                self._timers.set(_CLEANER, self._clock.now, self._clean_next)

    # -- flushes

    def grown(self, partition: PartitionLog) -> None:
        """Notice an append to ``partition``: flush it, or set the timer for that."""
        settings = partition.settings
        if settings.flush_messages == settings.flush_ms == LONGEST or partition in self._flushing:
            return
        if partition.unflushed >= settings.flush_messages:
            self._flush(partition)
        elif settings.flush_ms < LONGEST and not self._timers.is_set(("flush", partition)):
            deadline = self._clock.now + settings.flush_ms / 1000
            self._timers.set(("flush", partition), deadline, lambda now: self._flush(partition))

    def _flush(self, partition: PartitionLog) -> None:
        self._timers.cancel(("flush", partition))
        if partition.unflushed and partition not in self._flushing:
            self._flushing.add(partition)
            self._start(self._flushed(partition))

    def _flushed(self, partition: PartitionLog) -> Job:
        try:
            yield partition.segments.begin_flush()
        except OSError as error:
            if self._is_there(partition):
                log.error("flush of %s failed: %s", partition.name, error)
        finally:
            self._flushing.discard(partition)
        if partition.unflushed:  # appended meanwhile
            self.grown(partition)


def expired(partition: PartitionLog, now: int) -> Expired | None:
    """Return the segments of a partition to delete; if that is only the active segment, roll it first.

    Args:
        now: milliseconds since 1970.

    Raises:
        KafkaStorageError: the disk refused.
    """
    states = partition.segments.states()
    gone = deletable(states, partition.settings, partition.start_offset, partition.high_watermark, now)
    if gone.segments == 0:
        return None
    if gone.segments < len(states):
        return Expired(gone.segments, states[gone.segments].base_offset, gone.why)
    if len(states) > 1:
        return Expired(len(states) - 1, states[-1].base_offset, gone.why, more=True)
    partition.roll()
    return Expired(1, partition.end_offset, gone.why)


def due_round(partition: PartitionLog, now: int) -> Round | None:
    """Return the next round of compaction of a partition; see `next_round`."""
    segments, settings = partition.segments, partition.settings
    return next_round(
        segments.states(first_timestamps=settings.max_compaction_lag_ms < LONGEST),
        settings,
        cleaned_up_to=segments.cleaned_up_to,
        start_offset=partition.start_offset,
        last_stable_offset=partition.last_stable_offset,
        now=now,
    )
