"""Declarations, with every engine: bytes by version, defaults, nulls, tags, and the paths of errors."""

import math
import pickle
import struct as struct_module
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from hypothesis import given

from ottla.codec import build, parse, wire
from ottla.codec.apis.api_versions import ApiVersionsResponse
from ottla.codec.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.codec.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.codec.wire import (
    NO_UUID,
    Array,
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Nested,
    String,
    UInt16,
    UInt32,
    Uuid,
    VarInt,
    VarLong,
    message,
    struct,
)
from ottla.codec.wire import wire as field
from ottla.errors import DecodeError, EncodeError, OttlaError, UnknownVersion
from tests.codec import strategies

T = TypeVar("T")


@struct
class Leaf:
    id: int = field(Int32, default=0)
    note: str | None = field(String, "1+", null="2+", default="none")


@message(key=-1, versions="0-4", flexible="3+")
class Probe:
    """A message with every wire type, and every rule about versions."""

    flag: bool = field(Boolean)
    small: int = field(Int8, default=5)
    name: str = field(String)
    blob: bytes | None = field(Bytes, null="1+")
    leaves: tuple[Leaf, ...] | None = field(Array(Leaf), null="2+")
    numbers: tuple[int, ...] = field(Array(Int16), "1+", default=())
    topic_id: uuid.UUID = field(Uuid, "2+", default=NO_UUID, ignorable=True)
    strict: int = field(Int64, "2-3", default=-1)
    late: int = field(UInt32, "3+", default=9, tag=2, ignorable=True)
    inner: Leaf = field(Nested(Leaf), "3+", default=Leaf(id=1), tag=0)
    words: tuple[str, ...] = field(Array(String), "4+", default=(), tag=5, ignorable=True)
    maybe: Leaf | None = field(Nested(Leaf), "4+", null="4+", default=None)


def probe(**fields: Any) -> Probe:
    usual: dict[str, Any] = {"flag": True, "name": "ab", "blob": b"c", "leaves": (Leaf(id=7),)}
    return Probe(**(usual | fields))


def tagged(message: T, tags: Any) -> T:
    """``message`` with unknown tags, an attribute that type checkers do not see."""
    setattr(message, wire.UNKNOWN_TAGS, tags)
    return message


def tags_of(message: object) -> Any:
    return getattr(message, wire.UNKNOWN_TAGS)


@contextmanager
def refused_at(path: str, match: str = "") -> Iterator[None]:
    with pytest.raises(EncodeError, match=match) as caught:
        yield
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


# --- the bytes of each version


def test_the_first_version_has_only_the_fields_of_old() -> None:
    data = bytes.fromhex("01 05 0002 6162 00000001 63 00000001 00000007")
    assert build(probe(), 0) == data
    assert parse(Probe, 0, data) == (probe(), len(data))


def test_a_later_version_has_more_fields() -> None:
    data = bytes.fromhex("01 05 0002 6162 00000001 63 00000001 00000007 0004 6e6f6e65 00000002 0001ffff")
    assert build(probe(numbers=(1, -1)), 1) == data
    assert parse(Probe, 1, data) == (probe(numbers=(1, -1)), len(data))


def test_a_flexible_version_is_compact_and_ends_every_struct_in_tags() -> None:
    head = "01 05 03 6162 02 63 02 00000007 05 6e6f6e65 00 01"
    data = bytes.fromhex(head + "00" * 16 + "ff" * 8 + "00")
    assert build(probe(), 3) == data
    assert parse(Probe, 3, data) == (probe(), len(data))


def test_only_tagged_fields_that_differ_from_their_default_are_written() -> None:
    data = build(probe(late=10, inner=Leaf(id=1, note=None)), 3)
    assert data.endswith(bytes.fromhex("02  00 06 00000001 00 00  02 04 0000000a"))
    assert parse(Probe, 3, data)[0] == probe(late=10, inner=Leaf(id=1, note=None))
    assert build(probe(late=9, inner=Leaf(id=1), words=[]), 4) == build(probe(), 4)


