"""The input (events) and output (actions) of the proxy's state machine.

Clients and upstream connections have numbers. The listener numbers clients, the machine upstream connections. No number
is used twice, so a late event of an old connection has an unknown number and is ignored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.client_info import ClientInfo
from ottla.codec.wire import Buffer
from ottla.proxy.acl_rules import AclRules
from ottla.proxy.topic_rule import TopicRule
from ottla.sdk.events import RunInThread, TokenFetched

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Requested:
    """A client sent a frame (without its length) on the port of ``node``.

    Attributes:
        ticket: the place of its response.
        peer: the client's ``host:port``, for logs.
        listener: the number of the listener, in the order of the configuration.
        info: who the client is; ``None``: an anonymous one.
    """

    client: int
    node: int
    ticket: int
    frame: Buffer
    peer: str = ""
    listener: int = 0
    info: ClientInfo | None = None


@dataclass(frozen=True, slots=True)
class RequestBegan:
    """A client has sent the beginning of a large frame that is passed on piece by piece (`ProxyCore.begins_passage`).

    Attributes:
        size: of the whole frame, without its length.
        start: its bytes so far.
    """

    client: int
    ticket: int
    size: int
    start: bytes


@dataclass(frozen=True, slots=True)
class RequestContinued:
    """A client has sent more bytes of a frame that is passed on piece by piece."""

    client: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class Left:
    """A client's connection has ended."""

    client: int


@dataclass(frozen=True, slots=True)
class UpstreamConnected:
    link: int


@dataclass(frozen=True, slots=True)
class UpstreamReceived:
    """Bytes arrived on an upstream connection. Pieces of frames that are passed on are views of them."""

    link: int
    data: bytes


@dataclass(frozen=True, slots=True)
class UpstreamPaused:
    """An upstream connection is not read, because its client reads more slowly; or (``False``) it is read again."""

    link: int
    paused: bool


@dataclass(frozen=True, slots=True)
class UpstreamLost:
    """An upstream connection ended, or could not be opened."""

    link: int
    why: str


@dataclass(frozen=True, slots=True)
class Listening:
    """A broker's ports are open, one for each listener.

    Attributes:
        ports: the ports that clients get, in the order of the listeners; ``None``: one of them could not be opened.
    """

    node: int
    ports: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class RulesChanged:
    """The operator has changed the topic rules."""

    rules: tuple[TopicRule, ...]


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """The operator has changed the ACLs."""

    acls: AclRules | None


@dataclass(frozen=True, slots=True)
class Worked:
    """The result of a `Work`."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class JournalLost:
    """An entry could not be stored, and the journal was abandoned.

    Attributes:
        why: the reason, which the log has.
    """

    why: str


Event = (
    Requested
    | RequestBegan
    | RequestContinued
    | Left
    | UpstreamConnected
    | UpstreamReceived
    | UpstreamPaused
    | UpstreamLost
    | Listening
    | RulesChanged
    | AccessChanged
    | Worked
    | JournalLost
    | TokenFetched
)


@dataclass(frozen=True, slots=True)
class AnswerClient:
    """Answer a client's request with a frame, in parts; no parts if the request has no response.

    Attributes:
        errors: the error codes in the response, if the proxy knows them.
        left: bytes of the frame that further actions bring, because upstream has not sent them yet.
    """

    client: int
    ticket: int
    parts: tuple[Buffer, ...]
    errors: Sequence[int] = ()
    left: int = 0


@dataclass(frozen=True, slots=True)
class CloseClient:
    """Close a client's connection without further responses.

    Attributes:
        told: the log has the reason already.
    """

    client: int
    why: str
    told: bool = False


@dataclass(frozen=True, slots=True)
class ClientRefused:
    """Upstream has refused the login of a client, which may try again on its connection.

    Attributes:
        kind: what counts as the same failure; see `Complaints`.
    """

    client: int
    why: str
    kind: str


@dataclass(frozen=True, slots=True)
class WelcomeClient:
    """Upstream has let a client in that logs in there itself."""

    client: int


@dataclass(frozen=True, slots=True)
class HoldClients:
    """Pause reading from these clients, because the buffer is full, or resume it."""

    clients: frozenset[int]
    held: bool


@dataclass(frozen=True, slots=True)
class ConnectUpstream:
    """Open an upstream connection, for one client or (``None``) for the proxy itself."""

    link: int
    address: Address
    client: int | None


@dataclass(frozen=True, slots=True)
class SendUpstream:
    """Send these parts in order.

    Attributes:
        left: bytes of the frame that further actions bring, because its client has not sent them yet.
    """

    link: int
    parts: tuple[Buffer, ...]
    left: int = 0


@dataclass(frozen=True, slots=True)
class FinishUpstream:
    """Shut down the writing half once all bytes are written; `UpstreamLost` follows when upstream closes."""

    link: int


@dataclass(frozen=True, slots=True)
class DisconnectUpstream:
    """Close an upstream connection at once, even with unwritten bytes."""

    link: int


@dataclass(frozen=True, slots=True, match_args=False)
class Store:
    """Append an entry to a segment of the journal, before any other action; `JournalLost` follows if that fails.

    Attributes:
        segment: the number of the segment, which is created if it does not exist.
        parts: the entry, framed. They share memory with clients' requests, which is reused later.
        obsolete: with this entry the segments from this one on have the whole state: older ones are removed, and a
            journal that was abandoned is valid again.
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
class AbandonJournal:
    """Remove the journal, before any other action: no process may trust it until a `Store` makes it whole again."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Open the port for one of upstream's brokers."""

    node: int


@dataclass(frozen=True, slots=True)
class Work:
    """Run ``call()``, which takes long and does not raise, in a thread; `Worked` follows, in any order."""

    number: int
    call: Callable[[], Any]


Action = (
    AnswerClient
    | CloseClient
    | ClientRefused
    | WelcomeClient
    | HoldClients
    | Store
    | AbandonJournal
    | ConnectUpstream
    | SendUpstream
    | FinishUpstream
    | DisconnectUpstream
    | Listen
    | Work
    | RunInThread
)
