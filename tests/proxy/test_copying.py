"""Mode `copy`: further topics get the records of a topic, exactly as often, in the order of their keys."""

import json
from collections import defaultdict
from typing import Any

import pytest

from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.produce import ProduceResponse
from ottla.codec.compression import Compression
from ottla.codec.partitioners import crc32_partition, murmur2_partition
from ottla.errors import (
    ConfigurationError,
    InvalidRecord,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OperationNotAttempted,
    PolicyViolation,
    ProducerFenced,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownProducerId,
    UnknownTopicOrPartition,
)
from ottla.proxy import threads
from ottla.proxy.clients.routed_topics import UNKNOWN_WAIT
from ottla.proxy.config import ProxyConfig
from ottla.proxy.events import RulesChanged
from ottla.proxy.report_page import report
from ottla.proxy.routing import check_copies
from ottla.proxy.serve import RunningProxy
from ottla.proxy.topic_rule import Mode, TopicRule, parse_rule
from tests.proxy.simulated import ANSWERED, CUT_AFTER, CUT_BEFORE, Pair, Reply, Upstream, World, batch
from tests.proxy.test_transactions import add, code, end, opened

SIX, FOUR = 6, 4
KEYS = [b"N%d" % n for n in range(40)]
RULES = ("flights=copy:archive", "archive=rewrite")
TOPICS = {"flights": SIX, "archive": FOUR}


def pairs(count: int = 40, start: int = 0) -> list[Pair]:
    return [(KEYS[n % len(KEYS)], b"%d" % n) for n in range(start, start + count)]


def world_of(*rules: str, topics: dict[str, int] | None = None, nodes: int = 1, **options: Any) -> World:
    """A proxy that knows its topics, as after a client's first Metadata request and its first records."""
    world = World(Upstream(TOPICS if topics is None else topics, nodes), *(rules or RULES), **options)
    world.request(0, MetadataRequest(topics=None), 9)
    for topic in world.upstream.cluster.ids:
        world.core.topics.when_described(topic, lambda now: None, lambda why, now: None, world.now, asker=0)
    world.settle(1)
    return world


def send(world: World, records: list[Pair], producer: int = -1, sequence: int = -1, **options: Any) -> Reply:
    epoch = options.pop("epoch", -1 if producer < 0 else 0)
    return world.produce(1, {("flights", 0): batch(records, producer, epoch, sequence)}, **options)


def places(world: World, topic: str) -> dict[bytes, int]:
    """Value -> its partition; each is stored once."""
    found: dict[bytes, int] = {}
    for (name, partition), log in world.upstream.logs.items():
        for record in log if name == topic else ():
            assert found.setdefault(bytes(record.value or b""), partition) == partition, "no record is stored twice"
    assert len(found) == len(world.upstream.values(topic)), "no record is stored twice"
    return found


def both(world: World) -> tuple[set[bytes], set[bytes]]:
    """The values of the topic, and of its copy."""
    return {*places(world, "flights")}, {*places(world, "archive")}


def change(world: World, *rules: str) -> None:
    world.core.handle(RulesChanged(tuple(map(parse_rule, rules))), world.now)
    world.settle(0.1)


# -- where copies go


def test_the_topic_that_gets_copies_has_each_record_in_the_partition_of_its_key_there() -> None:
    world = world_of()
    assert send(world, pairs()).code == 0
    assert places(world, "flights") == {value: murmur2_partition(key or b"", SIX) for key, value in pairs()}
    assert places(world, "archive") == {value: murmur2_partition(key or b"", FOUR) for key, value in pairs()}


def test_the_rule_of_the_topic_that_gets_copies_decides_where_keys_go_there() -> None:
    world = world_of("flights=copy:archive", "archive=fan-out:crc32:3")
    assert send(world, pairs()).code == 0
    assert places(world, "archive") == {value: crc32_partition(key or b"", 3) for key, value in pairs()}


@pytest.mark.parametrize(("mode", "partition"), [("rewrite", 5 % FOUR), ("fan-out", None)])
def test_records_without_a_key_are_copied_together(mode: str, partition: int | None) -> None:
    world = world_of("flights=copy:archive", f"archive={mode}")
    records: list[Pair] = [(None, b"%d" % n) for n in range(10)]
    assert world.produce(1, {("flights", 5): batch(records)}).code == 0
    assert {*places(world, "flights").values()} == {5}
    [there] = {*places(world, "archive").values()}
    assert partition in (None, there)


