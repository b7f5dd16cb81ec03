"""Share consumers of the shipped client and brokerlite on a model disk: each record is accepted once, none is lost.

Handwritten peers produce records, also in transactions that may be aborted. The broker is killed, loses its power,
stops and starts; its disk refuses operations; connections break, answers are late or lost; members freeze, die, leave
and come back, and their locks expire. `tests.sim.sharing` has the promises to users, `tests.sim.broker.share_ledger`
the rules of the broker. A group that reads committed gets no record of an aborted transaction.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from random import Random
from typing import Any

from ottla.brokerlite.machines import core as broker_core
from ottla.brokerlite.machines.core import BrokerCore
from ottla.brokerlite.machines.groups import group_log
from ottla.brokerlite.machines.share_partitions import share_partitions, stored_state
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings
from ottla.brokerlite.machines.topics.housekeeping import HousekeepingSettings
from ottla.codec.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.share_fetch import ACCEPT, REJECT, RELEASE
from ottla.codec.records import Record, build_batch, parse_batch
from ottla.errors import TopicAlreadyExists, UnknownTopicOrPartition
from ottla.sdk.share.locked_record import LockedRecord
from tests.brokerlite.sharing import Results, acknowledge, configure, fetch
from tests.sim.broker.admin import Administering
from tests.sim.broker.faults import FAULTS as OF_BROKERS
from tests.sim.broker.faults import NEEDS_SYNC, OF_A_BROKER
from tests.sim.broker.hosted import Hosted, settings
from tests.sim.broker.logs import LogView
from tests.sim.broker.peer import Ask, Peer, Steps
from tests.sim.broker.producers import V1, V2, Transacting, Work
from tests.sim.broker.server import NODE, Manner
from tests.sim.broker.share_ledger import ShareLedger, watched
from tests.sim.broker.share_mutations import MUTATIONS
from tests.sim.data import Place
from tests.sim.faults import Fault
from tests.sim.mutations import changed
from tests.sim.run import LOOK, Result
from tests.sim.sharing import GROUP, Attempt, Delivery, SharedRecord, SharingWorld, freeze, join, kill, leave
from tests.sim.transaction_ledger import TransactionLedger
from tests.sim.users import Violation

SLACK = 2.5
"""Seconds that the broker may take in addition to a transaction's timeout: it retries markers that the disk refused."""
ABORTED = "a group that reads committed gets a record that was not committed"
CONFIGS = "the configurations of a group are gone"
OF_MEMBERS = {"freeze a member": freeze, "kill a member": kill, "a member joins": join, "a member leaves": leave}
PASSING = "p"
"""The topic that is deleted and recreated."""
FAULTS = (*OF_A_BROKER, "kill a producer", *OF_MEMBERS)


