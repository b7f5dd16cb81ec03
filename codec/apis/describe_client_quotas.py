"""DescribeClientQuotas (key 48): which quotas are set for users, clients and IP addresses.

Sent by administrators (Admin.describeClientQuotas, kafka-configs.sh --describe) to any broker, which answers from what
it knows. It takes the right to describe the cluster's configurations.

Quotas hang on an entity: a user, a client id, a user with a client id, or an IP address; each of these may be the
default, which stands for all that have none of their own. The request is a filter on entities, and the answer has what
is set for them, not what applies in the end: that is the most particular entity's, from user and client id by way of
user to client id.

All quotas are per broker, except `controller_mutation_rate`, which is the cluster's.

Errors:
    INVALID_REQUEST: an entity type that is empty or comes twice, ``ip`` next to another, or a `match` that does not go
        with its `match_type`.
    UNSUPPORTED_VERSION: an entity type that the broker does not know.

Versions:
    0 (2.6)
    1 (2.8): flexible.

Source: ClientQuotasImage.java, describe; QuotaConfig.java; KIP-546, KIP-612.
"""

from ottla.codec.wire import Array, Boolean, Float64, Int8, Int16, Int32, String, message, struct, wire

EXACT = 0
"""Entities with the name given."""
DEFAULT = 1
"""Only the default entity."""
ANY = 2
"""Every entity that has this type, the default, too."""


@struct
class ComponentData:
    """What one type of an entity's parts must be like."""

    entity_type: str = wire(String)
    """``user``, ``client-id`` or ``ip`` (2.8+)."""
    match_type: int = wire(Int8)
    """`EXACT`, `DEFAULT` or `ANY`."""
    match: str | None = wire(String, null="0+")
    """The name for `EXACT`, otherwise ``None``."""


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...] = wire(Array(ComponentData))
    """An entity must fit all of these; ``()``: every entity, unless `strict`."""
    strict: bool = wire(Boolean)
    """An entity must have no other types than these: a user alone, not a user with a client id."""


@struct
class EntityData:
    """One part of an entity."""

    entity_type: str = wire(String)
    """``user``, ``client-id`` or ``ip``."""
    entity_name: str | None = wire(String, null="0+")
    """``None``: the default."""


@struct
class ValueData:
    """One quota."""

    key: str = wire(String)
    """``producer_byte_rate``, ``consumer_byte_rate``: bytes per second. ``request_percentage``: of one thread's time.
    ``controller_mutation_rate``: partitions created and deleted per second. ``connection_creation_rate``, of an
    ``ip``: connections per second."""
    value: float = wire(Float64)


@struct
class EntryData:
    """An entity and its quotas."""

    entity: tuple[EntityData, ...] = wire(Array(EntityData))
    values: tuple[ValueData, ...] = wire(Array(ValueData))


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    entries: tuple[EntryData, ...] | None = wire(Array(EntryData), null="0+")
    """``None`` with an error."""
