"""Converts JSON values to Arrow columns: `valueFormat=json`.

Rules:
- No value raises, and no value is lost. If a value is not a JSON object, or a field does not fit its type, the value is
  returned as bytes beside its row. Fields that do fit are in the row, as in Spark's `from_json` with mode PERMISSIVE.
- The result for a value depends on the value alone, not on the values that are parsed along with it.

Theory of operation: Arrow parses many values at once, joined by newlines, but only reports how many rows it found. Each
joined value begins with ``{`` and ends with ``}``, so each newline between two values separates two documents: within
an object, JSON has no ``}`` that is followed by ``{``, and within a string a newline is an error. So every value is at
least one document, and if there are as many rows as values, each value is exactly one. If Arrow refuses a value and
reports which one, Python parses it, and Arrow continues after it. If Arrow does not report which one, the values are
halved until few are left around the refused one, and Python parses these one by one. Python accepts everything that
Arrow accepts, with the same result, and also what only `from_json` accepts.

Source: JacksonParser.scala, SparkDateTimeUtils.scala.
"""

import base64
import calendar
import json
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.json import ParseOptions, read_json
from pyarrow.json import ReadOptions as BlockOptions

_FEW = 128
"""Up to this many values are parsed one by one if Arrow refuses one of them; asking Arrow a few times takes as long."""
_MOST_DIGITS = 38
"""Digits of a Spark decimal. With as many again after the point, they are the 76 that Arrow can hold."""
_SPACE = " \t\r\n"
"""The whitespace that JSON allows around a value."""


