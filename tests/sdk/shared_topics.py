"""Share groups for tests: the brokers, topics with records, and groups that begin with the first record."""

from collections.abc import Iterator

import pytest

import ottla
from ottla.codec.apis.incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.sdk.calls.task import Task
from ottla.sdk.steps import Steps
from ottla.testing import Broker

BROKERS = [pytest.param("kafka", marks=pytest.mark.slow), "brokerlite"]


@pytest.fixture(scope="module", params=BROKERS)
def sharing(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of each kind of broker."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").bootstrap
    else:
        with Broker() as broker:
            yield broker.bootstrap


GROUP_CONFIG = 32
"""The type of the resource that has a group's configuration."""


async def share_from_the_beginning(client: ottla.Client, group: str, **configs: str) -> None:
    """Let a share group begin with the first record: the default is the end. ``configs``: more of its configuration."""
    named = {"share.auto.offset.reset": "earliest"} | {name.replace("_", "."): value for name, value in configs.items()}
    resource = AlterConfigsResource(
        resource_type=GROUP_CONFIG,
        resource_name=group,
        configs=tuple(AlterableConfig(name=name, config_operation=SET, value=each) for name, each in named.items()),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    core = client._driver.core

    def work(task: Task[None]) -> Steps[None]:
        answer = yield from task.ask(core.any_node, request, lambda answer: None)
        assert [each.error_code for each in answer.responses] == [0], answer

    await client._driver.call(lambda now: Task(core, "configuring a share group", now, work).outcome)


async def filled(client: ottla.Client, topic: str, count: int, partitions: int = 3) -> set[bytes]:
    """Create a topic with so many records, and return their values."""
    await client.create_topic(topic, partitions=partitions)
    values = [b"%s %d" % (topic.encode(), index) for index in range(count)]
    async with client.producer() as producer:
        for value in values:
            await producer.send_soon(topic, value)
    return set(values)
