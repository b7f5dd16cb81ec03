"""Records of rewritten topics, from clients' batches to upstream's partitions and back to the responses."""

from collections import defaultdict
from typing import Any

import pytest
from crc32c import crc32c

from ottla.codec.apis.init_producer_id import InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.produce import ProduceRequest, TopicProduceData
from ottla.codec.compression import Compression
from ottla.codec.partitioners import murmur2_partition
from ottla.codec.records import HEADER_SIZE
from ottla.errors import UnknownTopicOrPartition
from ottla.proxy import threads
from ottla.proxy.clients.routed_topics import METADATA_WAIT, MOST_WAITED_FOR
from tests.proxy.simulated import ANSWERED, CUT_AFTER, CUT_BEFORE, Pair, Upstream, World, batch

KEYS = [b"N%d" % n for n in range(40)]
SIX = 6


def world_of(nodes: int = 1, rule: str = "flights=rewrite", **options: Any) -> World:
    """A proxy that knows its topics, as after a client's first Metadata request."""
    world = World(Upstream({"flights": SIX, "plain": 2}, nodes), rule, "plain=observe", **options)
    make_known(world)
    return world


def make_known(world: World) -> None:
    topics = (MetadataRequestTopic(name="flights"), MetadataRequestTopic(name="plain"))
    assert world.request(0, MetadataRequest(topics=topics), 9).frame
    world.settle(1)


@pytest.fixture
def world() -> World:
    return world_of()


def pairs(count: int = 40, start: int = 0) -> list[Pair]:
    return [(KEYS[n % len(KEYS)], b"%d" % n) for n in range(start, start + count)]


def key_at(partition: int, n: int = 0) -> bytes:
    """A key of a partition."""
    return [key for key in KEYS if murmur2_partition(key, SIX) == partition][n]


def assert_every_key_at_its_place(world: World) -> None:
    for (topic, partition), log in world.upstream.logs.items():
        for record in log:
            assert topic != "flights" or record.key is None or murmur2_partition(record.key, SIX) == partition


def produce_requests(world: World) -> int:
    return len(world.upstream.produced)


# -- moving


@pytest.mark.parametrize("compression", Compression)
def test_records_go_to_the_partition_of_their_key(world: World, compression: Compression) -> None:
    reply = world.produce(1, {("flights", 2): batch(pairs(), compression=compression)})
    assert reply.produced["flights", 2].error_code == 0
    assert sorted(world.upstream.values("flights"), key=repr) == sorted((v for _, v in pairs()), key=repr)
    assert_every_key_at_its_place(world)


def test_records_keep_their_timestamp_headers_and_order(world: World) -> None:
    world.produce(1, {("flights", 2): batch(pairs(200))})
    stored = [record for log in world.upstream.logs.values() for record in log]
    assert len(stored) == 200
    for record in stored:
        number = int(record.value or b"")
        assert record.timestamp == 1_700_000_000_000 + number
        assert record.headers == ((("h", b"1"),) if number % 2 else ())
    for log in world.upstream.logs.values():
        numbers = [int(record.value or b"") for record in log]
        assert numbers == sorted(numbers)


def test_records_without_a_key_stay_and_an_empty_key_is_a_key(world: World) -> None:
    world.produce(1, {("flights", 4): batch([(None, b"stays"), (b"", b"moves")])})
    assert [record.value for record in world.upstream.logs["flights", 4]] == [b"stays"]
    assert [record.value for record in world.upstream.logs["flights", murmur2_partition(b"", SIX)]] == [b"moves"]


def test_the_codec_of_the_client_is_kept(world: World) -> None:
    world.produce(1, {("flights", 2): batch(pairs(), compression=Compression.LZ4)})
    sent = [each.records for t in world.upstream.produced[0][1].topic_data for each in t.partition_data]
    assert {data[22] & 7 for data in sent if data} == {Compression.LZ4}


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_that_stays_whole_passes_with_its_bytes_untouched(world: World, compression: Compression) -> None:
    data = batch([(key_at(2), b"%d" % n) for n in range(40)], compression=compression)
    assert world.produce(1, {("flights", 2): data}).produced["flights", 2].base_offset == 0
    (sent,) = [each.records for t in world.upstream.produced[0][1].topic_data for each in t.partition_data]
    assert sent is not None and bytes(sent[HEADER_SIZE:]) == data[HEADER_SIZE:]


