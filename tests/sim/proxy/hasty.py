"""A transactional producer that ends its transactions while Produce requests are still in flight.

Our own client, and Java's, wait until all records are settled before they send EndTxn. Other clients do not: franz-go
aborts with requests in flight, and a client with a single connection may commit right after its records, because a
broker serves the requests of a connection in order.

Rules:
- The producer aborts at any time, on any connection. It commits at once only if all Produce requests went before the
  EndTxn on its connection; otherwise it commits once all records are acknowledged as stored.
- Requests that were lost with a connection are sent again, with the same sequences.
- In version 2 the next transaction begins with the answer to EndTxn, in the epoch of that answer: late requests of the
  last transaction have an old epoch.
- In version 1 the next transaction has the same epoch, so it begins once all requests of the last one are answered. If
  some were lost, and might arrive late, or their records may be stored, the producer bumps the epoch. If records have
  failed, some producers bump the epoch, and the others continue with the sequence of the first failed batch.
- A refused commit becomes an abort. If no answer comes, the producer sends the EndTxn again, or aborts, or initializes
  its transactional id again.

Source: KIP-98, KIP-360, KIP-890.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ottla.codec import frames
from ottla.codec.apis import APIS
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.find_coordinator import TRANSACTION, FindCoordinatorRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import BatchBuilder
from ottla.codec.wire import api
from ottla.errors import (
    BY_CODE,
    ConcurrentTransactions,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    NotEnoughReplicasAfterAppend,
    OperationNotAttempted,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnknownProducerId,
    UnknownServerError,
)
from ottla.sdk.events import Close, Connect, Connected, Event, Lost, Received, Send, Written
from ottla.sdk.outcome import Outcome
from tests.sim.data import Place
from tests.sim.history import code as named
from tests.sim.network import PORT
from tests.sim.process import SimulatedProcess
from tests.sim.transaction_ledger import ABORTED, COMMITTED, ENDING, UNCERTAIN
from tests.sim.transaction_ledger import Written as WrittenTransaction
from tests.sim.users import Violation

if TYPE_CHECKING:
    from tests.sim.proxy.transfers import ProxiedTransfers

PRODUCE, END, INIT, VERSIONS = 0, 26, 22, 18
METADATA, COORDINATOR, ADD = 9, 2, 3
"""Versions that every release serves."""
IMPLICIT, RISING = 12, 5
"""The versions of Produce and EndTxn that select version 2 of transactions."""
RECORDS, CONTROL = "records", "control"
"""The purposes of a connection; there is one connection to a node for each."""
AT_ONCE, SOON, WHEN_STORED = "at once", "soon", "when everything is stored"
BACKOFF = 0.05
ATTEMPTS = 30
"""Most attempts to have the records of a transaction stored."""
KEYS = 12
ABORT = {TransactionAbortable.code, PolicyViolation.code}
"""The proxy's errors for records whose transaction has to be aborted."""
LOST = {OutOfOrderSequenceNumber.code, InvalidProducerEpoch.code, ProducerFenced.code, UnknownProducerId.code}
"""Errors after which the epoch is of no use, unless they only follow from an earlier failed batch."""
UNKNOWN = {RequestTimedOut.code, NotEnoughReplicasAfterAppend.code}
"""Errors for records that may be stored."""
OVER = {InvalidProducerEpoch.code, ProducerFenced.code}
IN_PART = "a batch is committed in part"
REFUSED = "a refused batch is committed"
OVERTAKEN = "a commit overtakes the records before it"
ORDER = "records of a key are committed in another order than they were sent"

Story = Generator["float | Outcome[Any]", None, Any]
"""A script that yields seconds to sleep, or an outcome to wait for."""


def _crc32_partition(key: bytes, count: int) -> int:
    return crc32(key) % count


