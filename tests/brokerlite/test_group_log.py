"""`__consumer_offsets`: its state after a restart, and the bound of its size."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.brokerlite.machines.core import Answer
from ottla.brokerlite.machines.groups import group_log
from ottla.brokerlite.machines.groups.group import GroupState
from ottla.brokerlite.machines.topics.topics import CONSUMER_OFFSETS as NAME
from ottla.codec.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.codec.apis.delete_groups import DeleteGroupsRequest
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.codec.records import RecordBatch, read_batches
from ottla.codec.stored.control import COMMIT, parse_control
from ottla.codec.stored.internal_topics import parse_internal
from ottla.codec.wire import NO_UUID
from ottla.errors import InvalidRequest, InvalidTopic, TopicAlreadyExists, UnknownTopicOrPartition
from tests.brokerlite.club import subscription
from tests.brokerlite.machine import Machine, a_batch, fetching, producing

RECORDED = Path(__file__).parents[1] / "wire" / "stored"


def committing(
    offset: int, *, group: str = "g", partition: int = 0, member: str = "", generation: int = -1, metadata: str = ""
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=(
            OffsetCommitRequestTopic(
                name="t",
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=0,
                        committed_metadata=metadata,
                    ),
                ),
            ),
        ),
    )


def commit(machine: Machine, offset: int, **others: Any) -> None:
    answer = machine.ask(committing(offset, **others))
    assert [each.error_code for each in answer.topics[0].partitions] == [0]


def join(machine: Machine, *, group: str = "g", instance_id: str | None = "i") -> str:
    """Join as the only member of a group, with an assignment, and return the member id."""
    machine.send(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription()),),
        )
    )
    (joined,) = machine.poll()
    assert isinstance(joined, Answer)
    member = joined.message.member_id
    synced = machine.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.message.generation_id,
            member_id=member,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member_id=member, assignment=b"all"),),
        )
    )
    assert synced.error_code == 0 and synced.assignment == b"all"
    return str(member)


def offsets(machine: Machine, group: str = "g") -> dict[int, int]:
    """Partition of ``t`` -> offset."""
    return {partition: each.offset for (_, partition), each in machine.core.offsets.of(group).items()}


def internal(machine: Machine) -> list[Any]:
    """The records of the log, except those in aborted transactions."""
    log = machine.log(NAME)
    batches, offset = list[RecordBatch](), log.start_offset
    while data := log.read(offset, 2**20, at_least_one=True):
        batches += read_batches(bytes(data))
        offset = batches[-1].next_offset
    records = list[Any]()
    for batch in batches:
        behind = [each for each in batches if each.control and each.base_offset > batch.base_offset]
        own = [each for each in behind if each.producer_id == batch.producer_id]
        ends = (parse_control(record.key, record.value) for each in own for record in each.records())
        marker = next(ends, None)
        if not batch.control and (not batch.transactional or (marker is not None and marker.type == COMMIT)):
            records += batch.records()
    return [parse_internal(NAME, record.key, record.value) for record in records]


@pytest.mark.parametrize("clean", [True, False], ids=["a shutdown", "a kill"])
def test_offsets_and_members_are_there_after(machine: Machine, clean: bool) -> None:
    member = join(machine)
    commit(machine, 7, member=member, generation=1, metadata="half past")
    commit(machine, 3, group="simple", partition=1)
    before = machine.core.groups.classic.by_id
    machine = machine.restart(clean=clean)
    after = machine.core.groups.classic.by_id
    assert list(after) == list(before) and offsets(machine) == {0: 7} and offsets(machine, "simple") == {1: 3}
    for known, was in zip(after.values(), before.values(), strict=True):
        for name in ("state", "generation", "protocol", "leader", "protocol_type", "subscribed"):
            assert getattr(known, name) == getattr(was, name), name
    (known_member,), (was_member,) = after["g"].members.values(), before["g"].members.values()
    for name in was_member.__slots__:
        assert getattr(known_member, name) == getattr(was_member, name), name
    assert after["g"].static_member("i") is known_member
    machine.folder.abandon()


def test_a_member_goes_on_in_its_generation_after_a_restart_or_is_out_after_a_session(machine: Machine) -> None:
    member = join(machine)
    machine = machine.restart(clean=False)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member, group_instance_id="i")
    machine.now += 9.9
    assert machine.ask(beat).error_code == 0
    machine.now += 9.9
    assert machine.ask(beat).error_code == 0
    machine.now += 10.1
    machine.poll()
    assert machine.core.groups.classic.by_id["g"].state is GroupState.EMPTY
    machine.folder.abandon()


def test_deleted_offsets_and_groups_stay_deleted(machine: Machine) -> None:
    commit(machine, 1)
    commit(machine, 2, group="other")
    assert machine.ask(DeleteGroupsRequest(groups_names=("g",))).results[0].error_code == 0
    machine = machine.restart(clean=False)
    assert list(machine.core.groups.classic.by_id) == ["other"]
    assert (
        machine.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t", topic_id=NO_UUID),), timeout_ms=0))
        .responses[0]
        .error_code
        == 0
    )
    assert offsets(machine, "other") == {}
    machine = machine.restart(clean=False)
    assert offsets(machine, "other") == {}
    machine.folder.abandon()


@pytest.mark.parametrize("version", [1, 7, 8, 9, 10])
def test_offsets_of_a_deleted_topic_do_not_apply_to_a_later_one_with_its_name(machine: Machine, version: int) -> None:
    """The first topic is deleted, and a kill -9 comes before its offsets are."""
    commit(machine, 1)
    commit(machine, 2, partition=1)
    stale = replace(machine.core.offsets.of("g")["t", 1], topic_id=UUID(int=7))
    machine.core.offsets.restore("g", ("t", 1), stale)
    topic_id = machine.core.topics.by_name["t"].topic_id

    def asked(topics: Any) -> list[Any]:
        if version < 8:
            return list(machine.ask(OffsetFetchRequest(group_id="g", topics=topics), version).topics)
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
        return list(machine.ask(request, version).groups[0].topics)

    by_name: Any = OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1))
    if version >= 8:
        by_name = OffsetFetchRequestTopics(
            name="t", topic_id=topic_id if version >= 10 else NO_UUID, partition_indexes=(0, 1)
        )
    (topic,) = asked((by_name,))
    assert [each.committed_offset for each in topic.partitions] == [1, -1]
    if version >= 2:
        (topic,) = asked(None)
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 1)]


def test_a_rebalance_under_way_is_forgotten_by_a_restart_and_the_generation_before_holds(machine: Machine) -> None:
    member = join(machine)
    machine.send(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member,
            group_instance_id="i",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=subscription("t", "u")),),
        )
    )
    machine.poll()
    assert machine.core.groups.classic.by_id["g"].generation == 2
    machine = machine.restart(clean=False)
    group = machine.core.groups.classic.by_id["g"]
    assert (group.state, group.generation) == (GroupState.STABLE, 1) and group.members[member].assignment == b"all"
    machine.folder.abandon()


def test_the_records_are_kafkas(machine: Machine) -> None:
    member = join(machine)
    commit(machine, 7, member=member, generation=1, metadata="m")
    group, offset = internal(machine)
    assert (group.name, group.version, group.key.group) == ("GroupMetadata", 3, "g")
    assert (group.value.protocol_type, group.value.generation, group.value.leader) == ("consumer", 1, member)
    (stored,) = group.value.members
    assert (stored.group_instance_id, stored.assignment, stored.subscription) == ("i", b"all", subscription())
    assert (stored.client_host, stored.session_timeout, stored.rebalance_timeout) == ("/127.0.0.1", 10_000, 60_000)
    assert (offset.name, offset.version, offset.key.topic, offset.key.partition) == ("OffsetCommit", 4, "t", 0)
    assert (offset.value.offset, offset.value.metadata, offset.value.leader_epoch) == (7, "m", 0)
    assert offset.value.topic_id == machine.core.topics.by_name["t"].topic_id


def test_an_expiry_that_was_asked_for_is_kept(machine: Machine) -> None:
    request = committing(4)
    request.retention_time_ms = 60_000
    machine.ask(request, 2)
    machine = machine.restart(clean=False)
    assert machine.core.offsets.of("g")["t", 0].expire_timestamp > 0
    machine.folder.abandon()


# -- the topic


def test_the_topic_is_there_once_it_is_needed_and_is_the_brokers_own(machine: Machine) -> None:
    def topics() -> dict[str, bool]:
        return {each.name: each.is_internal for each in machine.ask(MetadataRequest(topics=None)).topics}

    assert topics() == {"t": False}
    commit(machine, 1)
    assert topics() == {"t": False, NAME: True}
    assert machine.ask(producing(a_batch(), topic=NAME)).responses[0].partition_responses[0].error_code == (
        InvalidTopic.code
    )
    deleted = machine.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name=NAME, topic_id=NO_UUID),), timeout_ms=0))
    assert deleted.responses[0].error_code == InvalidRequest.code and NAME in topics()
    wanted = CreatableTopic(name=NAME, num_partitions=1, replication_factor=1, assignments=(), configs=())
    created = machine.ask(CreateTopicsRequest(topics=(wanted,), timeout_ms=0))
    assert created.topics[0].error_code == TopicAlreadyExists.code


def test_a_client_that_names_the_topic_creates_it_with_the_brokers_settings(machine: Machine) -> None:
    for allowed, code in ((False, UnknownTopicOrPartition.code), (True, 0)):
        request = MetadataRequest(topics=(MetadataRequestTopic(name=NAME),), allow_auto_topic_creation=allowed)
        (answer,) = machine.ask(request).topics
        assert answer.error_code == code
    assert answer.is_internal and len(answer.partitions) == 1
    assert machine.core.topics.by_name[NAME].configs["cleanup.policy"] == "compact"


def test_a_commit_wakes_a_fetch_of_the_internal_topic(machine: Machine) -> None:
    commit(machine, 1)
    fetch = machine.send(fetching(1, topic=NAME))
    assert machine.poll() == []
    machine.send(committing(2))
    answers = {action.ticket: action for action in machine.poll()}
    assert fetch in answers


@pytest.mark.parametrize("folder", sorted(RECORDED.glob("__consumer_offsets-*")), ids=lambda path: path.name)
def test_what_apache_kafka_wrote_is_read(machine: Machine, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Share groups are in the log, too, and have no offsets there."""
    commit(machine, 1)
    machine.folder.close()
    ours = machine.folder.path / f"{NAME}-0"
    for path in ours.iterdir():
        if path.name not in ("partition.metadata", "topic-0.json"):
            path.unlink()
    shutil.copytree(folder, ours, dirs_exist_ok=True, ignore=shutil.ignore_patterns("partition.metadata"))
    machine = Machine(machine.folder.path)
    expected: dict[str, dict[tuple[str, int], int]] = {}
    generations: dict[str, int] = {}
    for record in internal(machine):
        if record.name == "OffsetCommit":
            known = expected.setdefault(record.key.group, {})
            place = record.key.topic, record.key.partition
            if record.value is None:
                known.pop(place, None)
            else:
                known[place] = record.value.offset
        elif record.name == "GroupMetadata":
            generations.pop(record.key.group, None)
            if record.value is not None:
                generations[record.key.group] = record.value.generation
    classic = machine.core.groups.classic.by_id
    assert not caplog.records and expected
    assert {name: group.generation for name, group in classic.items() if name in generations} == generations
    epochs = {
        record.key.group_id: None if record.value is None else record.value.epoch
        for record in internal(machine)
        if record.name == "ConsumerGroupMetadata"
    }
    loaded = machine.core.consumer_groups.by_id
    assert {name: group.epoch for name, group in loaded.items()} == {k: v for k, v in epochs.items() if v is not None}
    groups = {group.group_id for group in machine.core.groups.all()}
    generations = {name: each for name, each in generations.items() if name not in loaded} | dict.fromkeys(loaded, 0)
    found = machine.core.offsets
    groups -= machine.core.share_groups.by_id.keys()
    assert {name: {place: each.offset for place, each in found.of(name).items()} for name in groups} == {
        name: expected.get(name, {}) for name in {**generations, **{k: v for k, v in expected.items() if v}}
    }
    machine.folder.abandon()


