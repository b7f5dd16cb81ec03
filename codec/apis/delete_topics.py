"""DeleteTopics (key 20): remove topics with all their records.

Sent by tools and administrative clients (Admin.deleteTopics, kafka-topics.sh) to any broker, which forwards it to the
controller; in ZooKeeper clusters to the broker that is the controller. Each topic succeeds or fails independently. The
response comes when the controller has removed the topic; brokers learn of it a moment later, and delete the files after
`file.delete.delay.ms` (one minute).

Deleting by id (v6+) prevents deleting a topic that was recreated in the meantime.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (v6+): no such topic, or the principal may not know of it.
    TOPIC_DELETION_DISABLED (v3+): `delete.topic.enable` is false. Before version 3: INVALID_REQUEST.
    INVALID_REQUEST: the topic is repeated, or has both name and id, or neither.
    NOT_CONTROLLER: in ZooKeeper clusters: ask Metadata for the controller.
    REQUEST_TIMED_OUT: the topic may still be deleted.
    THROTTLING_QUOTA_EXCEEDED (v5+): repeat after `throttle_time_ms`. Older versions are delayed instead.
    TOPIC_AUTHORIZATION_FAILED: the principal may not delete it.

Versions:
    0 (0.10.1): new (KIP-4).
    1 (0.11.0): `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.1): the same bytes; TOPIC_DELETION_DISABLED may be returned (KIP-322).
    4 (2.4): flexible.
    5 (2.7): `error_message`; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599).
    6 (2.8): topics by name or id, in `topics` (KIP-516).

Source: ControllerApis.scala, deleteTopics.
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, String, Uuid, message, struct, wire


@struct
class DeleteTopicState:
    """Either the name or the id is given."""

    name: str | None = wire(String, null="0+", default=None)
    """``None``: the topic is named by its id."""
    topic_id: uuid.UUID = wire(Uuid)
    """`NO_UUID`: the topic is named by its name."""


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = wire(Array(DeleteTopicState), "6+", default=())
    topic_names: tuple[str, ...] = wire(Array(String), "0-5", default=(), ignorable=True)
    timeout_ms: int = wire(Int32)
    """How long to wait until the topics are gone."""


@struct
class DeletableTopicResult:
    name: str | None = wire(String, null="6+")
    """``None`` if no topic has this id, or the principal may not know its name."""
    topic_id: uuid.UUID = wire(Uuid, "6+", default=NO_UUID, ignorable=True)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = wire(Array(DeletableTopicResult))
