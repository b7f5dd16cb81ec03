"""The columns of the rows that a query reads.

Rules:
- Names, order and types are those of Spark's own Kafka connector. That connector declares all columns nullable; here
  columns that are never null are not nullable: Spark turns Arrow batches into rows, and would check every value.
- With `valueFormat=json`, the column `value` is a struct: its fields cannot clash with another column, and you select
  from it as after `from_json`. The last column holds the bytes of values that do not fit the schema.

Source: KafkaRecordToRowConverter.scala.
"""

from dataclasses import replace

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.late_dataclass import dataclass

_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("timestampType", IntegerType(), nullable=False),
    ]
)
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


@dataclass(frozen=True)
class JsonFormat:
    """`valueFormat=json`.

    Attributes:
        fields: the fields of the column `value`, from `ottla.spark.columns.value_schema.parse_value_schema`.
        corrupt: the name of the column for values that do not fit (`columnNameOfCorruptRecord`).
    """

    fields: StructType
    corrupt: str = "_corrupt_record"


@dataclass(frozen=True)
class Layout:
    """Says which columns a row has.

    Attributes:
        json: ``None`` if values are bytes.
        nullable: columns that are never null but that a table or a user has declared nullable.
    """

    include_headers: bool = False
    json: JsonFormat | None = None
    nullable: frozenset[str] = frozenset()

    def declared_as(self, schema: StructType) -> "Layout | None":
        """Return this layout with the columns as a table or a user declared them; ``None`` if they are others."""
        fields = zip(spark_schema(self).fields, schema.fields, strict=False)
        declared = replace(
            self, nullable=frozenset(own.name for own, given in fields if given.nullable and not own.nullable)
        )
        return declared if spark_schema(declared) == schema else None


def spark_schema(layout: Layout) -> StructType:
    """Return the columns of a row as a Spark schema."""
    fields = [*_COLUMNS.fields, _HEADERS] if layout.include_headers else [*_COLUMNS.fields]
    if layout.json is not None:
        fields[fields.index(_COLUMNS["value"])] = StructField("value", layout.json.fields)
        fields.append(StructField(layout.json.corrupt, BinaryType()))
    return StructType(
        [StructField(each.name, each.dataType, each.nullable or each.name in layout.nullable) for each in fields]
    )
