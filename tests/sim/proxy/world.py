"""One run: clients of several kinds produce through the real proxy to a model cluster with many faults.

Promises:
- An acknowledged record is stored, at the acknowledged offset if the client got one, in the partition of its key. It is
  stored once if its producer is idempotent. The records of a key are in order.
- No producer is fenced, unless the proxy ends while its disk is full, or before the journal is whole again.
- Every call ends in time, and in the end the proxy holds no records.
- A client that gets an offset gets the time of the record as well.
- The proxy logs no bug of its own.
- Without other faults, a topic in trouble holds up no other topic of the same client, and records that a client is told
  are not stored are not stored.
- A batch that is refused because of one record is stored with none of its records, and its client learns which one.
- A sequence that was sent upstream is given to no other records.
- Without faults, requests that a client sent before it left are carried out.
- Upstream, a producer has at most five unsettled batches per partition, and the first batch of an epoch travels alone.
- Upstream gets records under the client id of their sender.
- When the rule of a topic changes, the records that a client without idempotence pipelines stay in their order.
- In some worlds, a client of a topic in mode `reject` has promises of its own (`tests.sim.proxy.strict`).
- In some worlds, clients see one partition of topic ``a``, whose rule has mode `fan-out`. Its records without a key
  are spread, too, and no client can read it.
- In some worlds, the rule of topic ``a`` has mode `copy`: an acknowledged record is also stored in topic ``archive``,
  in the partition of its key there, once if its producer is idempotent, and the records of a key are in order. In half
  of these worlds, clients write to ``archive``, too. In some, clients see one partition of it.
- While the rule of ``a`` changes between mode `copy` and others, records are copied as the rule says at their time.
- In some worlds, clients log in to upstream through the proxy, and their records come as their users
  (`tests.sim.proxy.forwarded`).
- Readers get the records that brokers have sent, and a response that has begun ends, or its connection does. No
  connection to a broker stays open behind the half of a request.
- In some worlds a host may have records of few producers under way, and never has more; all records are stored.
- After upstream has refused a batch as too large, later batches are smaller. A thread may be building one more large
  batch by then.
"""

import re
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from ottla.codec import inbox
from ottla.codec.apis.fetch import FetchResponse
from ottla.codec.apis.produce import ProduceRequest, ProduceResponse
from ottla.codec.records import RecordBatch, parse_batch
from ottla.errors import (
    BrokerError,
    DuplicateSequenceNumber,
    InvalidRecord,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
)
from ottla.proxy import threads
from ottla.proxy.clients import opening, producers, rejecter, routed_topics
from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.producers_at_work import ProducersAtWork
from ottla.proxy.clients.refused_memory import HOLDER
from ottla.proxy.clients.rejecter import Rejecter
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.windows import Window
from ottla.proxy.config import ProxyConfig
from ottla.proxy.core import ProxyCore
from ottla.proxy.journal import journal
from ottla.proxy.routing import TopicRules
from ottla.proxy.threads import Threads
from ottla.proxy.topic_rule import TopicRule, parse_rule
from ottla.proxy.upstream import control, delivery, recognition, stream_sender
from ottla.proxy.upstream.batches import Part
from ottla.proxy.upstream.link import CLIENT_ID
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.streams import Stream
from ottla.sdk.options import Options
from ottla.sdk.produce.options import ProducerOptions
from tests.sim.clock import Clock
from tests.sim.cluster import ModelCluster
from tests.sim.data import Place
from tests.sim.faults import FAULTS, Fault
from tests.sim.history import History
from tests.sim.mutations import Change, changed
from tests.sim.network import Link, Network
from tests.sim.proxy import strict
from tests.sim.proxy.faulty import COMPACTED, Faulty
from tests.sim.proxy.foreign import JavaLike
from tests.sim.proxy.forwarded import Users, forwarding
from tests.sim.proxy.ledger import Ledger, name_of
from tests.sim.proxy.mutations import MUTATIONS
from tests.sim.proxy.neighbours import Neighbours
from tests.sim.proxy.parting import Parting
from tests.sim.proxy.pieces import Pieces
from tests.sim.proxy.pipelined import Pipelined
from tests.sim.proxy.process import HALF, Bugs, ProxyProcess, few_producers
from tests.sim.proxy.readers import Reader
from tests.sim.proxy.senders import Sending
from tests.sim.proxy.strangers import Stranger
from tests.sim.proxy.strict import Strict
from tests.sim.run import Result, logged_to
from tests.sim.users import Process, Violation

