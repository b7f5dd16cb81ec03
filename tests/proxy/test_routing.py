from uuid import UUID

import pytest

from ottla.codec.records import BatchBuilder, parse_batch
from ottla.proxy.clients.carried import offered
from ottla.proxy.routing import TopicRules, routes_of
from ottla.proxy.topic_rule import parse_rule

ID = UUID(int=1)


@pytest.mark.parametrize(
    ("partitioner", "key", "partitions", "partition"),
    [
        ("murmur2", b"TT0124", 15, 10),
        ("crc32", b"TT0124", 15, 9),
        ("murmur2", b"100:48069", 12, 9),
        ("murmur2", b"mk-123456", 25, 5),
        ("crc32", b"mk-123456", 25, 3),
        ("murmur2", b"wu", 10, 0),
        *(("murmur2", b"my_key_%d" % n, 6, p) for n, p in enumerate((0, 4, 5, 2), 1)),
        *(("fnv1a", b"my_key_%d" % n, 6, p) for n, p in enumerate((1, 2, 3, 2), 1)),
        *(("fnv1a_reference", b"my_key_%d" % n, 6, p) for n, p in enumerate((1, 0, 5, 0), 1)),
    ],
)
def test_keys_go_where_the_clients_of_that_partitioner_put_them(
    partitioner: str, key: bytes, partitions: int, partition: int
) -> None:
    ways = routes_of(parse_rule(f"t=rewrite:{partitioner}"), ID, partitions)
    builder = BatchBuilder()
    builder.extend([(0, key, b"v"), (0, None, b"w")])
    parts = ways.split(parse_batch(builder.build()).records(), 99)
    assert [each.key for each in parts[partition]] == [key] and [each.key for each in parts[99]] == [None]


def test_the_first_rule_that_matches_counts() -> None:
    rules = TopicRules([parse_rule("flights=rewrite"), parse_rule("f*=observe")])
    assert rules.rewrites("flights")
    assert rules.of("fares") == parse_rule("f*=observe")
    assert rules.of("Flights") is None


def test_topics_of_kafka_itself_match_no_rule() -> None:
    rules = TopicRules([parse_rule("*=rewrite")])
    assert rules.of("__consumer_offsets") is None
    assert rules.rewrites("_schemas")


@pytest.mark.parametrize(
    "topic",
    [
        "orders-app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
        "orders-app-by-user-repartition",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
        "app-join-subscription-registration-topic",
        "app-join-subscription-response-topic",
    ],
)
def test_only_their_full_name_matches_internal_topics_of_kafka_streams(topic: str) -> None:
    for glob in ("*", f"{topic[:-1]}?", f"*{topic[-9:]}"):
        assert TopicRules([parse_rule(f"{glob}=rewrite")]).of(topic) is None
    named = TopicRules([parse_rule("*=observe"), parse_rule(f"{topic}=rewrite")])
    assert named.rewrites(topic)
    assert named.of(f"{topic}s") == parse_rule("*=observe")


def test_clients_are_offered_what_upstream_and_the_table_share() -> None:
    versions = offered({0: (0, 13), 1: (4, 18), 3: (0, 5), 17: (0, 1), 60: (0, 1), 78: (1, 3), 999: (0, 0), 18: (0, 4)})
    assert versions == {0: (0, 12), 1: (4, 15), 3: (0, 5), 18: (0, 4), 60: (0, 1), 78: (1, 2)}


def test_an_api_whose_oldest_version_is_too_new_is_not_offered() -> None:
    assert 1 not in offered({1: (16, 20)})
