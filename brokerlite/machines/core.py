"""The whole broker as one state machine: requests go in, answers come out, at once or later.

    core.handle(ticket, call)      # a request; the driver gets `ticket` back with the answer
    core.poll(now)                 # -> the answers that are ready
    core.jobs()                    # -> new background jobs, whose work runs in threads
    core.resume(job, now)          # -> its next piece of work
    core.deadline                  # when to poll next if there is no request before

Rules:
- Each API has a file in `ottla.brokerlite.handlers`; this module has only the parts that they share.
- An answer that waits for records (a long poll) is a `Wait`; an answer that waits for other members of a group is a
  `Later`. If an answer needs much computing, the handler returns `WorkFirst`, and a job computes it.
- A request begins when the requests before it on its connection are done, as in Apache Kafka: a delayed answer holds
  the connection (`HoldConnection`). An answer that only waits for the disk does not: its request is done, and the
  answers of a connection leave in order anyway.
- With `Settings.sync` no answer leaves before everything written before it is on disk: answers wait in order, the
  driver syncs when `unsynced` asks for it, and reports that with `synced`.
- Nothing here reads a clock, a socket or random numbers: times and ids are handed in.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.groups import group_log
from ottla.brokerlite.machines.groups.groups import Groups, GroupSettings
from ottla.brokerlite.machines.groups.offsets import Offsets
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.requests.fetch_sessions import MAX_EPOCH, FetchSessions
from ottla.brokerlite.machines.requests.request_work import RequestWork, WorkFirst
from ottla.brokerlite.machines.requests.waits import Later, Wait, Waits
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.housekeeping import Housekeeping, HousekeepingSettings
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.brokerlite.machines.topics.topics import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    Storage,
    TopicLogs,
    TopicPartition,
    Topics,
)
from ottla.brokerlite.machines.transactions import transaction_log
from ottla.brokerlite.machines.transactions.transaction_coordinator import TransactionCoordinator, TransactionSettings
from ottla.brokerlite.machines.transactions.transaction_metadata import (
    EPOCH_RISES,
    TransactionalIdState,
    TransactionMetadata,
)
from ottla.client_info import ClientInfo
from ottla.codec.frames import RequestHeader
from ottla.errors import (
    BrokerError,
    KafkaStorageError,
    RemoteProtocolError,
)

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite")

PRODUCER_ID_BLOCK = 1000
"""Producer ids that are reserved on disk in one step, as in Kafka."""
_AGAIN = 1.0
"""Seconds until the check of hanging transactions is repeated, if the disk refused a marker."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The broker's settings, as handlers see them."""

    node_id: int
    cluster_id: str
    host: str | None
    """The advertised host; ``None``: the address that the client connected to."""
    port: int
    default_partitions: int = 1
    auto_create: bool = True
    fetch_max_bytes: int = 55 * 2**20
    described: Mapping[str, str] = field(default_factory=dict)
    """The broker's own configurations, for DescribeConfigs."""
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    housekeeping: HousekeepingSettings = field(default_factory=HousekeepingSettings)
    sync: bool = False
    """No answer leaves before everything written before it is on disk."""
    work_at_once: int = 384 * 2**10
    """The most work (`validation.work`) of a Produce request that is validated on the loop, while all other requests
    wait: about a millisecond. More work goes to a thread."""


class Call(NamedTuple):
    """A request and its circumstances."""

    connection: int
    session: ClientInfo
    header: RequestHeader
    message: Any
    now: float
    """Monotonic seconds."""
    timestamp: int
    """Milliseconds since 1970 by the system's clock: the timestamp of records. Expiration never uses it alone."""


class Answer(NamedTuple):
    """An answer that is ready."""

    ticket: Any
    message: Any
    """``None``: the request gets no answer."""
    version: int


class CloseConnection(NamedTuple):
    """Instead of an answer, the connection of the request is to be closed."""

    ticket: Any
    why: str


class HoldConnection(NamedTuple):
    """The connection of the request must hand in no further request, or may do so again."""

    ticket: Any
    held: bool


