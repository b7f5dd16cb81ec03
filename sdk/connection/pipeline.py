"""The requests of one connection, in order: first the requests that the driver has, then the waiting ones.

Rules:
- A broker answers in the order of the requests: a response that does not belong to the oldest one is an error.
- The driver has one `Send` at a time, of at most 64 kB plus one request, until it reports `Written`. All other requests
  wait here, where they can be withdrawn.
- The parts of a large request are handed over without a copy; small parts are joined.
- A request without a response (acks=0) ends when it is written.

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
from ottla.sdk.events import Key, Send
from ottla.sdk.timers import Timer

SEND_BYTES = 64 * 2**10
"""From this size on no further request joins the same `Send`: a request that the driver has cannot be withdrawn."""

Refused = list[tuple[Exchange, OttlaError]]


class Pipeline:
    """The requests of the connection ``key``; ``client_id`` is in the header of each."""

    def __init__(self, key: Key, traffic: Traffic, client_id: str) -> None:
        self._key, self._traffic, self._client_id = key, traffic, client_id
        self.waiting: OrderedDict[Exchange, None] = OrderedDict()
        """Not handed to the driver yet."""
        self.in_flight: deque[Exchange] = deque()
        """Handed to the driver, and not answered yet."""
        self._unwritten: list[Exchange] | None = None
        """Requests without a response in the driver's current `Send`; ``None`` when everything is written."""
        self._correlation_id = 0

    @property
    def load(self) -> int:
        """Requests that have not ended."""
        return len(self.waiting) + len(self.in_flight) + len(self._unwritten or ())

    @property
    def writing(self) -> bool:
        """Whether the driver has not yet reported the last `Send` as written."""
        return self._unwritten is not None

    def add(self, exchange: Exchange, timer: Timer, now: float) -> None:
        """Let a request wait to be sent; ``timer`` ends it at its deadline."""
        exchange.submit(now, timer, self._withdraw)
        self.waiting[exchange] = None

    def _withdraw(self, exchange: Exchange) -> None:
        if self.remove(exchange):
            exchange.settle(None, exchange.since)  # cancelled, or all its batches were taken out

    def remove(self, exchange: Exchange) -> bool:
        """Remove a waiting request; ``False`` if the driver has it."""
        if exchange not in self.waiting:
            return False
        del self.waiting[exchange]
        return True

    def next(self, version: Callable[[Exchange], int], now: float) -> tuple[Send | None, Refused]:
        """The next `Send` for the driver, and requests that cannot be sent, each with its error.

        Args:
            version: returns the version for a request; may raise `UnsupportedVersion`.
        """
        out: list[Buffer] = []
        size = 0
        refused: Refused = []
        while self.waiting and size < SEND_BYTES:
            exchange, _ = self.waiting.popitem(last=False)
            try:
                exchange.prepare(version(exchange))
                parts, more = self._encode(exchange, now)
            except OttlaError as error:  # it does not fit this version, or no version
                refused.append((exchange, error))
            else:
                out += parts
                size += more
        return self._send(out, size, now) if out else None, refused

    def send_first(self, exchange: Exchange, now: float) -> Send:
        """Send a request of the handshake, ahead of all waiting ones."""
        return self._send(*self._encode(exchange, now), now)

    def _encode(self, exchange: Exchange, now: float) -> tuple[Sequence[Buffer], int]:
        """The parts of a request, and their size in bytes."""
        correlation_id = self._correlation_id
        parts = frames.build_request_parts(exchange.message, exchange.version, correlation_id, self._client_id)
        size = sum(map(len, parts))
        exchange.sent(correlation_id, now)
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
        """The driver has written its `Send`; returns the requests that end with that."""
        ended, self._unwritten = self._unwritten or (), None
        return ended

    def answered(self, frame: Buffer, now: float) -> Exchange:
        """The request to which ``frame``, without its length, is the response.

        Raises:
            RemoteProtocolError: it does not belong to the oldest request.
        """
        if not self.in_flight:
            raise RemoteProtocolError("the broker sent a response without a request")
        exchange = self.in_flight[0]
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or correlation_id != exchange.correlation_id:
            raise RemoteProtocolError(f"response {correlation_id} where {exchange.correlation_id} was expected")
        self.in_flight.popleft()
        self._traffic.responses.add(1, now)
        self._traffic.in_flight.add(-1)
        return exchange

    def drop_sent(self) -> list[Exchange]:
        """The connection has ended: remove the requests that the driver had."""
        sent = [*self.in_flight, *(self._unwritten or ())]
        self._traffic.in_flight.add(-len(self.in_flight))
        self.in_flight.clear()
        self._unwritten = None
        return sent

    def drop_waiting(self) -> list[Exchange]:
        """Remove the waiting requests."""
        waiting, self.waiting = self.waiting, OrderedDict()
        return [*waiting]


def _joined(parts: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Join each run of small parts."""
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
