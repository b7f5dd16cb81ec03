"""Topics whose file is damaged or of a later version: they are not served, and keep their data."""

import shutil
from collections.abc import Callable

import pytest

from ottla.brokerlite.storage.checkpoints import build_state, parse_state
from ottla.codec.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.wire import NO_UUID
from ottla.errors import CoordinatorNotAvailable, CorruptMessage, KafkaStorageError
from tests.brokerlite.machine import Machine, a_batch, values_of, work_off
from tests.brokerlite.test_group_log import commit, offsets

LATER_CONFIG = {"retention.of.a.later.version": "1"}
TOPIC_DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[:-9],
    "noise": lambda data: b"\xff\0" * 50,
    "no object": lambda data: b"[]",
    "an unknown key": lambda data: data.replace(b"retention.ms", b"retention.mS"),
    "no number": lambda data: data.replace(b"86400000", b"8640000p"),
    "another valid number": lambda data: data.replace(b"86400000", b"06400000"),
    "another number of partitions": lambda data: data.replace(b'"partitions": 2', b'"partitions": 3'),
    "a later version": lambda data: b'{"version": 3}',
    "a configuration of a later version": lambda data: build_state(parse_state(data) | {"configs": LATER_CONFIG}),
    "a configuration that is out of range": lambda data: build_state(
        parse_state(data) | {"configs": {"segment.bytes": "1"}}
    ),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", TOPIC_DAMAGES)
