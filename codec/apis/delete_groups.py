"""DeleteGroups (key 42)."""

from ottla.codec.wire import Array, Int16, Int32, String, message, struct, wire


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = wire(Array(String))


@struct
class DeletableGroupResult:
    group_id: str = wire(String)
    error_code: int = wire(Int16)
    error_message: str | None = wire(String, "3+", null="3+", default=None, ignorable=True)


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = wire(Int32, default=0)
    results: tuple[DeletableGroupResult, ...] = wire(Array(DeletableGroupResult))