def test_a_struct_that_may_be_null_has_a_byte_for_it() -> None:
    assert build(probe(strict=-1, maybe=None), 4).endswith(bytes.fromhex("ff 00"))
    data = build(probe(maybe=Leaf(id=3)), 4)
    assert data.endswith(bytes.fromhex("01 00000003 05 6e6f6e65 00 00"))
    assert parse(Probe, 4, data)[0].maybe == Leaf(id=3)


def test_null_and_empty_are_two_things() -> None:
    for version in (2, 4):
        for leaves in (None, ()):
            assert parse(Probe, version, build(probe(leaves=leaves), version))[0].leaves == leaves
        for blob in (None, b""):
            assert parse(Probe, version, build(probe(blob=blob), version))[0].blob == blob


def test_what_a_version_lacks_reads_as_its_default() -> None:
    read = parse(Probe, 0, build(probe(), 0))[0]
    assert (read.numbers, read.topic_id, read.strict, read.late, read.inner, read.maybe) == (
        (),
        NO_UUID,
        -1,
        9,
        Leaf(id=1),
        None,
    )
    assert read.leaves is not None
    assert read.leaves[0].note == "none"


def test_messages_are_equal_if_they_are_of_one_class_and_all_fields_are() -> None:
    one: Any = MetadataRequestTopic(name="a")
    assert one == MetadataRequestTopic(name="a") and one != MetadataRequestTopic(name="b")
    assert one != MetadataRequest(topics=()) and one != "a"
    same, _ = parse(MetadataRequest, 9, build(MetadataRequest(topics=(one,)), 9))
    assert same == MetadataRequest(topics=(one,)) and same.topics == (one,)
    with pytest.raises(TypeError):
        hash(one)


def test_defaults_are_shared_with_nobody() -> None:
    def inner_of_each() -> Iterator[Leaf]:
        yield probe().inner
        yield parse(Probe, 0, build(probe(), 0))[0].inner
        yield parse(Probe, 3, build(probe(), 3))[0].inner

    for inner in inner_of_each():
        inner.id = 99
        inner.note = "changed"
    assert all(inner == Leaf(id=1) for inner in inner_of_each())


def test_bytes_behind_a_message_are_the_callers_to_judge() -> None:
    data = build(probe(), 2)
    assert parse(Probe, 2, data + b"junk") == (probe(), len(data))


def test_a_message_is_read_from_any_offset_of_any_buffer() -> None:
    data = build(probe(), 3)
    for buffer in (b"junk" + data, bytearray(b"junk" + data), memoryview(b"junk" + data)):
        assert parse(Probe, 3, buffer, 4) == (probe(), len(data) + 4)


@pytest.mark.parametrize("version", [-1, 5, 1000])
def test_a_version_that_does_not_exist_is_an_error_that_says_which_do(version: int) -> None:
    with pytest.raises(UnknownVersion, match=f"Probe has versions 0-4, not {version}") as caught:
        parse(Probe, version, b"")
    assert isinstance(caught.value, OttlaError)
    assert (caught.value.message, caught.value.version, caught.value.known) == ("Probe", version, "0-4")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(UnknownVersion, match=f"Probe has versions 0-4, not {version}"):
        build(probe(), version)


def test_versions_are_ranges() -> None:
    def inside(text: str) -> list[int]:
        return [version for version in range(6) if version in wire.Versions(text)]

    assert inside("3") == [3]
    assert inside("2-4") == [2, 3, 4]
    assert inside("4+") == [4, 5]
    assert inside("") == []
    assert repr(wire.Versions("2-4")) == "Versions('2-4')"


def test_a_field_without_a_declaration_is_noticed() -> None:
    with pytest.raises(TypeError, match=r"Bad\.id needs a wire\(\.\.\.\) declaration"):

        @struct
        class Bad:
            id: int = 7


def test_an_array_of_nothing_is_refused_as_a_declaration() -> None:
    @struct
    class Hollow:
        later: int = field(Int32, "1+", default=0)

    @message(key=-1, versions="0-1")
    class Hollows:
        each: tuple[Hollow, ...] = field(Array(Hollow))

    with pytest.raises(TypeError, match="count unbounded"):
        parse(Hollows, 0, bytes.fromhex("7fffffff"))
    assert parse(Hollows, 1, bytes.fromhex("00000001 00000005"))[0] == Hollows(each=(Hollow(later=5),))


# --- unknown tagged fields


