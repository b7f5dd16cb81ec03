"""Faults and their times, drawn from the seed before the run begins."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ottla.errors import (
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetMetadataTooLarge,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tests.sim.cluster import OFFSETS
from tests.sim.data import RECREATED

if TYPE_CHECKING:
    from tests.sim.run import Simulation


LONG = 10.0
"""Seconds: a delivery timeout of at least this outlasts most faults."""


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    kind: str
    seconds: float
    """How long it lasts, if it has a duration."""


def drawn(chance: Random, seconds: float, most: float) -> list[Fault]:
    """At least three faults within ``seconds``, in their order; none lasts longer than ``most``."""
    kinds = list(FAULTS)
    weights = [2 if kind in ("cut", "move", "freeze", "slow", "swallow", "step down") else 1 for kind in kinds]
    faults = [
        Fault(
            chance.uniform(0.0, seconds),
            chance.choices(kinds, weights)[0],
            min(chance.choice((0.1, 0.5, 1.0, 2.0, 4.0, 8.0)) * chance.uniform(0.5, 1.0), most),
        )
        for _ in range(chance.randint(3, 9))
    ]
    if chance.random() < 0.4:
        # The first requests for producer ids and leaders are delicate, so a fault at the start finds more.
        faults.append(Fault(0.0, "refuse", chance.uniform(0.1, 4.0)))
    return sorted(faults, key=lambda each: each.at)


def _cut(world: "Simulation", fault: Fault) -> None:
    links = list(world.network.links.values())
    for link in world.chance.sample(links, min(len(links), world.chance.choice((1, 2, 8)))):
        world.network.cut(link, "the wire broke")


def _move(world: "Simulation", fault: Fault) -> None:
    places = [place for place in world.cluster.leaders if place[0] != OFFSETS]
    world.cluster.move_some(world.chance.sample(places, world.chance.randint(1, len(places))))


def _crash(world: "Simulation", fault: Fault) -> None:
    if node := world.spare(lambda each: each.up):
        world.say("!", f"node {node}", f"crashes for {fault.seconds:.2f} s")
        world.cluster.crash(node)
        world.clock.later(fault.seconds, lambda: world.cluster.restart(node))


def _outage(world: "Simulation", fault: Fault) -> None:
    """All nodes are down for a long time."""
    for node in [each.number for each in world.cluster.nodes.values() if each.up]:
        world.say("!", f"node {node}", "crashes, as all others do")
        world.cluster.crash(node)
        world.clock.later(max(fault.seconds, 5.5), partial(world.cluster.restart, node))


def _sleep(world: "Simulation", fault: Fault) -> None:
    if node := world.spare(lambda each: not each.asleep):
        world.say("!", f"node {node}", f"sleeps for {fault.seconds:.2f} s")
        world.cluster.sleep(node)
        world.clock.later(fault.seconds, lambda: world.cluster.wake(node))


def _cut_off(world: "Simulation", fault: Fault) -> None:
    if node := world.spare(lambda each: not each.cut_off):
        world.say("!", f"node {node}", f"is cut off from the others for {fault.seconds:.2f} s")
        world.cluster.cut_off(node)
        world.clock.later(fault.seconds, lambda: world.cluster.rejoin(node))


def _silence(world: "Simulation", fault: Fault) -> None:
    node = world.chance.choice(list(world.cluster.nodes))
    names = [name for name, each in world.processes.items() if each.alive]
    for name in world.chance.sample(names, world.chance.randint(1, len(names))) if names else ():
        world.say("!", name, f"and node {node} do not hear each other for {fault.seconds:.2f} s")
        world.network.silence(name, node, fault.seconds)


def _swallow(world: "Simulation", fault: Fault) -> None:
    links = list(world.network.links.values())
    for link in world.chance.sample(links, min(len(links), world.chance.choice((1, 3)))):
        world.network.swallow(link)


def _clog(world: "Simulation", fault: Fault) -> None:
    links = list(world.network.links.values())
    for link in world.chance.sample(links, min(len(links), world.chance.choice((1, 2, 8)))):
        world.network.clog(link, fault.seconds)


def _slow(world: "Simulation", fault: Fault) -> None:
    node = world.chance.choice(list(world.cluster.nodes))
    there, back = world.chance.choice(((10, 10), (50, 50), (200, 200), (1, 50), (1, 200), (1, 200)))
    world.say("!", f"node {node}", f"is {there} and {back} times slower for {fault.seconds:.2f} s")
    world.network.slow[node] = (there, back)

    def end() -> None:
        world.network.slow.pop(node, None)
        if world.chance.random() < 0.5:
            for link in [each for each in world.network.links.values() if each.node == node]:
                world.network.cut(link, "the way changed")

    world.clock.later(fault.seconds, end)


def _refuse(world: "Simulation", fault: Fault) -> None:
    errors = (
        (NotEnoughReplicas, False),
        (NotEnoughReplicas, False),
        (NotEnoughReplicasAfterAppend, True),
        (RequestTimedOut, True),
        (KafkaStorageError, False),
        (NotLeaderOrFollower, True),  # it appended as the leader, and was deposed while it waited for its replicas
        (UnknownTopicOrPartition, True),
    )
    error, stored = world.chance.choice(errors)
    places = [place for place in world.cluster.leaders if place[0] != OFFSETS]
    for place in world.chance.sample(places, world.chance.randint(1, len(places))):
        until = world.clock.now + fault.seconds / 2
        world.say("!", f"{place[0]}-{place[1]}", f"refuses with {error.name}, {stored=}, for {fault.seconds / 2:.2f} s")
        world.cluster.data.refusals[place] = (error.code, stored, until)


def _freeze(world: "Simulation", fault: Fault) -> None:
    alive = [each for each in world.processes.values() if each.alive]
    members = [each.process for each in world.members.values()]
    if alive:
        world.chance.choice(members if members and world.chance.random() < 0.7 else alive).freeze(fault.seconds)


def _forget_sessions(world: "Simulation", fault: Fault) -> None:
    world.say("!", "all nodes", "forget their fetch sessions")
    world.cluster.data.sessions.clear()


def _kill_member(world: "Simulation", fault: Fault) -> None:
    if world.members:
        world.kill(world.chance.choice(list(world.members)))


def _leave(world: "Simulation", fault: Fault) -> None:
    if world.members:
        world.members[world.chance.choice(list(world.members))].stop.succeed(None)
        world.clock.later(fault.seconds, world.join)


def _join(world: "Simulation", fault: Fault) -> None:
    if len(world.members) < 6:
        world.join()


def _usurp(world: "Simulation", fault: Fault) -> None:
    lone = [name for name, each in world.members.items() if each.instance and not each.rival]
    if lone:
        world.usurp(world.chance.choice(lone))


def _move_coordinator(world: "Simulation", fault: Fault) -> None:
    world.cluster.move_some([world.cluster.groups.place(world.group.group)])


def _refuse_commits(world: "Simulation", fault: Fault) -> object:
    """The coordinator refuses offsets of some partitions with an error that no retry overcomes until it is mended."""
    if not world.group.everything:
        return False  # other members do not repeat a failed commit
    error = world.chance.choice((OffsetMetadataTooLarge, TopicAuthorizationFailed))
    for place in world.chance.sample(world.group.places, world.chance.randint(1, len(world.group.places))):
        world.say("!", f"{place[0]}-{place[1]}", f"cannot be committed for {fault.seconds:.2f} s: {error.name}")
        world.cluster.groups.refusals[place] = (error.code, world.clock.now + fault.seconds)
    return True


def _hold_commit(world: "Simulation", fault: Fault) -> None:
    """A commit gets no answer, and arrives after a later one of the same client."""
    world.holds_commit = True


def _expel(world: "Simulation", fault: Fault) -> object:
    """An administrator removes a member while its user handles a batch; the member joins again meanwhile."""
    able = [each for each in world.members.values() if not each.rival and not each.stop.done]
    if not able:
        return False
    manner = world.manner
    world.protocols.choice(able).toils = min(4 * manner.session, 0.8 * manner.max_poll_interval), fault.seconds > 0
    return True


def _turn_classic(world: "Simulation", fault: Fault) -> object:
    """The group of a member that chooses its protocol becomes a classic one while its user handles a batch."""
    choosing = [each for each in world.members.values() if each.protocol == "auto" and not each.stop.done]
    if not choosing:
        return False
    member = world.protocols.choice(choosing)
    member.toils, member.removes = (min(2.0, 0.8 * world.manner.max_poll_interval), False), world.turn_classic
    return True


def _delay_commits(world: "Simulation", fault: Fault) -> None:
    """The coordinator refuses offsets of some partitions for a moment, and clients retry the commits."""
    until = world.clock.now + min(fault.seconds, 2.0)
    for place in world.chance.sample(world.group.places, world.chance.randint(1, len(world.group.places))):
        world.say("!", f"{place[0]}-{place[1]}", f"cannot be committed yet, until {until:.4f}")
        world.cluster.groups.refusals[place] = (UnknownTopicOrPartition.code, until)
    world.cluster.groups.slow_down(world.group.group, until)  # so other commits follow meanwhile


def _lose_replicas(world: "Simulation", fault: Fault) -> None:
    """Leaders append without enough replicas, and for longer than a short delivery timeout."""
    timeout = world.options.delivery_timeout
    until = world.clock.now + (1.5 * timeout if timeout < LONG else fault.seconds / 2)
    places = [place for place in world.cluster.leaders if place[0] != OFFSETS]
    for place in world.chance.sample(places, world.chance.randint(1, len(places))):
        world.say("!", f"{place[0]}-{place[1]}", f"appends without its replicas until {until:.4f}")
        world.cluster.data.refusals[place] = (NotEnoughReplicasAfterAppend.code, True, until)
        world.cluster.data.stubborn[place] = until


def _step_down(world: "Simulation", fault: Fault) -> None:
    """Leaders append and answer NOT_LEADER_OR_FOLLOWER; some then lose their producers' state."""
    places = [place for place in world.cluster.leaders if place[0] != OFFSETS]
    until = world.clock.now + fault.seconds / 2
    for place in world.chance.sample(places, world.chance.randint(1, len(places))):
        world.say(
            "!", f"{place[0]}-{place[1]}", f"is appended to by a leader that steps down, for {fault.seconds / 2:.2f} s"
        )
        world.cluster.data.refusals[place] = (NotLeaderOrFollower.code, True, until)
    _expire(world, fault)


