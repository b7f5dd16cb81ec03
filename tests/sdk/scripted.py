"""A scripted transport: a broker that parses whole requests, and sends its answers as badly as TCP allows."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ottla.codec import frames
from ottla.errors import RemoteProtocolError
from tests.accepting import AcceptingThread
from tests.patience import HUNG
from tests.sim.world import ModelBroker

Manner = Callable[[socket.socket, bytes], None]
"""Sends the bytes of an answer."""


def at_once(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)


def byte_by_byte(connection: socket.socket, data: bytes) -> None:
    for start in range(0, len(data), 7 if len(data) > 500 else 1):
        connection.sendall(data[start : start + (7 if len(data) > 500 else 1)])


def late(connection: socket.socket, data: bytes) -> None:
    time.sleep(0.02)
    connection.sendall(data)


@dataclass
class Scripted:
    """Serves a `ModelBroker` on real sockets, with a thread for each connection.

    Attributes:
        manner: how to send an answer.
        torn: for each of the first connections, after how many bytes of answers to reset it.
        reads: seconds between two reads from the client; if set, the receive buffer is small.
        seen: every request.
    """

    model: ModelBroker
    manner: Manner = at_once
    torn: list[int] = field(default_factory=list)
    reads: float = 0.0
    tls: ssl.SSLContext | None = None
    """How connections are secured, if they are."""
    mute: bool = False
    """Whether to ignore requests: they get no answer, and the model does not see them."""
    seen: list[Any] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """How each connection ended: ``end`` if the client closed it in order, else the error or OpenSSL's reason."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """The model answers one request at a time."""

    def serve(self, connection: socket.socket) -> None:
        reader, budget = frames.FrameReader(), self.torn.pop(0) if self.torn else None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            secured = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            try:
                secured.do_handshake()
            except OSError as error:
                self.ended.append(getattr(error, "reason", None) or type(error).__name__)
                with socket.socket(fileno=secured.detach()) as refused, suppress(OSError):
                    refused.shutdown(socket.SHUT_WR)
                    while refused.recv(4096):  # closing with unread bytes would reset the connection and lose the alert
                        pass
                return
            connection = secured
        with connection:
            while True:
                try:
                    if self.reads:
                        time.sleep(self.reads)
                    data = connection.recv(65536)
                    if not data:
                        self.ended.append("end")
                        return
                    for frame in reader.feed(data):
                        self.seen.append(frames.parse_request(bytes(frame)).message)
                        if self.mute:
                            continue
                        with self.turn:
                            answer = self.model.handle(1, bytes(frame))
                        if answer is None:
                            continue
                        if budget is not None:
                            if budget < len(answer):
                                connection.sendall(answer[:budget])
                                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                                return
                            budget -= len(answer)
                        self.manner(connection, answer)
                except (OSError, RemoteProtocolError) as error:
                    self.ended.append(type(error).__name__)
                    return


@contextmanager
def scripted(topics: dict[str, int] | None = None, **script: Any) -> Iterator[tuple[str, Scripted]]:
    """A listening broker, and its address."""
    broker = Scripted(ModelBroker(topics or {"t": 1}), **script)
    threads: list[threading.Thread] = []
    open_: list[socket.socket] = []
    with socket.socket() as server:
        if broker.reads:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        broker.model.cluster.addresses[1] = ("127.0.0.1", port)

        def accepted(connection: socket.socket) -> None:
            open_.append(connection)
            thread = threading.Thread(target=broker.serve, args=(connection,), daemon=True)
            threads.append(thread)
            thread.start()

        accepting = AcceptingThread(server, accepted)
        accepting.start()
        try:
            yield f"127.0.0.1:{port}", broker
        finally:
            accepting.close()
            for connection in open_:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(HUNG)
