"""Share consumers against a cluster that fails in every way that Kafka allows: each record is accepted, none is lost.

Processes have a share consumer each, whose tasks ask for records, work on them, and accept, release, reject, renew or
forget them; they wait for the outcome or do not, are cancelled, frozen and killed, leave and come back. Leaders and
coordinators move, nodes crash, connections break, answers get lost, sessions are forgotten, members are expelled, and
locks expire. In the end:

- Every record is accepted or rejected once, as a user did.
- Leaders have stored every successful acknowledgement for its own delivery, and no failed one, unless its outcome is
  unknown. So no acknowledgement counts for another delivery.
- Every acknowledgement has exactly one report: its call returns or raises, or a later call raises.
- A delivery is handed out once, while the record is locked for this member, with the delivery count of the leader.
- A consumer never holds more than `max_records`. All calls end in time, and all work is done within a bound.
"""

import traceback
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from ottla.codec.apis.share_fetch import ACCEPT, REJECT, RELEASE
from ottla.codec.records import Record, build_batch, rebased
from ottla.errors import AcknowledgementFailed, Closed, LocalProtocolError, OttlaError, TimeoutExpired
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.share.core import CLOSE_TIMEOUT, LEAVE_TIMEOUT, ShareConsumerCore
from ottla.sdk.share.locked_record import LockedRecord
from ottla.sdk.share.options import ShareConsumerOptions
from tests.sim.clock import Clock
from tests.sim.cluster import OFFSETS, ModelCluster
from tests.sim.data import Place
from tests.sim.faults import Fault
from tests.sim.history import History
from tests.sim.network import Link, Network, Reply
from tests.sim.run import LOOK, Result, logged_to
from tests.sim.share_groups import SharedState
from tests.sim.users import Cancelled, Process, Script, Violation

GROUP = "workers"
PATIENCE = 60.0
"""Seconds after the last fault within which everything has to be done."""
Delivery = tuple[Place, int, int]
"""Partition, offset, delivery count."""
KINDS = {ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}


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

    world: "Shares"
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
        topics = tuple(self.world.topics)
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
        delivery = (locked.place, locked.offset, locked.delivery_count)
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
            yield chance.uniform(0.0, 0.7 * world.cluster.shares.lock)
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
            of = [each for each in self.attempts if each.delivery[:2] == ((topic, partition), offset)]
            waiting = [each for each in of if not each.reports]
            if not waiting:
                raise Violation("a failure is reported once", f"{self.process.name}: {topic}-{partition} at {offset}")
            waiting[-1].reports.append("unknown" if unknown else "failed")