def test_several_topics_get_copies_and_one_topic_gets_those_of_several() -> None:
    rules = "flights=copy:archive,audit", "boats=copy:audit", "a*=rewrite"
    world = world_of(*rules, topics=TOPICS | {"boats": 1, "audit": 2})
    assert send(world, pairs(5)).code == 0
    assert world.produce(2, {("boats", 0): batch(pairs(5, 5))}).code == 0
    assert len(places(world, "archive")) == 5 and len(places(world, "audit")) == 10


def test_clients_may_write_to_a_topic_that_gets_copies_with_the_same_producer() -> None:
    world = world_of()
    own = world.producer_id(1)
    assert send(world, pairs(10), own, 0).code == 0
    assert world.produce(1, {("archive", 1): batch(pairs(10, 10), own, 0, 0)}).code == 0
    assert send(world, pairs(10, 20), own, 10).code == 0
    assert world.produce(1, {("archive", 1): batch(pairs(10, 30), own, 0, 10)}).code == 0
    assert len(places(world, "flights")) == 20 and len(places(world, "archive")) == 40


def dated_copies(request: Any, answer: Any) -> Any:
    """A `bend` with which only the copies get the time of the append."""
    for topic in answer.responses if isinstance(answer, ProduceResponse) else ():
        for each in topic.partition_responses if topic.name == "archive" else ():
            each.log_append_time_ms = 1_800_000_000_000
    return answer


def test_the_response_is_about_the_clients_topic() -> None:
    world = world_of(topics={"flights": 1, "archive": 1})
    assert world.produce(2, {("archive", 0): batch(pairs(3, 7))}).code == 0
    world.upstream.bend = dated_copies
    for offset in (0, 2):
        [answer] = send(world, pairs(2, offset)).produced.values()
        told = answer.error_code, answer.base_offset, answer.log_append_time_ms
        assert told == (0, offset, -1), "the copies have other offsets, and times of their own"
    assert len(places(world, "archive")) == 7


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_batch_that_stays_whole_is_copied_as_it_is(compression: Compression) -> None:
    world = world_of(topics={"flights": 1, "archive": 1})
    assert world.produce(1, {("flights", 0): batch(pairs(9), compression=compression)}).code == 0
    assert world.upstream.values("flights") == world.upstream.values("archive") == [value for _, value in pairs(9)]


def test_records_with_acks_0_are_copied() -> None:
    world = world_of()
    send(world, pairs(), acks=0)
    assert [len(each) for each in both(world)] == [40, 40]


# -- acknowledgements, failures and retries


def test_a_batch_is_answered_once_its_copies_are_stored() -> None:
    world = world_of()
    world.upstream.errors["archive", murmur2_partition(KEYS[0], FOUR)] += [NotLeaderOrFollower.code]
    world.upstream.bend = lambda request, answer: answer
    reply = send(world, pairs(1), acks=1)
    assert reply.frame is None and both(world) == ({b"0"}, set())
    world.settle(1)
    assert reply.code == 0 and both(world) == ({b"0"}, {b"0"})


def test_a_copy_that_is_refused_fails_the_batch_with_its_error_and_a_retry_stores_what_is_missing() -> None:
    world = world_of()
    own = world.producer_id(1)
    refusing = murmur2_partition(KEYS[0], FOUR)
    world.upstream.errors["archive", refusing] += [TopicAuthorizationFailed.code]
    [answer] = send(world, pairs(), own, 0).produced.values()
    assert answer.error_code == TopicAuthorizationFailed.code
    assert (answer.error_message or "").startswith("the proxy cannot copy these records to archive: ")
    assert len(places(world, "flights")) == 40
    assert send(world, pairs(), own, 0).code == 0
    assert [len(each) for each in both(world)] == [40, 40]


@pytest.mark.parametrize("restarts", [False, True])
def test_copies_that_upstream_does_not_take_for_now_are_stored_with_the_retry(restarts: bool) -> None:
    world = world_of(journal=True)
    own = world.producer_id(1)
    for partition in range(FOUR):
        world.upstream.errors["archive", partition] += [NotEnoughReplicas.code]
    [answer] = send(world, pairs(), own, 0).produced.values()
    assert answer.error_code == NotEnoughReplicasAfterAppend.code, "the client's own records are stored"
    assert "copy these records to archive" in (answer.error_message or "")
    assert [len(each) for each in both(world)] == [40, 0]
    if restarts:
        world.restart()
    retry = send(world, pairs(), own, 0)
    world.settle(5)
    assert retry.code == 0
    assert [len(each) for each in both(world)] == [40, 40]


