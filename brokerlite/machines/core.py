"""The whole broker as one machine: requests in, answers out, now or later.

    core.handle(ticket, call)      # a request; `ticket` is whatever the driver wants back with the answer
    core.poll(now)                 # -> the answers that are ready
    core.jobs()                    # -> what is to be done in the background, and in threads
    core.resume(job, now)          # -> its next piece of work
    core.deadline                  # when to poll next if nothing happens

Rules:
- What an API does stands in `ottla.brokerlite.handlers`, one file each; here is only what they share.
- An answer that waits for records (a long poll) is a `Wait`, one that waits for other members of a group a `Later`.
  For an answer that takes much computing a handler returns `WorkFirst`: a job computes it.
- A request begins when those before it on its connection are done, as with Apache Kafka: one whose answer comes later
  holds its connection (`Hold`). An answer that waits for the disk only does not: its request is done, and the answers
  of a connection leave in order anyway.
- With `Settings.sync` nothing is told before the disk holds all that was written before it: answers wait in order, the
  driver has the disk hold everything (`unsynced`), and says so (`synced`).
- Nothing here reads a clock, a socket or chance: times and ids are handed in.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.brokerlite.machines import group_log, transaction_log
from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.fetch_sessions import MAX_EPOCH, FetchSessions
from ottla.brokerlite.machines.groups import Groups, GroupSettings
from ottla.brokerlite.machines.housekeeping import Housekeeping, HousekeepingSettings
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.keyed_log import KeyedLog
from ottla.brokerlite.machines.log import PartitionLog
from ottla.brokerlite.machines.offsets import Offsets
from ottla.brokerlite.machines.request_work import RequestWork, WorkFirst
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, Place, Storage, Topic, Topics
from ottla.brokerlite.machines.transaction import EPOCH_RISES, State, Transaction
from ottla.brokerlite.machines.transactions import Transactions, TransactionSettings
from ottla.brokerlite.machines.waits import Later, Wait, Waits
from ottla.codec.frames import RequestHeader
from ottla.errors import (
    BrokerError,
    KafkaStorageError,
    RemoteProtocolError,
)
from ottla.session import Session

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite")

PRODUCER_ID_BLOCK = 1000
"""Producer ids that are reserved on disk at once, as in Kafka."""
_AGAIN = 1.0
"""Seconds until open transactions are looked at again, where the disk refused what was to be written of one."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What handlers know of the broker itself."""

    node_id: int
    cluster_id: str
    host: str | None
    """What clients are told; ``None``: the address that they came by."""
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
    """Nothing is told before the disk holds what was written before it."""
    work_at_once: int = 384 * 2**10
    """How much the validation of a Produce request may take (`validation.work`) while all others wait, about a
    millisecond; for more there is a thread."""


class Call(NamedTuple):
    """A request and its circumstances."""

    connection: int
    session: Session
    header: RequestHeader
    message: Any
    now: float
    """Seconds of a clock that never goes back."""
    timestamp: int
    """Milliseconds since 1970, by the system's clock: what is said of records. Nothing expires by it alone."""


class Answer(NamedTuple):
    """An answer that is ready."""

    ticket: Any
    message: Any
    """``None``: the request gets no answer."""
    version: int


class Close(NamedTuple):
    """The connection of a request is to be closed instead of an answer."""

    ticket: Any
    why: str


class Hold(NamedTuple):
    """The connection of a request is to hand in no other request, or may do so again."""

    ticket: Any
    held: bool


Action = Answer | Close | Hold


class _Held(NamedTuple):
    """What waits for the disk.

    Attributes:
        writes: how much the disk must hold first.
    """

    writes: int
    then: Callable[[], None]
    ticket: Any


class NoAnswer(NamedTuple):
    """What a handler returns where the protocol has no answer.

    Attributes:
        close: why the connection is to be closed, if it is.
    """

    close: str | None = None


