"""Structured streaming: what each micro-batch of a query reads.

Spark asks a `StreamReader` in the driver, again and again: how far may the next batch go (`latestOffset`), and which
tasks does it have (`partitions`)? The tasks are those of a batch query.

Rules:
- What a batch reads follows from its two ends alone (`ottla.spark.stream_offsets`), because Spark plans it again after
  a restart. What the brokers have at that moment decides nothing but where the next batch ends.
- Offsets go back where a topic was cut off or created again, and partitions go; each is data loss.
- An idle query asks every ten milliseconds: the ends of logs are asked for less often.

Source: KafkaMicroBatchStream.scala, MicroBatchExecution.scala.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.codec.apis.list_offsets import LATEST
from ottla.errors import DataLoss, OttlaError, UnknownTopicOrPartition
from ottla.sdk.options import Options
from ottla.spark.failures import one_sentence
from ottla.spark.offsets import known_starts, plan
from ottla.spark.options import StreamOptions
from ottla.spark.progress import Progress, Served
from ottla.spark.reader import Task, Topics, client_of, places_of, read_task, topics_of
from ottla.spark.stream_offsets import Positions, StreamOffset, limited

log = logging.getLogger("ottla.spark")

POLL_SECONDS = 0.1
"""Between two questions for the ends of logs."""
TOPICS_SECONDS = 1.0
"""Between two questions for topics and their partitions."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what its options say, for ever. One in the driver is asked; copies of it read in the workers."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._config = options.read.client.found()
        self._initial: StreamOffset | None = None
        self._topics: tuple[float, Topics] | None = None
        """When they were asked for, and what there was."""
        self._ends: tuple[float, Positions] | None = None
        self._last: StreamOffset | None = None
        """Where the logs ended when the trigger availableNow began; ``None`` with other triggers."""
        self._batch_at: float | None = None
        """When a batch was last given."""
        self._progress = Progress(Options(**dict(self._config.options)).client_id)
        self._served = Served(options.prometheus, self._progress) if options.prometheus else None

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: they read, and tell nothing."""
        return {"options": self.options}

    # -- what Spark asks for ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins.

        Raises:
            ConfigurationError: a topic does not exist, or the options do not fit it.
        """
        if self._initial is None:  # it is asked for twice
            read = self.options.read
            with one_sentence(), client_of(self._config) as client:
                topics = topics_of(client, read.source)
                starts = known_starts(
                    client,
                    places_of(topics, read.source),
                    read.starting,
                    latest_if_no_record=read.latest_if_no_record,
                    isolation=read.isolation,
                )
            self._initial = StreamOffset(starts, _ids(topics), starts)
        return self._initial.json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self.options
        if options.most is not None:
            return ReadMaxRows(options.most)
        if options.least is not None:
            return ReadMinRows(options.least)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with one_sentence():
            self._last = self._latest(time.monotonic(), fresh=True)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where a batch ends that begins at ``start``.

        Raises:
            DataLoss: partitions are gone, or do not have any more what lies before ``start``, unless `failOnDataLoss`
                is false.
        """
        now = time.monotonic()
        before = StreamOffset.parse(start)
        with one_sentence():
            newest = self._last or self._latest_by_now(now)
            end = self._without_loss(before, newest)
        begin = {place: before.position(place, newest.ids.get(place[0])) for place in end}
        self._tell(begin, newest.positions, now)
        if not isinstance(limit, ReadAllAvailable):
            if self._waits_for_more(sum(max(end[place] - begin[place], 0) for place in end), now):
                return dict(start)
            if self.options.most is not None:
                end = limited(begin, end, self.options.most)
        if (end, newest.ids) == (before.positions, before.ids):
            return dict(start)
        self._batch_at = now
        return StreamOffset(end, newest.ids, before.start if before.start == before.positions else None).json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For ``lastProgress``: where the logs end."""
        return None if self._ends is None else StreamOffset(self._ends[1]).json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The tasks of a batch, none if it has no offsets.

        Raises:
            ConfigurationError: it is the first one of Spark's own connector.
        """
        read = self.options.read
        with one_sentence():
            ranges = StreamOffset.parse(start).until(StreamOffset.parse(end))
        tasks = plan(ranges, min_tasks=read.min_tasks, max_records=read.max_records, max_tasks=read.max_tasks)
        return [Task(self._config, task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; see `ottla.spark.reader.read_task`."""
        assert isinstance(partition, Task)  # Spark hands back what `partitions` gave
        return read_task(partition, self.options.read)

    def commit(self, end: Mapping[str, Any]) -> None:
        """A batch is done: tell the consumer group, if there is one, so that Kafka's tools see the lag."""
        if self.options.group is None:
            return
        try:
            with client_of(self._config) as client:
                client.commit(self.options.group, StreamOffset.parse(end).positions)
        except OttlaError as error:  # the query goes by its checkpoint, and needs no group
            log.warning(f"group {self.options.group!r} was not told how far the query is: {error}")

    def stop(self) -> None:
        """The client is that of the process, which ends."""
        if self._served is not None:
            self._served.stop()

    def _tell(self, positions: Positions, ends: Positions, now: float) -> None:
        """Say how far the query is."""
        with one_sentence():
            if self._served is not None:
                self._served.start(now)
        self._progress.told(positions, ends, now)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _latest_by_now(self, now: float) -> StreamOffset:
        try:
            return self._latest(now, fresh=False)
        except UnknownTopicOrPartition:  # a topic has gone since topics were asked for
            return self._latest(now, fresh=True)

    def _latest(self, now: float, *, fresh: bool) -> StreamOffset:
        """Where the logs end, as of a moment ago, or just now."""
        read = self.options.read
        with client_of(self._config) as client:
            if fresh or self._topics is None or now >= self._topics[0] + TOPICS_SECONDS:
                self._topics = now, topics_of(client, read.source, missing=True)
                self._ends = None  # they may be those of another topic of the same name
            topics = self._topics[1]
            if self._ends is None or now >= self._ends[0] + POLL_SECONDS:
                places = places_of(topics, read.source, missing=True)
                self._ends = now, client.offsets(dict.fromkeys(places, LATEST), isolation=read.isolation)
        return StreamOffset(self._ends[1], _ids(topics))

    def _without_loss(self, before: StreamOffset, newest: StreamOffset) -> Positions:
        """The ends of what can be read on; what was lost is an error, or passed over."""
        lost = []
        for place in sorted(before.positions):
            topic, partition = place
            was, is_now = before.positions[place], newest.positions.get(place)
            if is_now is None:
                lost.append(f"{topic}-{partition} is gone")
            elif before.position(place, newest.ids.get(topic)) != was:
                lost.append(f"topic {topic} was created again")
            elif is_now < was:
                lost.append(f"{topic}-{partition} was read up to {was}, and ends at {is_now}")
        if lost:
            said = "; ".join(dict.fromkeys(lost[:10]))
            if self.options.read.fail_on_data_loss:
                raise DataLoss(f"{said}: failOnDataLoss=false goes on with what there is")
            log.warning(f"data was lost, and the query goes on: {said}")
        return dict(newest.positions)

    def _waits_for_more(self, available: int, now: float) -> bool:
        least = self.options.least
        if least is None or available >= least or self._batch_at is None or self._last is not None:
            return False
        return now < self._batch_at + self.options.longest_wait


def _ids(topics: Topics) -> dict[str, str]:
    return {name: str(topic_id) for name, (topic_id, _) in topics.items() if topic_id.int}
