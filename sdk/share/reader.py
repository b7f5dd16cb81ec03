"""Reads the partitions that a share group assigns to its member: from their leaders, into one buffer.

Rules:
- Each partition is read from its leader, by the `NodeReader` of that node. Errors that say that the leader has moved,
  and new metadata, lead to the new one; locked records stay with the session in which they were locked.
- `max_records` limits the records in the user's hands together with those fetched ahead; nodes share it.
- Records are fetched while more callers wait than records are buffered. Beyond that they are fetched ahead only while
  others are buffered, at the pace of the loop (`Pace`), and not twice without a record taken between: a loop that is
  stuck must not fetch records, and let their locks expire, until the broker archives them. So a loop that works on its
  last record also leaves the connection free for its acknowledgement.
- If `max_records` is less than the number of nodes, they take turns. A node that is asked while another one probably
  has records may not hold back its response.
- While records are in the user's hands, a broker holds back a ShareFetch only briefly. Otherwise their
  acknowledgements would wait for its response.
- The error of a partition that cannot be read is raised once, by the next call; other partitions are not affected.

Source: ShareConsumerImpl.java, ShareConsumeRequestManager.java.
"""

import math
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import is_another
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.share.lock_watch import LockWatch
from ottla.sdk.share.locked_record import Lock, LockedRecord, RecordState, RecordTally, SharedPartition
from ottla.sdk.share.node_reader import NodeReader
from ottla.sdk.share.options import ShareConsumerOptions
from ottla.sdk.share.pace import Pace
from ottla.sdk.timers import Timer

_BRIEFLY = 0.1
"""Seconds for which a broker may hold back a ShareFetch while records are in the user's hands, at most."""
_UNUSUAL = 5.0
"""Seconds without the first record after which `explain` says where a new group begins."""
_WAIT = 0.25
"""The part of a lock's time for which a broker may hold back a ShareFetch: the lock may begin with the request."""


