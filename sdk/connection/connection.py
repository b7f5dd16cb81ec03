"""One connection to one broker, as a table of states.

    DOWN ── DIALED ──► CONNECTING ── CONNECTED ──► SECURING ── SECURED ──► HANDSHAKE ── AGREED ──► READY
      ▲                    │                          │                        │                     │
      ├──────────────────────────────── ENDED, or IDLE for long ───────────────────────────────────┤
      └──────────────────────────────────── ENDED ── FINISHING ◄── FINISHED ───────────────────────┘

    READY ── EXPIRING ──► REAUTHENTICATING ── AGREED ──► READY

Rules:
- The state changes by `TRANSITIONS`, in `Connection._enter` and nowhere else. An input without an entry for the current
  state is ignored.
- A connection is opened when there is a request for it, and closed when there has been none for long.
- TLS comes first, if it is configured; all further bytes (`ottla.sdk.connection.wire`) are then encrypted. If one side
  does not trust the other, waiting requests fail for good: another attempt would end the same way.
- The stages of the handshake (`ottla.sdk.connection.handshake`) follow; each later request goes out in the highest
  version that both sides know.
- A session with a limited lifetime (KIP-368) is renewed before its end, on the same connection, as soon as there is a
  request to send: after the requests in flight, and before the waiting ones. The broker serves no other request
  meanwhile, so none is sent. If renewal needs a token and there is none, requests go on until the session ends, and
  then wait for the token.
- Each request has a deadline. If a request that the driver has misses its deadline, the connection is closed, even if
  TCP reports it alive; if a waiting request misses it, only that request fails. While the response to the oldest
  request is arriving, that request gets more time; a call with its own deadline still ends in time.
- A request that is cancelled before the driver has it is never sent; after that its response is ignored.
- A response that does not parse fails only its own request: the length of the frame says where the next one begins.
- A connection whose requests have no responses (acks=0) is finished rather than closed: closing it at once would lose
  the bytes that the broker has not read yet.
- No request is retried here: an `Exchange` ends exactly once, and the part that created it decides whether to retry.
- The cost of `poll` depends only on due timers, not on the number of waiting requests.

Source: NetworkClient.java, ClusterConnectionStates.java, SaslClientAuthenticator.java; KIP-219 (the broker answers at
once that a client is over its quota, and the client pauses).
"""

import functools
import math
from collections.abc import Iterator
from enum import Enum

from ottla.addresses import format_address
from ottla.codec.wire import Buffer
from ottla.errors import (
    AuthenticationFailed,
    ConnectionLost,
    DecodeError,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
)
from ottla.sdk.connection.exchange import NO_ANSWER, WAIT_FOR_MEMBERS, Exchange, ignored
from ottla.sdk.connection.handshake import HINT_AFTER, HandshakeRequest
from ottla.sdk.connection.peer import Peer
from ottla.sdk.connection.pipeline import Pipeline
from ottla.sdk.connection.session import Session
from ottla.sdk.events import Action, Close, Connect, Finish, Key, Node, Send, logged
from ottla.sdk.logs import logger
from ottla.sdk.timers import Timer, Timers

log = logger("ottla.sdk.connection")

EXPLAIN_AFTER = 1.0
"""Seconds after which an unanswered request counts as missing its response, and `explain` mentions it."""
BLOCKED = 1.0
"""Seconds by which a deadline is noticed late that count as a blocked event loop, or a paused process."""
LEAST_RATE = 2**10
"""Bytes per second of a response that count as progress."""
MOST_EXTENSIONS = 20
"""How often a request may get another `request_timeout` while its response arrives."""
SLOW_SECONDS = 1.0
"""A response that took longer may be logged as slow, depending on the request's timeout."""
SLOW_LOG_INTERVAL = 10.0
"""Seconds between two log lines about slow responses of one connection, and between two about damaged ones."""


