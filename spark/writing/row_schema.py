"""Checks the columns of the rows that a query writes.

Rules:
- Columns and types are as in Spark's own connector, which refuses the same.

Source: KafkaWriter.scala.
"""

from collections import Counter

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from ottla.errors import ConfigurationError

_TEXT_OR_BYTES = (StringType, BinaryType)
_NESTED = (ArrayType, MapType, StructType)


def check_schema(schema: StructType, topic: str | None) -> None:
    """Check that rows with these columns can be written.

    Raises:
        ConfigurationError: a column is missing or has the wrong type, or Spark cannot convert a column to Arrow. Spark
            converts all columns, including columns that are not written.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ConfigurationError(
            f"column value is missing, the columns are {', '.join(types) or '(none)'}: name one value, as in "
            "df.selectExpr('to_json(struct(*)) AS value')"
        )
    if topic is None and "topic" not in types:
        raise ConfigurationError("no topic is given: name one in option topic, or add a column topic")
    _check(types, "key", "string or binary", isinstance(types.get("key", BinaryType()), _TEXT_OR_BYTES))
    _check(types, "value", "string or binary", isinstance(types["value"], _TEXT_OR_BYTES))
    if topic is None:
        _check(types, "topic", "string", isinstance(types["topic"], StringType))
    _check(types, "partition", "int", isinstance(types.get("partition", IntegerType()), IntegerType))
    headers = types.get("headers")
    _check(types, "headers", "array<struct<key:string,value:binary>>", headers is None or _are_headers(headers))
    _check_all(schema)


def _check_all(kind: DataType) -> None:
    """Check that Spark can convert a type to Arrow."""
    advice = "select only the columns that you need: .select('key', 'value')"
    if isinstance(kind, StructType):
        name, times = Counter(field.name for field in kind.fields).most_common(1)[0] if kind.fields else ("", 0)
        if times > 1:
            raise ConfigurationError(f"two columns or fields are named {name}, which Spark cannot convert: {advice}")
        for field in kind.fields:
            _check_all(field.dataType)
    elif isinstance(kind, ArrayType):
        _check_all(kind.elementType)
    elif isinstance(kind, MapType):
        _check_all(kind.keyType)
        _check_all(kind.valueType)
    elif isinstance(kind, YearMonthIntervalType | CalendarIntervalType):
        raise ConfigurationError(f"a column has type {kind.simpleString()}, which Spark cannot convert: {advice}")


def _check(types: dict[str, DataType], name: str, wanted: str, fits: bool) -> None:
    if not fits:
        kind, otherwise = types[name], "" if name in ("value", "topic") else ", or give it another name"
        nested = isinstance(kind, _NESTED) and name in ("key", "value")
        advice = f"write it as JSON, by to_json({name})" if nested else "cast it"
        raise ConfigurationError(f"column {name} must be {wanted}, not {kind.simpleString()}: {advice}{otherwise}")


def _are_headers(given: DataType) -> bool:
    if not isinstance(given, ArrayType) or not isinstance(given.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in given.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
