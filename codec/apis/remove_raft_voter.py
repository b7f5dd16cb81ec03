"""RemoveRaftVoter (key 81): remove a controller from the voters of the metadata quorum (KIP-853).

Sent by an administrator (Admin.removeRaftVoter, `kafka-metadata-quorum.sh remove-controller`) to any broker, which
forwards it to the active controller, or directly to that controller; and by a controller that adds itself and finds an
older voter with its id. A removed controller continues as an observer; if it was the leader, it resigns once the change
is committed. Its registration stays until UnregisterController removes it.

Errors:
    VOTER_NOT_FOUND: no voter has this id and directory id.
    REQUEST_TIMED_OUT: another change is under way, the leader does not yet know what is committed, or the change was
        not committed in time. Check with DescribeQuorum, then retry.
    UNSUPPORTED_VERSION: `kraft.version` is 0, so the voters are in `controller.quorum.voters`.
    INVALID_REQUEST: no directory id.
    INCONSISTENT_CLUSTER_ID: `cluster_id` belongs to another cluster.
    NOT_LEADER_OR_FOLLOWER: the controller asked is not the leader.

Versions:
    0 (3.9): flexible.

Source: RemoveVoterHandler.java; KafkaRaftClient.java, handleRemoveVoterRequest.
"""

import uuid

from ottla.codec.wire import Int16, Int32, String, Uuid, message, wire


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = wire(String, null="0+")
    """``None``: do not compare it."""
    voter_id: int = wire(Int32)
    """Its `node.id`."""
    voter_directory_id: uuid.UUID = wire(Uuid)
    """From DescribeQuorum (v2+)."""


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", ignorable=True)
