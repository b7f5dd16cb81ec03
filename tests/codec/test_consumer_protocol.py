"""The consumer protocol, as the clients of tests/wire speak it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.codec import frames, messages
from ottla.codec.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeStickyAssignorUserData,
    StickyAssignorUserData,
    TopicPartition,
    build_assignment,
    build_subscription,
    parse_assignment,
    parse_sticky,
    parse_subscription,
)
from ottla.errors import DecodeError
from tests.codec.recorded import exchanges

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=("a", "b"),
    user_data=b"u",
    owned_partitions=(TopicPartition(topic="a", partitions=(0, 1)),),
    generation_id=7,
    rack_id="r",
)
ASSIGNMENT = ConsumerProtocolAssignment(assigned_partitions=(TopicPartition(topic="a", partitions=(0,)),))


def subscriptions() -> list[tuple[str, str, bytes]]:
    """Client, assignor and bytes of every recorded subscription."""
    found = []
    for exchange in exchanges("JoinGroup"):
        request = frames.parse_request(exchange.request).message
        if request.protocol_type == "consumer":
            found += [(exchange.client, each.name, each.metadata) for each in request.protocols]
    assert found
    return found


def test_what_clients_subscribe_to_builds_the_same_bytes() -> None:
    odd: Counter[str] = Counter()
    versions = set()
    for client, _, data in subscriptions():
        version, subscription = parse_subscription(data)
        versions.add(version)
        if build_subscription(subscription, version) != data:
            odd[client] += 1
    assert odd.keys() == {"kafka-go"}, "it names version 1, and sends version 0"
    assert versions == {0, 1, 2, 3}


def test_what_leaders_assign_builds_the_same_bytes() -> None:
    checked = 0
    for exchange in exchanges("SyncGroup"):
        for each in frames.parse_request(exchange.request).message.assignments:
            if each.assignment:
                version, assignment = parse_assignment(each.assignment)
                assert build_assignment(assignment, version) == each.assignment, exchange
                checked += 1
    assert checked > 10


def test_what_sticky_assignors_remember_builds_the_same_bytes() -> None:
    versions = set()
    for client, assignor, data in subscriptions():
        _, subscription = parse_subscription(data)
        if assignor == "sticky" and subscription.user_data:
            version, memory = parse_sticky(subscription.user_data)
            assert messages.build(memory, version) == subscription.user_data, client
            versions.add(version)
        if assignor == "cooperative-sticky" and len(subscription.user_data or b"") == 4:
            user_data, end = messages.parse(CooperativeStickyAssignorUserData, 0, subscription.user_data or b"")
            assert (user_data.generation >= -1, end) == (True, 4)
    assert versions


@pytest.mark.parametrize("version", [0, 1])
def test_sticky_data_tells_its_version_by_its_length(version: int) -> None:
    memory = StickyAssignorUserData(previous_assignment=ASSIGNMENT.assigned_partitions, generation=3)
    known, again = parse_sticky(messages.build(memory, version))
    assert (known, again.generation) == (version, 3 if version else -1)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\0\0", b"\0\0\0\0\0\0\0\0\0", b"\0\0\0\1\0\1t"])
def test_what_is_no_sticky_data_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_sticky(data)


@pytest.mark.parametrize(
    ("message", "build", "parse"),
    [(SUBSCRIPTION, build_subscription, parse_subscription), (ASSIGNMENT, build_assignment, parse_assignment)],
)
def test_a_newer_version_is_read_as_the_newest_known_and_an_older_one_never(
    message: Any, build: Callable[[Any, int], bytes], parse: Callable[[bytes], tuple[int, Any]]
) -> None:
    assert parse(build(message, 3)) == (3, message)
    newer = b"\0\x09" + build(message, 3)[2:] + b"a field of the future"
    assert parse(newer) == (9, message)
    for data in (b"", b"\0", b"\xff\xff" + newer[2:]):
        with pytest.raises(DecodeError):
            parse(data)


def test_a_subscription_cut_anywhere_is_refused() -> None:
    for version in range(4):
        whole = build_subscription(SUBSCRIPTION, version)
        for size in range(len(whole)):
            if version == 1 and whole[:size] == b"\0\1" + build_subscription(SUBSCRIPTION, 0)[2:]:
                continue  # a subscription of kafka-go
            with pytest.raises(DecodeError):
                parse_subscription(whole[:size])
