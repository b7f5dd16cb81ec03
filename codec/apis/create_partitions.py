"""CreatePartitions (key 37)."""

from ottla.codec.wire import Array, Boolean, Int16, Int32, String, message, struct, wire


@struct
class CreatePartitionsAssignment:
    broker_ids: tuple[int, ...] = wire(Array(Int32))


@struct
class CreatePartitionsTopic:
    name: str = wire(String)
    count: int = wire(Int32)
    assignments: tuple[CreatePartitionsAssignment, ...] | None = wire(Array(CreatePartitionsAssignment), null="0+")


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...] = wire(Array(CreatePartitionsTopic))
    timeout_ms: int = wire(Int32)
    validate_only: bool = wire(Boolean)


@struct
class CreatePartitionsTopicResult:
    name: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = wire(Array(CreatePartitionsTopicResult))
