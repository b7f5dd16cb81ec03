"""With ACLs, no principal can create so many groups that others find no room."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings
from ottla.client_info import ANONYMOUS
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.create_acls import CreateAclsRequest
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from ottla.codec.apis.join_group import JoinGroupRequestProtocol
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.codec.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.codec.consumer_protocol import ConsumerProtocolSubscription, build_subscription
from ottla.complaints import INTERVAL
from ottla.errors import CoordinatorNotAvailable, GroupAuthorizationFailed, MemberIdRequired, PolicyViolation
from tests.brokerlite.acl_questions import join, offset_commit, rule
from tests.brokerlite.machine import Machine

MOST = 16
KINDS = ("classic", "offsets", "consumer", "share")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Everyone may use all groups, and nobody but ANONYMOUS is a super user."""
    machine = Machine(
        tmp_path / "data",
        acls=AclSettings(super_users=frozenset((ANONYMOUS,))),
        groups=GroupSettings(max_groups=MOST),
        consumer_groups=ConsumerGroupSettings(max_groups=MOST),
        share_groups=ShareGroupSettings(max_groups=MOST),
    )
    machine.ask(MetadataRequest(topics=(MetadataRequestTopic(name="orders"),), allow_auto_topic_creation=True))
    rights = ("Read Group *", "Delete Group *", "Read Topic *", "Describe Topic *", "Write TransactionalId *")
    machine.ask(CreateAclsRequest(creations=tuple(rule(f"allow * {each}") for each in rights)))
    yield machine
    machine.folder.abandon()


def asked(machine: Machine, kind: str, group: str, user: str) -> tuple[int, str | None]:
    """The error code and the message of a request of this kind, which creates the group."""
    principal = f"User:{user}"
    if kind == "classic":
        code = machine.ask(join(group), principal=principal).error_code
        return (0 if code == MemberIdRequired.code else code), None
    if kind == "offsets":
        [topic] = machine.ask(offset_commit(group, "orders"), principal=principal).topics
        return topic.partitions[0].error_code, None
    beats: Any = partial(ShareGroupHeartbeatRequest)
    if kind == "consumer":
        beats = partial(ConsumerGroupHeartbeatRequest, rebalance_timeout_ms=1000, topic_partitions=())
    beat = beats(group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=("orders",))
    answer = machine.ask(beat, principal=principal)
    return answer.error_code, answer.error_message


def creates(machine: Machine, kind: str, group: str, user: str) -> bool:
    """Create a group by a request of this kind; returns whether there was room."""
    code, _ = asked(machine, kind, group, user)
    assert code in (0, PolicyViolation.code)
    return code == 0


def commit_in_a_transaction(machine: Machine, group: str, principal: str) -> int:
    """Commit an offset of the group; returns the error code."""
    began = machine.ask(
        InitProducerIdRequest(transactional_id=group, transaction_timeout_ms=60_000), principal=principal
    )
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    committing = TxnOffsetCommitRequest(
        transactional_id=group,
        group_id=group,
        producer_id=began.producer_id,
        producer_epoch=began.producer_epoch,
        topics=(TxnOffsetCommitRequestTopic(name="orders", partitions=(offset,)),),
    )
    return int(machine.ask(committing, 5, principal=principal).topics[0].partitions[0].error_code)


def joins_for_good(machine: Machine, group: str, user: str) -> None:
    """Add a member of the classic protocol to a group."""
    metadata = build_subscription(ConsumerProtocolSubscription(topics=("orders",)), 0)
    joining = replace(join(group), protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),))
    machine.send(joining, 3, principal=f"User:{user}")
    machine.poll()


def leave(machine: Machine, group: str) -> None:
    """Let the member of a consumer group leave."""
    machine.ask(ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-1))


def refusals(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.message.startswith("group refused")]


@pytest.mark.parametrize("kind", KINDS)
def test_one_principal_takes_half_of_the_room_and_the_next_half_of_the_rest(machine: Machine, kind: str) -> None:
    taken = {
        user: sum(creates(machine, kind, f"{user}-{number}", user) for number in range(MOST))
        for user in ("mallory", "eve", "alice")
    }
    assert taken == {"mallory": 8, "eve": 4, "alice": 2}
    assert creates(machine, kind, "mallory-0", "mallory"), "its groups go on"


def test_a_super_user_may_take_all_of_the_room(machine: Machine) -> None:
    assert all(creates(machine, "classic", f"g{number}", "ANONYMOUS") for number in range(MOST))


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_is_full_for_everyone_lets_clients_try_again(machine: Machine, kind: str) -> None:
    assert all(creates(machine, kind, f"g{number}", "ANONYMOUS") for number in range(MOST))
    full = CoordinatorNotAvailable.code
    assert asked(machine, kind, "one more", "ANONYMOUS")[0] == full == asked(machine, kind, "another", "alice")[0]


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_the_error_names_the_principal_whose_share_is_used_up(machine: Machine, kind: str) -> None:
    while creates(machine, kind, f"g{machine.now}", "mallory"):
        machine.now += 1
    _, message = asked(machine, kind, "one more", "mallory")
    assert message and message.startswith(f"User:mallory has created 8 {kind} groups, its share of this broker")


