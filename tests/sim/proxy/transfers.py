"""Transactional producers through the real proxy to a model cluster; `tests.sim.transfers` has the promises.

Records of topic ``a`` have keys, and their producers may send them to partitions that do not match their keys. If the
rule of topic ``b`` changes in a world, the same holds for ``b``. In some worlds the rule of topic ``a`` has mode
`fan-out`: producers see one partition, and the consumer that reads all records reads them from the cluster itself. In
others it has mode `copy`: topic ``c`` has the same committed records as topic ``a``.
"""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.partitioners import murmur2_partition
from ottla.errors import InvalidRecord, TopicAuthorizationFailed
from ottla.proxy import threads
from ottla.proxy.clients import routed_topics
from ottla.proxy.clients.steps import Steps
from ottla.proxy.clients.transactions import ClientTransactions
from ottla.proxy.config import ProxyConfig
from ottla.proxy.topic_rule import parse_rule
from ottla.proxy.upstream import delivery, stream_sender
from ottla.sdk.produce.records import PendingRecord
from tests.sim.brokers import ModelBrokers
from tests.sim.data import Place
from tests.sim.faults import FAULTS, Fault
from tests.sim.mutations import Change, changed
from tests.sim.network import Link, Network
from tests.sim.proxy.hasty import Hasty
from tests.sim.proxy.process import Bugs, ProxyProcess, few_producers
from tests.sim.proxy.transfer_mutations import MUTATIONS
from tests.sim.proxy.world import LEFT, LIMIT_LASTS, REST, STEPS, WAITS, Upstream, counted, named
from tests.sim.run import Result, logged_to
from tests.sim.transfers import Transfers
from tests.sim.users import Violation

UPSTREAM = ("cut", "silence", "swallow", "slow")
"""Faults of a network that also strike the network between the proxy and the cluster."""
MOST_SHIFTED = 6
HASTY = 0.6
"""The fraction of worlds with producers that end their transactions with requests in flight."""
FANS_OUT = 0.3
"""The fraction of worlds with a topic in mode `fan-out`."""
COPIES = 0.4
"""The fraction of the other worlds in which topic ``c`` gets copies of topic ``a``."""
UNCOPIED = "a topic and its copy have different committed records"
MISPLACED = "a copy is not in the partition of its key"
PATIENT = 60.0
"""Seconds of delivery_timeout that are enough where one host's producers wait for each other."""
QUIET = 30.0
"""Seconds within which the proxy has to become idle."""


class _Behind:
    """The world with the network between proxy and cluster in place of the clients' network."""

    def __init__(self, world: "ProxiedTransfers") -> None:
        self._world, self.network, self.processes = world, world.back, {"proxy": world.proxy}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


