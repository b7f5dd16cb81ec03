"""Turns a configuration file into a `BrokerConfig`: names of ours, as on the command line, or Kafka's.

Rules:
- Each setting of `BrokerConfig` has its name in Kafka; a default of topics has the broker's name in Kafka.
- Of several names for one setting Kafka's order counts: `log.retention.ms`, then minutes, then hours. If a name of ours
  and one of Kafka's stand for the same setting, the file is refused, because no order is obvious.
- Settings of Kafka that have no effect here are accepted and logged. Unknown ones about security are refused: a broker
  that ignored them would be open to everyone.

Source: AbstractKafkaConfig.java, KafkaConfig.scala (listeners, extractLogConfigMap).
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ottla.addresses import parse_address
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import MigrationPolicy
from ottla.brokerlite.machines.topics.configs import OF_BROKER
from ottla.brokerlite.unused_settings import UNUSED
from ottla.config_file import ConfigFile, dashed, one_of
from ottla.errors import ConfigurationError
from ottla.listener_settings import LISTENERS, ServerSettings, as_text, read_listeners
from ottla.listeners import ListenerConfig

log = logging.getLogger("ottla.brokerlite")

_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_NO_BOUNDS = ("max.connection.creation.rate", "max.connections.per.ip", "max.connections.per.ip.overrides")
_ASSIGNOR_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
_MOST_MEMBERS = 100_000
_SECURITY = ServerSettings("broker", "ottla broker users add", UNUSED)
_MINUTE, _HOUR = 60_000, 3_600_000
"""Milliseconds."""


class Setting(NamedTuple):
    """One name in a file: the field of `BrokerConfig`, and how to read the value."""

    field: str
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _file_or_flag(value: Any) -> str | None:
    """A file, ``"true"``, or ``None`` for ``false``."""
    if isinstance(value, bool) or str(value).lower() in ("true", "false"):
        return "true" if _flag(value) else None
    return _text(value)


def _integer(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch("-?[0-9]{1,18}", value.strip()):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("an integer")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("a number of seconds")
    return float(value)


def _of_ms(value: Any) -> float:
    return _integer(value) / 1000


def _of_minutes(value: Any) -> float:
    return _integer(value) * 60.0


def _sync(value: Any) -> Sync:
    try:
        return Sync(value)
    except ValueError:
        raise ValueError(one_of(Sync)) from None


def _authorizer(value: Any) -> bool:
    if _text(value).strip() != _AUTHORIZER:
        raise ValueError(_AUTHORIZER)
    return True


def _members(value: Any) -> int:
    """A number of members; Kafka's default is the largest integer, and this broker has a limit of its own."""
    return min(_integer(value), _MOST_MEMBERS)


def _assignors(value: Any) -> tuple[str, ...]:
    """Assignors in a list, or in a text as Kafka writes it: by name or by class, separated by commas."""
    each = value if isinstance(value, list) else _text(value).split(",")
    names = (_text(name).strip() for name in each)
    return tuple(_ASSIGNOR_CLASSES.get(name, name) for name in names if name)


def _policy(value: Any) -> MigrationPolicy:
    try:
        return MigrationPolicy(_text(value).strip().lower())
    except ValueError:
        raise ValueError(one_of(MigrationPolicy)) from None


def _principals(value: Any) -> tuple[str, ...]:
    """Principals in a list, or in a text as Kafka writes it: separated by semicolons."""
    each = value if isinstance(value, list) else _text(value).split(";")
    return tuple(filter(None, (_text(principal).strip() for principal in each if principal)))


def _folder(value: Any) -> Path:
    return Path(_text(value))


def _one_folder(value: Any) -> Path:
    if "," in (text := _text(value)):
        raise ValueError("one folder: this broker has one")
    return Path(text)


