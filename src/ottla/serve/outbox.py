"""What a socket is still to be given: parts of frames, written without joining them, in the clear or within TLS.

A part that is `Unread` is sent from where it lies, and is read for TLS only.

Rules:
- Nothing waits here: `Outbox.write` gives the socket what it takes now, and lets go of it.
- A peer is judged by what it takes, not by when it is done: `write_on` goes on for as long as it takes anything.
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
"""Buffers that the system takes in one call."""
_SEALED = 256 * 2**10
"""Bytes that are encrypted ahead of what the socket has taken."""
_TURN = 4 * 2**20
"""Bytes that are written before others have their turn."""
_SEND_BUFFER = 100 * 2**10
"""Bytes that the system takes ahead of the network: Kafka's ``socket.send.buffer.bytes``. The system itself would take
megabytes, which leave the processor's caches before they are read: a fifth fewer of them in a second."""
_MORE = getattr(socket, "MSG_MORE", 0)
"""What is sent goes with what is sent next, in one packet if that is small."""
_LOOKS = 10
"""How often it is looked, while a peer may take nothing, whether it has: the system wakes a writer for a third of its
memory only, which a slow reader may not take in that time."""


class Outbox:
    """The parts that wait for one socket.

    Attributes:
        full: the socket takes no more for now, or has taken as much as one may have in a turn.
        taken: bytes that it has taken so far.
    """

    def __init__(self, tls: TlsConnection | None = None) -> None:
        self._tls = tls
        self._parts: deque[Part] = deque()
        self._sealed: deque[Part] = deque()
        self._sealing = 0
        """Bytes of parts that lie encrypted in `_sealed`."""
        self.full = False
        self.taken = 0

    def __bool__(self) -> bool:
        return bool(self._parts or self._sealed)

    def append(self, *parts: Part) -> None:
        for part in parts:
            if len(part):
                self._parts.append(part)

    def append_sealed(self, data: bytes) -> None:
        """Add what TLS itself has to say."""
        if data:
            self._sealed.append(data)

    def clear(self) -> None:
        """Let go of everything."""
        self._parts.clear()
        self._sealed.clear()

    def finish(self, data: bytes) -> None:
        """Send nothing more but what TLS has to say last."""
        self._parts.clear()
        self.append_sealed(data)

    def write(self, sock: socket.socket) -> int:
        """Give a non-blocking socket what it takes now; how many bytes of the parts that were.

        Raises:
            OSError: the connection has ended.
            Unreadable: a part cannot be read.
        """
        self.full, done = False, 0
        begun = self.taken
        while self and not self.full:
            if self.taken - begun >= _TURN:
                self.full = True  # others have their turn, however fast this one is
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
        """Encrypt the next parts, small ones together: each time costs some bytes and a good deal of time."""
        batch: list[Buffer] = []
        while self._parts and (room := _SEALED - self._sealing) > 0:
            part = self._parts.popleft()
            if len(part) > room:
                self._parts.appendleft(part if isinstance(part, Unread) else memoryview(part)[room:])
            batch.append(part.take(room) if isinstance(part, Unread) else memoryview(part)[:room])
            self._sealing += len(batch[-1])
        self._sealed.extend(tls.seal((batch[0] if len(batch) == 1 else b"".join(batch),)))


def _in_memory(parts: Iterable[Part]) -> list[Buffer]:
    """The first of ``parts``, as far as they are in memory, and as many as the system takes in one call."""
    memory: list[Buffer] = []
    for part in itertools.islice(parts, _PARTS):
        if isinstance(part, Unread):
            break
        memory.append(part)
    return memory


async def write_on(outbox: Outbox, sock: socket.socket, seconds: float, write: Callable[[], object]) -> None:
    """``write`` until the socket has taken everything.

    Raises:
        TooSlowError: the peer has taken nothing for so many seconds.
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
    """Have peers hear that this is the end, though a process that was forked may have the socket open."""
    with suppress(OSError):  # they have gone before
        sock.shutdown(socket.SHUT_RDWR)


def bare(its: trio.socket.SocketType) -> socket.socket:
    """The system's socket, non-blocking, that sends at once what it is given.

    trio's streams have the system take no more than 16 KB ahead of the network (`TCP_NOTSENT_LOWAT`), for programs that
    decide late what to send. A writer of megabytes would be woken for each of them.
    """
    sock = socket.socket(its.family, its.type, its.proto, fileno=its.detach())
    sock.setblocking(False)
    with suppress(OSError):  # it has ended already, as the reader will find
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 0)
    return sock
