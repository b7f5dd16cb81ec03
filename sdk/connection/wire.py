"""What travels on one connection: parts that go out, and frames that come in, in the clear or within TLS.

Rules:
- In the clear nothing is copied here: parts go out as they are, and a driver reads large frames into their place.
- Within TLS what arrives is decrypted into that place.

Source: SslTransportLayer.java, PlaintextTransportLayer.java.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.codec.inbox import LARGE, Inbox
from ottla.codec.wire import Buffer

if TYPE_CHECKING:
    from ottla.tls import TlsConnection  # a machine is given it: by itself it knows of no OpenSSL


class Wire:
    """Of a connection that was just made; ``tls`` is the client's side, which has not begun."""

    def __init__(self, tls: "TlsConnection | None" = None) -> None:
        self._tls = tls
        self._inbox = Inbox()
        self._answers: list[Buffer] = []

    @property
    def agreed(self) -> bool:
        """Requests can be sent."""
        return self._tls is None or self._tls.agreed

    def begin(self) -> None:
        """The driver has connected."""
        if self._tls:
            self._answers.append(self._tls.begin())

    def take_answers(self) -> tuple[Buffer, ...]:
        """What is to be sent for TLS itself, once."""
        answers, self._answers = self._answers, []
        return tuple(each for each in answers if each)

    def seal(self, parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        """As what these parts travel."""
        return self._tls.seal(parts) if self._tls else parts

    def finish(self) -> tuple[Buffer, ...]:
        """What is sent last: that this side ends TLS, or why it has failed."""
        last = b"" if self._tls is None else self._tls.finish()
        return (last,) if last else ()

    def feed(self, data: Buffer) -> Iterator[Buffer]:
        """Take what has arrived; iterate over the frames that are whole now, without their lengths.

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
        """Where a driver may put the rest of a large frame; it then says how much it `filled`."""
        return self._inbox.room if self._tls is None else None

    def filled(self, count: int) -> Iterator[Buffer]:
        """So many bytes were put into `room`; the frame, if it is whole now."""
        return self._inbox.filled(count)