class ShareReader:
    """Reads for member ``member_id``; ``channel``: of its connections to leaders.

    Attributes:
        news: settled, and then replaced, whenever a call that waits should look again.
    """

    def __init__(self, core: ClientCore, options: ShareConsumerOptions, member_id: str, channel: str) -> None:
        self._core, self._options, self._channel = core, options, channel
        self._session = (options.group, member_id, channel, options.acquire_mode == "record_limit")
        self.tally = RecordTally()
        self._pace = Pace(options.max_records)
        self._watch = LockWatch(core, options.group, self._locked, self._expired)
        self._readers: dict[int, NodeReader] = {}
        self._assigned: tuple[SharedPartition, ...] = ()
        self._paused: dict[SharedPartition, float] = {}
        """Partitions that had an error, and until when they are not asked for."""
        self._troubles: dict[SharedPartition, str] = {}
        """The last error of each partition that cannot be read at the moment."""
        self._dead: set[SharedPartition] = set()
        """Partitions that are not read any more, because of an error that is not retriable."""
        self._failures = 0
        self._buffer: deque[LockedRecord] = deque()
        self._errors: deque[OttlaError] = deque()
        self._lock = math.inf
        """Seconds of a lock, as of the last response."""
        self._took = True
        """The user has taken a record since the last ShareFetch began."""
        self._waiting = 0
        """The number of calls that wait for a record."""
        self._first_wait: float | None = None
        """When a call first waited for a record; infinite once one has come."""
        self.news: Outcome[None] = Outcome()
        self._again: Timer | None = None
        self._closed = False
        core.metadata.observers.append(self._plan)

    # -- for the consumer --------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[SharedPartition], now: float) -> None:
        """Read these partitions from now on, and no others."""
        self._assigned = tuple(sorted(partitions))
        self._dead.intersection_update(self._assigned)
        self._troubles = {each: why for each, why in self._troubles.items() if each in self._assigned}
        self._plan(now)

    @property
    def assigned(self) -> Sequence[SharedPartition]:
        return self._assigned

    def take(self) -> LockedRecord | None:
        """The next record; ``None``: there is none at the moment.

        Raises:
            OttlaError: a partition cannot be read, or a batch is damaged. Raised once.
        """
        if self._errors:
            raise self._errors.popleft()
        while self._buffer:
            locked = self._buffer.popleft()
            if locked.take():  # else it was lost meanwhile
                self._took, self._first_wait = True, math.inf
                self._pace.taken(locked.lock, self._core.now, last=not self._buffer)
                if self._is_low:
                    self.changed()
                return locked
        return None

    def put_back(self, locked: LockedRecord) -> None:
        """Take back the record that `take` returned last, because it did not reach the user."""
        if locked.put_back():
            self._buffer.appendleft(locked)
            self._notify()

    def begin_wait(self) -> None:
        """Take note that a call waits for a record."""
        self._waiting += 1
        if self._first_wait is None:
            self._first_wait = self._core.now
        self.changed()

    def end_wait(self) -> None:
        """Take note that a call does not wait any more."""
        self._waiting -= 1

    def wake_waiting(self) -> None:
        """Let the calls that wait look again."""
        self._notify()

    def finish(self) -> Outcome[None]:
        """Send the acknowledgements that wait, and close the sessions. Settled afterwards."""
        return all_of([_followed(each.finish()) for each in self._readers.values()])

    def stop(self, why: str) -> None:
        """Stop reading; all records are lost, and their locks end when the brokers close the sessions."""
        if self._closed:
            return
        self._closed = True
        self._core.metadata.observers.remove(self._plan)
        if self._again is not None:
            self._again.cancel()
        for each in self._readers.values():
            each.stop(why)
        self._buffer.clear()
        self._core.retire(self._channel)
        self._notify()

    def waiting(self, nodes: Container[int] | None) -> Mapping[str, int]:
        """The number of partitions that cannot be read without these nodes."""
        if nodes is None:
            count = len(self._assigned)
        else:
            count = sum(len(each.wanted) for each in self._readers.values() if each.node.id in nodes)
        return {"partitions": count} if count else {}

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about partitions that cannot be read, and about calls that wait for a record."""
        for partition, why in self._troubles.items():
            yield f"{partition}: {why}"
        if not self._waiting:
            return
        for each in self._readers.values():
            yield from each.explain()
        if self.tally.held >= self._options.max_records:
            full = f"your code has {self.tally.held} record(s), as many as max_records: acknowledge some of them"
            yield f"share group {self._options.group!r}: {full}"
        if self._assigned and self._first_wait is not None and now - self._first_wait >= _UNUSUAL:
            reset = f"ottla share reset {self._options.group} --to-earliest --topic TOPIC --execute"
            why = "no record has come yet. A new share group begins with records that come after its first member"
            yield f"share group {self._options.group!r}: {why}; for older ones, stop its members and use {reset}"

    # -- for the readers of nodes ------------------------------------------------------------------------------------

    def allowance(self, reader: NodeReader) -> int:
        """The number of records to ask the node for now; 0: none."""
        most = self._options.max_records
        reading = [each for each in self._readers.values() if each.wanted]
        reserved = sum(each.reserved for each in self._readers.values())
        room = most - self.tally.held - reserved
        waiting = self._waiting - self.tally[RecordState.BUFFERED]
        if waiting <= 0:
            room = min(room, self._pace.limit - self.tally[RecordState.BUFFERED] - reserved)
        ahead = reader.has_more and self._is_low and self._took
        if room <= 0 or not reader.wanted or not (waiting > 0 or ahead):
            return 0
        longer = sum(not each.reserved and each.asked_at < reader.asked_at for each in reading)
        if longer >= room:
            return 0  # there is not enough room for all, so nodes that have waited longer come first
        self._took = False
        return min(room, max(1, most // len(reading)), max(self._pace.limit, waiting))

    @property
    def _is_low(self) -> bool:
        """Whether some records are buffered, and at most half of the limit."""
        return 0 < self.tally[RecordState.BUFFERED] <= self._pace.limit // 2

    def _locked(self) -> Iterator[LockedRecord]:
        """All locked records, of all sessions."""
        return chain.from_iterable(each.session.locked() for each in self._readers.values())

    def _expired(self, lock: Lock, unseen: bool) -> None:
        """Use the room of records whose lock has expired; fetch less ahead if nobody asked for them in time."""
        if unseen:
            self._pace.dropped(lock)
        self.changed()

    def patience(self, reader: NodeReader) -> float:
        """Seconds for which the node may hold back a response."""
        if self._waiting <= self.tally[RecordState.BUFFERED]:
            return 0.0
        wait = min(self._core.options.fetch_max_wait, self._lock * _WAIT)
        others = [each for each in self._readers.values() if each.wanted and each is not reader]
        in_turn = self._options.max_records <= len(others)
        if in_turn and any(each.has_more for each in others):
            return 0.0  # another node, which waits for its turn, probably has records
        return min(wait, _BRIEFLY) if in_turn or self.tally[RecordState.HANDED_OUT] else wait

    def acquired(self, reader: NodeReader, lock: Lock, records: Sequence[LockedRecord]) -> None:
        """Take over new records, in order."""
        self._lock = lock.seconds
        for each in reader.session.partitions:
            if each not in self._paused and each not in self._dead:
                self._troubles.pop(each, None)
        if records:
            self._watch.watch(lock)
            self._buffer.extend(records)
            self._notify()

    def delivered_again(self, partition: SharedPartition, offset: int) -> None:
        """Lose the delivery of a record before this one: its lock has expired, or its leader has moved."""
        for each in self._readers.values():
            before = each.session.locked_at(partition, offset)
            if before is not None:
                before.lose("its lock had expired, and the record is delivered to this consumer again")

    def renewed(self, lock: Lock) -> None:
        """Watch a new lock."""
        self._watch.watch(lock)

    def refused(
        self, partition: SharedPartition, error: OttlaError, leader: tuple[int, int], nodes: Iterable[Node]
    ) -> None:
        """Act on a partition's error: read it from its new leader, or after a pause, or never again."""
        core = self._core
        if core.cluster.moved(partition.topic, partition.partition, *leader, nodes):
            self._plan(core.now)
        elif error.retriable:
            core.metadata.refresh(core.now)
            self._troubles[partition] = str(error)
            self._paused[partition] = core.now + core.backoff(self._failures)
            self._failures = min(self._failures + 1, 8)
            self._plan(core.now)
        else:
            self._dead.add(partition)
            self._troubles[partition] = str(error)
            self.failed(error)
            self._plan(core.now)

    def failed(self, error: OttlaError) -> None:
        """Have the user's next call raise ``error``."""
        self._errors.append(error)
        self._notify()

    def changed(self) -> None:
        """Let readers look whether there is room for more records."""
        for each in self._readers.values():
            each.wake()

    # -- the partitions' leaders -------------------------------------------------------------------------------------

    def _plan(self, now: float) -> None:
        """Divide the partitions among the readers of their leaders; plan again later for the others."""
        cluster = self._core.cluster
        self._paused = {each: until for each, until in self._paused.items() if until > now}
        if not self._paused:
            self._failures = 0
        wanted: dict[int, dict[SharedPartition, None]] = {}
        leaderless = False
        for partition in self._assigned:
            if partition in self._paused or partition in self._dead:
                continue
            leader = cluster.leader(partition.topic, partition.partition)
            if leader is None or is_another(partition.topic_id, cluster.topic_id(partition.topic)):
                leaderless = True
                self._troubles[partition] = "waiting for its leader" if leader is None else "its topic was recreated"
                continue
            if leader.id not in self._readers:
                self._readers[leader.id] = NodeReader(self._core, leader, self._session, self, self.tally)
            wanted.setdefault(leader.id, {})[partition] = None
        for node_id, reader in self._readers.items():
            reader.want(wanted.get(node_id, {}), cluster.nodes.get(node_id, reader.node))
        self._plan_again(now, leaderless=leaderless)

    def _plan_again(self, now: float, *, leaderless: bool) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        whens = list(self._paused.values())
        if leaderless:
            self._core.metadata.refresh(now, self._core.options.retry_backoff_max)
        if whens:
            self._again = self._core.later(min(whens), self._plan)

    def _notify(self) -> None:
        news, self.news = self.news, Outcome()
        news.succeed(None)


def _followed(outcome: Outcome[None]) -> Outcome[None]:
    """An outcome that is settled with ``outcome``, and never fails."""
    followed: Outcome[None] = Outcome()
    outcome.when_done(lambda: followed.succeed(None))
    return followed
