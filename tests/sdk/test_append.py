"""The append fast path: it puts a record into its partition's batch, or leaves it to the caller; in each engine."""

import gc
import importlib
import importlib.util
import inspect
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, repeat
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, NamedTuple, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.codec import _loops
from ottla.errors import EncodeError
from ottla.sdk import producer
from ottla.sdk.produce import _append_in_python
from ottla.sdk.produce.records import DeliveryCallback, K, V
from ottla.sdk.sync import producer as blocking_producer

NOW = 1_700_000_000_000
FACES: dict[Any, Any] = {
    _append_in_python.SendSoon: (producer.Producer, producer.Transaction),
    _append_in_python.BlockingSendSoon: (blocking_producer.Producer, blocking_producer.Transaction),
}
PLACES = ("murmur2_partition", "crc32_partition", "fnv1a_partition", "fnv1a_reference_partition")


def engine(appending: ModuleType, encoding: ModuleType) -> Any:
    """The producer's part of an engine, with the codec's."""
    return SimpleNamespace(**vars(encoding) | vars(appending))


LOOPS = {"python": engine(_append_in_python, _loops)}
"""The engines by name; C only if it is built."""
if importlib.util.find_spec("ottla.sdk.produce._append"):
    LOOPS["c"] = engine(*map(importlib.import_module, ("ottla.sdk.produce._append", "ottla.codec._records")))


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Any:
    return LOOPS[request.param]


def fast_path(loops: Any, *rooms: int, free: int = 1 << 20, hash: Any = None, topic: str = "t") -> Any:
    """A fast path with one topic, whose partitions have so many free bytes; records without a key go to the first."""
    made = loops.AppendFastPath(hash or loops.murmur2_partition, free)
    buffer = made.topics[topic] = loops.TopicBuffer(len(rooms))
    buffer.partitions = [loops.PartitionBuffer(loops.OpenBatch(loops.Appender(), room)) for room in rooms]
    buffer.sticky = buffer.partitions[0]
    return made


def state(made: Any) -> list[Any]:
    """All that can be seen of it."""
    batches = [part.open for buffer in made.topics.values() for part in buffer.partitions if part is not None]
    return [made.free, *((each.left, each.callbacks, each.timestamps, bytes(each.builder.body)) for each in batches)]


@pytest.mark.parametrize("place", PLACES)
def test_a_key_goes_where_its_hash_says(loops: Any, place: str) -> None:
    hash = getattr(loops, place)
    made = fast_path(loops, *repeat(10_000, 7), hash=hash)
    keys = [b"key-%d" % number for number in range(100)]
    assert all(made.append("t", b"", key, NOW) for key in keys)
    counts = [part.open.builder.count for part in made.topics["t"].partitions]
    assert counts == [sum(hash(key, 7) == each for key in keys) for each in range(7)]


def test_a_record_takes_from_its_batch_and_from_all(loops: Any) -> None:
    made = fast_path(loops, 100, free=150)
    assert made.append("t", b"12345", None, NOW, "somebody") and made.append("t", None, b"key", NOW + 1)
    [part] = made.topics["t"].partitions
    assert (part.open.left, made.free) == (100 - 37 - 35, 150 - 37 - 35)
    assert (part.open.callbacks, part.open.timestamps) == (["somebody"], [NOW])
    assert not made.append("t", b"", None, NOW)  # no room in the batch
    part.open = loops.OpenBatch(loops.Appender(), 1000)
    assert made.append("t", b"", None, NOW, "another") and made.append("t", b"", None, NOW)
    assert not made.append("t", b"", None, NOW)  # no room in all
    assert part.open.builder.count == 2 and part.open.callbacks == ["another"] and made.free == 150 - 37 - 35 - 64


def test_an_awaited_record_joins_only_a_batch_that_is_hurried(loops: Any) -> None:
    made = fast_path(loops, 1000)
    batch = made.topics["t"].partitions[0].open
    assert not made.append("t", b"", None, NOW, "somebody", True) and made.append("t", b"", None, NOW, "another")
    batch.hurried = True
    assert made.append("t", b"", None, NOW, "somebody", True)
    assert batch.callbacks == ["another", "somebody"]


