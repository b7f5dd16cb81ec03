"""Producers of the proxy's own, which are lent to clients without a producer id.

Rules:
- A client without a producer id is lent a producer, which is its alone until it leaves and everything of it is settled.
- One that has no id yet is not kept for others: ids are asked for only while somebody waits for one.
"""

from collections.abc import Callable, Sequence
from functools import partial

from ottla.proxy.upstream.control import Control, Identity
from ottla.proxy.upstream.producer import Producer


class Lent:
    """The proxy's own producers.

    Args:
        identified: called with one that has got its producer id.

    Attributes:
        is_a_clients: whether a client has this producer id: upstream has lost its data, and gives it again.
    """

    def __init__(self, control: Control, identified: Callable[[Producer], None]) -> None:
        self._control, self._identified = control, identified
        self.is_a_clients: Callable[[int], bool] = lambda _: False
        self._of: dict[int, Producer] = {}
        """Client -> the one that it has."""
        self._free: list[Producer] = []
        """Those that nobody has; something of them may still be under way."""

    def to(self, client: int) -> Producer:
        """The one that sends for a client."""
        if client not in self._of:
            idle = next((each for each in self._free if each.idle), None)
            if idle is not None:
                self._free.remove(idle)
            self._of[client] = idle or Producer()
        return self._of[client]

    def back(self, client: int) -> None:
        """The client has gone."""
        if producer := self._of.pop(client, None):
            self._free.append(producer)
            self.sweep()

    @property
    def of_the_gone(self) -> Sequence[Producer]:
        """Those whose clients have gone."""
        return tuple(self._free)

    def use_up(self, producer: Producer) -> None:
        """A producer has had every epoch: the client that has it gets another."""
        self._of = {client: each for client, each in self._of.items() if each is not producer}
        self._free = [each for each in self._free if each is not producer]

    def sweep(self) -> None:
        """Forget those for which no id has come, and nothing waits any more."""
        gone = {each for each in self._free if each.producer_id is None and each.idle}
        if gone:
            self._free = [each for each in self._free if each not in gone]
            for each in gone:
                self._control.withdraw_identity(each)

    def has_id(self, producer: Producer) -> bool:
        """Whether there is a producer id; if there is none, one is requested."""
        if producer.producer_id is None:
            self._control.request_identity(producer, partial(self._identify, producer))
        return producer.producer_id is not None

    def of_id(self, producer_id: int) -> list[Producer]:
        """Those that have this producer id."""
        return [each for each in (*self._of.values(), *self._free) if each.producer_id == producer_id]

    def _identify(self, producer: Producer, identity: Identity, now: float) -> None:
        if self.is_a_clients(identity[0]):  # two of one id would take each other's sequences for their own
            self.has_id(producer)
            return
        producer.producer_id, producer.epoch = identity
        for stream in producer.streams.values():
            stream.renewed(producer.epoch)
        self._identified(producer)
