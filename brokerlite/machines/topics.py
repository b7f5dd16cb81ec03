"""The topics of a broker: their names, ids, configurations and partitions.

Rules:
- A name has 1 to 249 letters, digits, ``.``, ``_`` and ``-``, and is not ``.`` or ``..``; two names that differ only
  in ``.`` against ``_`` are refused, because Kafka's metrics cannot tell them apart.
- Every configuration that Kafka knows is taken, kept and described. What would promise something that this broker
  does not do (recompressing, tiering) is refused unless it is the default; `SKIPPED.md` lists what is only kept.
- A topic is in the storage before anybody hears of it.
- Partitions only grow in number.

Source: Topic.java, TopicConfig.java, LogConfig.java.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.brokerlite.machines.log import LogSettings, PartitionLog, Segments
from ottla.brokerlite.machines.producers import Producers
from ottla.errors import InvalidConfig, InvalidPartitions, InvalidRequest, InvalidTopic, TopicAlreadyExists

if TYPE_CHECKING:
    from uuid import UUID

CONSUMER_OFFSETS = "__consumer_offsets"
INTERNAL = frozenset((CONSUMER_OFFSETS,))
"""Topics that the broker keeps for itself. Clients may read them."""

MAX_NAME = 249
MAX_PARTITIONS = 10_000
"""Of one topic: each is a folder."""
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Types of configurations, as DescribeConfigs numbers them."""
_LONGEST = 2**63 - 1


class ConfigKey(NamedTuple):
    """One configuration that a topic may have."""

    type: int
    default: str
    least: float = -float("inf")
    choices: tuple[str, ...] = ()
    fixed: bool = False
    """Only the default is taken: anything else is not implemented here."""