OWN: dict[str, Setting] = {
    "listen": Setting("listen", _text),
    "advertise": Setting("advertise", _text),
    "data": Setting("data", _folder),
    "node-id": Setting("node_id", _integer),
    "partitions": Setting("default_partitions", _integer),
    "auto-create": Setting("auto_create", _flag),
    "group-delay": Setting("group_initial_rebalance_delay", _seconds),
    "sync": Setting("sync", _sync),
    "acls": Setting("acls", _flag),
    "super-users": Setting("super_users", _principals),
    "allow-if-no-acl": Setting("allow_if_no_acl", _flag),
    "health": Setting("health", _text),
    "access-log": Setting("access_log", _file_or_flag),
}
"""The names of the command line's options."""
KAFKAS: dict[str, Setting] = {
    "log.dir": Setting("data", _one_folder),
    "log.dirs": Setting("data", _one_folder),
    "broker.id": Setting("node_id", _integer),
    "node.id": Setting("node_id", _integer),
    "num.partitions": Setting("default_partitions", _integer),
    "auto.create.topics.enable": Setting("auto_create", _flag),
    "message.max.bytes": Setting("max_message_bytes", _integer),
    "log.segment.bytes": Setting("segment_bytes", _integer),
    "log.index.interval.bytes": Setting("index_interval_bytes", _integer),
    "socket.request.max.bytes": Setting("max_request_bytes", _integer),
    "fetch.max.bytes": Setting("fetch_max_bytes", _integer),
    "group.initial.rebalance.delay.ms": Setting("group_initial_rebalance_delay", _of_ms),
    "group.min.session.timeout.ms": Setting("group_min_session_timeout", _of_ms),
    "group.max.size": Setting("group_max_size", _integer),
    "group.consumer.session.timeout.ms": Setting("group_consumer_session_timeout", _of_ms),
    "group.consumer.heartbeat.interval.ms": Setting("group_consumer_heartbeat_interval", _of_ms),
    "group.consumer.max.size": Setting("group_consumer_max_size", _members),
    "group.consumer.assignors": Setting("group_consumer_assignors", _assignors),
    "group.consumer.migration.policy": Setting("group_consumer_migration_policy", _policy),
    "group.consumer.assignment.interval.ms": Setting("group_consumer_assignment_interval", _of_ms),
    "group.consumer.regex.refresh.interval.ms": Setting("group_consumer_regex_refresh_interval", _of_ms),
    "group.share.session.timeout.ms": Setting("group_share_session_timeout", _of_ms),
    "group.share.heartbeat.interval.ms": Setting("group_share_heartbeat_interval", _of_ms),
    "group.share.max.size": Setting("group_share_max_size", _integer),
    "group.share.record.lock.duration.ms": Setting("group_share_record_lock_duration", _of_ms),
    "group.share.delivery.count.limit": Setting("group_share_delivery_count_limit", _integer),
    "group.share.partition.max.record.locks": Setting("group_share_partition_max_record_locks", _integer),
    "group.share.max.share.sessions": Setting("group_share_max_share_sessions", _integer),
    "offsets.retention.minutes": Setting("offsets_retention", _of_minutes),
    "log.retention.check.interval.ms": Setting("log_retention_check", _of_ms),
    "log.cleaner.backoff.ms": Setting("log_cleaner_backoff", _of_ms),
    "transaction.max.timeout.ms": Setting("transaction_max_timeout", _of_ms),
    "transactional.id.expiration.ms": Setting("transactional_id_expiration", _of_ms),
    "max.connections": Setting("max_connections", _integer),
    "authorizer.class.name": Setting("acls", _authorizer),
    "super.users": Setting("super_users", _principals),
    "allow.everyone.if.no.acl.found": Setting("allow_if_no_acl", _flag),
}
"""Kafka's names of settings; of two for one setting the later counts."""
_TOPICS: dict[str, tuple[str, int]] = {
    "log.retention.hours": ("retention.ms", _HOUR),
    "log.retention.minutes": ("retention.ms", _MINUTE),
    "log.retention.ms": ("retention.ms", 1),
    "log.roll.hours": ("segment.ms", _HOUR),
    "log.roll.ms": ("segment.ms", 1),
    "log.roll.jitter.hours": ("segment.jitter.ms", _HOUR),
    "log.roll.jitter.ms": ("segment.jitter.ms", 1),
    "log.flush.scheduler.interval.ms": ("flush.ms", 1),
    "log.flush.interval.ms": ("flush.ms", 1),
}
"""Kafka's name -> the topic's configuration, and milliseconds per unit; of several for one the last counts."""
_DEFAULTS = {of_broker: key for key, of_broker in OF_BROKER.items() if of_broker not in KAFKAS}
"""Kafka's name -> the topic's configuration that has the same values."""