def test_a_log_of_an_older_broker_is_compacted_as_this_one_does(machine: Machine) -> None:
    machine.core.topics.create(NAME, 1, {"cleanup.policy": "compact", "segment.bytes": str(100 * 2**20)})
    commit(machine, 1)
    machine = machine.restart()
    assert machine.log(NAME).settings.segment_bytes == int(group_log.CONFIGS["segment.bytes"])
    assert offsets(machine) == {0: 1}
    machine.folder.abandon()


def test_the_log_does_not_grow_for_ever_and_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(group_log.CONFIGS, "segment.bytes", "5000")
    machine = Machine(tmp_path / "data")
    machine.core.create_topic("t", 3, {})
    member = join(machine)
    sizes = list[int]()
    for i in range(1000):
        commit(machine, i, partition=i % 3, group=("g", "simple")[i % 2], **_as_member(i, member))
        if i % 25 == 0:
            machine.pass_time(8)
            machine.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member, group_instance_id="i"))
        sizes.append(sum(path.stat().st_size for path in machine.folder.path.glob(f"{NAME}-0/*.log")))
    assert max(sizes) < 40_000, "although 150 kB were written"
    expected = offsets(machine), offsets(machine, "simple")
    for clean in (False, True):
        machine = machine.restart(clean=clean)
        assert (offsets(machine), offsets(machine, "simple")) == expected
    machine.folder.abandon()


def _as_member(i: int, member: str) -> dict[str, Any]:
    return {} if i % 2 else {"member": member, "generation": 1}
