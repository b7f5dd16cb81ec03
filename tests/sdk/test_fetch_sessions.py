"""The contents of Fetch requests: every partition, or the changes to a session."""

import pytest

from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.message_sets import build_message_set
from ottla.codec.records import Record
from ottla.codec.wire import NO_UUID
from ottla.errors import DataLoss, DecodeError, FetchSessionTopicIdError, KafkaStorageError, RecordTooLarge
from ottla.sdk.consume.partitions.position import Offset, Time
from ottla.sdk.options import Options
from tests.sdk.leaders import NEW, Leaders
from tests.sdk.reading import read, reader

T = [("t", index) for index in range(3)]


def partitions(request: FetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [each for topic in request.forgotten_topics_data for each in topic.partitions]


def fetches(leaders: Leaders) -> list[tuple[int, int, list[int], list[int]]]:
    """Session id, epoch, partitions named, partitions forgotten."""
    return [(m.session_id, m.session_epoch, partitions(m), forgotten(m)) for m in leaders.asked(FetchRequest)]


def test_within_a_session_only_what_has_changed_is_named() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.2)
    assert [(epoch, named) for _, epoch, named, _ in fetches(leaders)[:3]] == [(0, [0, 1, 2]), (1, []), (2, [])]
    assert fetches(leaders)[0][0] == 0 and fetches(leaders)[1][0] == fetches(leaders)[2][0] > 0
    leaders.logs["t", 1].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 1): [b"a"]}
    leaders.run(0.1)
    assert fetches(leaders)[-1][2] == [1]
    assert leaders.asked(FetchRequest)[-1].topics[0].partitions[0].fetch_offset == 1


def test_topics_go_by_id_from_version_13_on() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.logs["t", 2].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 2): [b"a"]}
    [first, *_] = leaders.asked(FetchRequest)
    assert [topic.topic_id for topic in first.topics] == [leaders.ids["t"]]


def test_a_cluster_that_tells_no_topic_ids_is_asked_by_name() -> None:
    leaders = Leaders({"t": 3}, versions=NEW | {3: (1, 9)})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.logs["t", 2].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 2): [b"a"]}
    assert {version for _, version, message in leaders.requests if isinstance(message, FetchRequest)} == {12}
    assert leaders.asked(FetchRequest)[0].topics[0].topic_id == NO_UUID


@pytest.mark.parametrize("versions", [(4, 6), (0, 2), (0, 3)])
def test_without_sessions_every_fetch_names_everything(versions: tuple[int, int]) -> None:
    leaders = Leaders({"t": 3}, versions=NEW | {1: versions})
    reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(2.0)
    assert len(fetches(leaders)) >= 3
    assert all(sorted(named) == [0, 1, 2] for _, _, named, _ in fetches(leaders))


def test_a_broker_without_room_for_a_session_is_asked_for_everything_until_it_has() -> None:
    leaders = Leaders({"t": 3})
    leaders.room_for_sessions = False
    reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.8)
    assert [(id, epoch, sorted(named)) for id, epoch, named, _ in fetches(leaders)[:3]] == [(0, 0, [0, 1, 2])] * 3
    leaders.room_for_sessions = True
    leaders.run(2.0)
    assert fetches(leaders)[-1][1] > 0


def test_partitions_given_up_or_paused_are_forgotten_and_come_back() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(0.6)
    fetcher.unassign([("t", 0)])
    fetcher.pause([("t", 1)])
    leaders.run(1.2)
    assert any(sorted(gone) == [0, 1] for *_, gone in fetches(leaders))
    fetcher.resume([("t", 1)])
    fetcher.assign({("t", 0): Offset(0)}, leaders.now)
    for place in T:
        leaders.logs[place].append(b"x")
    assert read(leaders, fetcher, 3) == {place: [b"x"] for place in T}


def test_a_partition_given_up_and_taken_again_at_once_is_not_forgotten() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.logs["t", 0].append(b"a")
    leaders.run(0.6)
    fetcher.unassign([("t", 0)])
    fetcher.assign({("t", 0): Offset(0)}, leaders.now)
    assert read(leaders, fetcher, 1) == {("t", 0): [b"a"]}
    assert all(not gone for *_, gone in fetches(leaders))


