"""The engines agree, whatever they are given to parse or to build.

Rules:
- Valid input: the same values, the same bytes.
- Invalid bytes: all refuse them with a `DecodeError`; the machines at the same path and offset, in the same words.
- Invalid values: all refuse them with an `EncodeError` at the same path; the machines in the same words.
- Engines raise no other errors, and no input crashes them.

The quick tests use a sample of the messages; `make deep` uses all.
"""

import dataclasses
import functools
import io
import struct as packed
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from construct import Construct
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import reference, trees, wire
from ottla.codec.wire import Array, Boolean, Int16, Int32, Nested, String, message, struct
from ottla.codec.wire import wire as field
from ottla.errors import DecodeError, EncodeError, UnknownVersion
from tests.codec import strategies
from tests.codec.engines import ENGINES, Engine

REFERENCE = "construct"
IN_EVERY_VERSION = strategies.parameters([*strategies.EVERY_VERSION, *strategies.OLD])
IN_THE_OLDEST_AND_THE_NEWEST = strategies.parameters([*strategies.ENDS, *strategies.OLD])
IN_A_SAMPLE = strategies.parameters([*strategies.SAMPLE, *strategies.OLD])

# --- results of an engine


@dataclass(frozen=True)
class Done:
    """The result of parsing or building."""

    what: Any


@dataclass(frozen=True)
class Refused:
    """The error of parsing or building."""

    path: str
    offset: int
    reason: str


Outcome = Done | Refused


def parsed(engine: Engine, cls: type[Any], version: int, data: wire.Buffer, offset: int = 0) -> Outcome:
    try:
        value, end = engine.parse(cls, version, data, offset)
    except DecodeError as error:
        return Refused(error.path, error.offset, error.reason)
    return Done((shape(value), end))


def built(engine: Engine, value: Any, version: int) -> Outcome:
    try:
        return Done(engine.build(value, version))
    except EncodeError as error:
        return Refused(error.path, -1, error.reason)


def shape(value: Any) -> Any:
    """``value`` in a form in which equal values also have equal types; a view stands for its bytes."""
    if dataclasses.is_dataclass(value):
        return type(value), *(shape(getattr(value, each.name)) for each in dataclasses.fields(value))
    if isinstance(value, tuple):
        return tuple, *map(shape, value)
    if isinstance(value, uuid.UUID):
        return uuid.UUID, value.bytes
    if isinstance(value, Mapping):
        return Mapping, *((tag, shape(data)) for tag, data in sorted(value.items()))
    if isinstance(value, bytes | memoryview):
        return type(value), bytes(value)
    if isinstance(value, float):
        return float, packed.pack(">d", value)  # by its bytes: NaN is unequal to itself, and 0.0 equals -0.0
    return type(value), value


def agree_on_bytes(cls: type[Any], version: int, data: wire.Buffer, what: object, offset: int = 0) -> Outcome:
    """Parse with every engine and compare; ``what`` names the case if they differ."""
    outcomes = {name: parsed(engine, cls, version, data, offset) for name, engine in ENGINES.items()}
    reference = outcomes.pop(REFERENCE)
    for name, outcome in outcomes.items():
        if isinstance(reference, Refused):
            assert isinstance(outcome, Refused), f"{name} accepts bytes that the reference refuses: {what}"
        else:
            assert outcome == reference, f"{name} parses to another result: {what}"
    machines_agree(outcomes, what)
    return reference


def agree_on_value(value: Any, version: int, what: object) -> Outcome:
    """Build with every engine and compare."""
    outcomes = {name: built(engine, value, version) for name, engine in ENGINES.items()}
    reference = outcomes.pop(REFERENCE)
    for name, outcome in outcomes.items():
        if isinstance(reference, Refused):
            assert isinstance(outcome, Refused), f"{name} builds a value that the reference refuses: {what}"
            assert outcome.path == reference.path, f"{name}: {what}"
        else:
            assert outcome == reference, f"{name} builds another result: {what}"
    machines_agree(outcomes, what)
    return reference


