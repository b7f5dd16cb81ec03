"""What ``.option(…)`` takes: the names and meanings of Spark's own Kafka connector, and `maxTasks`.

Rules:
- A job of the other connector changes the format's name and nothing else. What it refuses is refused; what
  changes no row here (a trigger's limits, consumer groups, tuning of its consumer) is passed over with a warning.
- An option that nobody knows is an error, with the name that was probably meant: a misspelt `startingOffsets` must not
  read a whole topic.
- Names are case-insensitive, as Spark hands them over.

Source: KafkaSourceProvider.scala, validateGeneralOptions and validateBatchOptions.
"""

import difflib
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import ConfigurationError
from ottla.sdk import mdns
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.record_sets import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sdk.kafka_security import Security, is_security, read_security
from ottla.sdk.options import Options, announced_name
from ottla.spark.columns import JsonFormat, Layout, spark_schema
from ottla.spark.offsets import Limit, parse_assign, parse_places
from ottla.spark.value_schema import parse_value_schema

log = logging.getLogger("ottla.spark")

Source = tuple[str, ...] | frozenset[TopicPartition] | str
"""Topics, partitions, or a pattern for the names of topics."""

_SOURCES = ("subscribe", "assign", "subscribePattern")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The first that is given counts, as in the other connector."""
_OTHERS = (
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "valueFormat",
    "valueSchema",
    "columnNameOfCorruptRecord",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
)
_OF_STREAMS = ("groupIdPrefix", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "prometheus")
_GROUP = "kafka.group.id"
_WITHOUT_EFFECT = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
"""They tune a consumer that is not there."""

_SECONDS = {"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}

_CLIENT_SECONDS = {
    "kafka.socket.connection.setup.timeout.ms": "connect_timeout",
    "kafka.request.timeout.ms": "request_timeout",
    "kafka.default.api.timeout.ms": "api_timeout",
    "kafka.fetch.max.wait.ms": "fetch_max_wait",
}
_CLIENT_BYTES = {
    "kafka.fetch.max.bytes": "fetch_max_bytes",
    "kafka.max.partition.fetch.bytes": "partition_max_bytes",
}
_PARTITION_BYTES = 8 * 2**20
"""Of a partition in one answer, unless the user says otherwise: a task reads in bulk, and few answers cost the broker a
quarter of what those of Kafka's default of 1 MiB do. What is read ahead is bounded besides, all partitions together.
"""
_CLIENT_WITHOUT_EFFECT = tuple(
    f"kafka.{name}"
    for name in (
        "group.instance.id",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metric.reporters",
        "metrics.recording.level",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    )
)
_PREFIX = "kafka."
_BOOTSTRAP = "kafka.bootstrap.servers"
_ISOLATION = "kafka.isolation.level"
_CLIENT = (_BOOTSTRAP, "kafka.client.id", _ISOLATION, *_CLIENT_SECONDS, *_CLIENT_BYTES)

_REFUSED = {
    "path": "topics are no paths: name them in option subscribe",
    "topic": "it is an option for writing: name topics to read in option subscribe",
    "kafka.auto.offset.reset": "say where to start in option startingOffsets",
    "kafka.enable.auto.commit": "a batch query reads what its options say and commits nothing",
    "kafka.interceptor.classes": "interceptors are Java classes, and would change what is read",
    "kafka.key.deserializer": "keys are bytes: decode the column key, as in key.cast('string')",
    "kafka.value.deserializer": "values are bytes: decode the column value, as in value.cast('string')",
}

_KNOWN = (
    *_SOURCES,
    *_STARTS,
    *_ENDS,
    *_OTHERS,
    *_OF_STREAMS,
    _GROUP,
    *_WITHOUT_EFFECT,
    *_CLIENT,
    *_CLIENT_WITHOUT_EFFECT,
)
READING = frozenset(name.lower() for name in (*_SOURCES, *_STARTS, *_ENDS, *_OTHERS, *_OF_STREAMS))
"""Options that are for reading alone, in lower case."""
_SPELLING = {name.lower(): name for name in _KNOWN}


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How to reach the brokers; equal ones share a client.

    Attributes:
        bootstrap: ``host:port``, several separated by commas, or ``zeroconf://name``.
        options: names and values as `ottla.connect` takes them.
        security: Kafka's names for TLS and SASL, with their values; files are those of the machine that connects.
    """

    bootstrap: str
    options: tuple[tuple[str, Any], ...] = ()
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """What a client is made with. Raises as `secured`."""
        return {"partition_max_bytes": _PARTITION_BYTES, **dict(self.options), **self.secured().arguments}

    def secured(self) -> Security:
        """What is made of the names for TLS and SASL.

        Raises:
            ConfigurationError: they make no sense; says which, and shows no secret.
        """
        made = read_security(dict(self.security))
        if made.wrong:
            raise ConfigurationError(f"options {_PREFIX}…: {'; '.join(made.wrong)}")
        return made

    def found(self) -> "ClientConfig":
        """With the addresses that ``zeroconf://`` stands for: asked for on the driver, because executors may be in
        another network, where nobody answers, and need not find the brokers again.

        Raises:
            BrokerUnreachable: nobody answered.
        """
        announced, name = announced_name(self.bootstrap)
        if not announced:
            return self
        at, config = _found.get(self, (0.0, self))
        if config is self or time.monotonic() > at + FOUND_SECONDS:
            addresses = mdns.find(name, Options(**dict(self.options)).connect_timeout)
            config = replace(self, bootstrap=",".join(sorted(addresses)))
            _found[self] = time.monotonic(), config
        return config