class ConnectionState(Enum):
    """The states of a connection."""

    DOWN = "there is none"
    CONNECTING = "the driver was asked for one"
    SECURING = "the TLS handshake is under way, if TLS is configured"
    HANDSHAKE = "the stages of the handshake follow one another"
    READY = "requests are sent"
    REAUTHENTICATING = "responses in flight arrive, then this client authenticates again"
    FINISHING = "nothing more is sent, and the broker closes the connection once it has read everything"


class ConnectionInput(Enum):
    """The events that change the state of a connection."""

    DIALED = "there is a request, and the driver was asked to connect"
    CONNECTED = "the driver has connected"
    SECURED = "the TLS handshake is done, or TLS is not configured"
    AGREED = "the last stage of the handshake is done"
    EXPIRING = "the session ends soon"
    IDLE = "no request has used it for long"
    FINISHED = "the last request is written"
    ENDED = "the connection was lost, given up or closed"


TRANSITIONS: dict[tuple[ConnectionState, ConnectionInput], ConnectionState] = {
    (ConnectionState.DOWN, ConnectionInput.DIALED): ConnectionState.CONNECTING,
    (ConnectionState.CONNECTING, ConnectionInput.CONNECTED): ConnectionState.SECURING,
    (ConnectionState.CONNECTING, ConnectionInput.ENDED): ConnectionState.DOWN,
    (ConnectionState.SECURING, ConnectionInput.SECURED): ConnectionState.HANDSHAKE,
    (ConnectionState.SECURING, ConnectionInput.ENDED): ConnectionState.DOWN,
    (ConnectionState.HANDSHAKE, ConnectionInput.AGREED): ConnectionState.READY,
    (ConnectionState.HANDSHAKE, ConnectionInput.ENDED): ConnectionState.DOWN,
    (ConnectionState.READY, ConnectionInput.EXPIRING): ConnectionState.REAUTHENTICATING,
    (ConnectionState.REAUTHENTICATING, ConnectionInput.AGREED): ConnectionState.READY,
    (ConnectionState.REAUTHENTICATING, ConnectionInput.ENDED): ConnectionState.DOWN,
    (ConnectionState.REAUTHENTICATING, ConnectionInput.FINISHED): ConnectionState.FINISHING,
    (ConnectionState.READY, ConnectionInput.IDLE): ConnectionState.DOWN,
    (ConnectionState.READY, ConnectionInput.ENDED): ConnectionState.DOWN,
    (ConnectionState.READY, ConnectionInput.FINISHED): ConnectionState.FINISHING,
    (ConnectionState.FINISHING, ConnectionInput.ENDED): ConnectionState.DOWN,
}

LIVE = (ConnectionState.READY, ConnectionState.REAUTHENTICATING)
"""States after the first complete handshake."""


