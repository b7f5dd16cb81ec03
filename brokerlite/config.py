"""The configuration of a broker."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ottla.addresses import overlap, parse_address
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings, MigrationPolicy
from ottla.errors import ConfigurationError, InvalidConfig
from ottla.listeners import ListenerConfig
from ottla.unknown_options import naming_options

MAX_MESSAGE_BYTES = 2**20 + 12
"""Kafka's default of `message.max.bytes`: 1 MiB plus the base offset and length fields at the start of a batch."""

_OF_TOPICS = {
    "max.message.bytes": "max_message_bytes",
    "segment.bytes": "segment_bytes",
    "index.interval.bytes": "index_interval_bytes",
}
"""Configurations of topics whose defaults have a field of their own."""


class Sync(enum.StrEnum):
    """When stored records are flushed to disk (fsync), so that a power cut does not lose them."""

    ALWAYS = "always"
    """Before a write is answered: acknowledged records survive a power cut."""
    SEGMENT = "segment"
    """When a segment is full, and at shutdown: killing the broker loses nothing, but a power cut loses what the
    operating system had not written yet. Apache Kafka does the same."""
    NEVER = "never"
    """Never, not even at shutdown."""


@naming_options
@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """The configuration of one broker. Sizes are bytes, times seconds.

    Raises:
        ConfigurationError: a value is out of its range; the message names the option.
    """

    host: str = "127.0.0.1"
    """The address to listen on; ``0.0.0.0`` and ``::`` mean every address."""
    port: int = 9092
    """0: any free port."""
    advertise: str | None = None
    """``host`` or ``host:port`` that Metadata responses give to clients. ``None``: the address that the broker listens
    on or, if it listens on every address, the one that the client connected to."""
    listeners: tuple[ListenerConfig, ...] = ()
    """The listeners; the first is the main one. ``()``: one in plain text, as ``host``, ``port`` and ``advertise`` say,
    which must not be given otherwise."""
    data: Path | None = None
    """The data folder; ``None``: a temporary one, removed when the broker stops."""
    sync: Sync = Sync.SEGMENT
    """When stored records are flushed to disk; a temporary folder is never flushed."""
    node_id: int = 1
    cluster_id: str | None = None
    """``None``: the cluster id stored in the data folder, or a new one."""
    default_partitions: int = 1
    """Partitions of topics that are created without a partition count (`num.partitions`)."""
    auto_create: bool = True
    """Create a missing topic when a client requests its metadata (`auto.create.topics.enable`)."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The largest batch (`message.max.bytes`); a topic's `max.message.bytes` overrides it."""
    segment_bytes: int = 2**30
    """The largest segment file (`log.segment.bytes`); a topic's `segment.bytes` overrides it."""
    index_interval_bytes: int = 4096
    """The least bytes of log between two index entries (`log.index.interval.bytes`)."""
    max_request_bytes: int = 100 * 2**20
    """The largest request (`socket.request.max.bytes`); a larger one closes its connection."""
    fetch_max_bytes: int = 55 * 2**20
    """The most record bytes in one Fetch response; only its first batch may exceed that (`fetch.max.bytes`)."""
    group_initial_rebalance_delay: float = 0.5
    """How long the first member of an empty group waits for others (`group.initial.rebalance.delay.ms`). Kafka's
    default of three seconds suits clusters; members started together on one machine all join within half a second,
    which makes one rebalance instead of many. Tests, whose groups often have a single member, use 0."""
    group_min_session_timeout: float = 6.0
    """The shortest session timeout that a member may request (`group.min.session.timeout.ms`)."""
    group_max_size: int = 1000
    """The most members of one group (`group.max.size`)."""
    group_consumer_session_timeout: float = 45.0
    """How long a member of a consumer group may be silent (`group.consumer.session.timeout.ms`)."""
    group_consumer_heartbeat_interval: float = 5.0
    """How often the members of consumer groups send heartbeats (`group.consumer.heartbeat.interval.ms`). They hear of
    changes of their partitions with the next heartbeat, so tests with several members use less."""
    group_consumer_max_size: int = 1000
    """The most members of one consumer group (`group.consumer.max.size`)."""
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors that members may choose; the first is the default (`group.consumer.assignors`)."""
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """Whether a group with members may become a consumer group or a classic group
    (`group.consumer.migration.policy`)."""
    group_consumer_assignment_interval: float = 0.0
    """The least time between two assignments of a consumer group (`group.consumer.assignment.interval.ms`). Kafka's
    default of one second suits groups of hundreds of members."""
    group_consumer_regex_refresh_interval: float = 600.0
    """How often the regular expressions of consumer groups are resolved again, even if no topic has changed
    (`group.consumer.regex.refresh.interval.ms`)."""
    group_share_session_timeout: float = 45.0
    """How long a member of a share group may be silent (`group.share.session.timeout.ms`)."""
    group_share_heartbeat_interval: float = 5.0
    """How often the members of share groups send heartbeats (`group.share.heartbeat.interval.ms`)."""
    group_share_max_size: int = 200
    """The most members of one share group (`group.share.max.size`)."""
    group_share_record_lock_duration: float = 30.0
    """How long a member of a share group may have a record before others get it
    (`group.share.record.lock.duration.ms`)."""
    group_share_delivery_count_limit: int = 5
    """How many times a record is delivered to a share group (`group.share.delivery.count.limit`)."""
    group_share_partition_max_record_locks: int = 2000
    """The most records of one partition that are in flight for a share group
    (`group.share.partition.max.record.locks`)."""
    group_share_max_share_sessions: int = 2000
    """The most share sessions (`group.share.max.share.sessions`); each member of a share group has one."""
    offsets_retention: float = 7 * 24 * 3600.0
    """How long committed offsets are kept after the group became empty (`offsets.retention.minutes`)."""
    log_retention_check: float = 300.0
    """How often the broker looks for expired segments (`log.retention.check.interval.ms`)."""
    log_cleaner_backoff: float = 15.0
    """How long the broker waits before it looks again for logs to compact, if it found none
    (`log.cleaner.backoff.ms`)."""
    transaction_max_timeout: float = 15 * 60.0
    """The longest transaction timeout that a producer may request (`transaction.max.timeout.ms`)."""
    transactional_id_expiration: float = 7 * 24 * 3600.0
    """How long an unused transactional id is kept (`transactional.id.expiration.ms`)."""
    max_connections: int = 2000
    pipeline: int = 8
    """Unanswered requests after which the broker stops reading from a connection; bounds the memory of one client."""
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Configurations of topics that have another default than Kafka's (`log.retention.ms` for `retention.ms`). Those
    that have a setting above cannot be here."""
    acls: bool = False
    """Whether ACLs apply (`authorizer.class.name`); without them everyone may do everything."""
    super_users: tuple[str, ...] = ()
    """Principals that may do everything, each as ``User:NAME`` (`super.users`)."""
    allow_if_no_acl: bool = False
    """Whether everyone may use a resource without ACLs (`allow.everyone.if.no.acl.found`)."""
    health: str | None = None
    """``host:port`` that serves ``/health``, ``/ready`` and ``/metrics``; ``None``: they are not served."""
    access_log: str | None = None
    """A file that gets a line for each request, or ``true``: stderr gets them; ``None``: no such lines."""

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("port", 0, 65535),
            ("node_id", 0, 2**31 - 1),
            ("default_partitions", 1, 10_000),
            ("max_message_bytes", 1, 2**30),
            ("segment_bytes", 1024, 2**31 - 1),
            ("index_interval_bytes", 0, 2**31 - 1),
            ("max_request_bytes", 1024, 2**31 - 1),
            ("fetch_max_bytes", 1024, 2**30),
            ("group_initial_rebalance_delay", 0, 300),
            ("group_min_session_timeout", 0.001, 1800),
            ("group_max_size", 1, 100_000),
            ("group_consumer_session_timeout", 0.001, 1800),
            ("group_consumer_heartbeat_interval", 0.001, 1800),
            ("group_consumer_max_size", 1, 100_000),
            ("group_consumer_assignment_interval", 0, 1800),
            ("group_consumer_regex_refresh_interval", 10, 10**7),
            ("group_share_session_timeout", 0.001, 1800),
            ("group_share_heartbeat_interval", 0.001, 1800),
            ("group_share_max_size", 1, 1000),
            ("group_share_record_lock_duration", 0.001, 3600),
            ("group_share_delivery_count_limit", 2, 100),
            ("group_share_partition_max_record_locks", 1, 10_000),
            ("group_share_max_share_sessions", 1, 100_000),
            ("offsets_retention", 0, 10**10),
            ("log_retention_check", 0.01, 10**10),
            ("log_cleaner_backoff", 0.01, 10**10),
            ("transaction_max_timeout", 0.001, 2**31 / 1000 - 1),
            ("transactional_id_expiration", 0.001, 10**10),
            ("max_connections", 1, 2**31 - 1),
            ("pipeline", 1, 2**31 - 1),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise ConfigurationError(f"{name} is {value}; it must be {lowest} to {highest}")
        self._check_groups()
        if self.topic_defaults:
            object.__setattr__(self, "topic_defaults", _checked(self.topic_defaults))
        if self.data is not None and not isinstance(self.data, Path):
            raise ConfigurationError(f"data is {self.data!r}; it must be a pathlib.Path")
        if self.super_users:
            _check_principals(self.super_users)
        if not self.acls and (self.super_users or self.allow_if_no_acl):
            which = "super_users" if self.super_users else "allow_if_no_acl"
            raise ConfigurationError(f"{which} has no effect without acls")
        if self.advertise is not None:
            parse_address(self.advertise, "advertise", default_port=self.port)
        if self.listeners:
            self._check_listeners()
        if self.health is not None:
            self._check_health(parse_address(self.health, "health", any_port=True))
        if self.access_log == "":
            raise ConfigurationError("access_log is empty: leave it out, or name a path")

    def _check_groups(self) -> None:
        if self.group_consumer_heartbeat_interval >= self.group_consumer_session_timeout:
            raise ConfigurationError(
                f"group_consumer_heartbeat_interval is {self.group_consumer_heartbeat_interval}; it must be less than "
                f"group_consumer_session_timeout, {self.group_consumer_session_timeout}"
            )
        if self.group_share_heartbeat_interval >= self.group_share_session_timeout:
            raise ConfigurationError(
                f"group_share_heartbeat_interval is {self.group_share_heartbeat_interval}; it must be less than "
                f"group_share_session_timeout, {self.group_share_session_timeout}"
            )
        known = ConsumerGroupSettings.assignors
        if not self.group_consumer_assignors or not set(self.group_consumer_assignors) <= set(known):
            raise ConfigurationError(
                f"group_consumer_assignors is {self.group_consumer_assignors}; it must name one or more of "
                f"{', '.join(known)}"
            )

    def _check_listeners(self) -> None:
        if (self.host, self.port, self.advertise) != (BrokerConfig.host, BrokerConfig.port, BrokerConfig.advertise):
            raise ConfigurationError("listeners have addresses of their own: leave out host, port and advertise")
        names = [each.name for each in self.listeners]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigurationError(f"listeners has two of the name {twice}")

    def _check_health(self, probes: tuple[str, int]) -> None:
        for each in self.all_listeners:
            if overlap((each.host, each.port), probes):
                raise ConfigurationError(f"health has the port of listen, {each.port}: give health another port")

    @property
    def all_listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners, the main one first."""
        return self.listeners or (ListenerConfig(host=self.host, port=self.port, advertise=self.advertise),)

    def at_port(self, port: int) -> "BrokerConfig":
        """A copy whose main listener has this port."""
        if not self.listeners:
            return replace(self, port=port)
        return replace(self, listeners=(replace(self.listeners[0], port=port), *self.listeners[1:]))


def _check_principals(principals: Iterable[str]) -> None:
    from ottla.acl.acls import is_principal  # only here: help need not load the codec

    for each in principals:
        if not is_principal(each):
            raise ConfigurationError(f"super_users has {each!r}; it must be a type and a name, as in User:admin")


def _checked(defaults: Mapping[str, str]) -> dict[str, str]:
    from ottla.brokerlite.machines.topics.configs import check_configs  # the proxy's command imports this module, too

    for key, name in _OF_TOPICS.items():
        if key in defaults:
            raise ConfigurationError(f"topic_defaults has {key}: use {name}")
    try:
        return check_configs(defaults)
    except InvalidConfig as error:
        raise ConfigurationError(error.detail) from None