@pytest.mark.parametrize("compression", Compression)
def test_one_that_stays_whole_shares_an_upstream_batch_all_the_same(world: World, compression: Compression) -> None:
    world.slow = True
    for n in range(4):
        world.produce(1, {("flights", 2): batch([(key_at(2), b"%d" % n)], compression=compression)})
    world.release()
    world.release()
    assert produce_requests(world) == 2
    assert world.upstream.values("flights") == [b"0", b"1", b"2", b"3"]


def test_one_request_a_node_carries_all_partitions(world: World) -> None:
    world.produce(1, {("flights", 2): batch(pairs())})
    assert produce_requests(world) == 1


def test_small_batches_share_an_upstream_batch_while_one_is_in_flight(world: World) -> None:
    world.slow = True
    replies = [world.produce(1, {("flights", 0): batch([(b"k", b"%d" % n)])}) for n in range(20)]
    assert produce_requests(world) == 1
    world.release()
    assert produce_requests(world) == 2
    world.release()
    assert [reply.code for reply in replies] == [0] * 20
    assert world.upstream.values("flights") == [b"%d" % n for n in range(20)]


def test_a_batch_is_not_filled_beyond_its_limit() -> None:
    world = world_of(max_batch=300)
    world.slow = True
    for n in range(9):
        world.produce(1, {("flights", 0): batch([(b"k", b"%d" % n + bytes(100))])})
    for _ in range(9):
        world.release()
    assert 4 <= produce_requests(world) <= 9
    assert len(world.upstream.values("flights")) == 9


# -- answers


def test_the_offset_is_told_where_nothing_moved(world: World) -> None:
    home = key_at(3)
    data = batch([(home, b"1"), (home, b"2")])
    assert [world.produce(1, {("flights", 3): data}).produced["flights", 3].base_offset for _ in range(3)] == [0, 2, 4]


def test_the_offset_in_a_shared_batch_is_that_of_the_clients_first_record(world: World) -> None:
    home = key_at(3)
    world.slow = True
    replies = [world.produce(1, {("flights", 3): batch([(home, b"1"), (home, b"2")])}) for _ in range(4)]
    world.release()
    world.release()
    assert [reply.produced["flights", 3].base_offset for reply in replies] == [0, 2, 4, 6]


def test_the_offset_is_unknown_where_something_moved(world: World) -> None:
    assert world.produce(1, {("flights", 3): batch(pairs())}).produced["flights", 3].base_offset == -1
    moved = world.produce(1, {("flights", 3): batch([(key_at(1), b"x")])})
    assert moved.produced["flights", 3].base_offset == -1


@pytest.mark.parametrize("version", range(3, 13))
def test_an_answer_names_exactly_the_partitions_of_the_request(world: World, version: int) -> None:
    requested = {("flights", 5): batch(pairs()), ("flights", 0): batch(pairs()), ("plain", 1): batch(pairs())}
    answer = world.produce(1, requested, version=version).produced
    assert list(answer) == [("flights", 5), ("flights", 0), ("plain", 1)]
    assert {each.error_code for each in answer.values()} == {0}
    assert {each.log_append_time_ms for each in answer.values()} == {-1}


def test_a_client_is_answered_only_when_all_of_its_batch_is_stored(world: World) -> None:
    world.slow = True
    reply = world.produce(1, {("flights", 3): batch(pairs()), ("plain", 0): batch(pairs())})
    assert reply.frame is None
    world.release()
    assert set(reply.produced) == {("flights", 3), ("plain", 0)}


def test_acks_0_gets_no_answer_and_is_delivered_like_the_rest(world: World) -> None:
    reply = world.produce(1, {("flights", 3): batch(pairs()), ("plain", 0): batch(pairs(2))}, acks=0)
    assert reply.frame == b""
    assert len(world.upstream.values("flights")) == 40
    assert len(world.upstream.values("plain")) == 2
    assert {message.acks for _, message in world.upstream.produced if message.topic_data[0].name == "flights"} == {-1}


