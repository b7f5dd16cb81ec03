"""One run: a world drawn from a seed, played until all work is done or a promise is broken."""

import gc
import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import Any, Protocol

from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.codec.apis.produce import ProduceRequest
from ottla.sdk.cluster.questions import Question
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.consume.assignment import subscription
from ottla.sdk.events import GENERAL
from ottla.sdk.events import Node as ClientNode
from ottla.sdk.group.consumer_group_member import ConsumerGroupMember
from ottla.sdk.group.consumer_member_states import ConsumerMemberState
from ottla.sdk.group.protocol_choice import ChoosingMember
from ottla.sdk.options import Options
from ottla.sdk.produce import accumulator
from ottla.sdk.produce.options import ProducerOptions
from tests.sim.admins import Administrating
from tests.sim.bounds import Haste, Requests, Sloth, Watched, check_blame, check_closers
from tests.sim.clock import Clock
from tests.sim.cluster import ModelCluster, Node
from tests.sim.data import RECREATED, Place
from tests.sim.faults import FAULTS, LONG, OF_GROUPS, Fault, drawn
from tests.sim.group_ledger import GroupLedger
from tests.sim.history import History
from tests.sim.ledger import Epochs, Identities, Ledger, Window
from tests.sim.logins import Logins
from tests.sim.members import Consuming, Manner
from tests.sim.mutations import MUTATIONS, changed
from tests.sim.network import Client, Link, Network
from tests.sim.outcry import Outcry
from tests.sim.passing import Passing
from tests.sim.recreated import Following
from tests.sim.scripts import Producing, Reading
from tests.sim.starting import Starting
from tests.sim.users import Process, Violation

LIMIT = 200.0
"""Seconds after the last fault within which everything has to be done; `Simulation` adds what a world needs."""
LONGEST = 8.0
"""Most seconds that a fault lasts."""
MIXED = ("mixed", "there and back", "upgrade", "auto")
"""Worlds in which some members choose their group protocol."""
LOOK = 0.25
"""Seconds between two checks whether everything is done."""


@dataclass(slots=True)
class Result:
    seed: int
    violation: Violation | None
    history: list[str]
    seconds: float
    """Virtual seconds that the world lasted."""
    records: int
    requests: int
    features: Counter[str]
    """How often each rare event happened."""

    @property
    def cause(self) -> str:
        """The last line of the violation: the promise, and the record or partition that breaks it."""
        return str(self.violation).strip().splitlines()[-1] if self.violation else ""


