"""Reads the bytes of one connection from its socket, turn by turn, and cuts them into frames."""

import socket
from collections.abc import Iterator

import trio

from ottla.codec.inbox import Inbox
from ottla.codec.wire import Buffer
from ottla.serve.incoming import Incoming
from ottla.serve.listener_context import ListenerContext
from ottla.serve.memory import FrameProgress
from ottla.serve.outbox import Outbox
from ottla.tls import TlsConnection

_TURN_BYTES = 2**20
"""The bytes that a connection reads before others get their turn."""
_PIECE = 256 * 2**10
"""The most bytes of a frame that is passed on piece by piece."""


class Receiver:
    """Reads from one socket, whenever its connection asks for more.

    Args:
        outbox: gets the bytes that TLS itself sends.

    Attributes:
        is_waiting: it waits for bytes from the peer.
    """

    def __init__(self, sock: socket.socket, shared: ListenerContext, outbox: Outbox, tls: TlsConnection | None) -> None:
        self._socket, self._traffic = sock, shared.traffic
        self._inbox = Inbox(shared.limits.max_frame, shared.blocks)
        self._incoming = Incoming(self._inbox, shared.chunk, outbox, tls)
        self._progress = FrameProgress()
        self._turn = 0
        """Bytes that may still be read in this turn; 0: as far as is known there is nothing more to read."""
        self._was_active = False
        self.is_waiting = False

    def was_active(self) -> bool:
        """Whether it began to wait for bytes since the last call."""
        active, self._was_active = self._was_active, False
        return active

    def end_turn(self) -> None:
        """Let others have their turn before the next read."""
        self._turn = 0

    def limit_frames(self, size: int) -> None:
        """See `Inbox.limit_frames`."""
        self._inbox.limit_frames(size)

    # -- the frame under way

    @property
    def begun(self) -> bytes | None:
        """See `Inbox.begun`."""
        return self._inbox.begun

    def take_begun(self) -> tuple[int, bytes]:
        """See `Inbox.take_begun`."""
        return self._inbox.take_begun()

    @property
    def under_way(self) -> int:
        """See `Inbox.under_way`."""
        return self._inbox.under_way

    @property
    def pending(self) -> int:
        """See `Inbox.pending`."""
        return self._inbox.pending

    @property
    def needs(self) -> int:
        """See `Inbox.needs`."""
        return self._inbox.needs

    @property
    def granted(self) -> int:
        """See `Incoming.granted`."""
        return self._incoming.granted

    def grant(self, size: int) -> None:
        """See `Incoming.grant`."""
        self._incoming.grant(size)

    def stalled(self, now: float) -> float:
        """For how many seconds the large frame under way has not gone on; 0 if there is none."""
        if not self._incoming.granted:
            return 0.0
        return self._progress.stalled(self._inbox.arrived, self._inbox.under_way, now)

    def rest(self) -> None:
        """Take note that nothing of a large frame is to be read for now."""
        self._progress.begin()

    # -- reading

    async def frames(self) -> Iterator[Buffer] | None:
        """The frames that are complete now; ``None`` if the peer sends no more."""
        while True:
            await self._readable()
            try:
                frames = self._incoming.read(self._socket)
            except BlockingIOError:
                self._turn = 0
                continue
            except OSError:  # the peer is gone
                return None
            finally:  # also bytes that are no TLS
                self._traffic.read(self._incoming.count)
            self._turn = self._turn - self._incoming.count if self._incoming.more else 0
            return frames

    async def piece(self, most: int) -> bytes | None:
        """The next bytes, at most so many, in memory of their own; ``None`` if the peer sends no more."""
        while True:
            await self._readable()
            try:
                data = self._socket.recv(wanted := min(most, _PIECE))
            except BlockingIOError:
                self._turn = 0
                continue
            except OSError:  # the peer is gone
                return None
            self._traffic.read(len(data))
            self._turn = self._turn - len(data) if len(data) == wanted else 0
            return data or None

    async def _readable(self) -> None:
        """Wait for bytes, unless there may be more of the last ones and the turn is not over, or none will come."""
        if self._turn <= 0 and not (self._incoming.stopped or self._incoming.ended):
            self.is_waiting = self._was_active = True
            await trio.lowlevel.wait_readable(self._socket)
            self.is_waiting, self._turn = False, _TURN_BYTES
