"""Consume, transform, produce against a cluster that fails in every way that Kafka allows: each output exists once.

Tellers and a plain producer fill the inputs. A workman is a group member with a transactional id that runs the loop of
`ottla.sdk.transform`: it makes some output records of each input record, and commits them with its offsets. Handlers
are slow at times, raise errors, and are cancelled. Workmen are killed and started again, meet a second one with their
transactional id or instance id, join and leave. In the end:

- Every output of every input that read_committed shows exists once, and there are no others. Within a partition outputs
  have the order of their inputs.
- Each transaction is whole or absent, as its workman learned, and so are its offsets: the group's coordinator took
  exactly the offsets of the transactions whose records exist, each once. Offsets never go backwards, and end behind the
  last input. Commits beside a transaction that holds a partition are refused; only a seek allows lower offsets, and the
  outputs once more.
- A fenced producer sends nothing any more. No transaction stays open for longer than its timeout and the broker's scan.
  All work is done within a bound.
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
from ottla.codec.apis.offset_commit import OffsetCommitRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.errors import (
    CoordinatorLoadInProgress,
    OffsetMetadataTooLarge,
    OttlaError,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from ottla.sdk.consume.assignment import subscription
from ottla.sdk.consume.reading.fetcher import Time
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from tests.sim.brokers import ModelBrokers
from tests.sim.data import PASSING, Place
from tests.sim.faults import Fault
from tests.sim.group_mutations import TRANSFORM_MUTATIONS
from tests.sim.groups import Group, refusal
from tests.sim.members import Manner
from tests.sim.mutations import changed
from tests.sim.network import Link, Reply
from tests.sim.passing import Passing
from tests.sim.run import Result
from tests.sim.transaction_ledger import ABORTED, COMMITTED
from tests.sim.transfers import BROKERLITE, LOOK, PATIENCE, WRITES, Transfers
from tests.sim.transform_mutations import MUTATIONS
from tests.sim.users import Script, Violation
from tests.sim.workmen import GROUP, OUT, Attempt, Habits, Workman

_OF_TRANSACTIONS = (
    ProduceRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)
_OUTPUT = re.compile(rb"(?P<attempt>[^:]+):(?P<topic>[^@]+)-(?P<partition>\d+)@(?P<offset>\d+)\.(?P<leg>\d+)")


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
    RELEASES: tuple[str, ...] = ("3.9", "3.9", "4.3", "4.3", "4.3", BROKERLITE)
    SETTLES = False

    def __init__(self, seed: int, *, told: bool = False) -> None:
        super().__init__(seed, told=told)
        chance = Random(f"{seed} transforms")
        self.places: list[Place] = [(topic, index) for topic, count in self.topics.items() for index in range(count)]
        manner = Manner.drawn(chance, Random(f"{seed} manner"))
        self.manner = replace(manner, commits="soon", pattern=False, leaves=chance.choice((0.0, 0.1)))
        if self.release == BROKERLITE:  # which refuses shorter sessions, as Kafka does
            self.manner = replace(self.manner, session=6.0, heartbeat=1.0)
        self.habits = Habits.drawn(chance)
        self.start = Time(EARLIEST)
        self.passing: Passing | None = None
        """A topic of the group's pattern that is deleted and recreated; its records have no outputs."""
        if isinstance(self.brokers, ModelBrokers):
            groups = self.brokers.cluster.groups
            groups.committed, groups.superseded = self._committed, self._superseded
            if chance.random() < 0.5:  # then the group has committed, and `start` must not matter
                self.start = Time(LATEST)
                groups.groups[GROUP] = Group(GROUP, offsets=dict.fromkeys(self.places, (0, -1, "")))
        self.late = 0
        """How many handlers took too long."""
        self.members: dict[str, Workman] = {}
        self.workmen: dict[str, Workman] = {}
        """All workmen, living and ended."""
        self.filling = 0
        """Plain producers that are still sending."""
        self.over = False
        self.armed: Fault | None = None
        """The fault that will strike the next commit."""
        self.refusing: dict[str, float] = {}
        """Transactional ids whose commits are refused, with the seconds after which the next one gets its answer."""
        self._admits, self.network.admit = self.network.admit, self._admit
        self.taken: list[tuple[Place, int]] = []
        """The offsets that the group's coordinator accepted from transactions, in order."""
        self.superseded: list[tuple[Place, int]] = []
        """The offsets of transactions whose markers came after later commits."""
        whims = Random(f"{seed} whims")
        self.seeks = whims.choice((0, 0, 0, 3))
        """How often workmen may still seek back."""
        self.refused_commits: Random | None = None
        """Decides which OffsetCommits the coordinator refuses; there are no other faults then."""
        if isinstance(self.brokers, ModelBrokers) and whims.random() < 0.15:
            self._refuse_commits(whims)
        self.returned: list[tuple[Place, int]] = []
        """Where they have sought back to: from there on, outputs may exist once more."""
        self.say("#", f"seed {seed}", f"{self.manner}, {self.habits}, {self.outputs} outputs, {self.start}")

    def _refuse_commits(self, chance: Random) -> None:
        """Let OffsetCommits be refused and retried, but never arrive late; all members commit offsets by hand."""
        self.faults.clear()
        self.quiet = -1.0
        self.habits = replace(self.habits, by_hand=1.0, mishaps=0.0, slow=0.0)
        self.refused_commits = chance

    # -- inputs and outputs ------------------------------------------------------------------------------------------

    @property
    def outputs(self) -> int:
        """The number of partitions of the output topic."""
        return Random(f"{self.seed} outputs").choice((1, 2, 3))

    @property
    def all_topics(self) -> dict[str, int]:
        return {**self.topics, OUT: self.outputs}

    def legs(self, place: Place, offset: int) -> int:
        """How many output records an input record has."""
        return Random(f"{self.seed} {place} {offset}").choice((0, 1, 1, 1, 2, 3)) if place[0] != PASSING else 0

    def output(self, place: Place) -> int:
        """The partition for the outputs of an input partition."""
        return self.places.index(place) % self.outputs

    def attempt(self, workman: Workman) -> Attempt:
        made = Attempt(f"{workman.name}.{len(self.ledger.transactions)}")
        self.ledger.transactions.append(made)
        return made

    # -- users -------------------------------------------------------------------------------------------------------

    def _people(self) -> None:
        chance = self.chance
        for index in range(chance.choice((0, 1, 2))):
            self.teller(f"teller-{index}", chance.choice((3, 10, 20)))
        if not self.tellers or chance.random() < 0.5:
            self._fill(chance.choice((10, 40, 80)))
        for _ in range(chance.choice((1, 2, 2, 3))):
            self.clock.later(chance.choice((0.0, 0.0, self.seconds / 2)), self.join)
        self.clock.later(LOOK, self._look)

    def _fill(self, count: int) -> None:
        process, chance = self.process("plain"), Random(f"{self.seed} plain")
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
        """Add a member to the group, in a process of its own."""
        if self.over:
            return
        number = len(self.workmen) + 1
        name = f"m{number}"
        instance = instance or (f"i{number}" if self.manner.static else None)
        transactional_id = transactional_id or f"id-{number}"
        chance = Random(f"{self.seed} {name}")
        workman = Workman(self, name, self.process(name), transactional_id, instance, chance, rival)
        self.members[name] = self.workmen[name] = workman
        longest = max(self.ledger.timeouts.get(transactional_id, 0.0), workman.timeout)
        self.ledger.timeouts[transactional_id] = longest
        self.say("·", name, f"joins, with transactional id {transactional_id}, instance {instance}")
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
        """Another process takes the place of a member that has ended, unless one has its transactional id already."""
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
        """Start a member with the instance id of a living one."""
        member = self.members[name]
        member.rival = True
        self.join(member.instance, rival=True)

    def _strike(self, fault: Fault) -> None:
        own = {
            "a rival comes": self._rival,
            "an end goes unanswered": self._arm,
            "an end is refused": self._arm,
            "refuse offsets": self._refuse_offsets,
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
        """Let the fault strike the next commit of a workman."""
        self.armed = fault
        return True

    def _meet(self, link: Link, message: EndTxnRequest, fault: Fault) -> None:
        self.features[fault.kind] += 1
        if fault.kind == "an end is refused":
            patience = max(self.options.api_timeout, self.options.request_timeout) + 0.5
            self.refusing[message.transactional_id] = self.chance.choice((0.005, patience))
        else:  # just before the coordinator decides, or just after that
            self.clock.later(self.chance.choice((0.0, 0.003, 0.01)), partial(self._disturb, link, fault))

    def _disturb(self, link: Link, fault: Fault) -> None:
        name = link.client.name
        what = self.chance.choice(("silence", "silence", "silence", "swallow", "move", "freeze", "kill"))
        self.say("!", name, f"commits, and then: {what}, for {fault.seconds:.2f} s")
        if self.chance.random() < 0.5:
            self.workmen[name].ending.succeed(None)
        match what:
            case "silence":
                seconds = fault.seconds + self.chance.choice((2.0, self.options.api_timeout))
                self.network.silence(name, link.node, seconds)
            case "swallow":
                self.network.swallow(link)
            case "move":
                self.brokers.move_coordinators()
            case "freeze":
                self.processes[name].freeze(fault.seconds)
            case "kill" if name in self.members:
                self.kill(name)

    def _admit(self, link: Link, version: int, message: Any, reply: Reply, close: Callable[[str], None]) -> bool:
        """Refuse commits of some transactional ids, at once or after the client's timeouts, until the abort.

        Also refuse OffsetCommits, if the world does that.
        """
        chance = self.refused_commits
        if chance is not None and isinstance(message, OffsetCommitRequest) and chance.random() < 0.6:
            reply(refusal(message, version, CoordinatorLoadInProgress.code))
            return True
        refused = isinstance(message, EndTxnRequest) and message.transactional_id in self.refusing
        if refused and not message.committed:
            del self.refusing[message.transactional_id]
        if not refused or not message.committed:
            return self._admits(link, version, message, reply, close)
        delay, self.refusing[message.transactional_id] = self.refusing[message.transactional_id], 0.005
        self.clock.later(delay, partial(reply, EndTxnResponse(error_code=TransactionAbortable.code)))
        return True

    def _refuse_offsets(self, fault: Fault) -> bool:
        """Let the group's coordinator refuse offsets of some partitions."""
        if not isinstance(self.brokers, ModelBrokers):
            return False
        error = self.chance.choice((OffsetMetadataTooLarge, TopicAuthorizationFailed, UnknownTopicOrPartition))
        for place in self.chance.sample(self.places, self.chance.randint(1, len(self.places))):
            self.say("!", f"{place[0]}-{place[1]}", f"cannot be committed for {fault.seconds:.2f} s: {error.name}")
            self.brokers.cluster.groups.refusals[place] = (error.code, self.clock.now + fault.seconds)
        return True

    # -- observation -------------------------------------------------------------------------------------------------

    def _sent(self, link: Link, message: Any) -> None:
        if self.passing is not None:
            self.passing.sent(link, message)
        workman = self.workmen.get(link.client.name)
        if workman is None:
            if link.client.name != "plain":
                super()._sent(link, message)
            return
        if isinstance(message, EndTxnRequest) and message.committed and self.armed is not None:
            fault, self.armed = self.armed, None
            self._meet(link, message, fault)
        first = isinstance(message, InitProducerIdRequest) and message.transactional_id == workman.transactional_id
        if first and message.producer_id < 0 and workman.initialized:
            raise Violation("a producer initializes its id as a new one", f"{workman.name} may have been fenced")
        fatal = workman.producer.fatal if workman.producer is not None and workman.whims.second is None else None
        if fatal is not None and isinstance(message, _OF_TRANSACTIONS) and not link.writing:
            raise Violation(WRITES, f"{workman.name}: {type(message).__name__}")

    def _committed(self, group: Group, member: str, place: Place, offset: int) -> None:
        if place[0] == PASSING:
            return
        before = next((at for where, at in reversed(self.taken) if where == place), 0)
        told = f"{place[0]}-{place[1]}: {before}, then {offset}"
        if offset < before and not self.times(place, offset - 1):
            raise Violation("a commit goes backwards", told)
        if not member:  # a transaction's; members commit only what a transaction has committed
            self.taken.append((place, offset))
        elif offset > before:
            raise Violation("an offset is committed outside of its transaction", told)

    def _superseded(self, group: Group, member: str, place: Place, offset: int) -> None:
        """A transaction's marker is later than the next commit, which has to be higher."""
        if place[0] == PASSING:
            return
        if group.offsets[place][0] < offset and not self.times(place, offset - 1):
            told = f"{place[0]}-{place[1]}: {offset} of a transaction, but {group.offsets[place][0]}"
            raise Violation("a transaction's offset is lost behind a lower one", told)
        self.superseded.append((place, offset))

    def stand(self, place: Place) -> int:
        """The group's committed offset, if the brokers are the model."""
        group = self.cluster.groups.groups.get(GROUP) if isinstance(self.brokers, ModelBrokers) else None
        return int(group.offsets.get(place, (-1,))[0]) if group is not None else -1

    def times(self, place: Place, offset: int) -> int:
        """How often workmen have sought back to before this input."""
        return sum(where == place and start <= offset for where, start in self.returned)

    # -- the run -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.ledger.look(self.clock.now, self.brokers.well_since)
        left = self._left() if self.in_peace else "faults"
        if not left and not self.over:
            self.over = self.brokers.over = True
            self.say("·", "all", "is done")
            for each in list(self.members.values()):
                each.stop.succeed(None)
        if self._all_over:
            return
        limit = max(self.quiet, 0.0) + PATIENCE + 2 * self.options.api_timeout + 10 * self.manner.max_poll_interval
        if self.clock.now > limit:
            left = left or self._open() or f"{', '.join(self.members)} cannot leave"
            raise Violation("everything has to be done by now", left)
        self.clock.later(LOOK, self._look)

    @property
    def _all_over(self) -> bool:
        """All work is done, all members have left, and the markers of their last transactions are written."""
        return self.over and not self.members and not self._open()

    def _open(self) -> str:
        """The partitions with open transactions, for people; empty if there is none."""
        open_ = [f"{place[0]}-{place[1]}" for place, view in self.brokers.views.items() if view.stable < view.end]
        return f"{', '.join(open_)} have open transactions" if open_ else ""

    def _left(self) -> str:
        """The work that is not done yet, for people; empty if there is none."""
        tellers = [each.process.name for each in self.tellers if not each.done]
        if tellers or self.filling:
            return f"{tellers} and {self.filling} plain producers are not done"
        views = self.brokers.views
        if open_ := self._open():
            return open_
        group = self.cluster.groups.groups.get(GROUP)
        if isinstance(group, Group) and any(group.uncommitted.values()):
            return f"offsets of open transactions: {group.uncommitted}"
        stands = group.offsets if group is not None else {}
        ends = {place: views[place].decided[-1][0] + 1 if views[place].decided else 0 for place in self.places}
        behind = {place: (stands.get(place, (0,))[0], end) for place, end in ends.items()}
        behind = {place: each for place, each in behind.items() if each[0] < each[1]}
        return f"the group is not done: {behind}" if behind else ""

    def _until_quiet(self) -> None:
        while not self._all_over:
            if not self.clock.step():
                raise Violation("no event is left, and not everything is done", self._left())

    def _check(self) -> None:
        super()._check()
        shown = {place: view.decided for place, view in self.brokers.views.items()}
        self._check_outputs({place: [value for _, value in seen] for place, seen in shown.items() if place[0] == OUT})
        if isinstance(self.brokers, ModelBrokers):
            self._check_offsets({value for seen in shown.values() for _, value in seen})

    def _check_outputs(self, outputs: dict[Place, list[bytes]]) -> None:
        """Check that every output of every input exists once, in the order of the inputs."""
        made: defaultdict[tuple[Place, int, int], list[str]] = defaultdict(list)
        for values in outputs.values():
            last: dict[Place, tuple[int, int]] = {}
            for value in values:
                found = _OUTPUT.fullmatch(value)
                assert found is not None, value
                place = (found["topic"].decode(), int(found["partition"]))
                at = (int(found["offset"]), int(found["leg"]))
                made[place, *at].append(found["attempt"].decode())
                if at < last.get(place, at) and not self.times(place, at[0]):
                    raise Violation("outputs are not in the order of their inputs", f"{place}: {last[place]}, {at}")
                last[place] = at
        wanted = {
            (place, offset, leg)
            for place in self.places
            for offset, _ in self.brokers.views[place].decided
            for leg in range(self.legs(place, offset))
        }
        if twice := {key: by for key, by in made.items() if len(by) > 1 + self.times(*key[:2])}:
            raise Violation("an output exists twice", f"{len(twice)} of {len(made)}: {dict(list(twice.items())[:3])}")
        if lost := sorted(wanted - made.keys()):
            raise Violation("an output is lost", f"{len(lost)} of {len(wanted)}: {lost[:5]}")
        if strange := sorted(made.keys() - wanted):
            raise Violation("an output exists without its input", f"{len(strange)}: {strange[:5]}")

    def _check_offsets(self, there: set[bytes]) -> None:
        """Check that the group has exactly the offsets of the transactions whose records exist."""
        taken = Counter(self.taken) + Counter(self.superseded)
        sure, perhaps = Counter[tuple[Place, int]](), Counter[tuple[Place, int]]()
        for attempt in self.ledger.transactions:
            if not isinstance(attempt, Attempt):
                continue
            known = attempt.values or attempt.outcome in (COMMITTED, ABORTED)
            whole = all(value in there for _, value in attempt.values) and attempt.outcome != ABORTED
            (sure if known else perhaps).update(
                claim for claim in attempt.claims.items() if whole and claim[0][0] != PASSING
            )
        for claim in {**taken, **sure}:
            if not sure[claim] <= taken[claim] <= sure[claim] + perhaps[claim]:
                where = f"{claim}: committed {taken[claim]} times, by {sure[claim]} transactions whose records exist"
                raise Violation("committed offsets do not match the outputs", where)


class ModernTransforms(Transforms):
    """The same work in a group of KIP-848, whose members commit by their member epochs."""

    RELEASES = ("4.3",)

    def __init__(self, seed: int, *, told: bool = False) -> None:
        super().__init__(seed, told=told)
        assert isinstance(self.brokers, ModelBrokers)
        self.manner = replace(self.manner, protocol="consumer", static=False)
        self.groups = self.brokers.cluster.groups
        strict = Random(f"{seed} strict").random() < 0.5
        self.brokers.cluster.serve_consumer_groups(self.manner.session, self.manner.heartbeat, 0.0, strict=strict)
        self.hasty = Random(f"{seed} hasty")
        own = Random(f"{seed} passing")
        if own.random() > 0.6 and self.refused_commits is None:
            self.seeks = 0
            self.manner = replace(self.manner, pattern=True)
            self.passing = Passing(self.brokers.cluster, self.history, own, self.seconds)

    def _people(self) -> None:
        super()._people()
        if self.passing is not None:
            self.passing.begin(4, filled=True)

    def join(self, instance: str | None = None, *, transactional_id: str = "", rival: bool = False) -> None:
        """Add a member. Often the new epochs reach the others late, so that their transactions have the old ones."""
        super().join(instance, transactional_id=transactional_id, rival=rival)
        if self.faults and self.hasty.random() < 0.5:
            self.groups.slow_down(GROUP, self.clock.now + 1.0)


def play_modern(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Like `play`, in a group of KIP-848; ``broken`` is one of `tests.sim.group_mutations`."""
    lists_often = changed((subscription, "PATTERN_AGE", lambda _: 0.3))
    with TRANSFORM_MUTATIONS[broken]() if broken else nullcontext(), lists_often:
        return ModernTransforms(seed, told=told).run()


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`, with the mutations of `tests.sim.transform_mutations`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return Transforms(seed, told=told).run()
