"""The parts of frames that a socket has yet to write, without joining them, in plain text or over TLS.

An `Unread` part is sent directly from its file, and only read into memory for TLS.

Rules:
- No call waits here: `Outbox.write` writes as much as the socket accepts now, and releases it.
- A peer is judged by its progress, not by the total time: `write_on` continues for as long as the peer reads anything.
"""

import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

import trio

from ottla.codec.wire import Buffer, Part, Unread
from ottla.tls import TlsConnection

_PARTS = min(1024, os.sysconf("SC_IOV_MAX")) if hasattr(os, "sysconf") else 16
"""Buffers that the system accepts in one call."""
_SEALED = 256 * 2**10
"""Bytes that are encrypted ahead of the socket."""
_TURN = 4 * 2**20
"""Bytes that a connection writes before others get their turn."""
_SEND_BUFFER = 100 * 2**10
"""Bytes that the system buffers ahead of the network: Kafka's ``socket.send.buffer.bytes``. The system's own default is
megabytes, which leave the processor's caches before they are sent: throughput is a fifth lower."""
_MORE = getattr(socket, "MSG_MORE", 0)
"""Lets the system combine this write with the next in one packet, if it is small."""
_LOOKS = 10
"""How often to check, within the time limit of a silent peer, whether it has read anything: the system wakes a writer
only when a third of its buffer is free, and a slow reader may not read that much in time."""


class Outbox:
    """The parts that wait for one socket.

    Attributes:
        full: the socket accepts no more for now, or has accepted as much as is allowed in one turn.
        taken: bytes that it has accepted so far.
    """

    def __init__(self, tls: TlsConnection | None = None) -> None:
        self._tls = tls
        self._parts: deque[Part] = deque()
        self._sealed: deque[Part] = deque()
        self._sealing = 0
        """Bytes of parts that are already encrypted in `_sealed`."""
        self.full = False
        self.taken = 0

    def __bool__(self) -> bool:
        return bool(self._parts or self._sealed)

    def append(self, *parts: Part) -> None:
        for part in parts:
            if len(part):
                self._parts.append(part)

    def append_sealed(self, data: bytes) -> None:
        """Add bytes that TLS itself sends."""
        if data:
            self._sealed.append(data)

    def clear(self) -> None:
        """Drop everything."""
        self._parts.clear()
        self._sealed.clear()

    def finish(self, data: bytes) -> None:
        """Drop everything, and send only TLS's last bytes."""
        self._parts.clear()
        self.append_sealed(data)

    def write(self, sock: socket.socket) -> int:
        """Write as much as a non-blocking socket accepts now; returns how many bytes of the parts that was.

        Raises:
            OSError: the connection has ended.
            Unreadable: a part cannot be read.
        """
        self.full, done = False, 0
        begun = self.taken
        while self and not self.full:
            if self.taken - begun >= _TURN:
                self.full = True  # others get their turn, however fast this connection is
                break
            if self._tls is None:
                done += self._give(sock, self._parts)
                continue
            if not self._sealed:
                self._seal(self._tls)
            self._give(sock, self._sealed)
            if not self._sealed:
                done, self._sealing = done + self._sealing, 0
        return done

    def _give(self, sock: socket.socket, parts: deque[Part]) -> int:
        try:
            count = self._send_unread(sock, parts) if isinstance(parts[0], Unread) else self._send(sock, parts)
        except BlockingIOError:
            self.full = True
            return 0
        self.taken += count
        return count

    def _send_unread(self, sock: socket.socket, parts: deque[Part]) -> int:
        unread = cast(Unread, parts[0])
        count = unread.send(sock.fileno())
        if not len(unread):
            parts.popleft()
        return count

    def _send(self, sock: socket.socket, parts: deque[Part]) -> int:
        memory = _in_memory(parts)
        count = left = sock.sendmsg(memory, (), _MORE if len(memory) < len(parts) else 0)
        for part in memory:
            if left < len(part):
                parts[0] = memoryview(part)[left:]
                break
            left -= len(part)
            parts.popleft()
        return count

    def _seal(self, tls: TlsConnection) -> None:
        """Encrypt the next parts, small ones together: each call costs some bytes and considerable time."""
        batch: list[Buffer] = []
        while self._parts and (room := _SEALED - self._sealing) > 0:
            part = self._parts.popleft()
            if len(part) > room:
                self._parts.appendleft(part if isinstance(part, Unread) else memoryview(part)[room:])
            batch.append(part.take(room) if isinstance(part, Unread) else memoryview(part)[:room])
            self._sealing += len(batch[-1])
        self._sealed.extend(tls.seal((batch[0] if len(batch) == 1 else b"".join(batch),)))


def _in_memory(parts: Iterable[Part]) -> list[Buffer]:
    """The first of ``parts``, up to a part that is not in memory, and at most as many as one system call accepts."""
    memory: list[Buffer] = []
    for part in itertools.islice(parts, _PARTS):
        if isinstance(part, Unread):
            break
        memory.append(part)
    return memory


async def write_on(outbox: Outbox, sock: socket.socket, seconds: float, write: Callable[[], object]) -> None:
    """Call ``write`` until the socket has accepted everything.

    Raises:
        TooSlowError: the peer has read nothing for so many seconds.
        OSError: the connection has ended.
    """
    last = trio.current_time()
    while outbox.full:
        with trio.move_on_after(seconds / _LOOKS):
            await trio.lowlevel.wait_writable(sock)
        before = outbox.taken
        write()
        if outbox.taken > before:
            last = trio.current_time()
        elif trio.current_time() - last >= seconds:
            raise trio.TooSlowError


def hang_up(sock: socket.socket | trio.socket.SocketType) -> None:
    """Shut down the connection, so that the peer notices even if a forked process still has the socket open."""
    with suppress(OSError):  # the peer has gone before
        sock.shutdown(socket.SHUT_RDWR)


def bare(its: trio.socket.SocketType) -> socket.socket:
    """The system's socket, non-blocking, which sends data at once.

    trio's streams let the system buffer no more than 16 KB ahead of the network (`TCP_NOTSENT_LOWAT`), for programs
    that decide late what to send. With that, a writer of megabytes would be woken for every 16 KB.
    """
    sock = socket.socket(its.family, its.type, its.proto, fileno=its.detach())
    sock.setblocking(False)
    with suppress(OSError):  # it has ended already; the reader will notice
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 0)
    return sock
