"""UpdateFeatures (key 57)."""

from ottla.codec.wire import Array, Boolean, Int8, Int16, Int32, String, message, struct, wire


@struct
class FeatureUpdateKey:
    feature: str = wire(String)
    max_version_level: int = wire(Int16)
    allow_downgrade: bool = wire(Boolean, "0", default=False)
    upgrade_type: int = wire(Int8, "1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = wire(Int32, default=60000)
    feature_updates: tuple[FeatureUpdateKey, ...] = wire(Array(FeatureUpdateKey))
    validate_only: bool = wire(Boolean, "1+", default=False)


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
