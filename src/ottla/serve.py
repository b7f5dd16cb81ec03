"""The listener that brokerlite and the proxy share: accept, cut into frames, answer in order, drain.

Theory of operation: each connection has one reader and one writer task. The reader hands each frame to the service
together with an `Answer`, its place in the connection's order; the service fills answers whenever it likes, and the
writer sends them in the order of the requests, as Kafka's protocol demands. The service's methods are plain functions
that must not block.

Rules:
- With `Limits.pipeline` requests of a connection unanswered, or more than `Limits.unsent` bytes of answers not taken by
  its peer, the reader waits, and TCP pushes back.
- Bytes that are not Kafka's protocol close their connection, with one line in the log that says what they look like;
  nobody else notices.
- An exception out of the service is a bug: it is logged with its traceback and closes that connection only.
- A server that drains reads no more requests, and answers those it has read.
- Every wait has a bound: idle connections, peers that do not read their answers, the drain at the end.
"""

import errno
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio

from ottla.codec.frames import MAX_FRAME, FrameReader
from ottla.errors import ConfigurationError, RemoteProtocolError

log = logging.getLogger("ottla.serve")

_CHUNK = 256 * 2**10


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a listener; bytes and seconds."""

    max_frame: int = MAX_FRAME
    max_connections: int = 2000
    pipeline: int = 64
    """Unanswered requests of one connection before it is no longer read."""
    unsent: int = 64 * 2**20
    """Bytes of answers not taken by one connection's peer beyond which it is no longer read; the last may exceed it."""
    idle: float = 600.0
    """Kafka's `connections.max.idle.ms`."""
    write: float = 30.0
    """How long a peer may take to accept an answer."""
    drain: float = 1.5
    """How long answers may take once the listener closes."""


class Service(Protocol):
    """What stands behind a listener. No method may block."""

    def connected(self, connection: "Connection") -> None: ...

    def request(self, connection: "Connection", frame: bytes, answer: "Answer") -> None:
        """Handle a frame (without its length); fill ``answer`` now or later.

        Raises:
            RemoteProtocolError: the frame breaks the protocol; the connection is closed.
        """

    def disconnected(self, connection: "Connection") -> None: ...


class Answer:
    """A place in a connection's order of answers; filled once."""

    __slots__ = ("_connection", "frames")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.frames: Sequence[bytes] | None = None

    def send(self, *frames: bytes) -> None:
        """Answer with the bytes of a whole frame (its length included), in as many pieces as is convenient."""
        self.frames = frames
        self._connection.unsent += sum(map(len, frames))
        self._connection.wake()

    def nothing(self) -> None:
        """The request has no answer (Produce with ``acks=0``)."""
        self.send()