def test_acks_0_with_records_that_cannot_be_taken_closes_the_connection(world: World) -> None:
    world.produce(1, {("flights", 3): b"garbage"}, acks=0)
    assert "acks=0" in world.closed[1]


# -- refusals


def damaged(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes((value,)) + data[at + 1 :]


def sealed_again(data: bytes) -> bytes:
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


GOOD = batch(pairs(3))
REFUSED = {
    "nothing": (b"", 87),
    "garbage": (b"garbage" * 20, 43),
    "magic 1": (damaged(GOOD, 16, 1), 43),
    "two batches": (GOOD + GOOD, 87),
    "torn": (GOOD[:-1], 87),
    "wrong CRC": (damaged(GOOD, 70, 255), 2),
    "miscounted": (sealed_again(damaged(GOOD, 60, 9)), 87),
    "unknown compression": (sealed_again(damaged(GOOD, 22, 6)), 87),
    "not compressed as it says": (sealed_again(damaged(GOOD, 22, 4)), 87),
    "control": (sealed_again(damaged(GOOD, 22, 0x20)), 87),
    "transactional outside of a transaction": (batch(pairs(1), 1, 0, 0, transactional=True), 48),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_refused_and_nothing_is_stored(world: World, name: str) -> None:
    data, code = REFUSED[name]
    reply = world.produce(1, {("flights", 3): data, ("flights", 4): batch(pairs(5))})
    assert reply.produced["flights", 3].error_code == code
    assert reply.produced["flights", 4].error_code == 0
    assert len(world.upstream.values("flights")) == 5


def test_a_partition_that_does_not_exist_is_refused(world: World) -> None:
    assert world.produce(1, {("flights", 6): batch(pairs())}).code == 3


def test_acks_that_do_not_exist_are_refused(world: World) -> None:
    assert world.produce(1, {("flights", 3): batch(pairs())}, acks=2).code == 21


def test_a_rewritten_topic_that_upstream_does_not_have_is_given_back_in_time() -> None:
    world = World(Upstream({"flights": 1}), "*=rewrite")
    reply = world.produce(1, {("nowhere", 0): batch(pairs())})
    assert reply.frame is None
    world.settle(20)
    assert reply.code == 3
    assert world.core.buffered.total == 0


def test_records_of_unknown_topics_are_bounded_too() -> None:
    world = World(Upstream({"flights": 1}), "*=rewrite", max_buffered=1000)
    replies = [world.produce(n, {("nowhere", 0): batch([(b"k", bytes(900))])}) for n in range(5)]
    assert [reply.frame is None for reply in replies] == [True, True, False, False, False]
    assert replies[4].code == 19


def test_refusals_that_are_alike_are_one_line_and_their_number(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(delivery_timeout=5)
    world.upstream.lead("flights", 3, -1)
    world.core.control.request_topics("flights")
    world.settle(1)
    for _ in range(30):
        world.produce(1, {("flights", 3): batch([(key_at(3), b"x")])})
    world.settle(10)
    assert [each.message for each in caplog.records] == ["records were refused"]
    assert caplog.records[0].__dict__["peer"] == "10.0.0.1:9"
    world.settle(60)
    assert caplog.records[-1].message.startswith("records were refused: LEADER_NOT_AVAILABLE, flights: 29 more in 6")
    assert len(caplog.records) == 2
    assert world.core.idle


def test_no_more_than_so_many_topics_are_waited_for() -> None:
    world = World(Upstream({"flights": 1}), "*=rewrite")
    world.produce(2, {("flights", 0): batch([(b"k", b"x")])})
    world.settle(1)
    reply = world.produce(1, {(f"t{number}", 0): batch([(b"k", b"x")]) for number in range(MOST_WAITED_FOR + 20)})
    assert len(world.core.topics._waiting) == MOST_WAITED_FOR
    assert world.produce(2, {("flights", 0): batch([(b"k", b"x")])}).code == 0
    world.settle(METADATA_WAIT + 1)
    assert {each.error_code for each in reply.produced.values()} == {UnknownTopicOrPartition.code}
    assert not world.core.topics._waiting


def test_records_wait_for_a_topic_that_is_just_being_made() -> None:
    world = World(Upstream({"flights": 1}), "*=rewrite")
    replies = [world.produce(1, {("new", 0): batch([(b"k", b"%d" % n)])}) for n in range(3)]
    world.upstream.lead("new", 0, 0)
    world.settle(1)
    assert [reply.code for reply in replies] == [0, 0, 0]
    assert world.upstream.values("new") == [b"0", b"1", b"2"]


def test_records_do_not_overtake_those_that_wait_for_their_topic() -> None:
    world = World(Upstream({"flights": 1}), "*=rewrite")
    first = world.produce(1, {("new", 0): batch([(b"k", b"0")])})
    world.upstream.lead("new", 0, 0)
    # Another client's response describes the topic before the proxy's own request is answered.
    world.request(2, MetadataRequest(topics=(MetadataRequestTopic(name="new"),)), 12)
    assert world.core.cluster.is_described("new") and first.frame is None
    second = world.produce(1, {("new", 0): batch([(b"k", b"1")])})
    world.settle(1)
    assert (first.code, second.code) == (0, 0)
    assert world.upstream.values("new") == [b"0", b"1"]


def test_what_upstream_refuses_is_told_to_the_client(world: World) -> None:
    for p in range(SIX):
        world.upstream.errors["flights", p] += [29]
    assert world.produce(1, {("flights", 3): batch(pairs())}).code == 29
    assert world.produce(1, {("flights", 3): batch(pairs())}).code == 0


def test_in_a_shared_batch_that_is_refused_only_the_culprit_fails(world: World) -> None:
    home = key_at(3)
    world.upstream.cluster.data.max_message_bytes = 500
    world.slow = True
    sizes = [10, 10, 700, 10]
    replies = [
        world.produce(1, {("flights", 3): batch([(home, b"%d" % n + bytes(size))])}) for n, size in enumerate(sizes)
    ]
    for _ in range(8):
        world.release()
    assert [reply.code for reply in replies] == [0, 0, 10, 0]
    assert [(value or b"")[:1] for value in world.upstream.values("flights")] == [b"0", b"1", b"3"]


# -- upstream's troubles


@pytest.mark.parametrize("fate", [CUT_BEFORE, CUT_AFTER])
def test_a_cut_connection_to_upstream_neither_loses_nor_doubles(world: World, fate: str) -> None:
    fates = [fate, fate, ANSWERED]
    world.upstream.fate = lambda request: fates.pop(0) if fates else ANSWERED
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(5)
    assert reply.code == 0
    assert len(world.upstream.values("flights")) == 40


@pytest.mark.parametrize("code", [3, 5, 6, 7, 20, 56, -1])
def test_errors_that_pass_are_waited_out(world: World, code: int) -> None:
    for p in range(SIX):
        world.upstream.errors["flights", p] += [code] * 5
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    assert reply.frame is None
    world.settle(10)
    assert reply.code == 0
    assert len(world.upstream.values("flights")) == 40


def test_records_follow_a_leader_that_moves() -> None:
    world = world_of(nodes=3)
    world.produce(1, {("flights", 3): batch(pairs())})
    for place in world.upstream.cluster.places:
        world.upstream.cluster.lead(place, (world.upstream.cluster.leaders[place].node + 1) % 3)
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(5)
    assert reply.code == 0
    assert len(world.upstream.values("flights")) == 80


def test_records_wait_for_a_node_that_is_down() -> None:
    world = world_of(nodes=3)
    world.produce(1, {("flights", 3): batch(pairs())})
    world.kill(1)
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(300)
    assert reply.frame is not None or not world.core.idle
    world.upstream.down.clear()
    world.settle(5)
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    assert reply.code == 0
    assert_every_key_at_its_place(world)


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    world = world_of(request_timeout=5)
    world.slow = True
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(7)
    world.slow = False
    world.settle(10)
    assert reply.code == 0
    assert len(world.upstream.values("flights")) == 40


def test_what_is_surely_not_stored_is_given_back_in_the_end() -> None:
    world = world_of(delivery_timeout=20)
    world.upstream.errors["flights", 1] += [19] * 100
    reply = world.produce(1, {("flights", 3): batch([(key_at(1), b"x"), (key_at(2), b"stored")])})
    world.settle(30)
    assert reply.code == 19
    assert "tried for 20 s" in (reply.produced["flights", 3].error_message or "")


@pytest.mark.parametrize("code", [3, 7, 19])
def test_what_may_be_stored_is_given_back_as_doubtful_and_never_taken_for_the_next_records(code: int) -> None:
    world = world_of(delivery_timeout=20)
    producer, target = world.producer_id(1), key_at(1)
    assert world.produce(1, {("flights", 3): batch([(target, b"before")], producer, 0, 0)}).code == 0
    fates = [CUT_AFTER]
    world.upstream.fate = lambda request: fates.pop() if fates else ANSWERED
    unknown = world.produce(1, {("flights", 3): batch([(target, b"unknown")], producer, 0, 1)})
    world.upstream.errors["flights", 1] += [code] * 100
    world.settle(19)
    assert unknown.frame is None
    world.settle(5)
    assert unknown.code == 90
    assert "did not confirm whether it stored the batch (tried for 20 s)" in (
        unknown.produced["flights", 3].error_message or ""
    )
    world.upstream.errors["flights", 1].clear()
    next_one = world.produce(2, {("flights", 3): batch([(target, b"next")])})
    world.settle(5)
    assert next_one.code == 0
    assert world.upstream.values("flights") == [b"before", b"unknown", b"next"]


def test_what_was_never_sent_is_not_told_as_stored() -> None:
    world = world_of(delivery_timeout=20)
    assert world.produce(1, {("flights", 1): batch([(key_at(1), b"stored")])}).code == 0
    world.upstream.lead("flights", 1, -1)
    world.core.control.request_topics("flights")
    world.settle(1)
    reply = world.produce(1, {("flights", 1): batch([(key_at(1), b"never sent")])})
    world.settle(30)
    assert reply.code == 5


def test_a_partition_without_a_leader_holds_the_others_up_for_a_time_only() -> None:
    world = world_of(delivery_timeout=20, max_buffered=2000)
    world.upstream.fate = lambda request: CUT_AFTER
    replies = [world.produce(1, {("flights", 1): batch([(key_at(1), bytes(500))])})]
    world.upstream.fate = lambda request: ANSWERED
    world.upstream.lead("flights", 1, -1)
    while not world.held:
        replies.append(world.produce(1, {("flights", 1): batch([(key_at(1), bytes(500))])}))
    world.settle(30)
    assert [reply.code for reply in replies] == [6] + [5] * (len(replies) - 1)
    assert not world.held
    assert world.core.idle
    assert world.produce(1, {("flights", 2): batch([(key_at(2), b"x")])}).code == 0


def test_records_on_their_way_when_a_topic_is_recreated_go_where_its_keys_go_now_when_they_come_again() -> None:
    world = world_of()
    world.produce(1, {("flights", 1): batch([(key_at(4), b"learn")])})
    world.upstream.cluster.recreate("flights", 2)
    data = batch([(key, key) for key in KEYS])
    reply = world.produce(1, {("flights", 0): data})
    world.settle(5)
    assert reply.code == UnknownTopicOrPartition.code, "an error that clients retry"
    assert not world.upstream.values("flights")
    assert world.produce(1, {("flights", 0): data}).code == 0
    for (_, partition), log in world.upstream.logs.items():
        assert all(murmur2_partition(each.key or b"", 2) == partition for each in log)
    assert len(world.upstream.values("flights")) == len(KEYS)
    assert world.core.idle


def test_records_do_not_wait_for_a_producer_id_for_ever() -> None:
    refused = InitProducerIdResponse(error_code=14, producer_id=-1, producer_epoch=-1)
    world = world_of(delivery_timeout=20)
    usual = world.upstream.bend
    world.upstream.bend = lambda request, answer: refused if isinstance(answer, InitProducerIdResponse) else answer
    replies = [world.produce(1, {("flights", n): batch([(key_at(n), b"x")])}) for n in range(3)]
    world.settle(30)
    assert [reply.code for reply in replies] == [5] * 3
    world.upstream.bend = usual
    world.settle(5)
    assert world.produce(1, {("flights", 1): batch([(key_at(1), b"x")])}).code == 0
    assert world.upstream.values("flights") == [b"x"]


def test_records_for_a_topic_that_was_deleted_are_given_back_soon(world: World) -> None:
    world.upstream.hide("flights")
    reply = world.produce(1, {("flights", 0): batch(pairs())})
    world.settle(2)
    assert reply.code == 3
    world.upstream.show()
    again = world.produce(1, {("flights", 0): batch(pairs())})
    world.settle(1)
    assert again.code == 0


def test_a_lost_sequence_is_begun_again_when_nothing_is_in_doubt(world: World) -> None:
    world.produce(1, {("flights", 3): batch(pairs())})
    for p in range(SIX):
        world.upstream.errors["flights", p] += [45]
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(5)
    assert reply.code == 0
    assert len(world.upstream.values("flights")) == 80


def test_a_sequence_lost_in_doubt_is_told_and_the_next_records_go_on(world: World) -> None:
    target = key_at(1)
    world.upstream.errors["flights", 1] += [7, 45]
    reply = world.produce(1, {("flights", 3): batch([(target, b"unknown")])})
    world.settle(5)
    assert reply.code == 45
    assert "no longer knows" in (reply.produced["flights", 3].error_message or "")
    assert world.produce(1, {("flights", 3): batch([(target, b"next")])}).code == 0
    assert world.upstream.values("flights") == [b"next"]


def test_upstreams_quota_is_honoured(world: World) -> None:
    world.upstream.throttle_ms = 5000
    assert world.produce(1, {("flights", 3): batch(pairs())}).code == 0
    reply = world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(4)
    assert reply.frame is None
    world.settle(2)
    assert reply.code == 0


# -- bounds


def test_producing_clients_are_held_while_too_much_is_buffered(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(max_buffered=30_000)
    world.slow = True
    world.produce(1, {("flights", 3): batch([(b"k", bytes(6000))])})
    assert world.held == set()
    assert not [each for each in caplog.records if "reading from clients paused" in each.getMessage()]
    world.produce(2, {("flights", 3): batch([(b"k", bytes(6000))])})
    assert world.held == {1, 2}
    (line,) = [each for each in caplog.records if "reading from clients paused" in each.getMessage()]
    assert (line.__dict__["clients"], line.__dict__["max_buffered"]) == (2, 30_000)
    world.release()
    world.release()
    assert world.held == set()
    assert world.core.buffered.total == 0


def test_a_full_buffer_takes_no_records_of_new_connections_either() -> None:
    world = world_of(max_buffered=30_000)
    world.slow = True
    replies = [world.produce(n, {("flights", 3): batch([(b"k", bytes(6000))])}) for n in range(10)]
    assert [reply.code for reply in replies[4:]] == [19] * 6
    for _ in range(4):
        world.release()
    assert [reply.code for reply in replies[:4]] == [0] * 4


def test_clients_that_come_again_and_again_do_not_fill_the_buffer_for_others() -> None:
    world = world_of(nodes=2, max_buffered=30_000)
    assert world.produce(1, {("flights", 2): batch([(key_at(2), b"x")])}).code == 0
    leaders = world.upstream.cluster.leaders
    near, far = (next(p for p in range(SIX) if leaders["flights", p].node == node) for node in (0, 1))
    world.kill(1)
    for client in range(2, 60):
        world.produce(client, {("flights", far): batch([(key_at(far), bytes(6000))])})
        world.leave(client)
    reply = world.produce(100, {("flights", near): batch([(key_at(near), b"decent")])})
    assert reply.code == 0
    assert world.core.buffered.total < 60_000
    world.settle(200)
    assert world.core.buffered.total == 0
    assert world.core.idle


def test_a_request_without_partitions_is_answered(world: World) -> None:
    assert world.produce(1, {}).produced == {}
    empty = ProduceRequest(acks=-1, timeout_ms=1, topic_data=(TopicProduceData(name="flights", partition_data=()),))
    assert world.request(1, empty, 9).produced == {}


def test_the_number_of_partitions_is_pinned(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.produce(1, {("flights", 3): batch(pairs())})
    world.upstream.lead("flights", SIX, 0)
    world.core.control.request_topics("flights")
    world.settle(1)
    reply = world.produce(1, {("flights", 3): batch(pairs()), ("flights", SIX): batch(pairs())})
    assert {each.error_code for each in reply.produced.values()} == {0}
    assert_every_key_at_its_place(world)
    assert [record for record in caplog.records if "keys still go to the pinned" in record.getMessage()]


def test_a_stated_number_of_partitions_outlives_the_proxy(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(rule="flights=rewrite::6")
    assert world.produce(1, {("flights", 3): batch(pairs())}).code == 0
    world.upstream.cluster.grow("flights", 2)
    world.restart()
    make_known(world)
    assert world.produce(1, {("flights", 3): batch(pairs())}).code == 0
    assert len(world.upstream.values("flights")) == 80
    assert_every_key_at_its_place(world)
    assert len([record for record in caplog.records if "keys still go to the pinned" in record.getMessage()]) == 1


def test_a_topic_with_fewer_partitions_than_are_stated_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(rule="flights=rewrite:crc32:7")
    refused = world.produce(1, {("flights", 3): batch(pairs())})
    assert refused.code == 44
    assert "flights has 6 partitions" in (refused.produced["flights", 3].error_message or "")
    assert [record for record in caplog.records if "are refused" in record.getMessage()]
    world.upstream.lead("flights", SIX, 0)
    assert world.produce(1, {("flights", 3): batch(pairs())}).code == 44
    world.settle(1)
    assert world.produce(1, {("flights", 3): batch(pairs())}).code == 0


def test_a_topic_that_was_recreated_is_pinned_again(world: World) -> None:
    world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(1)
    world.upstream.cluster.recreate("flights", 5)
    world.core.control.request_topics("flights")
    world.settle(1)
    world.produce(1, {("flights", 3): batch(pairs())})
    world.settle(1)
    counts: dict[int, int] = defaultdict(int)
    for (_, partition), log in world.upstream.logs.items():
        for record in log:
            assert murmur2_partition(record.key or b"", 5) == partition
            counts[partition] += 1
    assert sum(counts.values()) == 40


# -- observing


def test_observed_topics_are_counted_and_left_alone(world: World) -> None:
    data = batch([*pairs(10), (None, b"x")], compression=Compression.ZSTD)
    world.produce(1, {("plain", 1): data})
    assert world.upstream.produced[0][1].topic_data[0].partition_data[0].records == data
    tally = world.core.tallies["plain"]
    elsewhere = sum(murmur2_partition(key or b"", 2) != 1 for key, _ in pairs(10))
    assert (tally.records, tally.keyless, tally.misplaced) == (11, 1, elsewhere)


@pytest.mark.parametrize("partition", [-1, 2, 2**31 - 1])
def test_records_of_an_observed_topic_for_a_partition_that_it_lacks_are_for_upstream_to_judge(
    world: World, partition: int
) -> None:
    world.produce(1, {("plain", 1): batch(pairs(10))})
    world.produce(1, {("plain", partition): batch(pairs(10))})
    assert world.core.tallies["plain"].records == 10


def test_records_that_cannot_be_read_leave_nothing_behind_for_topics_that_nobody_knows() -> None:
    world = World(Upstream({}), "*=rewrite")
    for number in range(3):
        assert world.produce(1, {(f"made-up-{number}", 0): batch(pairs(1))[:-1]}).code != 0
    assert not world.core.tallies


def test_moved_records_are_counted(world: World) -> None:
    world.produce(1, {("flights", 3): batch(pairs())})
    tally = world.core.tallies["flights"]
    assert (tally.records, tally.keyless) == (40, 0)
    assert tally.misplaced == sum(murmur2_partition(key or b"", SIX) != 3 for key, _ in pairs())


def test_the_offset_of_a_batch_that_stays_in_place_is_true_also_where_upstream_takes_it_in_halves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "STEP", 1000)  # half of it needs a thread
    monkeypatch.setattr(threads, "PLAIN", 1)
    world = world_of()
    own, key = world.producer_id(1), key_at(0)
    assert world.produce(1, {("flights", 0): batch([(key, b"first")], own, 0, 0)}).code == 0
    world.upstream.cluster.data.max_message_bytes = 3000
    big = batch([(key, b"%02d" % number * 20) for number in range(100)], own, 0, 1)
    reply = world.produce(1, {("flights", 0): big})
    world.settle(5)
    assert reply.code == 0
    assert len(world.upstream.logs["flights", 0]) == 101
    assert reply.produced["flights", 0].base_offset in (1, -1)
