"""Topics: create, grow, configure, list, describe and delete them; and list their brokers.

Rules:
- A retry of a request that changes something may meet its own effect, after a broken connection or if the broker only
  stopped waiting: "already exists", "unknown topic" and "already has so many partitions" then mean success.
- A topic that this client does not know is described or refused at once. A topic that it knows may be unknown for a
  moment to the broker that is asked, so the request is retried.
- KAFKA_STORAGE_ERROR (the disk fails or is full, or the topic's file is damaged) fails a call at once, as in Java's
  Admin, because only a person can repair it.
- Brokers report success if a configuration is to get its default and they do not know its name, so this client checks
  such names.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.codec.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.codec.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.codec.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.codec.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.codec.apis.incremental_alter_configs import (
    DELETE,
    SET,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    KafkaStorageError,
    LeaderNotAvailable,
    OttlaError,
    RemoteProtocolError,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.admin import BrokerDescription, TopicDescription
from ottla.sdk.calls.fan_out import partition_counts
from ottla.sdk.calls.task import Task, mapped
from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.connection.versions import CREATE_TOPIC_DEFAULTS
from ottla.sdk.core import ClientCore
from ottla.sdk.options import broker_timeout_ms
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled
from ottla.unknown_options import nearest

if TYPE_CHECKING:
    from uuid import UUID

_Result = (
    CreatableTopicResult
    | CreatePartitionsTopicResult
    | AlterConfigsResourceResponse
    | DeletableTopicResult
    | DescribeConfigsResult
)

_TOPIC = 2
"""The resource type of topics in DescribeConfigs and IncrementalAlterConfigs."""


def brokers(core: ClientCore, now: float) -> Outcome[tuple[BrokerDescription, ...]]:
    """The brokers of the cluster at this moment."""

    def work(task: Task[tuple[BrokerDescription, ...]]) -> Steps[tuple[BrokerDescription, ...]]:
        answer = yield from task.ask_cluster(())
        return tuple(
            BrokerDescription(each.node_id, each.host, each.port, each.rack, each.node_id == answer.controller_id)
            for each in sorted(answer.brokers, key=lambda each: each.node_id)
        )

    return Task(core, "listing brokers", now, work).outcome


def create_topic(
    core: ClientCore,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    now: float,
) -> Outcome[TopicDescription]:
    """Create a topic; done once every partition has a leader that the client knows."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )

    def build(version: int) -> CreateTopicsRequest:
        if version < CREATE_TOPIC_DEFAULTS and -1 in (partitions, replication_factor):
            alone = "brokers before Kafka 2.4 have no default for either: give partitions and replication_factor"
            raise UnsupportedVersion(f"creating topic {name!r}: {alone}")
        return CreateTopicsRequest(topics=(topic,), timeout_ms=broker_timeout_ms(core.options.request_timeout))

    def judge(answer: CreateTopicsResponse) -> OttlaError | None:
        return _error("CreateTopics", name, answer.topics)

    def work(task: Task[TopicDescription]) -> Steps[TopicDescription]:
        try:
            yield from task.ask(core.controller, CreateTopicsRequest, judge, build)
        except TopicAlreadyExists:
            if not task.repeated:
                raise
        return TopicDescription.of((yield from _led(task, name, 1)), configs)

    return Task(core, f"creating topic {name!r}", now, work).outcome


def _error(api: str, name: str, results: Sequence[_Result]) -> OttlaError | None:
    """The error about the topic in the response, if there is one.

    Raises:
        KafkaStorageError: a retry would not help.
    """
    if not results:
        return RemoteProtocolError(f"the response to {api} lacks the topic")
    code, message = results[0].error_code, results[0].error_message
    error = broker_error(code, message or f"topic {name!r}") if code else None
    if isinstance(error, KafkaStorageError):
        raise error
    if isinstance(error, InvalidRequest) and message:  # the general advice is about requests that make no sense
        return InvalidRequest(told=message)
    return error


