"""UnregisterBroker (key 64): remove the registration of a broker that is gone for good.

Sent by an administrator (Admin.unregisterBroker, `kafka-cluster.sh unregister`) to any broker, which forwards it to the
controller, or to the controller itself. A broker registers itself when it starts, and the registration outlives it: a
broker that is switched off for ever still counts, and may block an upgrade of the cluster's features.

No data is moved: the broker leaves the in-sync sets and loses its leaderships, but stays in the replica lists of its
partitions. So reassign those first (AlterPartitionReassignments), stop the broker, then unregister it. Clusters with
ZooKeeper do not have this API.

Errors:
    BROKER_ID_NOT_REGISTERED: no broker of this id is registered, perhaps because an earlier attempt succeeded.
    NOT_CONTROLLER: sent to a controller that is not the active one.
    REQUEST_TIMED_OUT: the outcome is unknown; it is safe to send the request again.

Versions:
    0 (2.8): flexible.

Source: ReplicationControlManager.java, unregisterBroker; KIP-500.
"""

from ottla.codec.wire import Int16, Int32, String, message, wire


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = wire(Int32)


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
