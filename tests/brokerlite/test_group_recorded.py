"""Recorded requests of group members to Apache Kafka 4.3.1: brokerlite answers them with the same bytes."""

import base64
import functools
import uuid
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.core import Answer, Call
from ottla.codec.apis import APIS
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.codec.frames import build_response, parse_request, parse_response
from tests.brokerlite.machine import TODAY, Machine, a_session
from tests.brokerlite.test_recorded import exchanges

JOIN, SYNC, COMMIT = 11, 14, 8
ORDER = {
    JOIN: "JoinGroup",
    SYNC: "SyncGroup",
    12: "Heartbeat",
    COMMIT: "OffsetCommit",
    9: "OffsetFetch",
    15: "DescribeGroups",
    13: "LeaveGroup",
    42: "DeleteGroups",
}
"""The order in which the member sent its requests; the recordings are sorted by API."""
MEMBER_ID_REQUIRED = 79


def conversation(version: int) -> list[dict[str, Any]]:
    """The requests and responses recorded with this version of JoinGroup, in their order."""
    known = [each for each in recorded() if each["scenario"] == f"group, JoinGroup v{version}"]
    return sorted(known, key=lambda each: (list(ORDER).index(each["api_key"]), not _wants_id(each)))


@functools.cache
def recorded() -> list[dict[str, Any]]:
    return [each for each in exchanges(*ORDER.values()) if each["client"] == "kafka-clients-messages"]


def _wants_id(exchange: dict[str, Any]) -> bool:
    return exchange["api_key"] == JOIN and int(exchange["decoded_response"]["errorCode"]) == MEMBER_ID_REQUIRED


def answer(machine: Machine, frame: bytes) -> bytes:
    """The response to a request, which must come at once."""
    request = parse_request(frame)
    machine.core.handle(1, Call(1, a_session(), request.header, request.message, machine.now, TODAY))
    (action,) = machine.poll()
    assert isinstance(action, Answer)
    return build_response(action.message, action.version, request.header.correlation_id)[4:]


@pytest.mark.parametrize("version", range(10))
def test_a_members_whole_life_is_answered_with_apache_kafkas_bytes(tmp_path: Path, version: int) -> None:
    said = conversation(version)
    joined = next(each["decoded_response"] for each in said if each["api_key"] == JOIN)
    member = joined["memberId"]
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("four", 4, {})
    machine.core.groups.classic._joins._new_id = lambda: uuid.UUID(member[-36:])
    apis = [each["api_key"] for each in said]
    for each in said:
        if each["api_key"] == COMMIT and SYNC not in apis:  # not recorded again, because it is the same in this version
            _sync(machine, said[apis.index(JOIN)]["decoded_request"], member)
        ours, theirs = answer(machine, each["request"]), base64.b64decode(each["response"])
        response = APIS[each["api_key"]].response
        read = [parse_response(response, each["api_version"], frame)[1] for frame in (ours, theirs)]
        assert read[0] == read[1], each["api_key"]
        assert ours == theirs
    machine.folder.abandon()


def _sync(machine: Machine, joined: dict[str, Any], member: str) -> None:
    request = SyncGroupRequest(
        group_id=joined["groupId"],
        generation_id=1,
        member_id=member,
        group_instance_id=joined.get("groupInstanceId"),
        protocol_type="consumer",
        protocol_name="range",
        assignments=(SyncGroupRequestAssignment(member_id=member, assignment=b""),),
    )
    assert machine.ask(request).error_code == 0
