"""UpdateFeatures (key 57): raise or lower the levels of the features that a cluster uses.

Sent by administrators (Admin.updateFeatures, kafka-features.sh upgrade, downgrade) to any broker, which forwards it to
the controller; from 3.7 on also to a controller. Requires the right to alter the cluster. It is the last step of an
upgrade: once all brokers run the new release, the cluster may use features that all support, for example a new
`metadata.version`, `transaction.version` or `group.version`. ApiVersions shows the levels that a broker supports, and
the levels in use (finalized).

In a KRaft cluster all changes of a request succeed or none. From v2 on there is a single code for all; the message
names the feature that failed.

Errors:
    INVALID_UPDATE_VERSION: a broker or controller does not support the level, `upgrade_type` does not allow the
        direction, the downgrade would lose metadata, or another feature must come first; the message says which.
    FEATURE_UPDATE_FAILED: the change could not be stored (clusters with ZooKeeper).
    NOT_CONTROLLER: not sent to the controller; brokers of a cluster with ZooKeeper do not forward. See Metadata.

Versions:
    0 (2.7): `allow_downgrade` (KIP-584).
    1 (3.3): `upgrade_type`, `validate_only` (KIP-778).
    2 (4.0): no results for single features (KIP-1022).

Source: FeatureControlManager.java, updateFeatures.
"""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire

UPGRADE = 1
"""Only raise the level."""
SAFE_DOWNGRADE = 2
"""Lower the level, if no metadata is lost by it."""
UNSAFE_DOWNGRADE = 3
"""Lower the level, even if metadata is lost. For `metadata.version` no Kafka up to 4.3 does that."""


@struct
class FeatureUpdateKey:
    feature: str = wire(String)
    max_version_level: int = wire(Int16)
    """The new level; 0: turn the feature off."""
    allow_downgrade: bool = wire(Boolean, "0", default=False)
    """Allow a level that is lower than the current one, or 0."""
    upgrade_type: int = wire(Int8, "1+", default=UPGRADE)
    """`UPGRADE`, `SAFE_DOWNGRADE` or `UNSAFE_DOWNGRADE`."""


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = wire(Int32, default=60000)
    """How long the response may take."""
    feature_updates: tuple[FeatureUpdateKey, ...] = wire(Array(FeatureUpdateKey))
    validate_only: bool = wire(Boolean, "1+", default=False)
    """Check the request without changing anything."""


@struct
class UpdatableFeatureResult:
    feature: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+")
    results: tuple[UpdatableFeatureResult, ...] = wire(Array(UpdatableFeatureResult), "0-1", default=(), ignorable=True)
    """Empty if `error_code` is not 0."""
