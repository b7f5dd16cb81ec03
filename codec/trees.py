"""The construct trees of declared messages: for each class and version a plain tree, which defines the bytes.

`tree` resolves the versions of a declaration (`wire.py`), so its trees have no conditions. Each node is a construct of
this file. `reference.py` lets construct interpret the trees; `flatten.py` turns them into programs for the machines.

Rules:
- Nodes parse and build with a stream, and raise our errors only.
- This file imports construct, and so takes longer to import than the rest of the codec. Programs that only use messages
  of the codec itself never need it: their programs are flattened in advance (`flattened.py`).

Source: Apache Kafka's message definitions, and KIP-482 for flexible versions.
"""

import functools
import io
import operator
import struct as packed
import uuid
from typing import Any, NamedTuple

from construct import Construct, FormatField, Struct

from ottla.codec.wire import (
    UNKNOWN_TAGS,
    Field,
    Part,
    Unread,
    WireType,
    copied,
    differs,
    is_flexible,
    shown,
    unknown_tags_of,
)
from ottla.errors import DecodeError, EncodeError


def _read(stream: io.BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise DecodeError(f"{size} bytes wanted, {len(data)} left", offset=stream.tell() - len(data))
    return data


class Integer(FormatField):
    """A big-endian integer of fixed size; ``letter`` as in `struct.pack`, a capital for unsigned."""

    def __init__(self, letter: str) -> None:
        super().__init__(">", letter)
        self.signed = letter.islower()

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> int:
        return int.from_bytes(_read(stream, self.length), "big", signed=self.signed)

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> None:
        value = _index(obj)
        try:
            stream.write(value.to_bytes(self.length, "big", signed=self.signed))
        except OverflowError:
            kind = "a signed" if self.signed else "an unsigned"
            raise EncodeError(f"{shown(value)} does not fit {kind} integer of {8 * self.length} bits") from None


def _index(obj: Any) -> int:
    try:
        return operator.index(obj)
    except MemoryError:
        raise
    except Exception:  # a foreign `__index__` may raise anything
        raise EncodeError(f"int wanted, not {type(obj).__name__}") from None


INT8, INT16, INT32, INT64 = (Integer(letter) for letter in "bhlq")


class Float(FormatField):
    """A big-endian IEEE 754 number of 64 bits."""

    def __init__(self) -> None:
        super().__init__(">", "d")

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> float:
        return float(packed.unpack(">d", _read(stream, 8))[0])

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> None:
        if not isinstance(obj, int | float):
            raise EncodeError(f"float wanted, not {type(obj).__name__}")
        try:
            stream.write(packed.pack(">d", obj))
        except MemoryError:
            raise
        except Exception:  # an int that is too large, or any error of a foreign `__float__`
            raise EncodeError(f"{shown(obj)} does not fit a float of 64 bits") from None


class Unsigned(Construct):
    """An unsigned LEB128 integer of at most 32 bits (five bytes)."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = _read(stream, 1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise DecodeError("varint of more than 32 bits", offset=stream.tell() - 5)

    def _build(self, obj: int, stream: io.BytesIO, context: Any, path: str) -> None:
        while obj > 0x7F:
            stream.write(bytes((obj & 0x7F | 0x80,)))
            obj >>= 7
        stream.write(bytes((obj,)))


UNSIGNED = Unsigned()


class ZigZag(Construct):
    """A signed varint of at most ``bits`` bits, zigzag-coded so that small negative numbers are short."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> int:
        value = 0
        for shift in range(0, self.bits + 3, 7):
            byte = _read(stream, 1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> self.bits:
                    break
                return (value >> 1) ^ -(value & 1)
        raise DecodeError(f"varint of more than {self.bits} bits", offset=stream.tell() - shift // 7 - 1)

    def _build(self, obj: int, stream: io.BytesIO, context: Any, path: str) -> None:
        value = _index(obj)
        if not -1 << (self.bits - 1) <= value < 1 << (self.bits - 1):
            raise EncodeError(f"{shown(value)} does not fit a signed integer of {self.bits} bits")
        UNSIGNED._build((value << 1) ^ (value >> (self.bits - 1)), stream, context, path)


class Bool(Construct):
    """One byte; any value but 0 is true."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> bool:
        return _read(stream, 1) != b"\0"

    def _build(self, obj: bool, stream: io.BytesIO, context: Any, path: str) -> None:
        if type(obj) is not bool:
            raise EncodeError(f"bool wanted, not {type(obj).__name__}")
        stream.write(b"\1" if obj else b"\0")


class Id(Construct):
    """A UUID, 16 bytes."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> uuid.UUID:
        return uuid.UUID(bytes=_read(stream, 16))

    def _build(self, obj: uuid.UUID, stream: io.BytesIO, context: Any, path: str) -> None:
        if not isinstance(obj, uuid.UUID):
            raise EncodeError(f"uuid.UUID wanted, not {type(obj).__name__}")
        try:
            data = int.to_bytes(obj.int, 16, "big")
        except Exception:  # a foreign subclass of UUID without a valid number
            raise EncodeError(f"{type(obj).__name__} has no number of 128 bits") from None
        stream.write(data)


class Sized(Construct):
    """A length, then that many bytes or elements. Compact lengths are stored plus one; null is -1 (compact: 0)."""

    unit: str

    def __init__(self, length: Construct, null: bool) -> None:
        super().__init__()
        self.length, self.null = length, null
        self.compact = isinstance(length, Unsigned)
        self.longest = self._longest()

    def _longest(self) -> int:
        return (1 << (8 * self.length.sizeof() - 1 if isinstance(self.length, FormatField) else 31)) - 1

    def _parse_length(self, stream: io.BytesIO) -> int:
        start = stream.tell()
        size: int = self.length._parse(stream, None, "") - self.compact
        if (size < 0 and not (size == -1 and self.null)) or size > self.longest:
            raise DecodeError(f"{self.unit} length of {size}", offset=start)
        return size

    def _build_length(self, size: int, stream: io.BytesIO) -> None:
        if size == -1 and not self.null:
            raise EncodeError(f"this {self.unit} cannot be null in this version")
        if size > self.longest:
            raise EncodeError(f"{self.unit} of {size} is longer than {self.longest}, the most that Kafka accepts")
        self.length._build(size + self.compact, stream, None, "")


class Text(Sized):
    """A UTF-8 string."""

    unit = "string"

    def _longest(self) -> int:
        # Kafka accepts no longer strings, even where a compact length could be larger.
        return (1 << 15) - 1 if self.compact else super()._longest()

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> str | None:
        size = self._parse_length(stream)
        if size < 0:
            return None
        data = _read(stream, size)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"not UTF-8: {error.reason}", offset=stream.tell() - size + error.start) from None

    def _build(self, obj: str | None, stream: io.BytesIO, context: Any, path: str) -> None:
        if obj is None:
            self._build_length(-1, stream)
            return
        if not isinstance(obj, str):
            raise EncodeError(f"str wanted, not {type(obj).__name__}")
        try:
            data = str.encode(obj)
        except UnicodeEncodeError as error:
            raise EncodeError(f"not encodable as UTF-8: {error.reason}") from None
        self._build_length(len(data), stream)
        stream.write(data)


class Blob(Sized):
    """Bytes, which are copied when parsed."""

    unit = "bytes"

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> bytes | None:
        size = self._parse_length(stream)
        return None if size < 0 else _read(stream, size)

    def _build(self, obj: Part | None, stream: io.BytesIO, context: Any, path: str) -> None:
        if obj is None:
            self._build_length(-1, stream)
            return
        if isinstance(obj, Unread):
            obj = bytes(obj)
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise EncodeError(f"bytes wanted, not {type(obj).__name__}")
        try:
            view = memoryview(obj)
            self._build_length(view.nbytes, stream)
            stream.write(view)
        except (BufferError, ValueError) as error:  # a memoryview with gaps, or a released one
            raise EncodeError(f"bytes wanted, and these cannot be read: {error}") from None


class BlobView(Blob):
    """Bytes that are not copied: they parse to a view of the input."""

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        data = super()._parse(stream, context, path)
        return None if data is None else memoryview(data)


class Sequence(Sized):
    """An array of ``item``, parsed to a tuple."""

    unit = "array"

    def __init__(self, length: Construct, null: bool, item: Construct) -> None:
        super().__init__(length, null)
        self.item = item
        self.least = least_size(item)
        if self.least == 0:
            raise TypeError("an array element that can take zero bytes leaves the array's count unbounded")

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> tuple[Any, ...] | None:
        count = self._parse_length(stream)
        if count < 0:
            return None
        start = stream.tell()
        left = stream.seek(0, io.SEEK_END) - start
        stream.seek(start)
        if count * self.least > left:
            raise DecodeError(f"array of {count} elements with {left} bytes left", offset=start)
        parse = self.item._parse
        values: list[Any] = []
        try:
            for _ in range(count):
                values.append(parse(stream, context, path))
        except DecodeError as error:
            error.path = f"[{len(values)}]{error.path}"
            raise
        return tuple(values)

    def _build(self, obj: tuple[Any, ...] | list[Any] | None, stream: io.BytesIO, context: Any, path: str) -> None:
        if obj is None:
            self._build_length(-1, stream)
            return
        if not isinstance(obj, tuple | list):
            raise EncodeError(f"tuple or list wanted, not {type(obj).__name__}")
        values = tuple(obj)
        self._build_length(len(values), stream)
        done = 0
        try:
            for value in values:
                self.item._build(value, stream, context, path)
                done += 1
        except EncodeError as error:
            error.path = f"[{done}]{error.path}"
            raise
        if len(obj) != len(values):
            raise EncodeError("the list was changed while it was built")


class TaggedNode(NamedTuple):
    tag: int
    name: str
    node: Construct
    default: Any


class Structure(Struct):
    """A `construct.Struct` that parses to, and builds from, an instance of a declared class."""

    def __init__(
        self,
        cls: Any,
        version: int,
        members: list[tuple[str, Construct]],
        absent: list[Field],
        tagged: list[TaggedNode] | None,
        null: bool = False,
        mark: Construct = INT8,
    ) -> None:
        super().__init__(*(name / node for name, node in members))
        self.cls, self.version, self.members, self.absent, self.null = cls, version, members, absent, null
        self.mark = mark
        """The mark before a struct that may be null: an 8-bit integer, -1 for null, else 1. In a tagged field it is
        unsigned and, as with lengths, stored plus one: 0 for null."""
        self.compact = isinstance(mark, Unsigned)
        self.tagged = tagged
        """Known tagged fields in the order of their tags; ``None`` if the version is not flexible."""
        self.known = {each.tag: each for each in tagged or ()}

    def _parse(self, stream: io.BytesIO, context: Any, path: str) -> Any:
        if self.null and self.mark._parse(stream, context, path) - self.compact < 0:
            return None
        values: dict[str, Any] = {field.name: field.fresh_default() for field in self.absent}
        name = ""
        try:
            for name, node in self.members:
                values[name] = node._parse(stream, context, path)
        except DecodeError as error:
            error.path = f".{name}{error.path}"
            raise
        if self.tagged is not None:
            self._parse_tags(self.tagged, stream, context, path, values)
        return self.cls(**values)

    def _parse_tags(
        self, tagged: list[TaggedNode], stream: io.BytesIO, context: Any, path: str, values: dict[str, Any]
    ) -> None:
        for each in tagged:
            values[each.name] = copied(each.default)
        unknown: dict[int, bytes] = {}
        name, previous = UNKNOWN_TAGS, -1
        try:
            for _ in range(UNSIGNED._parse(stream, context, path)):
                name = UNKNOWN_TAGS
                tag, size = UNSIGNED._parse(stream, context, path), UNSIGNED._parse(stream, context, path)
                start = stream.tell()
                if tag <= previous:
                    raise DecodeError(f"tag {tag} after tag {previous}", offset=start)
                previous = tag
                if known := self.known.get(tag):
                    name = known.name
                    values[name] = known.node._parse(stream, context, path)
                    if (taken := stream.tell() - start) != size:
                        raise DecodeError(f"tagged field of {size} bytes took {taken}", offset=start)
                else:
                    unknown[tag] = _read(stream, size)
        except DecodeError as error:
            error.path = f".{name}{error.path}"
            raise
        if unknown:
            values[UNKNOWN_TAGS] = unknown

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> None:
        if self.null:
            self.mark._build(self.compact - 1 if obj is None else 1, stream, context, path)
            if obj is None:
                return
        if type(obj) is not self.cls:
            raise EncodeError(f"{self.cls.__name__} wanted, not {type(obj).__name__}")
        name = ""
        try:
            for field in self.absent:
                name = field.name
                value = getattr(obj, name)
                if not field.ignorable and differs(value, field.absent_value):
                    raise EncodeError(
                        f"version {self.version} has no such field (it is in {field.versions.text}), "
                        f"so it cannot carry {shown(value)}"
                    )
            for name, node in self.members:
                node._build(getattr(obj, name), stream, context, path)
            name = UNKNOWN_TAGS
            present = self._unknown_tags(getattr(obj, name))
            for tag, name, node, default in self.tagged or ():
                if differs(value := getattr(obj, name), default):
                    node._build(value, out := io.BytesIO(), context, path)
                    present[tag] = out.getvalue()
        except EncodeError as error:
            error.path = f".{name}{error.path}"
            raise
        except AttributeError:
            raise EncodeError("the attribute is missing", f".{name}") from None
        if self.tagged is not None:
            UNSIGNED._build(len(present), stream, context, path)
            for tag in sorted(present):
                UNSIGNED._build(tag, stream, context, path)
                UNSIGNED._build(len(present[tag]), stream, context, path)
                stream.write(present[tag])

    def _unknown_tags(self, tags: Any) -> dict[int, bytes]:
        """Return a copy of ``tags``, checked so that it can be built."""
        found = unknown_tags_of(tags, {tag: each.name for tag, each in self.known.items()})
        if found and self.tagged is None:
            raise EncodeError(f"version {self.version} has no tagged fields")
        return found


def least_size(node: Construct) -> int:
    """Return the fewest bytes that ``node`` can take."""
    match node:
        case FormatField():
            return int(node.sizeof())
        case Id():
            return 16
        case Sized():
            return least_size(node.length)
        case Structure(null=True):
            return 1
        case Structure():
            return sum(least_size(each) for _, each in node.members) + (node.tagged is not None)
    return 1


# ---------------------------------------------------------------------------------------------------------------------
# The nodes of wire types, and the trees of declared classes.

_ZIGZAG32 = ZigZag(32)

PLAIN: dict[str, Construct] = {
    "Boolean": Bool(),
    "Int8": INT8,
    "Int16": INT16,
    "UInt16": Integer("H"),
    "Int32": INT32,
    "UInt32": Integer("L"),
    "Int64": INT64,
    "Float64": Float(),
    "VarInt": _ZIGZAG32,
    "VarLong": ZigZag(64),
    "Uuid": Id(),
}
"""The nodes of wire types that are the same in all versions, by name."""
SIZED: dict[str, tuple[Any, Construct, Construct]] = {
    "String": (Text, INT16, UNSIGNED),
    "LegacyString": (Text, INT16, INT16),
    "VarString": (Text, _ZIGZAG32, _ZIGZAG32),
    "Bytes": (Blob, INT32, UNSIGNED),
    "VarBytes": (Blob, _ZIGZAG32, _ZIGZAG32),
    "Records": (BlobView, INT32, UNSIGNED),
    "Array": (Sequence, INT32, UNSIGNED),
    "ShortArray": (Sequence, INT16, INT16),
    "VarArray": (Sequence, _ZIGZAG32, _ZIGZAG32),
}
"""The kinds of nodes with a length in front, the length, and the length in flexible versions, by the type's name."""


def node(type: WireType, version: int, flexible: bool, null: bool) -> Construct:
    """Return the node of a wire type."""
    if type.name in PLAIN:
        return PLAIN[type.name]
    if type.name == "Nested":
        return tree(type.item, version, flexible, null)
    kind, *lengths = SIZED[type.name]
    if type.item is None:
        return kind(lengths[flexible], null)
    of_structs = hasattr(type.item, "__wire__")
    item = tree(type.item, version, flexible) if of_structs else node(type.item, version, flexible, False)
    return kind(lengths[flexible], null, item)


@functools.cache
def tree(cls: Any, version: int, flexible: bool, null: bool = False) -> Structure:
    """Return the construct tree of ``cls`` at ``version``: the definition of its bytes."""
    members: list[tuple[str, Construct]] = []
    absent: list[Field] = []
    tagged: list[TaggedNode] = []
    for field in cls.__wire__:
        if version not in field.versions:
            absent.append(field)
            continue
        made = node(field.type, version, flexible, version in field.null)
        if field.tag is not None and isinstance(made, Structure) and made.null:
            made = Structure(made.cls, version, made.members, made.absent, made.tagged, null=True, mark=UNSIGNED)
        if field.tag is None:
            members.append((field.name, made))
        elif not flexible or field.tag in (each.tag for each in tagged):
            raise TypeError(
                f"{cls.__name__}.{field.name} cannot have tag {field.tag} in version {version}: "
                + ("another field has it" if flexible else "only flexible versions have tagged fields")
            )
        else:
            tagged.append(TaggedNode(field.tag, field.name, made, field.absent_value))
    return Structure(cls, version, members, absent, sorted(tagged) if flexible else None, null)


@functools.cache
def message_tree(cls: Any, version: int) -> Structure:
    """Return the construct tree of a message class at ``version``."""
    return tree(cls, version, is_flexible(cls, version))
