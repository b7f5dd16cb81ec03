"""One share session with the leader of some partitions: its epochs, partitions, locked records, acknowledgements.

    epoch 0 ── ShareFetch with all partitions ──► 1, 2, 3, …: changes, and acknowledgements ──► epoch -1: it is closed

Rules:
- Each request of the session, ShareFetch or ShareAcknowledge, raises the epoch by one; after 2**31 - 1 comes 1.
- Acknowledgements go in ShareAcknowledge only. A ShareFetch with acknowledgements would report their outcome only once
  the broker has records, or after its wait.
- A lost request or response, and a refusal by the broker, end a session. Another one begins with epoch 0.
  All records that were locked in it count as lost: brokers release them when the connection ends, and may deliver them
  to another member, or again to this one.
- A partition stays in the session while records of it are locked: when a session is closed, the broker releases the
  records of its partitions only.
- If one offset is not locked any more, the leader stores no acknowledgement of the whole partition in the request. The
  client then divides them, and sends the halves again, one after the other, until the ones that count are stored.

Source: ShareSessionHandler.java; SharePartitionManager.java, newContext and releaseSession; SharePartition.java.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.apis import share_acknowledge, share_fetch
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.codec.apis.share_fetch import BATCH_OPTIMIZED, RECORD_LIMIT, RENEW, ShareFetchRequest
from ottla.errors import UnsupportedVersion
from ottla.sdk.connection.versions import SHARE_RENEWALS
from ottla.sdk.share.locked_record import LockedRecord, RecordAcknowledgement, SharedPartition

if TYPE_CHECKING:
    from uuid import UUID

_OPENING, _CLOSING = 0, -1
_EPOCH_MAX = 2**31 - 1


class ShareFetchLimits(NamedTuple):
    """The limits of one ShareFetch: seconds, bytes, records; ``exact``: the records are a strict limit."""

    wait: float
    max_bytes: int
    records: int
    exact: bool


class ShareSession:
    """A share session of member ``member_id`` of ``group``.

    Args:
        wake: called when there is something to send.
    """

    def __init__(self, group: str, member_id: str, wake: Callable[[], None]) -> None:
        self._group, self._member_id, self._wake = group, member_id, wake
        self._epoch = _OPENING
        """The epoch of the next request."""
        self._partitions: dict[SharedPartition, None] = {}
        """The partitions in the session, as of the last request."""
        self._by_id: dict[tuple[UUID, int], SharedPartition] = {}
        """All partitions that were ever in the session."""
        self._locked: dict[SharedPartition, dict[int, LockedRecord]] = {}
        self._pending: dict[SharedPartition, dict[int, RecordAcknowledgement]] = {}
        """The acknowledgements for the next request, by their first offsets."""
        self._halves: dict[SharedPartition, deque[list[RecordAcknowledgement]]] = {}
        """Refused acknowledgements, each part for a request of its own."""
        self._paused: dict[SharedPartition, list[RecordAcknowledgement]] = {}
        """Acknowledgements to send again after a pause; the others of their partitions wait behind them."""
        self._in_flight: dict[SharedPartition, list[RecordAcknowledgement]] = {}
        """The acknowledgements in the request without a response."""

    @property
    def is_open(self) -> bool:
        """Whether the broker has the session, as far as this client knows."""
        return self._epoch != _OPENING

    @property
    def is_due(self) -> bool:
        """Whether there are acknowledgements to send."""
        return bool(self._halves) or any(each not in self._paused for each in self._pending)

    @property
    def is_paused(self) -> bool:
        """Whether acknowledgements wait until `resume`."""
        return bool(self._paused)

    @property
    def is_locking(self) -> bool:
        """Whether records are locked in the session."""
        return bool(self._locked)

    @property
    def partitions(self) -> Iterable[SharedPartition]:
        """The partitions in the session, as of the last request."""
        return self._partitions

    def partition(self, topic_id: "UUID", partition: int) -> SharedPartition | None:
        """The partition with this id and number; ``None``: it was never in the session."""
        return self._by_id.get((topic_id, partition))

    def locked_at(self, partition: SharedPartition, offset: int) -> LockedRecord | None:
        """The record that is locked at this offset."""
        return self._locked.get(partition, _NOTHING).get(offset)

    def locked(self, partition: SharedPartition | None = None) -> list[LockedRecord]:
        """The locked records, of all partitions or of one."""
        chosen = self._locked.values() if partition is None else [self._locked.get(partition, _NOTHING)]
        return [each for records in chosen for each in records.values()]

    def hold(self, locked: LockedRecord) -> None:
        """Take note of a new locked record."""
        self._locked.setdefault(locked.partition, {})[locked.offset] = locked

    def forget(self, locked: LockedRecord) -> None:
        """Take note that a record is not locked any more; drop its unsent acknowledgement."""
        for of_partitions in (self._locked, self._pending):
            records = of_partitions.get(locked.partition)
            if records is not None:
                records.pop(locked.offset, None)
                if not records:
                    del of_partitions[locked.partition]

    def queue(self, acknowledgement: RecordAcknowledgement) -> None:
        """Send an acknowledgement of a locked record with the next ShareAcknowledge."""
        if acknowledgement.locked is not None:
            self.queue_for(acknowledgement.locked.partition, acknowledgement)

    def queue_for(self, partition: SharedPartition, acknowledgement: RecordAcknowledgement) -> None:
        """Send an acknowledgement of the partition with the next ShareAcknowledge."""
        self._pending.setdefault(partition, {})[acknowledgement.first_offset] = acknowledgement
        self._wake()

    # -- requests ----------------------------------------------------------------------------------------------------

    def fetch(self, wanted: Mapping[SharedPartition, None], limits: ShareFetchLimits) -> ShareFetchRequest:
        """The next ShareFetch; it asks for the ``wanted`` partitions."""
        if not self.is_open:
            self._partitions = {}
        added = [each for each in wanted if each not in self._partitions]
        forgotten = [each for each in self._partitions if each not in wanted and each not in self._locked]
        for each in added:
            self._partitions[each] = None
            self._by_id[each.topic_id, each.partition] = each
        for each in forgotten:
            del self._partitions[each]
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=int(limits.wait * 1000),
            min_bytes=1,
            max_bytes=limits.max_bytes,
            max_records=limits.records,
            batch_size=limits.records,
            share_acquire_mode=RECORD_LIMIT if limits.exact else BATCH_OPTIMIZED,
            topics=tuple(
                share_fetch.FetchTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        share_fetch.FetchPartition(partition_index=each, acknowledgement_batches=()) for each in numbers
                    ),
                )
                for topic_id, numbers in _by_topic(added).items()
            ),
            forgotten_topics_data=tuple(
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=tuple(numbers))
                for topic_id, numbers in _by_topic(forgotten).items()
            ),
        )

    def acknowledge(self, version: int) -> ShareAcknowledgeRequest:
        """The next ShareAcknowledge: one half of a refused set for each partition, or all waiting acknowledgements."""
        chosen: dict[SharedPartition, list[RecordAcknowledgement]] = {}
        for partition, halves in list(self._halves.items()):
            chosen[partition] = halves.popleft()
            if not halves:
                del self._halves[partition]
        for partition in [each for each in self._pending if each not in chosen and each not in self._paused]:
            chosen[partition] = list(self._pending.pop(partition).values())
        for partition, acknowledgements in chosen.items():
            live = [each for each in acknowledgements if not each.outcome.done and _is_known(each, version)]
            if live:
                self._in_flight[partition] = sorted(live, key=lambda each: each.first_offset)
        for acknowledgements in self._in_flight.values():
            for each in acknowledgements:
                each.send()
        renews = any(each.kind == RENEW for some in self._in_flight.values() for each in some)
        topics: dict[UUID, list[share_acknowledge.AcknowledgePartition]] = {}
        for partition, acknowledgements in self._in_flight.items():
            topics.setdefault(partition.topic_id, []).append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=partition.partition, acknowledgement_batches=tuple(_batches(acknowledgements))
                )
            )
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            is_renew_ack=renews,
            topics=tuple(
                share_acknowledge.AcknowledgeTopic(topic_id=each, partitions=tuple(partitions))
                for each, partitions in topics.items()
            ),
        )

    def close(self) -> ShareAcknowledgeRequest:
        """The last request, which closes the session: the broker then releases all records locked in it."""
        return ShareAcknowledgeRequest(
            group_id=self._group, member_id=self._member_id, share_session_epoch=_CLOSING, topics=()
        )

    # -- responses ---------------------------------------------------------------------------------------------------

    def answered(self) -> None:
        """Take note that the broker has carried out the last request."""
        self._epoch = self._epoch % _EPOCH_MAX + 1

    def results(
        self, answer: ShareAcknowledgeResponse
    ) -> Iterator[tuple[SharedPartition, share_acknowledge.PartitionData | None, list[RecordAcknowledgement]]]:
        """The result of each partition in the last ShareAcknowledge, with its acknowledgements; ``None``: missing."""
        found = {
            self.partition(topic.topic_id, each.partition_index): each
            for topic in answer.responses
            for each in topic.partitions
        }
        in_flight, self._in_flight = self._in_flight, {}
        for partition, acknowledgements in in_flight.items():
            yield partition, found.get(partition), acknowledgements

    def refused(self, partition: SharedPartition, acknowledgements: list[RecordAcknowledgement]) -> None:
        """Send acknowledgements again in two halves, because the leader refuses them together."""
        middle = len(acknowledgements) // 2
        halves = self._halves.setdefault(partition, deque())
        for half in (acknowledgements[middle:], acknowledgements[:middle]):
            for each in half:
                each.refused()
            halves.appendleft(half)

    def again(self, partition: SharedPartition, acknowledgements: list[RecordAcknowledgement]) -> None:
        """Send acknowledgements again, all together, with the first request after `resume`."""
        for each in acknowledgements:
            each.refused(unsure=True)
        self._paused.setdefault(partition, []).extend(acknowledgements)

    def resume(self) -> None:
        """End the pause of the acknowledgements that are to be sent again."""
        paused, self._paused = self._paused, {}
        for partition, acknowledgements in paused.items():
            self._halves.setdefault(partition, deque()).append(acknowledgements)
        self._wake()

    def end(self, why: str, *, unknown: bool) -> list[LockedRecord]:
        """End the session, which is lost or closed; return the records that were locked in it.

        Args:
            unknown: acknowledgements in flight may have been stored.
        """
        self._epoch, self._partitions = _OPENING, {}
        lost = self.locked()
        for each in lost:
            each.lose(why, unknown=unknown)
        self._pending.clear()
        self._halves.clear()
        self._paused.clear()
        self._in_flight.clear()
        return lost


_NOTHING: dict[int, LockedRecord] = {}


def _is_known(acknowledgement: RecordAcknowledgement, version: int) -> bool:
    """Whether this version of ShareAcknowledge has such an acknowledgement; otherwise it fails."""
    if acknowledgement.kind != RENEW or version >= SHARE_RENEWALS:
        return True
    told = "this broker cannot renew the lock of a record (KIP-1222): that needs Kafka 4.2 or newer"
    acknowledgement.outcome.fail(UnsupportedVersion(told=told))
    return False


def _batches(acknowledgements: list[RecordAcknowledgement]) -> Iterator[share_acknowledge.AcknowledgementBatch]:
    """Adjacent acknowledgements of the same kind, as one batch each."""
    first = last = kind = -1
    for each in acknowledgements:
        if kind == each.kind and each.first_offset == last + 1:
            last = each.last_offset
            continue
        if kind >= 0:
            yield share_acknowledge.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=(kind,)
            )
        first, last, kind = each.first_offset, each.last_offset, each.kind
    if kind >= 0:
        yield share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))


def _by_topic(partitions: Iterable[SharedPartition]) -> "dict[UUID, list[int]]":
    topics: dict[UUID, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic_id, []).append(each.partition)
    return topics