def test_a_retry_that_finds_the_copy_recreated_does_not_store_its_records_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)
    monkeypatch.setattr(threads, "PLAIN", 1)
    records: list[Pair] = [(b"k", b"%d" % n * 2000) for n in range(5)]  # large enough for a thread
    world = world_of(topics={"flights": 1, "archive": 1})
    own = world.producer_id(1)
    world.upstream.errors["archive", 0] += [NotEnoughReplicas.code]
    assert send(world, records, own, 0).code == NotEnoughReplicasAfterAppend.code
    world.busy = True
    retry = send(world, records, own, 0)
    world.upstream.cluster.recreate("archive", 2)
    world.request(9, MetadataRequest(topics=None), 12)  # with topic ids
    assert world.work and retry.frame is None
    world.busy = False
    while world.work:
        world.finish(world.work[0])
    assert retry.code == NotLeaderOrFollower.code
    again = send(world, records, own, 0)
    world.settle(5)
    assert again.code == 0 and [len(each) for each in both(world)] == [5, 5]


def test_equal_records_of_a_later_batch_are_not_taken_for_copies() -> None:
    """Only the copy of the first batch is missing: a retry must store the copy, and only the copy."""
    world = world_of(topics={"flights": 1, "archive": 1})
    own = world.producer_id(1)
    world.upstream.errors["archive", 0] += [InvalidRecord.code]
    assert send(world, [(b"k", b"v")], own, 0).code == InvalidRecord.code
    assert send(world, [(b"k", b"v")], own, 0).code == 0
    assert world.upstream.values("flights") == world.upstream.values("archive") == [b"v"]
    assert send(world, [(b"k", b"v")], own, 1).code == 0
    assert world.upstream.values("flights") == world.upstream.values("archive") == [b"v", b"v"]


def test_a_copy_with_an_unknown_outcome_is_sent_again_under_its_sequence() -> None:
    world = world_of()
    own = world.producer_id(1)
    fates = [ANSWERED, CUT_AFTER, CUT_BEFORE]
    world.upstream.fate = lambda request: fates.pop(0) if fates else ANSWERED
    reply = send(world, pairs(), own, 0)
    world.settle(5)
    assert reply.code == 0 and [len(each) for each in both(world)] == [40, 40]


def test_a_copy_whose_outcome_stays_unknown_fences_the_producer() -> None:
    world = world_of(delivery_timeout=1.0, request_timeout=0.5)
    own = world.producer_id(1)
    world.upstream.fate = lambda request: (
        CUT_AFTER if any(topic.name == "archive" for topic in request.topic_data) else ANSWERED
    )
    reply = send(world, pairs(1), own, 0)
    world.settle(10)
    assert reply.code == ProducerFenced.code


def test_a_request_is_answered_at_its_timeout_and_its_retry_joins_the_copies_under_way() -> None:
    world = world_of()
    own = world.producer_id(1)
    world.upstream.errors["archive", murmur2_partition(KEYS[0], FOUR)] += [NotLeaderOrFollower.code] * 5
    late = send(world, pairs(1), own, 0, timeout_ms=1000)
    world.settle(1)
    assert late.code == RequestTimedOut.code
    retry = send(world, pairs(1), own, 0)
    world.settle(20)
    assert retry.code == 0 and both(world) == ({b"0"}, {b"0"})


def test_copies_go_on_after_a_restart_also_if_the_rule_is_gone() -> None:
    world = world_of(journal=True)
    own = world.producer_id(1)
    assert send(world, pairs(10), own, 0).code == 0
    world.slow = True
    send(world, pairs(10, 10), own, 10)
    world._rules = ("flights=rewrite", "archive=rewrite")
    world._late.clear()
    world.restart()
    world.slow = False
    world.settle(5)
    assert send(world, pairs(10, 10), own, 10).code == 0
    assert [len(each) for each in both(world)] == [20, 20]
    assert send(world, pairs(10, 20), own, 20).code == 0
    assert [len(each) for each in both(world)] == [30, 20]


