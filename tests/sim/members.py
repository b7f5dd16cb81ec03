"""Members of a group, each a user who handles batches and commits, in the words of `ottla.sdk.consumer`.

A user may be slow, may leave in order, or may be killed; the world sees to it that somebody follows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import CommitFailed, FencedInstanceId, OttlaError, TimeoutExpired
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.core import ConsumerCore, ConsumerOptions
from ottla.sdk.consume.fetcher import Fetched, Fetcher, Time
from ottla.sdk.group.assignors import ASSIGNORS
from ottla.sdk.group.commits import Assignment
from ottla.sdk.group.membership import Lose, MemberOptions, Receive, Revoke, Step
from ottla.sdk.outcome import Outcome
from tests.sim.data import Place
from tests.sim.group_ledger import GroupLedger
from tests.sim.scripts import known
from tests.sim.users import Process, Script, Violation, Wait

LEAVE = 5.0
"""Seconds that saying good-bye may take."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How the members of a group work."""

    assignors: tuple[str, ...]
    session: float
    heartbeat: float
    max_poll_interval: float
    commits: str
    """``soon``: after each batch; ``sync``: that, and wait for it; ``auto``: by itself."""
    slow: float
    """Chance that a batch takes longer than `max_poll_interval`."""
    static: bool
    """Whether members have names that last (KIP-345)."""

    @classmethod
    def drawn(cls, chance: Random) -> "Manner":
        session = chance.choice((1.5, 3.0, 6.0))
        return cls(
            assignors=chance.choice(
                (("range", "cooperative-sticky"), ("cooperative-sticky",), ("range",), ("roundrobin",), ("sticky",))
            ),
            session=session,
            heartbeat=session / chance.choice((3, 6)),
            max_poll_interval=chance.choice((2.0, 5.0, 20.0)),
            commits=chance.choice(("soon", "sync", "sync", "auto")),
            slow=chance.choice((0.0, 0.0, 0.02)),
            static=chance.random() < 0.2,
        )

    def options(self, group: str, topics: tuple[str, ...], instance: str | None) -> ConsumerOptions:
        member = MemberOptions(
            assignors=tuple(ASSIGNORS[name] for name in self.assignors),
            instance_id=instance,
            session_timeout=self.session,
            heartbeat_interval=self.heartbeat,
            max_poll_interval=self.max_poll_interval,
        )
        auto = 0.3 if self.commits == "auto" else None
        return ConsumerOptions(start=Time(EARLIEST), topics=topics, group=group, member=member, auto_commit=auto)