def test_a_session_that_the_broker_has_dropped_begins_again() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.2)
    leaders.drop_sessions()
    leaders.logs["t", 0].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 0): [b"a"]}
    leaders.run(0.1)
    [id, epoch, named, _] = next(each for each in fetches(leaders)[1:] if each[1] == 0)
    assert (id, epoch, sorted(named)) == (0, 0, [0, 1, 2])


def test_an_epoch_that_the_broker_does_not_expect_replaces_the_session() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.2)
    [(_, id)] = leaders.sessions
    leaders.sessions[1, id].epoch += 5
    leaders.logs["t", 0].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 0): [b"a"]}
    leaders.run(0.1)
    assert any(each[:2] == (id, 0) for each in fetches(leaders)), "names the session to drop"
    assert len(leaders.sessions) == 1


def test_a_lost_answer_begins_a_new_session() -> None:
    leaders = Leaders({"t": 3})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.2)
    leaders.cut()
    leaders.logs["t", 0].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 0): [b"a"]}
    assert len(leaders.sessions) == 1


def test_sessions_are_closed_with_the_fetcher_though_a_fetch_waits() -> None:
    leaders = Leaders({"t": 3}, nodes=2)
    fetcher = reader(leaders, dict.fromkeys(T, Time(EARLIEST)))
    leaders.run(0.8)
    assert sorted(node for node, _ in leaders.sessions) == [1, 2]
    before = len(leaders.asked(FetchRequest))
    fetcher.close()
    leaders.run(0.1)
    assert leaders.sessions == {}
    assert [(epoch, named, gone) for _, epoch, named, gone in fetches(leaders)[before:]] == [(-1, [], [])] * 2


@pytest.mark.parametrize("versions", [(4, 6), (4, 18)])
def test_nobody_says_good_bye_who_has_no_session(versions: tuple[int, int]) -> None:
    leaders = Leaders({"t": 1}, versions=NEW | {1: versions})
    leaders.room_for_sessions = False
    fetcher = reader(leaders, {T[0]: Time(EARLIEST)})
    leaders.run(0.8)
    before = len(leaders.asked(FetchRequest))
    fetcher.close()
    leaders.run(1.0)
    assert len(leaders.asked(FetchRequest)) == before


def test_a_broker_that_drops_every_session_is_asked_with_pauses() -> None:
    leaders = Leaders({"t": 3})

    def refuse(node, request, answer):  # type: ignore[no-untyped-def] # any message
        if isinstance(request, FetchRequest):
            answer.error_code, answer.responses = FetchSessionTopicIdError.code, ()
        return answer

    leaders.bend = refuse
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(10.0)
    assert 5 < len(fetches(leaders)) < 40
    leaders.bend = lambda node, request, answer: answer
    leaders.logs["t", 0].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 0): [b"a"]}


def test_a_node_that_throttles_answers_nothing_and_that_is_no_trouble() -> None:
    leaders = Leaders({"t": 3})
    leaders.room_for_sessions = False

    def throttle(node, request, answer):  # type: ignore[no-untyped-def] # any message
        if isinstance(request, FetchRequest) and leaders.now < 5.0:
            return FetchResponse(responses=(), throttle_time_ms=200)
        return answer

    leaders.bend = throttle
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.logs["t", 0].append(b"a")
    leaders.run(4.0)
    known = len(leaders.asked(MetadataRequest))
    leaders.run(0.9)
    assert list(fetcher.explain(leaders.now)) == [] and len(leaders.asked(MetadataRequest)) == known
    assert 20 <= len(fetches(leaders)) <= 26, "each time after the throttle time"
    assert read(leaders, fetcher, 1, limit=0.3) == {("t", 0): [b"a"]}


def test_an_answer_about_nothing_is_no_news_of_a_partition_with_which_something_was_wrong() -> None:
    leaders = Leaders({"t": 3})
    leaders.room_for_sessions = False
    bends = [KafkaStorageError.code, 0]

    def bend(node, request, answer):  # type: ignore[no-untyped-def] # any message
        if isinstance(request, FetchRequest) and bends and T[0][1] in partitions(request):
            if not (code := bends.pop(0)):
                return FetchResponse(responses=(), throttle_time_ms=50)
            answer.responses[0].partitions[0].error_code = code
        return answer

    leaders.bend = bend
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(lambda: not bends)
    leaders.run(0.52)  # the fetch was delayed
    assert "KAFKA_STORAGE_ERROR" in next(fetcher.explain(leaders.now), "")
    leaders.run(3.0)
    assert list(fetcher.explain(leaders.now)) == []