CONFIGS: dict[str, ConfigKey] = {
    "cleanup.policy": ConfigKey(LIST, "delete", choices=("delete", "compact")),
    "compression.gzip.level": ConfigKey(INT, "-1"),
    "compression.lz4.level": ConfigKey(INT, "9"),
    "compression.type": ConfigKey(STRING, "producer", fixed=True),
    "compression.zstd.level": ConfigKey(INT, "3"),
    "delete.retention.ms": ConfigKey(LONG, "86400000", 0),
    "file.delete.delay.ms": ConfigKey(LONG, "60000", 0),
    "flush.messages": ConfigKey(LONG, str(_LONGEST), 1),
    "flush.ms": ConfigKey(LONG, str(_LONGEST), 0),
    "follower.replication.throttled.replicas": ConfigKey(LIST, ""),
    "index.interval.bytes": ConfigKey(INT, "4096", 0),
    "leader.replication.throttled.replicas": ConfigKey(LIST, ""),
    "max.compaction.lag.ms": ConfigKey(LONG, str(_LONGEST), 1),
    "max.message.bytes": ConfigKey(INT, str(2**20 + 12), 0),
    "message.timestamp.after.max.ms": ConfigKey(LONG, "3600000", 0),
    "message.timestamp.before.max.ms": ConfigKey(LONG, str(_LONGEST), 0),
    "message.timestamp.type": ConfigKey(STRING, "CreateTime", choices=("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": ConfigKey(DOUBLE, "0.5", 0),
    "min.compaction.lag.ms": ConfigKey(LONG, "0", 0),
    "min.insync.replicas": ConfigKey(INT, "1", 1),
    "preallocate": ConfigKey(BOOLEAN, "false", fixed=True),
    "remote.storage.enable": ConfigKey(BOOLEAN, "false", fixed=True),
    "retention.bytes": ConfigKey(LONG, "-1"),
    "retention.ms": ConfigKey(LONG, "604800000", -1),
    "segment.bytes": ConfigKey(INT, str(2**30), 1024),
    "segment.index.bytes": ConfigKey(INT, "10485760", 4),
    "segment.jitter.ms": ConfigKey(LONG, "0", 0),
    "segment.ms": ConfigKey(LONG, "604800000", 1),
    "unclean.leader.election.enable": ConfigKey(BOOLEAN, "false"),
}


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


class Storage(Protocol):
    """Where topics are kept. Every method may raise `KafkaStorageError`."""

    def topics(self) -> Iterable[Stored]: ...

    def create_topic(self, name: str, topic_id: "UUID", partitions: int, configs: Mapping[str, str]) -> Stored: ...

    def delete_topic(self, name: str) -> None: ...

    def add_partitions(self, name: str, count: int) -> list[Partition]:
        """Have ``count`` partitions in all; return the new ones."""

    def begin_flush(self, partitions: "Iterable[Segments] | None" = None) -> "Callable[[], None]":
        """Work, for a thread, that has the disk hold what was stored before this call; of some partitions or of all.

        The work raises the first `OSError` when it has tried everything; `Segments.synced_offset` tells the rest.
        """

    def reserve_producer_ids(self, count: int) -> int:
        """The first of ``count`` producer ids that nobody has had and nobody else will get."""


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
    min_insync_replicas: int = 1

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
        self._folded: dict[str, str] = {}
        """Names by what Kafka's metrics make of them."""
        self._storage = storage
        self._new_id = new_id
        for stored in storage.topics():
            self._add(stored)

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Make a topic.

        Raises:
            InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidConfig, KafkaStorageError.
        """
        self.check(name, partitions, configs)
        return self._add(self._storage.create_topic(name, self._new_id(), partitions, configs))

    def check(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Whether a topic could be made; raises what `create` would."""
        check_name(name)
        if name in self.by_name:
            raise TopicAlreadyExists(f"{name} exists")
        if clash := self._folded.get(_folded(name)):
            raise InvalidTopic(f"{name} collides with {clash}: they differ only in '.' and '_'")
        if not 0 < partitions <= MAX_PARTITIONS:
            raise InvalidPartitions(f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")
        for key, value in configs.items():
            check_config(key, value)

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
            raise InvalidPartitions(f"{topic.name} has {known} partitions already, and {partitions} is not more")
        if partitions > MAX_PARTITIONS:
            raise InvalidPartitions(f"{partitions} partitions; a topic has 1 to {MAX_PARTITIONS}")

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
            int(stored.configs.get("min.insync.replicas", self.default("min.insync.replicas"))),
        )
        self.by_name[topic.name] = topic
        self._folded[_folded(topic.name)] = topic.name
        self.by_id[topic.topic_id] = topic
        return topic

    def _settings(self, configs: Mapping[str, str]) -> LogSettings:
        def value(key: str) -> str:
            return configs.get(key, self.default(key))

        return LogSettings(
            compacted="compact" in value("cleanup.policy").split(","),
            max_message_bytes=int(value("max.message.bytes")),
            segment_bytes=int(value("segment.bytes")),
            log_append_time=value("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
            timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
        )


def _folded(name: str) -> str:
    return name.replace(".", "_")


def _check_own(name: str) -> None:
    if name in INTERNAL:
        raise InvalidRequest(f"{name} is the broker's own")


def check_name(name: str) -> None:
    """Raises `InvalidTopic` if no topic may be called ``name``."""
    if not 0 < len(name) <= MAX_NAME:
        raise InvalidTopic(f"a topic's name has 1 to {MAX_NAME} characters, not {len(name)}")
    if name in (".", "..") or not _NAME_CHARACTERS.issuperset(name):
        raise InvalidTopic(f"{name!r}: a topic's name has letters, digits, '.', '_' and '-' only")


def check_config(key: str, value: str) -> None:
    """Raises `InvalidConfig` if no topic may have this configuration."""
    if (known := CONFIGS.get(key)) is None:
        raise InvalidConfig(f"{key} is not a topic's configuration")
    if known.fixed and value != known.default:
        raise InvalidConfig(f"{key} can only be {known.default} on this broker")
    if known.choices and not set(value.split(",")) <= set(known.choices):
        raise InvalidConfig(f"{key} is {value!r}; it must be {' or '.join(known.choices)}")
    if known.type == BOOLEAN and value not in ("true", "false"):
        raise InvalidConfig(f"{key} is {value!r}; it must be true or false")
    if known.type in (INT, LONG, DOUBLE):
        try:
            number = float(value) if known.type == DOUBLE else int(value)
        except ValueError:
            raise InvalidConfig(f"{key} is {value!r}, which is not a number") from None
        highest = {INT: 2**31 - 1, LONG: _LONGEST}.get(known.type, float("inf"))
        if not known.least <= number <= highest:
            raise InvalidConfig(f"{key} is {value}; it must be {known.least:g} to {highest}")