Action = Answer | CloseConnection | HoldConnection


class _Held(NamedTuple):
    """An action that waits for the disk.

    Attributes:
        writes: the number of writes that must be on disk first.
    """

    writes: int
    then: Callable[[], None]
    ticket: Any


class NoAnswer(NamedTuple):
    """Returned by a handler if the protocol has no answer to the request.

    Attributes:
        close: why the connection is to be closed; ``None``: it stays open.
    """

    close: str | None = None


class BrokerCore:
    """Serves the requests of one broker.

    Args:
        handlers: API key -> its handler (`ottla.brokerlite.handlers.SERVED`).
        defaults: topic configurations in which this broker differs from Kafka's defaults.
        now, timestamp: the time, as in a `Call`.
        asleep: as `Clock.asleep`, which the driver updates before it hands in a request or polls; it also calls
            `Clock.compare` then.
        new_id: makes ids of topics and sessions, and the random part of member ids.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        handlers: "Mapping[int, ServedApi]",
        *,
        new_id: "Callable[[], UUID]",
        defaults: Mapping[str, str] | None = None,
        now: float = 0.0,
        timestamp: int = 0,
        asleep: float = 0.0,
    ) -> None:
        self.settings = settings
        self.handlers = handlers
        self.clock = Clock.at(now, timestamp, asleep)
        self.timers = Timers()
        self.topics = Topics(storage, defaults or {}, new_id)
        self.fetch_sessions = FetchSessions(lambda: new_id().int % MAX_EPOCH + 1)
        self.waits = Waits(
            self.timers, self._answer_later, lambda ticket: self._act(CloseConnection(ticket, "internal error"))
        )
        self.offsets_log = KeyedLog(CONSUMER_OFFSETS, group_log.CONFIGS, self.topics, self.clock, self.grown)
        groups = group_log.GroupLog(self.offsets_log)
        self.groups = Groups(settings.groups, groups.store_group, new_id, self.clock, self.timers)
        self.offsets = Offsets(self.groups, groups.store_offsets)
        self.transactions_log = KeyedLog(
            TRANSACTION_STATE, transaction_log.CONFIGS, self.topics, self.clock, self.grown
        )
        transactions = transaction_log.TransactionLog(self.transactions_log)
        self.transactions = TransactionCoordinator(
            settings.transactions,
            self.clock,
            self.timers,
            store=transactions.store,
            new_producer_id=self.new_producer_id,
            mark=self._mark,
            when_written=self.when_written,
            completed=self._completed,
        )
        self._decided: set[str] = set()
        """Transactional ids whose last transaction was decided before the start and is not complete yet."""
        self._actions: list[Action] = []
        self._jobs: list[Job] = []
        self.housekeeping = Housekeeping(
            settings.housekeeping,
            self.topics,
            self.clock,
            self.timers,
            storage,
            start=self._jobs.append,
        )
        self._request_work = RequestWork(self._jobs.append)
        self._storage = storage
        self._producer_ids = range(0)
        # One write is pending from the start: the logs may be in the page cache only, if the last broker was killed.
        self._writes, self._synced = 1, 0
        self._disk_failed = False
        """A sync failed, so the state of the disk is unknown."""
        self._unsynced: deque[_Held] = deque()
        """Actions that wait for the disk."""
        groups.load(self.groups.by_id, self.offsets)
        transactions.load(self.transactions.by_id)
        self.groups.resume(now)
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                partition.producers.seen_at(now)
        self._decided.update(name for name, each in self.transactions.by_id.items() if each.is_decided)
        self.transactions.resume(now)
        self._end_hanging()  # before a producer can end a transaction that misses a partition
        self.housekeeping.resume(now)

    # -- for the driver

    def handle(self, ticket: Any, call: Call) -> None:
        """Take a request; its answer comes out of `poll`.

        Raises:
            RemoteProtocolError: the API or its version is not served here; the connection must be closed.
        """
        key, version = call.header.api_key, call.header.api_version
        served = self.handlers.get(key)
        if served is None or not served.lowest <= version <= served.highest:
            raise RemoteProtocolError(f"API key {key} version {version} is not served")
        self.clock.now = call.now
        self._settle(ticket, call, served.handle(self, call))

    def _settle(self, ticket: Any, call: Call, result: Any) -> None:
        """Act on the result of a handler."""
        version = call.header.api_version
        match result:
            case WorkFirst():
                self._work_first(ticket, call, result)
            case Wait():
                self._actions.append(HoldConnection(ticket, True))
                self.waits.park(result, ticket, call.connection, version)
            case Later():
                self._actions.append(HoldConnection(ticket, True))
                self.waits.promise(result, ticket, call.connection, version)
            case NoAnswer(close=why):
                self._act(Answer(ticket, None, version) if why is None else CloseConnection(ticket, why))
            case _:
                self._act(Answer(ticket, result, version))

    def _work_first(self, ticket: Any, call: Call, first: WorkFirst) -> None:
        def settle(result: Any) -> None:
            self._settle(ticket, call, result)
            if not isinstance(result, Wait | Later):  # these hold the connection themselves
                self._actions.append(HoldConnection(ticket, False))

        self._actions.append(HoldConnection(ticket, True))
        self._request_work.add(first, settle, lambda: self._actions.append(CloseConnection(ticket, "internal error")))

    def poll(self, now: float) -> list[Action]:
        """Return the actions that are ready, in no particular order of connections."""
        self.clock.now = now
        self.timers.expire(now)
        actions, self._actions = self._actions, []
        return actions

    def jobs(self) -> list[Job]:
        """Return the new background jobs; each is returned once."""
        jobs = self._jobs.copy()
        self._jobs.clear()
        return jobs

    def resume(self, job: Job, now: float, raised: Exception | None = None) -> Work:
        """Resume a job and return its next piece of work.

        Args:
            raised: the exception of the last piece, if any.

        Raises:
            StopIteration: the job is done.
        """
        self.clock.now = now
        return next(job) if raised is None else job.throw(raised)

    @property
    def deadline(self) -> float | None:
        """When to poll next."""
        return self.timers.deadline

    @property
    def unsynced(self) -> int | None:
        """The number of writes so far if an action waits for the disk, else ``None``; pass it to `synced`."""
        return self._unsynced[-1].writes if self._unsynced else None

    def synced(self, writes: int, *, failed: bool = False) -> None:
        """Report that the writes counted by `unsynced` are on disk, or (``failed``) that the sync failed.

        After a failed sync the state of the disk is unknown until another start has read it. Until then no request is
        answered, not even a read or a repeated request: connections are closed instead.
        """
        self._disk_failed |= failed
        self._synced = max(self._synced, writes)
        while self._unsynced and (self._unsynced[0].writes <= self._synced or self._disk_failed):
            held = self._unsynced.popleft()
            self._when_held(held.then, held.ticket)

    def _when_held(self, then: Callable[[], None], ticket: Any) -> None:
        """Run the action now that its writes are on disk, or close the connection if the disk failed."""
        if not self._disk_failed:
            then()
        elif ticket is not None:
            self._actions.append(CloseConnection(ticket, "the disk refused to flush the writes"))

    def lost(self, connection: int) -> None:
        """The client is gone: give up the delayed answers, but keep handling requests received before."""
        self.waits.give_up(connection)

    def disconnected(self, connection: int) -> None:
        """The connection is closed and has no more requests: forget its delayed answers."""
        self.waits.disconnected(connection)

    def drain(self) -> None:
        """Finish every waiting answer; from now on none waits."""
        self.waits.drain()
        self.groups.drain()
        self.housekeeping.stop()

    # -- for the handlers

    def grown(self, partition: PartitionLog) -> None:
        """Notice that records were added to ``partition``."""
        self._writes += 1
        self.waits.grown(partition)
        self.housekeeping.grown(partition)

    def when_written(self, then: Callable[[], None], ticket: Any = None) -> None:
        """Call ``then`` once everything written so far is on disk; at once without `Settings.sync`.

        Args:
            ticket: the ticket of the request that waits, if any.
        """
        if self.settings.sync and self._synced < self._writes and not self._disk_failed:
            self._unsynced.append(_Held(self._writes, then, ticket))
        else:
            self._when_held(then, ticket)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicLogs:
        """Create a topic, as `Topics.create`."""
        topic = self.topics.create(name, partitions, configs)
        self._writes += 1
        log.info("topic created", extra={"topic": name, "partitions": partitions})
        return topic

    def add_partitions(self, topic: TopicLogs, partitions: int) -> None:
        """Add partitions, as `Topics.grow`."""
        self.topics.grow(topic, partitions)
        self._writes += 1
        log.info("partitions added", extra={"topic": topic.name, "partitions": partitions})

    def delete_topic(self, topic: TopicLogs) -> None:
        """Delete a topic, as `Topics.delete`, and answer the requests that wait for its records."""
        self.topics.delete(topic)
        self._writes += 1
        self.offsets.topic_deleted(topic.name)
        log.info("topic deleted", extra={"topic": topic.name})
        self.waits.gone(topic.partitions)

    def set_start_offsets(self, starts: Mapping[TopicPartition, int], done: Callable[[OSError | None], None]) -> None:
        """Start the job of `Storage.set_start_offsets`."""
        self._jobs.append(self._storage.set_start_offsets(starts, done))

    def new_producer_id(self) -> int:
        """Return a producer id that was never used.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if not self._producer_ids:
            first = self._storage.reserve_producer_ids(PRODUCER_ID_BLOCK)
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    def write_marker(
        self,
        place: TopicPartition,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        newer: bool = False,
    ) -> None:
        """End a transaction in one partition, as `PartitionLog.end_transaction`.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
            InvalidProducerEpoch, TransactionCoordinatorFenced: the marker is out of date.
            KafkaStorageError: the disk refused.
        """
        if (partition := self.topics.partition(*place)) is None:
            raise self.topics.missing(place[0])
        partition.end_transaction(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=self.clock.timestamp,
            now=self.clock.now,
            newer=newer,
        )
        if place[0] == CONSUMER_OFFSETS:
            self.offsets.end_transaction(producer_id, commit=commit)
        self.grown(partition)

    # -- transactions

    def _mark(self, transaction: TransactionMetadata) -> Iterator[TopicPartition]:
        """Write the markers of a transaction; yield the partitions whose marker the disk refused."""
        own = self.transactions_log.topic().partitions[0].epochs.current
        for place in transaction.partitions:
            partition = self.topics.partition(*place)
            known = partition.producers.entries.get(transaction.producer_id) if partition else None
            # An administrator's marker may have had any epoch; no other coordinator exists that could be newer.
            coordinator_epoch = own if known is None else max(own, known.coordinator_epoch)
            try:
                self.write_marker(
                    place,
                    transaction.producer_id,
                    transaction.epoch,
                    commit=transaction.commits,
                    coordinator_epoch=coordinator_epoch,
                    newer=transaction.version >= EPOCH_RISES,
                )
            except KafkaStorageError:
                yield place
            except BrokerError as error:  # the topic is gone, or an administrator has ended the transaction there
                log.info("transaction marker for %s-%d skipped: %s", *place, error)

    def _end_hanging(self) -> None:
        """After a start, resolve transactions that are open in a partition but not at the coordinator.

        Such a transaction means that the disk has lost a record of the partition or of the coordinator.

        - If the coordinator has the transaction without this partition, the partition is added: the producer can
          continue, or the transaction times out.
        - Otherwise it is aborted: with `Settings.sync` records that the disk lost were never acknowledged. Without it
          the lost record may be the marker; then the transaction ends with the outcome that the coordinator knows.
        - If the last transaction was decided and is not complete, the partition may have a batch of the next one. This
          is resolved once the decided one is complete.
        """
        if TRANSACTION_STATE in self.topics.unserved:  # this topic has the outcomes
            return
        self.transactions.catch_up(self._highest_epochs())
        by_producer = {
            producer_id: each.transactional_id
            for each in self.transactions.by_id.values()
            for producer_id in (each.producer_id, each.next_producer_id)
        }
        again = False
        for topic in self.topics.by_name.values():
            for index, partition in enumerate(topic.partitions):
                place = topic.name, index
                for producer_id in list(partition.producers.ongoing):
                    known = self.transactions.by_id.get(by_producer.get(producer_id, ""))
                    if known is not None and (known.is_decided or self._is_part(place, partition, known)):
                        continue
                    again |= not self._end_or_join(place, partition, producer_id, known)
        if again:
            self.timers.set("hanging", self.clock.now + _AGAIN, lambda _: self._end_hanging())

    def _completed(self, transactional_id: str) -> None:
        """Notice that a transaction is complete; check again if it was decided before the start."""
        if transactional_id in self._decided:
            self._decided.remove(transactional_id)
            self._end_hanging()

    def _highest_epochs(self) -> dict[int, int]:
        """Return for each producer id the highest epoch of its records in any partition.

        Markers do not count: administrators may write markers of any epoch.
        """
        epochs: dict[int, int] = {}
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                for producer_id, producer in partition.producers.entries.items():
                    if producer.batches:
                        epochs[producer_id] = max(producer.epoch, epochs.get(producer_id, producer.epoch))
        return epochs

    def _is_part(self, place: TopicPartition, partition: PartitionLog, known: TransactionMetadata) -> bool:
        """Return whether the open transaction in a partition is the one at the coordinator, with this partition."""
        return place in known.partitions and partition.producers.entries[known.producer_id].epoch == known.epoch

    def _end_or_join(
        self, place: TopicPartition, partition: PartitionLog, producer_id: int, known: TransactionMetadata | None
    ) -> bool:
        """Add the partition to the transaction, or end it there; return ``False`` if the disk refused."""
        epoch = partition.producers.entries[producer_id].epoch
        goes_on = known is not None and known.epoch == epoch
        if known is not None and goes_on and (not known.has_ended or known.version >= EPOCH_RISES):
            version = known.version if known.state is TransactionalIdState.ONGOING else EPOCH_RISES
            log.warning("%s-%d added to an open transaction: the coordinator had lost this partition", *place)
            self.transactions.joined(known.transactional_id, place, version)
            return True
        return self._end_lost(place, partition, producer_id, known)

    def _end_lost(
        self, place: TopicPartition, partition: PartitionLog, producer_id: int, known: TransactionMetadata | None
    ) -> bool:
        epoch = partition.producers.entries[producer_id].epoch
        has_lost_a_marker = (
            known is not None and known.has_ended and known.epoch - epoch == int(known.version >= EPOCH_RISES)
        )
        commit = known is not None and has_lost_a_marker and known.commits and not self.settings.sync
        outcome = "committed" if commit else "aborted"
        log.warning("%s-%d has a transaction that is not open at its coordinator: %s", *place, outcome)
        coordinator_epoch = partition.producers.entries[producer_id].coordinator_epoch
        try:
            self.write_marker(place, producer_id, epoch, commit=commit, coordinator_epoch=max(0, coordinator_epoch))
        except BrokerError as error:
            log.error("writing the transaction marker of %s-%d failed: %s", *place, error)
            return not isinstance(error, KafkaStorageError)
        return True

    # -- answers

    def _answer_later(self, ticket: Any, message: Any, version: int) -> None:
        self._act(Answer(ticket, message, version))
        self._actions.append(HoldConnection(ticket, False))

    def _act(self, action: Action) -> None:
        if self.settings.sync:
            self.when_written(lambda: self._actions.append(action), action.ticket)
        else:
            self._actions.append(action)


Handler = Callable[[BrokerCore, Call], Any]
"""Returns the response message, a `Wait`, a `Later`, a `WorkFirst` or a `NoAnswer`."""


class ServedApi(NamedTuple):
    """A served API: its versions and its handler."""

    lowest: int
    highest: int
    """The lowest and highest versions that are answered."""
    handle: Handler
    advertised_from: int = -1
    """The lowest version that ApiVersions advertises, if it is lower than `lowest`; else -1."""