class Shares:
    """The world of one seed."""

    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.seed, self.chance = seed, Random(f"{seed} shares")
        self.clock = Clock()
        self.history = History(self.clock, told)
        chance = self.chance
        self.seconds = chance.choice((3.0, 6.0, 10.0))
        nodes = chance.choice((1, 2, 3))
        self.topics = {"a": chance.randint(1, 3)}
        if chance.random() < 0.3:
            self.topics["b"] = 1
        self.network = Network(self.clock, Random(seed + 1), self.history)
        self.cluster = ModelCluster(self.clock, Random(seed + 2), self.network, self.history, self.topics, nodes, "4.3")
        self.cluster.serve_share_groups(
            chance.choice((2.0, 4.0)), chance.choice((0.3, 0.8)), chance.choice((0.8, 2.0, 5.0))
        )
        self.network.cluster, self.network.features = self.cluster, self.cluster.data.features
        self.features = self.cluster.data.features
        self.network.admit = self._admit
        self.cluster.shares.seen = self._seen
        self.processes: dict[str, Process] = {}
        self.sharing: dict[str, Sharing] = {}
        """The living ones."""
        self.all: list[Sharing] = []
        self.renews = chance.choice((0.0, 0.0, 0.3))
        self.slowness = chance.choice((0.0, 0.1, 1.0))
        self.poison = chance.choice((0.0, 0.1))
        self.options = Options(
            connect_timeout=chance.choice((1.0, 5.0)),
            request_timeout=chance.choice((1.0, 5.0, 10.0)),
            api_timeout=chance.choice((10.0, 30.0)),
            fetch_max_wait=chance.choice((0.2, 0.5, 1.0)),
        )
        self.longest = (
            self.cluster.shares.lock + 2 * self.options.request_timeout + 2 * self.options.connect_timeout + 3
        )
        """Seconds that an acknowledgement may take."""
        self.most = chance.choice((1, 2, 5, 20, 500))
        self.deliveries: dict[Delivery, str] = {}
        """Deliveries by leaders, with the members."""
        self.until: dict[Delivery, float] = {}
        """When the lock of each delivery ends."""
        self.stored: dict[Delivery, str] = {}
        """What leaders have stored for each delivery."""
        self.out: dict[Delivery, str] = {}
        """Deliveries that users got, with the processes."""
        self.values: dict[tuple[Place, int], bytes] = {}
        self.appending = 0
        self.quiet = 0.0
        """When the last fault has ended."""
        self.killed: set[str] = set()
        self.over = self.ended = False
        self.say("#", f"seed {seed}", f"{nodes} nodes, {self.topics}, {self.options}, {self.most}, {self.slowness}")

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    # -- observation -------------------------------------------------------------------------------------------------

    def _admit(self, link: Link, version: int, message: Any, reply: Reply, close: Any) -> bool:
        self.cluster.shares.admit(link)
        return False

    def _seen(self, place: Place, offset: int, member: str, count: int, what: str) -> None:
        delivery = (place, offset, count)
        self.history.add("#", f"{place[0]}-{place[1]} at {offset}", f"delivery {count} of {member} is {what}")
        if what == "acquired":
            self.deliveries[delivery] = member
        if what in ("acquired", "renewed"):
            self.until[delivery] = self.clock.now + self.cluster.shares.lock
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
            return chance.uniform(0.5, 1.5) * self.cluster.shares.lock
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
            len(self.cluster.nodes),
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

    def _append(self, left: int) -> None:
        """Append records to the logs, here and there with a gap behind them, and say when all are there."""
        place = self.chance.choice([each for each in self.cluster.leaders if each[0] in self.topics])
        log = self.cluster.logs[place]
        count = min(left, self.chance.choice((1, 1, 5, 30)))
        base = log.end
        values = [b"%d" % (base + index) for index in range(count)]
        gap = self.chance.choice((0, 0, 0, 2))
        data = build_batch([Record(0, 0, None, value) for value in values])
        log.store(bytes(rebased(data, base, self.cluster.leaders[place].epoch)), count + gap, 0)
        log.high_watermark = log.end
        for index, value in enumerate(values):
            self.values[place, base + index] = value
        left -= count
        self.appending = left
        if left:
            self.clock.later(self.chance.uniform(0.0, 2 * self.seconds / 20), partial(self._append, left))

    # -- faults ------------------------------------------------------------------------------------------------------

    def _faults(self) -> list[Fault]:
        chance = self.chance
        kinds = list(FAULTS)
        found = [
            Fault(chance.uniform(0.0, self.seconds), chance.choice(kinds), chance.choice((0.1, 0.5, 1.0, 3.0)))
            for _ in range(chance.randint(2, 10))
        ]
        return sorted(found, key=lambda each: each.at)

    def _strike(self, fault: Fault) -> None:
        self.say("!", fault.kind, f"{fault.seconds:g} s")
        if FAULTS[fault.kind](self, fault) is not False:
            self.features[f"fault: {fault.kind}"] += 1

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        violation: Violation | None = None
        try:
            with logged_to(None):
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
            len(self.values),
            self.network.requests,
            self.features,
        )

    def _play(self) -> None:
        self.appending = self.chance.choice((30, 100, 200))
        self.clock.later(0.0, partial(self._append, self.appending))
        for _ in range(self.chance.choice((1, 2, 3))):
            self.clock.later(self.chance.choice((0.0, 0.0, self.seconds / 2)), self.join)
        for fault in self._faults():
            self.quiet = max(self.quiet, fault.at + fault.seconds + 2.0)
            self.clock.at(fault.at, partial(self._strike, fault))
        self.clock.later(LOOK, self._look)
        while not self.ended:
            if not self.clock.step():
                raise Violation("no event is left, and not everything is done", self._left())
        self._check()

    def _left(self) -> str:
        """The work that is not done yet, for people; empty if there is none."""
        if self.appending or self.clock.now < self.quiet:
            return "records, or faults"
        members = self.cluster.shares.groups[GROUP].members
        for each in self.sharing.values():
            if each.machine is not None and not each.stop.done and each.machine._member.id not in members:
                return f"{each.process.name} is not in the group"
        offsets = self.cluster.shares.groups[GROUP].offsets
        done = (SharedState.ACKNOWLEDGED, SharedState.ARCHIVED)
        for place in [each for each in self.cluster.logs if each[0] in self.topics]:
            log = self.cluster.logs[place]
            of = offsets[place]
            missing = [each for each in range(log.end) if each not in of or of[each].state not in done]
            if missing:
                return f"{place[0]}-{place[1]}: {len(missing)} of {log.end} offsets, the first is {missing[0]}"
        return ""

    def _look(self) -> None:
        left = self._left()
        if not left and not self.over:
            self.over = True
            self.say("·", "all", "is done")
            for each in self.sharing.values():
                each.stop.succeed(None)
        if self.over and not self.sharing:
            self.ended = True
        elif self.clock.now > self.seconds + self.quiet + PATIENCE:
            raise Violation("everything has to be done by now", left or f"{', '.join(self.sharing)} cannot leave")
        else:
            self.clock.later(LOOK, self._look)

    def _check(self) -> None:
        accepted = Counter(each[:2] for each, what in self.stored.items() if what == "accepted")
        rejected = Counter(each[:2] for each, what in self.stored.items() if what == "rejected")
        attempts = {each.delivery: each for sharing in self.all for each in sharing.attempts}
        for key in self.values:
            if accepted[key] + rejected[key] != 1:
                raise Violation("each record is accepted once", f"{key}: {accepted[key]} times")
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
        if report == "stored" and not stored:
            raise Violation("an acknowledgement that succeeded is stored", f"{who}: {attempt}")
        if report == "failed" and stored:
            raise Violation("an acknowledgement that failed is not stored", f"{who}: {attempt}")
        if report == "unknown":
            self.features["an outcome is unknown"] += 1
        self.features[f"{KINDS[attempt.kind]}: {report or 'no report'}"] += 1
        killed = who in self.killed
        last = sharing.options.acknowledge == "implicit" and attempt is sharing.attempts[-1]
        if not report and not stored and not killed and not last:
            raise Violation("no acknowledgement is lost in silence", f"{who}: {attempt}")


