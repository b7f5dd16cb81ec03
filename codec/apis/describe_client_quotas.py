"""DescribeClientQuotas (key 48): which quotas are set for users, clients and IP addresses.

Sent by administrators (Admin.describeClientQuotas, kafka-configs.sh --describe) to any broker, which answers from its
own copy. Requires the right to describe the cluster's configurations.

Quotas belong to an entity: a user, a client id, a user with a client id, or an IP address. Each of these may be the
default, for everybody without a quota of their own. The request is a filter on entities. The response has the quotas
that are set for them, not the effective ones: these are the most specific entity's, in the order user and client id,
user, client id.

All quotas are per broker, except `controller_mutation_rate`, which is the cluster's.

Errors:
    INVALID_REQUEST: an entity type that is empty or repeated, ``ip`` with another type, or a `match` that does not fit
        its `match_type`.
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
"""Every entity that has this type, including the default."""


@struct
class ComponentData:
    """A condition on one type in an entity."""

    entity_type: str = wire(String)
    """``user``, ``client-id`` or ``ip`` (2.8+)."""
    match_type: int = wire(Int8)
    """`EXACT`, `DEFAULT` or `ANY`."""
    match: str | None = wire(String, null="0+")
    """The name for `EXACT`, otherwise ``None``."""


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...] = wire(Array(ComponentData))
    """An entity must match all of these; ``()``: every entity, unless `strict`."""
    strict: bool = wire(Boolean)
    """An entity must not have other types than these: a user alone, not a user with a client id."""


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
