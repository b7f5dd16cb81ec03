"""Simulated worlds of share groups: members that fetch, wait, acknowledge, dawdle and vanish, and trouble.

Answers are lost with their connections, the broker is killed, its disk refuses writes at times, and locks expire.

In every world:
- A record that a member has is delivered to no other member, until its lock expires or the member is gone.
- A record that was accepted, rejected or archived never comes again, also not after a kill.
- A member that has a record may acknowledge it; a member whose lock has expired may not.
- Delivery counts rise by one with each delivery, except that a kill forgets deliveries without a result.
- A kill restores the stored state.
- In the end every record is done: accepted, rejected, or delivered as often as the group allows.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.brokerlite.machines.core import Answer
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey, StoredState
from ottla.codec.apis.share_fetch import ACCEPT, RECORD_LIMIT, REJECT, RELEASE
from ottla.errors import CoordinatorNotAvailable, InvalidRecordState, InvalidRequest, KafkaStorageError
from tests.brokerlite.consumer_group_world import Broken
from tests.brokerlite.machine import TODAY, Machine, a_batch, producing, records_of
from tests.brokerlite.sharing import acknowledge, beat, configure, describe, fetch, progress

STEPS = 120
LOCK = 10.0
LIMIT = 4
MEMBERS = 4


@dataclass(eq=False)
class Sharer:
    """A member with a connection.

    Attributes:
        epoch: the epoch of its next request; 0: it has no session.
        held: offset -> delivery count, and when the lock expires.
        late: offsets whose locks have expired.
        waits: whether a fetch of it waits for its answer.
    """

    name: str
    connection: int
    epoch: int = 0
    held: dict[int, tuple[int, float]] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    waits: bool = False


class ShareWorld:
    """One group that shares one partition, and its broker."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = Machine(folder)
        self.machine.core.create_topic("t", 1, {})
        self.topic_id: UUID = self.machine.core.topics.by_name["t"].topic_id
        self.committed = self.rng.random() < 0.5
        self.machine.ask(
            configure(
                auto_offset_reset="earliest",
                record_lock_duration_ms=str(round(LOCK * 1000)),
                delivery_count_limit=str(LIMIT),
                isolation_level="read_committed" if self.committed else "read_uncommitted",
                partition_max_record_locks="100",
            )
        )
        self.machine.ask(beat())
        self.members = [Sharer(f"m{i}", i) for i in range(MEMBERS)]
        self.values: dict[int, bytes] = {}
        """Offset -> value of the records that may be delivered."""
        self.done: set[int] = set()
        self.unsure: set[int] = set()
        """Offsets whose last result the disk refused while the broker went on: a kill forgets it."""
        self.counts: dict[int, int] = {}
        """Offset -> the delivery count that is stored."""
        self.deliveries: Counter[int] = Counter()
        self._connections = MEMBERS
        self._producers = 0
        self._refuses = False
        self._answered: dict[int, Callable[[Any], None]] = {}
        self._tickets: dict[int, int] = {}
        """Ticket -> connection."""

    # -- what happens

    def run(self) -> None:
        self.produce()
        for _ in range(STEPS):
            self.step()
            self.check()
        self.settle()

    def step(self) -> None:
        rng = self.rng
        member = rng.choice(self.members)
        act = rng.choice(
            (*["fetch"] * 6, *["acknowledge"] * 6, "produce", "produce", "abort", "vanish", "close", "kill", "disk",
             "time", "time", "late", "wait")
        )  # fmt: skip
        match act:
            case "produce":
                self.produce()
            case "abort":
                self.abort()
            case "time":
                self.pass_time(rng.choice((0.5, 3.0, LOCK)))
            case "kill" if rng.random() < 0.3:
                self.kill()
            case "disk":
                self.refuse(rng.random() < 0.3)
            case _ if member.waits:
                pass  # its connection is held until the answer comes
            case "acknowledge":
                self.acknowledge(member)
            case "late" if member.late and member.epoch:
                self.acknowledge_late(member)
            case "vanish" if not self._refuses:
                self.vanish(member)
            case "close" if member.epoch and not self._refuses:
                self.gives_back(member)
                self.ask(member, fetch(self.topic_id, -1, member.name))
                member.epoch = 0
            case "fetch" | "wait":
                self.fetch(member, wait=2.0 if act == "wait" else 0.0)
            case _:
                pass

    def produce(self) -> None:
        first = self.log.end_offset
        values = [b"%d" % (first + i) for i in range(self.rng.randint(1, 9))]
        self.send(self._connections + 1, producing(a_batch(*values)), lambda answer: None)
        self.values.update((first + i, value) for i, value in enumerate(values))

    def abort(self) -> None:
        """A transaction writes records, and is aborted."""
        first, self._producers = self.log.end_offset, self._producers + 1
        values = [b"aborted %d" % i for i in range(self.rng.randint(1, 4))]
        data = a_batch(
            *values, producer_id=1000 + self._producers, producer_epoch=0, base_sequence=0, transactional=True
        )
        self.log.append_own(data, self.machine.now)
        if not self.committed:
            self.values.update((first + i, value) for i, value in enumerate(values))
        self.log.end_transaction(1000 + self._producers, 0, commit=False, coordinator_epoch=0, timestamp=TODAY)
        self.machine.core.grown(self.log)
        self.poll()

    def fetch(self, member: Sharer, *, wait: float = 0.0) -> None:
        strict = self.rng.random() < 0.3
        most = self.rng.randint(1, 15)
        request = fetch(
            self.topic_id,
            member.epoch,
            member.name,
            records=most,
            batch_size=self.rng.randint(1, 15),
            share_acquire_mode=RECORD_LIMIT if strict else 0,
            wait=wait,
        )
        lost = self.rng.random() < 0.1
        member.waits = True

        def answered(answer: Any) -> None:
            member.waits = False
            if answer.error_code:
                raise Broken(f"{member.name} got {answer.error_code} in epoch {member.epoch}")
            member.epoch += 1
            self.take(member, answer, most if strict else None)
            if lost and not self._refuses:
                self.vanish(member)

        self.send(member.connection, request, answered)

    def take(self, member: Sharer, answer: Any, most: int | None) -> None:
        """Check the records that a member gets."""
        got = 0
        for each in (each for topic in answer.responses for each in topic.partitions):
            read = {record.offset: record.value for record in records_of(each.records)}
            if each.error_code and not (self._refuses and each.error_code == CoordinatorNotAvailable.code):
                raise Broken(f"{member.name} got {each.error_code} {each.error_message}")
            for run in each.acquired_records:
                for offset in range(run.first_offset, run.last_offset + 1):
                    got += 1
                    self.deliver(member, offset, run.delivery_count)
                    if offset in self.values and read.get(offset) != self.values[offset]:
                        raise Broken(f"{offset} came with {read.get(offset)!r}")
                    if self.committed and (read.get(offset) or b"").startswith(b"aborted"):
                        raise Broken(f"{offset} belongs to an aborted transaction")
        if most is not None and got > most:
            raise Broken(f"{got} records, and {most} were wanted")

    def deliver(self, member: Sharer, offset: int, count: int) -> None:
        for each in self.members:
            if each.held.get(offset, (0, 0.0))[1] > self.machine.now:
                raise Broken(f"{member.name} got {offset}, which {each.name} has")
        if offset in self.done:
            raise Broken(f"{offset} was done, and came again")
        self.deliveries[offset] += 1
        if not 1 <= count <= min(LIMIT, self.deliveries[offset]):
            raise Broken(f"{offset} has the delivery count {count} of {self.deliveries[offset]}")
        if count <= self.counts.get(offset, 0) and offset not in self.unsure:
            raise Broken(f"{offset} has the delivery count {count} after {self.counts[offset]}")
        member.late.discard(offset)
        member.held[offset] = count, self.machine.now + LOCK

    def acknowledge(self, member: Sharer) -> None:
        """Acknowledge some records, with one type or one for each."""
        if not member.held or not member.epoch:
            return
        first = self.rng.choice(sorted(member.held))
        last = first
        while last + 1 in member.held and self.rng.random() < 0.8:
            last += 1
        kinds = [self.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT)) for _ in range(first, last + 1)]
        types = kinds[:1] if self.rng.random() < 0.4 else kinds
        before = dict(member.held), set(self.done), set(self.unsure), dict(self.counts)
        for offset in range(first, last + 1):  # before the answer: a fetch that waits may get a record at once
            kind = types[0] if len(types) == 1 else types[offset - first]
            count, _ = member.held.pop(offset)
            self.settle_one(offset, count, released=kind == RELEASE)
        code = self.tell(member, first, last, types)
        if code == CoordinatorNotAvailable.code and self._refuses:
            member.held, self.done, self.unsure, self.counts = before
            return
        if code:
            raise Broken(f"{member.name} has {first} to {last}, and got {code}")
        if self.rng.random() < 0.1 and not self._refuses:
            self.vanish(member)  # the answer is lost

    def acknowledge_late(self, member: Sharer) -> None:
        offset = self.rng.choice(sorted(member.late))
        member.late.discard(offset)
        if offset in member.held or offset in self.done:
            return
        code = self.tell(member, offset, offset, [ACCEPT])
        share = self.machine.core.share_partitions.find(ShareKey("g", self.topic_id, 0))
        is_done = share is not None and offset < share.start_offset  # then it is ignored
        if code not in (InvalidRecordState.code, InvalidRequest.code) and not is_done:
            raise Broken(f"{member.name} has {offset} no longer, and got {code}")

    def tell(self, member: Sharer, first: int, last: int, types: list[int]) -> int:
        answer = self.ask(member, acknowledge(self.topic_id, member.epoch, {0: [(first, last, types)]}, member.name))
        if answer.error_code:
            raise Broken(f"{member.name} got {answer.error_code} in epoch {member.epoch}")
        member.epoch += 1
        return int(answer.responses[0].partitions[0].error_code)

    def settle_one(self, offset: int, count: int, *, released: bool, stored: bool = True) -> None:
        """Take note that a delivery has ended."""
        if stored:
            self.unsure.discard(offset)
            self.counts[offset] = count
            if not released or count >= LIMIT:
                self.done.add(offset)
        else:
            self.unsure.add(offset)

    def vanish(self, member: Sharer) -> None:
        """The connection of a member is gone; it comes back with another one."""
        member.waits = False
        self._answered = {
            ticket: each for ticket, each in self._answered.items() if ticket not in self._of_connection(member)
        }
        self.gives_back(member)
        self.machine.core.lost(member.connection, self.machine.now)
        self.machine.core.disconnected(member.connection, self.machine.now)
        self._connections += 1
        member.connection, member.epoch = self._connections + 100, 0
        self.poll()

    def _of_connection(self, member: Sharer) -> set[int]:
        return {ticket for ticket, connection in self._tickets.items() if connection == member.connection}

    def gives_back(self, member: Sharer) -> None:
        """All records of a member are available again."""
        for offset, (count, _) in member.held.items():
            self.settle_one(offset, count, released=True)
        member.held.clear()
        member.late.clear()

    def pass_time(self, seconds: float) -> None:
        end = self.machine.now + seconds
        while (deadline := self.machine.core.deadline) is not None and deadline <= end:
            self.machine.now = max(self.machine.now, deadline)
            self.expire()
            self.poll()
        self.machine.now = end
        self.expire()
        self.poll()

    def expire(self) -> None:
        """Take note of the locks that expire now; the machine does so when it polls."""
        for member in self.members:
            for offset, (count, deadline) in list(member.held.items()):
                if deadline <= self.machine.now:
                    del member.held[offset]
                    member.late.add(offset)
                    self.settle_one(offset, count, released=True, stored=not self._refuses)

    def kill(self) -> None:
        """Kill the broker, and start it again."""
        before = stored(self.state)
        self.refuse(False)
        now = self.machine.now
        self.machine = self.machine.restart(clean=False)
        self.machine.now = now
        self.machine.poll()
        self._answered.clear()
        self._tickets.clear()
        for member in self.members:
            member.held.clear()
            member.late.clear()
            member.epoch, member.waits = 0, False
        self.deliveries.update(dict.fromkeys(self.unsure, 0))
        if stored(self.state) != before:
            raise Broken(f"restored as {stored(self.state)}, not as {before}")

    def refuse(self, refuses: bool) -> None:
        """Let the disk refuse the state of share partitions, or take it again."""
        log = self.machine.core.share_states._log
        if "write" in vars(log):
            del log.write
        self._refuses = refuses
        if refuses:

            def write(pairs: object, transactional: object = None) -> int:
                raise KafkaStorageError("the disk is full")

            log.write = write  # type: ignore[method-assign]

    # -- requests

    @property
    def log(self) -> Any:
        return self.machine.log()

    @property
    def state(self) -> StoredState | None:
        return self.machine.core.share_states.get(ShareKey("g", self.topic_id, 0))

    def send(self, connection: int, request: Any, answered: Callable[[Any], None]) -> None:
        ticket = self.machine.send(request, connection=connection)
        self._answered[ticket] = answered
        self._tickets[ticket] = connection
        self.poll()

    def poll(self) -> None:
        for action in self.machine.poll():
            if isinstance(action, Answer) and (answered := self._answered.pop(action.ticket, None)) is not None:
                answered(action.message)

    def ask(self, member: Sharer, request: Any) -> Any:
        answers: list[Any] = []
        self.send(member.connection, request, answers.append)
        if not answers:
            raise Broken(f"{member.name} got no answer")
        return answers[0]

    # -- promises

    def check(self) -> None:
        share = self.machine.core.share_partitions.find(ShareKey("g", self.topic_id, 0))
        if share is None:
            return
        held = {offset: run.member for run in share.runs() for offset in range(run.first, run.last + 1) if run.member}
        ours = {offset: each.name for each in self.members for offset in each.held}
        ghosts = {offset for offset in held if offset in self.unsure}
        if {offset: name for offset, name in held.items() if offset not in ghosts} != {
            offset: name for offset, name in ours.items() if offset not in ghosts
        }:
            raise Broken(f"the broker says {held}, and members have {ours}")
        if share.in_flight > 100 + 9:
            raise Broken(f"{share.in_flight} records are in flight")
        open_ = self.values.keys() - self.done
        if any(offset < share.start_offset for offset in open_ - self.unsure):
            raise Broken(f"the start is {share.start_offset}, and {min(open_)} is not done")

    def settle(self) -> None:
        """Let nothing more fail: members that do nothing lose their records, and another one gets all."""
        self.refuse(False)
        self.pass_time(2 * LOCK)
        last = Sharer("last", 9000)
        self.members.append(last)
        for _ in range(400):
            self.fetch(last)
            if last.epoch == 0:
                self.fetch(last)
            for offset in sorted(last.held):
                if self.tell(last, offset, offset, [ACCEPT]):
                    raise Broken(f"{offset} cannot be accepted in the end")
                count, _ = last.held.pop(offset)
                self.settle_one(offset, count, released=False)
            if not self.values.keys() - self.done:
                break
        archived = {offset for offset in self.unsure if self.deliveries[offset] >= LIMIT}
        if left := self.values.keys() - self.done - archived:
            raise Broken(f"{sorted(left)} are not done in the end")
        lag = progress(self.machine.ask(describe()))["t", 0][1]
        if lag > self.log.end_offset - len(self.values):  # the markers of transactions need not be acknowledged
            raise Broken(f"the lag is {lag} in the end")


def stored(state: StoredState | None) -> object:
    """Everything that a kill must restore."""
    return None if state is None else (state.start_offset, state.final, state.batches, state.state_epoch)
