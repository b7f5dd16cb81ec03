"""One member of a classic consumer group, as a table of states.

    OUT ── join ──► JOINING ── JoinGroup ──► SYNCING ── SyncGroup ──► STABLE ◄── Heartbeat
     ▲                 ▲                                                │
     │                 └───────── REVOKING ◄── a rebalance begins ──────┘
     └── left, or thrown out for good; nobody asks for records

Rules:
- What the user has to be told is a `Step`: `Revoke`, `Lose` or `Receive`. The machine goes on when the user is `done`
  with a `Revoke`; the others are news.
- Eager assignors (range, roundrobin, sticky) give everything up before JoinGroup. Cooperative ones (KIP-429) keep what
  they have, learn from the answer what they must give up, give that up and join again.
- JoinGroup and SyncGroup wait at the coordinator, so a member has a connection of its own. Heartbeats go out whenever
  nothing waits there: also while the user takes time to give partitions up.
- UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: the group has gone on without this member. All partitions are lost, at once,
  and it joins again: after the former as a new one, after the latter as itself, or the group would wait for what it was
  until that session ends. FENCED_INSTANCE_ID and whatever no repetition mends ends the membership with an error.
- A user who asks for no records for `max_poll_interval` is not there: the member leaves, so that others get the
  partitions, and comes back with the user.
- The leader also watches the topics of the group, and begins a rebalance when their partitions change, or, where
  members tell their racks, get replicas in other racks.
- A coordinator may die in silence while a request waits there, which may rightly take minutes. So others are asked
  meanwhile who coordinates the group; if that is another node now, the member goes there.
- A static member (KIP-345) does not say good-bye: its partitions wait for its return, until the session ends.

Source: AbstractCoordinator.java, ConsumerCoordinator.java, ClassicKafkaConsumer.java.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ottla.codec.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.codec.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.codec.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.errors import (
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    DecodeError,
    IllegalGeneration,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    OttlaError,
    RebalanceInProgress,
    RemoteProtocolError,
    TimeoutExpired,
    UnknownMemberId,
    broker_error,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import LEAVE_AS_MEMBERS, LEAVE_WITH_REASON
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.group.assignors import (
    Assignor,
    Member,
    Partitions,
    build_assigned,
    build_subscription,
    parse_assigned,
    parse_member,
)
from ottla.sdk.group.commits import Identity
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

_AGAIN = (
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    RemoteProtocolError,
    TimeoutExpired,
)
"""After these the same is tried again, perhaps with another coordinator."""
_GONE = (UnknownMemberId, IllegalGeneration)
_JOIN_SLACK = 5.0
"""Seconds that JoinGroup and SyncGroup may take beyond the time that members have to come."""
_LEAVE_TIMEOUT = 5.0
_ASK_AGAIN = 10.0
"""Seconds between two questions who coordinates the group, while a request waits at the coordinator."""
_SUBSCRIPTION_VERSION = 3


class State(Enum):
    OUT = auto()
    REVOKING = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Revoke:
    """These partitions are to be given up, in order: finish, commit, then say `done`."""

    places: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lose:
    """These partitions are gone already; somebody else may have them."""

    places: tuple[TopicPartition, ...]
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Receive:
    """These partitions came."""

    places: tuple[TopicPartition, ...]


Step = Revoke | Lose | Receive


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """See `ottla.sdk.client.Client.consumer`; durations in seconds."""

    assignors: tuple[Assignor, ...]
    instance_id: str | None = None
    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    max_poll_interval: float = 300.0


class Membership:
    """A member of ``group`` on a ``channel`` of its own.

    Args:
        notify: called with each new step, before anybody else hears of it, and with ``None`` when the membership has
            failed or the generation changed.
    """

    def __init__(
        self,
        core: ClientCore,
        group: str,
        options: MemberOptions,
        channel: str,
        notify: Callable[[Step | None, float], None],
    ) -> None:
        self._core, self._group, self._options, self._channel, self._notify = core, group, options, channel, notify
        self.state = State.OUT
        self.generation = -1
        self.member_id = ""
        self.owned: tuple[TopicPartition, ...] = ()
        self.steps: deque[Step] = deque()
        self.failed: OttlaError | None = None
        self.topics: tuple[str, ...] = ()
        self._cooperative = all(each.cooperative for each in options.assignors)
        self._assignor: Assignor = options.assignors[0]
        self._had: tuple[TopicPartition, ...] = ()
        """What the last assignment gave, and in which generation: an eager assignor may be told."""
        self._had_in = -1
        self._attempt = 0
        """Counts JoinGroups, so that answers to earlier ones are known as such."""
        self._parked = False
        """A request waits at the coordinator, so nothing else can pass."""
        self._rejoin = ""
        """Why to join again as soon as the rebalance that is under way has ended."""
        self._failures = 0
        self._trouble = ""
        self._since = 0.0
        """When the present state began."""
        self._heard = 0.0
        """When the coordinator last knew this member."""
        self._beat_due: Timer | None = None
        self._beating = False
        self._closed = False
        self._left = ""
        """Why this member is out of the group."""
        self._watched: dict[str, Callable[[], None]] = {}
        """As the leader: the topics of the whole group, and what ends their being watched."""
        self._counts: dict[str, int] = {}
        """How many partitions each of them had when they were assigned."""
        self._racks: Mapping[TopicPartition, frozenset[str]] = {}
        """Where these were then, if any member told its rack."""
        core.metadata.observers.append(self._metadata_changed)
        metrics = core.metrics
        self._joins = metrics.timing("join-time", group=group)
        self._beats = metrics.timing("heartbeat-response-time", group=group)
        self._rebalances = metrics.meter("rebalance", group=group)

    # -- the owner's side --------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        """Who commits now; ``None`` while the group is between two generations."""
        if self.generation < 0 or self.state is State.SYNCING:
            return None
        return Identity(self.generation, self.member_id, self._options.instance_id)

    def subscribe(self, topics: Sequence[str], now: float) -> None:
        """Want these topics from now on."""
        if tuple(topics) != self.topics:
            self.topics = tuple(topics)
            if self.state is not State.OUT:
                self.rejoin("the subscription changed", now)

    def join(self, now: float) -> None:
        """Become a member, if it is none."""
        if self.state is State.OUT and self.failed is None and not self._closed:
            self._begin(now)

    def rejoin(self, why: str, now: float) -> None:
        """Take part in a rebalance, as soon as what must be given up first is."""
        if self.state in (State.JOINING, State.SYNCING):
            self._rejoin = self._rejoin or why
        elif self.state is State.STABLE:
            log.info("a rebalance begins", extra={"group": self._group, "why": why})
            if self.owned and not self._cooperative:
                self._enter(State.REVOKING, now)
                self._tell(Revoke(self.owned), now)
            else:
                self._begin(now)

    def done(self, step: Step, now: float) -> None:
        """The user has dealt with a step; one that was overtaken by worse news is no matter."""
        if step not in self.steps:
            return
        self.steps.remove(step)
        if isinstance(step, Revoke):
            self.owned = tuple(each for each in self.owned if each not in set(step.places))
            if self.state is State.REVOKING:
                self._begin(now)

    def leave(self, why: str, now: float) -> Outcome[None]:
        """Leave the group; everything owned is lost. Settled when the coordinator knows, within a few seconds."""
        outcome: Outcome[None] = Outcome()
        self._left = why
        node = self._core.coordinators.known(self._group)
        member_id, instance_id = self.member_id, self._options.instance_id
        self._enter(State.OUT, now)
        self._reset(why, now)
        self._core.retire(self._channel)
        if not member_id or instance_id is not None or node is None or self._core.closed:
            outcome.succeed(None)
            return outcome

        def build(version: int) -> LeaveGroupRequest:
            if version < LEAVE_AS_MEMBERS:
                return LeaveGroupRequest(group_id=self._group, member_id=member_id)
            leaving = MemberIdentity(member_id=member_id, reason=why[:255] if version >= LEAVE_WITH_REASON else None)
            return LeaveGroupRequest(group_id=self._group, members=(leaving,))

        def ended(answer: LeaveGroupResponse | OttlaError, now: float) -> None:
            outcome.succeed(None)

        # Not on the member's own connection, where JoinGroup may be waiting.
        self._core.submit(node, Exchange(LeaveGroupRequest, ended, now + _LEAVE_TIMEOUT, build=build), now)
        return outcome

    def close(self, now: float) -> None:
        """Of no more use: leaves, if it has not yet, and never comes back."""
        if self.state is not State.OUT:
            self.leave("the consumer was closed", now)
        self._closed = True
        self._core.metadata.observers.remove(self._metadata_changed)
        self._watch(())

    def refused(self, error: OttlaError, identity: Identity, now: float) -> bool:
        """A commit was refused with what concerns the member; whether that is dealt with here."""
        # The coordinator may be in the next generation while its answer to JoinGroup, which says so, is under way: then
        # the commit came late, and that answer tells what becomes of the member.
        overtaken = self.state is State.JOINING and isinstance(error, IllegalGeneration)
        if identity == self.identity and not overtaken:
            self._hear(error, now)
        return True

    def explain(self, now: float) -> Iterator[str]:
        if self.state in (State.OUT, State.STABLE) and not self._trouble and not self._left:
            return
        since = self._heard if self.state is State.STABLE else self._since
        remote = self.state not in (State.OUT, State.REVOKING)
        where = f"; {self._core.coordinators.where(self._group)}" if remote else ""
        doing = {
            State.OUT: f"is out until your loop asks for the next batch: {self._left}",
            State.REVOKING: f"waits for your loop to give up {len(self.owned)} partition(s)",
            State.JOINING: "waits for all members to join",
            State.SYNCING: "waits for the leader's assignment",
            State.STABLE: "gets no heartbeat through",
        }[self.state]
        trouble = f"; last trouble: {self._trouble}" if self._trouble else ""
        yield f"group {self._group!r}: this member {doing}, for {now - since:.1f} s{where}{trouble}"

    # -- joining -----------------------------------------------------------------------------------------------------

    def _enter(self, state: State, now: float) -> None:
        if state is not self.state:
            self.state, self._since = state, now

    def _tell(self, step: Step, now: float) -> None:
        self.steps.append(step)
        self._notify(step, now)

    def _begin(self, now: float) -> None:
        self._enter(State.JOINING, now)
        self._left = ""
        self._rejoin = ""
        self._attempt += 1
        attempt = self._attempt
        found = self._core.coordinators.find(self._group, now)

        def arrived() -> None:
            self._core.soon(lambda now: self._join(attempt, found, now))

        found.when_done(arrived)

    def _join(self, attempt: int, found: Outcome[Node], now: float) -> None:
        if attempt != self._attempt or self.state is not State.JOINING:
            return
        if found.error is not None:
            self._hear(found.error, now)
            return
        node, asked = found.result(), now
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=int(self._options.session_timeout * 1000),
            rebalance_timeout_ms=int(self._options.max_poll_interval * 1000),
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
            protocol_type="consumer",
            protocols=tuple(
                JoinGroupRequestProtocol(name=each.name, metadata=self._subscription(each))
                for each in self._options.assignors
            ),
        )

        def ended(answer: JoinGroupResponse | OttlaError, now: float) -> None:
            self._parked = False
            if attempt != self._attempt or self.state is not State.JOINING:
                return
            if isinstance(answer, JoinGroupResponse) and answer.error_code:
                if answer.error_code == MemberIdRequired.code:
                    self.member_id = answer.member_id
                asked_for = f" with session_timeout={self._options.session_timeout:g}"
                asked_for = asked_for if answer.error_code == InvalidSessionTimeout.code else ""
                answer = broker_error(answer.error_code, f"JoinGroup of {self._group!r}{asked_for}")
            if isinstance(answer, OttlaError):
                self._hear(answer, now)
            else:
                self._joins.record(now - asked, now)
                self._joined(attempt, node, answer, now)

        # Brokers before 2.3 know no static members, and the error says so.
        versions = (5, 9) if self._options.instance_id is not None else None
        self._park(attempt, node, Exchange(request, ended, self._patience(now), versions=versions), now)

    def _patience(self, now: float) -> float:
        """When a request that waits for other members is given up."""
        return now + self._options.max_poll_interval + _JOIN_SLACK

    def _park(self, attempt: int, node: Node, exchange: Exchange, now: float) -> None:
        """Send what waits at the coordinator, and see to it that it waits at the right one."""
        self._parked = True
        self._core.submit(node, exchange, now, self._channel)

        def ask(now: float) -> None:
            if self._parked and attempt == self._attempt:
                self._core.later(now + _ASK_AGAIN, ask)
                found = self._core.coordinators.ask(self._group, now)
                found.when_done(lambda: compare(found))

        def compare(found: Outcome[Node]) -> None:
            if self._parked and attempt == self._attempt and found.error is None and found.result().id != node.id:
                log.warning(
                    "the group has another coordinator", extra={"group": self._group, "node": found.result().id}
                )
                self._core.retire(self._channel)  # which ends what waits, and so joins again

        self._core.later(now + _ASK_AGAIN, ask)

    def _subscription(self, assignor: Assignor) -> bytes:
        return build_subscription(
            assignor,
            self.topics,
            owned=self.owned if self._cooperative else self._had,
            generation=self.generation if self._cooperative else self._had_in,
            cooperative=self._cooperative,
            rack=self._core.options.rack,
        )

    def _joined(self, attempt: int, node: Node, answer: JoinGroupResponse, now: float) -> None:
        """The members are known: the leader assigns, the others wait for that."""
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self._heard = now
        self._enter(State.SYNCING, now)
        self._notify(None, now)
        names = {each.name: each for each in self._options.assignors}
        if answer.protocol_name not in names:
            wrong = f"group {self._group!r} chose {answer.protocol_name!r}, which this member did not offer"
            self._fail(RemoteProtocolError(wrong), now)
            return
        self._assignor = names[answer.protocol_name]
        if answer.leader != answer.member_id:
            self._watch(())
            self._sync(attempt, node, (), now)
            return
        try:
            members = [parse_member(each.member_id, each.group_instance_id, each.metadata) for each in answer.members]
        except DecodeError as error:
            self._fail(RemoteProtocolError(f"a member of group {self._group!r} sent no subscription: {error}"), now)
            return
        self._count(
            sorted({topic for each in members for topic in each.topics}),
            lambda now: self._assign(attempt, node, members, answer.skip_assignment, now),
        )

    def _count(self, topics: Sequence[str], then: Callable[[float], None]) -> None:
        """Learn how many partitions the group's topics have; those that do not exist have none."""
        self._watch(topics)
        left = len(topics)

        def arrived() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._core.soon(then)

        if not topics:
            self._core.soon(then)

        def ask(now: float) -> None:
            for name in topics:
                self._core.metadata.topic(name, now).when_done(arrived)

        self._core.soon(ask)

    def _watch(self, topics: Sequence[str]) -> None:
        held = {
            name: self._watched.pop(name) if name in self._watched else self._core.metadata.hold(name)
            for name in topics
        }
        for release in self._watched.values():
            release()
        self._watched = held
        if not topics:
            self._counts, self._racks = {}, {}

    def _assign(self, attempt: int, node: Node, members: list[Member], skip: bool, now: float) -> None:
        if attempt != self._attempt or self.state is not State.SYNCING:
            return
        self._counts = self._counted()
        self._racks = self._core.cluster.racks(self._watched) if any(each.rack for each in members) else {}
        result: Mapping[str, Sequence[TopicPartition]] = {}
        if not skip:
            try:
                counts = {name: count for name, count in self._counts.items() if count}
                result = self._assignor.assign(Partitions(counts, self._racks), members)
            except Exception as error:  # a user's own assignor may do anything
                failed = OttlaError(f"assignor {self._assignor.name!r} failed: {type(error).__name__}: {error}")
                failed.__cause__ = error
                self._fail(failed, now)
                return
        missing = sorted(name for name, count in self._counts.items() if not count)
        if missing:
            log.warning("topics of the group do not exist", extra={"group": self._group, "topics": missing})
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=member_id, assignment=build_assigned(places))
            for member_id, places in result.items()
        )
        self._sync(attempt, node, assignments, now)

    def _counted(self) -> dict[str, int]:
        topics = self._core.cluster.topics
        return {name: len(topics[name].partitions) if name in topics else 0 for name in self._watched}

    def _sync(self, attempt: int, node: Node, assignments: tuple[SyncGroupRequestAssignment, ...], now: float) -> None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
            protocol_type="consumer",
            protocol_name=self._assignor.name,
            assignments=assignments,
        )

        def ended(answer: SyncGroupResponse | OttlaError, now: float) -> None:
            self._parked = False
            if attempt != self._attempt or self.state is not State.SYNCING:
                return
            if isinstance(answer, SyncGroupResponse) and answer.error_code:
                answer = broker_error(answer.error_code, f"SyncGroup of {self._group!r}")
            if isinstance(answer, RebalanceInProgress):
                self._begin(now)
                return
            if isinstance(answer, OttlaError):
                self._hear(answer, now)
                return
            try:
                places = parse_assigned(answer.assignment)
            except DecodeError as error:
                self._fail(RemoteProtocolError(f"the leader of {self._group!r} sent no assignment: {error}"), now)
            else:
                self._synced(places, now)

        self._park(attempt, node, Exchange(request, ended, self._patience(now)), now)

    def _synced(self, places: tuple[TopicPartition, ...], now: float) -> None:
        self._enter(State.STABLE, now)
        self._failures, self._trouble, self._heard = 0, "", now
        self._rebalances.add(1, now)
        had, has = set(self.owned), set(places)
        revoked = tuple(each for each in self.owned if each not in has)
        added = tuple(each for each in places if each not in had)
        log.info(
            "partitions are assigned",
            extra={
                "group": self._group,
                "generation": self.generation,
                "member": self.member_id,
                "assigned": [f"{topic}-{partition}" for topic, partition in places],
            },
        )
        self.owned = (*self.owned, *added)
        self._had, self._had_in = places, self.generation
        if revoked:
            # Nobody may have them before they are given up: that takes a second round.
            self._enter(State.REVOKING, now)
            self._tell(Revoke(revoked), now)
        if added:
            self._tell(Receive(added), now)
        self._notify(None, now)
        self._schedule_beat(now + self._options.heartbeat_interval)
        if self._rejoin and not revoked:
            self.rejoin(self._rejoin, now)

    # -- heartbeats --------------------------------------------------------------------------------------------------

    def _schedule_beat(self, when: float) -> None:
        if self._beat_due is not None:
            self._beat_due.cancel()
        self._beat_due = self._core.later(when, self._beat)

    def _beat(self, now: float) -> None:
        if self.generation < 0 or self.state is State.OUT:
            return
        self._schedule_beat(now + self._options.heartbeat_interval)
        if self._parked or self._beating:
            return
        found = self._core.coordinators.find(self._group, now)
        generation = self.generation

        def arrived() -> None:
            if found.error is None:
                self._core.soon(lambda now: self._send_beat(found.result(), generation, now))
            else:
                error = found.error
                self._beating = False
                self._core.soon(lambda now: self._hear(error, now))

        self._beating = True
        found.when_done(arrived)

    def _send_beat(self, node: Node, generation: int, now: float) -> None:
        if generation != self.generation or self._parked or self.state is State.OUT:
            self._beating = False
            return
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
        )

        def ended(answer: HeartbeatResponse | OttlaError, answered: float) -> None:
            self._beating = False
            if generation != self.generation or self.state is State.OUT:
                return
            self._beats.record(answered - now, answered)
            if isinstance(answer, HeartbeatResponse):
                if answer.error_code in (0, RebalanceInProgress.code):
                    self._heard, self._trouble = answered, ""
                if not answer.error_code:
                    return
                answer = broker_error(answer.error_code, f"Heartbeat of {self._group!r}")
            self._hear(answer, answered)

        until = now + min(self._core.options.request_timeout, self._options.session_timeout)
        self._core.submit(node, Exchange(request, ended, until), now, self._channel)

    # -- errors ------------------------------------------------------------------------------------------------------

    def _hear(self, error: OttlaError, now: float) -> None:
        """What an error of the coordinator means for the member."""
        self._core.coordinators.heard(self._group, error)
        if self.state is State.OUT:
            return
        if isinstance(error, MemberIdRequired):
            self._begin(now)
        elif isinstance(error, RebalanceInProgress):
            if self.state is State.STABLE:  # otherwise this member takes part already
                self.rejoin("the group rebalances", now)
        elif isinstance(error, _GONE):
            log.warning("the group has gone on without this member", extra={"group": self._group, "why": error.name})
            known = self.member_id if isinstance(error, IllegalGeneration) else ""
            self._reset(f"the group has gone on without this member ({error.name})", now)
            self.member_id = known
            self._again(0.0, now)
        elif isinstance(error, _AGAIN):
            self._trouble = str(error)
            if isinstance(error, TimeoutExpired):
                log.error("the group does not answer", extra={"group": self._group, "why": self._trouble})
            if self.state in (State.JOINING, State.SYNCING):
                self._again(self._core.backoff(self._failures), now)
            else:
                self._schedule_beat(now + self._core.backoff(self._failures))
            self._failures += 1
        else:
            self._fail(error, now)

    def _again(self, delay: float, now: float) -> None:
        self._enter(State.JOINING, now)
        self._attempt += 1
        attempt = self._attempt

        def begin(now: float) -> None:
            if attempt == self._attempt and self.state is State.JOINING:
                self._begin(now)

        self._core.later(now + delay, begin)

    def _reset(self, why: str, now: float) -> None:
        """Be nobody; all that is owned is lost."""
        self.generation, self.member_id = -1, ""
        self._attempt += 1
        self.steps = deque(each for each in self.steps if isinstance(each, Lose))
        lost, self.owned = self.owned, ()
        if lost:
            self._tell(Lose(lost, why), now)

    def _fail(self, error: OttlaError, now: float) -> None:
        log.error("the membership has ended", extra={"group": self._group, "why": str(error)})
        self.failed = error
        self._enter(State.OUT, now)
        self._reset(str(error), now)
        self._notify(None, now)

    def _metadata_changed(self, now: float) -> None:
        """As the leader: other partitions need another assignment."""
        if not self._counts or self.state is not State.STABLE:
            return
        counted = self._counted()
        changed = sorted(name for name, count in counted.items() if count and count != self._counts.get(name))
        if changed:
            self.rejoin(f"the partitions of {', '.join(changed)} changed", now)
        elif self._racks:
            # Only what came is news: the racks of a node that is down are seen again when it is back.
            racks = self._core.cluster.racks(self._watched)
            if any(each - self._racks.get(place, frozenset()) for place, each in racks.items()):
                self.rejoin("partitions have replicas in other racks", now)
