"""WriteTxnMarkers (key 27)."""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, Int64, String, message, struct, wire


@struct
class WritableTxnMarkerTopic:
    name: str = wire(String)
    partition_indexes: tuple[int, ...] = wire(Array(Int32))


@struct
class WritableTxnMarker:
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    transaction_result: bool = wire(Boolean)
    topics: tuple[WritableTxnMarkerTopic, ...] = wire(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(Int32)
    transaction_version: int = wire(Int8, "2+", default=0, ignorable=True)


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...] = wire(Array(WritableTxnMarker))


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = wire(Int32)
    error_code: int = wire(Int16)


@struct
class WritableTxnMarkerTopicResult:
    name: str = wire(String)
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = wire(Array(WritableTxnMarkerPartitionResult))


@struct
class WritableTxnMarkerResult:
    producer_id: int = wire(Int64)
    topics: tuple[WritableTxnMarkerTopicResult, ...] = wire(Array(WritableTxnMarkerTopicResult))


@message(key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: tuple[WritableTxnMarkerResult, ...] = wire(Array(WritableTxnMarkerResult))
