"""Replay a seed and print its history: ``python -m tests.sim SEED``.

``python -m tests.sim FROM..TO`` plays many seeds, on all processors. ``--broken NAME`` breaks the client on purpose, by
a mutation (`tests.sim.mutations`). ``python -m tests.sim mutations`` plays all mutations, on all processors, prints the
seed that catches each, and stores it in ``caught.json``, so that the next run tries that seed first: after a change of
the client, another seed may catch the mutation.

By default the client runs against a model cluster. ``--broker`` runs brokerlite on a model disk instead
(`tests.sim.broker`), ``--broker-groups`` the same with members of both group protocols, ``--broker-shares`` with
members of share groups (`tests.sim.broker.shares`), ``--transactions`` the client's transactions
(`tests.sim.transfers`), ``--onlookers`` consumers that read them committed (`tests.sim.onlookers`), ``--groups``
members of both group protocols (`tests.sim.modern_groups`), ``--transforms`` consume, transform, produce
(`tests.sim.transforms`), ``--group-transforms`` the same by the new group protocol, ``--shares`` members of share
groups (`tests.sim.shares`), ``--proxy`` clients of the proxy (`tests.sim.proxy.world`), ``--proxied-transactions``
transactions through it (`tests.sim.proxy.transfers`), and ``--guarded`` clients of a proxy with logins and ACLs that
change (`tests.sim.proxy.guarded`).
"""

import argparse
import logging
import sys
import time
from collections import Counter
from functools import partial
from typing import NamedTuple

from tests.sim import onlookers, run, shares, transfers, transforms
from tests.sim.broker import shares as broker_shares
from tests.sim.broker import world
from tests.sim.broker.group_mutations import OF_BROKER_GROUPS
from tests.sim.broker.mutations import OF_BROKER
from tests.sim.broker.share_mutations import OF_BROKER_SHARES
from tests.sim.group_mutations import OF_GROUP_TRANSFORMS, OF_GROUPS
from tests.sim.mutations import OF_CLIENT, Mutations
from tests.sim.onlookers import OF_ONLOOKERS
from tests.sim.proxy import guarded
from tests.sim.proxy import transfers as through
from tests.sim.proxy import world as proxied
from tests.sim.proxy.mutations import OF_PROXY
from tests.sim.proxy.transfer_mutations import OF_TRANSFERS
from tests.sim.share_mutations import OF_SHARES
from tests.sim.transaction_mutations import OF_TRANSACTIONS
from tests.sim.transform_mutations import OF_TRANSFORMS


class World(NamedTuple):
    """A world that can run instead of the client against the model cluster."""

    play: run.Play
    mutations: Mutations
    about: str


WORLDS = {
    "broker": World(world.play, OF_BROKER, "play brokerlite on a model disk"),
    "broker-groups": World(world.play_protocols, OF_BROKER_GROUPS, "play brokerlite with members of both protocols"),
    "broker-shares": World(broker_shares.play, OF_BROKER_SHARES, "play brokerlite with members of share groups"),
    "transactions": World(transfers.play, OF_TRANSACTIONS, "play the client's transactions"),
    "onlookers": World(onlookers.play, OF_ONLOOKERS, "play readers of committed records beside them"),
    "proxy": World(proxied.play, OF_PROXY, "play clients of the proxy"),
    "proxied-transactions": World(through.play, OF_TRANSFERS, "play transactions through the proxy"),
    "guarded": World(guarded.play, guarded.OF_GUARDED, "play clients of a proxy with logins and ACLs"),
    "groups": World(run.play_protocols, OF_GROUPS, "play members of both group protocols"),
    "group-transforms": World(transforms.play_modern, OF_GROUP_TRANSFORMS, "play transforms in groups of KIP-848"),
    "shares": World(shares.play, OF_SHARES, "play members of share groups"),
    "transforms": World(transforms.play, OF_TRANSFORMS, "play consume, transform, produce"),
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seeds", help="a seed; FROM..TO for all of these; or mutations")
    parser.add_argument("--broken", metavar="NAME", help="the name of a mutation")
    for name, other in WORLDS.items():
        parser.add_argument(f"--{name}", dest="world", action="store_const", const=other, help=other.about)
    given = parser.parse_args(arguments)
    play, broken = (run.play, OF_CLIENT) if given.world is None else (given.world.play, given.world.mutations)
    if given.broken is not None and given.broken not in broken.known:
        parser.error(f"no such mutation; there are: {', '.join(broken.known)}")
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    if given.seeds == "mutations":
        return mutations(play, broken)
    if ".." in given.seeds:
        first, last = map(int, given.seeds.split(".."))
        return many(partial(play, broken=given.broken), first, last)
    result = play(int(given.seeds), told=True, broken=given.broken)
    print("\n".join(result.history))
    print(f"\n{result.records} records, {result.requests} requests, {result.seconds:.3f} s of virtual time")
    print(f"seed {result.seed}: {result.violation or 'every promise is kept'}")
    return int(result.violation is not None)


def many(play: run.Play, first: int, last: int) -> int:
    start, broken = time.monotonic(), 0
    features: Counter[str] = Counter()
    for result in run.play_many(range(first, last), play=play):
        features += result.features
        if result.violation:
            broken += 1
            print(f"seed {result.seed}: {result.cause}", flush=True)
    for feature, times in sorted(features.items()):
        print(f"{times} times: {feature}")
    print(f"{last - first} seeds in {time.monotonic() - start:.1f} s, {broken} of them broken")
    return int(bool(broken))


def mutations(play: run.Play, broken: Mutations) -> int:
    """Print for each mutation the seed that catches it and the violation; store the seeds for the next run."""
    missed, caught = 0, {}
    for name, result, seconds in run.caught(broken.seeds, play=play):
        if result is None:
            missed += 1
            print(f"{name}\n    NONE of {len(broken.seeds[name])} seeds, after {seconds:.1f} s", flush=True)
        else:
            caught[name] = result.seed
            print(f"{name}\n    seed {result.seed}, after {seconds:.1f} s: {result.cause[:140]}", flush=True)
    broken.note(caught)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
