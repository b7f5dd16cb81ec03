"""Processes with share consumers, for worlds of any broker: the users, and the promises that hold for all of them.

Processes have a share consumer each, whose tasks ask for records, work on them, and accept, release, reject, renew or
forget them; they wait for the outcome or do not, are cancelled, frozen and killed, leave and come back. In the end:

- Every record is accepted or rejected once, as a user did, or archived after its last delivery.
- Leaders have stored every successful acknowledgement for its own delivery, and no failed one, unless its outcome is
  unknown. So no acknowledgement counts for another delivery.
- Every acknowledgement has exactly one report: its call returns or raises, or a later call raises.
- A delivery is handed out once, while the record is locked for this member, with the delivery count of the leader.
- A consumer never holds more than `max_records`. All calls end in time, and all work is done within a bound.
"""

import traceback
from collections import Counter
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import NamedTuple

from ottla.codec.apis.share_fetch import ACCEPT, REJECT, RELEASE
from ottla.errors import AcknowledgementFailed, Closed, LocalProtocolError, OttlaError, TimeoutExpired
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.share.core import CLOSE_TIMEOUT, LEAVE_TIMEOUT, ShareConsumerCore
from ottla.sdk.share.locked_record import LockedRecord
from ottla.sdk.share.options import ShareConsumerOptions
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.faults import Fault
from tests.sim.history import History
from tests.sim.network import Network
from tests.sim.run import LOOK, Result, logged_to
from tests.sim.users import Cancelled, Process, Script, Violation

GROUP = "workers"
KINDS = {ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}
SharedRecord = tuple[Place, int]
"""Partition, offset."""


class Delivery(NamedTuple):
    """One delivery of a record.

    Attributes:
        number: the delivery count.
        again: how many earlier deliveries had this number; a broker that restarts forgets unfinished deliveries.
    """

    place: Place
    offset: int
    number: int
    again: int = 0

    @property
    def record(self) -> SharedRecord:
        return self.place, self.offset


@dataclass(slots=True, eq=False)
class Attempt:
    """An acknowledgement of a user's."""

    delivery: Delivery
    kind: int
    reports: list[str] = field(default_factory=list)
    """``stored``, ``failed`` or ``unknown``, once for each report."""


