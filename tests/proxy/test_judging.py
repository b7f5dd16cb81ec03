"""Batches with records that upstream would refuse are refused as a whole, before the first part goes."""

import os
from functools import partial

import pytest

from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.codec.compression import Compression
from ottla.codec.frames import parse_request
from ottla.codec.records import BatchBuilder
from ottla.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, TopicAuthorizationFailed
from ottla.proxy.upstream.topic_config_requests import AT_ONCE
from ottla.proxy.upstream.topic_configs import REFRESH, Limits, limits_of
from tests.proxy.simulated import CUT_BEFORE, NEWEST, UNIX_TIME, Pair, Upstream, World, batch
from tests.proxy.test_rewriting import SIX, key_at, make_known

HOUR = 3_600_000


def world_of(**configs: str) -> World:
    """A proxy before a topic with this configuration; ``_`` stands for a dot."""
    world = World(Upstream({"flights": SIX, "plain": 2}), "flights=rewrite", "plain=observe")
    world.upstream.cluster.data.configs["flights"] = {each.replace("_", "."): value for each, value in configs.items()}
    make_known(world)
    return world


SOME: list[Pair] = [(key_at(0), b"0"), (None, b"1"), (key_at(1), b"2"), (None, b"3")]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_compacted_topic_takes_no_part_of_a_batch_with_a_record_without_a_key(idempotent: bool) -> None:
    world = world_of(cleanup_policy="compact")
    producer = (world.producer_id(1), 0, 0) if idempotent else (-1, -1, -1)
    answer = world.produce(1, {("flights", 2): batch(SOME, *producer)}).produced["flights", 2]
    assert answer.error_code == InvalidRecord.code
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert not world.upstream.values("flights")
    assert world.produce(1, {("flights", 2): batch([SOME[0], SOME[2]], *producer)}).code == 0
    assert sorted(filter(None, world.upstream.values("flights"))) == [b"0", b"2"]


def at(*times: int) -> bytes:
    builder = BatchBuilder()
    for n, time in enumerate(times):
        builder.append(time, key_at(n), b"x", ())
    return builder.build()