class Simulation:
    """
    Args:
        protocols: members of the group use both group protocols.
    """

    def __init__(self, seed: int, *, told: bool = False, protocols: bool = False) -> None:
        self.seed, self.chance, self.both = seed, Random(seed), protocols
        self.clock = Clock()
        self.history = History(self.clock, told)
        chance = self.chance
        self.seconds = chance.choice((3.0, 6.0, 10.0))
        nodes = chance.choice((2, 2, 3, 4))
        self.topics = {"a": chance.randint(1, 3), "b": chance.randint(1, 2)}
        release = chance.choice(("1.0", "2.1", "2.8", "4.3", "4.3", "4.3"))
        self.release = release = "4.3" if protocols else release
        self.network = Network(self.clock, Random(seed + 1), self.history)
        self.sent_to = dict(self.topics)
        """The topics that producers send to. One of them may be recreated; only `Following` reads that one."""
        if Random(f"{seed} recreated").random() < 0.4:
            self.sent_to[RECREATED] = 2
        self.cluster = ModelCluster(
            self.clock, Random(seed + 2), self.network, self.history, self.sent_to, nodes, release
        )
        self.new, max_age = dict[str, int](), 300.0
        """Topics that are created when a producer sends to them."""
        if (own := Random(f"{seed} new topics")).random() < 0.2:
            self.new = {f"n{number}": own.randint(1, 2) for number in range(own.choice((3, 12)))}
            self.cluster.creatable = self.new
            self.sent_to |= self.new
            max_age = own.choice((0.5, 300.0))
        self.network.cluster, self.network.features = self.cluster, self.cluster.data.features
        self.cluster.data.max_message_bytes = chance.choice((700, 2**20, 2**20))
        self.ledger = Ledger(self.cluster)
        self.processes: dict[str, Process] = {}
        self.outcries: dict[str, Outcry] = {}
        self.producers: list[Producing] = []
        self.readings: list[Reading] = []
        self.following: Following | None = None
        places = [(topic, index) for topic, count in self.topics.items() for index in range(count)]
        self.group = GroupLedger(self.ledger, "billing", places)
        self.cluster.groups.committed = self.group.committed
        self.epochs, self.window = Epochs(self.cluster, ids=release >= "2.8"), Window()
        self.identities = Identities(self.cluster.ever_named)
        self.bounds = Requests(self.clock, self.cluster.data.features)
        self.network.sent, self.network.delivered = self._sent, self._delivered
        self.manner = Manner.drawn(chance, Random(f"{seed} manner"))
        self.protocols = Random(f"{seed} protocols")
        if protocols:
            self.manner = replace(
                self.manner,
                protocol=self.protocols.choice(
                    ("consumer", "consumer", "mixed", "up", "down", "there and back", "upgrade", "auto")
                ),
            )
            if self.manner.protocol in MIXED:  # a member that chooses offers the default assignors
                self.manner = replace(self.manner, assignors=("range", "cooperative-sticky"))
            if self.manner.protocol == "auto":  # with "auto", static members and those with a rack are classic
                self.manner = replace(self.manner, static=False)
            if Random(f"{seed} pattern of both").random() < 0.3:
                self.manner = replace(self.manner, pattern=True)
            if self.protocols.random() < 0.3:
                self.manner = replace(self.manner, lingers=0.5, slow=0.0, max_poll_interval=30.0)
            pause = self.protocols.choice((0.0, 0.0, 1.0))
            strict = Random(f"{seed} strict").random() < 0.5
            self.cluster.serve_consumer_groups(self.manner.session, self.manner.heartbeat, pause, strict=strict)
            self.cluster.groups.modern.upgrades = self.manner.protocol != "auto"
            if self.manner.protocol == "upgrade":
                self.cluster.begin_upgrade()
                self.clock.at(self.protocols.uniform(0.0, self.seconds / 3), self._upgrade)
        self.group.everything = self.manner.commits == "all"
        self.cluster.groups.expelled = self._expelled
        calm = chance.random() < 0.2
        self._quiet_until = self.seconds + LONGEST + 4 * self.manner.session if calm else 0.0
        """Some worlds continue for a while after everything is done."""
        if self.manner.lingers:
            after = self.seconds + LONGEST + 3 * self.manner.session
            self._quiet_until = after + 4 * self.manner.session
            self.clock.at(after, self.join)  # the others give up partitions after all other faults
        self.admin: Administrating | None = None
        self.members: dict[str, Consuming] = {}
        self._members = 0
        self.producing = 0
        self.over = False
        """All work is done."""
        self.ended = False
        """All members have left, too."""
        short = chance.random() < 0.3
        own = Random(f"{seed} idle")
        self.max_idle = own.choice((0.1, 0.3)) if own.random() < 0.2 else None
        """Seconds after which producers forget an idle topic, in the worlds that test this."""
        most = chance.choice((200, 2000, 2**20))
        self.options = Options(
            connect_timeout=chance.choice((1.0, 10.0)),
            request_timeout=chance.choice((1.0, 5.0)) if short else chance.choice((5.0, 30.0)),
            api_timeout=chance.choice((10.0, 60.0)),
            delivery_timeout=chance.choice((1.5, 3.0)) if short else chance.choice((10.0, 120.0)),
            max_request_size=chance.choice((4000, 2**20)),
            fetch_max_bytes=chance.choice((3000, 50 * 2**20)),
            partition_max_bytes=most,
            fetch_buffer_bytes=_buffer(Random(f"{seed} buffer"), most),
            metadata_max_age=0.2 if self.max_idle else max_age,
            fetch_max_wait=chance.choice((0.5, 1.0, 2.0)),
            rack=None
            if self.manner.protocol == "auto"
            else Random(f"{seed} rack").choice((None, None, "r1", f"r{nodes}")),
        )
        self._deadline = self.seconds + LIMIT + 10 * self.manner.max_poll_interval
        """When everything has to be done."""
        if RECREATED in self.sent_to and release == "2.8":
            # From 2.8 to 3.0, only the metadata has topic ids. A Fetch reads on in the new log if that is long enough
            # already, so the client may learn of it only from its next metadata.
            self._deadline += self.options.metadata_max_age
        self.logins: Logins | None = None
        if (own := Random(f"{seed} logins")).random() < 0.2:
            self.logins = Logins(self.clock, own, self.cluster.data.features, self.seconds)
            self.network.admit = self.logins.serve
            self.options = replace(self.options, sasl=self.logins.sasl)
        if self.options.fetch_buffer_bytes < 2**20:
            # A partition without room in the buffer waits until the Fetch for the other partitions is answered.
            self.options = replace(self.options, fetch_max_wait=0.5)
        self.pattern = Random(f"{seed} pattern").random() < 0.4
        """The reader without a group finds its topics by a pattern."""
        if self.pattern and not self.manner.pattern and Random(f"{seed} ghost").random() < 0.5:
            self.cluster.ghost = "g"
        self.cluster.data.features["consumers fetch little ahead"] += self.options.fetch_buffer_bytes < 2**20
        self.cluster.data.features["a group reads a pattern"] += self.manner.pattern
        self.quota = Random(f"{seed} quota")
        self.throttles = release >= "2.1" and self.quota.random() < 0.15
        """Some answers to Produce and Fetch are over a quota."""
        if self.throttles:
            self.cluster.data.over_quota = lambda: self.quota.random() < 0.1
        self.cluster.data.cuts = most < 2000 or Random(f"{seed} cuts").random() < 0.5
        self.faults = drawn(chance, self.seconds, LONGEST)
        if self.group.everything:
            own = Random(f"{seed} refused commits")
            more = Fault(own.uniform(0.0, self.seconds), "refuse commits", own.choice((0.5, 2.0, 4.0)))
            self.faults = sorted([*self.faults, more], key=lambda each: each.at)
        if self.manner.tasks and self.manner.commits == "sync":
            own = Random(f"{seed} delayed commits")
            late = [Fault(own.uniform(0.0, self.seconds), "delay commits", own.choice((0.5, 2.0))) for _ in range(3)]
            self.faults = sorted([*self.faults, *late], key=lambda each: each.at)
        if self.options.delivery_timeout < LONG:
            own = Random(f"{seed} lost replicas")
            more = Fault(own.uniform(0.0, self.seconds), "lose replicas", 0.0)
            self.faults = sorted([*self.faults, more], key=lambda each: each.at)
        if protocols and self.manner.static:
            own = Random(f"{seed} usurped")
            more = Fault(own.uniform(0.0, self.seconds), "usurp", 0.0)
            self.faults = sorted([*self.faults, more], key=lambda each: each.at)
        self.holds_commit = False
        """The next commit is held back."""
        if protocols:
            own = Random(f"{seed} faults of groups")
            of_groups = (
                Fault(own.uniform(self.seconds / 2, self.seconds), "hold a commit", 0.0),
                Fault(own.uniform(0.0, self.seconds), "expel a busy member", own.choice((0.0, 1.0, 1.0))),
            )
            drawn_ones = [each for each in of_groups if own.random() < 0.5]
            self.faults = sorted([*self.faults, *drawn_ones], key=lambda each: each.at)
            own = Random(f"{seed} turned classic")
            if self.manner.protocol in MIXED and own.random() < 0.6:
                turned = [Fault(own.uniform(0.0, self.seconds), "turn a group classic", 0.0) for _ in range(2)]
                self.faults = sorted([*self.faults, *turned], key=lambda each: each.at)
        if RECREATED in self.sent_to:
            again = Random(f"{seed} recreate")
            more = Fault(again.uniform(0.0, self.seconds), "recreate", again.choice((0.1, 0.5, 2.0)))
            self.faults = sorted([*self.faults, more], key=lambda each: each.at)
        self.say("#", f"seed {seed}", f"{nodes} nodes of Kafka {release}, {self.topics}, {self.options}, {self.manner}")

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    def _sent(self, link: Link, message: Any) -> None:
        if not link.writing:  # a request written in pieces was handed over long ago, and had the epochs of that time
            self.epochs.sent(link.client.name, message, link.key[1])
        self.window.sent(link, message)
        self.identities.sent(link, message)
        self.bounds.sent(link, message)
        if self.logins is not None:
            self.logins.sent(link, message)
        self.group.sent(link, message)
        if isinstance(message, ConsumerGroupHeartbeatRequest) and message.member_epoch > 0 and not link.writing:
            self._check_reconciled(message.member_id)
        if self.admin is not None:
            self.admin.sent(link, message)
        self.ledger.sent_off(message, earlier=link.writing)
        if self.holds_commit and isinstance(message, OffsetCommitRequest) and not link.writing:
            self.holds_commit = False
            self.clock.later(0.0, partial(self.network.hold, link))
        if isinstance(message, ProduceRequest) and RECREATED in self.sent_to:
            known = self.processes[link.client.name].core.cluster.topic_id(RECREATED)
            if known != self.cluster.ids.get(RECREATED):
                for topic in message.topic_data:
                    if topic.name == RECREATED:  # a request with the topic's id would be refused
                        for each in topic.partition_data:
                            self.ledger.forget((RECREATED, each.index), link.client.name)

    def _delivered(self, link: Link, request: Any, answer: Any) -> None:
        self.window.delivered(link, request)
        self.identities.delivered(link, request, answer)
        self.bounds.delivered(link, answer)
        self.outcries[link.client.name].answered(link.key[0], request)
        self.group.delivered(link.client.name, request, answer)
        if (
            self.both
            and isinstance(answer, OffsetCommitResponse)
            and not any(each.error_code for topic in answer.topics for each in topic.partitions)
        ):
            self._bring_late(link.client)

    def _bring_late(self, client: Client) -> None:
        """A commit is acknowledged: commits of the same client that were held back arrive a moment later.

        The client sends the acknowledged offset again after `request_timeout`. Commits that arrive still later would
        set the offset back for good.
        """
        own = Random(f"{self.seed} late at {self.clock.now}")

        def bring() -> None:
            self.network.forget_held(client)
            self.network.bring(client)

        self.clock.later(own.choice((0.0, 0.02, 0.3)), bring)

    def process(self, who: str) -> Process:
        process = Process(
            who,
            self.clock,
            self.network,
            self.history,
            self.options,
            len(self.cluster.nodes),
            Random(f"{self.seed} {who}"),
        )
        self.processes[who] = process
        if self.logins is not None:
            process.fetch = self.logins.fetch
        self.outcries[who] = Outcry(process, self.cluster.data.features)
        core, submit = process.core, process.core.submit
        process.checks.append(partial(check_closers, core, who))
        if self.throttles:
            process.checks.append(partial(check_blame, core, who))
        topics, ask, haste = core.metadata._topics, core.metadata._requests._ask_another, Haste(process)
        forget, sloth = topics.forget, Sloth(process)

        def asks(now: float, *, waits_alone: bool = False) -> Question | None:
            haste.asks()
            return ask(now, waits_alone=waits_alone)

        def submitted(node: ClientNode, exchange: Exchange, now: float, channel: str = GENERAL) -> None:
            self.epochs.submitted(who, exchange, channel)
            sloth.submitted(exchange, now)
            submit(node, exchange, now, channel)

        def forgotten(name: str) -> None:
            self.epochs.forgot(who, name)
            forget(name)

        incarnations: dict[str, int] = {}

        def learned(now: float) -> None:
            lasting = self.topics | self.new
            for topic in {**lasting, **core.cluster.topics}:
                incarnation = core.cluster.incarnation(topic)
                again = topic not in lasting and incarnation != incarnations.get(topic, incarnation)
                if again and incarnation >= 0:
                    for each in [each for each in self.producers if each.process is process]:
                        self.identities.recreated(who, each.following(topic))
                if incarnation < 0 or again:  # only the recreated topic and new topics may start over
                    self.epochs.forgot(who, topic)
                incarnations[topic] = incarnation

        core.submit = submitted  # type: ignore[method-assign] # to see the epochs in each request
        core.metadata._requests._ask_another = asks  # type: ignore[method-assign] # to see whether the pause has passed
        topics.forget = forgotten  # type: ignore[method-assign] # to see when epochs may start over
        core.metadata.observers.append(learned)
        return process

    def spare(self, fit: Callable[[Node], bool]) -> int | None:
        """A node that may fail; only sometimes the last healthy one."""
        healthy = [each.number for each in self.cluster.nodes.values() if each.healthy and fit(each)]
        if not healthy or (len(healthy) == 1 and self.chance.random() < 0.7):
            return None
        return self.chance.choice(healthy)

    def may_expire(self, place: Place, producer_id: int) -> bool:
        """Whether a leader may forget a producer, as Kafka does after a day without batches, or if all were deleted.

        Up to Kafka 2.4 the leader then requires sequence 0, so only a retry of the first batch must not be in flight.
        Later it accepts any sequence, so no batch may be in flight: Kafka would store a retry twice.
        """
        if self.network.left_behind():
            return False
        if self.cluster.data.strict:
            return all(first for first, _ in self.cluster.logs[place].producers[producer_id].recent)
        return not any(each.batches_at(place) for each in self.producers)

    def expire(self, place: Place, producer_id: int) -> None:
        del self.cluster.logs[place].producers[producer_id]
        for each in self.producers:
            if each.producer_id_at(place) == producer_id:
                self.ledger.forget(place, each.process.name)

    # -- users -------------------------------------------------------------------------------------------------------

    def _people(self) -> None:
        chance = self.chance
        producers = chance.choice((2, 2, 3))
        for index in range(producers):
            idempotent = index == 0 or chance.random() < 0.7
            options = ProducerOptions(
                acks=-1 if idempotent else chance.choice((-1, 1, 0, 0)),
                idempotent=idempotent,
                linger=chance.choice((0.0, 0.005, 0.05)),
                batch_size=chance.choice((150, 400, 2000)),
                partitioner="murmur2",
                buffer_memory=chance.choice((1500, 10_000, 2**20)),
            )
            name = f"p{index}"
            count = 1 + 220 // producers
            producing = Producing(
                self.process(name),
                self.ledger,
                options,
                Random(f"{self.seed} {name}"),
                self.sent_to,
                count,
                self.seconds,
                chance.choice((1, 5, 5)),
                self.seed,
                Random(f"{self.seed} {name} impatient").choice((0.0, 0.02, 0.2)),
            )
            producing.lulls, producing.new = 0.1 if self.max_idle else 0.0, list(self.new)
            self.producers.append(producing)
            self.say("·", name, f"produces {count} records with {options}")
            self.producing += 1
            self.processes[name].run(producing.script(), partial(self._produced, producing))
        if chance.random() < 0.5:
            name = "r0"
            beside = self.producers[0] if Random(f"{self.seed} beside").random() < 0.5 else None
            process = beside.process if beside else self.process(name)
            reading = Reading(process, self.ledger, Random(f"{self.seed} {name}"), self.group.places, self.pattern)
            if beside:
                beside.reader = reading
            self.readings.append(reading)
            process.run(reading.script())
        if RECREATED in self.sent_to:
            places = [(RECREATED, index) for index in range(self.sent_to[RECREATED])]
            self.following = Following(self.process("f0"), self.ledger, places, ids=self.release >= "2.8")
            self.following.process.run(self.following.script())
        if Random(f"{self.seed} starting").random() < 0.2:
            starting = Starting(self.process("s0"), self.ledger, Random(f"{self.seed} s0"), self.group.places)
            starting.process.run(starting.script())
        if Random(f"{self.seed} admin").random() < 0.25:
            own = Random(f"{self.seed} x0")
            self.admin = Administrating(self.process("x0"), own, self.cluster.data.features, self.seconds)
            self.admin.process.run(self.admin.script())
        rolls = (4, 8) if self.manner.protocol in ("there and back", "upgrade") else (0, 2, 6)
        for _ in range(self.protocols.choice(rolls) if self.both else 0):
            self.clock.at(self.protocols.uniform(self.seconds / 4, self.seconds), self._roll)
        for _ in range(chance.choice((1, 2, 2, 3))):
            self.clock.later(chance.choice((0.0, 0.0, self.seconds / 2)), self.join)

    def join(self, instance: str | None = None, *, rival: bool = False, protocol: str | None = None) -> None:
        """Add a member to the group, mostly in a process of its own."""
        if self.over:
            return
        self._members += 1
        name = f"c{self._members}"
        chance = Random(f"{self.seed} {name}")
        instance = instance or (f"i{self._members}" if self.manner.static and self.release >= "2.8" else None)
        shared = [each.process for each in self.members.values() if not each.ends_client]
        shared = shared if chance.random() < 0.2 else []
        beside = [each for each in self.producers if each.machine and not each.leaving and each.member is None]
        if Random(f"{self.seed} {name} beside").random() > 0.5 or shared or rival or not beside:
            beside = []
        process = beside[0].process if beside else chance.choice(shared) if shared else self.process(name)
        if process.name != name:
            self.epochs.shared.add(process.name)
            self.group.shared.add(process.name)
        protocol = protocol or self._protocol()
        self.cluster.data.features[f"a member is {protocol}"] += 1
        member = Consuming(
            name, process, self.group, chance, self.manner, tuple(self.topics), instance, rival, protocol
        )
        member.seed = self.seed
        member.__post_init__()
        self.members[name] = member
        if protocol == "auto":
            self.group.choosing.add(process.name)
        if beside:
            beside[0].member, member.beside = member, beside[0].send_one
        process.run(member.script(), lambda: self._gone(name))

    def _protocol(self) -> str:
        """The group protocol of the next member."""
        wanted, modern = self.manner.protocol, self.protocols.choice(("consumer", "consumer re2"))
        new: tuple[str, ...] = ("classic", modern, "auto")
        if wanted == "there and back":
            middle = self.seconds / 3 < self.clock.now < 2 * self.seconds / 3
            new = (modern if middle else "classic", "auto")
        elif wanted == "auto" or self.cluster.unaware:
            new = ("classic", "auto", "auto")
        if wanted in MIXED:
            return self.protocols.choice(new)
        if wanted in ("up", "down"):
            return modern if (self.clock.now > self.seconds / 2) == (wanted == "up") else "classic"
        return modern if wanted == "consumer" else wanted

    def turn_classic(self) -> None:
        """An administrator removes all members of the new protocol, and a classic one joins."""
        groups = self.cluster.groups
        if (modern := groups.group(self.group.group).modern) is not None:
            for each in [each for each in modern.members.values() if each.protocols is None]:
                groups.expel(self.group.group, each.id)
        self.join(protocol="classic")

    def _roll(self) -> None:
        """Stop one member; another one, perhaps with the other protocol, takes its place."""
        staying = [each for each in self.members.values() if not each.stop.done]
        if staying and not self.over:
            member = self.protocols.choice(staying)
            self.say("!", member.name, "is replaced")
            if self.manner.protocol == "there and back" and self.protocols.random() < 0.4:
                self.kill(member.name)
                return
            member.stop.succeed(None)
            self.clock.later(self.protocols.uniform(0.0, 0.5), self.join)

    def _upgrade(self) -> None:
        """Upgrade one more node; after the last one, finalize the feature, which the nodes learn one by one."""
        cluster, own = self.cluster, self.protocols
        if not cluster.older:
            self.say("!", "all nodes", "have the new group protocol, which is finalized now")
            for node in cluster.nodes:
                self.clock.later(own.uniform(0.0, 0.5), partial(cluster.unaware.discard, node))
            return
        node = min(cluster.older)
        if cluster.nodes[node].healthy:
            self.say("!", f"node {node}", "is upgraded")
            cluster.data.features["a broker is upgraded"] += 1
            cluster.older.discard(node)
            cluster.crash(node)
            self.clock.later(own.uniform(0.1, 0.5), partial(cluster.restart, node))
        self.clock.later(own.uniform(0.2, self.seconds / 10), self._upgrade)

    def _gone(self, name: str) -> None:
        """A member has left; close its process if it was the last user there."""
        member = self.members.pop(name)
        for producing in self.producers:
            if producing.member is member:
                producing.member = None
        self._close_unused(member.process)
        if member.refused and not member.rival:
            self.clock.later(0.5, partial(self.join, member.instance))
        if not self.members:
            self.join()  # which does nothing once everything is done

    def _close_unused(self, process: Process) -> None:
        """Close a process that has no user left."""
        used = [each.process for each in self.members.values()]
        used += [each.process for each in self.producers if not each.done] + [each.process for each in self.readings]
        if process not in used:
            process.close()

    def kill(self, name: str) -> None:
        """Kill a process with members, and start a successor for each after a while."""
        process = self.members[name].process
        if any(each.process is process for each in self.producers):
            return  # the checks need all outcomes of the producer
        process.kill()
        for each in [each for each in self.members.values() if each.process is process]:
            del self.members[each.name]
            if not each.rival or not self.members:
                self.clock.later(self.chance.uniform(0.0, 3.0), partial(self.join, each.instance))

    def usurp(self, name: str) -> None:
        """Start a member with the instance id of a living one; one of the two is fenced."""
        member = self.members[name]
        member.rival = True
        self.join(member.instance, rival=True)

    def _produced(self, producing: Producing) -> None:
        self.producing -= 1
        self._close_unused(producing.process)

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        violation = None
        around = ExitStack()
        around.enter_context(changed((accumulator, "ProducerBatch", lambda _: Watched)))
        if self.manner.pattern:
            around.enter_context(changed((subscription, "PATTERN_AGE", lambda _: 0.3)))
        if self.max_idle:
            around.enter_context(changed((accumulator, "_MAX_IDLE", lambda _: self.max_idle)))
        handled = Random(f"{self.seed} log").random() < 0.2
        around.enter_context(logged_to(Handler(self) if handled else None))
        try:
            self._people()
            if self.manner.pattern and not self.group.everything:
                own = Random(f"{self.seed} passing")
                self.group.passing = Passing(self.cluster, self.history, own, self.seconds)
                self.group.passing.begin(5 if self.both else 2, filled=self.both)
            for fault in self.faults:
                self.clock.at(fault.at, partial(self._strike, fault))
            self.clock.later(LOOK, self._look)
            while not self.ended:
                if not self.clock.step():
                    raise Violation("no event is left, and not everything is done", self._left())
            self.ledger.check()
            for each in self.readings:
                each.end()
        except Violation as broken:
            violation = broken
        except Exception as error:  # any exception of a machine is a finding, and must not end the run of other seeds
            violation = Violation("a machine raises", "".join(traceback.format_exception(error)))
            violation.__cause__ = error
        finally:
            around.close()
        requests = self.network.requests
        features = self.cluster.data.features
        return Result(
            self.seed, violation, self.history.lines, self.clock.now, len(self.ledger.sent), requests, features
        )

    def _strike(self, fault: Fault) -> None:
        self.say("!", fault.kind, "")
        if (FAULTS | OF_GROUPS)[fault.kind](self, fault) is not False:
            self.cluster.data.features[f"fault: {fault.kind}"] += 1

    def _left(self) -> str:
        """The work that is not done yet, for people; empty if there is none."""
        left = [f"{self.producing} producers are not done"] if self.producing else []
        left += filter(None, (*(each.behind() for each in self.readings), self.group.behind()))
        left += filter(None, [self.following.behind()] if self.following else [])
        left += [
            f"the coordinator has other topics of {each.name}" for each in self.members.values() if self._is_news(each)
        ]
        left += filter(None, map(self._unsettled, self.members.values()))
        return "; ".join(left)

    def _check_reconciled(self, member_id: str) -> None:
        """Check the partitions of a member that sends a heartbeat; the answer to its last one was the last to come."""
        for each in self.members.values():
            membership = each.machine.membership if each.machine is not None else None
            if isinstance(membership, ChoosingMember):
                membership = membership._member
            if not isinstance(membership, ConsumerGroupMember) or membership.member_id != member_id:
                continue
            if membership.state is ConsumerMemberState.STABLE:
                self.group.reconciled(each.name, member_id, membership.owned)

    def _is_news(self, member: Consuming) -> bool:
        """Whether a member of the new protocol has a subscription that the coordinator does not have yet."""
        group = self.cluster.groups.groups.get(self.group.group)
        membership = member.machine.membership if member.machine is not None else None
        if group is None or group.modern is None or not isinstance(membership, ConsumerGroupMember):
            return False
        known = group.modern.members.get(membership.member_id)
        return known is not None and not known.regex and known.topics != tuple(sorted(membership.topics))

    def _unsettled(self, member: Consuming) -> str:
        """How a member's partitions differ from the coordinator's of KIP-848, for people."""
        group = self.cluster.groups.groups.get(self.group.group)
        membership = member.machine.membership if member.machine is not None else None
        if group is None or group.modern is None or membership is None:
            return ""
        known = group.modern.members.get(membership.member_id)
        if known is None or known.protocols is not None:
            return ""
        owned, assigned = set(membership.owned), self.cluster.groups.modern.places(known.has)
        return "" if owned == assigned else f"{member.name} has {sorted(owned)}, and is to have {sorted(assigned)}"

    def _expelled(self, member: str) -> None:
        """The coordinator removes a member; a living one must not be removed once the faults are over."""
        swallowed = [(link.client.name, link.key[1]) for link in self.network.links.values() if link.swallowed]
        deaf = {client for client, _ in swallowed}
        known = [
            each.member_id
            for each in self.members.values()
            if each.process.alive
            and not each.process.frozen
            and not each.in_hand  # its user may handle a batch for longer than `max_poll_interval`
            # A revocation gives up commits without an answer in time, but a user may await them.
            and (each.waiting or each.process.name not in deaf)
            and (each.process.name, each.channel) not in swallowed
        ]
        if member in known and self.clock.now > self.seconds + LONGEST + 2 * self.manner.session:
            raise Violation("a living member is removed from its group", f"{member}, after {self.manner.session:g} s")

    def _look(self) -> None:
        if self.clock.now > self.seconds + 2 * LONGEST:
            running = {each.member_id for each in self.members.values()}
            self.group.check_set_back(self.clock.now - 2 * self.options.request_timeout - 5.0, running)
        left = self._left()
        if self.clock.now < self._quiet_until:
            self.clock.later(LOOK, self._look)
            return
        if not left and not self.over:
            self.over = True
            self.say("·", "all", "is done")
            for each in list(self.members.values()):
                each.stop.succeed(None)
        if self.over and not self.members:
            self.ended = True
        elif self.clock.now > self._deadline:
            raise Violation("everything has to be done by now", left or f"{', '.join(self.members)} cannot leave")
        else:
            self.clock.later(LOOK, self._look)


