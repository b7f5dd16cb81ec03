"""Transactional producers against brokers that fail in all ways that Kafka allows: each transaction is whole or absent.

A teller is a user who transfers money: each of its transactions writes one record to every account concerned. Tellers
sometimes abort, are cancelled, are killed and started again with the same transactional id, or meet a second producer
with that id. In the end a read_committed consumer must have got either all records of a transaction, each once, or
none: all if the teller saw the transaction committed, none if it saw it aborted.

Rules:
- The brokers are the model cluster, in one of several releases, or brokerlite (`tests.sim.brokers`).
- A transaction is ended once each of its records is answered or its connection has ended; an abort waits for that for
  a few seconds at most.
- No transaction stays open for longer than its timeout and the broker's scan.
- A fenced producer sends nothing any more. It was fenced by another producer with its transactional id, or because its
  transaction exceeded its timeout.
- Once the faults are over, transactions are committed.
- Up to Kafka 3.5 the protocol itself has a gap: the broker appends records of an aborted transaction that arrive late
  from a broken connection, and the next transaction of the producer commits or aborts them. The checks ignore such
  records (`ModelBrokers.astray`).
"""

import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.errors import (
    BufferFull,
    ConcurrentTransactions,
    DeliveryTimeout,
    LocalProtocolError,
    NotCoordinator,
    NotEnoughReplicas,
    OttlaError,
    TimeoutExpired,
    TransactionOutcomeUnknown,
)
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord, Receipt
from ottla.sdk.transaction.core import DRAIN_TIMEOUT, TransactionCore
from tests.sim.broker.hosted import Hosted, settings
from tests.sim.broker.readers import Seen, by_client
from tests.sim.broker.server import Manner
from tests.sim.brokers import Brokers, ModelBrokers
from tests.sim.clock import Clock
from tests.sim.cluster import Node
from tests.sim.data import Place
from tests.sim.faults import FAULTS, Fault
from tests.sim.history import History
from tests.sim.network import Link, Network
from tests.sim.process import SimulatedProcess
from tests.sim.run import LONGEST, Result, logged_to
from tests.sim.transaction_ledger import ABORTED, COMMITTED, ENDING, UNCERTAIN, TransactionLedger, Written
from tests.sim.transaction_mutations import MUTATIONS
from tests.sim.users import Cancelled, Process, Script, Violation, Wait

BROKERLITE = "brokerlite"
PATIENCE = 120.0
"""Seconds after the last fault within which everything has to be done."""
SHORT = 5.0
"""A shorter delivery_timeout may be too short even without faults."""
SLACK = 3.0
"""Seconds that brokers may take in addition to a transaction's timeout and the interval of their scan."""
LOOK = 0.25
"""Seconds between two checks whether everything is done."""
BY_NOBODY = "a producer is fenced, and no other producer fenced it"
FAILS = "a transaction fails, and there was no fault"
REFUSED = "a correct program is refused"
UNDER_WAY = "a transaction is ended while its records are in flight"
WRITES = "a fenced producer sends a request"
FAILED = "a record has failed, and its transaction is committed"
UNTOLD = "a transaction ends without an error, and it is not committed"
_DISTURBED = (EndTxnRequest, InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest)
_OF_TRANSACTIONS = (EndTxnRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest)


class Regret(Exception):
    """The teller aborts its transaction."""


class Transacting(Protocol):
    """A user with a transactional id, as the world sees it."""

    transactional_id: str
    count: int
    timeout: float
    done: bool
    fenced: bool
    initialized: bool
    since: int
    renewed: Counter[int]

    @property
    def process(self) -> SimulatedProcess: ...

    def startle(self) -> None: ...


