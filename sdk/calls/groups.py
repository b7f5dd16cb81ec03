"""Groups: their members, their lag, and how to change and delete them.

Rules:
- ListGroups goes to every broker, because each knows only the groups that it coordinates. All other requests go to the
  groups' coordinators, one for all groups of a coordinator; if a coordinator has moved, it is looked up again.
- Each of several groups succeeds or fails separately. If a call is about a single one, its error is raised; if it is
  about several, `PartialFailure` has the others' results.
- A group that does not exist is `GroupIdNotFound`, also with brokers before 4.0, which describe it as ``Dead``.
- Classic groups and consumer groups (KIP-848) have an API of their own each; a caller need not know a group's type.
- Only a group without members may be changed: otherwise the error names its members.

Source: KafkaAdminClient.java with DescribeConsumerGroupsHandler, ListConsumerGroupOffsetsHandler,
AlterConsumerGroupOffsetsHandler, DeleteConsumerGroupsHandler, DeleteConsumerGroupOffsetsHandler;
ConsumerGroupCommand.java, collectGroupsOffsets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ottla.codec.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.codec.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.codec.apis.consumer_group_describe import Member as DescribedConsumer
from ottla.codec.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.codec.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.codec.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.codec.apis.list_offsets import LATEST
from ottla.codec.apis.offset_commit import OffsetCommitResponse
from ottla.codec.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.codec.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from ottla.codec.consumer_protocol import parse_assignment
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    DecodeError,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    NotCoordinator,
    OttlaError,
    PartialFailure,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.admin import (
    GROUP_STATES,
    GROUP_TYPES,
    CommittedOffset,
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupMember,
    ListedOffset,
    PartitionLag,
)
from ottla.sdk.arguments import known
from ottla.sdk.calls.fan_out import Reply, all_or_partial, ask_brokers, ask_coordinators
from ottla.sdk.calls.offset_lookups import reachable_offsets
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import (
    COMMITTED_BY_NAME,
    COMMITTED_OF_ALL_TOPICS,
    COMMITTED_OF_MANY_GROUPS,
    COMMITTED_STABLE,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.group.group_types import is_of_another_type, not_consumer_group
from ottla.sdk.group.offset_commits import CommittingMember
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled

Offsets = dict[TopicPartition, CommittedOffset]

# -- listing ----------------------------------------------------------------------------------------------------------


def list_groups(
    core: ClientCore, states: Iterable[str], types: Iterable[str], now: float
) -> Outcome[tuple[GroupListing, ...]]:
    """List the groups of all brokers, sorted by name; `PartialFailure` if a broker cannot be asked.

    A broker has `connect_timeout` to answer, retries included.

    Raises:
        ConfigurationError: there is no such state or type; suggests the nearest.
    """
    wanted_states = {each.casefold() for each in known("group state", GROUP_STATES, states)}
    wanted_types = {each.casefold() for each in known("group type", GROUP_TYPES, types)}

    def wanted(each: GroupListing) -> bool:
        if wanted_states and not each.state:
            raise UnsupportedVersion("ListGroups: brokers before Kafka 2.6 do not report the states of groups")
        in_state = not wanted_states or each.state.casefold() in wanted_states
        return in_state and (not wanted_types or each.type.casefold() in wanted_types)

    def judge(answer: ListGroupsResponse) -> OttlaError | None:
        return broker_error(answer.error_code, "ListGroups") if answer.error_code else None

    def work(task: Task[tuple[GroupListing, ...]]) -> Steps[tuple[GroupListing, ...]]:
        answers, failures = yield from ask_brokers(task, "listing the groups", ListGroupsRequest(), judge)
        found = {each.group: each for node, answer in answers.items() for each in _groups_of(node, answer)}
        listed = tuple(each for _, each in sorted(found.items()) if wanted(each))
        if failures:
            raise PartialFailure("listing groups", listed, failures)
        return listed

    return Task(core, "listing groups", now, work).outcome


def _groups_of(node: Node, answer: ListGroupsResponse) -> Iterator[GroupListing]:
    """The groups that ``node`` coordinates."""
    for each in answer.groups:
        yield GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type or "classic", node)


# -- describing -------------------------------------------------------------------------------------------------------


def describe_groups(core: ClientCore, groups: Sequence[str], now: float) -> Outcome[dict[str, GroupDescription]]:
    """State and members of each group."""

    def work(task: Task[dict[str, GroupDescription]]) -> Steps[dict[str, GroupDescription]]:
        return all_or_partial("describing groups", (yield from _describe(task, groups)))

    return Task(core, f"describing {_named(groups)}", now, work).outcome


def _describe(task: Task[Any], groups: Iterable[str]) -> Steps[dict[str, GroupDescription | OttlaError]]:
    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        return task.request(node, DescribeGroupsRequest(groups=tuple(names)))

    def read(reply: Reply[str]) -> dict[str, GroupDescription | OttlaError]:
        answer: DescribeGroupsResponse = reply.answer
        return {each.group_id: _description(each, reply.node) for each in answer.groups}

    described = yield from ask_coordinators(task, task.core.coordinators, groups, send, read)
    # DescribeGroups does not know consumer groups: for Kafka's own client, too, they are those that it does not find.
    others = [name for name, each in described.items() if isinstance(each, GroupIdNotFound)]
    found = (yield from _describe_consumer_groups(task, others)) if others else {}
    for name, each in found.items():
        if not isinstance(each, _NO_CONSUMER_GROUP):
            described[name] = each
        elif _is_of_another_type(described[name]) and _is_of_another_type(each):
            described[name] = not_consumer_group(name)
    return described


def _is_of_another_type(answer: object) -> bool:
    return isinstance(answer, GroupIdNotFound) and is_of_another_type(answer.code, answer.detail)


_NO_CONSUMER_GROUP = (GroupIdNotFound, UnsupportedVersion)
"""Errors of ConsumerGroupDescribe after which the error of DescribeGroups stands."""


def _describe_consumer_groups(
    task: Task[Any], groups: Iterable[str]
) -> Steps[dict[str, GroupDescription | OttlaError]]:
    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        request = ConsumerGroupDescribeRequest(group_ids=tuple(names), include_authorized_operations=False)
        return task.request(node, request)

    def read(reply: Reply[str]) -> dict[str, GroupDescription | OttlaError]:
        answer: ConsumerGroupDescribeResponse = reply.answer
        return {each.group_id: _consumer_group(each, reply.node) for each in answer.groups}

    return (yield from ask_coordinators(task, task.core.coordinators, groups, send, read))


def _consumer_group(answer: DescribedConsumerGroup, node: Node) -> GroupDescription | OttlaError:
    if answer.error_code:
        return broker_error(answer.error_code, answer.error_message or f"group {answer.group_id!r}")
    members = sorted((_consumer(each) for each in answer.members), key=lambda each: each.member_id)
    return GroupDescription(
        answer.group_id, answer.group_state, "consumer", answer.assignor_name, node, tuple(members), "consumer"
    )


def _consumer(answer: DescribedConsumer) -> GroupMember:
    places = [(each.topic_name, index) for each in answer.assignment.topic_partitions for index in each.partitions]
    host = answer.client_host.removeprefix("/")
    return GroupMember(answer.member_id, answer.instance_id, answer.client_id, host, tuple(sorted(places)))


def _description(answer: DescribedGroup, node: Node) -> GroupDescription | OttlaError:
    if answer.error_code:
        return broker_error(answer.error_code, answer.error_message or f"group {answer.group_id!r}")
    if answer.group_state == "Dead":
        return GroupIdNotFound(f"group {answer.group_id!r}")
    consumers = answer.protocol_type == "consumer"
    members = sorted((_member(each, consumers) for each in answer.members), key=lambda each: each.member_id)
    return GroupDescription(
        answer.group_id, answer.group_state, answer.protocol_type, answer.protocol_data, node, tuple(members)
    )


def _member(answer: DescribedGroupMember, consumers: bool) -> GroupMember:
    places: list[TopicPartition] = []
    if consumers and answer.member_assignment:
        try:
            _, assignment = parse_assignment(answer.member_assignment)
        except DecodeError:
            pass  # Its assignor has its own format, which only the group itself understands.
        else:
            places = [(each.topic, index) for each in assignment.assigned_partitions for index in each.partitions]
    host = answer.client_host.removeprefix("/")
    return GroupMember(answer.member_id, answer.group_instance_id, answer.client_id, host, tuple(sorted(places)))


def _named(groups: Sequence[str]) -> str:
    return f"group {groups[0]!r}" if len(groups) == 1 else f"{len(groups)} groups"


# -- committed offsets ------------------------------------------------------------------------------------------------


def committed(
    core: ClientCore,
    groups: Mapping[str, Sequence[TopicPartition] | None],
    now: float,
    *,
    stable: bool = False,
    member: CommittingMember | None = None,
) -> Outcome[dict[str, Offsets]]:
    """The offsets committed by each group, of some partitions or (``None``) of all; those without one are left out.

    Args:
        stable: wait for transactions that are about to commit offsets (KIP-447), which is necessary before reading on
            from there; brokers before 2.5 cannot do that.
        member: the member that asks; the coordinator refuses one that it does not have in this epoch (KIP-848).
    """

    def work(task: Task[dict[str, Offsets]]) -> Steps[dict[str, Offsets]]:
        return (yield from committed_by(task, groups, stable, member))

    return Task(core, f"committed offsets of {_named(list(groups))}", now, work).outcome


def committed_by(
    task: Task[Any],
    groups: Mapping[str, Sequence[TopicPartition] | None],
    stable: bool = False,
    member: CommittingMember | None = None,
) -> Steps[dict[str, Offsets]]:
    """As `committed`, within another call, whose error names the trouble."""
    return all_or_partial("committed offsets", (yield from _committed(task, groups, stable, member)))


class _OneByOne(UnsupportedVersion):
    """The coordinator accepts only one group per request."""


def _committed(
    task: Task[Any],
    groups: Mapping[str, Sequence[TopicPartition] | None],
    stable: bool = False,
    member: CommittingMember | None = None,
) -> Steps[dict[str, Offsets | OttlaError]]:
    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        asked = {name: groups[name] for name in names}
        build = partial(_fetch_request, asked, stable=stable, member=member)
        return task.request(node, OffsetFetchRequest, build, COMMITTED_BY_NAME)

    def read(reply: Reply[str]) -> dict[str, Offsets | OttlaError]:
        answer: OffsetFetchResponse = reply.answer
        if reply.version < COMMITTED_OF_MANY_GROUPS:
            return {reply.keys[0]: _offsets_of(reply.keys[0], answer)}
        return {each.group_id: _offsets_of(each.group_id, each) for each in answer.groups}

    answers: dict[str, Offsets | OttlaError] = yield from ask_coordinators(
        task, task.core.coordinators, groups, send, read
    )
    for name, answer in list(answers.items()):
        if isinstance(answer, _OneByOne):
            answers |= yield from ask_coordinators(task, task.core.coordinators, [name], send, read)
    return answers


def _fetch_request(
    groups: Mapping[str, Sequence[TopicPartition] | None],
    version: int,
    stable: bool,
    member: CommittingMember | None = None,
) -> OffsetFetchRequest:
    stable = stable and version >= COMMITTED_STABLE
    if version >= COMMITTED_OF_MANY_GROUPS:
        many = []
        for name, places in groups.items():
            topics = (
                None
                if places is None
                else tuple(
                    OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                    for topic, indexes in requests.by_topic(places).items()
                )
            )
            one = OffsetFetchRequestGroup(group_id=name, topics=topics)
            if member is not None:
                one = replace(one, member_id=member.member_id, member_epoch=member.generation)
            many.append(one)
        return OffsetFetchRequest(groups=tuple(many), require_stable=stable)
    if len(groups) > 1:
        raise _OneByOne("OffsetFetch accepts several groups at once since Kafka 3.0")
    [(name, places)] = groups.items()
    if places is None:
        if version < COMMITTED_OF_ALL_TOPICS:
            raise UnsupportedVersion("OffsetFetch of all topics needs Kafka 0.10.2 or newer: name the partitions")
        return OffsetFetchRequest(group_id=name, topics=None, require_stable=stable)
    asked = (
        OffsetFetchRequestTopic(name=topic, partition_indexes=each) for topic, each in requests.by_topic(places).items()
    )
    return OffsetFetchRequest(group_id=name, topics=tuple(asked), require_stable=stable)


def _offsets_of(group: str, answer: OffsetFetchResponse | OffsetFetchResponseGroup) -> Offsets | OttlaError:
    """The offsets of one group: the whole response before version 8, a part of it since."""
    if answer.error_code:
        return broker_error(answer.error_code, f"group {group!r}", repeatable=True)
    offsets: Offsets = {}
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                where = f"group {group!r}, {topic.name}-{each.partition_index}"
                return broker_error(each.error_code, where, repeatable=True)
            if each.committed_offset >= 0:
                offset = CommittedOffset(each.committed_offset, each.committed_leader_epoch, each.metadata or "")
                offsets[topic.name, each.partition_index] = offset
    return dict(sorted(offsets.items()))


# -- lag --------------------------------------------------------------------------------------------------------------


def group_lags(core: ClientCore, groups: Sequence[str], now: float, isolation: int = 0) -> Outcome[dict[str, GroupLag]]:
    """The lag of each group, in the partitions that it has committed or that a member reads."""

    def work(task: Task[dict[str, GroupLag]]) -> Steps[dict[str, GroupLag]]:
        described = yield from _describe(task, groups)
        known = {name: each for name, each in described.items() if isinstance(each, GroupDescription)}
        read = yield from _committed(task, dict.fromkeys(known))
        places = {place for offsets in read.values() if isinstance(offsets, dict) for place in offsets}
        places |= {place for each in known.values() for member in each.members for place in member.assignment}
        latest = dict.fromkeys(sorted(places), LATEST)
        ends = yield from settled(reachable_offsets(core, latest, task.now, isolation))
        answers: dict[str, GroupLag | OttlaError] = {}
        for name, group in described.items():
            offsets = group if isinstance(group, OttlaError) else read[name]
            if isinstance(group, OttlaError) or isinstance(offsets, OttlaError):
                answers[name] = offsets  # type: ignore[assignment] # one of them is an error
            else:
                answers[name] = _lag(group, offsets, ends)
        return all_or_partial("lag of groups", answers)

    return Task(core, f"lag of {_named(groups)}", now, work).outcome


def _lag(
    group: GroupDescription, offsets: Offsets, ends: Mapping[TopicPartition, ListedOffset | OttlaError]
) -> GroupLag:
    members = {place: member for member in group.members for place in member.assignment}
    rows = []
    for place in sorted({*members, *offsets}):
        at, end = offsets.get(place), ends[place]
        trouble = str(end) if isinstance(end, OttlaError) else ""
        offset = None if isinstance(end, OttlaError) else end.offset
        rows.append(PartitionLag(*place, at.offset if at else None, offset, members.get(place), trouble))
    return GroupLag(group, tuple(rows))


# -- changing and deleting --------------------------------------------------------------------------------------------


def committing(task: Task[Any], group: str, offsets: Mapping[TopicPartition, int]) -> Steps[None]:
    """Commit ``offsets`` for a group without members, as a step of a call.

    Raises:
        NonEmptyGroup: it has members; names them.
        PartialFailure, BrokerError: some or all partitions failed.
    """

    def read(reply: Reply[str]) -> dict[str, dict[str, OttlaError] | OttlaError]:
        return {group: _failed_places(group, reply.answer)}

    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        request = requests.commit_offsets(group, {place: (offset, -1, "") for place, offset in offsets.items()})
        return task.request(node, request, versions=COMMITTED_BY_NAME)

    if not offsets:
        return
    answers = yield from ask_coordinators(task, task.core.coordinators, [group], send, read)
    answer = answers[group]
    if isinstance(answer, _JOINED):
        yield from refuse_members(task, group)
        raise NonEmptyGroup(f"group {group!r}: a member has just joined")
    _raise_failed(f"committing offsets of group {group!r}", len(offsets), answer)


def commit_offsets(core: ClientCore, group: str, offsets: Mapping[TopicPartition, int], now: float) -> Outcome[None]:
    """See `committing`."""

    def work(task: Task[None]) -> Steps[None]:
        return (yield from committing(task, group, offsets))

    return Task(core, f"committing offsets of group {group!r}", now, work).outcome


_JOINED = (UnknownMemberId, IllegalGeneration, RebalanceInProgress)
"""The coordinator's errors for a client that is not a member, if the group has members."""


