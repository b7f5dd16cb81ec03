"""Transactional producers against brokers that are as unkind as Kafka allows: each transaction is whole or absent.

A teller moves money: each of its transactions writes a record to every account that is concerned. It changes its mind
now and then, is cancelled, is killed and started again with the same transactional id, or meets a second one with it.
When all is done and quiet, what a read_committed consumer has got of each transaction is all of its records, each once,
or none: all if the teller was told that it is committed, none if that it is aborted.

Rules:
- Who answers is the model cluster, in one of several releases, or brokerlite (`tests.sim.brokers`).
- A transaction is ended once each of its records has an answer, or its connection has ended; an abort waits for that
  for a few seconds at most.
- Nothing stays open for longer than its timeout and the broker's scan.
- A producer that is fenced sends nothing any more, and it was fenced by somebody: by another one with its transactional
  id, or because its transaction took too long.
- Once nothing goes wrong any more, transactions are committed.
- Up to Kafka 3.5 the protocol itself has a gap: what a broken connection still delivers of an aborted transaction is
  appended, and the next transaction of the producer decides about it. Nothing is asked of such records
  (`ModelBrokers.astray`).
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
"""Seconds after the last fault in which everything has to be done."""
SHORT = 5.0
"""A shorter delivery_timeout may be too short in any weather."""
SLACK = 3.0
"""Seconds that brokers may take beside a transaction's timeout and their scan for those that take too long."""
LOOK = 0.25
"""Seconds between two looks at whether everything is done."""
BY_NOBODY = "a producer is fenced by nobody"
FAILS = "a transaction fails, and nothing has gone wrong"
REFUSED = "a program that does everything right is refused"
UNDER_WAY = "a transaction is ended while its records are under way"
WRITES = "a producer that is fenced goes on"
FAILED = "a record has failed, and its transaction is committed"
UNTOLD = "the end of a transaction is in order, and it is not committed"
_DISTURBED = (EndTxnRequest, InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest)
_OF_TRANSACTIONS = (EndTxnRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest)


class Regret(Exception):
    """The teller has changed its mind."""


