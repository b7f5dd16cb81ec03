"""The settings of the group coordinator."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Kafka's settings of a group coordinator; seconds and bytes."""

    initial_rebalance_delay: float = 0.0
    """How long the first rebalance of an empty group waits for others (`group.initial.rebalance.delay.ms`)."""
    min_session_timeout: float = 6.0
    max_session_timeout: float = 30 * 60.0
    new_member_timeout: float = 5 * 60.0
    """The longest that a new member's first JoinGroup waits."""
    max_groups: int = 10_000
    max_members: int = 1000
    """The most members of one group, and the most pending ids (`group.max.size`, unbounded in Kafka)."""
    max_group_bytes: int = 16 * 2**20
    """The most bytes of memory for a group's members (`Group.size`), and of the assignment of its leader."""
    max_offset_metadata: int = 4096
    """The most characters of metadata with a committed offset (`offset.metadata.max.bytes`)."""
    offsets_retention: float = 7 * 24 * 3600.0
    """How long offsets outlive their group (`offsets.retention.minutes`)."""
    offsets_retention_check: float = 600.0
    """How often expired offsets are removed (`offsets.retention.check.interval.ms`)."""
