"""A connection over a bare non-blocking socket: writes and reads that do not wait."""

import contextlib
import itertools
import socket

from ottla.errors import reason
from ottla.sdk.drivers.pump import CHUNK, Link
from ottla.sdk.events import Event, Filled, Key, Received

_PARTS = 64
"""Buffers of one write; systems accept 1024, and most writes have fewer."""


class SocketLink(Link):
    """One connection over a bare socket, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.socket: socket.socket | None = None
        """Non-blocking; ``None`` before there is a connection, and after its end."""

    def open(self, opened: socket.socket) -> None:
        """Use the socket, which is connected, or will be."""
        self.socket = opened

    def close(self) -> None:
        """Close the socket, if there is one."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def write(self) -> None:
        """Write as much as the socket accepts now, with as few system calls and copies as possible."""
        outbox = self.outbox
        self.full = False
        while outbox and self.socket is not None:
            try:
                count = self.socket.sendmsg(itertools.islice(outbox, _PARTS))
            except BlockingIOError:
                self.full = True
                return
            except OSError as error:  # a frame may be half sent, so send no more; the reader does the rest
                self.broke = self.broke or reason(error)
                outbox.clear()
                with contextlib.suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                return
            while outbox and count >= len(outbox[0]):
                count -= len(outbox.popleft())
            if count:
                outbox[0] = memoryview(outbox[0])[count:]
        if self.finishing and self.socket is not None:
            with contextlib.suppress(OSError):  # it has ended already; the reader will notice
                self.socket.shutdown(socket.SHUT_WR)

    def read(self, room: memoryview | None) -> Event | None:
        """Read the bytes that have arrived, into ``room`` if the core has a buffer; ``None`` if there are none.

        Raises:
            OSError: the connection has ended; `reason` says why.
        """
        assert self.socket is not None
        try:
            if room is not None:
                if count := self.socket.recv_into(room):
                    return Filled(self.key, count)
            elif data := self.socket.recv(CHUNK):
                return Received(self.key, data)
        except BlockingIOError:
            return None
        raise ConnectionError("closed by the broker")
