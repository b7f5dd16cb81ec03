"""How far a streaming query has read, as Spark keeps it in the checkpoint.

Rules:
- The JSON is that of Spark's own connector, ``{"topic": {"0": 23}}``, and what that has not is under the name ``$``,
  which no topic can have. So a checkpoint of that connector can be gone on with.
- Spark compares offsets as strings, so there is one order: by topic and partition, ``$`` first.
- Spark does not keep where the first batch began, and asks again after a restart, when "latest" may be elsewhere: the
  records between would be lost. So the end of the first batch tells its start.
- What a batch reads follows from its two ends alone: it may be planned again after a restart.
- A topic whose id differs between the two ends was created again: its batch begins with 0.

Source: KafkaSourceOffset.scala, KafkaMicroBatchStream.scala (what is expected), MicroBatchExecution.scala.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from uuid import UUID

from ottla.errors import ConfigurationError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.ranges import OffsetRange

Positions = dict[TopicPartition, int]

OURS = "$"
_IDS, _START = "topicIds", "start"


@dataclass(frozen=True)
class StreamOffset:
    """One end of a micro-batch.

    Attributes:
        positions: of each partition, the offset of the next record.
        ids: of each topic, its id as text; a topic of a broker without topic ids has none.
        start: where the first batch begins, in its two ends; ``None`` in those of later ones.
    """

    positions: Positions
    ids: dict[str, str] = field(default_factory=dict)
    start: Positions | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> "StreamOffset":
        """As `json` gave it, or Spark's own connector.

        Raises:
            ConfigurationError: it is neither.
        """
        try:
            ours = given.get(OURS, {})
            start = _read(ours[_START]) if _START in ours else None
            ids = {str(topic): str(each) for topic, each in ours.get(_IDS, {}).items()}
            return cls(_read({topic: each for topic, each in given.items() if topic != OURS}), ids, start)
        except (AttributeError, TypeError, ValueError):
            raise ConfigurationError(
                f"the checkpoint has an offset that is none of Kafka's, {given!r:.200}: it is of another source, so "
                "begin with another checkpointLocation"
            ) from None

    def json(self) -> dict[str, Any]:
        """For the checkpoint."""
        ours: dict[str, Any] = {_IDS: dict(sorted(self.ids.items()))} if self.ids else {}
        if self.start is not None:
            ours[_START] = _written(self.start)
        return {**({OURS: ours} if ours else {}), **_written(self.positions)}

    def until(self, end: "StreamOffset") -> list[OffsetRange]:
        """What a batch from here to ``end`` reads, by topic and partition; partitions without offsets are left out.

        Raises:
            ConfigurationError: it is a query's first batch, and Spark's own connector has planned it: that keeps the
                start where others cannot see it.
        """
        if self.start is not None and self.start == self.positions and end.start is None:
            raise ConfigurationError(
                "the first batch of this checkpoint was planned by Spark's own connector and never finished, and only "
                "that knows where it begins: finish it with format('kafka'), or begin with another checkpointLocation"
            )
        begin = self if end.start is None else StreamOffset(end.start, end.ids)
        ranges = []
        for place in sorted(end.positions):
            start, stop = begin.position(place, end.ids.get(place[0])), end.positions[place]
            if start < stop:
                ranges.append(OffsetRange(*place, start, stop, UUID(end.ids.get(place[0], "0" * 32))))
        return ranges

    def position(self, place: TopicPartition, topic_id: str | None) -> int:
        """Where to go on in a partition: at its beginning if it is new, or its topic is another one by now."""
        known = self.ids.get(place[0])
        if known is not None and topic_id is not None and known != topic_id:
            return 0
        return self.positions.get(place, 0)


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Positions:
    """Ends for ``most`` offsets beyond ``start``, in proportion to what each partition has.

    A partition that has anything gets one at least, so that none is starved: more than ``most`` in all, where there are
    more partitions.
    """
    lags = {place: end[place] - start[place] for place in sorted(end) if end[place] > start[place]}
    if sum(lags.values()) <= most:
        return dict(end)
    rest = {place: lag - 1 for place, lag in lags.items()}
    left, total = max(most - len(lags), 0), max(sum(rest.values()), 1)
    shares = {place: 1 + left * each // total for place, each in rest.items()}
    spare = max(most - sum(shares.values()), 0)
    for place in sorted(shares, key=lambda place: shares[place] - lags[place])[:spare]:  # what rounding has left over
        shares[place] += 1
    return {place: start[place] + shares[place] if place in shares else end[place] for place in sorted(end)}


def _read(given: Mapping[str, Any]) -> Positions:
    found: Positions = {}
    for topic, by_partition in given.items():
        for partition, offset in by_partition.items():
            if type(offset) is not int or offset < 0:
                raise ValueError(offset)
            found[topic, int(partition)] = offset
    return found


def _written(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    places: Iterable[TopicPartition] = sorted(positions)
    return {
        topic: {str(partition): positions[topic, partition] for _, partition in group}
        for topic, group in groupby(places, key=lambda place: place[0])
    }