@dataclass(slots=True, eq=False)
class _Wire:
    key: tuple[int, str]
    node: int
    kind: str
    ready: bool = False
    busy: bool = False
    """The last request is not written yet."""
    reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    outbox: deque[bytes] = field(default_factory=deque)
    unanswered: deque[tuple[Any, int, Outcome[Any]]] = field(default_factory=deque)
    """The response's type, its version, and the outcome of the call, which gets ``None`` if no answer comes."""


@dataclass(slots=True, eq=False)
class _Batch:
    place: Place
    """The partition to which it is sent."""
    records: list[tuple[Place, bytes, bytes]]
    """For each record, the partition where it has to be stored, its key and its value."""
    sequence: int
    data: bytes
    attempts: int = 0
    answer: Outcome[Any] = field(default_factory=Outcome)
    """The answer to the last attempt."""

    @property
    def told(self) -> int | None:
        """The error code of the answer; ``None``: no answer came."""
        if self.answer.value is None:
            return None
        code: int = self.answer.value.responses[0].partition_responses[0].error_code
        return code

    @property
    def stored(self) -> bool:
        return self.told in (0, DuplicateSequenceNumber.code)


@dataclass(slots=True, eq=False)
class _Transaction:
    written: WrittenTransaction
    batches: list[_Batch]
    together: bool
    """All requests go over the connection of the EndTxn."""
    doubt: bool = False
    """An EndTxn that commits it may have reached the coordinator."""
    refused: bool = False
    """It can only be aborted."""

    @property
    def in_flight(self) -> bool:
        return any(batch.attempts and not batch.answer.done for batch in self.batches)


