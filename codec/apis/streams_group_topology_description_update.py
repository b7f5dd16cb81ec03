"""StreamsGroupTopologyDescriptionUpdate (key 93): describe a Kafka Streams application to the broker (KIP-1331).

Sent by a member of a streams group to the group's coordinator, if the last StreamsGroupHeartbeat asked for a
description (`topology_description_required`) and `topology.description.push.enabled` is set. The broker passes it to a
plugin (`group.streams.topology.description.plugin.class`), which stores it for StreamsGroupDescribe. It is only for
people to read; tasks are assigned by the topology in the heartbeat.

Errors:
    UNKNOWN_MEMBER_ID: the member was removed, or the group is gone: close all tasks and join again.
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: the plugin refused it, or failed. The application continues without; a
        later heartbeat may ask again.
    GROUP_ID_NOT_FOUND: not a streams group.
    NOT_COORDINATOR: ask FindCoordinator again.
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE: send it again after a pause.

Versions:
    0 (4.4): flexible.
"""

from ottla.codec.wire import Array, Int8, Int16, Int32, Nested, String, message, struct, wire


@struct
class TopologyDescriptionNode:
    name: str = wire(String)
    """For example ``KSTREAM-SOURCE-0000000000``."""
    node_type: int = wire(Int8)
    """1: source. 2: processor. 3: sink."""
    source_topics: tuple[str, ...] = wire(Array(String))
    """Topics of a source; ``()`` if they match a pattern."""
    sink_topic: str | None = wire(String, null="0+", default=None)
    """Topic of a sink; ``None`` if each record chooses its own."""
    stores: tuple[str, ...] = wire(Array(String))
    """State stores that a processor uses."""
    successors: tuple[str, ...] = wire(Array(String))
    """Names of the nodes to which it passes records."""


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str = wire(String)
    nodes: tuple[TopologyDescriptionNode, ...] = wire(Array(TopologyDescriptionNode))


@struct
class TopologyDescriptionGlobalStore:
    """A store of which each instance has all data: its source, and the processor that fills it."""

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
    """As in StreamsGroupHeartbeat."""
    topology_epoch: int = wire(Int32)
    """Epoch of the described topology, as in StreamsGroupHeartbeat."""
    topology_description: TopologyDescription = wire(Nested(TopologyDescription))


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, null="0+", default=None)
