"""A connection over a bare non-blocking socket: what is written and read without waiting."""

import contextlib
import itertools
import socket

from ottla.errors import reason
from ottla.sdk.drivers.stepper import CHUNK, Link
from ottla.sdk.events import Event, Filled, Key, Received

_PARTS = 64
"""Buffers of one write; systems take 1024, most have less."""


class SocketLink(Link):
    """One connection over a bare socket, from the attempt to its end."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.socket: socket.socket | None = None
        """Non-blocking; ``None`` before there is a connection."""

    def write(self) -> None:
        """Give the socket what it takes now, with as few calls, and as few copies, as the system allows."""
        outbox = self.outbox
        self.full = False
        while outbox and self.socket is not None:
            try:
                count = self.socket.sendmsg(itertools.islice(outbox, _PARTS))
            except BlockingIOError:
                self.full = True
                return
            except OSError as error:  # a frame may be half sent, so that nothing may follow; the reader ends the rest
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
            with contextlib.suppress(OSError):  # it has ended already, as the reader will find
                self.socket.shutdown(socket.SHUT_WR)

    def read(self, room: memoryview | None) -> Event | None:
        """What has arrived, put into ``room`` where the core has some; ``None``: nothing yet.

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
