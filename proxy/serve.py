"""The proxy under trio: listens, connects, and pumps bytes between sockets and `ProxyCore`.

Theory of operation: every event goes to the core at once, and the core's actions are done before the next event. Small
requests that arrive together are handed over together, so that one journal entry and one upstream request serve all of
them. Clients connect to an `ottla.serve.Listener` with a port for each broker; upstream connections are `Pipe`s, each
with a reader and a writer.

Rules:
- All buffers together are bounded (`ottla.proxy.clients.buffered`). The proxy stops reading from a client whose records
  or forwarded requests pile up, and from an upstream connection whose client does not read its responses.
- Every wait has a bound: the core's deadlines end upstream connections that do not answer, or stop within a response.
"""

import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ottla.addresses import format_address, parse_address
from ottla.codec.wire import Buffer
from ottla.config_file import Reloaded
from ottla.errors import ConfigurationError, LocalProtocolError, OttlaError, reason
from ottla.path_checks import is_exposed
from ottla.proxy.acl_rules import AclRules
from ottla.proxy.clients.routed_topics import MOST_NAMED
from ottla.proxy.config import ProxyConfig
from ottla.proxy.core import ProxyCore
from ottla.proxy.descriptors import fitting
from ottla.proxy.events import (
    AbandonJournal,
    AccessChanged,
    Action,
    Address,
    AnswerClient,
    ClientRefused,
    CloseClient,
    ConnectUpstream,
    DisconnectUpstream,
    Event,
    FinishUpstream,
    HoldClients,
    JournalLost,
    Left,
    Listen,
    Listening,
    RequestBegan,
    RequestContinued,
    Requested,
    RulesChanged,
    SendUpstream,
    Store,
    WelcomeClient,
    Work,
    Worked,
)
from ottla.proxy.journal.journal import Journal
from ottla.proxy.journal.restored import Noted
from ottla.proxy.journal.state_directory import StateDirectory
from ottla.proxy.metrics import collect
from ottla.proxy.pipe import Pipe
from ottla.proxy.ports import Ports
from ottla.proxy.report_page import report
from ottla.proxy.routing import check_copies
from ottla.proxy.standby import Probes, own_state, released
from ottla.proxy.topic_rule import Mode, TopicRule
from ottla.sdk.discovery import resolve
from ottla.sdk.events import RunInThread, TokenFetched
from ottla.serve import (
    AcceptedConnection,
    Listener,
    ListenerLimits,
    Memory,
    PendingAnswer,
    owner_of,
    serve_report,
)
from ottla.server_metrics import Samples

log = logging.getLogger("ottla.proxy")

_THREADS = 2
"""How many threads read and build large batches."""
_LOOK_AT_USERS = 2.0
"""Seconds between two looks at the file of users."""
_DRAIN = 3.0
"""Seconds that upstream has at shutdown to read the records of clients with ``acks=0``."""