KINDS = ("cut", "move", "crash", "sleep", "cut off", "silence", "slow", "swallow", "refuse", "step down", "expire")
"""The cluster's faults that occur here."""
OWN = ("cut clients", "restart", "freeze", "refuse records", "freeze a client", "recreate", "another limit")
"""Further faults."""
UNKNOWN = {"refuse records", "another limit"}
"""The further faults that may leave the proxy with batches of unknown outcome."""
REST = 0.2
"""Idle seconds after which leaders may forget a producer."""
LIMIT_LASTS = 30.0
"""Idle seconds after which the proxy tries larger batches again: more than a client waits before it retries."""
FEW, MOST = 200, 2**20
"""Limits of a batch in bytes: the first allows few records, and no batch reaches the second."""
STEPS = (threads.STEP, 1, 400, 1500)
"""Bytes that the proxy opens or builds in a step. A world's batches have some hundreds."""
WAITS = (routed_topics.METADATA_WAIT, 0.05)
"""Most seconds that records wait for the description of their topic; the second is too short for some."""
NAMED = 0.3
"""The fraction of worlds in which brokers name their cluster."""
IN_PARTS = 0.1
"""The fraction of worlds in which the proxy splits most batches."""
STAMPS, APPEND_TIME = 0.3, 1_800_000_000_000
"""The fraction of worlds in which brokers give records the time of the append, and that time."""
CROWDS, REMEMBERED = 0.2, 20
"""The fraction of worlds in which other clients get many producer ids, and the number that the proxy remembers then."""
FEW_REPLICAS, TROUBLED = 0.3, 0.5
"""The fraction of worlds in which partitions refuse all records for a while, and those with a topic in trouble."""
DENIED = 0.2
"""The fraction of worlds in which upstream allocates no producer ids for a while."""
ROUNDS = 10
"""How many records a client sends to a topic in trouble."""
REFUSED = 0.3
"""The fraction of worlds with a client whose batches are refused because of one record."""
CHANGES, OTHER_RULES = 0.5, ("a=reject", "a=observe", None)
"""The fraction of worlds in which the rule of topic ``a`` changes while a client pipelines records, and the rules that
replace `rewrite`; ``None``: no rule."""
PIECES, LARGE = 0.4, 100
"""The fraction of worlds in which frames arrive in pieces, and the size from which the proxy then passes them on."""
FILLS = 0.2
"""The fraction of worlds in which the proxy's disk is full for a while, and the proxy is killed later."""
FANS_OUT, KEYLESS = 0.3, 0.3
"""The fraction of worlds with a topic in mode `fan-out`, and there the fraction of records without a key."""
COPIES = 0.4
"""The fraction of worlds without mode `fan-out` in which another topic gets copies."""
FORWARDS = 0.3
"""The fraction of worlds without pieces in which clients log in to upstream through the proxy."""
FOREIGN = 0.7
"""The fraction of those with a named cluster in which another cluster gets the address of a node for a while."""
RECOGNIZED = 0.2
"""Seconds for which an address counts as upstream's, instead of `ottla.proxy.upstream.recognition.HOLDS`."""
REJECTS = 0.1
"""The fraction of worlds with a topic in mode `reject`."""
BY_ID = "4.1"
"""The first release whose Produce has topic ids."""
LIMIT = 200.0
"""Seconds after the last fault within which everything has to be done."""
LOOK = 0.25
CROWD = "more than five batches are unsettled"
TOGETHER = "the first batch of an epoch does not travel alone"
_SENDER = re.compile(rb"[a-z]+[0-9]+")
"""The name of a process, with which the values of its records begin."""
GIVEN_AGAIN = "a sequence that was sent is given to other records"
STRANGER = "records have the client id of another client"
TOO_LARGE = "batches are as large as a batch that upstream has refused"
LEFT = "the proxy holds records in the end"
UNCARRIED = "a request that a client sent before it left is not carried out"


