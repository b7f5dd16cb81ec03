"""Requests to many nodes: the coordinators of names, the leaders of partitions, every broker.

Rules:
- A node gets one request for all its keys, and all nodes are asked at the same time. After a retriable error the
  request is sent again after a pause, to the node that is then the right one.
- Each name or partition succeeds or fails separately: an error takes the place of its answer.

Source: AdminApiDriver.java with CoordinatorStrategy, PartitionLeaderStrategy and AllBrokersStrategy.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.addresses import format_address
from ottla.errors import (
    LeaderNotAvailable,
    OttlaError,
    PartialFailure,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.calls.task import UNSURE, Task
from ottla.sdk.cluster.cluster import Topic, TopicPartition
from ottla.sdk.cluster.coordinators import Coordinators
from ottla.sdk.cluster.metadata import UNKNOWN_TOPIC_GRACE
from ottla.sdk.connection import requests
from ottla.sdk.events import Node
from ottla.sdk.outcome import Outcome, all_of
from ottla.sdk.steps import Steps

T = TypeVar("T")
K = TypeVar("K")

RETRY_FOR = 3.0
"""Seconds after which a call that only looks at the current state gives up on retriable errors."""


class Reply(NamedTuple, Generic[K]):
    """The response of ``node`` about ``keys``, in ``version`` of the API."""

    node: Node
    keys: list[K]
    answer: Any
    version: int


Send = Callable[[Node, list[K]], Outcome[tuple[Any, int]]]
"""Sends a request about some keys to their node."""
Read = Callable[[Reply[K]], Mapping[K, T | OttlaError]]
"""Reads the answer for each key from a reply."""


def all_or_partial(what: str, answers: Mapping[K, T | OttlaError], name: Callable[[K], str] = str) -> dict[K, T]:
    """Return the answers; raise `PartialFailure` if some are errors, or the error itself if there is one key only."""
    found = {key: answer for key, answer in answers.items() if not isinstance(answer, OttlaError)}
    failures = {name(key): answer for key, answer in answers.items() if isinstance(answer, OttlaError)}
    refuse_unsupported(answers.values())
    if len(answers) == 1:
        for error in failures.values():
            raise error
    if failures:
        raise PartialFailure(what, found, failures)
    return found


def refuse_unsupported(answers: Iterable[object]) -> None:
    """Raise `UnsupportedVersion` if all answers are that."""
    several = list(answers)
    unsupported = [each for each in several if isinstance(each, UnsupportedVersion)]
    if unsupported and len(unsupported) == len(several):
        raise unsupported[0]


def _ask(
    where: Mapping[K, Node | OttlaError], send: Send[K], read: Read[K, T], most: int | None = None
) -> Steps[dict[K, T | OttlaError]]:
    """Send one request to each node, or one for each ``most`` keys of it, all at the same time."""
    answers: dict[K, T | OttlaError] = {}
    by_node: dict[Node, list[K]] = {}
    for key, node in where.items():
        if isinstance(node, OttlaError):
            answers[key] = node
        else:
            by_node.setdefault(node, []).append(key)
    sent = [
        (node, some, send(node, some))
        for node, keys in by_node.items()
        for some in (keys[at : at + (most or len(keys))] for at in range(0, len(keys), most or len(keys)))
    ]
    for node, some, outcome in sent:
        yield outcome
        answers |= dict.fromkeys(some, outcome.error) if outcome.error else read(Reply(node, some, *outcome.result()))
    return answers


# -- coordinators -----------------------------------------------------------------------------------------------------


def ask_coordinators(
    task: Task[Any],
    coordinators: Coordinators,
    names: Iterable[str],
    send: Send[str],
    read: Read[str, T],
    *,
    most: int | None = None,
    unsure: set[str] | None = None,
) -> Steps[dict[str, T | OttlaError]]:
    """Ask the coordinator of each name; retry retriable errors.

    Args:
        most: names per request; by default all of a coordinator.
        unsure: collects names whose requests may have been executed without a response.
    """
    order = list(dict.fromkeys(names))
    left, found = order, dict[str, T | OttlaError]()
    while left:
        finding = {name: coordinators.find(name, task.now) for name in left}
        yield from finding.values()
        where = {name: each.error or each.result() for name, each in finding.items()}
        answers = yield from _ask(where, send, read, most)
        troubles: list[OttlaError] = []
        for name in left:
            answer = answers.get(name, RemoteProtocolError(f"the response lacks {coordinators.kind} {name!r}"))
            if unsure is not None and isinstance(answer, UNSURE):
                unsure.add(name)
            if isinstance(answer, OttlaError) and answer.retriable:
                coordinators.heard(name, answer)
                troubles.append(answer)
            else:
                found[name] = answer
        left = [name for name in left if name not in found]
        if left:
            yield from task.pause(troubles[0])
    return {name: found[name] for name in order}


# -- leaders ----------------------------------------------------------------------------------------------------------


def ask_leaders(
    task: Task[Any],
    places: Iterable[TopicPartition],
    send: Send[TopicPartition],
    read: Read[TopicPartition, T],
    *,
    most: int | None = None,
    strict: bool = False,
    retry_for: float = math.inf,
) -> Steps[dict[TopicPartition, T | OttlaError]]:
    """Ask the leader of each partition of known topics; retry retriable errors.

    A topic that is deleted meanwhile, or recreated with fewer partitions, becomes an error after the brokers have said
    so for a while, as at the beginning; with ``retry_for`` when that has passed.

    Args:
        read: partitions that it leaves out are asked about again at once.
        most: partitions per request; by default all of a leader.
        strict: raise the first error that is not retriable.
        retry_for: seconds after which retriable errors are no longer retried.
    """
    core, until = task.core, task.now + retry_for
    order = list(dict.fromkeys(places))
    left, found = order, dict[TopicPartition, T | OttlaError]()
    missing: dict[TopicPartition, float] = {}
    while left:
        topics = {} if retry_for < math.inf else (yield from _topics(task, left))
        gone: dict[TopicPartition, OttlaError] = {}
        for place in left:
            if topics and (error := _why_gone(task, topics[place[0]], place, missing)) is not None:
                gone[place] = error
                if strict:
                    raise error
        where = {
            place: core.cluster.leader(*place) or core.metadata.why_no_leader(*place)
            for place in left
            if place not in gone
        }
        answers = gone | (yield from _ask(where, send, read, most))
        troubles: list[OttlaError] = []
        for place, answer in answers.items():
            if not isinstance(answer, OttlaError):
                found[place] = answer
            elif answer.retriable and place not in gone and task.now < until:
                troubles.append(answer)
            elif strict:
                raise answer
            else:
                found[place] = answer
        left = [place for place in left if place not in found]
        if troubles:
            core.metadata.refresh(task.now)
            yield from task.pause(troubles[0])
    return {place: found[place] for place in order}


def _why_gone(
    task: Task[Any], topic: Outcome[Topic], place: TopicPartition, missing: dict[TopicPartition, float]
) -> OttlaError | None:
    """Why a partition counts as gone, if it does.

    Args:
        missing: since when the topic seems to lack a partition: it may have grown just now.
    """
    if topic.error is not None:
        return topic.error
    partitions = topic.result().partitions
    if place[1] in partitions:
        missing.pop(place, None)
    elif task.now - missing.setdefault(place, task.now) >= UNKNOWN_TOPIC_GRACE:
        return no_partition(*place, len(partitions))
    return None


def place_name(place: TopicPartition) -> str:
    """The name in Kafka's notation: ``topic-partition``."""
    return f"{place[0]}-{place[1]}"


