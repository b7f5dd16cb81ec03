"""Records as lines of text or JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.exits import BadInput
from ottla.cli.lines import InputRecord, as_json, header_fields, parse_json, parse_separator, parse_text
from ottla.codec import read_record_set
from ottla.codec.message_sets import Message, build_message

optional_bytes = st.none() | st.binary(max_size=40)


def test_a_line_without_a_separator_is_a_value() -> None:
    assert parse_text(b"a:b", None) == InputRecord(value=b"a:b")


def test_a_line_is_cut_at_its_first_separator() -> None:
    assert parse_text(b"k::v", b":") == InputRecord(key=b"k", value=b":v")


def test_an_empty_line_is_called_that() -> None:
    assert parse_text(b"", None) == InputRecord(value=b"")
    with pytest.raises(BadInput, match="it is empty, but must have the separator ';'"):
        parse_text(b"", b";")


def test_a_separator_may_be_a_tab_and_need_not_be_utf8() -> None:
    assert parse_separator(None) is None
    assert parse_separator(r"\t") == b"\t"
    assert parse_separator(b"\xff".decode(errors="surrogateescape")) == b"\xff"
    assert parse_text(b"k\xffv", b"\xff") == InputRecord(key=b"k", value=b"v")
    with pytest.raises(BadInput, match=r"\\xff.* is not in: kv"):
        parse_text(b"kv", b"\xff")


def test_a_line_that_lacks_its_separator_is_refused() -> None:
    with pytest.raises(BadInput, match=r"separator ':' .* is not in: kv"):
        parse_text(b"kv", b":")


@pytest.mark.parametrize(
    "line",
    [
        rb'{"key":"\ud800","value":"x"}',
        rb'{"value":["\uDC00"]}',
        rb'{"value":"x","headers":{"\ud800":"y"}}',
        rb'{"value":"x","\ud800":1}',
        b'{"value":"\xed\xa0\x80"}',
    ],
)
def test_half_a_character_is_refused(line: bytes) -> None:
    with pytest.raises(BadInput, match="half a surrogate pair") as caught:
        parse_json(line)
    str(caught.value).encode()


def test_a_whole_character_that_is_written_in_halves_is_taken() -> None:
    assert parse_json(rb'{"value":"\ud83e\udda6"}') == InputRecord(value="\U0001f9a6".encode())


def test_bytes_that_are_not_utf8_are_marked_as_base64() -> None:
    assert json.loads(as_json(key=b"\xff\x00", value="grün".encode())) == {"key_base64": "/wA=", "value": "grün"}


@given(optional_bytes, optional_bytes, st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3))
def test_what_consume_prints_produce_takes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = as_json(
        topic="t", partition=3, offset=17, timestamp=5, key=key, value=value, headers=header_fields(tuple(headers))
    )
    assert b"\n" not in line
    assert parse_json(line) == InputRecord(key=key, value=value, partition=3, timestamp=5, headers=tuple(headers))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"value": {"a": [1, null]}}', b'{"a":[1,null]}'),
        (b'{"value": 17}', b"17"),
        (b'{"value": true}', b"true"),
        (b'{"value": null}', None),
        (b'{"value": ""}', b""),
    ],
)
def test_a_value_that_is_no_string_is_sent_as_the_json_it_is(line: bytes, value: bytes | None) -> None:
    assert parse_json(line).value == value


@pytest.mark.parametrize(
    "given",
    ["12345678901234567.25", "1.10", "1e999", "-0.0", "1E+2", '{"price":0.10000000000000000555}', "[1.0,[2e0]]"],
)
def test_a_number_is_sent_with_the_digits_that_were_given(given: str) -> None:
    for line in (f'{{"value":{given}}}', f' {{ "key" : "k" , "value" : {given} , "headers" : {{"value":"[1.5]"}} }} '):
        assert parse_json(line.encode()).value == given.encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.lists(json_values, max_size=3) | st.dictionaries(st.text(max_size=3), json_values, max_size=3), st.booleans())
def test_a_value_keeps_its_meaning_and_loses_its_spaces_only(value: object, ascii: bool) -> None:
    line = json.dumps({"headers": {"value": "1"}, "value": value, "key": "k"}, ensure_ascii=ascii, indent=1)
    sent = parse_json(line.encode()).value or b""
    assert json.loads(sent) == value
    assert sent.decode() == json.dumps(value, ensure_ascii=ascii, separators=(",", ":"))


def test_the_last_of_two_values_counts() -> None:
    assert parse_json(b'{"value": 1.0, "value": 2.0}').value == b"2.0"


def test_what_consume_prints_of_a_record_without_a_timestamp_produce_takes() -> None:
    stored = build_message(Message(offset=0, magic=0, key=None, value=b"old"))
    [record] = next(read_record_set(stored)).records()
    line = as_json(topic="t", partition=0, offset=0, timestamp=record.timestamp, key=record.key, value=record.value)
    assert b'"timestamp":-1' in line
    assert parse_json(line) == InputRecord(value=b"old", partition=0, timestamp=None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"value":null,"value_base64":"eA=="}', r'"value_base64": {"value":null,"value_base64":"eA=="}'),
        (b'{"value":"x","key":[true,null]}', "key must be a string or null, not [true,null]"),
        (b'{"value":"x","partition":"0"}', 'partition must be a whole number, 0 or more, not "0"'),
        (b'{"value":"x","partition":true}', "partition must be a whole number, 0 or more, not true"),
        (b'["a\tb"]', r'not JSON (invalid control character at character 4): ["a\tb"]'),
        (b'["a"]', 'such as {"value": "…"}: ["a"]'),
        (b'{"value": x}', "not JSON (expecting value at character 11): {"),
        (b'{"value": "\xff"}', r'not JSON (byte 12 is not UTF-8): {"value": "\xff"}'),
        (b'{"value": "\\ud800"}', "not JSON (it has half a surrogate pair"),
    ],
)
def test_what_is_refused_is_shown_as_it_was_written(line: bytes, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_json(line)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"value":"x","headers":[{"key":"a","valeu":"b"}]}', 'a header has key and value, .*not "valeu"'),
        (b'{"value":"x","headers":[{"key":"a","key_base64":"//8=","value":"b"}]}', 'not "key_base64"'),
        (b'{"value":"x","headers":[{"key":"a","value":"b","value_base64":"Yw=="}]}', 'has both "value" and'),
        (b'{"value":"x","value_base64":"eA=="}', 'has both "value" and'),
    ],
)
def test_nothing_of_a_line_is_left_out_in_silence(line: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_json(line)


def test_headers_may_be_written_as_an_object() -> None:
    assert parse_json(b'{"value": "v", "headers": {"a": "1", "b": null}}').headers == (("a", b"1"), ("b", None))


def test_an_object_of_headers_has_no_name_twice_and_a_list_may() -> None:
    with pytest.raises(BadInput, match=r"headers have the name \"a\" more than once: .* \[\{\"key\": "):
        parse_json(b'{"headers": {"a": "1", "b": null, "\\u0061": "2"}, "value": "v"}')
    repeated = b'{"value": "v", "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}'
    assert parse_json(repeated).headers == (("a", b"1"), ("a", b"2"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'"v"', "not an object"),
        (b'{"key": "k"}', 'no "value"'),
        (b'{"value": "v", "vlaue": "w"}', '"vlaue" is not a field of a record; those are headers, key'),
        (b'{"value": "v", "key": 7}', "key must be a string"),
        (b'{"value_base64": "%"}', "not base64"),
        (b'{"value_base64": 7}', "not base64"),
        (b'{"value": "v", "partition": -1}', "partition must be a whole number"),
        (b'{"value": "v", "partition": true}', "partition must be a whole number"),
        (b'{"value": "v", "timestamp": -2}', "timestamp must be whole milliseconds since 1970"),
        (b'{"value": "v", "timestamp": 1e3}', "timestamp must be whole milliseconds since 1970"),
        (b'{"value": NaN}', "NaN is not a JSON number"),
        (b'{"value": [-Infinity]}', "-Infinity is not a JSON number"),
        (b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"value": "v", "value_base64": "dg=="}', 'both "value" and "value_base64"'),
        (b'{"value": "v", "headers": ["h"]}', "headers must be"),
        (b'{"value": "v", "headers": 7}', "headers must be"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_reason(line: bytes, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        parse_json(line)


@given(st.binary(max_size=60))
def test_no_line_breaks_the_parser(line: bytes) -> None:
    try:
        parse_json(line)
    except BadInput as error:
        assert str(error)