class ProxiedTransfers(Transfers):
    """The world of one seed."""

    OWN = (*Transfers.OWN, "restart", "restart", "freeze the proxy", "behind", "behind")
    RELEASES = ("2.8", "3.9", "3.9", "4.3", "4.3", "4.3")
    back: Network
    proxy: ProxyProcess
    bugs: Bugs
    forgetful: bool
    """The proxy may lose its state of a producer."""
    rules_change: bool
    """The proxy changes its rule for topic ``b`` at each restart, and while it runs."""
    gentle: bool
    """The only faults are kills of the proxy, which keeps its state: no transaction may fail."""
    hasty: list[Hasty]

    def _drawn_topics(self) -> dict[str, int]:
        self.fans_out = Random(f"{self.seed} fan").random() < FANS_OUT
        own = Random(f"{self.seed} copies")
        self.copies = {"c": own.choice((1, 2, 4))} if own.random() < COPIES and not self.fans_out else {}
        """The topic that gets copies, and the number of its partitions."""
        self.shift = self.chance.randrange(MOST_SHIFTED)
        """Offset from the partition of a record's key to the partition where it is sent."""
        return {"a": self.chance.choice((2, 3, 6)), "b": 2}

    @property
    def all_topics(self) -> dict[str, int]:
        return self.topics | self.copies

    def record(self, place: Place, value: bytes) -> PendingRecord:
        topic, partition = place
        if topic != "a" and not self.rules_change:
            return super().record(place, value)
        count = self.topics[topic]
        sent = (partition + self.shift) % self.visible(topic)
        if topic != "a":
            self.ledger.moved[value] = place, (topic, sent)
        key = next(b"%d" % n for n in range(10_000) if murmur2_partition(b"%d" % n, count) == partition)
        return PendingRecord(topic, value, key, sent, (), 1000)

    def visible(self, topic: str) -> int:
        """How many partitions of a topic producers see."""
        return 1 if topic == "a" and self.fans_out else self.topics[topic]

    def network_of(self, process: str) -> Network:
        return self.back if process == "reader" and self.fans_out else self.network

    def _model(self) -> ModelBrokers:
        chance, front = self.chance, self.network
        self.back = self.network = Network(self.clock, Random(self.seed + 9), self.history)
        brokers = super()._model()
        self.network = front
        front.features = brokers.features
        config = ProxyConfig(
            upstream="n1:9092",
            listen="proxy:9092",
            topics=(
                parse_rule("a=fan-out" if self.fans_out else "a=copy:c" if self.copies else "a=rewrite"),
                *(parse_rule(f"{topic}=rewrite") for topic in self.copies),
            ),
            connect_timeout=chance.choice((1.0, 10.0)),
            request_timeout=chance.choice((2.0, 10.0)),
            delivery_timeout=chance.choice((1.0, 3.0)) if (gives_up := chance.random() < 0.2) else 10_000.0,
            max_batch=chance.choice((300, 2000, 2**19)),
        )
        self.proxy = ProxyProcess(self.clock, front, self.back, self.history, config, self.nodes, self.seed)
        if chance.random() < 0.8:
            self.proxy.stored = []
        self.forgetful = gives_up or self.proxy.stored is None
        self.rules_change = not self.forgetful and Random(f"{self.seed} rules").random() < 0.4
        self.lenient = self.forgetful
        self.upstream = Upstream(self.clock, brokers.cluster, lambda: self.proxy.restarts, ("a", *self.copies))
        own = Random(f"{self.seed} hasty")
        self.hasty, self.in_haste = [], own.random() < HASTY
        if self.in_haste:
            lag = own.choice((0.0, 0.05, 0.5, 3.0))
            self.back.lag = lambda: lag * own.random()
        self.back.sent, self.back.delivered = self._sent_upstream, self._delivered_upstream
        return brokers

    def _drawn(self) -> list[Fault]:
        faults, own = super()._drawn(), Random(f"{self.seed} refusals")
        self.gentle = Random(f"{self.seed} gentle").random() < 0.25
        if self.gentle:
            self.forgetful = self.lenient = self.rules_change = False
            self.proxy.stored = []
            self.proxy.config = replace(self.proxy.config, delivery_timeout=10_000.0)
            self.cluster.transactions.reluctance = 0.0
            return [replace(each, kind="restart", seconds=0.1) for each in faults]
        if faults and self.rules_change:
            at = Random(f"{self.seed} rules change").uniform
            faults += [Fault(at(0.0, self.seconds), "restart", 0.1) for _ in range(2)]
            faults += [Fault(at(0.0, self.seconds), "reload", 0.0) for _ in range(2)]
        if faults and self.in_haste:
            faults += [
                Fault(own.uniform(0.0, self.seconds), "refuse records", own.choice((0.1, 0.5, 2.0)))
                for _ in range(own.choice((0, 1, 3)))
            ]
        return faults

    @property
    def in_peace(self) -> bool:
        return self.gentle or super().in_peace

    def _people(self) -> None:
        super()._people()
        for index in range(self.in_haste and Random(f"{self.seed} hasty people").choice((1, 1, 2))):
            name, own = f"h{index}", Random(f"{self.seed} h{index}")
            hasty = Hasty(self, name, f"hasty-{index}", own.choice((5, 20, 40)), own)
            self.processes[name] = hasty
            self.hasty.append(hasty)
            self.introduce(hasty)

    def _strike(self, fault: Fault) -> None:
        proxy = self.proxy
        match fault.kind:
            case "restart":
                if proxy.alive and proxy.core is not None:
                    if self.rules_change:
                        self._change_rules()
                    proxy.dies_at = self.chance.choice((0, 0, 1, 2, 5, 20))
                    proxy.restart_after = fault.seconds / 4
                    if not proxy.dies_at:
                        proxy.kill()
            case "reload":
                self._reload()
            case "freeze the proxy":
                if proxy.alive:
                    proxy.freeze(fault.seconds / 2)
                    self.clock.at(proxy.thawed, proxy.thaw)
            case "refuse records":
                self._refuse(fault)
            case "behind":
                FAULTS[self.chance.choice(UPSTREAM)](_Behind(self), fault)  # type: ignore[arg-type] # it fits these
            case _:
                super()._strike(fault)
                return
        self.say("!", fault.kind, "")
        self.features[f"fault: {fault.kind}"] += 1

    def _reload(self) -> None:
        self._change_rules()
        self.proxy.reload(self.proxy.config.topics)

    def _change_rules(self) -> None:
        """From the next start or reload on, rewrite records of ``b``, or pass them on again."""
        rules = self.proxy.config.topics
        own = 1 + len(self.copies)
        rules = rules[:own] if len(rules) > own else (*rules, parse_rule("b=rewrite"))
        self.proxy.config = replace(self.proxy.config, topics=rules)
        self.lenient = True  # the next transaction of each producer may fail because of it, whenever it comes
        self.features["a rule changes"] += 1

    def _refuse(self, fault: Fault) -> None:
        """Refuse batches for their content, so that no retry helps; sometimes an earlier attempt stays unanswered."""
        own = Random(f"{self.seed} refuse records at {fault.at}")
        places = [place for place in self.cluster.leaders if place[0] in ("a", *self.copies)]
        for place in own.sample(places, own.randint(1, len(places))):
            code = own.choice((TopicAuthorizationFailed, InvalidRecord)).code
            self.cluster.data.refusals[place] = (code, False, self.clock.now + fault.seconds)
        if own.random() < 0.5:
            for link in list(self.back.links.values()):
                self.back.cut(link, "the wire broke")

    def _sent_upstream(self, link: Link, message: Any) -> None:
        self.upstream.sent(link, message)
        timeout, own = self.proxy.config.delivery_timeout, Random(f"{self.seed} strand upstream at {self.clock.now}")
        disturbed = isinstance(message, ProduceRequest) and self.clock.now < self.seconds and own.random() < 0.2
        if disturbed and self._refuse_repeats(message, timeout):
            self.clock.later(0.0, lambda: self.back.strand(link, "the wire broke, and what was sent waits"))
            self.clock.later(10.0, lambda: self.back.bring(link.client))

    def _delivered_upstream(self, link: Link, request: Any, answer: Any) -> None:
        self.upstream.delivered(link, request, answer)
        if isinstance(answer, AddPartitionsToTxnResponse):
            own = Random(f"{self.seed} bring at {self.clock.now}")
            self.clock.later(own.uniform(0.0, 0.02), lambda: self.back.bring(link.client))
            if self.rules_change and self.clock.now < self.seconds and own.random() < 0.1 and self.proxy.alive:
                self._reload()  # the records may go elsewhere now

    def _disturb_request(self, link: Link, message: Any, teller: Any) -> None:
        if teller.process is link.client:
            super()._disturb_request(link, message, teller)

    def _play(self) -> None:
        step = Random(f"{self.seed} step").choice(STEPS)
        # Only the proxy asks for the topic that gets copies. Kills may leave it no time for that within a short wait.
        wait = Random(f"{self.seed} wait").choice(WAITS[:1] if self.gentle and self.copies else WAITS)
        noted: Change = partial(_noted, features=self.features)
        changes = (
            (stream_sender, "LONG_REST", lambda _: REST),
            (delivery, "LIMIT_LASTS", lambda _: LIMIT_LASTS),
            (routed_topics, "METADATA_WAIT", lambda _: wait),
            (threads, "STEP", lambda _: step),
            (threads, "PLAIN", lambda _: 1),
            (ClientTransactions, "end", noted),
            *counted(self.features),
            *named(self.seed, self.cluster),
            *(few := few_producers(self.seed)),
        )
        self.proxy.on_one_host = bool(few)
        if few:
            self.enough = PATIENT
        self.bugs = Bugs()
        self.features["clients see one partition of a topic"] += self.fans_out
        self.features["a topic gets copies"] += bool(self.copies)
        with logged_to(self.bugs), changed(*changes):
            self.proxy.start()
            super()._play()

    def _check(self) -> None:
        for hasty in self.hasty:
            hasty.account()
        super()._check()
        for hasty in self.hasty:
            hasty.check(self.ledger.seen(), forgetful=self.forgetful)
        self._check_copies()
        until = self.clock.now + QUIET
        while self.clock.now < until and self.clock.step():
            pass
        core = self.proxy.core
        if core is None or not core.idle or core.buffered.total or core.buffered.of:
            raise Violation(LEFT, f"{core and core.buffered.total} bytes")
        if core.rewriter.unsettled or core.rewriter.unsettled_records:
            raise Violation(LEFT, f"{core.rewriter.unsettled} batches, {core.rewriter.unsettled_records} records")
        self.proxy.check_rest()
        self.bugs.check()

    def _check_copies(self) -> None:
        if not self.copies:
            return
        found: dict[str, Counter[bytes]] = {"a": Counter(), "c": Counter()}
        for (topic, _), values in self.ledger.seen().items():
            if topic in found:
                found[topic].update(value for value in values if value not in self.ledger.astray)
        if found["a"] != found["c"]:
            first = next(iter((found["a"] - found["c"]) + (found["c"] - found["a"])))
            raise Violation(UNCOPIED, f"{first[:40]!r}: {found['a'][first]} and {found['c'][first]}")
        for (topic, partition), log in self.cluster.logs.items():
            for stored in log.batches if topic == "c" else ():
                for record in stored.read() if stored.commits is None else ():
                    if record.key is not None and murmur2_partition(record.key, self.copies["c"]) != partition:
                        raise Violation(MISPLACED, f"{bytes(record.value or b'')[:40]!r} in {topic}-{partition}")


def _noted(end: Any, *, features: Counter[str]) -> Any:
    """Count how often EndTxn waits, and for what."""

    def noted(self: ClientTransactions, request: EndTxnRequest, host: str, now: float) -> Steps[tuple[int, float]]:
        steps = end(self, request, host, now)
        result: tuple[int, float]
        try:
            wait = next(steps)
        except StopIteration as answered:
            result = answered.value
            return result
        found = self._admission.producers.in_transaction(request.producer_id, request.producer_epoch)
        features["an EndTxn waits for records"] += 1
        features["an EndTxn waits for records whose topic is not described"] += bool(found and found[1].parked)
        yield wait
        result = yield from steps
        return result

    return noted


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`, with the mutations of `tests.sim.proxy.transfer_mutations`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return ProxiedTransfers(seed, told=told).run()
