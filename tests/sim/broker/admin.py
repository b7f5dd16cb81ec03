"""An administrator who creates, grows and deletes topics: acknowledged changes must last.

It sends one request at a time, and repeats it until it is answered.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.brokerlite.machines.core import BrokerCore
from ottla.codec.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.codec.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.errors import InvalidPartitions, KafkaStorageError, TopicAlreadyExists, UnknownTopicOrPartition
from tests.sim.broker.peer import Ask, Peer, Steps
from tests.sim.history import code
from tests.sim.users import Violation

GONE = "a topic that was created is not there"
BACK = "a deleted topic is there"
REFUSED = "a valid request is refused"


@dataclass(slots=True, eq=False)
class Administering:
    """Attributes: there: topics whose creation was acknowledged, with their least numbers of partitions."""

    peer: Peer
    chance: Random
    features: Counter[str]
    pause: float
    """Average seconds between two changes."""
    over: Callable[[], bool]
    there: dict[str, int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    uncertain: str = ""
    """The topic that is being changed."""
    _made: int = 0

    def script(self) -> Steps:
        while not self.over():
            yield self.chance.uniform(0.0, 2 * self.pause)
            way = self.chance.random()
            if way < 0.5 or not self.there:
                yield from self._create()
            elif way < 0.75:
                yield from self._grow(self.chance.choice(list(self.there)))
            else:
                yield from self._delete(self.chance.choice(list(self.there)))

    def check(self, core: BrokerCore) -> None:
        """Check the topics after a start."""
        for name, partitions in self.there.items():
            topic = core.topics.by_name.get(name)
            if name != self.uncertain and (topic is None or len(topic.partitions) < partitions):
                raise Violation(GONE, f"{name}: {len(topic.partitions) if topic else 0} of {partitions} partitions")
            if topic is not None and topic.configs.get("retention.ms") != "86400000":
                raise Violation(GONE, f"{name}: its configurations")
        for name in self.deleted:
            if name != self.uncertain and name in core.topics.by_name:
                raise Violation(BACK, name)

    def _create(self) -> Steps:
        self._made += 1
        name, partitions = f"n{self._made}", self.chance.randint(1, 3)
        config = CreatableTopicConfig(name="retention.ms", value="86400000")
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=(config,)
        )
        yield from self.asked(CreateTopicsRequest(topics=(topic,)), 5, name, TopicAlreadyExists.code)
        self.there[name] = partitions
        self.features["a topic is made"] += 1

    def _grow(self, name: str) -> Steps:
        count = self.there[name] + 1
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1000, validate_only=False)
        yield from self.asked(request, 3, name, InvalidPartitions.code)
        self.there[name] = count
        self.features["a topic grows"] += 1

    def _delete(self, name: str) -> Steps:
        request = DeleteTopicsRequest(topic_names=(name,), timeout_ms=1000)
        yield from self.asked(request, 5, name, UnknownTopicOrPartition.code)
        del self.there[name]
        self.deleted.add(name)
        self.features["a topic is deleted"] += 1

    def asked(self, request: Any, version: int, name: str, done: int) -> Steps:
        """Repeat a request until it succeeds. Args: done: the error that says that an earlier attempt succeeded."""
        self.uncertain = name
        repeats = False
        while True:
            answer = yield Ask(request, version)
            if answer is not None:
                results = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
                error = results[0].error_code
                if not error or (repeats and error == done):
                    break
                if error != KafkaStorageError.code:
                    raise Violation(REFUSED, f"{type(request).__name__} of {name}: {code(error)}")
            repeats = True
            yield self.chance.uniform(0.05, 0.3)
        self.uncertain = ""
