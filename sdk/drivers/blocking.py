"""The blocking driver: the same `ClientCore` in one thread, with a selector and no background work.

Private for now: the Spark reader uses it, because Spark's Python workers are forked and reused, and neither trio nor a
background thread survives that well. Nothing happens between calls: a call takes steps until its outcome is settled.
"""

import errno
import os
import random
import selectors
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from ottla.errors import OttlaError, TimeoutExpired
from ottla.sdk import calls, mdns
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.consume.fetcher import Fetcher
from ottla.sdk.consume.positions import Offset
from ottla.sdk.consume.record_sets import READ_UNCOMMITTED, AnyBatch
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.sockets import SocketLink
from ottla.sdk.drivers.stepper import Stepper, reason
from ottla.sdk.events import Connect, Connected, Found, Key, Written
from ottla.sdk.options import Options, announced_name, parse_bootstrap
from ottla.sdk.outcome import Outcome

T = TypeVar("T")

_SEARCH = 2.0
"""Seconds of one more search by zeroconf, in which everything else waits."""


class _Link(SocketLink):
    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.connecting = True


class BlockingClient(Stepper[_Link]):
    """A client for one thread.

        with BlockingClient("localhost:9092") as client:
            ends = client.offsets({("events", 0): LATEST})

    Args:
        bootstrap: ``host:port``, several separated by commas, or ``zeroconf://name``.
        options: as `ottla.connect` takes them.

    Raises:
        BrokerUnreachable: nobody answered within `connect_timeout`.
    """

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self._options = Options(**options)
        announced, name = announced_name(bootstrap)
        addresses = mdns.find(name, self._options.connect_timeout) if announced else bootstrap
        self._name = name
        core = ClientCore(parse_bootstrap(addresses), self._options, random.Random(), findable=announced)
        super().__init__(core, time.monotonic, "blocking", _Link)
        self._selector = selectors.DefaultSelector()
        self._kicked = False
        """The next step is due at once."""
        self._attempts: dict[tuple[str, int], int] = {}
        """Per name and port, how many connections were tried."""
        try:
            self._call(core.connect)
        except BaseException:  # an interrupt included
            self.close()
            raise

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; waits for nothing."""
        super().close()
        for link in self._links.values():
            self._hang_up(link)
        self._links.clear()
        self._selector.close()

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's internal ones, sorted."""
        return self._call(lambda now: calls.list_topics(self.core, now))

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each topic has.

        Raises:
            UnknownTopicOrPartition: one of them does not exist.
        """
        return {name: len(self._topic(name).partitions) for name in topics}

    def _topic(self, name: str) -> Topic:
        return self._call(lambda now: self.core.metadata.topic(name, now, fresh=True))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Per partition, the offset at a timestamp (milliseconds, `EARLIEST` or `LATEST`); -1 where there is none."""
        return self._call(lambda now: calls.offsets(self.core, wanted, now))

    def fetch(
        self, topic: str, partition: int, start: int, end: int, *, isolation: int = READ_UNCOMMITTED
    ) -> Generator[AnyBatch, None, None]:
        """The batches that cover the offsets from ``start`` up to, not including, ``end``.

        The first may begin before ``start`` and the last end behind ``end``: trim. Offsets may be missing (compaction,
        transactions).

        Raises:
            OffsetOutOfRange: ``start`` is not within the log.
            TimeoutExpired: nothing came for `api_timeout`.
        """
        if start >= end:
            return
        place = (topic, partition)
        self._call(lambda now: self.core.metadata.topic(topic, now))
        fetcher = Fetcher(self.core, isolation=isolation)
        try:
            self.do(lambda: fetcher.assign({place: Offset(start)}, self.core.now))
            progress = time.monotonic()
            while (position := fetcher.position(place)) is None or position < end:
                fetched = self.do(fetcher.take)
                if fetched is None:
                    if time.monotonic() - progress > self._options.api_timeout:
                        waited = f"nothing came for {self._options.api_timeout:g} s"
                        raise TimeoutExpired(f"{topic}-{partition} at offset {position}, wanted up to {end}: {waited}")
                    self._await(self.do(fetcher.wait))
                    continue
                progress = time.monotonic()
                for batch in fetched.batches:
                    if batch.base_offset < end:
                        yield batch
        finally:
            self.do(fetcher.close)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, start: Callable[[float], Outcome[T]]) -> T:
        outcome = self.do(lambda: start(self.core.now))
        while not outcome.done:
            self._await(outcome)
        return outcome.result()

    def _await(self, outcome: Outcome[Any]) -> None:
        """Take a step; unless that settles ``outcome``, wait for a socket or the core's deadline."""
        self._kicked = False
        self.step()
        if outcome.done:
            return
        due = self.core.deadline
        if due is None and not self._links:
            raise OttlaError("nothing to wait for: this is a bug in ottla, please report it")
        timeout = 0.0 if self._kicked else None if due is None else max(0.0, due - self.now())
        for ready, mask in self._selector.select(timeout):
            link: _Link = ready.data
            if mask & selectors.EVENT_WRITE and self.has(link):
                self._writable(link)
            if mask & selectors.EVENT_READ and self.has(link):
                self._readable(link)

    # -- what a loop can do --------------------------------------------------------------------------------------------

    def _runs_here(self) -> bool:
        return True  # there is no loop: any thread may call, one at a time

    def _set_alarm(self, when: float) -> None:
        """`_await` looks at the deadline by itself."""

    def _kick(self) -> None:
        self._kicked = True

    def _find_again(self) -> None:
        try:
            found = parse_bootstrap(mdns.find(self._name, _SEARCH))
        except OttlaError:
            found = []  # nobody is announced now: the core asks again
        self.tell(Found(tuple(found)))

    # -- connections -------------------------------------------------------------------------------------------------

    def _dial(self, link: _Link, wanted: Connect) -> None:
        where = wanted.host, wanted.port
        try:
            found = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)
            # A name may have several addresses, of which each attempt takes the next.
            attempts = self._attempts[where] = self._attempts.get(where, -1) + 1
            family, kind, protocol, _, address = found[attempts % len(found)]
            link.socket = socket.socket(family, kind, protocol)
        except UnicodeError:
            self._lost(link, f"{wanted.host!r} is no host name")
            return
        except OSError as error:
            self._lost(link, reason(error))
            return
        link.socket.setblocking(False)
        link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(link.socket, selectors.EVENT_WRITE, link)
        code = link.socket.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._end(link, OSError(code, os.strerror(code)))

    def _hang_up(self, link: _Link) -> None:
        if link.socket is not None:
            self._selector.unregister(link.socket)
            link.socket.close()
            link.socket = None

    def _await_writable(self, link: _Link) -> None:
        assert link.socket is not None
        self._selector.modify(link.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, link)

    def _writable(self, link: _Link) -> None:
        assert link.socket is not None
        if link.connecting and (code := link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            self._end(link, OSError(code, os.strerror(code)))
            return
        had_to_wait = link.full
        link.write()
        if not link.full:
            self._selector.modify(link.socket, selectors.EVENT_READ, link)
        if link.connecting:
            link.connecting = False
            self.tell(Connected(link.key))
        elif had_to_wait and link.wrote:
            self.tell(Written(link.key))

    def _readable(self, link: _Link) -> None:
        try:
            event = link.read(self.core.room(link.key))
        except OSError as error:
            self._end(link, error)
            return
        if event is not None:
            self.tell(event)

    def _end(self, link: _Link, error: OSError) -> None:
        self._hang_up(link)
        self._lost(link, reason(error))