class BrokerCore:
    """One broker.

    Args:
        handlers: API key -> what serves it (`ottla.brokerlite.handlers.SERVED`).
        defaults: configurations of topics in which this broker differs from Kafka's defaults.
        now, timestamp: the time, as in a `Call`.
        asleep: as `Clock.asleep`, which the driver sets before it hands in a request or polls; then it calls
            `Clock.compare`, too.
        new_id: makes ids of topics and sessions, and the random part of member ids.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        handlers: "Mapping[int, Served]",
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
        self.waits = Waits(self.timers, self._answer_later, lambda ticket: self._act(Close(ticket, "internal error")))
        self.offsets_log = KeyedLog(CONSUMER_OFFSETS, group_log.CONFIGS, self.topics, self.clock, self.grown)
        groups = group_log.GroupLog(self.offsets_log)
        self.groups = Groups(settings.groups, groups.store_group, new_id, self.clock, self.timers)
        self.offsets = Offsets(self.groups, groups.store_offsets)
        self.transactions_log = KeyedLog(
            TRANSACTION_STATE, transaction_log.CONFIGS, self.topics, self.clock, self.grown
        )
        transactions = transaction_log.TransactionLog(self.transactions_log)
        self.transactions = Transactions(
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
        """Transactional ids whose last transaction was decided before the start, and is not complete yet."""
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
        self._writes, self._synced = 1, 0  # what was found may be in the page cache only, of a broker that was killed
        self._disk_failed = False
        """It was to hold something, and nobody knows whether it does."""
        self._unsynced: deque[_Held] = deque()
        """What waits for the disk."""
        groups.load(self.groups.by_id, self.offsets)
        transactions.load(self.transactions.by_id)
        self.groups.resume(now)
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                partition.producers.seen_at(now)
        self._decided.update(name for name, each in self.transactions.by_id.items() if each.is_decided)
        self.transactions.resume(now)
        self._end_hanging()  # before anybody ends a transaction of which a partition is not known
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
        """Do with what a handler returned what has to be done."""
        version = call.header.api_version
        match result:
            case WorkFirst():
                self._work_first(ticket, call, result)
            case Wait():
                self._actions.append(Hold(ticket, True))
                self.waits.park(result, ticket, call.connection, version)
            case Later():
                self._actions.append(Hold(ticket, True))
                self.waits.promise(result, ticket, call.connection, version)
            case NoAnswer(close=why):
                self._act(Answer(ticket, None, version) if why is None else Close(ticket, why))
            case _:
                self._act(Answer(ticket, result, version))

    def _work_first(self, ticket: Any, call: Call, first: WorkFirst) -> None:
        def settle(result: Any) -> None:
            self._settle(ticket, call, result)
            if not isinstance(result, Wait | Later):  # which hold it themselves
                self._actions.append(Hold(ticket, False))

        self._actions.append(Hold(ticket, True))
        self._request_work.add(first, settle, lambda: self._actions.append(Close(ticket, "internal error")))

    def poll(self, now: float) -> list[Action]:
        """What is to be sent, in no particular order of connections."""
        self.clock.now = now
        self.timers.expire(now)
        actions, self._actions = self._actions, []
        return actions

    def jobs(self) -> list[Job]:
        """What is to be done in the background from now on; each job is given once."""
        jobs = self._jobs.copy()
        self._jobs.clear()
        return jobs

    def resume(self, job: Job, now: float, raised: Exception | None = None) -> Work:
        """Go on with a job: its next piece of work.

        Args:
            raised: what the last piece has raised.

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
        """How much has been written, if something waits for the disk to hold it; `synced` wants it back."""
        return self._unsynced[-1].writes if self._unsynced else None

    def synced(self, writes: int, *, failed: bool = False) -> None:
        """The disk holds what had been written when `unsynced` said so, or (``failed``) nobody knows whether it does.

        Then nothing is told any more, until another start has found out what the disk holds: requests lose their
        connections, also those that repeat what was written or read it.
        """
        self._disk_failed |= failed
        self._synced = max(self._synced, writes)
        while self._unsynced and (self._unsynced[0].writes <= self._synced or self._disk_failed):
            held = self._unsynced.popleft()
            self._when_held(held.then, held.ticket)

    def _when_held(self, then: Callable[[], None], ticket: Any) -> None:
        """The disk holds what was waited for, or has failed."""
        if not self._disk_failed:
            then()
        elif ticket is not None:
            self._actions.append(Close(ticket, "flushing to disk failed"))

    def lost(self, connection: int) -> None:
        """Nobody waits for the answers of this connection any more, but other requests of it may come."""
        self.waits.give_up(connection)

    def disconnected(self, connection: int) -> None:
        """Nobody waits for the answers of this connection any more."""
        self.waits.disconnected(connection)

    def drain(self) -> None:
        """Give every waiting answer as it is; from now on none waits."""
        self.waits.drain()
        self.groups.drain()
        self.housekeeping.stop()

    # -- for the handlers

    def grown(self, partition: PartitionLog) -> None:
        """Something was added to ``partition``."""
        self._writes += 1
        self.waits.grown(partition)
        self.housekeeping.grown(partition)

    def when_written(self, then: Callable[[], None], ticket: Any = None) -> None:
        """Call ``then`` when the disk holds what has been written so far; at once where nobody waits for the disk.

        Args:
            ticket: of the request that waits for it.
        """
        if self.settings.sync and self._synced < self._writes and not self._disk_failed:
            self._unsynced.append(_Held(self._writes, then, ticket))
        else:
            self._when_held(then, ticket)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """As `Topics.create`."""
        topic = self.topics.create(name, partitions, configs)
        self._writes += 1
        log.info("topic created", extra={"topic": name, "partitions": partitions})
        return topic

    def add_partitions(self, topic: Topic, partitions: int) -> None:
        """As `Topics.grow`."""
        self.topics.grow(topic, partitions)
        self._writes += 1
        log.info("partitions added", extra={"topic": topic.name, "partitions": partitions})

    def delete_topic(self, topic: Topic) -> None:
        """As `Topics.delete`; requests that wait for the topic's records are answered."""
        self.topics.delete(topic)
        self._writes += 1
        self.offsets.topic_deleted(topic.name)
        log.info("topic deleted", extra={"topic": topic.name})
        self.waits.gone(topic.partitions)

    def set_start_offsets(self, starts: Mapping[Place, int], done: Callable[[OSError | None], None]) -> None:
        """As `Storage.set_start_offsets`, which is begun."""
        self._jobs.append(self._storage.set_start_offsets(starts, done))

    def new_producer_id(self) -> int:
        """A producer id that nobody has had.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if not self._producer_ids:
            first = self._storage.reserve_producer_ids(PRODUCER_ID_BLOCK)
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    def write_marker(
        self, place: Place, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, newer: bool = False
    ) -> None:
        """End a transaction in one partition, as `PartitionLog.end_transaction`.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
            InvalidProducerEpoch, TransactionCoordinatorFenced: it is out of date.
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

    def _mark(self, transaction: Transaction) -> Iterator[Place]:
        """Write the markers of a transaction; the partitions that the disk refused to have theirs."""
        own = self.transactions_log.topic().partitions[0].epochs.current
        for place in transaction.partitions:
            partition = self.topics.partition(*place)
            known = partition.producers.entries.get(transaction.producer_id) if partition else None
            # An administrator's marker may have had any; there is no other coordinator that could be newer.
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
            except BrokerError as error:  # the topic is gone, or somebody else has ended the transaction there
                log.info("transaction marker for %s-%d skipped: %s", *place, error)

    def _end_hanging(self) -> None:
        """After a start, see to what is open in a partition and not with its coordinator: the disk has lost a record of
        one of them.

        A batch may be there whose partition the coordinator does not know to be part of the transaction: it is from
        now on, so that the producer can go on, or its time runs out. Nobody was told of what the disk did not hold, so
        anything else is aborted; but where nothing waits for the disk, it may be a marker that is lost. Of a producer
        whose transaction was decided there may be a batch of the next one: it waits until that is complete.
        """
        if TRANSACTION_STATE in self.topics.unserved:  # it has the outcomes
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
        """A transaction has its markers."""
        if transactional_id in self._decided:
            self._decided.remove(transactional_id)
            self._end_hanging()

    def _highest_epochs(self) -> dict[int, int]:
        """Producer id -> the highest epoch of which a partition has records. (Administrators may write any marker.)"""
        epochs: dict[int, int] = {}
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                for producer_id, producer in partition.producers.entries.items():
                    if producer.batches:
                        epochs[producer_id] = max(producer.epoch, epochs.get(producer_id, producer.epoch))
        return epochs

    def _is_part(self, place: Place, partition: PartitionLog, known: Transaction) -> bool:
        """Whether what is open in a partition is part of the transaction, as its coordinator knows it."""
        return place in known.partitions and partition.producers.entries[known.producer_id].epoch == known.epoch

    def _end_or_join(self, place: Place, partition: PartitionLog, producer_id: int, known: Transaction | None) -> bool:
        """Whether it is done; else the disk has refused it."""
        epoch = partition.producers.entries[producer_id].epoch
        goes_on = known is not None and known.epoch == epoch
        if known is not None and goes_on and (not known.has_ended or known.version >= EPOCH_RISES):
            version = known.version if known.state is State.ONGOING else EPOCH_RISES
            log.warning("%s-%d added to an open transaction: the coordinator had lost that it takes part", *place)
            self.transactions.joined(known.transactional_id, place, version)
            return True
        return self._end_lost(place, partition, producer_id, known)

    def _end_lost(self, place: Place, partition: PartitionLog, producer_id: int, known: Transaction | None) -> bool:
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
            log.error("transaction marker write failed: %s", error)
            return not isinstance(error, KafkaStorageError)
        return True

    # -- answers

    def _answer_later(self, ticket: Any, message: Any, version: int) -> None:
        self._act(Answer(ticket, message, version))
        self._actions.append(Hold(ticket, False))

    def _act(self, action: Action) -> None:
        if self.settings.sync:
            self.when_written(lambda: self._actions.append(action), action.ticket)
        else:
            self._actions.append(action)


Handler = Callable[[BrokerCore, Call], Any]
"""Returns the response message, a `Wait`, a `Later`, a `WorkFirst` or a `NoAnswer`."""


class Served(NamedTuple):
    """An API that is served."""

    lowest: int
    highest: int
    """Versions that are answered."""
    handle: Handler
    advertised_from: int = -1
    """The lowest version that ApiVersions names, where that is lower than `lowest`."""
