"""Runs the broker under trio: sockets, threads and the clock.

Theory of operation: `BrokerCore` decides everything. `_BrokerService` is the service behind the listener: it parses
requests, hands them to the core and builds the responses. Two tasks run beside the listener: one polls the core at its
deadlines, the other flushes written data to disk. Work that waits for the disk or needs much computing runs in
threads; while a request is unfinished, its connection passes no other to the core (`HoldConnection`). All of these
tasks run in a scope that is shielded from cancellation, so that a cancelled broker can still answer its open requests
and close its folder.
"""

import logging
import math
import secrets
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio

from ottla.addresses import format_address, parse_address
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.handlers import SERVED, import_all
from ottla.brokerlite.handlers.api_versions import unsupported
from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.brokerlite.machines.core import Action, Answer, BrokerCore, Call, CloseConnection, HoldConnection, Settings
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings
from ottla.brokerlite.machines.topics.configs import CONFIGS
from ottla.brokerlite.machines.topics.housekeeping import HousekeepingSettings
from ottla.brokerlite.machines.transactions.transaction_settings import TransactionSettings
from ottla.brokerlite.metrics import collect
from ottla.brokerlite.storage.data_folder import DataFolder
from ottla.brokerlite.storage.disk import descriptors_for_connections
from ottla.codec import frames
from ottla.codec.elements import check_elements
from ottla.codec.error_codes import error_codes
from ottla.codec.wire import Buffer
from ottla.config_file import Reloaded
from ottla.errors import ConfigurationError, UnsupportedVersion
from ottla.listeners import ListenerConfig
from ottla.sasl_server.scram import HASHES, LEAST_ITERATIONS, ScramCredential, credential_for
from ottla.serve import (
    AcceptedConnection,
    Listener,
    ListenerLimits,
    PendingAnswer,
    PortSecurity,
    Service,
    serve_health,
    spare,
)
from ottla.server_metrics import Histogram, Samples
from ottla.topic_configs import of_strings

log = logging.getLogger("ottla.brokerlite")

MOST_NAMES = 200_000
"""The most topics, partitions, groups and so on in one request: other clients wait while it is handled, 5 to 10 µs for
each of them."""
_IMPORT_EVERY = 0.03
"""Seconds between two imports: importing all handlers at once would keep the first clients waiting."""
_PAUSE_AFTER_BUG = 0.1
"""Seconds until the core is polled again after polling it failed; without a pause it would be polled in a busy loop."""
_SLEEPLESS: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""A clock that continues while the machine sleeps, on Linux, macOS and the BSDs. On Windows trio's own clock does."""


