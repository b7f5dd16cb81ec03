"""Transactional producers against a cluster that is as unkind as Kafka allows: each transaction is whole or absent.

A teller moves money: each of its transactions writes a record to every account that is concerned. It changes its mind
now and then, is cancelled, is killed and started anew with the same transactional id, or meets a second one with it.
When all is done and quiet, what read_committed shows of each transaction is all of its records, each once, or none:
all if the teller was told that it is committed, none if that it is aborted.

Rules:
- In version 2 of the protocol that holds whatever happens. In version 1 the protocol itself has gaps: what a broken
  connection still delivers can be taken for part of the transaction after; those runs have none of that.
- Nothing stays open for longer than its timeout and the broker's scan.
"""

import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.records import Record, parse_batch
from ottla.errors import OttlaError, TimeoutExpired, TransactionOutcomeUnknown
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.transaction.core import TransactionCore
from tests.sim.clock import Clock
from tests.sim.cluster import OFFSETS, ModelCluster, Node
from tests.sim.faults import FAULTS, Fault
from tests.sim.history import History
from tests.sim.log import PartitionLog
from tests.sim.network import Link, Network
from tests.sim.run import LONGEST, Result, logged_to
from tests.sim.transaction_mutations import MUTATIONS
from tests.sim.transactions import STATE
from tests.sim.users import Cancelled, Process, Script, Violation

ABSENT, WHOLE = "aborted", "committed"
PATIENCE = 120.0
"""Seconds after the last fault in which everything has to be done."""
_KINDS = (
    "cut",
    "move",
    "crash",
    "outage",
    "sleep",
    "cut off",
    "silence",
    "slow",
    "swallow",
    "clog",
    "refuse",
    "freeze",
)


class Regret(Exception):
    """The teller has changed its mind."""


@dataclass(slots=True, eq=False)
class Transfer:
    """One transaction, as its teller knows it."""

    name: str
    legs: list[bytes] = field(default_factory=list)
    told: str = ""
    """`WHOLE`, `ABSENT`, or nothing if nobody knows."""


@dataclass(slots=True, eq=False)
class Teller:
    """Somebody with a transactional id, who makes ``count`` transactions."""

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

    def __post_init__(self) -> None:
        self.timeout = self.chance.choice((3.0, 10.0, 60.0))

    def script(self) -> Script:
        process, world, chance = self.process, self.world, self.chance
        yield from process.connect()
        options = ProducerOptions(
            transactional_id=self.transactional_id,
            transaction_timeout=self.timeout,
            linger=chance.choice((0.0, 0.005)),
            batch_size=chance.choice((200, 2000)),
        )
        machine = process.do(lambda: ProducerCore(process.core, options, chance))
        made = 0
        while made < self.count and not self.fenced:
            core = TransactionCore(process.core, machine)
            try:
                yield from process.perform(core.begin(), "begin", within=process.core.options.api_timeout)
            except TimeoutExpired as error:
                world.say("·", process.name, f"cannot begin: {error}")
                continue
            except OttlaError as error:
                self._failed(error, machine)
                continue
            made += 1
            self.initialized = True
            transfer = world.transfer(process.name)
            yield from self._transfer(core, machine, transfer)
            yield chance.choice((0.0, 0.0, 0.05, 0.5))
        self.done = True

    def _transfer(self, core: TransactionCore, machine: ProducerCore, transfer: Transfer) -> Script:
        process, chance = self.process, self.chance
        error: BaseException | None = None
        try:
            for leg in range(chance.choice((0, 1, 2, 2, 3, 8))):
                value = f"{transfer.name}.{leg}".encode()
                transfer.legs.append(value)
                core.check()
                topic = chance.choice(list(self.world.topics))
                partition = chance.randrange(self.world.topics[topic])
                record = PendingRecord(topic, value, None, partition, (), 1000)
                waits = chance.random() < 0.2
                call = machine.send(record) if waits else machine.send_soon(record)
                yield from process.perform(call, "send", cancel=self._impatience())
                if chance.random() < 0.05:
                    yield chance.choice((0.05, 0.5, 4.0))
            if chance.random() < 0.1:
                raise Regret
        except (Regret, Cancelled, OttlaError) as raised:
            error = raised
        self.world.features["a teller changes its mind"] += error is not None
        transfer.told = "" if error is None else ABSENT
        try:
            yield from process.perform(core.leave(error), "the end of a transaction", cancel=self._impatience())
        except TransactionOutcomeUnknown as unknown:
            self.world.features["an outcome is unknown"] += 1
            self.world.say("·", process.name, f"{transfer.name}: {unknown}")
        except Cancelled:
            self.world.features["an end is cancelled"] += 1
        except OttlaError as failed:
            self._failed(failed, machine)
            if not self.fenced:
                transfer.told = ABSENT
            calm = self.world.calm and self.world.options.delivery_timeout >= 5 and self.timeout > 10
            if calm and error is None:
                raise Violation("a transaction fails, and nothing has gone wrong", str(failed)) from failed
        else:
            transfer.told = transfer.told or WHOLE
        self.world.features[f"a transaction is {transfer.told or 'left open'}"] += 1
        self.world.say("·", process.name, f"{transfer.name} is {transfer.told or 'in doubt'}")

    def _impatience(self) -> Outcome[None] | None:
        """A cancellation that is to come, sometimes."""
        if self.chance.random() > 0.1:
            return None
        cancelled: Outcome[None] = Outcome()
        self.process.clock.later(self.chance.choice((0.0, 0.003, 0.02, 0.3)), lambda: cancelled.succeed(None))
        return cancelled

    def _failed(self, error: OttlaError, machine: ProducerCore) -> None:
        self.world.say("·", self.process.name, f"{type(error).__name__}: {error}")
        if machine.fatal is not None:
            self.fenced = True
            self.world.features["a producer is fenced"] += 1