def read_config(file: ConfigFile, **options: Any) -> BrokerConfig:
    """The configuration in a file; ``options`` that are not ``None`` override it.

    Args:
        options: fields of `BrokerConfig`, and ``listen``.

    Raises:
        ConfigurationError: the file has an unknown name or an invalid value.
    """
    kafkas = {name: value for name, value in file.others() if "." in name or name == "listeners"}
    own = {dashed(name): value for name, value in file.others() if name not in kafkas}
    if unknown := next((name for name in own if name not in OWN), None):
        raise file.unknown(unknown, (*OWN, *KAFKAS, *_TOPICS, *_DEFAULTS, *LISTENERS), "broker")
    _check_names(file, kafkas)
    values = read_listeners(file, kafkas, _SECURITY)
    values |= _values(file, KAFKAS, kafkas)
    for name, setting in OWN.items():
        if name in own and setting.field in values:
            raise file.error(f"{name} and a name of Kafka's say the same: leave one of them out")
    values |= _values(file, OWN, own)
    values |= {name: value for name, value in options.items() if value is not None}
    defaults = _topic_defaults(file, kafkas)
    _check_override(file, values)
    try:
        if (listen := values.pop("listen", None)) is not None:
            values |= _listening(values, *parse_address(listen, "listen", any_port=True))
        return BrokerConfig(topic_defaults=defaults, **values)
    except ConfigurationError as error:
        field, space, rest = str(error).partition(" ")
        raise file.error(f"{name_of(field, file)}{space}{rest}") from None


def _check_override(file: ConfigFile, values: Mapping[str, Any]) -> None:
    if values.get("listen") is not None and len(values.get("listeners", ())) > 1:
        raise file.error("listeners has several addresses, which listen cannot override; change the file")


def _listening(values: Mapping[str, Any], host: str, port: int) -> dict[str, Any]:
    """The fields for an address that overrides the one of the file."""
    listeners: tuple[ListenerConfig, ...] = values.get("listeners", ())
    if not listeners:
        return {"host": host, "port": port}
    return {"listeners": (replace(listeners[0], host=host, port=port),)}


def name_of(field: str, file: ConfigFile | None = None) -> str:
    """The name of a field of `BrokerConfig`: the name in the file, or else ours, or else Kafka's."""
    names = [name for name, setting in (*OWN.items(), *KAFKAS.items()) if setting.field == field]
    names += [name for name, (key, _) in reversed(_TOPICS.items()) if key == field]
    names += [name for name, key in _DEFAULTS.items() if key == field]
    if field in ("host", "port"):
        return "listen"
    if field == "listeners":
        return field
    given = () if file is None else map(dashed, file.settings)
    return next((name for name in given if name in names), names[0] if names else dashed(field))


def _check_names(file: ConfigFile, kafkas: Mapping[str, Any]) -> None:
    """Refuse names about security and unknown ones, and log those without an effect."""
    for name in kafkas:
        if _SECURITY.is_security(name):
            continue  # `read_listeners` reads or refuses it
        if name in _NO_BOUNDS:
            raise file.error(
                f"{name}: this broker bounds all connections together: use max.connections, and a firewall for hosts"
            )
        if not any(name in known for known in (KAFKAS, _TOPICS, _DEFAULTS, LISTENERS, UNUSED)):
            raise file.unknown(name, (*KAFKAS, *_TOPICS, *_DEFAULTS, *LISTENERS, *sorted(UNUSED)), "broker")
    if unused := sorted(UNUSED & kafkas.keys()):
        log.warning("settings of Kafka without effect on this broker", extra={"names": ", ".join(unused)})


def _values(file: ConfigFile, known: Mapping[str, Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, setting in known.items():
        if name in given:
            try:
                values[setting.field] = setting.read(given[name])
            except ValueError as error:
                raise file.error(f"{name} is {given[name]!r}; it must be {error}") from None
    return values


def _topic_defaults(file: ConfigFile, kafkas: Mapping[str, Any]) -> dict[str, str]:
    """The defaults of topics' configurations that a file changes; `BrokerConfig` checks their values."""
    defaults = {key: as_text(kafkas[name]) for name, key in _DEFAULTS.items() if name in kafkas}
    for name, (key, unit) in _TOPICS.items():
        if name in kafkas:
            try:
                value = _integer(kafkas[name])
            except ValueError as error:
                raise file.error(f"{name} is {kafkas[name]!r}; it must be {error}") from None
            defaults[key] = str(value * unit if value > 0 else value)
    return defaults
