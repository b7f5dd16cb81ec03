"""The leaders of partitions: Produce, Fetch with its sessions, ListOffsets, OffsetForLeaderEpoch.

Rules:
- acks=all is answered once the high watermark has passed the batch; if the leader changes first, with
  NOT_LEADER_OR_FOLLOWER, whether the batch survives or not.
- A deposed leader that does not know it goes on: it takes batches that no reader will ever see, and serves its old log.
- A Fetch that finds no data waits for `max_wait_ms`, for data, or for an error.
- Node ``n`` is in the rack ``rn``. A leader sends readers of another rack to the replica there if it believes that
  replica to be alive; a follower serves records up to the high watermark that it knows (KIP-392).

Source: ReplicaManager.scala, RackAwareReplicaSelector.java, DelayedProduce.scala, DelayedFetch.scala,
FetchSession.scala.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypedDict
from uuid import UUID

from ottla.codec.apis import describe_producers as described
from ottla.codec.apis import fetch as wire
from ottla.codec.apis import produce as produced
from ottla.codec.apis.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.codec.apis.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.codec.apis.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.codec.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.codec.apis.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from ottla.codec.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.codec.records import parse_batch
from ottla.codec.wire import Buffer
from ottla.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    LeaderNotAvailable,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tests.sim.network import Reply
from tests.sim.transactions import Asking

if TYPE_CHECKING:
    from tests.sim.cluster import ModelCluster

Place = tuple[str, int]
RECREATED = "r-1"
"""The topic that is deleted and recreated."""
PASSING = "g"
"""A topic that a group's pattern matches. It is created and deleted, and no test waits for it."""

THROTTLE = 100
"""Milliseconds that a client over its quota has to wait."""

IMPLICIT = 12
"""The version of Produce from which a produce adds its partition to the transaction (KIP-890)."""
BY_ID = 13
"""The version of Fetch from which topics are named by id."""
FOLLOWERS = 11
"""The version of Fetch from which followers serve readers."""


@dataclass(slots=True, eq=False)
class Acknowledgement:
    """A batch that waits until its replicas have it."""

    node: int
    place: Place
    leader_epoch: int
    end: int
    settle: Callable[[int], None]
    """Called with an error code."""


