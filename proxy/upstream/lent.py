"""Lends the proxy's own producers to clients without a producer id.

Rules:
- A client without a producer id gets a producer for itself alone. The producer can serve another client of the same
  user only after its client has disconnected and all its batches are settled.
- An idle producer without an id is dropped, so that ids are allocated only while a client waits for one.
- If upstream denies the proxy producer ids, waiting clients get the error.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial

from ottla.errors import BrokerError, NotEnoughReplicas
from ottla.proxy.upstream.batches import PartResult
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.principals import Principal
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.producer_id_requests import Identity

USED_UP = PartResult(NotEnoughReplicas.code, message="the proxy needs another producer id, retry the batch")
"""The outcome of unsent parts whose lent producer is used up."""

Identified = Callable[[UpstreamProducer], None]


class Lent:
    """Lends the proxy's own producers to clients.

    Args:
        of_clients: the producer ids of clients: upstream allocates an id twice if it has lost its data.
        denied: called with a producer when upstream denies it an id, and with the error.
    """

    def __init__(
        self,
        control: Control,
        of_clients: Container[int],
        denied: Callable[[UpstreamProducer, BrokerError, float], None],
    ) -> None:
        self._control, self._of_clients, self._denied = control, of_clients, denied
        self._of: dict[int, UpstreamProducer] = {}
        """Client -> the producer lent to it."""
        self._free: list[UpstreamProducer] = []
        """Producers without a client; they may still have batches under way."""

    def to(self, client: int, principal: Principal | None = None) -> UpstreamProducer:
        """The producer that sends for a client, as its user; ``None``: as the proxy itself."""
        if client not in self._of:
            idle = next((each for each in self._free if each.idle and each.principal is principal), None)
            if idle is not None:
                self._free.remove(idle)
                idle.freed()
            self._of[client] = idle or UpstreamProducer(principal=principal)
        return self._of[client]

    def serves(self, client: int) -> bool:
        """Whether a producer is lent to a client, which is still connected then."""
        return client in self._of

    def back(self, client: int) -> None:
        """Take back the producer of a client that has disconnected."""
        if producer := self._of.pop(client, None):
            self._free.append(producer)
            self.sweep()

    @property
    def of_the_gone(self) -> Sequence[UpstreamProducer]:
        """The producers whose clients have disconnected."""
        return tuple(self._free)

    @property
    def idle(self) -> bool:
        """No records of clients without a producer id are under way."""
        return all(each.idle for each in (*self._of.values(), *self._free))

    def use_up(self, producer: UpstreamProducer) -> None:
        """Stop lending a producer whose epochs are exhausted; its client gets another one."""
        self._of = {client: each for client, each in self._of.items() if each is not producer}
        self._free = [each for each in self._free if each is not producer]

    def sweep(self) -> None:
        """Drop idle producers without an id, and withdraw their requests for one."""
        gone = {each for each in self._free if each.producer_id is None and each.idle}
        if gone:
            self._free = [each for each in self._free if each not in gone]
            for each in gone:
                self._control.producer_ids.withdraw(each)

    def has_id(self, producer: UpstreamProducer, identified: Identified) -> bool:
        """Whether a producer has an id; if not, requests one, and then calls ``identified`` with the producer."""
        if producer.producer_id is None:
            self._control.producer_ids.request(producer, partial(self._identify, producer, identified))
        return producer.producer_id is not None

    def of_id(self, producer_id: int) -> list[UpstreamProducer]:
        """The producers with this producer id."""
        return [each for each in (*self._of.values(), *self._free) if each.producer_id == producer_id]

    def _identify(
        self, producer: UpstreamProducer, identified: Identified, told: Identity | BrokerError, now: float
    ) -> None:
        if isinstance(told, BrokerError):
            self._denied(producer, told, now)
        elif told[0] in self._of_clients:  # upstream would mix up the sequences of two producers with one id
            self.has_id(producer, identified)
        else:
            producer.identify(*told)
            identified(producer)
