"""The bytes of one connection: outgoing parts, and incoming frames, in plain text or inside TLS.

Rules:
- In plain text, parts go out without a copy, and a driver reads large frames into their buffer.
- Inside TLS, incoming bytes are decrypted into that buffer.

Source: SslTransportLayer.java, PlaintextTransportLayer.java.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.codec.inbox import LARGE, Inbox
from ottla.codec.wire import Buffer

if TYPE_CHECKING:
    from ottla.tls import TlsConnection  # given by the caller: a machine does not import OpenSSL


class Wire:
    """The bytes of a new connection; ``tls`` is the client's side of TLS, which has not begun."""

    def __init__(self, tls: "TlsConnection | None" = None) -> None:
        self._tls = tls
        self._inbox = Inbox()
        self._answers: list[Buffer] = []

    @property
    def agreed(self) -> bool:
        """Whether requests can be sent."""
        return self._tls is None or self._tls.agreed

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
            yield from self._inbox.feed(data)
            return
        self._answers.append(self._tls.feed(data))
        while self._tls.agreed:
            if (room := self._inbox.room) is not None:
                if not (count := self._tls.read_into(room)):
                    break
                yield from self._inbox.filled(count)
            elif plain := self._tls.read(LARGE):
                yield from self._inbox.feed(plain)
            else:
                break

    @property
    def room(self) -> memoryview | None:
        """The buffer for the rest of a large frame; the driver reports with `filled` how much it received."""
        return self._inbox.room if self._tls is None else None

    def filled(self, count: int) -> Iterator[Buffer]:
        """So many bytes were received into `room`; yields the frame, if it is complete now."""
        return self._inbox.filled(count)
