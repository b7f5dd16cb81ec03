"""The blocking driver: the same `ClientCore` in one thread, with a selector and no background work.

Private for now: the Spark reader uses it, because Spark's Python workers are forked and reused, and neither trio nor a
background thread survives that well. Nothing happens between calls.
"""

import errno
import os
import random
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from ottla.codec.wire import Buffer
from ottla.errors import OttlaError, TimeoutExpired
from ottla.sdk import calls, mdns
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.consume.fetcher import Fetcher
from ottla.sdk.consume.positions import Offset
from ottla.sdk.consume.record_sets import READ_UNCOMMITTED, AnyBatch
from ottla.sdk.core import ClientCore
from ottla.sdk.events import (
    Action,
    Close,
    Connect,
    Connected,
    Filled,
    Find,
    Finish,
    Found,
    Key,
    Lost,
    Received,
    Send,
    Written,
)
from ottla.sdk.options import Options, announced_name, parse_bootstrap
from ottla.sdk.outcome import Outcome

T = TypeVar("T")

_CHUNK = 64 * 2**10
"""Bytes of one read; the rest of what is larger is read into its place."""
_SEARCH = 2.0
"""Seconds of one more search by zeroconf, in which everything else waits."""


class Link:
    """A non-blocking socket and what still has to be written to it."""

    def __init__(self, key: Key, connection: socket.socket, connecting: bool) -> None:
        self.key, self.socket, self.connecting = key, connection, connecting
        self.outbox: deque[Buffer] = deque()
        """What the socket has not taken yet."""


class BlockingClient:
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
        self._core = ClientCore(parse_bootstrap(addresses), self._options, random.Random(), findable=announced)
        self._selector = selectors.DefaultSelector()
        self._links: dict[Key, Link] = {}
        self._attempts: dict[tuple[str, int], int] = {}
        """Per name and port, how many connections were tried."""
        try:
            self._call(self._core.connect)
        except BaseException:  # an interrupt included
            self.close()
            raise

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; waits for nothing."""
        self._core.close(time.monotonic())
        for link in list(self._links.values()):
            self._drop(link)
        self._selector.close()

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's internal ones, sorted."""
        return self._call(lambda now: calls.list_topics(self._core, now))

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each topic has.

        Raises:
            UnknownTopicOrPartition: one of them does not exist.
        """
        return {name: len(self._topic(name).partitions) for name in topics}

    def _topic(self, name: str) -> Topic:
        return self._call(lambda now: self._core.metadata.topic(name, now, fresh=True))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Per partition, the offset at a timestamp (milliseconds, `EARLIEST` or `LATEST`); -1 where there is none."""
        return self._call(lambda now: calls.offsets(self._core, wanted, now))

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
        self._call(lambda now: self._core.metadata.topic(topic, now))
        fetcher = Fetcher(self._core, isolation=isolation)
        try:
            fetcher.assign({place: Offset(start)}, time.monotonic())
            progress = time.monotonic()
            while (position := fetcher.position(place)) is None or position < end:
                fetched = fetcher.take()
                if fetched is None:
                    if time.monotonic() - progress > self._options.api_timeout:
                        waited = f"nothing came for {self._options.api_timeout:g} s"
                        raise TimeoutExpired(f"{topic}-{partition} at offset {position}, wanted up to {end}: {waited}")
                    self._turn(fetcher.wait())
                    continue
                progress = time.monotonic()
                for batch in fetched.batches:
                    if batch.base_offset < end:
                        yield batch
        finally:
            fetcher.close()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _call(self, start: Callable[[float], Outcome[T]]) -> T:
        outcome = start(time.monotonic())
        while not outcome.done:
            self._turn(outcome)
        return outcome.result()

    def _turn(self, outcome: Outcome[Any]) -> None:
        """Carry out what the core wants; unless that settles ``outcome``, wait for a socket or the core's deadline."""
        while actions := self._core.poll(time.monotonic()):
            for action in actions:
                self._do(action)
        if outcome.done:
            return
        deadline = self._core.deadline
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        if timeout is None and not self._links:
            raise OttlaError("nothing to wait for: this is a bug in ottla, please report it")
        for ready, mask in self._selector.select(timeout):
            link: Link = ready.data
            if mask & selectors.EVENT_WRITE:
                self._writable(link)
            if mask & selectors.EVENT_READ and self._links.get(link.key) is link:
                self._readable(link)

    def _do(self, action: Action) -> None:
        match action:
            case Connect(key=key, host=host, port=port):
                self._connect(key, host, port)
            case Send(key=key, parts=parts):
                if link := self._links.get(key):
                    link.outbox += parts
                    self._writable(link)
            case Finish(key=key):
                if link := self._links.get(key):
                    link.socket.shutdown(socket.SHUT_WR)
            case Close(key=key):
                if link := self._links.get(key):
                    self._drop(link)
            case Find():
                self._core.handle(Found(self._found()), time.monotonic())

    def _found(self) -> tuple[tuple[str, int], ...]:
        try:
            return tuple(parse_bootstrap(mdns.find(self._name, _SEARCH)))
        except OttlaError:
            return ()  # nobody is announced now: the core asks again

    def _connect(self, key: Key, host: str, port: int) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            # A name may have several addresses, of which each attempt takes the next.
            attempts = self._attempts[host, port] = self._attempts.get((host, port), -1) + 1
            family, kind, protocol, _, address = found[attempts % len(found)]
            connection = socket.socket(family, kind, protocol)
        except UnicodeError:
            self._core.handle(Lost(key, f"{host!r} is no host name"), time.monotonic())
            return
        except OSError as error:
            self._core.handle(Lost(key, _reason(error)), time.monotonic())
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = self._links[key] = Link(key, connection, connecting=True)
        self._selector.register(connection, selectors.EVENT_WRITE, link)
        code = connection.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._lose(link, OSError(code, os.strerror(code)))

    def _writable(self, link: Link) -> None:
        if link.connecting:
            if code := link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._lose(link, OSError(code, os.strerror(code)))
                return
            link.connecting = False
            self._core.handle(Connected(link.key), time.monotonic())
        writes = bool(link.outbox)
        try:
            while link.outbox:
                part = memoryview(link.outbox[0])
                count = link.socket.send(part)
                if count == len(part):
                    link.outbox.popleft()
                else:
                    link.outbox[0] = part[count:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(link, error)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.outbox else 0)
        self._selector.modify(link.socket, events, link)
        if writes and not link.outbox:
            self._core.handle(Written(link.key), time.monotonic())

    def _readable(self, link: Link) -> None:
        room = self._core.room(link.key)
        event: Received | Filled | None = None
        try:
            if room is not None:
                count = link.socket.recv_into(room)
                event = Filled(link.key, count) if count else None
            elif data := link.socket.recv(_CHUNK):
                event = Received(link.key, data)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(link, error)
            return
        if event:
            self._core.handle(event, time.monotonic())
        else:
            self._lose(link, OSError(0, "closed by the broker"))

    def _lose(self, link: Link, error: OSError) -> None:
        self._drop(link)
        self._core.handle(Lost(link.key, _reason(error)), time.monotonic())

    def _drop(self, link: Link) -> None:
        self._selector.unregister(link.socket)
        link.socket.close()
        del self._links[link.key]


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
