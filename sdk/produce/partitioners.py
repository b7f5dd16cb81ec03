"""Partitioners: all that a producer knows by name, and the protocol for your own.

| name                     | keys                              | null key | empty key | as                           |
|--------------------------|-----------------------------------|----------|-----------|------------------------------|
| murmur2, murmur2_random  | ``(murmur2(k) & 0x7fffffff) % n`` | sticky   | hashed    | Java, librdkafka             |
| crc32, consistent_random | ``crc32(k) % n``                  | sticky   | sticky    | librdkafka's default         |
| consistent               | ``crc32(k) % n``                  | hashed   | hashed    | librdkafka                   |
| fnv1a, fnv1a_random      | ``abs(rem(int32(fnv1a(k)), n))``  | sticky   | hashed    | sarama, kafka-go, librdkafka |
| fnv1a_reference          | ``(fnv1a(k) & 0x7fffffff) % n``   | sticky   | hashed    | their `ReferenceHash`        |
| fnv1a_unsigned           | ``fnv1a(k) % n``                  | sticky   | hashed    | franz-go's `SaramaHasher`    |
| java_string              | ``abs(String.hashCode) % n``      | sticky   | hashed    | Spring Cloud, Kafka 0.8      |
| java_int                 | ``abs(int32, big-endian) % n``    | sticky   | refused   | the same, with Integer keys  |
| round_robin, random      | ignore the key                    |          |           | Java, librdkafka             |
| least_bytes              | ignores the key                   |          |           | kafka-go                     |

*Sticky* is Java's behaviour since 3.3 (KIP-794): keyless records of a topic stay with one partition for about 16 KiB,
then move to a random one, with a higher probability for partitions with fewer waiting batches. Partitions without a
leader, or with an unreachable leader, are avoided if possible. Other clients choose again for each record or batch; the
distribution is the same.

`round_robin` moves to the next partition with each record. `least_bytes` chooses the partition with the fewest bytes so
far.

Quirks: sarama and kafka-go take Go's remainder of a *signed* hash and drop its sign afterwards, so a hash of 2**31 or
more maps to another partition than in franz-go or the reference. ``abs`` of -2**31 is 0 here, as in Kafka 0.8 and
Spring. `java_string` decodes a key from UTF-8 and hashes its UTF-16 units, as Java's String does.

Source: BuiltInPartitioner.java, rdkafka_msg.c (rd_kafka_msg_partitioner_*), sarama's partitioner.go, kafka-go's
balancer.go, franz-go's partitioner.go, kafka 0.8's DefaultPartitioner.scala, Spring's PartitionHandler.java.
"""

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ottla.codec.partitioners import (
    crc32_partition,
    fnv1a,
    fnv1a_partition,
    fnv1a_reference_partition,
    murmur2_partition,
)
from ottla.errors import ConfigurationError, EncodeError
from ottla.late_dataclass import dataclass

if TYPE_CHECKING:
    from random import Random

__all__ = ["CHOOSERS", "KEYED", "Choice", "Chooser", "Hash", "Keyed", "named"]

Hash = Callable[[bytes, int], int]
"""``(key, number of partitions) -> partition``."""


