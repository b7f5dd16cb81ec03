"""One run of brokerlite on a model disk, drawn from a seed, until all work is done or a promise is broken."""

import traceback
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.brokerlite.machines.groups import group_log
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.topics.housekeeping import HousekeepingSettings
from ottla.brokerlite.machines.transactions import (
    transaction_coordinator,
    transaction_ends,
    transaction_log,
    transaction_metadata,
)
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.sdk.options import Options
from ottla.sdk.produce import accumulator
from ottla.sdk.produce.options import ProducerOptions
from tests.sim.bounds import Watched
from tests.sim.broker import deleting, keyed
from tests.sim.broker.admin import Administering
from tests.sim.broker.deleting import Deleting
from tests.sim.broker.faults import FAULTS, drawn
from tests.sim.broker.group_mutations import MUTATIONS as BROKER_GROUPS
from tests.sim.broker.heartbeats import Heartbeats, Odd
from tests.sim.broker.hosted import Hosted, settings
from tests.sim.broker.keyed import Keyed
from tests.sim.broker.mutations import MUTATIONS
from tests.sim.broker.peer import Peer
from tests.sim.broker.producers import V1, V2, Carrying, Transacting, Work
from tests.sim.broker.readers import Seen, by_client, by_hand
from tests.sim.broker.server import NODE, Manner
from tests.sim.broker.views import BrokerGroupLedger
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.faults import Fault
from tests.sim.history import History
from tests.sim.ledger import Ledger
from tests.sim.members import Consuming
from tests.sim.members import Manner as Membership
from tests.sim.mutations import changed
from tests.sim.network import Link, Network
from tests.sim.run import Result, logged_to
from tests.sim.scripts import Producing
from tests.sim.transaction_ledger import TransactionLedger
from tests.sim.users import Process, Violation

LIMIT = 150.0
"""Seconds after the last fault within which everything has to be done."""
LOOK = 0.25
"""Seconds between two checks whether everything is done."""
GROUP, WORKERS = "billing", "workers"
SLACK = 2.5
"""Seconds that a broker may take in addition to a transaction's timeout: it retries markers that the disk refused."""
WENT_BACK = "committed offsets have gone back after a restart"


