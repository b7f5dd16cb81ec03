"""Where a key goes: the hash partitioners of the Kafka world, as pure functions ``(key, partitions) -> partition``.

| name             | who                                            | formula                                   |
|------------------|------------------------------------------------|-------------------------------------------|
| murmur2          | Java, kafka-python, aiokafka, kafkajs, franz-go | ``(murmur2(k) & 0x7fffffff) % n``         |
| crc32            | librdkafka (`consistent`), ruby-kafka           | ``crc32(k) % n``                          |
| fnv1a            | sarama and kafka-go, `Hash`                     | ``abs(rem(int32(fnv1a(k)), n))``, truncated |
| fnv1a_reference  | sarama and kafka-go, `ReferenceHash`            | ``(fnv1a(k) & 0x7fffffff) % n``           |

A null key goes where its client likes; that is not decided here.
"""

import struct
import zlib
from collections.abc import Callable

Partitioner = Callable[[bytes, int], int]

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), unsigned. Source: Utils.java."""
    size = len(key)
    h = 0x9747B28C ^ size
    for k in struct.unpack_from(f"<{size >> 2}I", key):
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    if tail := size & 3:
        h = ((h ^ int.from_bytes(key[size - tail :], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def fnv1a(key: bytes) -> int:
    """32-bit FNV-1a, unsigned."""
    h = 0x811C9DC5
    for byte in key:
        h = ((h ^ byte) * 0x01000193) & _MASK
    return h


def murmur2_partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % partitions


def fnv1a_partition(key: bytes, partitions: int) -> int:
    h = fnv1a(key)
    return ((1 << 32) - h if h >> 31 else h) % partitions


def fnv1a_reference_partition(key: bytes, partitions: int) -> int:
    return (fnv1a(key) & 0x7FFFFFFF) % partitions


PARTITIONERS: dict[str, Partitioner] = {
    "murmur2": murmur2_partition,
    "crc32": crc32_partition,
    "fnv1a": fnv1a_partition,
    "fnv1a_reference": fnv1a_reference_partition,
}
