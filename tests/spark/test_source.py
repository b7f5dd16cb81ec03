"""The data source's classes as Spark calls them, without a Spark or a broker."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ottla.errors import ConfigurationError
from ottla.spark.columns.arrow import arrow_schema
from ottla.spark.columns.columns import Layout, spark_schema
from ottla.spark.source import DefaultSource, RefusedStream
from ottla.spark.streaming.stream_reader import StreamReader
from tests.patience import HUNG

ROOT = Path(__file__).parents[2]


def source(**options: str) -> DefaultSource:
    given: CaseInsensitiveDict = CaseInsensitiveDict({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"})
    given.update(options)
    return DefaultSource(given)


def test_the_columns_follow_from_the_options() -> None:
    assert source().schema() == spark_schema(Layout())
    assert source(includeHeaders="true").schema() == spark_schema(Layout(include_headers=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"startingOffsets": "latest", "failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"startingOffsets": "latest", "endingOffsets": "latest"}, "cannot be latest in a batch query"),
        ({"subscribePattern": "t.*"}, "contradict each other"),
        ({"kafka.security.protocol": "TLS"}, "'security.protocol': 'TLS' is not one of"),
    ],
)
def test_mistakes_in_options_show_when_the_columns_are_asked_for(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        source(**options).schema()


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest", "maxTriggerDelay": "1m"},
        {"endingOffsets": "latest", "kafka.group.id": "g", "maxOffsetsPerTrigger": "5"},
    ],
)
def test_options_of_one_kind_of_query_cause_no_error_and_no_warning_yet(
    options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert source(**options).schema() == spark_schema(Layout())
    assert not caplog.records


@pytest.mark.parametrize("options", [{}, {"includeHeaders": "true"}, {"valueFormat": "json", "valueSchema": "a INT"}])
def test_a_table_may_declare_as_nullable_what_never_is_null(options: dict[str, str]) -> None:
    declared = StructType([StructField(each.name, each.dataType) for each in source(**options).schema().fields])
    assert arrow_schema(source(**options).reader(declared).options.layout).equals(
        to_arrow_schema(declared, timezone="UTC")
    )
    stream = source(**options).streamReader(declared)
    assert isinstance(stream, StreamReader) and spark_schema(stream.options.read.layout) == declared
    keyed = StructType([StructField(each.name, each.dataType, False) for each in declared.fields])
    with pytest.raises(ConfigurationError, match="only topic, partition, offset, timestamp, timestampType can be NOT"):
        source(**options).reader(keyed)


def test_a_plan_contains_no_filters() -> None:
    # Spark keeps one plan for all queries of a DataFrame. With filters of the first one, later ones would lose rows.
    assert type(source().reader(source().schema())).pushFilters is DataSourceReader.pushFilters


def test_a_schema_from_the_user_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"fixed columns.*leave out .schema"):
        source().reader(StructType().add("value", StringType()))
    stream = source().streamReader(StructType().add("value", StringType()))
    assert isinstance(stream, RefusedStream)
    for asked in (stream.initialOffset, stream.latestOffset):
        with pytest.raises(ConfigurationError, match=r"fixed columns.*leave out .schema"):
            asked()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("ottla.spark", ["pyspark", "pyarrow", "trio", "construct", "ottla.codec", "ottla.sdk"]),
        ("pyspark_ottla", ["pyarrow", "trio", "construct", "ottla.codec", "ottla.sdk"]),
        ("ottla.spark.reading.batch_reader", ["trio", "zeroconf", "typer"]),
        ("ottla.spark.writing.row_writer", ["trio", "zeroconf", "typer"]),
    ],
)
def test_importing_brings_only_what_is_needed(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print(*(name for name in {absent!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stdout + done.stderr
