"""Reading without a consumer: find the leader, send one Fetch."""

from typing import Any

import pytest

from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.message_sets import build_message_set
from ottla.codec.records import Record
from ottla.errors import NotLeaderOrFollower, OffsetOutOfRange, OttlaError, RecordTooLarge, UnknownTopicOrPartition
from ottla.sdk.calls import How, fetch_many, leader
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from tests.sdk.leaders import NEW, Leaders

P = ("t", 0)


def done(leaders: Leaders, outcome: Outcome[Any]) -> Any:
    leaders.run(outcome)
    return outcome.result()


def one_fetch(leaders: Leaders, offset: int, max_bytes: int = 2**20, wait: float = 0.5) -> Fetched:
    fetched = done(leaders, fetch_many(leaders.core, {P: offset}, leaders.now, How(max_bytes, wait, 0)))[P]
    if isinstance(fetched, OttlaError):
        raise fetched
    assert isinstance(fetched, Fetched)
    return fetched


def test_a_leader_is_found_and_an_election_waited_for() -> None:
    leaders = Leaders({"t": 2}, nodes=2)
    assert done(leaders, leader(leaders.core, ("t", 1), leaders.now)).id == 2
    leaders.logs["t", 1].lead(-1)
    found = leader(leaders.core, ("t", 1), leaders.now)
    leaders.run(2.0)
    assert not found.done
    leaders.logs["t", 1].lead(1)
    assert done(leaders, found).id == 1
    with pytest.raises(UnknownTopicOrPartition, match="'t' has partitions 0 to 1, not 7"):
        done(leaders, leader(leaders.core, ("t", 7), leaders.now))


@pytest.mark.parametrize("versions", [(4, 18), (4, 12), (0, 2)])
def test_one_fetch_returns_what_is_there_and_where_to_go_on(versions: tuple[int, int]) -> None:
    leaders = Leaders({"t": 1}, versions=NEW | {1: versions})
    leaders.logs[P].append(b"a", b"b", b"c")
    leaders.logs[P].append(b"d")
    fetched = one_fetch(leaders, 1)
    assert [each.value for each in fetched] == [b"b", b"c", b"d"]
    assert (fetched.next_offset, fetched.high_watermark) == (4, 4 if versions != (0, 2) else fetched.high_watermark)
    before = leaders.now
    nothing = one_fetch(leaders, 4, wait=3.0)
    assert list(nothing) == [] and nothing.next_offset == 4 and 3.0 <= leaders.now - before < 3.1
    assert leaders.sessions == {}
    with pytest.raises(OffsetOutOfRange, match="t-0 at offset 9"):
        one_fetch(leaders, 9)


def test_a_fetch_follows_the_leader() -> None:
    leaders = Leaders({"t": 1}, nodes=2)
    leaders.logs[P].append(b"a")
    one_fetch(leaders, 0)
    leaders.logs[P].lead(2)
    assert [each.value for each in one_fetch(leaders, 0)] == [b"a"]


def test_a_fetch_asks_for_as_much_as_a_cut_record_needs() -> None:
    leaders = Leaders({"t": 1}, versions=NEW | {1: (0, 2)}, options=Options(fetch_max_bytes=10_000))
    for value in (b"x" * 5000, b"y" * 20_000):
        log = leaders.logs[P]
        log.append_batch(build_message_set([Record(log.end, 5, None, value)], magic=1), 1)
    assert [each.value for each in one_fetch(leaders, 0, max_bytes=100)] == [b"x" * 5000]
    sizes = [m.topics[0].partitions[0].partition_max_bytes for m in leaders.asked(FetchRequest)]
    assert sizes == [100, 5034]
    with pytest.raises(RecordTooLarge, match="t-0 from offset 1: a batch of 20034 bytes"):
        one_fetch(leaders, 1, max_bytes=100)


def test_several_partitions_are_one_request_to_each_leader_and_each_has_its_own_fate() -> None:
    leaders = Leaders({"t": 4}, nodes=2)
    for index in range(3):
        leaders.logs["t", index].append(b"%d" % index, b"more")
    wanted = {("t", 0): 0, ("t", 1): 1, ("t", 2): 9, ("t", 3): 0, ("t", 7): 0, ("nowhere", 0): 0}
    answers = done(leaders, fetch_many(leaders.core, wanted, leaders.now, How(2**20, 0.5, 0)))
    assert list(answers) == list(wanted)
    assert [each.value for each in answers["t", 0]] == [b"0", b"more"]
    assert [each.value for each in answers["t", 1]] == [b"more"] and answers["t", 1].next_offset == 2
    assert isinstance(answers["t", 2], OffsetOutOfRange) and "t-2 at offset 9" in str(answers["t", 2])
    assert list(answers["t", 3]) == [] and answers["t", 3].next_offset == 0
    assert isinstance(answers["t", 7], UnknownTopicOrPartition)
    assert isinstance(answers["nowhere", 0], UnknownTopicOrPartition)
    asked = [[each.partition for each in m.topics[0].partitions] for m in leaders.asked(FetchRequest)]
    assert asked == [[0, 2], [1, 3]]


def test_of_several_partitions_only_those_that_are_wanting_are_asked_for_again() -> None:
    leaders = Leaders({"t": 2}, nodes=1)
    for index in range(2):
        leaders.logs["t", index].append(b"x")
    refused: list[int] = []

    def refuse(node: int, request: Any, answer: Any) -> Any:
        if isinstance(request, FetchRequest) and not refused:
            refused.append(node)
            answer.responses[0].partitions[1].error_code = NotLeaderOrFollower.code
        return answer

    leaders.bend = refuse
    wanted = {("t", 0): 0, ("t", 1): 0}
    answers = done(leaders, fetch_many(leaders.core, wanted, leaders.now, How(2**20, 0.5, 0)))
    assert [each.value for found in answers.values() for each in found] == [b"x", b"x"]
    asked = [[each.partition for each in m.topics[0].partitions] for m in leaders.asked(FetchRequest)]
    assert asked == [[0, 1], [1]]
