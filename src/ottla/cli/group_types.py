"""`ottla groups` is for consumer groups and classic ones, `ottla share` for share groups: errors name the right one."""

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.exits import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.sdk.client import Client


async def refuse_share_groups(client: "Client", groups: Sequence[str], instead: str) -> None:
    """Check that none of the groups is a share group; it need not exist.

    Args:
        instead: what `ottla share` does with a share group.

    Raises:
        BadInput: one is a share group; names the command for it.
    """
    for name in await _found(client.describe_share_groups(groups)):
        raise BadInput(f"{name} is a share group: {instead.format(name)}")


async def refuse_consumer_groups(client: "Client", groups: Sequence[str], instead: str) -> None:
    """As `refuse_share_groups`, for consumer groups and classic ones."""
    for name, group in (await _found(client.describe_groups(groups))).items():
        kind = "consumer group" if group.type == "consumer" else "classic group"
        raise BadInput(f"{name} is a {kind}: {instead.format(name)}")


async def _found(asked: "Awaitable[Mapping[str, Any]]") -> "Mapping[str, Any]":
    """The groups of a type.

    Raises:
        OttlaError: a coordinator does not say of which type a group is.
    """
    from ottla.errors import GroupIdNotFound, PartialFailure, UnsupportedVersion

    others = (GroupIdNotFound, UnsupportedVersion)
    try:
        return await asked
    except PartialFailure as failure:
        if not all(isinstance(each, others) for each in failure.failures.values()):
            raise
        return failure.found if isinstance(failure.found, dict) else {}
    except others:
        return {}