def _failed_places(
    group: str, answer: OffsetCommitResponse | OffsetDeleteResponse
) -> dict[str, OttlaError] | OttlaError:
    """The errors of the partitions; or the first error that concerns the whole group, or is retriable for it."""
    failures: dict[str, OttlaError] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                where = f"{topic.name}-{each.partition_index}"
                failures[where] = broker_error(each.error_code, f"group {group!r}, {where}")
    whole = (*_JOINED, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
    return next((error for error in failures.values() if isinstance(error, whole)), failures)


def _raise_failed(what: str, count: int, answer: dict[str, OttlaError] | OttlaError) -> None:
    if isinstance(answer, OttlaError):
        raise answer
    if answer and count == 1:
        raise next(iter(answer.values()))
    if answer:
        raise PartialFailure(what, None, answer)


def refuse_members(task: Task[Any], group: str) -> Steps[bool]:
    """Whether the group exists.

    Raises:
        NonEmptyGroup: it has members; names them.
        GroupIdNotFound: it is a share group.
    """
    description = (yield from _describe(task, [group]))[group]
    if isinstance(description, GroupIdNotFound) and not description.told:
        return False
    if isinstance(description, OttlaError):
        raise description
    if description.members or description.state not in ("Empty", "Dead"):
        who = ", ".join(map(str, description.members[:5])) or "none yet"
        more = f" and {len(description.members) - 5} more" if len(description.members) > 5 else ""
        raise NonEmptyGroup(f"group {group!r} is {description.state}; its members: {who}{more}")
    return True


def delete_groups(core: ClientCore, groups: Sequence[str], now: float) -> Outcome[None]:
    """Delete groups without members, and their offsets."""

    def work(task: Task[None]) -> Steps[None]:
        unsure: set[str] = set()

        def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
            return task.request(node, DeleteGroupsRequest(groups_names=tuple(names)))

        def read(reply: Reply[str]) -> dict[str, OttlaError | None]:
            answer: DeleteGroupsResponse = reply.answer
            results: dict[str, OttlaError | None] = {}
            for each in answer.results:
                done = not each.error_code or (each.error_code == GroupIdNotFound.code and each.group_id in unsure)
                error = None if done else broker_error(each.error_code, each.error_message or _group(each.group_id))
                results[each.group_id] = error
            return results

        answers: dict[str, OttlaError | None] = yield from ask_coordinators(
            task, task.core.coordinators, groups, send, read, unsure=unsure
        )
        for name, error in answers.items():
            if isinstance(error, NonEmptyGroup):
                try:
                    yield from refuse_members(task, name)
                except NonEmptyGroup as named:
                    answers[name] = named
                except GroupIdNotFound:  # a share group has other members
                    pass
        all_or_partial("deleting groups", answers)

    return Task(core, f"deleting {_named(groups)}", now, work).outcome


def delete_offsets(core: ClientCore, group: str, places: Sequence[TopicPartition], now: float) -> Outcome[None]:
    """Delete the group's committed offsets in partitions to which no member subscribes."""
    topics = tuple(
        OffsetDeleteRequestTopic(
            name=topic, partitions=tuple(OffsetDeleteRequestPartition(partition_index=each) for each in indexes)
        )
        for topic, indexes in requests.by_topic(places).items()
    )

    def work(task: Task[None]) -> Steps[None]:
        def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
            return task.request(node, OffsetDeleteRequest(group_id=group, topics=topics))

        def read(reply: Reply[str]) -> dict[str, dict[str, OttlaError] | OttlaError]:
            answer: OffsetDeleteResponse = reply.answer
            if answer.error_code:
                return {group: broker_error(answer.error_code, _group(group))}
            return {group: _failed_places(group, answer)}

        answers = yield from ask_coordinators(task, task.core.coordinators, [group], send, read)
        _raise_failed(f"deleting offsets of group {group!r}", len(places), answers[group])

    return Task(core, f"deleting offsets of group {group!r}", now, work).outcome


def _group(name: str) -> str:
    return f"group {name!r}"