@dataclass(kw_only=True)
class RunningBroker:
    """Describes and controls a running broker.

    Attributes:
        bootstrap: ``host:port`` of the main listener, for clients on this machine.
        listeners: the same of each listener, by its name.
        listen: ``host:port`` that the broker listens on; the host may stand for every address.
        advertised: ``host:port`` in Metadata responses; empty if each client gets the address that it connected to.
        data: the data folder.
        health: ``host:port`` of the probes, or ``None``.
        ready: whether the broker accepts requests; false while it drains.
    """

    bootstrap: str
    listeners: Mapping[str, str]
    listen: str
    host: str
    port: int
    advertised: str
    data: Path
    node_id: int
    cluster_id: str
    health: str | None = None
    ready: bool = True
    clean: bool = field(default=True, repr=False)
    _core: BrokerCore = field(repr=False)
    _listener: Listener = field(repr=False)
    _reload: "Callable[[RunningBroker], Reloaded] | None" = field(default=None, repr=False)
    _end: trio.Event = field(default_factory=trio.Event, repr=False)

    def _answers_probes(self, health: str) -> None:
        """Notice that the port of the probes is open."""
        self.health = health

    def _stops(self) -> None:
        """Notice that the broker accepts no more requests."""
        self.ready = False

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic, like a CreateTopics request; call it from within trio.

        Raises:
            BrokerError: as for `Topics.create`.
            ConfigurationError: an argument has another type.
        """
        if not isinstance(name, str):
            raise ConfigurationError(f"name must be a str, not {name!r}")
        if not isinstance(partitions, int) or isinstance(partitions, bool):
            raise ConfigurationError(f"partitions must be an int, not {partitions!r}")
        self._core.create_topic(name, partitions, of_strings(configs))

    def set_password(self, user: str, password: str) -> None:
        """Give a user a password, for every mechanism; hashes it, so it blocks for some milliseconds.

        Raises:
            BrokerError: the name is not allowed, or the disk refused.
        """
        for mechanism in HASHES:
            self._core.users.store(user, credential_for(mechanism, password, secrets.token_bytes(20), LEAST_ITERATIONS))

    def log_access(self, to: str | None) -> None:
        """Replace the access log (see `BrokerConfig.access_log`).

        Raises:
            ConfigurationError: the file cannot be opened; the former access log continues.
        """
        self._listener.log_access(to)

    def drain(self) -> None:
        """Answer the open requests, close the folder cleanly and stop; call it from within trio."""
        self._end.set()

    def kill(self) -> None:
        """Stop at once and leave the folder as kill -9 would, for tests of recovery; call it from within trio."""
        self.clean = False
        self._end.set()


async def run_broker(
    config: BrokerConfig,
    *,
    reload: Callable[[RunningBroker], Reloaded] | None = None,
    task_status: "trio.TaskStatus[RunningBroker]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until it is drained or cancelled; then answer the open requests and close the folder.

    Args:
        reload: reads the configuration again and applies it; called at ``POST /reload`` on the health port.

    Raises:
        ConfigurationError: the port or the folder cannot be used.
    """
    with _data_path(config) as path:
        chores, service = _Chores(), _BrokerService()
        # The listener opens before the folder is created: a broker that cannot listen leaves no folder behind.
        room = descriptors_for_connections()
        connections = min(config.max_connections, room - spare(room))
        listener = Listener(
            ListenerLimits(max_frame=config.max_request_bytes, max_connections=connections, pipeline=config.pipeline)
        )
        listener.log_access(config.access_log)
        try:
            ports = [await _open(listener, each, service) for each in config.all_listeners]
        except ConfigurationError:
            await listener.drain()
            raise
        folder = DataFolder(
            path,
            index_interval_bytes=config.index_interval_bytes,
            sync=config.sync is not Sync.NEVER and config.data is not None,
            chore=chores.add,
        )
        began = trio.current_time()
        try:
            await trio.to_thread.run_sync(folder.open, config.node_id, config.cluster_id, abandon_on_cancel=True)
        except BaseException:  # also when cancelled: clients that have connected must not wait for a response
            await listener.drain()
            raise
        _log_recovery(folder, trio.current_time() - began)
        try:
            await _serve(config, listener, ports, folder, service, chores, reload, task_status)
        except BaseExceptionGroup as group:  # the nursery wraps errors; the caller gets a ConfigurationError as it is
            raise _plain(group) from None
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(chores.finish)
                await trio.to_thread.run_sync(folder.abandon if service.killed else folder.close)
            log.info("stopped", extra={"data": str(path)})


async def _serve(
    config: BrokerConfig,
    listener: Listener,
    ports: list[int],
    folder: DataFolder,
    service: "_BrokerService",
    chores: "_Chores",
    reload: Callable[[RunningBroker], Reloaded] | None,
    task_status: "trio.TaskStatus[RunningBroker]",
) -> None:
    settings = _settings(config, folder.cluster_id, ports)
    core = BrokerCore(
        settings,
        folder,
        SERVED,
        Clock.at(trio.current_time(), _timestamp(), _asleep()),
        new_id=uuid.uuid4,
        defaults=_topic_defaults(config),
    )
    service.serve(core)
    running = _running(config, folder, core, listener, ports, reload)
    async with trio.open_nursery() as nursery:
        work: trio.CancelScope = await nursery.start(_work, config, listener, folder, service, chores, running)
        task_status.started(running)
        extra = {
            "listen": running.listen,
            "advertised": running.advertised or "the address that each client connected to",
            "data": str(folder.path),
            "sync": str(config.sync) if config.data is not None else "never",
            "node": config.node_id,
        }
        log.info("ready", extra=extra)
        try:
            await running._end.wait()
        finally:
            running._stops()
            service.stop(killed=not running.clean)
            if running.clean:
                with trio.CancelScope(shield=True):
                    await listener.drain()
            work.cancel()


