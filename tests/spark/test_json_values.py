"""JSON values to columns, without a Spark: Arrow, which takes all at once, and Python, one by one, give the same."""

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from ottla.spark.columns import json_values
from ottla.spark.columns.json_values import parse_values

KIND = pa.struct(
    [
        ("tiny", pa.int8()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("yes", pa.bool_()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(6, 2)),
        ("inner", pa.struct([("x", pa.int64()), ("day", pa.date32())])),
        ("numbers", pa.list_(pa.field("element", pa.int32()))),
        ("items", pa.list_(pa.field("element", pa.struct([("name", pa.string()), ("at", pa.timestamp("us"))])))),
    ]
)
NOTHING: dict[str, Any] = dict.fromkeys(field.name for field in KIND)

TOKENS = [
    *("0", "-1", "-0", "127", "128", "9223372036854775807", "9223372036854775808", "1.0", "1e3", "1E400", "-1e-400"),
    *("0.1", "9999.994", "12345", "16777217", "3.4e38", "1e40", "NaN", "Infinity", "-Infinity", "Inf", "-Inf", "+1"),
    *("01", ".5", "5.", "true", "false", "null", '""', '"x"', '"1"', '" 1"', '"NaN"', '"+1.5"', '".5"', '"1,2"'),
    *('"2020-01-01"', '"2020-1-1"', '"2020-02-30"', '"2020-01-01T10:11:12"', '"2020-01-01 10:11"', '"2020-01-01T10"'),
    *('"2020-01-01T10:11:12Z"', '"2020-01-01T10:11:12.5+02:00"', '"2020-01-01T10:11:12.123456789Z"', '"2020"'),
    *('"2020-01-01T10:11:12+0230"', '"2020-01-01T10:11:12-23:59"', '"0000-01-01"', '"9999-12-31T23:59:59Z"'),
    *('"2020-01-01T24:00:00"', '"2020-01-01T10:11:12."', '"2020-01-01Z"', '"1900-02-29"', '"2000-02-29"'),
    *('"\\u0041"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\u0000"', '"é"', '"a\\nb"', '"a\nb"', '"\t"', '"\\x"', '"Info"'),
    *("[]", "[1]", "[1, null]", '["x"]', "[1, 2.5]", "{}", '{"x": 1}', '{"x": "1"}', '{"day": "2020-01-01"}', "[null]"),
    *('{"x": 1, "x": 2}', '[{"name": "1"}, {}]', '[{"name": 1}]', '[{"at": "2020-01-01"}]', "1" * 5000, "[" * 50),
    *("[" * 2000 + "]" * 2000, '{"a":' * 2000 + "1" + "}" * 2000),
]


def parsed(*values: bytes | None, kind: pa.StructType = KIND) -> list[tuple[Any, bytes | None]]:
    structs, corrupt = parse_values(pa.array(values, pa.binary()), kind)
    assert structs.type == kind
    structs.validate(full=True)
    return list(zip(structs.to_pylist(), corrupt.to_pylist(), strict=True))


def test_each_value_stands_in_its_row_whatever_its_neighbours_are() -> None:
    values = [b'{"id": 1}', None, b"", b'{"id": 2', b'\n{"id":\n3}\r\n', b"[]", b"\xff", b'{"id": 4}']
    found = parsed(*values)
    assert [row and row["id"] for row, _ in found] == [1, None, None, None, 3, None, None, 4]
    assert [corrupt for _, corrupt in found] == [None, None, b"", b'{"id": 2', None, b"[]", b"\xff", None]
    assert found[1] == (None, None), "a tombstone"
    assert found[2] == (NOTHING, b""), "the struct is there, and its fields are null"


@pytest.mark.parametrize(
    "values",
    [
        [b'{"id":1}{"id":2}', b""],
        [b'{"id":1}\n{"id":2}', b" \n"],
        [b'{"inner":', b'{"x":1}}', b'{"id":1}{"id":2}'],
        [b'{"numbers":[{"id":1}', b'{"id":2}]}', b'{"id":1}{"id":2}'],
        [b'{"name":"}', b'{"}', b'{"id":1} {"id":2}'],
        [b'{"id":1},{"id":2}'],
        [b'{"id":1}\0{"id":2}'],
    ],
)
def test_values_that_form_as_many_objects_only_when_joined_are_bad(values: list[bytes]) -> None:
    around = [b'{"id":7}'] * 200
    found = parsed(*around, *values, *around)
    assert found[200:-200] == [(NOTHING, value) for value in values]
    assert {row["id"] for row, _ in found[:200] + found[-200:]} == {7}


def test_fields_that_fit_are_kept_beside_fields_that_do_not() -> None:
    value = (
        b'{"id": "x", "name": "n", "inner": {"x": 1.5, "day": "2020-01-01"}, "numbers": [1, "x"], "items": [{"at": 1}]}'
    )
    [(row, corrupt)] = parsed(value)
    assert corrupt == value
    assert (row["id"], row["name"], row["numbers"], row["items"]) == (None, "n", None, [{"name": None, "at": None}])
    assert row["inner"]["x"] is None and str(row["inner"]["day"]) == "2020-01-01"


def test_objects_of_any_names_and_base64_are_read_one_by_one() -> None:
    kind = pa.struct([("sizes", pa.map_(pa.string(), pa.int32())), ("raw", pa.binary())])
    found = parsed(b'{"sizes": {"a": 1, "b": null}, "raw": "AQI="}', b'{"sizes": {"a": "x"}, "raw": "?"}', kind=kind)
    assert found[0] == ({"sizes": [("a", 1), ("b", None)], "raw": b"\1\2"}, None)
    assert found[1] == ({"sizes": None, "raw": None}, b'{"sizes": {"a": "x"}, "raw": "?"}')


def test_no_rows_are_no_rows() -> None:
    assert parsed() == []
    assert parsed(None, None) == [(None, None)] * 2


def test_few_bad_values_do_not_make_the_others_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one, counted = json_values._one_by_one, 0

    def counting(texts: pa.StringArray, kind: pa.StructType) -> Any:
        nonlocal counted
        counted += len(texts)
        return one_by_one(texts, kind)

    monkeypatch.setattr(json_values, "_one_by_one", counting)
    values = [b'{"id": %d}' % number for number in range(10_000)]
    values[100] = values[7_000] = b'{"id": "x"}'
    found = parsed(*values)
    assert [number for number, (_, corrupt) in enumerate(found) if corrupt] == [100, 7_000]
    assert counted <= 2 * json_values._FEW


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.9])
def test_a_values_row_does_not_depend_on_where_others_are_wrong(share: float) -> None:
    rng = random.Random(share)
    wrong = [b'{"id": "x"}', b'{"id": 99999999999999999999}', b'{"id": 1.5}', b"{nothing}", b'{"id": 1', b'{"id": 1}}']
    values = [rng.choice(wrong) if rng.random() < share else b'{"id": %d}' % number for number in range(3_000)]
    values[-1] = wrong[0]
    for number, (row, corrupt) in enumerate(parsed(*values)):
        right = values[number] not in wrong
        assert corrupt == (None if right else values[number])
        assert row["id"] == (number if right else None)