def _expire(world: "Simulation", fault: Fault) -> None:
    """Forget producers as soon as that is allowed."""
    until = world.clock.now + fault.seconds

    def attempt() -> None:
        found = [(place, pid) for place, log in world.cluster.logs.items() for pid in log.producers]
        fit = [each for each in found if world.may_expire(*each)]
        for place, pid in world.chance.sample(fit, world.chance.randint(0, len(fit))):
            world.say("!", f"{place[0]}-{place[1]}", f"forgets producer {pid}")
            world.expire(place, pid)
            world.cluster.data.features["a producer's state expires"] += 1
        if world.clock.now < until:
            world.clock.later(0.05, attempt)

    attempt()


def _recreate(world: "Simulation", fault: Fault) -> object:
    if RECREATED not in world.cluster.ids:
        return False
    world.say("!", RECREATED, f"is deleted, and recreated after {fault.seconds / 4:.2f} s")
    own = Random(f"{world.seed} recreated at {world.clock.now}")
    way = own.choice((_delete, _delete_late, _delete_quietly))
    way(world, fault, own)
    how = "with topic ids" if world.release >= "2.8" else "without topic ids"
    world.cluster.data.features[f"a topic is recreated, {how}"] += 1
    return True


def _delete_late(world: "Simulation", fault: Fault, own: Random) -> None:
    """Recreate the topic while the old log's acknowledgements are in flight: they arrive after the new metadata."""
    for each in world.producers:
        each.rush = 3
    for node in world.cluster.nodes:
        world.network.slow[node] = (1, own.choice((1, 100)))
    places = [place for place in world.cluster.logs if place[0] == RECREATED]
    until = world.clock.now + 2.0

    def look() -> None:
        late = [each for each in world.producers if any(map(each.heard_late, places))]
        if world.clock.now < until and not late:
            world.clock.later(0.003, look)
            return
        for each in late:
            each.avoid(0.0)
        world.cluster.data.features["a topic is recreated while an acknowledgement is under way"] += bool(late)
        _delete(world, fault, own, at_once=bool(late))
        world.clock.later(1.0, world.network.slow.clear)

    look()


