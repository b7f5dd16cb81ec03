"""Messages as plain values, and plain values as text, for `ottla.codec.dump`.

Plain values are dicts, lists, strings, numbers, bytes and None. Numbers with a meaning are `Named`: in JSON they are
plain numbers, in text their names stand beside them.

Rules:
- A message's plain value has the fields of its version, in the order of the declaration; tagged fields only if they
  were sent; and, as ``unknown_tags``, tagged fields that its class does not know.
- Text never contains a character that a terminal would interpret.
"""

import functools
import io
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from json.encoder import encode_basestring
from typing import Any

from ottla.codec import trees, wire
from ottla.codec.apis import NAMES
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.codec.compression import Compression
from ottla.codec.consumer_protocol import parse_assignment, parse_sticky, parse_subscription
from ottla.codec.stored import consumer_groups, share_group_state, streams_groups, transaction_state
from ottla.codec.stored.checkpoints import short_id
from ottla.codec.wire import Buffer
from ottla.errors import BY_CODE, DecodeError
from ottla.late_dataclass import dataclass

WIDTH = 100
"""The longest value, in characters, that is written in one line."""
_CUT = 200
"""How many characters or bytes of a long value are shown."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _names(numbers: type[IntEnum]) -> dict[int, str]:
    return {each.value: each.name.lower() for each in numbers}


_ERRORS = {code: cls.name for code, cls in BY_CODE.items()}
_CONFIG_RESOURCES = {2: "topic", 4: "broker", 8: "broker_logger", 16: "client_metrics", 32: "group"}
_CONFIG_SOURCES = {
    1: "topic", 2: "dynamic_broker", 3: "dynamic_default_broker", 4: "static_broker", 5: "default",
    6: "dynamic_broker_logger", 7: "client_metrics", 8: "group",
}  # fmt: skip
_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

_NUMBERS: Mapping[str, Mapping[int, str]] = {
    "error_code": _ERRORS,
    "acknowledge_error_code": _ERRORS,
    "api_key": NAMES,
    "acks": {-1: "all", 0: "none", 1: "leader"},
    "isolation_level": {0: "read_uncommitted", 1: "read_committed"},
    "key_type": {0: "group", 1: "transaction", 2: "share"},
    "operation": _names(AclOperation),
    "permission_type": _names(AclPermissionType),
    "pattern_type": _names(PatternType),
    "pattern_type_filter": _names(PatternType),
    "resource_pattern_type": _names(PatternType),
    "resource_type_filter": _names(ResourceType),
    "resource_type": _CONFIG_RESOURCES,
    "config_source": _CONFIG_SOURCES,
    "source": _CONFIG_SOURCES,
    "config_type": {
        1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password"
    },
    "config_operation": {0: "set", 1: "delete", 2: "append", 3: "subtract"},
    "election_type": {0: "preferred", 1: "unclean"},
    "mechanism": _SCRAM,
    "compression_type": _names(Compression),
    "upgrade_type": {1: "upgrade", 2: "safe_downgrade", 3: "unsafe_downgrade"},
    "endpoint_type": {1: "brokers", 2: "controllers"},
    "delivery_state": share_group_state.DELIVERY_STATES,
    "acknowledge_types": {0: "gap", 1: "accept", 2: "release", 3: "reject", 4: "renew"},
    "transaction_status": transaction_state.TRANSACTION_STATES,
    "ListOffsetsPartition.timestamp": {
        -1: "latest", -2: "earliest", -3: "max_timestamp", -4: "earliest_local", -5: "latest_tiered",
        -6: "earliest_pending_upload",
    },
    "ConsumerGroupCurrentMemberAssignmentValue.state": consumer_groups.MEMBER_STATES,
    "ShareGroupCurrentMemberAssignmentValue.state": consumer_groups.MEMBER_STATES,
    "StreamsGroupCurrentMemberAssignmentValue.state": streams_groups.MEMBER_STATES,
    "AclCreation.resource_type": _names(ResourceType),
    "DescribeAclsResource.resource_type": _names(ResourceType),
    "DeleteAclsMatchingAcl.resource_type": _names(ResourceType),
}  # fmt: skip
"""``field`` or ``Class.field`` -> number -> meaning. 0 is not listed if it has no meaning of its own."""

_EMBEDDED: Mapping[str, Callable[[Buffer], tuple[int, Any]]] = {
    "JoinGroupRequestProtocol.metadata": parse_subscription,
    "JoinGroupResponseMember.metadata": parse_subscription,
    "DescribedGroupMember.member_metadata": parse_subscription,
    "MemberMetadata.subscription": parse_subscription,
    "ClassicProtocol.metadata": parse_subscription,
    "SyncGroupRequestAssignment.assignment": parse_assignment,
    "SyncGroupResponse.assignment": parse_assignment,
    "DescribedGroupMember.member_assignment": parse_assignment,
    "MemberMetadata.assignment": parse_assignment,
    "ConsumerProtocolSubscription.user_data": parse_sticky,
}
"""Fields whose bytes are a message if the group's members are consumers; other members define them as they like."""


