"""With ACLs, no principal can create so many groups that others find no room."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.brokerlite.machines.acls.acl_settings import AclSettings
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.share_partitions.share_settings import ShareGroupSettings
from ottla.client_info import ANONYMOUS
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.create_acls import CreateAclsRequest
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.errors import CoordinatorNotAvailable
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
    rights = ("Read Group *", "Delete Group *", "Read Topic *", "Describe Topic *")
    machine.ask(CreateAclsRequest(creations=tuple(rule(f"allow * {each}") for each in rights)))
    yield machine
    machine.folder.abandon()


def creates(machine: Machine, kind: str, group: str, user: str) -> bool:
    """Create a group by a request of this kind; returns whether there was room."""
    principal = f"User:{user}"
    if kind == "classic":
        code = machine.ask(join(group), principal=principal).error_code
        code = 0 if code == 79 else code  # the member's id, with which it has to join again
    elif kind == "offsets":
        [topic] = machine.ask(offset_commit(group, "orders"), principal=principal).topics
        code = topic.partitions[0].error_code
    elif kind == "consumer":
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
        code = machine.ask(beat, principal=principal).error_code
    else:
        joins = ShareGroupHeartbeatRequest(
            group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=("orders",)
        )
        code = machine.ask(joins, principal=principal).error_code
    assert code in (0, CoordinatorNotAvailable.code)
    return bool(code == 0)


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
    assert not creates(machine, "classic", "one more", "ANONYMOUS")


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


def test_a_refused_group_is_a_line_of_the_log(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    while creates(machine, "classic", f"g{len(machine.core.groups.classic.by_id)}", "mallory"):
        pass
    [line] = [each for each in caplog.records if each.message.startswith("group refused")]
    told = line.__dict__
    assert (told["principal"], told["has"], told["left"], told["group"]) == ("User:mallory", 8, 8, "g8")
