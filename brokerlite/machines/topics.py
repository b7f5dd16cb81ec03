"""The topics of a broker: their names, ids, configurations and partitions.

Rules:
- A name has 1 to 249 letters, digits, ``.``, ``_`` and ``-``, and is not ``.`` or ``..``; two names that differ only
  in ``.`` against ``_`` are refused, because Kafka's metrics cannot tell them apart.
- A configuration that is kept and not acted upon is warned of, by name, when the topic is made and at each start.
- A topic is in the storage before anybody hears of it.
- Partitions only grow in number.
- A topic whose file is damaged is not served, and its name stays taken. Clients see partitions without a leader, as
  where a disk of Kafka's is offline, and wait. Were the topic unknown, they would take it for deleted; with an error
  for the topic, librdkafka's consumers stop reading their other topics, too.

Source: Topic.java.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.brokerlite.machines.configs import CONFIGS, LogSettings, check_configs, log_settings, unheeded
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.log import PartitionLog, Segments
from ottla.brokerlite.machines.producers import Producers
from ottla.errors import (
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.brokerlite")

Place = tuple[str, int]
"""A topic's name and a partition."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"
"""What Apache Kafka calls the log of its controllers. There is none here, and no topic of that name."""
INTERNAL = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE))
"""Topics that the broker keeps for itself. Clients may read them."""

