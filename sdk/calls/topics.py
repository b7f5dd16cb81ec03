"""Topics: made, grown, listed, described, deleted.

Rules:
- A repeat of a request that changes something may meet its own work after a broken connection: "already exists",
  "unknown topic" and "has so many partitions" then mean success.
- A topic that nobody has made known to this client is described or refused at once; one that it knows may be unknown
  to the broker that is asked for a moment, and is asked for again.
"""

from collections.abc import Callable, Mapping

from ottla.codec.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from ottla.codec.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from ottla.codec.apis.metadata import MetadataResponse
from ottla.errors import (
    InvalidPartitions,
    OttlaError,
    RemoteProtocolError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.admin import TopicDescription
from ottla.sdk.calls.call import Call, Task
from ottla.sdk.calls.offsets import partition_counts
from ottla.sdk.cluster.cluster import Topic
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import CREATE_TOPIC_DEFAULTS
from ottla.sdk.core import ClientCore
from ottla.sdk.options import broker_timeout_ms
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

_TOPIC = 2
"""The resource type of topics in DescribeConfigs."""


def create_topic(
    core: ClientCore,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    now: float,
) -> Outcome[TopicDescription]:
    """Make a topic; done once every partition has a leader that the client knows."""
    call: Call[TopicDescription] = Call(core, f"creating topic {name!r}", now)

    def judge(answer: CreateTopicsResponse, now: float) -> OttlaError | None:
        result = answer.topics[0] if answer.topics else None
        if result is None:
            return RemoteProtocolError("CreateTopics was answered without the topic")
        if result.error_code and not (call.repeated and result.error_code == TopicAlreadyExists.code):
            return broker_error(result.error_code, result.error_message or f"topic {name!r}")
        _await_leaders(call, name, configs, lambda topic: True, now)
        return None

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

    call.ask(core.controller, CreateTopicsRequest, judge, now, build)
    return call.outcome


def _await_leaders(
    call: Call[TopicDescription],
    name: str,
    configs: Mapping[str, str | None],
    whole: Callable[[Topic], bool],
    now: float,
) -> None:
    """Succeed once the topic is ``whole`` and each partition has a leader that the client knows."""
    core = call.core
    if call.outcome.done:
        return
    found = core.metadata.topic(name, now, fresh=True)

    def arrived() -> None:
        if found.error is not None:
            call.outcome.fail(found.error)
            return
        topic = found.result()
        if whole(topic) and all(each.leader in core.cluster.nodes for each in topic.partitions.values()):
            call.outcome.succeed(TopicDescription.of(topic, configs))
        else:
            again = now + core.backoff(0)
            core.later(again, lambda now: _await_leaders(call, name, configs, whole, now))

    found.when_done(arrived)


def create_partitions(core: ClientCore, name: str, total: int, now: float) -> Outcome[TopicDescription]:
    """Give a topic more partitions; done once every one has a leader that the client knows."""
    call: Call[TopicDescription] = Call(core, f"growing topic {name!r}", now)

    def judge(answer: CreatePartitionsResponse, now: float) -> OttlaError | None:
        result = answer.results[0] if answer.results else None
        if result is None:
            return RemoteProtocolError("CreatePartitions was answered without the topic")
        error = (
            broker_error(result.error_code, result.error_message or f"topic {name!r}") if result.error_code else None
        )
        if isinstance(error, UnknownTopicOrPartition):
            call.outcome.fail(error)
        elif isinstance(error, InvalidPartitions) and call.repeated:
            # Perhaps because the first request has done it.
            _await_leaders(call, name, {}, lambda topic: _grown(call, topic, total, error), now)
        elif error is not None:
            return error
        else:
            _await_leaders(call, name, {}, lambda topic: len(topic.partitions) >= total, now)
        return None

    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
    timeout_ms = broker_timeout_ms(core.options.request_timeout)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=timeout_ms, validate_only=False)
    call.ask(core.controller, request, judge, now)
    return call.outcome


def _grown(call: Call[TopicDescription], topic: Topic, total: int, error: OttlaError) -> bool:
    """Whether the topic has ``total`` partitions; if it has more, the call fails with ``error``."""
    if len(topic.partitions) > total:
        call.outcome.fail(error)
    return len(topic.partitions) == total


def delete_topic(core: ClientCore, name: str, now: float) -> Outcome[None]:
    """Remove a topic and its records."""
    call: Call[None] = Call(core, f"deleting topic {name!r}", now)

    def judge(answer: DeleteTopicsResponse, now: float) -> OttlaError | None:
        result = answer.responses[0] if answer.responses else None
        if result is None:
            return RemoteProtocolError("DeleteTopics was answered without the topic")
        error = (
            broker_error(result.error_code, result.error_message or f"topic {name!r}") if result.error_code else None
        )
        if isinstance(error, UnknownTopicOrPartition):
            if not call.repeated:
                call.outcome.fail(error)
                return None
        elif error is not None:
            return error
        core.metadata.forget(name)
        call.outcome.succeed(None)
        return None

    request = DeleteTopicsRequest(topic_names=(name,), timeout_ms=broker_timeout_ms(core.options.request_timeout))
    call.ask(core.controller, request, judge, now)
    return call.outcome


def list_topics(core: ClientCore, now: float) -> Outcome[list[str]]:
    """The names of all topics that are not internal, sorted."""
    call: Call[list[str]] = Call(core, "listing topics", now)

    def judge(answer: MetadataResponse, now: float) -> OttlaError | None:
        call.outcome.succeed(sorted(each.name for each in answer.topics if each.name and not each.is_internal))
        return None

    call.ask(core.any_node, requests.metadata(None), judge, now)
    return call.outcome


def describe_topic(core: ClientCore, name: str, now: float) -> Outcome[TopicDescription]:
    """A topic as it is now, with the part of its configuration that was set for it."""

    def work(task: Task[TopicDescription]) -> Steps[TopicDescription]:
        if name not in core.cluster.topics:
            count = (yield from partition_counts(task, [name]))[name]
            if isinstance(count, OttlaError):
                raise count
        topic = yield from settled(core.metadata.topic(name, task.now, fresh=True))
        resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
        while True:
            try:
                answer: DescribeConfigsResponse = yield from task.ask_any(DescribeConfigsRequest(resources=(resource,)))
            except UnsupportedVersion:  # before Kafka 0.11
                return TopicDescription.of(topic, {})
            error: OttlaError = RemoteProtocolError("DescribeConfigs was answered without the topic")
            if answer.results:
                described = answer.results[0]
                if not described.error_code:
                    own = {each.name: each.value for each in described.configs if each.config_source == 1}
                    return TopicDescription.of(topic, own)
                error = broker_error(described.error_code, described.error_message or f"topic {name!r}")
            yield from task.pause(error)

    return Task(core, f"describing topic {name!r}", now, work).outcome