@dataclass
class RunningProxy:
    """A running proxy.

    Attributes:
        bootstrap: ``host:port`` where its main listener listens for upstream's first broker.
        advertised: ``host:port`` that clients get for that broker.
        nodes: upstream's node id -> the proxy's port for it; grows with upstream.
        listeners: ``host:port`` of each listener for the first broker, by its name.
        health: ``host:port`` of the probes, or ``None``.
        report: ``host:port`` of the report, or ``None``.
    """

    bootstrap: str
    advertised: str
    nodes: dict[int, int]
    listeners: Mapping[str, str]
    health: str | None = None
    report: str | None = None
    _log_access: Callable[[str | None], None] = field(default=lambda to: None, repr=False)
    _core: ProxyCore | None = field(default=None, repr=False)
    _tell: Callable[[Event], None] = field(default=lambda event: None, repr=False)
    _end: trio.Event = field(default_factory=trio.Event, repr=False)

    @property
    def ready(self) -> bool:
        """Upstream answers, and the proxy is not draining."""
        return self._core is not None and self._core.ready and not self._end.is_set()

    def change_rules(self, rules: Sequence[TopicRule]) -> None:
        """Replace the topic rules; call it from within trio.

        Idempotent and transactional producers that are open are fenced when they next write to a topic that is newly
        rewritten, or no longer: their applications must open new ones.

        Raises:
            ConfigurationError: a topic would leave mode `fan-out`, and its records would pass unchanged; or a topic
                gets copies whose rule does not allow that.
        """
        check_copies(rules)
        if self._core is None:
            raise LocalProtocolError("the proxy does not run yet")
        if topics := self._core.topics.leaving_fan_out(rules):
            more = f" and {len(topics) - MOST_NAMED} more" if len(topics) > MOST_NAMED else ""
            raise ConfigurationError(
                f"topics in mode fan-out may only change to rewrite or copy: {', '.join(topics[:MOST_NAMED])}{more}; "
                "clients know one partition of them, and would send all records to it; stop their producers, and "
                "restart the proxy"
            )
        if self._core.rules.all != tuple(rules):
            self._tell(RulesChanged(tuple(rules)))

    def change_acls(self, acls: AclRules | None) -> None:
        """Replace the ACLs, and close the connections of the principals whom the change concerns.

        Raises:
            ConfigurationError: there would be none any more, and a listener needs them.
        """
        if self._core is None:
            raise LocalProtocolError("the proxy does not run yet")
        if (acls is None) != (self._core.acls is None):
            raise ConfigurationError("ACLs cannot be switched on or off by a reload: restart the proxy")
        self._tell(AccessChanged(acls))

    def log_access(self, to: str | None) -> None:
        """Replace the access log (see `ProxyConfig.access_log`).

        Raises:
            ConfigurationError: the file cannot be opened; the former access log continues.
        """
        self._log_access(to)

    def drain(self) -> None:
        """Accept no more requests, answer those under way, and let `run_proxy` return."""
        self._end.set()


