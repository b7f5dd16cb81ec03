"""Share consumers against a model cluster that fails in every way that Kafka allows: each record is accepted once.

Leaders and coordinators move, nodes crash, connections break, answers get lost, sessions are forgotten, members are
expelled, and locks expire. `tests.sim.sharing` has the users, and the promises.
"""

from contextlib import nullcontext
from functools import partial
from random import Random
from typing import Any

from ottla.codec.records import Record, build_batch, rebased
from tests.sim.cluster import OFFSETS, ModelCluster
from tests.sim.data import Place
from tests.sim.faults import Fault
from tests.sim.network import Link, Reply
from tests.sim.run import LOOK, Result
from tests.sim.share_groups import SharedState
from tests.sim.sharing import GROUP, Delivery, SharedRecord, SharingWorld, freeze, join, kill, leave
from tests.sim.users import Violation


class Shares(SharingWorld):
    """The world of one seed."""

    patience = 60.0

    def __init__(self, seed: int, *, told: bool = False) -> None:
        super().__init__(seed, "shares", told=told)
        chance = self.chance
        self.seconds = chance.choice((3.0, 6.0, 10.0))
        self.nodes = nodes = chance.choice((1, 2, 3))
        self.topics = {"a": chance.randint(1, 3)}
        if chance.random() < 0.3:
            self.topics["b"] = 1
        self.cluster = ModelCluster(self.clock, Random(seed + 2), self.network, self.history, self.topics, nodes, "4.3")
        session, interval = chance.choice((2.0, 4.0)), chance.choice((0.3, 0.8))
        self.lock = chance.choice((0.8, 2.0, 5.0))
        self.cluster.serve_share_groups(session, interval, self.lock)
        self.network.cluster, self.network.features = self.cluster, self.cluster.data.features
        self.features = self.cluster.data.features
        self.network.admit = self._admit
        self.cluster.shares.seen = self._seen
        self._draw_users()
        self.values: dict[SharedRecord, bytes] = {}
        self.appending = 0
        self.say("#", f"seed {seed}", f"{nodes} nodes, {self.topics}, {self.options}, {self.most}, {self.slowness}")

    def records(self) -> dict[SharedRecord, bytes]:
        return self.values

    # -- observation -------------------------------------------------------------------------------------------------

    def _admit(self, link: Link, version: int, message: Any, reply: Reply, close: Any) -> bool:
        self.cluster.shares.admit(link)
        return False

    def _seen(self, place: Place, offset: int, member: str, count: int, what: str) -> None:
        self.observe(Delivery(place, offset, count), member, what)

    # -- people ------------------------------------------------------------------------------------------------------

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

    def _fault(self, fault: Fault) -> object:
        return FAULTS[fault.kind](self, fault)

    # -- the run -----------------------------------------------------------------------------------------------------

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
    "freeze": freeze,
    "kill": kill,
    "join": join,
    "leave": leave,
    "expel": _expel,
    "forget sessions": _forget_sessions,
    "trouble": _trouble,
}


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`, with the mutations of `tests.sim.share_mutations`."""
    from tests.sim.share_mutations import MUTATIONS  # only here: it needs this module

    with MUTATIONS[broken]() if broken else nullcontext():
        return Shares(seed, told=told).run()
