"""The proxy's state machine, for all ports, clients and upstream connections.

All ports share it, because a partition's leader may move before a client retries, and the retry then arrives on another
port: the first attempt must be known there, too.

    core.handle(event, now)              # for every event
    for action in core.poll(now): ...    # after every `handle`, or a few of them, and at `core.deadline`

Rules:
- It has no clock, no socket and no randomness of its own: the same events at the same times give the same actions. The
  time of day, which only messages of others have, comes from a function (``wall``).
- No exception leaves `handle` or `poll` (see `ottla.proxy.contained`): if a session raises, its client's connection is
  closed; if a link raises, it is ended.
"""

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.acl.audit import Audit
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.wire import Buffer
from ottla.complaints import Complaints
from ottla.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError, RemoteProtocolError
from ottla.proxy.acl_rules import AclRules
from ottla.proxy.clients.acceptance import Acceptance
from ottla.proxy.clients.access.owners import ProducerOwners
from ottla.proxy.clients.access.shares import ShareSessionOpeners
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import ClientBatch, Origin
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.client_session import ClientSession
from ottla.proxy.clients.key_report import KeyReport
from ottla.proxy.clients.observer import KeyCounts, Observer, Tallies
from ottla.proxy.clients.one_partition import WHY
from ottla.proxy.clients.opening import Opener
from ottla.proxy.clients.producers import ClientProducers
from ottla.proxy.clients.producers_at_work import ProducersAtWork
from ottla.proxy.clients.refused_memory import RefusedMemory
from ottla.proxy.clients.rejecter import Rejecter
from ottla.proxy.clients.rewrite_counts import RewriteCounts
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.transactions import ClientTransactions
from ottla.proxy.config import ProxyConfig
from ottla.proxy.contained import as_ottla_error, contained
from ottla.proxy.events import (
    AccessChanged,
    Action,
    Address,
    AnswerClient,
    Event,
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
    UpstreamConnected,
    UpstreamLost,
    UpstreamPaused,
    UpstreamReceived,
    Worked,
)
from ottla.proxy.journal.restored import restore
from ottla.proxy.rights import NamedTimers, access_of, anonymous, concerns, offerings_of
from ottla.proxy.routing import TopicRules
from ottla.proxy.threads import Threads
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.link import UpstreamLink, UpstreamLinks
from ottla.proxy.upstream.principals import Principals
from ottla.sdk.connection.credentials import Credentials
from ottla.sdk.events import TokenFetched
from ottla.sdk.options import Options
from ottla.sdk.timers import Timers

if TYPE_CHECKING:
    from random import Random  # for types only: the caller provides the randomness

    from ottla.proxy.journal.journal import Journal
    from ottla.proxy.journal.restored import Noted

log = logging.getLogger("ottla.proxy")

_HELD_LOGGED = 60.0
"""Seconds between two log lines about paused clients."""
_PAUSE_AFTER_BUG = 1.0
"""Seconds from a poll that hit a bug to the next deadline; otherwise the core would poll in a busy loop."""


