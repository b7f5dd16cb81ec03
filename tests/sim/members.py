"""Members of a group, each a user who handles batches and commits, as one would with `ottla.sdk.consumer`.

A user may be slow, may cancel what it waits for, may leave in order or by an error, or may be killed; the world sees to
it that somebody follows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import Closed, CommitFailed, FencedInstanceId, OttlaError, TimeoutExpired
from ottla.sdk import calls
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.committing import BatchAssignment
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.fetcher import Fetched, Fetcher, Time
from ottla.sdk.consume.leaving import CLOSE_TIMEOUT, CLOSED, LEAVE_TIMEOUT
from ottla.sdk.consume.options import ConsumerOptions, TopicFilter
from ottla.sdk.core import LEAVE_TIMEOUT as MOMENT
from ottla.sdk.group.assignors import ASSIGNORS, Assignor, Member
from ottla.sdk.group.commits import Assignment
from ottla.sdk.group.membership import Lose, MemberOptions, Revoke
from ottla.sdk.outcome import Outcome, any_of
from ottla.sdk.steps import Steps, settled
from tests.sim.data import PASSING, Place
from tests.sim.group_ledger import GroupLedger
from tests.sim.scripts import Whim, known
from tests.sim.users import Cancelled, Process, Script, Tasks, Violation, Wait, pause


@dataclass(frozen=True, slots=True)
class Calling:
    """An assignor that calls the client while it divides partitions."""

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
    """``soon``: after each batch; ``sync``: that, and wait for it; ``all``: everything, and wait;
    ``auto``: by itself."""
    slow: float
    """Chance that a batch takes longer than `max_poll_interval`."""
    static: bool
    """Whether members have names that last (KIP-345)."""
    impatient: float
    """Chance that a call is cancelled while it waits."""
    leaves: float
    """Chance that the user leaves, with what is in hand, where a call was cancelled."""
    tasks: float
    """Chance that a task of its own waits for a commit, and the user goes on."""
    curious: bool
    """Some ask where the group stands, and do not wait for long."""
    pattern: bool
    """Topics are found by a pattern; a node that has just started may know of none, so that they come and go."""

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

    def options(
        self, group: str, topics: tuple[str, ...], instance: str | None, assigning: Callable[[], None]
    ) -> ConsumerOptions:
        member = MemberOptions(
            assignors=tuple(Calling(ASSIGNORS[name], assigning) for name in self.assignors),
            instance_id=instance,
            session_timeout=self.session,
            heartbeat_interval=self.heartbeat,
            max_poll_interval=self.max_poll_interval,
        )
        auto = 0.3 if self.commits == "auto" else None
        if self.pattern:
            matches = TopicFilter(f"[{''.join(topics)}{PASSING}]")
            return ConsumerOptions(start=Time(EARLIEST), matches=matches, group=group, member=member, auto_commit=auto)
        return ConsumerOptions(start=Time(EARLIEST), topics=topics, group=group, member=member, auto_commit=auto)


@dataclass(slots=True, eq=False)
class Consuming:
    """One member; ``name`` is for people, ``instance`` for the group. It is its own listener, too."""

    name: str
    process: Process
    ledger: GroupLedger
    chance: Random
    manner: Manner
    topics: tuple[str, ...]
    instance: str | None
    rival: bool
    """Somebody else has its instance id, too, and one of them is to be told."""
    stop: Outcome[None] = field(default_factory=Outcome)
    """Settled when the user is to leave."""
    expected: dict[Place, int | None] = field(default_factory=dict)
    """Per partition that the user was told of, the next offset; ``None`` until the first."""
    seed: int = 0
    beside: Callable[[], None] | None = None
    """Sends a record with a producer of the same process."""
    away: int = 0
    """How often it has asked for no batch for too long."""
    dawdled: int = 0
    """How many batches took it too long."""
    leaving: bool = False
    waiting: bool = False
    """It waits for a batch."""
    left: Outcome[None] = field(default_factory=Outcome)
    """Settled when the block is left."""
    machine: ConsumerCore | None = None
    whims: Random = field(init=False)
    own: Random = field(init=False)
    """Of the tasks beside."""
    most: int | None = field(init=False)
    """`max_records`."""
    ahead: bool = field(init=False)
    """It takes batches ahead of its next call, as code that blocks does."""
    apart: bool = field(init=False)
    """One task asks for batches, and another leaves the block."""
    in_hand: bool = False
    """A batch is being handled."""
    done: dict[Place, tuple[Assignment, int]] = field(default_factory=dict)
    """What has been handled of each partition, and under which assignment."""
    uncommitted: dict[Place, int] = field(default_factory=dict)
    """What a call said that it cannot be committed."""
    handled: tuple[Place, CommittedOffset, BatchAssignment] | None = None
    """The last batch: what commits it."""
    awaited: dict[Outcome[None], tuple[Place, int]] = field(default_factory=dict)
    """Commits that tasks wait for."""
    asked: dict[Assignment, int] = field(default_factory=dict)
    """What is to be committed, and was not waited for."""
    ends_client: bool = False
    """The client is being left, and its consumer with it."""
    enough: Outcome[None] = field(default_factory=Outcome)
    """Settled when the user has waited for long enough, and cancels the call that is under way."""

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
        """Who it is to the group, as far as it knows."""
        return self.machine.membership.member_id if self.machine and self.machine.membership else ""

    def script(self) -> Script:
        process = self.process
        yield from process.connect()
        yield from known(process, self.topics)
        options = self.manner.options(self.ledger.group, self.topics, self.instance, self._assigning)
        options = replace(options, max_records=self.most)
        fetcher = Fetcher(process.core, reset=None)
        machine = self.machine = process.do(
            lambda: ConsumerCore(process.core, options, fetcher, Tasks(), self, self._taken)
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
        while error is None and not (self.leaving if self.apart else self.stop.done):
            cancel = self._patience()
            try:
                self.waiting = True
                taken = self._taken_ahead(machine)
                if taken is None:
                    taken = yield from process.perform(machine.next_batch(self.name), "the next batch", cancel=cancel)
                self.waiting = False
                if self.ahead and self.own.random() < 0.02:  # what Ctrl-C does to a thread
                    self._feature("a batch does not reach its caller")
                    process.do(partial(machine.put_back, taken[0]))
                    continue
                self.in_hand = True
                yield from self._handle(machine, *taken)
            except Cancelled as cancelled:
                process.history.add("·", self.name, "is cancelled")
                if self.whims.random() < 0.05 and self.away < 2 and self.manner.max_poll_interval <= 5.0:
                    yield from self._stay_away(machine)
                if not self.stop.done and self.chance.random() < self.manner.leaves:
                    error = cancelled
            except CommitFailed as failed:
                process.history.add("·", self.name, f"hears that a commit failed: {failed}")
            except FencedInstanceId as fenced:
                if not self.rival:
                    raise Violation("a member is fenced by nobody", self.name) from None
                process.history.add("·", self.name, "hears that somebody has taken its place")
                error = fenced
            except Whim:
                if not self.leaving:  # which is when listeners raise
                    raise
            except OttlaError as failed:
                if not (isinstance(failed, Closed) and self.leaving):
                    raise Violation("a member is stopped by what passes", f"{self.name}: {failed!r}") from failed
            finally:
                self.waiting = False
        alone = process.name == self.name and process.name not in self.ledger.shared
        if self.leaving:
            yield Wait(self.left, "the end of the block, which another task leaves")
        elif error is None and alone and self.own.random() < 0.2:
            yield from self._end_with_client(machine)
        else:
            yield from self._leave(machine, error)

    def _taken_ahead(self, machine: ConsumerCore) -> Taken | None:
        taken: Taken | None = None
        if machine.ahead is not None:
            taken = machine.ahead.take(self.name, self.process.clock.now)
        if taken is not None:
            self._feature("a batch is taken ahead of its call")
        return taken

    def _leave_beside(self, machine: ConsumerCore) -> Script:
        """Leave the block, once that is due, while its loop waits for a batch."""
        yield Wait(self.stop, "the end")
        while not self.waiting:
            yield 0.01
            if self.leaving:
                return
        self._feature("a block is left while another task waits for a batch")
        yield from self._leave(machine, None, f"{self.name} beside")

    def _stay_away(self, machine: ConsumerCore) -> Script:
        """Ask for no batch for so long that the group may not wait for it."""
        self.away += 1
        self._feature("a member asks for no batch after a call that was cancelled")
        frozen, began = self.process.thawed, self.process.clock.now
        yield self.manner.max_poll_interval * 1.1
        if machine.membership is not None and self.process.thawed == frozen and machine.membership.generation >= 0:
            since = f"asked for no batch since {began:.3f}"
            raise Violation("a member keeps its partitions without asking for batches", f"{self.name}: {since}")

    def _patience(self) -> Outcome[None]:
        """Settled when the user is to leave, or has waited for long enough."""
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
            raise Violation("a batch has more records than it may", f"{self.name}: {len(records)}")
        if process.history.wanted:
            process.history.add("·", self.name, f"gets {place[0]}-{place[1]} {[each for each, _ in records]}")
        if place not in self.expected or machine.membership is None or claim is None:
            raise Violation("a member gets a partition that it was not told of", f"{self.name}: {place}")
        membership, assignment = machine.membership, claim.assignment
        if not any(isinstance(step, Revoke) and place in step.places for step in membership.steps):
            # What is to be given up, and was not yet, is nobody else's.
            self.ledger.may_read(self.name, membership.member_id, membership.generation, place)
        expected = self.expected[place]
        if expected is None:
            expected = self.ledger.begins(self.process.name, place, records[0][0])
        self.expected[place] = self.ledger.read(self.name, place, expected, records)
        if chance.random() < self.manner.slow and self.dawdled < 5:
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
            told = assignment.over and self.uncommitted.get(place) == at.offset  # which is said once
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
        """Have a batch committed, and wait: for that, and for no other partition."""
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
                self.uncommitted |= failed.offsets
        except OttlaError as failed:
            if isinstance(failed, Closed) and (self.leaving or process.core.closed):
                return
            raise Violation("a commit fails in another way than it may", f"{self.name}: {failed!r}") from failed
        else:
            self.ledger.acknowledged(self.name, offsets)

    # -- tasks beside ------------------------------------------------------------------------------------------------

    def _now_and_then(self, machine: ConsumerCore) -> Script:
        """Have all committed, whether or not it was tried before: a commit that fails is the user's to repeat."""
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
        """Ask again and again where the group stands."""
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
                process.history.add("·", self.name, f"does not learn where its group stands: {failed}")
            yield self.own.uniform(0.0, 0.02 if number < 10 else 0.5)
            if self.leaving:
                return

    def _taken(self, offsets: Mapping[Place, CommittedOffset]) -> None:
        """The coordinator has these offsets; what is told so may call the client."""
        self._feature("on_commit calls the client")
        for ended, (place, offset) in self.awaited.items():
            if place in offsets and offsets[place].offset >= offset:
                self.process.bounded(Wait(ended, f"a commit of {place[0]}-{place[1]}, which is taken", 0.0))
        self.process.do(lambda: None)
        if self.beside is not None and self.own.random() < 0.3:
            self.beside()

    def _assigning(self) -> None:
        """An assignor may call the client."""
        self._feature("an assignor calls the client")
        self.commit_handled()
        self.process.do(lambda: None)

    # -- what the listener is told -----------------------------------------------------------------------------------

    async def assigned(self, places: Sequence[Place]) -> None:
        self._told("assigned", places)
        self.expected |= dict.fromkeys(places)
        self._call_in("assigned", places)
        await self._dawdle()

    async def revoked(self, places: Sequence[Place]) -> None:
        self._told("revoked", places)
        membership = self.machine.membership if self.machine is not None else None
        if membership is not None:
            lost = {place for step in membership.steps if isinstance(step, Lose) for place in step.places}
            if lost.intersection(places) or not set(places).issubset(membership.owned):
                raise Violation("a member is told of a revocation where it has lost", f"{self.name}: {places}")
        self._forget(places)
        self._call_in("revoked", places)
        await self._dawdle()
        if self.leaving and self.whims.random() < 0.2:
            self._feature("revoked raises where a block is left")
            raise Whim("of a listener")

    async def lost(self, places: Sequence[Place]) -> None:
        self._told("lost", places)
        self._forget(places)
        self._call_in("lost", places)
        await self._dawdle()

    def _call_in(self, what: str, places: Sequence[Place]) -> None:
        """A listener may call the client."""
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
        """Have the last batch that is done committed; also from a delivery callback."""
        machine, handled = self.machine, self.handled
        if machine is not None and handled is not None and not machine.closed:
            place, at, claim = handled
            if self.manner.commits == "all" and at.offset <= claim.assignment.asked:
                return  # to name an offset again is to have it sent again
            self.process.do(lambda: machine.committer.commit_batch_soon(place, at, claim))

    def _told(self, what: str, places: Sequence[Place]) -> None:
        self.process.history.add("·", self.name, f"is told: {what} {list(places)}")

    def _forget(self, places: Sequence[Place]) -> None:
        for place in places:
            if place not in self.expected:
                raise Violation("a member is told twice that a partition goes", f"{self.name}: {place}")
            del self.expected[place]

    async def _dawdle(self) -> None:
        if self.chance.random() < 0.3:
            if self.chance.random() < self.manner.impatient:
                self.enough.succeed(None)
            await pause(self.chance.uniform(0.0, 0.5))

    # -- the end -----------------------------------------------------------------------------------------------------

    def _leave(self, machine: ConsumerCore, error: BaseException | None, task: str = "") -> Script:
        process = self.process
        self.ledger.leaves(process.name)
        process.history.add("·", self.name, f"leaves by {error!r}" if error else "leaves")
        limit = LEAVE_TIMEOUT + CLOSE_TIMEOUT if error is None else 2 * CLOSE_TIMEOUT
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
            process.history.add("·", self.name, f"leaves with what is not committed: {failed}")
        except Cancelled:
            cancelled = True
            process.history.add("·", self.name, "is cancelled while it leaves")
        except Whim as raised:
            if not getattr(raised, "__notes__", ()):
                self._check_committed()
        if error is None and not cancelled and process.clock.now < began + CLOSE_TIMEOUT / 2:
            self.ledger.left(self.name, member, self.instance)
        self.left.succeed(None)

    def _end_with_client(self, machine: ConsumerCore) -> Script:
        """The client is left, and the consumer never was: its member says good-bye all the same."""
        process, core = self.process, self.process.core
        process.history.add("·", self.name, "leaves its client without a word")
        self._feature("a client is left before its consumer")
        self.leaving = self.ends_client = True
        began, member = process.clock.now, self.member_id
        yield from process.perform(core.leave_groups(), "leaving all groups", within=MOMENT)
        said = process.clock.now < began + MOMENT / 2
        process.do(lambda: core.close(process.clock.now))
        if not machine.closed:
            raise Violation("a consumer outlives its client", self.name)
        if said:
            self.ledger.left(self.name, member, self.instance)

    def _check_committed(self) -> None:
        """The listener raised, and nothing was said of commits: all that was asked for are there."""
        for assignment, offset in self.asked.items():
            if assignment.over in ("", CLOSED):
                self.ledger.acknowledged(self.name, {assignment.place: offset})
