"""The broker's logs, batch by batch, and checks that records known to a client are never lost or changed.

Rules:
- Once an answer has revealed a part of a log (the offset of a stored batch, records, the high watermark), that part is
  there after every restart, byte for byte. The rest may be gone.
- If a log is shorter after a restart, the leader epoch has risen.
- While the broker runs a log only grows, without gaps between its batches.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.brokerlite.machines.core import BrokerCore
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.codec.apis.produce import ProduceResponse
from ottla.codec.apis.share_fetch import ShareFetchResponse
from ottla.codec.records import RecordBatch, parse_batch, read_batches
from ottla.codec.stored.control import COMMIT, parse_control
from tests.sim.data import Place
from tests.sim.log import Stored
from tests.sim.users import Violation

LOST = "records known to a client are lost"
CHANGED = "records known to a client have changed"
SHORTER = "a log is shorter than it was, and the leader epoch has not risen"
GAP = "a log has a gap, or goes back"


class Marker(NamedTuple):
    """The end of a transaction in a partition."""

    producer: tuple[int, int]
    commit: bool


@dataclass
class LogView:
    """One log of the broker, with the attributes of the model cluster's logs, so that the ledgers take either.

    Attributes:
        told: a client knows the log up to this offset.
    """

    batches: list[Stored] = field(default_factory=list)
    told: int = 0
    epoch: int = -1
    _decided: tuple[int, list[tuple[int, bytes]], int] = (-1, [], 0)
    """The number of batches when `decided` last looked, and its result."""

    def replace(self, batches: list[Stored]) -> None:
        """Replace the batches, after a restart."""
        self.batches, self._decided = batches, (-1, [], 0)

    @property
    def decided(self) -> list[tuple[int, bytes]]:
        """(offset, value) of the records that a read_committed reader has to get."""
        return self._look()[1]

    @property
    def stable(self) -> int:
        """The offset up to which every transaction has ended."""
        return self._look()[2]

    def _look(self) -> tuple[int, list[tuple[int, bytes]], int]:
        if self._decided[0] != len(self.batches):
            self._decided = len(self.batches), *decided(self.batches)
        return self._decided

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    @property
    def high_watermark(self) -> int:
        return self.end


def decided(batches: Iterable[Stored]) -> tuple[list[tuple[int, bytes]], int]:
    """(offset, value) of the records that a read_committed reader has to get, and the last stable offset."""
    open_at: dict[int, int] = {}
    pending: dict[int, list[tuple[int, bytes]]] = {}
    seen: list[tuple[int, bytes]] = []
    end = 0
    for stored in batches:
        batch, end = parse_batch(stored.data), stored.end
        if batch.control:
            records = pending.pop(batch.producer_id, [])
            open_at.pop(batch.producer_id, None)
            if marker_of(batch).commit:
                seen += records
            continue
        found = [(record.offset, bytes(record.value or b"")) for record in batch.records()]
        if batch.transactional:
            open_at.setdefault(batch.producer_id, batch.base_offset)
            pending.setdefault(batch.producer_id, []).extend(found)
        else:
            seen += found
    stable = min([end, *open_at.values()])
    return sorted(each for each in seen if each[0] < stable), stable


def marker_of(batch: RecordBatch) -> Marker:
    """The marker in a control batch."""
    (record,) = batch.records()
    said = parse_control(record.key, record.value)
    assert said is not None
    return Marker((batch.producer_id, batch.producer_epoch), said.type == COMMIT)


class Logs:
    """The logs of all topics that users know.

    Args:
        appended: called with each batch that is appended and not a duplicate.
    """

    def __init__(self, places: Iterable[Place], appended: Callable[[Place, Stored], None]) -> None:
        self.views = {place: LogView() for place in places}
        self._appended = appended

    def refresh(self, core: BrokerCore) -> None:
        """Look at new batches."""
        for place, view in self.views.items():
            partition = core.topics.partition(*place)
            if partition is not None and partition.end_offset != view.end:
                for stored in batches_of(partition, view.end):
                    if stored.base != view.end:
                        raise Violation(GAP, f"{_name(place)} has {stored.base} after {view.end}")
                    view.batches.append(stored)
                    self._appended(place, stored)

    def compare(self, core: BrokerCore) -> None:
        """After a start, check that everything that clients know is there."""
        for place, view in self.views.items():
            partition = core.topics.partition(*place)
            batches = list(batches_of(partition, 0)) if partition is not None else []
            end = batches[-1].end if batches else 0
            told = [each for each in view.batches if each.base < view.told]
            if end < view.told or len(batches) < len(told):
                raise Violation(LOST, f"{_name(place)} ends at {end}, a client knows it up to {view.told}")
            for before, now in zip(told, batches, strict=False):
                if before != now:
                    raise Violation(CHANGED, f"{_name(place)} at {before.base}")
            epoch = partition.epochs.current if partition is not None else -1
            if epoch < view.epoch or (end < view.end and epoch == view.epoch):
                raise Violation(SHORTER, f"{_name(place)}: {end} after {view.end}, epoch {epoch} after {view.epoch}")
            view.epoch = epoch
            view.replace(batches)

    def answered(self, request: Any, answer: Any, name: Callable[[Any], str]) -> None:
        """Note which part of a log an answer reveals. Args: name: returns the name of a topic in an answer."""
        for place, offset in _told(request, answer, name):
            if place in self.views:
                self.views[place].told = max(self.views[place].told, offset)


def _told(request: Any, answer: Any, name: Callable[[Any], str]) -> Iterator[tuple[Place, int]]:
    if isinstance(answer, ProduceResponse):
        for topic in answer.responses:
            for each in topic.partition_responses:
                if not each.error_code:
                    yield (name(topic), each.index), each.base_offset + 1
    elif isinstance(answer, FetchResponse) and isinstance(request, FetchRequest):
        for fetched in answer.responses:
            for data in fetched.partitions:
                yield (name(fetched), data.partition_index), data.high_watermark
    elif isinstance(answer, ShareFetchResponse):
        for shared in answer.responses:
            for part in shared.partitions:
                if part.acquired_records:
                    yield (name(shared), part.partition_index), part.acquired_records[-1].last_offset + 1


def batches_of(partition: PartitionLog, offset: int) -> Iterator[Stored]:
    """The batches of a log from an offset on, which is the first of a batch."""
    while offset < partition.end_offset:
        data = bytes(partition.read(offset, 2**20, at_least_one=True))
        before = offset
        for batch in read_batches(data):
            yield Stored(
                bytes(batch.data),
                batch.base_offset,
                batch.next_offset,
                batch.partition_leader_epoch,
                (batch.producer_id, batch.producer_epoch),
                (batch.base_sequence, batch.last_sequence),
            )
            offset = batch.next_offset
        if offset == before:
            raise Violation(GAP, f"{partition.name} returns no batch at {offset} of {partition.end_offset}")


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
