"""What administration returns."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ottla.sdk.machines.cluster import Topic


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Attributes:
    leader: node id, -1 while there is none.
    replicas, isr: node ids; the in-sync ones have all that was acknowledged.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Attributes:
    topic_id: zero for brokers before 2.8.
    internal: Kafka's own, such as ``__consumer_offsets``.
    configs: what was set for this topic; all else is as the broker has it.
    """

    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str | None]

    @classmethod
    def of(cls, topic: Topic, configs: Mapping[str, str | None]) -> Self:
        partitions = tuple(
            PartitionDescription(each.partition, each.leader, each.replicas, each.isr)
            for _, each in sorted(topic.partitions.items())
        )
        return cls(topic.name, topic.topic_id, topic.internal, partitions, dict(configs))