def test_the_order_of_a_key_is_the_same_in_the_copy() -> None:
    world = world_of()
    own = world.producer_id(1)
    world.upstream.errors["archive", 1] += [NotLeaderOrFollower.code, NotEnoughReplicas.code]
    replies = [send(world, pairs(20, 20 * n), own, 20 * n) for n in range(6)]
    world.settle(30)
    for n, reply in enumerate(replies):
        if reply.code:
            assert send(world, pairs(20, 20 * n), own, 20 * n).code == 0
    order: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for (topic, _), log in world.upstream.logs.items():
        for record in log if topic == "archive" else ():
            order[record.key].append(int(bytes(record.value or b"")))
    assert sum(map(len, order.values())) == 120 and all(each == sorted(each) for each in order.values())


def test_a_batch_that_the_copy_would_refuse_is_stored_nowhere() -> None:
    world = World(Upstream(TOPICS), *RULES)
    world.upstream.cluster.data.configs["archive"] = {"cleanup.policy": "compact"}
    world.request(0, MetadataRequest(topics=None), 9)
    reply = send(world, [(b"k", b"1"), (None, b"2")])
    world.settle(1)
    [answer] = reply.produced.values()
    assert answer.error_code == InvalidRecord.code and both(world) == (set(), set())
    assert answer.error_message == "the proxy cannot copy these records to archive: a compacted topic needs a key"
    assert [each.batch_index for each in answer.record_errors] == [1]


