"""The whole broker as one machine: requests in, answers out, now or later.

    core.handle(ticket, call)      # a request; `ticket` is whatever the driver wants back with the answer
    core.poll(now)                 # -> the answers that are ready
    core.deadline                  # when to poll next if nothing happens

Rules:
- What an API does stands in `ottla.brokerlite.handlers`, one file each; here is only what they share: who waits for
  what, and until when.
- An answer that waits for records (a long poll) is a `Wait`; it is finished when the partitions it watches have grown
  by as many bytes as it misses, when one of them is deleted, at its deadline, or when the broker drains, whichever
  comes first.
- An answer that waits for other members of a group is a `Later`; `Groups` gives it, sooner or later.
- Nothing here reads a clock, a socket or chance: times and ids are handed in.
"""

import heapq
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.brokerlite.machines.fetch_sessions import MAX_EPOCH, FetchSessions
from ottla.brokerlite.machines.group import Group
from ottla.brokerlite.machines.group_log import GroupLog
from ottla.brokerlite.machines.groups import Groups, GroupSettings
from ottla.brokerlite.machines.log import PartitionLog
from ottla.brokerlite.machines.offsets import Offsets
from ottla.brokerlite.machines.topics import Storage, Topic, Topics
from ottla.codec.frames import RequestHeader
from ottla.errors import RemoteProtocolError
from ottla.session import Session

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite")

PRODUCER_ID_BLOCK = 1000
"""Producer ids that are reserved on disk at once, as in Kafka."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What handlers know of the broker itself."""

    node_id: int
    cluster_id: str
    host: str | None
    """What clients are told; ``None``: the address that they came by."""
    port: int
    default_partitions: int = 1
    auto_create: bool = True
    fetch_max_bytes: int = 16 * 2**20
    described: Mapping[str, str] = field(default_factory=dict)
    """The broker's own configurations, for DescribeConfigs."""
    groups: GroupSettings = field(default_factory=GroupSettings)


class Call(NamedTuple):
    """A request and its circumstances."""

    connection: int
    session: Session
    header: RequestHeader
    message: Any
    now: float
    """Seconds of a clock that never goes back."""
    timestamp: int
    """Milliseconds since 1970."""


class Answer(NamedTuple):
    """An answer that is ready."""

    ticket: Any
    message: Any
    """``None``: the request gets no answer."""
    version: int


class Close(NamedTuple):
    """The connection of a request is to be closed instead of an answer."""

    ticket: Any
    why: str


Action = Answer | Close


@dataclass(slots=True, eq=False)
class Wait:
    """An answer that comes later.

    Attributes:
        deadline: when it is given, whatever there is.
        logs: the partitions it watches.
        missing: bytes that must come first.
        finish: makes the message.
    """

    deadline: float
    logs: tuple[PartitionLog, ...]
    missing: int
    finish: Callable[[], Any]
    ticket: Any = None
    connection: int = 0
    version: int = 0


class Later:
    """An answer that comes when somebody gives it, once; whoever holds it must see to that."""

    __slots__ = ("_answer", "_message")

    def __init__(self) -> None:
        self._answer: Callable[[Any], None] | None = None
        self._message: Any = None

    def give(self, message: Any) -> None:
        self._message = message
        if self._answer is not None:
            self._answer(message)

    def to(self, answer: Callable[[Any], None]) -> None:
        """Say who takes it; nobody before had to."""
        self._answer = answer
        if self._message is not None:
            answer(self._message)


class NoAnswer(NamedTuple):
    """What a handler returns where the protocol has no answer.

    Attributes:
        close: why the connection is to be closed, if it is.
    """

    close: str | None = None


