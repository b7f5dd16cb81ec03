"""The two halves of a batch query: the driver plans it, the tasks read it.

Rules:
- `partitions` runs once, on the driver; only it looks up the ends of logs. `read` depends on nothing but its task.
- A worker process runs many tasks, one after the other, and keeps its client for the next one
  (`ottla.spark.client_cache`).
- When a task has enough rows (`take`), Spark closes its generator, and the fetch ends with it.
- Spark reuses the plan of a DataFrame's first use for all later ones (`PythonDataSourceV2.getOrCreateReadInfo`). So a
  plan must not depend on a query's filters (no `pushFilters`): the next query would miss rows that they exclude.
"""

import logging
import re
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from uuid import UUID

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import (
    ConfigurationError,
    DataLoss,
    DecodeError,
    OffsetOutOfRange,
    OttlaError,
    UnknownTopicOrPartition,
)
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.record_sets import AnyBatch
from ottla.sdk.consume.reading.range_reader import LostRange, OffsetRange
from ottla.sdk.drivers.blocking import BlockingClient
from ottla.spark.client_cache import ClientCache
from ottla.spark.failures import one_sentence
from ottla.spark.kafka_options import ClientConfig
from ottla.spark.reading.offsets import OffsetsClient, resolve
from ottla.spark.reading.read_options import ReadOptions, Source, SourceOptions

log = logging.getLogger("ottla.spark")

Topics = Mapping[str, tuple[UUID, int]]
"""Topic name -> topic id, all zeros if brokers have none, and number of partitions."""


def _connect(config: ClientConfig) -> BlockingClient:
    return BlockingClient(config.bootstrap, **config.arguments)


# A task's fetch ends when its generator is closed, and the client can be used again.
clients = ClientCache(_connect, unharmed=(GeneratorExit,))

OLD_PLAN, OLD_REUSED_PLAN = 3600.0, 5.0
"""Age in seconds at which a plan that reads to the ends of that time causes a warning. The second is for a plan that an
earlier query has used."""
MOST_PLANS = 100
"""How many plans are remembered: a stream may load a topic for each micro-batch."""
_EXECUTION = "spark.sql.execution.id"
_plans: dict[float, str | None] = {}
"""For each plan, by the time it was made, the first execution that this process has read for; or `_WARNED`, once it has
warned about the plan. In the order of their first use."""
_WARNED = "warned"


@dataclass()
class ReadTask(InputPartition):
    """The offsets that one task reads, and from which brokers. Has no ranges if there is nothing to read."""

    client: ClientConfig
    ranges: tuple[OffsetRange, ...]
    latest_as_of: float | None = None
    """When the query's ends were looked up, in seconds since 1970; ``None`` if the user gave them."""


class BatchReader(DataSourceReader):
    """Plans and reads a batch query."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[ReadTask]:
        """Return the tasks, at least one: from an empty list, Spark would make a task of its own.

        Raises:
            ConfigurationError, DataLoss: see `ottla.spark.reading.offsets.resolve`.
            BrokerUnreachable, TimeoutExpired: the brokers do not answer.
        """
        options = self.options
        with one_sentence():
            config = options.client.found()
            with clients.use(config) as client:
                topics = topics_of(client, options.source)
                ranges = resolve(
                    client,
                    places_of(topics, options.source),
                    options.starting,
                    options.ending,
                    latest_if_no_record=options.latest_if_no_record,
                    fail_on_data_loss=options.fail_on_data_loss,
                    isolation=options.isolation,
                )
        until = time.time() if options.ending.places == LATEST else None
        return [ReadTask(config, task, until) for task in options.tasks(ranges) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        Raises:
            DataLoss: records were deleted since the query was planned.
            BrokerUnreachable, TimeoutExpired: the brokers do not answer.
        """
        assert isinstance(partition, ReadTask)  # Spark hands back what `partitions` gave
        return read_task(partition, self.options)


