"""What goes into the proxy's machine (events) and what comes out of it (actions).

Clients and upstream connections are numbers: a client's is the listener's, an upstream connection's counts up in the
machine, so that late news of an old connection is about a number that nobody knows any more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.codec.wire import Buffer
from ottla.sdk.events import RunInThread, TokenFetched

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Requested:
    """A client sent a frame (without its length) on the port of ``node``.

    Attributes:
        ticket: its place for the answer.
        peer: the client's ``host:port``, for logs.
    """

    client: int
    node: int
    ticket: int
    frame: Buffer
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """A client's connection has ended."""

    client: int


@dataclass(frozen=True, slots=True)
class Connected:
    link: int


@dataclass(frozen=True, slots=True)
class Received:
    """An upstream connection brought bytes."""

    link: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """An upstream connection ended, or could not be made."""

    link: int
    why: str


@dataclass(frozen=True, slots=True)
class Listening:
    """The port for a node is open, and clients are told ``port``; ``None``: it could not be opened."""

    node: int
    port: int | None


@dataclass(frozen=True, slots=True)
class Worked:
    """What a `Work` came to."""

    number: int
    result: Any


Event = Requested | Left | Connected | Received | Lost | Listening | Worked | TokenFetched


@dataclass(frozen=True, slots=True)
class Answer:
    """Give a client the parts of a whole frame for its request; none at all where the request has no answer."""

    client: int
    ticket: int
    parts: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class CloseClient:
    """Close a client's connection without another answer."""

    client: int
    why: str


@dataclass(frozen=True, slots=True)
class HoldClients:
    """Do not read from these clients (or do again): there is no room for what they produce."""

    clients: frozenset[int]
    held: bool


@dataclass(frozen=True, slots=True)
class Connect:
    """Open an upstream connection; ``client`` is whom it is for, where it is for one alone."""

    link: int
    address: Address
    client: int | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send these, one after the other."""

    link: int
    parts: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Shut down the writing half once upstream has taken all bytes; `Lost` follows when upstream closes."""

    link: int


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close an upstream connection at once, whatever upstream has not taken yet."""

    link: int


@dataclass(frozen=True, slots=True, match_args=False)
class Store:
    """Append an entry to a segment of the journal, before anything else is done.

    Attributes:
        segment: its number; one that is not there yet begins with it.
        parts: the entry, framed. Their memory is that of clients' requests, which is used again later.
        obsolete: the segments before this one are of no use behind it.
    """

    __match_args__ = ("segment", "data", "obsolete")

    segment: int
    parts: tuple[Buffer, ...]
    obsolete: int = 0

    @property
    def data(self) -> bytes:
        """The entry in one piece."""
        return b"".join(self.parts)


@dataclass(frozen=True, slots=True)
class Listen:
    """Open the port for a node of upstream."""

    node: int


@dataclass(frozen=True, slots=True)
class Work:
    """Call ``call()`` in a thread, which takes long and raises nothing; answer with `Worked`, in any order."""

    number: int
    call: Callable[[], Any]


Action = Answer | CloseClient | HoldClients | Store | Connect | Send | Finish | Disconnect | Listen | Work | RunInThread
