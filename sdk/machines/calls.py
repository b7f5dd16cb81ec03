"""Calls that end: admin requests and offset look-ups, retried until `api_timeout`.

Rules:
- A call is one or more requests; each is repeated with backoff while its error is retriable or its connection broke,
  and the call fails at its deadline with the last trouble in the message.
- A repeat of CreateTopics or DeleteTopics after a broken connection may meet its own work: "already exists" and
  "unknown topic" then mean success.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ottla.codec.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from ottla.codec.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.errors import (
    BrokerError,
    ConnectionLost,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.sdk.machines.actions import Node
from ottla.sdk.machines.cluster import Topic, TopicPartition
from ottla.sdk.machines.connection import Exchange
from ottla.sdk.machines.core import ClientCore
from ottla.sdk.machines.outcome import Outcome, all_of

T = TypeVar("T")

_TOPIC = 2
"""The resource type of topics in DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, its partitions, and its configuration where it differs from the broker's."""

    topic: Topic
    configs: dict[str, str | None]


class Call(Generic[T]):
    """What all calls share: an outcome, a deadline, and the repetition of a request."""

    def __init__(self, core: ClientCore, what: str, now: float) -> None:
        self.core, self.what = core, what
        self.outcome: Outcome[T] = Outcome()
        self.deadline = now + core.options.api_timeout
        self.trouble = ""
        self.repeated = False
        """An earlier request of this call may have done its work."""
        self._failures = 0
        timer = core.later(self.deadline, lambda now: self._expire())
        self.outcome.when_done(timer.cancel)
        core.fail_on_close(self.outcome)

    def _expire(self) -> None:
        why = f"; last trouble: {self.trouble}" if self.trouble else ""
        self.outcome.fail(TimeoutExpired(f"{self.what}: not done within {self.core.options.api_timeout:g} s{why}"))

    def ask(
        self,
        node: Callable[[], Node],
        request: Any,
        judge: Callable[[Any, float], OttlaError | None],
        now: float,
    ) -> None:
        """Send ``request`` until ``judge`` of its answer finds no error, or one that no repetition mends."""

        def ended(answer: Any, now: float) -> None:
            error = answer if isinstance(answer, OttlaError) else judge(answer, now)
            if error is not None:
                self.repeated |= isinstance(answer, ConnectionLost | TimeoutExpired)
                self.retry(error, lambda now: self.ask(node, request, judge, now), now)

        until = min(now + self.core.options.request_timeout, self.deadline)
        self.core.submit(node(), Exchange(request, ended, until), now)

    def retry(self, error: OttlaError, again: Callable[[float], None], now: float) -> None:
        """Do ``again`` after a pause if the error may pass; otherwise the call fails with it."""
        if self.outcome.done:
            return
        passing = (
            error.retriable
            if isinstance(error, BrokerError)
            else isinstance(error, ConnectionLost | TimeoutExpired | RemoteProtocolError)
        )
        if not passing or self.core.closed:
            self.outcome.fail(error)
            return
        self.trouble = str(error)
        if isinstance(error, BrokerError) and error.stale_metadata:
            self.core.refresh(now)
        self.core.later(now + self.core.backoff(self._failures), again)
        self._failures += 1


class OffsetsCall(Call[dict[TopicPartition, int]]):
    """One ListOffsets to each leader, repeated for the partitions that are still wanting."""

    def __init__(self, core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int) -> None:
        super().__init__(core, "ListOffsets", now)
        self._wanted, self._isolation = wanted, isolation
        self._found: dict[TopicPartition, int] = {}
        self._topics = {name: core.topic(name, now) for name in dict.fromkeys(topic for topic, _ in wanted)}
        for name in self._topics:
            self.outcome.when_done(core.hold(name))
        self._known = all_of(list(self._topics.values()))
        self._known.when_done(self._begin)

    def _begin(self) -> None:
        """Every topic is known, or one cannot be."""
        if self._known.error is not None:
            self.outcome.fail(self._known.error)
            return
        for topic, partition in self._wanted:
            partitions = self._topics[topic].result().partitions
            if partition not in partitions:
                has = f"{topic!r} has partitions 0 to {len(partitions) - 1}"
                self.outcome.fail(UnknownTopicOrPartition(f"{has}, not {partition}"))
                return
        self.core.soon(self._attempt)

    def _attempt(self, now: float) -> None:
        groups: dict[Node, dict[str, list[ListOffsetsPartition]]] = {}
        for (topic, partition), timestamp in self._wanted.items():
            if (topic, partition) in self._found:
                continue
            leader = self.core.cluster.leader(topic, partition)
            if leader is None:
                self.core.refresh(now)
                self.retry(self.core.why_no_leader(topic, partition), self._attempt, now)
                return
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            groups.setdefault(leader, {}).setdefault(topic, []).append(asked)
        if not groups:
            self.outcome.succeed({place: self._found[place] for place in self._wanted})
            return
        left, errors = len(groups), list[OttlaError]()

        def ended(answer: ListOffsetsResponse | OttlaError, now: float) -> None:
            nonlocal left
            left -= 1
            errors.extend([answer] if isinstance(answer, OttlaError) else self._learn(answer))
            if left == 0:
                self._judge(errors, now)

        until = min(now + self.core.options.request_timeout, self.deadline)
        for node, by_topic in groups.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=self._isolation,
                topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(each)) for name, each in by_topic.items()),
                timeout_ms=int(self.core.options.request_timeout * 1000),
            )
            self.core.submit(node, Exchange(request, ended, until), now)

    def _learn(self, answer: ListOffsetsResponse) -> list[OttlaError]:
        """Keep what was found; return what was not."""
        errors: list[OttlaError] = []
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code:
                    errors.append(broker_error(each.error_code, f"{topic.name}-{each.partition_index}"))
                else:
                    self._found[topic.name, each.partition_index] = each.offset
        return errors

    def _judge(self, errors: list[OttlaError], now: float) -> None:
        """Every node has answered: done, or once more."""
        missing = [place for place in self._wanted if place not in self._found]
        if not missing:
            self._attempt(now)
            return
        lasting = [each for each in errors if isinstance(each, BrokerError) and not each.retriable]
        left_out = RemoteProtocolError(f"{missing[0][0]}-{missing[0][1]} was left out of the answer")
        self.core.refresh(now)
        self.retry([*lasting, *errors, left_out][0], self._attempt, now)


