"""The options of queries that write, and their errors and warnings, without a Spark or a broker."""

import pickle
import re

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from ottla.errors import ConfigurationError
from ottla.spark.source import DefaultSource
from ottla.spark.writing.row_schema import check_schema
from ottla.spark.writing.row_writer import BatchWriter, StreamWriter, WrittenRows
from ottla.spark.writing.write_options import WriteOptions

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
PLAIN = StructType([StructField("value", StringType())])


def parse(**options: str) -> WriteOptions:
    given = {"kafka.bootstrap.servers": "b:9092", "topic": "t"} | {
        re.sub("_(?!cb)", ".", name): value for name, value in options.items()
    }
    return WriteOptions.parse(CaseInsensitiveDict(given))


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_options_become_the_arguments_of_the_producer() -> None:
    options = parse(
        topic=" orders ",
        partitioner="crc32",
        kafka_acks="1",
        kafka_linger_ms="20",
        kafka_batch_size="1000",
        kafka_compression_type="zstd",
        kafka_request_timeout_ms="5000",
        kafka_delivery_timeout_ms="7000",
        kafka_security_protocol="PLAINTEXT",
    )
    assert options.topic == "orders"
    made = options.producer.options
    assert (made.required_acks, made.linger, made.batch_size, made.partitioner) == (1, 0.02, 1000, "crc32")
    assert made.compression == "zstd"
    client = options.producer.client
    assert client.bootstrap == "b:9092"
    assert dict(client.options) == {"request_timeout": 5.0, "delivery_timeout": 7.0}
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.producer) == hash(pickle.loads(pickle.dumps(options)).producer)


def test_the_default_is_idempotent_with_javas_partitioner() -> None:
    made = parse().producer.options
    assert (made.required_acks, made.idempotent, made.partitioner) == (-1, None, "murmur2")
    assert parse(kafka_enable_idempotence="false").producer.options.idempotent is False


def test_options_of_the_query_are_not_passed_on() -> None:
    assert parse(checkpointLocation="/tmp/x", queryName="q", exactlyOnce="false") == parse()
    assert parse(asyncProgressTrackingEnabled="true", asyncProgressTrackingCheckpointIntervalMs="0") == parse()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exactlyOnce": "true"}, r"exactlyOnce=true is not supported: leave it out to write rows at least"),
        ({"exactlyOnce": "maybe"}, r"must be false or true, not 'maybe'"),
        ({"kafka_transactional_id": "x"}, r"exactly-once writes with transactions are not supported"),
        ({"kafka_key_serializer": "x"}, r"keys are bytes or strings: encode the column key"),
        ({"kafka_value_serializer": "x"}, r"values are bytes or strings"),
        ({"kafka_interceptor_classes": "x"}, r"Java classes, which Python cannot load"),
        ({"path": "x"}, r"topics are not paths"),
        ({"subscribe": "x"}, r"is a read option: name the topic to write to in option topic"),
        ({"failondataloss": "false"}, r"option failOnDataLoss cannot be used for writing: it is a read option$"),
        ({"includeheaders": "true"}, r"option includeHeaders .* a column headers is written without it"),
        ({"owner": "root", "provider": "ottla"}, r"format ottla has no tables: CREATE TEMPORARY VIEW"),
        ({"acks": "all"}, r"has no option acks for writing: did you mean kafka.acks\?"),
        ({"topics": "x"}, r"has no option topics for writing: did you mean topic"),
        ({"topic": " "}, r"option topic is empty"),
        ({"partitioner": "murmur3"}, r"'murmur3' is not one of murmur2, .*least_bytes"),
        ({"partitioner": "crc32", "kafka_partitioner_class": "RoundRobinPartitioner"}, r"contradict each other"),
        ({"kafka_partitioner_class": "com.mine.Own"}, r"'com.mine.Own' is not one of"),
        ({"kafka_acks": "2"}, r"'acks' \('2'\): acks must be 'all', 1 or 0"),
        ({"kafka_compression_type": "rar"}, r"options kafka\.…: 'compression.type'"),
        ({"kafka_linger": "5"}, r"Kafka has no option kafka.linger: did you mean kafka.linger.ms"),
        ({"kafka_bootstrap_servers": ""}, r"kafka.bootstrap.servers is missing"),
        ({"kafka_security_protocol": "SASL_SSL"}, r"options kafka\.…: .*sasl.mechanism"),
        ({"kafka_delivery_timeout_ms": "1"}, r"linger"),
        ({"kafka_retries": "0"}, r"option kafka.retries can only be 2147483647: requests are retried until"),
        (
            {"kafka_partitioner_ignore_keys": "true"},
            r"can only be false: keys decide the partition, unless",
        ),
        ({"kafka_dr_cb": "f"}, r"option kafka.dr_cb cannot be used: it takes a function"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        parse(**options)
    assert "\n" not in str(refused.value)


def test_options_that_tune_other_clients_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):  # as in a stream, which does this for each micro-batch
        options = parse(
            kafka_group_id="g",
            kafka_send_buffer_bytes="100",
            kafka_max_block_ms="60000",
            kafka_fetch_max_wait_ms="5",
            kafka_ssl_truststore_type="PEM",
            kafka_compression_gzip_level="3",
            kafka_retries="5",
            kafka_acks="0",
        )
    assert options.producer.client.options == ()
    assert sorted(caplog.messages) == [
        "option kafka.compression.gzip.level has no effect: compression.type is none",
        "option kafka.fetch.max.wait.ms has no effect on writing",
        "option kafka.group.id has no effect on writing",
        "option kafka.max.block.ms has no effect on writing",
        "option kafka.retries has no effect on writing",
        "option kafka.send.buffer.bytes has no effect on writing",
        "option kafka.ssl.truststore.type has no effect: security.protocol is PLAINTEXT",
        "with acks=0 the brokers do not confirm that a row is stored: rows may be lost",
    ]


