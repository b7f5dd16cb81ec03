"""AlterClientQuotas (key 49): set or remove quotas of users, clients and IP addresses.

Sent by administrators (Admin.alterClientQuotas, kafka-configs.sh --alter) to any broker, which forwards it to the
controller. Requires the right to alter the cluster's configurations. For entities and keys see DescribeClientQuotas.
Brokers apply a change to connected clients a little after the response.

Each entity succeeds or fails as a whole, and independently of the others.

Errors:
    INVALID_REQUEST: an unknown entity type or combination (``ip`` must be alone), a key that does not fit the entity or
        is repeated, or a value that is not above 0, or not whole where it must be.

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
    """``user``, ``client-id``, or both together; ``ip`` alone."""
    entity_name: str | None = wire(String, null="0+")
    """``None``: the default, for everybody without a quota of their own."""


@struct
class OpData:
    """A change of one quota."""

    key: str = wire(String)
    """As in DescribeClientQuotas, for example ``producer_byte_rate``."""
    value: float = wire(Float64)
    """Above 0, and whole except for ``request_percentage`` and ``controller_mutation_rate``; ignored with `remove`."""
    remove: bool = wire(Boolean)
    """Return to the quota of a more general entity. Removing a quota that is not set is no error."""


@struct
class EntryData:
    """An entity and its changes."""

    entity: tuple[EntityData, ...] = wire(Array(EntityData))
    ops: tuple[OpData, ...] = wire(Array(OpData))
    """Keys that are not named do not change."""


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: tuple[EntryData, ...] = wire(Array(EntryData))
    validate_only: bool = wire(Boolean)
    """Check the request without changing anything."""


@struct
class EntryDataResponse:
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    entity: tuple[EntityData, ...] = wire(Array(EntityData))


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    entries: tuple[EntryDataResponse, ...] = wire(Array(EntryDataResponse))
