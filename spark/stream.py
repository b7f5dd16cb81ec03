"""Structured streaming: what each micro-batch of a query reads.

Spark asks a `StreamReader` in the driver, again and again: how far may the next batch go (`latestOffset`), and which
tasks does it have (`partitions`)? The tasks are those of a batch query.

Rules:
- What a batch reads follows from its two ends alone (`ottla.spark.stream_offsets`), because Spark plans it again after
  a restart. What the brokers have at that moment decides nothing but where the next batch ends. The one exception is a
  new partition whose beginning stands in an end that Spark did not keep: it is read from where its log begins.
- Offsets go back where a topic was cut off or created again, and partitions go; each is data loss.
- Where a query begins that has no checkpoint is looked up for its first batch, and not when Spark asks for it: Spark
  asks after a restart, too, when the answer is of no use, and the options may not fit the topics any more.
- An idle query asks every ten milliseconds: the ends of logs are asked for less often, and nothing is computed again.

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
from ottla.sdk.consume.record_sets import READ_COMMITTED
from ottla.sdk.options import Options
from ottla.spark.failures import one_sentence
from ottla.spark.group_commits import GroupCommits
from ottla.spark.offsets import known_starts
from ottla.spark.options import StreamOptions
from ottla.spark.progress import Progress, Served
from ottla.spark.reader import Task, Topics, clients, places_of, read_task, topics_of
from ottla.spark.stream_offsets import BEGINNING, Positions, StreamOffset, limited

log = logging.getLogger("ottla.spark")
T = TypeVar("T")

MOST_TRIES = 6
"""Of a question about topics, while one or the other goes."""
POLL_SECONDS = 0.1
"""Between two questions for the ends of logs."""
TOPICS_SECONDS = 1.0
"""Between two questions for topics and their partitions."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what its options say, for ever. One in the driver is asked; copies of it read in the workers."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._config = options.read.client.found()
        self._commits = GroupCommits(self._config, options.group)
        self._topics: Topics = {}
        self._topics_at = self._newest_at = -math.inf
        self._parsed: tuple[Mapping[str, Any], StreamOffset] = BEGINNING.json(), BEGINNING
        """Where the last batch began of which Spark has asked, and what that is."""
        self._newest: StreamOffset | None = None
        """Where the logs ended at `_newest_at`; the same object while nothing changes."""
        self._last: StreamOffset | None = None
        """Where the logs ended when the trigger availableNow began; ``None`` with other triggers.

        A batch goes no further. What is there by now, and how far behind the query is, `_newest` says.
        """
        self._new: tuple[float, StreamOffset, Mapping[TopicPartition, int]] = -math.inf, BEGINNING, {}
        """Until when it holds where partitions begin that are new behind an offset."""
        self._idle: tuple[StreamOffset, Mapping[str, Any], int | None] | None = None
        """Ends of logs, and a start behind which there is no batch; or none yet, as there are only so many records."""
        self._batch_at: float | None = None
        """When a batch was last given."""
        self._beyond: tuple[StreamOffset, list[TopicPartition], Positions] = BEGINNING, [], {}
        """Ends of logs, partitions that begin behind them, and where those begin that were read beyond; see `_held`."""
        self._logged: tuple[StreamOffset, set[str]] = BEGINNING, set()
        """The start of a batch, and the warnings about it that were logged."""
        self._progress = Progress(Options(**dict(self._config.options)).client_id, options.read.names)
        self._served = Served(options.prometheus, self._progress) if options.prometheus else None

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: they read, and need nothing else."""
        return {"options": self.options}

    # -- what Spark asks for ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """What stands for the start of a query that has no checkpoint."""
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
        """Where a batch ends that begins at ``start``.

        Raises:
            ConfigurationError: it is the first, and a topic does not exist, or the options do not fit it.
            DataLoss: partitions are gone, or do not have any more what lies before ``start``, unless `failOnDataLoss`
                is false.
        """
        now = time.monotonic()
        with one_sentence():
            if self._served is not None:
                self._served.start(now)
            if self._parsed[0] != start:  # which takes milliseconds where there are thousands of partitions
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
        """For ``lastProgress``: where the logs end."""
        return None if self._newest is None else StreamOffset(self._newest.positions).json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The tasks of a batch, none if it has no offsets.

        Raises:
            ConfigurationError: it is the first one of Spark's own connector.
        """
        read = self.options.read
        with one_sentence():
            if self._served is not None:
                self._served.start(time.monotonic())
            ranges = StreamOffset.parse(start).until(
                StreamOffset.parse(end), lambda new: self._earliest(new, dict.fromkeys(new, 0))
            )
        self._progress.begun({each.place: each.start for each in ranges})
        return [Task(self._config, task) for task in read.tasks(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; see `ottla.spark.reader.read_task`."""
        assert isinstance(partition, Task)  # Spark hands back what `partitions` gave
        return read_task(partition, self.options.read)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing: what is done is where `latestOffset` is to start, which Spark asks after a restart, too."""

    def stop(self) -> None:
        """The client is that of the process, which ends."""
        if self._served is not None:
            self._served.stop()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _beginning(self, now: float) -> StreamOffset:
        """Where a query begins that has no checkpoint.

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
        if self._last is not None:  # else "latest" could lie behind it
            self._last = self._latest(now, fresh=True)
        return beginning

    def _latest(self, now: float, *, fresh: bool = False) -> StreamOffset:
        """Where the logs end, as of a moment ago, or just now."""
        try:
            return self._asked(now, fresh)
        except UnknownTopicOrPartition:  # a topic has gone since topics were asked for
            return _asked_again(lambda: self._asked(now, fresh=True))

    def _asked(self, now: float, fresh: bool) -> StreamOffset:
        read = self.options.read
        with clients.use(self._config) as client:
            if fresh or now >= self._topics_at + TOPICS_SECONDS:
                self._topics, self._topics_at = topics_of(client, read.source, missing=True), now
                fresh = True  # the ends may be those of another topic of the same name
            if fresh or self._newest is None or now >= self._newest_at + POLL_SECONDS:
                places = places_of(self._topics, read.source, missing=True)
                ends = client.offsets(dict.fromkeys(places, LATEST), isolation=read.isolation)
                newest, self._newest_at = StreamOffset(ends, _ids(self._topics)), now
                if newest != self._newest:
                    self._newest = newest
        assert self._newest is not None, "it was asked for"
        return self._newest

    def _begins(self, before: StreamOffset, last: StreamOffset, now: float) -> Positions:
        """Where a batch begins: new partitions where their logs do."""
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
        """Where the records begin that partitions still have: those of which the oldest are gone further on."""
        behind = {place: at for place, at in begins.items() if at < ends[place]}
        earliest = self._earliest(behind, behind)
        return begins | {place: min(max(at, earliest[place]), ends[place]) for place, at in behind.items()}

    def _earliest(self, places: Collection[TopicPartition], otherwise: Positions) -> Positions:
        """Where the logs begin; ``otherwise`` of those that have gone this moment."""
        return otherwise | self._offsets_there(dict.fromkeys(places, EARLIEST))

    def _offsets_there(self, wanted: Mapping[TopicPartition, int]) -> Positions:
        """The offsets of those partitions that there are."""
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
        """``last``, where partitions that begin behind it stand still until it comes there.

        Those do that were new after the trigger availableNow began, and whose oldest records were deleted since then.
        Others may have been read beyond their last stable offset, before the query was told to read committed records
        only.
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
        """Where those of ``places`` begin that were read beyond their last stable offset, and not beyond the end."""
        if self._beyond[0] is not last or self._beyond[1] != places:
            ends = self._offsets_there(dict.fromkeys(places, LATEST))
            self._beyond = last, places, {place: begins[place] for place in ends if ends[place] >= begins[place]}
        return self._beyond[2]

    def _check_for_loss(self, before: StreamOffset, newest: StreamOffset) -> None:
        """Raise an error if records that the query would read are lost; or warn, and they are passed over."""
        verb = "is to be read from" if before.begins == before.positions else "was read up to"
        lost = []
        for place, was in sorted({**before.gone, **before.positions}.items()):
            topic, partition = place
            is_now = newest.positions.get(place)
            known = before.position(place, newest.ids.get(topic))
            if place in before.gone and (is_now is None or known is None):  # it was told of when it went
                continue
            if is_now is None:
                gone = "is gone" if self._reads(place) else "was read, and the options do not name it any more"
                lost.append(f"{topic}-{partition} {gone}")
            elif known is None:
                lost.append(f"topic {topic} was created again")
            elif is_now < was:
                lost.append(f"{topic}-{partition} {verb} {was}, and ends at {is_now}")
        if lost:
            said = "; ".join(dict.fromkeys(lost[:10]))
            if self.options.read.fail_on_data_loss:
                raise DataLoss(f"{said}: failOnDataLoss=false goes on with what there is")
            self._warn(f"{self.options.read.names}: data was lost, and the query goes on: {said}", before)

    def _reads(self, place: TopicPartition) -> bool:
        """Whether the options name a partition."""
        source = self.options.read.source
        if isinstance(source, str):
            return re.search(source, place[0]) is not None
        return (place if isinstance(source, frozenset) else place[0]) in source

    def _is_idle(self, last: StreamOffset, start: Mapping[str, Any], now: float) -> bool:
        """It is known that no batch is to be made: Spark asks every 10 ms, and there may be thousands of partitions."""
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
        """Once for the batches that begin there, however often Spark asks."""
        if self._logged[0] != start:
            self._logged = start, set()
        if message not in self._logged[1]:
            self._logged[1].add(message)
            log.warning(message)


def _asked_again(ask: Callable[[], T]) -> T:
    """The answer to a question about topics, of which one or the other may go while it is asked."""
    for _ in range(MOST_TRIES - 1):
        try:
            return ask()
        except UnknownTopicOrPartition:
            continue
    return ask()


def _ids(topics: Topics) -> dict[str, str]:
    return {name: str(topic_id) for name, (topic_id, _) in topics.items() if topic_id.int}