@dataclass(slots=True, eq=False)
class Sharing:
    """A process with one share consumer, and its tasks."""

    world: "SharingWorld"
    process: Process
    options: ShareConsumerOptions
    chance: Random
    machine: ShareConsumerCore | None = None
    stop: Outcome[None] = field(default_factory=Outcome)
    tasks: int = 0
    attempts: list[Attempt] = field(default_factory=list)

    def script(self) -> Script:
        process = self.process
        yield from process.connect()
        topics = tuple(filter(None, (*self.world.topics, self.world.passing)))
        machine = process.do(lambda: ShareConsumerCore(process.core, topics, self.options))
        try:
            yield from process.perform(machine.enter(), "opening a share consumer", within=self._api)
        except OttlaError as failed:
            self.say(f"cannot open: {failed!r}")
            return
        self.machine = machine
        leave = machine._member.leave

        def left(now: float) -> None:
            self.world.features["a member leaves because its user is not active"] += 1
            leave(now)

        machine.watch._leave = left
        process.checks.append(self._check_held)
        self.tasks = self.chance.choice((1, 1, 2, 4)) if self.options.acknowledge == "explicit" else 1
        for number in range(self.tasks):
            process.run(self._work(machine, f"{process.name}.{number}"), self._task_ended)
        while not self.stop.done:
            yield 0.05
        error = RuntimeError("the user's error") if self.chance.random() < 0.3 else None
        limit = CLOSE_TIMEOUT if error else min(LEAVE_TIMEOUT, process.core.options.api_timeout) + CLOSE_TIMEOUT
        try:
            yield from process.perform(machine.leave(error), "leaving a share consumer", within=limit + 0.1)
        except AcknowledgementFailed as late:
            self._note(late)
        except OttlaError as other:
            self.say(f"leaving: {other!r}")
        if any("failed" in each for each in getattr(error, "__notes__", ())):
            for each in [each for each in self.attempts if not each.reports]:
                if not self.world.is_stored(each):
                    each.reports.append("failed")
        while self.tasks:
            yield 0.05

    @property
    def _api(self) -> float:
        return self.process.core.options.api_timeout

    def _task_ended(self) -> None:
        self.tasks -= 1

    def say(self, text: str) -> None:
        self.world.say("·", self.process.name, text)

    def _check_held(self) -> None:
        held = self.machine._reader.tally.held if self.machine is not None else 0
        if held > self.options.max_records:
            raise Violation("a consumer holds too many records", f"{self.process.name}: {held}")

    # -- a task ------------------------------------------------------------------------------------------------------

    def _work(self, machine: ShareConsumerCore, task: str) -> Script:
        """Ask for records until the block is left."""
        process, chance = self.process, self.chance
        while True:
            cancel: Outcome[None] = Outcome()
            if chance.random() < 0.1:
                process.clock.later(chance.uniform(0.0, 0.3), partial(cancel.succeed, None))
            timeout = chance.choice((None, None, 0.0, 0.5))
            try:
                locked = yield from process.perform(
                    machine.next_record(task, timeout), "a record", within=timeout, cancel=cancel
                )
            except Cancelled:
                continue
            except AcknowledgementFailed as failed:
                self._note(failed)
                continue
            except Closed:
                return
            except OttlaError as error:
                raise Violation("a consumer is stopped by a transient error", f"{task}: {error!r}") from error
            if locked is not None:
                yield from self._handle(machine, task, locked)

    def _handle(self, machine: ShareConsumerCore, task: str, locked: LockedRecord) -> Script:
        process, world, chance = self.process, self.world, self.chance
        if locked.place[0] == world.passing:
            if self.options.acknowledge == "explicit":
                with suppress(AcknowledgementFailed):
                    process.do(lambda: machine.acknowledge_soon(locked, ACCEPT))
            return
        delivery = world.delivery(machine._member.id, locked)
        world.handed_out(self, delivery)
        if self.options.acknowledge == "implicit":
            self.attempts.append(Attempt(delivery, ACCEPT))  # the next call accepts it
            yield world.slow(chance)
            return
        yield world.slow(chance)
        while chance.random() < world.renews and process.clock.now < world.quiet:
            try:
                yield from process.perform(machine.renew(locked), "renewing", within=world.longest)
                world.features["a lock is renewed"] += 1
            except AcknowledgementFailed:
                world.features["a renewal comes too late"] += 1
                return
            except Closed:
                return
            yield chance.uniform(0.0, 0.7 * world.lock)
        if chance.random() < 0.03:
            world.features["a record is forgotten"] += 1
            return
        kind = REJECT if world.is_poison(locked) else ACCEPT if chance.random() < 0.8 else RELEASE
        attempt = Attempt(delivery, kind)
        try:
            if chance.random() < 0.5:
                process.do(lambda: machine.acknowledge_soon(locked, kind))
                self.attempts.append(attempt)
                if chance.random() < 0.1:
                    yield from process.perform(machine.flush(), "flushing", within=self._api)
                return
            cancel: Outcome[None] = Outcome()
            if chance.random() < 0.1:
                process.clock.later(chance.uniform(0.0, 0.05), lambda: cancel.succeed(None))
            steps = machine.acknowledge(locked, kind)
            self.attempts.append(attempt)
            yield from process.perform(steps, "acknowledging", within=world.longest, cancel=cancel)
            attempt.reports.append("stored")
        except Cancelled:
            if locked.kind is None and locked.lost is None:
                self.attempts.remove(attempt)  # cancelled before it had an effect
        except TimeoutExpired:  # of `flush`: acknowledgements may take longer
            world.features["a flush takes too long"] += 1
        except AcknowledgementFailed as failed:
            if attempt not in self.attempts:
                self.attempts.append(attempt)  # refused at once
            self._note(failed)
        except LocalProtocolError as error:
            raise Violation("a record can be acknowledged once", f"{task}: {error}") from error

    def _note(self, failed: AcknowledgementFailed) -> None:
        """Take note of failed acknowledgements."""
        self.say(str(failed))
        for (topic, partition, offset), unknown in failed.records.items():
            if topic == self.world.passing:
                continue
            of = [each for each in self.attempts if each.delivery.record == ((topic, partition), offset)]
            waiting = [each for each in of if not each.reports]
            if not waiting:
                raise Violation("a failure is reported once", f"{self.process.name}: {topic}-{partition} at {offset}")
            waiting[-1].reports.append("unknown" if unknown else "failed")