def test_unknown_tags_are_kept_and_written_back_in_the_order_of_tags() -> None:
    plain = build(probe(), 3)
    data = plain[:-1] + bytes.fromhex("04  01 01 aa  02 04 0000000a  03 00  c801 02 bbbb")
    read, end = parse(Probe, 3, data)
    assert end == len(data)
    assert read.late == 10
    assert tags_of(read) == {1: b"\xaa", 3: b"", 200: b"\xbb\xbb"}
    assert build(read, 3) == data


def test_structs_keep_their_own_unknown_tags() -> None:
    leaf = tagged(Leaf(id=7), {4: b"leaf"})
    data = build(probe(leaves=(leaf,)), 3)
    assert parse(Probe, 3, data)[0].leaves == (leaf,)


@pytest.mark.parametrize(
    ("tags", "complaint", "path"),
    [
        ("02 03 00 01 00", "tag 1 after tag 3", "unknown_tags"),
        ("02 03 00 03 00", "tag 3 after tag 3", "unknown_tags"),
        ("02 02 04 00000001 02 04 00000001", "tag 2 after tag 2", "unknown_tags"),
        ("01 02 03 00000001", "tagged field of 3 bytes took 4", "late"),
        ("01 02 05 0000000100", "tagged field of 5 bytes took 4", "late"),
        ("01 03 ffffffff0f", "4294967295 bytes wanted, 0 left", "unknown_tags"),
        ("ffffffff0f", "1 bytes wanted, 0 left", "unknown_tags"),
        ("ffffffff1f", "varint of more than 32 bits", "unknown_tags"),
        ("ffffffffff01", "varint of more than 32 bits", "unknown_tags"),
        ("01 00 01 00", "4 bytes wanted, 1 left", "inner.id"),
    ],
)
def test_damaged_tags_are_refused(tags: str, complaint: str, path: str) -> None:
    with pytest.raises(DecodeError, match=complaint) as caught:
        parse(Probe, 3, build(probe(), 3)[:-1] + bytes.fromhex(tags))
    assert caught.value.path == f"Probe.{path}"


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        ({2: b""}, "tag 2 is not unknown: it is late"),
        ({-1: b""}, "-1 is not a tag"),
        ({1 << 32: b""}, "is not a tag"),
        ({"1": b""}, "'1' is not a tag"),
        ({1: "x"}, "tag 1 has str, not bytes"),
        ({1: None}, "tag 1 has NoneType, not bytes"),
        ([1], "dict wanted, not list"),
        (None, "dict wanted, not NoneType"),
    ],
)
def test_unknown_tags_that_cannot_be_written_are_refused(tags: Any, complaint: str) -> None:
    with refused_at("Probe.unknown_tags", complaint):
        build(tagged(probe(), tags), 3)


def test_unknown_tags_are_shown_where_there_are_any() -> None:
    leaf = tagged(Leaf(id=7), {9: b"x"})
    assert repr(probe()) == repr(parse(Probe, 3, build(probe(), 3))[0])
    assert "unknown_tags" not in repr(probe())
    assert repr(leaf).endswith(", unknown_tags={9: b'x'})")
    assert repr(leaf) in repr(parse(Probe, 3, build(probe(leaves=(leaf,)), 3))[0])
    around = probe()
    around.leaves = (around,)  # type: ignore[assignment] # on purpose
    assert "leaves=(...,)" in repr(around)


def test_a_version_without_tags_cannot_carry_unknown_ones() -> None:
    with refused_at("Probe.leaves[0].unknown_tags", "version 2 has no tagged fields"):
        build(probe(leaves=(tagged(Leaf(id=7), {9: b""}),)), 2)


# --- values that cannot be built


def test_a_value_that_a_version_cannot_carry_is_refused() -> None:
    with refused_at("Probe.strict", r"version 1 has no such field \(it is in 2-3\), so it cannot carry 5"):
        build(probe(strict=5), 1)
    with refused_at("Probe.leaves[1].note", "cannot carry 'x'"):
        build(probe(leaves=(Leaf(id=1), Leaf(id=2, note="x"))), 0)
    with refused_at("Probe.inner", "cannot carry"):
        build(probe(inner=Leaf(id=2)), 2)