def parse_values(values: pa.BinaryArray, kind: pa.StructType) -> tuple[pa.StructArray, pa.BinaryArray]:
    """Return a struct for each of ``values``, and beside it the value itself if it does not fit ``kind``, else null.

    A null value is null in both. For a value that is not a JSON object, all fields of the struct are null.
    """
    texts = pc.ascii_trim(_texts(values), _SPACE)
    likely = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}")).fill_null(False)
    objects = texts.filter(likely)
    parts = list(_parts(objects, kind, fast=_arrow_can(kind)))
    # Two more rows follow the objects: the result for a null value, and the result for a value that is no object.
    structs = pa.concat_arrays([*(part for part, _ in parts), pa.array([None, {}], kind)])
    wrong = pa.concat_arrays([*(part for _, part in parts), pa.array([False, True])])
    null, other = len(objects), len(objects) + 1
    rows = pc.subtract(pc.cumulative_sum(likely.cast(pa.int64())), 1)
    rows = pc.if_else(likely, rows, pc.if_else(values.is_valid(), other, null))
    return structs.take(rows), pc.if_else(wrong.take(rows), values, pa.scalar(None, values.type))


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    """Decode ``values``; null for a value that is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else _text(each) for each in values.to_pylist()], pa.string())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


Parts = Iterator[tuple[pa.Array, pa.BooleanArray]]


def _parts(texts: pa.StringArray, kind: pa.StructType, *, fast: bool) -> Parts:
    """Yield, part by part, the structs of ``texts``, and which of the texts do not fit.

    Args:
        fast: whether Arrow can parse the type.
    """
    if not fast:
        yield from _singly(texts, kind, fast=fast)
        return
    window = len(texts)
    while texts:
        some = texts[:window]
        try:
            structs = _at_once(some, kind)
        except _RefusedText as refusal:
            row = refusal.row
        else:
            yield structs, pa.repeat(pa.scalar(False), len(some))
            texts, window = texts[window:], 2 * window
            continue
        if len(some) <= _FEW and row is None:
            start, stop = 0, len(some)
        elif row is None:
            start = stop = len(some) // 2
        elif row < _FEW // 8:
            start, stop = 0, min(_FEW, len(some))
        else:
            start, stop = row, row + 1
            window = max(_FEW, 2 * row)  # the values after it have to be joined again each time
        yield from _parts(some[:start], kind, fast=fast)
        yield from _singly(some[start:stop], kind, fast=fast)
        texts = texts[stop:]


def _singly(texts: pa.StringArray, kind: pa.StructType, *, fast: bool) -> Parts:
    """Parse as `_parts` does, but one by one."""
    if not texts:
        return
    try:
        yield _one_by_one(texts, kind)
    except _ArrowDecides:
        if len(texts) > 1:
            half = len(texts) // 2
            yield from _singly(texts[:half], kind, fast=fast)
            yield from _singly(texts[half:], kind, fast=fast)
            return
        try:
            yield (_at_once(texts, kind) if fast else pa.array([{}], kind)), pa.array([not fast])
        except _RefusedText:
            yield pa.array([{}], kind), pa.array([True])


# -- many values at once ----------------------------------------------------------------------------------------------


def _arrow_can(kind: pa.DataType) -> bool:
    """Whether Arrow parses the type, or a text that it can cast to the type. It cannot parse maps or base64."""
    if pa.types.is_struct(kind):
        return all(_arrow_can(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _arrow_can(kind.value_type)
    return not pa.types.is_map(kind) and not pa.types.is_binary(kind)


class _RefusedText(Exception):
    """Arrow refuses one of the texts: the one in ``row``, if Arrow reports which."""

    def __init__(self, row: int | None) -> None:
        super().__init__(row)
        self.row = row


_row_in = re.compile(r"JSON parse error: .* in row ([0-9]+)$", re.DOTALL).match


def _at_once(texts: pa.StringArray, kind: pa.StructType) -> pa.StructArray:
    """Return the structs of ``texts``.

    Raises:
        _Refused: Arrow refuses one of the texts.
    """
    try:
        lines = pa.concat_arrays([texts, pa.array([""])])  # so that the last line ends with a newline too
        whole = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_buffer()
        table = read_json(
            pa.BufferReader(whole),
            read_options=BlockOptions(use_threads=False, block_size=len(whole) + 1),
            parse_options=_parse_options(kind),
        )
        if len(table) != len(texts):
            raise _RefusedText(None)
        columns = [table[field.name].combine_chunks() for field in kind]
        columns = [_converted(column, field.type) for column, field in zip(columns, kind, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(kind))
    except pa.ArrowException as error:
        found = _row_in(str(error))
        row = int(found[1]) if found else len(texts)
        raise _RefusedText(row if row < len(texts) else None) from None


@cache
def _parse_options(kind: pa.StructType) -> ParseOptions:
    return ParseOptions(explicit_schema=pa.schema(list(_parsed_as(kind))), unexpected_field_behavior="ignore")


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """Return the type to have Arrow parse for ``kind``.

    Left alone, Arrow accepts a number as a date, and ignores the zone of a time without time zone; so both are parsed
    as text. In a decimal, Arrow counts the digits of the text, not those that the scale adds; so we parse with room for
    both, and the cast to ``kind`` checks the digits again.
    """
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed_as(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed_as(kind.value_type)))
    if pa.types.is_decimal(kind):
        return pa.decimal256(_MOST_DIGITS, kind.scale)
    is_text = pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)
    return pa.string() if is_text else kind


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert ``column``, which has the type of `_parsed_as`, to ``kind``."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        fields = [_converted(column.field(number), field.type) for number, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        items = _converted(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, items, type=kind, mask=column.is_null())
    return column.cast(kind)


# -- one by one -------------------------------------------------------------------------------------------------------

Reader = Callable[[str, int], tuple[Any, int, bool]]
"""Takes a text and where a value begins in it. Returns the result, where the value ends, and whether it fits.

Raises one of `_NO_JSON` if the text there is not JSON.
"""
_NO_JSON = (ValueError, StopIteration, IndexError)


class _ArrowDecides(Exception):
    """Python cannot parse a text that Arrow may accept: nested too deeply for Python, or with ``Inf`` or ``-NaN``."""


def _whole(text: str) -> int | float:
    """Parse an integer. Python refuses thousands of digits, and none of our types can hold such a number."""
    return int(text) if len(text) < 1000 else float(text)


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_int=_whole).scan_once  # type: ignore[attr-defined]
_only_arrow_knows = re.compile(r"[:,\[]\s*-?(?:Inf|NaN)\s*[,}\]]").search
"""Numbers that Python's parser does not accept: ``Inf`` and ``-NaN``."""
_space = re.compile(f"[{_SPACE}]*")


def _past_space(text: str, at: int) -> int:
    found = _space.match(text, at)
    assert found is not None  # the pattern matches the empty string
    return found.end()


