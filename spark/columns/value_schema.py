"""The option `valueSchema`: the fields of a value, as DDL or as the JSON of a StructType.

Rules:
- We parse it ourselves, so that mistakes show at ``load()``. Spark's own parser is not available there.
- A type that values cannot be parsed to is refused, with the name of the field.
- Every field may be null, whatever the schema says, as in `from_json`: topics may hold any values.

Source: SqlBaseParser.g4, colType and complexColType; DataTypeParserInterface.scala.
"""

import json
import re
from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.errors import ConfigurationError

_EXAMPLE = "such as 'id BIGINT, name STRING, tags ARRAY<STRING>, at TIMESTAMP'"

_NAMES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_DECIMALS = ("decimal", "dec", "numeric")
_NESTED = ("array", "map", "struct")
_SIMPLE = tuple({type(each) for each in _NAMES.values()})
_THERE_ARE = (
    "the types are BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, ARRAY<…>, MAP<STRING, …> and STRUCT<…>; read another type as STRING, and cast it"
)

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:])")


def parse_value_schema(text: str) -> StructType:
    """Return the fields that ``text`` names, each nullable.

    Raises:
        ConfigurationError: the text is neither DDL nor the JSON of a StructType, or names an unsupported type.
    """
    try:
        schema = _of_json(text) if text.lstrip().startswith("{") else _Ddl(text).schema()
        checked = _checked(schema, "")
    except RecursionError:
        raise ConfigurationError("valueSchema is nested too deeply") from None
    assert isinstance(checked, StructType)
    return checked


def _of_json(text: str) -> DataType:
    try:
        return StructType.fromJson(json.loads(text))
    except RecursionError:
        raise
    except Exception as error:  # pyspark does not wrap its errors
        raise ConfigurationError(
            f"valueSchema is not the JSON of a StructType, as schema.json() gives it: {error}"
        ) from None


def _checked(kind: DataType, path: str) -> DataType:
    """Return ``kind`` with only names and types, and each field nullable."""
    if isinstance(kind, StructType):
        where = f"valueSchema, field {path}" if path else "valueSchema"
        names = kind.names
        if not names:
            raise ConfigurationError(f"{where} names no field; give DDL {_EXAMPLE}")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(f"{where} names {', '.join(twice)} more than once")
        dotted = f"{path}." if path else ""
        return StructType([StructField(each.name, _checked(each.dataType, dotted + each.name)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_checked(kind.elementType, f"{path}[]"))
    if isinstance(kind, MapType):
        if type(kind.keyType) is not StringType:
            raise ConfigurationError(
                f"valueSchema, field {path}: keys in JSON are strings, so use MAP<STRING, …>, "
                f"not {kind.simpleString().upper()}"
            )
        return MapType(_checked(kind.keyType, path), _checked(kind.valueType, f"{path}[]"))
    if type(kind) is StringType and not kind.isUTF8BinaryCollation():
        raise ConfigurationError(
            f"valueSchema, field {path}: strings are read without a collation, not as {kind.simpleString().upper()}: "
            f"use STRING, and collate in the query, as in value.name COLLATE {kind.collation}"
        )
    if type(kind) is DecimalType:
        if not 0 <= kind.scale <= kind.precision or not 1 <= kind.precision <= 38:
            raise ConfigurationError(f"valueSchema, field {path}: Spark has no {kind.simpleString().upper()}")
        return kind
    if type(kind) not in _SIMPLE:
        raise ConfigurationError(
            f"valueSchema, field {path}: {kind.simpleString().upper()} is not supported here: {_THERE_ARE}"
        )
    return type(kind)()


class _Ddl:
    """Parses DDL; each method consumes the element in its name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._split())
        self.next = 0

    def _split(self) -> Iterator[tuple[str, int]]:
        at = 0
        while self.text[at:].strip():
            found = _TOKEN.match(self.text, at)
            if found is None:
                raise self.error("expected a name or a type", at)
            yield found[1], found.start(1)
            at = found.end()

    def error(self, why: str, at: int | None = None) -> ConfigurationError:
        if at is None:
            at = self.tokens[self.next][1] if self.next < len(self.tokens) else len(self.text)
        rest = self.text[at : at + 30]
        place = f"at {rest!r}" if rest.strip() else "at its end"
        return ConfigurationError(f"valueSchema {place}: {why}; give DDL {_EXAMPLE}, or the JSON of a StructType")

    def peek(self) -> str:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    def took(self, *words: str) -> bool:
        """Consume the next tokens if they are ``words``; return whether they were."""
        coming = [token.lower() for token, _ in self.tokens[self.next : self.next + len(words)]]
        if coming != list(words):
            return False
        self.next += len(words)
        return True

    def take(self, word: str) -> None:
        if not self.took(word):
            raise self.error(f"expected {word!r}")

    def schema(self) -> DataType:
        coming = [token.lower() for token, _ in self.tokens[:2]]
        found = self.type() if coming == ["struct", "<"] else StructType(self.fields(""))
        if self.peek():
            raise self.error("expected ',' or the end")
        return found

    def fields(self, end: str) -> list[StructField]:
        found: list[StructField] = []
        while self.peek() != end or found:
            name = self.name()
            self.took(":")
            kind = self.type()
            self.took("not", "null")
            if self.took("comment"):
                self.next += 1
            found.append(StructField(name, kind))
            if not self.took(","):
                break
        return found

    def name(self) -> str:
        token = self.peek()
        if token.startswith("`"):
            self.next += 1
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self.error("expected the name of a field; put a name that is not a word in `…`")
        self.next += 1
        return token

    def type(self) -> DataType:
        word = self.peek().lower()
        if word in _NAMES:
            self.next += 1
            return _NAMES[word]
        if word in _DECIMALS:
            self.next += 1
            return DecimalType(*self.numbers())
        if word not in _NESTED:
            raise self.error(f"expected a type: {_THERE_ARE}")
        self.next += 1
        self.take("<")
        found: DataType
        if word == "array":
            found = ArrayType(self.type())
        elif word == "map":
            key = self.type()
            self.take(",")
            found = MapType(key, self.type())
        else:
            found = StructType(self.fields(">"))
        self.take(">")
        return found

    def numbers(self) -> tuple[int, int]:
        """Parse the precision and scale of a decimal."""
        if not self.took("("):
            return 10, 0
        found = [self.number()]
        if self.took(","):
            found.append(self.number())
        self.take(")")
        return found[0], found[1] if len(found) > 1 else 0

    def number(self) -> int:
        token = self.peek()
        if not re.fullmatch("[0-9]{1,10}", token):
            raise self.error("expected a number")
        self.next += 1
        return int(token)
