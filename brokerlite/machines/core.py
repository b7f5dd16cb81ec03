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
- Nothing here reads a clock, a socket or random numbers: times and ids are handed in, a time with each event.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.acl.access import Access, AclAccess
from ottla.acl.audit import Audit
from ottla.acl.authorizer import Authorizer
from ottla.acl.rights import Right
from ottla.brokerlite.machines.acls import acl_log
from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.acls.stored_acls import StoredAcls
from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.consumer_groups import consumer_group_log
from ottla.brokerlite.machines.consumer_groups.classic_members import ClassicMembers
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.brokerlite.machines.consumer_groups.consumer_groups import ConsumerGroups
from ottla.brokerlite.machines.consumer_groups.roster import Roster
from ottla.brokerlite.machines.groups import group_configs, group_log
from ottla.brokerlite.machines.groups.group_configs import GroupConfigs
from ottla.brokerlite.machines.groups.group_directory import GroupDirectory
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.groups.groups import Groups
from ottla.brokerlite.machines.groups.offsets import Offsets
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.requests.fetch_sessions import MAX_EPOCH, FetchSessions
from ottla.brokerlite.machines.requests.request_work import RequestWork, WorkFirst
from ottla.brokerlite.machines.requests.sync_waits import SyncWaits
from ottla.brokerlite.machines.requests.waits import Later, Wait, Waits
from ottla.brokerlite.machines.share_groups import share_group_log
from ottla.brokerlite.machines.share_groups.refused_requests import RefusedRequests
from ottla.brokerlite.machines.share_groups.share_groups import ShareGroups
from ottla.brokerlite.machines.share_partitions import stored_state
from ottla.brokerlite.machines.share_partitions.share_group_configs import ShareGroupConfigs
from ottla.brokerlite.machines.share_partitions.share_partitions import SharePartitions
from ottla.brokerlite.machines.share_partitions.share_sessions import SessionName, ShareSessions
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey, StoredStates
from ottla.brokerlite.machines.timers import Timers
from ottla.brokerlite.machines.topics.housekeeping import Housekeeping, HousekeepingSettings
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.brokerlite.machines.topics.topics import (
    ACCESS_CONTROL,
    CONSUMER_OFFSETS,
    GROUP_CONFIGS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    USER_CREDENTIALS,
    Storage,
    TopicLogs,
    TopicPartition,
    Topics,
)
from ottla.brokerlite.machines.transactions import transaction_log
from ottla.brokerlite.machines.transactions.hanging_transactions import HangingTransactions
from ottla.brokerlite.machines.transactions.transaction_coordinator import TransactionCoordinator
from ottla.brokerlite.machines.transactions.transaction_markers import TransactionMarkers
from ottla.brokerlite.machines.transactions.transaction_settings import TransactionSettings
from ottla.brokerlite.machines.users import user_log
from ottla.brokerlite.machines.users.user_credentials import UserCredentials
from ottla.client_info import ClientInfo
from ottla.codec.frames import RequestHeader
from ottla.errors import RemoteProtocolError, SecurityDisabled

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite")

