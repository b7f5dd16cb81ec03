"""Builds the heartbeats of a member whose coordinator assigns the partitions (KIP-848).

Rules:
- All fields are sent when the member joins, and after an error or a lost response: the coordinator may not have them.
  It answers such a heartbeat with the whole assignment. Otherwise only fields that have changed are sent.
- The owned partitions are also sent after each new assignment, even if they are the same: a coordinator that waits
  until the member has given up a partition waits for this field, also if the member never had that partition.
- The names are sent together with a regular expression: without them, the coordinator does not recognise a heartbeat
  with all fields.

Source: ConsumerHeartbeatRequestManager.java, HeartbeatState; GroupMetadataManager.java, consumerGroupHeartbeat.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.options import MemberOptions

if TYPE_CHECKING:
    from uuid import UUID

Owned = Mapping[TopicPartition, "UUID"]
"""Partitions, and the ids of their topics."""


class HeartbeatFields:
    """Builds the heartbeats of one member of ``group``.

    Args:
        rack: where the member is; ``None``: unknown.
        regex: a regular expression in RE2's syntax for the names of topics, which the coordinator resolves.
    """

    def __init__(self, group: str, member_id: str, options: MemberOptions, rack: str | None, regex: str | None) -> None:
        self._group, self._member_id, self._options = group, member_id, options
        self._rack, self._regex = rack, regex
        self._all = True
        """The next heartbeat has all fields."""
        self._owned_too = False
        """The next heartbeat has the owned partitions, even if they have not changed."""
        self._sent: tuple[tuple[str, ...], dict[TopicPartition, UUID]] = ((), {})
        """The topics and the owned partitions as the last heartbeat reported them."""

    def send_all(self) -> None:
        """Send all fields in the next heartbeat: the coordinator may not have them."""
        self._all = True

    def send_owned(self) -> None:
        """Send the owned partitions in the next heartbeat, even if they have not changed."""
        self._owned_too = True

    def build(self, epoch: int, topics: tuple[str, ...], owned: Owned) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat; unless `send_all` is called, the coordinator has got its fields."""
        whole, owned_too = self._all or epoch == JOIN, self._owned_too
        known_topics, known_owned = self._sent
        self._all, self._owned_too, self._sent = False, False, (topics, dict(owned))
        options = self._options
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=options.instance_id,
            rack_id=self._rack if whole else None,
            rebalance_timeout_ms=int(options.max_poll_interval * 1000) if whole else -1,
            subscribed_topic_names=topics if whole or topics != known_topics else None,
            subscribed_topic_regex=self._regex if whole else None,
            server_assignor=options.remote_assignor if whole else None,
            topic_partitions=_by_id(owned) if whole or owned_too or owned != known_owned else None,
        )

    def goodbye(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat by which the member leaves; a static member leaves for a while, and keeps its partitions."""
        instance_id = self._options.instance_id
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=LEAVE if instance_id is None else LEAVE_STATIC,
            instance_id=instance_id,
        )


def _by_id(owned: Owned) -> tuple[TopicPartitions, ...]:
    topics: dict[UUID, list[int]] = {}
    for (_, partition), topic_id in owned.items():
        topics.setdefault(topic_id, []).append(partition)
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(each))) for topic_id, each in topics.items()
    )
