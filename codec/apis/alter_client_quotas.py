"""AlterClientQuotas (key 49): set or remove quotas of users, clients and IP addresses.

Sent by administrators (Admin.alterClientQuotas, kafka-configs.sh --alter) to any broker, which forwards it to the
controller. It takes the right to alter the cluster's configurations. DescribeClientQuotas says what entities and keys
there are; brokers apply a change to connected clients a little after the answer.

Each entity succeeds or fails as a whole, and by itself.

Errors:
    INVALID_REQUEST: no such entity type or combination (``ip`` stands alone), a key that does not go with the entity
        or comes twice, or a value that is not above 0, or not whole where it must be.

Versions:
    0 (2.6)
    1 (2.8): flexible.

Source: ClientQuotaControlManager.java; KIP-546, KIP-612.
"""

from ottla.codec.wire import Array, Boolean, Float64, Int16, Int32, String, message, struct, wire


@struct
class EntityData:
    """One part of an entity."""

    entity_type: str = wire(String)
    """``user``, ``client-id``, or both parts together; ``ip`` alone."""
    entity_name: str | None = wire(String, null="0+")
    """``None``: the default, for all that have no quota of their own."""


@struct
class OpData:
    """A change of one quota."""

    key: str = wire(String)
    """As in DescribeClientQuotas: ``producer_byte_rate`` and so on."""
    value: float = wire(Float64)
    """Above 0, and whole except for ``request_percentage`` and ``controller_mutation_rate``; not looked at if
    `remove`."""
    remove: bool = wire(Boolean)
    """Back to what the more general entities say. Removing what is not set is no error."""


@struct
class EntryData:
    """An entity and its changes."""

    entity: tuple[EntityData, ...] = wire(Array(EntityData))
    ops: tuple[OpData, ...] = wire(Array(OpData))
    """Keys that are not named stay as they are."""


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: tuple[EntryData, ...] = wire(Array(EntryData))
    validate_only: bool = wire(Boolean)
    """Check everything, change nothing."""


@struct
class EntryDataResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    entity: tuple[EntityData, ...] = wire(Array(EntityData))


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    entries: tuple[EntryDataResponse, ...] = wire(Array(EntryDataResponse))
