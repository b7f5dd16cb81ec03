"""What the machines of this folder need of the client that they are part of; `ClientCore` is one."""

from collections.abc import Callable, Container
from typing import Any, Protocol

from ottla.errors import OttlaError
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import Node
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer


class Client(Protocol):
    """Time, requests, and the client's end."""

    options: Options
    closed: OttlaError | None

    def later(self, when: float, call: Callable[[float], None]) -> Timer:
        """Call ``call(now)`` at ``when``."""
        ...

    def soon(self, call: Callable[[float], None]) -> Timer:
        """Call ``call(now)`` within the next `poll`."""
        ...

    def fail_on_close(self, outcome: Outcome[Any]) -> None:
        """Fail ``outcome`` when the client is closed."""
        ...

    def backoff(self, failures: int) -> float:
        """Seconds before the next attempt."""
        ...

    def submit(self, node: Node, exchange: Exchange, now: float) -> None:
        """Send a request to ``node``."""
        ...

    def other_node(self, but: Container[int]) -> Node | None:
        """A node to ask what any broker can answer, whose id is not among ``but``."""
        ...


class MetadataClient(Client, Protocol):
    """What follows from metadata besides."""

    @property
    def missing(self) -> str:
        """Why no connection can begin; empty if one can."""
        ...

    def silence(self, node: Node) -> str:
        """The usual cause of a node's silence; empty where there is none."""
        ...

    def nodes_changed(self, now: float) -> None:
        """The nodes of the cluster may be others, or have other addresses."""
        ...

    def give_up(self, node: Node, why: str, now: float) -> None:
        """Close the connections to a node that is of no use."""
        ...

    def give_up_all(self, why: str, now: float) -> None:
        """Close all connections."""
        ...

    def find(self) -> None:
        """Have the driver look for other bootstrap addresses."""
        ...
