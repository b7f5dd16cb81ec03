"""UnregisterController (key 94): forget a controller that is gone for good (KIP-1312).

Sent by an administrator (Admin.unregisterController, `kafka-cluster.sh unregister-controller`) to any broker, which
forwards it to the active controller, or to a controller itself. Controllers register by themselves when they start, and
the registration outlives them: that of a controller that no longer runs may block an upgrade of the cluster's features,
since each registered one must support what is chosen.

This does not touch the quorum. Stop a voter, take it out (RemoveRaftVoter), then unregister it; one that still runs
registers again.

Errors:
    UNSUPPORTED_VERSION: the cluster's `metadata.version` does not know unregistered controllers.
    CONTROLLER_ID_NOT_REGISTERED: no controller of this id is registered, perhaps because an earlier attempt succeeded.
    INVALID_REQUEST: the active controller does not unregister itself.
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
