"""AddRaftVoter (key 80)."""

import uuid

from ottla.codec.wire import Array, Boolean, Int16, Int32, String, UInt16, Uuid, message, struct, wire


@struct
class Listener:
    name: str = wire(String)
    host: str = wire(String)
    port: int = wire(UInt16)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: str | None = wire(String, null="0+")
    timeout_ms: int = wire(Int32)
    voter_id: int = wire(Int32)
    voter_directory_id: uuid.UUID = wire(Uuid)
    listeners: tuple[Listener, ...] = wire(Array(Listener))
    ack_when_committed: bool = wire(Boolean, "1+", default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", ignorable=True)
