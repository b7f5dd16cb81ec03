"""Messages declared as typed classes: one class for all versions of a message.

    @struct
    class MetadataBroker:
        node_id: int = wire(Int32)
        rack: str | None = wire(String, "1+", null="1+", default=None)

The Python type stands on the left, the wire type on the right. `trees.py` makes a plain construct tree of each class
and version, which defines the bytes. Messages are parsed and built by `ottla.codec.messages`.

Rules:
- A field that a version lacks parses to its default. To be built, it must equal its default, unless it is `ignorable`.
- In flexible versions strings, bytes and arrays are compact, and every struct ends in tagged fields. Unknown tags are
  kept in `unknown_tags` and written back.
- Parsing raises only `DecodeError`, and building only `EncodeError`; each has the path of the field.
- An integer is anything that `operator.index` accepts, a string a `str`, bytes a `Part`, an array a tuple or a list.

Source: Apache Kafka's message definitions, and KIP-482 for flexible versions.
"""

import dataclasses
import functools
import operator
import reprlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar, cast, dataclass_transform

from ottla.errors import EncodeError, UnknownVersion
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
# Wire types, which declarations name.


class WireType:
    """A type in Kafka's message definitions. `ottla.codec.trees` has the construct of each name.

    Attributes:
        zero: the default of a field without one.
        item: the elements of an array, which are of a wire type or of a declared struct; the struct that is nested.
    """

    def __init__(self, name: str, zero: Any, item: Any = None) -> None:
        self.name, self.zero, self.item = name, zero, item


Boolean = WireType("Boolean", False)
Int8 = WireType("Int8", 0)
Int16 = WireType("Int16", 0)
UInt16 = WireType("UInt16", 0)
Int32 = WireType("Int32", 0)
UInt32 = WireType("UInt32", 0)
Int64 = WireType("Int64", 0)
Float64 = WireType("Float64", 0.0)
VarInt = WireType("VarInt", 0)
VarLong = WireType("VarLong", 0)
Uuid = WireType("Uuid", NO_UUID)
String = WireType("String", "")
LegacyString = WireType("LegacyString", "")
"""A string whose length stays two bytes in flexible versions too."""
VarString = WireType("VarString", "")
Bytes = WireType("Bytes", b"")
VarBytes = WireType("VarBytes", b"")
Records = WireType("Records", None)
"""A record set, as an opaque view of the parsed bytes: `ottla.codec.records` reads and writes it."""


def Array(item: Any) -> WireType:  # reads as a type in declarations
    """An array of a wire type or of a declared struct."""
    return WireType("Array", (), item)


def ShortArray(item: Any) -> WireType:  # reads as a type in declarations
    """An array with a count of two bytes, as in Kafka 0.7."""
    return WireType("ShortArray", (), item)


def VarArray(item: Any) -> WireType:  # reads as a type in declarations
    """An array with a zigzag-coded count, as in records."""
    return WireType("VarArray", (), item)


def Nested(item: Any) -> WireType:  # reads as a type in declarations
    """A declared struct as a field of another. In versions that lack it, it is the struct with all its defaults."""
    return WireType("Nested", item(**{field.name: field.fresh_default() for field in item.__wire__}), item)


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
        return copied(self.absent_value)


def copied(value: Any) -> Any:
    """Copy a default all the way down, because structs can be changed."""
    if not hasattr(value, "__wire__"):
        return value
    return type(value)(**{field.name: copied(getattr(value, field.name)) for field in value.__wire__})


def _maker(default: Any) -> Callable[[], Any]:
    """Return a function that copies a default which is a struct; for most structs the copy is a single call."""
    values = {field.name: getattr(default, field.name) for field in default.__wire__}
    if any(hasattr(value, "__wire__") for value in values.values()):
        return functools.partial(copied, default)
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
    cls.__wire__ = tuple(fields)  # type: ignore[attr-defined] # the declaration, read by `trees.tree`
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


class Api:
    """The declaration of `@message`: the API's key, the versions that exist, and which of them are flexible."""

    def __init__(self, key: int, versions: Versions, flexible: Versions) -> None:
        self.key, self.versions, self.flexible = key, versions, flexible


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


def is_flexible(cls: Any, version: int) -> bool:
    """Whether a version of a message class is flexible.

    Raises:
        UnknownVersion: the class has no such version.
    """
    declared = api(cls)
    if type(version) is not int or version not in declared.versions:
        raise UnknownVersion(cls.__name__, version, declared.versions.text)
    return version in declared.flexible


# ---------------------------------------------------------------------------------------------------------------------
# For the machines and the reference.


def shown(value: Any) -> str:
    """A value in an error."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an int of {value.bit_length()} bits"
    try:
        return f"{value!r:.80}"
    except Exception:  # a foreign `__repr__` may raise anything
        return f"such a {type(value).__name__}"


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
            raise EncodeError(f"{shown(tag)} is not a tag, which is an int of 32 bits")
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