def _buffer(chance: Random, most: int) -> int:
    """Bytes that a consumer may fetch ahead, if a partition gets ``most`` bytes of an answer: often hardly more."""
    return chance.choice((1, 2, 3)) * min(most, 2000) if chance.random() < 0.3 else 64 * 2**20


class Handler(logging.Handler):
    """A log handler that sends some lines as records."""

    def __init__(self, world: Simulation) -> None:
        super().__init__(logging.WARNING)
        self._world, self._chance = world, Random(f"{world.seed} handler")

    def emit(self, record: logging.LogRecord) -> None:
        able = [
            each for each in self._world.producers if each.machine and each.process.alive and not each.process.frozen
        ]
        if self._chance.random() < 0.3:
            for each in able:  # one of them may be the producer that the line is about
                self._world.cluster.data.features["a log handler sends"] += 1
                each.send_from("a log handler")


@contextmanager
def logged_to(handler: logging.Handler | None) -> Iterator[None]:
    """Hand log lines to ``handler`` alone: a line that pytest keeps would keep its error, and the batches of that."""
    log = logging.getLogger("ottla")
    level, propagate = log.level, log.propagate
    if handler is not None:
        log.addHandler(handler)
    log.setLevel(logging.WARNING if handler else logging.CRITICAL)
    log.propagate = False
    try:
        yield
    finally:
        if handler is not None:
            log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


