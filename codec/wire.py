"""Messages declared as typed classes; construct trees made of them, one per version.

    @struct
    class MetadataBroker:
        node_id: int = wire(Int32)
        rack: str | None = wire(String, "1+", null="1+", default=None)

The Python type stands on the left, the wire type on the right. One class serves all versions of a message:
`tree(cls, version)` resolves the versions first, so that each (class, version) has one plain construct
tree without conditions. `parse` and `build` at the end of the file let construct itself interpret the
trees. This is slow, but it is the reference that the machines of `program.py` are tested against.
Everybody else uses `ottla.codec.messages`.

Rules:
- A field that a version lacks parses to its default. To be built, it must equal its default, unless it is `ignorable`.
- In flexible versions strings, bytes and arrays are compact, and every struct ends in tagged fields. Unknown tags are
  kept in `unknown_tags` and written back.
- `parse` raises only `DecodeError`, and `build` only `EncodeError`; each has the path of the field.
- An integer is anything that `operator.index` accepts, a string a `str`, bytes a `Part`, an array a tuple or a list.

Source: Apache Kafka's message definitions, and KIP-482 for flexible versions.
"""

import dataclasses
import functools
import io
import operator
import reprlib
import struct as packed
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast, dataclass_transform

from construct import Construct, FormatField, Struct

from ottla.errors import DecodeError, EncodeError, UnknownVersion
from ottla.late_dataclass import dataclass


class Declared(Protocol):
    """An instance of a class made by `message` or `struct`, as far as type checkers can tell."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T")
M = TypeVar("M", bound=Declared)

Buffer = bytes | bytearray | memoryview


class Unreadable(Exception):
    """An `Unread` cannot be read, for example because the disk fails."""


class Unread:
    """Bytes that are not in memory, for example in a file. A message to be built may have such a field.

    ``build_parts`` does not read them if they are many; all other functions that build the message do. The length is
    the number of bytes that are left. Each method may raise `Unreadable`.
    """

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __bytes__(self) -> bytes:
        raise NotImplementedError

    def take(self, size: int) -> bytes:
        """Read and remove the first ``size`` bytes, or all that are left if they are fewer."""
        raise NotImplementedError

    def send(self, descriptor: int) -> int:
        """Send to a non-blocking socket as much as it accepts now; return how many bytes were sent and removed.

        Raises:
            BlockingIOError: the socket accepts no bytes now.
            OSError: the connection has ended.
        """
        raise NotImplementedError


Part = Buffer | Unread
"""One part of the bytes of a message."""


def in_memory(parts: Iterable[Part]) -> list[Buffer]:
    """Return ``parts``, with each `Unread` read into memory."""
    return [bytes(part) if isinstance(part, Unread) else part for part in parts]


NO_UUID = uuid.UUID(int=0)
"""Kafka's "no id"."""
UNKNOWN_TAGS = "unknown_tags"
"""The attribute of every struct for tagged fields that its class does not know, as ``{tag: bytes}``."""


class _NoTags(Mapping[int, bytes]):
    """An empty immutable mapping, of which one instance is enough; copying and pickling return the same instance."""

    __slots__ = ()

    def __getitem__(self, tag: int) -> bytes:
        raise KeyError(tag)

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"

    def __reduce__(self) -> str:
        return "NO_TAGS"


NO_TAGS = _NoTags()
_REQUIRED: Any = object()


class Versions:
    """A range of versions: ``"3"``, ``"3-7"``, ``"3+"``, or ``""`` for none."""

    def __init__(self, text: str) -> None:
        self.text = text
        low, dash, high = text.removesuffix("+").partition("-")
        self.low = int(low) if text else 1
        self.high = (1 << 15) - 1 if text.endswith("+") else int(high if dash else self.low) if text else 0

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __repr__(self) -> str:
        return f"Versions({self.text!r})"


_versions = functools.cache(Versions)
"""Thousands of fields share a few ranges."""


# ---------------------------------------------------------------------------------------------------------------------
# Nodes of the trees. Each is a construct; parse and build use a stream, and raise our errors only.


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
            raise EncodeError(f"{_shown(value)} does not fit {kind} integer of {8 * self.length} bits") from None


