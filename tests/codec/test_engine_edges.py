"""Foreign classes, altered classes and odd buffers must not harm an engine; messages survive pickling and the like."""

import copy
import dataclasses
import gc
import pickle
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any, cast
from unittest import mock

import pytest

from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.codec.apis.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.codec.apis.fetch import FetchResponse
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.wire import (
    Array,
    Boolean,
    Float64,
    Int8,
    Int16,
    Nested,
    String,
    UInt16,
    UInt32,
    Unread,
    Unreadable,
    Uuid,
    VarBytes,
    VarInt,
    VarLong,
    VarString,
    message,
    struct,
)
from ottla.codec.wire import wire as field
from ottla.errors import DecodeError, EncodeError, UnknownVersion
from tests.codec.engines import ENGINES, Engine

each_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))


@struct
class Inner:
    numbers: tuple[int, ...] = field(Array(Int16), default=())
    name: str = field(String, default="")


@message(versions="0-1", flexible="1+")
class Everything:
    """A message with wire types that no API has."""

    small: int = field(VarInt, default=0)
    large: int = field(VarLong, default=0)
    smalls: tuple[int, ...] = field(Array(VarInt), default=())
    bools: tuple[bool, ...] = field(Array(Boolean), default=())
    floats: tuple[float, ...] = field(Array(Float64), default=())
    ids: tuple[uuid.UUID, ...] = field(Array(Uuid), default=())
    text: str | None = field(VarString, null="0+", default="")
    data: bytes | None = field(VarBytes, null="0+", default=b"")
    port: int = field(UInt16, default=0)
    crc: int = field(UInt32, default=0)
    number: float = field(Float64, default=0.0)
    inner: Inner = field(Nested(Inner), "1+", default=Inner(), tag=3)
    maybe: Inner | None = field(Nested(Inner), "1+", null="1+", default=None, tag=5)


FULL = Everything(
    small=-5,
    large=-(1 << 63),
    smalls=(1, -1, (1 << 31) - 1, -(1 << 31)),
    bools=(True, False),
    floats=(1.5, -0.0, float("inf")),
    ids=(uuid.UUID(int=0), uuid.UUID(int=(1 << 128) - 1)),
    text=None,
    data=b"x" * 200,
    port=65535,
    crc=(1 << 32) - 1,
    number=7.25,
    inner=Inner(numbers=(1, 2)),
    maybe=Inner(),
)


class OddInt(int):
    """An int whose own method must not be called."""

    def __index__(self) -> int:
        raise AssertionError("it is an int already")


class OddFloat(float):
    def __float__(self) -> float:
        raise RuntimeError("it is a float already")


def test_every_wire_type_is_the_same_in_every_engine() -> None:
    [data] = {engine.build(FULL, 1) for engine in ENGINES.values()}
    for engine in ENGINES.values():
        assert engine.parse(Everything, 1, data) == (FULL, len(data))
    for size in range(len(data)):
        errors = []
        for engine in ENGINES.values():
            with pytest.raises(DecodeError) as caught:
                engine.parse(Everything, 1, data[:size])
            errors.append((caught.value.path, caught.value.offset, caught.value.reason))
        assert len(set(errors)) == 1


