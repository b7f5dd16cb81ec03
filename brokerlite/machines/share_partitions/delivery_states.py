"""The states of a record that a share group reads, as a table.

Rules:
- A record is AVAILABLE until a member acquires it. The member accepts it, rejects it or gives it back; if the member
  does nothing in time, the record is released, too.
- A record that was delivered as often as the group allows is archived instead of released.
- ACKNOWLEDGED and ARCHIVED are final. The stored records have the same values, but no ACQUIRED: after a crash such a
  record is available again.

Source: RecordState.java, InFlightState.java (tryUpdateState).
"""

import enum
from collections.abc import Mapping


class DeliveryState(enum.IntEnum):
    """The state of a record."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class DeliveryInput(enum.Enum):
    """What happens to a record."""

    ACQUIRED = enum.auto()
    ACCEPTED = enum.auto()
    RELEASED = enum.auto()
    """Given back by its member, or its lock has expired."""
    EXHAUSTED = enum.auto()
    """As RELEASED, and it was delivered as often as the group allows."""
    REJECTED = enum.auto()
    """Refused by its member, or the member found no record at the offset."""
    DROPPED = enum.auto()
    """It is no longer in the log, or belongs to an aborted transaction."""


TRANSITIONS: Mapping[tuple[DeliveryState, DeliveryInput], DeliveryState] = {
    (DeliveryState.AVAILABLE, DeliveryInput.ACQUIRED): DeliveryState.ACQUIRED,
    (DeliveryState.AVAILABLE, DeliveryInput.DROPPED): DeliveryState.ARCHIVED,
    (DeliveryState.ACQUIRED, DeliveryInput.ACCEPTED): DeliveryState.ACKNOWLEDGED,
    (DeliveryState.ACQUIRED, DeliveryInput.RELEASED): DeliveryState.AVAILABLE,
    (DeliveryState.ACQUIRED, DeliveryInput.EXHAUSTED): DeliveryState.ARCHIVED,
    (DeliveryState.ACQUIRED, DeliveryInput.REJECTED): DeliveryState.ARCHIVED,
    (DeliveryState.ACQUIRED, DeliveryInput.DROPPED): DeliveryState.ARCHIVED,
}
"""State, input -> the next state; everything else is a bug of the caller."""