@dataclass(slots=True, eq=False)
class Teller:
    """A user who makes ``count`` transactions with a transactional id, and one more once the faults are over."""

    world: "Transfers"
    process: Process
    transactional_id: str
    count: int
    chance: Random
    done: bool = False
    fenced: bool = False
    initialized: bool = False
    """Its producer has had an epoch."""
    timeout: float = field(init=False)
    """Timeout of its transactions."""
    machine: ProducerCore | None = None
    since: int = -1
    """Index of its last InitProducerId in the list of its transactional id."""
    begun: float = 0.0
    """When its transaction began, or may have begun."""
    failures: list[OttlaError] = field(default_factory=list)
    """The errors that it got for records of the current transaction."""
    settled: bool = False
    """It has committed a transaction since the faults are over."""
    renewed: Counter[int] = field(default_factory=Counter)
    """Per epoch, -1 at first, how often it asked for the next one."""
    startled: Outcome[None] = field(default_factory=Outcome)
    """Settled when one of its connections breaks; that cancels waiting calls."""

    def __post_init__(self) -> None:
        self.timeout = self.chance.choice((3.0, 10.0, 60.0))

    def script(self) -> Script:
        process, world, chance = self.process, self.world, self.chance
        yield from process.connect()
        options = ProducerOptions(
            transactional_id=self.transactional_id,
            transaction_timeout=self.timeout,
            linger=chance.choice((0.0, 0.005, 0.3)),
            batch_size=chance.choice((200, 2000)),
            buffer_memory=chance.choice((5000, 2**20)),
        )
        machine = self.machine = process.do(lambda: ProducerCore(process.core, options, chance))
        made = 0
        while not self.fenced and (made < self.count or not (self.settled or not world.SETTLES)):
            core = TransactionCore(process.core, machine)
            try:
                yield from process.perform(core.begin(), "begin", within=process.core.options.api_timeout)
            except TimeoutExpired as error:
                world.say("·", process.name, f"cannot begin: {error}")
                continue
            except LocalProtocolError as error:
                raise Violation(REFUSED, f"{process.name}: {error}") from error
            except OttlaError as error:
                self._failed(error)
                continue
            made += 1
            self.initialized = True
            yield from self._transfer(core, machine)
            yield chance.choice((0.0, 0.0, 0.05, 0.5)) if made < self.count else 2.0
        self.done = True

    def _transfer(self, core: TransactionCore, machine: ProducerCore) -> Script:
        process, chance, world = self.process, self.chance, self.world
        written = world.ledger.begin(f"{process.name}.{len(world.ledger.transactions)}")
        self.begun, self.failures = process.clock.now, []
        in_peace = world.in_peace
        error: BaseException | None = None
        helping: list[Outcome[None]] = []
        try:
            for leg in range(chance.choice((0, 1, 2, 2, 3, 8))):
                if chance.random() < 0.05:
                    helping.append(self._have_help(core, machine, written))
                yield from self._send(core, machine, written, f"{leg}")
                if chance.random() < 0.05:
                    yield chance.choice((0.05, 0.5, 4.0))
            if chance.random() < 0.05:
                yield from process.perform(machine.flush(), "flush", cancel=self._impatience())
            if helping and chance.random() < 0.7:
                yield Wait(all_of(helping), "those who help")
            if chance.random() < 0.1:
                raise Regret
        except LocalProtocolError as raised:
            raise Violation(REFUSED, f"{process.name}: {raised}") from raised
        except (Regret, Cancelled, OttlaError) as raised:
            error = raised
        world.features["a teller changes its mind"] += error is not None
        written.outcome = ENDING if error is None else ABORTED
        told: BaseException | None = None
        try:
            yield from process.perform(core.leave(error), "the end of a transaction", cancel=self._impatience())
        except (OttlaError, Cancelled) as raised:
            told = raised
        self._ended(core, written, error, told, in_peace)

    def _ended(
        self,
        core: TransactionCore,
        written: Written,
        error: BaseException | None,
        told: BaseException | None,
        in_peace: bool,
    ) -> None:
        """A transaction was left with ``error``, and its teller got ``told`` from that call."""
        features = self.world.features
        features["an outcome is unknown"] += isinstance(told, TransactionOutcomeUnknown)
        features["an end is cancelled"] += isinstance(told, Cancelled)
        written.outcome = {True: COMMITTED, False: ABORTED, None: UNCERTAIN}[core.committed]
        self.world.say("·", self.process.name, f"{written.name} is {written.outcome}; its end raised {told!r}")
        if error is None and told is None and not core.committed:
            raise Violation(UNTOLD, f"{written.name} is {written.outcome}")
        if core.committed and self.failures:
            raise Violation(FAILED, f"{written.name}: {self.failures[0]!r}")
        if isinstance(told, OttlaError) and not isinstance(told, TransactionOutcomeUnknown):
            self._failed(told)
            calm = self.world.options.delivery_timeout >= self.world.enough and self.timeout > 10 and not self.fenced
            calm = calm and all(each.kind != "swallow" for each in self.world.faults)  # clients notice it late
            if in_peace and calm and error is None and not self.world.lenient:
                raise Violation(FAILS, f"{written.name}: {told}") from told
        features[f"a transaction is {written.outcome}"] += 1
        self.settled |= in_peace and bool(core.committed) and bool(written.values)
        self.settled |= in_peace and self.world.options.delivery_timeout < self.world.enough

    # -- records -----------------------------------------------------------------------------------------------------

    def _send(self, core: TransactionCore, machine: ProducerCore, written: Written, leg: str) -> Script:
        """Send a record by one of several calls."""
        process, chance, world = self.process, self.chance, self.world
        core.check()
        topic = chance.choice(list(world.topics))
        place: Place = (topic, chance.randrange(world.topics[topic]))
        value = f"{written.name}.{leg}".encode() + b"." * chance.choice((0, 0, 100, 900))
        record = world.record(place, value)
        cancel = self._impatience()
        way = chance.choice(("send_soon", "send_soon", "send_soon", "send", "send_nowait", "called back"))
        written.perhaps.append((place, value))
        if way == "send_nowait":
            try:
                process.do(partial(machine.send_nowait, record))
            except BufferFull:
                world.features["there is no room for a record"] += 1
                written.perhaps.pop()
                return
        elif way == "called back":
            record.callback = self._called_back
            yield from process.perform(machine.send_soon(record), "send")
        else:
            call = machine.send(record) if way == "send" else machine.send_soon(record)
            try:
                yield from process.perform(call, "send", cancel=cancel)
            except Cancelled:
                if chance.random() < 0.5:
                    raise
                world.features["a send is cancelled, and its transaction goes on"] += 1
                return
            except OttlaError as error:
                refused = isinstance(error, DeliveryTimeout) and "was not accepted" in str(error)
                if not (refused or isinstance(error, LocalProtocolError)):
                    self.failures.append(error)
                if way == "send_soon" or chance.random() < 0.5:
                    raise
                world.features["a failure is ignored"] += 1
                return
        written.perhaps.remove((place, value))
        written.values.append((place, value))

    def _called_back(self, result: Receipt | OttlaError) -> None:
        if isinstance(result, OttlaError):
            self.failures.append(result)

    def _have_help(self, core: TransactionCore, machine: ProducerCore, written: Written) -> Outcome[None]:
        """Start a second task that sends records of the transaction."""
        self.world.features["a transaction has two tasks"] += 1
        done: Outcome[None] = Outcome()
        number, written.ordered = self.chance.randrange(10**6), False

        def help() -> Script:
            try:
                for leg in range(3):
                    yield from self._send(core, machine, written, f"{number}.{leg}")
            except (Cancelled, OttlaError) as error:
                self.world.say("·", self.process.name, f"the second task ends: {error!r}")
            done.succeed(None)

        self.process.run(help())
        return done

    def _impatience(self) -> Outcome[None] | None:
        """Sometimes, the outcome that will cancel a call."""
        if self.chance.random() < 0.3:
            return self.startled
        if self.chance.random() > 0.1:
            return None
        cancelled: Outcome[None] = Outcome()
        self.process.clock.later(self.chance.choice((0.0, 0.003, 0.02, 0.3)), lambda: cancelled.succeed(None))
        return cancelled

    def startle(self) -> None:
        self.world.features["a teller is startled"] += 1
        startled, self.startled = self.startled, Outcome()
        startled.succeed(None)

    def _failed(self, error: OttlaError) -> None:
        self.world.say("·", self.process.name, f"{type(error).__name__}: {error}")
        if self.machine is None or self.machine.fatal is None:
            return
        self.fenced = True
        self.world.features["a producer is fenced"] += 1
        took = self.process.clock.now - self.begun
        if self.initialized and took < self.timeout and not self.world.fences(self):
            raise Violation(BY_NOBODY, f"{self.process.name}, {took:.3f} s after it began: {self.machine.fatal!r}")