class BrokerCore:
    """One broker.

    Args:
        handlers: API key -> what serves it (`ottla.brokerlite.handlers.SERVED`).
        defaults: configurations of topics in which this broker differs from Kafka's defaults.
        now, timestamp: the time, as in a `Call`.
        new_id: makes ids of topics and sessions, and the random part of member ids.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        handlers: "Mapping[int, Served]",
        *,
        new_id: "Callable[[], UUID]",
        defaults: Mapping[str, str] | None = None,
        now: float = 0.0,
        timestamp: int = 0,
    ) -> None:
        self.settings = settings
        self.handlers = handlers
        self.topics = Topics(storage, defaults or {}, new_id)
        self.fetch_sessions = FetchSessions(lambda: new_id().int % MAX_EPOCH + 1)
        groups: dict[str, Group] = {}
        self.group_log = GroupLog(self.topics, groups, lambda: self.groups.timestamp, self.grown)
        self.groups = Groups(settings.groups, groups, self.group_log.store_group, new_id, timestamp)
        self.offsets = Offsets(self.groups, self.group_log.store_offsets)
        self._storage = storage
        self._producer_ids = range(0)
        self._actions: list[Action] = []
        self._waits: dict[PartitionLog, dict[Wait, None]] = {}
        self._by_connection: dict[int, dict[Wait, None]] = {}
        self._later: dict[int, dict[Later, None]] = {}
        self._deadlines: list[tuple[float, int, Wait]] = []
        self._epoch = timestamp - round(now * 1000)
        """Milliseconds since 1970 when the clock was 0."""
        self._count = itertools.count()
        self._draining = False
        self.group_log.load()
        self.groups.resume(now)

    # -- for the driver

    def handle(self, ticket: Any, call: Call) -> None:
        """Take a request; its answer comes out of `poll`.

        Raises:
            RemoteProtocolError: the API or its version is not served here; the connection must be closed.
        """
        key, version = call.header.api_key, call.header.api_version
        served = self.handlers.get(key)
        if served is None or not served.lowest <= version <= served.highest:
            raise RemoteProtocolError(f"API key {key} version {version} is not served")
        self._epoch = call.timestamp - round(call.now * 1000)
        self.groups.timestamp = call.timestamp
        result = served.handle(self, call)
        match result:
            case Wait():
                result.ticket, result.connection, result.version = ticket, call.connection, version
                self._park(result)
            case Later():
                self._promise(result, ticket, call.connection, version)
            case NoAnswer(close=None):
                self._actions.append(Answer(ticket, None, version))
            case NoAnswer(close=str(why)):
                self._actions.append(Close(ticket, why))
            case _:
                self._actions.append(Answer(ticket, result, version))

    def poll(self, now: float) -> list[Action]:
        """What is to be sent, in no particular order of connections."""
        while self._deadlines and self._deadlines[0][0] <= now:
            self._finish(heapq.heappop(self._deadlines)[2])
        self.groups.timestamp = self._epoch + round(now * 1000)
        self.groups.timers.expire(now)
        actions, self._actions = self._actions, []
        return actions

    @property
    def deadline(self) -> float | None:
        """When to poll next."""
        while self._deadlines and not self._is_parked(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        mine = self._deadlines[0][0] if self._deadlines else None
        groups = self.groups.timers.deadline
        return mine if groups is None else groups if mine is None else min(mine, groups)

    def disconnected(self, connection: int) -> None:
        """Nobody waits for the answers of this connection any more."""
        for wait in list(self._by_connection.get(connection, ())):
            self._forget(wait)
        self._later.pop(connection, None)

    def drain(self) -> None:
        """Give every waiting answer as it is; from now on none waits."""
        self._draining = True
        for waits in list(self._by_connection.values()):
            for wait in list(waits):
                self._finish(wait)
        self.groups.drain()

    # -- for the handlers

    def grown(self, partition: PartitionLog, size: int) -> None:
        """``size`` bytes were added to ``partition``."""
        for wait in list(self._waits.get(partition, ())):
            wait.missing -= size
            if wait.missing <= 0:
                self._finish(wait)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """As `Topics.create`."""
        topic = self.topics.create(name, partitions, configs)
        log.info("topic created", extra={"topic": name, "partitions": partitions})
        return topic

    def add_partitions(self, topic: Topic, partitions: int) -> None:
        """As `Topics.grow`."""
        self.topics.grow(topic, partitions)
        log.info("topic has grown", extra={"topic": topic.name, "partitions": partitions})

    def delete_topic(self, topic: Topic) -> None:
        """As `Topics.delete`; who waits for the topic's records is told."""
        self.topics.delete(topic)
        self.offsets.topic_deleted(topic.name)
        log.info("topic deleted", extra={"topic": topic.name})
        for partition in topic.partitions:
            for wait in list(self._waits.get(partition, ())):
                self._finish(wait)

    def new_producer_id(self) -> int:
        """A producer id that nobody has had.

        Raises:
            KafkaStorageError: the disk refused.
        """
        if not self._producer_ids:
            first = self._storage.reserve_producer_ids(PRODUCER_ID_BLOCK)
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    # -- waiting

    def _park(self, wait: Wait) -> None:
        for partition in wait.logs:
            self._waits.setdefault(partition, {})[wait] = None
        self._by_connection.setdefault(wait.connection, {})[wait] = None
        heapq.heappush(self._deadlines, (wait.deadline, next(self._count), wait))
        if self._draining:
            self._finish(wait)

    def _promise(self, later: Later, ticket: Any, connection: int, version: int) -> None:
        def answer(message: Any) -> None:
            promised = self._later.get(connection, {})
            if later in promised:  # else nobody is there any more to take it
                del promised[later]
                if not promised:
                    del self._later[connection]
                self._actions.append(Answer(ticket, message, version))

        self._later.setdefault(connection, {})[later] = None
        later.to(answer)

    def _is_parked(self, wait: Wait) -> bool:
        return wait in self._by_connection.get(wait.connection, ())

    def _finish(self, wait: Wait) -> None:
        if not self._forget(wait):
            return
        try:
            self._actions.append(Answer(wait.ticket, wait.finish(), wait.version))
        except Exception:  # a mistake of ours, found while another request is served: it must not fail with this one
            log.exception("a waiting answer failed")
            self._actions.append(Close(wait.ticket, "internal error"))

    def _forget(self, wait: Wait) -> bool:
        """Take ``wait`` out of everything; whether it was there."""
        mine = self._by_connection.get(wait.connection, {})
        if wait not in mine:
            return False
        del mine[wait]
        if not mine:
            del self._by_connection[wait.connection]
        for partition in wait.logs:
            waits = self._waits[partition]
            waits.pop(wait, None)
            if not waits:
                del self._waits[partition]
        return True


class Served(NamedTuple):
    """An API that is served."""

    lowest: int
    highest: int
    """Versions that are answered."""
    handle: Callable[[BrokerCore, Call], Any]
    """Returns the response message, a `Wait` or a `NoAnswer`."""
    advertised_from: int = -1
    """The lowest version that ApiVersions names, where that is lower than `lowest`."""
