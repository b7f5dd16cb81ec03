"""The option `valueSchema`; test_json_queries compares it with Spark's own parser."""

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from ottla.errors import ConfigurationError
from ottla.spark.columns.value_schema import parse_value_schema

SCHEMAS = [
    "id BIGINT",
    "id BIGINT NOT NULL COMMENT 'of the order, or \"none\"', name string",
    "a: int, `b c` ARRAY<STRUCT<x: DOUBLE, `y``z` MAP<STRING, ARRAY<DATE>>>>",
    "STRUCT<a: INT, b: DECIMAL(10, 2)>",
    "d DECIMAL, e DEC(5), f NUMERIC(38,38), g REAL, h BYTE, i SHORT, j LONG, k INTEGER, l TIMESTAMP_LTZ",
    "struct INT, array STRING, date DATE, comment TIMESTAMP_NTZ, map BINARY",
]
"""Schemas that Spark's own parser accepts as well."""


def test_names_and_types_are_read_and_every_field_may_be_null() -> None:
    found = parse_value_schema("id BIGINT NOT NULL, tags ARRAY<STRING>, `a,b` STRUCT<x: BIGINT>")
    inner = StructType([StructField("x", LongType())])
    assert found == StructType(
        [
            StructField("id", LongType()),
            StructField("tags", ArrayType(StringType())),
            StructField("a,b", inner),
        ]
    )


@pytest.mark.parametrize("text", SCHEMAS)
def test_the_json_of_a_schema_is_the_same_schema(text: str) -> None:
    schema = parse_value_schema(text)
    assert parse_value_schema(schema.json()) == schema
    assert parse_value_schema(schema.simpleString()) == schema if "`" not in text else True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id", "valueSchema at its end: expected a type: the types are BOOLEAN"),
        ("id BIGNIT", "valueSchema at 'BIGNIT': expected a type"),
        ("id BIGINT name STRING", "valueSchema at 'name STRING': expected ',' or the end"),
        ("id BIGINT,", "at its end: expected the name of a field"),
        ("id ARRAY<STRING", "at its end: expected '>'"),
        ("id BIGINT; name STRING", "at '; name STRING': expected a name or a type"),
        ("a-b INT", "at '-b INT'"),
        ("d DECIMAL(x)", "expected a number"),
        ("d DECIMAL(39, 2)", r"field d: Spark has no DECIMAL\(39,2\)"),
        ("d DECIMAL(2, 3)", "field d: Spark has no DECIMAL"),
        (f"d DECIMAL({'9' * 5000})", "expected a number"),
        ("m STRUCT<x: MAP<INT, STRING>>", r"field m.x: keys in JSON are strings, so use MAP<STRING, …>"),
        ("a INT, b INT, a STRING", "valueSchema names a more than once"),
        ("s STRUCT<>", "field s names no field"),
        ("v VARIANT", "expected a type"),
        ('{"type": "array"}', "valueSchema is not the JSON of a StructType"),
        ("{", "valueSchema is not the JSON of a StructType"),
        ('{"type":"struct","fields":[]}', "valueSchema names no field"),
        (
            '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}',
            "field v: VARIANT is not supported here: .* read another type as STRING",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_value_schema(text)


ARRAYS = '{"type":"array","containsNull":true,"elementType":' * 2000 + '"integer"' + "}" * 2000
FIELD = f'{{"name":"a","nullable":true,"metadata":{{}},"type":{ARRAYS}}}'


@pytest.mark.parametrize(
    "text",
    [f"a {'ARRAY<' * 2000}INT{'>' * 2000}", f'{{"type":"struct","fields":[{FIELD}]}}'],
    ids=["in DDL", "in JSON"],
)
def test_a_schema_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="valueSchema is nested too deeply"):
        parse_value_schema(text)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (StringType("UTF8_LCASE"), "x"),
        (ArrayType(StringType("UTF8_LCASE")), r"x\[\]"),
        (MapType(StringType("UTF8_LCASE"), LongType()), "x"),
        (MapType(StringType(), StringType("UTF8_LCASE")), r"x\[\]"),
        (StructType([StructField("y", StringType("UTF8_LCASE"))]), "x.y"),
    ],
)
def test_a_collation_is_refused(kind: DataType, field: str) -> None:
    text = StructType([StructField("x", kind)]).json()
    with pytest.raises(ConfigurationError, match=f"valueSchema, field {field}: .*UTF8_LCASE.*COLLATE UTF8_LCASE"):
        parse_value_schema(text)
    same = StructType([StructField("x", StringType("UTF8_BINARY"))])
    assert parse_value_schema(same.json()) == parse_value_schema("x STRING")
