"""Share groups (KIP-932): their members, the progress in their partitions, and how to reset and delete that.

Rules:
- All requests go to the groups' coordinators, one for all groups of a coordinator.
- A share group has no committed offsets but a start offset for each partition: all records before it are processed, and
  some of the later ones may be, too.
- Only a group without members may be changed: otherwise the error names its members.

Source: KafkaAdminClient.java with DescribeShareGroupsHandler, ListShareGroupOffsetsHandler,
AlterShareGroupOffsetsHandler, DeleteShareGroupOffsetsHandler; ShareGroupCommand.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.codec.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.codec.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.codec.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from ottla.codec.apis.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.errors import GroupIdNotFound, NonEmptyGroup, OttlaError, PartialFailure, broker_error
from ottla.sdk.admin import CommittedOffset, GroupMember, ResetPlan, ShareGroupDescription, ShareOffset
from ottla.sdk.calls.fan_out import Reply, all_or_partial, ask_coordinators, partitions_in
from ottla.sdk.calls.resets import Exactly, Scope, Target, planned
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.group.group_types import is_of_another_type, not_share_group
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps

Offsets = dict[TopicPartition, ShareOffset]


# -- describing -------------------------------------------------------------------------------------------------------


def describe_share_groups(
    core: ClientCore, groups: Sequence[str], now: float
) -> Outcome[dict[str, ShareGroupDescription]]:
    """State and members of each share group."""

    def work(task: Task[dict[str, ShareGroupDescription]]) -> Steps[dict[str, ShareGroupDescription]]:
        return all_or_partial("describing share groups", (yield from _describe(task, groups)))

    return Task(core, f"describing {len(groups)} share group(s)", now, work).outcome


def _describe(task: Task[Any], groups: Iterable[str]) -> Steps[dict[str, ShareGroupDescription | OttlaError]]:
    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        request = ShareGroupDescribeRequest(group_ids=tuple(names), include_authorized_operations=False)
        return task.request(node, request)

    def read(reply: Reply[str]) -> dict[str, ShareGroupDescription | OttlaError]:
        answer: ShareGroupDescribeResponse = reply.answer
        return {each.group_id: _description(each, reply.node) for each in answer.groups}

    return (yield from ask_coordinators(task, task.core.coordinators, groups, send, read))


def _description(answer: DescribedGroup, node: Node) -> ShareGroupDescription | OttlaError:
    if is_of_another_type(answer.error_code, answer.error_message):
        return not_share_group(answer.group_id)
    if answer.error_code:
        return broker_error(answer.error_code, answer.error_message or f"share group {answer.group_id!r}")
    members = sorted((_member(each) for each in answer.members), key=lambda each: each.member_id)
    return ShareGroupDescription(
        answer.group_id, answer.group_state, answer.assignor_name, answer.group_epoch, node, tuple(members)
    )


def _member(answer: Member) -> GroupMember:
    places = [(each.topic_name, index) for each in answer.assignment.topic_partitions for index in each.partitions]
    return GroupMember(
        answer.member_id, None, answer.client_id, answer.client_host.removeprefix("/"), tuple(sorted(places))
    )


# -- offsets ----------------------------------------------------------------------------------------------------------


def share_offsets(
    core: ClientCore, groups: Mapping[str, Sequence[TopicPartition] | None], now: float
) -> Outcome[dict[str, Offsets]]:
    """The progress of each share group, in some partitions or (``None``) in all that it has read."""

    def work(task: Task[dict[str, Offsets]]) -> Steps[dict[str, Offsets]]:
        return all_or_partial("offsets of share groups", (yield from _offsets(task, groups)))

    return Task(core, f"offsets of {len(groups)} share group(s)", now, work).outcome


def _offsets(
    task: Task[Any], groups: Mapping[str, Sequence[TopicPartition] | None]
) -> Steps[dict[str, Offsets | OttlaError]]:
    def asked(name: str) -> DescribeShareGroupOffsetsRequestGroup:
        places = groups[name]
        topics = (
            None
            if places is None
            else tuple(
                DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=each)
                for topic, each in requests.by_topic(places).items()
            )
        )
        return DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=topics)

    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        return task.request(node, DescribeShareGroupOffsetsRequest(groups=tuple(map(asked, names))))

    def read(reply: Reply[str]) -> dict[str, Offsets | OttlaError]:
        answer: DescribeShareGroupOffsetsResponse = reply.answer
        return {each.group_id: _offsets_of(each) for each in answer.groups}

    return (yield from ask_coordinators(task, task.core.coordinators, groups, send, read))


def _offsets_of(answer: DescribeShareGroupOffsetsResponseGroup) -> Offsets | OttlaError:
    if answer.error_code:
        return broker_error(answer.error_code, answer.error_message or f"share group {answer.group_id!r}")
    found: Offsets = {}
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                where = f"share group {answer.group_id!r}, {topic.topic_name}-{each.partition_index}"
                return broker_error(each.error_code, where, repeatable=True)
            start, lag = each.start_offset, each.lag
            found[topic.topic_name, each.partition_index] = ShareOffset(
                start if start >= 0 else None, lag if lag >= 0 else None
            )
    return dict(sorted(found.items()))


# -- changing and deleting --------------------------------------------------------------------------------------------


def reset_share_offsets(
    core: ClientCore, group: str, target: Target, scope: Scope, execute: bool, now: float
) -> Outcome[ResetPlan]:
    """Make a plan, and carry it out if ``execute``."""

    def work(task: Task[ResetPlan]) -> Steps[ResetPlan]:
        exists = yield from _refuse_members(task, group)
        found: Offsets = {}
        if exists:
            found = all_or_partial("offsets", (yield from _offsets(task, {group: None})))[group]
        old = {place: CommittedOffset(each.start) for place, each in found.items() if each.start is not None}
        wanted = target.offsets if isinstance(target, Exactly) else scope
        places = list(found) if wanted is None else (yield from partitions_in(task, wanted))
        plan = ResetPlan(group, tuple((yield from planned(task, old, target, places))), new_group=not exists)
        if execute:
            yield from _alter(task, group, {(each.topic, each.partition): each.new for each in plan.offsets})
            plan = replace(plan, executed=True)
        return plan

    return Task(core, f"resetting offsets of share group {group!r}", now, work).outcome


def _refuse_members(task: Task[Any], group: str) -> Steps[bool]:
    """Whether the group exists.

    Raises:
        NonEmptyGroup: it has members; names them.
        GroupIdNotFound: it is a consumer group or a classic one.
    """
    description = (yield from _describe(task, [group]))[group]
    if isinstance(description, GroupIdNotFound) and not description.told:
        return False
    if isinstance(description, OttlaError):
        raise description
    if description.members:
        who = ", ".join(map(str, description.members[:5]))
        more = f" and {len(description.members) - 5} more" if len(description.members) > 5 else ""
        raise NonEmptyGroup(f"share group {group!r} is {description.state}; its members: {who}{more}")
    return True


def _alter(task: Task[Any], group: str, offsets: Mapping[TopicPartition, int]) -> Steps[None]:
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        )
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=tuple(each))
            for topic, each in topics.items()
        ),
    )

    def read(reply: Reply[str]) -> dict[str, dict[str, OttlaError] | OttlaError]:
        answer: AlterShareGroupOffsetsResponse = reply.answer
        if answer.error_code:
            return {group: broker_error(answer.error_code, answer.error_message or f"share group {group!r}")}
        return {
            group: {
                f"{topic.topic_name}-{each.partition_index}": broker_error(each.error_code, each.error_message or "")
                for topic in answer.responses
                for each in topic.partitions
                if each.error_code
            }
        }

    if offsets:
        yield from _change(task, f"resetting offsets of share group {group!r}", group, request, read)


def delete_share_offsets(core: ClientCore, group: str, topics: Sequence[str], now: float) -> Outcome[None]:
    """Delete the progress of a share group without members in whole topics."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics)
    )

    def read(reply: Reply[str]) -> dict[str, dict[str, OttlaError] | OttlaError]:
        answer: DeleteShareGroupOffsetsResponse = reply.answer
        if answer.error_code:
            return {group: broker_error(answer.error_code, answer.error_message or f"share group {group!r}")}
        return {
            group: {
                each.topic_name: broker_error(each.error_code, each.error_message or each.topic_name)
                for each in answer.responses
                if each.error_code
            }
        }

    def work(task: Task[None]) -> Steps[None]:
        yield from _change(task, f"deleting offsets of share group {group!r}", group, request, read)

    return Task(core, f"deleting offsets of share group {group!r}", now, work).outcome


def _change(task: Task[Any], what: str, group: str, request: Any, read: Any) -> Steps[None]:
    """Send ``request`` to the group's coordinator; raise the errors of its parts."""

    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        return task.request(node, request)

    failures = (yield from ask_coordinators(task, task.core.coordinators, [group], send, read))[group]
    if isinstance(failures, NonEmptyGroup):
        yield from _refuse_members(task, group)
    if isinstance(failures, OttlaError):
        raise failures
    if len(failures) == 1:
        raise next(iter(failures.values()))
    if failures:
        raise PartialFailure(what, None, failures)