class Hasty(SimulatedProcess):
    """Makes ``count`` transactions, and more until one is committed after the last fault."""

    def __init__(self, world: "ProxiedTransfers", name: str, transactional_id: str, count: int, chance: Random) -> None:
        super().__init__(name, world.clock, world.network, world.history)
        self.world, self.transactional_id, self.count, self.chance = world, transactional_id, count, chance
        self.done = self.fenced = self.initialized = False
        self.since = -1
        self.renewed: Counter[int] = Counter()
        self.timeout = chance.choice((3.0, 10.0, 60.0))
        self.patience = chance.choice((1.0, 3.0, 20.0))
        """Seconds to wait for an answer."""
        self._careless = Random(f"{world.seed} {name} careless")
        self.raises = chance.random() < 0.5
        """It bumps the epoch after records have failed."""
        self.transactions: list[_Transaction] = []
        self._over = self._settled = False
        self._lost = False
        """A request of its epoch may still arrive."""
        self._newest: dict[int, int] = {}
        self._version = 1
        self._epoch = -1, -1
        self._next: defaultdict[Place, int] = defaultdict(int)
        """The next sequence of each partition."""
        self._number = 0
        self._leaders: dict[Place, int] = {}
        self._coordinator = 1
        self._wires: dict[tuple[int, str], _Wire] = {}
        self._connections = self._correlation = 0
        self._story = self._told()
        self.clock.later(0.0, self._advance)

    @property
    def process(self) -> SimulatedProcess:
        return self

    def startle(self) -> None:
        """Ignored: no call of this client can be cancelled."""

    # -- connections

    def _advance(self) -> None:
        if self.held(self._advance):
            return
        try:
            what = next(self._story)
        except StopIteration:
            self.done = True
            self._gone()
            return
        if isinstance(what, Outcome):
            what.when_done(lambda: self.clock.later(0.0, self._advance))
        else:
            self.clock.later(what, self._advance)

    def _ask(self, node: int, request: Any, version: int, kind: str = RECORDS) -> Outcome[Any]:
        """Send a request; the outcome gets its answer, or ``None`` if none comes."""
        if (node, kind) not in self._wires:
            self._connections += 1
            self._wires[node, kind] = _Wire((node, f"{kind} {self._connections}"), node, kind)
            self.network.connect(self, Connect(self._wires[node, kind].key, f"n{node}", PORT + node))
        wire = self._wires[node, kind]
        self._correlation += 1
        answer: Outcome[Any] = Outcome()
        wire.unanswered.append((APIS[api(type(request)).key].response, version, answer))
        wire.outbox.append(frames.build_request(request, version, self._correlation, self.name))
        self._write(wire)
        self.clock.later(self.patience, partial(self._give_up, wire, answer))
        return answer

    def _asked(self, node: int, request: Any, version: int, kind: str = CONTROL) -> Story:
        answer = self._ask(node, request, version, kind)
        yield answer
        return answer.value

    def _write(self, wire: _Wire) -> None:
        while wire.ready and wire.outbox and not wire.busy:
            wire.busy = not self.network.send(self, Send(wire.key, (wire.outbox.popleft(),)))

    def _give_up(self, wire: _Wire, answer: Outcome[Any]) -> None:
        """Close the connection if no answer has come in time."""
        if not answer.done and not self.held(partial(self._give_up, wire, answer)):
            self.network.close(self, Close(wire.key))
            self._broken(wire)

    def hear(self, event: Event) -> None:
        if self.held(partial(self.hear, event)):
            return
        wire = next((each for each in self._wires.values() if each.key == getattr(event, "key", None)), None)
        if wire is None:
            return
        match event:
            case Connected():
                wire.ready = True
                self._write(wire)
            case Written():
                wire.busy = False
                self._write(wire)
            case Lost():
                self._broken(wire)
            case Received(_, data):
                for frame in wire.reader.feed(data):
                    response, version, answer = wire.unanswered.popleft()
                    answer.succeed(frames.parse_response(response, version, frame)[1])

    def _broken(self, wire: _Wire) -> None:
        del self._wires[wire.node, wire.kind]
        self._lost = self._lost or bool(wire.unanswered)
        for _, _, answer in wire.unanswered:
            answer.succeed(None)

    # -- the script

    def _told(self) -> Story:
        yield from self._learn_leaders()
        yield from self._open()
        made = 0
        while not self._over and (made < self.count or not self._settled):
            made += 1
            yield from self._make(self._drawn(), in_haste=made < self.count)
            yield self.chance.choice((0.0, 0.0, 0.05, 0.3)) if made < self.count else 2.0

    def _say(self, text: str) -> None:
        self.world.say("·", self.name, text)

    def _learn_leaders(self) -> Story:
        topics, nodes = self.world.topics, self.world.nodes
        places = {(name, index) for name in topics for index in range(self.world.visible(name))}
        asked = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in topics))
        while True:
            answer = yield from self._asked(self.chance.randint(1, nodes), asked, METADATA)
            for topic in answer.topics if answer is not None else ():
                self._leaders |= {(topic.name, each.partition_index): each.leader_id for each in topic.partitions}
            if all(self._leaders.get(place, -1) > 0 for place in places):
                return
            yield BACKOFF

    def _find_coordinator(self) -> Story:
        asked = FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION)
        while True:
            answer = yield from self._asked(self.chance.randint(1, self.world.nodes), asked, COORDINATOR)
            if answer is not None and not answer.error_code:
                self._coordinator = answer.node_id
                return
            yield BACKOFF

    def _open(self, *, again: bool = False) -> Story:
        """Get an epoch: the next one if ``again``, otherwise as a new producer."""
        while not self._over:
            yield from self._find_coordinator()
            said = ApiVersionsRequest(client_software_name="hasty", client_software_version="1")
            versions = yield from self._asked(self._coordinator, said, 3)
            if versions is None:
                continue
            newest = {each.api_key: each.max_version for each in versions.api_keys}
            levels = {each.name: each.max_version_level for each in versions.finalized_features}
            producer_id, epoch = self._epoch if again else (-1, -1)
            asked = InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=int(self.timeout * 1000),
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            answer = yield from self._asked(self._coordinator, asked, min(newest[INIT], 5))
            if answer is not None and not answer.error_code:
                self._newest, self._version = newest, 2 if levels.get("transaction.version", 0) >= 2 else 1
                self._begin_epoch(answer.producer_id, answer.producer_epoch)
                return
            if answer is not None and not _passes(answer.error_code):
                self._is_fenced()
                again = False
            yield BACKOFF

    def _is_fenced(self) -> None:
        """Its own late request, or the timeout, may have fenced it; if another producer did, it stops."""
        others = [each for each in self.world.tellers if each.process is not self]
        self._over = any(each.transactional_id == self.transactional_id for each in others)
        self._say(f"is fenced; {'it stops' if self._over else 'it initializes its id again'}")

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        self._epoch, self._lost = (producer_id, epoch), False
        self._next.clear()

    # -- a transaction

    def _drawn(self) -> _Transaction:
        """A transaction with batches that are not sent yet."""
        chance, world = self.chance, self.world
        at_hand = [place for place, leader in self._leaders.items() if leader == self._coordinator]
        together = bool(at_hand) and chance.random() < 0.5
        # The proxy waits only for requests that it has received, and orders only the records of topic a.
        places = at_hand if together else [place for place in self._leaders if place[0] == "a"]
        written = world.ledger.begin(f"{self.name}.{len(world.ledger.transactions)}")
        written.ordered = False  # only the records of a key are ordered, and `check` compares these
        batches = [self._batch(chance.choice(places), written.name) for _ in range(chance.choice((1, 1, 2, 3, 5)))]
        made = _Transaction(written, batches, together)
        self.transactions.append(made)
        return made

    def _batch(self, place: Place, name: str) -> _Batch:
        topic, count = place[0], self.world.topics[place[0]]
        visible = self.world.visible(topic)
        keys = [key for n in range(KEYS * count) if _crc32_partition(key := b"%d" % n, visible) == place[1]]
        records: list[tuple[Place, bytes, bytes]] = []
        builder = BatchBuilder()
        for _ in range(self.chance.choice((1, 2, 3))):
            self._number += 1
            key, value = self.chance.choice(keys), f"{name}.{self._number}".encode()
            value += b"." * self.chance.choice((0, 0, 300))
            there = place
            if topic == "a" or self.world.rules_change:
                there = topic, murmur2_partition(key, count)
            if topic != "a" and self.world.rules_change:
                self.world.ledger.moved[value] = there, place
            records.append((there, key, value))
            builder.append(1000, key, value)
        sequence = self._next[place]
        self._next[place] += len(records)
        producer_id, epoch = self._epoch
        data = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        return _Batch(place, records, sequence, data)

    def _make(self, made: _Transaction, *, in_haste: bool) -> Story:
        """Begin a transaction, and end it."""
        chance = self.chance
        forgets = self._careless.random() < 0.1 and all(batch.place[0] == "a" for batch in made.batches)
        if self._version < 2 and forgets:
            self.world.features["a hasty client does not add its partitions"] += 1
            in_haste = False  # the coordinator might take the commit for a repetition of the one before
        elif self._version < 2 and not (yield from self._add(made)):
            made.written.outcome = ABORTED
            return
        for batch in made.batches:
            self._produce(batch)
        if made.together and any(self._leaders[batch.place] != self._coordinator for batch in made.batches):
            made.together, in_haste = False, False  # the coordinator has moved since
        way = chance.choice((AT_ONCE, AT_ONCE, SOON, WHEN_STORED)) if in_haste else WHEN_STORED
        if way == WHEN_STORED:
            commits = (yield from self._have_stored(made)) and (chance.random() < 0.8 or not in_haste)
        else:
            if way == SOON:
                yield chance.choice((0.001, 0.004, 0.02, 0.2))
            in_order = made.together and all(batch.stored or not batch.answer.done for batch in made.batches)
            commits = in_order and chance.random() < 0.6
        yield from self._end(made, commits=commits)

    def _add(self, made: _Transaction) -> Story:
        """Add the partitions to the transaction; return whether that succeeded, otherwise the epoch has changed."""
        topics: defaultdict[str, set[int]] = defaultdict(set)
        for batch in made.batches:
            topics[batch.place[0]].add(batch.place[1])
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._epoch[0],
            v3_and_below_producer_epoch=self._epoch[1],
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(sorted(each))) for name, each in topics.items()
            ),
        )
        while True:
            answer = yield from self._asked(self._coordinator, asked, ADD)
            found = answer.results_by_topic_v3_and_below if answer is not None else ()
            codes = {each.partition_error_code for topic in found for each in topic.results_by_partition}
            if answer is not None and not any(codes):
                return True
            if not all(_passes(each) or each in (0, OperationNotAttempted.code) for each in codes):
                self._say(f"cannot add partitions: {', '.join(map(named, codes))}")
                if codes & OVER:
                    self._is_fenced()
                yield from self._open()
                return False
            yield BACKOFF
            yield from self._find_coordinator()

    def _produce(self, batch: _Batch) -> None:
        newest = min(self._newest[PRODUCE], IMPLICIT if self._version > 1 else IMPLICIT - 1)
        topic = TopicProduceData(
            name=batch.place[0], partition_data=(PartitionProduceData(index=batch.place[1], records=batch.data),)
        )
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=1000, topic_data=(topic,))
        batch.attempts += 1
        batch.answer = self._ask(self._leaders[batch.place], request, newest)

    def _have_stored(self, made: _Transaction) -> Story:
        """Wait until all batches are stored, and send the others again; return whether all are stored."""
        for _ in range(ATTEMPTS):
            for batch in made.batches:
                yield batch.answer
            left = [batch for batch in made.batches if not batch.stored]
            if not left:
                return True
            first = {batch.place: batch for batch in reversed(left)}
            if not all(_passes(first[batch.place].told) for batch in left):  # the batches after it follow a gap
                return False
            yield BACKOFF
            yield from self._learn_leaders()
            for batch in left:
                self._produce(batch)
        return False

    # -- the end of a transaction

    def _end(self, made: _Transaction, *, commits: bool) -> Story:
        features, written = self.world.features, made.written
        kind = RECORDS if made.together else self.chance.choice((RECORDS, CONTROL))
        if made.in_flight:
            features[f"a transaction is to be {COMMITTED if commits else ABORTED} with records in flight"] += 1
        while True:
            written.outcome = ENDING if commits else UNCERTAIN if made.doubt else ABORTED
            self._say(f"{written.name} is {'committed' if commits else 'aborted'}, {_said(made.batches)}")
            asked = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._epoch[0],
                producer_epoch=self._epoch[1],
                committed=commits,
            )
            version = RISING if self._version > 1 else min(self._newest[END], RISING - 1)
            answer = yield from self._asked(self._coordinator, asked, version, kind)
            code = None if answer is None else answer.error_code
            if code == 0:
                break
            made.doubt = made.doubt or (commits and _passes(code) and code != ConcurrentTransactions.code)
            if _passes(code):
                yield BACKOFF
                yield from self._find_coordinator()
                if commits and code is None:
                    commits = yield from self._go_on_committing(made)
            elif commits and code in (TransactionAbortable.code, UnknownProducerId.code):
                features["a commit is refused, and becomes an abort"] += 1
                commits, made.refused = False, True
            else:
                written.outcome = UNCERTAIN if made.doubt or commits else ABORTED
                self._say(f"{written.name} cannot be ended: {named(code or 0)}")
                if code in OVER:
                    self._is_fenced()
                yield from self._open()
                return
        written.outcome = COMMITTED if commits else ABORTED
        features[f"a hasty transaction is {written.outcome}"] += 1
        self._settled |= self.world.in_peace and commits
        if answer.producer_id >= 0:
            features["a transaction begins with records of the one before in flight"] += made.in_flight
            self._begin_epoch(answer.producer_id, answer.producer_epoch)
        else:
            yield from self._stay_in_epoch(made)

    def _go_on_committing(self, made: _Transaction) -> Story:
        """A connection was lost with the EndTxn, and maybe with records before it; return whether to commit."""
        if self.chance.random() < 0.3:
            return False
        lost = [batch for batch in made.batches if batch.told is None]
        at_hand = made.together and all(batch.answer.done for batch in lost)
        if at_hand and all(self._leaders[batch.place] == self._coordinator for batch in lost):
            for batch in lost:
                self._produce(batch)
            return True
        return (yield from self._have_stored(made))

    def _stay_in_epoch(self, made: _Transaction) -> Story:
        """In version 1, begin the next transaction in the same epoch, if no request of this one can arrive late."""
        for batch in made.batches:
            yield batch.answer
        failed = [batch for batch in made.batches if not batch.stored]
        first = {batch.place: batch.told for batch in reversed(failed)}
        if self._lost or UNKNOWN & {batch.told for batch in failed}:
            yield from self._open(again=self.chance.random() < 0.5)
        elif made.refused or (failed and self.raises) or LOST & {*first.values()}:
            yield from self._open(again=True)
        else:
            self.world.features["an epoch goes on behind records that have failed"] += bool(failed)
            for batch in reversed(failed):
                self._next[batch.place] = batch.sequence

    # -- the checks

    def account(self) -> None:
        """Put the outcome of each record into the ledger."""
        for made in self.transactions:
            made.written.values = [
                (place, value) for batch in made.batches if batch.stored for place, _, value in batch.records
            ]
            made.written.perhaps = [
                (place, value) for batch in made.batches if not batch.stored for place, _, value in batch.records
            ]

    def check(self, seen: dict[Place, list[bytes]], *, forgetful: bool) -> None:
        """Check the records that a read_committed consumer gets, in addition to the ledger's checks.

        Args:
            seen: the values in each partition.
            forgetful: the proxy may have lost its state of a transaction.

        Raises:
            Violation: they are not as they have to be.
        """
        at = {(place, value): n for place, values in seen.items() for n, value in enumerate(values)}
        last: dict[tuple[object, bytes], int] = {}
        astray, moved = self.world.ledger.astray, self.world.ledger.moved
        for made in self.transactions:
            for batch in made.batches:
                where = f"{made.written.name}, sent to {batch.place[0]}-{batch.place[1]} at {batch.sequence}"
                where += f" and answered {named(batch.told or 0) if batch.told is not None else 'not at all'}"
                records = [each for each in batch.records if each[2] not in astray]
                found = [at[place, value] for place, _, value in records if (place, value) in at]
                if found and len(found) < len(records):
                    raise Violation(IN_PART, f"{where}: {len(found)} of {len(records)} records")
                if batch.place[0] == "a" and batch.attempts == 1:  # the proxy passes other topics on unchanged
                    if found and batch.told not in {None} | UNKNOWN and not batch.stored:
                        raise Violation(REFUSED, where)
                    if made.written.outcome == COMMITTED and batch.told in ABORT | OVER and not forgetful:
                        raise Violation(OVERTAKEN, where)
                for place, key, value in records if found else ():
                    ordered = (made, key) if value in moved else (place, key)  # other transactions may use another rule
                    if at[place, value] < last.get(ordered, -1):
                        raise Violation(ORDER, f"{where}: {value.decode()}")
                    last[ordered] = at[place, value]


def _passes(code: int | None) -> bool:
    """Whether it is worth trying again."""
    return code is None or (code > 0 and BY_CODE.get(code, UnknownServerError).retriable)


def _said(batches: Iterable[_Batch]) -> str:
    """The outcome of each batch, for people."""
    known = (
        (
            batch,
            "in flight" if not batch.answer.done else "lost" if batch.told is None else named(batch.told) or "stored",
        )
        for batch in batches
    )
    return ", ".join(f"{each.place[0]}-{each.place[1]} at {each.sequence} {text}" for each, text in known)
