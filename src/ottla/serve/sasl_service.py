"""The service in front of a service: passes on the requests of authenticated clients only.

Theory of operation: a `SaslSession` decides what happens to each request. While a thread checks a password or a token,
and while the response to a failure is delayed, the connection is held, so its requests stay in order.

Rules:
- Before a client has authenticated, its requests have at most `SaslSettings.max_receive` bytes, and `Newcomers` limits
  its time.
- Passwords are checked one at a time, because a hash takes all of a processor for milliseconds. Tokens are not: a check
  may wait until keys are loaded. Hosts take turns (`HostTurns`), so that none can keep the others from logging in.
- Observers (the access log, spans) never see tokens.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from ottla.codec.wire import Buffer
from ottla.sasl_server.exchanges import Check
from ottla.sasl_server.server import SaslServer
from ottla.sasl_server.session import PassOn, SaslAnswer, SaslEnd, SaslSession, Step
from ottla.serve.connection import AcceptedConnection, Service
from ottla.serve.host_turns import HostTurns
from ottla.serve.newcomers import Newcomers, host_of
from ottla.serve.pending_answer import PendingAnswer

log = logging.getLogger("ottla.serve")

_TOKENS_AT_ONCE = 4


class SaslService(Service):
    """Passes on the requests of clients that have authenticated."""

    def __init__(self, service: Service, server: SaslServer, newcomers: Newcomers) -> None:
        self._service, self._server, self._newcomers = service, server, newcomers
        self._sessions: dict[AcceptedConnection, SaslSession] = {}
        self._one, self._some = HostTurns(1), HostTurns(_TOKENS_AT_ONCE)
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Check passwords, and delay failures, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    # -- the methods of a service

    def connected(self, connection: AcceptedConnection) -> None:
        self._sessions[connection] = self._server.session()
        self._newcomers.arrived(connection, self._server.settings.max_receive)
        self._service.connected(connection)

    def identified(self, connection: AcceptedConnection) -> None:
        self._service.identified(connection)

    def request(self, connection: AcceptedConnection, frame: Buffer, answer: PendingAnswer) -> None:
        session = self._sessions[connection]
        if session.expects_token:
            answer.conceal()
        step = session.take(frame, trio.current_time(), time.time())
        if isinstance(step, PassOn):
            self._service.request(connection, frame, answer)
        else:
            self._act(connection, session, answer, step)

    def begins_passage(self, connection: AcceptedConnection, size: int, start: bytes) -> bool:
        if not self._sessions[connection].is_open(trio.current_time()):
            return False
        return self._service.begins_passage(connection, size, start)

    def begin(self, connection: AcceptedConnection, size: int, start: bytes, answer: PendingAnswer) -> None:
        self._service.begin(connection, size, start, answer)

    def go_on(self, connection: AcceptedConnection, data: bytes) -> None:
        self._service.go_on(connection, data)

    def handed_out(self, connection: AcceptedConnection) -> None:
        self._service.handed_out(connection)

    def lost(self, connection: AcceptedConnection) -> None:
        if self._sessions[connection].login is None:
            connection.close("closed by the peer")  # else the next logins would wait until its password is checked
        self._service.lost(connection)

    def disconnected(self, connection: AcceptedConnection) -> None:
        self._newcomers.left(connection)
        self._sessions.pop(connection, None)
        self._service.disconnected(connection)

    # -- steps

    def _act(self, connection: AcceptedConnection, session: SaslSession, answer: PendingAnswer, step: Step) -> None:
        match step:
            case SaslAnswer(frame=frame, errors=errors):
                if session.login is not None:
                    connection.session.authenticated(session.principal, session.ends_at)
                    self._newcomers.authenticated(connection)
                answer.send(frame, errors=errors)
            case Check():
                connection.hold(True)
                self._start(partial(self._check, connection, session, answer, step), connection)
            case SaslEnd():
                connection.hold(True)
                # Mechanisms and names are the client's choice: only a user's own name makes a kind of failure.
                user = step.who if step.who is not None and self._server.users.knows(step.who) else ""
                code = step.answer.errors if step.answer else ()
                self._newcomers.failed(connection, step.why, f"authentication failed {code} {user}")
                self._start(partial(self._close, connection, answer, step), connection)

    async def _check(
        self, connection: AcceptedConnection, session: SaslSession, answer: PendingAnswer, check: Check
    ) -> None:
        async with (self._some if check.may_wait else self._one).turn(host_of(connection)):
            if connection not in self._sessions:  # its client has left: the next login begins at once
                return
            result = await trio.to_thread.run_sync(check.work, abandon_on_cancel=True)
        if connection in self._sessions:
            connection.hold(False)
            step = session.checked(result, trio.current_time(), time.time())
            self._act(connection, session, answer, step)

    async def _close(self, connection: AcceptedConnection, answer: PendingAnswer, close: SaslEnd) -> None:
        await trio.sleep(self._server.settings.failure_delay)
        if close.answer is not None and close.answer.frame:
            answer.send(close.answer.frame, errors=close.answer.errors)
        connection.close(close.why)

    def _start(self, work: Callable[[], Awaitable[None]], connection: AcceptedConnection) -> None:
        if self._nursery is None:  # the listener closes
            connection.close("the listener closes")
        else:
            self._nursery.start_soon(self._contained, work, connection)

    async def _contained(self, work: Callable[[], Awaitable[None]], connection: AcceptedConnection) -> None:
        """Run a step; a bug in it closes its connection only."""
        try:
            await work()
        except Exception as error:
            log.error("a bug, please report it: authentication failed: %s", type(error).__name__)
            connection.close("internal error")