def test_an_ignorable_value_is_dropped_silently() -> None:
    assert build(probe(topic_id=uuid.UUID(int=5), late=77), 1) == build(probe(), 1)


def test_a_list_stands_for_a_tuple() -> None:
    assert build(probe(numbers=[], leaves=[Leaf(id=7)]), 0) == build(probe(), 0)
    assert build(probe(numbers=[1]), 1) == build(probe(numbers=(1,)), 1)


@pytest.mark.parametrize(
    ("fields", "path", "complaint"),
    [
        ({"flag": 1}, "flag", "bool wanted, not int"),
        ({"small": 128}, "small", "128 does not fit a signed integer of 8 bits"),
        ({"small": -129}, "small", "-129 does not fit"),
        ({"small": 1.0}, "small", "int wanted, not float"),
        ({"small": None}, "small", "int wanted, not NoneType"),
        ({"name": None}, "name", "this string cannot be null in this version"),
        ({"name": b"ab"}, "name", "str wanted, not bytes"),
        ({"name": "x" * (1 << 15)}, "name", "string of 32768 is longer than 32767"),
        ({"name": "\ud800"}, "name", "not encodable as UTF-8"),
        ({"blob": "text"}, "blob", "bytes wanted, not str"),
        ({"blob": memoryview(b"abcd")[::2]}, "blob", "cannot be read"),
        ({"leaves": {}}, "leaves", "tuple or list wanted, not dict"),
        ({"leaves": 5}, "leaves", "tuple or list wanted, not int"),
        ({"leaves": (Leaf(id=1), None)}, "leaves[1]", "Leaf wanted, not NoneType"),
        ({"leaves": (Leaf(id=1), Leaf(id=1 << 31))}, "leaves[1].id", "2147483648 does not fit a signed integer of 32"),
        ({"numbers": (1, 2, "3")}, "numbers[2]", "int wanted, not str"),
        ({"topic_id": "00"}, "topic_id", r"uuid\.UUID wanted, not str"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(fields: dict[str, Any], path: str, complaint: str) -> None:
    with refused_at(f"Probe.{path}", complaint):
        build(probe(**fields), 2)


def test_null_is_refused_where_a_version_has_none() -> None:
    with refused_at("Probe.blob", "this bytes cannot be null in this version"):
        build(probe(blob=None), 0)
    with refused_at("Probe.leaves", "this array cannot be null in this version"):
        build(probe(leaves=None), 1)
    with refused_at("Probe.inner", "Leaf wanted, not NoneType"):
        build(probe(inner=None), 3)


def test_tagged_values_that_do_not_fit_are_refused_with_their_path() -> None:
    with refused_at("Probe.late", "-1 does not fit an unsigned integer of 32 bits"):
        build(probe(late=-1), 3)
    with refused_at("Probe.inner.note", "str wanted, not int"):
        build(probe(inner=Leaf(id=1, note=5)), 3)  # type: ignore[arg-type] # on purpose
    with refused_at("Probe.words[0]", "str wanted, not bytes"):
        build(probe(words=(b"x",)), 4)


@pytest.mark.parametrize("name", ["name", "strict", "late", "unknown_tags"])
@pytest.mark.parametrize("version", [0, 3])
def test_an_attribute_that_was_deleted_is_missed(name: str, version: int) -> None:
    broken = probe()
    delattr(broken, name)
    with refused_at(f"Probe.{name}", "the attribute is missing"):
        build(broken, version)


def test_a_released_view_is_refused() -> None:
    view = memoryview(b"gone")
    view.release()
    with refused_at("Probe.blob", "cannot be read"):
        build(probe(blob=view), 2)


def test_views_of_wider_items_count_their_bytes() -> None:
    wide = memoryview(bytes(8)).cast("i")
    assert parse(Probe, 2, build(probe(blob=wide), 2))[0].blob == bytes(8)


# --- bytes that cannot be parsed


def metadata() -> MetadataResponse:
    partitions = tuple(
        MetadataResponsePartition(error_code=0, partition_index=index, leader_id=1, replica_nodes=(1,), isr_nodes=(1,))
        for index in range(2)
    )
    topics = tuple(MetadataResponseTopic(error_code=0, name=name, partitions=partitions) for name in ("a", "b"))
    return MetadataResponse(brokers=(), topics=topics)


def test_an_error_says_where_in_the_message_and_in_the_bytes() -> None:
    data = build(metadata(), 0)
    with pytest.raises(DecodeError, match="array of 1 elements with 3 bytes left") as caught:
        parse(MetadataResponse, 0, data[:-1])
    assert caught.value.path == "MetadataResponse.topics[1].partitions[1].isr_nodes"
    assert caught.value.offset == len(data) - 4
    with pytest.raises(DecodeError) as caught:
        parse(MetadataResponse, 0, data[:-9])
    assert caught.value.path == "MetadataResponse.topics[1].partitions[1].replica_nodes"
    assert caught.value.offset == len(data) - 12
    assert str(caught.value).startswith(f"{caught.value.path} at byte {len(data) - 12}: ")


def test_offsets_count_from_the_start_of_the_buffer() -> None:
    data = build(metadata(), 9)
    with pytest.raises(DecodeError) as caught:
        parse(MetadataResponse, 9, b"head" + data[:-1], 4)
    assert caught.value.offset == 4 + len(data) - 1


def test_a_string_that_is_not_utf8_is_refused_at_its_byte() -> None:
    data = bytearray(build(probe(name="abc"), 0))
    data[5] = 0xFF
    with pytest.raises(DecodeError, match="not UTF-8") as caught:
        parse(Probe, 0, data)
    assert (caught.value.path, caught.value.offset) == ("Probe.name", 5)


def test_null_on_the_wire_is_refused_where_a_version_has_none() -> None:
    with pytest.raises(DecodeError, match="string length of -1") as caught:
        parse(Probe, 0, bytes.fromhex("01 05 ffff"))
    assert (caught.value.path, caught.value.offset) == ("Probe.name", 2)
    with pytest.raises(DecodeError, match="string length of -1"):
        parse(Probe, 3, bytes.fromhex("01 05 00"))


def test_a_negative_length_is_never_null_but_minus_one() -> None:
    assert parse(MetadataRequest, 1, bytes.fromhex("ffffffff"))[0].topics is None
    with pytest.raises(DecodeError, match="array length of -2") as caught:
        parse(MetadataRequest, 1, bytes.fromhex("fffffffe"))
    assert (caught.value.path, caught.value.offset) == ("MetadataRequest.topics", 0)


@message(key=-1, versions="0")
class Numbers:
    """Integers that no request has, but records or old messages do."""

    word: int = field(UInt16)
    varint: int = field(VarInt)
    varlong: int = field(VarLong)


@given(word=strategies.integers(16, False), varint=strategies.integers(32, True), varlong=strategies.integers(64, True))
def test_varints_round_trip(word: int, varint: int, varlong: int) -> None:
    numbers = Numbers(word=word, varint=varint, varlong=varlong)
    data = build(numbers, 0)
    assert parse(Numbers, 0, data) == (numbers, len(data))


@pytest.mark.parametrize(
    ("data", "path", "bits", "offset"),
    [
        ("0000 8080808010 00", "varint", 32, 2),
        ("0000 808080808000 00", "varint", 32, 2),
        ("0000 00 80808080808080808002", "varlong", 64, 3),
        ("0000 00 8080808080808080808000", "varlong", 64, 3),
    ],
)
def test_varints_that_are_too_long_are_refused(data: str, path: str, bits: int, offset: int) -> None:
    with pytest.raises(DecodeError, match=f"varint of more than {bits} bits") as caught:
        parse(Numbers, 0, bytes.fromhex(data))
    assert (caught.value.path, caught.value.offset) == (f"Numbers.{path}", offset)


def test_varints_out_of_range_are_refused() -> None:
    with refused_at("Numbers.varint", "2147483648 does not fit a signed integer of 32 bits"):
        build(Numbers(word=0, varint=1 << 31, varlong=0), 0)
    with refused_at("Numbers.varlong", "int wanted, not str"):
        build(Numbers(word=0, varint=0, varlong="1"), 0)  # type: ignore[arg-type] # on purpose


@message(key=-1, versions="0")
class Quota:
    limit: float = field(Float64)


@pytest.mark.parametrize("limit", [0.1, -0.0, 5e-324, float("inf"), float("-inf")])
def test_floats_are_doubles(limit: float) -> None:
    data = struct_module.pack(">d", limit)
    assert build(Quota(limit=limit), 0) == data
    read = parse(Quota, 0, data)[0].limit
    assert (read, math.copysign(1, read)) == (limit, math.copysign(1, limit))


def test_not_a_number_stays_one() -> None:
    assert math.isnan(parse(Quota, 0, build(Quota(limit=math.nan), 0))[0].limit)


def test_an_int_stands_for_a_float_as_far_as_it_fits() -> None:
    assert parse(Quota, 0, build(Quota(limit=3), 0)) == (Quota(limit=3.0), 8)
    with refused_at("Quota.limit", "does not fit a float of 64 bits"):
        build(Quota(limit=10**400), 0)
    with refused_at("Quota.limit", "float wanted, not str"):
        build(Quota(limit="3"), 0)  # type: ignore[arg-type] # on purpose


@struct
class Owner:
    id: int = field(Int32)


@message(key=-1, versions="0-1")
class Owned:
    owner: Owner = field(Nested(Owner), "1+")


def test_a_nested_struct_may_demand_values_and_reads_as_zeros_where_a_version_lacks_it() -> None:
    assert parse(Owned, 1, build(Owned(owner=Owner(id=7)), 1))[0] == Owned(owner=Owner(id=7))
    assert parse(Owned, 0, b"") == (Owned(owner=Owner(id=0)), 0)
    with refused_at("Owned.owner", "cannot carry"):
        build(Owned(owner=Owner(id=7)), 0)


# --- the declarations themselves, where a version changed a meaning


def test_metadata_v0_asks_for_all_topics_with_an_empty_list_and_v1_with_null() -> None:
    assert build(MetadataRequest(topics=()), 0) == build(MetadataRequest(topics=()), 1) == bytes(4)
    assert build(MetadataRequest(topics=None), 1) == bytes.fromhex("ffffffff")
    with refused_at("MetadataRequest.topics", "cannot be null"):
        build(MetadataRequest(topics=None), 0)


def test_a_topic_by_id_needs_a_version_that_knows_ids() -> None:
    by_id = MetadataRequest(topics=(MetadataRequestTopic(topic_id=uuid.UUID(int=1), name=None),))
    assert parse(MetadataRequest, 12, build(by_id, 12))[0] == by_id
    with refused_at("MetadataRequest.topics[0].name", "cannot be null"):
        build(by_id, 9)


def test_a_transactional_produce_cannot_be_sent_in_a_version_without_transactions() -> None:
    data = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=b""),))
    request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1, topic_data=(data,))
    assert parse(ProduceRequest, 3, build(request, 3))[0] == request
    with refused_at("ProduceRequest.transactional_id", "cannot carry 'x'"):
        build(request, 2)