class SharingWorld:
    """Plays the share consumers of one seed, and observes their deliveries.

    Args:
        kind: the kind of world, which draws other chances than other kinds do.

    Attributes:
        topics: name -> number of partitions.
        passing: a topic that is deleted and recreated; its records are accepted, and the outcome does not count.
        nodes: the number of nodes; clients know all of them.
        features: how often each rare event happened.
        seconds: how long faults may begin.
        lock: seconds that a record is locked for its member.
        patience: seconds after the last fault within which everything has to be done.
        most: `max_records` of all consumers.
        longest: seconds that an acknowledgement may take.
    """

    topics: dict[str, int]
    passing: str = ""
    nodes: int
    features: Counter[str]
    seconds: float
    lock: float
    patience: float
    options: Options
    longest: float
    renews: float
    slowness: float
    poison: float
    most: int

    def __init__(self, seed: int, kind: str, *, told: bool) -> None:
        self.seed, self.chance = seed, Random(f"{seed} {kind}")
        self.clock = Clock()
        self.history = History(self.clock, told)
        self.network = Network(self.clock, Random(seed + 1), self.history)
        self.processes: dict[str, Process] = {}
        self.sharing: dict[str, Sharing] = {}
        """The living ones."""
        self.all: list[Sharing] = []
        self.deliveries: dict[Delivery, str] = {}
        """Deliveries by leaders, with the members."""
        self.until: dict[Delivery, float] = {}
        """When the lock of each delivery ends."""
        self.stored: dict[Delivery, str] = {}
        """What leaders have stored for each delivery."""
        self.archived: set[SharedRecord] = set()
        """Records that were archived after their last delivery."""
        self.out: dict[Delivery, str] = {}
        """Deliveries that users got, with the processes."""
        self.quiet = 0.0
        """When the last fault has ended."""
        self.killed: set[str] = set()
        self.over = self.ended = False

    def _draw_users(self) -> None:
        """Draw how the users behave; the lock must be known."""
        chance = self.chance
        self.renews = chance.choice((0.0, 0.0, 0.3))
        self.slowness = chance.choice((0.0, 0.1, 1.0))
        self.poison = chance.choice((0.0, 0.1))
        self.options = Options(
            connect_timeout=chance.choice((1.0, 5.0)),
            request_timeout=chance.choice((1.0, 5.0, 10.0)),
            api_timeout=chance.choice((10.0, 30.0)),
            fetch_max_wait=chance.choice((0.2, 0.5, 1.0)),
        )
        self.longest = self.lock + 2 * self.options.request_timeout + 2 * self.options.connect_timeout + 3
        self.most = chance.choice((1, 2, 5, 20, 500))

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    # -- each kind of world by itself

    def records(self) -> Collection[SharedRecord]:
        """All records that the group has to get."""
        raise NotImplementedError

    def _play(self) -> None:
        """Play the world to its end."""
        raise NotImplementedError

    def _left(self) -> str:
        """Return the work that is not done yet, for people; empty if there is none."""
        raise NotImplementedError

    def _fault(self, fault: Fault) -> object:
        """Let a fault happen; return ``False`` if that is impossible now."""
        raise NotImplementedError

    def _changes(self) -> AbstractContextManager[None]:
        """Return the changes of modules for the time of the run."""
        return nullcontext()

    def _users(self) -> Collection[str]:
        """Return the users that have not left."""
        return self.sharing

    def delivery(self, member: str, locked: LockedRecord) -> Delivery:
        """Return the delivery that a member's record comes from."""
        return Delivery(locked.place, locked.offset, locked.delivery_count)

    def is_needless(self, attempt: Attempt) -> bool:
        """Whether a leader has accepted an acknowledgement without storing it, as the record was final already."""
        return False

    # -- observation -------------------------------------------------------------------------------------------------

    def observe(self, delivery: Delivery, member: str, what: str) -> None:
        """Note an event of a delivery, from its leader: ``acquired``, ``renewed``, or the stored result."""
        place = delivery.place
        self.say(
            "#", f"{place[0]}-{place[1]} at {delivery.offset}", f"delivery {delivery.number} of {member} is {what}"
        )
        if what == "acquired":
            self.deliveries[delivery] = member
        if what in ("acquired", "renewed"):
            self.until[delivery] = self.clock.now + self.lock
        else:
            self.stored[delivery] = what

    def handed_out(self, by: Sharing, delivery: Delivery) -> None:
        """A user gets a record."""
        who = by.process.name
        if delivery not in self.deliveries:
            raise Violation("a record is handed out as its leader delivered it", f"{who}: {delivery}")
        if delivery in self.out:
            raise Violation("a delivery is handed out once", f"{delivery} to {who}, and to {self.out[delivery]} before")
        if self.clock.now > self.until[delivery] + 0.01 and by.process.thawed < self.clock.now - 1.0:
            raise Violation("a record is handed out while it is locked", f"{delivery} to {who}")
        self.out[delivery] = who

    def is_poison(self, locked: LockedRecord) -> bool:
        return Random(f"{self.seed} {locked.place} {locked.offset}").random() < self.poison

    def slow(self, chance: Random) -> float:
        """Seconds that a user works on a record; less once all faults are over."""
        if self.clock.now > self.quiet:
            return chance.choice((0.0, 0.0, 0.01))
        if chance.random() < 0.05 * self.slowness:
            return chance.uniform(0.5, 1.5) * self.lock
        return chance.choice((0.0, 0.0, 0.01, 0.1)) * self.slowness

    # -- people ------------------------------------------------------------------------------------------------------

    def join(self) -> None:
        if self.over:
            return
        name = f"s{len(self.all) + 1}"
        chance = Random(f"{self.seed} {name}")
        process = Process(
            name,
            self.clock,
            self.network,
            self.history,
            self.options,
            self.nodes,
            Random(f"{name} client"),
        )
        self.processes[name] = process
        implicit = chance.random() < 0.2
        options = ShareConsumerOptions(
            group=GROUP,
            max_records=self.most,
            acknowledge="implicit" if implicit else "explicit",
            max_poll_interval=chance.choice((300.0, 300.0, 0.5)),
        )
        sharing = Sharing(self, process, options, chance)
        self.sharing[name] = sharing
        self.all.append(sharing)
        self.say("·", name, f"joins, {options}")
        process.run(sharing.script(), partial(self._gone, sharing))

    def _gone(self, sharing: Sharing) -> None:
        self.sharing.pop(sharing.process.name, None)
        sharing.process.close()
        if not self.over:
            self.clock.later(self.chance.uniform(0.0, 1.0), self.join)

    def kill(self, name: str) -> None:
        self.sharing.pop(name).process.kill()
        self.clock.later(self.chance.uniform(0.0, 1.0), self.join)

    def _strike(self, fault: Fault) -> None:
        self.say("!", fault.kind, f"{fault.seconds:g} s")
        if self._fault(fault) is not False:
            self.features[f"fault: {fault.kind}"] += 1

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        violation: Violation | None = None
        try:
            with logged_to(None), self._changes():
                self._play()
        except Violation as broken:
            violation = broken
        except Exception as error:
            violation = Violation("a machine raises", "".join(traceback.format_exception(error)))
            violation.__cause__ = error
        return Result(
            self.seed,
            violation,
            self.history.lines,
            self.clock.now,
            len(self.records()),
            self.network.requests,
            self.features,
        )

    def _look(self) -> None:
        left = self._left()
        if not left and not self.over:
            self.over = True
            self.say("·", "all", "is done")
            for each in self.sharing.values():
                each.stop.succeed(None)
        if self.over and not self._users():
            self.ended = True
        elif self.clock.now > self.seconds + self.quiet + self.patience:
            raise Violation("everything has to be done by now", left or f"{', '.join(self._users())} cannot leave")
        else:
            self.clock.later(LOOK, self._look)

    def _check(self) -> None:
        final = Counter(each.record for each, what in self.stored.items() if what in ("accepted", "rejected"))
        final.update(self.archived)
        attempts = {each.delivery: each for sharing in self.all for each in sharing.attempts}
        for record in self.records():
            if final[record] != 1:
                raise Violation("each record is accepted once", f"{record}: {final[record]} times")
        for delivery, what in self.stored.items():
            attempt = attempts.get(delivery)
            if what in ("accepted", "rejected") and (attempt is None or KINDS[attempt.kind] != what):
                raise Violation("a stored acknowledgement is a user's", f"{delivery}: {what}, but {attempt}")
        for sharing in self.all:
            for attempt in sharing.attempts:
                self._check_attempt(sharing, attempt)

    def is_stored(self, attempt: Attempt) -> bool:
        return self.stored.get(attempt.delivery) == KINDS[attempt.kind]

    def _check_attempt(self, sharing: Sharing, attempt: Attempt) -> None:
        who, stored = sharing.process.name, self.is_stored(attempt)
        if len(attempt.reports) > 1:
            raise Violation("an acknowledgement has one report", f"{who}: {attempt}")
        report = attempt.reports[0] if attempt.reports else ""
        if report == "stored" and not (stored or self.is_needless(attempt)):
            raise Violation("an acknowledgement that succeeded is stored", f"{who}: {attempt}")
        if report == "failed" and stored:
            raise Violation("an acknowledgement that failed is not stored", f"{who}: {attempt}")
        if report == "unknown":
            self.features["an outcome is unknown"] += 1
        self.features[f"{KINDS[attempt.kind]}: {report or 'no report'}"] += 1
        killed = who in self.killed
        last = sharing.options.acknowledge == "implicit" and attempt is sharing.attempts[-1]
        if not (report or stored or killed or last or self.is_needless(attempt)):
            raise Violation("no acknowledgement is lost in silence", f"{who}: {attempt}")


def freeze(world: SharingWorld, fault: Fault) -> None:
    """Freeze a process for a while."""
    if world.sharing:
        world.chance.choice(list(world.sharing.values())).process.freeze(fault.seconds)


def kill(world: SharingWorld, fault: Fault) -> None:
    """Kill a process; another one follows soon."""
    if world.sharing:
        name = world.chance.choice(list(world.sharing))
        world.killed.add(name)
        world.kill(name)


def join(world: SharingWorld, fault: Fault) -> None:
    """Start one more process."""
    if len(world.sharing) < 5:
        world.join()


def leave(world: SharingWorld, fault: Fault) -> None:
    """Let a process leave; another one follows soon."""
    if world.sharing:
        world.chance.choice(list(world.sharing.values())).stop.succeed(None)
