"""The topics of a broker: their names, ids, configurations and partitions.

Rules:
- A name has 1 to 249 letters, digits, ``.``, ``_`` and ``-``, and is not ``.`` or ``..``. A name that differs from an
  existing one only in ``.`` and ``_`` is refused, because Kafka's metrics cannot tell the two apart.
- The log warns of each configuration that is stored, but has no effect, when it is set and at each start.
- A topic is stored before clients can see it.
- The number of partitions only grows.
- A topic whose file is damaged is not served, and its name stays taken. Clients see leaderless partitions, as with an
  offline disk of Kafka, and wait. If the topic were unknown, they would take it for deleted; if the topic had an error,
  librdkafka's consumers would stop reading their other topics, too.

Source: Topic.java.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.machines.partitions.log_settings import LogSettings
from ottla.brokerlite.machines.partitions.partition_log import LogTraffic, PartitionLog, Segments
from ottla.brokerlite.machines.partitions.producers import Producers
from ottla.brokerlite.machines.topics.configs import CONFIGS, check_configs, log_settings, unheeded
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

TopicPartition = tuple[str, int]
"""A topic's name and a partition."""

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
ACCESS_CONTROL = "__access_control"
"""The log of ACLs. Apache Kafka has them in `CLUSTER_METADATA`."""
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
"""The log of Apache Kafka's controllers. This broker has none, and allows no topic of that name."""
INTERNAL = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))
"""Topics that only the broker writes. Clients may read them."""
USER_CREDENTIALS = "__user_credentials"
GROUP_CONFIGS = "__group_configs"
"""The log of the configurations of single groups. Apache Kafka has them in `CLUSTER_METADATA`."""
HIDDEN = frozenset((USER_CREDENTIALS, GROUP_CONFIGS, ACCESS_CONTROL))
"""Topics that clients neither see nor read nor create: Read on all topics must not be enough for their contents."""

MAX_NAME = 249
MAX_PARTITIONS = 10_000
"""The most partitions of one topic: each is a folder."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class StoredPartition(NamedTuple):
    """A partition as the storage returns it."""

    segments: Segments
    producers: Producers


class StoredTopic(NamedTuple):
    """A topic as the storage returns it."""

    name: str
    topic_id: "UUID"
    configs: dict[str, str]
    partitions: list[StoredPartition]


class UnservedTopic(NamedTuple):
    """A topic that exists but cannot be served, as far as its folders show."""

    topic_id: "UUID"
    partitions: int
    why: str


class Storage(Protocol):
    """Stores topics. Every method may raise `KafkaStorageError`."""

    unserved: Mapping[str, UnservedTopic]
    """Topics that cannot be served, by name; the names stay taken."""

    def topics(self) -> Iterable[StoredTopic]: ...

    def create_topic(self, name: str, topic_id: "UUID", partitions: int, configs: Mapping[str, str]) -> StoredTopic: ...

    def delete_topic(self, name: str) -> None: ...

    def add_partitions(self, name: str, count: int) -> list[StoredPartition]:
        """Add partitions up to ``count`` in total; return the new ones."""

    def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace the configurations of a topic."""

    def begin_flush(self, partitions: "Iterable[Segments] | None" = None) -> "Callable[[], None]":
        """Return work for a thread that syncs everything stored before this call, in some partitions or in all.

        The work tries everything, then raises the first `OSError`; `Segments.synced_offset` shows what succeeded.
        """

    def set_start_offsets(self, starts: Mapping[TopicPartition, int], done: "Callable[[OSError | None], None]") -> Job:
        """Return a job that raises the start offsets of logs and deletes the segments before them.

        The new offsets are on disk before clients can see them. If the disk is too full for that, whole segments are
        deleted first, which makes room.

        Args:
            done: called once, on the loop: with ``None`` on success, or with the error of the disk.
        """

    def assign_producer_ids(self, count: int = 1) -> int:
        """Assign ``count`` producer ids that were never used, and return the first.

        Raises:
            KafkaStorageError: the disk refused.
        """

    def note_cleaned(self) -> Work:
        """Return work that stores on disk how far each log is cleaned."""


