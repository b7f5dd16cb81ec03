"""A relay between a client and a broker that breaks connections at a chosen moment.

It passes whole frames on unchanged, in both directions. It reads only the header of a request: the API key, the
version, the correlation id and the client id. It runs in threads of its own, so tests can use it with or without trio.

    with Relay(("127.0.0.1", broker_port)) as relay:
        storm = relay.cut(PRODUCE, Moment.BEFORE_ANSWER, every=7, times=100)
        ...                                  # a client talks to relay.port
        assert storm.wait(30)                # all hundred cuts have happened

Rule: a `Moment` is exact. BEFORE_REQUEST: the broker never gets the request. AFTER_REQUEST: the system has the request,
and it is unknown whether the broker got it. BEFORE_ANSWER: the broker has answered, so it has done its work, but the
client never gets the response.
"""

import contextlib
import enum
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.accepting import AcceptingThread
from tests.patience import HUNG

PRODUCE = 0
FETCH = 1


class Moment(enum.Enum):
    """When a connection is cut, with respect to one request."""

    BEFORE_REQUEST = "before the request is passed on"
    AFTER_REQUEST = "after the request is passed on"
    BEFORE_ANSWER = "before the answer is passed back"


@dataclass(frozen=True)
class Request:
    """The parts of a request that the relay reads."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    """Empty if the header ends before it."""

    @classmethod
    def parse(cls, frame: bytes) -> Self:
        """Read the header of a frame, which begins with its length.

        Raises:
            struct.error: the frame is shorter than any header.
        """
        client = frame[14 : 14 + max(0, int.from_bytes(frame[12:14], "big", signed=True))]
        api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        return cls(api_key, api_version, correlation_id, client.decode(errors="replace"))


class Cuts:
    """An order to cut connections, from `Relay.cut`."""

    def __init__(self, api_key: int, moment: Moment, every: int, times: int) -> None:
        self.api_key = api_key
        self.moment = moment
        self.every = every
        self.times = times
        self.seen = 0
        """The number of requests of this API since the order."""
        self.done = 0
        """The number of connections that were cut."""
        self._ordered = 0
        self._finished = threading.Event()

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until all cuts have happened; whether they have."""
        return self._finished.wait(timeout)

    def _chooses(self, request: Request) -> bool:
        if request.api_key != self.api_key:
            return False
        self.seen += 1
        if self._ordered == self.times or self.seen % self.every:
            return False
        self._ordered += 1
        return True

    def _missed(self) -> None:
        """The connection of a chosen request ended for another reason before its response: choose another request."""
        self._ordered -= 1

    def _happened(self) -> None:
        self.done += 1
        if self.done == self.times:
            self._finished.set()


class Relay:
    """Listens on ``listen`` and passes everything on to ``upstream``; a context manager.

    Args:
        upstream: host and port of the broker.
        listen: the address for clients; with port 0, a free port.
    """

    def __init__(self, upstream: tuple[str, int], listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.upstream = upstream
        self.listen = listen
        self.requests: deque[Request] = deque(maxlen=10_000)
        """The most recent requests, in their order over all connections."""
        self.counts: Counter[tuple[str, int]] = Counter()
        """Client id and API key -> the number of all requests so far."""
        self._lock = threading.Lock()
        self._orders: list[Cuts] = []
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []

    @property
    def host(self) -> str:
        return self.listen[0]

    @property
    def port(self) -> int:
        return self.listen[1]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def cut(self, api_key: int, moment: Moment, every: int = 1, times: int = 1) -> Cuts:
        """Cut the connection of each ``every``-th request of an API from now on, ``times`` times.

        Requests are counted over all connections. If several orders choose a request, the earliest one cuts. A request
        without a response (Produce with acks=0) must not be cut before its response.
        """
        order = Cuts(api_key, moment, every, times)
        with self._lock:
            self._orders.append(order)
        return order

    def cut_all(self) -> int:
        """Cut all connections, and return how many there were."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def __enter__(self) -> Self:
        self._accepting = AcceptingThread(socket.create_server(self.listen), self._accepted)
        self.listen = self._accepting.address
        self._accepting.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._accepting.close()
        self.cut_all()
        for thread in list(self._threads):
            thread.join(HUNG)

    def _accepted(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self.upstream, timeout=HUNG)
        except OSError:
            client.close()
            return
        broker.settimeout(None)  # a connection may be idle for longer
        link = _Link(client, broker)
        with self._lock:
            self._links.add(link)
        self._start(self._pass_requests, link)
        self._start(self._pass_answers, link)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, name=f"relay {self.address}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pass_requests(self, link: "_Link") -> None:
        try:
            while frame := _read_frame(link.client):
                request = Request.parse(frame)
                order = self._order(request)
                if order is None:
                    link.broker.sendall(frame)
                    continue
                if order.moment is Moment.BEFORE_REQUEST:
                    self._carry_out(order, link)
                    return
                link.doomed[request.correlation_id] = order  # from here on the relay drops its response
                link.broker.sendall(frame)
                if order.moment is Moment.AFTER_REQUEST:
                    link.cut()  # before the order is taken out: until then the other thread drops the response
                    if link.doomed.pop(request.correlation_id, None) is order:
                        self._carry_out(order, link)
                    return
        except (OSError, struct.error):  # a broken connection, or bytes that are no request, end only this link
            pass
        finally:
            self._end(link)

    def _pass_answers(self, link: "_Link") -> None:
        try:
            while frame := _read_frame(link.broker):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                order = link.doomed.pop(correlation_id, None)
                if order is not None:
                    self._carry_out(order, link)
                    return
                link.client.sendall(frame)
        except (OSError, struct.error):  # as above
            pass
        finally:
            self._end(link)

    def _order(self, request: Request) -> Cuts | None:
        with self._lock:
            self.requests.append(request)
            self.counts[request.client_id, request.api_key] += 1
            return next((order for order in self._orders if order._chooses(request)), None)

    def _carry_out(self, order: Cuts, link: "_Link") -> None:
        link.cut()
        with self._lock:
            order._happened()

    def _end(self, link: "_Link") -> None:
        """When one direction has ended, end the other; the last one closes the sockets."""
        link.cut()
        with self._lock:
            link.directions -= 1
            if link.directions == 0:
                self._links.discard(link)
                for order in link.doomed.values():
                    order._missed()
                link.client.close()
                link.broker.close()


@dataclass(eq=False)
class _Link:
    """A client's connection, and its connection to the broker."""

    client: socket.socket
    broker: socket.socket
    doomed: dict[int, Cuts] = field(default_factory=dict)
    """Correlation id -> the order to cut; the thread that takes it out carries it out."""
    directions: int = 2

    def cut(self) -> None:
        """Shut down both connections. Their sockets stay open, so no other thread can meet reused descriptors."""
        for end in (self.client, self.broker):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _read_frame(source: socket.socket) -> bytes:
    """The next frame with its length; empty if the connection ends, even within a frame."""
    head = _read(source, 4)
    if len(head) < 4:
        return b""
    size = int.from_bytes(head, "big")
    body = _read(source, size)
    return head + body if len(body) == size else b""


def _read(source: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := source.recv(min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
