"""DeleteTopics (key 20): remove topics and all their records.

Versions: 1: throttle time. 4: flexible. 5: error messages. 6: topics by name or id (`topics`), before that by name
only (`topic_names`).
"""

import uuid

from ottla.codec.wire import NO_UUID, Array, Int16, Int32, String, Uuid, message, struct, wire


@struct
class DeleteTopicState:
    name: str | None = wire(String, null="0+", default=None)
    """``None`` where the topic is named by id."""
    topic_id: uuid.UUID = wire(Uuid)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = wire(Array(DeleteTopicState), "6+", default=())
    topic_names: tuple[str, ...] = wire(Array(String), "0-5", default=(), ignorable=True)
    timeout_ms: int = wire(Int32)
    """How long the broker may take until the topics are gone, in milliseconds."""


@struct
class DeletableTopicResult:
    name: str | None = wire(String, null="6+")
    topic_id: uuid.UUID = wire(Uuid, "6+", default=NO_UUID, ignorable=True)
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    error_message: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    responses: tuple[DeletableTopicResult, ...] = wire(Array(DeletableTopicResult))