async def _open(listener: Listener, config: ListenerConfig, service: "_BrokerService") -> int:
    """Open a listener; return its port."""
    if config.is_open:
        log.warning(
            "listener without authentication: everyone who reaches it may use the broker",
            extra={"listener": config.name, "listen": config.address},
        )
    return await listener.open(config.host, config.port, service, PortSecurity.of(config, service))


async def _import_handlers() -> None:
    for _ in import_all():
        await trio.sleep(_IMPORT_EVERY)


async def _work(
    config: BrokerConfig,
    listener: Listener,
    folder: DataFolder,
    service: "_BrokerService",
    chores: "_Chores",
    running: RunningBroker,
    *,
    task_status: "trio.TaskStatus[trio.CancelScope]",
) -> None:
    with trio.CancelScope(shield=True) as scope:
        async with trio.open_nursery() as nursery:
            service.run_jobs_in(nursery)
            nursery.start_soon(listener.run)
            nursery.start_soon(service.pump)
            nursery.start_soon(chores.run)
            nursery.start_soon(service.flush, folder)
            nursery.start_soon(_import_handlers)
            if config.health is not None:
                host, port = parse_address(config.health, "health", any_port=True)

                def samples() -> Samples:
                    return collect(service.core, listener, service.flush_durations, folder.flush_durations)

                opened = await nursery.start(_probes, host, port, running, samples)
                running._answers_probes(format_address(host, opened))
            task_status.started(scope)


async def _probes(
    host: str,
    port: int,
    running: RunningBroker,
    samples: Callable[[], Samples],
    *,
    task_status: "trio.TaskStatus[int]",
) -> None:
    reload = None if running._reload is None else partial(running._reload, running)
    await serve_health(host, port, lambda: running.ready, samples, reload=reload, opened=task_status.started)


class _Ticket(NamedTuple):
    """Identifies the request that a response belongs to."""

    connection: AcceptedConnection
    answer: PendingAnswer
    correlation_id: int


