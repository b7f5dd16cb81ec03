"""Records as lines of text or JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.exits import BadInput
from ottla.cli.lines import Line, as_json, header_fields, parse_json, parse_text

optional_bytes = st.none() | st.binary(max_size=40)


def test_a_line_without_a_separator_is_a_value() -> None:
    assert parse_text(b"a:b", None) == Line(value=b"a:b")


def test_a_line_is_cut_at_its_first_separator() -> None:
    assert parse_text(b"k::v", b":") == Line(key=b"k", value=b":v")


def test_a_line_that_lacks_its_separator_is_refused() -> None:
    with pytest.raises(BadInput, match=r"separator ':' .* is not in 'kv'"):
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
    with pytest.raises(BadInput, match="surrogates not allowed") as caught:
        parse_json(line)
    str(caught.value).encode()


def test_a_whole_character_that_is_written_in_halves_is_taken() -> None:
    assert parse_json(rb'{"value":"\ud83e\udda6"}') == Line(value="\U0001f9a6".encode())


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
    assert parse_json(line) == Line(key=key, value=value, partition=3, timestamp=5, headers=tuple(headers))


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


def test_headers_may_be_written_as_an_object() -> None:
    assert parse_json(b'{"value": "v", "headers": {"a": "1", "b": null}}').headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'"v"', "not an object"),
        (b'{"key": "k"}', 'no "value"'),
        (b'{"value": "v", "vlaue": "w"}', "vlaue is not known"),
        (b'{"value": "v", "key": 7}', "key must be a string"),
        (b'{"value_base64": "%"}', "not base64"),
        (b'{"value_base64": 7}', "not base64"),
        (b'{"value": "v", "partition": -1}', "partition must be a whole number"),
        (b'{"value": "v", "partition": true}', "partition must be a whole number"),
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
