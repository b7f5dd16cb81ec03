"""Where records go: every partitioner that a producer knows by name, and what one of your own looks like.

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
| round_robin, random      | do not look at the key            |          |           | Java, librdkafka             |
| least_bytes              | do not look at the key            |          |           | kafka-go                     |

*Sticky* is what Java does since 3.3 (KIP-794): keyless records of a topic stay with one partition for about 16 KiB,
then move on to another by chance, the likelier the fewer batches wait for it; never, if that can be helped, to one
without a leader or whose node cannot be reached. Other clients choose again for each record or batch; the spread is the
same.

`round_robin` counts on at each record. `least_bytes` takes the partition that was given the fewest bytes so far.

Quirks: sarama and kafka-go take Go's remainder of a *signed* hash and drop its sign afterwards, so a hash of 2**31 or
more goes elsewhere than in franz-go or the reference. ``abs`` of -2**31 is 0 here, as in Kafka 0.8 and Spring. A key
for `java_string` is decoded from UTF-8 and hashed by its UTF-16 units, as Java has strings.

Source: BuiltInPartitioner.java, rdkafka_msg.c (rd_kafka_msg_partitioner_*), sarama's partitioner.go, kafka-go's
balancer.go, franz-go's partitioner.go, kafka 0.8's DefaultPartitioner.scala, Spring's PartitionHandler.java.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ottla.codec.partitioners import (
    crc32_partition,
    fnv1a,
    fnv1a_partition,
    fnv1a_reference_partition,
    murmur2_partition,
)
from ottla.errors import ConfigurationError, EncodeError

if TYPE_CHECKING:
    from random import Random

__all__ = ["CHOOSERS", "KEYED", "Choice", "Chooser", "Hash", "Keyed", "named"]

Hash = Callable[[bytes, int], int]
"""``(key, number of partitions) -> partition``."""


@dataclass(slots=True)
class Choice:
    """What a partitioner of your own may look at.

    Attributes:
        key, value: as they are sent: serialized.
        partitions: all of the topic, ascending.
        led: those of them that have a leader; empty if none has.
        queued: bytes of records that wait or are on their way, for a partition.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partitions: Sequence[int]
    led: Sequence[int]
    queued: Callable[[int], int]


@runtime_checkable
class Chooser(Protocol):
    """A partitioner that sees more than the key. It is asked for each record that names no partition."""

    def choose(self, choice: Choice) -> int:
        """The partition."""
        ...


@dataclass(frozen=True, slots=True)
class Keyed:
    """A partitioner that hashes keys.

    Attributes:
        hash_null: a null key is hashed as an empty one; otherwise it is sticky.
        hash_empty: an empty key is hashed; otherwise it is sticky.
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
        raise EncodeError(f"the key is no UTF-8, so it has no String.hashCode: {error.reason}") from None
    value = 0
    for (unit,) in struct.iter_unpack("<H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _magnitude(value) % partitions


def java_int(key: bytes, partitions: int) -> int:
    """Raises `EncodeError` for a key that has not 4 bytes."""
    if len(key) != 4:
        raise EncodeError(f"the key has {len(key)} bytes, and an int has 4: encode it with number.to_bytes(4, 'big')")
    return _magnitude(int.from_bytes(key, "big")) % partitions


def _magnitude(value: int) -> int:
    """Of 32 bits that are a signed number; 0 for the one that has none."""
    return value if value < 2**31 else (2**32 - value) % 2**31


class RoundRobin:
    """One partition after the other, per topic; those without a leader are left out while there are others."""

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
    """Any partition that has a leader."""

    def __init__(self, rng: "Random") -> None:
        self._rng = rng

    def choose(self, choice: Choice) -> int:
        return self._rng.choice(choice.led or choice.partitions)


class LeastBytes:
    """The partition for which the fewest bytes of keys and values were accepted so far, as kafka-go counts."""

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
    """The partitioner that a user means.

    Raises:
        ConfigurationError: there is none of this name, and it is nothing that could be one.
    """
    if isinstance(partitioner, str):
        if partitioner in KEYED:
            return KEYED[partitioner]
        if partitioner in CHOOSERS:
            return CHOOSERS[partitioner](rng)
        names = ", ".join([*KEYED, *CHOOSERS])
        raise ConfigurationError(f"partitioner {partitioner!r} is not one of {names}, nor a function")
    if isinstance(partitioner, Keyed | Chooser):
        return partitioner
    if callable(partitioner):
        return Keyed(partitioner)
    what = "a name, a function of a key and the number of partitions, or an object with choose()"
    raise ConfigurationError(f"a partitioner is {what}, not {partitioner!r}")