@dataclass(slots=True)
class Choice:
    """The facts that a custom partitioner may use.

    Attributes:
        key, value: as they are sent: serialized.
        partitions: all of the topic, ascending.
        led: the partitions that have a leader; empty if none has.
        queued: the bytes of a partition's records that wait or are in flight.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partitions: Sequence[int]
    led: Sequence[int]
    queued: Callable[[int], int]


@runtime_checkable
class Chooser(Protocol):
    """A partitioner that sees more than the key. It is called for each record without an explicit partition."""

    def choose(self, choice: Choice) -> int:
        """Return the partition."""
        ...


@dataclass(frozen=True, slots=True)
class Keyed:
    """A partitioner that hashes keys.

    Attributes:
        hash_null: whether a null key is hashed like an empty one; otherwise it is sticky.
        hash_empty: whether an empty key is hashed; otherwise it is sticky.
    """

    hash: Hash
    hash_null: bool = False
    hash_empty: bool = True


def fnv1a_unsigned(key: bytes, partitions: int) -> int:
    return fnv1a(key) % partitions


def java_string(key: bytes, partitions: int) -> int:
    """Raises `EncodeError` for a key that is not UTF-8."""
    try:
        units = bytes(key).decode().encode("utf-16-le")
    except UnicodeDecodeError as error:
        raise EncodeError(f"the key is not UTF-8, so it has no String.hashCode: {error.reason}") from None
    value = 0
    for (unit,) in struct.iter_unpack("<H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _magnitude(value) % partitions


def java_int(key: bytes, partitions: int) -> int:
    """Raises `EncodeError` for a key whose length is not 4 bytes."""
    if len(key) != 4:
        raise EncodeError(f"the key has {len(key)} bytes, and an int has 4: encode it with number.to_bytes(4, 'big')")
    return _magnitude(int.from_bytes(key, "big")) % partitions


def _magnitude(value: int) -> int:
    """The absolute value of a signed 32-bit number; 0 for -2**31, which has none."""
    return value if value < 2**31 else (2**32 - value) % 2**31


class RoundRobin:
    """One partition after the other, per topic; skips those without a leader if others have one."""

    def __init__(self, rng: "Random") -> None:
        self._rng = rng
        self._next: dict[str, int] = {}

    def choose(self, choice: Choice) -> int:
        among = choice.led or choice.partitions
        turn = self._next.get(choice.topic)
        if turn is None:
            turn = self._rng.randrange(len(among))
        self._next[choice.topic] = turn + 1
        return among[turn % len(among)]


class AtRandom:
    """Any partition with a leader."""

    def __init__(self, rng: "Random") -> None:
        self._rng = rng

    def choose(self, choice: Choice) -> int:
        return self._rng.choice(choice.led or choice.partitions)


class LeastBytes:
    """The partition with the fewest bytes of keys and values so far, as kafka-go counts."""

    def __init__(self, rng: "Random") -> None:
        self._taken: dict[tuple[str, int], int] = {}

    def choose(self, choice: Choice) -> int:
        topic, taken = choice.topic, self._taken
        chosen = min(choice.led or choice.partitions, key=lambda each: (taken.get((topic, each), 0), each))
        taken[topic, chosen] = taken.get((topic, chosen), 0) + len(choice.key or b"") + len(choice.value or b"")
        return chosen


_CONSISTENT_RANDOM = Keyed(crc32_partition, hash_empty=False)

KEYED: dict[str, Keyed] = {
    "murmur2": Keyed(murmur2_partition),
    "murmur2_random": Keyed(murmur2_partition),
    "crc32": _CONSISTENT_RANDOM,
    "consistent_random": _CONSISTENT_RANDOM,
    "consistent": Keyed(crc32_partition, hash_null=True),
    "fnv1a": Keyed(fnv1a_partition),
    "fnv1a_random": Keyed(fnv1a_partition),
    "fnv1a_reference": Keyed(fnv1a_reference_partition),
    "fnv1a_unsigned": Keyed(fnv1a_unsigned),
    "java_string": Keyed(java_string),
    "java_int": Keyed(java_int),
}

CHOOSERS: dict[str, Callable[["Random"], Chooser]] = {
    "round_robin": RoundRobin,
    "random": AtRandom,
    "least_bytes": LeastBytes,
}


def named(partitioner: "str | Hash | Keyed | Chooser", rng: "Random") -> Keyed | Chooser:
    """Return the partitioner that the option means.

    Raises:
        ConfigurationError: there is none of this name, or the object cannot be a partitioner.
    """
    if isinstance(partitioner, str):
        if partitioner in KEYED:
            return KEYED[partitioner]
        if partitioner in CHOOSERS:
            return CHOOSERS[partitioner](rng)
        names = ", ".join([*KEYED, *CHOOSERS])
        raise ConfigurationError(f"partitioner {partitioner!r} is not one of {names}, and not a function")
    if isinstance(partitioner, Keyed | Chooser):
        return partitioner
    if callable(partitioner):
        return Keyed(partitioner)
    what = "a name, a function of a key and the number of partitions, or an object with choose()"
    raise ConfigurationError(f"a partitioner must be {what}, not {partitioner!r}")
