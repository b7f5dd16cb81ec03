"""Changes of a topic's configuration: their effects, restarts, full disks, and administrators of other clients."""

import errno
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ottla.brokerlite.handlers.config_changes import LONGEST
from ottla.brokerlite.storage.disk import FileSystem
from ottla.codec.apis import alter_configs
from ottla.codec.apis.describe_configs import GROUP, TOPIC, DescribeConfigsRequest, DescribeConfigsResource
from ottla.codec.apis.incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.codec.frames import build_response
from ottla.errors import InvalidConfig, InvalidRequest, KafkaStorageError, MessageTooLarge
from ottla.testing import Broker
from tests import kafka
from tests.brokerlite.machine import TODAY, Machine, a_batch, producing
from tests.patience import HUNG


def change(machine: Machine, configs: dict[str, str | None], topic: str = "t") -> tuple[int, str]:
    """Set configurations, or delete them (``None``); the error code and the message of the response."""
    resource = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=tuple(
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ),
    )
    (said,) = machine.ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)).responses
    return said.error_code, said.error_message or ""


def grow(machine: Machine) -> None:
    machine.core.add_partitions(machine.core.topics.by_name["t"], 2)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "data")
    made.core.create_topic("t", 2, {})
    return made


def own(machine: Machine) -> dict[str, str]:
    return machine.core.topics.by_name["t"].configs


def test_the_next_record_is_judged_by_the_new_configuration(machine: Machine) -> None:
    large = producing(a_batch(bytes(1000)))
    assert machine.ask(large).responses[0].partition_responses[0].error_code == 0
    assert change(machine, {"max.message.bytes": "500"})[0] == 0
    assert machine.ask(large).responses[0].partition_responses[0].error_code == MessageTooLarge.code
    assert change(machine, {"max.message.bytes": None})[0] == 0
    assert machine.ask(large).responses[0].partition_responses[0].error_code == 0


def test_old_records_expire_by_the_new_retention(machine: Machine) -> None:
    machine.produce(a_batch(b"old", timestamp=TODAY - 3_600_000))
    machine.pass_time(301)
    assert machine.log().start_offset == 0
    change(machine, {"retention.ms": "60000"})
    machine.pass_time(301)
    assert machine.log().start_offset == 1


def test_partitions_that_are_added_have_the_changed_configuration(machine: Machine) -> None:
    change(machine, {"max.message.bytes": "500"})
    machine.core.add_partitions(machine.core.topics.by_name["t"], 3)
    assert machine.log(partition=2).settings.max_message_bytes == 500


@pytest.mark.parametrize("clean", [True, False], ids=["a clean stop", "a kill"])
def test_a_change_survives(machine: Machine, clean: bool) -> None:
    change(machine, {"retention.ms": "5", "cleanup.policy": "compact"})
    change(machine, {"retention.ms": None})
    restarted = machine.restart(clean=clean)
    assert own(restarted) == {"cleanup.policy": "compact"}
    assert restarted.log(partition=1).settings.compacted


def test_nothing_changes_while_the_disk_is_full(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    change(machine, {"retention.ms": "5"})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("ottla.brokerlite.storage.disk.FileSystem.write_file", full)
        code, why = change(machine, {"retention.ms": "6"})
    assert code == KafkaStorageError.code and "No space left" in why
    assert own(machine) == {"retention.ms": "5"} and machine.log().settings.retention_ms == 5
    assert change(machine, {"retention.ms": "6"})[0] == 0
    assert own(machine.restart()) == {"retention.ms": "6"}


@pytest.mark.parametrize("kind", [TOPIC, GROUP], ids=["topic", "group"])
@pytest.mark.parametrize(
    ("key", "value"), [("x" * LONGEST, "1"), ("cleanup.policy", "x" * LONGEST)], ids=["name", "value"]
)
def test_the_response_about_a_text_of_any_length_can_be_sent(machine: Machine, kind: int, key: str, value: str) -> None:
    if kind == GROUP and key == "cleanup.policy":
        key = "share.auto.offset.reset"
    for operation in (SET, APPEND):
        config = AlterableConfig(name=key, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name="t", configs=(config,))
        answer = machine.ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
        assert answer.responses[0].error_code == InvalidConfig.code
        build_response(answer, 1, 0)
    whole = alter_configs.AlterableConfig(name=key, value=value)
    asked = alter_configs.AlterConfigsResource(resource_type=kind, resource_name="t", configs=(whole,))
    build_response(machine.ask(alter_configs.AlterConfigsRequest(resources=(asked,), validate_only=False)), 2, 0)


def test_a_list_grows_no_longer_than_a_response_can_return(machine: Machine) -> None:
    key = "leader.replication.throttled.replicas"
    for first in (0, 4000):
        entries = ",".join(f"{each}:1" for each in range(first, first + 4000))
        config = AlterableConfig(name=key, config_operation=APPEND, value=entries)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(config,))
        (said,) = machine.ask(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)).responses
        assert said.error_code == (InvalidConfig.code if first else 0)
    wanted = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=(key,))
    build_response(machine.ask(DescribeConfigsRequest(resources=(wanted,)), 4), 4, 0)


