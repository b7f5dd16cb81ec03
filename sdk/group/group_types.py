"""Errors of members and calls whose group is of another type.

Kafka answers GROUP_ID_NOT_FOUND then, as if the name were wrong. Only the message shows the reason.

Source: GroupMetadataManager.java, "Group %s is not a share group." and the same for ``consumer`` and ``classic``.
"""

import re

from ottla.errors import GroupIdNotFound, InconsistentGroupProtocol

_NOT = re.compile(r"Group .* is not a (?:share|consumer|classic) group\.?", re.DOTALL)


def is_of_another_type(code: int, message: str | None) -> bool:
    """Whether a coordinator refuses a request because the group is of another type."""
    return code == GroupIdNotFound.code and _NOT.fullmatch(message or "") is not None


def share_consumer_refused(group: str) -> GroupIdNotFound:
    """The error of a share consumer whose group is not a share group."""
    advice = "use client.consumer, or another group name"
    return GroupIdNotFound(
        told=f"{group!r} is a consumer group, and this is a share consumer (client.share_consumer): {advice}"
    )


def consumer_refused(group: str) -> InconsistentGroupProtocol:
    """The error of a consumer whose group is neither a consumer group nor a classic one."""
    advice = "use client.share_consumer, or another group name"
    return InconsistentGroupProtocol(
        told=f"{group!r} is a share group, and this is a consumer (client.consumer): {advice}"
    )


def new_protocol_refused(group: str) -> GroupIdNotFound:
    """The error of a member of the protocol of KIP-848 whose group is not a consumer group and does not become one."""
    types = "a share group, or a classic group that stays classic"
    advice = "use client.share_consumer, or group_protocol='classic', or another group name"
    return GroupIdNotFound(told=f"{group!r} is not a consumer group, but {types}: {advice}")


def not_consumer_group(group: str) -> GroupIdNotFound:
    """The error of a call for consumer groups and classic ones."""
    advice = "use describe_share_group, share_offsets, reset_share_offsets, … (ottla share)"
    return GroupIdNotFound(told=f"{group!r} is a share group: {advice}")


def not_share_group(group: str) -> GroupIdNotFound:
    """The error of a call for share groups."""
    advice = "use describe_group, group_lag, reset_offsets, … (ottla groups)"
    return GroupIdNotFound(told=f"{group!r} is a consumer group: {advice}")
