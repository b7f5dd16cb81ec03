"""The requests of one connection in their order: those that wait, and those that the driver has.

Rules:
- A broker answers in the order of the requests: an answer that is not to the oldest one breaks the protocol.
- One `Send` at a time is in the driver's hands, of 64 kB and a request at most, until the driver reports `Written`.
  All other requests wait here, where they can be withdrawn.
- The parts of a large request are handed over as they are; small parts are joined.
- A request without an answer (acks=0) ends when it is written.

Source: InFlightRequests.java.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from ottla.codec import frames
from ottla.codec.inbox import LARGE
from ottla.codec.wire import Buffer
from ottla.errors import OttlaError, RemoteProtocolError
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.peer import Traffic
from ottla.sdk.connection.versions import FITTED
from ottla.sdk.events import Key, Send

SEND_BYTES = 64 * 2**10
"""Bytes from which on no further request is put into the same `Send`: what the driver has cannot be withdrawn."""

Refused = list[tuple[Exchange, OttlaError]]


class Pipeline:
    """The requests of the connection ``key``; ``client_id`` is in the header of each."""

    def __init__(self, key: Key, traffic: Traffic, client_id: str) -> None:
        self._key, self._traffic, self._client_id = key, traffic, client_id
        self.waiting: OrderedDict[Exchange, None] = OrderedDict()
        """Not handed to the driver yet."""
        self.in_flight: deque[Exchange] = deque()
        """Handed to the driver, and to be answered."""
        self._unwritten: list[Exchange] | None = None
        """Those without an answer in the `Send` that the driver has; ``None`` when everything is written."""
        self._correlation_id = 0

    @property
    def load(self) -> int:
        """Requests that have not ended."""
        return len(self.waiting) + len(self.in_flight) + len(self._unwritten or ())

    @property
    def writing(self) -> bool:
        """The driver has not reported the last `Send` as written."""
        return self._unwritten is not None

    def add(self, exchange: Exchange, now: float) -> None:
        exchange.since, exchange.withdraw = now, self._withdraw
        self.waiting[exchange] = None

    def _withdraw(self, exchange: Exchange) -> None:
        if self.remove(exchange):
            exchange.settle(None, exchange.since)

    def remove(self, exchange: Exchange) -> bool:
        """Take it out of what waits; ``False`` if the driver has it."""
        if exchange not in self.waiting:
            return False
        del self.waiting[exchange]
        return True

    def next(self, version: Callable[[Exchange], int], now: float) -> tuple[Send | None, Refused]:
        """As much of what waits as the driver is given at once; and what cannot be sent, each with the reason.

        Args:
            version: the version in which a request is sent; may raise `UnsupportedVersion`.
        """
        out: list[Buffer] = []
        size = 0
        refused: Refused = []
        while self.waiting and size < SEND_BYTES:
            exchange, _ = self.waiting.popitem(last=False)
            try:
                exchange.version = version(exchange)
                if exchange.build:
                    exchange.message = exchange.build(exchange.version)
                elif fit := FITTED.get(exchange.kind):
                    exchange.message = fit(exchange.message, exchange.version)
                parts, more = self._encode(exchange, now)
            except OttlaError as error:  # it cannot be said in this version, or not at all
                refused.append((exchange, error))
            else:
                exchange.withdraw = None
                out += parts
                size += more
        return self._send(out, size, now) if out else None, refused

    def send_first(self, exchange: Exchange, now: float) -> Send:
        """A request of the handshake, ahead of all that waits."""
        return self._send(*self._encode(exchange, now), now)

    def _encode(self, exchange: Exchange, now: float) -> tuple[Sequence[Buffer], int]:
        """The parts of a request, and how many bytes they have."""
        correlation_id = self._correlation_id
        parts = frames.build_request_parts(exchange.message, exchange.version, correlation_id, self._client_id)
        size = sum(map(len, parts))
        exchange.correlation_id, exchange.sent_at = correlation_id, now
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._traffic.requests.add(1, now)
        self._traffic.sizes.record(size, now)
        if self._unwritten is None:
            self._unwritten = []
        if exchange.one_way:
            self._unwritten.append(exchange)
        else:
            self.in_flight.append(exchange)
            self._traffic.in_flight.add(1)
        return parts, size

    def _send(self, parts: Sequence[Buffer], size: int, now: float) -> Send:
        self._traffic.sent.add(size, now)
        self._traffic.operations.add(1, now)
        return Send(self._key, _joined(parts))

    def written(self) -> Iterable[Exchange]:
        """The driver has written what it had; those of it that have ended by that."""
        ended, self._unwritten = self._unwritten or (), None
        return ended

    def answered(self, frame: Buffer, now: float) -> Exchange:
        """The request that ``frame``, without its length, is the answer to.

        Raises:
            RemoteProtocolError: it is not the oldest one's.
        """
        if not self.in_flight:
            raise RemoteProtocolError("an answer to no request")
        exchange = self.in_flight[0]
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or correlation_id != exchange.correlation_id:
            raise RemoteProtocolError(f"answer {correlation_id} where {exchange.correlation_id} was due")
        self.in_flight.popleft()
        self._traffic.responses.add(1, now)
        self._traffic.in_flight.add(-1)
        return exchange

    def drop_sent(self) -> list[Exchange]:
        """The connection has ended: take out what the driver had."""
        sent = [*self.in_flight, *(self._unwritten or ())]
        self._traffic.in_flight.add(-len(self.in_flight))
        self.in_flight.clear()
        self._unwritten = None
        return sent

    def drop_waiting(self) -> list[Exchange]:
        """Take out what waits."""
        waiting, self.waiting = self.waiting, OrderedDict()
        return [*waiting]


def _joined(parts: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Each run of small parts as one."""
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < LARGE:
            small.append(part)
        else:
            if small:
                joined.append(b"".join(small))
                small.clear()
            joined.append(part)
    if small:
        joined.append(b"".join(small))
    return tuple(joined)