@dataclass(slots=True)
class TopicLogs:
    """A topic.

    Attributes:
        configs: its own configurations; all others have their defaults.
    """

    name: str
    topic_id: "UUID"
    configs: dict[str, str]
    partitions: list[PartitionLog]

    def partition(self, index: int) -> PartitionLog | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def configure(self, configs: Mapping[str, str], settings: LogSettings) -> None:
        """Replace its own configurations; its partitions use ``settings`` from now on."""
        self.configs = dict(configs)
        for partition in self.partitions:
            partition.configure(settings)


class Topics:
    """Keeps all topics, by name and by id.

    Args:
        defaults: configurations whose defaults differ from `CONFIGS`.
        new_id: makes topic ids.
    """

    def __init__(self, storage: Storage, defaults: Mapping[str, str], new_id: "Callable[[], UUID]") -> None:
        self.defaults = dict(defaults)
        self.by_name: dict[str, TopicLogs] = {}
        self.by_id: dict[UUID, TopicLogs] = {}
        self.hidden: dict[str, TopicLogs] = {}
        """The topics in `HIDDEN`, which are in neither of the two."""
        self.version = 0
        """Counts the changes since the start: topics created, deleted and grown."""
        self.deleted = LogTraffic()
        """The traffic of deleted topics."""
        self._folded = {_folded(name): name for name in INTERNAL | HIDDEN}
        """Topic names by their names in Kafka's metrics, where ``.`` becomes ``_``."""
        self._folded.update((_folded(name), name) for name in storage.unserved)
        self._storage = storage
        self._new_id = new_id
        for stored in storage.topics():
            self._add(stored)

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicLogs:
        """Create a topic.

        Raises:
            InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidConfig, KafkaStorageError.
        """
        kept = self.check(name, partitions, configs)
        return self._add(self._storage.create_topic(name, self._new_id(), partitions, kept))

    def own(self, name: str, configs: Mapping[str, str]) -> TopicLogs:
        """Return a topic of the broker's own, with one partition; create it if it does not exist.

        Raises:
            KafkaStorageError: the disk refused, or the topic is not served.
        """
        if found := self.find_own(name):
            return found
        if name not in HIDDEN:
            return self.create(name, 1, configs)
        if name in self.unserved:
            raise self.missing(name)
        return self._add(self._storage.create_topic(name, self._new_id(), 1, check_configs(configs)))

    def find_own(self, name: str) -> TopicLogs | None:
        """A topic of the broker's own, if it exists."""
        return self.by_name.get(name) or self.hidden.get(name)

    def all(self) -> Iterator[TopicLogs]:
        """All topics, the hidden ones included."""
        yield from self.by_name.values()
        yield from self.hidden.values()

    def check(self, name: str, partitions: int, configs: Mapping[str, str]) -> dict[str, str]:
        """Check a topic as `create` does, with the same errors; return the configurations that would be stored."""
        check_name(name)
        if name in HIDDEN:
            raise InvalidTopic(f"{name} is reserved")
        if name in self.by_name:
            raise TopicAlreadyExists(f"{name} exists")
        if name in self.unserved:
            raise self.missing(name)
        if (clash := self._folded.get(_folded(name), name)) != name:
            raise InvalidTopic(f"{name} collides with {clash}: they differ only in '.' and '_'")
        if not 0 < partitions <= MAX_PARTITIONS:
            raise InvalidPartitions(f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")
        return check_configs(configs)

    def grow(self, topic: TopicLogs, partitions: int) -> None:
        """Add partitions up to ``partitions`` in total.

        Raises:
            InvalidPartitions, InvalidRequest, KafkaStorageError.
        """
        self.check_growth(topic, partitions)
        first, settings = len(topic.partitions), self._settings(topic.configs)
        for i, each in enumerate(self._storage.add_partitions(topic.name, partitions), first):
            topic.partitions.append(PartitionLog(f"{topic.name}-{i}", each.segments, each.producers, settings))
        self.version += 1

    def check_growth(self, topic: TopicLogs, partitions: int) -> None:
        """Check whether a topic may grow to ``partitions``, with the errors of `grow`."""
        check_own(topic.name, "sets its partitions")
        known = len(topic.partitions)
        if partitions <= known:
            raise InvalidPartitions(
                f"{topic.name} has {known} partitions already; asked for {partitions}, which is not more"
            )
        if partitions > MAX_PARTITIONS:
            raise InvalidPartitions(f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")

    def configure(self, topic: TopicLogs, configs: Mapping[str, str]) -> None:
        """Replace the configurations of a topic with others, which `check_configs` has returned.

        Raises:
            InvalidRequest: it is an internal topic.
            KafkaStorageError: the disk refused; the topic stays as it was.
        """
        check_own(topic.name, "sets its configuration")
        self._storage.configure_topic(topic.name, configs)
        before = unheeded(topic.configs)
        topic.configure(configs, self._settings(configs))
        _warn(topic, [key for key in unheeded(configs) if key not in before])

    def configure_own(self, topic: TopicLogs, configs: Mapping[str, str]) -> None:
        """Set the configuration that the broker wants now for an internal topic, whatever it was created with."""
        wanted = {**topic.configs, **configs}
        topic.configure(wanted, self._settings(wanted))

    def delete(self, topic: TopicLogs) -> None:
        """Delete a topic with all its records.

        Raises:
            InvalidRequest: it is an internal topic.
            KafkaStorageError: the disk refused; the topic stays.
        """
        check_own(topic.name, "needs it")
        self._storage.delete_topic(topic.name)
        del self.by_name[topic.name]
        del self._folded[_folded(topic.name)]
        del self.by_id[topic.topic_id]
        self.version += 1
        for partition in topic.partitions:
            self.deleted = self.deleted.plus(partition.traffic)

    @property
    def unserved(self) -> Mapping[str, UnservedTopic]:
        """Topics that cannot be served, as `Storage.unserved`."""
        return self._storage.unserved

    def missing(self, name: str) -> KafkaStorageError | UnknownTopicOrPartition:
        """Return the error for a topic that is not in `by_name`."""
        if (unserved := self.unserved.get(name)) is not None:
            return KafkaStorageError(f"{name} is not served: {unserved.why}")
        return UnknownTopicOrPartition(f"there is no topic {name}")

    def partition(self, name: str, index: int) -> PartitionLog | None:
        topic = self.by_name.get(name)
        return None if topic is None else topic.partition(index)

    def default(self, key: str) -> str:
        """Return the value of a configuration that a topic does not set."""
        return self.defaults.get(key, CONFIGS[key].default)

    def _add(self, stored: StoredTopic) -> TopicLogs:
        settings = self._settings(stored.configs)
        topic = TopicLogs(
            stored.name,
            stored.topic_id,
            stored.configs,
            [
                PartitionLog(f"{stored.name}-{i}", each.segments, each.producers, settings)
                for i, each in enumerate(stored.partitions)
            ],
        )
        if topic.name in HIDDEN:
            self.hidden[topic.name] = topic
            return topic
        self.by_name[topic.name] = topic
        self._folded[_folded(topic.name)] = topic.name
        self.by_id[topic.topic_id] = topic
        self.version += 1
        _warn(topic, unheeded(topic.configs))
        return topic

    def _settings(self, configs: Mapping[str, str]) -> LogSettings:
        return log_settings(lambda key: configs.get(key, self.default(key)))


def _folded(name: str) -> str:
    return name.replace(".", "_")


def _warn(topic: TopicLogs, keys: Iterable[str]) -> None:
    for key in keys:
        log.warning("topic configuration stored, but it has no effect: %s", key, extra={"topic": topic.name})


def check_own(name: str, why: str) -> None:
    """Raises `InvalidRequest` if clients may not change the topic, because it is internal: the broker ``why``."""
    if name in INTERNAL:
        raise InvalidRequest(f"{name} is internal: the broker {why}")


def check_name(name: str) -> None:
    """Raises `InvalidTopic` if no topic may be called ``name``."""
    if not 0 < len(name) <= MAX_NAME:
        raise InvalidTopic(f"a topic name has 1 to {MAX_NAME} characters, not {len(name)}")
    if name in (".", "..") or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidTopic(f"{name!r}: a topic name has only letters, digits, '.', '_' and '-'")
