"""The events and actions of `ClientCore`, as plain values.

A connection is identified by its key ``(node id, channel)``: requests that wait at the broker have other channels, so
that no other request waits behind them.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.wire import Buffer
from ottla.late_dataclass import dataclass

if TYPE_CHECKING:
    from ottla.sasl import Token

Key = tuple[int, str]
GENERAL = "general"
"""The channel of all requests that need none of their own: metadata, commits, administrative calls, …"""
FETCH = "fetch"
"""The channel of the fetches of administrative reads, and the start of the names of each consumer's channels: a Fetch
waits at the broker for records."""
PRODUCE = "produce"
"""The channel of Produce, which waits at the broker for replicas."""


class Node(NamedTuple):
    """A broker; bootstrap addresses have negative ids."""

    id: int
    host: str
    port: int
    rack: str | None = None


def logged(node: Node) -> int | str:
    """The node's name in the log: its id, if that is known."""
    return node.id if node.id >= 0 else "bootstrap"


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection to ``host:port``; answer with `Connected` or `Lost`.

    After a failed ``attempt`` (counted from 0) another address of the same host name may work.
    """

    key: Key
    host: str
    port: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Send:
    """Write all ``parts``, in their order; answer with `Written` once the socket has taken the last byte.

    A connection hands out no further `Send` before that.
    """

    key: Key
    parts: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Write nothing more to the connection, and shut down its writing half; answer with `Lost` when it ends."""

    key: Key


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection (or stop connecting); there is no `Lost` in reply.

    Write ``last`` before that, as far as the system accepts it at once.
    """

    key: Key
    last: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True)
class RunInThread:
    """Call ``call()``, which may block for long and raises nothing, in a thread; answer with the event it returns.

    If the system allows no more threads, answer with ``otherwise``.
    """

    call: Callable[[], "Found | TokenFetched"]
    otherwise: "Found | TokenFetched"


class RunMode(Enum):
    """Where and when a driver with its own thread carries out a `Run`; other drivers do so in their own, in order."""

    HERE = "in the driver, at once"
    CALLBACK = "in a thread of the user's that called the client; in order, one at a time"
    BEHIND = "in the driver, once all callbacks that were handed out before have returned"


@dataclass(frozen=True, slots=True)
class Run:
    """Call ``call()`` once all actions handed out with it are carried out.

    It is code that must run outside of the core's gate: the user's callbacks, whose errors it handles, and outcomes
    settled after them. It may call anything.
    """

    call: Callable[[], object]
    mode: RunMode = RunMode.HERE
    resumable: bool = False
    """If Ctrl-C interrupts it, it can be called again and continues where it was."""


@dataclass(frozen=True, slots=True)
class Connected:
    key: Key


@dataclass(frozen=True, slots=True)
class Written:
    """The operating system has taken all bytes of the `Send`; whether they arrive is not known."""

    key: Key


@dataclass(frozen=True, slots=True)
class Received:
    key: Key
    data: bytes


@dataclass(frozen=True, slots=True)
class Filled:
    """So many bytes arrived, and were put into the buffer from `ClientCore.room`."""

    key: Key
    count: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection, or the attempt to open it, ended; ``why`` is for people."""

    key: Key
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """The ``(host, port)`` of brokers; empty if none were found."""

    addresses: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TokenFetched:
    """A token and its lifetime in seconds, or an ``error`` instead."""

    token: "Token | None" = None
    lifetime: float = 0.0
    error: Exception | None = None


Action = Connect | Send | Finish | Close | RunInThread | Run
Event = Connected | Written | Received | Filled | Lost | Found | TokenFetched
