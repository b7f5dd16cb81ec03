"""Queues clients' record sets, so that they are handled in order and each step stays within its budget.

Rules:
- A request may have record sets for thousands of partitions, and as many may wait for the metadata of a topic. Record
  sets beyond a step's budget wait unread in one queue, and so do later requests, also EndTxn.
- Record sets that have waited for their topic's metadata are older than the queue, so they go first. They stay in
  order, also if the metadata of their topic, or of one of its copies, becomes incomplete meanwhile.
"""

from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from operator import attrgetter

from ottla.errors import BrokerError
from ottla.proxy.clients.batches import Offer
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.threads import Threads

OVERHEAD = 1000
"""Approximate bytes of memory for a waiting record set, beside its data."""

QueuedCall = Callable[[float], None]
"""Called with the current time."""
Take = Callable[[Offer, float], None]
Refuse = Callable[[Offer, BrokerError, float], None]


@dataclass(slots=True, eq=False)
class _Parked:
    """A record set that waits for the metadata of its topics."""

    number: int
    go_on: QueuedCall
    ready: bool = False
    """The metadata has arrived; another record set may still be before it."""

    def waits(self) -> None:
        """Its metadata is missing."""
        self.ready = False

    def arrived(self) -> None:
        """Its metadata has arrived."""
        self.ready = True


class RecordSetQueue:
    """Queues record sets that wait for their topic's metadata, or for their turn.

    Args:
        take: handles a record set in its turn.
        refuse: refuses a record set for which there is no room.
        refused: called with each other record set that was refused.
    """

    def __init__(
        self,
        topics: RoutedTopics,
        threads: Threads,
        buffered: Buffered,
        take: Take,
        refuse: Refuse,
        refused: Refuse,
    ) -> None:
        self._topics, self._threads, self._buffered = topics, threads, buffered
        self._take, self._refuse, self._refused = take, refuse, refused
        self._turns: deque[Iterator[QueuedCall]] = deque()
        """The record sets of one request each, or a single other call."""
        self._described: deque[QueuedCall] = deque()
        """Record sets whose topic's metadata has arrived."""
        self._numbers = count()
        self._lines: dict[str, list[_Parked]] = {}
        """Topic -> its record sets that wait, the oldest first."""
        self._parked: Counter[int] = Counter()
        """Client -> how many of its record sets wait for a topic's metadata, or for their turn after that."""
        self._leaving: dict[int, QueuedCall] = {}
        """Disconnected client -> called when none of its record sets waits any more."""

    @property
    def idle(self) -> bool:
        """The queue is empty."""
        return not self._turns and not self._described

    def pump(self, now: float) -> None:
        """Handle queued record sets, as far as the step's budget goes."""
        while not self.idle and not self._threads.budget_is_spent:
            if self._described:
                self._described.popleft()(now)
            elif (turn := next(self._turns[0], None)) is not None:
                turn(now)
            else:
                self._turns.popleft()

    def in_turn(self, call: QueuedCall, now: float) -> None:
        """Call ``call`` after everything in the queue."""
        if self.idle:
            call(now)
        else:
            self._turns.append(iter([call]))

    def request(self, client: int, offers: Iterator[Offer], size: int, now: float) -> None:
        """Handle or queue the record sets of a client's request.

        Args:
            size: bytes of memory that they take while they are queued.
        """
        while self.idle and not self._threads.budget_is_spent:
            if (offer := next(offers, None)) is None:
                return
            self._take(offer, now)
        try:
            self._buffered.check_room(client, size)
        except BrokerError as error:
            for offer in offers:
                self._refuse(offer, error, now)
        else:
            self._buffered.count(client, size)
            self._turns.append(self._turns_of(client, offers, size))

    def _turns_of(self, client: int, offers: Iterator[Offer], size: int) -> Iterator[QueuedCall]:
        for offer in offers:
            yield partial(self._take, offer)
        self._buffered.count(client, -size)

    def park(self, offer: Offer, take: QueuedCall, over: QueuedCall, now: float) -> None:
        """Have a record set wait for the metadata of its topics, and then for its turn, which calls ``take``.

        Then, or if the metadata does not arrive in time, ``over`` is called.
        """
        client, size, name = offer.origin.client, len(offer.data) + OVERHEAD, offer.topic
        self._threads.spend_a_look()
        self._buffered.count(client, size)
        self._parked[client] += 1

        def wait(now: float) -> None:
            parked.waits()
            self._line_up(name, parked)
            try:
                topic = self._topics.undescribed(name) or name
                self._topics.when_described(topic, wait_for_turn, partial(give_up, topic), now, asker=client)
            except BaseException:  # a bug, which must not keep others in the line
                self._step_out(name, parked)
                raise

        def wait_for_turn(now: float) -> None:
            parked.arrived()
            self._release(name)

        def go_on(now: float) -> None:
            if self._topics.undescribed(name) is not None:  # its metadata has become incomplete again, or a copy's
                wait(now)
                return
            if self._is_behind(name, parked):
                self._line_up(name, parked)
                return
            self._buffered.count(client, -size)
            try:
                take(now)
            finally:
                self._unpark(client, now)
                over(now)

        def give_up(topic: str, error: BrokerError, now: float) -> None:
            self._buffered.count(client, -size)
            if topic != name:
                error = type(error)(f"the proxy cannot copy these records to {topic}: {error.detail}")
            offer.refuse(error, now)  # first, so that a bug in the rest keeps no client waiting
            self._step_out(name, parked)
            self._unpark(client, now)
            over(now)
            self._refused(offer, error, now)

        parked = _Parked(next(self._numbers), go_on)
        wait(now)

    def _line_up(self, topic: str, parked: _Parked) -> None:
        insort(self._lines.setdefault(topic, []), parked, key=attrgetter("number"))

    def _step_out(self, topic: str, parked: _Parked) -> None:
        """Take a record set out of its line, and let those behind it go on."""
        if parked in (line := self._lines.get(topic, [])):
            line.remove(parked)
            self._release(topic)

    def _is_behind(self, topic: str, parked: _Parked) -> bool:
        """Whether an older record set of its topic waits again."""
        return topic in self._lines and self._lines[topic][0].number < parked.number

    def _release(self, topic: str) -> None:
        """Queue the oldest record sets of a topic whose metadata has arrived."""
        line = self._lines[topic]
        ready = [each.go_on for each in takewhile(attrgetter("ready"), line)]
        del line[: len(ready)]
        self._described += ready
        if not line:
            del self._lines[topic]

    def _unpark(self, client: int, now: float) -> None:
        self._parked[client] -= 1
        if not self._parked[client]:
            del self._parked[client]
            if gone := self._leaving.pop(client, None):
                gone(now)

    def left(self, client: int, call: QueuedCall, now: float) -> None:
        """Call ``call`` once everything that a disconnected client has sent was handled."""
        self.in_turn(partial(self._left, client, call), now)

    def _left(self, client: int, call: QueuedCall, now: float) -> None:
        if client in self._parked:
            self._leaving[client] = call
        else:
            call(now)
