"""Structured streaming: decides what each micro-batch of a query reads.

Spark asks a `StreamReader` in the driver, again and again: how far may the next batch go (`latestOffset`), and which
tasks does it have (`partitions`)? The tasks are like the tasks of a batch query.

Rules:
- The offsets of a batch depend on its two ends alone (`ottla.spark.streaming.stream_offsets`), because Spark plans it
  again after a restart. The state of the brokers only decides where the next batch ends. The one exception is a new
  partition whose beginning is in an end that Spark did not store: it is read from where its log begins.
- An offset can go back, if a log was truncated or a topic recreated, and partitions can disappear. Each counts as data
  loss.
- The start of a query without a checkpoint is looked up for its first batch, and not when Spark asks for it. Spark also
  asks after a restart, when the answer is not used and the options may no longer fit the topics.
- Spark asks an idle query every ten milliseconds. So the ends of logs are looked up less often, and results are cached.

Source: KafkaMicroBatchStream.scala, MicroBatchExecution.scala.
"""

import logging
import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.errors import DataLoss, OttlaError, UnknownTopicOrPartition
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED
from ottla.sdk.options import Options
from ottla.spark.failures import one_sentence
from ottla.spark.reading.batch_reader import ReadTask, Topics, clients, places_of, read_task, topics_of
from ottla.spark.reading.offsets import known_starts
from ottla.spark.reading.read_options import StreamOptions
from ottla.spark.streaming.group_commits import GroupCommits
from ottla.spark.streaming.progress import MetricsEndpoint, Progress
from ottla.spark.streaming.stream_offsets import BEGINNING, Positions, StreamOffset, limited

log = logging.getLogger("ottla.spark")
T = TypeVar("T")

