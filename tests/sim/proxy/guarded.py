"""One run: clients of a proxy with ACLs. They lose rights, and get them back; their sessions end.

Every client is a principal of its own. Some write, some read, some are members of a group, and some write in
transactions. A thief writes into the transactions of others, and commits offsets of their group. No client has a right
on topic ``secret``.

Promises:
- A record is stored, read or committed only if the ACLs allowed its request when the request came. The response to a
  Fetch has no records that its client may not read any more.
- Upstream gets no denied request.
- No allowed record is lost: if its client had the right all the time, it is stored, once and in order.
- An error of authorization is true, and names the topic, the group or the transactional id.
- Once rights come back, clients go on: they write, read to the end, and commit.
- A Fetch waits no longer than the session of its client lasts.
- The proxy logs no bug of its own, and holds no memory in the end.
"""

import re
import traceback
from collections import Counter, defaultdict
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from ottla.codec import frames
from ottla.codec.apis.create_acls import ResourceType
from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.codec.apis.join_group import JoinGroupRequest
from ottla.codec.apis.list_offsets import EARLIEST
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.codec.records import BatchBuilder, parse_batch
from ottla.errors import (
    BrokerError,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    OttlaError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ottla.proxy import core
from ottla.proxy.clients.access import guard
from ottla.proxy.clients.access.fetches import ConnectionFetchSessions
from ottla.proxy.clients.access.guard import Guard
from ottla.proxy.clients.access.owners import ProducerOwners
from ottla.proxy.clients.access.screening import PASS, Asked
from ottla.proxy.clients.carried import JOIN_GROUP, METADATA, OFFSET_COMMIT
from ottla.proxy.config import ProxyConfig
from ottla.proxy.listeners import ProxyListener
from ottla.proxy.topic_rule import parse_rule
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.core import ConsumerCore
from ottla.sdk.consume.options import ConsumerOptions, ConsumerPlan
from ottla.sdk.consume.reading import fetch_answers
from ottla.sdk.consume.reading.fetcher import Fetcher, Offset, Start, Time
from ottla.sdk.events import Close, Connect, Connected, Event, Lost, Send
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.options import Options
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.records import PendingRecord
from ottla.sdk.transaction.core import TransactionCore
from tests.sim.clock import Clock
from tests.sim.cluster import ModelCluster
from tests.sim.data import Place
from tests.sim.history import History
from tests.sim.mutations import Mutations
from tests.sim.network import PORT, Link, Network
from tests.sim.process import SimulatedProcess
from tests.sim.proxy.process import Bugs, ProxyProcess
from tests.sim.proxy.rights import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, Held, Logins, Rights
from tests.sim.run import Result, logged_to
from tests.sim.users import Process, Script, Tasks, Violation

TOPICS = {"orders": 2, "bills": 1}
SECRET = "secret"
ALL = {**TOPICS, SECRET: 1}
BILLING = "billing"
LIMIT = 120.0
"""Seconds after the last change of rights within which everything has to be done."""
LOOK = 0.25
"""Seconds between two checks whether everything is done."""
LATE = 1.0
"""Seconds by which a request, or its answer, may come after a change of rights."""
LATEST = 5.0
"""Seconds for which an error of authorization may be old: a client may have waited before it raises it."""
DENIED: dict[type[BrokerError], ResourceType] = {
    TopicAuthorizationFailed: TOPIC,
    GroupAuthorizationFailed: GROUP,
    TransactionalIdAuthorizationFailed: TRANSACTIONAL_ID,
    ClusterAuthorizationFailed: ResourceType.CLUSTER,
}

STORED = "a record is stored that its client may not write"
READ_DENIED = "records are handed to a client that may not read them"
UPSTREAM = "upstream gets a request for what its client may not do"
FALSE = "a client is refused what it may do"
NAMELESS = "an error of authorization does not name what it is about"
LOST_RECORD = "a record that was acknowledged is lost, stored twice, or out of order"
SHOWN = "a client sees a topic that it may not describe"
WAITS = "a Fetch waits longer than the session of its client lasts"
STOLEN = "a client writes into the transaction of another"


@dataclass(slots=True, eq=False)
class Sent:
    """A record of a client.

    Attributes:
        acknowledged: the client got a receipt; in a transaction, its commit, too.
    """

    client: str
    number: int
    topic: str
    at: float
    acknowledged: bool = False

    @property
    def value(self) -> bytes:
        return f"{self.client}.{self.number}".encode()


class World:
    """The world of one seed."""

    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.seed, self.chance = seed, Random(f"{seed} guarded")
        chance = self.chance
        self.clock = Clock()
        self.history = History(self.clock, told)
        self.seconds = chance.choice((3.0, 6.0, 10.0))
        self.nodes = chance.choice((1, 2, 3))
        release = chance.choice(("3.9", "4.3", "4.3"))
        self.back = Network(self.clock, Random(seed + 1), self.history)
        self.front = Network(self.clock, Random(seed + 2), self.history)
        self.cluster = ModelCluster(
            self.clock, Random(seed + 3), self.back, self.history, ALL, self.nodes, release, transactions=True
        )
        self.features: Counter[str] = self.cluster.data.features
        self.back.cluster, self.back.features, self.front.features = self.cluster, self.features, self.features
        self.rights = Rights(self.clock, self._all_rights())
        self.logins = Logins(self.clock, Random(f"{seed} logins"), self.features, self.seconds)
        rule = chance.choice((None, "orders=rewrite", "orders=observe"))
        listener = ProxyListener(protocol="SASL_PLAINTEXT", host="proxy", port=9092, sasl=self.logins.settings)  # type: ignore[arg-type]
        config = ProxyConfig(
            upstream="n1:9092",
            listeners=(listener,),
            topics=() if rule is None else (parse_rule(rule),),
            acls=self.rights.acls(),
            delivery_timeout=10_000.0,
        )
        self.proxy = ProxyProcess(self.clock, self.front, self.back, self.history, config, self.nodes, seed)
        self.proxy.door = self.logins
        self.front.delivered, self.back.sent = self._delivered, self._sent_upstream
        self._take_in()
        self.options = Options(
            sasl=self.logins.sasl,
            delivery_timeout=10_000.0,
            api_timeout=30.0,
            request_timeout=chance.choice((5.0, 30.0)),
            fetch_max_wait=chance.choice((0.5, 2.0, 20.0)),
            metadata_max_age=chance.choice((1.0, 300.0)),
        )
        self.processes: dict[str, Process] = {}
        self.sent: dict[bytes, Sent] = {}
        self.came: set[bytes] = set()
        """The records that came to the proxy in a request that was allowed."""
        self.readers: list[Reader] = []
        self.writing = 0
        """Clients that still write."""
        self.thief: Thief | None = None

    def _all_rights(self) -> list[Held]:
        held = [Held(f"w{n}", WRITE, TOPIC, topic) for n in range(2) for topic in TOPICS]
        held += [Held("r0", READ, TOPIC, topic) for topic in TOPICS]
        for member in ("m0", "m1"):
            held += [Held(member, READ, TOPIC, topic) for topic in TOPICS]
            held.append(Held(member, READ, GROUP, BILLING))
        for teller in ("t0", "x0"):
            held += [Held(teller, WRITE, TOPIC, topic) for topic in TOPICS]
            held.append(Held(teller, WRITE, TRANSACTIONAL_ID, f"id-{teller}"))
        return held

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    def process(self, name: str) -> Process:
        chance = Random(f"{self.seed} {name} client")
        made = Process(name, self.clock, self.front, self.history, self.options, self.nodes, chance)
        made.fetch = self.logins.fetch
        self.processes[name] = made
        return made

    # -- changes

    def _plan(self) -> None:
        own = Random(f"{self.seed} changes")
        for _ in range(own.choice((3, 6, 12))):
            self.clock.at(own.uniform(0.2, self.seconds), partial(self._take_away, own))
        for _ in range(own.choice((0, 2, 5))):
            self.clock.at(own.uniform(0.5, self.seconds), partial(self._cut, own))
        self.clock.at(self.seconds + 0.01, self._give_everything_back)

    def _take_away(self, own: Random) -> None:
        taken = own.sample(self.rights.held, own.choice((1, 1, 2, 5)))
        for each in taken:
            self.rights.take(each, by_deny=own.random() < 0.5)
            self.features[f"a right on a {each.kind.name.lower()} is taken away"] += 1
            self.say("!", each.client, f"may not {each.operation.name} {each.name}")
        self.proxy.reload_acls(self.rights.acls())
        self.clock.later(own.choice((0.05, 0.5, 2.0)), partial(self._give_back, taken))

    def _give_back(self, taken: list[Held]) -> None:
        for each in taken:
            self.rights.give_back(each)
            self.say("!", each.client, f"may {each.operation.name} {each.name}")
        self.proxy.reload_acls(self.rights.acls())

    def _give_everything_back(self) -> None:
        self._give_back(self.rights.held)

    def _cut(self, own: Random) -> None:
        links = [*self.front.links.values()]
        for link in own.sample(links, min(len(links), own.choice((1, 3)))):
            self.front.cut(link, "the wire broke")

    # -- requests and responses

    def _take_in(self) -> None:
        """Note the records of each request at the moment in which the proxy gets it."""
        admit = self.front.admit

        def admitted(link: Link, version: int, message: Any, reply: Any, close: Any) -> bool:
            if isinstance(message, ProduceRequest):
                for topic, batch in self._batches(message):
                    if self._may_write(link.client.name, topic, message.transactional_id):
                        self.came |= {bytes(each.value or b"") for each in batch.records()}
            return admit(link, version, message, reply, close)

        self.front.admit = admitted

    def _batches(self, message: ProduceRequest) -> list[tuple[str, Any]]:
        return [
            (self.cluster.ever_named(topic), parse_batch(data.records))
            for topic in message.topic_data
            for data in topic.partition_data
            if data.records
        ]

    def _may_write(self, client: str, topic: str, transactional_id: str | None) -> bool:
        if transactional_id is not None and not self.rights.has(
            Held(client, WRITE, TRANSACTIONAL_ID, transactional_id)
        ):
            return False
        return self.rights.has(Held(client, WRITE, TOPIC, topic))

    def _sent_upstream(self, link: Link, message: Any) -> None:
        since, client = self.clock.now - LATE, link.client_id or ""
        if client not in self.processes and (self.thief is None or client != self.thief.name):
            return  # the proxy's own
        needed: list[Held] = []
        match message:
            case ProduceRequest():
                for topic, batch in self._batches(message):
                    value = bytes(next(iter(batch.records())).value or b"")
                    if value not in self.came:
                        raise Violation(UPSTREAM, f"{client}: {value!r} for {topic}")
            case FetchRequest():
                needed = [Held(client, READ, TOPIC, self.cluster.ever_named(each)) for each in message.topics]
                ends = [info.session_ends_at for info in self.logins._infos.values() if info.peer_host == client]
                if self.clock.now + message.max_wait_ms / 1000 > max(ends, default=0.0) + LATE:
                    raise Violation(WAITS, f"{client}: {message.max_wait_ms} ms")
            case OffsetCommitRequest():
                needed = [Held(client, READ, TOPIC, self.cluster.ever_named(each)) for each in message.topics]
                needed.append(Held(client, READ, GROUP, message.group_id))
            case JoinGroupRequest():
                needed = [Held(client, READ, GROUP, message.group_id)]
        for each in needed:
            if not self.rights.had(each, since):
                raise Violation(UPSTREAM, f"{type(message).__name__}: {each}")

    def _delivered(self, link: Link, request: Any, answer: Any) -> None:
        client = link.client.name
        if isinstance(answer, MetadataResponse):
            for each in answer.topics:
                if each.name == SECRET and not each.error_code:
                    raise Violation(SHOWN, f"{client}: {SECRET}")
        if not isinstance(answer, FetchResponse):
            return
        for topic in answer.responses:
            name = self.cluster.ever_named(topic)
            if any(each.records for each in topic.partitions) and not self.rights.has(Held(client, READ, TOPIC, name)):
                raise Violation(READ_DENIED, f"{client}: {name}")

    # -- errors

    def judge(self, client: str, error: BaseException, since: float) -> bool:
        """Check an error that a client got for a call that began at ``since``; returns whether it is a denial."""
        causes = [error]
        while (cause := causes[-1].__cause__ or getattr(causes[-1], "cause", None)) is not None:
            causes.append(cause)
        denied = next((each for each in causes if isinstance(each, BrokerError) and type(each) in DENIED), None)
        if denied is None:
            return False
        self.features[f"a client gets {type(denied).__name__}"] += 1
        words = {*re.split(r"[^\w-]+|-\d+\b", str(error))}
        own = [each for each in self.rights.held if each.client == client]
        if SECRET not in words and not any(each.name in words for each in own):
            raise Violation(NAMELESS, f"{client}: {error!r}")
        if isinstance(denied, ClusterAuthorizationFailed):  # an idempotent producer needs Write on any topic
            needed = [each for each in own if each.kind is TOPIC]
        elif isinstance(denied, TransactionalIdAuthorizationFailed):  # of records it names the partition
            needed = [each for each in own if each.kind is TRANSACTIONAL_ID]
        else:
            needed = [each for each in own if each.kind is DENIED[type(denied)] and each.name in words]
        if SECRET not in words and not any(self.rights.was_missing(each, since - LATEST) for each in needed):
            raise Violation(FALSE, f"{client}: {error!r}")
        return True

    # -- the run

    def _people(self) -> None:
        for number in range(2):
            writer = Writer(self, f"w{number}")
            self.introduce(writer.process, writer.script())
        teller = Teller(self, "t0")
        self.introduce(teller.process, teller.script())
        self.thief = Thief(self, "id-t0")
        reader = Reader(self, "r0")
        self.readers.append(reader)
        reader.process.run(reader.script())
        for number in range(2):
            member = Member(self, f"m{number}")
            member.process.run(member.script())

    def introduce(self, process: Process, script: Script) -> None:
        """Run a client that writes."""
        self.writing += 1
        process.run(script, self._written)

    def _written(self) -> None:
        self.writing -= 1

    def _left(self) -> str:
        if self.clock.now < self.seconds or self.writing:
            return f"{self.writing} clients still write"
        ends = {place: self.cluster.logs[place].high_watermark for place in self.places}
        left = [f"{each.process.name} has not read {place}" for each in self.readers for place in each.behind(ends)]
        left += [
            f"{BILLING} has not committed {place}: {self._committed(place)} of {end}"
            for place, end in ends.items()
            if self._committed(place) < self._last_record(place)
        ]
        return "; ".join(left)

    @property
    def places(self) -> list[Place]:
        return [(topic, index) for topic, count in TOPICS.items() for index in range(count)]

    def _committed(self, place: Place) -> int:
        group = self.cluster.groups.groups.get(BILLING)
        return group.offsets.get(place, (0, -1, ""))[0] if group is not None else 0

    def _last_record(self, place: Place) -> int:
        """The offset after the last record; markers of transactions may follow."""
        return max((each.end for each in self.cluster.logs[place].batches if each.commits is None), default=0)

    def run(self) -> Result:
        violation = None
        bugs = Bugs()
        with logged_to(bugs):
            try:
                self.proxy.start()
                self._plan()
                self._people()
                look = 0.0
                while self.clock.now < look or self._left():
                    look = max(look, self.clock.now + LOOK)
                    while self.clock.now < look and self.clock.step():
                        pass
                    if self.clock.now > self.seconds + LIMIT:
                        raise Violation("everything has to be done by now", self._left())
                self._check()
                bugs.check()
            except Violation as broken:
                violation = broken
            except Exception as error:  # any exception of a machine is a finding
                violation = Violation("a machine raises", "".join(traceback.format_exception(error)))
        return Result(
            *(self.seed, violation, self.history.lines, self.clock.now, len(self.sent), self.back.requests),
            self.features,
        )

    def _check(self) -> None:
        stored: defaultdict[bytes, list[tuple[Place, int]]] = defaultdict(list)
        for place, log in self.cluster.logs.items():
            if place[0] not in ALL:
                continue
            for batch in log.batches:
                for record in batch.read() if batch.commits is None else ():
                    stored[bytes(record.value or b"")].append((place, record.offset))
        for value in stored:
            if value.startswith(b"x0"):
                raise Violation(STOLEN, f"{value!r}")
            if value not in self.came:
                raise Violation(STORED, f"{value!r}")
        numbers: defaultdict[tuple[str, Place], list[tuple[int, int]]] = defaultdict(list)
        for sent in self.sent.values():
            found = stored[sent.value]
            if len(found) > 1 or (sent.acknowledged and not found):
                raise Violation(LOST_RECORD, f"{sent.value!r}: {found}")
            if sent.acknowledged:
                numbers[sent.client, found[0][0]].append((sent.number, found[0][1]))
        for who, pairs in numbers.items():
            if [offset for _, offset in sorted(pairs)] != sorted(offset for _, offset in pairs):
                raise Violation(LOST_RECORD, f"{who}: {pairs}")
        for each in [*self.processes.values()]:
            each.close()
        until = self.clock.now + 30.0
        while self.clock.now < until and self.clock.step():
            pass
        machine = self.proxy.core
        if machine is None or machine.buffered.total or machine.buffered.of:
            raise Violation("the proxy holds memory in the end", f"{machine and machine.buffered.of}")


class User:
    """A client that is a principal."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.process = world, world.process(name)
        self.chance = Random(f"{world.seed} {name}")

    @property
    def name(self) -> str:
        return self.process.name

    def heard(self, error: OttlaError, since: float) -> None:
        """Check the error of a call."""
        self.world.say("·", self.name, f"gets {error!r}")
        if not self.world.judge(self.name, error, since):
            raise Violation("a client gets an error for no reason", f"{self.name}: {error!r}") from error


class Writer(User):
    """Writes records, and awaits each; now and then to a topic that it may not write to."""

    def script(self) -> Script:
        world, process, chance = self.world, self.process, self.chance
        yield from self.process.connect()
        options = ProducerOptions(linger=chance.choice((0.0, 0.01)), partitioner="murmur2")
        machine = process.do(lambda: ProducerCore(process.core, options, chance))
        number, last = 0, 0
        denied: set[str] = set()
        """Topics of denied records; an earlier attempt of the last one may have been stored without an answer."""
        while last < len(TOPICS):
            over = world.clock.now > world.seconds
            topic = [*TOPICS][last] if over else chance.choice((*TOPICS, *TOPICS, *TOPICS, SECRET))
            number += 1
            sent = Sent(self.name, number, topic, world.clock.now)
            world.sent[sent.value] = sent
            record = PendingRecord(topic, sent.value, b"k%d" % chance.randrange(5), None, (), 1000, None)
            try:
                yield from process.perform(machine.send(record), f"the receipt of {sent.value!r}", within=LIMIT)
            except OttlaError as error:
                if isinstance(error, OutOfOrderSequenceNumber) and topic in denied:
                    world.features["a client cannot know whether a denied record is stored"] += 1
                    denied.discard(topic)
                else:
                    self.heard(error, sent.at)
                    denied.add(topic)
                yield chance.uniform(0.0, 0.1)
                if machine.fatal is not None:  # as an application does
                    with suppress(OttlaError):
                        yield from process.perform(machine.leave(None), "the end of a producer")
                    machine = process.do(lambda: ProducerCore(process.core, options, chance))
                    denied.clear()
                continue
            sent.acknowledged = True
            denied.discard(topic)
            last += over
            yield chance.choice((0.0, 0.0, 0.01, 0.1))


class Teller(User):
    """Writes in transactions, and tries each until it is committed or denied."""

    def script(self) -> Script:
        world, process, chance = self.world, self.process, self.chance
        yield from self.process.connect()
        options = ProducerOptions(transactional_id=f"id-{self.name}", partitioner="murmur2", transaction_timeout=60.0)
        number = 0
        committed = False
        machine: ProducerCore | None = None
        while not committed:
            since, made = world.clock.now, list[Sent]()
            over = world.clock.now > world.seconds
            if machine is None or machine.fatal is not None:
                machine = process.do(lambda: ProducerCore(process.core, options, chance))
            transaction = TransactionCore(process.core, machine)
            error: OttlaError | None = None
            try:
                yield from process.perform(transaction.begin(), "begin", within=LIMIT)
            except OttlaError as failed:
                self.heard(failed, since)
                yield 0.1
                continue
            try:
                for _ in range(chance.choice((1, 2, 5))):
                    number += 1
                    sent = Sent(self.name, number, chance.choice([*TOPICS]), world.clock.now)
                    world.sent[sent.value] = sent
                    made.append(sent)
                    record = PendingRecord(sent.topic, sent.value, b"k", None, (), 1000, None)
                    yield from process.perform(machine.send(record), "a receipt", within=LIMIT)
                    yield chance.choice((0.0, 0.05))
            except OttlaError as failed:
                error = failed
            try:
                yield from process.perform(transaction.leave(error), "the end of a transaction", within=LIMIT)
            except OttlaError as failed:
                error = error or failed
            if error is not None:
                self.heard(error, since)
                yield 0.05
            elif transaction.committed:
                world.features["a transaction is committed"] += 1
                committed = over
                for each in made:
                    each.acknowledged = True
            yield chance.choice((0.0, 0.1))


class Reader(User):
    """Reads partitions without a group."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.next: dict[Place, int] = dict.fromkeys(world.places, 0)

    def script(self) -> Script:
        process, plan = self.process, ConsumerPlan(start=Time(EARLIEST))
        yield from process.connect()
        while True:
            fetcher = process.do(partial(Fetcher, process.core))
            machine = process.do(partial(ConsumerCore, process.core, plan, fetcher, Tasks()))
            starts: dict[Place, Start | None] = {place: Offset(at) for place, at in self.next.items()}
            since = self.world.clock.now
            try:
                yield from process.perform(machine.enter(starts, self.name), "opening a consumer")
                yield from self._read_on(machine)
            except OttlaError as error:
                self.heard(error, since)
                with suppress(OttlaError):
                    yield from process.perform(machine.leave(error, self.name), "leaving")
                yield 0.2

    def _read_on(self, machine: ConsumerCore) -> Script:
        """Read; a partition that could not be read is read on after a seek."""
        process = self.process
        while True:
            since = self.world.clock.now
            try:
                fetched, _ = yield from process.perform(machine.next_batch(self.name), "records")
            except TopicAuthorizationFailed as error:
                self.heard(error, since)
                yield 0.05
                back = {place: Offset(at) for place, at in self.next.items() if f"{place[0]}-{place[1]}" in str(error)}
                yield from process.perform(machine.navigation.seek(back), "seek")
            else:
                self._read((fetched.topic, fetched.partition), [each.offset for each in fetched.records()])

    def _read(self, place: Place, offsets: list[int]) -> None:
        visible = [
            record.offset
            for batch in self.world.cluster.logs[place].batches
            if batch.commits is None
            for record in batch.read()
            if self.next[place] <= record.offset <= offsets[-1]
        ]
        if offsets != visible:
            raise Violation(LOST_RECORD, f"{self.name} reads {offsets} of {place}, not {visible}")
        self.next[place] = offsets[-1] + 1

    def behind(self, ends: dict[Place, int]) -> list[Place]:
        return [place for place in ends if self.next[place] < self.world._last_record(place)]


class Member(User):
    """A member of the group, which commits each batch; it joins again if the group refuses it."""

    def script(self) -> Script:
        process, world = self.process, self.world
        yield from self.process.connect()
        options = ConsumerOptions(group=BILLING)
        member = MemberOptions(session_timeout=6.0, heartbeat_interval=1.0, group_protocol="classic")
        plan = ConsumerPlan(start=Time(EARLIEST), topics=(*TOPICS,), member=member, options=options)
        while True:
            fetcher = process.do(lambda: Fetcher(process.core, reset=Time(EARLIEST)))
            machine = process.do(partial(ConsumerCore, process.core, plan, fetcher, Tasks()))
            since = world.clock.now
            try:
                yield from process.perform(machine.enter({}, self.name), "opening a consumer")
                while True:
                    since = world.clock.now
                    fetched, claim = yield from process.perform(machine.next_batch(self.name), "the next batch")
                    place = (fetched.topic, fetched.partition)
                    at = CommittedOffset(fetched.next_offset, fetched.leader_epoch)
                    yield from process.perform(machine.committer.commit_batch(place, at, claim), "commit")
            except OttlaError as error:
                self._heard(error, since)
                with suppress(OttlaError):
                    yield from process.perform(machine.leave(error, self.name), "leaving the group")
                yield 0.2

    def _heard(self, error: OttlaError, since: float) -> None:
        if not self.world.judge(self.name, error, since):
            self.world.features[f"a member begins again after {type(error).__name__}"] += 1


class Thief(SimulatedProcess):
    """Writes with a transactional id of its own and the producer id of a teller whose transaction is open.

    It also commits offsets of the group, on which it has no right.

    Rule: it uses topic ``bills``, whose records the proxy passes on, and the sequence that the leader expects next.
    """

    def __init__(self, world: World, victim: str) -> None:
        super().__init__("x0", world.clock, world.front, world.history)
        self._world, self._victim = world, victim
        self._number = 0
        self._key: tuple[int, str] | None = None
        self._connect()

    def _connect(self) -> None:
        self._number += 1
        self._key = self._number, self.name
        node = self._world.cluster.leaders["bills", 0].node
        self.network.connect(self, Connect(self._key, f"n{node}", PORT + node))

    def hear(self, event: Event) -> None:
        if getattr(event, "key", None) != self._key:
            return
        match event:
            case Connected(key):
                token = self._world.logins.token_of(self.name)
                self._ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
                self._ask(SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer %s\x01\x01" % token), 1)
                self.clock.later(0.05, partial(self._steal, key))
            case Lost():
                self._key = None
                if self.clock.now < self._world.seconds:
                    self.clock.later(0.1, self._connect)

    def _ask(self, message: Any, version: int) -> None:
        if self._key is not None:
            self.network.send(self, Send(self._key, (frames.build_request(message, version, 1, self.name),)))

    def _steal(self, key: tuple[int, str]) -> None:
        """Steal, as often as there is an open transaction."""
        if key != self._key:
            return
        if self.clock.now > self._world.seconds:
            self.network.close(self, Close(key))
            return
        self.clock.later(0.02, partial(self._steal, key))
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=10**6, committed_metadata=None)
        topic = OffsetCommitRequestTopic(name="bills", partitions=(place,))
        self._ask(OffsetCommitRequest(group_id=BILLING, topics=(topic,)), 7)
        log = self._world.cluster.logs["bills", 0]
        for producer in self._world.proxy.core.admission.producers if self._world.proxy.core else ():
            its = producer.transaction
            state = log.producers.get(producer.producer_id or -1)
            if its is None or its.transactional_id != self._victim or state is None or state.ongoing is None:
                continue
            self._number += 1
            self._world.features[STOLEN] += 1
            builder = BatchBuilder()
            builder.append(1000, None, b"x0.%d" % self._number, ())
            records = builder.build(
                producer_id=producer.producer_id or -1,
                producer_epoch=its.epoch,
                base_sequence=state.next_sequence,
                transactional=True,
            )
            data = PartitionProduceData(index=0, records=records)
            topics = (TopicProduceData(name="bills", partition_data=(data,)),)
            self._ask(ProduceRequest(transactional_id="id-x0", acks=-1, timeout_ms=1000, topic_data=topics), 9)


def play(seed: int, *, told: bool = False, broken: str | None = None) -> Result:
    """Play one seed, as `tests.sim.run.play`."""
    with MUTATIONS[broken]() if broken else nullcontext():
        return World(seed, told=told).run()


# -- mutations of the security of proxy and client ---------------------------------------------------------------------

OF_GUARDED = Mutations("guarded", within=60)
MUTATIONS, SEEDS, _mutation = OF_GUARDED.known, OF_GUARDED.seeds, OF_GUARDED.add


def _screening(key: int, screens: Any) -> Any:
    """The screens, with one API whose requests all pass."""
    return {**screens, key: lambda asked: PASS}


def _everything(original: Any) -> Any:
    return lambda *given, **named: True


def _nothing_refused(original: Any) -> Any:
    return lambda *given, **named: 0


def _nobody(original: Any) -> Any:
    return lambda *given, **named: None


_mutation("every record passes", (Guard, "lets_pass", _everything))
_mutation("every Fetch passes", (ConnectionFetchSessions, "fetch", lambda _: lambda self, asked: PASS))
_mutation("every topic is described", (guard, "SCREENS", partial(_screening, METADATA)))
_mutation("every member joins", (guard, "SCREENS", partial(_screening, JOIN_GROUP)))
_mutation("every offset is committed", (guard, "SCREENS", partial(_screening, OFFSET_COMMIT)))
_mutation(
    "a change of the ACLs concerns nobody", (core, "concerns", lambda _: lambda old, new: lambda principal: False)
)
_mutation("every producer id belongs to every transactional id", (Asked, "refusal_of_producer", _nothing_refused))
_mutation("the owner of a producer id is unknown", (ProducerOwners, "of", _nobody))
_mutation("a Fetch waits beyond its session", (guard, "with_shorter_wait", lambda _: lambda frame, most: frame))
_mutation(
    "an error of a partition does not name it",
    (fetch_answers, "broker_error", lambda error: lambda code, about="", **named: error(code, **named)),
)