SHARE_PARTITION_IDLE = 300.0
"""Seconds after the last session of a share group until its share partitions leave the memory."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The broker's settings, as handlers see them."""

    node_id: int
    cluster_id: str
    host: str | None
    """The advertised host; ``None``: the address that the client connected to."""
    port: int
    advertised: Mapping[str, tuple[str | None, int]] = field(default_factory=dict)
    """Listener -> its own host and port, if they differ."""
    default_partitions: int = 1
    auto_create: bool = True
    fetch_max_bytes: int = 55 * 2**20
    described: Mapping[str, str] = field(default_factory=dict)
    """The broker's own configurations, for DescribeConfigs."""
    groups: GroupSettings = field(default_factory=GroupSettings)
    consumer_groups: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    share_groups: ShareGroupSettings = field(default_factory=ShareGroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    housekeeping: HousekeepingSettings = field(default_factory=HousekeepingSettings)
    acls: AclSettings | None = None
    """``None``: no ACLs apply, and everyone may do everything."""
    secret: bytes = field(default=b"", repr=False)
    """Random bytes for a data folder that has none yet (`user_log`)."""
    sync: bool = False
    """No answer leaves before everything written before it is on disk."""
    work_at_once: int = 384 * 2**10
    """The most work (`validation.work`) of a Produce request that is validated on the loop, while all other requests
    wait: about a millisecond. More work goes to a thread."""

    def address_for(self, client: ClientInfo) -> tuple[str, int]:
        """The address of this broker, as a client of its listener finds it."""
        host, port = self.advertised.get(client.listener) or (self.host, self.port)
        return host or client.local_host, port


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
        clock: the driver calls `Clock.compare` before it hands in a request or polls.
        new_id: makes ids of topics and sessions, and the random part of member ids.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        handlers: "Mapping[int, ServedApi]",
        clock: Clock,
        *,
        new_id: "Callable[[], UUID]",
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings
        self.handlers = handlers
        self.clock = clock
        self.timers = Timers()
        self.topics = Topics(storage, defaults or {}, new_id)
        self.fetch_sessions = FetchSessions(lambda: new_id().int % MAX_EPOCH + 1)
        self._actions: list[Action] = []
        self._jobs: list[Job] = []
        self._storage = storage
        self._sync_waits = SyncWaits(settings.sync, self._refuse)
        self.waits = Waits(
            self.timers, self._answer_later, lambda ticket: self._act(CloseConnection(ticket, "internal error"))
        )
        self.offsets_log = KeyedLog(CONSUMER_OFFSETS, group_log.CONFIGS, self.topics, self.clock, self.grown)
        groups = group_log.GroupLog(self.offsets_log)
        classic = Groups(settings.groups, groups.store_group, new_id, self.clock, self.timers)
        stored = consumer_group_log.ConsumerGroupLog(self.offsets_log, groups)
        roster = Roster(settings.consumer_groups, self.topics, stored, classic, self.clock)
        configs = KeyedLog(GROUP_CONFIGS, group_configs.CONFIGS, self.topics, self.clock, self.grown)
        self.group_configs = GroupConfigs(configs)
        states = KeyedLog(SHARE_GROUP_STATE, stored_state.CONFIGS, self.topics, self.clock, self.grown)
        self.share_states = StoredStates(states, self.clock)
        self.share_configs = ShareGroupConfigs(settings.share_groups, self.group_configs)
        self.share_partitions = SharePartitions(
            self.share_configs, self.topics, self.share_states, self.clock, self.timers, self.waits.grown
        )
        self.share_sessions = ShareSessions(settings.share_groups.max_share_sessions)
        self.share_groups = ShareGroups(
            self.share_configs, self.topics, self.offsets_log, self.share_partitions, self.clock, self.timers
        )
        self.groups = GroupDirectory(classic, [ClassicMembers(roster, classic), RefusedRequests(self.share_groups)])
        self.consumer_groups = ConsumerGroups(roster, new_id)
        self.offsets = Offsets(self.groups, groups.store_offsets)
        users = KeyedLog(USER_CREDENTIALS, user_log.CONFIGS, self.topics, self.clock, self.grown)
        self.users = UserCredentials(user_log.UserLog(users), settings.secret)
        self.transactions_log = KeyedLog(
            TRANSACTION_STATE, transaction_log.CONFIGS, self.topics, self.clock, self.grown
        )
        transactions = transaction_log.TransactionLog(self.transactions_log)
        self.markers = TransactionMarkers(self.topics, self.offsets, self.transactions_log, self.clock, self.grown)
        self.transactions = TransactionCoordinator(
            settings.transactions,
            self.clock,
            self.timers,
            store=transactions.store,
            new_producer_id=storage.assign_producer_ids,
            mark=self.markers.write_all,
            when_written=self._sync_waits.when_written,
            completed=self._completed,
        )
        self._hanging = HangingTransactions(
            self.topics, self.transactions, self.markers, self.timers, synced=settings.sync
        )
        self.housekeeping = Housekeeping(
            settings.housekeeping,
            self.topics,
            self.clock,
            self.timers,
            storage,
            start=self._jobs.append,
        )
        self._request_work = RequestWork(self._jobs.append)
        self._acls: StoredAcls | None = None
        self.audit = Audit(lambda: self.clock.now, self.timers)
        self.access = Access() if settings.acls is None else self._by_acls(settings.acls, new_id)
        loaded = self.offsets_log.load()
        consumer_group_log.load(loaded, roster.by_id)
        share_group_log.load(loaded, self.share_groups.by_id)
        groups.load(loaded, classic.by_id, self.offsets, roster.by_id)
        self.group_configs.load()
        self.share_states.load()
        transactions.load(self.transactions.by_id)
        classic.resume(clock.now)
        roster.resume(clock.now)
        self.share_groups.resume(clock.now)
        self.share_partitions.resume()
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                partition.producers.seen_at(clock.now)
        self._hanging.note_decided()
        self.transactions.resume(clock.now)
        self._hanging.check(clock.now)  # before a producer can end a transaction that misses a partition
        self.housekeeping.resume(clock.now)

    def _by_acls(self, settings: AclSettings, new_id: "Callable[[], UUID]") -> Access:
        stored = KeyedLog(ACCESS_CONTROL, acl_log.CONFIGS, self.topics, self.clock, self.grown)
        authorizer = Authorizer(super_users=settings.super_users, allow_if_none=settings.allow_if_none)
        self._acls = StoredAcls(authorizer, acl_log.AclLog(stored), new_id)
        return AclAccess(authorizer, self.audit)

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
        self.clock.advance(call.now)
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
        self.clock.advance(now)
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
        self.clock.advance(now)
        return next(job) if raised is None else job.throw(raised)

    @property
    def deadline(self) -> float | None:
        """When to poll next."""
        return self.timers.deadline

    @property
    def unsynced(self) -> int | None:
        """The number of writes so far if an action waits for the disk, else ``None``; pass it to `synced`."""
        return self._sync_waits.unsynced

    def synced(self, writes: int, now: float, *, failed: bool = False) -> None:
        """Report that the writes counted by `unsynced` are on disk, or (``failed``) that the sync failed.

        After a failed sync the state of the disk is unknown until another start has read it. Until then no request is
        answered, not even a read or a repeated request: connections are closed instead.
        """
        self.clock.advance(now)
        self._sync_waits.synced(writes, failed=failed)

    def _refuse(self, ticket: Any) -> None:
        self._actions.append(CloseConnection(ticket, "the disk refused to flush the writes"))

    def lost(self, connection: int, now: float) -> None:
        """The client is gone: give up the delayed answers, but keep handling requests received before."""
        self.clock.advance(now)
        self.waits.give_up(connection)

    def disconnected(self, connection: int, now: float) -> None:
        """The connection is closed and has no more requests: forget its delayed answers and its share sessions.

        Members that wait for the records of this one may get them, so poll for actions.
        """
        self.clock.advance(now)
        self.waits.disconnected(connection)
        for name in self.share_sessions.of_connection(connection):
            self.close_share_session(name)

    def drain(self, now: float) -> None:
        """Finish every waiting answer; from now on none waits."""
        self.clock.advance(now)
        self.waits.drain()
        self.groups.classic.drain()
        self.consumer_groups.drain()
        self.share_groups.drain()
        self.housekeeping.stop()

    # -- for the handlers

    @property
    def acls(self) -> StoredAcls:
        """The ACLs.

        Raises:
            SecurityDisabled: no ACLs apply.
        """
        if self._acls is None:
            raise SecurityDisabled("the broker runs without ACLs: start it with --acls")
        return self._acls

    def grown(self, partition: PartitionLog) -> None:
        """Notice that records were added to ``partition``."""
        self._sync_waits.wrote()
        self.waits.grown(partition)
        self.housekeeping.grown(partition)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicLogs:
        """Create a topic, as `Topics.create`."""
        topic = self.topics.create(name, partitions, configs)
        self._sync_waits.wrote()
        log.info("topic created", extra={"topic": name, "partitions": partitions})
        return topic

    def add_partitions(self, topic: TopicLogs, partitions: int) -> None:
        """Add partitions, as `Topics.grow`."""
        self.topics.grow(topic, partitions)
        self._sync_waits.wrote()
        log.info("partitions added", extra={"topic": topic.name, "partitions": partitions})

    def configure_topic(self, topic: TopicLogs, configs: Mapping[str, str]) -> None:
        """Replace the configurations of a topic, as `Topics.configure`."""
        changed = sorted(dict(topic.configs.items() ^ configs.items()))
        self.topics.configure(topic, configs)
        self._sync_waits.wrote()
        log.info("topic configuration changed: %s", ", ".join(changed), extra={"topic": topic.name})

    def delete_topic(self, topic: TopicLogs) -> None:
        """Delete a topic, as `Topics.delete`, and answer the requests that wait for its records."""
        self.topics.delete(topic)
        self._sync_waits.wrote()
        self.offsets.topic_deleted(topic.name)
        self.share_groups.topic_deleted(topic.topic_id)
        log.info("topic deleted", extra={"topic": topic.name})
        self.waits.gone(topic.partitions)

    def close_share_session(self, name: SessionName) -> None:
        """Close a share session, if there is one, and release the records that its member has."""
        if name not in self.share_sessions:
            return
        keys = [ShareKey(name.group_id, *place) for place in self.share_sessions.close(name)]
        self.share_partitions.release(name.member_id, keys)
        if not self.share_sessions.has_group(name.group_id):
            self._drop_share_partitions_later(name.group_id)

    def _drop_share_partitions_later(self, group_id: str) -> None:
        deadline = self.clock.now + SHARE_PARTITION_IDLE
        self.timers.set(("share sessions", group_id), deadline, lambda now: self._drop_share_partitions(group_id))

    def _drop_share_partitions(self, group_id: str) -> None:
        if not self.share_sessions.has_group(group_id) and not self.share_partitions.drop_idle(group_id):
            self._drop_share_partitions_later(group_id)

    def assign_producer_id(self) -> int:
        """Assign a producer id, as `Storage.assign_producer_ids`."""
        return self._storage.assign_producer_ids()

    def set_start_offsets(self, starts: Mapping[TopicPartition, int], done: Callable[[OSError | None], None]) -> None:
        """Start the job of `Storage.set_start_offsets`."""
        self._jobs.append(self._storage.set_start_offsets(starts, done))

    def _completed(self, transactional_id: str) -> None:
        self._hanging.completed(transactional_id, self.clock.now)

    # -- answers

    def _answer_later(self, ticket: Any, message: Any, version: int) -> None:
        self._act(Answer(ticket, message, version))
        self._actions.append(HoldConnection(ticket, False))

    def _act(self, action: Action) -> None:
        if self.settings.sync:
            self._sync_waits.when_written(lambda: self._actions.append(action), action.ticket)
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
    needs: tuple[Right, ...]
    """The rights that the handler checks with `BrokerCore.access`: of the whole request, or of parts of it."""
    advertised_from: int = -1
    """The lowest version that ApiVersions advertises, if it is lower than `lowest`; else -1."""
