"""StreamsGroupTopologyDescriptionUpdate (key 93)."""

from ottla.codec.wire import Array, Int8, Int16, Int32, Nested, String, message, struct, wire


@struct
class TopologyDescriptionNode:
    name: str = wire(String)
    node_type: int = wire(Int8)
    source_topics: tuple[str, ...] = wire(Array(String))
    sink_topic: str | None = wire(String, null="0+", default=None)
    stores: tuple[str, ...] = wire(Array(String))
    successors: tuple[str, ...] = wire(Array(String))


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str = wire(String)
    nodes: tuple[TopologyDescriptionNode, ...] = wire(Array(TopologyDescriptionNode))


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = wire(Nested(TopologyDescriptionNode))
    processor: TopologyDescriptionNode = wire(Nested(TopologyDescriptionNode))


@struct
class TopologyDescription:
    subtopologies: tuple[TopologyDescriptionSubtopology, ...] = wire(Array(TopologyDescriptionSubtopology))
    global_stores: tuple[TopologyDescriptionGlobalStore, ...] = wire(Array(TopologyDescriptionGlobalStore))


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: str = wire(String)
    member_id: str = wire(String)
    topology_epoch: int = wire(Int32)
    topology_description: TopologyDescription = wire(Nested(TopologyDescription))


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
