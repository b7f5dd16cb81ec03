"""The settings of share groups and of their partitions."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ShareGroupSettings:
    """Kafka's settings of share groups (`group.share.…`); seconds and bytes."""

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    """How often members send heartbeats, as the broker tells them."""
    max_groups: int = 10_000
    max_members: int = 200
    """The most members of one group (`group.share.max.size`)."""
    max_group_bytes: int = 16 * 2**20
    """The most bytes of memory for the members' own data."""
    max_share_partitions: int = 100_000
    """The most partitions of all groups together; each takes some memory, even if no one reads it."""
    record_lock_duration: float = 30.0
    """How long a member may have a record."""
    delivery_count_limit: int = 5
    """How many times a record may be delivered."""
    partition_max_record_locks: int = 2000
    """The most records of one partition that are in flight for a group."""
    max_share_sessions: int = 2000

    def described(self) -> dict[str, str]:
        """Return the settings by Kafka's names, for DescribeConfigs."""
        return {
            "group.share.delivery.count.limit": str(self.delivery_count_limit),
            "group.share.heartbeat.interval.ms": str(round(self.heartbeat_interval * 1000)),
            "group.share.max.share.sessions": str(self.max_share_sessions),
            "group.share.max.size": str(self.max_members),
            "group.share.partition.max.record.locks": str(self.partition_max_record_locks),
            "group.share.record.lock.duration.ms": str(round(self.record_lock_duration * 1000)),
            "group.share.session.timeout.ms": str(round(self.session_timeout * 1000)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The settings of the group that apply to its partitions; seconds."""

    lock_duration: float = 30.0
    delivery_count: int = 5
    record_locks: int = 2000
    renewable: bool = True
    """Whether members may renew their locks."""