def test_a_session_that_the_broker_closes_in_an_answer_is_not_asked_for_again() -> None:
    leaders = Leaders({"t": 3})
    reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.2)

    def close(node, request, answer):  # type: ignore[no-untyped-def] # any message
        if isinstance(request, FetchRequest):
            leaders.drop_sessions()
            leaders.bend = lambda node, request, answer: answer
            answer.session_id = 0
        return answer

    leaders.bend = close
    leaders.run(lambda: not leaders.sessions)
    before = len(fetches(leaders))
    leaders.run(1.2)
    [(id, epoch, named, _), *_] = fetches(leaders)[before:]
    assert (id, epoch, sorted(named)) == (0, 0, [0, 1, 2])


def test_a_broker_that_is_upgraded_to_topic_ids_gets_a_new_session() -> None:
    leaders = Leaders({"t": 3}, versions=NEW | {1: (4, 12)})
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    leaders.run(1.2)
    leaders.cluster.release[1] = (4, 17)
    leaders.cut()
    leaders.logs["t", 0].append(b"a")
    assert read(leaders, fetcher, 1) == {("t", 0): [b"a"]}
    leaders.run(2.0)
    assert leaders.asked(FetchRequest)[-1].session_epoch > 0


def test_a_recreated_topic_is_not_read_on_as_if_nothing_had_happened() -> None:
    leaders = Leaders({"t": 1})
    leaders.logs["t", 0].append(b"old")
    strict = reader(leaders, {("t", 0): Offset(0)})
    lenient = reader(leaders, {("t", 0): Offset(0)}, reset=Time(-2))
    for each in (strict, lenient):
        assert read(leaders, each, 1) == {("t", 0): [b"old"]}
    leaders.cluster.recreate("t")
    leaders.logs["t", 0].append(b"new", b"newer")
    leaders.drop_sessions()
    leaders.run(lambda: bool(strict.failed))
    with pytest.raises(DataLoss, match="t-0 from offset 1: the topic was deleted and recreated"):
        strict.take()
    assert read(leaders, lenient, 2) == {("t", 0): [b"new", b"newer"]}


@pytest.mark.parametrize("newest", [12, 18])
def test_a_topic_recreated_within_a_session_is_not_forgotten_where_topics_go_by_name(newest: int) -> None:
    leaders = Leaders({"t": 1, "u": 1}, versions=NEW | {1: (4, newest)})
    fetcher = reader(leaders, {("t", 0): Offset(0), ("u", 0): Offset(0)}, reset=Time(EARLIEST))
    leaders.run(1.2)
    old = leaders.ids["t"]
    leaders.cluster.recreate("t")
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(1.2)
    leaders.logs["t", 0].append(b"new")
    assert read(leaders, fetcher, 1) == {("t", 0): [b"new"]}
    gone = [each.topic_id for m in leaders.asked(FetchRequest) for each in m.forgotten_topics_data]
    assert gone == ([] if newest == 12 else [old])
    assert all(epoch > 0 for _, epoch, *_ in fetches(leaders)[1:]), "in the same session"


def test_a_broker_that_tells_no_topic_ids_has_not_recreated_the_topic() -> None:
    leaders = Leaders({"t": 1})
    leaders.logs["t", 0].append(b"a")
    fetcher = reader(leaders, {("t", 0): Offset(0)}, reset=Time(LATEST))
    assert read(leaders, fetcher, 1) == {("t", 0): [b"a"]}
    id, usual = leaders.ids["t"], leaders.bend

    def without_ids(node, request, answer):  # type: ignore[no-untyped-def] # any message
        for topic in answer.topics if isinstance(request, MetadataRequest) else ():
            topic.topic_id = NO_UUID
        return answer

    fetcher.pause([("t", 0)])
    leaders.logs["t", 0].append(b"b")
    leaders.bend = without_ids  # half of the nodes run an older version
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(0.1)
    assert leaders.core.cluster.topic_id("t") == id
    leaders.bend = usual
    fetcher.resume([("t", 0)])
    assert read(leaders, fetcher, 1) == {("t", 0): [b"b"]}
    fetcher.pause([("t", 0)])
    leaders.logs["t", 0].append(b"c")
    leaders.core.metadata.forget("t")
    leaders.bend = without_ids
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(0.1)
    assert leaders.core.cluster.topic_id("t") == NO_UUID
    leaders.bend = usual
    leaders.core.metadata.refresh(leaders.now)
    leaders.run(0.1)
    fetcher.resume([("t", 0)])
    assert read(leaders, fetcher, 1) == {("t", 0): [b"c"]}