def _cut(world: Shares, fault: Fault) -> None:
    links = list(world.network.links.values())
    for link in world.chance.sample(links, min(len(links), world.chance.choice((1, 2, 8)))):
        world.network.cut(link, "the wire broke")


def _move(world: Shares, fault: Fault) -> None:
    places = [place for place in world.cluster.leaders if place[0] != OFFSETS]
    world.cluster.move_some(world.chance.sample(places, world.chance.randint(1, len(places))))


def _move_coordinator(world: Shares, fault: Fault) -> None:
    world.cluster.move_some([world.cluster.groups.place(GROUP)])


def _crash(world: Shares, fault: Fault) -> object:
    up = [each.number for each in world.cluster.nodes.values() if each.healthy]
    if len(up) < 2:
        return False
    node = world.chance.choice(up)
    world.cluster.crash(node)
    world.clock.later(fault.seconds, partial(world.cluster.restart, node))
    return True


def _sleep(world: Shares, fault: Fault) -> object:
    up = [each.number for each in world.cluster.nodes.values() if each.healthy]
    if len(up) < 2:
        return False
    node = world.chance.choice(up)
    world.cluster.sleep(node)
    world.clock.later(fault.seconds, partial(world.cluster.wake, node))
    return True


def _silence(world: Shares, fault: Fault) -> None:
    node = world.chance.choice(list(world.cluster.nodes))
    for name in list(world.sharing):
        if world.chance.random() < 0.6:
            world.network.silence(name, node, fault.seconds)


def _swallow(world: Shares, fault: Fault) -> None:
    links = list(world.network.links.values())
    for link in world.chance.sample(links, min(len(links), 2)):
        world.network.swallow(link)


def _slow(world: Shares, fault: Fault) -> None:
    node = world.chance.choice(list(world.cluster.nodes))
    world.network.slow[node] = world.chance.choice(((10, 10), (1, 200), (1, 400), (200, 1)))
    world.clock.later(fault.seconds, lambda: world.network.slow.pop(node, None))


def _freeze(world: Shares, fault: Fault) -> None:
    if world.sharing:
        world.chance.choice(list(world.sharing.values())).process.freeze(fault.seconds)


def _kill(world: Shares, fault: Fault) -> None:
    if world.sharing:
        name = world.chance.choice(list(world.sharing))
        world.killed.add(name)
        world.kill(name)


def _join(world: Shares, fault: Fault) -> None:
    if len(world.sharing) < 5:
        world.join()


def _leave(world: Shares, fault: Fault) -> None:
    if world.sharing:
        world.chance.choice(list(world.sharing.values())).stop.succeed(None)


def _expel(world: Shares, fault: Fault) -> None:
    for each in list(world.cluster.shares.groups[GROUP].members):
        world.cluster.shares.expel(GROUP, each)


def _forget_sessions(world: Shares, fault: Fault) -> None:
    world.cluster.shares.forget_sessions()


def _trouble(world: Shares, fault: Fault) -> None:
    place = world.chance.choice([each for each in world.cluster.leaders if each[0] in world.topics])
    world.cluster.shares.troubled[place] = world.clock.now + fault.seconds


FAULTS = {
    "cut": _cut,
    "move": _move,
    "move the coordinator": _move_coordinator,
    "crash": _crash,
    "sleep": _sleep,
    "silence": _silence,
    "swallow": _swallow,
    "slow": _slow,
    "freeze": _freeze,
    "kill": _kill,
    "join": _join,
    "leave": _leave,
    "expel": _expel,
    "forget sessions": _forget_sessions,
    "trouble": _trouble,
}


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`, with the mutations of `tests.sim.share_mutations`."""
    from tests.sim.share_mutations import MUTATIONS  # only here: it needs this module

    with MUTATIONS[broken]() if broken else nullcontext():
        return Shares(seed, told=told).run()
