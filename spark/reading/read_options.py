"""The options for reading topics: names and meanings of Spark's own Kafka connector, and options of our own.

Rules:
- To move a job over from that connector, you change only the name of the format. Options that it refuses are refused
  here too. Options that change no row here (a trigger's limits in a batch query, a consumer group) only cause a
  warning.
- Of Kafka's names, `kafka.…`, the isolation level has an effect, and each name that `ottla.connect` knows.
- The rest is in `ottla.spark.kafka_options`.

Source: KafkaSourceProvider.scala, validateGeneralOptions and validateBatchOptions.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ottla.addresses import parse_address
from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sdk.consume.reading.range_reader import OffsetRange
from ottla.spark.columns.columns import JsonFormat, Layout, spark_schema
from ottla.spark.columns.value_schema import parse_value_schema
from ottla.spark.cores import cores
from ottla.spark.kafka_options import ClientConfig, Names, read_client, silent, warn_without_effect
from ottla.spark.reading.offsets import Limit, parse_assign, parse_places, plan

Source = tuple[str, ...] | frozenset[TopicPartition] | str
"""Topics, partitions, or a pattern for topic names."""

_SOURCES = ("subscribe", "assign", "subscribePattern")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""In each of the two, the first option that is given counts, as in Spark's own connector."""
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
    "maxBatchBytes",
)
_OF_STREAMS = ("groupIdPrefix", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "prometheus")
_WITHOUT_EFFECT = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
"""They tune a consumer that does not exist here."""

