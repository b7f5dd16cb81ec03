"""Requests that name groups.

Source: KafkaApis.scala (handleJoinGroupRequest and others, listGroups, consumerGroupDescribe, shareGroupDescribe).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ottla.acl.rights import (
    DELETE_GROUP,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
)
from ottla.codec.apis import consumer_group_describe as of_consumers
from ottla.codec.apis import share_group_describe as of_shares
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.codec.apis.create_acls import ResourceType
from ottla.codec.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.codec.apis.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.codec.apis.heartbeat import HeartbeatResponse
from ottla.codec.apis.join_group import JoinGroupResponse
from ottla.codec.apis.leave_group import LeaveGroupResponse
from ottla.codec.apis.list_groups import ListGroupsResponse
from ottla.codec.apis.sync_group import SyncGroupResponse
from ottla.errors import BrokerError, TopicAuthorizationFailed
from ottla.proxy.clients.access.screening import PASS, Asked, Screen, Verdict, sorted_out, without_denied

_WITH_MESSAGE = 6
"""The first version of DescribeGroups with a text for each error."""
_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."
"""Kafka's text."""


def _of_member(refused: Callable[[Any, int], Any]) -> Screen:
    """The screen for a request of a member, which needs Read; ``refused``: returns the response with an error."""

    def screen(asked: Asked) -> Verdict:
        code = asked.refusal(READ_GROUP, asked.message.group_id)
        return Verdict(answer=refused(asked.message, code)) if code else PASS

    return screen


join_group = _of_member(
    lambda request, code: JoinGroupResponse(
        error_code=code, protocol_name="", leader="", member_id=request.member_id, members=()
    )
)
heartbeat = _of_member(lambda request, code: HeartbeatResponse(error_code=code))
leave_group = _of_member(lambda request, code: LeaveGroupResponse(error_code=code))
sync_group = _of_member(lambda request, code: SyncGroupResponse(error_code=code, assignment=b""))


def consumer_group_heartbeat(asked: Asked) -> Verdict:
    """Check Read on the group, and Describe on the topics; a pattern needs Describe on all topics.

    Kafka matches a pattern only with topics that the member may describe. Upstream would match it with the topics of
    the proxy's user.

    Limit: a member sends its pattern only when it changes, and the proxy does not remember it. A member whose pattern
    was allowed keeps it if a topic is denied later. Fencing members whose pattern the proxy has not seen would also
    fence members without a pattern, each time that they connect again.
    """
    request: ConsumerGroupHeartbeatRequest = asked.message
    error = refusal_of_member(asked, request.group_id, request.subscribed_topic_names)
    if error is None and request.subscribed_topic_regex:
        error = asked.access.refusal_of_all(asked.client, DESCRIBE_TOPIC)
    if error is None:
        return PASS
    return Verdict(
        answer=ConsumerGroupHeartbeatResponse(
            error_code=error.code,
            error_message=error.detail,
            member_id=None,
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
    )


def refusal_of_member(asked: Asked, group: str, topics: Iterable[str] | None) -> BrokerError | None:
    """The error for the group, or for the first topic of a subscription that the client may not describe."""
    if (error := asked.refuses(READ_GROUP, group)) is not None:
        return error
    errors = [asked.refuses(DESCRIBE_TOPIC, name) for name in dict.fromkeys(topics or ())]  # each denial is logged
    return next(filter(None, errors), None)


# -- administrators


def delete_groups(asked: Asked) -> Verdict:
    return without_denied(
        asked,
        "groups_names",
        DeleteGroupsResponse,
        "results",
        lambda name: asked.refusal(DELETE_GROUP, name),
        lambda name, code: DeletableGroupResult(
            group_id=name, error_code=code, error_message=asked.denial(DELETE_GROUP, name, code=code)
        ),
    )


def list_groups(asked: Asked) -> Verdict:
    """Leave groups out of the list that the client may not describe."""
    if asked.shows(DESCRIBE_CLUSTER):
        return PASS

    def change(answer: ListGroupsResponse) -> ListGroupsResponse:
        return replace(
            answer, groups=tuple(each for each in answer.groups if asked.shows(DESCRIBE_GROUP, each.group_id))
        )

    return Verdict(change=change)


def describe_groups(asked: Asked) -> Verdict:
    verdict = without_denied(
        asked,
        "groups",
        DescribeGroupsResponse,
        "groups",
        lambda name: asked.refusal(DESCRIBE_GROUP, name),
        lambda name, code: DescribedGroup(
            error_code=code,
            error_message=asked.denial(DESCRIBE_GROUP, name, code=code) if asked.version >= _WITH_MESSAGE else None,
            group_id=name,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=(),
        ),
    )
    return _with_operations(asked, verdict)


def _with_operations(asked: Asked, verdict: Verdict) -> Verdict:
    """Have the response show the operations that the client may do, and not the operations of the proxy's user."""
    if verdict.answer is not None or not asked.message.include_authorized_operations:
        return verdict
    change = verdict.change

    def showing(answer: Any) -> Any:
        operations = partial(asked.access.operations, asked.client, ResourceType.GROUP)
        shown = replace(
            answer,
            groups=tuple(
                each if each.error_code else replace(each, authorized_operations=operations(each.group_id))
                for each in answer.groups
            ),
        )
        return shown if change is None else change(shown)

    return verdict._replace(change=showing)


def consumer_group_describe(asked: Asked) -> Verdict:
    return _described(asked, of_consumers.ConsumerGroupDescribeResponse, of_consumers.DescribedGroup)


def share_group_describe(asked: Asked) -> Verdict:
    return _described(asked, of_shares.ShareGroupDescribeResponse, of_shares.DescribedGroup)


_NOTHING: Mapping[str, Any] = MappingProxyType(
    {
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
        "authorized_operations": -(2**31),
    }
)
"""The fields of a group that is not described."""


def _described(asked: Asked, answer: type[Any], group: type[Any]) -> Verdict:
    """Describe groups; if the client may not describe a topic that a member has, it sees nothing of the group."""
    kept, denied = sorted_out(asked.message.group_ids, lambda name: asked.refusal(DESCRIBE_GROUP, name))
    results = tuple(
        group(group_id=name, error_code=code, error_message=asked.denial(DESCRIBE_GROUP, name, code=code), **_NOTHING)
        for name, code in denied
    )
    if not kept:
        return Verdict(answer=answer(groups=results))

    def change(response: Any) -> Any:
        groups = (
            each
            if all(asked.shows(DESCRIBE_TOPIC, name) for name in _topics_of(each.members))
            else replace(each, error_code=TopicAuthorizationFailed.code, error_message=_HIDDEN, **_NOTHING)
            for each in response.groups
        )
        return replace(response, groups=(*groups, *results))

    request = replace(asked.message, group_ids=kept) if denied else None
    return _with_operations(asked, Verdict(request=request, change=change))


def _topics_of(members: Sequence[Any]) -> set[str]:
    """The topics that members have or will have; as in Kafka, topics to which they only subscribe do not count."""
    names: set[str] = set()
    for member in members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            names.update(each.topic_name for each in (assignment.topic_partitions if assignment else ()))
    return names
