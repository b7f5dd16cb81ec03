"""Receives bytes from a socket and cuts them into frames, in plain text or over TLS."""

import socket
from collections.abc import Iterator

from ottla.codec.frames import looks_like
from ottla.codec.inbox import LARGE, Inbox
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError
from ottla.serve.outbox import Outbox
from ottla.tls import TlsConnection

_HANDSHAKE = 0x16
"""The first byte from a client that speaks TLS (RFC 8446, section 5.1)."""
_REFUSAL = b"\x15\x03\x03\x00\x02\x02\x0a"
"""TLS's fatal alert about an unexpected message: Kafka's clients recognise it."""


class Incoming:
    """The frames of one connection.

    Args:
        chunk: the receive buffer for small frames, which are copied out of it at once.
        outbox: gets the bytes that TLS itself sends.

    Attributes:
        count: bytes of the last read, even if it raised an error because of them.
        more: the last read filled its buffer, so there may be more.
        granted: bytes of memory that a large frame may use; if it needs more, it is not read further.
        stopped: for that reason encrypted bytes are left; `read` continues with them.
    """

    def __init__(self, inbox: Inbox, chunk: memoryview, outbox: Outbox, tls: TlsConnection | None) -> None:
        self._inbox, self._chunk, self._outbox, self._tls = inbox, chunk, outbox, tls
        self._speaks_tls = False
        self.count = 0
        self.more = False
        self.granted = 0
        self.stopped = False

    @property
    def ended(self) -> bool:
        """The peer has ended TLS: it sends no more, though it may keep the connection open."""
        return self._tls is not None and self._tls.ended

    def grant(self, size: int) -> None:
        """Let a large frame use so many bytes of memory; 0 once it belongs to the service."""
        self.granted = size

    def read(self, sock: socket.socket) -> Iterator[Buffer] | None:
        """The frames that are complete now, without their lengths; ``None`` if the peer sends no more.

        Raises:
            BlockingIOError: no byte has arrived yet.
            OSError: the connection has ended.
            RemoteProtocolError: (while iterating, too) these bytes are not Kafka's protocol, or not TLS on a TLS port.
            AuthenticationFailed, ConnectionLost: (while iterating, too) as in `TlsConnection.feed`.
        """
        self.count = 0
        if self.ended:
            return None
        if self._tls is not None and self.stopped:
            return self._decrypted(self._tls)
        room = self._inbox.room if self._tls is None else None
        self.more = False
        self.count = sock.recv_into(self._chunk if room is None else room)
        if not self.count:
            return None
        if room is not None:
            self.more = self.count == len(room)
            return self._inbox.filled(self.count)
        self.more = self.count == len(self._chunk)
        data = self._chunk[: self.count]
        return self._inbox.feed(data) if self._tls is None else self._unsealed(self._tls, data)

    def _unsealed(self, tls: TlsConnection, data: memoryview) -> Iterator[Buffer]:
        if not self._speaks_tls and data[0] != _HANDSHAKE:
            self._outbox.append_sealed(_REFUSAL)
            seems = looks_like(bytes(data[:8])) or "Kafka's protocol without TLS"
            raise RemoteProtocolError(
                f"this port needs TLS, but this looks like {seems}: set security.protocol=SSL or SASL_SSL, or use "
                "another port"
            )
        self._speaks_tls = True
        self._outbox.append_sealed(tls.feed(data))
        return self._decrypted(tls)

    def _decrypted(self, tls: TlsConnection) -> Iterator[Buffer]:
        self.stopped = False
        while tls.agreed:
            if self._inbox.needs > self.granted:
                self.stopped = True
                return
            if (room := self._inbox.room) is not None:
                count = tls.read_into(room)
                del room
                if not count:
                    return
                yield from self._inbox.filled(count)
            elif plain := tls.read(LARGE):
                yield from self._inbox.feed(plain)
            else:
                return