class Simulation:
    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.seed, self.chance = seed, Random(seed)
        self.clock = Clock()
        self.history = History(self.clock, told)
        chance = self.chance
        self.seconds = chance.choice((2.0, 4.0, 8.0))
        nodes = chance.choice((1, 2, 3))
        self.rewritten = {"a": chance.choice((3, 6, 12))}
        self.topics = {**self.rewritten, "plain": 2}
        self.fans_out = Random(f"{seed} clients see one partition").random() < FANS_OUT
        self.seen = {"a": 1} if self.fans_out else {**self.rewritten}
        """The topics with keys, and the number of partitions that clients see."""
        own = Random(f"{seed} copies")
        self.copies = {"archive": own.choice((1, 2, 4))} if own.random() < COPIES and not self.fans_out else {}
        """The topic that gets copies, and the number of its partitions."""
        self.rewritten |= self.copies
        self.topics |= self.copies
        if own.random() < 0.5:
            self.seen |= self.copies
        self.archive_fans_out = bool(self.copies) and Random(f"{seed} archive").random() < FANS_OUT
        if self.archive_fans_out and "archive" in self.seen:
            self.seen["archive"] = 1
        self.rejects = Random(f"{seed} policed").random() < REJECTS
        self.release = release = chance.choice(("2.1", "2.8", "3.9", "4.3", "4.3"))
        self.network = Network(self.clock, Random(seed + 1), self.history)
        self.front = Network(self.clock, Random(seed + 2), self.history)
        strict_topics = {strict.TOPIC: strict.PARTITIONS} if self.rejects else {}
        self.cluster = ModelCluster(
            self.clock, Random(seed + 3), self.network, self.history, self.topics | strict_topics, nodes, release
        )
        self.network.cluster, self.network.features = self.cluster, self.cluster.data.features
        self.front.features = self.cluster.data.features
        self.cluster.data.max_message_bytes = chance.choice((FEW, 2000, MOST, MOST, MOST))
        if Random(f"{seed} append time").random() < STAMPS:
            self.cluster.data.append_time = APPEND_TIME
        self.certain = Random(f"{seed} certain").random() < 0.3
        """No fault leaves the proxy with an unknown outcome, so it has no reason to fence a producer."""
        if self.certain:
            self.cluster.data.max_message_bytes = MOST
        self.ledger = Ledger(
            self.cluster,
            self.rewritten,
            strict=strict_topics,
            fans_out=frozenset(["a"] * self.fans_out + ["archive"] * self.archive_fans_out),
            copied={"a": "archive"} if self.copies else {},
        )
        self.upstream = Upstream(self.clock, self.cluster, lambda: self.proxy.restarts, ("a", *self.copies))
        self.network.sent, self.network.delivered = self.upstream.sent, self._delivered
        self.brought: set[bytes] = set()
        """The record sets in the brokers' Fetch responses."""
        self.readers: list[Reader] = []
        config = ProxyConfig(
            upstream="n1:9092",
            listen="proxy:9092",
            topics=(
                parse_rule("a=fan-out" if self.fans_out else "a=copy:archive" if self.copies else "a=rewrite"),
                *(parse_rule(f"{topic}={'fan-out' if self.archive_fans_out else 'rewrite'}") for topic in self.copies),
                *map(parse_rule, ("plain=observe", f"{COMPACTED}=rewrite")),
                *(parse_rule(f"{topic}=reject") for topic in strict_topics),
            ),
            connect_timeout=chance.choice((1.0, 10.0)),
            request_timeout=chance.choice((2.0, 10.0)),
            # With copies, slow threads have more batches to build before a client's large one is stored whole.
            delivery_timeout=(
                chance.choice((1.0, 3.0)) * (3 if self.copies else 1)
                if (gives_up := chance.random() < 0.3)
                else 10_000.0
            ),
            max_batch=chance.choice((300, 1000, 2**19)),
        )
        if self.certain:
            config, gives_up = replace(config, delivery_timeout=10_000.0), False
        self.proxy = ProxyProcess(self.clock, self.front, self.network, self.history, config, nodes, seed)
        if chance.random() < 0.7 or self.certain:
            self.proxy.stored = []
        own = Random(f"{seed} pieces")
        self.in_pieces = own.random() < PIECES and not self.rejects
        """Large frames arrive in pieces, and the proxy passes those of topic `plain` on, which has no rule then."""
        if self.in_pieces:
            self.proxy.pieces, self.proxy.breaks_until = Pieces(self.clock, own), 2 * self.seconds + 2.0
            self.proxy.config = replace(config, topics=config.topics[: 1 + len(self.copies)])
        self.forwards = Random(f"{seed} forward").random() < FORWARDS and not self.in_pieces
        self.users = Users()
        if self.forwards:
            self.proxy.forwards, self.proxy.config = True, forwarding(self.proxy.config)
            self.network.admit, self.upstream.check = self.users.serve, self.users.sent
        self.processes: dict[str, Any] = {"proxy": self.proxy}
        self.sending: list[Sending | JavaLike | Strict] = []
        self.options = Options(delivery_timeout=10_000.0, request_timeout=chance.choice((5.0, 30.0)))
        self.faults = self._drawn()
        kinds = {fault.kind for fault in self.faults}
        own = Random(f"{seed} growth")
        if own.random() < 0.3 and self.proxy.stored is not None and not any("recreate" in kind for kind in kinds):
            self.faults.append(Fault(own.uniform(0.0, self.seconds), "grow", 0.0))
        grows = any(fault.kind == "grow" for fault in self.faults)
        own = Random(f"{seed} disk")
        self.fills = own.random() < FILLS and self.proxy.stored is not None and not grows
        self._amid = own.choice((0, 1, 2))
        """After how many entries of the journal that is rebuilt after a full disk the proxy is killed; 0: it is not."""
        if self.fills:
            self.faults += self._filled(own)
        own = Random(f"{seed} strangers")
        self.crowded = own.random() < CROWDS
        if self.crowded:
            self.faults += [Fault(own.uniform(0.0, self.seconds), "strangers", 0.0) for _ in range(3)]
            self.proxy.on_one_host = own.random() < 0.5
        # Strangers push out a producer that has not written, and its first batch may be refused as one too many.
        self.few_producers = [] if self.crowded else few_producers(seed)
        if self.few_producers:
            self.proxy.on_one_host = Random(f"{seed} one host").random() < 0.7
        own = Random(f"{seed} parts")
        self.in_parts = own.random() < IN_PARTS and self.proxy.stored is not None and not self.certain
        """Upstream accepts only small batches; the proxy remembers it, and is killed while it sends parts of parts."""
        if self.in_parts:
            self.cluster.data.max_message_bytes = FEW
            self.network.slow = dict.fromkeys(self.cluster.nodes, (5.0, 5.0))
        own = Random(f"{seed} few replicas")
        if own.random() < FEW_REPLICAS:
            self.faults += [Fault(own.uniform(0.0, self.seconds), "too few replicas", own.choice((0.5, 2.0, 5.0)))]
        own = Random(f"{seed} denied")
        if own.random() < DENIED:
            self.faults += [Fault(own.uniform(0.0, self.seconds), "deny producer ids", own.choice((0.5, 2.0)))]
        own = Random(f"{seed} another cluster")
        if self.forwards and is_named(seed) and not self.certain and own.random() < FOREIGN:
            self.faults += [Fault(own.uniform(0.0, self.seconds), "another cluster", own.choice((0.5, 2.0, 10.0)))]
        self._strangers = 0
        self._kills = 6
        """How many more kills there are while the proxy sends a part that is not the first of its batch."""
        self.fences = (
            gives_up
            or ("restart" in kinds and self.proxy.stored is None)
            or self.cluster.data.max_message_bytes < MOST
            or "another limit" in kinds
            or ("recreate" in kinds and release < BY_ID)
        )
        """The proxy may fence producers: it has lost their state, or may give up batches with an unknown outcome."""

    def _drawn(self) -> list[Fault]:
        chance = self.chance
        kinds = [*KINDS, *OWN, "refuse records", "refuse records"]
        seldom = ["recreate", "another limit", *(["restart"] if self.proxy.stored is None else [])]
        for each in seldom:  # these faults allow the proxy to fence producers
            if chance.random() < 0.7:
                kinds.remove(each)
        drawn = sorted(
            (
                Fault(chance.uniform(0.0, self.seconds), chance.choice(kinds), chance.choice((0.1, 0.5, 1.0, 2.0, 4.0)))
                for _ in range(chance.randint(3, 9))
            ),
            key=lambda each: each.at,
        )
        if not self.certain:
            return drawn
        own = Random(f"{self.seed} certain faults")
        others = ("restart", "recreate", "restart, and recreate") if self.release >= BY_ID else ("restart",)
        return [
            replace(each, kind=own.choice(others)) if each.kind in UNKNOWN or each.kind == "recreate" else each
            for each in drawn
        ]

    def _filled(self, own: Random) -> list[Fault]:
        """A full disk, and then kills: most when the journal is whole again, some before that."""
        began, lasts = own.uniform(0.0, self.seconds / 2), own.choice((0.1, 0.5, 1.0))
        over = began + lasts
        after = [over + own.choice((0.0, 0.5, 1.5, 2.5)) for _ in range(own.choice((1, 2)))]
        return [Fault(began, "full disk", lasts), *(Fault(each, "kill", own.choice((0.1, 0.5))) for each in after)]

    # -- for the faults

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    def spare(self, fit: Any) -> int | None:
        """A node that may fail."""
        healthy = [each.number for each in self.cluster.nodes.values() if each.healthy and fit(each)]
        return self.chance.choice(healthy) if healthy else None

    def may_expire(self, place: Place, producer_id: int) -> bool:
        """Whether a leader may forget a producer: it is idle, and no request of it may arrive or be sent again."""
        if place[0] not in self.rewritten or self.cluster.data.strict:
            # The proxy passes other topics on unchanged. An old (strict) leader answers UNKNOWN_PRODUCER_ID also after
            # it has deleted stored records, so no client can know whether they were stored.
            return False
        upstream = self.upstream
        rested = self.clock.now > upstream.settled[producer_id, place] + REST
        if (
            not rested
            or self.network.left_behind()
            or upstream.unsettled[producer_id, place]
            or self.proxy.core is None
        ):
            return False
        # The proxy sends batches again whose answers it has not got.
        busy = self.proxy.core.delivery._steering.busy.items()
        return not any(
            each.sent and (each.topic, each.partition) == place and producer.producer_id == producer_id
            for each, producer in busy
        )

    def expire(self, place: Place, producer_id: int) -> None:
        del self.cluster.logs[place].producers[producer_id]
        self.upstream.forget(place, producer_id)

    @property
    def producers(self) -> list[Any]:
        return []

    @property
    def written(self) -> dict[str, int]:
        """The topics to which clients write, and the number of partitions that they see."""
        return {topic: count for topic, count in self.topics.items() if topic not in self.copies} | self.seen

    @property
    def keyed(self) -> float:
        """The fraction of records with a key."""
        return 1 - KEYLESS if self.fans_out else 0.95

    # -- users

    def _people(self) -> None:
        chance = self.chance
        for index in range(chance.choice((1, 2, 3))):
            name, own = f"p{index}", Random(f"{self.seed} p{index}")
            keys, count = chance.choice((1, 5, 20)), 150
            keys = 1 if self.in_parts else keys
            idempotent = index == 0 or own.random() < 0.6
            if own.random() < 0.5 and idempotent:
                nodes = len(self.cluster.nodes)
                java = JavaLike(
                    name, self.clock, self.front, self.history, self.ledger, own, self.seen, nodes, count,
                    self.seconds, keys, self.keyed,
                )  # fmt: skip
                self.processes[name] = java
                self.sending.append(java)
                continue
            options = ProducerOptions(
                idempotent=idempotent,
                linger=own.choice((0.0, 0.005)),
                batch_size=own.choice((150, 400, 2000)),
                partitioner="crc32",
            )
            if self.in_parts:
                options = replace(options, batch_size=2000)
            process = Process(
                name,
                self.clock,
                self.front,
                self.history,
                self.options,
                len(self.cluster.nodes),
                Random(f"{name} {self.seed}"),
            )
            self.processes[name] = process
            sending = Sending(
                process, self.ledger, options, own, self.written, count, self.seconds, keys, 10_000.0,
                idempotent, Random(f"{self.seed} {name} alike").random() < 0.5, self.keyed,
            )  # fmt: skip
            self.sending.append(sending)
            process.run(sending.script())

    def _strict_client(self) -> None:
        own = Random(f"{self.seed} strict client")
        client = Strict("t0", self.clock, self.front, self.history, self.ledger, own, len(self.cluster.nodes))
        self.processes["t0"] = client
        self.sending.append(client)

    def _read(self) -> None:
        """In worlds with pieces, have readers fetch what the proxy passes on."""
        for index in range(2 * self.in_pieces):
            name, own = f"f{index}", Random(f"{self.seed} f{index}")
            topic = own.choice(("plain", "a"))
            reader = Reader(
                name, self.clock, self.front, self.history, self.cluster, own, topic, self.brought,
                self.proxy.half_answered, refused=self.fans_out and topic == "a",
            )  # fmt: skip
            self.processes[name] = reader
            self.readers.append(reader)

    def _delivered(self, link: Link, request: Any, answer: Any) -> None:
        self.upstream.delivered(link, request, answer)
        if isinstance(answer, FetchResponse):
            self.brought |= {bytes(e.records) for topic in answer.responses for e in topic.partitions if e.records}

    # -- the run

    def run(self) -> Result:
        violation = None
        step = Random(f"{self.seed} step").choice(STEPS)
        wait = Random(f"{self.seed} wait").choice(WAITS)
        changes = (
            (stream_sender, "LONG_REST", lambda _: REST),
            (delivery, "LIMIT_LASTS", lambda _: LIMIT_LASTS),
            (routed_topics, "METADATA_WAIT", lambda _: wait),
            (threads, "STEP", lambda _: step),
            (threads, "PLAIN", lambda _: 1),
            (Stream, "_first_waiting", self._killed_between_parts),
            *([(producers, "REMEMBERED_PRODUCERS", lambda _: REMEMBERED)] if self.crowded else []),
            *([(journal, "COPIED_AT_ONCE", lambda _: 1)] if self.fills else []),
            *([(inbox, "LARGE", lambda _: LARGE)] if self.in_pieces else []),
            *([(recognition, "HOLDS", lambda _: RECOGNIZED)] if self.forwards else []),
            *counted(self.cluster.data.features),
            *named(self.seed, self.cluster),
            *self.few_producers,
        )
        self.cluster.data.features["clients see one partition of a topic"] += self.fans_out
        self.cluster.data.features["a topic gets copies"] += bool(self.copies)
        self.cluster.data.features["clients log in through the proxy"] += self.forwards
        self.cluster.data.features["a topic in mode fan-out gets copies"] += self.archive_fans_out
        bugs = Bugs()
        with logged_to(bugs), changed(*changes):
            try:
                self.proxy.start()
                self._people()
                if self.rejects:
                    self._strict_client()
                self._read()
                for fault in self.faults:
                    self.clock.at(fault.at, partial(self._strike, fault))
                while not all(each.done for each in (*self.sending, *self.readers)):
                    if not self.clock.step():
                        raise Violation("no event is left, and not everything is done", self._left())
                    if self.clock.now > self.seconds + LIMIT:
                        raise Violation("everything has to be done by now", self._left())
                self._come_to_rest()
                self._part()
                if not self.in_pieces:  # connections break there until the end
                    self._trouble()
                    self._refuse_some()
                self._change_rules()
                for each in self.sending:
                    if isinstance(each, Strict):
                        each.check()
                self.ledger.check(fences=self.fences or self.proxy.forgot, by_id=self.release >= BY_ID)
                bugs.check()
            except Violation as broken:
                violation = broken
            except Exception as error:  # any exception of a machine is a finding
                violation = Violation("a machine raises", "".join(traceback.format_exception(error)))
        features = self.cluster.data.features
        return Result(
            self.seed,
            violation,
            self.history.lines,
            self.clock.now,
            len(self.ledger.sent),
            self.network.requests,
            features,
        )

    def _killed_between_parts(self, first_waiting: Any) -> Any:
        own = Random(f"{self.seed} kills")

        def noted(stream: Stream) -> Part:
            part: Part = first_waiting(stream)
            if self.in_parts and self._kills and part.alone and part.first and own.random() < 0.2:
                self._kills -= 1
                self.proxy.dies_at, self.proxy.restart_after = own.choice((2, 3, 5, 8)), 0.05
            return part

        return noted

    def _come_to_rest(self, seconds: float = 30.0) -> None:
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.step()
        core = self.proxy.core
        assert core is not None
        held = core.buffered.total - core.refused_memory.total
        if not core.idle or held or {*core.buffered.of} - {HOLDER}:
            raise Violation(LEFT, f"{held} bytes, idle: {core.idle}")
        self._check_refused_memory(core)
        if core.rewriter.unsettled or core.rewriter.unsettled_records:
            raise Violation(LEFT, f"{core.rewriter.unsettled} batches, {core.rewriter.unsettled_records} records")
        if self.proxy.half_sent():
            raise Violation(HALF, "at rest")
        self.proxy.check_rest()

    def _check_refused_memory(self, core: ProxyCore) -> None:
        """Check that the records of refused batches are counted as the windows remember them."""
        windows = [window for producer in core.admission.producers for window in producer.windows.values()]
        remembered, counted = sum(each.memory for each in windows), core.refused_memory.total
        if remembered != counted:
            raise Violation(LEFT, f"{remembered} bytes of refused records, {counted} are counted")
        self.cluster.data.features["records of refused batches are remembered in the end"] += counted > 0

    def _part(self) -> None:
        """After the faults, let clients leave without waiting for answers.

        Not where the proxy refuses records before a topic that it has forgotten is described again, or because records
        of other clients that have left are still under way.
        """
        if WAITS[1] == routed_topics.METADATA_WAIT or self.few_producers:
            return
        own = Random(f"{self.seed} parting")
        self.proxy.abrupt, self.proxy.breaks_until = True, 0.0
        self.proxy.dies_at = self.proxy.dies_after_stores = None  # a kill that is still due would be a fault
        self.in_parts = False
        for link in [each for each in self.network.links.values() if each.swallowed]:
            self.network.cut(link, "a timeout ended the silent connection")
        self._come_to_rest()
        parting = []
        for node in self.cluster.nodes:
            self.network.slow[node] = (own.choice((1.0, 10.0)), 1.0)
            led = [place for place, leader in self.cluster.leaders.items() if leader.node == node]
            known = [(topic, index) for topic, index in led if topic in self.topics and index < self.topics[topic]]
            if places := [place for place in known if place not in self.cluster.buried]:  # the proxy returns the others
                client = Parting(f"l{node}", self.clock, self.front, self.history, self.ledger, own, node, places)
                parting.append(client)
        self._come_to_rest()
        stored = self.ledger.stored()
        for sent in (sent for each in parting for sent in each.sent):
            if sent.value not in stored:
                raise Violation(UNCARRIED, f"{sent.value.decode()} for {sent.topic}-{sent.partition}")

    def _trouble(self) -> None:
        """After the faults, let a topic get into trouble, and check that another one is not held up."""
        own = Random(f"{self.seed} trouble")
        if own.random() >= TROUBLED or WAITS[1] == routed_topics.METADATA_WAIT or {"a", "plain"} - {*self.cluster.ids}:
            return
        if self.copies:  # a record waits for its copies, so the topics are in trouble together
            return
        self.proxy.dies_at, self.in_parts = None, False
        for link in list(self.network.links.values()):
            self.network.cut(link, "all connections are new")
        self.network.slow.clear()
        self.cluster.data.max_message_bytes = MOST
        node = self.cluster.leaders["plain", 0].node
        until = self.clock.now + 20.0
        places = [place for place in self.cluster.leaders if place[0] == "a"]
        kind = own.choice(("replicas", "some replicas", "deleted"))
        if kind == "deleted":
            self.cluster.delete("a")
            self._come_to_rest()  # until all nodes know: a record that one of them still takes has an unknown outcome
        else:
            for place in places if kind == "replicas" else own.sample(places, max(1, len(places) // 2)):
                self.cluster.data.refusals[place] = (NotEnoughReplicas.code, False, until)
                self.cluster.data.stubborn[place] = until
        astray = self.upstream.led_astray
        client = Neighbours(
            "n1", self.clock, self.front, self.history, self.ledger, own, self.rewritten["a"], ROUNDS, node,
            idempotent=kind != "deleted" and own.random() < 0.5,
        )  # fmt: skip
        self._come_to_rest()
        if kind == "deleted":
            self.cluster.create("a")
        self._come_to_rest()
        client.check(ROUNDS - (self.upstream.led_astray - astray), self.ledger.stored)
        self.cluster.data.features[f"a topic in trouble: {kind}"] += 1

    def _refuse_some(self) -> None:
        """After the faults, let a client send batches that upstream refuses because of one record."""
        own = Random(f"{self.seed} refused")
        if own.random() >= REFUSED or WAITS[1] == routed_topics.METADATA_WAIT or self.release < "2.8":
            return
        self.proxy.dies_at = None
        self.cluster.data.max_message_bytes = 2000
        self.cluster.data.configs[COMPACTED] = {"cleanup.policy": "compact"}
        self.ledger.rewritten[COMPACTED] = 3
        self.cluster.create(COMPACTED, 3)
        self._come_to_rest()
        node = own.choice([*self.cluster.nodes])
        client = Faulty("r1", self.clock, self.front, self.history, self.ledger, own, node, 2000)
        self._come_to_rest()
        client.check(self.ledger.stored())
        self.cluster.data.features["a batch is refused because of one record"] += 1

    def _change_rules(self) -> None:
        """After the faults, change the rule of topic ``a`` back and forth while a client pipelines records for it."""
        own = Random(f"{self.seed} rules change")
        led = [place for place in self.cluster.leaders if place[0] == "a" and place[1] < self.rewritten["a"]]
        led = [place for place in led if place not in self.cluster.buried]  # old releases do not tell the two apart
        all_partitions = sum(place[0] == "a" for place in self.cluster.leaders)
        grown = all_partitions > self.rewritten["a"]  # mode `reject` spreads keys over all of them
        if own.random() >= CHANGES or self.fans_out or WAITS[1] == routed_topics.METADATA_WAIT or not led:
            return
        self.proxy.dies_at = self.proxy.dies_after_stores = None
        self.proxy.abrupt, self.proxy.breaks_until, self.in_parts = False, 0.0, False
        self.cluster.data.max_message_bytes = MOST
        node = self.cluster.leaders[own.choice(led)].node
        places = [place for place in led if self.cluster.leaders[place].node == node][:3]
        for each in self.cluster.nodes:
            self.network.slow[each] = (own.choice((1.0, 10.0, 10.0)), 1.0)
        self._come_to_rest()
        client = Pipelined(
            "q1", self.clock, self.front, self.history, self.ledger, own, node, places, self.rewritten["a"],
            copying=bool(self.copies),
        )  # fmt: skip
        rules, others = self.proxy.config.topics, OTHER_RULES[grown:] + ("a=rewrite",) * bool(self.copies)
        at = sorted(own.uniform(0.0, 0.6) for _ in range(2 * own.randint(1, 6)))
        for number, when in enumerate(at):
            other = None if number % 2 else own.choice(others)
            changed_rules = rules if number % 2 else (*([parse_rule(other)] if other else []), *rules[1:])
            self.clock.later(when, partial(self._reload, client, changed_rules))
        self._come_to_rest(150.0)
        client.check(self.cluster.logs)
        self.cluster.data.features["a rule changes while a client pipelines records"] += 1
        self.cluster.data.features["records are returned because a rule has changed"] += client.returned > 0
        self.cluster.data.features["the rule of a topic that is copied changes"] += bool(self.copies)

    def _reload(self, client: Pipelined, rules: Sequence[TopicRule]) -> None:
        client.rule_changes(copying=TopicRules(rules).copies("a") != ())
        self.proxy.reload(rules)

    def _left(self) -> str:
        left = sum(not each.done for each in self.sending), sum(not each.done for each in self.readers)
        return f"{left[0]} of {len(self.sending)} producers and {left[1]} readers are not done"

    def _come_from_everywhere(self, fault: Fault) -> None:
        """Let many strangers get two ids each, once every client has written with its own (before, it may lose it)."""
        known = list(self.proxy.core.admission.producers) if self.proxy.core is not None else []
        numbered = sum(
            isinstance(each, JavaLike) or (isinstance(each, Sending) and each.idempotent) for each in self.sending
        )
        if len(known) < numbered or not all(each.windows for each in known):
            self.clock.later(0.05, partial(self._strike, fault))
            return
        self._strangers += 1
        for number in range(REMEMBERED):
            Stranger(f"s{self._strangers}.{number}", self.clock, self.front, self.history, 2)

    def _strike(self, fault: Fault) -> None:
        self.say("!", fault.kind, "")
        match fault.kind:
            case "cut clients":
                links = list(self.front.links.values())
                for link in self.chance.sample(links, min(len(links), self.chance.choice((1, 2, 8)))):
                    self.front.cut(link, "the wire broke")
            case "restart":
                if self.proxy.alive:
                    self.proxy.dies_at = self.chance.choice((0, 0, 1, 2, 5, 20))
                    self.proxy.restart_after = fault.seconds / 4
                    if not self.proxy.dies_at:
                        self.proxy.kill()
            case "strangers" if self.proxy.on_one_host:
                self._come_from_everywhere(fault)
            case "strangers":
                self._strangers += 1
                Stranger(f"s{self._strangers}", self.clock, self.front, self.history, REMEMBERED + 5)
            case "full disk":
                self.proxy.disk_is_full = True
                self.clock.later(fault.seconds, self._make_room)
            case "kill":
                if self.proxy.alive:
                    self.proxy.restart_after = fault.seconds
                    self.proxy.kill()
            case "another cluster":
                node = self.spare(lambda each: each.up)
                if node is not None:
                    self.cluster.crash(node)
                    self.clock.later(RECOGNIZED, partial(self._give_away, node, fault.seconds))
            case "too few replicas":
                places = [place for place in self.cluster.leaders if place[0] in self.rewritten]
                until = self.clock.now + fault.seconds
                for place in self.chance.sample(places, self.chance.choice((1, len(places)))) if places else ():
                    self.cluster.data.refusals[place] = (NotEnoughReplicas.code, False, until)
                    self.cluster.data.stubborn[place] = until
            case "deny producer ids":
                self.cluster.ids_denied_until = self.clock.now + fault.seconds
            case "freeze":
                if self.proxy.alive:
                    self.proxy.freeze(fault.seconds / 2)
                    self.clock.at(self.proxy.thawed, self.proxy.thaw)
            case "restart, and recreate":
                if self.proxy.alive:
                    self.proxy.restart_after = fault.seconds / 4
                    self.proxy.kill()
                    self._recreate(self._doomed(fault), fault.seconds / 8)
            case "recreate":
                self._recreate(self._doomed(fault), fault.seconds / 4)
            case "grow":
                if self.proxy.core is None or "a" not in self.proxy.core.topics.pins:
                    return  # keys that are not pinned yet would spread over all partitions that exist then
                self.cluster.grow("a", 3)
            case "another limit":
                limits = {FEW, 2000, MOST} - {self.cluster.data.max_message_bytes}
                self.cluster.data.max_message_bytes = self.chance.choice(sorted(limits))
            case "freeze a client":
                self.processes[self.chance.choice([name for name in self.processes if name != "proxy"])].freeze(
                    fault.seconds
                )
            case "refuse records":
                error = self.chance.choice((TopicAuthorizationFailed, InvalidRecord))
                places = [place for place in self.cluster.leaders if place[0] in self.topics]
                self.fences = True  # the refusal does not tell the outcome of an earlier, unanswered attempt
                for place in self.chance.sample(places, self.chance.randint(1, len(places))):
                    self.cluster.data.refusals[place] = (error.code, False, self.clock.now + fault.seconds / 4)
                if self.chance.random() < 0.5:  # so that an earlier attempt stays unanswered
                    for link in list(self.network.links.values()):
                        self.network.cut(link, "the wire broke")
            case kind:
                FAULTS[kind](self, fault)  # type: ignore[arg-type] # it has what these faults use
        self.cluster.data.features[f"fault: {fault.kind}"] += 1

    def _give_away(self, node: int, seconds: float) -> None:
        """Let another cluster have the address of a node for a while; meanwhile the node leads its partitions."""
        self.cluster.data.features["another cluster has the address of a node"] += 1
        self.users.foreign.add(node)
        self.cluster.restart(node)
        self.clock.later(seconds, partial(self._return, node))

    def _return(self, node: int) -> None:
        self.network.crash(node)
        self.users.foreign.remove(node)

    def _doomed(self, fault: Fault) -> str:
        """The topic that is recreated."""
        return Random(f"{self.seed} recreate at {fault.at}").choice(("a", *self.copies))

    def _make_room(self) -> None:
        self.proxy.disk_is_full = False
        if self.proxy.abandoned and self._amid:
            self.proxy.dies_after_stores, self.proxy.restart_after = self._amid, 0.1

    def _recreate(self, topic: str, pause: float) -> None:
        if topic in self.cluster.ids:
            self.cluster.delete(topic)
            self.clock.later(pause if self.chance.random() < 0.7 else 0.0, partial(self.cluster.create, topic))


def is_named(seed: int) -> bool:
    """Whether brokers name their cluster."""
    return Random(f"{seed} cluster id").random() < NAMED


def named(seed: int, cluster: ModelCluster) -> list[tuple[Any, str, Change]]:
    """In some worlds brokers do not name their cluster, and the proxy asks for its name more often."""
    if is_named(seed):
        return []
    cluster.cluster_id = None
    return [(control, "LOOK", lambda _: 30.0)]


def counted(features: Counter[str]) -> list[tuple[Any, str, Change]]:
    """Count how often the proxy does rare things."""

    def when(text: str, seen: Callable[[Any], object]) -> Change:
        def change(original: Any) -> Any:
            def noted(*given: Any, **named: Any) -> Any:
                result = original(*given, **named)
                features[text] += bool(seen(result))
                return result

            return noted

        return change

    def refused(check: Any) -> Any:
        def noted(self: ProducersAtWork, producer: UpstreamProducer, host: str) -> None:
            try:
                check(self, producer, host)
            except BrokerError:
                features["a host has too many producers at work"] += 1
                raise

        return noted

    return [
        (ProducersAtWork, "check", refused),
        (delivery.Delivery, "_denied", when("upstream denies the proxy producer ids", lambda _: True)),
        (Stream, "start_over", when("what follows a refused batch is renumbered", lambda _: True)),
        (Stream, "_give_up", when("nobody can know what became of a batch", bool)),
        (Stream, "withdraw", when("records are withdrawn", bool)),
        (Threads, "fits", when("a batch is opened in a thread", lambda fits: not fits)),
        (stream_sender, "build_whole", when("a batch is built in a thread", bool)),
        (Rejecter, "_judge", when("a batch is refused because of its keys", bool)),
        (rejecter, "found_keys", when("the records of a request are judged", bool)),
        (opening, "opened", when("a batch cannot be opened", lambda found: isinstance(found, BrokerError))),
        (Part, "halves", when("a part is sent in two", bool)),
        (Stream, "take_back", when("records that upstream refuses for now go back to their client", bool)),
        (ClientBatch, "answer_late", when("a request is answered before its records are settled", lambda _: True)),
        (Stream, "_lose_count", when("a transaction loses the count of a partition", lambda _: True)),
        (Stream, "overtaken", when("a transaction is overtaken with records under way", bool)),
        (Rewriter, "withdraw", when("records of a transaction are withdrawn", lambda _: True)),
        (Window, "look_up", when("a batch comes again", lambda found: found is not None)),
        (Window, "failed", when("a batch is refused with others behind it", lambda found: len(found) > 1)),
        (Window, "stored_already", when("records that are stored already come again", bool)),
    ]


@dataclass(slots=True)
class Refused:
    """A batch that was too large.

    Attributes:
        knows: the circumstances under which the proxy remembers it.
        again: how many batches of that size were sent since.
        epoch, sequence: batches behind it in its epoch were sent before the proxy heard of it.
    """

    epoch: int
    sequence: int
    size: int
    knows: tuple[Any, ...]
    again: int


class Upstream:
    """Checks the batches that the proxy sends with a producer id."""

    def __init__(
        self, clock: Clock, cluster: ModelCluster, restarts: Callable[[], int], topics: tuple[str, ...] = ("a",)
    ) -> None:
        self._clock, self._cluster, self._restarts, self._topics = clock, cluster, restarts, topics
        self.settled: defaultdict[tuple[int, Place], float] = defaultdict(float)
        """(producer id, partition) -> when a batch was last settled."""
        self.unsettled: defaultdict[tuple[int, Place], dict[tuple[int, int], tuple[Link, int]]] = defaultdict(dict)
        """(producer id, partition) -> (epoch, first sequence) -> connection and CRC of a batch that no answer has
        settled yet."""
        self._known: set[tuple[int, int, Place]] = set()
        """(producer id, epoch, partition) with a stored batch."""
        self._refused: dict[tuple[int, Place], Refused] = {}
        """(producer id, partition) -> the last batch that was too large."""
        self._sent_at: defaultdict[tuple[int, Place], float] = defaultdict(float)
        """(producer id, partition) -> when a batch was last sent."""
        self.check: Callable[[Link, Any], None] = lambda link, message: None
        """Called with each request."""
        self.led_astray = 0
        """Batches that went to a former leader, which may have stored them: their outcome is unknown at first."""

    def forget(self, place: Place, producer_id: int) -> None:
        self._known = {each for each in self._known if (each[0], each[2]) != (producer_id, place)}

    def sent(self, link: Link, message: Any) -> None:
        self.check(link, message)
        for place, batch in self._batches(message):
            self._check_client(batch, link.client_id)
            producer = batch.producer_id, place
            unsettled, key = self.unsettled[producer], (batch.producer_epoch, batch.base_sequence)
            for old in [each for each in unsettled if each[0] < batch.producer_epoch]:
                del unsettled[old]  # given up, or refused
            if batch.transactional and unsettled.get(key, (link, batch.crc))[1] != batch.crc:
                for old in [each for each in unsettled if each >= key]:
                    del unsettled[old]  # they were refused, and their sequences are used again in the same epoch
            others = [each for each, (at, _) in unsettled.items() if each != key and at.open]
            if others and (batch.producer_id, batch.producer_epoch, place) not in self._known:
                raise Violation(TOGETHER, f"{place[0]}-{place[1]}: {key} of {batch.producer_id} beside {others}")
            if not batch.transactional and unsettled.get(key, (link, batch.crc))[1] != batch.crc:
                raise Violation(GIVEN_AGAIN, f"{place[0]}-{place[1]}: {key} of {batch.producer_id}")
            self._check_size(producer, batch, again=key in unsettled)
            self._sent_at[producer] = self._clock.now
            unsettled[key] = link, batch.crc
            if len(unsettled) > 5:
                raise Violation(CROWD, f"{place[0]}-{place[1]}: {len(unsettled)} of {batch.producer_id}")

    def delivered(self, link: Link, request: Any, answer: Any) -> None:
        if not isinstance(answer, ProduceResponse):
            return
        codes = {
            (self._cluster.ever_named(topic), each.index): each.error_code
            for topic in answer.responses
            for each in topic.partition_responses
        }
        self.led_astray += sum(code == NotLeaderOrFollower.code for code in codes.values())
        for place, batch in self._batches(request):
            if codes.get(place) in (0, DuplicateSequenceNumber.code):
                self.settled[batch.producer_id, place] = self._clock.now
                self._known.add((batch.producer_id, batch.producer_epoch, place))
                self.unsettled[batch.producer_id, place].pop((batch.producer_epoch, batch.base_sequence), None)
            elif codes.get(place) == MessageTooLarge.code:
                producer = batch.producer_id, place
                before = self._refused.get(producer)
                again = before.again if before is not None else 0
                number = batch.producer_epoch, batch.base_sequence
                self._refused[producer] = Refused(*number, len(batch.data), self._knows(place[0]), again)

    def _knows(self, topic: str) -> tuple[Any, ...]:
        """The circumstances on whose change the proxy forgets a batch that was too large."""
        return self._cluster.ids.get(topic), self._cluster.data.max_message_bytes, self._restarts()

    def _check_client(self, batch: RecordBatch, client_id: str | None) -> None:
        """Check that a batch has the client id of its sender; after a restart the proxy may not know it yet."""
        if client_id == CLIENT_ID and self._restarts() > 1:
            return
        value = name_of(next(iter(batch.records())))
        sender = _SENDER.match(value)
        if sender is None or sender[0].decode() != client_id:
            raise Violation(STRANGER, f"{client_id} for {value!r}")

    def _check_size(self, producer: tuple[int, Place], batch: RecordBatch, *, again: bool) -> None:
        """Check a batch that is sent, or sent ``again`` with the same sequence."""
        refused = self._refused.get(producer)
        if refused is None:
            return
        if refused.knows != self._knows(producer[1][0]) or self._clock.now >= self._sent_at[producer] + REST:
            del self._refused[producer]
        elif batch.producer_epoch == refused.epoch and batch.base_sequence > refused.sequence:
            return
        elif not again and batch.count > 1 and len(batch.data) >= refused.size:
            refused.again += 1
            if refused.again > 1:
                where = f"{producer[1][0]}-{producer[1][1]}"
                raise Violation(TOO_LARGE, f"{where}: {len(batch.data)} bytes after {refused.size}")

    def _batches(self, message: Any) -> list[tuple[Place, RecordBatch]]:
        """The batches of the rewritten topics in a request that have a producer id."""
        if not isinstance(message, ProduceRequest):
            return []
        return [
            ((name, data.index), batch)
            for topic in message.topic_data
            if (name := self._cluster.ever_named(topic)) in self._topics
            for data in topic.partition_data
            if (batch := parse_batch(data.records or b"")).producer_id >= 0
        ]


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed.

    Args:
        told: keep the history.
        broken: the name of a mutation of the proxy.
    """
    with MUTATIONS[broken]() if broken else nullcontext():
        return Simulation(seed, told=told).run()
