"""The service behind a listener, as its connections see it."""

from typing import TYPE_CHECKING, Protocol

from ottla.codec.wire import Buffer

if TYPE_CHECKING:
    from ottla.serve.connection import AcceptedConnection
    from ottla.serve.pending_answer import PendingAnswer


class Service(Protocol):
    """The service behind a listener. Its methods must not block."""

    def connected(self, connection: "AcceptedConnection") -> None: ...

    def request(self, connection: "AcceptedConnection", frame: Buffer, answer: "PendingAnswer") -> None:
        """Handle a frame (without its length); fill ``answer`` now or later.

        The memory of a frame is reused once there is no view of it any more.

        Raises:
            RemoteProtocolError: the frame violates the protocol; the connection is closed.
        """

    def begins_passage(self, connection: "AcceptedConnection", size: int, start: bytes) -> bool:
        """Whether to pass on a large frame piece by piece as its bytes arrive: `begin`, and then `go_on`.

        Args:
            size: of the frame, without its length.
            start: its bytes so far, at least 4.
        """
        return False

    def begin(self, connection: "AcceptedConnection", size: int, start: bytes, answer: "PendingAnswer") -> None:
        """Handle the beginning of such a frame, after `begins_passage`."""
        raise AssertionError("this service takes whole frames only")

    def go_on(self, connection: "AcceptedConnection", data: bytes) -> None:
        """Handle its next bytes. If the connection ends before the last ones, only `disconnected` tells of it."""
        raise AssertionError("this service takes whole frames only")

    def handed_out(self, connection: "AcceptedConnection") -> None:
        """All frames that arrived together have been passed to `request`: a service may now handle them in one go."""

    def lost(self, connection: "AcceptedConnection") -> None:
        """The peer of a held connection is gone, and takes no answers. Its earlier requests are still handed over.

        It may be called several times while the connection is held.
        """

    def disconnected(self, connection: "AcceptedConnection") -> None: ...
