"""RemoveRaftVoter (key 81)."""

import uuid

from ottla.codec.wire import Int16, Int32, String, Uuid, message, wire


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = wire(String, null="0+")
    voter_id: int = wire(Int32)
    voter_directory_id: uuid.UUID = wire(Uuid)


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", ignorable=True)