@dataclass(slots=True, eq=False)
class Consuming:
    """One member; ``name`` is for people, ``instance`` for the group."""

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
    machine: ConsumerCore | None = None

    @property
    def member_id(self) -> str:
        """Who it is to the group, as far as it knows."""
        return self.machine.membership.member_id if self.machine and self.machine.membership else ""

    def script(self) -> Script:
        process = self.process
        yield from process.connect()
        yield from known(process, self.topics)
        machine = self.machine = ConsumerCore(
            process.core,
            self.manner.options(self.ledger.group, self.topics, self.instance),
            Fetcher(process.core, reset=None),
            lambda seconds: process.history.add("·", self.name, f"is slow: {seconds:.1f} s for a batch"),
        )
        machine.begin(process.clock.now)
        while not self.stop.done:
            machine.idle(process.clock.now)
            machine.finish()
            if (news := machine.next_step()) is not None:
                yield from self._follow(machine, *news)
                continue
            try:
                taken = machine.take(process.clock.now)
            except CommitFailed as error:
                process.history.add("·", self.name, f"hears that a commit failed: {error}")
                continue
            except FencedInstanceId:
                if not self.rival:
                    raise Violation("a member is fenced by nobody", self.name) from None
                process.history.add("·", self.name, "hears that somebody has taken its place")
                machine.close(process.clock.now)
                return
            except OttlaError as error:
                raise Violation("a member is stopped by what passes", f"{self.name}: {error!r}") from error
            if taken is None:
                yield Wait(_first(machine.wait(), self.stop), "the next batch")
            else:
                yield from self._handle(machine, *taken)
        yield from self._leave(machine)

    # -- batches -----------------------------------------------------------------------------------------------------

    def _handle(self, machine: ConsumerCore, fetched: Fetched, assignment: Assignment | None) -> Script:
        process, chance = self.process, self.chance
        place = (fetched.topic, fetched.partition)
        records = [
            (record.offset, record.value or b"")
            for batch in fetched.batches
            for record in batch.records()
            if record.offset >= fetched.first_offset
        ]
        if process.history.wanted:
            process.history.add("·", self.name, f"gets {place[0]}-{place[1]} {[each for each, _ in records]}")
        if place not in self.expected or machine.membership is None or assignment is None:
            raise Violation("a member gets a partition that it was not told of", f"{self.name}: {place}")
        membership = machine.membership
        if not any(isinstance(step, Revoke) and place in step.places for step in membership.steps):
            # What is to be given up, and was not yet, is nobody else's.
            self.ledger.may_read(self.name, membership.member_id, membership.generation, place)
        expected = self.expected[place]
        if expected is None:
            expected = self.ledger.begins(self.process.name, place, records[0][0])
        self.expected[place] = self.ledger.read(self.name, place, expected, records)
        if chance.random() < self.manner.slow:
            yield self.manner.max_poll_interval * 1.5
        elif chance.random() < 0.5:
            yield chance.uniform(0.0, 0.1)
        if assignment.over:
            process.history.add("·", self.name, f"lost {place[0]}-{place[1]} meanwhile: {assignment.over}")
        self.ledger.handled(place, records)
        if self.manner.commits == "auto":
            return
        at = CommittedOffset(fetched.next_offset, fetched.leader_epoch)
        try:
            machine.group_commits.commit({assignment: at}, process.clock.now)
        except CommitFailed as error:
            process.history.add("·", self.name, f"cannot commit: {error}")
            return
        if self.manner.commits == "sync":
            yield from self._settled(machine, {place: at.offset})

    def _settled(self, machine: ConsumerCore, offsets: Mapping[Place, int]) -> Script:
        """Wait until all is committed, as ``await consumer.commit()`` does."""
        process, commits = self.process, machine.group_commits
        failed: Any = yield from process.asked(commits.settled, "commit", process.core.options.api_timeout)
        if failed is None:
            try:
                commits.raise_failures()
            except CommitFailed as error:
                failed = error
        if failed is None:
            self.ledger.acknowledged(self.name, offsets)
        elif isinstance(failed, CommitFailed | TimeoutExpired):
            process.history.add("·", self.name, f"commit failed: {failed}")
        else:
            raise Violation("a commit fails in another way than it may", f"{self.name}: {failed!r}")

    # -- the group ---------------------------------------------------------------------------------------------------

    def _follow(self, machine: ConsumerCore, step: Step, places: tuple[Place, ...]) -> Script:
        process = self.process
        machine.busy(process.clock.now)
        process.history.add("·", self.name, f"is told: {step}")
        match step:
            case Receive():
                self.expected |= dict.fromkeys(places)
            case Revoke():
                machine.commit_done(process.clock.now)
                if self.chance.random() < 0.3:
                    yield self.chance.uniform(0.0, 0.5)
                yield from self._settled(machine, {})
                self._forget(places)
            case Lose():
                self._forget(places)
        machine.done_with(step, places, process.clock.now)

    def _forget(self, places: tuple[Place, ...]) -> None:
        for place in places:
            self.expected.pop(place, None)

    def _leave(self, machine: ConsumerCore) -> Script:
        process = self.process
        process.history.add("·", self.name, "leaves")
        machine.commit_done(process.clock.now)
        yield from self._settled(machine, {})
        yield Wait(machine.stop(process.clock.now), "leaving the group", LEAVE)
        machine.close(process.clock.now)


def _first(*outcomes: Outcome[None]) -> Outcome[None]:
    """Settled once one of ``outcomes`` is."""
    either: Outcome[None] = Outcome()
    for each in outcomes:
        each.when_done(lambda: either.succeed(None))
    return either
