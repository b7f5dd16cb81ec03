"""A request that names a thing many times gets a response that does not grow with the repeats.

The test derives the requests from the codec's declarations: for each array of each served API, it fills this array with
a hundred equal elements, and all others with one. So a new API is covered without a new test.
"""

import types
import typing
import uuid
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.handlers import SERVED, described_groups, offset_fetch
from ottla.brokerlite.machines.core import Answer
from ottla.codec.apis import APIS
from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.codec.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.codec.apis.describe_configs import TOPIC
from ottla.codec.apis.describe_groups import DescribeGroupsRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.codec.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.codec.frames import build_response
from ottla.errors import CoordinatorLoadInProgress
from tests.brokerlite.machine import Machine, a_batch, idempotent
from tests.brokerlite.test_group_log import committing, join

MANY, PARTITIONS, PRODUCERS = 100, 5, 20
MOST_EACH = 64
"""Bytes that an element may add to a response: a name, and a result beside it."""
NAME = "t"
"""The name of a topic, of a group and of a transactional id, which all exist."""
TOPIC_ID = uuid.UUID(int=5)
VALUES: dict[str, Any] = {
    "acks": -1,
    "configuration_keys": None,
    "committed_metadata": "m" * 1000,
    "group_instance_id": None,
    "member_id": "",
    "producer_id": 7,
    "resource_type": TOPIC,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "timestamp": -1,
    "topic_id": TOPIC_ID,
}
"""Values of fields with which a request is valid."""


def a_machine(path: Path) -> Machine:
    """A broker's machine that has much to say about the topic, the group and the transactional id called `NAME`."""
    ids = chain((TOPIC_ID,), (uuid.UUID(int=number) for number in count(6)))
    machine = Machine(path, new_id=lambda: next(ids))
    machine.core.create_topic(NAME, PARTITIONS, {})
    for producer_id in range(100, 100 + PRODUCERS):
        machine.produce(idempotent(0, producer_id=producer_id), topic=NAME)
    for partition in range(PARTITIONS):
        machine.ask(committing(5, group=NAME, partition=partition, metadata="m" * 4000))
    join(machine, group=NAME, instance_id="i" * 200)
    transaction = machine.ask(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000), 4)
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.producer_epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=NAME, partitions=tuple(range(PARTITIONS))),),
    )
    machine.ask(adding, 3)
    return machine


def arrays(message: type[Any], path: str = "") -> Iterator[str]:
    """The paths of all arrays in a message, at any depth."""
    for name, hint in typing.get_type_hints(message).items():
        if (element := element_of(hint)) is not None:
            yield f"{path}{name}"
            if hasattr(element, "__dataclass_fields__"):
                yield from arrays(element, f"{path}{name}.")


def element_of(hint: Any) -> Any:
    """The type of an array's elements; ``None`` for other types."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((typing.get_args(each)[0] for each in options if typing.get_origin(each) is tuple), None)


def filled(message: type[Any], repeated: str, path: str = "") -> Any:
    """A message with one element in each array, and with `MANY` equal ones in the array at ``repeated``."""
    values = {}
    for name, hint in typing.get_type_hints(message).items():
        element = element_of(hint)
        if name.startswith("_") or name == "unknown_tags":
            continue
        if element is not None:
            inside = f"{path}{name}"
            if name in VALUES and inside != repeated:
                values[name] = VALUES[name]
                continue
            one = value_of(name, element, repeated, f"{inside}.")
            values[name] = (one,) * (MANY if inside == repeated else 1)
        else:
            values[name] = value_of(name, hint, repeated, f"{path}{name}.")
    return message(**values)


def value_of(name: str, hint: Any, repeated: str, path: str) -> Any:
    if VALUES.get(name) is not None or name == "group_instance_id":
        return VALUES[name]
    if hasattr(hint, "__dataclass_fields__"):
        return filled(hint, repeated, path)
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return {str: NAME, int: 0, bool: False, float: 0.0, uuid.UUID: TOPIC_ID}.get(options[0], a_batch(b"v"))


def answer_size(machine: Machine, message: Any, version: int) -> int:
    """The size of the response, which comes now or within a minute, in bytes."""
    ticket = machine.send(message, version)
    answers = machine.poll()
    machine.now += 60
    answers += machine.poll()
    return sum(
        len(build_response(each.message, version, 1))
        for each in answers
        if isinstance(each, Answer) and each.ticket == ticket and each.message is not None
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key, served in SERVED.items() for version in sorted({served.lowest, served.highest})],
)
def test_a_name_that_is_repeated_adds_little_to_the_answer(tmp_path: Path, key: int, version: int) -> None:
    def size(repeated: str) -> int:
        machine = a_machine(tmp_path / (repeated or "once"))
        answered = answer_size(machine, filled(APIS[key].request, repeated), version)
        machine.folder.abandon()
        return answered

    most = size("") + MANY * MOST_EACH
    sizes = {path: size(path) for path in arrays(APIS[key].request)}
    assert {path: found for path, found in sizes.items() if found > most} == {}


def test_a_partition_that_is_repeated_gets_one_marker(tmp_path: Path) -> None:
    machine = a_machine(tmp_path / "data")
    end = machine.log().end_offset
    topic = WritableTxnMarkerTopic(name=NAME, partition_indexes=(0,) * MANY)
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=False, coordinator_epoch=0, topics=(topic, topic)
    )
    machine.ask(WriteTxnMarkersRequest(markers=(marker,)), 1)
    assert machine.log().end_offset == end + 1
    machine.folder.abandon()


def test_groups_beyond_the_limit_of_a_response_must_be_requested_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = a_machine(tmp_path / "data")
    for name in ("u", "v"):
        machine.ask(committing(5, group=name, metadata="m" * 4000))
        join(machine, group=name)
    monkeypatch.setattr(offset_fetch, "MOST_BYTES", 5000)
    monkeypatch.setattr(described_groups, "MOST_BYTES", 150)
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("u", "v", NAME))
    fetched = machine.ask(OffsetFetchRequest(groups=groups), 8)
    described = machine.ask(DescribeGroupsRequest(groups=("u", "v", NAME)), 5)
    later = CoordinatorLoadInProgress.code
    assert [each.error_code for each in fetched.groups] == [0, 0, later]
    assert [each.error_code for each in described.groups] == [0, 0, later]
    machine.folder.abandon()


def test_names_of_members_count_in_the_limit_of_a_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = a_machine(tmp_path / "data")
    join(machine, group="u")
    monkeypatch.setattr(described_groups, "MOST_BYTES", 300)
    described = machine.ask(DescribeGroupsRequest(groups=(NAME, "u")), 5)
    assert len(described.groups[0].members[0].group_instance_id) == 200
    assert [each.error_code for each in described.groups] == [0, CoordinatorLoadInProgress.code]
    machine.folder.abandon()


def test_a_request_that_is_refused_for_many_partitions_gets_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)
    places = tuple(DeleteRecordsPartition(partition_index=index, offset=0) for index in range(MANY))
    with caplog.at_level("INFO"):
        machine.ask(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=NAME, partitions=places),), timeout_ms=1), 2)
    [line] = [each.getMessage() for each in caplog.records if "not deleted" in each.getMessage()]
    assert line.endswith(f"[there is no partition 0 of {NAME}], and {MANY - 1} more")
