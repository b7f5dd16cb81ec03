"""The configurations of single share groups, which an administrator sets before or after a group begins.

Rules:
- A value applies from the next request on; a lock that a member already has keeps its deadline.
- Only configurations that have an effect here are accepted.
- Configurations outlive their group, as in Apache Kafka. They are stored in a log that clients cannot see.

Source: GroupConfig.java, ShareGroupConfig.java, ShareGroupAutoOffsetResetStrategy.java.
"""

import json
import logging
import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.brokerlite.machines.topics.configs import BOOLEAN, INT, STRING, shown
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.errors import CoordinatorNotAvailable, InvalidConfig, InvalidRequest

log = logging.getLogger("ottla.brokerlite.groups")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 * 2**20)}
MAX_NAME = 249
"""The most characters of the id of a group that has configurations; Apache Kafka demands a topic's name there."""
MOST_GROUPS = 10_000
"""The most groups with configurations of their own."""

AUTO_OFFSET_RESET = "share.auto.offset.reset"
DELIVERY_COUNT_LIMIT = "share.delivery.count.limit"
HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
ISOLATION_LEVEL = "share.isolation.level"
PARTITION_MAX_RECORD_LOCKS = "share.partition.max.record.locks"
RECORD_LOCK_DURATION = "share.record.lock.duration.ms"
RENEW_ACKNOWLEDGE_ENABLE = "share.renew.acknowledge.enable"
SESSION_TIMEOUT = "share.session.timeout.ms"

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration"
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?(?:T(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,6})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_UNITS = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


class GroupConfigKey(NamedTuple):
    """A configuration of a group.

    Attributes:
        type: as in DescribeConfigs.
        default: the value of a group without its own; ``None``: the broker's setting `of_broker`.
        least, most: the bounds of an integer.
    """

    type: int
    default: str | None = None
    of_broker: str = ""
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 2**31 - 1


GROUP_CONFIGS: Mapping[str, GroupConfigKey] = {
    AUTO_OFFSET_RESET: GroupConfigKey(STRING, LATEST),
    DELIVERY_COUNT_LIMIT: GroupConfigKey(INT, of_broker="group.share.delivery.count.limit", least=2, most=100),
    HEARTBEAT_INTERVAL: GroupConfigKey(INT, of_broker="group.share.heartbeat.interval.ms"),
    ISOLATION_LEVEL: GroupConfigKey(STRING, "read_uncommitted", choices=("read_committed", "read_uncommitted")),
    PARTITION_MAX_RECORD_LOCKS: GroupConfigKey(
        INT, of_broker="group.share.partition.max.record.locks", least=100, most=10_000
    ),
    RECORD_LOCK_DURATION: GroupConfigKey(
        INT, of_broker="group.share.record.lock.duration.ms", least=1000, most=3_600_000
    ),
    RENEW_ACKNOWLEDGE_ENABLE: GroupConfigKey(BOOLEAN, "true", choices=("true", "false")),
    SESSION_TIMEOUT: GroupConfigKey(INT, of_broker="group.share.session.timeout.ms"),
}


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration in the format of ISO 8601, for example ``P1DT12H``.

    Raises:
        InvalidConfig: it is no duration, or negative.
    """
    found = _DURATION.fullmatch(duration)
    if found is None or not any(found.groupdict().values()):
        raise InvalidConfig(f"{shown(duration)} is no duration; examples are P1D and PT12H")
    return sum(_UNITS[unit] * float(count) for unit, count in found.groupdict().items() if count)


def check_group_name(group_id: str) -> None:
    """Raises `InvalidRequest` if the id is empty, or too long for a record."""
    if not 0 < len(group_id) <= MAX_NAME:
        raise InvalidRequest(f"a group id has 1 to {MAX_NAME} characters, not {len(group_id)}")


def checked(key: str, value: str) -> str:
    """Check a configuration; return the value as it is stored.

    Raises:
        InvalidConfig: the key is unknown or the value is invalid.
    """
    known, value = GROUP_CONFIGS.get(key), value.strip()
    if known is None:
        raise InvalidConfig(f"{shown(key)} is not a configuration that groups have on this broker")
    if key == AUTO_OFFSET_RESET:
        kind, colon, duration = value.partition(":")
        if kind == BY_DURATION and colon:
            seconds_of(duration)
        elif value not in (EARLIEST, LATEST):
            raise InvalidConfig(f"{key} is {shown(value)}; it must be earliest, latest or by_duration:PnDTnHnMn.nS")
        return value
    if known.type == INT:
        if not re.fullmatch("[0-9]{1,10}", value) or not known.least <= int(value) <= known.most:
            raise InvalidConfig(f"{key} is {shown(value)}; it must be {known.least} to {known.most}")
        return str(int(value))
    if known.type == BOOLEAN:
        value = value.lower()
    if value not in known.choices:
        raise InvalidConfig(f"{key} is {shown(value)}; it must be {' or '.join(known.choices)}")
    return value


def check_group_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Check the configurations of a group; return them as they are stored.

    Raises:
        InvalidConfig: a key is unknown or a value is invalid.
    """
    return {key: checked(key, value) for key, value in configs.items()}


class GroupConfigs:
    """Keeps the configurations of all groups."""

    def __init__(self, log: KeyedLog) -> None:
        self._log = log
        self._by_group: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the log; damaged records are skipped and logged."""
        for entry in self._log.load().entries:
            try:
                stored = json.loads(entry.value or b"{}")
                known = {key: value for key, value in stored.items() if key in GROUP_CONFIGS}
                self._by_group[entry.key.decode()] = check_group_configs(known)
            except (ValueError, AttributeError, InvalidConfig) as error:
                log.error("damaged record of %s skipped: %s", self._log.name, error)

    def of(self, group_id: str) -> Mapping[str, str]:
        """Return the configurations that the group has of its own."""
        return self._by_group.get(group_id, {})

    def set(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Store the configurations of a group.

        Raises:
            CoordinatorNotAvailable: too many groups have some.
            KafkaStorageError: the disk refused.
        """
        if group_id not in self._by_group and len(self._by_group) >= MOST_GROUPS:
            raise CoordinatorNotAvailable(f"{MOST_GROUPS} groups have configurations already")
        value = json.dumps(dict(configs), sort_keys=True).encode() if configs else None
        self._log.write([(group_id.encode(), value)])
        if configs:
            self._by_group[group_id] = dict(configs)
        else:
            self._by_group.pop(group_id, None)

    # -- reading a value

    def seconds(self, group_id: str, key: str, default: float) -> float:
        """Return a configuration in milliseconds as seconds."""
        value = self.of(group_id).get(key)
        return default if value is None else int(value) / 1000

    def number(self, group_id: str, key: str, default: int) -> int:
        value = self.of(group_id).get(key)
        return default if value is None else int(value)

    def text(self, group_id: str, key: str) -> str:
        return self.of(group_id).get(key) or GROUP_CONFIGS[key].default or ""
