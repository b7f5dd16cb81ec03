"""The options of a producer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.codec.compression import Compression, checked_level
from ottla.errors import ConfigurationError, EncodeError
from ottla.sdk.produce.partitioners import Chooser, Hash, Keyed

CompressionLevel = tuple[Compression, int | None]
"""A compression and its level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """See `ottla.sdk.client.Client.producer`."""

    acks: int = -1
    idempotent: bool | None = None
    """``None``: if the brokers support it."""
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    topic_compression: dict[str, CompressionLevel] = field(default_factory=dict)
    """Topics with their own compression."""
    delivery_timeout: float | None = None
    """Seconds; ``None``: the client's."""
    transactional_id: str | None = None
    transaction_timeout: float = 60.0
    """Seconds after which the broker aborts a transaction."""
    linger: float = 0.005
    batch_size: int = 512 * 2**10
    partitioner: str | Hash | Keyed | Chooser = "murmur2"
    buffer_memory: int = 32 * 2**20


def compressors(
    compression: str | Mapping[str, str | tuple[str, int]], level: int | None = None
) -> tuple[CompressionLevel, dict[str, CompressionLevel]]:
    """Return the default compression, and the compressions of single topics; see `ottla.sdk.client.Client.producer`.

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