class BrokerShares(SharingWorld):
    """The world of one seed."""

    patience = 120.0
    nodes = 1

    def __init__(self, seed: int, *, told: bool = False) -> None:
        super().__init__(seed, "broker shares", told=told)
        chance = self.chance
        self.seconds = chance.choice((3.0, 6.0, 10.0))
        self.topics = {"a": chance.randint(1, 2)}
        if chance.random() < 0.3:
            self.topics["b"] = 1
        self.lock = chance.choice((0.8, 2.0, 5.0))
        sync, ordered = chance.random() < 0.5, chance.random() < 0.5
        manner = Manner(
            sync=sync,
            topics=self.topics,
            configs={},
            defaults={
                "retention.ms": "-1",
                "segment.bytes": str(chance.choice((2000, 10_000, 2**30))),
                "index.interval.bytes": str(chance.choice((100, 1000))),
            },
            settings=settings(
                sync=sync,
                auto_create=False,
                share_groups=ShareGroupSettings(
                    session_timeout=chance.choice((2.0, 4.0)),
                    heartbeat_interval=chance.choice((0.3, 0.8)),
                    record_lock_duration=self.lock,
                    delivery_count_limit=chance.choice((2, 3, 5, 5)),
                    partition_max_record_locks=chance.choice((5, 50, 2000)),
                ),
                housekeeping=HousekeepingSettings(retention_check=1.0, cleaner_backoff=0.3),
            ),
        )
        self.hosted = Hosted(seed, chance, self.clock, self.network, self.history, manner, ordered=ordered)
        self.features, self.hosted.processes = self.hosted.features, self.processes
        self.server = self.hosted.server
        self.ledger = ShareLedger(self, self.server)
        self.transactions = TransactionLedger(self.hosted.logs, SLACK)
        self.hosted.appended = self.transactions.appended
        self.hosted.answered, self.hosted.restarted = self._answered, self._restarted
        self._draw_users()
        self.committed = chance.random() < 0.5
        self.configs = {
            "isolation_level": "read_committed" if self.committed else "read_uncommitted",
            "auto_offset_reset": chance.choice(("earliest", "earliest", "latest")),
        }
        self.configured = False
        self.idle = chance.choice((0.2, 300.0))
        self.updates, self.batches = chance.choice(((3, 2), (20, 5), (500, 64)))
        if chance.random() < 0.4:
            self.passing = PASSING
        self.works: list[Work] = []
        self._peers = 0
        self._shown: dict[Place, tuple[list[Any], int, list[int]]] = {}
        told_by = f"{self.topics}, {self.options}, {manner.settings.share_groups}, {self.configs}, {sync=}, {self.idle}"
        self.say("#", f"seed {seed}", f"{told_by}, {self.updates} updates, {self.most} records, {self.slowness}")

    def _changes(self) -> AbstractContextManager[None]:
        small = {"segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.1"}  # so that compaction runs
        return changed(
            (share_partitions, "SharePartition", lambda _: watched(self.ledger)),
            *((module, "CONFIGS", lambda usual: {**usual, **small}) for module in (group_log, stored_state)),
            (stored_state, "UPDATES", lambda _: self.updates),
            (stored_state, "BATCHES", lambda _: self.batches),
            (broker_core, "SHARE_PARTITION_IDLE", lambda _: self.idle),
        )

    # -- observation -------------------------------------------------------------------------------------------------

    def _answered(self, client: str, request: Any, answer: Any) -> None:
        if isinstance(request, InitProducerIdRequest) and isinstance(answer, InitProducerIdResponse):
            self.transactions.initialized(request, answer)
        self.ledger.answered(request, answer)

    def _restarted(self, core: BrokerCore) -> None:
        self.ledger.restarted(core)
        if self.configured and core.share_configs.reads_committed(GROUP) != self.committed:
            raise Violation(CONFIGS, f"{self.configs}")

    def records(self) -> list[SharedRecord]:
        return [
            (place, offset)
            for place, view in self.hosted.views.items()
            for offset in self._visible(place, view)
            if offset >= self.ledger.begin.get(place, 0)
        ]

    def _visible(self, place: Place, view: LogView) -> list[int]:
        """The offsets of the records that the group has to get."""
        if self.committed:
            return [offset for offset, _ in view.decided]
        batches, count, offsets = self._shown.get(place, ([], 0, []))
        if batches is not view.batches:  # after a restart
            batches, count, offsets = view.batches, 0, []
        for stored in batches[count:]:
            batch = parse_batch(stored.data)
            offsets += [] if batch.control else [record.offset for record in batch.records()]
        self._shown[place] = batches, len(batches), offsets
        return offsets

    def delivery(self, member: str, locked: LockedRecord) -> Delivery:
        return self.ledger.delivery(member, locked.place, locked.offset, locked.delivery_count)

    def is_needless(self, attempt: Attempt) -> bool:
        return attempt.delivery in self.ledger.needless

    # -- people ------------------------------------------------------------------------------------------------------

    def join(self) -> None:
        if self.configured:
            super().join()

    def _peer(self, name: str) -> Peer:
        self._peers += 1
        name = f"{name}-{self._peers}"
        peer = self.hosted.peers[name] = Peer(name, NODE, self.clock, self.network, self.history)
        return peer

    def _went(self, name: str) -> None:
        del self.hosted.peers[name]

    def _people(self) -> None:
        chance, admin = self.chance, self._peer("admin")
        admin.run(self._configure(), partial(self._went, admin.name))
        count = chance.choice((30, 100))
        for index in range(chance.choice((1, 2))):
            filler = self._peer("filler")
            filler.run(self._fill(count, Random(f"{self.seed} filler {index}")), partial(self._went, filler.name))
        if self.passing:
            passing = self._peer("passing")
            own = Random(f"{self.seed} passing")
            passing.run(self._recreate(passing, own, chance.choice((1, 2, 3))), partial(self._went, passing.name))
        if chance.random() < 0.3:
            meddler = self._peer("meddler")
            own = Random(f"{self.seed} meddler")
            meddler.run(self._meddle(meddler.name, own), partial(self._went, meddler.name))
        versions = chance.choice(((), (V1,), (V2,), (V1, V2)))
        for index, version in enumerate(versions):
            work = Work(f"x{index}", version, chance.choice((1.0, 3.0)), chance.randint(3, 8))
            self.works.append(work)
            self.clock.later(chance.uniform(0.0, 1.0), partial(self.transact, work))

    def _configure(self) -> Steps:
        """Set the group's configurations, and only then let members join."""
        while True:
            answer = yield Ask(configure(GROUP, **self.configs), 1)
            if answer is not None and not answer.responses[0].error_code:
                break
            yield 0.2
        self.configured = True
        for _ in range(self.chance.choice((1, 2, 3))):
            self.clock.later(self.chance.choice((0.0, 0.0, self.seconds / 2)), self.join)

    def _fill(self, left: int, chance: Random) -> Steps:
        """Append records; a lost request is not repeated."""
        pause = 2 * self.seconds / left
        while left > 0:
            topic = chance.choice(list(self.topics))
            count = chance.choice((1, 1, 3, 20))
            values = [b"%d" % (left - each) for each in range(count)]
            yield Ask(_produce(topic, chance.randrange(self.topics[topic]), values), 9)
            left -= count
            yield chance.uniform(0.0, count * pause)

    def _recreate(self, peer: Peer, chance: Random, times: int) -> Steps:
        """Create a topic with some records, and delete it; the last one stays."""
        admin = Administering(peer, chance, self.features, 0.0, lambda: False)
        topic = CreatableTopic(name=PASSING, num_partitions=1, replication_factor=1, assignments=(), configs=())
        for left in reversed(range(times + 1)):
            request: Any = CreateTopicsRequest(topics=(topic,), timeout_ms=1000)
            yield from admin.asked(request, 5, PASSING, TopicAlreadyExists.code)
            for _ in range(chance.randint(0, 4)):
                yield Ask(_produce(PASSING, 0, [b"passing"] * chance.choice((1, 3, 10))), 9)
                yield chance.uniform(0.0, self.seconds / (4 * times))
            if left:
                self.ledger.deleting(self.server.core.topics.by_name[PASSING].topic_id)
                request = DeleteTopicsRequest(topic_names=(PASSING,), timeout_ms=1000)
                yield from admin.asked(request, 5, PASSING, UnknownTopicOrPartition.code)
                self.features["a topic that a group reads is deleted"] += 1

    def _meddle(self, name: str, chance: Random) -> Steps:
        """Acknowledge records that other members have; the ledger checks that none of that counts."""
        while self.clock.now < self.quiet:
            yield chance.uniform(0.0, self.seconds / 20)
            held = [record for record in self.ledger.held() if record[0][0] in self.topics]
            if not held:
                continue
            (topic, index), offset = chance.choice(held)
            topic_id = self.server.core.topics.by_name[topic].topic_id
            opened = yield Ask(fetch(topic_id, 0, name, partitions=(index,), group=GROUP, records=0), 2)
            results: Results = {index: [(offset, offset, [chance.choice((ACCEPT, RELEASE, REJECT))])]}
            if opened is not None and not opened.error_code:
                yield Ask(acknowledge(topic_id, 1, results, name, group=GROUP), 2)
                self.features["a member acknowledges the record of another one"] += 1

    def transact(self, work: Work) -> None:
        """Start one more producer with a transactional id."""
        if self.over or work.left <= 0:
            return
        peer = self._peer(work.transactional_id)
        places = list(self.server.places())
        producer = Transacting(peer, self.transactions, work, Random(f"{self.seed} {peer.name}"), self.features, places)
        peer.again = partial(self.transact, work)
        peer.run(producer.script(), partial(self._went, peer.name))

    # -- faults ------------------------------------------------------------------------------------------------------

    def _faults(self) -> list[Fault]:
        chance = self.chance
        kinds = [kind for kind in FAULTS if self.hosted.sync or kind not in NEEDS_SYNC]
        found = [
            Fault(chance.uniform(0.0, self.seconds), chance.choice(kinds), chance.choice((0.02, 0.1, 0.5, 2.0)))
            for _ in range(chance.randint(2, 10))
        ]
        return sorted(found, key=lambda each: each.at)

    def _fault(self, fault: Fault) -> object:
        if fault.kind in OF_MEMBERS:
            return OF_MEMBERS[fault.kind](self, fault)
        if fault.kind in ("freeze", "silence") and not (self.hosted.peers or self.sharing):
            return False
        return OF_BROKERS[fault.kind](self.hosted, fault)  # type: ignore[arg-type] # this fault needs no more

    # -- the run -----------------------------------------------------------------------------------------------------

    def _play(self) -> None:
        self.hosted.begin()
        for fault in self._faults():
            self.quiet = max(self.quiet, fault.at + 2 * fault.seconds + 2.0)
            self.clock.at(fault.at, partial(self._strike, fault))
        self._people()
        self.clock.later(LOOK, self._look)
        try:
            while not self.ended:
                if not self.clock.step():
                    raise Violation("no event is left, and not everything is done", self._left())
            self.hosted.end()
        except Violation as broken:
            raise self.ledger.found or broken from None
        self._check()
        self.transactions.check()

    def _users(self) -> list[str]:
        return [*self.sharing, *self.hosted.peers]

    def _left(self) -> str:
        if not self.server.is_up or self.clock.now < self.quiet or self.hosted.peers:
            return f"the broker, faults, or {', '.join(self.hosted.peers)}"
        if any(work.left > 0 for work in self.works):
            return f"{self.works}"
        group = self.server.core.share_groups.by_id.get(GROUP)
        for each in self.sharing.values():
            machine = each.machine
            if machine is None or (not each.stop.done and (group is None or machine._member.id not in group.members)):
                return f"{each.process.name} is not in the group"
        for place, view in self.hosted.views.items():
            if place not in self.ledger.begin:
                return f"nobody reads {place[0]}-{place[1]}"
            if view.stable != view.end:
                return f"a transaction is open in {place[0]}-{place[1]}"
        missing = [record for record in [*self.records(), *self._passing()] if record not in self.ledger.final]
        return f"{len(missing)} records, the first is {missing[0]}" if missing else ""

    def _passing(self) -> Iterator[SharedRecord]:
        """The records of the topic that was recreated."""
        topic = self.server.core.topics.by_name.get(self.passing)
        place = None if topic is None else self.ledger.place(topic.topic_id, 0)
        if topic is not None and place is not None:
            for offset in range(self.ledger.begin.get(place, 0), topic.partitions[0].end_offset):
                yield place, offset

    def _look(self) -> None:
        if self.server.is_up:
            self.transactions.look(self.clock.now, self.hosted.well_since)
        super()._look()
        self.hosted.over = self.over

    def _check(self) -> None:
        super()._check()
        wanted = set(self.records())
        for delivery in self.out:
            if self.committed and delivery.record not in wanted:
                raise Violation(ABORTED, f"{delivery} to {self.out[delivery]}")


def _produce(topic: str, index: int, values: Sequence[bytes]) -> ProduceRequest:
    data = PartitionProduceData(
        index=index, records=bytes(build_batch([Record(0, 0, None, value) for value in values]))
    )
    topics = (TopicProduceData(name=topic, partition_data=(data,)),)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`, with the mutations of `tests.sim.broker.share_mutations`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return BrokerShares(seed, told=told).run()