class _BrokerService(Service):
    """Serves the listener's connections: passes requests to the core and sends its responses.

    Attributes:
        killed: the broker stops as if killed, without closing the folder.
        flush_durations: of the flushes that responses wait for.
    """

    core: BrokerCore
    _jobs: trio.Nursery

    def __init__(self) -> None:
        self.killed = False
        self.flush_durations = Histogram()
        self._nap = trio.CancelScope()
        self._unsynced = trio.Event()
        """Set when responses wait for a flush to disk."""
        self._not_before = -math.inf

    def serve(self, core: BrokerCore) -> None:
        """Pass all requests to ``core``."""
        self.core = core

    def run_jobs_in(self, nursery: trio.Nursery) -> None:
        """Start the jobs of the core in ``nursery``."""
        self._jobs = nursery

    def stop(self, *, killed: bool) -> None:
        """Begin nothing new, and answer all waiting requests now, unless the broker stops as if killed."""
        self.killed = killed
        self.core.housekeeping.stop()
        if not killed:
            self.core.drain(trio.current_time())
            self.send()

    def credential(self, mechanism: str, user: str) -> ScramCredential:
        """See `ottla.sasl_server.users.Users.credential`."""
        return self.core.users.table.credential(mechanism, user)

    def any_credential(self, user: str) -> ScramCredential:
        """See `ottla.sasl_server.users.Users.any_credential`."""
        return self.core.users.table.any_credential(user)

    def knows(self, user: str) -> bool:
        """See `ottla.sasl_server.users.Users.knows`."""
        return self.core.users.table.knows(user)

    def connected(self, connection: AcceptedConnection) -> None:
        pass

    def handed_out(self, connection: AcceptedConnection) -> None:
        pass

    def lost(self, connection: AcceptedConnection) -> None:
        self.core.lost(connection.id, trio.current_time())
        self.send()

    def disconnected(self, connection: AcceptedConnection) -> None:
        self.core.disconnected(connection.id, trio.current_time())
        if not self.killed:
            self.send()  # to members of share groups that wait for the records of this one

    def request(self, connection: AcceptedConnection, frame: Buffer, answer: PendingAnswer) -> None:
        check_elements(frame, MOST_NAMES)
        try:
            request = frames.parse_request(frame, _serves)
        except frames.UnknownApi as error:
            if error.header.api_key != frames.API_VERSIONS:
                raise
            refusal = frames.build_response(unsupported(SERVED), 0, error.header.correlation_id)
            answer.send(refusal, errors=(UnsupportedVersion.code,))
            return
        header = request.header
        now, timestamp = self._read_clocks()
        call = Call(connection.id, connection.session, header, request.message, now, timestamp)
        try:
            self.core.handle(_Ticket(connection, answer, header.correlation_id), call)
        finally:  # also after an error: the failed request may have completed other clients' requests
            self.send(now)

    def send(self, now: float | None = None) -> None:
        """Send the responses that are ready, and set the time at which the pump wakes for the next.

        Raises nothing: an error here is not the fault of the request that is being handled.
        """
        try:
            actions = self.core.poll(self._read_clocks()[0] if now is None else now)
        except Exception:
            log.exception("a bug in the broker, please report it")
            actions, self._not_before = [], trio.current_time() + _PAUSE_AFTER_BUG
        for action in actions:
            ticket: _Ticket = action.ticket
            try:
                _carry_out(action, ticket)
            except frames.FrameTooLong as error:  # no client accepts a response of that size
                ticket.connection.turn_out(f"its response is too large: {error}")
            except Exception:  # a bug in the broker, which must not affect other connections
                log.exception("cannot send a response, client disconnected", extra={"peer": ticket.connection.peer})
                ticket.connection.close("internal error")
        for job in self.core.jobs():
            self._jobs.start_soon(_work_off, self, job)
        if (due := self._due()) != self._nap.deadline:
            self._nap.deadline = due
        if self.core.unsynced is not None:
            self._unsynced.set()

    def resume(self, job: Job, raised: Exception | None) -> Work:
        """See `BrokerCore.resume`."""
        return self.core.resume(job, self._read_clocks()[0], raised)

    async def pump(self) -> None:
        """Send responses when their deadlines pass."""
        while True:
            with trio.CancelScope(deadline=self._due()) as self._nap:
                await trio.sleep_forever()
            self.send()

    async def flush(self, folder: DataFolder) -> None:
        """Flush to disk what responses wait for; writes during a flush share the next one."""
        while True:
            await self._unsynced.wait()
            self._unsynced = trio.Event()
            while (writes := self.core.unsynced) is not None:
                began = trio.current_time()
                try:
                    await trio.to_thread.run_sync(folder.begin_flush())
                except OSError as error:
                    log.error("flush to disk failed: %s", error, extra={"data": str(folder.path)})
                    self.core.synced(writes, trio.current_time(), failed=True)
                else:
                    self.flush_durations.observe(trio.current_time() - began)
                    self.core.synced(writes, trio.current_time())
                self.send()

    def _read_clocks(self) -> tuple[float, int]:
        """Return both times for a `Call`, and update the core's clock, also with how long the machine has slept."""
        now, timestamp = trio.current_time(), _timestamp()
        self.core.clock.compare(now, timestamp, _asleep())
        return now, timestamp

    def _due(self) -> float:
        deadline = self.core.deadline
        return math.inf if deadline is None else max(deadline, self._not_before)


def _carry_out(action: Action, ticket: _Ticket) -> None:
    match action:
        case Answer(message=None):
            ticket.answer.nothing()
        case Answer(message=message, version=version):
            parts = frames.build_response_parts(message, version, ticket.correlation_id)
            ticket.answer.send(*parts, errors=error_codes(message))
        case HoldConnection(held=held):
            ticket.connection.hold(held)
        case CloseConnection(why=why):
            ticket.connection.turn_out(why)


def _serves(api_key: int, api_version: int) -> bool:
    served = SERVED.get(api_key)
    return served is not None and served.lowest <= api_version <= served.highest


