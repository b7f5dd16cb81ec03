"""UnregisterController (key 94): remove the registration of a controller that is gone for good (KIP-1312).

Sent by an administrator (Admin.unregisterController, `kafka-cluster.sh unregister-controller`) to any broker, which
forwards it to the active controller, or to a controller itself. Controllers register themselves when they start, and
the registration outlives them. That of a controller that no longer runs may block an upgrade of the cluster's features,
because every registered controller must support the new level.

This does not change the quorum. Stop a voter, remove it from the voters (RemoveRaftVoter), then unregister it; one that
still runs registers again.

Errors:
    UNSUPPORTED_VERSION: the cluster's `metadata.version` does not support this.
    CONTROLLER_ID_NOT_REGISTERED: no controller of this id is registered, perhaps because an earlier attempt succeeded.
    INVALID_REQUEST: the active controller cannot unregister itself.
    NOT_CONTROLLER: sent to a controller that is not the active one.

Versions:
    0 (4.4): flexible.
"""

from ottla.codec.wire import Int16, Int32, String, message, wire


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: int = wire(Int32)
    """Its `node.id`."""


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
