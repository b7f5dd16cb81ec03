"""What a broker is told before it starts."""

import enum
from dataclasses import dataclass
from pathlib import Path

from ottla.addresses import parse_address
from ottla.errors import ConfigurationError
from ottla.unknown_options import naming_options

MAX_MESSAGE_BYTES = 2**20 + 12
"""Kafka's default of `message.max.bytes`: a batch of 1 MiB and what stands before its length ends."""


class Sync(enum.StrEnum):
    """When the disk is made to hold what was stored (fsync), so that a power cut does not take it."""

    ALWAYS = "always"
    """Before anything that was written is answered: an acknowledgement survives a power cut."""
    SEGMENT = "segment"
    """When a segment is full, and at the end: a kill of the broker loses nothing, a power cut what the system had not
    written yet. So Apache Kafka does it."""
    NEVER = "never"
    """Not even then."""


@naming_options
@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """The configuration of one broker. Sizes are bytes, times seconds.

    Raises:
        ConfigurationError: a value is out of its range; the message names the option.
    """

    host: str = "127.0.0.1"
    """The address to listen on; ``0.0.0.0`` and ``::`` are every address."""
    port: int = 9092
    """0: any free port."""
    advertise: str | None = None
    """``host`` or ``host:port``: where clients are told to find this broker. ``None``: where it listens, or, when it
    listens on every address, the one that the client came by."""
    data: Path | None = None
    """The folder of the topics; ``None``: a temporary one, removed at the end."""
    sync: Sync = Sync.SEGMENT
    """When the disk is made to hold what is stored; a temporary folder is never synced."""
    node_id: int = 1
    cluster_id: str | None = None
    """``None``: the one that the folder was made with, or a new one."""
    default_partitions: int = 1
    """Of topics that are created without a number (`num.partitions`)."""
    auto_create: bool = True
    """Create a topic when a client asks for its metadata (`auto.create.topics.enable`)."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The largest batch (`message.max.bytes`); a topic's `max.message.bytes` overrides it."""
    segment_bytes: int = 2**30
    """The largest segment file (`log.segment.bytes`); a topic's `segment.bytes` overrides it."""
    index_interval_bytes: int = 4096
    """How much log lies between two index entries at least (`log.index.interval.bytes`)."""
    max_request_bytes: int = 100 * 2**20
    """The largest request (`socket.request.max.bytes`); a larger one closes its connection."""
    fetch_max_bytes: int = 55 * 2**20
    """The most that one Fetch is answered with, a first batch that is larger apart (`fetch.max.bytes`)."""
    group_initial_rebalance_delay: float = 0.5
    """How long the first member of an empty group waits for others (`group.initial.rebalance.delay.ms`). Kafka's three
    seconds are for clusters; members that are started together on one machine come within half a second, and then
    there is one rebalance instead of many. 0 in tests, where there is often only one."""
    group_min_session_timeout: float = 6.0
    """The shortest session that a member may ask for (`group.min.session.timeout.ms`)."""
    group_max_size: int = 1000
    """Members of one group (`group.max.size`)."""
    offsets_retention: float = 7 * 24 * 3600.0
    """How long committed offsets outlive the members of their group (`offsets.retention.minutes`)."""
    log_retention_check: float = 300.0
    """How often segments that have expired are looked for (`log.retention.check.interval.ms`)."""
    log_cleaner_backoff: float = 15.0
    """How often logs to compact are looked for, while there are none (`log.cleaner.backoff.ms`)."""
    transaction_max_timeout: float = 15 * 60.0
    """The longest that a producer may let a transaction take (`transaction.max.timeout.ms`)."""
    transactional_id_expiration: float = 7 * 24 * 3600.0
    """How long a transactional id is remembered that nobody uses (`transactional.id.expiration.ms`)."""
    max_connections: int = 2000
    pipeline: int = 8
    """Unanswered requests of one connection before it is no longer read: bounds the memory that one client takes."""
    health: str | None = None
    """``host:port`` of ``/health`` and ``/ready``; ``None``: nowhere."""

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
        if self.data is not None and not isinstance(self.data, Path):
            raise ConfigurationError(f"data is {self.data!r}; it must be a pathlib.Path")
        if self.advertise is not None:
            parse_address(self.advertise, "advertise", default_port=self.port)
        if self.health is not None:
            parse_address(self.health, "health", any_port=True)
