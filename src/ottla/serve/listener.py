"""Listening sockets: accepts connections, and closes them in the end."""

import errno
import itertools
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import trio

from ottla.addresses import format_address, network_of
from ottla.client_info import ClientInfo
from ottla.complaints import INTERVAL
from ottla.errors import ConfigurationError
from ottla.serve.connection import AcceptedConnection, Service
from ottla.serve.established import spare
from ottla.serve.listener_context import ListenerContext, ListenerLimits
from ottla.serve.memory import Budget, Memory
from ottla.serve.outbox import bare, hang_up
from ottla.serve.port_security import PLAINTEXT, PortSecurity
from ottla.serve.sasl_service import SaslService
from ottla.serve.tracing import Spans, configured_tracer
from ottla.serve.traffic import Refusal
from ottla.server_metrics import Sample
from ottla.tls import ServerTLS, TlsConnection

log = logging.getLogger("ottla.serve")

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Seconds of silence before the system probes a peer, and between probes; unanswered probes until it gives up."""
_BACKLOG = 512
"""Connections that the system keeps until they are accepted."""
_LOOK = 1.0
"""Seconds between two checks of all connections."""
_PAUSE = 0.1
"""Seconds before another attempt to accept, if the system is out of resources."""


Address = tuple[Any, ...]
"""Host and port, and further fields of the system's addresses."""


@dataclass
class _Port:
    """A listening socket and its service."""

    socket: trio.socket.SocketType
    service: Service
    security: PortSecurity