def test_a_topic_whose_file_is_damaged_is_not_served_and_nothing_of_it_is_lost(
    machine: Machine, damage: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    machine.core.create_topic("kept", 2, {"retention.ms": "86400000"})
    machine.produce(a_batch(b"a"), a_batch(b"b"), topic="kept", partition=1)
    work_off(machine.folder.set_start_offsets({("kept", 1): 1}, lambda error: None))
    machine.produce(a_batch(b"other"))
    topic_id = machine.core.topics.by_name["kept"].topic_id
    (machine.folder.close if clean else machine.folder.abandon)()
    file = machine.folder.path / "kept-0" / "topic-0.json"
    whole, damaged = file.read_bytes(), TOPIC_DAMAGES[damage](file.read_bytes())
    file.unlink()
    if damaged is not None:
        file.write_bytes(damaged)
    before = {path: path.read_bytes() for path in machine.folder.path.glob("kept-*/*")}
    for _ in range(2):
        caplog.clear()
        machine = Machine(machine.folder.path)
        (line,) = [each.getMessage() for each in caplog.records if "kept" in each.getMessage()]
        assert line.startswith(f"topic kept is not served, its name and its folders are kept: {file}: ")
        assert values_of(machine.log().read(0, 1000)) == [b"other"], "others are served"
        with pytest.raises(KafkaStorageError, match=str(file)):
            machine.core.create_topic("kept", 1, {})
        assert codes_of_unserved(machine, "kept") == {KafkaStorageError.code}
        assert leaders(machine, "kept") == {0: -1, 1: -1}
        machine.core.create_topic("new", 1, {})
        machine.core.delete_topic(machine.core.topics.by_name["new"])
        machine.pass_time(600)
        assert {path: path.read_bytes() for path in machine.folder.path.glob("kept-*/*")} == before
        machine.folder.close()
    file.write_bytes(whole)
    machine = Machine(machine.folder.path)
    kept = machine.core.topics.by_name["kept"]
    assert (kept.topic_id, kept.configs, len(kept.partitions)) == (topic_id, {"retention.ms": "86400000"}, 2)
    assert machine.log("kept", 1).start_offset == 1 and values_of(machine.log("kept", 1).read(1, 1000)) == [b"b"]
    machine.folder.abandon()


@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_a_topic_whose_creation_a_power_cut_interrupted_is_removed(
    machine: Machine, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No client knows the topic yet. Its name must be free: the client that creates it will ask again."""
    machine.core.create_topic("new", 2, {"retention.ms": "86400000"})
    machine.folder.abandon()
    file = machine.folder.path / "new-0" / "topic-0.json"
    file.write_bytes(TOPIC_DAMAGES[damage](file.read_bytes()) or b"")
    machine = Machine(machine.folder.path)
    (line,) = [each.getMessage() for each in caplog.records if "new" in each.getMessage()]
    assert line == "topic new was being created when the power failed: removing it, it is empty"
    assert not list(machine.folder.path.glob("new-*"))
    machine.core.create_topic("new", 1, {})
    machine.folder.abandon()


@pytest.mark.parametrize("damage", ["empty", "another valid number"])
def test_an_empty_topic_is_kept_if_no_power_cut_explains_its_damaged_file(machine: Machine, damage: str) -> None:
    machine.core.create_topic("kept", 1, {"retention.ms": "86400000"})
    (machine.folder.close if damage == "empty" else machine.folder.abandon)()
    file = machine.folder.path / "kept-0" / "topic-0.json"
    file.write_bytes(TOPIC_DAMAGES[damage](file.read_bytes()) or b"")
    machine = Machine(machine.folder.path)
    assert codes_of_unserved(machine, "kept") == {KafkaStorageError.code} and file.exists()
    machine.folder.abandon()


def leaders(machine: Machine, name: str) -> dict[int, int]:
    """Partition -> leader of a topic, which must be the same in all Metadata responses."""
    (all_topics,) = [each for each in machine.ask(MetadataRequest(topics=None)).topics if each.name == name]
    for asked in ({"name": name}, {"name": None, "topic_id": all_topics.topic_id}):
        assert machine.ask(MetadataRequest(topics=(MetadataRequestTopic(**asked),))).topics == (all_topics,)
    assert all_topics.error_code == 0 and all(each.error_code for each in all_topics.partitions)
    return {each.partition_index: each.leader_id for each in all_topics.partitions}


def codes_of_unserved(machine: Machine, name: str) -> set[int]:
    """The errors of attempts to create or delete a topic."""
    create = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
    delete = DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=NO_UUID),), timeout_ms=1000)
    return {
        *(each.error_code for each in machine.ask(CreateTopicsRequest(topics=(create,), timeout_ms=1000)).topics),
        *(each.error_code for each in machine.ask(delete).responses),
    }


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "noise", "no object"])
def test_the_brokers_own_topics_are_served_without_their_files(
    machine: Machine, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit(machine, 4711)
    machine.folder.close()
    file = machine.folder.path / "__consumer_offsets-0" / "topic-0.json"
    damaged = TOPIC_DAMAGES[damage](file.read_bytes())
    file.unlink()
    if damaged is not None:
        file.write_bytes(damaged)
    for _ in range(2):
        machine = Machine(machine.folder.path)
        assert offsets(machine) == {0: 4711}
        assert machine.core.topics.by_name["__consumer_offsets"].partitions[0].settings.compacted
        machine.folder.close()
    assert caplog.text.count(f"topic __consumer_offsets has lost its file, recreating it: {file}: ") == 1


def test_groups_have_no_coordinator_while_their_topic_is_of_a_later_version(machine: Machine) -> None:
    commit(machine, 4711)
    machine.folder.close()
    file = machine.folder.path / "__consumer_offsets-0" / "topic-0.json"
    whole = file.read_bytes()
    file.write_bytes(b'{"version": 3}')
    machine = Machine(machine.folder.path)
    find = FindCoordinatorRequest(coordinator_keys=("g",), key_type=0)
    assert [each.error_code for each in machine.ask(find).coordinators] == [CoordinatorNotAvailable.code]
    machine.folder.close()
    file.write_bytes(whole)
    machine = Machine(machine.folder.path)
    assert offsets(machine) == {0: 4711}
    machine.folder.abandon()


@pytest.mark.parametrize(
    ("partition", "clean"),
    [(0, True), (1, False), *(pytest.param(*each, marks=pytest.mark.deep) for each in ((0, False), (1, True)))],
)
def test_a_partition_whose_id_is_damaged_stays_part_of_its_topic(machine: Machine, partition: int, clean: bool) -> None:
    machine.produce(a_batch(b"a"), partition=partition)
    (machine.folder.close if clean else machine.folder.abandon)()
    path = machine.folder.path / f"t-{partition}" / "partition.metadata"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        machine = Machine(machine.folder.path)
        assert values_of(machine.log("t", partition).read(0, 1000)) == [b"a"]
        assert path.read_bytes() == whole
        (machine.folder.close if clean else machine.folder.abandon)()


def test_a_partition_whose_folder_is_gone_is_refused_up_to_where_it_ended(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.produce(a_batch(b"a"), a_batch(b"b"), partition=1)
    machine.folder.close()
    shutil.rmtree(machine.folder.path / "t-1")
    machine = Machine(machine.folder.path)
    assert "t-1 has lost the records from offset 0 to 1" in caplog.text
    with pytest.raises(CorruptMessage):
        machine.log("t", 1).read(0, 1000)
    machine.produce(a_batch(b"c"), partition=1)
    assert machine.log("t", 1).end_offset == 3
    machine.folder.abandon()
