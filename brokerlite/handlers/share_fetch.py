"""ShareFetch v1-2: lets a member acquire records, and takes acknowledgements of earlier ones (KIP-932).

If no record is available, the response waits: until records are appended, given back or unlocked, or for `max_wait_ms`.
v2: a strict limit of records (KIP-1206), and renewed locks (KIP-1222).

Source: KafkaApis.scala (handleShareFetchRequest), SharePartitionManager.java, DelayedShareFetch.java,
ShareFetchUtils.java (processFetchResponse, maybeSliceFetchRecords).
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.acl.rights import READ_GROUP, READ_TOPIC
from ottla.brokerlite.handlers.share_results import Results, acknowledge, by_place, readable, session_name
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.jobs import Work
from ottla.brokerlite.machines.partitions.partition_log import PartitionLog
from ottla.brokerlite.machines.partitions.producers import end_marker
from ottla.brokerlite.machines.requests.request_work import WorkFirst
from ottla.brokerlite.machines.requests.waits import WaitUntil
from ottla.brokerlite.machines.share_partitions.acquisition import AcquiredRun, FoundBatch, Wanted
from ottla.brokerlite.machines.share_partitions.share_partition import SharePartition
from ottla.brokerlite.machines.share_partitions.share_sessions import Place, SessionName, ShareFetchTurn
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey
from ottla.codec.apis.share_fetch import (
    RECORD_LIMIT,
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.codec.records import RecordBatch, read_batches
from ottla.codec.stored.control import ABORT
from ottla.codec.wire import Part, Unreadable
from ottla.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    CorruptMessage,
    DecodeError,
    InvalidRequest,
    KafkaStorageError,
    ShareSessionLimitReached,
)

if TYPE_CHECKING:
    from uuid import UUID

_NO_LEADER = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
_MOST_READ = 2**20
"""The most bytes of one partition that a request reads into memory; only its first batch may exceed that."""
_SEARCH = 2**20
"""Approximate bytes of the batch that a search by time holds in memory."""


def handle(broker: BrokerCore, call: Call) -> ShareFetchResponse | WaitUntil | WorkFirst:
    request: ShareFetchRequest = call.message
    batches = by_place(request.topics)
    removed = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    acknowledges = any(batches.values())
    try:
        name = session_name(request.group_id, request.member_id)
        broker.access.require(call.session, READ_GROUP, name.group_id)
        _check(request)
        turn = broker.share_sessions.fetch(
            name,
            request.share_session_epoch,
            call.connection,
            list(batches),
            removed,
            acknowledges=acknowledges,
        )
    except ShareSessionLimitReached as error:
        broker.close_share_session(name)
        return _refused(error)
    except BrokerError as error:
        return _refused(error)
    results = acknowledge(broker, call, name, batches, READ_TOPIC, renews=request.is_renew_ack)
    if turn is None:
        broker.close_share_session(name)
        return _response(broker, name, {}, results)
    fetch = _ShareFetch(broker, call, name, turn, results)
    searches = fetch.searches()
    if searches:
        return WorkFirst(fetch.search(searches), fetch.refuse, _SEARCH)
    return fetch.begin()


def _check(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and any((request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)):
        raise InvalidRequest("a request that renews locks fetches nothing: its limits must be 0")


def _refused(error: BrokerError) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=error.code,
        error_message=error.detail or None,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


class _Readable(NamedTuple):
    """A partition of the session that the client may read."""

    place: Place
    key: ShareKey
    log: PartitionLog
    share: SharePartition


class _Told(NamedTuple):
    """The part of the response about one partition."""

    records: bytes | memoryview = b""
    acquired: Sequence[AcquiredRun] = ()
    error: BrokerError | None = None


class _ShareFetch:
    """One request that may acquire records.

    Args:
        results: the results of its acknowledgements.
    """

    def __init__(
        self, broker: BrokerCore, call: Call, name: SessionName, turn: ShareFetchTurn, results: Results
    ) -> None:
        self._broker, self._call, self._name = broker, call, name
        self._turn, self._results = turn, results
        self._request: ShareFetchRequest = call.message
        self._stable = broker.share_configs.reads_committed(name.group_id)
        self._failed: dict[Place, _Told] = {}
        """Partitions whose start could not be searched."""
        self._waiting: dict[PartitionLog, _Readable] = {}
        self._most = 0
        self._sizes: dict[PartitionLog, int] = {}
        """Partition -> the bytes that the member could have of it."""
        self._size = 0
        """The bytes of all of them."""

    # -- where a group starts, if that depends on time

    def searches(self) -> "list[tuple[ShareKey, PartitionLog, int]]":
        """Return the share partitions whose start must be searched, with the timestamps."""
        found = []
        for place in self._turn.places:
            key = ShareKey(self._name.group_id, *place)
            timestamp = self._broker.share_partitions.search_time(key)
            topic = self._broker.topics.by_id.get(key.topic_id)
            log = topic.partition(key.partition) if topic else None
            if timestamp is not None and log is not None:
                found.append((key, log, timestamp))
        return found

    def search(
        self, searches: "Sequence[tuple[ShareKey, PartitionLog, int]]"
    ) -> Generator[Work, None, ShareFetchResponse | WaitUntil]:
        """Find the first record of each share partition that is young enough, then go on."""
        for key, log, timestamp in searches:
            try:
                record = yield from log.first_at(timestamp)
                if self._broker.share_partitions.search_time(key) is not None:
                    offset = log.high_watermark if record is None else record.offset
                    self._broker.share_partitions.start_at(key, log, offset)
            except DecodeError as error:
                self._fail(key, CorruptMessage(f"a stored batch of {log.name} cannot be read: {error}"))
            except BrokerError as error:
                self._fail(key, error)
        return self.begin()

    def refuse(self) -> ShareFetchResponse:
        """Answer without a search."""
        for key, _, _ in self.searches():
            self._fail(key, CoordinatorNotAvailable("too many requests wait for a search"))
        return self.finish()

    def _fail(self, key: ShareKey, error: BrokerError) -> None:
        self._failed[key.topic_id, key.partition] = _Told(error=error)

    # -- waiting, and answering

    def begin(self) -> ShareFetchResponse | WaitUntil:
        """Answer now, or once there is something to answer."""
        request = self._request
        if request.max_records <= 0 or request.max_bytes <= 0 or request.max_wait_ms <= 0:
            return self.finish()
        found, _ = self._readable()
        self._waiting = {each.log: each for each in found}
        self._most = self._room(found)
        if not found or any(self._is_ready(each.log) for each in found):
            return self.finish()
        deadline = min(self._call.now + request.max_wait_ms / 1000, self._call.session.session_ends_at)
        return WaitUntil(deadline, tuple(self._waiting), 0, self.finish, ready=self._is_ready)

    def _is_ready(self, log: PartitionLog) -> bool:
        """Whether there are as many bytes as the client wants, after a change of this partition."""
        waiting = self._waiting[log]
        share = self._broker.share_partitions.find(waiting.key)
        try:
            # A share partition that has left the memory is loaded again by `finish`.
            ready = share is None or (
                share.may_acquire and len(self._read(waiting._replace(share=share), self._most, first=True))
            )
        except BrokerError:
            return True  # the response has the error
        self._size += int(ready) - self._sizes.get(log, 0)
        self._sizes[log] = int(ready)
        return share is None or self._size >= max(1, min(self._request.min_bytes, self._most))

    def _readable(self) -> tuple[Sequence[_Readable], Mapping[Place, _Told]]:
        """Return the partitions that the client may read, and the errors of the others."""
        broker = self._broker
        found, errors = [], dict(self._failed)
        for place in self._turn.places:
            if place in errors:
                continue
            try:
                log = readable(broker, self._call, place, READ_TOPIC)
                key = ShareKey(self._name.group_id, *place)
                found.append(_Readable(place, key, log, broker.share_partitions.open(key, log)))
            except BrokerError as error:
                errors[place] = _Told(error=error)
        return found, errors

    def _room(self, found: Sequence[_Readable]) -> int:
        """Return the bytes that each partition may have."""
        limit = min(self._request.max_bytes, self._broker.settings.fetch_max_bytes)
        return min(_MOST_READ, limit // max(1, sum(each.share.may_acquire for each in found)))

    def _read(self, each: _Readable, most: int, *, first: bool) -> Part:
        offset = each.share.fetch_offset
        if offset > each.log.end_offset:
            return b""
        stable = each.log.last_stable_offset if self._stable else None
        return each.log.read(offset, most, at_least_one=first, up_to=stable)

    def finish(self) -> ShareFetchResponse:
        """Let the member acquire the available records, and return the response."""
        try:
            self._turn.check()
        except BrokerError as error:
            if self._results:  # they are stored, so the member must get them
                return _response(self._broker, self._name, {}, self._results)
            return _refused(error)
        told: dict[Place, _Told] = {}
        left = self._request.max_records if self._request.max_bytes > 0 else 0
        found, errors = self._readable()
        most = self._room(found)
        anything = False
        for each in found:
            told[each.place] = taken = self._acquire(each, left, most, first=not anything)
            left -= sum(run.last - run.first + 1 for run in taken.acquired)
            anything = anything or bool(taken.records)
        told.update(errors)
        shown = {
            place: each
            for place, each in told.items()
            if self._turn.tells(place, records=bool(each.acquired), error=each.error is not None)
        }
        return _response(self._broker, self._name, shown, self._results)

    def _acquire(self, each: _Readable, left: int, most: int, *, first: bool) -> _Told:
        """Let the member acquire records of one partition."""
        if left <= 0 or not each.share.may_acquire:
            return _Told()
        request, offset = self._request, each.share.fetch_offset
        try:
            data = memoryview(bytes(self._read(each, most, first=first)))
            batches = list(_until(read_batches(data, verify=False), each.share.next_offset + left))
        except DecodeError as error:
            return _Told(error=CorruptMessage(f"a stored batch of {each.log.name} cannot be read: {error}"))
        except Unreadable as error:
            return _Told(error=KafkaStorageError(f"{each.log.name} cannot be read: {error}"))
        except BrokerError as error:
            return _Told(error=error)
        wanted = Wanted(
            self._name.member_id,
            offset,
            left,
            request.batch_size,
            strict=request.share_acquire_mode == RECORD_LIMIT,
        )
        aborted = self._aborted(each.log, offset, batches) if self._stable else set()
        spans = [FoundBatch(batch.base_offset, batch.last_offset, i in aborted) for i, batch in enumerate(batches)]
        acquired = each.share.acquire(wanted, spans, self._broker.clock.now)
        if not acquired:
            return _Told()
        self._broker.share_partitions.watch(each.key)
        records = _sliced(data, batches, acquired[0].first, acquired[-1].last)
        each.log.count_read(len(records))
        return _Told(records, acquired)

    def _aborted(self, log: PartitionLog, offset: int, batches: Sequence[RecordBatch]) -> set[int]:
        """Return the positions of the batches that belong to aborted transactions."""
        size = sum(len(batch.data) for batch in batches)
        begun = sorted(log.aborted(offset, size), key=lambda each: each.first_offset) if batches else []
        producers: set[int] = set()
        found = set()
        for i, batch in enumerate(batches):
            while begun and begun[0].first_offset <= batch.last_offset:
                producers.add(begun.pop(0).producer_id)
            if batch.control:
                marker = end_marker(batch)
                if marker is not None and marker.type == ABORT:
                    producers.discard(batch.producer_id)
            elif batch.transactional and batch.producer_id in producers:
                found.add(i)
        return found


def _until(batches: Iterable[RecordBatch], offset: int) -> Iterator[RecordBatch]:
    """Yield the batches that begin before an offset, or the first: a response has few of many small batches."""
    for i, batch in enumerate(batches):
        if i and batch.base_offset >= offset:
            return
        yield batch


def _sliced(data: memoryview, batches: Iterable[RecordBatch], first: int, last: int) -> memoryview:
    """Return the batches with offsets from ``first`` to ``last``."""
    begin = end = position = 0
    for batch in batches:
        if batch.last_offset < first:
            begin = position + len(batch.data)
        if batch.base_offset <= last:
            end = position + len(batch.data)
        position += len(batch.data)
    return data[begin:end]


def _response(
    broker: BrokerCore, name: SessionName, told: Mapping[Place, _Told], results: Results
) -> ShareFetchResponse:
    topics: dict[UUID, list[PartitionData]] = {}
    for place in dict.fromkeys((*told, *results)):
        each, failed = told.get(place, _Told()), results.get(place)
        topics.setdefault(place[0], []).append(
            PartitionData(
                partition_index=place[1],
                error_code=0 if each.error is None else each.error.code,
                error_message=None if each.error is None else each.error.detail or None,
                acknowledge_error_code=0 if failed is None else failed.code,
                acknowledge_error_message=None if failed is None else failed.detail or None,
                current_leader=_NO_LEADER,
                records=each.records,
                acquired_records=tuple(
                    AcquiredRecords(first_offset=run.first, last_offset=run.last, delivery_count=run.deliveries)
                    for run in each.acquired
                ),
            )
        )
    return ShareFetchResponse(
        error_code=0,
        acquisition_lock_timeout_ms=round(broker.share_configs.limits(name.group_id).lock_duration * 1000),
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
        node_endpoints=(),
    )