class Connection:
    """One accepted connection.

    Attributes:
        id: counts up over the life of the listener.
        peer: ``host:port``, for logs.
        local_host: the address of ours that the peer came by.
        unsent: bytes of answers that the peer has not taken yet.
    """

    def __init__(self, number: int, stream: trio.SocketStream, service: Service, limits: Limits) -> None:
        self.id = number
        host, port, *_ = stream.socket.getpeername()
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.local_host: str = stream.socket.getsockname()[0].removeprefix("::ffff:")
        self.unsent = 0
        self._stream, self._service, self._limits = stream, service, limits
        self._answers: deque[Answer] = deque()
        self._waiting = trio.lowlevel.ParkingLot()
        """Tasks that look again whenever an answer was filled or sent, or the reader was told to hold or go on."""
        self._draining = False
        self._held = False
        self._over = False
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._why = "closed by the peer"

    def wake(self) -> None:
        self._waiting.unpark_all()

    def hold(self, held: bool) -> None:
        """Take no more requests from the peer until told otherwise: there is no room for what it sends."""
        self._held = held
        self.wake()

    async def room(self, limit: int) -> None:
        """Wait until at most ``limit`` bytes of answers are unsent, or the connection is over."""
        while self.unsent > limit and not self._over:
            await self._waiting.park()

    def close(self, why: str) -> None:
        """Close without another answer; ``why`` goes into the log."""
        self._why = why
        self._scope.cancel()

    def drain(self) -> None:
        """Read no more, answer what was asked, then close."""
        self._draining = True
        self._reading.cancel()
        self.wake()

    async def run(self) -> None:
        log.debug("connected", extra={"peer": self.peer})
        try:
            self._service.connected(self)
            try:
                with self._scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._read)
                        nursery.start_soon(self._write)
            finally:
                self._service.disconnected(self)
        except Exception:  # a bug of the service must not take the other connections with it
            self._why = "internal error"
            log.exception("a request failed; its connection is closed", extra={"peer": self.peer})
        finally:
            self._over = True
            self.wake()
            log.debug("disconnected", extra={"peer": self.peer, "why": self._why})
            await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        reader = FrameReader(self._limits.max_frame)
        with self._reading:
            while data := await self._receive():
                try:
                    for frame in reader.feed(data):
                        while self._held or self._full:
                            await self._waiting.park()
                        answer = Answer(self)
                        self._answers.append(answer)
                        self._service.request(self, frame, answer)
                except RemoteProtocolError as error:
                    log.warning("connection refused: %s", error, extra={"peer": self.peer})
                    self.close(str(error))
                    return
            self._scope.cancel()

    @property
    def _full(self) -> bool:
        return len(self._answers) >= self._limits.pipeline or self.unsent > self._limits.unsent

    async def _receive(self) -> bytes:
        """What the peer sent; nothing where it, or our patience, came to an end."""
        while True:
            try:
                with trio.fail_after(self._limits.idle):
                    return await self._stream.receive_some(_CHUNK)
            except trio.BrokenResourceError:
                return b""
            except trio.TooSlowError:
                if not self._answers:  # else it waits for us
                    self._why = f"idle for {self._limits.idle:g} s"
                    return b""

    async def _write(self) -> None:
        while True:
            if ready := self._take_ready():
                try:
                    with trio.fail_after(self._limits.write):
                        await self._stream.send_all(b"".join(ready))
                except trio.BrokenResourceError:
                    self._scope.cancel()
                    return
                except trio.TooSlowError:
                    self.close(f"the peer took no answer for {self._limits.write:g} s")
                    return
                self.unsent -= sum(map(len, ready))
                self.wake()
            elif self._draining and not self._answers:
                self.close("the listener closes")
                return
            else:
                await self._waiting.park()

    def _take_ready(self) -> list[bytes]:
        """The answers that can be sent: those in front that are filled."""
        ready: list[bytes] = []
        while self._answers and (frames := self._answers[0].frames) is not None:
            ready += frames
            self._answers.popleft()
            self.wake()
        return ready


