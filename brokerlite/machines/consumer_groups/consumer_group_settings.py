"""The settings of the coordinator of consumer groups."""

import enum
from dataclasses import dataclass


class MigrationPolicy(enum.StrEnum):
    """Whether a group with members may change its protocol (`group.consumer.migration.policy`)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    """Only classic groups may become consumer groups."""
    DOWNGRADE = "downgrade"
    """Only consumer groups may become classic groups."""
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, kw_only=True)
class ConsumerGroupSettings:
    """Kafka's settings of consumer groups; seconds and bytes."""

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    """How often members send heartbeats, as the broker tells them."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is used if members name none."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assignment_interval: float = 0.0
    """The least time between two assignments of a group."""
    pattern_refresh_interval: float = 600.0
    """After this time a pattern is resolved again, even without a change of topics: ACLs may have changed."""
    max_groups: int = 10_000
    max_members: int = 1000
    """The most members of one group (`group.consumer.max.size`, unbounded in Kafka)."""
    max_group_bytes: int = 16 * 2**20
    """The most bytes of memory for the members' own data (`ConsumerGroup.size`)."""