def _index(obj: Any) -> int:
    try:
        return operator.index(obj)
    except MemoryError:
        raise
    except Exception:  # a foreign `__index__` may raise anything
        raise EncodeError(f"int wanted, not {type(obj).__name__}") from None


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an int of {value.bit_length()} bits"
    try:
        return f"{value!r:.80}"
    except Exception:  # a foreign `__repr__` may raise anything
        return f"such a {type(value).__name__}"


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
            raise EncodeError(f"{_shown(obj)} does not fit a float of 64 bits") from None


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
            raise EncodeError(f"{_shown(value)} does not fit a signed integer of {self.bits} bits")
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
        absent: list["Field"],
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
            values[each.name] = _copy(each.default)
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
                        f"so it cannot carry {_shown(value)}"
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


def unknown_tags_of(tags: Any, known: Mapping[int, str]) -> dict[int, bytes]:
    """Return a checked copy of the unknown ``tags`` of a struct; ``known`` has the names of the known ones."""
    if not isinstance(tags, Mapping):
        raise EncodeError(f"dict wanted, not {type(tags).__name__}")
    try:
        found = dict(tags)
    except Exception:  # a foreign mapping may raise anything
        raise EncodeError(f"{type(tags).__name__} cannot be read") from None
    for tag, data in found.items():
        if not isinstance(tag, int) or not 0 <= tag < 1 << 32:
            raise EncodeError(f"{_shown(tag)} is not a tag, which is an int of 32 bits")
        if tag in known:
            raise EncodeError(f"tag {tag} is not unknown: it is {known[tag]}")
        if not isinstance(data, bytes):
            raise EncodeError(f"tag {tag} has {type(data).__name__}, not bytes")
    return found


def differs(value: Any, default: Any) -> bool:
    """Whether a field has to be sent because it differs from its default; a list equals the same tuple."""
    if value is default:
        return False
    if hasattr(default, "__wire__") and type(value) is type(default):
        names = (*(field.name for field in default.__wire__), UNKNOWN_TAGS)
        # A struct without one of its attributes is not the default: building it raises an error that says so.
        return any(not hasattr(value, name) or differs(getattr(value, name), getattr(default, name)) for name in names)
    try:
        return bool((tuple(value) if type(value) is list else value) != default)
    except MemoryError:
        raise
    except Exception:  # a foreign `__eq__` may raise anything
        raise EncodeError(f"{type(value).__name__} cannot be compared with the default") from None


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
# Wire types, which declarations name. Each makes the node for (version, flexible, nullable).


@dataclass(frozen=True)
class WireType:
    """A type in Kafka's message definitions: ``make(version, flexible, null)`` gives its node, ``zero`` its default."""

    make: Callable[[int, bool, bool], Construct]
    zero: Any


def _fixed(node: Construct, zero: Any) -> WireType:
    return WireType(lambda version, flexible, null: node, zero)


def _sized(kind: type[Sized], length: Construct, zero: Any) -> WireType:
    return WireType(lambda version, flexible, null: kind(UNSIGNED if flexible else length, null), zero)


Boolean = _fixed(Bool(), False)
Int8 = _fixed(INT8, 0)
Int16 = _fixed(INT16, 0)
UInt16 = _fixed(Integer("H"), 0)
Int32 = _fixed(INT32, 0)
UInt32 = _fixed(Integer("L"), 0)
Int64 = _fixed(INT64, 0)
Float64 = _fixed(Float(), 0.0)
VarInt = _fixed(ZigZag(32), 0)
VarLong = _fixed(ZigZag(64), 0)
Uuid = _fixed(Id(), NO_UUID)
String = _sized(Text, INT16, "")
Bytes = _sized(Blob, INT32, b"")
VarString = WireType(lambda version, flexible, null: Text(ZigZag(32), null), "")
VarBytes = WireType(lambda version, flexible, null: Blob(ZigZag(32), null), b"")
Records = _sized(BlobView, INT32, None)
"""A record set, as an opaque view of the parsed bytes: `ottla.codec.records` reads and writes it."""


def Array(item: Any) -> WireType:  # reads as a type in declarations
    """An array of a wire type or of a declared struct."""

    def make(version: int, flexible: bool, null: bool) -> Construct:
        inner = item.make(version, flexible, False) if isinstance(item, WireType) else tree(item, version, flexible)
        return Sequence(UNSIGNED if flexible else INT32, null, inner)

    return WireType(make, ())


def VarArray(item: Any) -> WireType:  # reads as a type in declarations
    """An array of a declared struct with a zigzag-coded count, as in records."""
    return WireType(lambda version, flexible, null: Sequence(ZigZag(32), null, tree(item, version, flexible)), ())


