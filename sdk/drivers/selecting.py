"""Bare sockets for drivers that wait with a selector, in one thread: from the attempt to connect to the end."""

import errno
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any

from ottla.errors import reason
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.pump import Pump
from ottla.sdk.drivers.sockets import SocketLink
from ottla.sdk.events import Connected, Key, Written

Addresses = list[tuple[Any, ...]]
"""The return type of `socket.getaddrinfo`."""


class SelectorLink(SocketLink):
    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.connecting = True

    def connected(self) -> None:
        """Note that the other side has accepted the connection."""
        self.connecting = False


class SelectorPump(Pump[SelectorLink]):
    """Takes the steps of ``core`` with a selector; subclasses decide when to wait, and how to resolve names."""

    def __init__(self, core: ClientCore, now: Callable[[], float], loop: str) -> None:
        super().__init__(core, now, loop, SelectorLink)
        self._selector = selectors.DefaultSelector()
        self._attempts: dict[tuple[str, int], int] = {}
        """Per name and port, the number of attempts."""

    def _wait(self, timeout: float | None) -> None:
        """Wait for sockets, for at most so many seconds (``None``: without limit), and handle the ready ones."""
        for ready, mask in self._selector.select(timeout):
            link: SelectorLink | None = ready.data
            if link is None:
                self._woken()
                continue
            if mask & selectors.EVENT_WRITE and self.has(link):
                self._writable(link)
            if mask & selectors.EVENT_READ and self.has(link):
                self._readable(link)

    def _woken(self) -> None:
        """A file descriptor that is registered without a link is ready."""

    def _connect_to(self, link: SelectorLink, where: tuple[str, int], found: Addresses) -> None:
        """Begin to connect to one of the addresses of a name: each attempt uses the next one."""
        attempts = self._attempts[where] = self._attempts.get(where, -1) + 1
        family, kind, protocol, _, address = found[attempts % len(found)]
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:
            self._lost(link, reason(error))
            return
        link.open(connection)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_WRITE, link)
        code = connection.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._end(link, OSError(code, os.strerror(code)))

    def _hang_up(self, link: SelectorLink) -> None:
        if link.socket is not None:
            self._selector.unregister(link.socket)
            link.close()

    def _hang_up_all(self) -> None:
        for link in self._links.values():
            self._hang_up(link)
        self._links.clear()
        self._selector.close()

    def _await_writable(self, link: SelectorLink) -> None:
        assert link.socket is not None
        self._selector.modify(link.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, link)

    def _writable(self, link: SelectorLink) -> None:
        assert link.socket is not None
        if link.connecting and (code := link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            self._end(link, OSError(code, os.strerror(code)))
            return
        had_to_wait = link.full
        link.write()
        if not link.full:
            self._selector.modify(link.socket, selectors.EVENT_READ, link)
        if link.connecting:
            link.connected()
            self.tell(Connected(link.key))
        elif had_to_wait and link.wrote:
            self.tell(Written(link.key))

    def _readable(self, link: SelectorLink) -> None:
        try:
            event = link.read(self.core.room(link.key))
        except OSError as error:
            self._end(link, error)
            return
        if event is not None:
            self.tell(event)

    def _end(self, link: SelectorLink, error: OSError) -> None:
        self._hang_up(link)
        self._lost(link, reason(error))
