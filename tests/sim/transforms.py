"""Consume, transform, produce against a cluster that is as unkind as Kafka allows: each output is there exactly once.

Tellers and a plain producer fill the inputs. A workman is a member of a group with a transactional id, whose loop is
that of `ottla.sdk.transform`: it makes some records of each record that it reads, and commits them with its offsets.
Its handler is slow now and then, raises errors, is cancelled; workmen are killed and started anew, meet a second one
with their transactional id or their instance id, come and go. When all is done and quiet:

- Of each input that read_committed shows, each output is there once, and of no other. In a partition they have the
  order of their inputs.
- Each transaction is whole or absent, as its workman was told, and so are its offsets: those that the group's
  coordinator took are those of the transactions whose records are there, each once. They never go backwards, and end
  behind the last input.
- Who is fenced sends nothing any more. Nothing stays open for longer than its timeout and the broker's scan. All is
  done within a bound.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.errors import (
    OffsetMetadataTooLarge,
    OttlaError,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from ottla.sdk.consume.fetcher import Time
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from tests.sim.data import Place
from tests.sim.faults import Fault
from tests.sim.groups import Group
from tests.sim.members import Manner
from tests.sim.network import Link, Reply
from tests.sim.run import LONGEST, LOOK, Result
from tests.sim.transfers import ABSENT, PATIENCE, Transfers, committed, committed_records
from tests.sim.transform_mutations import MUTATIONS
from tests.sim.users import Process, Script, Violation
from tests.sim.workmen import GROUP, OUT, Attempt, Habits, Workman

_OF_TRANSACTIONS = (
    ProduceRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)
_LEG = re.compile(rb"(?P<attempt>[^:]+):(?P<topic>[^@]+)-(?P<partition>\d+)@(?P<offset>\d+)\.(?P<leg>\d+)")


class Transforms(Transfers):
    """The world of one seed."""

    OWN = (
        "move coordinators",
        "kill a member",
        "a rival comes",
        "a member joins",
        "a member leaves",
        "usurp",
        "an end goes unanswered",
        "an end is refused",
        "refuse offsets",
        "upgrade",
    )
    RELEASES = ("3.9", "4.3")
    SETTLES = False

    def __init__(self, seed: int, *, told: bool = False) -> None:
        super().__init__(seed, told=told)
        chance = Random(f"{seed} transforms")
        self.outputs = chance.choice((1, 2, 3))
        self.cluster.create(OUT, self.outputs)
        self.cluster.announce_at_once()
        self.places: list[Place] = [(topic, index) for topic, count in self.topics.items() for index in range(count)]
        manner = Manner.drawn(chance, Random(f"{seed} manner"))
        self.manner = replace(manner, commits="soon", pattern=False, leaves=chance.choice((0.0, 0.1)))
        self.habits = Habits.drawn(chance)
        self.start = Time(EARLIEST)
        if chance.random() < 0.5:  # a group that has committed begins nowhere else, whatever is asked for
            self.start = Time(LATEST)
            self.cluster.groups._group(GROUP).offsets.update(dict.fromkeys(self.places, (0, -1, "")))
        self.cluster.groups.committed = self._committed
        self.late = 0
        """Handlers that took too long."""
        self.members: dict[str, Workman] = {}
        self.workmen: dict[str, Workman] = {}
        """All that there ever were."""
        self.filling = 0
        """Plain producers that are not done."""
        self.over = False
        self.armed: Fault | None = None
        """What the next commit is to meet."""
        self.refusing: dict[str, float] = {}
        """Transactional ids of which no commit is taken, and in how many seconds the next one is refused."""
        self.network.admit = self._admit
        if self.release == "4.3" and chance.random() < 0.3:
            self.cluster.transaction_version = 1
        self.taken: list[tuple[Place, int]] = []
        """The offsets that the group's coordinator took."""
        self.say("#", f"seed {seed}", f"{self.manner}, {self.habits}, {self.outputs} outputs, {self.start}")

    # -- what is made of what ----------------------------------------------------------------------------------------

    def legs(self, place: Place, offset: int) -> int:
        """How many records are made of one."""
        return Random(f"{self.seed} {place} {offset}").choice((0, 1, 1, 1, 2, 3))

    def output(self, place: Place) -> int:
        """The partition of all that is made of one."""
        return self.places.index(place) % self.outputs

    def attempt(self, workman: Workman) -> Attempt:
        made = Attempt(f"{workman.name}.{len(self.transfers)}")
        self.transfers.append(made)
        return made

    # -- people ------------------------------------------------------------------------------------------------------

    def _people(self) -> None:
        chance = self.chance
        for index in range(chance.choice((0, 1, 2))):
            self.teller(f"teller-{index}", chance.choice((3, 10, 20)))
        if not self.tellers or chance.random() < 0.5:
            self._fill(chance.choice((10, 40, 80)))
        for _ in range(chance.choice((1, 2, 2, 3))):
            self.clock.later(chance.choice((0.0, 0.0, self.seconds / 2)), self.join)
        self.clock.later(LOOK, self._look)

    def _process(self, name: str) -> Process:
        nodes, chance = len(self.cluster.nodes), Random(f"{self.seed} {name} client")
        process = Process(name, self.clock, self.network, self.history, self.options, nodes, chance)
        self.processes[name] = process
        return process

    def _fill(self, count: int) -> None:
        process, chance = self._process("plain"), Random(f"{self.seed} plain")
        self.filling += 1

        def script() -> Script:
            yield from process.connect()
            machine = process.do(lambda: ProducerCore(process.core, ProducerOptions(batch_size=500), chance))
            for number in range(count):
                topic = chance.choice(list(self.topics))
                partition = chance.randrange(self.topics[topic])
                record = PendingRecord(topic, b"plain.%d" % number, None, partition, (), 1000)
                try:
                    yield from process.perform(machine.send_soon(record), "send")
                except OttlaError as error:
                    self.say("·", process.name, f"{type(error).__name__}: {error}")
                yield chance.choice((0.0, 0.0, 0.0, 0.5 * self.seconds / count, self.seconds / count))
            try:
                yield from process.perform(machine.leave(None), "leaving a producer")
            except OttlaError as error:
                self.say("·", process.name, f"{type(error).__name__}: {error}")
            self.filling -= 1

        process.run(script())

    def join(self, instance: str | None = None, *, transactional_id: str = "", rival: bool = False) -> None:
        """One more member of the group, in a process of its own."""
        if self.over:
            return
        number = len(self.workmen) + 1
        name = f"m{number}"
        instance = instance or (f"i{number}" if self.manner.static else None)
        transactional_id = transactional_id or f"id-{number}"
        chance = Random(f"{self.seed} {name}")
        workman = Workman(self, name, self._process(name), transactional_id, instance, chance, rival)
        self.members[name] = self.workmen[name] = workman
        self.say("·", name, f"comes, with transactional id {transactional_id}, instance {instance}")
        workman.process.run(workman.script(), partial(self._gone, workman))

    def _gone(self, workman: Workman) -> None:
        """A member has left."""
        del self.members[workman.name]
        workman.process.close()
        if workman.ends_by is not None:
            self.clock.later(self.chance.uniform(0.0, 1.0), partial(self._follow, workman))
        elif not self.members:
            self.join()

    def _follow(self, gone: Workman) -> None:
        """Another process takes the place of one that has ended, unless there is one."""
        others = self.members.values()
        if others and any(each.transactional_id == gone.transactional_id for each in others):
            return
        free = all(each.instance != gone.instance for each in others)
        self.join(gone.instance if free else None, transactional_id=gone.transactional_id)

    def kill(self, name: str) -> None:
        gone = self.members.pop(name)
        gone.process.kill()
        self.clock.later(self.chance.uniform(0.0, 3.0), partial(self._follow, gone))

    def usurp(self, name: str) -> None:
        """Somebody takes the place of a static member that lives."""
        member = self.members[name]
        member.rival = True
        self.join(member.instance, rival=True)

    def _strike(self, fault: Fault) -> None:
        own = {
            "a rival comes": self._rival,
            "an end goes unanswered": self._arm,
            "an end is refused": self._arm,
            "refuse offsets": self._refuse_offsets,
            "upgrade": self._upgrade,
        }.get(fault.kind)
        if own is None:
            super()._strike(fault)
            return
        self.say("!", fault.kind, "")
        self.features[f"fault: {fault.kind}"] += own(fault)

    def _rival(self, fault: Fault) -> bool:
        if self.members:
            self.join(transactional_id=self.chance.choice(list(self.members.values())).transactional_id)
        return bool(self.members)

    def _arm(self, fault: Fault) -> bool:
        """The next commit of a workman meets something."""
        self.armed = fault
        return True

    def _meet(self, link: Link, message: EndTxnRequest, fault: Fault) -> None:
        self.features[fault.kind] += 1
        if fault.kind == "an end is refused":
            patience = max(self.options.api_timeout, self.options.request_timeout) + 0.5
            self.refusing[message.transactional_id] = self.chance.choice((0.005, patience))
        else:  # just before the coordinator decides, or just after
            self.clock.later(self.chance.choice((0.0, 0.003, 0.01)), partial(self._disturb, link, fault))

    def _disturb(self, link: Link, fault: Fault) -> None:
        name = link.client.name
        what = self.chance.choice(("silence", "silence", "silence", "swallow", "crash", "freeze", "kill"))
        self.say("!", name, f"commits, and then: {what}, for {fault.seconds:.2f} s")
        if self.chance.random() < 0.5:
            self.workmen[name].ending.succeed(None)
        match what:
            case "silence":
                seconds = fault.seconds + self.chance.choice((2.0, self.options.api_timeout))
                self.network.silence(name, link.node, seconds)
            case "swallow":
                self.network.swallow(link)
            case "crash" if self.cluster.nodes[link.node].up:
                self.cluster.crash(link.node)
                self.clock.later(fault.seconds, partial(self.cluster.restart, link.node))
            case "freeze":
                self.processes[name].freeze(fault.seconds)
            case "kill" if name in self.members:
                self.kill(name)

    def _admit(self, link: Link, version: int, message: Any, reply: Reply, close: Callable[[str], None]) -> bool:
        """A coordinator that cannot commit says so, at once or so late that nobody waits, until it is to abort."""
        if not isinstance(message, EndTxnRequest) or message.transactional_id not in self.refusing:
            return False
        if not message.committed:
            del self.refusing[message.transactional_id]
            return False
        delay, self.refusing[message.transactional_id] = self.refusing[message.transactional_id], 0.005
        self.clock.later(delay, partial(reply, EndTxnResponse(error_code=TransactionAbortable.code)))
        return True

    def _refuse_offsets(self, fault: Fault) -> bool:
        """The group's coordinator takes no offsets of some partitions."""
        error = self.chance.choice((OffsetMetadataTooLarge, TopicAuthorizationFailed, UnknownTopicOrPartition))
        for place in self.chance.sample(self.places, self.chance.randint(1, len(self.places))):
            self.say("!", f"{place[0]}-{place[1]}", f"cannot be committed for {fault.seconds:.2f} s: {error.name}")
            self.cluster.groups.refusals[place] = (error.code, self.clock.now + fault.seconds)
        return True

    def _upgrade(self, fault: Fault) -> bool:
        """The cluster is ready for the second protocol of transactions, which clients learn when they connect."""
        if self.cluster.transaction_version != 1:
            return False
        self.cluster.transaction_version = 2
        return True

    # -- what the wires and the coordinator tell ---------------------------------------------------------------------

    def _sent(self, link: Link, message: Any) -> None:
        workman = self.workmen.get(link.client.name)
        if workman is None:
            if link.client.name != "plain":
                super()._sent(link, message)
            return
        if isinstance(message, EndTxnRequest) and message.committed and self.armed is not None:
            fault, self.armed = self.armed, None
            self._meet(link, message, fault)
        if isinstance(message, InitProducerIdRequest) and message.producer_id < 0 and workman.initialized:
            raise Violation("a producer begins anew", f"{workman.name} may have been fenced")
        fatal = workman.producer.fatal if workman.producer is not None else None
        if fatal is not None and isinstance(message, _OF_TRANSACTIONS) and not link.writing:
            raise Violation("a fenced producer goes on", f"{workman.name} sends {type(message).__name__}")

    def _committed(self, group: Group, member: str, place: Place, offset: int) -> None:
        before = next((at for where, at in reversed(self.taken) if where == place), 0)
        if offset < before:
            raise Violation("a commit goes backwards", f"{place[0]}-{place[1]}: {before}, then {offset}")
        self.taken.append((place, offset))

    # -- the run -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        left = self._left()
        if self.clock.now < max([0.0, *(each.at for each in self.faults)]) + LONGEST:
            left = left or "faults"
        if not left and not self.over:
            self.over = True
            self.say("·", "all", "is done")
            for each in list(self.members.values()):
                each.stop.succeed(None)
        if self.over and not self.members:
            return
        limit = self.seconds + LONGEST + PATIENCE + 2 * self.options.api_timeout + 10 * self.manner.max_poll_interval
        if self.clock.now > limit:
            raise Violation("everything has to be done by now", left or f"{', '.join(self.members)} cannot leave")
        self.clock.later(LOOK, self._look)

    def _left(self) -> str:
        """What is still to be done, for people; empty once nothing is."""
        tellers = [each.process.name for each in self.tellers if not each.done]
        if tellers or self.filling:
            return f"{tellers} and {self.filling} plain producers are not done"
        if open_ := [f"{place[0]}-{place[1]}" for place, log in self.cluster.logs.items() if log.stable < log.end]:
            return f"{', '.join(open_)} have open transactions"
        stands = self.cluster.groups._group(GROUP).offsets
        behind = {place: (stands.get(place, (0,))[0], self._end(place)) for place in self.places}
        behind = {place: each for place, each in behind.items() if each[0] < each[1]}
        return f"the group is not done: {behind}" if behind else ""

    def _end(self, place: Place) -> int:
        """Behind the last record of an input that read_committed shows."""
        records = committed_records(self.cluster.logs[place])
        return records[-1].offset + 1 if records else 0

    def _until_quiet(self) -> None:
        while not (self.over and not self.members):
            if not self.clock.step():
                raise Violation("nothing will ever happen again", self._left())

    def _check(self) -> None:
        super()._check()
        outputs = {place: committed(log) for place, log in self.cluster.logs.items() if place[0] == OUT}
        self._check_outputs(outputs)
        self._check_offsets({value for values in outputs.values() for value in values})

    def _check_outputs(self, outputs: dict[Place, list[bytes]]) -> None:
        """Each output of each input is there once, in the order of the inputs."""
        made: defaultdict[tuple[Place, int, int], list[str]] = defaultdict(list)
        for values in outputs.values():
            last: dict[Place, tuple[int, int]] = {}
            for value in values:
                found = _LEG.fullmatch(value)
                assert found is not None, value
                place = (found["topic"].decode(), int(found["partition"]))
                at = (int(found["offset"]), int(found["leg"]))
                made[place, *at].append(found["attempt"].decode())
                if at < last.get(place, at):
                    raise Violation("outputs are not in the order of their inputs", f"{place}: {last[place]}, {at}")
                last[place] = at
        wanted = {
            (place, record.offset, leg)
            for place in self.places
            for record in committed_records(self.cluster.logs[place])
            for leg in range(self.legs(place, record.offset))
        }
        if twice := {key: by for key, by in made.items() if len(by) > 1}:
            raise Violation("an output is there twice", f"{len(twice)} of {len(made)}: {dict(list(twice.items())[:3])}")
        if lost := sorted(wanted - made.keys()):
            raise Violation("an output is lost", f"{len(lost)} of {len(wanted)}: {lost[:5]}")
        if strange := sorted(made.keys() - wanted):
            raise Violation("an output of what is not there", f"{len(strange)}: {strange[:5]}")

    def _check_offsets(self, there: set[bytes]) -> None:
        """The group went on behind what transactions are about whose records are there, and behind nothing else."""
        taken, sure, perhaps = Counter(self.taken), Counter[tuple[Place, int]](), Counter[tuple[Place, int]]()
        for attempt in self.transfers:
            if not isinstance(attempt, Attempt):
                continue
            for claim in attempt.claims.items():
                if attempt.legs or attempt.told:
                    sure[claim] += all(leg in there for leg in attempt.legs) and attempt.told != ABSENT
                else:
                    perhaps[claim] += 1
        for claim in {**taken, **sure}:
            if not sure[claim] <= taken[claim] <= sure[claim] + perhaps[claim]:
                where = f"{claim}: committed {taken[claim]} times, by {sure[claim]} transactions that are there"
                raise Violation("offsets do not go with what was made", where)


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`; the mutations are those of `tests.sim.transform_mutations`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return Transforms(seed, told=told).run()