class Transacting(Protocol):
    """Somebody with a transactional id, as the world sees them."""

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
    """Somebody with a transactional id, who makes ``count`` transactions, and one more when nothing goes wrong."""

    world: "Transfers"
    process: Process
    transactional_id: str
    count: int
    chance: Random
    done: bool = False
    fenced: bool = False
    initialized: bool = False
    """Its producer had an epoch."""
    timeout: float = field(init=False)
    """Of its transactions."""
    machine: ProducerCore | None = None
    since: int = -1
    """Which of the producers that were initialized with its transactional id it was last."""
    begun: float = 0.0
    """When its transaction was, or may have been, begun."""
    failures: list[OttlaError] = field(default_factory=list)
    """Of records of its transaction, as it was told."""
    settled: bool = False
    """It has committed a transaction since nothing goes wrong any more."""
    renewed: Counter[int] = field(default_factory=Counter)
    """How often it has asked for the epoch after each."""
    startled: Outcome[None] = field(default_factory=Outcome)
    """Settled when one of its connections breaks, which cancels calls that wait."""

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
        """The end of a transaction that was left with an ``error``, and what its teller was ``told``."""
        features = self.world.features
        features["an outcome is unknown"] += isinstance(told, TransactionOutcomeUnknown)
        features["an end is cancelled"] += isinstance(told, Cancelled)
        written.outcome = {True: COMMITTED, False: ABORTED, None: UNCERTAIN}[core.committed]
        self.world.say("·", self.process.name, f"{written.name} is {written.outcome}; told {told!r}")
        if error is None and told is None and not core.committed:
            raise Violation(UNTOLD, f"{written.name} is {written.outcome}")
        if core.committed and self.failures:
            raise Violation(FAILED, f"{written.name}: {self.failures[0]!r}")
        if isinstance(told, OttlaError) and not isinstance(told, TransactionOutcomeUnknown):
            self._failed(told)
            calm = self.world.options.delivery_timeout >= SHORT and self.timeout > 10 and not self.fenced
            calm = calm and all(each.kind != "swallow" for each in self.world.faults)  # which is noticed late
            if in_peace and calm and error is None and not self.world.lenient:
                raise Violation(FAILS, f"{written.name}: {told}") from told
        features[f"a transaction is {written.outcome}"] += 1
        self.settled |= in_peace and bool(core.committed) and bool(written.values)
        self.settled |= in_peace and self.world.options.delivery_timeout < SHORT

    # -- records -----------------------------------------------------------------------------------------------------

    def _send(self, core: TransactionCore, machine: ProducerCore, written: Written, leg: str) -> Script:
        """Send a record, in one of several ways."""
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
        """Another task sends some of the transaction's records."""
        self.world.features["a transaction has two tasks"] += 1
        done: Outcome[None] = Outcome()
        number, written.ordered = self.chance.randrange(10**6), False

        def help() -> Script:
            try:
                for leg in range(3):
                    yield from self._send(core, machine, written, f"{number}.{leg}")
            except (Cancelled, OttlaError) as error:
                self.world.say("·", self.process.name, f"help ends: {error!r}")
            done.succeed(None)

        self.process.run(help())
        return done

    def _impatience(self) -> Outcome[None] | None:
        """A cancellation that is to come, sometimes."""
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
    """The world of one seed; what `FAULTS` ask of a world is here."""

    OWN: tuple[str, ...] = ("move coordinators", "kill a teller", "a rival comes", "disturb", "disturb", "upgrade")
    """Faults that are this world's, and come twice as often as others."""
    RELEASES: tuple[str, ...] = ("2.8", "3.9", "3.9", "4.3", "4.3", "4.3", BROKERLITE, BROKERLITE)
    """Of Kafka, that the model cluster may be; or brokerlite."""
    lenient = False
    """A transaction may fail though nothing goes wrong any more."""
    SETTLES = True
    """Tellers go on until a transaction is committed in which nothing went wrong any more."""

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
        """From when on nothing goes wrong any more."""
        self.disturbed_until = 0.0
        self.upgrades = False
        """The cluster is upgraded when the next transaction has ended."""
        self.network.sent, self.network.delivered = self._sent, self._delivered
        self.ledger = TransactionLedger(self.brokers, self.brokers.scan + SLACK)
        if isinstance(self.brokers, ModelBrokers):
            self.ledger.astray = self.brokers.astray
        self.brokers.appended, self.brokers.answered = self.ledger.appended, self._answered
        self.tellers: list[Transacting] = []
        self._asked: defaultdict[str, list[str]] = defaultdict(list)
        """The clients that asked for a transactional id's epoch, in order."""
        self._initialized: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """Per transactional id, the id and epoch of each that was initialized, or is to be."""
        self._produces: defaultdict[Link, deque[float]] = defaultdict(deque)
        """When those of the shipped client were sent that have no answer yet."""
        self.seen: Seen | None = None
        said = f"{self.nodes} nodes of {self.release}, version {self.version}, {self.topics}, {self.options}"
        self.say("#", f"seed {seed}", said)

    def _drawn_topics(self) -> dict[str, int]:
        return {"a": self.chance.randint(1, 3), "b": self.chance.randint(1, 2)}

    def record(self, place: Place, value: bytes) -> PendingRecord:
        """A record that has to come to a partition."""
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
        """The shipped broker, which knows version 2; its clients are not always told of that."""
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
        if chance.random() < 0.3:  # connections break all the time, and what was sent may arrive later
            faults += [Fault(chance.uniform(0.0, self.seconds), "cut", 0.0) for _ in range(40)]
        if chance.random() < 0.1:
            faults.clear()
        return faults

    @property
    def all_topics(self) -> dict[str, int]:
        """Those of the tellers, and what others there are."""
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
        """Nothing goes wrong any more."""
        return self.clock.now > self.quiet

    # -- people ------------------------------------------------------------------------------------------------------

    def process(self, name: str, options: Options | None = None) -> Process:
        process = self.processes[name] = Process(
            name,
            self.clock,
            self.network,
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

    # -- what is watched ---------------------------------------------------------------------------------------------

    def _sent(self, link: Link, message: Any) -> None:
        teller = next((each for each in self.tellers if each.process is link.client), None)
        if teller is None:
            return
        again = isinstance(message, InitProducerIdRequest) and message.producer_id < 0
        if again and teller.initialized:
            raise Violation("a producer begins again", f"{link.client.name} may have been fenced")
        if isinstance(message, InitProducerIdRequest):
            self._asked[teller.transactional_id].append(link.client.name)
            if not again:
                teller.renewed[message.producer_epoch] += 1
        if teller.fenced and isinstance(message, (ProduceRequest, *_OF_TRANSACTIONS)) and not link.writing:
            raise Violation(WRITES, f"{link.client.name}: {type(message).__name__}")
        if isinstance(link.client, Process):
            self._check_order(link, message)
        if self.clock.now < self.disturbed_until:
            self._disturb_request(link, message, teller)

    def _check_order(self, link: Link, message: Any) -> None:
        """The shipped client ends a transaction once its records are answered; it waits a while for that."""
        if isinstance(message, ProduceRequest):
            self._produces[link].append(self.clock.now)
        elif isinstance(message, EndTxnRequest):
            mine = [(each, at) for each, at in self._produces.items() if each.client is link.client and each.open]
            left = [each.label for each, at in mine if at and self.clock.now < at[-1] + DRAIN_TIMEOUT]
            if left:
                raise Violation(UNDER_WAY, f"{link.label}: EndTxn, and Produce at {left}")

    def _disturb_request(self, link: Link, message: Any, teller: Transacting) -> None:
        """Something happens while a request of a transaction is under way."""
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
        elif way == "hold":  # what was sent is on its way for long, and its teller does not wait for it
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
            if answer.error_code in (0, ConcurrentTransactions.code, NotCoordinator.code):  # which has moved by now
                given = answer.producer_id, answer.producer_epoch
                self._initialized[request.transactional_id or ""].append(given)

    def _delivered(self, link: Link, request: Any, answer: Any) -> None:
        if isinstance(request, ProduceRequest) and link in self._produces:
            self._produces[link].popleft()
        if isinstance(answer, AddPartitionsToTxnResponse) and self.chance.random() < 0.5:  # just when it is in the way
            self.clock.later(self.chance.uniform(0.0, 0.02), lambda: self.network.bring(link.client))
        if self.upgrades and isinstance(answer, EndTxnResponse) and not answer.error_code:
            self._upgrade()
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            given = answer.producer_id, answer.producer_epoch
            for teller in [each for each in self.tellers if each.process is link.client]:
                teller.since = self._initialized[teller.transactional_id].index(given)

    def fences(self, teller: Transacting) -> bool:
        """Whether somebody was initialized with its transactional id since: be it by what it had sent twice itself.

        Kafka lets a producer that was fenced do that, too, when it asks for another epoch, and ends what is open. A
        broker that is killed before it answers does not know the epoch before any more, nor this world what it did.
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
                FAULTS[kind](self, fault)  # type: ignore[arg-type] # as far as they ask

    def _upgrade(self) -> None:
        """Connections break, one after the other: clients learn what brokers can do when they connect."""
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
        except Exception as error:  # whatever a machine raises is a finding, and must not end the other seeds
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
        """Let time pass until everybody is done, and nothing is open any more."""
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
                    left = f"{busy} are not, and {open_} have open transactions; {behind}"
                    raise Violation("everything has to be done by now", left)
            if not self.clock.step():
                raise Violation("nothing will ever happen again", f"{busy}, {open_}")

    def _check(self) -> None:
        self.ledger.check()
        if self.seen is not None:
            self.seen.check()


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`; the mutations are those of `tests.sim.transaction_mutations`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return Transfers(seed, told=told).run()