def machines_agree(outcomes: Mapping[str, Outcome], what: object) -> None:
    assert len(set(outcomes.values())) <= 1, f"the machines differ: {what}"


# --- right values


@IN_EVERY_VERSION
@given(data=st.data())
@strategies.examples(3)
def test_the_same_values_and_the_same_bytes(cls: type[Any], version: int, data: st.DataObject) -> None:
    value = data.draw(strategies.messages(cls, version))
    outcome = agree_on_value(value, version, value)
    assert isinstance(outcome, Done), outcome
    parsed = agree_on_bytes(cls, version, outcome.what, outcome.what)
    assert parsed == Done((shape(value), len(outcome.what)))


@IN_A_SAMPLE
def test_any_buffer_from_any_offset(cls: type[Any], version: int) -> None:
    data = reference.build(strategies.example(strategies.tree(cls, version)), version)
    around = b"head" + data + b"tail"
    for buffer in (around, bytearray(around), memoryview(around), memoryview(bytearray(around)).toreadonly()):
        assert isinstance(agree_on_bytes(cls, version, buffer, type(buffer), 4), Done)
    agree_on_bytes(cls, version, memoryview(around)[1:-1], "a slice", 3)
    agree_on_bytes(cls, version, data, "nothing", len(data))
    for offset in (-1, len(data) + 1, 1 << 40):
        for engine in ENGINES.values():
            with pytest.raises(ValueError, match="lies outside"):
                engine.parse(cls, version, data, offset)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_a_version_that_does_not_exist_is_a_key_error(engine: Engine) -> None:
    for version in (-1, 3, 1 << 15, 1 << 70):
        with pytest.raises(UnknownVersion, match=f"Branch has versions 0-2, not {version}"):
            engine.parse(Branch, version, b"")
        with pytest.raises(UnknownVersion, match=f"Branch has versions 0-2, not {version}"):
            engine.build(branch([]), version)


# --- wrong bytes


@IN_EVERY_VERSION
def test_what_is_cut_at_any_byte(cls: type[Any], version: int) -> None:
    data = reference.build(strategies.example(strategies.tree(cls, version)), version)
    for size in range(len(data)):
        outcome = agree_on_bytes(cls, version, data[:size], data[:size])
        assert isinstance(outcome, Refused)
        assert outcome.path.startswith(f"{cls.__name__}.")
        assert 0 <= outcome.offset <= size


@IN_THE_OLDEST_AND_THE_NEWEST
def test_every_length_and_count_replaced_by_a_lie(cls: type[Any], version: int) -> None:
    data = reference.build(strategies.example(strategies.tree(cls, version)), version)
    for start, end, coding in lengths(cls, version, data):
        for lie in lies(coding, len(data) - end):
            damaged = data[:start] + lie + data[end:]
            agree_on_bytes(cls, version, damaged, f"{lie.hex()} at byte {start} of {data.hex()}")


@IN_EVERY_VERSION
@given(data=st.data())
@strategies.examples(2)
def test_bytes_damaged_anywhere(cls: type[Any], version: int, data: st.DataObject) -> None:
    whole = reference.build(data.draw(strategies.messages(cls, version)), version) or b"\0"
    damages = st.tuples(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=2), st.integers(0, 3))
    for at, put, cut in data.draw(st.lists(damages, min_size=10, max_size=20)):
        damaged = whole[:at] + put + whole[at + cut :]
        agree_on_bytes(cls, version, damaged, damaged.hex())


@IN_A_SAMPLE
@given(data=st.binary(max_size=60))
@strategies.examples(5)
def test_noise(cls: type[Any], version: int, data: bytes) -> None:
    agree_on_bytes(cls, version, data, data.hex())