@each_engine
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("small", 1 << 31),
        ("small", -(1 << 31) - 1),
        ("small", 1.0),
        ("large", 1 << 63),
        ("smalls", (1, "2")),
        ("bools", (1,)),
        ("floats", ("1.5",)),
        ("ids", (b"x" * 16,)),
        ("port", -1),
        ("port", 1 << 16),
        ("crc", 1 << 32),
        ("number", 1 << 2000),
    ],
)
def test_what_does_not_fit_these_types(engine: Engine, name: str, value: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        engine.build(dataclasses.replace(FULL, **{name: value}), 1)
    assert caught.value.path.startswith(f"Everything.{name}")
    assert caught.value.args[1] == caught.value.path


@each_engine
def test_methods_of_subclasses_are_not_asked(engine: Engine) -> None:
    odd = dataclasses.replace(FULL, small=OddInt(-5), number=OddFloat(7.25))
    assert engine.build(odd, 1) == engine.build(FULL, 1)


@each_engine
def test_a_list_stands_for_a_tuple_within_a_default_too(engine: Engine) -> None:
    plain = Everything()
    assert engine.build(dataclasses.replace(plain, inner=Inner(numbers=[])), 1) == engine.build(plain, 1)  # type: ignore[arg-type] # a list
    assert engine.build(dataclasses.replace(plain, inner=Inner(numbers=[])), 0) == engine.build(plain, 0)  # type: ignore[arg-type] # a list


@each_engine
def test_strings_are_as_long_as_kafka_takes_them_in_flexible_versions_too(engine: Engine) -> None:
    longest = FindCoordinatorRequest(key="x" * 32767, key_type=0)
    data = engine.build(longest, 3)
    assert engine.parse(FindCoordinatorRequest, 3, data) == (longest, len(data))
    with pytest.raises(EncodeError, match=r"FindCoordinatorRequest\.key: string of 32768 is longer than 32767"):
        engine.build(dataclasses.replace(longest, key="x" * 32768), 3)
    longer = b"\x81\x80\x02" + data[3:-2] + b"x" + data[-2:]
    with pytest.raises(DecodeError, match="string length of 32768") as caught:
        engine.parse(FindCoordinatorRequest, 3, longer)
    assert (caught.value.path, caught.value.offset) == ("FindCoordinatorRequest.key", 0)


class StrangeInt:
    def to_bytes(self, *args: object) -> bytes:
        return b""


class StrangeId(uuid.UUID):
    number: Any = StrangeInt()
    int = property(lambda self: self.number)  # type: ignore[misc] # on purpose


class HugeId(StrangeId):
    number = 1 << 200


@each_engine
@pytest.mark.parametrize("kind", [StrangeId, HugeId])
def test_an_id_whose_number_is_none_is_refused(engine: Engine, kind: Any) -> None:
    with pytest.raises(EncodeError, match=r"Everything\.ids\[0\]"):
        engine.build(Everything(ids=(object.__new__(kind),)), 0)


@each_engine
def test_bytes_of_a_subclass_are_bytes(engine: Engine) -> None:
    class Named(bytes):
        pass

    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    request.unknown_tags = {9: Named(b"x")}  # type: ignore[attr-defined] # as `unknown_tags` reads it
    assert engine.build(request, 0).endswith(b"\x01\x09\x01x")


@each_engine
def test_a_subclass_is_another_class(engine: Engine) -> None:
    class Sub(MetadataRequest):
        __slots__ = ()

    for attempt in (lambda: engine.parse(Sub, 1, b"\0\0\0\0"), lambda: engine.build(Sub(topics=()), 1)):
        with pytest.raises(TypeError, match="Sub is not a message"):
            attempt()


@pytest.mark.skipif("c" not in ENGINES, reason="only the extension writes to slots by their offset")
def test_a_class_that_was_altered_is_refused() -> None:
    @message(versions="0")
    class Altered:
        number: int = field(Int8)

    with mock.patch.object(Altered, "number", new_callable=mock.PropertyMock), pytest.raises(TypeError, match="slot"):
        ENGINES["c"].parse(Altered, 0, b"\0")
    assert ENGINES["c"].parse(Altered, 0, b"\7") == (Altered(number=7), 1)


@each_engine
@pytest.mark.parametrize("data", [20, [0, 0, 0, 0], "text", None, memoryview(bytes(8))[::2]])
def test_what_is_no_buffer_is_the_callers_mistake(engine: Engine, data: Any) -> None:
    with pytest.raises((TypeError, BufferError)):
        engine.parse(MetadataRequest, 1, data)


@each_engine
@pytest.mark.parametrize("offset", [-1, 5, 1 << 63, -(1 << 70)])
def test_an_offset_outside_is_the_callers_mistake(engine: Engine, offset: int) -> None:
    with pytest.raises(ValueError, match="lies outside"):
        engine.parse(MetadataRequest, 1, bytes(4), offset)


@each_engine
@pytest.mark.parametrize("version", [0.5, "1", None])
def test_a_version_is_an_int(engine: Engine, version: Any) -> None:
    engine.parse(MetadataRequest, 1, bytes(4))
    with pytest.raises(UnknownVersion, match="MetadataRequest has versions"):
        engine.parse(MetadataRequest, version, bytes(4))


@each_engine
def test_an_error_keeps_nothing_of_what_was_read(engine: Engine) -> None:
    topics = tuple(TopicRequest(name=f"topic-{number}") for number in range(20_000))
    data = engine.build(DescribeTopicPartitionsRequest(topics=topics), 0)[:-1]
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError) as caught:
            engine.parse(DescribeTopicPartitionsRequest, 0, data)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.__context__ is None
    assert kept < 2 * len(data) + (1 << 16)
    assert peak < 100 * len(data) + (1 << 20)


@each_engine
def test_a_collector_that_looks_meanwhile_does_no_harm(engine: Engine) -> None:
    topics = tuple(MetadataRequestTopic(name=f"topic-{number}") for number in range(5000))
    data = engine.build(MetadataRequest(topics=topics), 4)

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            for each in gc.get_objects(generation=0):
                if type(each) is tuple:
                    repr(len(each)), hash(tuple(map(id, each)))

    before = gc.get_threshold()
    gc.set_threshold(50, 5, 5)
    gc.callbacks.append(look)
    try:
        assert engine.parse(MetadataRequest, 4, data)[0].topics == topics
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*before)


