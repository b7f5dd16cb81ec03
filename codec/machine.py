"""Runs the programs of `program.py` in Python, if the extension is not built, by generating source code from them.

Theory of operation. `_Reader` and `_Writer` walk a program once, and write a function that does what its ops say.
Everything known beforehand is resolved: neighbouring numbers are one `struct.unpack_from`, arrays of structs are loops
in place, defaults are constants. The functions are compiled when a message is first used.

Rules:
- The generated code relies on Python's own checks: an index past the end (`IndexError`), truncated numbers
  (`struct.error`), bad UTF-8. But a slice past the end is silently short, so each function checks once, at its end,
  whether it went too far. Counts are compared with the bytes that are left before they are used.
- Whatever error it raises, the reference then parses or builds the same again, and explains the error. So
  both report the same errors, and the generated code tracks no paths. (So bad bytes cost as much as the reference,
  which is some ten times slower, but still linear.)
"""

import contextlib
import functools
import operator
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from ottla.codec import wire
from ottla.codec.ops import LETTERS, Code, Op, Program, TaggedField
from ottla.codec.program import program
from ottla.codec.wire import NO_TAGS, UNKNOWN_TAGS, Buffer, Declared, M, Part, Unread, in_memory


def parse(cls: type[M], version: int, data: Buffer, offset: int = 0) -> tuple[M, int]:
    """Parse as `reference.parse` does."""
    read = parser(cast(Any, cls), version)
    try:
        return cast(tuple[M, int], read(data if type(data) is bytes else _whole(data), offset, data))
    except Exception as error:  # the reference explains the error, and decides if the two disagree
        error.with_traceback(None)  # releases the objects parsed so far
    from ottla.codec import reference  # only for an error: it needs construct

    return reference.parse(cls, version, data, offset)


def build(value: Declared, version: int) -> bytes:
    """Build as `reference.build` does."""
    return _joined(_pieces(value, version))


def build_parts(value: Declared, version: int, least: int) -> list[Part]:
    """Build ``value`` in parts, so that large fields need not be copied.

    A bytes field of at least ``least`` bytes is a part of its own: the same object, or for a memoryview another view of
    the same memory.
    """
    alone = False
    parts: list[list[Part]] = []
    for piece in _pieces(value, version):
        if not parts or alone or len(piece) >= least:
            parts.append([])
        parts[-1].append(piece)
        alone = len(piece) >= least
    return [each[0] if len(each) == 1 else _joined(each) for each in parts]


def _pieces(value: Declared, version: int) -> list[Part]:
    write = builder(cast(Any, type(value)), version)
    try:
        return cast(list[Part], write(value))
    except MemoryError:
        raise
    except Exception:  # the reference explains the error
        from ottla.codec import reference

        raise reference.misfit(value, version) from None


@functools.cache
def parser(cls: Any, version: int) -> Callable[..., Any]:
    """Return a function ``(bytes, offset, data as the caller gave it) -> (message, end)``."""
    return _Reader(program(cls, version)).compiled()


@functools.cache
def builder(cls: Any, version: int) -> Callable[..., Any]:
    """Return a function ``(message) -> list of bytes``; the message is their concatenation."""
    return _Writer(program(cls, version)).compiled()


class Bad(Exception):
    """The generated code found an error that Python does not notice itself."""


