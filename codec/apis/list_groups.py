"""ListGroups (key 16)."""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: tuple[str, ...] = wire(Array(String), "4+", default=())
    types_filter: tuple[str, ...] = wire(Array(String), "5+", default=())


@struct
class ListedGroup:
    group_id: str = wire(String)
    protocol_type: str = wire(String)
    group_state: str = wire(String, "4+", default="", ignorable=True)
    group_type: str = wire(String, "5+", default="", ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = wire(Int32, "1+", default=0, ignorable=True)
    error_code: int = wire(Int16)
    groups: tuple[ListedGroup, ...] = wire(Array(ListedGroup))