def test_all_columns_of_the_jvm_connector_are_written_and_others_are_ignored() -> None:
    everything = columns(
        key=BinaryType(),
        value=BinaryType(),
        topic=StringType(),
        partition=IntegerType(),
        headers=ArrayType(HEADER),
        timestamp=TimestampType(),
        other=LongType(),
    )
    check_schema(everything, None)
    check_schema(columns(value=StringType(), topic=LongType()), "the option wins")
    check_schema(columns(key=StringType(), value=StringType(), topic=StringType()), None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (columns(key=StringType(), Value=StringType()), r"column value is missing, the columns are key, Value"),
        (columns(), r"column value is missing, the columns are \(none\)"),
        (columns(value=LongType()), r"column value must be string or binary, not bigint: cast it$"),
        (
            columns(value=StringType(), key=LongType()),
            r"column key must be string or binary, not bigint: cast it, or give it another name",
        ),
        (columns(value=ArrayType(LongType())), r"not array<bigint>: write it as JSON, by to_json\(value\)$"),
        (columns(value=StringType(), key=IntegerType()), r"column key must be string or binary, not int"),
        (columns(value=StringType(), partition=LongType()), r"column partition must be int, not bigint"),
        (columns(value=StringType(), headers=StringType()), r"headers must be array<struct<key:string,value:binary>>"),
        (
            columns(value=StringType(), headers=ArrayType(StructType([*HEADER.fields, *HEADER.fields]))),
            r"headers must be array<struct<key:string,value:binary>>",
        ),
        (
            StructType([*columns(value=StringType()).fields, *columns(value=BinaryType()).fields]),
            r"two columns or fields are named value, which Spark cannot convert: select only the columns",
        ),
        (
            columns(value=StringType(), other=ArrayType(StructType([*HEADER.fields, *HEADER.fields]))),
            r"two columns or fields are named key",
        ),
        (columns(value=StringType(), other=YearMonthIntervalType()), r"has type interval year to month, which Spark"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(given: StructType, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        check_schema(given, "t")


def test_a_commit_without_messages_of_tasks_is_an_error() -> None:
    options = {"kafka.bootstrap.servers": "b:1", "topic": "t"}
    written = StreamWriter(WriteOptions.parse(options), PLAIN)
    written.commit([WrittenRows(3), WrittenRows(0)], 1)
    written.commit([], 2)
    with pytest.raises(ConfigurationError, match=r"does not run Python sinks with trigger\(continuous=…\)"):
        written.commit([None, None], 3)


def test_a_topic_is_required() -> None:
    with pytest.raises(ConfigurationError, match="name one in option topic, or add a column topic"):
        check_schema(PLAIN, None)
    with pytest.raises(ConfigurationError, match="column topic must be string, not int"):
        check_schema(columns(value=StringType(), topic=IntegerType()), None)


def test_the_source_gives_a_writer_for_each_kind_of_query_and_overwrites_nothing() -> None:
    source = DefaultSource(CaseInsensitiveDict({"kafka.bootstrap.servers": "b:9092", "topic": "t"}))
    assert isinstance(source.writer(PLAIN, overwrite=False), BatchWriter)
    assert isinstance(source.streamWriter(PLAIN, overwrite=False), StreamWriter)
    assert isinstance(source.streamWriter(PLAIN, overwrite=True), StreamWriter)  # output mode complete
    with pytest.raises(ConfigurationError, match=r"cannot overwrite a topic: use mode\('append'\)"):
        source.writer(PLAIN, overwrite=True)