def test_whom_to_tell_stands_at_the_number_of_the_record(loops: Any) -> None:
    made = fast_path(loops, 1000)
    for number in range(5):
        made.append("t", b"", None, NOW + number, number if number in (1, 3) else None)
    batch = made.topics["t"].partitions[0].open
    assert batch.callbacks == [None, 1, None, 3] and batch.timestamps == [0, NOW + 1, 0, NOW + 3]


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int


def test_everybody_is_told_where_their_record_is_and_nobody_keeps_the_others_from_it(loops: Any) -> None:
    heard: list[Any] = []
    raised: list[Any] = []

    def broken(place: Place) -> None:
        raise KeyError(place.offset)

    made = fast_path(loops, 1000)
    for number, callback in enumerate((heard.append, None, broken, heard.append, None)):
        made.append("t", b"", None, NOW + number, callback)
    batch = made.topics["t"].partitions[0].open
    batch.call_back(batch.callbacks, Place, "t", 3, 70, -1, lambda *failure: raised.append(failure))
    assert heard == [Place("t", 3, 70, NOW), Place("t", 3, 73, NOW + 3)] and type(heard[0]) is Place
    [(error, place)] = raised
    assert error.args == (72,) and place == Place("t", 3, 72, NOW + 2)
    heard.clear()
    batch.call_back(batch.callbacks, Place, "t", 3, 70, -1, lambda *failure: None)
    assert heard == [], "each is called once, so that an interrupted call can continue"
    batch.callbacks = [heard.append, None, heard.append]
    batch.call_back(batch.callbacks, Place, "t", 3, -1, 5, lambda *failure: None)
    assert heard == [Place("t", 3, -1, 5)] * 2


def test_who_is_told_may_change_the_list_or_end_it_all(loops: Any) -> None:
    made = fast_path(loops, 1000)
    batch = made.topics["t"].partitions[0].open
    for each in (lambda place: batch.callbacks.clear(), pytest.fail):
        made.append("t", b"", None, NOW, each)
    batch.call_back(batch.callbacks, Place, "t", 0, 0, -1, pytest.fail)

    def interrupt(place: Place) -> None:
        raise KeyboardInterrupt

    made = fast_path(loops, 1000)
    failed, called = list[BaseException](), list[Any]()
    made.append("t", b"", None, NOW, interrupt)
    made.append("t", b"", None, NOW, called.append)
    batch = made.topics["t"].partitions[0].open
    batch.call_back(batch.callbacks, Place, "t", 0, 0, -1, lambda error, place: failed.append(error))
    assert isinstance(failed[0], KeyboardInterrupt) and len(called) == 1, "the others are still called"


@pytest.mark.skipif("c" not in LOOPS, reason="the extension is not built")
@pytest.mark.parametrize(
    "make", [int, list, tuple, "Place", time.struct_time, NamedTuple("Two", [("a", int), ("b", int)])]
)
def test_what_is_no_named_tuple_is_not_filled(make: Any) -> None:
    batch = fast_path(LOOPS["c"], 1000).topics["t"].partitions[0].open
    with pytest.raises(TypeError, match="no named tuple"):
        batch.call_back(batch.callbacks, make, "t", 0, 0, -1, pytest.fail)


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
def test_what_is_out_of_the_ordinary_is_left_to_the_caller(loops: Any, topic: Any, value: Any, key: Any) -> None:
    made = fast_path(loops, 1000, hash=liar if topic == "lied" else None, topic="lied" if topic == "lied" else "t")
    if key == b"unsent":
        made.topics["t"].partitions[0] = None
    before = state(made)
    assert made.append(topic, value, key, NOW) is False
    assert made.append_many(topic, iter([(value, key)]), NOW) == (value, key)
    assert state(made) == before


def test_without_lanes_or_a_hash_nothing_is_put(loops: Any) -> None:
    made = fast_path(loops, 1000)
    made.topics = {}
    assert made.append("t", b"", None, NOW) is False
    bare = loops.AppendFastPath(None, 1000)
    bare.topics = fast_path(loops, 1000).topics
    assert bare.append("t", b"", b"key", NOW) is False and bare.append("t", b"", None, NOW) is True