FOUND_SECONDS = 60.0
"""How long addresses count that were found by zeroconf: a stream has its writer made again for each micro-batch."""
_found: dict[ClientConfig, tuple[float, ClientConfig]] = {}
"""When they were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of one batch query, checked as far as that is possible without a broker.

    Attributes:
        source: topics (`subscribe`), partitions (`assign`), or a pattern for the names of topics (`subscribePattern`).
        layout: the columns of a row (`includeHeaders`, `valueFormat`).
        isolation: with `READ_COMMITTED` logs end at their last stable offsets.
        min_tasks, max_records, max_tasks: see `ottla.spark.offsets.plan`.
    """

    client: ClientConfig
    source: Source
    starting: Limit
    ending: Limit
    latest_if_no_record: bool = False
    layout: Layout = field(default_factory=Layout)
    fail_on_data_loss: bool = True
    isolation: int = READ_UNCOMMITTED
    min_tasks: int | None = None
    max_records: int | None = None
    max_tasks: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "ReadOptions":
        """The options that a user gave, by names in any case.

        Raises:
            ConfigurationError: one is unknown, missing, contradicts another, or has a value that cannot be.
        """
        options = _spelt(given, "batch query", (*_OF_STREAMS, _GROUP))
        return _read(options, EARLIEST, "latest")

    @classmethod
    def parse_any(cls, given: Mapping[str, str]) -> "ReadOptions":
        """As `parse`, where it is not known yet whether the query is a batch or a stream."""
        return _read(_spelt(given, "query", ()), EARLIEST, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a streaming query.

    Attributes:
        read: those that it has in common with a batch query; its ``ending`` means nothing.
        most, least: offsets of a micro-batch (`maxOffsetsPerTrigger`, `minOffsetsPerTrigger`).
        longest_wait: seconds after which fewer than ``least`` are enough (`maxTriggerDelay`).
        group: the consumer group that is told how far the query is.
        prometheus: where the driver serves lag and rate.
    """

    read: ReadOptions
    most: int | None = None
    least: int | None = None
    longest_wait: float = 900.0
    group: str | None = None
    prometheus: tuple[str, int] | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "StreamOptions":
        """As `ReadOptions.parse`."""
        options = _spelt(given, "streaming query", ())
        if (ending := next((name for name in _ENDS if name in options), None)) is not None:
            raise ConfigurationError(f"{ending} is for batch queries: a stream has no end, stop it or use availableNow")
        most, least = _positive(options, "maxOffsetsPerTrigger"), _positive(options, "minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise ConfigurationError(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
        return cls(
            read=_read(options, LATEST, None),
            most=most,
            least=least,
            longest_wait=_duration(options, "maxTriggerDelay", 900.0),
            group=options.get(_GROUP) or options.get("groupIdPrefix"),
            prometheus=_address(options, "prometheus"),
        )


def _read(options: Mapping[str, str], start: int, impossible: str | None) -> ReadOptions:
    """What batch and streaming queries have in common; ``impossible`` is no start."""
    return ReadOptions(
        client=_client(options),
        source=_source(options),
        starting=_limit(options, _STARTS, start, impossible),
        ending=_limit(options, _ENDS, LATEST, "earliest"),
        latest_if_no_record=_choice(options, "startingOffsetsByTimestampStrategy", "error", "latest") == "latest",
        layout=_layout(options),
        fail_on_data_loss=_choice(options, "failOnDataLoss", "true", "false") == "true",
        isolation=_isolation(options),
        min_tasks=_positive(options, "minPartitions"),
        max_records=_positive(options, "maxRecordsPerPartition"),
        max_tasks=_positive(options, "maxTasks"),
    )


def _address(options: Mapping[str, str], name: str) -> tuple[str, int] | None:
    value = options.get(name)
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 2**16:
        raise ConfigurationError(f"{name} must be a host of the driver and a port, such as 0.0.0.0:9404, not {value!r}")
    return host.strip("[]"), int(port)


def _layout(options: Mapping[str, str]) -> Layout:
    include_headers = _choice(options, "includeHeaders", "false", "true") == "true"
    value_format = options.get("valueFormat", "binary").lower()
    if value_format == "json":
        return Layout(include_headers, _json_format(options, include_headers))
    if value_format != "binary":
        not_yet = " yet" if value_format in ("avro", "protobuf") else ""
        raise ConfigurationError(
            f"valueFormat {options['valueFormat']!r} is not there{not_yet}: there are binary and json; decode others "
            "in the query, as in from_avro(value, …)"
        )
    for name in ("valueSchema", "columnNameOfCorruptRecord"):
        if name in options:
            raise ConfigurationError(f"{name} is for values in JSON: give valueFormat=json, too")
    return Layout(include_headers)


def _json_format(options: Mapping[str, str], include_headers: bool) -> JsonFormat:
    if not options.get("valueSchema"):
        raise ConfigurationError(
            "valueFormat=json needs valueSchema: the fields of a value, such as 'id BIGINT, name STRING'"
        )
    fields = parse_value_schema(options["valueSchema"])
    corrupt = options.get("columnNameOfCorruptRecord", JsonFormat.corrupt)
    others = spark_schema(Layout(include_headers)).names
    if not corrupt or corrupt.lower() in map(str.lower, others):
        raise ConfigurationError(
            f"columnNameOfCorruptRecord cannot be {corrupt!r}: it names a column of its own, beside {', '.join(others)}"
        )
    return JsonFormat(fields, corrupt)


def _duration(options: Mapping[str, str], name: str, default: float) -> float:
    """Seconds of a duration as Spark writes it, such as 15m or 500ms; milliseconds without a unit."""
    value = options.get(name)
    if value is None:
        return default
    found = re.fullmatch(r"(\d+) ?([a-z]*)", value.lower())
    if found is None or found[2] not in _SECONDS:
        raise ConfigurationError(f"{name} must be a duration such as 15m, 30s or 500ms, not {value!r}")
    return int(found[1]) * _SECONDS[found[2]]


def _spelt(given: Mapping[str, str], query: str, without_effect: tuple[str, ...]) -> dict[str, str]:
    """The options by the names of this file; unknown and refused ones raise, those without effect are dropped."""
    options = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in _REFUSED:
            raise ConfigurationError(f"option {name} cannot be used with format ottla: {_REFUSED[lower]}")
        if lower.startswith(_PREFIX) and is_security(lower.removeprefix(_PREFIX)):
            options[lower] = value.strip()
            continue
        if lower not in _SPELLING:
            close = difflib.get_close_matches(lower, _SPELLING, n=1)
            hint = f"did you mean {_SPELLING[close[0]]}?" if close else f"there are {', '.join(_KNOWN)}"
            raise ConfigurationError(f"format ottla knows no option {name}: {hint}")
        name = _SPELLING[lower]
        if name in _WITHOUT_EFFECT or name in _CLIENT_WITHOUT_EFFECT or name in without_effect:
            log.warning(f"option {name} has no effect on a {query} of format ottla", extra={"option": name})
        else:
            options[name] = value.strip()
    return options


def _client(options: Mapping[str, str]) -> ClientConfig:
    bootstrap = options.get(_BOOTSTRAP)
    if not bootstrap:
        raise ConfigurationError(f"option {_BOOTSTRAP} is missing: host:port of a broker, or zeroconf://name")
    chosen: dict[str, Any] = {}
    if "kafka.client.id" in options:
        chosen["client_id"] = options["kafka.client.id"]
    for name, ours in _CLIENT_SECONDS.items():
        if (milliseconds := _positive(options, name)) is not None:
            chosen[ours] = milliseconds / 1000
    for name, ours in _CLIENT_BYTES.items():
        if (size := _positive(options, name)) is not None:
            chosen[ours] = size
    names = {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}
    secured = tuple(sorted((name, value) for name, value in names.items() if is_security(name)))
    config = ClientConfig(bootstrap, tuple(sorted(chosen.items())), secured)
    for name, why in config.secured().left_out.items():
        log.warning(f"option {_PREFIX}{name} has no effect: {why}", extra={"option": f"{_PREFIX}{name}"})
    return config


def _source(options: Mapping[str, str]) -> Source:
    found = [name for name in _SOURCES if name in options]
    if len(found) > 1:
        raise ConfigurationError(f"options {' and '.join(found)} contradict each other: give one of them")
    if not found:
        raise ConfigurationError(f"one of the options {', '.join(_SOURCES)} must say what to read")
    [name] = found
    value = options[name]
    if name == "assign":
        return parse_assign(value)
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise ConfigurationError("subscribe names no topic; it is one or several, separated by commas")
        return topics
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigurationError(f"subscribePattern {value!r} is no regular expression of Python's: {error}") from error
    if not value:
        raise ConfigurationError("subscribePattern is empty; it is a regular expression for whole names of topics")
    return value


def _limit(options: Mapping[str, str], names: tuple[str, str, str], default: int, impossible: str | None) -> Limit:
    """The start or the end; ``impossible`` is the word that makes no sense for it."""
    timestamp, by_timestamp, offsets = names
    words = {"earliest": EARLIEST, "latest": LATEST}
    given = [name for name in names if name in options]
    if not given:
        return Limit(offsets, default)
    name, *passed_over = given
    for each in passed_over:
        log.warning(f"option {each} has no effect beside {name}", extra={"option": each})
    value = options[name]
    if name == timestamp:
        if not (value.isascii() and value.isdigit()):
            raise ConfigurationError(f"{timestamp} must be milliseconds since 1970, not {value!r}")
        return Limit(timestamp, int(value), by_time=True)
    if name == by_timestamp:
        return Limit(by_timestamp, parse_places(value, by_timestamp, lowest=0), by_time=True)
    if (word := value.lower()) in words:
        if word == impossible:
            raise ConfigurationError(f"{offsets} cannot be {impossible} in a batch query")
        return Limit(offsets, words[word])
    places = parse_places(value, offsets)
    for (topic, partition), place in places.items():
        if impossible is not None and place == words[impossible]:
            raise ConfigurationError(
                f"{offsets} for {topic}-{partition} cannot be {place} ({impossible}) in a batch query"
            )
    return Limit(offsets, places)


def _choice(options: Mapping[str, str], name: str, default: str, other: str) -> str:
    value = options.get(name, default).lower()
    if value not in (default, other):
        raise ConfigurationError(f"{name} must be {default} or {other}, not {options[name]!r}")
    return value


def _isolation(options: Mapping[str, str]) -> int:
    committed = _choice(options, _ISOLATION, "read_uncommitted", "read_committed") == "read_committed"
    return READ_COMMITTED if committed else READ_UNCOMMITTED


def _positive(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or int(value) == 0:
        raise ConfigurationError(f"{name} must be a positive whole number, not {value!r}")
    return int(value)
