"""AddOffsetsToTxn (key 25)."""

from ottla.codec.wire import Int16, Int32, Int64, String, message, wire


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    group_id: str = wire(String)


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