def test_a_timestamp_that_is_none_is_refused_and_nothing_is_taken(loops: Any) -> None:
    made = fast_path(loops, 1000)
    for bad in ("now", 1 << 63, None):
        with pytest.raises(EncodeError):
            made.append("t", b"", None, bad, "somebody")
    assert state(made) == state(fast_path(loops, 1000))


def test_many_are_put_until_one_cannot_be_or_as_many_as_asked_for(loops: Any) -> None:
    made = fast_path(loops, 32 * 10 + 10)
    pairs: Iterator[tuple[bytes | None, bytes | None]] = zip((b"%d" % number for number in count()), repeat(None))
    assert made.append_many("t", pairs, NOW, None, 4) == ()
    assert made.append_many("t", pairs, NOW, None, 0) == ()
    assert made.append_many("t", pairs, NOW) == (b"10", None)
    assert next(pairs) == (b"11", None)
    made.topics["t"].partitions[0].open = loops.OpenBatch(loops.Appender(), 1000)
    assert made.append_many("t", iter([(b"12", None), (b"13", None)]), NOW, "each") is None
    assert made.topics["t"].partitions[0].open.callbacks == ["each", "each"]


def test_what_the_pairs_raise_comes_out_and_what_was_put_stays(loops: Any) -> None:
    def broken() -> Iterator[tuple[bytes, None]]:
        yield b"1", None
        raise KeyError("mine")

    made = fast_path(loops, 1000)
    with pytest.raises(KeyError, match="mine"):
        made.append_many("t", broken(), NOW)
    with pytest.raises(ValueError, match="shorter"):
        made.append_many("t", zip([b"2", b"3"], [None], strict=True), NOW)
    assert made.topics["t"].partitions[0].open.builder.count == 2


def test_pairs_may_change_everything_meanwhile(loops: Any) -> None:
    made = fast_path(loops, 1000)

    def mischief() -> Iterator[tuple[bytes, None]]:
        yield b"1", None
        made.topics["t"].partitions[0].open = loops.OpenBatch(loops.Appender(), 1000)
        yield b"2", None
        made.topics.clear()
        yield b"3", None

    buffer = made.topics["t"]
    assert made.append_many("t", mischief(), NOW) == (b"3", None)
    assert buffer.partitions[0].open.builder.count == 1


_records = st.tuples(
    st.sampled_from(["t", "u"]),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=20),
    st.integers(NOW, NOW + 5),
    st.none() | st.integers(0, 3),
    st.booleans(),
)


@pytest.mark.skipif("c" not in LOOPS, reason="the extension is not built")
@given(st.lists(st.integers(0, 500), min_size=1, max_size=4), st.integers(0, 1500), st.lists(_records, max_size=30))
def test_the_engines_agree(rooms: list[int], free: int, records: list[tuple[Any, ...]]) -> None:
    both = [fast_path(loops, *rooms, free=free) for loops in LOOPS.values()]
    for each in both:
        each.topics["t"].partitions[-1].open.hurried = True
    for record in records:
        first, second = (each.append(*record) for each in both)
        assert first is second
    assert state(both[0]) == state(both[1])


def test_who_is_to_be_told_is_judged_once_as_long_as_it_is_the_same_code(loops: Any) -> None:
    judged: list[Any] = []

    def check_callback(callback: Any) -> None:
        judged.append(callback)
        if callback is pytest.fail:
            raise KeyError("no good")

    buffer = fast_path(loops, 1000)
    made = loops.AppendFastPath(loops.murmur2_partition, 1000, check_callback)
    made.topics = buffer.topics
    several = [lambda place: None for _ in range(3)]
    assert all(made.append("t", b"", None, NOW, each) for each in several) and judged == several[:1]
    made.check(several[2])
    assert judged == several[:1]
    assert all(made.append("t", b"", None, NOW, each) for each in (judged.append, judged.append, several[0]))
    assert judged == [several[0], judged.append, judged.append, several[0]]  # callables without code
    with pytest.raises(KeyError, match="no good"):
        made.append("t", b"", None, NOW, pytest.fail)
    assert made.topics["t"].partitions[0].open.builder.count == 6