def test_a_principal_over_its_share_can_abort_the_transaction(machine: Machine) -> None:
    while creates(machine, "offsets", f"g{len(machine.core.groups.classic.by_id)}", "mallory"):
        pass
    assert commit_in_a_transaction(machine, "g0", "User:mallory") == 0
    assert commit_in_a_transaction(machine, "one more", "User:mallory") == GroupAuthorizationFailed.code


def test_deleted_groups_make_room_for_their_creator(machine: Machine) -> None:
    while creates(machine, "offsets", f"g{len(machine.core.groups.classic.by_id)}", "mallory"):
        pass
    machine.ask(DeleteGroupsRequest(groups_names=("g0",)), principal="User:mallory")
    assert creates(machine, "offsets", "again", "mallory")
    assert not creates(machine, "offsets", "one more", "mallory")


def test_a_group_that_changes_its_kind_counts_for_its_creator(machine: Machine) -> None:
    for number in range(8):
        assert creates(machine, "offsets", f"g{number}", "mallory")
        assert creates(machine, "consumer", f"g{number}", "mallory"), "an empty classic group becomes another one"
    assert not creates(machine, "consumer", "one more", "mallory")
    assert creates(machine, "consumer", "first", "alice")


def test_no_principal_fills_a_kind_with_groups_that_it_creates_as_another_one(machine: Machine) -> None:
    names = [f"g{number}" for number in range(MOST)]
    changed = [name for name in names if creates(machine, "offsets", name, "mallory")]
    changed += [name for name in names if creates(machine, "consumer", name, "mallory")]
    again = [
        creates(machine, "offsets", name, "mallory") and creates(machine, "consumer", name, "mallory")
        for name in ("more", "and more")
    ]
    assert len(machine.core.consumer_groups.by_id) == 8 and not any(again)


def test_an_empty_group_that_changes_its_kind_counts_for_its_creator_whoever_joins(machine: Machine) -> None:
    for number in range(8):
        assert creates(machine, "offsets", f"g{number}", "mallory")
        assert creates(machine, "consumer", f"g{number}", "alice")
    assert not creates(machine, "consumer", "one more", "mallory")
    leave(machine, "g0")
    assert creates(machine, "classic", "g0", "alice")
    assert [each.creator for each in machine.core.groups.classic.by_id.values()] == ["User:mallory"]


def test_a_group_with_members_that_changes_its_kind_counts_for_its_creator(machine: Machine) -> None:
    for name in ("mallory", "alice"):
        joins_for_good(machine, f"of {name}", name)
    while creates(machine, "consumer", f"g{len(machine.core.consumer_groups.by_id)}", "mallory"):
        pass
    assert not creates(machine, "consumer", "of mallory", "alice")
    assert creates(machine, "consumer", "of alice", "mallory")


@pytest.mark.parametrize(("classic", "stays"), [(7, False), (8, True)])
def test_a_consumer_group_becomes_classic_if_its_creator_has_room_for_that(
    machine: Machine, classic: int, stays: bool
) -> None:
    assert creates(machine, "consumer", "g", "mallory")
    joins_for_good(machine, "g", "alice")
    assert all(creates(machine, "classic", f"classic-{number}", "mallory") for number in range(classic))
    leave(machine, "g")
    assert ("g" in machine.core.consumer_groups.by_id) is stays


def test_a_principal_over_its_share_may_use_groups_that_others_created(machine: Machine) -> None:
    assert creates(machine, "offsets", "others", "alice")
    while creates(machine, "consumer", f"g{len(machine.core.consumer_groups.by_id)}", "mallory"):
        pass
    assert creates(machine, "consumer", "others", "mallory")


def test_the_share_is_right_after_groups_have_come_and_gone(machine: Machine) -> None:
    for _ in range(3):
        assert creates(machine, "offsets", "g", "mallory")
        assert creates(machine, "consumer", "g", "alice")
        leave(machine, "g")
        assert creates(machine, "classic", "g", "alice")
        assert creates(machine, "consumer", "h", "mallory")
        joins_for_good(machine, "h", "alice")
        leave(machine, "h")
        assert "h" in machine.core.groups.classic.by_id
        assert creates(machine, "share", "s", "mallory")
        machine.pass_time(100.0)  # all sessions time out
        deleted = machine.ask(DeleteGroupsRequest(groups_names=("g", "h", "s"))).results
        assert [each.error_code for each in deleted] == [0, 0, 0]
    for kind in ("classic", "consumer", "share"):
        assert sum(creates(machine, kind, f"{kind}-{number}", "mallory") for number in range(MOST)) == 8


def test_refused_groups_have_a_line_and_then_one_a_minute(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    while creates(machine, "classic", f"g{len(machine.core.groups.classic.by_id)}", "mallory"):
        pass
    [line] = refusals(caplog)
    told = line.__dict__
    assert (told["principal"], told["has"], told["left"], told["group"]) == ("User:mallory", 8, 8, "g8")
    caplog.clear()
    assert not any(creates(machine, "classic", f"more-{number}", "mallory") for number in range(100))
    assert refusals(caplog) == []
    machine.pass_time(INTERVAL + 1)
    [line] = refusals(caplog)
    assert line.message == "group refused: User:mallory has created too many classic groups: 100 more in 60 s"


def test_a_full_broker_has_one_line_a_minute(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MOST + 100):
        asked(machine, "share", f"g{number}", "ANONYMOUS")
    assert len(refusals(caplog)) == 1