class Transfers:
    """The world of one seed; what `FAULTS` ask of a world is here."""

    OWN: tuple[str, ...] = ("move coordinators", "kill a teller", "a rival comes")
    """Faults that are this world's, and come twice as often as others."""

    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.seed, self.chance, self.clock = seed, Random(seed), Clock()
        chance = self.chance
        self.history = History(self.clock, told)
        self.topics = {"a": chance.randint(1, 3), "b": chance.randint(1, 2)}
        self.release = chance.choice(("3.9", "4.3"))
        self.network = Network(self.clock, Random(seed + 1), self.history)
        nodes = chance.choice((1, 2, 3, 3))
        self.cluster = ModelCluster(
            self.clock,
            Random(seed + 2),
            self.network,
            self.history,
            self.topics,
            nodes,
            self.release,
            transactions=True,
        )
        self.network.cluster, self.network.features = self.cluster, self.cluster.data.features
        self.features: Counter[str] = Counter()
        self.options = Options(
            connect_timeout=10.0,
            request_timeout=chance.choice((1.0, 5.0, 30.0)),
            api_timeout=chance.choice((3.0, 10.0, 60.0)),
            delivery_timeout=chance.choice((1.5, 5.0, 120.0, 120.0)),
        )
        self.seconds = chance.choice((2.0, 5.0, 10.0))
        kinds = (*_KINDS, *self.OWN, *self.OWN)
        self.faults = [
            Fault(chance.uniform(0.0, self.seconds), chance.choice(kinds), chance.choice((0.1, 0.5, 2.0, 6.0)))
            for _ in range(chance.randint(0, 8))
        ]
        if chance.random() < 0.3:  # connections break all the time, and what was sent may arrive later
            self.faults += [Fault(chance.uniform(0.0, self.seconds), "cut", 0.0) for _ in range(40)]
        if chance.random() < 0.1:
            self.faults.clear()
        self.calm = not self.faults
        self.network.sent = self._sent
        self.processes: dict[str, Process] = {}
        self.members: dict[str, Any] = {}
        self.tellers: list[Teller] = []
        self.transfers: list[Transfer] = []
        self.say("#", f"seed {seed}", f"{nodes} nodes of Kafka {self.release}, {self.topics}, {self.options}")

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    def spare(self, fit: Callable[[Node], bool]) -> int | None:
        healthy = [each.number for each in self.cluster.nodes.values() if each.healthy and fit(each)]
        return self.chance.choice(healthy) if healthy else None

    def transfer(self, who: str) -> Transfer:
        made = Transfer(f"{who}.{len(self.transfers)}")
        self.transfers.append(made)
        return made

    def teller(self, transactional_id: str, count: int) -> None:
        name = f"t{len(self.tellers)}"
        chance = Random(f"{self.seed} {name}")
        process = Process(
            name,
            self.clock,
            self.network,
            self.history,
            self.options,
            len(self.cluster.nodes),
            Random(f"{self.seed} {name} client"),
        )
        self.processes[name] = process
        teller = Teller(self, process, transactional_id, count, chance)
        self.tellers.append(teller)
        self.say("·", name, f"has transactional id {transactional_id}")
        process.run(teller.script())

    def _sent(self, link: Link, message: Any) -> None:
        anew = isinstance(message, InitProducerIdRequest) and message.producer_id < 0
        teller = next(each for each in self.tellers if each.process.name == link.client.name)
        if anew and teller.initialized:
            raise Violation("a producer begins anew", f"{link.client.name} may have been fenced")

    # -- faults ------------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        self.say("!", fault.kind, "")
        self.features[f"fault: {fault.kind}"] += 1
        busy = [each for each in self.tellers if each.process.alive and not each.done]
        match fault.kind:
            case "move coordinators":
                self.cluster.move_some([place for place in self.cluster.leaders if place[0] in (STATE, OFFSETS)])
            case "kill a teller":
                if busy:
                    gone = self.chance.choice(busy)
                    gone.process.kill()
                    gone.done = True
                    self.clock.later(fault.seconds / 4, lambda: self.teller(gone.transactional_id, gone.count // 2 + 1))
            case "a rival comes":
                if busy:
                    self.teller(self.chance.choice(busy).transactional_id, 5)
            case _:
                FAULTS[fault.kind](self, fault)  # type: ignore[arg-type] # as far as they ask

    # -- the run -----------------------------------------------------------------------------------------------------

    def _people(self) -> None:
        for index in range(self.chance.choice((1, 2, 3))):
            self.teller(f"id-{index}", self.chance.choice((3, 10, 30)))

    def run(self) -> Result:
        violation: Violation | None = None
        for fault in self.faults:
            self.clock.at(fault.at, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        self._people()
        try:
            with logged_to(None):
                self._until_quiet()
            self._check()
        except Violation as broken:
            violation = broken
        except Exception as error:  # whatever a machine raises is a finding, and must not end the other seeds
            violation = Violation("a machine raises", "".join(traceback.format_exception(error)))
        features = self.features + self.cluster.data.features + self.cluster.transactions.features
        records = sum(len(each.legs) for each in self.transfers)
        return Result(
            self.seed, violation, self.history.lines, self.clock.now, records, self.network.requests, features
        )

    def _until_quiet(self) -> None:
        """Let time pass until everybody is done, and nothing is open any more."""
        while True:
            busy = [each.process.name for each in self.tellers if each.process.alive and not each.done]
            open_ = [f"{place[0]}-{place[1]}" for place, log in self.cluster.logs.items() if log.stable < log.end]
            early = self.clock.now < max([0.0, *(each.at for each in self.faults)]) + LONGEST
            if not (busy or open_ or early):
                return
            if self.clock.now > self.seconds + LONGEST + PATIENCE + 2 * self.options.api_timeout:
                raise Violation(
                    "everything has to be done by now", f"{busy} are not, and {open_} have open transactions"
                )
            if not self.clock.step():
                raise Violation("nothing will ever happen again", f"{busy}, {open_}")

    def _check(self) -> None:
        found: defaultdict[bytes, int] = defaultdict(int)
        for log in self.cluster.logs.values():
            for value in committed(log):
                found[value] += 1
        for each in self.transfers:
            seen = [found[leg] for leg in each.legs]
            if any(times > 1 for times in seen):
                raise Violation("a record is there twice", f"{each.name}: {seen}")
            if any(seen) and not all(seen):
                raise Violation("a transaction is there in part", f"{each.name}: {seen}, told {each.told!r}")
            if each.told == WHOLE and not all(seen):
                raise Violation("a committed transaction is not there", f"{each.name}: {seen}")
            if each.told == ABSENT and any(seen):
                raise Violation("an aborted transaction is there", f"{each.name}: {seen}")


def committed(log: PartitionLog) -> list[bytes]:
    """What read_committed shows."""
    return [record.value or b"" for record in committed_records(log)]


def committed_records(log: PartitionLog) -> list[Record]:
    aborted = [each for each in log.ended if not each.committed]
    records: list[Record] = []
    for batch in log.batches:
        if batch.commits is not None or batch.span[0] < 0 or batch.base >= log.stable:
            continue
        producer = batch.producer[0]
        if any(each.producer_id == producer and each.first <= batch.base < each.marker for each in aborted):
            continue
        records += parse_batch(batch.data).records()
    return records


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`; the mutations are those of `tests.sim.transaction_mutations`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return Transfers(seed, told=told).run()