def survivors() -> Iterator[Any]:
    yield MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    yield FULL
    yield ENGINES["python"].parse(FetchResponse, 12, ENGINES["python"].build(FetchResponse(responses=()), 12))[0]


@pytest.mark.parametrize("value", list(survivors()), ids=lambda value: type(value).__name__)
def test_a_message_is_copied_and_pickled_as_any_dataclass(value: Any) -> None:
    assert copy.copy(value) == copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert dataclasses.asdict(value)["unknown_tags"] == {}
    assert dataclasses.replace(value) == value


def test_tags_that_could_not_travel_are_refused() -> None:
    @message(versions="0-1", flexible="1+")
    class TooEarly:
        number: int = field(Int16, default=0, tag=0)

    @message(versions="0", flexible="0+")
    class Twice:
        one: int = field(Int16, default=0, tag=0)
        two: int = field(Int16, default=0, tag=0)

    for cls, match in ((TooEarly, "only flexible versions"), (Twice, "another field has it")):
        with pytest.raises(TypeError, match=match):
            ENGINES["construct"].build(cls(), 0)


def test_a_struct_has_no_base() -> None:
    with pytest.raises(TypeError, match="base class"):

        @struct
        class More(Inner):
            number: int = field(Int16)


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("name", [name for name in ENGINES if name != "construct"])
def test_parts_are_the_message_and_large_batches_are_not_copied_into_it(name: str, version: int) -> None:
    batches = [bytes(size) for size in (10, 1000, 70_000, 0, 65_536)]
    partitions = tuple(PartitionProduceData(index=index, records=data) for index, data in enumerate(batches))
    request = ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=(TopicProduceData(name="t", partition_data=partitions),) * 2
    )
    engine: Any = ENGINES[name]
    parts = engine.build_parts(request, version, 65_536)
    assert b"".join(parts) == engine.build(request, version)
    assert sum(any(part is data for data in batches if len(data) >= 65_536) for part in parts) == 4


class Elsewhere(Unread):
    """Bytes that are read at their first use."""

    def __init__(self, data: bytes) -> None:
        self.data, self.was_read = data, False

    def __len__(self) -> int:
        return len(self.data)

    def __bytes__(self) -> bytes:
        self.was_read = True
        return self.data


@pytest.mark.parametrize("version", [3, 9, 12])
@pytest.mark.parametrize("name", ENGINES)
def test_what_is_not_in_memory_is_left_where_it_is_if_it_is_large_and_read_otherwise(name: str, version: int) -> None:
    def request(records: list[Any]) -> ProduceRequest:
        data = tuple(PartitionProduceData(index=index, records=each) for index, each in enumerate(records))
        return ProduceRequest(acks=-1, timeout_ms=1, topic_data=(TopicProduceData(name="t", partition_data=data),))

    plain = [b"x" * size for size in (10, 65_536, 0, 70_000)]
    engine: Any = ENGINES[name]
    whole = engine.build(request(plain), version)
    assert engine.build(request([Elsewhere(each) for each in plain]), version) == whole
    if name == "construct":
        return
    unread = [Elsewhere(each) for each in plain]
    parts = engine.build_parts(request(unread), version, 65_536)
    assert [part for part in parts if isinstance(part, Unread)] == [unread[1], unread[3]]
    assert [each.was_read for each in unread] == [True, False, True, False]
    assert b"".join(map(bytes, parts)) == whole


@pytest.mark.parametrize("name", ENGINES)
def test_bytes_that_cannot_be_read_are_an_error_of_the_disk(name: str) -> None:
    class Broken(Elsewhere):
        def __bytes__(self) -> bytes:
            raise Unreadable("broken")

    partition = PartitionProduceData(index=0, records=cast(Any, Broken(b"x")))
    request = ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=(TopicProduceData(name="t", partition_data=(partition,)),)
    )
    with pytest.raises(Unreadable, match="broken"):
        ENGINES[name].build(request, 9)


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "construct"])
def test_a_large_memoryview_is_a_part_that_shows_the_same_memory(name: str) -> None:
    large, small = bytearray(b"x" * 65_536), bytearray(b"y" * 10)
    partitions = tuple(
        PartitionProduceData(index=index, records=memoryview(data)) for index, data in enumerate((large, small))
    )
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=(TopicProduceData(name="t", partition_data=partitions),))
    engine: Any = ENGINES[name]
    parts = engine.build_parts(request, 9, 65_536)
    assert b"".join(parts) == engine.build(request, 9)
    large[0] = small[0] = ord("z")
    assert [bytes(part[:1]) for part in parts if len(part) == 65_536] == [b"z"]
    assert b"yyyyyyyyyy" in b"".join(parts)