class FailingSyncs(FileSystem):
    """A disk that cannot flush topic files once `broken` is set."""

    broken = False

    def sync(self, path: Path) -> None:
        if self.broken and path.name.startswith("topic-"):
            raise OSError(errno.EIO, "Input/output error")
        super().sync(path)


@pytest.mark.parametrize("alter", [partial(change, configs={"retention.ms": "5"}), grow], ids=["changed", "grown"])
def test_the_last_topic_file_on_disk_stays_until_the_next_one_is_there(
    tmp_path: Path, alter: Callable[[Machine], object]
) -> None:
    disk = FailingSyncs()
    machine = Machine(tmp_path / "data", disk=disk, folder_sync=True)
    machine.core.create_topic("t", 1, {})
    disk.broken = True
    alter(machine)
    assert sorted(each.name for each in (tmp_path / "data" / "t-0").glob("topic-*")) == ["topic-0.json", "topic-1.json"]
    disk.broken = False
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        machine.core.configure_topic(machine.core.topics.by_name["t"], {"retention.ms": "6"})
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        machine.core.add_partitions(machine.core.topics.by_name["t"], 5)


def test_indexes_of_new_segments_follow_a_changed_interval(machine: Machine) -> None:
    change(machine, {"index.interval.bytes": "100"})
    before, changed = machine.log(partition=1), machine.log()
    changed.segments.roll(changed.producers)
    for partition in (0, 1):
        machine.produce(*(a_batch(bytes(200)) for _ in range(5)), partition=partition)
    assert changed.segments.active.index_size > before.segments.active.index_size


def test_internal_topics_keep_their_configuration(machine: Machine) -> None:
    machine.core.topics.own("__consumer_offsets", {"cleanup.policy": "compact"})
    code, why = change(machine, {"cleanup.policy": "delete"}, "__consumer_offsets")
    assert code == InvalidRequest.code and why == "__consumer_offsets is internal: the broker sets its configuration"


def test_the_entry_about_gaps_survives_a_change_and_more_partitions(machine: Machine) -> None:
    file = machine.folder.path / "t-0" / "topic-0.json"
    state = json.loads(file.read_bytes())
    machine.folder.close()
    del state["crc32c"]
    file.write_text(json.dumps(state | {"gaps": True}))
    changed = Machine(machine.folder.path)
    changed.core.add_partitions(changed.core.topics.by_name["t"], 3)
    change(changed, {"retention.ms": "5"})
    (left,) = (machine.folder.path / "t-0").glob("topic-*.json")
    assert json.loads(left.read_bytes())["gaps"] is True


def test_the_log_names_what_changed_and_warns_once_of_what_has_no_effect(machine: Machine, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "ottla.brokerlite")
    change(machine, {"retention.ms": "5", "min.insync.replicas": "2"})
    change(machine, {"retention.ms": "6"})
    change(machine, {"retention.ms": "6"})
    assert caplog.messages == [
        "topic configuration stored, but it has no effect: min.insync.replicas",
        "topic configuration changed: min.insync.replicas, retention.ms",
        "topic configuration changed: retention.ms",
    ]


@pytest.mark.slow
def test_administrators_of_other_clients_change_a_topic(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=1, configs={"retention.ms": "1000"})
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap})

    def described() -> dict[str, str]:
        (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values()
        return {each.name: each.value for each in future.result(HUNG).values() if each.source == 1}

    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(HUNG)
    assert described() == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}

    whole = ConfigResource(ResourceType.TOPIC, "t", set_config={"segment.ms": "5000"})
    with pytest.deprecated_call():
        (future,) = admin.alter_configs([whole]).values()
    future.result(HUNG)
    assert described() == {"segment.ms": "5000"}

    alter = ("--alter", "--add-config", "max.message.bytes=100", "--delete-config", "segment.ms")
    where = ("--bootstrap-server", ottla_broker.bootstrap, "--entity-type", "topics", "--entity-name", "t")
    kafka.run("kafka.admin.ConfigCommand", *where, *alter)
    assert described() == {"max.message.bytes": "100"}
    with pytest.raises(AssertionError, match=r"max\.message.bytes is 'many', which is not a number"):
        kafka.run("kafka.admin.ConfigCommand", *where, "--alter", "--add-config", "max.message.bytes=many")