def test_the_replica_of_a_fetch_moves_into_a_tagged_struct() -> None:
    plain = FetchRequest(max_wait_ms=1, min_bytes=1, topics=())
    assert build(plain, 14)[:4] == bytes.fromhex("ffffffff")
    assert build(plain, 15)[:4] == bytes.fromhex("00000001"), "max_wait_ms comes first"
    plain.replica_state.replica_id = 3
    assert build(plain, 15).endswith(bytes.fromhex("01  01 0d 00000003 ffffffffffffffff 00"))


def test_features_of_an_api_versions_answer_are_dropped_for_old_clients() -> None:
    answer = ApiVersionsResponse(error_code=0, api_keys=(), finalized_features_epoch=5, zk_migration_ready=True)
    assert build(answer, 0) == bytes.fromhex("0000 00000000")
    assert build(answer, 3) == bytes.fromhex("0000 01 00000000 02  01 08 0000000000000005  03 01 01")


def test_records_of_a_fetch_stay_opaque() -> None:
    part = PartitionData(partition_index=0, error_code=0, high_watermark=5, records=b"torn batch")
    assert build(part_of(part), 11).endswith(bytes.fromhex("0000000a") + b"torn batch")
    assert build(part_of(part), 12).endswith(b"\x0btorn batch\0\0\0")


def part_of(part: PartitionData) -> FetchResponse:
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(part,)),))
