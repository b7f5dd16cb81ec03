"""ApiVersions (key 18): what the broker can do; the first request on a connection.

The response header is always v0, so that a client can read an answer of any version. A broker that does not know the
version of the request answers in v0 with UNSUPPORTED_VERSION (35), and the client asks again with a version from
that.

Versions: 1: throttle time. 3: flexible; the client names its software (KIP-511), the broker its features (KIP-584).
4: feature ranges may begin at 0.
"""

from ottla.codec.wire import Array, Boolean, Int16, Int32, Int64, String, message, struct, wire


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = wire(String, "3+", default="", ignorable=True)
    client_software_version: str = wire(String, "3+", default="", ignorable=True)
    cluster_id: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    node_id: int = wire(Int32, "5+", default=-1, ignorable=True)


@struct
class ApiVersion:
    api_key: int = wire(Int16)
    """The API."""
    min_version: int = wire(Int16)
    max_version: int = wire(Int16)
    """Inclusive."""


@struct
class SupportedFeatureKey:
    name: str = wire(String)
    min_version: int = wire(Int16)
    max_version: int = wire(Int16)


@struct
class FinalizedFeatureKey:
    name: str = wire(String)
    max_version_level: int = wire(Int16)
    min_version_level: int = wire(Int16)


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: int = wire(Int16)
    """0, or a code of `ottla.errors`."""
    api_keys: tuple[ApiVersion, ...] = wire(Array(ApiVersion))
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    """How long the broker held the answer back because of a quota, in milliseconds."""
    supported_features: tuple[SupportedFeatureKey, ...] = wire(
        Array(SupportedFeatureKey), "3+", default=(), tag=0, ignorable=True
    )
    finalized_features_epoch: int = wire(Int64, "3+", default=-1, tag=1, ignorable=True)
    """-1 where it is unknown."""
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(
        Array(FinalizedFeatureKey), "3+", default=(), tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(Boolean, "3+", default=False, tag=3, ignorable=True)
