"""Letting records in: each goes into the batch of its partition or is left to the caller, alike in each engine."""

import gc
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, repeat
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import EncodeError
from tests.codec.record_engines import LOOPS

NOW = 1_700_000_000_000
PLACES = ("murmur2_partition", "crc32_partition", "fnv1a_partition", "fnv1a_reference_partition")


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest) -> ModuleType:
    return LOOPS[request.param]


def intake(loops: ModuleType, *rooms: int, free: int = 1 << 20, hash: Any = None, topic: str = "t") -> Any:
    """With one topic, whose partitions have room for so many bytes; records without a key go to the first."""
    made = loops.Intake(hash or loops.murmur2_partition, free)
    lane = made.lanes[topic] = loops.Lane(len(rooms))
    lane.slots = [loops.Slot(loops.OpenBatch(loops.Appender(), room)) for room in rooms]
    lane.sticky = lane.slots[0]
    return made


def state(made: Any) -> list[Any]:
    """All that can be seen of it."""
    batches = [slot.open for lane in made.lanes.values() for slot in lane.slots if slot is not None]
    return [made.free, *((each.left, each.told, each.stamps, bytes(each.builder.body)) for each in batches)]


@pytest.mark.parametrize("place", PLACES)
def test_a_key_goes_where_its_hash_says(loops: ModuleType, place: str) -> None:
    hash = getattr(loops, place)
    made = intake(loops, *repeat(10_000, 7), hash=hash)
    keys = [b"key-%d" % number for number in range(100)]
    assert all(made.put("t", b"", key, NOW) for key in keys)
    counts = [slot.open.builder.count for slot in made.lanes["t"].slots]
    assert counts == [sum(hash(key, 7) == each for key in keys) for each in range(7)]


def test_a_record_takes_from_its_batch_and_from_all(loops: ModuleType) -> None:
    made = intake(loops, 100, free=150)
    assert made.put("t", b"12345", None, NOW, "somebody") and made.put("t", None, b"key", NOW + 1)
    [slot] = made.lanes["t"].slots
    assert (slot.open.left, made.free) == (100 - 37 - 35, 150 - 37 - 35)
    assert (slot.open.told, slot.open.stamps) == (["somebody"], [NOW])
    assert not made.put("t", b"", None, NOW)  # no room in the batch
    slot.open = loops.OpenBatch(loops.Appender(), 1000)
    assert made.put("t", b"", None, NOW, "another") and made.put("t", b"", None, NOW)
    assert not made.put("t", b"", None, NOW)  # no room in all
    assert slot.open.builder.count == 2 and slot.open.told == ["another"] and made.free == 150 - 37 - 35 - 64


def test_whom_to_tell_stands_at_the_number_of_the_record(loops: ModuleType) -> None:
    made = intake(loops, 1000)
    for number in range(5):
        made.put("t", b"", None, NOW + number, number if number in (1, 3) else None)
    batch = made.lanes["t"].slots[0].open
    assert batch.told == [None, 1, None, 3] and batch.stamps == [0, NOW + 1, 0, NOW + 3]


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int


def test_everybody_is_told_where_their_record_is_and_nobody_keeps_the_others_from_it(loops: ModuleType) -> None:
    heard: list[Any] = []
    raised: list[Any] = []

    def broken(place: Place) -> None:
        raise KeyError(place.offset)

    made = intake(loops, 1000)
    for number, told in enumerate((heard.append, None, broken, heard.append, None)):
        made.put("t", b"", None, NOW + number, told)
    batch = made.lanes["t"].slots[0].open
    batch.tell(Place, "t", 3, 70, -1, lambda *failure: raised.append(failure))
    assert heard == [Place("t", 3, 70, NOW), Place("t", 3, 73, NOW + 3)] and type(heard[0]) is Place
    [(error, place)] = raised
    assert error.args == (72,) and place == Place("t", 3, 72, NOW + 2)
    heard.clear()
    batch.tell(Place, "t", 3, -1, 5, lambda *failure: None)
    assert heard == [Place("t", 3, -1, 5)] * 2


