"""The two halves of a batch query: planned on the driver, read by the tasks.

Rules:
- `partitions` runs on the driver, once; it alone asks for the ends of logs. `read` depends on nothing but its task.
- A worker process serves many tasks, one after the other, and keeps its client for the next. A process that was forked
  makes its own: two of them on one connection would read each other's answers.
- Spark closes the generator of a task that has enough rows (`take`): what is being fetched ends with it.
"""

import logging
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.message_sets import Message
from ottla.codec.records import RecordBatch
from ottla.errors import ConfigurationError, DataLoss, OffsetOutOfRange, UnknownTopicOrPartition
from ottla.sdk import mdns
from ottla.sdk.drivers.blocking import BlockingClient
from ottla.sdk.options import Options, announced_name
from ottla.spark.arrow import arrow_batches
from ottla.spark.offsets import Client, OffsetRange, TopicPartition, plan, resolve
from ottla.spark.options import ClientConfig, ReadOptions, Source

log = logging.getLogger("ottla.spark")

_clients: dict[tuple[int, ClientConfig], BlockingClient] = {}
"""By process id, because a fork copies this dictionary."""


@dataclass
class Task(InputPartition):
    """What one task reads, from which brokers. Empty where no partition has anything to read."""

    client: ClientConfig
    ranges: tuple[OffsetRange, ...]


class BatchReader(DataSourceReader):
    """Reads what its options say, once."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[Task]:
        """The tasks; there is always one, because Spark makes one of its own of an empty list.

        Raises:
            ConfigurationError, DataLoss: see `ottla.spark.offsets.resolve`.
            BrokerUnreachable, TimeoutExpired: the brokers do not answer.
        """
        options = self.options
        config = found(options.client)
        with client_of(config) as client:
            ranges = resolve(
                client,
                places_of(topics_of(client, options.source), options.source),
                options.starting,
                options.ending,
                latest_if_no_record=options.latest_if_no_record,
                fail_on_data_loss=options.fail_on_data_loss,
                isolation=options.isolation,
            )
        tasks = plan(ranges, min_tasks=options.min_tasks, max_records=options.max_records, max_tasks=options.max_tasks)
        return [Task(config, task) for task in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task.

        Raises:
            DataLoss: records were deleted since the query was planned.
            BrokerUnreachable, TimeoutExpired: the brokers do not answer.
        """
        assert isinstance(partition, Task)  # Spark hands back what `partitions` gave
        return read_task(partition, self.options)


def read_task(task: Task, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a task.

    Raises:
        DataLoss: records were deleted since the query was planned.
        BrokerUnreachable, TimeoutExpired: the brokers do not answer.
    """
    if not task.ranges:
        return
    with client_of(task.client) as client, closing(_fetch_all(client, task.ranges, options)) as fetched:
        yield from arrow_batches(fetched, include_headers=options.include_headers)


@contextmanager
def client_of(config: ClientConfig) -> Iterator[BlockingClient]:
    """The client of this process; one that failed is closed, so that the next task starts afresh."""
    key = (os.getpid(), config)
    if key not in _clients:
        _clients[key] = BlockingClient(config.bootstrap, **config.arguments)
    try:
        yield _clients[key]
    except GeneratorExit:
        raise
    except BaseException:  # whatever it is, the client may be in the midst of something
        _clients.pop(key).close()
        raise


def found(config: ClientConfig) -> ClientConfig:
    """``config`` with the addresses that ``zeroconf://`` stands for: tasks need not find the brokers again."""
    announced, name = announced_name(config.bootstrap)
    if not announced:
        return config
    addresses = mdns.find(name, Options(**dict(config.options)).connect_timeout)
    return replace(config, bootstrap=",".join(addresses))


def topics_of(client: Client, source: Source, *, missing: bool = False) -> dict[str, tuple[str, int]]:
    """The topics that a query reads, each with its id as text and the number of its partitions.

    Args:
        missing: topics may be gone, or not be there yet.

    Raises:
        ConfigurationError: a topic does not exist, or the pattern matches none.
    """
    if isinstance(source, str):
        topics = {name: each for name, each in client.topic_ids(None).items() if re.fullmatch(source, name)}
        if not topics and not missing:
            raise ConfigurationError(f"subscribePattern {source!r} matches no topic")
        return topics
    names = sorted({topic for topic, _ in source}) if isinstance(source, frozenset) else source
    topics = client.topic_ids(names)
    if not missing and (unknown := [name for name in names if name not in topics]):
        raise ConfigurationError(f"a topic to read does not exist: {', '.join(unknown)}")
    return topics


def places_of(topics: Mapping[str, tuple[str, int]], source: Source, *, missing: bool = False) -> set[TopicPartition]:
    """The partitions that a query reads.

    Raises:
        ConfigurationError: a partition does not exist, unless some may be ``missing``.
    """
    there = {(topic, partition) for topic, (_, count) in topics.items() for partition in range(count)}
    if not isinstance(source, frozenset):
        return there
    for topic, partition in sorted(source - there):
        if not missing:
            raise ConfigurationError(f"assign names {topic}-{partition}, and {topic} has {topics[topic][1]} partitions")
    return set(source & there)


def _fetch_all(
    client: Client, ranges: tuple[OffsetRange, ...], options: ReadOptions
) -> Generator[tuple[OffsetRange, RecordBatch | Message], None, None]:
    """The batches of each range in turn; what was deleted meanwhile is an error, or passed over."""
    for wanted in ranges:
        while wanted.start < wanted.end:
            try:
                place, isolation = (wanted.topic, wanted.partition), options.isolation
                with closing(client.fetch(*place, wanted.start, wanted.end, isolation=isolation)) as batches:
                    for batch in batches:
                        yield wanted, batch
                        wanted = replace(wanted, start=batch.next_offset)
                break
            except (OffsetOutOfRange, UnknownTopicOrPartition) as error:
                if options.fail_on_data_loss:
                    raise DataLoss(
                        f"offsets {wanted.start} to {wanted.end} of {wanted.topic}-{wanted.partition} were there when "
                        "the query was planned, and are gone: failOnDataLoss=false reads what there is"
                    ) from error
                wanted = _what_is_left(client, wanted)


def _what_is_left(client: Client, wanted: OffsetRange) -> OffsetRange:
    """``wanted`` without what the log has lost: all of it, if the topic is gone or was cut off at its end."""
    place = (wanted.topic, wanted.partition)
    try:
        first = client.offsets({place: EARLIEST})[place]
    except UnknownTopicOrPartition:
        first = -1
    start = min(first, wanted.end) if first > wanted.start else wanted.end
    log.warning(
        "offsets that are gone are skipped",
        extra={"topic": wanted.topic, "partition": wanted.partition, "start": wanted.start, "end": start},
    )
    return replace(wanted, start=start)