def Nested(item: Any) -> WireType:  # reads as a type in declarations
    """A declared struct as a field of another. In versions that lack it, it is the struct with all its defaults."""
    zero = item(**{field.name: field.fresh_default() for field in item.__wire__})
    return WireType(lambda version, flexible, null: tree(item, version, flexible, null), zero)


# ---------------------------------------------------------------------------------------------------------------------
# Declarations.


class Field:
    """The declaration of one field, made by `wire`."""

    name: str

    def __init__(
        self, type: WireType, versions: Versions, null: Versions, default: Any, tag: int | None, ignorable: bool
    ) -> None:
        self.type, self.versions, self.null = type, versions, null
        self.default, self.tag, self.ignorable = default, tag, ignorable

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    @property
    def absent_value(self) -> Any:
        """The value of the field in a version that lacks it."""
        return self.type.zero if self.default is _REQUIRED else self.default

    def fresh_default(self) -> Any:
        return _copy(self.absent_value)


def _copy(value: Any) -> Any:
    """Copy a default all the way down, because structs can be changed."""
    if not hasattr(value, "__wire__"):
        return value
    return type(value)(**{field.name: _copy(getattr(value, field.name)) for field in value.__wire__})


def _maker(default: Any) -> Callable[[], Any]:
    """Return a function that copies a default which is a struct; for most structs the copy is a single call."""
    values = {field.name: getattr(default, field.name) for field in default.__wire__}
    if any(hasattr(value, "__wire__") for value in values.values()):
        return functools.partial(_copy, default)
    make: Callable[..., Any] = type(default)
    own = {field.name: field.default for field in default.__wire__}
    return make if values == own else functools.partial(make, **values)


def wire(
    type: WireType,
    versions: str = "0+",
    *,
    null: str = "",
    default: Any = _REQUIRED,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare one field of a struct.

    Args:
        type: the wire type.
        versions: the versions of the message that have the field.
        null: the versions in which it may be ``None``.
        default: for the constructor, and for versions that lack the field; without it, the constructor needs a value.
        tag: its tag, if it is a tagged field.
        ignorable: a version that lacks the field drops its value silently (otherwise that is an `EncodeError`).
    """
    return Field(type, _versions(versions), _versions(null), default, tag, ignorable)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Turn a declared class into a slotted, keyword-only dataclass that knows its wire fields."""
    if cls.__bases__ != (object,):
        raise TypeError(f"{cls.__name__} has a base class, whose fields would be lost")
    fields: list[Field] = []
    late: dict[str, Any] = {}
    for name in list(cls.__annotations__):
        spec = cls.__dict__[name]
        if not isinstance(spec, Field):
            raise TypeError(f"{cls.__name__}.{name} needs a wire(...) declaration")
        fields.append(spec)
        if hasattr(spec.absent_value, "__wire__"):
            late[name] = _maker(spec.absent_value)
        if spec.default is _REQUIRED:
            delattr(cls, name)
        elif hasattr(spec.default, "__wire__"):
            setattr(cls, name, dataclasses.field(default_factory=_maker(spec.default)))
        else:
            setattr(cls, name, spec.default)
    if late:
        cls.__getattr__ = _made_late(late)  # type: ignore[attr-defined] # new to the type
    cls.__annotations__[UNKNOWN_TAGS] = Mapping[int, bytes]
    setattr(cls, UNKNOWN_TAGS, dataclasses.field(default_factory=lambda: NO_TAGS, repr=False))  # new to the type
    # Dataclass keeps methods that already exist. Generating these for each of hundreds of classes would take a while.
    cls.__repr__ = _repr  # type: ignore[method-assign]
    cls.__eq__ = _equality(cls.__annotations__)  # type: ignore[method-assign]
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}, of Kafka's protocol."
    cls.__wire__ = tuple(fields)  # type: ignore[attr-defined] # the declaration, read by `tree`
    return dataclass(slots=True, kw_only=True)(cls)


def _equality(names: Iterable[str]) -> Callable[[Any, object], bool]:
    """Return an ``__eq__`` as dataclass would write it, but without compiling it."""
    fields = operator.attrgetter(*names)

    def __eq__(self: Any, other: object) -> bool:
        return bool(fields(self) == fields(other)) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    """A ``__repr__`` as dataclass would write it, but with unknown tags only if there are any."""
    names = [field.name for field in self.__wire__]
    if getattr(self, UNKNOWN_TAGS):
        names.append(UNKNOWN_TAGS)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _made_late(makers: dict[str, Callable[[], Any]]) -> Callable[[Any, str], Any]:
    """Return a ``__getattr__``, which Python calls for an empty slot.

    If a default is a struct, machines leave the slot empty: such a default is hardly ever read, and making it would
    cost more than parsing the rest (there are three for each partition of a Fetch).
    """

    def __getattr__(self: Any, name: str) -> Any:
        if name not in makers:
            raise AttributeError(f"{type(self).__name__} has no {name}", name=name, obj=self)
        setattr(self, name, value := makers[name]())
        return value

    return __getattr__