class Named(int):
    """A number with a name."""

    def __new__(cls, value: int, name: str) -> "Named":
        return super().__new__(cls, value)

    def __init__(self, value: int, name: str) -> None:
        self.name = name


def is_time(milliseconds: int) -> bool:
    """Whether the number is a time from 1973 to 5138; any other number is hardly meant as a time."""
    return 10**11 <= milliseconds < 10**14


def time_text(milliseconds: int) -> str:
    """Return a time in UTC as text; a number that is hardly meant as a time is returned as it is."""
    if not is_time(milliseconds):
        return str(int(milliseconds))
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second_text(seconds)}.{rest:03}Z"


@functools.lru_cache
def _second_text(seconds: int) -> str:
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


# ---------------------------------------------------------------------------------------------------------------------
# Messages as plain values.


@dataclass(frozen=True, slots=True)
class PlainValues:
    """Turns messages of one version into plain values.

    Attributes:
        version: version of the message.
        deep: parse the data that members of a group exchange.
        record_set: turns a record set into its plain value; called with its path and its bytes.
    """

    version: int
    deep: bool = False
    record_set: Callable[[str, Buffer], Any] = lambda path, data: bytes(data)

    def message(self, message: Any) -> dict[str, Any]:
        """Return the plain value of ``message``."""
        return self._struct(message, type(message).__name__)

    def begun(self, cls: type[Any], data: Buffer, offset: int, end: int) -> dict[str, Any]:
        """Return the readable part of a ``cls`` message that begins at ``data[offset]`` and is broken at ``end``."""
        made: dict[str, Any] = {}
        stream = io.BytesIO(bytes(data[:end]))
        stream.seek(offset)
        hashable: Any = cls
        with suppress(DecodeError):  # always raised, at the end of the intact bytes
            self._begin(trees.message_tree(hashable, self.version), stream, made)
        return made

    def record_sets_at(self, cls: type[Any], data: Buffer, offset: int) -> list[int]:
        """Return the positions of the record sets in an intact ``cls`` message that begins at ``data[offset]``.

        In the order in which `message` finds them.
        """
        stream, starts = io.BytesIO(bytes(data)), list[int]()
        stream.seek(offset)
        hashable: Any = cls
        reads = PlainValues(self.version, record_set=lambda path, records: starts.append(stream.tell() - len(records)))
        reads._begin(trees.message_tree(hashable, self.version), stream, {})
        return starts

    def _struct(self, struct: Any, path: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field in struct.__wire__:
            value = getattr(struct, field.name)
            if self.version in field.versions and (field.tag is None or value != field.absent_value):
                made[field.name] = self._value(value, type(struct), field.name, f"{path}.{field.name}")
        if struct.unknown_tags:
            made[wire.UNKNOWN_TAGS] = {str(tag): data for tag, data in struct.unknown_tags.items()}
        return made

    def _value(self, value: Any, owner: type[Any], name: str, path: str) -> Any:
        """Return the plain value of a field, or of one of its elements."""
        match value:
            case bool():
                return value
            case int():
                return self._number(value, owner, name)
            case uuid.UUID():
                return short_id(value)
            case memoryview():
                return self.record_set(path, value)
            case bytes():
                return self._embedded(value, f"{owner.__name__}.{name}")
            case tuple() | list():
                return [self._value(each, owner, name, f"{path}[{index}]") for index, each in enumerate(value)]
        return self._struct(value, path) if hasattr(value, "__wire__") else value

    def _number(self, value: int, owner: type[Any], name: str) -> int:
        names = _NUMBERS.get(f"{owner.__name__}.{name}") or _NUMBERS.get(name)
        if names is not None:
            return Named(value, names[value]) if value in names else value
        if name.endswith("authorized_operations") and value >= 0:
            return Named(value, ", ".join(each.name.lower() for each in AclOperation if value >> each.value & 1))
        if "timestamp" in name and is_time(value):
            return Named(value, time_text(value))
        return value

    def _embedded(self, data: bytes, where: str) -> Any:
        if not self.deep or where not in _EMBEDDED:
            return data
        try:
            version, message = _EMBEDDED[where](data)
        except DecodeError:
            return data  # the members are not consumers, or use a custom assignor
        newest = wire.api(type(message)).versions.high
        return {"version": version, **PlainValues(min(version, newest), self.deep).message(message)}

    def _begin(self, node: Any, stream: io.BytesIO, made: dict[str, Any]) -> None:
        """Parse into ``made``, as far as the bytes go."""
        for name, member in node.members:
            match member:
                case trees.Structure(null=False):
                    self._begin(member, stream, made.setdefault(name, {}))
                case trees.Sequence(item=trees.Structure()):
                    count = member._parse_length(stream)
                    made[name] = None if count < 0 else []
                    for _ in range(count):
                        made[name].append({})
                        self._begin(member.item, stream, made[name][-1])
                case _:
                    made[name] = self._value(member._parse(stream, None, ""), node.cls, name, name)
        if node.tagged is not None:
            values: dict[str, Any] = {}
            node._parse_tags(node.tagged, stream, None, "", values)
            known = {each.name: each.default for each in node.tagged}
            for name, value in values.items():
                if name not in known or value != known[name]:
                    made[name] = self._value(value, node.cls, name, name)


# ---------------------------------------------------------------------------------------------------------------------
# Plain values as text.


def lines(fields: Mapping[str, Any], indent: str = "", *, full: bool = False) -> Iterator[str]:
    """Yield one line for each field. A value that does not fit into the line follows in indented lines.

    Args:
        full: do not shorten long strings and bytes.
    """
    for name, value in fields.items():
        yield from _entry(f"{indent}{name}:", value, f"{indent}  ", full)


def _entry(lead: str, value: Any, indent: str, full: bool) -> Iterator[str]:
    if (short := one_line(value, full=full)) is not None:
        yield f"{lead} {short}"
        return
    yield lead
    if isinstance(value, dict):
        yield from lines(value, indent, full=full)
        return
    for each in value:
        if (short := one_line(each, full=full)) is not None:
            yield f"{indent}- {short}"
        elif isinstance(each, dict):
            first, *rest = lines(each, f"{indent}  ", full=full)
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield from _entry(f"{indent}-", each, f"{indent}  ", full)


def one_line(value: Any, *, full: bool = False) -> str | None:
    """Return the value as one line; ``None`` if it is a list or dict that needs several."""
    match value:
        case dict():
            texts = [one_line(each, full=full) for each in value.values()]
            if None in texts:
                return None
            text = f"{{{', '.join(f'{name}: {text}' for name, text in zip(value, texts, strict=True))}}}"
        case list():
            if any(isinstance(each, dict | list) for each in value):
                return None
            text = f"[{', '.join(scalar(each, full=full) for each in value)}]"
        case _:
            return scalar(value, full=full)
    return text if len(text) <= WIDTH else None


def scalar(value: Any, *, full: bool = False) -> str:
    """Return a number, a string, bytes or null as text."""
    match value:
        case bytes():
            return bytes_text(value, full=full)
        case str():
            return quoted(value, full=full)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Named():
            return f"{int(value)} ({value.name})"
    return str(value)


def bytes_text(data: bytes, *, full: bool = False) -> str:
    """Return printable bytes as a string, others in hexadecimal digits."""
    try:
        text = data.decode()
        if text.isprintable() or all(each.isprintable() or each in "\t\r\n" for each in text):
            return quoted(text, full=full)
    except UnicodeDecodeError:
        pass  # not text
    shown = data if full else data[: _CUT // 2]
    return f"0x{shown.hex()}{_more(len(data) - len(shown), 'bytes')}"


def quoted(text: str, *, full: bool = False) -> str:
    """Quote ``text``, with unprintable characters escaped as in JSON."""
    if len(text) <= _CUT or full:
        shown = encode_basestring(text)
        return shown if text.isprintable() else printable(shown)
    return printable(encode_basestring(text[:_CUT])) + _more(len(text) - _CUT, "characters")


def printable(text: str) -> str:
    """Escape characters that a terminal would interpret, as JSON does; newlines stay."""
    if text.isprintable() or all(map(str.isprintable, text.split("\n"))):
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def _more(left: int, what: str) -> str:
    return f"… ({left} more {what})" if left else ""