@dataclass(slots=True)
class Session:
    """A Fetch session, by `_key`: the partitions that the client wants, and the high watermarks last sent."""

    epoch: int = 1
    wanted: dict[Place, FetchPartition] = field(default_factory=dict)
    told: dict[Place, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Poll:
    """A Fetch that waits for data."""

    places: frozenset[Place]
    attempt: Callable[[], bool]


class Ordinary(TypedDict):
    diverging_epoch: wire.EpochEndOffset
    current_leader: wire.LeaderIdAndEpoch
    snapshot_id: wire.SnapshotId


_ORDINARY = Ordinary(
    diverging_epoch=wire.EpochEndOffset(), current_leader=wire.LeaderIdAndEpoch(), snapshot_id=wire.SnapshotId()
)
"""Defaults of a partition in a Fetch answer, built once because that is expensive; no code changes them."""


def _key(topic: FetchTopic | ForgottenTopic, version: int) -> str:
    """The name under which a session keeps the topic: its id where the version has ids, because names are reused."""
    return str(topic.topic_id) if version >= BY_ID else topic.topic


class Endpoint(TypedDict):
    node_id: int
    host: str
    port: int


class Leaders:
    def __init__(self, cluster: "ModelCluster", chance: Random) -> None:
        self._cluster, self._clock, self._chance = cluster, cluster.clock, chance
        self._unacknowledged: list[Acknowledgement] = []
        self._polls: dict[int, list[Poll]] = {}
        self.sessions: dict[int, dict[int, Session]] = {}
        """Node -> session id -> session."""
        self._session_ids = 0
        self.max_message_bytes = 2**20
        self.append_time = -1
        self.configs: dict[str, dict[str, str]] = {}
        """Topic -> its configuration; a compacted topic refuses batches with records without a key."""
        """The time that brokers give all records; -1: records keep their own times."""
        """The topics' `max.message.bytes`, the limit of a batch."""
        self.replicated_to: dict[tuple[int, Place], int] = {}
        """Per follower and partition, the high watermark that the follower knows."""
        self.over_quota: Callable[[], bool] = lambda: False
        """Whether this answer is over a quota. If so, its client has to wait, and a Fetch gets no records (KIP-219)."""
        self.cuts = False
        """A batch that does not fit into an answer is sent in part."""
        self.full: Callable[[], bool] = lambda: self._chance.random() < 0.1
        """Whether there is no room for another Fetch session."""
        self.nearest: Callable[[int, Place, str], int] = self._near_by_rack
        """The replica to which a node, a leader, sends readers of a rack; -1: to itself."""
        self.diverging = False
        """Leaders say in Fetch that a reader's log diverges from theirs (KIP-595), and not only when asked."""
        self.features: Counter[str] = Counter()
        """How often each rare event happened."""
        self.strict = False
        """See `PartitionLog.strict`."""
        self.refusals: dict[Place, tuple[int, bool, float]] = {}
        """Error code with which batches are refused, whether they are stored nevertheless, and until when."""
        self.stubborn: dict[Place, float] = {}
        """Per partition, until when every batch gets its error of `refusals`; at other times most batches get it."""

    # -- changes -----------------------------------------------------------------------------------------------------

    def replicated(self, place: Place) -> None:
        """The high watermark has moved."""
        if place not in self._cluster.leaders:
            return
        leadership, log = self._cluster.leaders[place], self._cluster.logs[place]
        for each in [each for each in self._unacknowledged if each.place == place]:
            if each.leader_epoch == leadership.epoch and each.end <= log.high_watermark:
                self._unacknowledged.remove(each)
                each.settle(0)
        if leadership.node != -1:
            for node in list(self._polls):
                self._look(node, lambda poll: place in poll.places)

    def learned(self, node: int) -> None:
        """A node has got new metadata about leaders."""
        view = self._cluster.nodes[node].leaders
        for each in [each for each in self._unacknowledged if each.node == node]:
            if each.place not in view or view[each.place].epoch != each.leader_epoch:
                self._unacknowledged.remove(each)
                each.settle(NotLeaderOrFollower.code)
        self._look(node, lambda poll: True)

    def gone(self, topic: str, node: int | None = None) -> None:
        """A topic was deleted, or ``node`` has learned that it was."""
        self.replicated_to = {each: at for each, at in self.replicated_to.items() if each[1][0] != topic}
        for each in [each for each in self._unacknowledged if each.place[0] == topic]:
            if node in (None, each.node):
                self._unacknowledged.remove(each)
                each.settle(UnknownTopicOrPartition.code)

    def crashed(self, node: int) -> None:
        self._unacknowledged = [each for each in self._unacknowledged if each.node != node]
        self._polls.pop(node, None)
        self.sessions.pop(node, None)

    def _look(self, node: int, concerns: Callable[[Poll], bool]) -> None:
        for poll in list(self._polls.get(node, ())):
            if concerns(poll) and poll.attempt():
                self._polls[node].remove(poll)

    # -- leaders -----------------------------------------------------------------------------------------------------

    def _judge(self, node: int, place: Place, client_epoch: int) -> int:
        """The error code for a client that asks ``node`` and knows the leader epoch ``client_epoch`` (-1: none)."""
        view = self._cluster.nodes[node].leaders.get(place)
        if view is None:
            return UnknownTopicOrPartition.code
        if 0 <= client_epoch < view.epoch:
            return FencedLeaderEpoch.code
        if client_epoch > view.epoch:
            return UnknownLeaderEpoch.code
        return 0 if view.node == node else NotLeaderOrFollower.code

    def _judge_reader(self, node: int, place: Place, client_epoch: int) -> int:
        """As `_judge`; a node that still has the deleted topic of that name serves neither it nor the new one."""
        known = self._cluster.nodes[node].ids.get(place[0])
        if known is None or known != self._cluster.ids.get(place[0]):
            return UnknownTopicOrPartition.code
        return self._judge(node, place, client_epoch)

    def _place(self, node: int, key: Place) -> Place:
        """The partition of a session's key as the node names it, or the key itself if the node does not know it."""
        ids = self._cluster.nodes[node].ids
        return next((name for name, known in ids.items() if str(known) == key[0]), key[0]), key[1]

    def _visible(self, node: int, place: Place) -> int:
        """The high watermark as ``node`` knows it."""
        known = self._cluster.nodes[node]
        leads = self._cluster.leaders.get(place)  # a deleted topic has no leader
        if leads is None or leads.node != node:
            return known.frozen.get(place, 0)
        lagging, until = self._cluster.lagging.get(place, (0, 0.0))
        return lagging if self._clock.now < until else self._cluster.logs[place].high_watermark

    # -- Produce -----------------------------------------------------------------------------------------------------

    def produce(self, node: int, version: int, message: ProduceRequest, reply: Reply) -> None:
        results: dict[Place, tuple[int, int]] = {}
        names = {self._cluster.name(topic, node): topic.topic_id for topic in message.topic_data}
        asked = [
            ((self._cluster.name(topic, node), data.index), data.records)
            for topic in message.topic_data
            for data in topic.partition_data
        ]

        def settled(place: Place, code: int, base: int) -> None:
            results[place] = (code, base if not code else -1)
            if len(results) == len(asked) and message.acks:
                reply(self._produced(node, version, results, names))

        def append(refused: dict[Place, int]) -> None:
            for place, records in asked:
                if code := refused.get(place):
                    settled(place, code, -1)
                else:
                    self._append(node, place, records or b"", message, partial(settled, place))
            if not message.acks or not asked:
                reply(None if not message.acks else ProduceResponse(responses=()))

        self._join(node, version, message, asked, append)

    def _join(
        self,
        node: int,
        version: int,
        message: ProduceRequest,
        asked: list[tuple[Place, Buffer | None]],
        then: Callable[[dict[Place, int]], None],
    ) -> None:
        """Verify that partitions where a transaction would begin belong to it; ``then`` gets the error codes."""
        batches = {
            place: parse_batch(records) for place, records in asked if records and not self._judge(node, place, -1)
        }
        transactional = [place for place, batch in batches.items() if batch.transactional and not batch.control]
        if not transactional:
            then({})
            return
        if message.transactional_id is None:
            then(dict.fromkeys((place for place, _ in asked), TransactionalIdAuthorizationFailed.code))
            return
        if not self._cluster.verifies:
            then({})
            return
        codes: dict[Place, int] = {}
        joining: dict[Asking, list[Place]] = {}
        minds = self._cluster.epochs_rise
        for place in transactional:
            batch, log = batches[place], self._cluster.logs.get(place)
            if log is None or self._cluster.leaders[place].node != node or not log.begins(batch, minds_epochs=minds):
                continue
            if code := log.attempt(batch, rises=version >= IMPLICIT, minds_epochs=minds):
                codes[place] = code
            else:
                asking = Asking(message.transactional_id, batch.producer_id, batch.producer_epoch)
                joining.setdefault(asking, []).append(place)
        left = len(joining)
        if not left:
            then(codes)
            return

        def answered(answers: dict[Place, int]) -> None:
            nonlocal left
            codes.update({place: _known(code, version) for place, code in answers.items() if code})
            left -= 1
            if not left:
                then(codes)

        for asking, places in joining.items():
            self._cluster.transactions.ask(asking, places, answered, rises=version >= IMPLICIT)

    def _append(
        self,
        node: int,
        place: Place,
        records: Buffer,
        message: ProduceRequest,
        settle: Callable[[int, int], None],
    ) -> None:
        if code := self._judge(node, place, -1):
            settle(code if place[0] else UnknownTopicId.code, -1)
            return
        if len(records) > self.max_message_bytes:
            settle(MessageTooLarge.code, -1)
            return
        if self.configs.get(place[0], {}).get("cleanup.policy") == "compact":
            found = parse_batch(records).records()
            if any(each.key is None for each in found):
                settle(InvalidRecord.code, -1)
                return
        surely = self._clock.now < self.stubborn.get(place, 0.0)
        refusal, stored, until = self.refusals.get(place, (0, False, 0.0))
        refusal = refusal if self._clock.now < until and (surely or self._chance.random() < 0.6) else 0
        if refusal and not stored:
            settle(refusal, -1)
            return
        epoch = self._cluster.nodes[node].leaders[place].epoch
        current = self._cluster.nodes[node].ids.get(place[0]) == self._cluster.ids.get(place[0])
        if current and self._cluster.leaders[place].node == node:
            code, base, end = self._cluster.append(place, records)
            self.features["an answer is UNKNOWN_PRODUCER_ID"] += code == UnknownProducerId.code
            self.features["a leader appends and says that it leads no more"] += (
                not code and refusal == NotLeaderOrFollower.code
            )
        else:
            code, base, end = 0, 10**9, 2 * 10**9  # a deposed leader's log: it is truncated, and no reader sees it
        if code or refusal or message.acks != -1:
            settle(code or refusal, base)
            return
        if current and end <= self._cluster.logs[place].high_watermark:
            settle(0, base)
            return
        waiting = Acknowledgement(node, place, epoch, end, lambda code: settle(code, base))
        self._unacknowledged.append(waiting)

        def late() -> None:
            if waiting in self._unacknowledged:
                self._unacknowledged.remove(waiting)
                waiting.settle(RequestTimedOut.code)

        self._clock.later(message.timeout_ms / 1000, late)

    def _produced(
        self, node: int, version: int, results: dict[Place, tuple[int, int]], names: dict[str, UUID]
    ) -> ProduceResponse:
        answers: dict[str, list[PartitionProduceResponse]] = {}
        hints: dict[int, Endpoint] = {}
        for (topic, index), (code, base) in results.items():
            time = -1 if code else self.append_time
            each = PartitionProduceResponse(index=index, error_code=code, base_offset=base, log_append_time_ms=time)
            view = self._cluster.nodes[node].leaders.get((topic, index))
            if view and version >= 10 and code == NotLeaderOrFollower.code:
                each.current_leader = produced.LeaderIdAndEpoch(leader_id=view.node, leader_epoch=view.epoch)
                hints |= self._endpoint(view.node)
            answers.setdefault(topic, []).append(each)
        over = self.over_quota()
        self.features["a Produce is throttled"] += over
        return ProduceResponse(
            throttle_time_ms=THROTTLE * over,
            responses=tuple(
                TopicProduceResponse(name=name, topic_id=names[name], partition_responses=tuple(each))
                for name, each in answers.items()
            ),
            node_endpoints=tuple(produced.NodeEndpoint(**each) for each in hints.values()),
        )

    # -- Fetch -------------------------------------------------------------------------------------------------------

    def fetch(self, node: int, version: int, message: FetchRequest, reply: Reply) -> None:
        code, session_id, session, incremental = self._session(node, version, message)
        if code:
            reply(FetchResponse(error_code=code, session_id=0, responses=()))
            return
        if self.over_quota():
            if not incremental:
                self.sessions[node].pop(session_id, None)
                self.features["a full Fetch is throttled"] += 1
            reply(FetchResponse(session_id=session_id * incremental, responses=(), throttle_time_ms=THROTTLE))
            return
        wanted = session.wanted
        deadline = self._clock.now + message.max_wait_ms / 1000

        def attempt(final: bool = False) -> bool:
            found, size, failed = self._read(node, version, wanted, message)
            if size < message.min_bytes and not failed and not final:
                return False
            told = {
                place: each
                for place, each in found.items()
                if not incremental
                or each.error_code
                or each.records
                or each.preferred_read_replica >= 0
                or each.diverging_epoch.end_offset >= 0
                or session.told.get(place) != each.high_watermark
            }
            session.told |= {place: each.high_watermark for place, each in told.items()}
            for place in [place for place, each in told.items() if each.records and place in wanted]:
                wanted[place] = wanted.pop(place)  # as Kafka does: partitions with data go to the end of the session
            reply(self._fetched(version, session_id, told))
            return True

        if attempt(final=message.max_wait_ms <= 0):
            return
        poll = Poll(frozenset(self._place(node, key) for key in wanted), attempt)
        polls = self._polls.setdefault(node, [])
        polls.append(poll)

        def late() -> None:
            if poll in self._polls.get(node, ()):
                self._polls[node].remove(poll)
                attempt(final=True)

        self._clock.at(deadline, late)

    def _session(self, node: int, version: int, message: FetchRequest) -> tuple[int, int, Session, bool]:
        """(error code, session id or 0, the session or a temporary one, whether the Fetch is incremental)."""
        asked = {(_key(topic, version), each.partition): each for topic in message.topics for each in topic.partitions}
        sessions = self.sessions.setdefault(node, {})
        if version < 7 or message.session_epoch <= 0:
            if version >= 7:
                sessions.pop(message.session_id, None)
            if version < 7 or message.session_epoch < 0 or self.full():
                return 0, 0, Session(wanted=asked), False
            self._session_ids += 1
            session = sessions[self._session_ids] = Session(wanted=asked)
            return 0, self._session_ids, session, False
        known = sessions.get(message.session_id)
        if known is None:
            return FetchSessionIdNotFound.code, 0, Session(), False
        if known.epoch != message.session_epoch:
            return InvalidFetchSessionEpoch.code, 0, Session(), False
        known.epoch = known.epoch % (2**31 - 1) + 1
        known.wanted |= asked
        for topic in message.forgotten_topics_data:
            for partition in topic.partitions:
                key = (_key(topic, version), partition)
                assert key in known.wanted, f"{key} is in forgotten_topics, but is not in the session"
                del known.wanted[key]
                known.told.pop(key, None)
        return 0, message.session_id, known, True

    def _read(
        self, node: int, version: int, wanted: dict[Place, FetchPartition], message: FetchRequest
    ) -> tuple[dict[Place, PartitionData], int, bool]:
        """(answer of each partition, bytes in all, whether any has an error)."""
        found: dict[Place, PartitionData] = {}
        size, failed = 0, False
        for key, each in wanted.items():
            place = self._place(node, key)
            code = self._judge_reader(node, place, each.current_leader_epoch)
            log = self._cluster.logs.get(place)
            follower = code == NotLeaderOrFollower.code and self._follows(node, version, place)
            end = self._heard_of(node, place) if follower else log.end if log else 0
            code = 0 if follower else code
            if not code and log is not None and self.diverging and each.last_fetched_epoch >= 0:
                epoch, diverges = log.end_of_epoch(each.last_fetched_epoch)
                diverges = min(diverges, end) if follower else diverges  # it may not have all of that epoch yet
                if 0 <= diverges < each.fetch_offset:
                    failed = True
                    found[key] = self._failed(node, version, place, 0)
                    found[key].diverging_epoch = wire.EpochEndOffset(epoch=epoch, end_offset=diverges)
                    continue
            if not code and log is not None and not log.start <= each.fetch_offset <= end:
                code = OffsetOutOfRange.code
            if code or log is None:  # without a log there is always a code
                failed = True
                unknown = code == UnknownTopicOrPartition.code and version >= BY_ID
                found[key] = self._failed(node, version, place, UnknownTopicId.code if unknown else code)
                continue
            visible = watermark = end if follower else self._visible(node, place)
            aborted: tuple[AbortedTransaction, ...] | None = None
            if message.isolation_level:
                visible = min(visible, log.stable)
                aborted = tuple(
                    AbortedTransaction(producer_id=ended.producer_id, first_offset=ended.first)
                    for ended in log.aborted(each.fetch_offset, visible)
                )
            most = min(each.partition_max_bytes, max(message.max_bytes - size, 0))
            near = -1 if follower or version < FOLLOWERS else self.nearest(node, place, message.rack_id)
            data, more = b"", 0
            if near < 0:
                data, more = log.read(
                    each.fetch_offset, visible, most, first=not size and version >= 3, cut=self.cuts or version < 3
                )
            self.features["a batch comes cut"] += 0 < len(data) < 12 + int.from_bytes(data[8:12], "big")
            size += more
            failed = failed or near >= 0
            self.features["a leader sends a reader to a replica"] += near >= 0
            self.features["a follower is read from"] += follower and more > 0
            found[key] = PartitionData(
                partition_index=place[1],
                error_code=0,
                high_watermark=watermark,
                last_stable_offset=min(watermark, log.stable),
                log_start_offset=log.start,
                aborted_transactions=aborted,
                records=data,
                preferred_read_replica=near,
                **_ORDINARY,
            )
        return found, size, failed

    def _near_by_rack(self, node: int, place: Place, rack: str) -> int:
        """The replica in this rack, if the node believes that it is alive."""
        if not rack:
            return -1
        near = int(rack.removeprefix("r"))
        return near if near != node and near in self._cluster.nodes[node].brokers else -1

    def _follows(self, node: int, version: int, place: Place) -> bool:
        """Whether the node believes that it is a follower, and serves readers."""
        view = self._cluster.nodes[node].leaders.get(place)
        return version >= FOLLOWERS and view is not None and view.node not in (node, -1)

    def _heard_of(self, node: int, place: Place) -> int:
        """The high watermark that the node, a follower, knows: a little old, or older if the node is cut off."""
        known = self.replicated_to.get((node, place), 0)
        log = self._cluster.logs.get(place)  # none if the topic was deleted and the node does not know that
        if log is not None and self._cluster.nodes[node].healthy and self._chance.random() < 0.7:
            known = self.replicated_to[node, place] = log.high_watermark
        return known

    def _failed(self, node: int, version: int, place: Place, code: int) -> PartitionData:
        failed = PartitionData(
            partition_index=place[1], error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
        )
        view = self._cluster.nodes[node].leaders.get(place)
        if code == OffsetOutOfRange.code:
            failed.log_start_offset = self._cluster.logs[place].start
        if view and version >= 12 and code in (NotLeaderOrFollower.code, FencedLeaderEpoch.code):
            failed.current_leader = wire.LeaderIdAndEpoch(leader_id=view.node, leader_epoch=view.epoch)
        return failed

    def _endpoint(self, node: int) -> dict[int, Endpoint]:
        """The address of the leader that an answer names (KIP-951)."""
        host, port = self._cluster.address(node)
        return {node: Endpoint(node_id=node, host=host, port=port)} if node >= 0 else {}

    def _fetched(self, version: int, session_id: int, told: dict[Place, PartitionData]) -> FetchResponse:
        topics: dict[str, list[PartitionData]] = {}
        hints: dict[int, Endpoint] = {}
        for (topic, _), each in told.items():
            topics.setdefault(topic, []).append(each)
            if version >= 16 and each.current_leader.leader_id >= 0:
                hints |= self._endpoint(each.current_leader.leader_id)
        return FetchResponse(
            session_id=session_id,
            responses=tuple(
                FetchableTopicResponse(topic=key, partitions=tuple(each))
                if version < BY_ID
                else FetchableTopicResponse(topic_id=UUID(key), partitions=tuple(each))
                for key, each in topics.items()
            ),
            node_endpoints=tuple(wire.NodeEndpoint(**each) for each in hints.values()),
        )

    # -- offsets -----------------------------------------------------------------------------------------------------

    def offsets(self, node: int, version: int, message: ListOffsetsRequest) -> ListOffsetsResponse:
        def one(place: Place, client_epoch: int, timestamp: int) -> ListOffsetsPartitionResponse:
            code, offset, leader_epoch = self._judge_reader(node, place, client_epoch), -1, -1
            if not code:
                leader_epoch = self._cluster.nodes[node].leaders[place].epoch if version >= 4 else -1
                lagging = self._clock.now < self._cluster.lagging.get(place, (0, 0.0))[1]
                if timestamp == LATEST and lagging:
                    code = OffsetNotAvailable.code if version >= 5 else LeaderNotAvailable.code
                else:
                    visible = self._visible(node, place)
                    if message.isolation_level:
                        visible = min(visible, self._cluster.logs[place].stable)
                    offset = self._offset(place, timestamp, visible)
            return ListOffsetsPartitionResponse(
                partition_index=place[1],
                error_code=code,
                offset=offset if version else -1,
                old_style_offsets=(offset,) if not version and offset >= 0 else (),
                leader_epoch=leader_epoch,
            )

        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        one((topic.name, each.partition_index), each.current_leader_epoch, each.timestamp)
                        for each in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )

    def _offset(self, place: Place, timestamp: int, visible: int) -> int:
        if timestamp in (EARLIEST, LATEST):
            return self._cluster.logs[place].start if timestamp == EARLIEST else visible
        for stored in self._cluster.logs[place].batches:
            for record in parse_batch(stored.data).records():
                if record.timestamp >= timestamp and record.offset < visible:
                    return record.offset
        return -1

    # -- transactions ------------------------------------------------------------------------------------------------

    def described_producers(self, node: int, message: DescribeProducersRequest) -> DescribeProducersResponse:
        def one(place: Place) -> described.PartitionResponse:
            code, log = self._judge(node, place, -1), self._cluster.logs.get(place)
            producers = log.producers if log is not None and not code else {}
            return described.PartitionResponse(
                partition_index=place[1],
                error_code=code,
                active_producers=tuple(
                    described.ProducerState(
                        producer_id=producer_id,
                        producer_epoch=each.epoch,
                        last_sequence=next(reversed(each.recent))[1] if each.recent else -1,
                        coordinator_epoch=each.coordinator_epoch,
                        current_txn_start_offset=-1 if each.ongoing is None else each.ongoing,
                    )
                    for producer_id, each in producers.items()
                ),
            )

        return DescribeProducersResponse(
            topics=tuple(
                described.TopicResponse(
                    name=topic.name, partitions=tuple(one((topic.name, index)) for index in topic.partition_indexes)
                )
                for topic in message.topics
            )
        )

    def write_markers(self, node: int, message: WriteTxnMarkersRequest, reply: Reply) -> None:
        """WriteTxnMarkers, as an administrator sends it."""

        def one(marker: WritableTxnMarker, place: Place) -> int:
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                return UnknownServerError.code
            if code := self._judge(node, place, -1):
                return code
            log, epoch = self._cluster.logs[place], self._cluster.leaders[place].epoch
            code = log.mark(
                (marker.producer_id, marker.producer_epoch),
                commits=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                leader_epoch=epoch,
                rises=marker.transaction_version >= 2,
            )
            if not code:
                self._cluster.replicate_soon(place)
            return code

        reply(
            WriteTxnMarkersResponse(
                markers=tuple(
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=tuple(
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=tuple(
                                    WritableTxnMarkerPartitionResult(
                                        partition_index=index, error_code=one(marker, (topic.name, index))
                                    )
                                    for index in topic.partition_indexes
                                ),
                            )
                            for topic in marker.topics
                        ),
                    )
                    for marker in message.markers
                )
            )
        )

    def epoch_ends(self, node: int, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        def one(place: Place, client_epoch: int, epoch: int) -> EpochEndOffset:
            code = self._judge_reader(node, place, client_epoch)
            found, end = (-1, -1) if code else self._cluster.logs[place].end_of_epoch(epoch)
            if not code and epoch == self._cluster.nodes[node].leaders[place].epoch:
                found, end = epoch, self._cluster.logs[place].end
            return EpochEndOffset(error_code=code, partition=place[1], leader_epoch=found, end_offset=end)

        return OffsetForLeaderEpochResponse(
            topics=tuple(
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(
                        one((topic.topic, each.partition), each.current_leader_epoch, each.leader_epoch)
                        for each in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )


def _known(code: int, version: int) -> int:
    """Map an error of the transaction coordinator to an error that this ``version`` of Produce has."""
    if code in (NotCoordinator.code, CoordinatorLoadInProgress.code):
        return NotEnoughReplicas.code
    if code == ProducerFenced.code:
        return InvalidProducerEpoch.code
    if code == ConcurrentTransactions.code and version < IMPLICIT:
        return NotEnoughReplicas.code
    return InvalidTxnState.code if code == TransactionAbortable.code and version < 11 else code
