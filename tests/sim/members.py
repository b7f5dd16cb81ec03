"""Members of a group: users who handle batches and commit, as users of `ottla.sdk.consumer` do.

A user may be slow, may cancel its calls, may leave in order or by an error, or may be killed; then the world starts a
successor.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import (
    Closed,
    CommitFailed,
    FencedInstanceId,
    OttlaError,
    StaleMemberEpoch,
    TimeoutExpired,
    UnreleasedInstanceId,
)
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.assignment.committing import BatchAssignment
from ottla.sdk.consume.assignment.leaving import CLOSED, LEAVE_TIMEOUT, STEP_TIMEOUT
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.options import ConsumerOptions, ConsumerPlan, TopicFilter
from ottla.sdk.consume.reading.fetcher import Fetched, Fetcher, Time
from ottla.sdk.core import LEAVE_TIMEOUT as MOMENT
from ottla.sdk.group.assignors import ASSIGNORS, Assignor, Member
from ottla.sdk.group.commit_queue import Assignment
from ottla.sdk.group.membership import Lose, Revoke
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.outcome import Outcome, any_of
from ottla.sdk.steps import Steps, settled
from tests.sim.data import PASSING, Place
from tests.sim.group_ledger import GroupLedger
from tests.sim.scripts import Whim, known
from tests.sim.users import Cancelled, Process, Script, Tasks, Violation, Wait, pause

GOODBYE = 5.0
"""Seconds within which a member has to say goodbye if it leaves while its block lasts."""


@dataclass(frozen=True, slots=True)
class Calling:
    """An assignor that calls the client while it assigns partitions."""

    assignor: Assignor
    call: Callable[[], None]

    @property
    def name(self) -> str:
        return self.assignor.name

    @property
    def cooperative(self) -> bool:
        return self.assignor.cooperative

    def user_data(self, owned: Sequence[Place], generation: int) -> bytes | None:
        return self.assignor.user_data(owned, generation)

    def assign(self, partitions: Mapping[str, int], members: Sequence[Member]) -> Mapping[str, Sequence[Place]]:
        self.call()
        return self.assignor.assign(partitions, members)


@dataclass(frozen=True, slots=True)
class Manner:
    """How the members of a group work."""

    assignors: tuple[str, ...]
    session: float
    heartbeat: float
    max_poll_interval: float
    commits: str
    """``soon``: each batch; ``sync``: each batch, and wait; ``all``: everything, and wait; ``auto``: automatically."""
    slow: float
    """Chance that a batch takes longer than `max_poll_interval`."""
    static: bool
    """Members have instance ids (KIP-345)."""
    impatient: float
    """Chance that a waiting call is cancelled."""
    leaves: float
    """Chance that the user leaves after a cancelled call, with unhandled batches."""
    tasks: float
    """Chance that a separate task awaits a commit, while the user continues."""
    curious: bool
    """Some members ask for the committed offsets, and soon cancel the call."""
    pattern: bool
    """Members subscribe to a pattern. A node that has just started may know no topics, so matching topics vanish."""
    protocol: str = "classic"
    """``classic`` or ``consumer``; ``mixed``: members of all kinds; ``up`` and ``down``: members of the other protocol
    replace the first ones; ``there and back``: classic ones, then others, then classic ones again;
    ``upgrade``: the brokers get the new protocol meanwhile; ``auto``: no classic group may be converted."""
    lingers: float = 0.0
    """Chance that a listener gives up partitions only after more than a session."""

    @classmethod
    def drawn(cls, chance: Random, own: Random) -> "Manner":
        session = chance.choice((1.5, 3.0, 6.0))
        return cls(
            assignors=chance.choice(
                (("range", "cooperative-sticky"), ("cooperative-sticky",), ("range",), ("roundrobin",), ("sticky",))
            ),
            session=session,
            heartbeat=session / chance.choice((3, 6)),
            max_poll_interval=chance.choice((2.0, 5.0, 20.0)),
            commits=chance.choice(("soon", "sync", "sync", "all", "auto")),
            slow=chance.choice((0.0, 0.0, 0.02)),
            static=chance.random() < 0.2,
            impatient=chance.choice((0.0, 0.05, 0.3)),
            leaves=chance.choice((0.0, 0.1)),
            tasks=own.choice((0.0, 0.3, 0.7)),
            curious=own.random() < 0.25,
            pattern=own.random() < 0.2,
        )

    def plan(
        self,
        group: str,
        topics: tuple[str, ...],
        instance: str | None,
        assigning: Callable[[], None],
        protocol: str = "classic",
    ) -> ConsumerPlan:
        classic = MemberOptions(
            group_protocol="classic",
            assignors=tuple(Calling(ASSIGNORS[name], assigning) for name in self.assignors),
            instance_id=instance,
            session_timeout=self.session,
            heartbeat_interval=self.heartbeat,
            max_poll_interval=self.max_poll_interval,
        )
        # Without the options of the classic protocol: the broker divides partitions, and sets the timeouts.
        modern = MemberOptions(instance_id=instance, max_poll_interval=self.max_poll_interval)
        member = (
            classic
            if protocol == "classic"
            else replace(modern, group_protocol="auto" if protocol == "auto" else "consumer")
        )
        options = ConsumerOptions(group=group, auto_commit=0.3 if self.commits == "auto" else None)
        regex = f"[{''.join(topics)}{PASSING}]"
        if self.pattern and protocol == "consumer re2":
            options = replace(options, pattern_re2=regex)
            return ConsumerPlan(start=Time(EARLIEST), member=member, options=options)
        if self.pattern:
            matches = TopicFilter(regex)
            return ConsumerPlan(start=Time(EARLIEST), matches=matches, member=member, options=options)
        return ConsumerPlan(start=Time(EARLIEST), topics=topics, member=member, options=options)


@dataclass(slots=True, eq=False)
class Consuming:
    """A member, and its own listener; ``name`` is for people, ``instance`` is its instance id."""

    name: str
    process: Process
    ledger: GroupLedger
    chance: Random
    manner: Manner
    topics: tuple[str, ...]
    instance: str | None
    rival: bool
    """Another member has its instance id, and one of the two is to be fenced."""
    protocol: str = "classic"
    refused: bool = False
    """Another member still has its instance id, for a session."""
    stop: Outcome[None] = field(default_factory=Outcome)
    """Settled when the user has to leave."""
    expected: dict[Place, int | None] = field(default_factory=dict)
    """Per assigned partition, the next offset; ``None`` before the first record."""
    seed: int = 0
    beside: Callable[[], None] | None = None
    """Sends a record by a producer in the same process."""
    departed: tuple[str, float, int] | None = None
    """The member id with which the client has just left the group on its own, when, and the coordinator's epoch."""
    away: int = 0
    """How often the user did not ask for batches for longer than `max_poll_interval`."""
    dawdled: int = 0
    """How many batches took longer than `max_poll_interval`."""
    leaving: bool = False
    waiting: bool = False
    """A call waits for a batch."""
    lingered: float = 0.0
    """Seconds that the listener took within the last call for a batch."""
    left: Outcome[None] = field(default_factory=Outcome)
    """Settled when the block has ended."""
    machine: ConsumerCore | None = None
    whims: Random = field(init=False)
    own: Random = field(init=False)
    """Draws for the separate tasks."""
    most: int | None = field(init=False)
    """`max_records`."""
    ahead: bool = field(init=False)
    """The user takes batches ahead of its next call, as blocking code does."""
    apart: bool = field(init=False)
    """One task asks for batches, and another one leaves the block."""
    in_hand: bool = False
    """A batch is being handled."""
    done: dict[Place, tuple[Assignment, int]] = field(default_factory=dict)
    """Per partition, the last assignment and the offset up to which its records are handled."""
    uncommitted: dict[Place, int] = field(default_factory=dict)
    """Offsets of which a call reported that they cannot be committed."""
    handled: tuple[Place, CommittedOffset, BatchAssignment] | None = None
    """The last handled batch, as arguments of a commit."""
    awaited: dict[Outcome[None], tuple[Place, int]] = field(default_factory=dict)
    """Commits that tasks await."""
    asked: dict[Assignment, int] = field(default_factory=dict)
    """Offsets that the user committed without waiting."""
    toils: tuple[float, bool] | None = None
    """How long the user handles the next batch, and whether it leaves then; meanwhile the member is removed."""
    removes: Callable[[], None] | None = None
    """Removes further members then."""
    begun: dict[Place, Assignment] = field(default_factory=dict)
    """Per partition, the assignment of the first batch since `assigned`."""
    ends_client: bool = False
    """The user leaves the client, and thereby the consumer."""
    enough: Outcome[None] = field(default_factory=Outcome)
    """Settled when the user cancels its current call."""

    def __post_init__(self) -> None:
        self.whims = Random(f"{self.seed} {self.name} whims")
        self.own = Random(f"{self.seed} {self.name} own")
        self.most = Random(f"{self.seed} {self.name} most").choice((None, None, 1, 3))
        self.apart = Random(f"{self.seed} {self.name} apart").random() < 0.25
        self.ahead = Random(f"{self.seed} {self.name} ahead").random() < 0.4

    def _feature(self, what: str) -> None:
        self.ledger.ledger.cluster.data.features[what] += 1

    @property
    def member_id(self) -> str:
        """The member id, as far as the client knows it."""
        return self.machine.membership.member_id if self.machine and self.machine.membership else ""

    @property
    def channel(self) -> str:
        """The channel of the member's own requests."""
        return "" if self.machine is None else f"group-{self.machine.fetcher.number}"

    def script(self) -> Script:
        process = self.process
        yield from process.connect()
        yield from known(process, self.topics)
        plan = self.manner.plan(self.ledger.group, self.topics, self.instance, self._assigning, self.protocol)
        plan = replace(plan, options=replace(plan.options, max_records=self.most))
        passing = self.ledger.passing
        # A commit of the deleted topic may reach the coordinator once there is a new one, and the next owner finds it.
        reset = Time(EARLIEST) if passing is not None and passing.filled else None
        fetcher = Fetcher(process.core, reset=reset)
        machine = self.machine = process.do(
            lambda: ConsumerCore(process.core, plan, fetcher, Tasks(), self, self._taken)
        )
        if self.ahead:
            machine.read_ahead(lambda *taken: taken)
        if self.manner.curious:
            process.run(self._asking())
        yield from process.perform(machine.enter({}, self.name), "opening a consumer")
        if self.manner.commits == "all":
            process.run(self._now_and_then(machine))
        if self.apart:
            process.run(self._leave_beside(machine))
        error: BaseException | None = None
        waited = process.clock.now
        while error is None and not (self.leaving if self.apart else self.stop.done):
            cancel = self._patience()
            held, since = self._held(machine), waited
            self.lingered = 0.0
            try:
                self.waiting = True
                taken = self._taken_ahead(machine)
                if taken is None:
                    taken = yield from process.perform(machine.next_batch(self.name), "the next batch", cancel=cancel)
                self.waiting, waited = False, process.clock.now
                self._check_polls(held, since)
                if self.ahead and self.own.random() < 0.02:  # as Ctrl-C in a thread
                    self._feature("a batch does not reach its caller")
                    process.do(partial(machine.put_back, taken[0]))
                    continue
                self.in_hand = True
                yield from self._handle(machine, *taken)
            except Cancelled as cancelled:
                process.history.add("·", self.name, "is cancelled")
                if self.waiting:
                    self._check_polls(held, since)
                if self.whims.random() < 0.05 and self.away < 2 and self.manner.max_poll_interval <= 5.0:
                    yield from self._stay_away(machine)
                    if self.departed is not None and not self.stop.done:
                        error = cancelled
                if not self.stop.done and self.chance.random() < self.manner.leaves:
                    error = cancelled
            except CommitFailed as failed:
                process.history.add("·", self.name, f"gets the error of a commit: {failed}")
                if self.waiting:
                    self._check_polls(held, since)
                self._check(failed)
            except FencedInstanceId as fenced:
                if not self.rival:
                    raise Violation("a member is fenced, and no other member has its instance id", self.name) from None
                process.history.add("·", self.name, "is fenced by a member with its instance id")
                error = fenced
            except UnreleasedInstanceId as refused:
                process.history.add("·", self.name, "is refused, because another member has its instance id")
                self._feature("an instance id is not released")
                self.refused, error = True, refused
            except Whim:
                if not self.leaving:  # listeners raise only while the block is left
                    raise
            except OttlaError as failed:
                if not (isinstance(failed, Closed) and self.leaving):
                    raise Violation("a member is stopped by a transient error", f"{self.name}: {failed!r}") from failed
            finally:
                self.waiting = False
        alone = process.name == self.name and process.name not in self.ledger.shared
        if self.leaving:
            yield Wait(self.left, "the end of the block, which another task leaves")
        elif error is None and alone and self.own.random() < 0.2:
            yield from self._end_with_client(machine)
        else:
            yield from self._leave(machine, error)

    def _held(self, machine: ConsumerCore) -> list[Assignment]:
        """The assignments that the member has now."""
        if machine.membership is None or machine.commits is None:
            return []
        found = map(machine.commits.assignment, machine.membership.owned)
        return [each for each in found if each is not None and not each.over]

    def _check_polls(self, held: list[Assignment], since: float) -> None:
        """No member leaves by `max_poll_interval` while its user waits, unless its own listener takes that long.

        Args:
            since: when the wait for the last batch ended; a freeze after that counts as handling it.
        """
        patient = self.process.thawed <= since and self.lingered < self.manner.max_poll_interval / 2
        if patient and any("max_poll_interval" in each.over for each in held):
            raise Violation("a member leaves its group while its user waits for a batch", self.name)

    def _taken_ahead(self, machine: ConsumerCore) -> Taken | None:
        taken: Taken | None = None
        if machine.ahead is not None:
            taken = machine.ahead.take(self.name, self.process.clock.now)
        if taken is not None:
            self._feature("a batch is taken ahead of its call")
        return taken

    def _leave_beside(self, machine: ConsumerCore) -> Script:
        """Leave the block when that is due, while its loop waits for a batch."""
        yield Wait(self.stop, "the end")
        while not self.waiting:
            yield 0.01
            if self.leaving:
                return
        self._feature("a block is left while another task waits for a batch")
        yield from self._leave(machine, None, f"{self.name} beside")

    def _stay_away(self, machine: ConsumerCore) -> Script:
        """Ask for no batch for longer than `max_poll_interval`: then the client has to leave the group."""
        self.away += 1
        self._feature("a member asks for no batch after a call that was cancelled")
        frozen, began = self.process.thawed, self.process.clock.now
        own = Random(f"{self.seed} {self.name} away at {began}")
        limit, member, epoch = self.manner.max_poll_interval, self.member_id, self.ledger.coordinator()
        leaves = own.random() < 0.5 and not self.apart
        yield limit + own.uniform(0.0005, 0.003) if leaves else limit * 1.1
        if machine.membership is not None and self.process.thawed == frozen and machine.membership.generation >= 0:
            since = f"asked for no batch since {began:.3f}"
            raise Violation("a member keeps its partitions without asking for batches", f"{self.name}: {since}")
        if leaves and self.process.thawed == frozen:
            self._feature("a block is left while a goodbye is under way")
            self.departed = member, began + limit, epoch
            if own.random() < 0.5:
                self.stop.succeed(None)

    def _patience(self) -> Outcome[None]:
        """The outcome that cancels a call: when the user has to leave, or loses patience."""
        enough = self.enough = Outcome()
        if self.chance.random() < self.manner.impatient:
            self.process.clock.later(self.chance.choice((0.0, 0.01, 0.1, 1.0)), lambda: enough.succeed(None))
        return enough if self.apart else any_of((self.stop, enough))

    # -- batches -----------------------------------------------------------------------------------------------------

    def _handle(self, machine: ConsumerCore, fetched: Fetched, claim: BatchAssignment | None) -> Script:
        process, chance = self.process, self.chance
        place = (fetched.topic, fetched.partition)
        records = [(record.offset, record.value or b"") for record in fetched.records()]
        if fetched.cut is not None:
            self._feature("a batch is handed out in parts")
        if self.most is not None and len(records) > self.most:
            raise Violation("a batch has more records than max_records", f"{self.name}: {len(records)}")
        if process.history.wanted:
            process.history.add("·", self.name, f"gets {place[0]}-{place[1]} {[each for each, _ in records]}")
        if place not in self.expected or machine.membership is None or claim is None:
            raise Violation("a member gets records of a partition without `assigned`", f"{self.name}: {place}")
        membership, assignment = machine.membership, claim.assignment
        # A topic that is recreated has another assignment, and stays with its member.
        if place[0] != PASSING and self.begun.setdefault(place, assignment) is not assignment:
            raise Violation("a partition is assigned again, and `assigned` is not called", f"{self.name}: {place}")
        if not any(isinstance(change, Revoke) and place in change.places for change in membership.changes):
            # A partition that is about to be revoked may still be read: no other member has it before that.
            self.ledger.may_read(self.name, membership.member_id, membership.generation, place)
        if place[0] != PASSING:
            expected = self.expected[place]
            if expected is None:
                expected = self.ledger.begins(self.process.name, place, records[0][0])
            self.expected[place] = self.ledger.read(self.name, place, expected, records)
        if self.toils is not None:
            yield from self._toil(*self.toils)
        elif chance.random() < self.manner.slow and self.dawdled < 5:
            self.dawdled += 1
            yield self.manner.max_poll_interval * 1.5
        elif chance.random() < 0.5:
            yield chance.uniform(0.0, 0.1)
        if assignment.over:
            process.history.add("·", self.name, f"lost {place[0]}-{place[1]} meanwhile: {assignment.over}")
        self.ledger.handled(place, records)
        at = CommittedOffset(fetched.next_offset, fetched.leader_epoch)
        self.handled = place, at, claim
        self.done[place], self.in_hand = (assignment, at.offset), False
        if self.manner.commits == "soon":
            self.asked[assignment] = at.offset
            process.do(lambda: machine.committer.commit_batch_soon(place, at, claim))
        elif self.manner.commits in ("sync", "all"):
            yield from self._commit_and_wait(machine, place, at, claim)

    def _commit_and_wait(
        self, machine: ConsumerCore, place: Place, at: CommittedOffset, claim: BatchAssignment
    ) -> Script:
        process, assignment = self.process, claim.assignment
        if self.manner.commits == "all":
            if self.own.random() < 0.2 and not assignment.over:
                process.do(lambda: machine.committer.commit_soon(None))
            told = assignment.over and self.uncommitted.get(place) == at.offset  # the error is raised once
            offsets = {} if told else {place: at.offset}
            yield from self._commit(machine.committer.commit(None), offsets, self._patience())
        elif self.own.random() < self.manner.tasks:
            self._feature("a task waits for a commit, and its user goes on")
            process.run(self._commit_beside(machine, place, at, claim))
        else:
            yield from self._commit_batch(machine, place, at, claim, self._patience())

    def _commit_beside(
        self, machine: ConsumerCore, place: Place, at: CommittedOffset, claim: BatchAssignment
    ) -> Script:
        yield from self._commit_batch(machine, place, at, claim, Outcome())

    def _commit_batch(
        self, machine: ConsumerCore, place: Place, at: CommittedOffset, claim: BatchAssignment, cancel: Outcome[None]
    ) -> Script:
        """Commit a batch, and wait for its partition, not for others."""
        ended: Outcome[None] = Outcome()
        self.awaited[ended] = place, at.offset
        try:
            yield from self._commit(machine.committer.commit_batch(place, at, claim), {place: at.offset}, cancel)
        finally:
            del self.awaited[ended]
            ended.succeed(None)

    def _commit(self, steps: Steps[None], offsets: Mapping[Place, int], cancel: Outcome[None]) -> Script:
        process = self.process
        try:
            yield from process.perform(steps, "commit", within=process.core.options.api_timeout, cancel=cancel)
        except (CommitFailed, TimeoutExpired) as failed:
            process.history.add("·", self.name, f"commit failed: {failed}")
            if isinstance(failed, CommitFailed):
                self._check(failed)
                self.uncommitted |= failed.offsets
        except OttlaError as failed:
            if isinstance(failed, Closed) and (self.leaving or process.core.closed):
                return
            raise Violation("a commit fails with an unexpected error", f"{self.name}: {failed!r}") from failed
        else:
            self.ledger.acknowledged(self.name, offsets)

    def _check(self, failed: CommitFailed) -> None:
        """A member of KIP-848 repeats the commits of an old epoch in the present one, or has lost the partitions."""
        if isinstance(failed.cause, StaleMemberEpoch):
            raise Violation("a commit fails because its epoch is old", f"{self.name}: {failed}")

    def _toil(self, seconds: float, leaves: bool) -> Script:
        """Handle a batch for long, while an administrator removes the member and it joins again; perhaps leave then."""
        self.toils = None
        cluster = self.ledger.ledger.cluster
        if cluster.groups.expel(self.ledger.group, self.member_id):
            self._feature("a member is removed while its user handles a batch")
            removes, self.removes = self.removes, None
            if removes is not None:
                removes()
            yield seconds
            if leaves:
                self.stop.succeed(None)

    # -- tasks beside ------------------------------------------------------------------------------------------------

    def _now_and_then(self, machine: ConsumerCore) -> Script:
        """Commit everything now and then: a failed commit is not repeated by the client, but by its user."""
        while not machine.closed and not self.leaving:
            yield self.own.uniform(0.05, 1.5)
            if self.in_hand or machine.closed or self.leaving:
                continue
            offsets = {place: at for place, (assignment, at) in self.done.items() if not assignment.over}
            enough: Outcome[None] = Outcome()
            if self.own.random() < 0.3:
                self.process.clock.later(self.own.choice((0.0, 0.002, 0.02)), partial(enough.succeed, None))
            try:
                yield from self._commit(machine.committer.commit(None), offsets, enough)
            except Cancelled:
                self.process.history.add("·", self.name, "does not wait for a commit")

    def _asking(self) -> Script:
        """Ask for the committed offsets again and again."""
        process, group = self.process, self.ledger.group
        for number in range(40):
            enough: Outcome[None] = Outcome()
            process.clock.later(self.own.choice((0.0, 0.001, 0.005, 0.05, 0.5)), partial(enough.succeed, None))
            try:
                yield from process.perform(
                    settled(calls.committed(process.core, {group: None}, process.clock.now)), "committed", cancel=enough
                )
            except Cancelled:
                self._feature("committed is cancelled")
            except OttlaError as failed:
                process.history.add("·", self.name, f"cannot get the group's offsets: {failed}")
            yield self.own.uniform(0.0, 0.02 if number < 10 else 0.5)
            if self.leaving:
                return

    def _taken(self, offsets: Mapping[Place, CommittedOffset]) -> None:
        """on_commit: the coordinator has these offsets. The callback may call the client."""
        self._feature("on_commit calls the client")
        for ended, (place, offset) in self.awaited.items():
            if place in offsets and offsets[place].offset >= offset:
                self.process.bounded(Wait(ended, f"a commit of {place[0]}-{place[1]}, which is acknowledged", 0.0))
        self.process.do(lambda: None)
        if self.beside is not None and self.own.random() < 0.3:
            self.beside()

    def _assigning(self) -> None:
        """Call the client from an assignor, which is allowed."""
        self._feature("an assignor calls the client")
        self.commit_handled()
        self.process.do(lambda: None)

    # -- the listener ------------------------------------------------------------------------------------------------

    async def assigned(self, places: Sequence[Place]) -> None:
        self._told("assigned", places)
        for place in places:
            self.begun.pop(place, None)
        self._check_known()
        self.expected |= dict.fromkeys(places)
        self._call_in("assigned", places)
        await self._dawdle()

    async def revoked(self, places: Sequence[Place]) -> None:
        self._told("revoked", places)
        membership = self.machine.membership if self.machine is not None else None
        if membership is not None:
            lost = {place for change in membership.changes if isinstance(change, Lose) for place in change.places}
            if lost.intersection(places) or not set(places).issubset(membership.owned):
                raise Violation("revoked is called for partitions that are lost", f"{self.name}: {places}")
        self._forget(places)
        self._call_in("revoked", places)
        if not self.leaving and self.whims.random() < self.manner.lingers:
            self._feature("a listener gives up partitions after more than a session")
            await self._linger(1.3 * self.manner.session)
        await self._dawdle()
        if self.leaving and self.whims.random() < 0.2:
            self._feature("revoked raises where a block is left")
            raise Whim("of a listener")

    async def lost(self, places: Sequence[Place]) -> None:
        self._told("lost", places)
        self._forget(places)
        self._call_in("lost", places)
        await self._dawdle()

    def _check_known(self) -> None:
        """`assigned` comes after the end of earlier partitions was reported."""
        membership = self.machine.membership if self.machine is not None else None
        if membership is not None and (forgotten := self.expected.keys() - set(membership.owned)):
            raise Violation(
                "partitions are gone, and neither `revoked` nor `lost` is called", f"{self.name}: {forgotten}"
            )

    def _call_in(self, what: str, places: Sequence[Place]) -> None:
        """Call the client from a listener, which is allowed."""
        process, machine = self.process, self.machine
        if machine is None or machine.closed or self.whims.random() > 0.3:
            return
        self._feature(f"{what} of a listener calls the client")
        self.commit_handled()
        if what == "assigned" and (owned := [each for each in places if each in machine.fetcher.places]):
            process.do(lambda: machine.navigation.pause(owned))
            process.do(lambda: machine.navigation.resume(owned))
        if self.beside is not None:
            self._feature("a listener sends")
            self.beside()

    def commit_handled(self) -> None:
        """Commit the last handled batch; a delivery callback may call this, too."""
        machine, handled = self.machine, self.handled
        if machine is not None and handled is not None and not machine.closed:
            place, at, claim = handled
            if self.manner.commits == "all" and at.offset <= claim.assignment.asked:
                return  # naming an offset again would send it again
            self.process.do(lambda: machine.committer.commit_batch_soon(place, at, claim))

    def _told(self, what: str, places: Sequence[Place]) -> None:
        self.process.history.add("·", self.name, f"its listener gets {what} {list(places)}")

    def _forget(self, places: Sequence[Place]) -> None:
        for place in places:
            if place not in self.expected:
                raise Violation("a partition is revoked or lost twice", f"{self.name}: {place}")
            del self.expected[place]

    async def _dawdle(self) -> None:
        if self.chance.random() < 0.3:
            if self.chance.random() < self.manner.impatient:
                self.enough.succeed(None)
            await self._linger(self.chance.uniform(0.0, 0.5))

    async def _linger(self, seconds: float) -> None:
        self.lingered += seconds
        await pause(seconds)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _leave(self, machine: ConsumerCore, error: BaseException | None, task: str = "") -> Script:
        process = self.process
        self.ledger.leaves(process.name)
        process.history.add("·", self.name, f"leaves by {error!r}" if error else "leaves")
        limit = LEAVE_TIMEOUT + 2 * STEP_TIMEOUT if error is None else 4 * STEP_TIMEOUT
        self.leaving = True
        began, member, cancelled = process.clock.now, self.member_id, False
        cancel: Outcome[None] = Outcome()
        if self.chance.random() < self.manner.impatient:
            process.clock.later(self.chance.choice((0.0, 0.01, 0.1)), lambda: cancel.succeed(None))
        try:
            yield from process.perform(
                machine.leave(error, task or self.name), "leaving the group", within=limit, cancel=cancel
            )
        except (CommitFailed, TimeoutExpired) as failed:
            process.history.add("·", self.name, f"leaves with records that are not committed: {failed}")
        except Cancelled:
            cancelled = True
            process.history.add("·", self.name, "is cancelled while it leaves")
        except Whim as raised:
            if not getattr(raised, "__notes__", ()):
                self._check_committed()
        if error is None and not cancelled and process.clock.now < began + STEP_TIMEOUT:
            self.ledger.left(self.name, member, self.instance)
        if not cancelled and process.clock.now < began + STEP_TIMEOUT:
            self._check_departed()
        self.left.succeed(None)

    def _end_with_client(self, machine: ConsumerCore) -> Script:
        """Leave the client without leaving the consumer: its member must send LeaveGroup nevertheless."""
        process, core = self.process, self.process.core
        process.history.add("·", self.name, "leaves its client, and not its consumer")
        self._feature("a client is left before its consumer")
        self.leaving = self.ends_client = True
        began, member = process.clock.now, self.member_id
        held = [assignment for assignment, _ in self.done.values() if not assignment.over]
        yield from process.perform(core.leave_groups(), "leaving all groups", within=MOMENT)
        if any("max_poll_interval" in each.over for each in held):
            raise Violation("max_poll_interval is counted while a client is left", self.name)
        said = process.clock.now < began + MOMENT / 2
        process.do(lambda: core.close(process.clock.now))
        if not machine.closed:
            raise Violation("a consumer outlives its client", self.name)
        try:
            yield from process.perform(machine.leave(None, self.name), "leaving a closed consumer", within=MOMENT)
        except (CommitFailed, TimeoutExpired) as failed:
            process.history.add("·", self.name, f"leaves with records that are not committed: {failed}")
        else:
            self._check_committed("the client was closed", "the consumer is closed")
        if said:
            self.ledger.left(self.name, member, self.instance)
            self._check_departed()

    def _check_departed(self) -> None:
        """The end of the block has waited for an earlier goodbye, too, unless that has reached its own deadline."""
        if self.departed is None:
            return
        member, when, epoch = self.departed
        if self.process.clock.now < when + GOODBYE and self.ledger.coordinator() == epoch:
            self.ledger.left(self.name, member, self.instance)

    def _check_committed(self, *ends: str) -> None:
        """No commit failed, so every requested commit has arrived, unless the assignment ended before the consumer."""
        for assignment, offset in self.asked.items():
            if assignment.over in ("", CLOSED, *ends):
                self.ledger.acknowledged(self.name, {assignment.place: offset})