def test_a_missing_topic_is_named(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(topics={"flights": SIX})
    reply = send(world, pairs())
    world.settle(2 * UNKNOWN_WAIT)
    [answer] = reply.produced.values()
    assert answer.error_code == UnknownTopicOrPartition.code
    assert answer.error_message == "the proxy cannot copy these records to archive: upstream has no topic archive"
    assert not world.upstream.values("flights")
    [line] = [each for each in caplog.records if each.getMessage() == "records cannot be copied and were refused"]
    assert (vars(line)["topic"], vars(line)["copy"]) == ("flights", "archive"), "the operator learns it, too"


def test_a_topic_with_too_few_partitions_for_its_rule_gets_no_copies() -> None:
    world = world_of("flights=copy:archive", "archive=rewrite::9")
    [answer] = send(world, pairs()).produced.values()
    assert answer.error_code == PolicyViolation.code and "archive has 4 partitions" in (answer.error_message or "")
    assert both(world) == (set(), set())


# -- transactions


def transact(world: World, producer: tuple[int, int], sequence: int, count: int = 10, version: int = 9) -> Reply:
    data = batch(pairs(count, sequence), *producer, sequence, transactional=True)
    return world.produce(1, {("flights", 0): data}, transactional_id="payments", version=version)


def test_the_partitions_of_copies_are_added_to_the_transaction_and_the_client_hears_of_its_own() -> None:
    world = world_of()
    producer = opened(world)
    assert add(world, producer, {"flights": (0,)}) == {("flights", 0): 0}
    asked: AddPartitionsToTxnRequest = world.upstream.asked(AddPartitionsToTxnRequest)[-1]
    added = {topic.name: topic.partitions for topic in asked.v3_and_below_topics}
    assert added == {"flights": tuple(range(SIX)), "archive": tuple(range(FOUR))}
    assert transact(world, producer, 0).code == 0
    assert code(end(world, producer, commit=True)) == 0
    assert [len(each) for each in both(world)] == [10, 10]


def test_a_copy_that_cannot_be_added_to_the_transaction_fails_the_client_with_its_error() -> None:
    world = world_of()
    producer = opened(world)
    world.upstream.unaddable = {("archive", n): TopicAuthorizationFailed.code for n in range(FOUR)}
    world.upstream.unaddable |= {("flights", n): OperationNotAttempted.code for n in range(SIX)}
    assert add(world, producer, {"flights": (0,)}) == {("flights", 0): TopicAuthorizationFailed.code}


def test_a_transaction_waits_for_the_metadata_of_the_copy_and_names_the_topic_whose_copy_is_missing() -> None:
    world = world_of(topics={"flights": SIX})
    producer = opened(world)
    request = AddPartitionsToTxnRequest
    with pytest.raises(AssertionError, match="no response"):
        add(world, producer, {"flights": (0,), "plain": (0,)})
    world.settle(2 * UNKNOWN_WAIT)
    assert not world.upstream.asked(request), "nothing was added"


def test_a_copy_of_a_partition_that_was_not_added_aborts_the_transaction() -> None:
    world = world_of("flights=rewrite", "archive=rewrite")
    producer = opened(world)
    add(world, producer, {"flights": (0,)})
    assert transact(world, producer, 0, version=11).code == 0
    change(world, *RULES)
    assert transact(world, producer, 10, version=11).code == TransactionAbortable.code
    assert code(end(world, producer, commit=False)) == 0
    assert places(world, "archive") == {}
    add(world, producer, {"flights": (0,)})
    assert transact(world, producer, 10).code == 0 and len(places(world, "archive")) == 10


@pytest.mark.parametrize("version", [9, 12])
def test_a_refused_copy_aborts_the_transaction(version: int) -> None:
    world = world_of()
    world.upstream.cluster.transaction_version = 2 if version == 12 else 0
    producer = opened(world)
    if version == 9:
        add(world, producer, {"flights": (0,)})
    world.upstream.errors["archive", murmur2_partition(KEYS[0], FOUR)] += [InvalidRecord.code]
    assert transact(world, producer, 0, version=version).code == InvalidRecord.code
    refused = code(end(world, producer, commit=True, version=5 if version == 12 else 4))
    assert refused in (TransactionAbortable.code, UnknownProducerId.code), "the records are stored, the copy is not"


def test_a_transaction_of_version_2_has_the_copies_too() -> None:
    world = world_of()
    world.upstream.cluster.transaction_version = 2
    producer = opened(world)
    assert transact(world, producer, 0, version=12).code == 0
    assert code(end(world, producer, commit=True, version=5)) == 0
    assert [len(each) for each in both(world)] == [10, 10]
    assert not world.upstream.asked(AddPartitionsToTxnRequest)


# -- rules


def test_a_rule_names_the_topics_that_get_copies() -> None:
    assert parse_rule("flights=copy:archive") == TopicRule(glob="flights", mode=Mode.COPY, copies=("archive",))
    full = TopicRule(glob="f*", mode=Mode.COPY, copies=("a", "b"), partitioner="crc32", partitions=6)
    assert parse_rule("f*=copy:a, b:crc32:6") == full
    assert parse_rule("flights=copy:a::6").partitions == 6
    assert parse_rule("f*=copy:a,b:crc32").text == "f*=copy:a,b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flights=copy", "needs the topics that get the copies, as in 'flights=copy:archive'"),
        ("flights=copy:", "'' cannot get copies of topic 'flights': write the full name"),
        ("flights=copy:a*", r"'a\*' cannot get copies"),
        ("flights=copy:__consumer_offsets", "does not begin with __"),
        ("flights=copy:a,a", "is copied to a twice"),
        ("flights=copy:a:md5", "is not one of murmur2"),
        ("flights=copy:a::6:7", "'6:7' is not a number of partitions"),
    ],
)
def test_a_rule_that_cannot_copy_says_why(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse_rule(text)


def test_only_mode_copy_copies() -> None:
    with pytest.raises(ConfigurationError, match="only mode copy copies records"):
        TopicRule(glob="flights", mode=Mode.REWRITE, copies=("archive",))


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (["flights=copy:archive"], "copies to archive, which needs a rule of its own: add 'archive=rewrite'"),
        (["flights=copy:archive", "archive=observe"], "which has mode observe .*: it needs mode rewrite or fan-out"),
        (["flights=copy:archive", "a*=reject"], "which has mode reject"),
        (["flights=copy:archive", "archive=copy:third", "third=rewrite"], "'archive=copy:third' copies, too"),
        (["flights=copy:flights"], "copies are not copied"),
        (["*=copy:archive"], "put 'archive=rewrite' before that rule"),
        (["a=copy:b", "b=copy:a"], "copies are not copied"),
    ],
)
def test_rules_that_do_not_fit_together_are_refused(rules: list[str], says: str) -> None:
    parsed = tuple(map(parse_rule, rules))
    with pytest.raises(ConfigurationError, match=says):
        ProxyConfig(upstream="kafka:9092", topics=parsed)
    running = RunningProxy("", "", {}, {}, _core=world_of().core)
    with pytest.raises(ConfigurationError, match=says):
        running.change_rules(parsed)


def test_rules_that_fit_together_are_accepted() -> None:
    check_copies(list(map(parse_rule, ("archive=rewrite", "*=copy:archive"))))
    check_copies(list(map(parse_rule, ("a=copy:archive", "b=copy:archive", "arch*=fan-out"))))


def test_a_reload_adds_and_removes_copies_without_fencing_a_producer() -> None:
    world = world_of("flights=rewrite", "archive=rewrite")
    own = world.producer_id(1)
    assert send(world, pairs(10), own, 0).code == 0
    change(world, *RULES)
    assert send(world, pairs(10, 10), own, 10).code == 0
    change(world, "flights=rewrite", "archive=rewrite")
    assert send(world, pairs(10, 20), own, 20).code == 0
    assert [len(each) for each in both(world)] == [30, 10]


