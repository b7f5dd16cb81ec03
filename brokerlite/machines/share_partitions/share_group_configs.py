"""The settings that apply to a share group: its own configurations, or else the settings of the broker."""

from ottla.brokerlite.machines.groups import group_configs
from ottla.brokerlite.machines.groups.group_configs import BY_DURATION, EARLIEST, GroupConfigs
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings, ShareLimits


class ShareGroupConfigs:
    """Finds the settings of a group as they are now.

    Args:
        configs: the configurations of single groups.

    Attributes:
        settings: the settings of the broker.
    """

    def __init__(self, settings: ShareGroupSettings, configs: GroupConfigs) -> None:
        self.settings = settings
        self._configs = configs

    def session_timeout(self, group_id: str) -> float:
        return self._configs.seconds(group_id, group_configs.SESSION_TIMEOUT, self.settings.session_timeout)

    def heartbeat_interval(self, group_id: str) -> float:
        return self._configs.seconds(group_id, group_configs.HEARTBEAT_INTERVAL, self.settings.heartbeat_interval)

    def limits(self, group_id: str) -> ShareLimits:
        """Return the limits of a group's records."""
        configs, settings = self._configs, self.settings
        return ShareLimits(
            lock_duration=configs.seconds(group_id, group_configs.RECORD_LOCK_DURATION, settings.record_lock_duration),
            delivery_count=configs.number(group_id, group_configs.DELIVERY_COUNT_LIMIT, settings.delivery_count_limit),
            record_locks=configs.number(
                group_id, group_configs.PARTITION_MAX_RECORD_LOCKS, settings.partition_max_record_locks
            ),
            renewable=configs.text(group_id, group_configs.RENEW_ACKNOWLEDGE_ENABLE) == "true",
        )

    def reads_committed(self, group_id: str) -> bool:
        """Whether a group reads only committed records."""
        return self._configs.text(group_id, group_configs.ISOLATION_LEVEL) == "read_committed"

    def starts_early(self, group_id: str) -> bool:
        """Whether a new group starts at the first record."""
        return self._configs.text(group_id, group_configs.AUTO_OFFSET_RESET) == EARLIEST

    def start_age(self, group_id: str) -> float | None:
        """Return the greatest age, in seconds, of the first records of a new group; ``None``: age does not count."""
        reset, _, duration = self._configs.text(group_id, group_configs.AUTO_OFFSET_RESET).partition(":")
        return group_configs.seconds_of(duration) if reset == BY_DURATION else None
