"""EndTxn (key 26)."""

from ottla.codec.wire import Boolean, Int16, Int32, Int64, String, message, wire


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = wire(String)
    producer_id: int = wire(Int64)
    producer_epoch: int = wire(Int16)
    committed: bool = wire(Boolean)


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    producer_id: int = wire(Int64, "5+", default=-1, ignorable=True)
    producer_epoch: int = wire(Int16, "5+", default=-1, ignorable=True)