MOST_TRIES = 6
"""How often a lookup of topics is tried if some of them are deleted meanwhile."""
POLL_SECONDS = 0.1
"""Seconds between two lookups of the ends of logs."""
TOPICS_SECONDS = 1.0
"""Seconds between two lookups of topics and their partitions."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads a streaming query: the driver's instance answers Spark, and copies of it read in the workers."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._config = options.read.client.found()
        self._commits = GroupCommits(self._config, options.group)
        self._topics: Topics = {}
        self._topics_at = self._newest_at = -math.inf
        self._parsed: tuple[Mapping[str, Any], StreamOffset] = BEGINNING.json(), BEGINNING
        """The start of the last batch that Spark asked for, as JSON and parsed."""
        self._newest: StreamOffset | None = None
        """Where the logs ended at `_newest_at`; the same object as long as no end changes."""
        self._last: StreamOffset | None = None
        """Where the logs ended when the trigger availableNow began; ``None`` with other triggers.

        Batches end here at the latest. The current ends, and so how far the query is behind, are in `_newest`.
        """
        self._new: tuple[float, StreamOffset, Mapping[TopicPartition, int]] = -math.inf, BEGINNING, {}
        """The beginnings of partitions that are new after an offset: valid until when, for which offset, and where."""
        self._idle: tuple[StreamOffset, Mapping[str, Any], int | None] | None = None
        """Ends of logs and the start of a batch for which we answered that there is no batch; and how many offsets are
        available, if these were too few."""
        self._batch_at: float | None = None
        """When the last batch was planned."""
        self._beyond: tuple[StreamOffset, list[TopicPartition], Positions] = BEGINNING, [], {}
        """A cache of `_read_beyond`: ends of logs, partitions that were read beyond them, and the result."""
        self._logged: tuple[StreamOffset, set[str]] = BEGINNING, set()
        """The start of a batch, and the warnings logged for it."""
        self._progress = Progress(Options(**dict(self._config.options)).client_id, options.read.names)
        self._served = MetricsEndpoint(options.prometheus, self._progress) if options.prometheus else None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the options only: tasks only read."""
        return {"options": self.options}

    # -- what Spark asks for ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the placeholder for the start of a query without a checkpoint."""
        return BEGINNING.json()

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
        """Return where a batch ends that begins at ``start``.

        Raises:
            ConfigurationError: it is the first batch, and a topic does not exist or the options do not fit it.
            DataLoss: partitions are gone, or their logs now end before ``start``; not with `failOnDataLoss=false`.
        """
        now = time.monotonic()
        with one_sentence():
            if self._served is not None:
                self._served.start(now)
            if self._parsed[0] != start:  # parsing takes milliseconds with thousands of partitions
                self._parsed = start, StreamOffset.parse(start)
            before = self._parsed[1]
            first = not before.begun
            if first:
                before = self._beginning(now)
            newest = self._latest(now)
            last = self._last or newest
            if self._is_idle(last, start, now):
                self._commits.commit(before, newest, self._last, now)
                self._progress.report(now)
                return dict(start)
            begins = self._begins(before, last, now)
            ends = self._held(before, begins, last, newest)
            self._check_for_loss(before, ends)
            if not first:
                self._commits.commit(before, newest, self._last, now)
                now = time.monotonic()
            there = newest.positions if newest is last else newest.restricted_to(last)
            self._progress.reached(begins, there, now)
            positions = ends.positions
            if not isinstance(limit, ReadAllAvailable):
                available = sum(max(positions[place] - begins[place], 0) for place in positions)
                if self._waits_for_more(available, now):
                    self._idle = last, start, available
                    return dict(start)
                if self.options.most is not None and available > self.options.most:
                    positions = limited(self._still_there(begins, positions), positions, self.options.most)
        end = before.next(positions, ends.ids, begins, first=first)
        if end is None:
            self._idle = last, start, None
            return dict(start)
        self._batch_at = now
        return end.json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the logs end, for ``lastProgress``."""
        return None if self._newest is None else StreamOffset(self._newest.positions).json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch; no tasks if it has no offsets.

        Raises:
            ConfigurationError: it is the first batch of a query, and Spark's own connector planned it.
        """
        read = self.options.read
        with one_sentence():
            if self._served is not None:
                self._served.start(time.monotonic())
            ranges = StreamOffset.parse(start).until(
                StreamOffset.parse(end), lambda new: self._earliest(new, dict.fromkeys(new, 0))
            )
        self._progress.begun({each.place: each.start for each in ranges})
        return [ReadTask(self._config, task) for task in read.tasks(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; see `ottla.spark.reading.batch_reader.read_task`."""
        assert isinstance(partition, ReadTask)  # Spark hands back what `partitions` gave
        return read_task(partition, self.options.read)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: Spark passes the processed end as ``start`` to `latestOffset`, after a restart too."""

    def stop(self) -> None:
        """Stop the metrics server. The client belongs to the process, which ends."""
        if self._served is not None:
            self._served.stop()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _beginning(self, now: float) -> StreamOffset:
        """Look up where a query without a checkpoint begins.

        Raises:
            ConfigurationError: a topic does not exist, or the options do not fit it.
        """
        read = self.options.read

        def ask() -> StreamOffset:
            with clients.use(self._config) as client:
                topics = topics_of(client, read.source, missing=isinstance(read.source, str))
                starts = known_starts(
                    client,
                    places_of(topics, read.source),
                    read.starting,
                    latest_if_no_record=read.latest_if_no_record,
                    isolation=read.isolation,
                )
                return StreamOffset(starts, _ids(topics), starts)

        beginning = _asked_again(ask)
        if self._last is not None:  # otherwise a start at "latest" could be after this end
            self._last = self._latest(now, fresh=True)
        return beginning

    def _latest(self, now: float, *, fresh: bool = False) -> StreamOffset:
        """Return where the logs end; with ``fresh`` now, else as of a moment ago."""
        try:
            return self._asked(now, fresh)
        except UnknownTopicOrPartition:  # a topic was deleted after the lookup of topics
            return _asked_again(lambda: self._asked(now, fresh=True))

    def _asked(self, now: float, fresh: bool) -> StreamOffset:
        read = self.options.read
        with clients.use(self._config) as client:
            if fresh or now >= self._topics_at + TOPICS_SECONDS:
                self._topics, self._topics_at = topics_of(client, read.source, missing=True), now
                fresh = True  # a topic may have been recreated, and the cached ends may belong to the deleted topic
            if fresh or self._newest is None or now >= self._newest_at + POLL_SECONDS:
                places = places_of(self._topics, read.source, missing=True)
                ends = client.offsets(dict.fromkeys(places, LATEST), isolation=read.isolation)
                newest, self._newest_at = StreamOffset(ends, _ids(self._topics)), now
                if newest != self._newest:
                    self._newest = newest
        assert self._newest is not None, "the lookup above sets it"
        return self._newest

    def _begins(self, before: StreamOffset, last: StreamOffset, now: float) -> Positions:
        """Return where a batch begins; new partitions begin where their logs do."""
        begins: Positions = {}
        new = []
        for place in last.positions:
            if (known := before.position(place, last.ids.get(place[0]))) is None:
                new.append(place)
            else:
                begins[place] = known
        if not new:
            return begins
        until, behind, starts = self._new
        if now >= until or behind != before or not starts.keys() >= set(new):
            starts = self._earliest(new, dict.fromkeys(new, 0))
            self._new = now + POLL_SECONDS, before, starts
        return begins | {place: starts[place] for place in new}

    def _still_there(self, begins: Positions, ends: Positions) -> Positions:
        """Return ``begins``, moved forward where the oldest records of a partition were deleted."""
        behind = {place: at for place, at in begins.items() if at < ends[place]}
        earliest = self._earliest(behind, behind)
        return begins | {place: min(max(at, earliest[place]), ends[place]) for place, at in behind.items()}

    def _earliest(self, places: Collection[TopicPartition], otherwise: Positions) -> Positions:
        """Return where the logs begin; the offsets of ``otherwise`` for partitions that have just been deleted."""
        return otherwise | self._offsets_there(dict.fromkeys(places, EARLIEST))

    def _offsets_there(self, wanted: Mapping[TopicPartition, int]) -> Positions:
        """Look up offsets; partitions that do not exist are left out."""
        with clients.use(self._config) as client:
            found = client.reachable_offsets(wanted)
            late = {
                place: wanted[place]
                for place, each in found.items()
                if isinstance(each, OttlaError) and not isinstance(each, UnknownTopicOrPartition)
            }
            told = {place: each for place, each in found.items() if not isinstance(each, OttlaError)}
            return told | (client.offsets(late) if late else {})

    def _held(self, before: StreamOffset, begins: Positions, last: StreamOffset, newest: StreamOffset) -> StreamOffset:
        """Return ``last``, but with partitions that begin after it standing still until the end has caught up.

        With the trigger availableNow, these are partitions that are new since it began, or whose oldest records were
        deleted since. Others were read beyond their last stable offset, before the query was changed to
        read_committed.
        """
        behind = [place for place, at in last.positions.items() if at < begins[place]]
        if not behind:
            return last
        there = newest.restricted_to(last)
        held = {
            place: begins[place]
            for place in behind
            if before.position(place, last.ids.get(place[0])) is None or there.get(place, -1) >= begins[place]
        }
        read = [place for place in behind if place not in held]
        if read and self.options.read.isolation == READ_COMMITTED:
            held |= self._read_beyond(read, begins, last)
        return replace(last, positions=last.positions | held)

    def _read_beyond(self, places: list[TopicPartition], begins: Positions, last: StreamOffset) -> Positions:
        """Return where those ``places`` begin that were read beyond the last stable offset, but not beyond the end."""
        if self._beyond[0] is not last or self._beyond[1] != places:
            ends = self._offsets_there(dict.fromkeys(places, LATEST))
            self._beyond = last, places, {place: begins[place] for place in ends if ends[place] >= begins[place]}
        return self._beyond[2]

    def _check_for_loss(self, before: StreamOffset, newest: StreamOffset) -> None:
        """Raise if records that the query would read are lost; or warn, and the query skips them."""
        verb = "is to be read from" if before.begins == before.positions else "was read up to"
        lost = []
        for place, was in sorted({**before.gone, **before.positions}.items()):
            topic, partition = place
            is_now = newest.positions.get(place)
            known = before.position(place, newest.ids.get(topic))
            if place in before.gone and (is_now is None or known is None):  # reported when it disappeared
                continue
            if is_now is None:
                gone = "is gone" if self._reads(place) else "was read before, but the options do not name it any more"
                lost.append(f"{topic}-{partition} {gone}")
            elif known is None:
                lost.append(f"topic {topic} was recreated")
            elif is_now < was:
                lost.append(f"{topic}-{partition} {verb} {was}, but ends at {is_now}")
        if lost:
            said = "; ".join(dict.fromkeys(lost[:10]))
            if self.options.read.fail_on_data_loss:
                raise DataLoss(f"{said}: failOnDataLoss=false continues without the lost data")
            self._warn(f"{self.options.read.names}: data was lost, the query continues: {said}", before)

    def _reads(self, place: TopicPartition) -> bool:
        """Whether the options name a partition."""
        source = self.options.read.source
        if isinstance(source, str):
            return re.search(source, place[0]) is not None
        return (place if isinstance(source, frozenset) else place[0]) in source

    def _is_idle(self, last: StreamOffset, start: Mapping[str, Any], now: float) -> bool:
        """Whether the last answer, that there is no batch, still holds. Spark asks every 10 ms, and checking thousands
        of partitions again would take too long."""
        if self._idle is None or self._idle[0] is not last or self._idle[1] != start:
            return False
        available = self._idle[2]
        return available is None or self._waits_for_more(available, now)

    def _waits_for_more(self, available: int, now: float) -> bool:
        least = self.options.least
        if least is None or available >= least or self._batch_at is None or self._last is not None:
            return False
        return now < self._batch_at + self.options.longest_wait

    def _warn(self, message: str, start: StreamOffset = BEGINNING) -> None:
        """Log a warning once for all batches with this start, however often Spark asks."""
        if self._logged[0] != start:
            self._logged = start, set()
        if message not in self._logged[1]:
            self._logged[1].add(message)
            log.warning(message)


def _asked_again(ask: Callable[[], T]) -> T:
    """Ask about topics, again if one of them is deleted meanwhile."""
    for _ in range(MOST_TRIES - 1):
        try:
            return ask()
        except UnknownTopicOrPartition:
            continue
    return ask()


def _ids(topics: Topics) -> dict[str, str]:
    return {name: str(topic_id) for name, (topic_id, _) in topics.items() if topic_id.int}
