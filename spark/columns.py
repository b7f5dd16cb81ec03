"""The columns of a row that is read.

Rules:
- Their names, order and types are those of Spark's own Kafka connector. There each is nullable; here those are not that
  are never null, because Spark makes rows of Arrow batches, and looks for nulls value by value.
- With `valueFormat=json`, the column `value` is a struct: no field of a value can clash with another column, and what
  is selected from it is written as after `from_json`. The last column has the bytes of values that do not fit.

Source: KafkaRecordToRowConverter.scala.
"""

from dataclasses import dataclass, replace

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
        fields: those of the column `value`, from `ottla.spark.value_schema.parse_value_schema`.
        corrupt: the name of the column for values that do not fit (`columnNameOfCorruptRecord`).
    """

    fields: StructType
    corrupt: str = "_corrupt_record"


@dataclass(frozen=True)
class Layout:
    """Which columns a row has.

    Attributes:
        json: ``None`` where values are bytes.
        nullable: columns that are never null, and that somebody has declared as if they could be.
    """

    include_headers: bool = False
    json: JsonFormat | None = None
    nullable: frozenset[str] = frozenset()

    def declared_as(self, schema: StructType) -> "Layout | None":
        """This with columns as a table or a user has declared them; ``None`` if they are others."""
        fields = zip(spark_schema(self).fields, schema.fields, strict=False)
        declared = replace(
            self, nullable=frozenset(own.name for own, given in fields if given.nullable and not own.nullable)
        )
        return declared if spark_schema(declared) == schema else None


def spark_schema(layout: Layout) -> StructType:
    """The columns of a row."""
    fields = [*_COLUMNS.fields, _HEADERS] if layout.include_headers else [*_COLUMNS.fields]
    if layout.json is not None:
        fields[fields.index(_COLUMNS["value"])] = StructField("value", layout.json.fields)
        fields.append(StructField(layout.json.corrupt, BinaryType()))
    return StructType(
        [StructField(each.name, each.dataType, each.nullable or each.name in layout.nullable) for each in fields]
    )