def test_from_another_thread_nothing_is_put(loops: Any) -> None:
    made = fast_path(loops, 1000)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(made.append, "t", b"", None, NOW).result() is False
        assert pool.submit(made.append_many, "t", iter([(b"1", None)]), NOW).result() == (b"1", None)
    assert made.append("t", b"", None, NOW) and made.topics["t"].partitions[0].open.builder.count == 1


def outcome(awaited: Any) -> Any:
    """The result of an awaitable that never waits."""
    assert isinstance(awaited, Coroutine)
    with pytest.raises(StopIteration) as done:
        awaited.send(None)
    awaited.close()
    return done.value.value


def door(made: Any, loops: Any) -> tuple[Any, list[Any]]:
    """A face, and the records that its fast path has left. Its clock advances by 0.25 ms at each reading."""
    asked: list[Any] = []
    ticks = count(NOW * 1_000_000, 250_000)

    class Door(loops.SendSoon):  # type: ignore[misc] # of either engine
        async def _send_soon(self, *args: Any) -> None:
            asked.append(args)

    entrance = Door()
    entrance._open_fast_path(made, lambda: next(ticks))
    return entrance, asked


def test_through_a_door_records_go_in_at_once(loops: Any) -> None:
    made = fast_path(loops, 10_000)
    entrance, asked = door(made, loops)
    for number in range(20):
        assert outcome(entrance.send_soon("t", b"%d" % number, on_delivery=str)) is None

    async def awaits() -> str:
        await entrance.send_soon("t", b"20", key=None)
        await entrance.send_soon("t", b"21")
        return "went on"

    assert outcome(awaits()) == "went on"
    batch = made.topics["t"].partitions[0].open
    assert [args[:2] for args in asked] == [("t", b"%d" % number) for number in range(0, 22, 4)]  # once a millisecond
    assert batch.builder.count == 16 and batch.callbacks == [str] * 15
    assert batch.timestamps == [NOW + number // 4 for number in range(20) if number % 4]


def test_through_a_closed_door_nothing_goes(loops: Any) -> None:
    made = fast_path(loops, 10_000)
    entrance, asked = door(made, loops)
    other, _ = door(made, loops)
    entrance._close_fast_path()
    for _ in range(3):
        outcome(entrance.send_soon("t", b""))
    assert len(asked) == 3 and made.topics["t"].partitions[0].open.builder.count == 0
    for _ in range(3):
        outcome(other.send_soon("t", b""))
    assert made.topics["t"].partitions[0].open.builder.count == 2


@pytest.mark.parametrize(
    "given",
    [{"partition": 0}, {"timestamp": NOW}, {"headers": [("a", b"")]}, {"headers": (("a", b""),)}, {"key": "str"}],
)
def test_what_does_not_go_through_a_door_is_left_to_its_owner(loops: Any, given: dict[str, Any]) -> None:
    entrance, asked = door(fast_path(loops, 1000), loops)
    outcome(entrance.send_soon("t", b"first of the millisecond"))
    asked.clear()
    rest = {"key": None, "partition": None, "headers": (), "timestamp": None, "on_delivery": None} | given
    assert outcome(entrance.send_soon("t", b"", **given)) is None
    assert asked == [("t", b"", *rest.values())]
    with pytest.raises(TypeError, match="nosuch"):
        entrance.send_soon("t", b"", nosuch=1)
    with pytest.raises(TypeError):
        entrance.send_soon("t")


def test_what_was_accepted_at_once_is_a_coroutine_that_has_ended(loops: Any) -> None:
    entrance, _ = door(fast_path(loops, 1000), loops)
    outcome(entrance.send_soon("t", b""))
    accepted = entrance.send_soon("t", b"")
    with pytest.raises(KeyError):
        accepted.throw(KeyError("thrown"))
    with pytest.raises(KeyError):
        entrance.send_soon("t", b"").throw(KeyError)


@pytest.mark.filterwarnings("default")
def test_who_forgets_to_await_is_told_and_the_record_is_in(loops: Any) -> None:
    made = fast_path(loops, 1000)
    entrance, _ = door(made, loops)
    for number in range(4):
        with pytest.warns(RuntimeWarning, match="never awaited"):
            entrance.send_soon("t", b"%d" % number)
            gc.collect()
    assert made.topics["t"].partitions[0].open.builder.count == 3


@pytest.mark.skipif("c" not in LOOPS, reason="the extension is not built")
def test_what_was_never_initialized_or_is_no_lane_does_no_harm() -> None:
    loops = LOOPS["c"]
    made = fast_path(loops, 1000)
    part = made.topics["t"].partitions[0]
    for bad in (loops.OpenBatch.__new__(loops.OpenBatch), None):
        part.open = bad
        assert made.append("t", b"", None, NOW) is False
    with pytest.raises(TypeError, match="initialized"):
        loops.OpenBatch.__new__(loops.OpenBatch).add(1, NOW, None, None)
    for partitions in ([], None, [5], [None]):
        made.topics["t"].partitions = partitions
        assert made.append("t", b"", b"key", NOW) is False
    made.topics = {"t": 5}
    assert made.append("t", b"", None, NOW) is False
    assert loops.AppendFastPath.__new__(loops.AppendFastPath).append("t", b"", None, NOW) is False
    with pytest.raises(AttributeError, match="_send_soon"):
        loops.SendSoon().send_soon("t", b"")
    with pytest.raises(TypeError):
        loops.SendSoon()._open_fast_path(None, time.time_ns)
    part.open = loops.OpenBatch(loops.Appender(), 1000)
    part.open.callbacks = None
    made.topics = {"t": loops.TopicBuffer(1)}
    made.topics["t"].sticky = part
    made.free = 1000
    with pytest.raises((TypeError, AttributeError)):
        made.append("t", b"", None, NOW, "somebody")


def test_nothing_is_appended_while_somebody_is_inside_the_client(loops: Any) -> None:
    entered = bytearray(1)
    made = loops.AppendFastPath(loops.murmur2_partition, 1000, None, entered)
    made.topics = fast_path(loops, 1000).topics
    entered[0] = 1
    assert not made.append("t", b"", None, NOW) and made.append_many("t", iter([(b"1", None)]), NOW) == (b"1", None)
    entered[0] = 0
    assert made.append("t", b"", None, NOW)


def test_what_a_callback_returns_is_checked(loops: Any) -> None:
    class Place(NamedTuple):
        topic: str
        partition: int
        offset: int
        timestamp: int

    def check(result: Any) -> None:
        raise KeyError(result)

    made, failed = fast_path(loops, 1000), list[Any]()
    made.append("t", b"", None, NOW, lambda place: None)
    made.append("t", b"", None, NOW, lambda place: "something")
    batch = made.topics["t"].partitions[0].open
    batch.call_back(
        batch.callbacks, Place, "t", 0, 5, -1, lambda error, place: failed.append((str(error), place)), check
    )
    assert failed == [("'something'", ("t", 0, 6, NOW))]


def test_nothing_is_appended_while_the_driver_wants_the_caller_to_come_by(loops: Any) -> None:
    entered = bytearray(2)
    made = loops.AppendFastPath(loops.murmur2_partition, 1000, None, entered)
    made.topics = fast_path(loops, 1000).topics
    entered[1] = 1
    assert not made.append("t", b"", None, NOW)
    entered[1] = 0
    assert made.append("t", b"", None, NOW)


def test_any_thread_appends_where_nothing_comes_in_between(loops: Any) -> None:
    made = loops.AppendFastPath(loops.murmur2_partition, 1000, None, bytearray(2), True)
    made.topics = fast_path(loops, 1000).topics
    with ThreadPoolExecutor(1) as other:
        appended = other.submit(made.append, "t", b"", None, NOW).result()
    assert appended is (loops is LOOPS.get("c"))


def test_a_partitioner_during_which_the_core_is_entered_appends_nothing(loops: Any) -> None:
    """As another thread may do during the call."""
    if loops is LOOPS["python"]:
        pytest.skip("in Python, no other thread can append")

    def hash(key: bytes, partitions: int) -> int:
        entered[0] = 1
        return 0

    entered = bytearray(2)
    made = loops.AppendFastPath(hash, 1000, None, entered, True)
    made.topics = fast_path(loops, 1000).topics
    assert not made.append("t", b"", b"key", NOW)
    assert made.topics["t"].partitions[0].open.builder.count == 0


def test_for_a_caller_that_blocks_a_record_is_accepted_or_left_to_another_function(loops: Any) -> None:
    made, asked = fast_path(loops, 100), list[Any]()

    class Face(loops.BlockingSendSoon):  # type: ignore[misc] # of either engine
        def _send_soon(self, *args: Any) -> None:
            asked.append(args)

    face = Face()
    face._open_fast_path(made, lambda: NOW * 1_000_000)
    assert face.send_soon("t", b"1", key=None) is None
    assert made.topics["t"].partitions[0].open.builder.count == 1 and not asked
    assert face.send_soon("t", b"2", headers=[("a", b"b")]) is None
    assert face.send_soon("t", bytes(1000), on_delivery=None) is None
    assert [(args[1], args[4]) for args in asked] == [(b"2", [("a", b"b")]), (bytes(1000), ())]
    face._close_fast_path()
    face.send_soon("t", b"3")
    assert asked[-1][:2] == ("t", b"3") and made.topics["t"].partitions[0].open.builder.count == 1


def test_a_fast_path_may_be_closed_while_it_appends(loops: Any) -> None:
    entrance, asked = door(fast_path(loops, 1000), loops)
    made = loops.AppendFastPath(loops.murmur2_partition, 1000, lambda callback: entrance._close_fast_path())
    made.topics = fast_path(loops, 1000).topics
    entrance._open_fast_path(made, lambda: NOW * 1_000_000)
    topics = made.topics
    del made  # only the face has it
    for _ in range(3):
        outcome(entrance.send_soon("t", b"", on_delivery=str))
    assert len(asked) == 2 and topics["t"].partitions[0].open.builder.count == 1


@pytest.mark.parametrize("base", ["SendSoon", "BlockingSendSoon"])
def test_a_face_takes_the_types_of_keys_and_values_and_no_others(loops: Any, base: str) -> None:
    class Face(getattr(loops, base)[K, V], Generic[K, V]):  # type: ignore[misc] # of either engine
        pass

    class Derived(Face[K, V]):
        pass

    for each in (Face, Derived):
        assert get_args(each[str, bytes]) == (str, bytes) and get_origin(each[str, bytes]) is each
        for wrong in (str, (str, str, str)):
            with pytest.raises(TypeError, match="arguments for"):
                each[wrong]


@pytest.mark.parametrize("face", ["SendSoon", "BlockingSendSoon"])
def test_send_soon_is_described_alike_in_each_engine(loops: Any, face: str) -> None:
    first, method = (getattr(each, face).send_soon for each in (_append_in_python, loops))
    assert inspect.getdoc(method) == inspect.getdoc(first)
    described = [
        [(each.name, each.kind, each.default) for each in inspect.signature(of).parameters.values()][1:]  # without self
        for of in (method, _append_in_python.SendSoon.send_soon)
    ]
    assert described[0] == described[1]


@pytest.mark.parametrize("base", [_append_in_python.SendSoon, _append_in_python.BlockingSendSoon])
def test_every_function_that_accepts_a_record_takes_the_arguments_of_send_soon(base: Any) -> None:
    def arguments(method: Any) -> list[tuple[str, Any]]:
        return [(name, each.annotation) for name, each in inspect.signature(method).parameters.items()][1:]  # no self

    taken = arguments(base.send_soon)
    assert arguments(base._send_soon) == taken
    for face in FACES[base]:
        assert arguments(face._send_soon) == arguments(face.send_nowait) == taken, face
        assert [*arguments(face.send), ("on_delivery", DeliveryCallback | None)] == taken, face