@pytest.mark.parametrize("number", ["-NaN", "NaN", "Inf", "-Inf", "Infinity", "-Infinity"])
@pytest.mark.parametrize("neighbour", [b'{"id": 2}', b'{"id": "x"}', b'{"id": 2'])
def test_nan_and_infinity_are_read_whatever_their_neighbours_are(number: str, neighbour: bytes) -> None:
    value = b'{"id": 1, "other": %s}' % number.encode()
    (row, corrupt), _ = parsed(value, neighbour)
    assert (row["id"], corrupt) == (1, None)


def accepted_by_arrow(text: str, kind: pa.StructType) -> pa.StructArray | None:
    try:
        return json_values._at_once(pa.array([text]), kind)
    except json_values._RefusedText:
        return None


DECIMALS = [(5, 2), (5, 0), (5, 5), (20, 2), (38, 0), (38, 6), (38, 10), (38, 18), (38, 37), (38, 38)]
MANY_DIGITS = [
    *("1000", "999.99", "999.994", "999.995", "99999", "100000", "1e2", "1e3", "1e5", "1e37", "1e38", "1e76", "123e-2"),
    *("0.99999", "1.00000", "1.000000000000000000000000", "0e50", "1e-50", "-1e4", "-99999.5", "1e99999999999"),
    *(digit * length + rest for digit in "19" for length in (20, 28, 29, 30, 37, 38, 39) for rest in ("", ".5", ".00")),
    *("123456789012345678901234567890", "-123456789012345678901234567890123.456789", "1" * 20 + "." + "1" * 18),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [*(field.type for field in KIND), *(pa.decimal128(*each) for each in DECIMALS)],
    ids=str,
)
def test_for_each_type_python_accepts_the_tokens_of_arrow_with_the_same_result(kind: pa.DataType) -> None:
    """Tested alone, in an array and in a struct. The result must also be valid for its type."""
    whole = pa.struct([("v", kind), ("l", pa.list_(pa.field("element", kind))), ("s", pa.struct([("v", kind)]))])
    accepted = set()
    for token in [*TOKENS, *(MANY_DIGITS if pa.types.is_decimal(kind) else ())]:
        text = f'{{"v": {token}, "l": [null, {token}], "s": {{"v": {token}}}}}'
        at_once = accepted_by_arrow(text, whole)
        if at_once is None:
            continue
        at_once.validate(full=True)
        accepted.add(token)
        try:
            one_by_one, wrong = json_values._one_by_one(pa.array([text]), whole)
        except json_values._ArrowDecides:
            continue
        assert at_once.equals(one_by_one) or token == "NaN", text
        assert wrong.to_pylist() == [False], text
    assert len(accepted) > 1 and "null" in accepted


@pytest.mark.parametrize("neighbour", [b'{"d":12.5}', b'{"d":}'])
def test_a_decimal_of_more_digits_than_its_type_has_is_bad_whatever_its_neighbours_are(neighbour: bytes) -> None:
    for precision, scale, digits in ((5, 2, b"1000"), (38, 18, b"123456789012345678901234567890"), (38, 38, b"1")):
        value = b'{"d":%s}' % digits
        found = parsed(value, neighbour, kind=pa.struct([("d", pa.decimal128(precision, scale))]))
        assert found[0] == ({"d": None}, value)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_python_accepts_the_values_of_arrow_with_the_same_result(seed: int) -> None:
    rng = random.Random(seed)
    names = [*NOTHING, "other"]
    accepted = 0
    for _ in range(400):
        pairs = [json.dumps(rng.choice(names)) + rng.choice([":", " :\n"]) + rng.choice(TOKENS) for _ in range(2)]
        text = "{" + ", ".join(pairs[: rng.randrange(3)]) + "}"
        at_once = accepted_by_arrow(text, KIND)
        if at_once is None:
            continue
        accepted += 1
        # Beside a value that Arrow refuses, Python decides.
        structs, corrupted = parse_values(pa.array([text.encode(), b'{"id": "x"}'], pa.binary()), KIND)
        assert corrupted[0].as_py() is None, text
        assert structs.take([0]).equals(at_once) or "NaN" in text, text
    assert accepted > 50