class BrokerWorld(Hosted):
    """The draws of a seed: how the broker runs, who its users are, which faults strike and when.

    Args:
        protocols: members of the shipped client use both group protocols.
    """

    def __init__(self, seed: int, *, told: bool = False, protocols: bool = False) -> None:
        chance, clock = Random(f"{seed} broker"), Clock()
        history = History(clock, told)
        network = Network(clock, Random(f"{seed} network"), history)
        self.seconds = chance.choice((3.0, 6.0, 10.0))
        self.topics = {"a": chance.randint(1, 2), "b": 1}
        """The topics of the shipped client."""
        self.last_epoch = chance.choice((3, 7)) if chance.random() < 0.2 else None
        """The last epoch of a producer id, in the worlds that test this."""
        self.transactional = {"t": chance.randint(1, 3)}
        carried = {"out": self.transactional["t"]}
        sync, ordered = chance.random() < 0.5, chance.random() < 0.5
        own = Random(f"{seed} deleting")
        retention = deleting.Manner.drawn(own) if own.random() < 0.5 else None
        configs = {keyed.TOPIC: keyed.CONFIGS, **({deleting.TOPIC: retention.configs} if retention else {})}
        manner = Manner(
            sync=sync,
            topics={**self.topics, **self.transactional, **carried, **dict.fromkeys(configs, 1)},
            configs=configs,
            defaults={
                "retention.ms": "-1",
                "segment.bytes": str(chance.choice((2000, 10_000, 2**30))),
                "index.interval.bytes": str(chance.choice((100, 1000))),
            },
            settings=settings(
                sync=sync,
                work_at_once=Random(f"{seed} threads").choice((0, 1000, 2**20)),
                groups=GroupSettings(initial_rebalance_delay=0.2, min_session_timeout=1.0),
                consumer_groups=ConsumerGroupSettings(session_timeout=3.0, heartbeat_interval=0.5),
                housekeeping=HousekeepingSettings(retention_check=1.0, cleaner_backoff=0.3),
            ),
        )
        super().__init__(seed, chance, clock, network, history, manner, ordered=ordered)
        self.appended = self._appended
        self.ledger = Ledger(self.cluster)  # type: ignore[arg-type] # it has the attributes that the ledger uses
        self.transactions = TransactionLedger(self.logs, SLACK)
        places = [(topic, index) for topic, count in self.topics.items() for index in range(count)]
        self.group = BrokerGroupLedger(self.ledger, GROUP, places)
        self.group.server = self.server
        self.network.sent, self.network.delivered = self._sent, self._delivered
        drawn_manner = Membership.drawn(chance, Random(f"{seed} manner"))
        self.membership = replace(drawn_manner, slow=0.0, static=False, pattern=False, curious=False)
        self.protocols = Random(f"{seed} protocols") if protocols else None
        self.heartbeats = Heartbeats(self.server)
        if protocols:  # a member that chooses offers the default assignors
            self.membership = replace(
                self.membership, assignors=("range", "cooperative-sticky"), max_poll_interval=20.0
            )
            if Random(f"{seed} lingers").random() < 0.3:
                self.membership = replace(self.membership, lingers=0.5)
        self.options = Options(
            connect_timeout=chance.choice((1.0, 10.0)),
            request_timeout=chance.choice((2.0, 10.0)),
            api_timeout=60.0,
            delivery_timeout=120.0,
            fetch_max_bytes=chance.choice((3000, 50 * 2**20)),
            partition_max_bytes=chance.choice((200, 2000, 2**20)),
            fetch_max_wait=0.5,
        )
        self.members: dict[str, Consuming] = {}
        self.producers: list[Producing] = []
        self.works: list[Work] = []
        self.workers: list[Carrying] = []
        self.seen: list[Seen] = []
        self.admin: Administering | None = None
        self.keyed: Keyed | None = None
        self.deleting: Deleting | None = None
        if retention is not None:
            self.deleting = Deleting(
                retention,
                own,
                self.features,
                self.seconds / 60,
                lambda: self.over,
                lambda: self.server.timestamp,
                lambda: self.server.disk_is_well,
            )
        self._member_count = self._peer_count = 0
        self._committed: dict[str, dict[Place, int]] = {}
        """Group -> offsets that the coordinator has acknowledged."""
        self.producing = 0
        self.ended = False
        self.faults: list[Fault] = drawn(chance, self.seconds, sync=sync)
        said = f"{manner.topics}, {manner.defaults}, {retention}, {sync=}, {self.options}, {self.membership}"
        self.say("#", f"seed {seed}", said)

    # -- observation -------------------------------------------------------------------------------------------------

    def _sent(self, link: Link, message: Any) -> None:
        if isinstance(link.client, Process):
            self.group.sent(link, message)
            self.ledger.sent_off(message, earlier=link.writing)

    def _delivered(self, link: Link, request: Any, answer: Any) -> None:
        if isinstance(link.client, Process):
            self.group.delivered(link.client.name, request, answer)

    def _written(self) -> None:
        super()._written()
        if self.server.is_up and self.deleting is not None:
            self.deleting.look(self.server.core)

    def _answered(self, client: str, request: Any, answer: Any) -> None:
        super()._answered(client, request, answer)
        self.heartbeats.answered(request, answer)
        if isinstance(request, InitProducerIdRequest) and isinstance(answer, InitProducerIdResponse):
            self.transactions.initialized(request, answer)

    def _appended(self, place: Place, stored: Any) -> None:
        self.transactions.appended(place, stored)

    def _started(self) -> None:
        """The broker is up again: compare its state, and observe its commits."""
        super()._started()
        self.heartbeats.started()
        core = self.server.core
        if self.admin is not None:
            self.admin.check(core)
        if self.keyed is not None:
            self.keyed.check(core)
        if self.deleting is not None:
            self.deleting.compare(core)
        for group, offsets in self._committed.items():
            now = core.offsets.of(group)
            for place, offset in offsets.items():
                if place not in now or now[place].offset < offset:
                    told = now[place].offset if place in now else None
                    raise Violation(WENT_BACK, f"{group}, {place[0]}-{place[1]}: {told} after {offset}")
        begin_commit, commit = core.offsets.begin_commit, core.offsets.commit
        committers: list[Committer] = [Committer()]

        def begun(group_id: str, committer: Committer, *args: Any, **names: Any) -> Any:
            committers[0] = committer
            return begin_commit(group_id, committer, *args, **names)

        def committed(group: Any, offsets: Any, transactional: Any = None) -> None:
            if group.group_id == GROUP:
                view = self.cluster.get(GROUP)
                for place, each in offsets.items():
                    self.group.committed(view, committers[0].member_id, place, each.offset)  # type: ignore[arg-type]
            commit(group, offsets, transactional)

        core.offsets.begin_commit = begun  # type: ignore[method-assign] # to see who commits
        core.offsets.commit = committed  # type: ignore[method-assign] # to see accepted offsets

    # -- users -------------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        process = self.processes[name] = Process(
            name, self.clock, self.network, self.history, self.options, 1, Random(f"{self.seed} {name}")
        )
        return process

    def peer(self, name: str) -> Peer:
        peer = self.peers[name] = Peer(name, NODE, self.clock, self.network, self.history)
        return peer

    def _people(self) -> None:
        self._produce()
        for _ in range(self.chance.choice((1, 2, 2))):
            self.clock.later(self.chance.choice((0.0, self.seconds / 2)), self.join)
        versions = self.chance.choice(((V1,), (V2,), (V1, V2), (V2, V2)))
        for index, version in enumerate(versions):
            timeout = self.chance.choice((1.0, 3.0, 6.0))
            work = Work(f"x{index}", version, timeout, self.chance.randint(4, 10))
            self.works.append(work)
            for _ in range(self.chance.choice((1, 1, 2))):
                self.clock.later(self.chance.uniform(0.0, 1.0), partial(self.transact, work))
        self.transactions.chains["t", "out"] = WORKERS
        for index in range(self.transactional["t"]):
            work = Work(f"w{index}", self.chance.choice((V1, V2)), self.chance.choice((1.0, 3.0)), 0)
            for _ in range(self.chance.choice((1, 1, 2))):
                self.clock.later(self.chance.uniform(0.0, 1.0), partial(self.carry, work, index))
        self._read()
        own = Random(f"{self.seed} keyed")
        if own.random() < 0.6:
            peer = self.peer("keyed")
            self.keyed = Keyed(peer, own, self.features, self.seconds / 100, lambda: self.over)
            peer.run(self.keyed.script(), partial(self._went, "keyed"))
        if self.deleting is not None:
            for index, script in enumerate(self.deleting.scripts):
                peer = self.peer(f"deleting{index}")
                peer.run(script(peer), partial(self._went, peer.name))
        own = Random(f"{self.seed} odd")
        if self.protocols is not None and own.random() < 0.6:
            for index in range(own.choice((2, 3))):
                peer = self.peer(f"odd{index}")
                odd = Odd(
                    peer, Random(f"{self.seed} {peer.name}"), self.features, tuple(self.topics), lambda: self.over
                )
                peer.run(odd.script(), partial(self._went, peer.name))
        own = Random(f"{self.seed} admin")
        if own.random() < 0.4:
            peer = self.peer("admin")
            self.admin = Administering(peer, own, self.features, self.seconds / 10, lambda: self.over)
            peer.run(self.admin.script(), partial(self._went, "admin"))

    def _produce(self) -> None:
        chance = self.chance
        for index in range(chance.choice((1, 2))):
            options = ProducerOptions(
                acks=-1,
                idempotent=True,
                linger=chance.choice((0.0, 0.005)),
                batch_size=chance.choice((150, 400, 2000)),
                partitioner="murmur2",
                buffer_memory=chance.choice((10_000, 2**20)),
            )
            name = f"p{index}"
            producing = Producing(
                self.process(name),
                self.ledger,
                options,
                Random(f"{self.seed} {name}"),
                self.topics,
                60,
                self.seconds,
                chance.choice((1, 5)),
                self.seed,
                chance.choice((0.0, 0.02)),
            )
            self.producers.append(producing)
            self.producing += 1
            self.processes[name].run(producing.script(), partial(self._produced, producing))

    def _produced(self, producing: Producing) -> None:
        self.producing -= 1
        producing.process.close()

    def join(self) -> None:
        """Add a member to the group of the shipped client."""
        if self.over:
            return
        self._member_count += 1
        name = f"c{self._member_count}"
        process = self.process(name)
        chance = Random(f"{self.seed} {name}")
        protocol = self.protocols.choice(("classic", "consumer", "consumer", "auto")) if self.protocols else "classic"
        self.features[f"a member is {protocol}"] += 1
        topics = tuple(self.topics)
        member = Consuming(name, process, self.group, chance, self.membership, topics, None, False, protocol)
        member.seed = self.seed
        member.__post_init__()
        self.members[name] = member
        process.run(member.script(), partial(self._gone, name))

    def _gone(self, name: str) -> None:
        self.members.pop(name).process.close()
        if not self.members:
            self.join()  # which does nothing once everything is done

    def kill(self, name: str) -> None:
        """Kill a member, and start another one after a while."""
        self.members.pop(name).process.kill()
        self.clock.later(self.chance.uniform(0.0, 3.0), self.join)

    def transact(self, work: Work) -> None:
        """Start one more producer with a transactional id."""
        if self.over or work.left <= 0:
            return
        self._peer_count += 1
        name = f"{work.transactional_id}-{self._peer_count}"
        peer, chance = self.peer(name), Random(f"{self.seed} {name}")
        places = [(topic, index) for topic, count in self.transactional.items() for index in range(count)]
        producer = Transacting(peer, self.transactions, work, chance, self.features, places)
        peer.again = partial(self.transact, work)
        peer.run(producer.script(), partial(self._went, name))

    def carry(self, work: Work, index: int) -> None:
        """Start one more worker for a partition."""
        if self.over:
            return
        self._peer_count += 1
        name = f"{work.transactional_id}-{self._peer_count}"
        peer, chance = self.peer(name), Random(f"{self.seed} {name}")
        worker = Carrying(peer, self.transactions, work, chance, self.features, [], source=("t", index))
        worker.target, worker.group = ("out", index), WORKERS
        self.workers.append(worker)
        peer.again = partial(self.carry, work, index)
        peer.run(worker.script(), partial(self._went, name))

    def _went(self, name: str) -> None:
        del self.peers[name]

    def _read(self) -> None:
        places = [each for each in self.server.places() if each[0] in ("t", "out")]
        by = Seen("r0", self.logs, places)
        self.seen.append(by)
        peer = self.peer("r0")
        peer.run(by_hand(by, lambda: self.over), partial(self._went, "r0"))
        other = Seen("r1", self.logs, places)
        self.seen.append(other)
        process = self.process("r1")
        process.run(by_client(process, other))

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        violation = None
        changes: list[Any] = [(accumulator, "ProducerBatch", lambda _: Watched)]
        if (last := self.last_epoch) is not None:
            changes += [
                (module, "LAST_EPOCH", lambda _: last)
                for module in (transaction_metadata, transaction_coordinator, transaction_ends)
            ]
        small = {"segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.1"}  # so that compaction runs
        changes += [(module, "CONFIGS", lambda usual: {**usual, **small}) for module in (group_log, transaction_log)]
        with logged_to(None), changed(*changes):
            try:
                self._play()
            except Violation as broken:
                violation = broken
            except Exception as error:  # any exception of a machine is a finding, and must not end other seeds' runs
                violation = Violation("a machine raises", "".join(traceback.format_exception(error)))
                violation.__cause__ = error
        records = len(self.ledger.sent) + sum(len(each.values) for each in self.transactions.transactions)
        return Result(
            self.seed, violation, self.history.lines, self.clock.now, records, self.network.requests, self.features
        )

    def _play(self) -> None:
        self.begin()
        self._people()
        for fault in self.faults:
            self.clock.at(fault.at, partial(self._strike, fault))
        self.clock.later(LOOK, self._look)
        while not self.ended:
            if not self.clock.step():
                raise Violation("no event is left, and not everything is done", self._left())
        self.end()
        self.ledger.check()
        self.transactions.check()
        for each in self.seen:
            each.check()

    def _strike(self, fault: Fault) -> None:
        self.say("!", fault.kind, "")
        if FAULTS[fault.kind](self, fault) is not False:
            self.features[f"fault: {fault.kind}"] += 1

    def _left(self) -> str:
        """The work that is not done yet, for people; empty if there is none."""
        left = [] if self.server.is_up else ["the broker is down"]
        left += [f"{self.producing} producers are not done"] if self.producing else []
        left += [f"{each.left} transactions of {each.transactional_id}" for each in self.works if each.left > 0]
        left += filter(None, [self.group.behind()])
        for place, view in self.logs.views.items():
            if view.stable != view.end:
                left.append(f"a transaction is open in {place[0]}-{place[1]}")
        for index in range(self.transactional["t"]):
            there, carried = (len(self.logs.views[topic, index].decided) for topic in ("t", "out"))
            if carried < there:
                left.append(f"{carried} of {there} records of t-{index} are carried on")
        left += filter(None, (each.behind() for each in self.seen))
        return "; ".join(left)

    def _look(self) -> None:
        if self.server.is_up:
            self.transactions.look(self.clock.now, self.well_since)
        left = "faults" if self.clock.now <= self.faults[-1].at else self._left()
        if not left and not self.over:
            self.over = True
            self.say("·", "all", "is done")
            for each in self.members.values():
                each.stop.succeed(None)
            for worker in self.workers:
                worker.is_over = True
        if self.over and not self.members and not self.peers:
            self.ended = True
        elif self.clock.now > self.seconds + LIMIT:
            there = f"{', '.join([*self.members, *self.peers])} cannot leave"
            raise Violation("everything has to be done by now", left or there)
        else:
            self.clock.later(LOOK, self._look)


def play_protocols(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Like `play`, with members of both group protocols; ``broken`` is one of `BROKER_GROUPS`."""
    with BROKER_GROUPS[broken]() if broken else nullcontext():
        return BrokerWorld(seed, told=told, protocols=True).run()


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed.

    Args:
        told: keep the history.
        broken: the name of a mutation of the broker.
    """
    with MUTATIONS[broken]() if broken else nullcontext():
        return BrokerWorld(seed, told=told).run()