def test_a_producer_that_was_open_before_the_copy_had_a_rule_is_fenced() -> None:
    world = world_of("flights=rewrite")
    own = world.producer_id(1)
    assert world.produce(1, {("archive", 0): batch(pairs(3), own, 0, 0)}).code == 0, "with the client's own sequences"
    assert send(world, pairs(10), own, 0).code == 0
    change(world, *RULES)
    assert send(world, pairs(10, 10), own, 10).code == ProducerFenced.code
    other = world.producer_id(2)
    assert send(world, pairs(10, 10), other, 0).code == 0


# -- what the operator sees


def test_the_report_and_the_counts_have_the_copies() -> None:
    world = world_of(report="localhost:0", report_keys=True)
    assert send(world, pairs()).code == 0
    tally = world.core.tallies["flights"]
    assert tally.sent == {Mode.COPY: 40} and tally.copied == {"archive": 40} and tally.facts()["copied"] == 40
    assert tally.moved == sum(murmur2_partition(key, SIX) != 0 for key in KEYS)
    [topic] = json.loads("".join(report(world.core, 1.0)))["topics"]
    assert (topic["topic"], topic["mode"], topic["copied_to"]) == ("flights", "copy", ["archive"])
    assert "archive" not in world.core.tallies


def test_a_fenced_batch_forgets_nothing_that_an_earlier_one_has_stored() -> None:
    world = world_of(topics={"flights": 1, "archive": 2})
    own = world.producer_id(1)
    first, second = (next(key for key in KEYS if murmur2_partition(key, 2) == index) for index in (0, 1))
    records: list[Pair] = [(first, b"0"), (second, b"1")]
    world.upstream.errors["archive", 1] += [NotLeaderOrFollower.code, InvalidRecord.code]  # stored, or not
    for epoch in (0, 1):
        refused = send(world, records, own, 0, epoch=epoch)
        world.settle(3)
        assert refused.code == ProducerFenced.code
    assert send(world, records[:1], own, 0, epoch=2).code == 0
    assert world.upstream.values("archive").count(b"0") == world.upstream.values("flights").count(b"0") == 1


def test_a_retry_after_a_restart_gets_the_offset_of_its_own_records_although_a_copy_was_missing() -> None:
    world = world_of(topics={"flights": 1, "archive": 1}, journal=True, nodes=2)
    world.upstream.lead("flights", 0, 0)
    world.upstream.lead("archive", 0, 1)
    world.request(0, MetadataRequest(topics=None), 9)
    world.settle(1)
    own = world.producer_id(1)
    assert send(world, pairs(3), own, 0).code == 0
    world.upstream.fate = lambda request: (
        CUT_BEFORE if any(each.name == "archive" for each in request.topic_data) else ANSWERED
    )
    send(world, pairs(3, 3), own, 3)
    world.settle(1)
    world.restart()
    world.upstream.fate = lambda request: ANSWERED
    world.settle(2)
    (told,) = send(world, pairs(3, 3), own, 3).produced.values()
    assert (told.error_code, told.base_offset) == (0, 3)
    assert len(world.upstream.values("flights")) == len(world.upstream.values("archive")) == 6


def test_batches_stay_in_order_where_their_topic_is_recreated_while_they_wait_for_its_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(Upstream({"flights": 1, "archive": 1}), *RULES)
    world.upstream.hide("archive")
    world.request(0, MetadataRequest(topics=None), 12)
    world.core.topics.when_described("flights", lambda now: None, lambda why, now: None, world.now, asker=0)
    world.settle(1)
    first = send(world, [(b"k", b"first")])
    world.upstream.cluster.recreate("flights", 1)
    configs, kept = world.core.control.configs, list[tuple[Any, ...]]()
    asked = configs.request
    monkeypatch.setattr(configs, "request", lambda *given: kept.append(given))
    world.request(9, MetadataRequest(topics=None), 12)
    second = send(world, [(b"k", b"second")])
    world.upstream.show()
    world.request(9, MetadataRequest(topics=None), 12)
    world.settle(0.2)
    monkeypatch.setattr(configs, "request", asked)
    for given in kept:
        asked(*given)
    world.settle(1)
    assert (first.code, second.code) == (0, 0)
    assert world.upstream.values("flights") == world.upstream.values("archive") == [b"first", b"second"]