def offsets(
    core: ClientCore, wanted: Mapping[TopicPartition, int], now: float, isolation: int = 0
) -> Outcome[dict[TopicPartition, int]]:
    """The offset at each timestamp (milliseconds, or a special one of ListOffsets); -1 where no record is so young."""
    return OffsetsCall(core, wanted, now, isolation).outcome


def create_topic(
    core: ClientCore,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    now: float,
) -> Outcome[Topic]:
    """Make a topic; done once every partition has a leader that the client knows."""
    call: Call[Topic] = Call(core, f"creating topic {name!r}", now)

    def judge(answer: CreateTopicsResponse, now: float) -> OttlaError | None:
        result = answer.topics[0] if answer.topics else None
        if result is None:
            return RemoteProtocolError("CreateTopics was answered without the topic")
        if result.error_code and not (call.repeated and result.error_code == TopicAlreadyExists.code):
            return broker_error(result.error_code, result.error_message or f"topic {name!r}")
        await_leaders(now)
        return None

    def await_leaders(now: float) -> None:
        if call.outcome.done:
            return
        found = core.topic(name, now, fresh=True)

        def arrived() -> None:
            if found.error is not None:
                call.outcome.fail(found.error)
            elif all(each.leader in core.cluster.nodes for each in found.result().partitions.values()):
                call.outcome.succeed(found.result())
            else:
                core.later(now + core.backoff(0), await_leaders)

        found.when_done(arrived)

    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=int(core.options.request_timeout * 1000))
    call.ask(core.controller, request, judge, now)
    return call.outcome


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
        core.forget(name)
        call.outcome.succeed(None)
        return None

    request = DeleteTopicsRequest(topic_names=(name,), timeout_ms=int(core.options.request_timeout * 1000))
    call.ask(core.controller, request, judge, now)
    return call.outcome


def list_topics(core: ClientCore, now: float) -> Outcome[list[str]]:
    """The names of all topics that are not internal, sorted."""
    call: Call[list[str]] = Call(core, "listing topics", now)

    def judge(answer: MetadataResponse, now: float) -> OttlaError | None:
        call.outcome.succeed(sorted(each.name for each in answer.topics if each.name and not each.is_internal))
        return None

    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    call.ask(core.any_node, request, judge, now)
    return call.outcome


def describe_topic(core: ClientCore, name: str, now: float) -> Outcome[TopicDescription]:
    """A topic as it is now, with the part of its configuration that was set for it."""
    call: Call[TopicDescription] = Call(core, f"describing topic {name!r}", now)
    found = core.topic(name, now, fresh=True)

    def judge(answer: DescribeConfigsResponse, now: float) -> OttlaError | None:
        result = answer.results[0] if answer.results else None
        if result is None:
            return RemoteProtocolError("DescribeConfigs was answered without the topic")
        if result.error_code:
            return broker_error(result.error_code, result.error_message or f"topic {name!r}")
        own = {each.name: each.value for each in result.configs if each.config_source == 1}
        call.outcome.succeed(TopicDescription(found.result(), own))
        return None

    def configs(now: float) -> None:
        resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)
        call.ask(core.any_node, DescribeConfigsRequest(resources=(resource,)), judge, now)

    def arrived() -> None:
        if found.error is not None:
            call.outcome.fail(found.error)
        else:
            core.soon(configs)

    found.when_done(arrived)
    return call.outcome


__all__: Sequence[str] = (
    "TopicDescription",
    "create_topic",
    "delete_topic",
    "describe_topic",
    "list_topics",
    "offsets",
)