class _GeneratedCode:
    """Collects lines of Python source, and the constants that they use."""

    def __init__(self, program: Program, head: str) -> None:
        self._title = f"<{type(self).__name__} of {program.cls.__name__}>"
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self.constants: dict[str, Any] = {}
        with self.block(head):
            self.body(program)

    def body(self, program: Program) -> None:
        raise NotImplementedError

    def __call__(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        self(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def named(self, value: Any, prefix: str) -> str:
        """Return a name for ``value``."""
        self.constants[name := self.fresh(prefix)] = value
        return name

    def constant(self, value: Any, prefix: str) -> str:
        """Return a literal for ``value``, or a name if it has none."""
        literal = value is None or type(value) in (bool, int, str, bytes) or value == ()
        return repr(value) if literal else self.named(value, prefix)

    def compiled(self) -> Callable[..., Any]:
        namespace = {**_SHARED, **self.constants}
        exec(compile("\n".join(self._lines), self._title, "exec"), namespace)
        return cast(Callable[..., Any], namespace["run"])


def _runs(fields: tuple[tuple[str, Op], ...]) -> Iterator[list[tuple[str, Op]]]:
    """Group the fields so that neighbours of fixed size are together."""
    run: list[tuple[str, Op]] = []
    for name, op in fields:
        if run and not (op.code in LETTERS and run[-1][1].code in LETTERS):
            yield run
            run = []
        run.append((name, op))
    if run:
        yield run


class _Reader(_GeneratedCode):
    """Generates a reader. In its code ``data`` are the bytes, ``size`` their number, ``at`` where the next value is."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, "def run(data, at, source):")

    def body(self, program: Program) -> None:
        self("size = len(data)")
        self("if not 0 <= at <= size: raise Bad")
        self("view = memoryview(source).cast('B')" if _has_window(program) else "view = None")
        made = self.struct(program)
        self("if at > size: raise Bad")
        self(f"return {made}, at")

    def struct(self, program: Program) -> str:
        """Write code that reads a struct; return the variable that holds it."""
        made = self.fresh("made")
        self(f"{made} = new({self.constant(program.cls, 'cls')})")
        for absent in program.absent:
            self.default(f"{made}.{absent.name}", absent.default)
        for run in _runs(program.fields):
            if run[0][1].code in LETTERS:
                layout = struct.Struct(">" + "".join(LETTERS[op.code] for _, op in run))
                targets = "".join(f"{made}.{name}, " for name, _ in run)
                self(f"{targets}= {self.constant(layout.unpack_from, 'unpack')}(data, at)")
                self(f"at += {layout.size}")
            else:
                for name, op in run:
                    self.value(f"{made}.{name}", op)
        if program.tagged is None:
            self(f"{made}.{UNKNOWN_TAGS} = NO_TAGS")
        else:
            self.tags(made, program.tagged)
        return made

    def default(self, target: str, default: Any) -> None:
        """Write code that sets a default. A default that is a struct is only made on access, see `wire.struct`."""
        if not hasattr(default, "__wire__"):
            self(f"{target} = {self.constant(default, 'default')}")

    def value(self, target: str, op: Op) -> None:
        """Write code that reads a value into ``target``."""
        match op.code:
            case Code.STRING | Code.BYTES | Code.WINDOW:
                self.length(op)
                with self.unless_null(target, op):
                    self("end = at + n")
                    self(f"{target} = {_TAKE[op.code]}")
                    self("at = end")
            case Code.ARRAY:
                self.length(op)
                with self.unless_null(target, op):
                    assert op.item is not None  # every array has
                    self(f"if n * {op.item.least} > size - at: raise Bad")
                    self.array(target, op.item)
            case Code.STRUCT:
                assert op.program is not None  # every struct has
                if op.null:
                    self.integer("n", op.length)
                    with self.block(f"if n {'>' if op.length == Code.UNSIGNED else '>='} 0:"):
                        self(f"{target} = {self.struct(op.program)}")
                    with self.block("else:"):
                        self(f"{target} = None")
                else:
                    self(f"{target} = {self.struct(op.program)}")
            case Code.UUID:
                self(f"{target} = uuid_of(data[at:at + 16])")
                self("at += 16")
            case _:
                self.integer(target, op.code)

    def array(self, target: str, item: Op) -> None:
        """Write code that reads ``n`` elements."""
        if item.code in LETTERS:
            self(f"{target} = unpack_from('>%d{LETTERS[item.code]}' % n, data, at)")
            self(f"at += n * {item.least}")
            return
        items, element = self.fresh("items"), self.fresh("each")
        self(f"{items} = []")
        with self.block("for _ in range(n):"):
            self.value(element, item)
            self(f"{items}.append({element})")
        self(f"{target} = tuple({items})")

    def integer(self, target: str, code: Code) -> None:
        if code in LETTERS:
            layout = struct.Struct(">" + LETTERS[code])
            self(f"{target}, = {self.constant(layout.unpack_from, 'unpack')}(data, at)")
            self(f"at += {layout.size}")
            return
        if code == Code.ZIGZAG64:
            self(f"{target}, at = zigzag64(data, at)")
            return
        self(f"{target} = data[at]")
        self("at += 1")
        self(f"if {target} > 127: {target}, at = varint(data, at, {target})")
        if code == Code.ZIGZAG32:
            self(f"{target} = ({target} >> 1) ^ -({target} & 1)")

    def length(self, op: Op) -> None:
        if op.length == Code.UNSIGNED:
            self("n = data[at] - 1")
            self("at += 1")
            self(f"if n > 126: n, at = length(data, at, n + 1, {op.longest})")
        else:
            self.integer("n", op.length)

    @contextlib.contextmanager
    def unless_null(self, target: str, op: Op) -> Iterator[None]:
        if not op.null:
            self("if n < 0: raise Bad")
            yield
            return
        with self.block("if n < 0:"):
            self("if n != -1: raise Bad")
            self(f"{target} = None")
        with self.block("else:"):
            yield

    def tags(self, made: str, tagged: tuple[TaggedField, ...]) -> None:
        for each in tagged:
            self.default(f"{made}.{each.name}", each.default)
        self(f"{made}.{UNKNOWN_TAGS} = NO_TAGS")
        count, tag, last, end, unknown = (self.fresh(each) for each in ("count", "tag", "last", "end", "unknown"))
        self.integer(count, Code.UNSIGNED)
        with self.block(f"if {count}:"):
            self(f"{last}, {unknown} = -1, {{}}")
            with self.block(f"for _ in range({count}):"):
                self.integer(tag, Code.UNSIGNED)
                self.integer("n", Code.UNSIGNED)
                self(f"if {tag} <= {last}: raise Bad")
                self(f"{last}, {end} = {tag}, at + n")
                for each in tagged:
                    with self.block(f"{'if' if each is tagged[0] else 'elif'} {tag} == {each.tag}:"):
                        self.value(f"{made}.{each.name}", each.op)
                with self.block("else:" if tagged else "if True:"):
                    self(f"{unknown}[{tag}] = data[at:{end}]")
                    self(f"at = {end}")
                self(f"if at != {end}: raise Bad")
            self(f"if {unknown}: {made}.{UNKNOWN_TAGS} = {unknown}")


_TAKE = {Code.STRING: "data[at:end].decode()", Code.BYTES: "data[at:end]", Code.WINDOW: "view[at:end]"}


def _has_window(program: Program) -> bool:
    def inside(op: Op | None) -> bool:
        return op is not None and (
            op.code == Code.WINDOW or inside(op.item) or (op.program is not None and _has_window(op.program))
        )

    return any(inside(op) for _, op in program.fields) or any(inside(each.op) for each in program.tagged or ())


class _Writer(_GeneratedCode):
    """Generates a writer. In its code ``put`` appends a part of the bytes; each tagged field has its own ``put``."""

    def __init__(self, program: Program) -> None:
        self._put = "put"
        super().__init__(program, "def run(value):")

    def body(self, program: Program) -> None:
        self("parts = []")
        self("put = parts.append")
        self.struct("value", program)
        self("return parts")

    def struct(self, made: str, program: Program) -> None:
        """Write code that builds the struct in the variable ``made``."""
        self(f"if {made}.__class__ is not {self.constant(program.cls, 'cls')}: raise Bad")
        for absent in program.absent:
            if absent.ignorable:
                self(f"{made}.{absent.name}")  # raises if the attribute is missing
                continue
            with self.if_sent(f"{made}.{absent.name}", absent.default):
                self("raise Bad")
        for run in _runs(program.fields):
            if run[0][1].code in LETTERS:
                for name, op in run:
                    self.check(f"{made}.{name}", op)
                layout = struct.Struct(">" + "".join(LETTERS[op.code] for _, op in run))
                values = ", ".join(f"{made}.{name}" for name, _ in run)
                self(f"{self._put}({self.constant(layout.pack, 'pack')}({values}))")
            else:
                for name, op in run:
                    self.value(f"{made}.{name}", op)
        self.tags(made, program.tagged)

    def check(self, value: str, op: Op) -> None:
        """Write code that refuses values that `struct` would accept."""
        if op.code == Code.BOOL:
            self(f"if {value}.__class__ is not bool: raise Bad")
        elif op.code == Code.FLOAT64:
            self(f"if not isinstance({value}, (int, float)): raise Bad")

    @contextlib.contextmanager
    def if_sent(self, value: str, default: Any) -> Iterator[None]:
        name = self.named(default, "default")
        with self.block(f"if {value} is not {name} and differs({value}, {name}):"):
            yield

    def value(self, value: str, op: Op) -> None:
        """Write code that builds the value of the expression ``value``."""
        local = self.fresh("value")
        self(f"{local} = {value}")
        if op.null:
            with self.block(f"if {local} is None:"):
                self.integer("-1" if op.length != Code.UNSIGNED else "0", op.length)
            with self.block("else:"):
                if op.code == Code.STRUCT:
                    self(f"{self._put}(b'\\1')")
                self.present(local, op)
        else:
            self.present(local, op)

    def present(self, local: str, op: Op) -> None:
        """Write code that builds the value of the variable ``local``, which is not null."""
        match op.code:
            case Code.STRING:
                self(f"{local} = encode({local})")
                self.length(local, op)
                self(f"{self._put}({local})")
            case Code.BYTES | Code.WINDOW:
                self(f"if {local}.__class__ is not bytes: {local} = contiguous({local})")
                self.length(local, op)
                self(f"{self._put}({local})")
            case Code.ARRAY:
                assert op.item is not None  # every array has
                given = self.fresh("given")
                self(f"{given} = {local}")
                self(f"if {local}.__class__ is not tuple: {local} = as_tuple({local})")
                self.length(local, op)
                self.array(local, op.item)
                self(f"if len({given}) != len({local}): raise Bad")  # the list was changed meanwhile
            case Code.STRUCT:
                assert op.program is not None  # every struct has
                self.struct(local, op.program)
            case Code.UUID:
                self(f"{self._put}(bytes_of_uuid({local}))")
            case _:
                self.check(local, op)
                self.integer(local, op.code)

    def array(self, local: str, item: Op) -> None:
        if item.code in LETTERS and item.code not in (Code.BOOL, Code.FLOAT64):
            self(f"if {local}: {self._put}(pack('>%d{LETTERS[item.code]}' % len({local}), *{local}))")
            return
        element = self.fresh("each")
        with self.block(f"for {element} in {local}:"):
            self.value(element, item)

    def length(self, local: str, op: Op) -> None:
        """Write code that builds the length of ``local``; `struct` refuses a length that is too large."""
        if op.length == Code.UNSIGNED:
            self(f"n = len({local}) + 1")
            self(f"{self._put}(ONE_BYTE[n] if n < 128 else long(n, {op.longest}))")
        else:
            self.integer(f"len({local})", op.length)

    def integer(self, value: str, code: Code) -> None:
        match code:
            case Code.UNSIGNED:
                self(f"{self._put}(unsigned({value}))")
            case Code.ZIGZAG32 | Code.ZIGZAG64:
                self(f"{self._put}(zigzag({value}, {32 if code == Code.ZIGZAG32 else 64}))")
            case _:
                layout = struct.Struct(">" + LETTERS[code])
                self(f"{self._put}({self.constant(layout.pack, 'pack')}({value}))")

    def tags(self, made: str, tagged: tuple[TaggedField, ...] | None) -> None:
        if tagged is None:
            self(f"if {made}.{UNKNOWN_TAGS} is not NO_TAGS and fit({made}.{UNKNOWN_TAGS}, {{}}): raise Bad")
            return
        known = self.named({each.tag: each.name for each in tagged}, "known")
        tags, outer = self.fresh("tags"), self._put
        self(f"{tags} = {made}.{UNKNOWN_TAGS}")
        self(f"{tags} = {{}} if {tags} is NO_TAGS else fit({tags}, {known})")
        for each in tagged:
            with self.if_sent(f"{made}.{each.name}", each.default):
                parts = self.fresh("parts")
                self._put = f"{parts}.append"
                self(f"{parts} = []")
                self.value(f"{made}.{each.name}", each.op)
                self(f"{tags}[{each.tag}] = joined({parts})")
        self._put = outer
        self(f"{outer}(tag_bytes({tags}) if {tags} else b'\\0')")


# ---------------------------------------------------------------------------------------------------------------------
# Functions that the generated code calls.


def _varint(data: bytes, at: int, first: int, bits: int = 32) -> tuple[int, int]:
    """Return the unsigned varint that begins with the byte ``first``, which has its high bit set, and where it ends."""
    value = first & 0x7F
    for shift in range(7, bits, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, at
    raise Bad


def _length(data: bytes, at: int, first: int, longest: int) -> tuple[int, int]:
    """Return the length that begins with the byte ``first``, and where it ends."""
    value, at = _varint(data, at, first)
    if value - 1 > longest:
        raise Bad
    return value - 1, at


def _zigzag64(data: bytes, at: int) -> tuple[int, int]:
    value, at = data[at], at + 1
    if value > 0x7F:
        value, at = _varint(data, at, value, 64)
    return (value >> 1) ^ -(value & 1), at


_UUID_SLOTS: Any = vars(uuid.UUID)
_set_int, _set_safety = _UUID_SLOTS["int"].__set__, _UUID_SLOTS["is_safe"].__set__


def _whole(data: Buffer) -> bytes:
    with memoryview(data) as view:
        if not view.c_contiguous:
            raise Bad
        return bytes(view)


def _uuid_of(data: bytes) -> uuid.UUID:
    if len(data) != 16:
        raise Bad
    if data == wire.NO_UUID.bytes:
        return wire.NO_UUID
    # The same as UUID.__init__, in a third of the time.
    made = object.__new__(uuid.UUID)
    _set_int(made, int.from_bytes(data, "big"))
    _set_safety(made, uuid.SafeUUID.unknown)
    return made


def _bytes_of_uuid(value: Any) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise Bad
    return int.to_bytes(value.int, 16, "big")


def _unsigned(value: int) -> bytes:
    if not 0 <= value < 1 << 32:
        raise Bad
    return _leb128(value)


def _long(length: int, longest: int) -> bytes:
    """Return the compact form of a length, which is the length plus one."""
    if length - 1 > longest:
        raise Bad
    return _leb128(length)


def _leb128(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: Any, bits: int) -> bytes:
    value = operator.index(value)
    if not -1 << (bits - 1) <= value < 1 << (bits - 1):
        raise Bad
    return _leb128((value << 1) ^ (value >> (bits - 1)))


def _contiguous(value: Any) -> bytes | memoryview | Unread:
    match value:
        case Unread():
            return value
        case memoryview():
            return value.cast("B")
        case bytes() | bytearray():
            return bytes(value)  # a bytearray could still be changed
    raise Bad


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise Bad
    return tuple(value)


def _joined(pieces: list[Part]) -> bytes:
    return b"".join(in_memory(pieces))


def _tag_bytes(tags: Mapping[int, bytes]) -> bytes:
    parts = [_leb128(len(tags))]
    for tag in sorted(tags):
        parts += (_leb128(tag), _leb128(len(tags[tag])), tags[tag])
    return b"".join(parts)


_SHARED: dict[str, Any] = {
    "Bad": Bad,
    "NO_TAGS": NO_TAGS,
    "ONE_BYTE": [bytes((each,)) for each in range(128)],
    "as_tuple": _as_tuple,
    "bytes_of_uuid": _bytes_of_uuid,
    "joined": _joined,
    "contiguous": _contiguous,
    "differs": wire.differs,
    "encode": str.encode,
    "fit": wire.unknown_tags_of,
    "length": _length,
    "long": _long,
    "new": object.__new__,
    "pack": struct.pack,
    "tag_bytes": _tag_bytes,
    "unpack_from": struct.unpack_from,
    "unsigned": _unsigned,
    "uuid_of": _uuid_of,
    "varint": _varint,
    "zigzag": _zigzag,
    "zigzag64": _zigzag64,
}
