"""Topics in JSON, in Spark: compared with `from_json` on the same bytes, and from end to end in batch and streaming."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import Row, StructType, _parse_datatype_string

from ottla.errors import ConfigurationError
from ottla.spark.columns.json_values import parse_values
from ottla.spark.columns.value_schema import parse_value_schema
from ottla.testing import Broker
from tests.patience import HUNG, PROGRAM
from tests.spark.test_value_schema import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SCHEMA = (
    "tiny TINYINT, i INT, id BIGINT, name STRING, yes BOOLEAN, f FLOAT, d DOUBLE, at TIMESTAMP, local TIMESTAMP_NTZ, "
    "day DATE, price DECIMAL(6,2), inner STRUCT<x: BIGINT, day: DATE>, numbers ARRAY<INT>, "
    "items ARRAY<STRUCT<q: STRING>>, sizes MAP<STRING, INT>, raw BINARY"
)
ALIKE = [
    # objects that fit the schema
    b"{}",
    b' {"id": 1} ',
    b'{\n "id": 1,\r\n "name": "x"\n}',
    b'{"id": 1, "other": {"deep": [1, {"er": null}]}}',
    b'{"ID": 1}',
    b'{"id": 1, "id": 2}',
    b'{"id": null, "name": "\\u00e9\\n\\u0000\\ud83d\\ude00"}',
    "{'name': 'größe'}".replace("'", '"').encode(),
    # values that are no objects
    b"null",
    b"[]",
    b'[{"id": 1}]',
    b"1",
    b'"x"',
    b"\xff",
    b'{"id": 1',
    b'{"id": 1, "name":',
    b'{"id": 1,}',
    b"{id: 1}",
    b'{"name": "a\nb"}',
    b'{"name": "\\x"}',
    b'// of C\n{"id": 1}',
    b'\xef\xbb\xbf{"id": 1}',
    b'{"other": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    # numbers
    *(
        b'{"id": %s}' % each
        for each in (b"9223372036854775807", b"9223372036854775808", b"1.0", b"1e3", b'"1"', b"true")
    ),
    *(b'{"tiny": %s}' % each for each in (b"127", b"-129", b"01", b"+1")),
    *(
        b'{"f": %s}' % each
        for each in (b"0.1", b"1e40", b"NaN", b'"NaN"', b'"-INF"', b'"1.5"', b'"Infinity"', b"16777217")
    ),
    *(b'{"d": %s}' % each for each in (b"0.1", b"1e400", b"1", b"Infinity", b'"+INF"', b'"nan"', b'""', b".5", b"5.")),
    *(
        b'{"price": %s}' % each
        for each in (b"1", b"1.005", b"9999.995", b"12345", b'"1.5"', b'"1,234.5"', b"1e2", b"true")
    ),
    *(b'{"yes": %s}' % each for each in (b"true", b"false", b'"true"', b"0")),
    # times
    *(
        b'{"%s": "%s"}' % (name, text)
        for name in (b"at", b"local", b"day")
        for text in (
            *(b"2020-01-01", b"2020-1-1", b"2020-02-30", b"2020", b"2020-01", b" 2020-01-01 ", b"", b"soon"),
            *(b"2020-01-01T10:11:12", b"2020-01-01 10:11", b"2020-01-01T10:11:12.1234567", b"2020-01-01T24:00:00"),
            *(b"2020-01-01T10:11:12Z", b"2020-01-01T10:11:12.5+02:00", b"2020-01-01T10:11:12 UTC", b"9999-12-31"),
        )
    ),
    *(b'{"%s": %d}' % (name, number) for name in (b"at", b"local", b"day") for number in (0, 1_700_000_000)),
    b'{"at": 1.5}',
    # parts that do not fit, beside and within parts that fit
    b'{"id": "x", "name": "kept"}',
    b'{"name": "kept", "inner": 5}',
    b'{"name": "kept", "inner": {"x": "no", "day": "2020-01-01"}}',
    b'{"name": "kept", "inner": []}',
    b'{"name": "kept", "numbers": [1, "x", 3]}',
    b'{"name": "kept", "numbers": {}}',
    b'{"name": "kept", "numbers": 5}',
    b'{"numbers": [1, null], "items": [{"q": "1"}, null, {}]}',
    b'{"name": "kept", "items": [{"q": "1"}, 5]}',
    b'{"name": "kept", "sizes": []}',
    b'{"name": "kept", "sizes": {"a": 1, "b": "x"}}',
    b'{"sizes": {"a": 1, "b": null}}',
    # strings, and base64
    b'{"name": 1}',
    b'{"name": true}',
    b'{"name": {"a":[1,2]}}',
    b'{"raw": "AQI="}',
    b'{"raw": "?"}',
    b'{"raw": 1}',
]
"""Values that give the same row here and in `from_json`, and both read them as good, or both as bad."""

DIFFERENT = {
    # value: the row of `from_json`, whether it is bad there; our row, and whether it is bad here
    b"": (None, False, "{}", True),
    b" \n": (None, False, "{}", True),
    b'{"id":1}{"id":2}': ('{"id":1}', False, "{}", True),
    b'{"id":1} x': ('{"id":1}', False, "{}", True),
    b"{'id':1}": ('{"id":1}', False, "{}", True),
    b'{"name":"\xff"}': ('{"name":"�"}', False, "{}", True),
    b'{"name":"\\ud800"}': ('{"name":"?"}', False, "{}", True),
    b'{"tiny":200}': ('{"tiny":-56}', False, "{}", True),
    b'{"name":1.50}': ('{"name":"1.5"}', False, '{"name":"1.50"}', False),
    b'{"name":[1,  2]}': ('{"name":"[1,2]"}', False, '{"name":"[1,  2]"}', False),
    b'{"at":"2020-01-01 00:00:00 Europe/Paris"}': ('{"at":"2019-12-31T23:00:00.000Z"}', False, "{}", True),
    b'{"day":"1"}': ('{"day":"1970-01-02"}', False, "{}", True),
    b'{"sizes":{"a":1,"a":2}}': ('{"sizes":{"a":1,"a":2}}', False, '{"sizes":{"a":2}}', False),
}
"""The differences that docs/spark.md names."""


def both(spark: "SparkSession", values: list[bytes]) -> list[tuple[Row, Row]]:
    """For each value, the row of `from_json` and ours: the struct as JSON, and whether it is bad."""
    fields = parse_value_schema(SCHEMA)
    kind = to_arrow_schema(StructType().add("value", fields), timezone="UTC").field("value").type
    structs, corrupt = parse_values(pa.array(values, pa.binary()), kind)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        given = spark.createDataFrame(
            [(number, bytearray(each)) for number, each in enumerate(values)], "n INT, v BINARY"
        )
        text = "CAST(v AS STRING)"
        theirs = given.orderBy("n").selectExpr(
            f"to_json(from_json({text}, '{SCHEMA}')) AS row",
            f"from_json({text}, '{SCHEMA}, _corrupt_record STRING')._corrupt_record IS NOT NULL AS bad",
        )
        names = {"n": pa.array(range(len(values)), pa.int32()), "s": structs, "bad": corrupt.is_valid()}
        frame = spark.createDataFrame(pa.table(names))
        # A column from Arrow has TIMESTAMP instead of TIMESTAMP_NTZ, unless its type is given.
        ours = frame.orderBy("n").selectExpr("to_json(CAST(s AS " + fields.simpleString() + ")) AS row", "bad")
        return list(zip(theirs.collect(), ours.collect(), strict=True))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_rows_equal_the_rows_of_from_json(spark: "SparkSession") -> None:
    for value, (theirs, ours) in zip(ALIKE, both(spark, ALIKE), strict=True):
        assert (ours.row, ours.bad) == (theirs.row, theirs.bad), value


def test_the_differences_from_from_json_are_known(spark: "SparkSession") -> None:
    for (value, said), (theirs, ours) in zip(DIFFERENT.items(), both(spark, list(DIFFERENT)), strict=True):
        assert (theirs.row, theirs.bad, ours.row, ours.bad) == said, value


@pytest.mark.parametrize("text", SCHEMAS)
def test_ddl_is_read_as_spark_reads_it(spark: "SparkSession", text: str) -> None:
    theirs = _parse_datatype_string(text)
    assert isinstance(theirs, StructType)
    assert parse_value_schema(text).simpleString() == theirs.simpleString()


VALUES = [b'{"id": 1, "name": "a"}', b"no", None, b'{"id": "x", "name": "b"}', b'{"id": 3}']
ROWS = [(1, "a", None), (3, None, None), (None, "b", VALUES[3]), (None, None, b"no"), (None, None, None)]


def options(broker: Broker, **more: str) -> dict[str, str]:
    schema = "id BIGINT, name STRING, at TIMESTAMP, sizes MAP<STRING, INT>"
    servers = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
    return servers | {"valueFormat": "json", "valueSchema": schema} | more


@pytest.fixture
def topic(ottla_broker: Broker) -> Broker:
    ottla_broker.create_topic("t", partitions=1)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    for value in VALUES:
        producer.produce("t", value, b"k", partition=0)
    assert producer.flush(HUNG) == 0
    return ottla_broker


def found(rows: list[Row]) -> set[tuple[object, ...]]:
    return {(row.id, row.name, None if row.bad is None else bytes(row.bad)) for row in rows}


def test_a_batch_query_has_the_fields_and_the_bad_values(spark: "SparkSession", topic: Broker) -> None:
    given = options(topic, includeHeaders="true", columnNameOfCorruptRecord="bad")
    frame = spark.read.format("ottla").options(**given).load()
    assert frame.columns[-2:] == ["headers", "bad"]
    assert found(frame.select("value.*", "bad").collect()) == set(ROWS)
    assert frame.where("value IS NULL").count() == 1, "only the tombstone"
    assert frame.selectExpr("sum(value.id)").first() == (4,)


def test_a_streaming_query_has_them_as_well(spark: "SparkSession", topic: Broker, tmp_path: Path) -> None:
    source = spark.readStream.format("ottla").options(**options(topic)).load()
    rows: list[Row] = []
    query = (
        source.selectExpr("value.*", "_corrupt_record AS bad")
        .writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PROGRAM)
    assert found(rows) == set(ROWS)


def test_mistakes_show_at_load(spark: "SparkSession", topic: Broker) -> None:
    with pytest.raises(Exception, match="valueSchema at 'BIGNIT'") as caught:
        spark.read.format("ottla").options(**options(topic, valueSchema="id BIGNIT")).load()
    assert ConfigurationError.__name__ in str(caught.value)