def listed(places: Collection[TopicPartition]) -> str:
    """The first partitions, and how many more there are."""
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return ", ".join(map(place_name, islice(places, 3))) + more


def left_out(place: TopicPartition) -> RemoteProtocolError:
    """The error for a partition that is not in the response."""
    return RemoteProtocolError(f"the response lacks {place_name(place)}")


Places = tuple[list[TopicPartition], dict[TopicPartition, OttlaError]]
"""The partitions that exist; and for each of the others, the error that says why it does not."""


def known_places(task: Task[Any], places: Collection[TopicPartition]) -> Steps[Places]:
    """Sort ``places`` into existing and missing ones, once their topics are known; waits for new topics."""
    topics = yield from _know_topics(task, places)
    there: list[TopicPartition] = []
    gone: dict[TopicPartition, OttlaError] = {}
    for name, partition in dict.fromkeys(places):
        if (error := topics[name].error) is not None:
            gone[name, partition] = error
        elif partition in (partitions := topics[name].result().partitions):
            there.append((name, partition))
        else:
            gone[name, partition] = no_partition(name, partition, len(partitions))
    return there, gone


def existing_places(task: Task[Any], places: Collection[TopicPartition]) -> Steps[Places]:
    """The same, but asks the brokers, and a topic that does not exist is an error at once."""
    counts = yield from partition_counts(task, list(dict.fromkeys(topic for topic, _ in places)))
    there: list[TopicPartition] = []
    gone: dict[TopicPartition, OttlaError] = {}
    for name, partition in dict.fromkeys(places):
        count = counts[name]
        if isinstance(count, OttlaError):
            gone[name, partition] = count
        elif 0 <= partition < count:
            there.append((name, partition))
        else:
            gone[name, partition] = no_partition(name, partition, count)
    yield from _know_topics(task, there)
    return there, gone