class Listener:
    """Listening sockets and the connections that came in through them.

    listener = Listener(Limits())
    port = await listener.open("127.0.0.1", 9092, service)
    await listener.run()        # until cancelled, or until `drain` was called and is done
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._numbers = itertools.count(1)
        self._sockets: list[tuple[trio.SocketListener, Service]] = []
        self._connections: set[Connection] = set()
        self._departures = trio.lowlevel.ParkingLot()
        """Who waits for connections to end."""
        self._nursery: trio.Nursery | None = None
        self._draining = trio.Event()

    async def open(self, host: str, port: int, service: Service) -> int:
        """Listen on one more address (port 0: any free one); return the port.

        Raises:
            ConfigurationError: the address is in use, not ours, or not allowed.
        """
        listeners = await _listen(host, port)
        bound: int = listeners[0].socket.getsockname()[1]
        for listener in listeners:
            if self._draining.is_set():
                listener.socket.close()
                continue
            self._sockets.append((listener, service))
            if self._nursery is not None:
                self._nursery.start_soon(self._accept, self._nursery, listener, service)
        return bound

    async def run(self) -> None:
        """Accept and serve until cancelled or drained."""
        try:
            async with trio.open_nursery() as self._nursery:
                for listener, service in self._sockets:
                    self._nursery.start_soon(self._accept, self._nursery, listener, service)
                await self._draining.wait()
        finally:
            self._nursery = None
            self._close_sockets()

    async def drain(self) -> None:
        """Accept nobody any more, answer what was asked, close; bounded by `Limits.drain`."""
        self._draining.set()
        self._close_sockets()
        for connection in self._connections:
            connection.drain()
        with trio.move_on_after(self._limits.drain):
            while self._connections:
                await self._departures.park()
        for connection in self._connections:
            connection.close("the listener closes")

    def _close_sockets(self) -> None:
        for listener, _ in self._sockets:
            listener.socket.close()

    async def _accept(self, nursery: trio.Nursery, listener: trio.SocketListener, service: Service) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return  # by `drain`
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                log.error("cannot accept: %s", error)
                await trio.sleep(0.1)
                continue
            if connection := self._admitted(stream, service):
                nursery.start_soon(self._serve, connection)
            else:
                stream.socket.close()

    def _admitted(self, stream: trio.SocketStream, service: Service) -> Connection | None:
        """The connection, known from now on to `drain`; ``None`` where the peer is gone or there are too many."""
        try:
            connection = Connection(next(self._numbers), stream, service, self._limits)
        except OSError:  # gone before we looked
            return None
        if len(self._connections) >= self._limits.max_connections:
            log.warning("connection refused: %d are open", len(self._connections), extra={"peer": connection.peer})
            return None
        self._connections.add(connection)
        return connection

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._departures.unpark_all()


async def _listen(host: str, port: int, purpose: str = "") -> list[trio.SocketListener]:
    """Listeners on all addresses of ``host`` with one port; with port 0 on the first address only, on any free port.

    Raises:
        ConfigurationError: the address is in use, not ours, not allowed, or none at all.
    """
    if not 0 <= port <= 65535:  # the resolver would take it modulo 65536
        raise ConfigurationError(f"cannot listen on {host}:{port}{purpose}: ports are 0 to 65535")
    try:
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=512)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}{purpose}: {_advice(error)}") from error
    except UnicodeError:
        raise ConfigurationError(f"cannot listen on {host}:{port}{purpose}: that is no host name") from None
    if port == 0:
        while len(listeners) > 1:  # each has another port
            listeners.pop().socket.close()
    return listeners


def _advice(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "the port is in use; stop who holds it, or choose another (0 takes any free one)"
        case errno.EADDRNOTAVAIL:
            return "the address is not one of this machine"
        case errno.EACCES:
            return "not allowed; ports below 1024 need privileges"
    return error.strerror or str(error)


async def serve_health(host: str, port: int, ready: Callable[[], bool], *, opened: Callable[[int], None]) -> None:
    """Answer ``GET /health`` (200 while the process lives) and ``GET /ready`` (200 or 503), for probes.

    Args:
        opened: told the port once it listens.

    Raises:
        ConfigurationError: the address cannot be used.
    """

    async def answer(stream: trio.SocketStream) -> None:
        with trio.move_on_after(5):
            try:
                request = b""
                while b"\r\n\r\n" not in request and len(request) < 8192:
                    if not (data := await stream.receive_some(4096)):
                        break
                    request += data
                path = request.split(b" ", 2)[1:2]
                if path == [b"/health"] or (path == [b"/ready"] and ready()):
                    status, text = "200 OK", "ok"
                elif path == [b"/ready"]:
                    status, text = "503 Service Unavailable", "not ready"
                else:
                    status, text = "404 Not Found", "ask /health or /ready"
                body = f"{text}\n".encode()
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                await stream.send_all(head.encode() + body)
            except trio.BrokenResourceError:
                pass
        await trio.aclose_forcefully(stream)

    listeners = await _listen(host, port, " for health checks")
    opened(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(answer, listeners)
