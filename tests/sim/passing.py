"""A topic that a group's pattern matches, and that is deleted and recreated while the group reads it.

Each of its records has the id of its topic. So the ledger finds commits of offsets that belong to a deleted topic: the
coordinator knows topics by their names, and would take such an offset for one of the new topic.
"""

from collections import defaultdict
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.codec.apis.offset_commit import OffsetCommitRequest
from ottla.codec.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.codec.records import Record, build_batch
from ottla.codec.wire import NO_UUID
from tests.sim.data import PASSING, Place
from tests.sim.history import History
from tests.sim.network import Link
from tests.sim.users import Violation

if TYPE_CHECKING:
    from tests.sim.cluster import ModelCluster

STALE = "an offset of a deleted topic is committed for its successor"


class Passing:
    """Creates, fills and deletes the topic, and checks the commits of its offsets.

    Args:
        seconds: how long it goes on.
    """

    def __init__(self, cluster: "ModelCluster", history: History, chance: Random, seconds: float) -> None:
        self._cluster, self._history, self._chance, self._seconds = cluster, history, chance, seconds
        self.filled = False
        """The topic has records."""
        self._upto: defaultdict[tuple[UUID, int], int] = defaultdict(int)
        """(topic id, partition) -> the offset after the last handled record."""

    def begin(self, times: int, *, filled: bool) -> None:
        """Create the topic, and delete it some ``times``; ``filled``: with records."""
        self._cluster.create(PASSING, 2)
        for _ in range(times):
            self._cluster.clock.at(self._chance.uniform(0.5, self._seconds), self._pass)
        self.filled = filled
        if filled:
            self._fill()

    def _pass(self) -> None:
        """Delete the topic; recreate it at once, after a while, or never."""
        cluster, pause = self._cluster, self._chance.choice((0.0, 0.05, 0.5, None))
        told = f"is deleted, and recreated after {pause}" if pause is not None else "is deleted"
        self._history.add("!", PASSING, told)
        cluster.data.features["a topic of a group's pattern is deleted"] += 1
        cluster.delete(PASSING)
        if pause is not None:
            cluster.clock.later(pause, partial(cluster.create, PASSING))

    def _fill(self) -> None:
        cluster, chance = self._cluster, self._chance
        for place in [place for place in cluster.leaders if place[0] == PASSING]:
            value = str(cluster.ids[PASSING]).encode()
            if chance.random() < 0.5:
                cluster.append(place, build_batch([Record(0, 0, None, value)] * chance.choice((1, 1, 5))))
        if cluster.clock.now < self._seconds:
            cluster.clock.later(chance.uniform(0.0, self._seconds / 15), self._fill)

    def handled(self, place: Place, records: list[tuple[int, bytes]]) -> None:
        """A member has handled these records."""
        for offset, value in records:
            part = UUID(value.decode()), place[1]
            self._upto[part] = max(self._upto[part], offset + 1)

    def sent(self, link: Link, message: Any) -> None:
        """Check that a client commits offsets of the topic that it knows."""
        if not isinstance(message, OffsetCommitRequest | TxnOffsetCommitRequest) or link.writing:
            return
        known: UUID = link.client.core.cluster.topic_id(PASSING)  # type: ignore[attr-defined] # it is a `Process`
        for topic in message.topics:
            for each in topic.partitions if topic.name == PASSING and known != NO_UUID else ():
                upto = self._upto[known, each.partition_index]
                if each.committed_offset > upto:
                    where = f"{link.label} commits {PASSING}-{each.partition_index} at {each.committed_offset}"
                    raise Violation(STALE, f"{where}, the records before {upto} of {known} are handled")