def lengths(cls: type[Any], version: int, data: bytes) -> list[tuple[int, int, Construct]]:
    """The lengths, counts and other varints in ``data``: start, end, and their coding."""
    found: list[tuple[int, int, Construct]] = []

    def noting(parse: Callable[..., int], coding: Callable[[Any], Construct]) -> Callable[..., int]:
        def noted(node: Any, stream: io.BytesIO, *rest: Any) -> int:
            start = stream.tell()
            value = parse(node, stream, *rest)
            found.append((start, stream.tell(), coding(node)))
            return value

        return noted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees.Unsigned, "_parse", noting(trees.Unsigned._parse, lambda node: node))
        patch.setattr(trees.ZigZag, "_parse", noting(trees.ZigZag._parse, lambda node: node))
        patch.setattr(trees.Sized, "_parse_length", noting(trees.Sized._parse_length, lambda node: node.length))
        reference.parse(cls, version, data)
    return list(dict.fromkeys(found))


def lies(coding: Construct, left: int) -> list[bytes]:
    """Lengths that are impossible with ``left`` bytes behind them, and some that nearly are."""
    if isinstance(coding, trees.Integer):
        most = (1 << 8 * coding.length - 1) - 1
        return [n.to_bytes(coding.length, "big", signed=True) for n in (-2, -1, 0, most, -most - 1, left, left + 1)]
    unsigned = (0, 1, 2, 7, left, left + 1, left + 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
    coded = []
    for number in unsigned if isinstance(coding, trees.Unsigned) else (-2, -1, 0, left, left + 1, (1 << 31) - 1):
        coding._build(number, stream := io.BytesIO(), None, "")
        coded.append(stream.getvalue())
    overlong = [b"\x80\0", b"\x81\0", b"\x80" * 4 + b"\0", b"\x80" * 4 + b"\x10", b"\xff" * 5, b"\x80" * 9 + b"\x02"]
    return [*coded, *overlong, b"\xff" * 20]


# --- wrong values


class Index:
    """Not an int, but an object that `operator.index` accepts."""

    def __init__(self, index: Callable[[], Any] = lambda: 1) -> None:
        self.index = index

    def __index__(self) -> Any:
        return self.index()


class OddInt(int):
    """An int whose own methods must not be called."""

    def __index__(self) -> int:
        raise AssertionError("it is an int already")

    __int__ = __index__


class Incomparable:
    """Its comparison fails, like the comparison of numpy's arrays."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment] # so that nothing compares it behind our back

    def __repr__(self) -> str:
        return "Incomparable()"


class Unprintable:
    """Has no repr for an error's text."""

    def __repr__(self) -> str:
        raise ValueError("no words")


def wrong_values(node: Any) -> Iterator[Any]:
    """Values that mostly do not fit ``node``; if one fits, the engines must agree on its bytes."""
    yield from (None, True, 5, OddInt(6), 1.5, "text", b"bytes", bytearray(b"x"), (), [], {}, set(), 1 << 70)
    yield from (
        object(),
        Index(),
        Index(lambda: 1 << 90),
        Index(lambda: "x"),
        Index(lambda: 1 // 0),
        Incomparable(),
        Unprintable(),
        type,
        (None,),
        [Incomparable()],
        uuid.UUID(int=9),
    )
    yield from (-1, -(1 << 70), 127, 128, -128, -129, (1 << 15) - 1, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 63)
    if isinstance(node, trees.Text):
        yield from ("", "\ud800", "é漢\0\U0001f600", "x" * 127, "x" * 128, "é" * 16383, "é" * 16384, "x" * 32768)
    elif isinstance(node, trees.Blob):
        released = memoryview(b"gone")
        released.release()
        yield from (released, memoryview(b"abcd")[::2], memoryview(bytes(8)).cast("i"), memoryview(b"")[0:0])
    elif isinstance(node, trees.Sequence):
        right = strategies.example(node.item)
        yield from ([right, right], (right, None), [right, object()], iter(()))
    elif isinstance(node, trees.Structure):
        yield from (node.cls, dataclasses.make_dataclass(node.cls.__name__, [])())


WRONG_TAGS: tuple[Any, ...] = (
    *(None, [], [1], 5, "x", (), {77: b"right"}, types.MappingProxyType({77: b"right"}), {1 << 31: b""}),
    *({-1: b""}, {1 << 32: b""}, {1 << 70: b""}, {"77": b""}, {77.0: b""}, {None: b""}, {True: b""}, {OddInt(8): b""}),
    *({77: "text"}, {77: None}, {77: bytearray(b"x")}, {77: memoryview(b"x")}, {77: 5}, {78: b"x", 77: b"y"}),
    *({0: b""}, {1: b""}, {2: b""}, {Incomparable: b""}, {77: Incomparable()}),
)


def places(value: Any, node: trees.Structure) -> Iterator[tuple[Any, str, Any]]:
    """Every field of a message and of the structs in it: the struct, the name, and the node (`Field` where absent)."""
    for absent in node.absent:
        yield value, absent.name, absent
    for name, child in (*node.members, *((each.name, each.node) for each in node.tagged or ())):
        yield value, name, child
        inner, item = getattr(value, name), child
        if isinstance(child, trees.Sequence):
            [inner], item = inner, child.item
        if isinstance(item, trees.Structure):
            yield from places(inner, item)


@IN_THE_OLDEST_AND_THE_NEWEST
def test_values_that_do_not_fit_anywhere(cls: type[Any], version: int) -> None:
    node = strategies.tree(cls, version)
    value = strategies.example(node)
    for holder, name, child in places(value, node):
        right = getattr(holder, name)
        for wrong in wrong_values(child):
            setattr(holder, name, wrong)
            agree_on_value(value, version, f"{type(holder).__name__}.{name} = {type(wrong).__name__}")
        setattr(holder, name, right)


@IN_THE_OLDEST_AND_THE_NEWEST
def test_slots_that_were_deleted_and_tags_that_cannot_be(cls: type[Any], version: int) -> None:
    node = strategies.tree(cls, version)
    value = strategies.example(node)
    holders: dict[int, Any] = {id(value): value}
    for holder, name, _ in places(value, node):
        holders[id(holder)] = holder
        right = getattr(holder, name)
        delattr(holder, name)
        outcome = agree_on_value(value, version, f"{type(holder).__name__}.{name} deleted")
        if hasattr(holder, name):  # a struct's attribute, which now is its default
            assert isinstance(outcome, Done)
        else:
            assert isinstance(outcome, Refused)
            assert outcome.path.endswith(f".{name}") or "compared" in outcome.reason
        setattr(holder, name, right)
    for holder in holders.values():
        right = holder.unknown_tags
        for wrong in WRONG_TAGS:
            holder.unknown_tags = wrong
            agree_on_value(value, version, f"{type(holder).__name__}.unknown_tags = {wrong!r:.80}")
        del holder.unknown_tags
        outcome = agree_on_value(value, version, f"{type(holder).__name__}.unknown_tags deleted")
        assert isinstance(outcome, Refused)
        holder.unknown_tags = right


# --- values that change while they are built


@struct
class Leaf:
    note: str = field(String, "1+", default="")
    id: int = field(Int32)


@struct
class Twig:
    leaf: Leaf = field(Nested(Leaf), "1+", default=Leaf(id=0))
    ids: tuple[int, ...] = field(Array(Int16), "1+", default=())


@message(key=-1, versions="0-2", flexible="2+")
class Branch:
    leaves: tuple[Leaf, ...] | list[Leaf] = field(Array(Leaf))
    numbers: tuple[int, ...] = field(Array(Int16), "2+", default=(1,), tag=0, ignorable=True)
    bud: Leaf = field(Nested(Leaf), "2+", default=Leaf(id=0), tag=1, ignorable=True)
    twig: Twig | None = field(Nested(Twig), "2+", null="2+", default=None)
    last: bool = field(Boolean, default=False)


def branch(leaves: Any, **fields: Any) -> Branch:
    return Branch(leaves=leaves, **fields)


class Meddler:
    """Equal to any value; each comparison calls a function."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        self.meddle = meddle

    def __eq__(self, other: object) -> bool:
        self.meddle()
        return True

    __hash__ = None  # type: ignore[assignment] # it is compared, not looked up

    def __repr__(self) -> str:
        return "Meddler()"


def meddled(meddle: Callable[[list[Any]], object]) -> Iterator[tuple[Branch, str]]:
    """Messages with a list, one element of which calls ``meddle`` with it when built; and the path of the list."""
    for at in range(3):
        leaves: list[Any] = [Leaf(id=1), Leaf(id=2), Leaf(id=3)]
        leaves[at].note = Meddler(functools.partial(meddle, leaves))  # version 0 only compares it
        yield branch(leaves), "Branch.leaves"
        leaves = [Leaf(id=1), Leaf(id=2), Leaf(id=3)]
        leaves[at].id = Index(functools.partial(meddle, leaves))
        yield branch(leaves), "Branch.leaves"


def clear(items: list[Any]) -> int:
    items.clear()
    return 1


def pop(items: list[Any]) -> int:
    items.pop()
    return 1


def append(items: list[Any]) -> int:
    items.append(items[0])
    return 1


def move(items: list[Any]) -> int:
    items.extend(Leaf(id=4) for _ in range(1000))
    return 1


def replace(items: list[Any]) -> int:
    items[:] = [Leaf(id=7) for _ in items]
    return 1


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
@pytest.mark.parametrize("meddle", [clear, pop, append, move])
def test_a_list_that_changes_its_length_meanwhile_is_refused(
    engine: Engine, meddle: Callable[[list[Any]], object]
) -> None:
    for value, path in meddled(meddle):
        with pytest.raises(EncodeError, match="changed") as caught:
            engine.build(value, 0)
        # The machine parses again to find the path; if that succeeds, it cannot say more.
        # The second parse may meet changed values, and succeed.
        assert caught.value.path in (path, "Branch")


def test_a_list_of_a_tagged_field_is_compared_and_then_built() -> None:
    def numbers(meddle: Callable[[list[Any]], object]) -> Branch:
        items: list[Any] = [5, 6]
        items[0] = Meddler(lambda: meddle(items))
        return branch((), numbers=items)

    for meddle in (clear, pop, append):
        outcomes = {name: built(engine, numbers(meddle), 2) for name, engine in ENGINES.items()}
        assert len({type(outcome) for outcome in outcomes.values()}) == 1


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_elements_replaced_meanwhile_do_no_harm(engine: Engine) -> None:
    for value, _ in meddled(replace):
        outcome = built(engine, value, 0)
        assert isinstance(outcome, Done)
        assert len(outcome.what) == 4 + 3 * 4 + 1


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_a_field_deleted_meanwhile_is_missed(engine: Engine) -> None:
    def drop() -> None:
        if hasattr(leaf, "id"):  # an engine may compare any number of times
            del leaf.id

    leaf = Leaf(id=1)
    leaf.note = Meddler(drop)  # type: ignore[assignment] # on purpose
    with pytest.raises(EncodeError, match="missing") as caught:
        engine.build(branch((leaf,)), 0)
    assert caught.value.path == "Branch.leaves[0].id"


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_a_value_that_lets_go_of_itself_while_it_is_compared(engine: Engine) -> None:
    leaf = Leaf(id=1)
    leaf.note = Meddler(lambda: setattr(leaf, "note", ""))  # type: ignore[assignment] # on purpose
    assert engine.build(branch((leaf,)), 0) == bytes.fromhex("00000001 00000001 00")
    tagged = branch(())
    tagged.numbers = Meddler(lambda: setattr(tagged, "numbers", (1,)))  # type: ignore[assignment] # on purpose
    assert engine.build(tagged, 2) == bytes.fromhex("01 ff 00 00")


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_a_comparison_that_fails_is_a_value_that_does_not_fit(engine: Engine) -> None:
    incomparable: Any = Incomparable()
    for value, version, path in (
        (branch((Leaf(id=1, note=incomparable),)), 0, "leaves[0].note"),
        (branch((), numbers=incomparable), 2, "numbers"),
        (branch((), numbers=[incomparable]), 2, "numbers"),
        (branch((), bud=Leaf(id=incomparable)), 2, "bud"),
        (branch((), twig=incomparable), 1, "twig"),
        (branch((), twig=Twig(ids=(incomparable,))), 2, "twig.ids[0]"),
    ):
        with pytest.raises(EncodeError) as caught:
            engine.build(value, version)
        assert caught.value.path == f"Branch.{path}"