def _one_by_one(texts: pa.StringArray, kind: pa.StructType) -> tuple[pa.StructArray, pa.BooleanArray]:
    read = _reader(kind)
    found, wrong = [], []
    for text in texts.to_pylist():
        try:
            row, end, fits = read(text, 0)
            if end != len(text):
                row, fits = {}, False
        except RecursionError:
            raise _ArrowDecides from None
        except _NO_JSON:
            if _only_arrow_knows(text):
                raise _ArrowDecides from None
            row, fits = {}, False
        found.append(row)
        wrong.append(not fits)
    return pa.array(found, kind), pa.array(wrong)


@cache
def _reader(kind: pa.DataType) -> Reader:
    if pa.types.is_struct(kind):
        return _object_reader({field.name: _reader(field.type) for field in kind}.get, _fields)
    if pa.types.is_map(kind):
        values = _reader(kind.item_type)
        return _object_reader(lambda _: values, _entries)
    if pa.types.is_list(kind):
        return _array_reader(_reader(kind.value_type))
    return _leaf_reader(_conversion(kind))


def _fields(found: dict[str, Any], _: bool) -> dict[str, Any]:
    return found


def _entries(found: dict[str, Any], whole: bool) -> list[tuple[str, Any]] | None:
    """Return the entries of a map, or null if one of its values does not fit at all."""
    return list(found.items()) if whole else None


def _object_reader(reader_of: Callable[[str], Reader | None], made: Callable[[dict[str, Any], bool], Any]) -> Reader:
    """Make a reader for objects with the fields that ``reader_of`` knows; of fields with the same name the last counts.

    Args:
        made: builds the result from the fields, and from whether each of them fits at least in part.
    """

    def read(text: str, at: int) -> tuple[Any, int, bool]:
        if text[at] != "{":
            return _misfit(text, at)
        found: dict[str, Any] = {}
        fits = whole = True
        at = _past_space(text, at + 1)
        if text[at] == "}":
            return made(found, True), at + 1, True
        while True:
            if text[at] != '"':
                raise ValueError
            name, at = _scan(text, at)
            at = _past_space(text, at)
            if text[at] != ":":
                raise ValueError
            at = _past_space(text, at + 1)
            reader = reader_of(name)
            if reader is None:
                _, at = _scan(text, at)
            else:
                name.encode()  # raises if the name has half of a surrogate pair
                found[name], at, well = reader(text, at)
                fits = fits and well
                whole = whole and (well or found[name] is not None)
            at = _past_space(text, at)
            if text[at] == "}":
                return made(found, whole), at + 1, fits
            if text[at] != ",":
                raise ValueError
            at = _past_space(text, at + 1)

    return read


def _array_reader(read_item: Reader) -> Reader:
    """Make a reader for arrays. An array is null as a whole if an item does not fit, not even in part."""

    def read(text: str, at: int) -> tuple[Any, int, bool]:
        if text[at] != "[":
            return _misfit(text, at)
        found: list[Any] = []
        fits = whole = True
        at = _past_space(text, at + 1)
        if text[at] == "]":
            return found, at + 1, True
        while True:
            item, at, well = read_item(text, at)
            found.append(item)
            fits = fits and well
            whole = whole and (well or item is not None)
            at = _past_space(text, at)
            if text[at] == "]":
                return (found if whole else None), at + 1, fits
            if text[at] != ",":
                raise ValueError
            at = _past_space(text, at + 1)

    return read


def _misfit(text: str, at: int) -> tuple[Any, int, bool]:
    """Skip a value of another type; null fits every type."""
    value, end = _scan(text, at)
    return None, end, value is None


def _leaf_reader(convert: Callable[[Any, str], Any]) -> Reader:
    def read(text: str, at: int) -> tuple[Any, int, bool]:
        value, end = _scan(text, at)
        if value is None:
            return None, end, True
        try:
            return convert(value, text[at:end]), end, True
        except (ValueError, ArithmeticError):
            return None, end, False

    return read