class Connection:
    """The client's side of a connection; ``key`` identifies it in actions and events."""

    def __init__(self, key: Key, peer: Peer, client_id: str) -> None:
        self.key, self.peer = key, peer
        self.node: Node = peer.node
        """The node at the time of the last attempt to connect."""
        self.where = _where(peer.node)
        """For messages: the address of that node, and its id if known."""
        self.state = ConnectionState.DOWN
        self.requests = Pipeline(key, peer.traffic, client_id)
        self._timers = Timers()
        self._actions: list[Action] = []
        self._session = Session(peer.credentials, peer.renewal)
        self._setup: Timer | None = None
        """The timer that ends an attempt that takes too long."""
        self._since = math.nan
        """When the current state began."""
        self._active_at = -math.inf
        self.heard_at = -math.inf
        """When the last bytes arrived."""
        self.muted_until = -math.inf
        """Until when the broker expects this client, which is over its quota, to send nothing."""
        self._holds = False
        """The session has ended, and there is no token for another: requests wait for one."""
        self._answered = False
        """A request after the handshake was answered; used for messages only."""
        self._slow_logged = self._damage_logged = -math.inf

    @property
    def load(self) -> int:
        """Requests that have not ended, without the handshake's."""
        if self.state is ConnectionState.REAUTHENTICATING:
            return self.requests.load - 1
        return self.requests.load if self.state is ConnectionState.READY else len(self.requests.waiting)

    def unanswered_for(self, now: float) -> float:
        """Seconds since the oldest unanswered request was sent, less the time that the broker may hold it back; or
        since the last bytes of the response, if it is arriving.
        """
        in_flight = self.requests.in_flight
        if not in_flight or in_flight[0].name in WAIT_FOR_MEMBERS:
            return 0.0
        due = in_flight[0].sent_at + in_flight[0].wait
        return now - (max(due, self.heard_at) if self._session.wire.arrived else due)

    def trouble(self, now: float) -> tuple[float, str] | None:
        """Since when requests cannot be sent, or are not answered, and why."""
        if self.state is ConnectionState.READY:
            since = self.peer.silent_since(now - self.unanswered_for(now))
            if now - since <= EXPLAIN_AFTER:
                return None
            return since, f"{self.requests.in_flight[0].name} is not answered for {now - since:.1f} s"
        waiting = next((each.since for each in self.requests.waiting if not each.background), None)
        return None if waiting is None else (waiting, self._obstacle(now))

    @property
    def needed_for(self) -> int:
        """Requests that have not ended and that need this particular node."""
        return sum(not each.background for each in (*self.requests.waiting, *self.requests.in_flight))

    @property
    def usual_cause(self) -> str:
        """The usual cause if the broker does not answer now; empty if there is none."""
        return self._session.usual_cause

    def submit(self, exchange: Exchange, now: float) -> None:
        timer = self._timers.add(
            exchange.deadline, functools.partial(self._late, exchange, max(exchange.deadline, now))
        )
        self.requests.add(exchange, timer, now)

    def open(self, now: float) -> None:
        """Connect before there is a request, unless an attempt has just failed."""
        if self.state is ConnectionState.DOWN and self.peer.retry_at <= now and self.peer.credentials.usable(now):
            self._dial(now)

    def poll(self, now: float) -> list[Action]:
        """Run the timers that are due, and return the actions for the driver."""
        while call := self._timers.due(now):
            call(now)
        if self.state is ConnectionState.DOWN:
            if self.requests.waiting and self.peer.retry_at <= now:
                self._begin(now)
        elif self.state is ConnectionState.READY:
            if self._may_send:
                if self.muted_until > now:
                    pass
                elif self._session.renewable(now):
                    self._renew(now)
                elif self._session.over_at <= now:  # the broker would answer a request by closing the connection
                    self._hold(now)
                else:
                    self._send_next(now)
            elif not self.load and now >= self._idle_at:
                log.debug("connection closed, idle", extra=self._extra())
                self._enter(ConnectionInput.IDLE, now)
                self._actions.append(Close(self.key))
        actions, self._actions = self._actions, []
        return actions

    @property
    def deadline(self) -> float | None:
        """When `poll` has work if no event comes before; ``None`` for never."""
        due = self._timers.next
        if self.state is ConnectionState.DOWN and self.requests.waiting:
            own = self.peer.connects_at
        elif self.state is ConnectionState.READY and self._may_send and not self._holds:
            own = self.muted_until
        elif self.state is ConnectionState.READY and not self.load:
            own = self._idle_at
        else:
            return due
        return own if due is None else min(due, own)

    @property
    def _may_send(self) -> bool:
        return bool(self.requests.waiting) and not self.requests.writing

    @property
    def _idle_at(self) -> float:
        """When the connection is closed if it stays unused."""
        return self._active_at + self.peer.options.connections_max_idle

    # -- reports of the driver ---------------------------------------------------------------------------------------

    def connected(self, now: float) -> list[Action]:
        """The driver's `Connect` succeeded."""
        if self._enter(ConnectionInput.CONNECTED, now):
            try:
                self._session.connected(self.peer.secured())
                self._secure(now)
            except (AuthenticationFailed, ConnectionLost) as error:
                self._give_up(now, type(error)(f"{self.where}: {error}"))
        return self.poll(now)

    def written(self, now: float) -> list[Action]:
        """The driver has written the last `Send`."""
        self._active_at = now
        for exchange in self.requests.written():
            exchange.settle(None, now)
        return self.poll(now) if self.requests.waiting else []

    def received(self, data: bytes, now: float) -> list[Action]:
        """Bytes arrived."""
        return self._arrived(len(data), self._session.wire.feed(data), now)

    @property
    def room(self) -> memoryview | None:
        """The buffer for the rest of a large response, if one is under way."""
        return self._session.wire.room

    def filled(self, count: int, now: float) -> list[Action]:
        """Bytes arrived, and are in `room`."""
        return self._arrived(count, self._session.wire.filled(count), now)

    def _arrived(self, count: int, whole: Iterator[Buffer], now: float) -> list[Action]:
        self._active_at = self.heard_at = now
        traffic = self.peer.traffic
        traffic.received.add(count, now)
        traffic.operations.add(1, now)
        wire = self._session.wire
        try:
            for frame in whole:
                if self.state is ConnectionState.READY:
                    self._answer(frame, now)
                elif self.state is ConnectionState.HANDSHAKE:
                    self._agree(frame, now)
                elif self.state is ConnectionState.REAUTHENTICATING:
                    if len(self.requests.in_flight) > 1:  # requests from before the renewal
                        self._answer(frame, now)
                    else:
                        self._agree(frame, now)
                else:
                    break
            self._secure(now)
            if wire.ended and self.state is not ConnectionState.DOWN:
                self._actions.append(Close(self.key, wire.finish()))
                self.lost("closed by the broker", now)
        except RemoteProtocolError as error:  # bytes that do not parse here may parse on another connection
            self._give_up(now, RemoteProtocolError(f"{self.where}: {error}"))
        except (AuthenticationFailed, ConnectionLost) as error:
            self._give_up(now, type(error)(f"{self.where}: {error}"), last=self._session.wire.finish())
        return self.poll(now)

    def lost(self, why: str, now: float) -> None:
        """The driver could not connect, or the connection ended."""
        if self.state is ConnectionState.FINISHING:
            self._end_all(ConnectionLost(f"{self.where}: {why}"), now)
        elif self.state is not ConnectionState.DOWN:
            accepted = self.state is not ConnectionState.CONNECTING
            self._fail(now, ConnectionLost(f"{self.where}: {why}{self._hint()}", accepted=accepted))

    # -- what its owner decides --------------------------------------------------------------------------------------

    def give_up(self, why: str, now: float) -> list[Action]:
        """Close the connection: the node does not work as it should."""
        if self.state is not ConnectionState.DOWN:
            self._give_up(now, ConnectionLost(f"{self.where}: {why}"))
        return self.poll(now)

    def retire(self, now: float, why: str = "closed here") -> list[Action]:
        """Close a connection that is no longer used: its requests fail, and the node does not count as failed."""
        close: list[Action] = [Close(self.key)] if self.state is not ConnectionState.DOWN else []
        self._end_all(ConnectionLost(f"{self.where}: {why}"), now)
        return close

    def finish(self, now: float) -> list[Action]:
        """Send nothing more, and let the broker close it; closes it at once unless it is ready."""
        if not self._enter(ConnectionInput.FINISHED, now):
            return self.retire(now)
        last = self._session.wire.finish()
        return [*([Send(self.key, last)] if last else []), Finish(self.key)]

    def moved(self, now: float) -> list[Action]:
        """React to the node's new address: give up connecting to the old one; waiting requests go to the new one."""
        if self.state in (ConnectionState.CONNECTING, ConnectionState.SECURING, ConnectionState.HANDSHAKE):
            self._enter(ConnectionInput.ENDED, now)
            self._actions.append(Close(self.key))
        return self.poll(now)

    # -- the connection's life ---------------------------------------------------------------------------------------

    def _enter(self, what: ConnectionInput, now: float) -> bool:
        """Go to the next state of the table; returns whether it has an entry for ``what``."""
        before, state = self.state, TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        self.state, self._since, self._holds = state, now, False
        if state is ConnectionState.DOWN:
            self.requests.drop_sent()
            # Frees the memory of the last large responses, too.
            self._session = Session(self.peer.credentials, self.peer.renewal)
            self.muted_until = -math.inf
        else:
            self._active_at = now
        traffic = self.peer.traffic
        if state in LIVE and before not in LIVE:
            self._answered = False
            traffic.connections.add(1)
            traffic.created.add(1, now)
        elif before in LIVE and state not in LIVE:
            traffic.connections.add(-1)
            traffic.closed.add(1, now)
        if self._setup and state in (ConnectionState.READY, ConnectionState.DOWN):
            self._setup.cancel()
        return True

    def _begin(self, now: float) -> None:
        """Connect, if this client has credentials."""
        credentials = self.peer.credentials
        if credentials.usable(now):
            self._dial(now)
        elif denied := credentials.denied:
            self._fail(now, type(denied)(f"{self.where}: {denied}"))

    def _dial(self, now: float) -> None:
        self.node = self.peer.node
        self.where = _where(self.node)
        self._enter(ConnectionInput.DIALED, now)
        self._setup = self._timers.add(now + self.peer.setup_timeout, self._not_set_up)
        log.debug("connecting", extra=self._extra())
        self._actions.append(Connect(self.key, self.node.host, self.node.port, self.peer.failures))

    def _secure(self, now: float) -> None:
        """Continue TLS, if it is under way or has bytes to send; then begin the handshake."""
        if answers := self._session.wire.take_answers():
            self._actions.append(Send(self.key, answers))
        if self.state is ConnectionState.SECURING and (step := self._session.secured(now)):
            self._enter(ConnectionInput.SECURED, now)
            self._ask(step, now)

    def _ask(self, step: HandshakeRequest, now: float) -> None:
        """Send a request of the handshake; the timeout for the whole setup bounds it."""
        exchange = Exchange(step.request, ignored, math.inf, version=step.version, background=True)
        self._send(self.requests.send_first(exchange, now))

    def _agree(self, frame: Buffer, now: float) -> None:
        """Handle a response of the handshake."""
        self.requests.answered(frame, now)
        try:
            step = self._session.answered(frame, now)
        except (RemoteProtocolError, AuthenticationFailed):
            raise
        except OttlaError as error:  # no violation of the protocol: the two sides have no common version or mechanism
            self._give_up(now, error)
            return
        if step:
            self._ask(step, now)
            return
        renewed = self.state is ConnectionState.REAUTHENTICATING
        self._enter(ConnectionInput.AGREED, now)
        if not renewed:
            self.peer.works(self._session.versions, self._session.features)
        log.debug("session renewed" if renewed else "connected", extra=self._extra())

    def _hold(self, now: float) -> None:
        """Send nothing until there is a token; the credentials then wake the connections."""
        self._holds = True
        if denied := self.peer.credentials.denied:
            self._give_up(now, type(denied)(f"{self.where}: {denied}"))

    def _renew(self, now: float) -> None:
        """Authenticate again, after the requests in flight."""
        self._enter(ConnectionInput.EXPIRING, now)
        self._setup = self._timers.add(now + self.peer.setup_timeout, self._not_set_up)
        self._ask(self._session.renew(now), now)

    def _not_set_up(self, now: float) -> None:
        if self.state is ConnectionState.REAUTHENTICATING:
            # Requests sent before the renewal may take the broker long, and have deadlines of their own.
            since = now if len(self.requests.in_flight) > 1 else self.heard_at
            if since + self.peer.setup_timeout > now:
                self._setup = self._timers.add(since + self.peer.setup_timeout, self._not_set_up)
                return
        waited = now - self._since
        what = {
            ConnectionState.SECURING: "the TLS handshake was not complete",
            ConnectionState.HANDSHAKE: f"no answer to {self._session.stage}",
            ConnectionState.REAUTHENTICATING: "the session was not renewed",
        }.get(self.state, "no connection")
        self._give_up(now, ConnectionLost(f"{self.where}: {what} within {waited:.3g} s"), late=True)

    def _late(self, exchange: Exchange, due: float, now: float) -> None:
        blocked = now - due  # at least: the deadline was not looked at since then
        why_late = f"; this process was blocked for at least {blocked:.3g} s of that" if blocked >= BLOCKED else ""
        if self.requests.remove(exchange):
            passed = f"within {now - exchange.since:.3g} s{why_late}"
            why = self._obstacle(now)
            exchange.settle(TimeoutExpired(f"{exchange.name} could not be sent to {self.where} {passed}: {why}"), now)
        elif not self._extended(exchange, now):
            passed = f"within {now - exchange.sent_at:.3g} s{why_late}"
            did_not = "take" if exchange.one_way else "answer"
            what = f"{self.where} did not {did_not} {exchange.name} v{exchange.version} {passed}"
            self._give_up(now, TimeoutExpired(f"{what}; the connection is closed"))

    def _extended(self, exchange: Exchange, now: float) -> bool:
        """Give a late request more time if its response is arriving steadily; return whether it is.

        On a slow link the next attempt would be as late, because it asks for the same bytes. What only trickles is cut
        off at the first look, and everything after `MOST_EXTENSIONS`, so a broken peer cannot hold a request for ever.
        """
        in_flight, arrived = self.requests.in_flight, self._session.wire.arrived
        timeout = self.peer.options.request_timeout
        is_oldest = bool(in_flight) and in_flight[0] is exchange  # the response under way is the oldest request's
        steady = arrived - exchange.arrived >= LEAST_RATE * timeout
        if self.state not in LIVE or not is_oldest or not steady or exchange.extensions >= MOST_EXTENSIONS:
            return False
        due = now + timeout
        exchange.extend(self._timers.add(due, functools.partial(self._late, exchange, due)), arrived)
        return True

    def _give_up(self, now: float, error: OttlaError, *, late: bool = False, last: tuple[Buffer, ...] = ()) -> None:
        """Close the connection.

        Args:
            last: bytes that tell the broker why: the TLS alert, which appears in the broker's log.
        """
        self._actions.append(Close(self.key, last))
        self._fail(now, error, late=late)

    def _fail(self, now: float, error: OttlaError, *, late: bool = False) -> None:
        self.peer.failed(str(error), now, late=late)
        refused = isinstance(error, AuthenticationFailed) and self.peer.refused(now)
        say = log.warning if refused else log.info
        say("connection failed", extra=self._extra(why=str(error), failures=self.peer.failures))
        self._end_all(error, now)

    def _end_all(self, error: OttlaError, now: float) -> None:
        sent, waiting = self.requests.drop_sent(), self.requests.drop_waiting()
        self._enter(ConnectionInput.ENDED, now)
        # The broker may have carried out the requests that it has, also if it refuses this client from now on.
        no_answer = error if isinstance(error, NO_ANSWER) else ConnectionLost(str(error))
        for exchange in sent:
            exchange.settle(no_answer, now)
        for exchange in waiting:
            exchange.settle(error, now)

    # -- requests and answers ----------------------------------------------------------------------------------------

    def _send_next(self, now: float) -> None:
        send, refused = self.requests.next(self._version, now)
        self._active_at = now
        if send:
            self._send(send)
        for exchange, error in refused:
            exchange.settle(error, now)

    def _send(self, send: Send) -> None:
        self._actions.append(Send(self.key, self._session.wire.seal(send.parts)))

    def _version(self, exchange: Exchange) -> int:
        return self.peer.version(exchange.kind, exchange.versions, self.where)

    def _answer(self, frame: Buffer, now: float) -> None:
        exchange = self.requests.answered(frame, now)
        self._answered = True
        self._measure(exchange, now)
        try:
            response = exchange.response(frame)
        except DecodeError as error:
            what = f"{self.where}: the response to {exchange.name} v{exchange.version} does not parse: {error}"
            if now >= self._damage_logged + SLOW_LOG_INTERVAL:  # a retry would not parse either
                self._damage_logged = now
                log.error("response does not parse", extra=self._extra(request=exchange.name, why=str(error)))
            exchange.settle(RemoteProtocolError(what), now)
            return
        throttle = getattr(response, "throttle_time_ms", 0) / 1000
        if throttle > 0:
            self.peer.traffic.throttled.record(throttle, now)
            if self.peer.throttles_clients:
                self.muted_until = max(self.muted_until, now + throttle)
        exchange.settle(response, now)

    def _measure(self, exchange: Exchange, now: float) -> None:
        took = now - exchange.sent_at
        self.peer.answered(took, now)
        if took > SLOW_SECONDS and exchange.was_slow(took) and now >= self._slow_logged + SLOW_LOG_INTERVAL:
            self._slow_logged = now
            log.warning("slow response", extra=self._extra(request=exchange.name, seconds=round(took, 3)))

    # -- for people --------------------------------------------------------------------------------------------------

    def explain(self, now: float) -> Iterator[str]:
        """The connection's waits, in lines for people; none if all is as usual."""
        waiting, in_flight = self.requests.waiting, self.requests.in_flight
        if in_flight and self.state is ConnectionState.READY and now - in_flight[0].sent_at > EXPLAIN_AFTER:
            oldest = in_flight[0]
            yield (
                f"{self.where}, {self.key[1]}: {len(in_flight)} request(s) unanswered, the oldest {oldest.name} for "
                f"{now - oldest.sent_at:.1f} s, {oldest.deadline - now:.1f} s left"
            )
        if waiting:
            yield f"{self.where}, {self.key[1]}: {len(waiting)} request(s) not sent: {self._obstacle(now)}"

    def _obstacle(self, now: float) -> str:
        """Why waiting requests are not sent."""
        match self.state:
            case ConnectionState.READY if self.requests.writing:
                return "the socket has not accepted the requests before it"
            case ConnectionState.READY if self.muted_until > now:
                return (
                    f"the client is over its quota, and the broker asks it to pause for {self.muted_until - now:.1f} s"
                )
            case ConnectionState.READY if self._holds:
                return f"the session has ended, {self.peer.credentials.missing}"
            case ConnectionState.READY:
                return "it is the next to be sent"
            case ConnectionState.CONNECTING:
                doing = f"connecting for {now - self._since:.1f} s"
            case ConnectionState.SECURING:
                doing = f"connected, TLS handshake incomplete for {now - self._since:.1f} s"
            case ConnectionState.HANDSHAKE:
                doing = f"connected, but {self._session.stage} has had no answer for {now - self._since:.1f} s"
            case ConnectionState.REAUTHENTICATING:
                return f"the session has been renewing for {now - self._since:.1f} s"
            case ConnectionState.DOWN if self.peer.credentials.missing:
                doing = f"not connected, {self.peer.credentials.missing}"
            case ConnectionState.DOWN:
                doing = f"not connected, next attempt in {max(self.peer.retry_at - now, 0.0):.1f} s"
        tried = self.peer.attempts(now)
        return f"{doing}; {tried}" if tried else doing

    def _hint(self) -> str:
        """The usual cause if the connection ends at this point."""
        if self.state is ConnectionState.READY and self.requests.in_flight and not self._answered:
            return HINT_AFTER
        return self._session.hint

    def _extra(self, **more: object) -> dict[str, object]:
        address = format_address(self.node.host, self.node.port)
        return {"node": logged(self.node), "address": address, "channel": self.key[1]} | more


def _where(node: Node) -> str:
    return format_address(node.host, node.port) + (f" (node {node.id})" if node.id >= 0 else "")
