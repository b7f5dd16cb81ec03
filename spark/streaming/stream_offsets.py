"""How far a streaming query has read, as Spark stores it in the checkpoint.

Rules:
- The JSON is that of Spark's own connector, ``{"topic": {"0": 23}}``, so that a query can continue from a checkpoint of
  that connector. Our additions are under the name ``$``, which no topic can have.
- Spark compares offsets as strings, so the order is fixed: by topic and partition, with ``$`` first.
- The offsets of a batch depend on its two ends alone, because Spark may plan it again after a restart. If the end
  before it lacks a partition, or has it of another topic of the same name, then the batch's own end says where the
  batch begins in it. With asynchronous progress tracking Spark does not store every end; without one, such a partition
  is read from where its log begins.
- Spark does not store where the first batch begins, and asks again after a restart. We answer `BEGINNING`, a
  placeholder: the actual beginning is looked up when the first batch is planned, and is stored in its end.
- A partition that is gone keeps its offset, because a broker may hide a topic for a moment. The offset is dropped when
  the topic is recreated, or when a newer topic appears and the partition is still missing. Brokers learn of topics in
  the order of their creation, so a broker that has the newer topic does not hide the older one: it was deleted. Without
  this rule a checkpoint would grow for ever if topics come and go.

Source: KafkaSourceOffset.scala, KafkaMicroBatchStream.scala, MicroBatchExecution.scala.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from itertools import groupby
from typing import Any
from uuid import UUID

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.reading.range_reader import OffsetRange

Positions = dict[TopicPartition, int]

Earliest = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]

OURS = "$"
_IDS, _BEGINS, _GONE, _BEGUN = "topicIds", "start", "gone", "begun"


@dataclass(frozen=True)
class StreamOffset:
    """One end of a micro-batch.

    Attributes:
        positions: the offset of the next record, for each partition.
        ids: each topic's id as text; topics of a broker without topic ids are missing.
        begins: where the batch that ends here begins, for partitions where that is not the end of the batch before; for
            all partitions if it is the first batch of the query. ``None``: for no partition.
        gone: how far partitions were read that do not exist now.
        begun: ``False`` before the first batch: there are no positions.
    """

    positions: Positions
    ids: dict[str, str] = field(default_factory=dict)
    begins: Positions | None = None
    gone: Positions = field(default_factory=dict)
    begun: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> "StreamOffset":
        """Parse what `json` or Spark's own connector has written.

        Raises:
            ConfigurationError: the text is from neither.
        """
        try:
            ours = given.get(OURS, {})
            begins = _read(ours[_BEGINS]) if _BEGINS in ours else None
            ids = {str(topic): str(each) for topic, each in ours.get(_IDS, {}).items()}
            positions = _read({topic: each for topic, each in given.items() if topic != OURS})
            return cls(positions, ids, begins, _read(ours.get(_GONE, {})), ours.get(_BEGUN, True))
        except (AttributeError, TypeError, ValueError):
            raise ConfigurationError(
                f"the checkpoint has an offset that is not Kafka's: {given!r:.200}. It belongs to another source, so "
                "start with another checkpointLocation"
            ) from None

    def json(self) -> dict[str, Any]:
        """Return the offset as it is stored in the checkpoint."""
        ours: dict[str, Any] = {} if self.begun else {_BEGUN: False}
        if self.ids:
            ours[_IDS] = dict(sorted(self.ids.items()))
        if self.begins is not None:
            ours[_BEGINS] = _written(self.begins)
        if self.gone:
            ours[_GONE] = _written(self.gone)
        return {**({OURS: ours} if ours else {}), **_written(self.positions)}

    def until(self, end: "StreamOffset", earliest: Earliest) -> list[OffsetRange]:
        """Return the ranges that a batch from here to ``end`` reads, by topic and partition, without empty ranges.

        Args:
            earliest: looks up where logs begin, for new partitions whose beginning no end has: with asynchronous
                progress tracking Spark stores only some ends.

        Raises:
            ConfigurationError: the batch is a query's first, and Spark's own connector has planned it. That connector
                keeps the start where other sources cannot see it.
        """
        if not self.begun and end.begins is None:
            raise ConfigurationError(
                "the first batch of this checkpoint was planned by Spark's own connector and never finished, and only "
                "that connector knows its start: finish it with format('kafka'), or use another checkpointLocation"
            )
        if (self.positions, self.ids) == (end.positions, end.ids):
            return []
        starts = {
            place: (end.begins or {}).get(place, self.position(place, end.ids.get(place[0]))) for place in end.positions
        }
        if unknown := [place for place, start in starts.items() if start is None]:
            starts |= earliest(unknown)
        return [
            OffsetRange(*place, start, stop, UUID(end.ids.get(place[0]) or "0" * 32))
            for place, stop in sorted(end.positions.items())
            if (start := starts[place]) is not None and start < stop
        ]

    def position(self, place: TopicPartition, topic_id: str | None) -> int | None:
        """Return where to continue in a partition; ``None`` if it is new, or its topic was recreated."""
        known = self.ids.get(place[0])
        if known is not None and topic_id is not None and known != topic_id:
            return None
        return self.positions.get(place, self.gone.get(place))

    def restricted_to(self, other: "StreamOffset") -> Positions:
        """Return the positions of those partitions that ``other`` has as well, of the same topics."""
        return {
            place: at
            for place, at in self.positions.items()
            if place in other.positions and self.position(place, other.ids.get(place[0])) is not None
        }

    def is_reached_by(self, done: "StreamOffset") -> bool:
        """Whether a query at ``done`` has read everything before this offset."""
        return all((done.position(place, self.ids.get(place[0])) or 0) >= at for place, at in self.positions.items())

    def next(
        self, positions: Positions, ids: Mapping[str, str], begins: Positions, *, first: bool
    ) -> "StreamOffset | None":
        """Return the end of the batch from here to ``positions``; ``None`` if it would equal this offset.

        Args:
            ids: of the topics that exist now.
            begins: where the batch begins.
            first: whether it is the first batch of the query.
        """
        known = {topic for topic, _ in (*self.positions, *self.gone)}
        came = any(topic not in known or self.ids.get(topic) != ids.get(topic) for topic, _ in positions)
        gone = {
            place: offset
            for place, offset in {**({} if came else self.gone), **self.positions}.items()
            if place not in positions and (place[0] not in ids or self.ids.get(place[0]) == ids[place[0]])
        }
        ids = {**{topic: self.ids[topic] for topic, _ in gone if topic in self.ids}, **ids}
        if first:
            return StreamOffset(positions, ids, begins, gone)
        if (positions, ids, gone) == (self.positions, self.ids, self.gone):
            return None
        moved = {place: at for place, at in begins.items() if at != self.position(place, ids.get(place[0]))}
        return StreamOffset(positions, ids, moved or None, gone)


BEGINNING = StreamOffset({}, begun=False)
"""The start of a query without a checkpoint, as we report it to Spark."""


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Positions:
    """Return ends for ``most`` offsets after ``start``, shared in proportion to each partition's lag.

    No partition starves: each one with a lag gets at least one offset. So with more such partitions than ``most``, the
    sum exceeds ``most``.
    """
    lags = {place: end[place] - start[place] for place in sorted(end) if end[place] > start[place]}
    if sum(lags.values()) <= most:
        return dict(end)
    rest = {place: lag - 1 for place, lag in lags.items()}
    left, total = max(most - len(lags), 0), max(sum(rest.values()), 1)
    shares = {place: 1 + left * each // total for place, each in rest.items()}
    spare = max(most - sum(shares.values()), 0)
    for place in sorted(shares, key=lambda place: shares[place] - lags[place])[:spare]:  # left over by rounding
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
