"""The bytes of one connection: outgoing parts, and incoming frames, in plain text or inside TLS.

Rules:
- In plain text, parts go out without a copy, and a driver reads large frames into their buffer.
- TLS is one more machine (`ottla.tls`), between the driver's bytes and these. Incoming bytes are decrypted into that
  buffer. A driver cannot read into it, because the bytes that it reads are not yet the response.
- A large frame may be passed on in pieces as its bytes arrive (`Begins`): then no buffer holds it.

Source: SslTransportLayer.java, PlaintextTransportLayer.java.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.codec.inbox import LARGE, Blocks, Inbox
from ottla.codec.wire import Buffer

if TYPE_CHECKING:
    from ottla.tls import TlsConnection  # given by the caller: a machine does not import OpenSSL


Sink = Callable[[Buffer, int], None]
"""Gets a piece of a frame, and the number of bytes that follow it."""
Begins = Callable[[int, bytes], Sink | None]
"""Called with the size and the first bytes of a large frame, after the frames before it; returns the sink for its
pieces, or ``None`` to have it collected. Its length is not among the bytes."""


class Wire:
    """The bytes of a new connection.

    Args:
        tls: the client's side of TLS, which has not begun.
        begins: decides which large frames are passed on in pieces; by default none is.
        blocks: memory of large frames, shared with other connections.

    Attributes:
        left: bytes that are missing of a frame that is passed on in pieces.
    """

    def __init__(
        self, tls: "TlsConnection | None" = None, begins: Begins | None = None, blocks: Blocks | None = None
    ) -> None:
        self._tls, self._begins = tls, begins
        self._inbox = Inbox(blocks=blocks)
        self._answers: list[Buffer] = []
        self._sink: Sink | None = None
        self.left = 0

    @property
    def agreed(self) -> bool:
        """Whether requests can be sent."""
        return self._tls is None or self._tls.agreed

    @property
    def ended(self) -> bool:
        """The broker has ended TLS: it sends no more, though it may keep the connection open."""
        return self._tls is not None and self._tls.ended

    def begin(self) -> None:
        """The driver has connected."""
        if self._tls:
            self._answers.append(self._tls.begin())

    def take_answers(self) -> tuple[Buffer, ...]:
        """Take the bytes that TLS itself has to send."""
        answers, self._answers = self._answers, []
        return tuple(each for each in answers if each)

    def seal(self, parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        """Encrypt the parts, if there is TLS."""
        return self._tls.seal(parts) if self._tls else parts

    def finish(self) -> tuple[Buffer, ...]:
        """The last bytes to send: the end of TLS, or an alert that says why it failed."""
        last = b"" if self._tls is None else self._tls.finish()
        return (last,) if last else ()

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Take incoming bytes; iterate over the frames that are now complete, without their lengths.

        Raises:
            RemoteProtocolError: (while iterating) as `FrameReader.feed`.
            AuthenticationFailed, ConnectionLost: (while iterating) as `TlsConnection.feed`.
        """
        if self._tls is None:
            yield from self._cut(data)
            return
        self._answers.append(self._tls.feed(data))
        while self._tls.agreed:
            if (room := self._inbox.room) is not None:
                if not (count := self._tls.read_into(room)):
                    break
                yield from self._inbox.filled(count)
            elif plain := self._tls.read(LARGE):
                yield from self._cut(plain)
            else:
                break

    def _cut(self, data: Buffer) -> Iterator[Buffer]:
        if self.left:
            data = self._pass_on(data)
            if not data:
                return
        yield from self._inbox.feed(data)
        if self._begins is None or (begun := self._inbox.begun) is None:
            return
        self._sink = self._begins(self._inbox.under_way, begun)
        if self._sink is not None:
            self.left, begun = self._inbox.take_begun()
            self._pass_on(begun)

    def _pass_on(self, data: Buffer) -> Buffer:
        """Give a piece to the sink; return the bytes after the frame."""
        assert self._sink is not None, "only a frame with a sink is passed on"
        piece = data if len(data) <= self.left else memoryview(data)[: self.left]
        self.left -= len(piece)
        self._sink(piece, self.left)
        return memoryview(data)[len(piece) :]

    @property
    def needs(self) -> int:
        """Bytes of memory that a large frame needs to be collected further; 0 if there is none."""
        return self._inbox.needs

    @property
    def arrived(self) -> int:
        """Bytes so far of the frame under way."""
        return self._inbox.arrived + self._inbox.pending

    @property
    def pending(self) -> int:
        """Bytes of an incomplete small frame."""
        return self._inbox.pending

    @property
    def room(self) -> memoryview | None:
        """The buffer for the rest of a large frame; the driver reports with `filled` how much it received."""
        return self._inbox.room if self._tls is None else None

    def filled(self, count: int) -> Iterator[Buffer]:
        """So many bytes were received into `room`; yields the frame, if it is complete now."""
        return self._inbox.filled(count)