@pytest.mark.parametrize(
    ("name", "far"),
    [("message_timestamp_before_max_ms", -3 * HOUR), ("message_timestamp_after_max_ms", 3 * HOUR)],
)
def test_records_of_another_time_are_refused_with_their_batch(name: str, far: int) -> None:
    world = world_of(**{name: str(HOUR)})
    now = int(UNIX_TIME * 1000)
    reply = world.produce(1, {("flights", 2): at(now, now + far, now)})
    assert reply.code == InvalidTimestamp.code
    assert [each.batch_index for each in reply.produced["flights", 2].record_errors] == [1]
    assert not world.upstream.values("flights")
    assert world.produce(1, {("flights", 2): at(now, now + far // 4)}).code == 0


def test_topics_that_take_the_time_of_the_append_take_records_of_any_time() -> None:
    world = world_of(message_timestamp_before_max_ms="1", message_timestamp_type="LogAppendTime")
    assert world.produce(1, {("flights", 2): at(0, 1)}).code == 0


def test_a_record_that_is_too_large_alone_is_refused_with_its_batch() -> None:
    world = world_of(max_message_bytes="1000")
    world.upstream.cluster.data.max_message_bytes = 1000
    pairs: list[Pair] = [(key_at(0), b"x"), (key_at(1), os.urandom(1200)), (key_at(2), b"y")]
    reply = world.produce(1, {("flights", 2): batch(pairs)})
    assert reply.code == MessageTooLarge.code
    assert [each.batch_index for each in reply.produced["flights", 2].record_errors] == [1]
    assert not world.upstream.values("flights")


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_batch_that_is_too_large_is_taken_if_its_parts_are_not(compression: Compression) -> None:
    world = world_of(max_message_bytes="1000")
    world.upstream.cluster.data.max_message_bytes = 1000
    pairs: list[Pair] = [(key_at(n), bytes(1500) if compression else bytes(400)) for n in range(3)]
    assert world.produce(1, {("flights", 2): batch(pairs, compression=compression)}).code == 0


def test_a_change_of_the_configuration_is_seen_in_time() -> None:
    world = world_of()
    assert world.produce(1, {("flights", 2): batch(SOME)}).code == 0
    world.upstream.cluster.data.configs["flights"] = {"cleanup.policy": "compact,delete"}
    world.settle(REFRESH)
    world.produce(1, {("flights", 2): batch([SOME[0]])})
    assert world.produce(1, {("flights", 2): batch(SOME)}).code == InvalidRecord.code


def _note(told: list[str], topic: str, *result: object) -> None:
    told.append(topic)


def test_the_last_question_about_a_configuration_outlasts_a_lost_connection() -> None:
    world = world_of()
    world.settle()
    told: list[str] = []
    control = world.core.control
    world.upstream.bend = lambda request, answer: None if isinstance(answer, DescribeConfigsResponse) else answer
    for topic in ("former", "recreated"):
        control.configs.request("flights", partial(_note, told, topic))
        world.settle(0.1)
    assert len(world.upstream.asked(DescribeConfigsRequest)) == 1, "one request at a time"
    assert control._link is not None
    world.lose(control._link.number)
    world.upstream.bend = lambda request, answer: answer
    world.settle(5)
    assert told == ["recreated"]


def test_an_upstream_that_closes_at_each_question_about_configurations_is_asked_no_more_and_judges_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of()
    world.settle()
    answer = world.upstream.answer

    def closing(node: int, frame: bytes) -> tuple[bytes | None, str]:
        if isinstance(message := parse_request(frame).message, DescribeConfigsRequest):
            world.upstream.requests.append((node, 4, message))
            return None, CUT_BEFORE
        return answer(node, frame)

    monkeypatch.setattr(world.upstream, "answer", closing)
    reply = world.produce(1, {("flights", 2): batch(SOME)})
    world.settle(20)
    assert reply.code == 0
    assert len(world.upstream.asked(DescribeConfigsRequest)) == 5
    assert caplog.text.count("upstream does not answer: ") == 5
    assert caplog.text.count("topic configuration unknown, only brokers judge records") == 1


def test_configurations_of_many_topics_are_asked_for_in_several_requests() -> None:
    world = world_of()
    world.settle()
    told: list[str] = []
    for topic in (names := [f"t{number}" for number in range(AT_ONCE + 1)]):
        world.core.control.configs.request(topic, partial(_note, told, topic))
    world.settle(1)
    assert told == names
    assert [len(each.resources) for each in world.upstream.asked(DescribeConfigsRequest)] == [AT_ONCE, 1]


@pytest.mark.parametrize("served", [False, True])
def test_an_upstream_that_tells_no_configuration_judges_alone(served: bool, caplog: pytest.LogCaptureFixture) -> None:
    world = World(Upstream({"flights": SIX, "plain": 2}), "*=rewrite")

    def bend(request: object, answer: object) -> object:
        for each in answer.results if isinstance(answer, DescribeConfigsResponse) else ():
            each.error_code, each.configs = TopicAuthorizationFailed.code, ()
        return answer

    world.upstream.bend = bend
    if not served:
        world.upstream.cluster.release = {key: each for key, each in NEWEST.items() if key != 32}
        world.restart()
    for topic in ("flights", "plain"):
        reply = world.produce(1, {(topic, 1): batch(SOME)})
        world.settle(1)
        assert reply.code == 0
    assert caplog.text.count("topic configuration unknown, only brokers judge records") == 1


def test_brokers_before_3_6_have_one_limit_for_both_kinds_of_times() -> None:
    assert limits_of({"message.timestamp.difference.max.ms": "5"}) == Limits(before_max=5, after_max=5)
    assert limits_of({"cleanup.policy": "delete,compact", "max.message.bytes": "9"}) == Limits(keyed=True, largest=9)