class ProxyCore:
    """Turns events into actions for the whole proxy.

    Args:
        bootstrap: addresses of upstream.
        rng: randomness for pauses.
        journal: records the state that survives a restart; ``None``: no state does.
        wall: returns the time of day, in seconds since 1970; ``None``: it is unknown. It is called each time, because
            the clock of ``now`` may stand still while the machine sleeps.
    """

    def __init__(
        self,
        config: ProxyConfig,
        bootstrap: tuple[Address, ...],
        rng: "Random",
        journal: "Journal | None" = None,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self.actions: list[Action] = []
        self.config, self.wall = config, wall
        self.rules = TopicRules(config.topics)
        self.timers = Timers()
        self._credentials = Credentials(Options(sasl=config.sasl), rng, self.timers, self.actions, lambda: None)
        nobody = Credentials(Options(), rng, self.timers, self.actions, lambda: None)
        self.links = UpstreamLinks(
            self.actions, config.connect_timeout, config.tls, self._credentials, nobody, config.max_connections
        )
        self.cluster = UpstreamCluster(self.actions, [each.advertised_host for each in config.all_listeners])
        self.control = Control(self.links, self.cluster, bootstrap, config.request_timeout, self._learned)
        self.principals = Principals(self.timers, config.delivery_timeout)
        """The users as whom the proxy acts for clients (mode `forward`)."""
        self.threads = Threads(self.actions)
        producers: ClientProducers[ClientBatch] = ClientProducers()
        self.delivery = Delivery(self.links, self.cluster, self.control, self.threads, config, producers, journal)
        self.topics = RoutedTopics(self.rules, self.cluster, self.control, journal)
        self.buffered, self.tallies, opener = Buffered(config.max_buffered), Tallies(), Opener(self.threads)
        self.key_report = None if config.report is None else KeyReport(rng.randbytes(32), shows_keys=config.report_keys)
        """Which clients put keys into other partitions; ``None``: it is not wanted."""
        keys = KeyCounts(self.tallies, self.key_report, self.topics)
        self.observer = Observer(
            self.tallies, keys, self.topics, self.control, self.threads, self.buffered, config.observe_sample, rng
        )
        self.refused_memory, self.at_work = RefusedMemory(self.buffered), ProducersAtWork()
        self.admission = Admission(
            producers,
            self.topics,
            self.control,
            self.delivery,
            config,
            journal,
            self.refused_memory,
            lambda: self.links.now,
        )
        counts = RewriteCounts(self.tallies, keys, self.topics)
        self.rejecter = Rejecter(self.topics, keys, self.threads, self.buffered, counts)
        self.rewriter = Rewriter(
            self.topics, self.admission, self.delivery, opener, self.buffered, self.at_work, counts, wall
        )
        self.acceptance = Acceptance(
            self.topics, self.admission, self.rewriter, self.threads, self.buffered, self.at_work, counts
        )
        self.transactions = ClientTransactions(self.rules, self.topics, self.admission, self.rewriter, self.delivery)
        self.owners = ProducerOwners(producers)
        """Which transactional id has a producer id."""
        self.audit = Audit(lambda: self.links.now, NamedTimers(self.timers))
        """Logs and counts denials."""
        self.acls = config.acls
        self.access = access_of(config.acls, self.audit)
        """Who may do what."""
        self.share_session_openers: ShareSessionOpeners = {}
        self.offerings = offerings_of(config)
        """The APIs that the clients of each listener are offered."""
        self._journal = journal
        self._complaints = Complaints()
        self._sessions: dict[int, ClientSession] = {}
        self._opening: set[int] = set()
        self._after_opening: list[Callable[[], None]] = []
        self._held: frozenset[int] = frozenset()
        self._held_logged_at = -math.inf
        self._not_before = 0.0
        """The earliest deadline: see `_PAUSE_AFTER_BUG`."""

    def restore(self, found: "Noted", now: float) -> None:
        """Restore the state that the journal has of an earlier proxy; call it once, before anything else.

        Raises:
            BrokerError, DecodeError: the state contradicts itself; this core cannot be used.
        """
        assert self._journal is not None, "a core with restored state has a journal"
        self.links.require_cluster(found.cluster_id)
        if found.cluster_id is not None:
            self._journal.of_cluster(found.cluster_id)
        self.admission.history.follow(found.rules)
        restore(found, self.topics, self.admission, self.rewriter, self.delivery, self.principals, now)
        self._journal.watch(self.admission.producers, lambda: self.topics.pins, self.admission.history)

    @property
    def ready(self) -> bool:
        """Upstream answers, and every known broker has its port."""
        return self.control.answered and bool(self.cluster.ports) and not self._opening

    @property
    def refused(self) -> AuthenticationFailed | ConfigurationError | None:
        """Why upstream refuses the proxy, or is another cluster; ``None`` if neither."""
        return self.control.refused

    @property
    def idle(self) -> bool:
        """No records are queued or under way."""
        return self.delivery.idle and self.threads.idle and self.acceptance.line.idle and self.links.idle

    @property
    def paused_clients(self) -> int:
        """How many clients are not read, because the buffer is full."""
        return len(self._held)

    @property
    def journal_outage(self) -> str | None:
        """Why the journal cannot be written; ``None`` if it can, or there is none."""
        return None if self._journal is None else self._journal.outage

    @property
    def journal_works(self) -> bool | None:
        """Whether the journal is written; ``None``: there is none."""
        return None if self._journal is None else self._journal.works

    def rescue_journal(self, now: float) -> None:
        """Rebuild an abandoned journal at once, because the proxy stops."""
        if self._journal is not None:
            self._journal.retry(now)

    def journal_is_due(self, now: float) -> bool:
        """Whether the next poll continues to rebuild an abandoned journal."""
        due = None if self._journal is None else self._journal.deadline
        return due is not None and due <= now

    def finish(self, now: float) -> None:
        """Finish the upstream connections of disconnected clients, because the proxy stops."""
        self.links.finish(now)

    @property
    def finished(self) -> bool:
        """Upstream has read all requests of disconnected clients."""
        return self.links.finished

    @property
    def loses(self) -> bool:
        """Whether records are under way that would be lost if the proxy ended now: no journal has them."""
        return not (self.delivery.lent.idle and self.acceptance.line.idle and self.links.idle)

    def unreachable(self) -> BrokerUnreachable:
        """The error if upstream could not be reached."""
        return self.control.unreachable(self.config.connect_timeout)

    def handle(self, event: Event, now: float) -> None:
        """Handle an event."""
        self.links.tick(now)
        match event:
            case Requested():
                self._requested(event, now)
            case RequestBegan(client, ticket, size, start):
                self._sessions[client].begin(ticket, size, start, now)
            case RequestContinued(client, data):
                self._sessions[client].go_on(data, now)
            case Left(client):
                self.buffered.left(client)
                if session := self._sessions.pop(client, None):
                    with contained("a client has left"):
                        session.left(now)
            case UpstreamConnected(number):
                self._on_link(number, lambda link: link.connected(now), now)
            case UpstreamReceived(number, data):
                self._on_link(number, lambda link: link.received(data, now), now)
            case UpstreamPaused(number, paused):
                self._on_link(number, lambda link: link.pause(paused, now), now)
            case UpstreamLost(number, why):
                self._on_link(number, lambda link: link.lost(why, now), now)
            case Listening(node, ports):
                self._opening.discard(node)
                with contained("a port was opened"):
                    self.cluster.listening(node, ports)
            case RulesChanged(rules):
                with contained("the rules have changed"):
                    # First: requests that wait for topics without a rule now go on within `topics.change_rules`.
                    self.admission.change_rules(rules)
                    self.topics.change_rules(rules, now)
            case AccessChanged(acls):
                with contained("the rights have changed"):
                    self._change_access(acls)
            case Worked(number, result):
                with contained("a thread is done"):
                    self.threads.worked(number, result, now)
            case JournalLost(why):
                assert self._journal is not None, "only a journal can be lost"
                self._journal.lost(why, now)
            case TokenFetched():
                with contained("a token was fetched"):
                    self._credentials.fetched(event, now)
        self._open_waiters()

    def begins_passage(self, client: int, size: int, start: Buffer, now: float) -> bool:
        """Whether a client's large request is passed on piece by piece (`RequestBegan`), and not collected.

        Args:
            size: of the request, without its length.
            start: its first bytes, at least 4.
        """
        self.links.tick(now)
        session = self._sessions.get(client)
        return session is not None and session.begins_passage(size, start)

    def take_piece(self) -> AnswerClient | SendUpstream | None:
        """Take the action after an event that only brought a piece of a passage; ``None``: poll.

        A piece has no other effect, and a poll would take more time than moving the bytes.
        """
        if len(self.actions) == 1 and isinstance(self.actions[0], AnswerClient | SendUpstream) and self.actions[0].left:
            return self.actions.pop()  # type: ignore[return-value] # the line before has checked its type
        return None

    def poll(self, now: float) -> list[Action]:
        """Return the actions to do now."""
        self.links.tick(now)
        while call := self.timers.due(now):
            call(now)
        for part in (
            self.links.begin,
            self.links.expire,
            self.topics.expire,
            self.acceptance.pump,
            self.delivery.pump,
            self.control.pump,
        ):
            self.threads.renew_budget()
            try:
                part(now)
            except Exception:
                log.exception("a bug in the proxy, please report it: %s", part.__qualname__)
                self._not_before = now + _PAUSE_AFTER_BUG
        for line in self._complaints.counted(now):
            log.warning("%s", line)
        self._hold(now)
        self.threads.renew_budget()  # for the events until the next poll
        actions = self.actions.copy()
        self.actions.clear()
        if self._journal is not None and (stored := self._journal.take(now)):
            actions.insert(0, stored)
        self._opening.update(action.node for action in actions if isinstance(action, Listen))
        return actions

    @property
    def deadline(self) -> float | None:
        """When to poll if no event arrives."""
        parts = (
            self.timers.next,
            self.links.deadline,
            self.topics.deadline,
            self.delivery.deadline,
            self.acceptance.deadline,
            self.control.deadline,
            self._journal.deadline if self._journal is not None else None,
        )
        due = min((deadline for deadline in parts if deadline is not None), default=None)
        return None if due is None else max(due, self._not_before)

    # -- what sessions share

    def when_ports_are_open(self, then: Callable[[], None]) -> None:
        self._after_opening.append(then)

    def ask_for_nodes(self) -> None:
        self.control.request_nodes()

    def dropped(self, why: str, size: int, now: float) -> None:
        """Log that requests of a disconnected client were dropped: no client gets an error for them."""
        text = f"requests of a disconnected client dropped: {why}"
        if self._complaints.is_new(now, "", text):
            log.warning("%s", text, extra={"bytes": size})

    def refused_to_read(self, topic: str, request: str, client: Origin, now: float) -> None:
        """Log that a client may not read a topic: most responses have no room for a reason."""
        if self._complaints.is_new(now, client.host, f"topic in mode fan-out cannot be read here: {topic}, {request}"):
            told = {"topic": topic, "request": request, "why": WHY}
            log.warning("topic in mode fan-out cannot be read here", extra=told | client.facts)

    # -- inside

    def _change_access(self, acls: AclRules | None) -> None:
        """Decide by other ACLs from now on, and close the connections of those whom they concern."""
        concerned = concerns(self.acls, acls)
        self.acls, self.access = acls, access_of(acls, self.audit)
        for session in list(self._sessions.values()):
            if concerned(session.principal):
                session.close("the rights of its user have changed")

    def _requested(self, event: Requested, now: float) -> None:
        session = self._sessions.get(event.client)
        if session is None:
            info = event.info or anonymous(event.peer)
            session = ClientSession(self, event.client, event.node, event.peer, event.listener, info)
            self._sessions[event.client] = session
            self.at_work.arrived(event.client, Origin(event.client, event.peer).host)
        session.request(event.ticket, event.frame, now)

    def _on_link(self, number: int, step: Callable[[UpstreamLink], None], now: float) -> None:
        link = self.links.find(number)
        if link is None:
            return
        try:
            step(link)
        except RemoteProtocolError as error:
            if self._complaints.is_new(now, str(link), str(error)):
                log.error("upstream breaks the protocol: %s", error, extra={"peer": str(link)})
            link.end(error, now)
        except Exception as bug:
            log.exception("a bug in the proxy, please report it: an upstream connection is ended")
            link.end(as_ottla_error(bug), now)

    def _learned(self, metadata: MetadataResponse, now: float) -> None:
        if metadata.cluster_id:
            self.links.require_cluster(metadata.cluster_id)
            if self._journal is not None:
                self._journal.of_cluster(metadata.cluster_id)
        self.topics.learned(metadata, now)

    def _open_waiters(self) -> None:
        if not self._after_opening or self._opening or any(isinstance(action, Listen) for action in self.actions):
            return
        waiting, self._after_opening = self._after_opening, []
        for then in waiting:
            then()

    def _hold(self, now: float) -> None:
        """Keep the buffer within its limit: pause reading from clients with more than a fair share of it."""
        buffered, full = self.buffered, self.config.max_buffered
        if not self._held and buffered.total <= full:
            return
        if buffered.total > full:
            self.delivery.give_back_of_the_gone(now)
        shares = buffered.shares()
        if buffered.total > full:
            greedy = frozenset(
                each
                for each, size in buffered.of.items()
                if each in self._sessions and size >= shares[buffered.owner(each)]
            )
            self._set_held(greedy - self._held, True)
            self._log_held(now)
        if buffered.total <= full // 2:
            self._set_held(self._held, False)
        else:
            modest = (each for each in self._held if buffered.of[each] < shares.get(buffered.owner(each), full) // 2)
            self._set_held(frozenset(modest), False)

    def _log_held(self, now: float) -> None:
        if self._held and now >= self._held_logged_at + _HELD_LOGGED:
            self._held_logged_at = now
            facts = {"clients": len(self._held), "buffered": self.buffered.total, "max_buffered": self.buffered.most}
            log.warning("reading from clients paused, because the buffer is full", extra=facts)

    def _set_held(self, clients: frozenset[int], held: bool) -> None:
        if clients:
            self.actions.append(HoldClients(clients, held))
            self._held = self._held | clients if held else self._held - clients