class Transfers:
    """The world of one seed; it has the attributes that `FAULTS` use."""

    OWN: tuple[str, ...] = ("move coordinators", "kill a teller", "a rival comes", "disturb", "disturb", "upgrade")
    """Faults of this world alone, each twice as likely as the others."""
    RELEASES: tuple[str, ...] = ("2.8", "3.9", "3.9", "4.3", "4.3", "4.3", BROKERLITE, BROKERLITE)
    """Releases of Kafka that the model cluster may be, and brokerlite."""
    lenient = False
    """A transaction may fail even after the faults are over."""
    enough = SHORT
    """Seconds of delivery_timeout within which a transaction may not fail without faults."""
    SETTLES = True
    """Tellers continue until they have committed a transaction after the last fault."""

    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.seed, self.chance, self.clock = seed, Random(seed), Clock()
        chance = self.chance
        self.history = History(self.clock, told)
        self.topics = self._drawn_topics()
        self.network = Network(self.clock, Random(seed + 1), self.history)
        self.nodes = chance.choice((1, 2, 3, 3))
        self.release = chance.choice(self.RELEASES)
        self.version = 2 if self.release >= "4" and chance.random() < 0.6 else 0
        self.options = Options(
            connect_timeout=10.0,
            request_timeout=chance.choice((1.0, 5.0, 30.0)),
            api_timeout=chance.choice((3.0, 10.0, 60.0)),
            delivery_timeout=chance.choice((1.5, 5.0, 120.0, 120.0)),
        )
        self.seconds = chance.choice((2.0, 5.0, 10.0))
        self.processes: dict[str, SimulatedProcess] = {}
        self.members: dict[str, Any] = {}
        self.cluster: Any
        self.brokers: Brokers = self._model() if self.release != BROKERLITE else self._brokerlite()
        self.features = self.brokers.features
        self.faults = self._drawn()
        lag = chance.choice((0.0, 0.05, 0.5, 3.0))
        self.network.lag = lambda: lag * chance.random() if chance.random() < 0.5 else 0.0
        self.quiet = max((each.at + each.seconds + LONGEST for each in self.faults), default=-1.0)
        """When the faults are over."""
        self.disturbed_until = 0.0
        self.upgrades = False
        """The cluster is upgraded at the end of the next transaction."""
        self.network.sent, self.network.delivered = self._sent, self._delivered
        self.ledger = TransactionLedger(self.brokers, self.brokers.scan + SLACK)
        if isinstance(self.brokers, ModelBrokers):
            self.ledger.astray = self.brokers.astray
        self.brokers.appended, self.brokers.answered = self.ledger.appended, self._answered
        self.tellers: list[Transacting] = []
        self._asked: defaultdict[str, list[str]] = defaultdict(list)
        """The clients that asked for a transactional id's epoch, in order."""
        self._initialized: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """Per transactional id, the producer id and epoch of each InitProducerId that succeeded or may yet succeed."""
        self._produces: defaultdict[Link, deque[float]] = defaultdict(deque)
        """Per connection of the shipped client, when the unanswered Produce requests were sent."""
        self.seen: Seen | None = None
        said = f"{self.nodes} nodes of {self.release}, version {self.version}, {self.topics}, {self.options}"
        self.say("#", f"seed {seed}", said)

    def _drawn_topics(self) -> dict[str, int]:
        return {"a": self.chance.randint(1, 3), "b": self.chance.randint(1, 2)}

    def record(self, place: Place, value: bytes) -> PendingRecord:
        """A record for a partition."""
        return PendingRecord(place[0], value, None, place[1], (), 1000)

    def _model(self) -> ModelBrokers:
        brokers = ModelBrokers(
            self.seed,
            self.clock,
            self.network,
            self.history,
            self.all_topics,
            self.nodes,
            self.release,
            self.version,
        )
        self.cluster = brokers.cluster
        brokers.cluster.transactions.reluctance = self.chance.choice((0.0, 0.0, 0.05))
        brokers.cluster.transactions.lateness = self.chance.choice((0.05, 0.05, 0.4))
        return brokers

    def _brokerlite(self) -> Hosted:
        """brokerlite, which knows version 2 of transactions; some worlds hide that from the clients."""
        chance, self.nodes = self.chance, 1
        sync = chance.random() < 0.5
        manner = Manner(
            sync=sync,
            topics=self.all_topics,
            configs={},
            defaults={"retention.ms": "-1", "segment.bytes": str(chance.choice((2000, 2**30)))},
            settings=settings(sync=sync, work_at_once=chance.choice((0, 1000, 2**20))),
        )
        ordered = chance.random() < 0.5
        hosted = Hosted(self.seed, chance, self.clock, self.network, self.history, manner, ordered=ordered)
        hosted.hides, hosted.processes, self.cluster = self.version < 2, self.processes, hosted.cluster
        return hosted

    def _drawn(self) -> list[Fault]:
        chance = self.chance
        kinds = (*self.brokers.kinds, *self.OWN, *self.OWN)
        faults = [
            Fault(chance.uniform(0.0, self.seconds), chance.choice(kinds), chance.choice((0.1, 0.5, 2.0, 6.0)))
            for _ in range(chance.randint(0, 8))
        ]
        if self.release >= "4" and self.version < 2 and chance.random() < 0.5:
            faults.append(Fault(chance.uniform(0.0, self.seconds), "upgrade", 0.0))
        if chance.random() < 0.3:
            faults.append(Fault(0.0, "disturb", self.seconds))
        if chance.random() < 0.3:  # connections break all the time, and their requests may arrive later
            faults += [Fault(chance.uniform(0.0, self.seconds), "cut", 0.0) for _ in range(40)]
        if chance.random() < 0.1:
            faults.clear()
        return faults

    @property
    def all_topics(self) -> dict[str, int]:
        """The topics of the tellers, and further ones of subclasses."""
        return self.topics

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    def spare(self, fit: Callable[[Node], bool]) -> int | None:
        """A node that may fail."""
        healthy = [each.number for each in self.cluster.nodes.values() if each.healthy and fit(each)]
        return self.chance.choice(healthy) if healthy else None

    @property
    def calm(self) -> bool:
        return not self.faults

    @property
    def in_peace(self) -> bool:
        """The faults are over."""
        return self.clock.now > self.quiet

    # -- users -------------------------------------------------------------------------------------------------------

    def network_of(self, process: str) -> Network:
        """The network of a process of this name."""
        return self.network

    def process(self, name: str, options: Options | None = None) -> Process:
        process = self.processes[name] = Process(
            name,
            self.clock,
            self.network_of(name),
            self.history,
            options or self.options,
            self.nodes,
            Random(f"{self.seed} {name} client"),
        )
        return process

    def teller(self, transactional_id: str, count: int) -> None:
        name = f"t{len(self.tellers)}"
        teller = Teller(self, self.process(name), transactional_id, count, Random(f"{self.seed} {name}"))
        self.introduce(teller)
        teller.process.run(teller.script())

    def introduce(self, teller: Transacting) -> None:
        self.tellers.append(teller)
        known = self.ledger.timeouts.get(teller.transactional_id, 0.0)
        self.ledger.timeouts[teller.transactional_id] = max(known, teller.timeout)
        self.say("·", teller.process.name, f"has transactional id {teller.transactional_id}")

    # -- observation -------------------------------------------------------------------------------------------------

    def _sent(self, link: Link, message: Any) -> None:
        teller = next((each for each in self.tellers if each.process is link.client), None)
        if teller is None:
            return
        again = isinstance(message, InitProducerIdRequest) and message.producer_id < 0
        if again and teller.initialized:
            raise Violation("a producer begins again", f"{link.client.name} may have been fenced")
        if isinstance(message, InitProducerIdRequest):
            self._asked[teller.transactional_id].append(link.client.name)
            teller.renewed[message.producer_epoch] += 1
        if teller.fenced and isinstance(message, (ProduceRequest, *_OF_TRANSACTIONS)) and not link.writing:
            raise Violation(WRITES, f"{link.client.name}: {type(message).__name__}")
        if isinstance(link.client, Process):
            self._check_order(link, message)
        if self.clock.now < self.disturbed_until:
            self._disturb_request(link, message, teller)

    def _check_order(self, link: Link, message: Any) -> None:
        """Check that the shipped client ends a transaction once its records are answered, or after `DRAIN_TIMEOUT`."""
        if isinstance(message, ProduceRequest):
            self._produces[link].append(self.clock.now)
        elif isinstance(message, EndTxnRequest):
            mine = [(each, at) for each, at in self._produces.items() if each.client is link.client and each.open]
            left = [each.label for each, at in mine if at and self.clock.now < at[-1] + DRAIN_TIMEOUT]
            if left:
                raise Violation(UNDER_WAY, f"{link.label}: EndTxn, and Produce at {left}")

    def _disturb_request(self, link: Link, message: Any, teller: Transacting) -> None:
        """Maybe strike while a request of a transaction is in flight."""
        chance = self.chance
        asked = isinstance(message, _DISTURBED)
        if chance.random() > (0.5 if asked else 0.2 if isinstance(message, ProduceRequest) else 0.0):
            return
        self.features["a request of a transaction is disturbed"] += 1
        way = chance.choice(("cut", "strand", "move", "silence") if asked else ("cut", "strand", "hold"))
        soon = chance.uniform(0.0, 0.008)
        if way == "strand":
            self.clock.later(0.0, lambda: self.network.strand(link, "the wire broke, and what was sent waits"))
            lost = isinstance(message, ProduceRequest) and self._refuse_repeats(message, self.options.delivery_timeout)
            self.clock.later(chance.uniform(0.1, 3.0) + 10 * lost, lambda: self.network.bring(link.client))
            if chance.random() < 0.5:
                self.clock.later(0.0, teller.startle)
        elif way == "hold":  # the request takes long, and its teller does not wait for the answer
            self.network.silence(link.client.name, link.node, chance.choice((0.05, 0.2, 0.5)))
            self.clock.later(0.001, teller.startle)
        elif way == "cut":
            self.clock.later(soon, lambda: self.network.cut(link, "the wire broke just now"))
            if chance.random() < 0.3:
                self.clock.later(soon, teller.startle)
        elif way == "move":
            self.clock.later(soon, lambda: self.brokers.move_coordinators(teller.transactional_id))
        else:
            seconds = chance.choice((0.05, 1.5, 4.0))
            self.clock.later(soon, lambda: self.network.silence(link.client.name, link.node, seconds))

    def _refuse_repeats(self, message: ProduceRequest, timeout: float) -> bool:
        """Sometimes the leaders refuse all repeats of a request until the client gives its batches up.

        Then their outcome is unknown, and what was stranded of them may arrive within the next transaction.
        """
        own = Random(f"{self.seed} refuse repeats at {self.clock.now}")
        if self.release == BROKERLITE or timeout >= SHORT or own.random() < 0.5:
            return False
        self.features["the outcome of a batch stays unknown"] += 1
        until = self.clock.now + timeout + 0.2
        for topic in message.topic_data:
            for each in topic.partition_data:
                place = self.cluster.ever_named(topic), each.index
                self.cluster.data.refusals[place] = NotEnoughReplicas.code, False, until
                self.cluster.data.stubborn[place] = until
        return True

    def _answered(self, client: str, request: Any, answer: Any) -> None:
        if isinstance(request, InitProducerIdRequest) and isinstance(answer, InitProducerIdResponse):
            self.ledger.initialized(request, answer)
            if answer.error_code in (0, ConcurrentTransactions.code, NotCoordinator.code):  # the epoch may be stored
                given = answer.producer_id, answer.producer_epoch
                self._initialized[request.transactional_id or ""].append(given)

    def _delivered(self, link: Link, request: Any, answer: Any) -> None:
        if isinstance(request, ProduceRequest) and link in self._produces:
            self._produces[link].popleft()
        if isinstance(answer, AddPartitionsToTxnResponse) and self.chance.random() < 0.5:  # the worst time for it
            self.clock.later(self.chance.uniform(0.0, 0.02), lambda: self.network.bring(link.client))
        if self.upgrades and isinstance(answer, EndTxnResponse) and not answer.error_code:
            self._upgrade()
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            given = answer.producer_id, answer.producer_epoch
            for teller in [each for each in self.tellers if each.process is link.client]:
                teller.since = self._initialized[teller.transactional_id].index(given)

    def fences(self, teller: Transacting) -> bool:
        """Whether a later InitProducerId of its transactional id fenced it, maybe a retry of its own.

        Kafka accepts one even from a fenced producer that asks for another epoch, and ends the open transaction. A
        broker that is killed before it answers forgets the earlier epoch, and this world does not see that answer.
        """
        if len(self._initialized[teller.transactional_id]) > teller.since + 1:
            return True
        asked, name = self._asked[teller.transactional_id], teller.process.name
        twice = max(teller.renewed.values(), default=0) > 1
        rival = name in asked and any(each != name for each in asked[asked.index(name) :])
        return self.release == BROKERLITE and (twice or rival)

    # -- faults ------------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        self.say("!", fault.kind, "")
        self.features[f"fault: {fault.kind}"] += 1
        busy = [each for each in self.tellers if each.process.alive and not each.done]
        match fault.kind:
            case "kill a teller":
                if busy:
                    gone = self.chance.choice(busy)
                    gone.process.kill()
                    gone.done = True
                    self.clock.later(fault.seconds / 4, lambda: self.teller(gone.transactional_id, gone.count // 2 + 1))
            case "a rival comes":
                if busy:
                    self.teller(self.chance.choice(busy).transactional_id, 5)
            case "disturb":
                self.disturbed_until = self.clock.now + fault.seconds
            case "move coordinators":
                self.brokers.move_coordinators()
            case "upgrade":
                self.upgrades = True
                if self.chance.random() < 0.5:
                    self._upgrade()
            case kind if kind in self.brokers.kinds:
                self.brokers.strike(self, fault)
            case kind:
                FAULTS[kind](self, fault)  # type: ignore[arg-type] # it has what these faults use

    def _upgrade(self) -> None:
        """Upgrade the cluster and break the connections one by one: clients learn versions when they connect."""
        self.upgrades = False
        if not self.brokers.upgrade():
            return
        self.features["the cluster is upgraded"] += 1
        for link in list(self.network.links.values()):
            self.clock.later(
                self.chance.uniform(0.0, 0.1), partial(self.network.cut, link, "the node rolls its listeners")
            )

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        violation: Violation | None = None
        try:
            with logged_to(None):
                self._play()
        except Violation as broken:
            violation = broken
        except Exception as error:  # any exception of a machine is a finding, and must not end the run of other seeds
            violation = Violation("a machine raises", "".join(traceback.format_exception(error)))
        records = sum(len(each.values) for each in self.ledger.transactions)
        return Result(
            self.seed, violation, self.history.lines, self.clock.now, records, self.network.requests, self.features
        )

    def _play(self) -> None:
        self.brokers.begin()
        for fault in self.faults:
            self.clock.at(fault.at, partial(self._strike, fault))
        self.clock.at(self.quiet, self.brokers.calm_down)
        self._people()
        self._until_quiet()
        self.brokers.end()
        self._check()

    def _people(self) -> None:
        for index in range(self.chance.choice((1, 2, 3))):
            self.teller(f"id-{index}", self.chance.choice((3, 10, 30)))
        places = [(topic, index) for topic, count in self.topics.items() for index in range(count)]
        patient = replace(self.options, api_timeout=60.0)  # a broker that has just started may not know the topics yet
        reader, self.seen = self.process("reader", patient), Seen("reader", self.brokers, places)
        reader.run(by_client(reader, self.seen))

    def _until_quiet(self) -> None:
        """Run until all tellers are done and no transaction is open."""
        due = 0.0
        while True:
            if self.clock.now >= due:
                due = self.clock.now + LOOK
                self.ledger.look(self.clock.now, self.brokers.well_since)
                busy = [each.process.name for each in self.tellers if each.process.alive and not each.done]
                self.brokers.over = not busy and self.clock.now > self.quiet
                open_ = [f"{place[0]}-{place[1]}" for place, log in self.brokers.views.items() if log.stable < log.end]
                bounds = 2 * self.options.api_timeout + 2 * self.options.request_timeout
                late = self.clock.now > self.quiet + PATIENCE + bounds
                look = self.seen is not None and (late or (self.brokers.over and not open_))
                behind = self.seen.behind() if self.seen is not None and look else ""
                if self.brokers.over and not (open_ or behind):
                    return
                if late:
                    left = f"{busy} are not done, {open_} have open transactions; {behind}"
                    raise Violation("everything has to be done by now", left)
            if not self.clock.step():
                raise Violation("no event is left, and not everything is done", f"{busy}, {open_}")

    def _check(self) -> None:
        self.ledger.check()
        if self.seen is not None:
            self.seen.check()


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`, with the mutations of `tests.sim.transaction_mutations`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return Transfers(seed, told=told).run()