def _change_error(api: str, name: str, results: Sequence[_Result]) -> OttlaError | None:
    """Like `_error`, for requests to the controller: it knows for certain which topics exist.

    Raises:
        KafkaStorageError: as in `_error`.
        UnknownTopicOrPartition: there is no topic of this name.
    """
    error = _error(api, name, results)
    if isinstance(error, UnknownTopicOrPartition):
        raise UnknownTopicOrPartition(told=f"there is no topic {name!r}: check its name")
    return error


def _led(task: Task[Any], name: str, count: int) -> Steps[Topic]:
    """Wait until the topic has at least ``count`` partitions, each with a leader that the client knows; return it."""
    core = task.core
    while True:
        topic = yield from settled(core.metadata.topic(name, task.now, fresh=True))
        leaders = {each.leader for each in topic.partitions.values()}
        if len(topic.partitions) >= count and leaders <= core.cluster.nodes.keys():
            return topic
        yield from task.pause(LeaderNotAvailable(f"topic {name!r}"))


def create_partitions(core: ClientCore, name: str, total: int, now: float) -> Outcome[TopicDescription]:
    """Add partitions to a topic; done once each has a leader that the client knows."""
    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
    timeout_ms = broker_timeout_ms(core.options.request_timeout)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=timeout_ms, validate_only=False)

    def judge(answer: CreatePartitionsResponse) -> OttlaError | None:
        return _change_error("CreatePartitions", name, answer.results)

    def work(task: Task[TopicDescription]) -> Steps[TopicDescription]:
        refused: InvalidPartitions | None = None
        try:
            yield from task.ask(core.controller, request, judge)
        except InvalidPartitions as error:
            if not task.repeated:
                raise
            refused = error
        topic = yield from _led(task, name, total)
        if refused is not None and len(topic.partitions) > total:
            raise refused
        return TopicDescription.of(topic, {})

    return Task(core, f"growing topic {name!r}", now, work).outcome


def configure_topic(core: ClientCore, name: str, configs: Mapping[str, str | None], now: float) -> Outcome[None]:
    """Change single configurations of a topic; ``None`` stands for the default. A retry repeats the same change."""
    resource = AlterConfigsResource(
        resource_type=_TOPIC,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)

    def judge(answer: IncrementalAlterConfigsResponse) -> OttlaError | None:
        return _change_error("IncrementalAlterConfigs", name, answer.responses)

    def work(task: Task[None]) -> Steps[None]:
        if reset := [key for key, value in configs.items() if value is None]:
            yield from _check_names(task, name, reset)
        yield from task.ask(core.any_node, request, judge)  # brokers forward it to the controller

    return Task(core, f"configuring topic {name!r}", now, work).outcome


def _check_names(task: Task[Any], topic: str, keys: Sequence[str]) -> Steps[None]:
    """Check that brokers know these names of configurations, unless they do not say which they know.

    Raises:
        InvalidConfig: a name is unknown; suggests the nearest.
    """
    silent = (UnknownTopicOrPartition.code, TopicAuthorizationFailed.code)  # the change itself gets the error

    def judge(answer: DescribeConfigsResponse) -> OttlaError | None:
        if answer.results and answer.results[0].error_code in silent:
            return None
        return _error("DescribeConfigs", topic, answer.results)

    answer: DescribeConfigsResponse = yield from task.ask(task.core.any_node, _configs_of(topic), judge)
    known = {each.name for each in answer.results[0].configs}
    if known and (unknown := [key for key in keys if key not in known]):
        near = nearest(unknown[0], known)
        advice = f": do you mean {near}?" if near else ""
        raise InvalidConfig(told=f"{unknown[0]!r} is not a topic's configuration{advice}")


def _configs_of(topic: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=None)
    return DescribeConfigsRequest(resources=(resource,))


