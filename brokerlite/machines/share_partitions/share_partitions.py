"""All share partitions that members read: loads them, stores their progress, and releases records in time.

    partition = partitions.open(key, log)            # loads the stored state at the first request
    partitions.watch(key)                            # after an acquisition: a timer for the first lock that expires
    partitions.acknowledge(key, member, results)     # the results of records

Rules:
- A share partition exists once its group's coordinator has initialized its state.
- Where a group starts is decided when a member first fetches, and stored at once: records that are appended while a
  member works on the first ones must not be skipped after a crash. Apache Kafka stores it with the first result.
- The stored state is never ahead of the log: records that a power cut took from the log are no longer final.
- The share partitions of a group without sessions leave the memory after a while.

Source: SharePartitionManager.java, SharePartition.java (maybeInitialize, startOffsetDuringInitialization).
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.share_partitions.record_results import RecordResults
from ottla.brokerlite.machines.share_partitions.share_group_configs import ShareGroupConfigs
from ottla.brokerlite.machines.share_partitions.share_partition import SharePartition
from ottla.brokerlite.machines.share_partitions.stored_state import UNDECIDED, ShareKey, StoredBatch, StoredStates
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.topics import Topics
from ottla.codec.apis.share_fetch import RENEW
from ottla.errors import BrokerError, CoordinatorNotAvailable, KafkaStorageError, UnknownTopicOrPartition

log = logging.getLogger("ottla.brokerlite.groups")


class SharePartitions:
    """Finds share partitions.

    Args:
        wake: called with the log of a partition in which records became available again.

    Attributes:
        states: the stored states of all share partitions, in memory or not.
        acknowledged: the type of acknowledgements -> how many records had one since the start.
        expired: share partition -> how many of its records were locked until their locks expired.
    """

    def __init__(
        self,
        configs: ShareGroupConfigs,
        topics: Topics,
        states: StoredStates,
        clock: Clock,
        timers: Timers,
        wake: Callable[[PartitionLog], None],
    ) -> None:
        self.configs = configs
        self.states = states
        self.acknowledged: Counter[int] = Counter()
        self.expired: Counter[ShareKey] = Counter()
        self._topics = topics
        self._clock = clock
        self._timers = timers
        self._wake = wake
        self._live: dict[str, dict[ShareKey, SharePartition]] = {}
        """Group -> its share partitions that are in memory."""
        self._watched: dict[ShareKey, float] = {}
        """Share partition -> the deadline of its timer."""

    def find(self, key: ShareKey) -> SharePartition | None:
        """Return a share partition that is in memory."""
        return self._live.get(key.group_id, {}).get(key)

    def in_memory(self) -> Iterator[tuple[ShareKey, SharePartition]]:
        """Iterate over the share partitions in memory; they may change meanwhile."""
        for of_group in list(self._live.values()):
            yield from list(of_group.items())

    def search_time(self, key: ShareKey) -> int | None:
        """Return the timestamp for which the start of a share partition must be searched; ``None``: it need not be."""
        state, age = self.states.get(key), self.configs.start_age(key.group_id)
        if state is None or state.start_offset != UNDECIDED or age is None:
            return None
        return self._clock.timestamp - round(age * 1000)

    def start_at(self, key: ShareKey, partition: PartitionLog, offset: int) -> None:
        """Decide where a group starts.

        Raises:
            CoordinatorNotAvailable: it could not be stored.
        """
        self._store(key, partition, offset, 0, ())

    def open(self, key: ShareKey, partition: PartitionLog) -> SharePartition:
        """Return a share partition; load it if it is not in memory.

        Raises:
            UnknownTopicOrPartition: the group has no state of the partition.
            CoordinatorNotAvailable: its start could not be stored.
        """
        if (known := self.find(key)) is None:
            if (state := self.states.get(key)) is None:
                raise UnknownTopicOrPartition(f"group {key.group_id} does not read {partition.name}")
            if state.start_offset == UNDECIDED:
                earliest = self.configs.starts_early(key.group_id)
                self.start_at(key, partition, partition.start_offset if earliest else partition.high_watermark)
                state = self.states.get(key) or state
            known = SharePartition(self.configs.limits(key.group_id), partial(self._store, key, partition), state)
            self._live.setdefault(key.group_id, {})[key] = known
        else:
            known.configure(self.configs.limits(key.group_id))
        known.trim(partition.start_offset)
        return known

    def _store(
        self, key: ShareKey, partition: PartitionLog, start: int, final: int, batches: Sequence[StoredBatch]
    ) -> None:
        try:
            self.states.update(key, start, final, batches, partition.epochs.current)
        except KafkaStorageError as error:
            raise CoordinatorNotAvailable(error.detail) from error

    def acknowledge(self, key: ShareKey, member: str, results: Sequence[RecordResults]) -> None:
        """Take the results of records that the member has acquired, all or none.

        Raises:
            UnknownTopicOrPartition: the share partition is not in memory, so no member has its records.
            InvalidRecordState, InvalidRequest: the member has not acquired them.
            BrokerError: they could not be stored.
        """
        if (known := self.find(key)) is None:
            raise UnknownTopicOrPartition("this broker has no share partition of that kind in use")
        known.configure(self.configs.limits(key.group_id))
        known.acknowledge(member, results, self._clock.now)
        for each in results:
            self.acknowledged.update(each.tally())
        if any(RENEW in each.types for each in results):
            self.watch(key)
        self.woke(key)

    # -- locks

    def watch(self, key: ShareKey) -> None:
        """Set the timer for the first lock of a share partition that expires, after locks were acquired or renewed."""
        known = self.find(key)
        if known is None:
            return
        # A group may have got shorter locks than those for which the timer is set.
        newest = self._clock.now + known.limits.lock_duration
        if newest < self._watched.get(key, inf) and (deadline := known.next_deadline) is not None:
            self._watched[key] = deadline
            self._timers.set(("share locks", key), deadline, partial(self._expire, key))

    def _expire(self, key: ShareKey, now: float) -> None:
        self._watched.pop(key, None)
        if (known := self.find(key)) is None:
            return
        known.configure(self.configs.limits(key.group_id))
        expired, error = known.expire(now)
        if expired:
            self.expired[key] += expired
        if error is not None:
            log.warning("expired locks released, but not stored: %s", error.detail, extra={"group": key.group_id})
        self.watch(key)
        self.woke(key)

    def woke(self, key: ShareKey) -> None:
        """Notice that records of a share partition may have become available."""
        topic = self._topics.by_id.get(key.topic_id)
        partition = topic.partition(key.partition) if topic else None
        if partition is not None:
            self._wake(partition)

    def release(self, member: str, keys: Iterable[ShareKey]) -> None:
        """Give back the records that a member has."""
        for key in keys:
            known = self.find(key)
            try:
                if known is not None and known.release(member):
                    self.woke(key)
            except BrokerError as error:
                # They are released when their locks expire.
                log.warning("records not released yet: %s", error.detail, extra={"group": key.group_id})

    # -- forgetting

    def drop_idle(self, group_id: str) -> bool:
        """Forget the share partitions of a group whose records no member has; return whether none is left."""
        for key, known in list(self._live.get(group_id, {}).items()):
            if known.is_idle:
                self._forget(key)
        return group_id not in self._live

    def forget(self, keys: Iterable[ShareKey]) -> None:
        """Take share partitions out of the memory because their state is replaced or deleted."""
        for key in keys:
            self._forget(key)
            self.expired.pop(key, None)

    def _forget(self, key: ShareKey) -> None:
        live = self._live.get(key.group_id, {})
        if live.pop(key, None) is not None:
            self._timers.cancel(("share locks", key))
            self._watched.pop(key, None)
        if not live:
            self._live.pop(key.group_id, None)

    # -- after a start

    def resume(self) -> None:
        """Take back the stored results of records that the logs have lost in a power cut."""
        lost = {}
        for key in self.states:
            topic = self._topics.by_id.get(key.topic_id)
            partition = topic.partition(key.partition) if topic else None
            state = self.states.get(key)
            if partition is None or state is None:
                continue
            if max(state.end_offset, state.start_offset) > partition.end_offset:
                lost[key] = state.cut(partition.end_offset)
        if lost:
            log.warning("share partitions are ahead of their logs, and are set back", extra={"partitions": len(lost)})
            self.states.store(lost)