class Listener:
    """Listening sockets and the connections that came in through them.

    listener = Listener(ListenerLimits())
    port = await listener.open("127.0.0.1", 9092, service)
    await listener.run()        # until cancelled, or until `drain` has ended

    Attributes:
        newcomers: the connections whose clients have not authenticated yet. A service adds a connection if it finds out
            itself who the client is.
    """

    def __init__(self, limits: ListenerLimits | None = None, budget: Budget | None = None) -> None:
        self._limits = limits or ListenerLimits()
        self._connections: set[AcceptedConnection] = set()
        self._shared = ListenerContext(self._limits, self._connections, budget)
        self._most = self._limits.max_connections + spare(self._limits.max_connections)
        self._numbers = itertools.count(1)
        self._ports: list[_Port] = []
        self.newcomers = self._shared.newcomers
        self._sasl_services: list[SaslService] = []
        self._departures = trio.lowlevel.ParkingLot()
        """Tasks that wait for connections to end."""
        self._nursery: trio.Nursery | None = None
        self._authenticating: trio.Nursery | None = None
        """Runs them, until the last connection has ended."""
        self._draining = trio.Event()

    async def open(self, host: str, port: int, service: Service, security: PortSecurity = PLAINTEXT) -> int:
        """Listen on another address (port 0: any free one); return the port.

        Raises:
            ConfigurationError: the address is in use, not of this machine, or not allowed.
        """
        listeners = await listen(host, port)
        bound: int = listeners[0].socket.getsockname()[1]
        sasl = None if security.sasl is None else SaslService(service, security.sasl, self.newcomers)
        if sasl is not None:
            self._sasl_services.append(sasl)
            if self._authenticating is not None:
                self._authenticating.start_soon(sasl.run)
        for each in listeners:
            if self._draining.is_set():
                each.socket.close()
                continue
            self._ports.append(opened := _Port(each.socket, sasl or service, security))
            if self._nursery is not None:
                self._nursery.start_soon(self._accept, opened)
        return bound

    @property
    def frames(self) -> Memory:
        """The memory of large frames, which other holders may share."""
        return self._shared.frames

    async def run(self) -> None:
        """Accept and serve until cancelled or drained; trace each request, if the process has configured that."""
        if tracer := configured_tracer():
            self._shared.observe(Spans(tracer))
        try:
            async with trio.open_nursery() as self._authenticating:
                self._authenticating.start_soon(self.newcomers.run)
                for sasl in self._sasl_services:
                    self._authenticating.start_soon(sasl.run)
                await self._serve_all()
                self._authenticating.cancel_scope.cancel()
        finally:
            self._nursery = self._authenticating = None
            self._close_sockets()
            self._log_counted(0.0)
            await self._end_observers()

    async def _serve_all(self) -> None:
        async with trio.open_nursery() as self._nursery:
            for port in self._ports:
                self._nursery.start_soon(self._accept, port)
            async with trio.open_nursery() as telling:
                telling.start_soon(self._tell)
                telling.start_soon(self._look)
                await self._draining.wait()
                telling.cancel_scope.cancel()

    async def _end_observers(self) -> None:
        """Wait in a thread until they have taken their last requests: the rest of the server goes on meanwhile."""
        ended = self._shared.observers
        for each in ended:
            self._shared.ignore(each)
        with trio.CancelScope(shield=True):  # for a second each at most
            for each in ended:
                await trio.to_thread.run_sync(each.join)

    def log_access(self, to: str | None) -> None:
        """See `ListenerContext.log_access`."""
        self._shared.log_access(to)

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of `ottla.serve.traffic.TRAFFIC_METRICS`."""
        listeners = dict.fromkeys((port.security.name for port in self._ports), 0)
        for each in self._connections:
            listeners[each.session.listener] = listeners.get(each.session.listener, 0) + 1
        yield from self._shared.traffic.samples(listeners)

    async def drain(self) -> None:
        """Stop accepting, answer the requests that have arrived, then close; bounded by `ListenerLimits.drain`."""
        self._draining.set()
        self._close_sockets()
        for connection in self._connections:
            connection.drain()
        with trio.move_on_after(self._limits.drain):
            while self._connections:
                await self._departures.park()
        for connection in self._connections:
            connection.close("the listener closes")
        while self._connections:  # they end at once, and notify their services
            await self._departures.park()

    def _close_sockets(self) -> None:
        for port in self._ports:
            hang_up(port.socket)
            port.socket.close()

    async def _accept(self, port: "_Port") -> None:
        while True:
            try:
                accepted, address = await port.socket.accept()
            except trio.ClosedResourceError:
                return  # closed by `drain`
            except OSError as error:
                if port.socket.fileno() < 0:
                    return
                await self._refused(error)
                continue
            _keep_alive(sock := bare(accepted))
            try:
                session = _session(sock, address, port.security)
            except OSError:  # on some systems, if the peer has already gone
                sock.close()
            else:
                self.serve(sock, session, port.service, port.security.tls)

    async def _refused(self, error: OSError) -> None:
        """Handle an error of accept: the system lacks resources, or the peer has already gone."""
        if error.errno == errno.ECONNABORTED:
            return
        if self._shared.complaints.is_new(trio.current_time(), "", text := f"cannot accept: {error}"):
            log.error("%s", text)
        await trio.sleep(_PAUSE)

    def serve(self, sock: socket.socket, session: ClientInfo, service: Service, tls: ServerTLS | None = None) -> None:
        """Serve an accepted connection; close it if there are too many.

        Args:
            sock: non-blocking; the listener closes it.
        """
        if self._nursery is None:  # `run` has ended
            sock.close()
        elif len(self._connections) >= self._most and not self.newcomers.make_room_for(
            network_of(session.peer_host), len(self._connections)
        ):
            self._shared.traffic.refused(Refusal.LIMIT)
            self._shared.complain(f"connection refused: {len(self._connections)} are open", session)
            sock.close()
        else:
            secured = None if tls is None else self._secured(tls)
            connection = AcceptedConnection(next(self._numbers), sock, session, service, self._shared, secured)
            self._connections.add(connection)
            self._shared.traffic.accept()
            self._nursery.start_soon(self._serve, connection)

    def _secured(self, tls: ServerTLS) -> TlsConnection:
        connection = tls.connection()
        if tls.stale and self._shared.complaints.is_new(trio.current_time(), "", tls.stale):
            log.error("new TLS files cannot be loaded, keeping the previous ones: %s", tls.stale)
        return connection

    async def _serve(self, connection: AcceptedConnection) -> None:
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._shared.blocks.clear()
            self._departures.unpark_all()

    async def _look(self) -> None:
        """Check for silent peers; one pass over all connections is cheaper than a timeout for every read."""
        while True:
            await trio.sleep(_LOOK)
            for connection in list(self._connections):
                connection.look(trio.current_time())

    async def _tell(self) -> None:
        """Log the counted complaints once a minute."""
        while True:
            await trio.sleep(INTERVAL)
            self._log_counted(INTERVAL)

    def _log_counted(self, after: float) -> None:
        for line in self._shared.complaints.counted(trio.current_time(), after):
            log.warning("%s", line)


def _keep_alive(sock: socket.socket) -> None:
    """Let the system probe silent peers, as Kafka does, but earlier than after the default two hours."""
    with suppress(OSError):  # it has ended already; the reader will notice
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _session(sock: socket.socket, peer: Address, security: PortSecurity) -> ClientInfo:
    local = sock.getsockname()  # the peer's address comes from `accept`: the system forgets it when the peer has gone
    return ClientInfo(
        local_host=local[0].removeprefix("::ffff:"),
        local_port=local[1],
        peer_host=peer[0].removeprefix("::ffff:"),
        peer_port=peer[1],
        listener=security.name,
        subjects=security.subjects if security.sasl is None else None,
        awaits_login=security.sasl is not None,
    )


async def listen(host: str, port: int, purpose: str = "") -> list[trio.SocketListener]:
    """Listen on all addresses of ``host`` with one port; with port 0 only on the first address, on any free port.

    Raises:
        ConfigurationError: the address is in use, not of this machine, not allowed, or not valid.
    """
    where = f"{format_address(host, port)}{purpose}"
    if not 0 <= port <= 65535:  # the resolver would take it modulo 65536
        raise ConfigurationError(f"cannot listen on {where}: ports are 0 to 65535")
    try:
        listeners = [_dual(port)] if host == "::" else await trio.open_tcp_listeners(port, host=host, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {where}: {_advice(error)}") from error
    except UnicodeError:
        raise ConfigurationError(f"cannot listen on {where}: that is not a host name") from None
    if port == 0:
        while len(listeners) > 1:  # each has another port
            listeners.pop().socket.close()
    return listeners


def _dual(port: int) -> trio.SocketListener:
    """A listener on every address of both families, as ``::`` means in Apache Kafka; trio's is for IPv6 only."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would allow another process to listen on the same port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _advice(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "the port is in use; stop the program that uses it, or choose another (0 means any free one)"
        case errno.EADDRNOTAVAIL:
            return "the address is not one of this machine"
        case errno.EACCES:
            return "not allowed; ports below 1024 need privileges"
    return error.strerror or str(error)