def test_who_is_told_may_change_the_list_or_end_it_all(loops: ModuleType) -> None:
    made = intake(loops, 1000)
    batch = made.lanes["t"].slots[0].open
    for each in (lambda place: batch.told.clear(), pytest.fail):
        made.put("t", b"", None, NOW, each)
    batch.tell(Place, "t", 0, 0, -1, pytest.fail)

    def interrupt(place: Place) -> None:
        raise KeyboardInterrupt

    made = intake(loops, 1000)
    made.put("t", b"", None, NOW, interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.lanes["t"].slots[0].open.tell(Place, "t", 0, 0, -1, pytest.fail)


@pytest.mark.skipif("c" not in LOOPS, reason="the extension is not built")
@pytest.mark.parametrize(
    "make", [int, list, tuple, "Place", time.struct_time, NamedTuple("Two", [("a", int), ("b", int)])]
)
def test_what_is_no_named_tuple_is_not_filled(make: Any) -> None:
    batch = intake(LOOPS["c"], 1000).lanes["t"].slots[0].open
    with pytest.raises(TypeError, match="no named tuple"):
        batch.tell(make, "t", 0, 0, -1, pytest.fail)


def liar(key: bytes, partitions: int) -> Any:
    return {b"raises": key, b"beyond": partitions, b"before": -1, b"none": None}[key] if key != b"raises" else 1 // 0


@pytest.mark.parametrize(
    ("topic", "value", "key"),
    [
        ("unknown", b"", None),
        (["t"], b"", None),
        ("t", "text", None),
        ("t", b"", "text"),
        ("t", bytearray(b"1"), None),
        ("t", b"", b""),
        ("t", b"", b"unsent"),
        *(("lied", b"", key) for key in (b"raises", b"beyond", b"before", b"none")),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_caller(loops: ModuleType, topic: Any, value: Any, key: Any) -> None:
    made = intake(loops, 1000, hash=liar if topic == "lied" else None, topic="lied" if topic == "lied" else "t")
    if key == b"unsent":
        made.lanes["t"].slots[0] = None
    before = state(made)
    assert made.put(topic, value, key, NOW) is False
    assert made.put_many(topic, iter([(value, key)]), NOW) == (value, key)
    assert state(made) == before


def test_without_lanes_or_a_hash_nothing_is_put(loops: ModuleType) -> None:
    made = intake(loops, 1000)
    made.lanes = {}
    assert made.put("t", b"", None, NOW) is False
    bare = loops.Intake(None, 1000)
    bare.lanes = intake(loops, 1000).lanes
    assert bare.put("t", b"", b"key", NOW) is False and bare.put("t", b"", None, NOW) is True


def test_a_timestamp_that_is_none_is_refused_and_nothing_is_taken(loops: ModuleType) -> None:
    made = intake(loops, 1000)
    for bad in ("now", 1 << 63, None):
        with pytest.raises(EncodeError):
            made.put("t", b"", None, bad, "somebody")
    assert state(made) == state(intake(loops, 1000))


def test_many_are_put_until_one_cannot_be_or_as_many_as_asked_for(loops: ModuleType) -> None:
    made = intake(loops, 32 * 10 + 10)
    pairs: Iterator[tuple[bytes | None, bytes | None]] = zip((b"%d" % number for number in count()), repeat(None))
    assert made.put_many("t", pairs, NOW, None, 4) == ()
    assert made.put_many("t", pairs, NOW, None, 0) == ()
    assert made.put_many("t", pairs, NOW) == (b"10", None)
    assert next(pairs) == (b"11", None)
    made.lanes["t"].slots[0].open = loops.OpenBatch(loops.Appender(), 1000)
    assert made.put_many("t", iter([(b"12", None), (b"13", None)]), NOW, "each") is None
    assert made.lanes["t"].slots[0].open.told == ["each", "each"]


def test_what_the_pairs_raise_comes_out_and_what_was_put_stays(loops: ModuleType) -> None:
    def broken() -> Iterator[tuple[bytes, None]]:
        yield b"1", None
        raise KeyError("mine")

    made = intake(loops, 1000)
    with pytest.raises(KeyError, match="mine"):
        made.put_many("t", broken(), NOW)
    with pytest.raises(ValueError, match="shorter"):
        made.put_many("t", zip([b"2", b"3"], [None], strict=True), NOW)
    assert made.lanes["t"].slots[0].open.builder.count == 2


def test_pairs_may_change_everything_meanwhile(loops: ModuleType) -> None:
    made = intake(loops, 1000)

    def mischief() -> Iterator[tuple[bytes, None]]:
        yield b"1", None
        made.lanes["t"].slots[0].open = loops.OpenBatch(loops.Appender(), 1000)
        yield b"2", None
        made.lanes.clear()
        yield b"3", None

    lane = made.lanes["t"]
    assert made.put_many("t", mischief(), NOW) == (b"3", None)
    assert lane.slots[0].open.builder.count == 1


_records = st.tuples(
    st.sampled_from(["t", "u"]),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=20),
    st.integers(NOW, NOW + 5),
    st.none() | st.integers(0, 3),
)


@pytest.mark.skipif("c" not in LOOPS, reason="the extension is not built")
@given(st.lists(st.integers(0, 500), min_size=1, max_size=4), st.integers(0, 1500), st.lists(_records, max_size=30))
def test_the_engines_agree(rooms: list[int], free: int, records: list[tuple[Any, ...]]) -> None:
    both = [intake(loops, *rooms, free=free) for loops in LOOPS.values()]
    for record in records:
        first, second = (each.put(*record) for each in both)
        assert first is second
    assert state(both[0]) == state(both[1])


def test_who_is_to_be_told_is_judged_once_as_long_as_it_is_the_same_code(loops: ModuleType) -> None:
    judged: list[Any] = []

    def judge(told: Any) -> None:
        judged.append(told)
        if told is pytest.fail:
            raise KeyError("no good")

    lane = intake(loops, 1000)
    made = loops.Intake(loops.murmur2_partition, 1000, judge)
    made.lanes = lane.lanes
    several = [lambda place: None for _ in range(3)]
    assert all(made.put("t", b"", None, NOW, each) for each in several) and judged == several[:1]
    made.check(several[2])
    assert judged == several[:1]
    assert all(made.put("t", b"", None, NOW, each) for each in (judged.append, judged.append, several[0]))
    assert judged == [several[0], judged.append, judged.append, several[0]]  # what has no code may be anything
    with pytest.raises(KeyError, match="no good"):
        made.put("t", b"", None, NOW, pytest.fail)
    assert made.lanes["t"].slots[0].open.builder.count == 6


def test_from_another_thread_nothing_is_put(loops: ModuleType) -> None:
    made = intake(loops, 1000)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(made.put, "t", b"", None, NOW).result() is False
        assert pool.submit(made.put_many, "t", iter([(b"1", None)]), NOW).result() == (b"1", None)
    assert made.put("t", b"", None, NOW) and made.lanes["t"].slots[0].open.builder.count == 1


def outcome(awaited: Any) -> Any:
    """What something that never waits comes to."""
    assert isinstance(awaited, Coroutine)
    with pytest.raises(StopIteration) as done:
        awaited.send(None)
    awaited.close()
    return done.value.value


def door(made: Any, loops: ModuleType) -> tuple[Any, list[Any]]:
    """With what it asked of its owner. Its clock goes on by a quarter of a millisecond at each look."""
    asked: list[Any] = []
    ticks = count(NOW * 1_000_000, 250_000)

    async def otherwise(*args: Any, **named: Any) -> None:
        asked.append((args, named))

    return loops.Door(made, otherwise, lambda: next(ticks)), asked


def test_through_a_door_records_go_in_at_once(loops: ModuleType) -> None:
    made = intake(loops, 10_000)
    entrance, asked = door(made, loops)
    for number in range(20):
        assert outcome(entrance.send_soon("t", b"%d" % number, on_delivery=str)) is None

    async def awaits() -> str:
        await entrance.send_soon("t", b"20", key=None)
        await entrance.send_soon("t", b"21")
        return "went on"

    assert outcome(awaits()) == "went on"
    batch = made.lanes["t"].slots[0].open
    assert [args for args, _ in asked] == [("t", b"%d" % number) for number in range(0, 22, 4)]  # of each millisecond
    assert batch.builder.count == 16 and batch.told == [str] * 15
    assert batch.stamps == [NOW + number // 4 for number in range(20) if number % 4]


@pytest.mark.parametrize(
    "given",
    [{"partition": 0}, {"timestamp": NOW}, {"headers": [("a", b"")]}, {"headers": (("a", b""),)}, {"key": "str"}],
)
def test_what_does_not_go_through_a_door_is_left_to_its_owner(loops: ModuleType, given: dict[str, Any]) -> None:
    entrance, asked = door(intake(loops, 1000), loops)
    outcome(entrance.send_soon("t", b"first of the millisecond"))
    asked.clear()
    whole = {"key": None, "partition": None, "headers": (), "timestamp": None, "on_delivery": None} | given
    assert outcome(entrance.send_soon("t", b"", **given)) is None
    assert asked == [(("t", b""), whole)]
    with pytest.raises(TypeError, match="nosuch"):
        entrance.send_soon("t", b"", nosuch=1)
    with pytest.raises(TypeError):
        entrance.send_soon("t")


def test_what_was_accepted_at_once_is_a_coroutine_that_has_ended(loops: ModuleType) -> None:
    entrance, _ = door(intake(loops, 1000), loops)
    outcome(entrance.send_soon("t", b""))
    accepted = entrance.send_soon("t", b"")
    with pytest.raises(KeyError):
        accepted.throw(KeyError("thrown"))
    with pytest.raises(KeyError):
        entrance.send_soon("t", b"").throw(KeyError)


@pytest.mark.filterwarnings("default")
def test_who_forgets_to_await_is_told_and_the_record_is_in(loops: ModuleType) -> None:
    made = intake(loops, 1000)
    entrance, _ = door(made, loops)
    for number in range(4):
        with pytest.warns(RuntimeWarning, match="never awaited"):
            entrance.send_soon("t", b"%d" % number)
            gc.collect()
    assert made.lanes["t"].slots[0].open.builder.count == 3


@pytest.mark.skipif("c" not in LOOPS, reason="the extension is not built")
def test_what_was_never_initialized_or_is_no_lane_does_no_harm() -> None:
    loops = LOOPS["c"]
    made = intake(loops, 1000)
    slot = made.lanes["t"].slots[0]
    for bad in (loops.OpenBatch.__new__(loops.OpenBatch), None):
        slot.open = bad
        assert made.put("t", b"", None, NOW) is False
    with pytest.raises(TypeError, match="initialized"):
        loops.OpenBatch.__new__(loops.OpenBatch).add(1, NOW, None, None)
    for slots in ([], None, [5], [None]):
        made.lanes["t"].slots = slots
        assert made.put("t", b"", b"key", NOW) is False
    made.lanes = {"t": 5}
    assert made.put("t", b"", None, NOW) is False
    assert loops.Intake.__new__(loops.Intake).put("t", b"", None, NOW) is False
    with pytest.raises(TypeError, match="initialized"):
        loops.Door.__new__(loops.Door).send_soon("t", b"")
    slot.open = loops.OpenBatch(loops.Appender(), 1000)
    slot.open.told = None
    made.lanes = {"t": loops.Lane(1)}
    made.lanes["t"].sticky = slot
    made.free = 1000
    with pytest.raises((TypeError, AttributeError)):
        made.put("t", b"", None, NOW, "somebody")
