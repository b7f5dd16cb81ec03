"""The options of a producer."""

from collections.abc import Mapping
from typing import Literal

from ottla.codec.compression import Compression, checked_level
from ottla.errors import ConfigurationError, EncodeError
from ottla.late_dataclass import dataclass
from ottla.sdk import kafka_values as kafka
from ottla.sdk.options import FROM_ZERO, MEMORY, option, within_bounds
from ottla.sdk.produce.partitioners import Chooser, Hash, Keyed

CompressionLevel = tuple[Compression, int | None]
"""A compression and its level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of `ottla.sdk.client.Client.producer`, checked."""

    acks: Literal["all"] | int = option("all", {"acks": kafka.acks})
    """``"all"`` (-1), 1 or 0: how many replicas must have a record before it counts as stored."""
    idempotent: bool | None = option(None, {"enable.idempotence": kafka.boolean})
    """Retries neither duplicate nor reorder records; needs ``acks="all"``, with which it is the default if the brokers
    support it (Kafka 0.11). Without it a retry may store records twice; their order stays, because only one batch per
    partition is in flight."""
    linger: float = option(0.005, {"linger.ms": kafka.milliseconds}, bounds=FROM_ZERO)
    """Seconds that a batch waits for more records, at most. A record of `send`, whose caller waits, goes at once if no
    request to its leader is in flight, otherwise after the next response, with all that came meanwhile."""
    batch_size: int = option(512 * 2**10, {"batch.size": kafka.size})
    """Bytes of a batch before compression."""
    compression: str | Mapping[str, str | tuple[str, int]] = option("none", {"compression.type": kafka.text})
    """``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``; or one for each topic, ``{"events": "zstd",
    "logs": ("gzip", 9), "*": "lz4"}``, where ``"*"`` is every other topic."""
    compression_level: int | None = option(None, {"compression.level": kafka.level})
    """On the scale of the codec's library; for a ``compression`` given as a name."""
    partitioner: str | Hash | Keyed | Chooser = option(
        "murmur2", {"partitioner.class": kafka.partitioner_class, "partitioner": kafka.partitioner}
    )
    """A name from the table in `ottla.sdk.produce.partitioners`, such as ``"murmur2"`` (as Java),
    ``"consistent_random"`` (as librdkafka) or ``"round_robin"``; a function of a key and the number of partitions; or
    an object with ``choose``, which sees the whole record."""
    buffer_memory: int = option(
        32 * 2**20, {"buffer.memory": kafka.number, "queue.buffering.max.kbytes": kafka.kilobytes}, bounds=MEMORY
    )
    """Bytes of unacknowledged records, uncompressed, plus 2 KiB for each batch; further sends wait."""
    delivery_timeout: float | None = None
    """Seconds from sending to the broker's acknowledgement; by default the client's."""
    transactional_id: str | None = option(None, {"transactional.id": kafka.text})
    """The producer's name for transactions; required for them. It has to stay the same after a restart, and no other
    producer may use it. Records are then sent within `Producer.transaction`."""
    transaction_timeout: float = option(60.0, {"transaction.timeout.ms": kafka.milliseconds})
    """Seconds after which the broker aborts an open transaction."""

    def __post_init__(self) -> None:
        acks = self.required_acks
        if type(acks) is not int or acks not in (-1, 0, 1):
            raise ConfigurationError(f"acks must be 'all', 1 or 0, not {self.acks!r}")
        if self.idempotent and acks != -1:
            raise ConfigurationError("an idempotent producer needs acks='all'")
        if self.transactional_id is not None:
            if not isinstance(self.transactional_id, str) or not self.transactional_id:
                raise ConfigurationError(f"a transactional_id must be a non-empty str, not {self.transactional_id!r}")
            if acks != -1 or self.idempotent is False:
                raise ConfigurationError("transactions need acks='all' and an idempotent producer")
        compressors(self.compression, self.compression_level)
        if not isinstance(self.compression, str):
            object.__setattr__(self, "compression", dict(self.compression))  # the caller may change theirs later
        within_bounds(self)

    @property
    def required_acks(self) -> int:
        """``acks`` as a number: -1 is all."""
        return -1 if self.acks == "all" else self.acks


def compressors(
    compression: str | Mapping[str, str | tuple[str, int]], level: int | None = None
) -> tuple[CompressionLevel, dict[str, CompressionLevel]]:
    """Return the default compression, and the compressions of single topics.

    Raises:
        ConfigurationError: there is no such compression, or it has no such level.
    """

    def compressor(given: str | tuple[str, int]) -> CompressionLevel:
        if not isinstance(given, str) and not (isinstance(given, tuple) and len(given) == 2):
            raise ConfigurationError(f"a compression must be a name, or (name, level), not {given!r}")
        name, own_level = (given, level) if isinstance(given, str) else given
        try:
            known = Compression.named(name)
            # With several compressions, compression_level does not apply to "none".
            checked = own_level if known or own_level is None else None
            checked_level(known, checked)
        except (ValueError, EncodeError) as error:
            raise ConfigurationError(str(error)) from None
        return known, checked

    if isinstance(compression, str):
        default = compressor(compression)
        if level is not None and not default[0]:
            raise ConfigurationError("compression_level needs a compression, as in compression='zstd'")
        return default, {}
    if not isinstance(compression, Mapping):
        raise ConfigurationError(f"compression must be a name, or one for each topic, not {compression!r}")
    by_topic = {topic: compressor(given) for topic, given in compression.items()}
    return by_topic.pop("*", (Compression.NONE, None)), by_topic
