"""ApiVersions (key 18): which APIs a broker supports, in which versions; the first request on a connection.

Sent by every client to every broker that it connects to, after the TLS handshake and before SASL. For each API the
client then uses the highest version that both support.

The client cannot know which version of this request the broker supports, so two special rules apply. The header of the
response is always v0. And a broker that does not know the version of the request answers in version 0, with
UNSUPPORTED_VERSION and, since Kafka 2.4, the versions of ApiVersions in `api_keys`. Older brokers leave these out, and
the client asks again with version 0. Brokers before 0.10 do not know this API and close the connection.

Features are versions of the cluster as a whole (`metadata.version`, `transaction.version`, `group.version`,
`share.version`, …): each node reports its features, and those enabled with UpdateFeatures.

Errors:
    UNSUPPORTED_VERSION: ask again in a version that `api_keys` allows, or in version 0.
    INVALID_REQUEST: the name or version of the client's software is empty, or contains other characters than letters,
        digits, hyphens and dots.
    REBOOTSTRAP_REQUIRED (v5+): the client reached another node or cluster than it wanted: start again with the
        bootstrap servers.

Versions:
    0 (0.10.0): new (KIP-35).
    1 (0.11.0): `throttle_time_ms`.
    2 (2.0): throttled after the answer (KIP-219).
    3 (2.4): flexible, except the header of the response; the client names its software (KIP-511), brokers from 2.7 on
        their features (KIP-584).
    4 (3.9): the same bytes; includes features whose lowest version is 0.
    5 (4.4): the client names the node and cluster that it wants to reach (KIP-1242).

Source: KafkaApis.scala, handleApiVersionsRequest; ApiVersionsRequest.java.
"""

from ottla.codec.wire import Array, Boolean, Int16, Int32, Int64, String, message, struct, wire


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = wire(String, "3+", default="", ignorable=True)
    """For example ``apache-kafka-java``: letters, digits, hyphens and dots. For metrics."""
    client_software_version: str = wire(String, "3+", default="", ignorable=True)
    cluster_id: str | None = wire(String, "5+", null="5+", default=None, ignorable=True)
    """The cluster that the client wants to reach; ``None``: unknown. Set it together with `node_id`, or neither."""
    node_id: int = wire(Int32, "5+", default=-1, ignorable=True)
    """The node that the client wants to reach; -1: unknown."""


@struct
class ApiVersion:
    api_key: int = wire(Int16)
    min_version: int = wire(Int16)
    max_version: int = wire(Int16)
    """Inclusive."""


@struct
class SupportedFeatureKey:
    name: str = wire(String)
    min_version: int = wire(Int16)
    """0: the feature can be off."""
    max_version: int = wire(Int16)


@struct
class FinalizedFeatureKey:
    name: str = wire(String)
    max_version_level: int = wire(Int16)
    """The version in use."""
    min_version_level: int = wire(Int16)
    """The same as `max_version_level` in KRaft clusters."""


@message(key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: int = wire(Int16)
    api_keys: tuple[ApiVersion, ...] = wire(Array(ApiVersion))
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = wire(
        Array(SupportedFeatureKey), "3+", default=(), tag=0, ignorable=True
    )
    """The features that the node supports."""
    finalized_features_epoch: int = wire(Int64, "3+", default=-1, tag=1, ignorable=True)
    """Grows with each change, which shows which of several responses is the newest; -1: unknown."""
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(
        Array(FinalizedFeatureKey), "3+", default=(), tag=2, ignorable=True
    )
    """The features enabled in the whole cluster; meaningless if the epoch is -1."""
    zk_migration_ready: bool = wire(Boolean, "3+", default=False, tag=3, ignorable=True)
    """Only from KRaft controllers of Kafka 3.x that take over from ZooKeeper."""
