"""Describes groups for the APIs that do, one for each kind of group.

If the first groups are large, the other groups get COORDINATOR_LOAD_IN_PROGRESS, and clients ask again.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from ottla.acl.rights import Right
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.create_acls import ResourceType
from ottla.errors import BrokerError, CoordinatorLoadInProgress, TopicAuthorizationFailed

MOST_BYTES = 16 * 2**20
"""The most bytes of members in a response; the client has to request the remaining groups again."""
NOT_ASKED = -(2**31)


class Described(Protocol):
    """A group in a response."""

    members: tuple[Any, ...]


G = TypeVar("G", bound=Described)


def describe_each(
    group_ids: Iterable[str],
    describe: Callable[[str], G],
    refuse: Callable[[str, BrokerError], G],
    size_of: Callable[[Any], int],
) -> tuple[G, ...]:
    """Describe each group once.

    Args:
        describe: returns the description of a group, or raises a `BrokerError`.
        refuse: returns the description of a group that has an error.
        size_of: returns the approximate bytes of a member in the response.
    """
    groups: list[G] = []
    size = 0
    for group_id in dict.fromkeys(group_ids):
        try:
            if size > MOST_BYTES:
                raise CoordinatorLoadInProgress("too many groups at once")
            described = describe(group_id)
        except BrokerError as error:
            described = refuse(group_id, error)
        groups.append(described)
        size += sum(map(size_of, described.members))
    return tuple(groups)


def operations(broker: BrokerCore, call: Call, group_id: str) -> int:
    """Return the operations that the client may do with a group, if it asks for them."""
    if not call.message.include_authorized_operations:
        return NOT_ASKED
    return broker.access.operations(call.session, ResourceType.GROUP, group_id)


# -- groups of the newer kinds


def check_topics(broker: BrokerCore, call: Call, right: Right, names: Iterable[str]) -> None:
    """Check that the client has a right on the topics of a group; otherwise it sees nothing of the group.

    Raises:
        TopicAuthorizationFailed: it has not.
    """
    if not all(broker.access.allows(call.session, right, name) for name in sorted(set(names))):
        raise TopicAuthorizationFailed(
            "The group has described topic(s) that the client is not authorized to describe."
        )


def refused(group: Callable[..., G], group_id: str, error: BrokerError) -> G:
    """Return the description of a group that has an error.

    Args:
        group: makes it.
    """
    return group(
        error_code=error.code,
        error_message=error.detail or None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