async def _work_off(service: _BrokerService, job: Job) -> None:
    """Run a job of the core: its blocking work in threads, the rest here."""
    raised: Exception | None = None
    try:
        while True:
            work = service.resume(job, raised)
            try:
                await trio.to_thread.run_sync(work)
                raised = None
            except Exception as error:
                raised = error
    except StopIteration:
        pass
    except Exception:  # a bug, which must not stop the broker
        log.exception("background job failed")
    finally:
        job.close()
        if raised is not None:
            raised.with_traceback(None)  # breaks a cycle: its traceback's frames hold the error itself, and open files
    service.send()


class _Chores:
    """Runs queued disk work in a thread, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Work] = deque()
        self._some = trio.Event()

    def add(self, chore: Work) -> None:
        self._waiting.append(chore)
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._some = trio.Event()
            await trio.to_thread.run_sync(self.finish)

    def finish(self) -> None:
        """Do all queued work (in a thread)."""
        while self._waiting:
            self._waiting.popleft()()


@contextmanager
def _data_path(config: BrokerConfig) -> Iterator[Path]:
    if config.data is not None:
        yield config.data
        return
    with tempfile.TemporaryDirectory(prefix="ottla-broker-") as name:
        yield Path(name)


def _timestamp() -> int:
    return time.time_ns() // 1_000_000


def _asleep() -> float:
    """How far the clock that continues while the machine sleeps is ahead of trio's, in seconds."""
    return 0.0 if _SLEEPLESS is None else time.clock_gettime(_SLEEPLESS) - time.perf_counter()


def _settings(config: BrokerConfig, cluster_id: str, ports: list[int]) -> Settings:
    advertised = {each.name: each.advertised(port) for each, port in zip(config.all_listeners, ports, strict=True)}
    host, port = advertised[config.all_listeners[0].name]
    return Settings(
        node_id=config.node_id,
        cluster_id=cluster_id,
        host=host,
        port=port,
        advertised=advertised,
        default_partitions=config.default_partitions,
        auto_create=config.auto_create,
        fetch_max_bytes=config.fetch_max_bytes,
        groups=GroupSettings(
            initial_rebalance_delay=config.group_initial_rebalance_delay,
            min_session_timeout=config.group_min_session_timeout,
            max_members=config.group_max_size,
            offsets_retention=config.offsets_retention,
        ),
        consumer_groups=ConsumerGroupSettings(
            session_timeout=config.group_consumer_session_timeout,
            heartbeat_interval=config.group_consumer_heartbeat_interval,
            assignors=config.group_consumer_assignors,
            migration_policy=config.group_consumer_migration_policy,
            assignment_interval=config.group_consumer_assignment_interval,
            pattern_refresh_interval=config.group_consumer_regex_refresh_interval,
            max_members=config.group_consumer_max_size,
        ),
        share_groups=_share_groups(config),
        housekeeping=HousekeepingSettings(
            retention_check=config.log_retention_check, cleaner_backoff=config.log_cleaner_backoff
        ),
        transactions=TransactionSettings(
            max_timeout=config.transaction_max_timeout, expiration=config.transactional_id_expiration
        ),
        acls=(
            AclSettings(super_users=frozenset(config.super_users), allow_if_none=config.allow_if_no_acl)
            if config.acls
            else None
        ),
        secret=secrets.token_bytes(32),
        sync=config.sync is Sync.ALWAYS and config.data is not None,
        described={
            "allow.everyone.if.no.acl.found": str(config.allow_if_no_acl).lower(),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer" if config.acls else "",
            "auto.create.topics.enable": str(config.auto_create).lower(),
            "broker.id": str(config.node_id),
            "default.replication.factor": "1",
            "fetch.max.bytes": str(config.fetch_max_bytes),
            **_of_consumer_groups(config),
            **_share_groups(config).described(),
            "group.initial.rebalance.delay.ms": str(round(config.group_initial_rebalance_delay * 1000)),
            "group.max.size": str(config.group_max_size),
            "group.min.session.timeout.ms": str(round(config.group_min_session_timeout * 1000)),
            "log.cleaner.backoff.ms": str(round(config.log_cleaner_backoff * 1000)),
            "log.dirs": str(config.data or ""),
            "log.index.interval.bytes": str(config.index_interval_bytes),
            "log.retention.check.interval.ms": str(round(config.log_retention_check * 1000)),
            "log.segment.bytes": str(config.segment_bytes),
            "message.max.bytes": str(config.max_message_bytes),
            "node.id": str(config.node_id),
            "num.partitions": str(config.default_partitions),
            "offsets.retention.minutes": str(round(config.offsets_retention / 60)),
            "socket.request.max.bytes": str(config.max_request_bytes),
            "super.users": ";".join(config.super_users),
            "transaction.max.timeout.ms": str(round(config.transaction_max_timeout * 1000)),
            "transactional.id.expiration.ms": str(round(config.transactional_id_expiration * 1000)),
        },
    )


