"""The order in which clients' record sets are taken on: each in its turn, and no more in a step than it may do.

Rules:
- A request may have record sets for thousands of partitions, as may what has waited for a topic. What is more than a
  step may do waits in one line, unread, and so does what comes behind it: the end of a transaction, too.
- What has waited for its topic came before all that is in the line.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial

from ottla.errors import BrokerError, UnknownTopicOrPartition
from ottla.proxy.clients.batches import Offer
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.topics import Topics
from ottla.proxy.threads import Threads

OVERHEAD = 1000
"""Bytes that a record set takes in memory while it waits, beside its own, about."""

Call = Callable[[float], None]
"""Is given the time."""
Take = Callable[[Offer, float], None]
Refuse = Callable[[Offer, BrokerError, float], None]


class Line:
    """What waits for its topic, or for its turn.

    Args:
        take: takes a record set on, whose turn it is.
        refuse: refuses one for which there is no room.
    """

    def __init__(self, topics: Topics, threads: Threads, buffered: Buffered, take: Take, refuse: Refuse) -> None:
        self._topics, self._threads, self._buffered = topics, threads, buffered
        self._take, self._refuse = take, refuse
        self._turns: deque[Iterator[Call]] = deque()
        """The record sets of a request, or something else."""
        self._described: deque[Call] = deque()
        """Record sets that have waited for their topic."""
        self._parked: Counter[int] = Counter()
        """Client -> its record sets that wait for their topic, or their turn behind that."""
        self._leaving: dict[int, Call] = {}
        """Clients of these that have left -> what is to be called when nothing of them waits any more."""

    @property
    def idle(self) -> bool:
        """Nothing waits for its turn."""
        return not self._turns and not self._described

    def pump(self, now: float) -> None:
        """Take on what waits for its turn."""
        while not self.idle and not self._threads.step_is_full:
            if self._described:
                self._described.popleft()(now)
            elif (turn := next(self._turns[0], None)) is not None:
                turn(now)
            else:
                self._turns.popleft()

    def in_turn(self, call: Call, now: float) -> None:
        """Call it behind all that waits for its turn."""
        if self.idle:
            call(now)
        else:
            self._turns.append(iter([call]))

    def request(self, client: int, offers: Iterator[Offer], size: int, now: float) -> None:
        """Take on the record sets of a client's request, which take so many bytes in memory while they wait."""
        while self.idle and not self._threads.step_is_full:
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

    def _turns_of(self, client: int, offers: Iterator[Offer], size: int) -> Iterator[Call]:
        for offer in offers:
            yield partial(self._take, offer)
        self._buffered.count(client, -size)

    def park(self, offer: Offer, take: Call, over: Call, now: float) -> None:
        """Have a record set wait until its topic is described, and then for its turn, which calls ``take``.

        When it waits no more, whether it was taken or given up, ``over`` is called.
        """
        client, size = offer.origin.client, len(offer.data) + OVERHEAD
        self._threads.spend_a_look()
        self._buffered.count(client, size)
        self._parked[client] += 1

        def wait_for_turn(now: float) -> None:
            self._described.append(go_on)

        def go_on(now: float) -> None:
            if not self._topics.is_described(offer.topic):  # it has gone since
                self._topics.when_described(offer.topic, wait_for_turn, give_up, now)
                return
            self._buffered.count(client, -size)
            try:
                take(now)
            finally:
                self._unpark(client, now)
                over(now)

        def give_up(message: str, now: float) -> None:
            self._buffered.count(client, -size)
            offer.refuse(UnknownTopicOrPartition(message), now)
            self._unpark(client, now)
            over(now)

        self._topics.when_described(offer.topic, wait_for_turn, give_up, now)

    def _unpark(self, client: int, now: float) -> None:
        self._parked[client] -= 1
        if not self._parked[client]:
            del self._parked[client]
            if gone := self._leaving.pop(client, None):
                gone(now)

    def left(self, client: int, call: Call, now: float) -> None:
        """A client has gone; call it when all that it has sent was taken on."""
        self.in_turn(partial(self._left, client, call), now)

    def _left(self, client: int, call: Call, now: float) -> None:
        if client in self._parked:
            self._leaving[client] = call
        else:
            call(now)