def unknown_tags(value: Any) -> Mapping[int, bytes]:
    """Return the tagged fields of a message, or of a struct in it, that its class does not know, by tag.

    The same as the attribute ``unknown_tags``, which type checkers cannot see because a decorator adds it.
    """
    return cast(Mapping[int, bytes], getattr(value, UNKNOWN_TAGS))


@dataclass(frozen=True)
class Api:
    """The declaration of `@message`: the API's key, the versions that exist, and which of them are flexible."""

    key: int
    versions: Versions
    flexible: Versions


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(*, key: int = -1, versions: str, flexible: str = "") -> Callable[[type[T]], type[T]]:
    """Declare a top-level struct: the body of a request or a response of API ``key``, or with -1 another message."""

    def decorate(cls: type[T]) -> type[T]:
        cls.__api__ = Api(key, Versions(versions), Versions(flexible))  # type: ignore[attr-defined] # read by `api`
        return struct(cls)

    return decorate


def api(cls: Any) -> Api:
    """Return the `Api` of a message class."""
    try:
        found: Api = vars(cls)["__api__"]  # not inherited: a subclass is another class, with other slots
        return found
    except KeyError:
        raise TypeError(f"{cls.__name__} is not a message: the classes of ottla.codec.apis are") from None


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
        node = field.type.make(version, flexible, version in field.null)
        if field.tag is not None and isinstance(node, Structure) and node.null:
            node = Structure(node.cls, version, node.members, node.absent, node.tagged, null=True, mark=UNSIGNED)
        if field.tag is None:
            members.append((field.name, node))
        elif not flexible or field.tag in (each.tag for each in tagged):
            raise TypeError(
                f"{cls.__name__}.{field.name} cannot have tag {field.tag} in version {version}: "
                + ("another field has it" if flexible else "only flexible versions have tagged fields")
            )
        else:
            tagged.append(TaggedNode(field.tag, field.name, node, field.absent_value))
    return Structure(cls, version, members, absent, sorted(tagged) if flexible else None, null)


@functools.cache
def message_tree(cls: Any, version: int) -> Structure:
    declared = api(cls)
    if type(version) is not int or version not in declared.versions:
        raise UnknownVersion(cls.__name__, version, declared.versions.text)
    return tree(cls, version, version in declared.flexible)


# ---------------------------------------------------------------------------------------------------------------------
# The reference implementation.


def parse(cls: type[M], version: int, data: Buffer, offset: int = 0) -> tuple[M, int]:
    """Parse a message of ``cls`` from ``data[offset:]``; return it and the offset of its end.

    Bytes may be left over; the caller decides whether that is an error (a broker must accept them).

    Raises:
        DecodeError: the bytes are not a message of this class and version.
        UnknownVersion: the class has no such version.
    """
    node = message_tree(cast(Any, cls), version)
    stream = io.BytesIO(data)
    if not 0 <= offset <= memoryview(data).nbytes:
        raise ValueError(f"offset {offset} lies outside of the {memoryview(data).nbytes} bytes")
    stream.seek(offset)
    try:
        return cast(M, node._parse(stream, None, "")), stream.tell()
    except DecodeError as error:
        found = DecodeError(error.reason, cls.__name__ + error.path, error.offset)
    raise found  # not the original error, whose traceback would keep everything parsed so far alive


def build(value: Declared, version: int) -> bytes:
    """Build ``value`` (an instance of a message class) at ``version``; return its bytes.

    Raises:
        EncodeError: a field does not fit; ``.path`` says which.
        UnknownVersion: the class has no such version.
    """
    node = message_tree(cast(Any, type(value)), version)
    stream = io.BytesIO()
    try:
        node._build(value, stream, None, "")
        return stream.getvalue()
    except EncodeError as error:
        found = EncodeError(error.reason, type(value).__name__ + error.path)
    raise found


def misfit(value: Any, version: int) -> EncodeError:
    """Return the error that says why ``value``, which a machine could not build, does not fit."""
    try:
        build(value, version)
    except EncodeError as error:
        return error
    return EncodeError("it was changed while it was built", type(value).__name__)
