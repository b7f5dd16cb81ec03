"""The hash partitioners of Kafka's clients, as pure functions ``(key, partitions) -> partition``.

| name             | who                                            | formula                                   |
|------------------|------------------------------------------------|-------------------------------------------|
| murmur2          | Java, kafka-python, aiokafka, kafkajs, franz-go | ``(murmur2(k) & 0x7fffffff) % n``         |
| crc32            | librdkafka (`consistent`), ruby-kafka           | ``crc32(k) % n``                          |
| fnv1a            | sarama and kafka-go, `Hash`                     | ``abs(rem(int32(fnv1a(k)), n))``, truncated |
| fnv1a_reference  | sarama and kafka-go, `ReferenceHash`            | ``(fnv1a(k) & 0x7fffffff) % n``           |

The partition of a record without a key is the producer's choice, and is not decided here.

The functions themselves are in `ottla.codec._loops` in Python, and in `ottla.codec._records` in C.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.codec._engine import ENGINE

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec._loops import (
        crc32_partition,
        fnv1a,
        fnv1a_partition,
        fnv1a_reference_partition,
        murmur2,
        murmur2_partition,
        partition_column,
    )
else:
    from ottla.codec._records import (
        crc32_partition,
        fnv1a,
        fnv1a_partition,
        fnv1a_reference_partition,
        murmur2,
        murmur2_partition,
        partition_column,
    )

__all__ = [
    "PARTITIONERS",
    "Partitioner",
    "crc32_partition",
    "fnv1a",
    "fnv1a_partition",
    "fnv1a_reference_partition",
    "murmur2",
    "murmur2_partition",
    "partition_column",
]

Partitioner = Callable[[bytes, int], int]
"""Returns the partition of a key. Raises `ValueError` for fewer than one partition."""

PARTITIONERS: dict[str, Partitioner] = {
    "murmur2": murmur2_partition,
    "crc32": crc32_partition,
    "fnv1a": fnv1a_partition,
    "fnv1a_reference": fnv1a_reference_partition,
}
"""Partitioners by name; `ottla.sdk.produce.partitioners` says when to use which."""
