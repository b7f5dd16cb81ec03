"""Maps the topic ids in an assignment to names, by the client's metadata.

The coordinator may assign partitions of a topic before this client's metadata has it, or while it is deleted. Such
topics are looked up again until the metadata has them, or the coordinator assigns something else.

Source: AbstractMembershipManager.java, findResolvableAssignmentAndTriggerMetadataUpdate.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.sdk import calls
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE
from ottla.sdk.core import ClientCore
from ottla.sdk.steps import Steps, settled

if TYPE_CHECKING:
    from uuid import UUID


def names_of(core: ClientCore) -> "Mapping[UUID, str]":
    """The name of each topic that the metadata has, by its id."""
    return {each.topic_id: name for name, each in core.cluster.topics.items()}


def look_up(core: ClientCore, ids: "Collection[UUID]", subscribed: Sequence[str]) -> Steps[None]:
    """Request the metadata of topics with these ids: of the ``subscribed`` topics or, without any, of all topics."""
    try:
        if not subscribed:
            listed = yield from settled(calls.listed_topics(core, core.now))
            subscribed = [name for name, (topic_id, _) in listed.items() if topic_id in ids]
    except OttlaError:
        return  # the caller tries again
    lookups = [core.metadata.topic(name, core.now, fresh=True, grace=KNOWN_TOPIC_GRACE) for name in subscribed]
    try:
        for each in lookups:
            yield each
    finally:
        for each in lookups:
            each.cancel()
