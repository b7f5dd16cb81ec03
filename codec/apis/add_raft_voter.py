"""AddRaftVoter (key 80): make a controller one of the voters of the metadata quorum (KIP-853).

Sent by an administrator (Admin.addRaftVoter, `kafka-metadata-quorum.sh add-controller`) to any broker, which forwards
it to the active controller, the leader of `__cluster_metadata`, or directly to that controller. A controller may also
send it to add itself (`controller.quorum.auto.join.enable`). The new voter must already run as an observer and have
caught up, because the leader does not wait for it. Only one voter can be added or removed at a time.

Only for quorums that keep their voters in the log (feature `kraft.version` 1), not in `controller.quorum.voters`.

Errors:
    REQUEST_TIMED_OUT: the new voter lags or does not answer, another change is under way, the leader does not yet
        know what is committed, or the change was not committed in time. Check with DescribeQuorum, then retry.
    DUPLICATE_VOTER: a voter of this id exists. To replace one whose disk is lost, remove the old directory id first.
    UNSUPPORTED_VERSION: `kraft.version` is 0.
    INVALID_REQUEST: no directory id, no address for the leader's listener, or the new voter lacks `kraft.version` 1.
    INCONSISTENT_CLUSTER_ID: `cluster_id` belongs to another cluster.
    NOT_LEADER_OR_FOLLOWER: the controller asked is not the leader.

Versions:
    0 (3.9): flexible.
    1 (4.2): `ack_when_committed` (KIP-1186).

Source: AddVoterHandler.java; KafkaRaftClient.java, handleAddVoterRequest.
"""

import uuid

from ottla.codec.wire import Array, Boolean, Int16, Int32, String, UInt16, Uuid, message, struct, wire


@struct
class Listener:
    name: str = wire(String)
    """Name of the listener, for example ``CONTROLLER``."""
    host: str = wire(String)
    port: int = wire(UInt16)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: str | None = wire(String, null="0+")
    """``None``: do not compare it."""
    timeout_ms: int = wire(Int32)
    voter_id: int = wire(Int32)
    """Its `node.id`."""
    voter_directory_id: uuid.UUID = wire(Uuid)
    """From `meta.properties` of its metadata directory: with a new disk it is a new voter."""
    listeners: tuple[Listener, ...] = wire(Array(Listener))
    """Addresses for the other voters; must include the leader's own listener, by name."""
    ack_when_committed: bool = wire(Boolean, "1+", default=True)
    """``True``: answer when the new set of voters is committed. ``False``: when the leader has written it. A controller
    that adds itself must use ``False``, because the commit needs its own fetches."""


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", ignorable=True)
