"""What goes in and out of `ClientCore`: events and actions, as plain values.

A connection is named by its key ``(node id, channel)``: requests that wait at the broker have a channel of their own,
so that nothing else waits behind them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.wire import Buffer

if TYPE_CHECKING:
    from ottla.sasl import Token

Key = tuple[int, str]
DATA = "data"
"""The ordinary channel of a node."""
FETCH = "fetch"
"""The channel of fetches, which wait at the broker for records."""
PRODUCE = "produce"
"""The channel of Produce, which waits at the broker for replicas."""


class Node(NamedTuple):
    """A broker; bootstrap addresses have negative ids."""

    id: int
    host: str
    port: int
    rack: str | None = None


def logged(node: Node) -> int | str:
    """What the log calls it: its id, where that is known."""
    return node.id if node.id >= 0 else "bootstrap"


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection to ``host:port``; answer with `Connected` or `Lost`.

    After a failed ``attempt`` (they are counted from 0) another address of the same name may do better.
    """

    key: Key
    host: str
    port: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Send:
    """Write all ``parts``, in their order; answer with `Written` once the socket has taken the last byte.

    A connection hands out no other `Send` before that.
    """

    key: Key
    parts: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Write nothing more to the connection, and shut down its writing half; `Lost` is expected when it ends."""

    key: Key


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection (or stop connecting); no `Lost` is expected.

    Before that ``last`` is written, as far as the system takes it at once.
    """

    key: Key
    last: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True)
class RunInThread:
    """Call ``call()``, which may block for long and raises nothing, beside all else; answer with what it returns.

    Where the system allows no more threads, the answer is ``otherwise``.
    """

    call: Callable[[], "Found | TokenFetched"]
    otherwise: "Found | TokenFetched"


class Place(Enum):
    """Where a driver with a thread of its own carries out a `Run`, and when; others do so where they are, in order."""

    HERE = "where the driver is, at once"
    CALLBACK = "in a thread of the user's, which called the client; in order, one at a time"
    BEHIND = "where the driver is, once the callbacks that were handed out before have returned"


@dataclass(frozen=True, slots=True)
class Run:
    """Call ``call()`` once everything else that was handed out with it is done, outside of the core's gate.

    It is, or holds, code of the user's, whose errors it takes care of; it may call anything.
    """

    call: Callable[[], object]
    place: Place = Place.HERE
    resumable: bool = False
    """Called once more, because Ctrl-C has cut it short, it goes on where it was."""


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
    """So many bytes arrived, and were put where `ClientCore.room` said."""

    key: Key
    count: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection, or the attempt to make it, ended; ``why`` is for people."""

    key: Key
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """The ``(host, port)`` of brokers; none where none were found."""

    addresses: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class TokenFetched:
    """A token for so many seconds, or the ``error`` instead."""

    token: "Token | None" = None
    lifetime: float = 0.0
    error: Exception | None = None


Action = Connect | Send | Finish | Close | RunInThread | Run
Event = Connected | Written | Received | Filled | Lost | Found | TokenFetched