def delete_topic(core: ClientCore, name: str, now: float) -> Outcome[None]:
    """Delete a topic and its records."""
    request = DeleteTopicsRequest(topic_names=(name,), timeout_ms=broker_timeout_ms(core.options.request_timeout))

    def judge(answer: DeleteTopicsResponse) -> OttlaError | None:
        return _change_error("DeleteTopics", name, answer.responses)

    def work(task: Task[None]) -> Steps[None]:
        try:
            yield from task.ask(core.controller, request, judge)
        except UnknownTopicOrPartition:
            if not task.repeated:
                raise
        core.metadata.forget(name)

    return Task(core, f"deleting topic {name!r}", now, work).outcome


def list_topics(core: ClientCore, now: float) -> Outcome[list[str]]:
    """The names of all topics except internal ones, sorted."""
    return mapped(listed_topics(core, now), list)


def listed_topics(core: ClientCore, now: float) -> Outcome[dict[str, tuple["UUID", int]]]:
    """The id of each topic, zero if brokers have none, and its number of partitions, without internal topics.

    Unlike `topic_ids`, this includes topics that brokers report with an error: they may have no partitions yet.
    """

    def work(task: Task[dict[str, tuple["UUID", int]]]) -> Steps[dict[str, tuple["UUID", int]]]:
        answer = yield from task.ask_cluster(None)
        listed = {each.name: each for each in answer.topics if each.name and not each.is_internal}
        return {name: (each.topic_id, len(each.partitions)) for name, each in sorted(listed.items())}

    return Task(core, "listing topics", now, work).outcome


def topic_ids(core: ClientCore, names: Sequence[str] | None, now: float) -> Outcome[dict[str, tuple["UUID", int]]]:
    """The id of each topic, zero if brokers have none, and its number of partitions.

    Args:
        names: the topics to look up; missing topics are left out. ``None``: all but internal ones.
    """

    def work(task: Task[dict[str, tuple["UUID", int]]]) -> Steps[dict[str, tuple["UUID", int]]]:
        while True:
            answer = yield from task.ask_cluster(names)
            known = [each for each in answer.topics if each.error_code != UnknownTopicOrPartition.code]
            failed = [broker_error(each.error_code, each.name or "") for each in known if each.error_code]
            if names is None:  # permanent errors of other topics do not concern the caller; retriable ones may
                failed = [error for error in failed if error.retriable]
            if not failed:
                break
            yield from task.pause(failed[0])
        return {
            each.name or "": (each.topic_id, len(each.partitions))
            for each in known
            if each.error_code == 0 and not (names is None and each.is_internal)
        }

    return Task(core, "describing topics", now, work).outcome


def describe_topic(core: ClientCore, name: str, now: float, *, configs: bool) -> Outcome[TopicDescription]:
    """Describe a topic; with ``configs``, also the part of its configuration that was set for it."""
    request = _configs_of(name)

    def judge(answer: DescribeConfigsResponse) -> OttlaError | None:
        return _error("DescribeConfigs", name, answer.results)

    def work(task: Task[TopicDescription]) -> Steps[TopicDescription]:
        if name not in core.cluster.topics:
            count = (yield from partition_counts(task, [name]))[name]
            if isinstance(count, OttlaError):
                raise count
        topic = yield from settled(core.metadata.topic(name, task.now, fresh=True))
        if not configs:
            return TopicDescription.of(topic, None)
        try:
            answer: DescribeConfigsResponse = yield from task.ask(core.any_node, request, judge)
        except UnsupportedVersion:  # before Kafka 0.11
            return TopicDescription.of(topic, None)
        except TopicAuthorizationFailed:  # Describe, which metadata needs, does not include DescribeConfigs
            return TopicDescription.of(topic, None)
        own = {each.name: each.value for each in answer.results[0].configs if each.config_source == 1}
        return TopicDescription.of(topic, own)

    return Task(core, f"describing topic {name!r}", now, work).outcome