_SECONDS = {"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}

_ISOLATION = "isolation.level"
_MOST = 2**63 - 1
"""The largest 64-bit number, of the protocol and of Spark."""
_DIGITS = 100
"""Digits that a number may have: Python refuses to convert thousands of them."""

_NAMES = Names(
    use="reading",
    known=(*_SOURCES, *_STARTS, *_ENDS, *_OTHERS, *_OF_STREAMS, *_WITHOUT_EFFECT),
    refused={
        "path": "topics are not paths: name them in option subscribe",
        "topic": "it is a write option: name the topics to read in option subscribe",
        "kafka.auto.offset.reset": "say where to start in option startingOffsets",
        "kafka.enable.auto.commit": "a query reads what its options say and commits nothing by itself",
        "kafka.interceptor.classes": "interceptors are Java classes, and would change what is read",
        "kafka.key.deserializer": "keys are bytes: decode the column key, as in key.cast('string')",
        "kafka.value.deserializer": "values are bytes: decode the column value, as in value.cast('string')",
    },
)
READING = (*_SOURCES, *_STARTS, *_ENDS, *_OTHERS, *_OF_STREAMS)
"""Options for reading only."""


def read_layout(given: Mapping[str, str]) -> Layout:
    """Return the columns of a row (`includeHeaders`, `valueFormat`), before it is known whether the query is a batch.

    Raises:
        ConfigurationError: the options fit neither a batch query nor a streaming query.
    """
    with silent():
        try:
            return ReadOptions.parse(given).layout
        except ConfigurationError:
            if any(name in _NAMES.split(given)[0] for name in _ENDS):  # streams have no end, so this is a batch query
                raise
        return StreamOptions.parse(given).read.layout


_NAMED = 3
"""Number of topics in a log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options that batch and streaming queries share, checked as far as possible without a broker.

    Attributes:
        source: topics (`subscribe`), partitions (`assign`), or a pattern for the names of topics (`subscribePattern`).
        layout: the columns of a row (`includeHeaders`, `valueFormat`).
        isolation: with `READ_COMMITTED`, a log ends at its last stable offset.
        min_tasks, max_records, max_tasks: see `ottla.spark.reading.offsets.plan`.
        max_batch_bytes: memory that one batch may take, decompressed and as objects; ``None``: `MAX_BATCH_BYTES` of
            `ottla.spark.columns.arrow`.
    """

    client: ClientConfig
    source: Source
    starting: Limit
    latest_if_no_record: bool = False
    layout: Layout = field(default_factory=Layout)
    fail_on_data_loss: bool = True
    isolation: int = READ_UNCOMMITTED
    min_tasks: int | None = None
    max_records: int | None = None
    max_tasks: int | None = None
    max_batch_bytes: int | None = None

    @property
    def names(self) -> str:
        """The names of topics, or the pattern; the log shows them to distinguish the queries of a session."""
        if isinstance(self.source, str):
            return self.source
        topics = sorted({topic for topic, _ in self.source} if isinstance(self.source, frozenset) else self.source)
        more = len(topics) - _NAMED
        return ", ".join(topics[:_NAMED]) + (f" and {more} more" if more > 0 else "")

    def tasks(self, ranges: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
        """Divide the ranges into tasks. Called where a query is planned."""
        limits = {"min_tasks": self.min_tasks, "max_records": self.max_records, "max_tasks": self.max_tasks}
        return plan(ranges, cores(), **limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(SourceOptions):
    """The options of a batch query."""

    ending: Limit

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "ReadOptions":
        """Parse the options that a user gave; names are case-insensitive.

        Raises:
            ConfigurationError: an option is unknown, missing, contradicts another, or has an invalid value.
        """
        where = "on a batch query of format ottla"
        options, kafkas = _NAMES.split(given)
        for name in _OF_STREAMS:
            if name in options:
                warn_without_effect(name, where)
        starting = _limit(options, _STARTS, EARLIEST, impossible="latest")
        ending = _limit(options, _ENDS, LATEST, impossible="earliest")
        client, consumer = read_client(kafkas, "consumer", where, wanted=(_ISOLATION,))
        return cls(starting=starting, ending=ending, **_common(options, client, consumer, where))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a streaming query.

    Attributes:
        read: the options that a batch query has as well.
        most, least: numbers of offsets in a micro-batch (`maxOffsetsPerTrigger`, `minOffsetsPerTrigger`).
        longest_wait: seconds after which fewer offsets than ``least`` are enough (`maxTriggerDelay`).
        group: the consumer group to which the query commits its progress.
        prometheus: where the driver serves lag and rate.
    """

    read: SourceOptions
    most: int | None = None
    least: int | None = None
    longest_wait: float = 900.0
    group: str | None = None
    prometheus: tuple[str, int] | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "StreamOptions":
        """Parse the options that a user gave; see `ReadOptions.parse`."""
        where = "on a streaming query of format ottla"
        options, kafkas = _NAMES.split(given)
        if (ending := next((name for name in _ENDS if name in options), None)) is not None:
            raise ConfigurationError(f"{ending} is for batch queries: a stream has no end, stop it or use availableNow")
        most, least = _positive(options, "maxOffsetsPerTrigger"), _positive(options, "minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise ConfigurationError(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
        starting = _limit(options, _STARTS, LATEST)
        client, consumer = read_client(kafkas, "consumer", where, wanted=(_ISOLATION,))
        return cls(
            read=SourceOptions(starting=starting, **_common(options, client, consumer, where)),
            most=most,
            least=least,
            longest_wait=_duration(options, "maxTriggerDelay", 900.0),
            group=_group(options),
            prometheus=_address(options, "prometheus"),
        )


def _common(
    options: Mapping[str, str], client: ClientConfig, consumer: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return the arguments of `SourceOptions` except the start; ``where`` is for warnings about unused options."""
    for name in _WITHOUT_EFFECT:
        if name in options:
            warn_without_effect(name, where)
    min_tasks, max_tasks = _positive(options, "minPartitions"), _positive(options, "maxTasks")
    if min_tasks is not None and max_tasks is not None and max_tasks < min_tasks:
        raise ConfigurationError(
            f"maxTasks ({max_tasks}) is less than minPartitions ({min_tasks}): leave out one of them"
        )
    return {
        "client": client,
        "source": _source(options),
        "latest_if_no_record": _choice(options, "startingOffsetsByTimestampStrategy", "error", "latest") == "latest",
        "layout": _layout(options),
        "fail_on_data_loss": _choice(options, "failOnDataLoss", "true", "false") == "true",
        "isolation": READ_COMMITTED if consumer.get("isolation") == "read_committed" else READ_UNCOMMITTED,
        "min_tasks": min_tasks,
        "max_records": _positive(options, "maxRecordsPerPartition"),
        "max_tasks": max_tasks,
        "max_batch_bytes": _positive(options, "maxBatchBytes"),
    }


def _group(options: Mapping[str, str]) -> str | None:
    group = options.get("groupIdPrefix")
    if group == "":
        raise ConfigurationError("groupIdPrefix is empty: name a group, or leave the option out to commit no offsets")
    return group


def _address(options: Mapping[str, str], name: str) -> tuple[str, int] | None:
    value = options.get(name)
    if value is None:
        return None
    return parse_address(value, name)


def _layout(options: Mapping[str, str]) -> Layout:
    include_headers = _choice(options, "includeHeaders", "false", "true") == "true"
    value_format = options.get("valueFormat", "binary").lower()
    if value_format == "json":
        return Layout(include_headers, _json_format(options, include_headers))
    if value_format != "binary":
        not_yet = " yet" if value_format in ("avro", "protobuf") else ""
        raise ConfigurationError(
            f"valueFormat {options['valueFormat']!r} is not supported{not_yet}, only binary and json: decode other "
            "formats in the query, as in from_avro(value, …)"
        )
    for name in ("valueSchema", "columnNameOfCorruptRecord"):
        if name in options:
            raise ConfigurationError(f"{name} is for JSON values: add valueFormat=json")
    return Layout(include_headers)


def _json_format(options: Mapping[str, str], include_headers: bool) -> JsonFormat:
    if not options.get("valueSchema"):
        raise ConfigurationError(
            "valueFormat=json needs valueSchema: the fields of a value, for example 'id BIGINT, name STRING'"
        )
    fields = parse_value_schema(options["valueSchema"])
    corrupt = options.get("columnNameOfCorruptRecord", JsonFormat.corrupt)
    others = spark_schema(Layout(include_headers)).names
    if not corrupt or corrupt.lower() in map(str.lower, others):
        raise ConfigurationError(
            f"columnNameOfCorruptRecord cannot be {corrupt!r}: it must differ from the columns {', '.join(others)}"
        )
    return JsonFormat(fields, corrupt)


def _duration(options: Mapping[str, str], name: str, default: float) -> float:
    """Parse a duration as Spark writes it, like 15m or 500ms; return seconds. A bare number is in milliseconds."""
    value = options.get(name)
    if value is None:
        return default
    found = re.fullmatch(r"(\d{1,18}) ?([a-z]*)", value.lower())
    if found is None or found[2] not in _SECONDS:
        raise ConfigurationError(f"{name} must be a duration such as 15m, 30s or 500ms, not {value!r}")
    return int(found[1]) * _SECONDS[found[2]]


def _source(options: Mapping[str, str]) -> Source:
    found = [name for name in _SOURCES if name in options]
    if len(found) > 1:
        raise ConfigurationError(f"options {' and '.join(found)} contradict each other: give one of them")
    if not found:
        raise ConfigurationError(f"no topics to read: give one of the options {', '.join(_SOURCES)}")
    [name] = found
    value = options[name]
    if name == "assign":
        return parse_assign(value)
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise ConfigurationError("subscribe names no topic: give one or more, separated by commas")
        return topics
    if not value:
        raise ConfigurationError(
            "subscribePattern is empty: give a regular expression, which may match any part of a topic name"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # for syntax that a later Python may read differently
            re.compile(value)
        differs = _has_sets_within_sets(value)
    except FutureWarning:
        differs = True
    except (re.error, RecursionError) as error:
        raise ConfigurationError(f"subscribePattern {value!r} is not a valid Python regex: {error}") from error
    if differs:
        raise ConfigurationError(
            f"subscribePattern {value!r} means something else in Java than in Python, where [ and && within brackets "
            "are ordinary characters: write [a-z&&[^t]] as (?!t)[a-z], and [a[bc]] as [abc]"
        )
    return value


_IN_BRACKETS = re.compile(r"\\.|\[\^?\]?((?:\\.|[^\]\\])*)", re.DOTALL)


def _has_sets_within_sets(pattern: str) -> bool:
    """Whether Java would read a union or intersection of character sets where Python reads plain characters."""
    insides = (re.sub(r"\\.", "", found[1] or "") for found in _IN_BRACKETS.finditer(pattern))
    return any("[" in inside or "&&" in inside for inside in insides)


def _limit(
    options: Mapping[str, str], names: tuple[str, str, str], default: int, impossible: str | None = None
) -> Limit:
    """Return the start or the end limit; ``impossible`` is the word that is invalid for it."""
    timestamp, by_timestamp, offsets = names
    words = {"earliest": EARLIEST, "latest": LATEST}
    given = [name for name in names if name in options]
    if not given:
        return Limit(offsets, default)
    name, *passed_over = given
    for each in passed_over:
        warn_without_effect(each, f"beside {name}")
    value = options[name]
    if name == timestamp:
        if not (value.isascii() and value.isdigit()) or len(value) > _DIGITS or int(value) > _MOST:
            raise ConfigurationError(f"{timestamp} must be milliseconds since 1970, not {value!r:.100}")
        return Limit(timestamp, int(value), by_time=True)
    if name == by_timestamp:
        return Limit(
            by_timestamp, _within_bounds(parse_places(value, by_timestamp, lowest=0), by_timestamp), by_time=True
        )
    if (word := value.lower()) in words:
        if word == impossible:
            raise ConfigurationError(f"{offsets} cannot be {impossible} in a batch query")
        return Limit(offsets, words[word])
    possible = [each for each in words if each != impossible]
    places = _within_bounds(parse_places(value, offsets, words=possible), offsets)
    for (topic, partition), place in places.items():
        if impossible is not None and place == words[impossible]:
            raise ConfigurationError(
                f"{offsets} for {topic}-{partition} cannot be {place} ({impossible}) in a batch query"
            )
    return Limit(offsets, places)


def _within_bounds(places: dict[TopicPartition, int], option: str) -> dict[TopicPartition, int]:
    for (topic, partition), place in places.items():
        if place > _MOST:
            raise ConfigurationError(f"{option}: {place} for {topic}-{partition} must be a number up to {_MOST}")
    return places


def _choice(options: Mapping[str, str], name: str, default: str, other: str) -> str:
    value = options.get(name, default).lower()
    if value not in (default, other):
        raise ConfigurationError(f"{name} must be {default} or {other}, not {options[name]!r}")
    return value


def _positive(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > _DIGITS or not 0 < int(value) <= _MOST:
        raise ConfigurationError(f"{name} must be a positive whole number, not {value!r:.100}")
    return int(value)
