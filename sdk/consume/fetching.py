"""The fetches of a consumer: looks positions up, checks them, reads from each into its buffer.

Rules:
- One Fetch per node is under way at a time; it asks for the partitions there that have room in their buffer
  (`Session`). Where one is under way, partitions that the user has sought in are asked for by another, once, on a
  connection of its own: the first may be held back at the broker for `fetch_max_wait`.
- Buffers are bounded together, by `fetch_buffer_bytes`, what is under way included; a single batch may exceed that.
  What a paused partition has buffered is kept until the others need the room.
- Nodes share the bound, and take no more of it than what they are asked for can bring; partitions share it too but may
  always have one answer: everybody gets on. So may what was sought, without room as well.
- Whoever leads a partition newly is asked whether it has what was read (KIP-320), before more is fetched. A near
  replica is read from where the leader recommends it (KIP-392); after any error there it is the leader's turn
  (`NearReplicas`).
- `poll` costs what has happened: `_stirred` holds the partitions that something happened to.
- Reading may wait for ever, but not silently: a partition without an answer for `STALL` seconds is reported.

Source: AbstractFetch.java, FetchCollector.java, OffsetFetcher.java, SubscriptionState.java.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ottla.codec.apis.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.codec.apis.list_offsets import EARLIEST, LATEST, ListOffsetsPartitionResponse, ListOffsetsRequest
from ottla.codec.apis.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderEpochRequest
from ottla.codec.wire import NO_UUID, Buffer
from ottla.errors import (
    BrokerError,
    ConnectionLost,
    CorruptMessage,
    DataLoss,
    LocalProtocolError,
    LogTruncated,
    NoCommittedOffset,
    OffsetOutOfRange,
    OttlaError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.connection import Exchange
from ottla.sdk.consume.fetch_metrics import FetchMetrics
from ottla.sdk.consume.lookups import EPOCHS, by_place, ends_of_epochs, list_offsets, offset_in
from ottla.sdk.consume.near import ALONE, NearReplicas
from ottla.sdk.consume.positions import (
    NOWHERE,
    Ago,
    Nowhere,
    Offset,
    Position,
    Start,
    State,
    Time,
    troubles,
)
from ottla.sdk.consume.record_sets import READ_UNCOMMITTED, AnyBatch, corrupt, cut, found, needed, too_large, visible
from ottla.sdk.consume.sessions import SESSION_ERRORS, Limits, Session
from ottla.sdk.core import FETCH, ClientCore
from ottla.sdk.events import Node
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

STALL = 30.0
"""Seconds without an answer before a partition is reported."""
_BRIEFLY = 0.02
_AHEAD = 4
"""Answers that a partition may have buffered where there is room for all."""
_SLOW = 5.0
"""Seconds after which a user who takes nothing is worth a line."""


class Fetching:
    """Positions and fetches on a `ClientCore`; `Fetcher` adds what a user asks of them.

    Args:
        reset: where to go on when a position lies outside the log; ``None`` makes that an error.
        wall: the time of day, in seconds since 1970, when the machine's time was 0; needed for `Ago` only.
        on_reset: told of each partition that goes on elsewhere though nobody sought: it fell out of the log, the log
            was truncated, the topic was made anew. Offsets lower than before are meant from then on.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        core: ClientCore,
        *,
        isolation: int = READ_UNCOMMITTED,
        reset: Time | Ago | None = None,
        wall: float = math.nan,
        on_reset: Callable[[TopicPartition], None] = lambda place: None,
    ) -> None:
        self._core, self._isolation, self._reset, self._wall = core, isolation, reset, wall
        self.on_reset = on_reset
        self.number = next(self._numbers)
        self._channel = f"{FETCH}-{self.number}"
        self._express = f"{self._channel}-express"
        self._positions: dict[TopicPartition, Position] = {}
        self._turn: OrderedDict[Position, None] = OrderedDict()
        """Partitions with something to take, or an error to raise, in the order in which the user gets them."""
        self._stirred: dict[Position, None] = {}
        self._full: dict[Position, None] = {}
        """Partitions that are not fetched because their buffer has no room."""
        self._paused: dict[Position, None] = {}
        self._unresolved: dict[Position, None] = {}
        self._sessions: dict[tuple[int, bool], Session] = {}
        """By node, and whether it is the express."""
        self._near = NearReplicas(core, self._channel)
        self._broken: dict[TopicPartition, OttlaError] = {}
        self._buffered = 0
        self._short = False
        """Somebody is not asked, for want of room in the buffers."""
        self._taken = False
        """The user has taken something since the last Fetch."""
        self._taken_at = -math.inf
        self._holds: dict[str, tuple[Callable[[], None], dict[Position, None]]] = {}
        """Per topic, how to let go of its metadata, and for whom they are held."""
        self._news: Outcome[None] = Outcome()
        self._due: Timer | None = None
        self._now = -math.inf
        self._followed: dict[str, bool] = {}
        """Topics of which later partitions are read too, and whether they may go."""
        self._metrics = FetchMetrics(
            core.metrics, self.number, self._positions, isolation, near=bool(core.options.rack)
        )
        self.closed = False
        core.observers.append(self._metadata_changed)
        core.parts[self] = None
        self._leave = core.on_close(lambda error: self.close())

    def assign(self, starts: Mapping[TopicPartition, Start], now: float) -> None:
        """Read these partitions too, each from its start; for one that is read already this is a seek."""
        if math.isnan(self._wall) and any(isinstance(start, Ago) for start in starts.values()):
            raise LocalProtocolError("a place so long ago needs the time of day: make the fetcher with `wall`")
        self._now = now
        for place, start in starts.items():
            position = self._positions.get(place)
            sought = position is not None
            if position is None:
                position = self._positions[place] = Position(place, start)
                if place[0] not in self._holds:
                    self._holds[place[0]] = (self._core.hold(place[0]), {})
                self._holds[place[0]][1][position] = None
                self._metrics.watch(position)
            self._seek(position, start)
            position.hurried = sought
        self._wake()

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions: what is buffered of them is dropped, late answers are ignored."""
        gone = [place for place in places if place in self._positions]
        for place in gone:
            position = self._positions.pop(place)
            self._drop(position)
            self._leave_node(position)
            self._broken.pop(place, None)
            self._near.accepted(place)
            for group in (self._unresolved, self._stirred, self._paused):
                group.pop(position, None)
            release, held = self._holds[place[0]]
            del held[position]
            if not held:
                del self._holds[place[0]]
                release()
        self._metrics.forget(gone)
        self._notify()
        self._wake()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._leave()
            self._core.observers.remove(self._metadata_changed)
            self._core.parts.pop(self, None)
            self._core.retire(self._channel)
            self._core.retire(self._express)
            self.unassign(list(self._positions))
            self._core.soon(partial(self._close_sessions, list(self._sessions.values())))
            self._sessions.clear()
            self._near.close()
            self._metrics.close()

    def _close_sessions(self, sessions: Iterable[Session], now: float) -> None:
        """Give the brokers' memory back, where that costs nothing and keeps nobody: they keep sessions for long.

        On the ordinary channel, for on the fetcher's own a Fetch may wait.
        """
        for session in sessions:
            last = session.farewell()
            if last is not None and self._core.connected(session.node):
                exchange = Exchange(last, _nobody, now + self._core.options.request_timeout)
                self._core.submit(session.node, exchange, now)

    def explain(self, now: float) -> Iterator[str]:
        """What is not as it should be, in lines for people: which partitions, since when, why."""
        for (topic, index), error in self._broken.items():
            yield f"{topic}-{index}: cannot be read on until a seek: {error}"
        yield from troubles(self._positions.values(), now)
        for session in self._sessions.values():
            waited = now - session.since
            if session.under_way and waited > self._core.options.fetch_max_wait + 1:
                node = f"{session.node.host}:{session.node.port} (node {session.node.id})"
                yield f"{node}: no answer for {waited:.1f} s to a Fetch of {len(session.wanted)} partition(s)"
        if self._turn and now - self._taken_at > _SLOW:
            idle = now - self._taken_at
            yield f"{self._buffered} bytes are there, of which the user has taken nothing for {idle:.1f} s"

    # -- positions ---------------------------------------------------------------------------------------------------

    def _seek(self, position: Position, start: Start) -> None:
        self._drop(position)
        self._leave_node(position)
        position.well()
        position.start, position.replica = start, NOWHERE
        position.topic_id = self._core.cluster.topic_id(position.place[0])
        self._broken.pop(position.place, None)
        if isinstance(start, Offset):
            position.go(start.offset, start.leader_epoch)
            self._unresolved.pop(position, None)
        elif isinstance(start, Nowhere):
            self._break(position, NoCommittedOffset(f"{position.place[0]}-{position.place[1]}: {start.why}"))
        else:
            position.state = State.RESOLVING
            self._unresolved[position] = None
        self._stir(position)

    def _drop(self, position: Position) -> None:
        self._buffered -= position.buffered
        position.drop()
        self._turn.pop(position, None)

    def _rewind(self, position: Position) -> None:
        """Read again what the user has not taken."""
        self._buffered -= position.buffered
        position.rewind()
        self._turn.pop(position, None)

    def _leave_node(self, position: Position) -> None:
        self._full.pop(position, None)
        if session := self._sessions.get((position.node, position.hurried)):
            session.drop(position)
        position.node = NOWHERE

    def _break(self, position: Position, error: OttlaError) -> None:
        """It cannot be read on, which is raised once, in its turn, when the user has taken what lies before."""
        self._leave_node(position)
        if position.buffer:
            position.stuck = True
            return
        position.state, position.trouble, position.untold = State.FAILED, error, True
        self._broken[position.place] = error
        self._unresolved.pop(position, None)
        if not position.paused:
            self._turn[position] = None
        self._notify()

    def _damaged(self, position: Position, damage: OttlaError) -> None:
        """What is to be read next is not what was written; but where a near replica sent it, the leader may have it."""
        if position.replica == NOWHERE:
            self._break(position, position.about(damage))
            return
        self._near.refused(position.place, position.replica, damage, self._now)
        self._leave_node(position)
        position.replica = NOWHERE
        self._stir(position)

    def _notify(self) -> None:
        news, self._news = self._news, Outcome()
        news.succeed(None)

    # -- what to ask whom --------------------------------------------------------------------------------------------

    def _stir(self, position: Position) -> None:
        """Something happened to the partition: see what it needs now."""
        self._stirred[position] = None
        self._wake()

    def _wake(self) -> None:
        if not self.closed and (self._due is None or self._due.call is None):
            self._due = self._core.soon(self._drain)

    def _metadata_changed(self, now: float) -> None:
        cluster = self._core.cluster
        self._near.learned()
        new: dict[TopicPartition, Start] = {
            (name, index): Time(EARLIEST)
            for name in sorted(self._followed)
            if (topic := cluster.topics.get(name))
            for index in topic.partitions
            if (name, index) not in self._positions
        }
        if new:
            self.assign(new, now)
        for place, position in self._positions.items():
            led = self._led(position)
            anew = cluster.topic_id(place[0]) not in (position.topic_id, NO_UUID)
            if (led is not None and led != position.led) or anew:
                position.retry_at = -math.inf
                self._stir(position)

    def _drain(self, now: float) -> None:
        self._due, self._now = None, now
        stirred, self._stirred = self._stirred, {}
        to_resolve: dict[Node, list[Position]] = {}
        to_validate: dict[Node, list[Position]] = {}
        for position in stirred:
            if position.state is State.FAILED or position.retry_at > now or position.asking:
                continue
            leader = self._core.cluster.leader(*position.place)
            if leader is None:
                position.led = None
                self._core.refresh(now, 0.0 if position.failures == 0 else self._core.options.retry_backoff_max)
                self._retry([position], self._core.why_no_leader(*position.place), now)
                continue
            if position.led is None:
                position.well()
            position.led = self._led(position)
            if position.state is State.FETCHING:
                self._settle(position, leader, now)
            if position.state is State.RESOLVING:
                to_resolve.setdefault(leader, []).append(position)
            elif position.state is State.VALIDATING:
                to_validate.setdefault(leader, []).append(position)
        for node, positions in to_resolve.items():
            self._resolve(node, positions, now)
        for node, positions in to_validate.items():
            self._validate(node, positions, now)
        self._fetch_all(now)

    def _settle(self, position: Position, leader: Node, now: float) -> None:
        """Have the partition fetched where it is to be, or not, or have its position looked at first."""
        topic_id = self._core.cluster.topic_id(position.place[0])
        if topic_id != NO_UUID:
            if position.topic_id not in (topic_id, NO_UUID):
                self._made_anew(position)
                return
            position.topic_id = topic_id
        leader_epoch = self._epoch(position)
        if leader_epoch > position.leader_epoch and position.fetch_epoch >= 0:
            position.state = State.VALIDATING
            self._leave_node(position)
            return
        position.leader_epoch = max(position.leader_epoch, leader_epoch)
        room = not position.buffer or (position.buffered < self._prefetch and not position.stuck)
        if room and not position.paused:
            self._full.pop(position, None)
            node = self._reader(position, leader, now)
            hurried = position.hurried and self._under_way(node)
            if (position.node, position.hurried) != (node.id, hurried):
                self._leave_node(position)
            position.hurried = hurried
            session = self._sessions.get((node.id, hurried))
            if session is None:
                session = self._sessions[node.id, hurried] = Session(node, hurried)
            session.node, position.node = node, node.id
            session.want(position)
        else:
            self._leave_node(position)
            if not position.paused:
                self._full[position] = None

    def _under_way(self, node: Node) -> bool:
        usual = self._sessions.get((node.id, False))
        return usual is not None and usual.under_way

    @property
    def _prefetch(self) -> int:
        """Bytes that a partition may have buffered and still be fetched."""
        options = self._core.options
        share = options.fetch_buffer_bytes // max(1, len(self._positions))
        return max(options.partition_max_bytes, min(_AHEAD * options.partition_max_bytes, share))

    def _reader(self, position: Position, leader: Node, now: float) -> Node:
        """Whom to read from: the leader, or for a while the replica that it recommends."""
        replica = self._core.cluster.nodes.get(position.replica)
        if replica is None or now >= position.replica_until or replica.id not in self._near:
            position.replica = NOWHERE
            return leader
        return replica

    def _led(self, position: Position) -> tuple[int, int] | None:
        """Who leads it by the metadata, in which epoch."""
        leader = self._core.cluster.leader(*position.place)
        return (leader.id, self._epoch(position)) if leader else None

    def _epoch(self, position: Position) -> int:
        return self._core.cluster.leader_epoch(*position.place)

    # -- fetching ----------------------------------------------------------------------------------------------------

    def _fetch_all(self, now: float) -> None:
        """Ask every node where something is wanted and nothing is under way."""
        options = self._core.options
        busy = [each for each in self._sessions.values() if each.wanted]
        # Where room is short, it goes to what was sought, then to who has waited longest.
        for session in sorted(busy, key=lambda each: (not each.express, each.since)):
            if session.under_way or session.retry_at > now:
                continue
            share = options.fetch_buffer_bytes // len(busy)
            # A batch that came cut must fit, and one that is larger than all the room gets all of it.
            needs = session.needs
            free = self._room(min(max(needs, min(options.partition_max_bytes, share)), options.fetch_buffer_bytes))
            if session.express:
                free = max(free, options.partition_max_bytes)
            self._short = free <= 0
            if self._short:
                return  # until the user takes something
            wait = options.fetch_max_wait
            if self._taken and self._full:
                # Who reads fast will want more of a partition whose buffer is full now: it must not wait behind this.
                wait = min(_BRIEFLY, wait)
            if session.express:
                wait = 0.0
            self._taken = False
            max_bytes = session.most(min(options.fetch_max_bytes, share, free), options.partition_max_bytes)
            max_bytes = max(max_bytes, needs)
            limits = Limits(wait, max_bytes, options.partition_max_bytes, self._isolation, options.rack or "")
            self._fetch(session, limits, now)

    def _room(self, least: int) -> int:
        """Bytes that a Fetch may bring; 0 where they are fewer than ``least``."""
        under_way = sum(each.reserved for each in self._sessions.values())
        free = self._core.options.fetch_buffer_bytes - self._buffered - under_way
        for position in self._paused:
            if free >= least:
                break
            if position.buffer:  # is fetched again when it is wanted
                free += position.buffered
                self._rewind(position)
        return free if free >= least else 0

    def _fetch(self, session: Session, limits: Limits, now: float) -> None:
        session.under_way, session.since, session.reserved = True, now, limits.max_bytes

        def ended(answer: FetchResponse | OttlaError, now: float) -> None:
            session.under_way, self._now = False, now
            if not self.closed:
                self._answered(session, answer, now)
                self._wake()
            session.reserved = 0

        deadline = now + limits.wait + self._core.options.request_timeout
        build, versions = partial(session.request, limits), self._versions(session, now)
        exchange = Exchange(FetchRequest, ended, deadline, build=build, versions=versions)
        self._core.submit(session.node, exchange, now, self._express if session.express else self._channel)

    def _versions(self, session: Session, now: float) -> tuple[int, int] | None:
        """The versions that will do; of a leader that would send us in vain, those in which it cannot."""
        if self._near.tempts(session.node.id, now):
            spoken = self._core.supports(session.node, FetchRequest)
            if spoken and spoken[0] <= ALONE:
                return (0, ALONE)
        return session.versions

    def _answered(self, session: Session, answer: FetchResponse | OttlaError, now: float) -> None:
        if isinstance(answer, OttlaError):
            session.begin_anew()
            self._near.failed(session.node.id, answer, now)
            self._retry(list(session.wanted.values()), answer, now)
            return
        self._near.answered(session.node.id)
        self._metrics.answered(now - session.since, answer.throttle_time_ms / 1000, now)
        if error := session.answered(answer):
            if not isinstance(error, SESSION_ERRORS):
                self._retry(list(session.wanted.values()), error, now)
            elif session.failures:
                session.retry_at = now + self._core.backoff(session.failures)
                self._core.later(session.retry_at, lambda now: self._wake())
            session.failures += 1
            return
        size, records = 0, 0
        nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
        for asked, result in session.results(answer):
            if not asked.matters:
                continue
            if isinstance(result, OttlaError):
                self._retry([asked.position], result, now)
            elif _bad(result) and asked.position.node != session.node.id:
                continue  # somebody else leads it by now, and is asked
            elif result.error_code:
                self._refused(asked.position, session, result, nodes, now)
            else:
                size += len(result.records or b"")
                records += self._read(asked.position, session, result, now)
        for position in session.recovered():
            position.well()
        self._metrics.received(size, records, now)
        if session.express:
            self._slow_down(session)

    def _slow_down(self, express: Session) -> None:
        """What was asked for once goes on with the others."""
        for position in list(express.wanted.values()):
            asked = express.known.get(position.place)
            if asked is None or asked.seeks != position.seeks:
                continue  # was sought since, and is still to be asked for
            self._leave_node(position)
            position.hurried = False
            self._stir(position)

    def _refused(
        self, position: Position, session: Session, result: PartitionData, nodes: Sequence[Node], now: float
    ) -> None:
        """The answer is an error."""
        topic, index = position.place
        error = broker_error(result.error_code, f"{topic}-{index}")
        follower, position.replica = position.replica == session.node.id, NOWHERE
        hint = result.current_leader
        if self._core.cluster.moved(topic, index, hint.leader_id, hint.leader_epoch, nodes):
            log.info("a partition has a new leader", extra={"topic": topic, "partition": index, "node": hint.leader_id})
            self._stir(position)
            return
        if follower:  # the leader has the last word, and may yet go on to recommend it
            self._near.refused(position.place, session.node.id, error, now)
        if isinstance(error, CorruptMessage) and not follower:
            self._break(position, corrupt(position.place, position.fetch_offset))
        elif not isinstance(error, OffsetOutOfRange):
            self._retry([position], error, now)
        elif follower:
            self._stir(position)
        else:
            self._if_still_so(position, lambda: self._out_of_range(position, result))

    def _read(self, position: Position, session: Session, result: PartitionData, now: float) -> int:
        """Take in what was answered; how many records of it the user can have."""
        position.high_watermark = result.high_watermark
        position.last_stable_offset, position.log_start_offset = result.last_stable_offset, result.log_start_offset
        if result.diverging_epoch.end_offset >= 0:
            end = result.diverging_epoch
            self._if_still_so(position, lambda: self._truncated(position, end.end_offset, end.epoch))
        elif result.preferred_read_replica not in (NOWHERE, session.node.id):
            self._recommended(position, session.node.id, result.preferred_read_replica, now)
        elif result.records:
            session.served(position.place)
            batches, damage = found(result.records, position.fetch_offset, self._isolation)
            ahead = [each for each in batches if each.next_offset > position.fetch_offset]
            if ahead:
                return self._buffer(position, ahead, result)
            self._nothing(position, session, result.records, batches, damage, now)
        return 0

    def _recommended(self, position: Position, leader: int, replica: int, now: float) -> None:
        """The leader has no records for us, but says who is nearer."""
        self._near.recommended(leader, replica, now)
        if vain := self._near.against(replica, position.place, now):
            where = f"{position.place[0]}-{position.place[1]}"
            self._retry([position], ConnectionLost(f"{where} is to be read from node {replica}, {vain}"), now)
            return
        position.replica = replica
        position.replica_until = now + self._core.options.metadata_max_age
        self._core.later(position.replica_until, lambda now: self._again([position]))
        self._stir(position)

    def _buffer(self, position: Position, batches: list[AnyBatch], result: PartitionData) -> int:
        position.needs = 0
        try:
            seen = visible(batches, result.aborted_transactions, self._isolation)
        except OttlaError as damage:  # of a control batch
            self._break(position, position.about(damage))
            return 0
        fetched = position.add(batches, seen, len(result.records or b""))
        self._stir(position)
        if fetched is None:
            return 0
        self._buffered += fetched.size
        if not position.paused:
            self._turn.setdefault(position)
        self._notify()
        return fetched.count

    def _nothing(
        self,
        position: Position,
        session: Session,
        records: Buffer,
        batches: list[AnyBatch],
        damage: OttlaError | None,
        now: float,
    ) -> None:
        """There are bytes, but no batch that the user is still to get."""
        if batches:
            behind = f"only records before offset {position.fetch_offset}, which was asked for"
            self._retry([position], position.about(RemoteProtocolError(behind)), now)
        elif damage is not None:
            self._damaged(position, damage)
        else:
            self._torn(position, session, records)

    def _torn(self, position: Position, session: Session, records: Buffer) -> None:
        """The next batch came cut, which is no damage as long as the answer may have had no room for all of it."""
        size, limit = needed(records), self._core.options.fetch_max_bytes
        room = session.room_for(position.place) if position.needs else 0
        if room < min(size, limit):
            position.needs = min(size, limit)
            self._stir(position)
        elif size > limit:
            self._break(position, position.about(too_large(size, limit)))
        else:
            self._damaged(position, cut(records))

    # -- looking positions up ----------------------------------------------------------------------------------------

    def _ask(
        self,
        node: Node,
        positions: Sequence[Position],
        exchange: Exchange,
        learn: Callable[[Position, Any], None],
        now: float,
    ) -> None:
        """Send a question about positions; ``learn`` what is answered about each."""
        asked = [(each, each.seeks) for each in positions]
        for each in positions:
            each.asking = True

        def ended(answer: Any, now: float) -> None:
            self._now = now
            still = [position for position, seeks in asked if position.seeks == seeks and not self.closed]
            for position in still:
                position.asking = False
            if isinstance(answer, UnsupportedVersion) and exchange.kind is OffsetForLeaderEpochRequest:
                for position in still:
                    self._valid(position)
            elif isinstance(answer, OttlaError):
                self._retry(still, answer, now)
            else:
                results = by_place(answer)
                for position in still:
                    self._learn(position, results.get(position.place), learn, now)
            self._notify()

        exchange.ended = ended
        self._core.submit(node, exchange, now)

    def _learn(self, position: Position, result: Any, learn: Callable[[Position, Any], None], now: float) -> None:
        where = f"{position.place[0]}-{position.place[1]}"
        if result is None:
            self._retry([position], RemoteProtocolError(f"{where} was left out of the answer"), now)
        elif result.error_code:
            self._retry([position], broker_error(result.error_code, where), now)
        else:
            position.well()
            learn(position, result)

    def _resolve(self, node: Node, positions: list[Position], now: float) -> None:
        wanted = {each.place: (self._timestamp(each.start, now), self._epoch(each)) for each in positions}
        timeout = self._core.options.request_timeout
        build = partial(list_offsets, wanted, self._isolation, timeout)
        exchange = Exchange(ListOffsetsRequest, _nobody, now + timeout, build=build)
        self._ask(node, positions, exchange, lambda each, result: self._resolved(each, result, exchange.version), now)

    def _resolved(self, position: Position, result: ListOffsetsPartitionResponse, version: int) -> None:
        offset = offset_in(result)
        if offset >= 0:
            position.go(offset)
            position.topic_id = self._core.cluster.topic_id(position.place[0])
            self._unresolved.pop(position, None)
        elif version == 0:
            position.start = Time(EARLIEST)  # no segment was finished by then: the record comes after the beginning
        else:
            position.start = Time(LATEST)  # no record is that young: wait for one
        self._stir(position)

    def _validate(self, node: Node, positions: list[Position], now: float) -> None:
        wanted = {each.place: (each.fetch_epoch, self._epoch(each)) for each in positions}
        until = now + self._core.options.request_timeout
        self._ask(
            node, positions, Exchange(ends_of_epochs(wanted), _nobody, until, versions=EPOCHS), self._validated, now
        )

    def _validated(self, position: Position, result: EpochEndOffset) -> None:
        if result.end_offset < 0 or result.leader_epoch < 0:
            self._if_still_so(position, lambda: self._truncated(position, -1, -1))
        elif result.end_offset < position.fetch_offset:
            self._if_still_so(position, lambda: self._truncated(position, result.end_offset, result.leader_epoch))
        else:
            self._valid(position)

    def _valid(self, position: Position) -> None:
        position.state, position.leader_epoch = State.FETCHING, self._epoch(position)
        self._stir(position)

    def _timestamp(self, start: Start, now: float) -> int:
        if isinstance(start, Ago):
            return max(0, int((self._wall + now - start.seconds) * 1000))
        return start.timestamp if isinstance(start, Time) else LATEST

    # -- what goes wrong ---------------------------------------------------------------------------------------------

    def _move(self, position: Position, start: Start) -> None:
        """Go on elsewhere by policy."""
        self._seek(position, start)
        self.on_reset(position.place)

    def _if_still_so(self, position: Position, what: Callable[[], None]) -> None:
        """Do ``what`` an answer means, if it is about the topic that was read, and of who leads the partition.

        A leader just deposed does not know that. Epochs are asked about by name, and so is what Fetch brings before
        version 13, so the topic may be a later one of the same name. Only new metadata tell.
        """
        name, seeks, led = position.place[0], position.seeks, position.led
        self._leave_node(position)
        position.asking = True
        found = self._core.topic(name, self._now, fresh=True)

        def arrived() -> None:
            if position.seeks != seeks or self.closed or self._core.closed:
                return
            position.asking = False
            if found.error is not None:
                self._retry([position], found.error, self._now)
            elif NO_UUID not in (position.topic_id, topic_id := self._core.cluster.topic_id(name)) and (
                position.topic_id != topic_id
            ):
                self._made_anew(position)
            elif self._led(position) != led:
                self._stir(position)  # the new leader has the last word
            else:
                what()
            self._notify()

        found.when_done(arrived)

    def _truncated(self, position: Position, end: int, epoch: int) -> None:
        """The log is as it was read up to ``end`` only, the last record there being of ``epoch``; -1: unknown."""
        if not position.is_sound(self._isolation):  # so it may be a mistake that the log does not reach so far
            position.state, position.stuck = State.FETCHING, True
            return
        topic, index = position.place
        where = {"topic": topic, "partition": index}
        log.warning("the log was truncated", extra=where | {"position": position.position, "end": end})
        if position.position <= end and position.position < position.fetch_offset:
            self._seek(position, Offset(position.position, position.position_epoch))  # the user saw nothing of it
        elif self._reset is not None:
            self._move(position, Offset(end, epoch) if end >= 0 else self._reset)
        else:
            self._drop(position)
            self._break(position, LogTruncated(topic, index, position.position, end if end >= 0 else None))

    def _made_anew(self, position: Position) -> None:
        if position.buffer:
            self._break(position, DataLoss())  # told in a moment
        elif self._followed.get(position.place[0]):
            where = {"topic": position.place[0], "partition": position.place[1]}
            log.warning("the topic was deleted and recreated: it is read from its beginning", extra=where)
            self._move(position, Time(EARLIEST))
        elif self._reset is not None:
            where = {"topic": position.place[0], "partition": position.place[1]}
            log.warning("the topic was deleted and made anew: the position is reset", extra=where)
            self._move(position, self._reset)
        else:
            anew = "the topic was deleted and made anew: seek, or choose reset='beginning' or 'end'"
            self._break(position, position.about(DataLoss(anew)))

    def _out_of_range(self, position: Position, result: PartitionData) -> None:
        topic, index = position.place
        log_start = f"; the log begins at {result.log_start_offset}" if result.log_start_offset >= 0 else ""
        if self._reset is not None and not position.buffer:
            where = {"topic": topic, "partition": index, "position": position.fetch_offset}
            log.warning("the position is outside the log and is reset", extra=where)
            self._move(position, self._reset)
            return
        advice = "seek to an offset within the log, or choose reset='beginning' or 'end'"
        self._break(position, OffsetOutOfRange(f"{topic}-{index} at {position.fetch_offset}{log_start}: {advice}"))

    def _retry(self, positions: Sequence[Position], error: OttlaError, now: float) -> None:
        """Partitions could not be asked about this time: try again, and say so if that goes on."""
        again: list[Position] = []
        for position in positions:
            self._leave_node(position)
            position.replica = NOWHERE
            if math.isnan(position.failing_since):
                position.failing_since = now
            # Brokers forget a partition for a moment when it moves; one that stays unknown is gone.
            unknown = isinstance(error, UnknownTopicOrPartition)
            gone = unknown and now - position.failing_since > self._core.options.api_timeout / 2
            if error.retriable and not gone and not self._core.closed:
                position.trouble = error
                again.append(position)
            elif gone and self._followed.get(position.place[0]) and not position.buffer:
                where = {"topic": position.place[0], "partition": position.place[1]}
                log.warning("the topic was deleted: it is not read any more", extra=where)
                self.unassign([position.place])
            else:
                self._break(position, error)
        if not again:
            return
        self._report(again, error, now)
        failures = max(each.failures for each in again)
        pause = self._core.backoff(failures)
        stale = isinstance(error, BrokerError) and error.stale_metadata and failures == 0
        self._core.refresh(now, 0.0 if stale else pause)
        for position in again:
            position.failures += 1
            position.retry_at = now + pause
        self._core.later(now + pause, lambda now: self._again(again))

    def _again(self, positions: Iterable[Position]) -> None:
        for position in positions:
            if self._positions.get(position.place) is position:
                self._stir(position)

    def _report(self, positions: Iterable[Position], error: OttlaError, now: float) -> None:
        stalled = [e for e in positions if now - e.failing_since >= STALL and now - e.reported >= STALL]
        for position in stalled:
            position.reported = now
        if stalled:
            first = stalled[0]
            extra = {
                "topic": first.place[0],
                "partition": first.place[1],
                "partitions": len(stalled),
                "why": str(error),
            }
            log.error("a partition is stalled", extra=extra | {"seconds": round(now - first.failing_since)})


def _nobody(answer: Any, now: float) -> None:
    """In place of what `Fetching._ask` puts there, and for what nobody wants to know."""


def _bad(result: PartitionData) -> bool:
    """It says that the position is not to be had there."""
    return bool(result.error_code) or result.diverging_epoch.end_offset >= 0