def read_task(task: ReadTask, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task.

    Raises:
        DataLoss: records were deleted since the query was planned.
        BrokerUnreachable, TimeoutExpired: the brokers do not answer.
    """
    if not task.ranges:
        return
    from ottla.spark.columns.arrow import MAX_BATCH_BYTES, arrow_batches  # slow to import, and not needed for planning

    isolation, fail = options.isolation, options.fail_on_data_loss
    limit = options.max_batch_bytes or MAX_BATCH_BYTES
    _warn_of_old_plan(task)
    with (
        one_sentence(),
        clients.use(task.client) as client,
        closing(fetch(client, task.ranges, isolation=isolation, fail_on_data_loss=fail)) as fetched,
    ):
        yield from arrow_batches(fetched, options.layout, limit, partial(_unreadable, fail))


def _unreadable(fail: bool, wanted: OffsetRange, batch: AnyBatch, error: DecodeError) -> None:
    """Raise the error of a batch that cannot be decoded; or log a warning, and the batch is skipped.

    The batch's bytes never change. So if it could not be skipped, a stream with a checkpoint would fail for ever.
    """
    if fail:
        error.reason += (
            "; if the batch is only large, a higher maxBatchBytes reads it; failOnDataLoss=false skips a batch that "
            "cannot be read"
        )
        raise error
    last = batch.next_offset - 1
    log.warning(
        f"a batch of {wanted.topic}-{wanted.partition} cannot be read and is skipped, up to offset {last}: {error}",
        extra={"topic": wanted.topic, "partition": wanted.partition, "offset": last},
    )


def _warn_of_old_plan(task: ReadTask) -> None:
    """Warn that data is old: Spark plans a DataFrame or view once, and reads the same offsets as long as it lives."""
    planned = task.latest_as_of
    if planned is None:
        return
    running = TaskContext.get()
    execution, age = running.getLocalProperty(_EXECUTION) if running else None, time.time() - planned
    first = _plans.setdefault(planned, execution)
    if len(_plans) > MOST_PLANS:
        del _plans[next(iter(_plans))]
    if first == _WARNED or age < (OLD_PLAN if first == execution else OLD_REUSED_PLAN):
        return
    _plans[planned] = _WARNED
    log.warning(
        f"this DataFrame or view of {task.ranges[0].topic} reads up to the ends that its topics had {_for_people(age)} "
        "ago, at its first use: to read newer records, load() it again, in a stream within foreachBatch; or create the "
        "view again"
    )


def _for_people(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def topics_of(client: OffsetsClient, source: Source, *, missing: bool = False) -> Topics:
    """Return the topics that a query reads.

    Args:
        missing: accept that topics are gone, or do not exist yet.

    Raises:
        ConfigurationError: a topic does not exist, or the pattern matches none.
    """
    if isinstance(source, str):
        topics = {name: each for name, each in client.topic_ids(None).items() if re.search(source, name)}
        if not topics and not missing:
            raise ConfigurationError(f"subscribePattern {source!r} matches no topic")
        return topics
    names = sorted({topic for topic, _ in source}) if isinstance(source, frozenset) else source
    topics = client.topic_ids(names)
    if not missing and (unknown := [name for name in names if name not in topics]):
        option = "assign" if isinstance(source, frozenset) else "subscribe"
        raise ConfigurationError(
            f"topic {', '.join(map(repr, unknown))} does not exist: check option {option}, and that "
            "kafka.bootstrap.servers names the right cluster"
        )
    return topics


def places_of(topics: Topics, source: Source, *, missing: bool = False) -> dict[TopicPartition, UUID]:
    """Return the partitions that a query reads, each with its topic's id.

    Raises:
        ConfigurationError: a partition does not exist, unless some may be ``missing``.
    """
    there = {(name, index): topic_id for name, (topic_id, count) in topics.items() for index in range(count)}
    if not isinstance(source, frozenset):
        return there
    for topic, partition in sorted(source - there.keys()):
        if not missing:
            raise ConfigurationError(f"assign names {topic}-{partition}, but {topic} has {topics[topic][1]} partitions")
    return {place: topic_id for place, topic_id in there.items() if place in source}


def fetch(
    client: OffsetsClient, ranges: Iterable[OffsetRange], *, isolation: int, fail_on_data_loss: bool
) -> Generator[tuple[OffsetRange, AnyBatch], None, None]:
    """Yield the batches of all ranges in the order of arrival. Lost records raise an error, or are skipped."""

    def go_on(lost: LostRange) -> int:
        wanted = lost.range
        where = f"offsets {lost.offset} to {wanted.end - 1} of {wanted.topic}-{wanted.partition}"
        try:
            following = _where_to_go_on(client, lost)
        except OttlaError:
            if not fail_on_data_loss:
                raise
            following = wanted.end  # report the loss that is already known, not this error
        what = f"{where} are gone" if following >= wanted.end else f"{where} are gone up to {following - 1}"
        if fail_on_data_loss:
            raise DataLoss(f"{what}: {_why(lost.error)}; failOnDataLoss=false skips missing offsets") from lost.error
        log.warning(f"{what} and are skipped: {_why(lost.error)}", extra=_fields(lost))
        return following

    return client.fetch(ranges, isolation=isolation, on_lost=go_on)


def _why(error: OttlaError) -> str:
    if isinstance(error, OffsetOutOfRange):
        return "they were deleted, by retention or by a DeleteRecords request"
    if isinstance(error, UnknownTopicOrPartition):
        return "the topic was deleted"
    return str(error)


def _where_to_go_on(client: OffsetsClient, lost: LostRange) -> int:
    """Return the first offset of the range that the log still has; its end if there is none, or if the topic was
    deleted or recreated."""
    place, end = lost.range.place, lost.range.end
    if not isinstance(lost.error, OffsetOutOfRange):
        return end
    try:
        first = client.offsets({place: EARLIEST})[place]
    except UnknownTopicOrPartition:
        return end
    return min(first, end) if first > lost.offset else end


def _fields(lost: LostRange) -> dict[str, object]:
    wanted = lost.range
    return {"topic": wanted.topic, "partition": wanted.partition, "start": lost.offset, "end": wanted.end}