def _conversion(kind: pa.DataType) -> Callable[[Any, str], Any]:
    """Return the function that converts a JSON value to a simple type. It gets the value from Python's parser, and its
    text."""
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return lambda value, _: _integer(value, most)
    if pa.types.is_floating(kind):
        return lambda value, text: _float(value, text, kind)
    if pa.types.is_decimal(kind):
        return lambda value, text: _decimal(value, text, kind)
    if pa.types.is_date(kind):
        return lambda value, _: _date(value)
    if pa.types.is_timestamp(kind):
        return _local_time if kind.tz is None else _time
    assert pa.types.is_binary(kind)  # no other type is in a schema
    return _binary


def _string(value: Any, text: str) -> str:
    found = value if isinstance(value, str) else text
    found.encode()  # raises if the text has half of a surrogate pair
    return found


def _boolean(value: Any, _: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _integer(value: Any, most: int) -> int:
    if type(value) is not int or not -most <= value < most:
        raise ValueError
    return value


_NO_NUMBERS = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "INF": "inf", "+INF": "inf"}
_NO_NUMBERS |= {"-Infinity": "-inf", "-INF": "-inf"}


def _float(value: Any, text: str, kind: pa.DataType) -> float:
    if isinstance(value, str):
        if value not in _NO_NUMBERS:
            raise ValueError
        text = _NO_NUMBERS[value]
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    if pa.types.is_float32(kind):  # a double in between would round twice
        return float(pa.scalar(text).cast(kind).as_py())
    return float(text)


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_EXACT = Context(prec=80)


def _decimal(value: Any, text: str, kind: pa.Decimal128Type) -> Decimal:
    if isinstance(value, str):
        text = value.replace(",", "")
    elif isinstance(value, bool):
        raise ValueError
    if not _NUMBER(text):
        raise ValueError
    found = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, _EXACT)
    if found.copy_abs() >= 10 ** (kind.precision - kind.scale):  # abs() would round to 28 digits
        raise ValueError
    return found


_DATE = r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2}))?)?"
_TIME = (
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?"
    r" ?(Z|UTC|GMT|UT|[+-][0-9]{1,2}(?::?[0-9]{2})?)?)?"
)
_a_date = re.compile(_DATE + r"(?:(?<=-[0-9])[ T].*|(?<=-[0-9][0-9])[ T].*)?", re.DOTALL).fullmatch
_a_time = re.compile(_DATE + _TIME).fullmatch


def _date(value: Any) -> int:
    """Return days since 1970."""
    found = _a_date(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError
    days = _days(int(found[1]), int(found[2] or 1), int(found[3] or 1))
    if not -(2**31) <= days < 2**31:
        raise ValueError
    return days


_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _days(year: int, month: int, day: int) -> int:
    """Return the days from 1970 to a date of the Gregorian calendar, in any year."""
    if not 1 <= month <= 12 or not 1 <= day <= _MONTHS[month - 1] + (month == 2 and calendar.isleap(year)):
        raise ValueError
    years, months = (year, month - 3) if month > 2 else (year - 1, month + 9)  # that begin in March
    return years * 365 + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 719_469


def _time(value: Any, _: str) -> int:
    """Return microseconds since 1970. A JSON number is in seconds; a time without a zone is in UTC."""
    if type(value) is int:
        return _in_range(value * 1_000_000)
    local, zone = _parsed_time(value)
    if zone is None or zone[0] not in "+-":
        return local
    digits = zone[1:].replace(":", "").rjust(2, "0") if ":" not in zone[:3] else "0" + zone[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        raise ValueError
    offset = (hours * 60 + minutes) * 60_000_000
    return _in_range(local - offset if zone[0] == "+" else local + offset)


def _local_time(value: Any, _: str) -> int:
    local, zone = _parsed_time(value)
    if zone is not None:
        raise ValueError
    return local


def _parsed_time(value: Any) -> tuple[int, str | None]:
    """Return microseconds since 1970, ignoring the zone, and the zone."""
    found = _a_time(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError
    whole = _days(int(year), int(month or 1), int(day or 1)) * 86_400 + hours * 3600 + minutes * 60 + seconds
    return _in_range(whole * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))), zone


def _in_range(microseconds: int) -> int:
    if not -(2**63) <= microseconds < 2**63:
        raise ValueError
    return microseconds


def _binary(value: Any, _: str) -> bytes:
    if not isinstance(value, str):
        raise ValueError
    return base64.b64decode(value, validate=True)
