"""DeleteShareGroupOffsets (key 92): delete the state of a share group for whole topics (KIP-932).

Sent by an administrator (Admin.deleteShareGroupOffsets, `kafka-share-groups.sh --delete-offsets`) to the group's
coordinator. The group must have no members. If it subscribes to such a topic again, it starts where
`share.auto.offset.reset` says.

Errors:
    NON_EMPTY_GROUP: the group has members: stop them first.
    GROUP_ID_NOT_FOUND: no such group, or one of another kind.
    UNKNOWN_TOPIC_OR_PARTITION: for a topic: it does not exist.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: ask again after a pause.

Versions:
    0 (4.1): flexible.
"""

import uuid

from ottla.codec.wire import Array, Int16, Int32, String, Uuid, message, struct, wire


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = wire(String)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = wire(String)
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...] = wire(Array(DeleteShareGroupOffsetsRequestTopic))


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = wire(String)
    topic_id: uuid.UUID = wire(Uuid)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    """Error of the group as a whole; then `responses` is empty."""
    error_message: str | None = wire(String, null="0+", default=None)
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = wire(Array(DeleteShareGroupOffsetsResponseTopic))