MAX_NAME = 249
MAX_PARTITIONS = 10_000
"""Of one topic: each is a folder."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class Partition(NamedTuple):
    """What the storage keeps of one partition."""

    segments: Segments
    producers: Producers


class Stored(NamedTuple):
    """A topic as the storage has it."""

    name: str
    topic_id: "UUID"
    configs: dict[str, str]
    partitions: list[Partition]


class Unserved(NamedTuple):
    """A topic that is there and cannot be served, as far as its folders tell."""

    topic_id: "UUID"
    partitions: int
    why: str


class Storage(Protocol):
    """Where topics are kept. Every method may raise `KafkaStorageError`."""

    unserved: Mapping[str, Unserved]
    """Topics that cannot be served, by their names, which are taken."""

    def topics(self) -> Iterable[Stored]: ...

    def create_topic(self, name: str, topic_id: "UUID", partitions: int, configs: Mapping[str, str]) -> Stored: ...

    def delete_topic(self, name: str) -> None: ...

    def add_partitions(self, name: str, count: int) -> list[Partition]:
        """Have ``count`` partitions in all; return the new ones."""

    def begin_flush(self, partitions: "Iterable[Segments] | None" = None) -> "Callable[[], None]":
        """Work, for a thread, that has the disk hold what was stored before this call; of some partitions or of all.

        The work raises the first `OSError` when it has tried everything; `Segments.synced_offset` tells the rest.
        """

    def set_start_offsets(self, starts: Mapping[Place, int], done: "Callable[[OSError | None], None]") -> Job:
        """A job that has logs begin at other offsets, where these are higher; what lies before them is then removed.

        The disk knows before anybody can see it. If it has no room for that, whole segments go first, which makes some.

        Args:
            done: is called once, on the loop: with ``None`` when the logs begin there, or why the disk refused.
        """

    def reserve_producer_ids(self, count: int) -> int:
        """The first of ``count`` producer ids that nobody has had and nobody else will get."""

    def note_cleaned(self) -> Work:
        """Work that has the disk hold how far each log is cleaned."""


@dataclass(slots=True)
class Topic:
    """A topic.

    Attributes:
        configs: what was set when it was created; the rest are defaults.
    """

    name: str
    topic_id: "UUID"
    configs: dict[str, str]
    partitions: list[PartitionLog]

    def partition(self, index: int) -> PartitionLog | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Topics:
    """All topics, by name and by id.

    Args:
        defaults: configurations in which the broker differs from `CONFIGS`.
        new_id: makes topic ids.
    """

    def __init__(self, storage: Storage, defaults: Mapping[str, str], new_id: "Callable[[], UUID]") -> None:
        self.defaults = dict(defaults)
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self._folded = {_folded(name): name for name in INTERNAL}
        """Names by what Kafka's metrics make of them."""
        self._folded.update((_folded(name), name) for name in storage.unserved)
        self._storage = storage
        self._new_id = new_id
        for stored in storage.topics():
            self._add(stored)

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Make a topic.

        Raises:
            InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidConfig, KafkaStorageError.
        """
        kept = self.check(name, partitions, configs)
        return self._add(self._storage.create_topic(name, self._new_id(), partitions, kept))

    def check(self, name: str, partitions: int, configs: Mapping[str, str]) -> dict[str, str]:
        """The configurations that a topic would be kept with; raises what `create` would."""
        check_name(name)
        if name in self.by_name:
            raise TopicAlreadyExists(f"{name} exists")
        if name in self.unserved:
            raise self.missing(name)
        if (clash := self._folded.get(_folded(name), name)) != name:
            raise InvalidTopic(f"{name} collides with {clash}: they differ only in '.' and '_'")
        if not 0 < partitions <= MAX_PARTITIONS:
            raise InvalidPartitions(f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")
        return check_configs(configs)

    def grow(self, topic: Topic, partitions: int) -> None:
        """Have so many partitions in all.

        Raises:
            InvalidPartitions, InvalidRequest, KafkaStorageError.
        """
        self.check_growth(topic, partitions)
        first, settings = len(topic.partitions), self._settings(topic.configs)
        for i, each in enumerate(self._storage.add_partitions(topic.name, partitions), first):
            topic.partitions.append(PartitionLog(f"{topic.name}-{i}", each.segments, each.producers, settings))

    def check_growth(self, topic: Topic, partitions: int) -> None:
        """Whether a topic could have so many partitions; raises what `grow` would."""
        _check_own(topic.name)
        known = len(topic.partitions)
        if partitions <= known:
            raise InvalidPartitions(
                f"{topic.name} has {known} partitions already; asked for {partitions}, which is not more"
            )
        if partitions > MAX_PARTITIONS:
            raise InvalidPartitions(f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")

    def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Give a topic of the broker's own the configuration that the broker wants it to have now, whatever it was made
        with."""
        topic.configs.update(configs)
        settings = self._settings(topic.configs)
        for partition in topic.partitions:
            partition.settings = settings

    def delete(self, topic: Topic) -> None:
        """Forget a topic, and all its records.

        Raises:
            InvalidRequest: it is the broker's own.
            KafkaStorageError: the disk refused; the topic stays.
        """
        _check_own(topic.name)
        self._storage.delete_topic(topic.name)
        del self.by_name[topic.name]
        del self._folded[_folded(topic.name)]
        del self.by_id[topic.topic_id]

    @property
    def unserved(self) -> Mapping[str, Unserved]:
        """As `Storage.unserved`."""
        return self._storage.unserved

    def missing(self, name: str) -> KafkaStorageError | UnknownTopicOrPartition:
        """The error for a topic that is not in `by_name`."""
        if (unserved := self.unserved.get(name)) is not None:
            return KafkaStorageError(f"{name} is not served: {unserved.why}")
        return UnknownTopicOrPartition(f"there is no topic {name}")

    def partition(self, name: str, index: int) -> PartitionLog | None:
        topic = self.by_name.get(name)
        return None if topic is None else topic.partition(index)

    def default(self, key: str) -> str:
        """The value of a configuration that a topic does not set itself."""
        return self.defaults.get(key, CONFIGS[key].default)

    def _add(self, stored: Stored) -> Topic:
        settings = self._settings(stored.configs)
        topic = Topic(
            stored.name,
            stored.topic_id,
            stored.configs,
            [
                PartitionLog(f"{stored.name}-{i}", each.segments, each.producers, settings)
                for i, each in enumerate(stored.partitions)
            ],
        )
        self.by_name[topic.name] = topic
        self._folded[_folded(topic.name)] = topic.name
        self.by_id[topic.topic_id] = topic
        for key in unheeded(topic.configs):
            log.warning("topic configuration stored but not acted upon: %s", key, extra={"topic": topic.name})
        return topic

    def _settings(self, configs: Mapping[str, str]) -> LogSettings:
        return log_settings(lambda key: configs.get(key, self.default(key)))


def _folded(name: str) -> str:
    return name.replace(".", "_")


def _check_own(name: str) -> None:
    if name in INTERNAL:
        raise InvalidRequest(f"{name} is an internal topic")


def check_name(name: str) -> None:
    """Raises `InvalidTopic` if no topic may be called ``name``."""
    if not 0 < len(name) <= MAX_NAME:
        raise InvalidTopic(f"a topic name has 1 to {MAX_NAME} characters, not {len(name)}")
    if name in (".", "..") or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidTopic(f"{name!r}: a topic name has only letters, digits, '.', '_' and '-'")
