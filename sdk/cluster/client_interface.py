"""The interface that this folder's machines need from their client; `ClientCore` implements it."""

from collections.abc import Callable, Container
from typing import Any, Protocol

from ottla.errors import OttlaError
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import Node
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer


class ClientInterface(Protocol):
    """Gives a machine time, requests, and notice of the client's close."""

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
        """A node for a request that any broker can answer; its id is not in ``but``."""
        ...


class MetadataClient(ClientInterface, Protocol):
    """Adds what `Metadata` needs: connections to close, and bootstrap addresses to look up."""

    @property
    def missing(self) -> str:
        """Why no connection can be opened; empty if one can."""
        ...

    def usual_cause(self, node: Node) -> str:
        """The usual cause if this node does not answer; empty if there is none."""
        ...

    def nodes_changed(self, now: float) -> None:
        """Take note that the cluster's nodes, or their addresses, may have changed."""
        ...

    def give_up(self, node: Node, why: str, now: float) -> None:
        """Close the connections to a node that cannot be used."""
        ...

    def give_up_all(self, why: str, now: float) -> None:
        """Close all connections."""
        ...

    def find(self) -> None:
        """Have the driver look for other bootstrap addresses."""
        ...