async def run_proxy(
    config: ProxyConfig,
    *,
    reload: Callable[[RunningProxy], Reloaded] | None = None,
    task_status: trio.TaskStatus[RunningProxy] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `RunningProxy.drain` or cancellation; first wait until no other proxy uses the state directory.

    Args:
        reload: reads the configuration again and applies it; called at ``POST /reload`` on the health port.

    Raises:
        ConfigurationError: the proxy cannot listen on an address, or cannot use the state directory; or passwords of
            clients would travel in clear text.
        BrokerUnreachable: upstream did not answer within `connect_timeout`; the message lists the attempts.
        AuthenticationFailed: authentication with upstream failed; the message says why.
    """
    config.check_forward()
    if config.sasl is not None and config.upstream_config is not None and is_exposed(config.upstream_config):
        log.warning("password readable by every user of this machine", extra={"file": config.upstream_config})
    state: StateDirectory | None = None
    failure: OttlaError | None = None
    probes = Probes(config.health, reloads=reload is not None)
    try:
        async with trio.open_nursery() as nursery:
            try:
                in_use_until = -math.inf
                if config.state:
                    state, in_use_until = await own_state(Path(config.state), probes, nursery)
                found = await resolve(config.upstream, config.connect_timeout)
                bootstrap = tuple(parse_address(each, "upstream") for each in found)
                driver = _Driver(config, bootstrap, state, probes, in_use_until, reload)
                await driver.serve(nursery, task_status)
                failure = driver.failure
            except OttlaError as error:
                failure = error
            nursery.cancel_scope.cancel()
    finally:
        if state is not None:
            state.close()
    if failure is not None:
        raise failure


def _core(config: ProxyConfig, bootstrap: tuple[Address, ...], state: StateDirectory | None) -> ProxyCore:
    """Create a core, with the state of the journal if there is one."""
    if state is None:
        if any(rule.mode.moves for rule in config.topics):
            log.warning("no state directory: a restart fences the idempotent producers of rewritten topics")
        return ProxyCore(config, bootstrap, random.SystemRandom(), wall=time.time)
    found, segment = state.recover()
    core = ProxyCore(config, bootstrap, random.SystemRandom(), Journal(segment), time.time)
    try:
        core.restore(found, trio.current_time())
    except Exception as error:  # of any kind: with this journal every further start would fail, too
        state.set_aside(error)
        core = ProxyCore(config, bootstrap, random.SystemRandom(), Journal(segment), time.time)
        core.restore(Noted(), trio.current_time())
    else:
        if found.producers or found.topics or found.rules:
            told = {"producers": len(found.producers), "batches": found.under_way}
            log.info("state restored", extra=told)
        else:
            log.info("state is empty, starting new")
    return core


class _ListenerService:
    """Serves the port of one broker."""

    def __init__(self, driver: "_Driver", node: int, listener: int) -> None:
        self._driver, self._node, self._listener = driver, node, listener

    def connected(self, connection: AcceptedConnection) -> None:
        self._driver.arrived(connection, self._listener)

    def identified(self, connection: AcceptedConnection) -> None:
        self._driver.identified(connection)

    def begins_passage(self, connection: AcceptedConnection, size: int, start: bytes) -> bool:
        return self._driver.core.begins_passage(connection.id, size, start, trio.current_time())

    def begin(self, connection: AcceptedConnection, size: int, start: bytes, answer: PendingAnswer) -> None:
        self._driver.begin(connection, size, start, answer)

    def go_on(self, connection: AcceptedConnection, data: bytes) -> None:
        self._driver.happened(RequestContinued(connection.id, data))

    def request(self, connection: AcceptedConnection, frame: Buffer, answer: PendingAnswer) -> None:
        self._driver.request(connection, (self._node, self._listener), frame, answer)

    def handed_out(self, connection: AcceptedConnection) -> None:
        self._driver.act()

    def lost(self, connection: AcceptedConnection) -> None:
        pass

    def disconnected(self, connection: AcceptedConnection) -> None:
        self._driver.left(connection)


class _Driver:
    """Passes events to the core, and does its actions."""

    def __init__(
        self,
        config: ProxyConfig,
        bootstrap: tuple[Address, ...],
        state: StateDirectory | None,
        probes: Probes,
        in_use_until: float,
        reload: Callable[[RunningProxy], Reloaded] | None = None,
    ) -> None:
        self.config, self._state, self._reload = config, state, reload
        self._probes, self._in_use_until = probes, in_use_until
        self.core = _core(config, bootstrap, state)
        self.clients: dict[int, AcceptedConnection] = {}
        self.failure: OttlaError | None = None
        self._listener = Listener(
            ListenerLimits(max_frame=config.max_request_bytes, max_connections=fitting(config.max_connections)), self
        )
        self._ports = Ports(config, self._listener, partial(_ListenerService, self), in_use_until)
        self._pipes: dict[int, Pipe] = {}
        self._finishing: dict[Pipe, None] = {}
        """Pipes that only write their remaining bytes, the oldest first."""
        self._tickets: dict[int, dict[int, PendingAnswer]] = {}
        self._ticket_numbers = itertools.count()
        self._holds: dict[int, set[str]] = {}
        self._threads = trio.CapacityLimiter(_THREADS)
        self._started = trio.Event()
        """Set when a port was opened, or could not be."""
        self._nap = trio.CancelScope(deadline=-math.inf)
        self._freed = False
        """Memory is free again for which others wait."""
        self._report: str | None = None
        self._running: RunningProxy | None = None
        self._logged: dict[str, dict[str, Any]] = {}

    async def serve(self, nursery: trio.Nursery, task_status: trio.TaskStatus[RunningProxy]) -> None:
        """Start, serve until drained, and stop all tasks in the nursery; `failure` has an error of the start."""
        self._nursery = nursery
        try:
            self._listener.log_access(self.config.access_log)
            await released(partial(self._probes.open, nursery), self._in_use_until)
            self._probes.follow(self)
            await released(self._open_report, self._in_use_until)
            nursery.start_soon(self._watch_deadlines)
            nursery.start_soon(self._log_statistics)
            if self.config.users is not None:
                nursery.start_soon(self._watch_users)
            with trio.move_on_after(self.config.connect_timeout):
                while not self.core.ready and self.failure is None:
                    await self._started.wait()
                    self._started = trio.Event()
            if self.failure is None and not self.core.ready:
                self.failure = self.core.unreachable()
            if self.failure is None:
                nursery.start_soon(self._listener.run)
                await self._run(task_status)
        except OttlaError as error:
            self.failure = error
        finally:
            nursery.cancel_scope.cancel()

    async def _run(self, task_status: trio.TaskStatus[RunningProxy]) -> None:
        advertised, listeners = self._ports.advertised(), self._ports.bootstraps()
        bootstrap = next(iter(listeners.values()))
        running = RunningProxy(
            bootstrap,
            advertised,
            self._ports.of_main,
            listeners,
            self._probes.address,
            self._report,
            self._listener.log_access,
            self.core,
            self.happened,
        )
        self._running = running
        extra = {"bootstrap": bootstrap, "advertised": advertised, "upstream": self.config.upstream}
        log.info("the proxy takes requests", extra=extra)
        task_status.started(running)
        try:
            await running._end.wait()
            await self._listener.drain()
            with trio.move_on_after(_DRAIN):
                while not self.core.idle:
                    await trio.sleep(0.01)
                self.core.finish(trio.current_time())
                self.act()
                while not self.core.finished:
                    await trio.sleep(0.01)
            if self.core.loses or any(pipe.queued for pipe in self._pipes.values()):
                why = f"the proxy has ended, and upstream did not take them within {_DRAIN:g} s"
                log.warning("requests of a disconnected client dropped: %s", why)
            self._rescue_journal()
        finally:
            for topic in self.core.tallies:
                self._log_tally(topic)
            log.info("the proxy has stopped", extra={"bootstrap": bootstrap})

    # -- events and actions

    def request(
        self, connection: AcceptedConnection, port: tuple[int, int], frame: Buffer, answer: PendingAnswer
    ) -> None:
        """Take a request on the port of a node and a listener."""
        client, ticket = connection.id, next(self._ticket_numbers)
        self._tickets[client][ticket] = answer
        node, listener = port
        requested = Requested(client, node, ticket, frame, connection.peer, listener, connection.session)
        self.core.handle(requested, trio.current_time())

    def begin(self, connection: AcceptedConnection, size: int, start: bytes, answer: PendingAnswer) -> None:
        client, ticket = connection.id, next(self._ticket_numbers)
        self._tickets[client][ticket] = answer
        self.core.handle(RequestBegan(client, ticket, size, start), trio.current_time())

    # -- the budget

    def count(self, holder: Hashable, change: int) -> None:
        """Count memory of a connection or a pipe; freed memory goes to the connections that wait for it."""
        if (client := _client_of(holder)) is not None:
            self.core.buffered.count(client, change)
            if change < 0 and (self.core.paused_clients or self._listener.frames.is_wanted):
                self._freed, self._nap.deadline = True, -math.inf

    def allows(self, holder: Hashable, size: int) -> bool:
        """Whether a connection or a pipe may take more memory for a large frame."""
        client = _client_of(holder)
        return client is None or self.core.buffered.allows(client, size)

    # -- clients

    def arrived(self, connection: AcceptedConnection, listener: int) -> None:
        settings = self.config.all_listeners[listener]
        if settings.mode.at_upstream and settings.sasl is not None:
            self._listener.newcomers.arrived(connection, settings.sasl.max_receive)
        self.clients[connection.id] = connection
        self.core.buffered.assign(connection.id, owner_of(connection.session))
        self._tickets[connection.id] = {}

    def identified(self, connection: AcceptedConnection) -> None:
        """Take the user of a client."""
        self.core.buffered.assign(connection.id, owner_of(connection.session))

    def left(self, connection: AcceptedConnection) -> None:
        self._listener.newcomers.left(connection)
        client = connection.id
        del self.clients[client], self._tickets[client]
        self._holds.pop(client, None)
        self.happened(Left(client))

    def happened(self, event: Event) -> None:
        """Pass an event to the core and do its actions."""
        self.core.handle(event, trio.current_time())
        if (piece := self.core.take_piece()) is None:
            self.act()
        else:
            self._attempt(piece)

    def act(self) -> None:
        """Do the core's actions."""
        self._freed = False
        if self._listener.frames.is_wanted:
            self._listener.frames.give_out()
        for action in self.core.poll(trio.current_time()):
            self._attempt(action)
        if self._running is None and self.failure is None and (refused := self.core.refused):
            self.failure = refused
            self._started.set()
        deadline = self.core.deadline
        self._nap.deadline = -math.inf if self._freed else math.inf if deadline is None else deadline

    def _attempt(self, action: Action) -> None:
        try:
            self._do(action)
        except Exception:
            log.exception("a bug in the proxy, please report it: its connection is closed")
            self._give_up(action)

    def _do(self, action: Action) -> None:
        match action:
            case AnswerClient(client, ticket, parts, errors, left):
                tickets = self._tickets[client]
                (tickets[ticket] if left else tickets.pop(ticket)).send(*parts, errors=errors, left=left)
            case SendUpstream(link, parts):
                self._pipes[link].send(*parts)
            case ConnectUpstream(link, address, client):
                self._pipes[link] = Pipe(self, link, address, self.clients.get(client or 0))
                self._nursery.start_soon(self._pipes[link].run)
            case FinishUpstream(link):
                self._finish(self._pipes[link])
            case DisconnectUpstream(link):
                self._finishing.pop(pipe := self._pipes.pop(link), None)
                pipe.close()
            case CloseClient(client, why, told):
                if connection := self.clients.get(client):
                    (connection.close if told else connection.turn_out)(why)
            case ClientRefused(client, why, kind):
                if connection := self.clients.get(client):
                    self._listener.newcomers.failed(connection, why, kind)
            case WelcomeClient(client):
                if connection := self.clients.get(client):
                    self._listener.newcomers.authenticated(connection)
            case HoldClients(clients, held):
                for client in clients:
                    self.hold(client, "budget", held)
            case Work(number, call):
                self._nursery.start_soon(self._work, number, call)
            case RunInThread(call):
                self._nursery.start_soon(self._fetch, call)
            case Store():
                assert self._state is not None, "a machine without a journal stores nothing"
                self._store(self._state, action)
            case AbandonJournal():
                assert self._state is not None, "a machine without a journal abandons nothing"
                self._state.abandon()
            case Listen(node):
                self._ports.expect(node)
                self._nursery.start_soon(self._open_ports, node)

    def _store(self, state: StateDirectory, action: Store) -> None:
        try:
            state.store(action)
        except OSError as error:
            self.core.handle(JournalLost(f"{state.path}: {reason(error)}"), trio.current_time())

    def _rescue_journal(self) -> None:
        """Write an abandoned journal again, because the proxy stops in order."""
        self.core.rescue_journal(trio.current_time())
        while self.core.journal_is_due(trio.current_time()):
            self.act()

    def _finish(self, pipe: "Pipe") -> None:
        """Write a pipe's remaining bytes; if these pipes exceed `max_buffered`, the oldest gives up."""
        self._finishing[pipe] = None
        pipe.finish()
        while sum(each.queued for each in self._finishing) > self.config.max_buffered:
            oldest = next(each for each in self._finishing if each.queued)
            del self._finishing[oldest]
            oldest.close("upstream takes requests slower than clients send them")

    async def _work(self, number: int, call: Callable[[], Any]) -> None:
        try:
            result = await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)
        except RuntimeError:  # the operating system allows no more threads
            result = call()
        self.happened(Worked(number, result))

    async def _fetch(self, call: Callable[[], Any]) -> None:
        """Fetch a token, which may take long; shutdown does not wait for it."""
        fetched: TokenFetched = await trio.to_thread.run_sync(call, abandon_on_cancel=True)
        self.happened(fetched)

    def _give_up(self, action: Action) -> None:
        """End the connection of an action that failed."""
        match action:
            case AnswerClient(client) if connection := self.clients.get(client):
                connection.close("internal error")
            case SendUpstream(link) | ConnectUpstream(link) if pipe := self._pipes.get(link):
                pipe.close()

    async def _watch_deadlines(self) -> None:
        while True:
            with self._nap:
                await trio.sleep_forever()
            self._nap = trio.CancelScope()
            self.act()

    async def _watch_users(self) -> None:
        """Close the connections of users who were removed, or have another password."""
        while True:
            await trio.sleep(_LOOK_AT_USERS)
            changed = await trio.to_thread.run_sync(self._ports.users.changed, abandon_on_cancel=True)
            principals = {f"User:{each}" for each in changed}
            for connection in [each for each in self.clients.values() if each.session.principal in principals]:
                # Here, and not in the core, which does not know clients that have sent nothing after their login.
                connection.turn_out("its user was removed, or has another password")

    def hold(self, client: int, reason: str, held: bool) -> None:
        """Pass on no requests of a client while there is a reason; a request that has begun goes on."""
        if connection := self.clients.get(client):
            reasons = self._holds.setdefault(client, set())
            (reasons.add if held else reasons.discard)(reason)
            connection.hold(bool(reasons))

    @property
    def frames(self) -> Memory:
        """The memory of large frames that are collected."""
        return self._listener.frames

    def pause(self, client: int, paused: bool) -> None:
        """Read nothing more from a client, because its upstream connection is slower."""
        self.hold(client, "upstream", paused)
        if connection := self.clients.get(client):
            connection.pause(paused)

    # -- ports

    async def _open_ports(self, node: int) -> None:
        ports: tuple[int, ...] | None = None
        try:
            ports = await self._ports.open(node)
        except ConfigurationError as error:
            if self._running is None:  # the start fails, and prints the error
                self.failure = ConfigurationError(f"cannot open the port for node {node}: {error}")
            else:
                log.error("no port for a broker: %s", error, extra={"node": node})
        self.happened(Listening(node, ports))
        self._started.set()

    # -- questions of the health address

    async def _open_report(self) -> None:
        if self.config.report is None:
            return
        host, port = parse_address(self.config.report, "report", any_port=True)
        began = trio.current_time()
        refused: list[ConfigurationError] = []

        def reported() -> Iterator[str]:
            return report(self.core, trio.current_time() - began)

        async def answer(*, task_status: trio.TaskStatus[int]) -> None:
            try:
                await serve_report(host, port, reported, opened=task_status.started)
            except ConfigurationError as error:
                refused.append(error)
                task_status.started(0)

        self._report = format_address(host, await self._nursery.start(answer))
        if refused:
            raise refused[0]

    def is_ready(self) -> bool:
        return self._running is not None and self._running.ready

    def notes(self) -> list[str]:
        why, silent = self.core.journal_outage, self.core.control.why_silent
        lines = [] if why is None else [f"journal not written, a restart now fences idempotent producers: {why}"]
        return lines if silent is None else [*lines, f"upstream does not answer: {silent}"]

    def samples(self) -> Samples:
        return collect(self.core, self._listener)

    def reload(self) -> Reloaded:
        if self._running is None:
            raise ConfigurationError("the proxy is still starting: reload it later")
        assert self._reload is not None, "it is served only then"
        return self._reload(self._running)

    # -- statistics

    async def _log_statistics(self) -> None:
        while True:
            await trio.sleep(self.config.stats_interval)
            for topic in list(self.core.tallies):
                self._log_tally(topic)
                await trio.lowlevel.checkpoint()  # there may be thousands of topics

    def _log_tally(self, topic: str) -> None:
        counts = self.core.tallies[topic].facts()
        if self._logged.get(topic) != counts:
            self._logged[topic] = counts
            told = {"topic": topic, **counts}
            if self.config.observe_sample > 1 and self.core.rules.mode(topic) is Mode.OBSERVE:
                told["estimated_from_one_batch_in"] = self.config.observe_sample
            log.info("records so far", extra=told)


def _client_of(holder: Hashable) -> int | None:
    """The client whose memory it is; ``None`` for the proxy's own connections, whose records are counted elsewhere."""
    if isinstance(holder, AcceptedConnection):
        return holder.id
    assert isinstance(holder, Pipe), "only connections and pipes hold memory"
    return None if holder.client is None else holder.client.id