def _of_consumer_groups(config: BrokerConfig) -> dict[str, str]:
    """Return the configurations of consumer groups, for DescribeConfigs."""
    return {
        "group.consumer.assignment.interval.ms": str(round(config.group_consumer_assignment_interval * 1000)),
        "group.consumer.assignors": ",".join(config.group_consumer_assignors),
        "group.consumer.heartbeat.interval.ms": str(round(config.group_consumer_heartbeat_interval * 1000)),
        "group.consumer.max.size": str(config.group_consumer_max_size),
        "group.consumer.migration.policy": config.group_consumer_migration_policy.value,
        "group.consumer.regex.refresh.interval.ms": str(round(config.group_consumer_regex_refresh_interval * 1000)),
        "group.consumer.session.timeout.ms": str(round(config.group_consumer_session_timeout * 1000)),
    }


def _share_groups(config: BrokerConfig) -> ShareGroupSettings:
    return ShareGroupSettings(
        session_timeout=config.group_share_session_timeout,
        heartbeat_interval=config.group_share_heartbeat_interval,
        max_members=config.group_share_max_size,
        record_lock_duration=config.group_share_record_lock_duration,
        delivery_count_limit=config.group_share_delivery_count_limit,
        partition_max_record_locks=config.group_share_partition_max_record_locks,
        max_share_sessions=config.group_share_max_share_sessions,
    )


def _topic_defaults(config: BrokerConfig) -> dict[str, str]:
    """Return the topic configurations in which this broker differs from Kafka's defaults."""
    given = {
        "index.interval.bytes": str(config.index_interval_bytes),
        "max.message.bytes": str(config.max_message_bytes),
        "segment.bytes": str(config.segment_bytes),
    }
    return {key: value for key, value in {**given, **config.topic_defaults}.items() if value != CONFIGS[key].default}


def _running(
    config: BrokerConfig,
    folder: DataFolder,
    core: BrokerCore,
    listener: Listener,
    ports: list[int],
    reload: Callable[[RunningBroker], Reloaded] | None,
) -> RunningBroker:
    settings = core.settings
    main, port = config.all_listeners[0], ports[0]
    listeners = {
        each.name: format_address(_near(each.host), bound)
        for each, bound in zip(config.all_listeners, ports, strict=True)
    }
    return RunningBroker(
        bootstrap=listeners[main.name],
        listeners=listeners,
        listen=format_address(main.host, port),
        host=_near(main.host),
        port=port,
        advertised=format_address(settings.host, settings.port) if settings.host else "",
        data=folder.path,
        node_id=config.node_id,
        cluster_id=folder.cluster_id,
        _core=core,
        _listener=listener,
        _reload=reload,
    )


def _near(host: str) -> str:
    """The host by which clients on this machine reach a listener."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)


def _log_recovery(folder: DataFolder, seconds: float) -> None:
    found = folder.recovered
    log.info(
        found.what,
        extra={
            "data": str(folder.path),
            "topics": found.topics,
            "partitions": found.partitions,
            "truncated_bytes": found.truncated_bytes,
            "seconds": round(seconds, 3),
        },
    )


def _plain(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only error in ``group`` if it is a `ConfigurationError`, otherwise the group."""
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup) and len(leaf.exceptions) == 1:
        leaf = leaf.exceptions[0]
    return leaf if isinstance(leaf, ConfigurationError) else group