def _delete_quietly(world: "Simulation", fault: Fault, own: Random) -> None:
    """Recreate the topic while no batch is in flight: all batches for the new log then have a new epoch."""
    for each in world.producers:
        each.avoid(0.6)
    world.clock.later(0.5, partial(_delete, world, fault, own))


def _delete(world: "Simulation", fault: Fault, own: Random, *, at_once: bool = False) -> None:
    world.cluster.delete(RECREATED)
    pause = fault.seconds / 4 if own.random() < 0.7 and not at_once else 0.0

    def again() -> None:
        world.cluster.create(RECREATED)
        for each in world.producers:
            each.rush = 3
        if at_once:
            world.cluster.announce_at_once()
        for place in [place for place in world.cluster.leaders if place[0] == RECREATED]:
            # The replicas of a new topic take a moment to be in sync.
            for each in world.producers:
                if each.batches_at(place) and world.release < "4.3":
                    world.ledger.forget(place, each.process.name)
            world.cluster.data.refusals[place] = (NotEnoughReplicas.code, False, world.clock.now + 1.5)

    world.clock.later(pause, again)


FAULTS: dict[str, Callable[["Simulation", Fault], object]] = {
    "cut": _cut,
    "move": _move,
    "crash": _crash,
    "outage": _outage,
    "sleep": _sleep,
    "cut off": _cut_off,
    "silence": _silence,
    "slow": _slow,
    "swallow": _swallow,
    "clog": _clog,
    "refuse": _refuse,
    "freeze": _freeze,
    "forget sessions": _forget_sessions,
    "kill a member": _kill_member,
    "a member leaves": _leave,
    "a member joins": _join,
    "usurp": _usurp,
    "move the coordinator": _move_coordinator,
    "refuse commits": _refuse_commits,
    "delay commits": _delay_commits,
    "lose replicas": _lose_replicas,
    "step down": _step_down,
    "expire": _expire,
    "recreate": _recreate,
}
OF_GROUPS: dict[str, Callable[["Simulation", Fault], object]] = {
    "hold a commit": _hold_commit,
    "expel a busy member": _expel,
    "turn a group classic": _turn_classic,
}
"""Faults of worlds of both group protocols; `drawn` does not draw them."""
