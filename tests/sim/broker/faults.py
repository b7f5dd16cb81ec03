"""Faults of a broker, its disk and its connections, and their times: drawn from the seed before the run begins."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.sim import faults as of_clients
from tests.sim.broker.server import NODE
from tests.sim.faults import Fault

if TYPE_CHECKING:
    from tests.sim.broker.hosted import Hosted
    from tests.sim.broker.world import BrokerWorld

LONGEST = 4.0
"""Most seconds that a fault lasts."""


def drawn(chance: Random, seconds: float, *, sync: bool) -> list[Fault]:
    """At least three faults within ``seconds``, in the order of their times."""
    kinds = [kind for kind in FAULTS if sync or kind not in NEEDS_SYNC]
    weights = [4 if kind in OFTEN else 1 for kind in kinds]
    faults = [
        Fault(
            chance.uniform(0.0, seconds),
            chance.choices(kinds, weights)[0],
            min(chance.choice((0.02, 0.1, 0.5, 2.0, 4.0)) * chance.uniform(0.5, 1.0), LONGEST),
        )
        for _ in range(chance.randint(3, 9))
    ]
    return sorted(faults, key=lambda each: each.at)


def _kill(world: "Hosted", fault: Fault) -> object:
    if not world.server.is_up:
        return False
    world.server.kill("is killed")
    _again(world, fault)
    return True


def _kill_within(world: "Hosted", fault: Fault) -> object:
    """Kill the broker during one of the next operations of the disk."""
    if not world.server.is_up:
        return False
    world.disk.kill_at = world.disk.operations + world.chance.randint(1, 30)
    _await_end(world, fault)
    return True


def _await_end(world: "Hosted", fault: Fault) -> None:
    """Start the broker again after its end, which is near."""
    if world.server.is_up and not world.over:
        world.clock.later(0.05, lambda: _await_end(world, fault))
    else:
        world.disk.kill_at = None  # if the kill has not come yet, and all users are done
        _again(world, fault)


def _again(world: "Hosted", fault: Fault) -> None:
    """Start the broker after a while; sometimes kill it during the start, too."""
    if world.chance.random() < 0.3:
        world.clock.later(fault.seconds, lambda: _start_and_kill(world, fault))
    else:
        world.clock.later(fault.seconds, world.server.start)


def _start_and_kill(world: "Hosted", fault: Fault) -> None:
    if world.server.is_up:
        return
    world.disk.kill_at = world.disk.operations + world.chance.randint(1, 40)
    world.server.start()
    if not world.server.is_up:
        world.features["a start is cut short"] += 1
        if world.sync and world.chance.random() < 0.5:
            world.server.cut_power()
        world.clock.later(fault.seconds, world.server.start)
    else:
        _await_end(world, fault)


def _stop(world: "Hosted", fault: Fault) -> object:
    if not world.server.is_up:
        return False
    if world.chance.random() < 0.2:
        world.disk.kill_at = world.disk.operations + world.chance.randint(1, 60)
    world.server.stop()
    _again(world, fault)
    return True


def _power(world: "Hosted", fault: Fault) -> object:
    world.server.cut_power()
    _again(world, fault)
    return True


def _power_within(world: "Hosted", fault: Fault) -> object:
    """Cut the power during one of the next operations of the disk."""
    if not world.server.is_up:
        return False
    world.disk.kill_at = world.disk.operations + world.chance.randint(1, 30)

    def look() -> None:
        if world.server.is_up and not world.over:
            world.clock.later(0.01, look)
        elif world.server.is_up:
            world.disk.kill_at = None
        else:
            world.server.cut_power()
            _again(world, fault)

    look()
    return True


def _full(world: "Hosted", fault: Fault) -> object:
    """The disk has little room for a while."""
    if not world.server.disk_is_well:
        return False
    world.disk.room = world.chance.choice((0, 100, 1000, 5000))
    _in_trouble(world, fault)

    def end() -> None:
        world.disk.room = None
        _well(world)

    world.clock.later(fault.seconds, end)
    return True


def _fails(world: "Hosted", fault: Fault) -> object:
    """Some operations of the disk fail for a while; then the broker is restarted, as by an operator."""
    if not world.server.disk_is_well:
        return False
    own = Random(world.chance.getrandbits(64))
    kinds = own.sample(("write", "create", "rename", "sync", "truncate"), own.randint(1, 3))
    often = own.choice((0.1, 0.5, 1.0))

    def fails(operation: str, path: Path) -> bool:
        return operation in kinds and own.random() < often

    world.disk.fails = fails
    _in_trouble(world, fault)

    def end() -> None:
        world.disk.fails = lambda operation, path: False
        _well(world)
        if world.server.is_up:
            if world.sync and own.random() < 0.5:
                world.server.cut_power()
            else:
                world.server.kill("is started again, because its disk has failed")
            world.clock.later(0.1, world.server.start)

    world.clock.later(fault.seconds, end)
    return True


def _in_trouble(world: "Hosted", fault: Fault) -> None:
    world.say("!", "disk", f"{fault.kind} for {fault.seconds:.2f} s")
    world.server.disk_is_well = False
    world.trouble_until = max(world.trouble_until, world.clock.now + fault.seconds)


def _well(world: "Hosted") -> None:
    world.server.disk_is_well = True


def _slow(world: "Hosted", fault: Fault) -> None:
    world.network.slow[NODE] = world.chance.choice(((10, 10), (50, 50), (1, 100)))
    world.clock.later(fault.seconds, lambda: world.network.slow.pop(NODE, None))


def _silence(world: "Hosted", fault: Fault) -> None:
    names = [*world.processes, *world.peers]
    for name in world.chance.sample(names, world.chance.randint(1, len(names))):
        world.say("!", name, f"and the broker do not hear each other for {fault.seconds:.2f} s")
        world.network.silence(name, NODE, fault.seconds)


def _freeze(world: "Hosted", fault: Fault) -> None:
    everybody: list[Any] = [*world.processes.values(), *world.peers.values()]
    world.chance.choice([each for each in everybody if each.alive]).freeze(fault.seconds)


def _kill_producer(world: "BrokerWorld", fault: Fault) -> object:
    """Kill a transactional producer or worker and start a successor, or start the successor while the old one lives."""
    peers = [each for each in world.peers.values() if each.again is not None]
    if not peers:
        return False
    peer = world.chance.choice(peers)
    assert peer.again is not None
    if world.chance.random() < 0.5:
        peer.kill()
        del world.peers[peer.name]
        world.features["a transactional producer dies"] += 1
        if world.chance.random() < 0.4:  # so that its transaction ends by the timeout
            world.clock.later(12.0, peer.again)
            return True
    else:
        world.features["a transactional producer is usurped"] += 1
    world.clock.later(fault.seconds / 4, peer.again)
    return True


def _kill_member(world: "BrokerWorld", fault: Fault) -> None:
    if world.members:
        world.kill(world.chance.choice(list(world.members)))


def _shared(kind: str) -> Callable[[Any, Fault], object]:
    """A fault of connections or members, as in the worlds of the model cluster."""
    strike: Any = of_clients.FAULTS[kind]
    return lambda world, fault: strike(world, fault)


OF_A_BROKER: dict[str, Callable[["Hosted", Fault], object]] = {
    "kill": _kill,
    "kill within a write": _kill_within,
    "stop": _stop,
    "power": _power,
    "power within a write": _power_within,
    "the disk is full": _full,
    "the disk fails": _fails,
    "cut": _shared("cut"),
    "swallow": _shared("swallow"),
    "clog": _shared("clog"),
    "slow": _slow,
    "silence": _silence,
    "freeze": _freeze,
}
"""Faults that every world may have."""
FAULTS: dict[str, Callable[["BrokerWorld", Fault], object]] = {
    **OF_A_BROKER,
    "kill a producer": _kill_producer,
    "kill a member": _kill_member,
    "a member leaves": _shared("a member leaves"),
    "a member joins": _shared("a member joins"),
}
NEEDS_SYNC = frozenset(("power", "power within a write"))
"""Faults for brokers that answer only once the disk has the data."""
OFTEN = frozenset(("kill within a write", "power within a write", "kill a producer", "cut"))
