"""The records of Kafka's internal topics: parses keys and values according to the topic and the key.

Rules:
- A key begins with the record's type in two bytes (Kafka calls it the key's version), a value with its version in two
  bytes. A null value deletes the value of its key.
- Unknown types and versions, and other kinds of keys, stay bytes: newer brokers may write them.

Source: GroupCoordinatorRecordSerde.java, TransactionLog.java, ShareCoordinatorRecordSerde.java.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.codec import messages, prefixed
from ottla.codec.stored import (
    classic_groups,
    consumer_groups,
    share_group_state,
    share_groups,
    streams_groups,
    transaction_state,
)
from ottla.codec.wire import Buffer, api
from ottla.errors import DecodeError
from ottla.late_dataclass import dataclass


class RecordType(NamedTuple):
    """A type of record: Kafka's name for it, and the message classes of its key and value."""

    name: str
    key: type[Any]
    value: type[Any]


def _types(*modules: Any) -> Mapping[int, RecordType]:
    """Collect the pairs of classes ``<Name>Key`` and ``<Name>Value`` in the modules, by the type that they declare."""
    return {
        api(key).key: RecordType(name.removesuffix("Key"), key, getattr(module, f"{name.removesuffix('Key')}Value"))
        for module in modules
        for name, key in vars(module).items()
        if name.endswith("Key") and key.__module__ == module.__name__
    }


INTERNAL_TOPICS: Mapping[str, Mapping[int, RecordType]] = {
    "__consumer_offsets": _types(classic_groups, consumer_groups, share_groups, streams_groups),
    "__transaction_state": _types(transaction_state),
    "__share_group_state": _types(share_group_state),
}
"""Topic -> type -> record type."""


@dataclass(slots=True)
class InternalRecord:
    """A record of an internal topic.

    Attributes:
        type: the first two bytes of the key.
        name: Kafka's name of the type, for example ``"OffsetCommit"``.
        key: a message of the type's key class.
        version: version of the value; -1 if the value is null.
        value: a message of the type's value class, or ``None``; the bytes of the value if its version is unknown.
    """

    type: int
    name: str
    key: Any
    version: int
    value: Any


def parse_internal(topic: str, key: Buffer | None, value: Buffer | None) -> InternalRecord | None:
    """Parse a record of ``topic``; ``None`` if that is not an internal topic, or the type of the key is unknown.

    Raises:
        DecodeError: key or value does not match its type and version; the path begins with their class.
    """
    types = INTERNAL_TOPICS.get(topic)
    if types is None or key is None or len(key) < prefixed.SIZE:
        return None
    number = prefixed.version_of(key)
    if number not in types:
        return None
    name, key_class, value_class = types[number]
    parsed_key = _whole(key_class, 0, key)
    if value is None:
        return InternalRecord(number, name, parsed_key, -1, None)
    version = prefixed.version_of(value)
    if version not in api(value_class).versions:
        return InternalRecord(number, name, parsed_key, version, bytes(value))
    return InternalRecord(number, name, parsed_key, version, _whole(value_class, version, value))


def _whole(cls: type[Any], version: int, data: Buffer) -> Any:
    """Parse the message after the first two bytes; it must use up all bytes."""
    message, end = messages.parse(cls, version, data, prefixed.SIZE)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes left over", cls.__name__, end)
    return message


def build_internal(record: InternalRecord) -> tuple[bytes, bytes | None]:
    """Build the key and the value.

    Raises:
        EncodeError: a message does not fit.
    """
    key = record.type.to_bytes(prefixed.SIZE, "big", signed=True) + messages.build(record.key, 0)
    if record.value is None or isinstance(record.value, bytes):
        return key, record.value
    return key, prefixed.build_prefixed(record.value, record.version)
