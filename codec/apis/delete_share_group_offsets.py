"""DeleteShareGroupOffsets (key 92)."""

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
    error_message: str | None = wire(String, null="0+", default=None)
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = wire(Array(DeleteShareGroupOffsetsResponseTopic))