def _know_topics(task: Task[Any], places: Iterable[TopicPartition]) -> Steps[dict[str, Outcome[Topic]]]:
    """Wait until each topic is known or cannot be; the leaders are kept up to date until the call ends."""
    for name in dict.fromkeys(topic for topic, _ in places):
        task.outcome.when_done(task.core.metadata.hold(name))
    return (yield from _topics(task, places))


def _topics(task: Task[Any], places: Iterable[TopicPartition]) -> Steps[dict[str, Outcome[Topic]]]:
    metadata, named = task.core.metadata, requests.by_topic(places)
    topics = {name: metadata.topic(name, task.now, partitions=each) for name, each in named.items()}
    yield all_of(list(topics.values()))
    return topics


def partitions_in(task: Task[Any], scope: Iterable[str | TopicPartition]) -> Steps[list[TopicPartition]]:
    """All partitions in ``scope``, where a topic stands for all its partitions; sorted. Raises if one is missing."""
    named = [(each, None) if isinstance(each, str) else each for each in scope]
    counts = yield from partition_counts(task, list(dict.fromkeys(topic for topic, _ in named)))
    places: set[TopicPartition] = set()
    for topic, partition in named:
        count = counts[topic]
        if isinstance(count, OttlaError):
            raise count
        if partition is not None and not 0 <= partition < count:
            raise no_partition(topic, partition, count)
        places |= {(topic, each) for each in (range(count) if partition is None else [partition])}
    return sorted(places)


def partition_counts(task: Task[Any], names: list[str]) -> Steps[dict[str, int | OttlaError]]:
    """The number of partitions of each topic now, or its error.

    Waits for a topic that is just being created, for at most `RETRY_FOR`. (Brokers before 0.11 create a topic when a
    client asks for it, if so configured.)
    """
    counts: dict[str, int | OttlaError] = {}
    until = task.now + RETRY_FOR
    while names:
        answer = yield from task.ask_cluster(names)
        counts = {name: UnknownTopicOrPartition(f"the response lacks topic {name!r}") for name in names}
        for each in answer.topics:
            error = broker_error(each.error_code, f"topic {each.name!r}") if each.error_code else None
            counts[each.name or ""] = error or len(each.partitions)
        coming = next((each for each in counts.values() if isinstance(each, LeaderNotAvailable)), None)
        if coming is None or task.now >= until:
            break
        yield from task.pause(coming)
    return counts


def no_partition(topic: str, partition: int, count: int) -> UnknownTopicOrPartition:
    """The error for a partition that a topic of ``count`` partitions does not have."""
    return UnknownTopicOrPartition(told=f"{topic!r} has partitions 0 to {count - 1}, not {partition}")


# -- every broker -----------------------------------------------------------------------------------------------------


def ask_brokers(
    task: Task[Any],
    what: str,
    request: Any,
    judge: Callable[[Any], OttlaError | None],
    build: Callable[[int], Any] | None = None,
) -> Steps[tuple[dict[Node, Any], dict[str, OttlaError]]]:
    """Ask every broker; returns the responses, and the errors of brokers that cannot be asked.

    A broker has `connect_timeout` to answer, retries included.

    Args:
        what: the purpose, as in "listing the groups".
        judge, build: as in `Task.ask`.

    Raises:
        UnsupportedVersion: no broker supports the request.
    """
    core = task.core
    timeout = min(core.options.connect_timeout, core.options.api_timeout / 2)

    def ask(node: Node) -> Outcome[Any]:
        whose, work = (
            f"{what} of {format_address(node.host, node.port)}",
            lambda each: each.ask(lambda: node, request, judge, build),
        )
        return Task(core, whose, task.now, work, timeout, background=task.background).outcome

    answers: dict[Node, Any] = {}
    nodes = yield from _brokers(task)
    while True:
        failures: dict[str, OttlaError] = {}
        asked = {node: ask(node) for node in nodes}
        for answer in asked.values():
            task.outcome.when_done(answer.cancel)
        for node, answer in asked.items():
            yield answer
            if answer.error is not None:
                failures[f"node {node.id} ({format_address(node.host, node.port)})"] = answer.error
            else:
                answers[node] = answer.result()
        # The groups of a node that is gone have moved to other nodes, which may have been asked too early.
        before = nodes
        if failures:
            nodes = yield from _brokers(task)
        if nodes == before:
            break
    refuse_unsupported([*answers.values(), *failures.values()])
    return answers, failures


def _brokers(task: Task[Any]) -> Steps[list[Node]]:
    """The brokers at this moment, by id."""
    answer = yield from task.ask_cluster(())
    nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers]
    return sorted(nodes, key=lambda node: node.id)