def play_protocols(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Like `play`, with both group protocols; ``broken`` is one of `tests.sim.group_mutations`."""
    from tests.sim.group_mutations import OF_GROUPS  # only here: it needs the mutations of the client

    with OF_GROUPS.known[broken]() if broken else nullcontext():
        return Simulation(seed, told=told, protocols=True).run()


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed.

    Args:
        told: keep the history.
        broken: the name of a mutation of the client.
    """
    with MUTATIONS[broken]() if broken else nullcontext():
        return Simulation(seed, told=told).run()


class Play(Protocol):
    """Plays one seed, as `play` does."""

    def __call__(self, seed: int, *, told: bool = False, broken: str | None = None) -> Result: ...


def play_many(seeds: Iterable[int], *, processes: int | None = None, play: Play = play) -> Iterator[Result]:
    """Play many seeds on several processors, and yield the results in the order of the seeds."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin) as pool:
        yield from pool.map(play, seeds, chunksize=8)


def _begin() -> None:
    """Prepare a process that plays worlds: mute the client's log, which is full of the errors that the worlds cause.

    Each world leaves few reference cycles, so a lower threshold would spend a tenth of the time on looking for them.
    """
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    gc.set_threshold(50_000, 50, 1000)


def catches(mutation: str, seeds: Iterable[int], *, play: Play = play) -> Iterator[Result]:
    """Yield the results of the seeds that catch the mutation.

    Raises:
        AssertionError: the mutation no longer fits the code that it changes, whose arguments are others now.
    """
    for seed in seeds:
        result = play(seed, broken=mutation)
        assert not result.cause.startswith("TypeError"), f"{mutation}: {result.cause}"
        if result.violation:
            yield result


def caught(seeds: Mapping[str, Sequence[int]], *, play: Play = play) -> Iterator[tuple[str, Result | None, float]]:
    """Each mutation with the result of its first seed that catches it, if any, and the seconds that this took."""
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=_begin) as pool:
        found = [pool.submit(_first_catch, name, tried, play) for name, tried in seeds.items()]
        for name, each in zip(seeds, found, strict=True):
            yield name, *each.result()


def _first_catch(mutation: str, seeds: Sequence[int], play: Play) -> tuple[Result | None, float]:
    start = time.process_time()
    return next(catches(mutation, seeds, play=play), None), time.process_time() - start