def test_everybody_gets_something_where_each_answer_holds_one_partition() -> None:
    for versions in ((4, 17), (4, 6), (0, 2)):
        leaders = Leaders(
            {"t": 3}, versions=NEW | {1: versions}, options=Options(fetch_max_bytes=100, partition_max_bytes=100)
        )
        for place in T:
            for value in range(10):
                leaders.logs[place].append(b"%d" % value)
        fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
        order: list[int] = []
        while len(order) < 30:
            if fetched := fetcher.take():
                order.append(fetched.partition)
            else:
                leaders.run(fetcher.wait())
        assert all(len(set(order[i : i + 3])) == 3 for i in range(0, 30, 3)), (versions, order)


def old_log(leaders: Leaders, *values: bytes, magic: int = 1) -> None:
    for value in values:
        log = leaders.logs["t", 0]
        log.append_batch(build_message_set([Record(log.end, 5, None, value)], magic=magic), 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("versions", [(0, 2), (0, 3)])
def test_message_sets_of_old_brokers_are_read(versions: tuple[int, int], magic: int) -> None:
    leaders = Leaders({"t": 1}, versions={1: versions, 2: (0, 0), 3: (1, 1), 18: (0, 0)})
    old_log(leaders, b"a", b"b", b"c", magic=magic)
    fetcher = reader(leaders, {("t", 0): Time(-2)})
    assert read(leaders, fetcher, 3) == {("t", 0): [b"a", b"b", b"c"]}
    assert (fetcher.position(("t", 0)), fetcher.position_epoch(("t", 0)), fetcher.lag(("t", 0))) == (3, -1, 0)


def test_a_record_that_old_brokers_cut_is_asked_for_again_with_as_much_as_it_needs() -> None:
    options = Options(partition_max_bytes=100, fetch_max_bytes=10_000)
    leaders = Leaders({"t": 1}, versions=NEW | {1: (0, 2)}, options=options)
    old_log(leaders, b"a", b"x" * 5000, b"c")
    fetcher = reader(leaders, {("t", 0): Offset(0)})
    assert read(leaders, fetcher, 3) == {("t", 0): [b"a", b"x" * 5000, b"c"]}
    asked = [m.topics[0].partitions[0].partition_max_bytes for m in leaders.asked(FetchRequest)]
    assert set(asked) == {100, 5034}, "the size of the large message once, then the usual size"
    old_log(leaders, b"y" * 20_000)
    leaders.run(lambda: bool(fetcher.failed))
    with pytest.raises(
        RecordTooLarge, match="t-0 from offset 3: a batch of 20034 bytes is larger than fetch_max_bytes"
    ):
        fetcher.take()


def test_a_record_larger_than_the_fetch_size_arrives_whole_from_new_brokers() -> None:
    leaders = Leaders({"t": 2}, options=Options(partition_max_bytes=100, fetch_max_bytes=200))
    for index in range(2):
        leaders.logs["t", index].append(b"a")
        leaders.logs["t", index].append(b"x" * 5000)
        leaders.logs["t", index].append(b"c")
    fetcher = reader(leaders, dict.fromkeys(T[:2], Offset(0)))
    assert read(leaders, fetcher, 6) == {place: [b"a", b"x" * 5000, b"c"] for place in T[:2]}


def large_records(
    leaders: Leaders, size: int, partitions: int, records: int = 3
) -> tuple[list[tuple[str, int]], dict[tuple[str, int], list[bytes]]]:
    """Fill partitions with batches of one record each; return the partitions, and all their records."""
    places = [("t", index) for index in range(partitions)]
    for place in places:
        for number in range(records):
            leaders.logs[place].append(b"%d" % number * size)
    return places, {place: [b"%d" % number * size for number in range(records)] for place in places}


@pytest.mark.parametrize("versions", [(4, 18), (4, 12), (4, 6), (0, 3), (0, 2)])
@pytest.mark.parametrize(
    ("size", "options"),
    [
        (5000, Options(partition_max_bytes=1000)),
        (5000, Options(partition_max_bytes=1000, fetch_max_bytes=5100)),
        (700, Options(partition_max_bytes=1000, fetch_max_bytes=2500)),
        (700, Options(partition_max_bytes=1000, fetch_buffer_bytes=2500)),
        (5000, Options(partition_max_bytes=1000, fetch_buffer_bytes=2500)),
    ],
    ids=["partition", "tight answer", "answer", "buffer", "larger than the buffer"],
)
def test_a_batch_that_is_cut_because_the_answer_is_full_is_no_damage(
    versions: tuple[int, int], size: int, options: Options
) -> None:
    leaders = Leaders({"t": 6}, nodes=2, versions=NEW | {1: versions}, options=options)
    leaders.cluster.data.cuts = True
    places, expected = large_records(leaders, size, 6)
    fetcher = reader(leaders, dict.fromkeys(places, Offset(0)))
    assert read(leaders, fetcher, 18) == expected
    assert len(leaders.asked(FetchRequest)) < 60


def test_what_was_cut_is_asked_for_first_with_room_for_all_of_it() -> None:
    leaders = Leaders({"t": 3}, options=Options(partition_max_bytes=1000, fetch_max_bytes=100_000))
    leaders.cluster.data.cuts = True
    for place, value in zip(T, (b"a", b"b" * 5000, b"c" * 5000), strict=True):
        leaders.logs[place].append(value)
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    assert sum(map(len, read(leaders, fetcher, 3).values())) == 3
    size = len(leaders.logs["t", 1].batches[0].data)
    second = leaders.asked(FetchRequest)[1]
    assert (second.session_epoch, second.topics[0].partitions[0].partition) == (0, 1), "a full request, in this order"
    assert second.topics[0].partitions[0].partition_max_bytes == size and second.max_bytes >= size


def test_a_batch_larger_than_the_whole_buffer_waits_until_the_user_has_taken_what_is_in_it() -> None:
    options = Options(partition_max_bytes=1000, fetch_buffer_bytes=3000)
    leaders = Leaders({"t": 3}, options=options)
    leaders.cluster.data.cuts = True
    for place in T[:2]:
        for _ in range(10):
            leaders.logs[place].append(b"x" * 400)
    leaders.logs["t", 2].append(b"y" * 5000)
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    largest, count = 0, 0
    while count < 21:
        leaders.run(0.05)
        largest = max(largest, fetcher.buffered)
        if fetched := fetcher.take():
            count += fetched.count
    assert 5000 < largest < 5200, "the large partition was fetched alone"


def test_a_batch_of_a_near_replica_that_is_cut_though_there_is_room_is_asked_of_the_leader() -> None:
    leaders = Leaders({"t": 1}, nodes=2, options=Options(rack="r2"))
    leaders.prefer["t", 0] = 2
    leaders.logs["t", 0].append(b"a")

    def cut(node, request, answer):  # type: ignore[no-untyped-def] # any message
        if isinstance(request, FetchRequest) and node == 2:
            for each in (each for topic in answer.responses for each in topic.partitions if each.records):
                each.records = bytes(each.records)[:-1]
        return answer

    leaders.bend = cut
    assert read(leaders, reader(leaders, {("t", 0): Offset(0)}), 1) == {("t", 0): [b"a"]}


def test_a_batch_that_is_cut_though_it_was_asked_for_alone_and_with_room_is_damage() -> None:
    leaders = Leaders({"t": 3})
    for place in T:
        leaders.logs[place].append(b"a")
    leaders.logs["t", 1].damage(0, 8, (1000).to_bytes(4, "big"))
    fetcher = reader(leaders, dict.fromkeys(T, Offset(0)))
    assert read(leaders, fetcher, 2) == {("t", 0): [b"a"], ("t", 2): [b"a"]}
    with pytest.raises(
        DecodeError, match=r"t-1 from offset 0: .*the batch says it has 1012 bytes.*its length is damaged"
    ):
        read(leaders, fetcher, 1)
    assert len(leaders.asked(FetchRequest)) <= 6
