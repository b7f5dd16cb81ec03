"""Options: the names and meanings of Spark's own connector, and the errors for wrong or unsupported ones."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ottla.codec.apis.list_offsets import EARLIEST, LATEST
from ottla.codec.inbox import LARGE, Blocks, Inbox
from ottla.errors import ConfigurationError
from ottla.sdk.consume.partitions.record_sets import READ_COMMITTED, READ_UNCOMMITTED
from ottla.sdk.kafka_meanings import CLIENT, CONSUMER, MEANINGS, SAME, To
from ottla.sdk.kafka_security import SECURITY_NAMES
from ottla.sdk.options import Options
from ottla.spark.columns.columns import JsonFormat, Layout
from ottla.spark.columns.value_schema import parse_value_schema
from ottla.spark.kafka_options import ClientConfig
from ottla.spark.reading.offsets import Limit
from ottla.spark.reading.read_options import ReadOptions, StreamOptions
from ottla.spark.writing.write_options import WriteOptions
from tests.codec.test_inbox import frame_of, home

ROOT = Path(__file__).parents[2]
LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def parse(**more: str) -> ReadOptions:
    return ReadOptions.parse(LEAST | more)


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        ReadOptions.parse(options)
    return str(caught.value)


def test_a_topic_is_read_from_its_beginning_to_its_end_unless_told_otherwise() -> None:
    options = ReadOptions.parse(LEAST)
    assert options.client == ClientConfig("localhost:9092")
    assert options.source == ("t",)
    assert options.starting == Limit("startingOffsets", EARLIEST)
    assert options.ending == Limit("endingOffsets", LATEST)
    assert options.fail_on_data_loss
    assert options.isolation == READ_UNCOMMITTED
    assert parse(**{"kafka.isolation.level": "read_committed"}).isolation == READ_COMMITTED
    assert not options.layout.include_headers


def test_names_of_options_are_taken_in_any_case() -> None:
    options = ReadOptions.parse({"KAFKA.bootstrap.Servers": "h:1", "SUBSCRIBE": "Flights", "includeheaders": "True"})
    assert options.source == ("Flights",)
    assert options.layout.include_headers


def test_several_topics_are_separated_by_commas() -> None:
    assert parse(subscribe=" a, b ,,a").source == ("a", "b")


def test_assign_names_partitions() -> None:
    options = ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "assign": '{"a": [0, 2], "b": [1]}'})
    assert options.source == frozenset({("a", 0), ("a", 2), ("b", 1)})


def test_offsets_and_times_are_taken_for_all_partitions_or_for_each() -> None:
    each = {("t", 0): 23, ("t", 1): -2}
    assert parse(startingOffsets='{"t": {"0": 23, "1": -2}}').starting == Limit("startingOffsets", each)
    assert parse(endingOffsets="Latest").ending == Limit("endingOffsets", LATEST)
    assert parse(startingTimestamp="1700000000000").starting.by_time
    by_time = parse(endingOffsetsByTimestamp='{"t": {"0": 5}}').ending
    assert by_time == Limit("endingOffsetsByTimestamp", {("t", 0): 5}, by_time=True)


def test_a_time_counts_before_times_and_those_before_offsets(caplog: pytest.LogCaptureFixture) -> None:
    offsets, times, time = {"Offsets": '{"t": {"0": 3}}'}, {"OffsetsByTimestamp": '{"t": {"0": 5}}'}, {"Timestamp": "7"}
    for side in ("starting", "ending"):
        for given, name in ((offsets | times | time, "Timestamp"), (offsets | times, "OffsetsByTimestamp")):
            caplog.clear()
            options = parse(**{side + each: value for each, value in given.items()})
            assert (options.starting if side == "starting" else options.ending).option == side + name
            assert f"option {side}Offsets has no effect beside {side}{name}" in caplog.messages


def test_settings_of_the_client_are_passed_on_in_its_own_units() -> None:
    options = ReadOptions.parse(
        LEAST
        | {
            "kafka.client.id": "reports",
            "kafka.request.timeout.ms": "1500",
            "kafka.default.api.timeout.ms": "20000",
            "kafka.socket.connection.setup.timeout.ms": "700",
            "kafka.fetch.max.wait.ms": "100",
            "kafka.max.partition.fetch.bytes": "1000",
        }
    )
    assert dict(options.client.options) == {
        "client_id": "reports",
        "request_timeout": 1.5,
        "api_timeout": 20.0,
        "connect_timeout": 0.7,
        "fetch_max_wait": 0.1,
        "partition_max_bytes": 1000,
    }
    assert options.client.arguments == dict(options.client.options)
    assert ReadOptions.parse(LEAST).client.arguments == {"partition_max_bytes": 7 * 2**20}, "tasks read in bulk"
    Options(**parse(**{"kafka.fetch.max.bytes": "1000"}).client.arguments)


def test_a_connection_keeps_the_memory_of_two_answers_of_a_partition() -> None:
    blocks = Blocks()
    inbox, answer = Inbox(blocks=blocks), int(ReadOptions.parse(LEAST).client.arguments["partition_max_bytes"]) + LARGE
    looked_at = [frame_of(inbox, answer, number) for number in range(2)]
    assert [id(home(each)) for each in looked_at] == [id(each) for each in blocks]


def test_the_table_of_options_is_complete() -> None:
    table = (ROOT / "docs" / "spark.md").read_text().partition("## Options for reading")[2].partition("\n### ")[0]
    missing = [
        name
        for name, what in (CLIENT | CONSUMER).items()
        if isinstance(what, To) and what.part == "client" and f"`kafka.{name}`" not in table
    ]
    assert not missing


@pytest.mark.parametrize(
    ("name", "value", "option", "chosen"),
    [
        ("client.rack", "b", "rack", "b"),
        ("connections.max.idle.ms", "60000", "connections_max_idle", 60.0),
        ("fetch.max.wait.ms", "0", "fetch_max_wait", 0.0),
        ("fetch.wait.max.ms", "5", "fetch_max_wait", 0.005),
        ("metadata.max.age.ms", "60000", "metadata_max_age", 60.0),
        ("queued.max.messages.kbytes", "1", "fetch_buffer_bytes", 1024),
        ("reconnect.backoff.max.ms", "2000", "reconnect_backoff_max", 2.0),
        ("reconnect.backoff.ms", "20", "reconnect_backoff", 0.02),
        ("retry.backoff.max.ms", "2000", "retry_backoff_max", 2.0),
        ("retry.backoff.ms", "20", "retry_backoff", 0.02),
    ],
)
def test_options_of_the_client_are_passed_on(
    name: str, value: str, option: str, chosen: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert dict(parse(**{f"kafka.{name}": value}).client.options) == {option: chosen}
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.group.id", "7"),
        ("groupIdPrefix", "7"),
        ("maxOffsetsPerTrigger", "7"),
        ("kafkaConsumer.pollTimeoutMs", "7"),
        ("kafka.max.poll.records", "7"),
        ("kafka.session.timeout.ms", "1"),
        ("kafka.metrics.num.samples", "2"),
        ("kafka.enable.metrics.push", "true"),
        ("kafka.allow.auto.create.topics", "true"),
        ("kafka.group.protocol", "consumer"),
        ("kafka.socket.connection.setup.timeout.max.ms", "30000"),
        ("kafka.acks", "0"),
        ("kafka.delivery.timeout.ms", "7"),
        ("kafka.message.max.bytes", "7"),
        ("kafka.max.block.ms", "60000"),
    ],
)
def test_options_that_change_no_row_are_ignored_with_a_warning(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert ReadOptions.parse(LEAST | {name: value}) == ReadOptions.parse(LEAST)
    assert caplog.messages == [f"option {name} has no effect on a batch query of format ottla"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.metrics.push", "false"),
        ("exclude.internal.topics", "true"),
        ("allow.auto.create.topics", "false"),
        ("check.crcs", "true"),
    ],
)
def test_options_that_ask_for_the_default_are_accepted(name: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    assert parse(**{f"kafka.{name}": value}) == parse()
    assert not caplog.records


SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "u",
    "kafka.sasl.password": "p",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.protocol", "TLSv1.2"),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"),
        ("ssl.trustmanager.algorithm", "PKIX"),
        ("sasl.login.refresh.window.factor", "0.8"),
        ("sasl.kerberos.service.name", "kafka"),
    ],
)
def test_options_for_javas_tls_and_sasl_are_ignored_with_a_warning(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert parse(**SASL, **{f"kafka.{name}": value}).client == parse(**SASL).client
    assert caplog.messages == [f"option kafka.{name} has no effect on a batch query of format ottla"]


@pytest.mark.parametrize("parse_options", [ReadOptions.parse, StreamOptions.parse, WriteOptions.parse])
def test_a_name_that_kafkas_clients_do_not_know_is_ignored_with_a_warning(
    parse_options: Callable[[dict[str, str]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Java's clients do the same: serializers and interceptors of other vendors read options of their own there."""
    least = {"kafka.bootstrap.servers": "b:1", ("topic" if parse_options == WriteOptions.parse else "subscribe"): "t"}
    assert parse_options({**least, "kafka.schema.registry.url": "http://r"}) == parse_options(least)
    assert caplog.messages == ["option kafka.schema.registry.url has no effect: Kafka's clients do not know it"]


def test_a_warning_is_given_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        parse(**{"kafka.metrics.num.samples": "2"}, startingTimestamp="5", startingOffsets="earliest")
    assert len(caplog.messages) == 2
    parse(**{"kafka.metrics.num.samples": "2"}, endingTimestamp="5", endingOffsets="latest")
    assert len(caplog.messages) == 3


OF_PYTHON = re.compile(
    r"=…|lenient|ignore=|to connect\b|client\.\w+\(|(TLS|OAuthBearer|getLogger)\(|trio|await|tls=|sasl=|key_password"
)
"""Advice that is for programs, not for users of Spark."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*MEANINGS, *SAME, *SECURITY_NAMES, "ssl_key", "sasl.mech", "zz"}))
@pytest.mark.parametrize("parse_options", [ReadOptions.parse, WriteOptions.parse])
def test_errors_about_kafkas_names_give_no_advice_for_programs(
    name: str, parse_options: Callable[[dict[str, str]], object], caplog: pytest.LogCaptureFixture
) -> None:
    least = LEAST if parse_options == ReadOptions.parse else {"kafka.bootstrap.servers": "b:1", "topic": "t"}
    logins = [{"kafka.security.protocol": "SSL"}] if name.startswith(("ssl.", "enable.ssl.")) else [{}]
    if name.startswith(("sasl.", "https.")):
        logins = [
            SASL | {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": mechanism}
            for mechanism in ("PLAIN", "OAUTHBEARER")
        ]
    for login, value in product(logins, ("nonsense", "false", "0")):
        try:
            parse_options(least | login | {f"kafka.{name}": value})
        except ConfigurationError as error:
            assert not OF_PYTHON.search(str(error))
    assert not [said for said in caplog.messages if OF_PYTHON.search(said)]
    assert all(record.name == "ottla.spark" for record in caplog.records)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.request.timeout": "5"}, "did you mean kafka.request.timeout.ms"),
        ({"zzz": "1"}, "has no option zzz for reading: the options are subscribe"),
        ({"bootstrap.servers": "b:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka.group_id": "b"}, "did you mean kafka.group.id?"),
        ({"kafka.security.protocl": "SSL"}, "did you mean kafka.security.protocol?"),
        (
            {"kafka.exclude.internal.topics": "false"},
            "exclude.internal.topics can only be true: a pattern matches no",
        ),
        ({"kafka.topic.blacklist": "a"}, "subscribe, subscribePattern or assign"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.ca.locaton": "x"}, "did you mean 'ssl.ca.location'?"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}, "token.endpoint.url"),
        ({"isolation.level": "read_committed"}, "did you mean kafka.isolation.level?"),
        ({"owner": "root", "provider": "ottla"}, "format ottla has no tables: CREATE TEMPORARY VIEW"),
        ({"path": "t"}, "option subscribe"),
        ({"topic": "t"}, "option subscribe"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "commits nothing"),
        ({"kafka.key.deserializer": "x"}, "key.cast('string')"),
        ({"kafka.value.deserializer": "x"}, "value.cast('string')"),
        ({"kafka.interceptor.classes": "x"}, "Java classes"),
        ({"kafka.security.protocol": "TLS"}, "'security.protocol': 'TLS' is not one of PLAINTEXT, SSL"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "no.pem"}, "'ssl.ca.location': tls: ca 'no.pem'"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}, "'sasl.mechanism' is GSSAPI"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"}, "ottla reads stores in PEM only"),
        ({"kafka.isolation.level": "committed"}, "'committed' is not one of read_uncommitted, read_committed"),
        ({"kafka.bootstrap.servers": ""}, "is missing: give host:port"),
        ({"subscribe": " , "}, "names no topic"),
        ({"assign": '{"t": [0]}'}, "subscribe and assign contradict each other"),
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest in a batch query"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "for t-0 cannot be -1 (latest)"),
        ({"endingOffsets": '{"t": {"3": -2}}'}, "for t-3 cannot be -2 (earliest)"),
        ({"startingOffsets": "first"}, "startingOffsets must be earliest or a JSON object such as"),
        ({"endingOffsets": "last"}, "endingOffsets must be latest or a JSON object such as"),
        ({"startingOffsets": '{"t": 5}'}, "a JSON object such as"),
        ({"startingOffsets": '{"t": {"' + "9" * 5000 + '": 5}}'}, "is not a partition number of 't'"),
        ({"startingOffsets": '{"t": {"x": 5}}'}, "'x' is not a partition number of 't'"),
        ({"startingOffsets": '{"t": {"0": "5"}}'}, "'5' for t-0 must be a number"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "True for t-0 must be a number"),
        ({"startingOffsets": '{"t": {"0": 3, "0": 4}}'}, "startingOffsets names '0' 2 times"),
        ({"startingOffsets": '{"t": {"0": 3, "00": 4}}'}, "startingOffsets names t-0 twice"),
        ({"endingOffsets": '{"t": {"0": 3}, "t": {"1": 4}}'}, "endingOffsets names 't' 2 times"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "-3 for t-0 must be a number"),
        ({"startingTimestamp": "2013-01-01"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "must be a number, 0 or more"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "must be error or latest"),
        ({"includeHeaders": "yes"}, "includeHeaders must be false or true, not 'yes'"),
        ({"minPartitions": "0"}, "minPartitions must be a positive whole number"),
        ({"maxTasks": "9" * 20}, "maxTasks must be a positive whole number"),
        ({"maxTasks": "2.5"}, "maxTasks must be a positive whole number"),
        ({"minPartitions": "8", "maxTasks": "2"}, "maxTasks (2) is less than minPartitions (8)"),
        (
            {"kafka.request.timeout.ms": "-5"},
            "request.timeout.ms must be a number of milliseconds from 1 to",
        ),
        ({"startingTimestamp": "9" * 20}, "startingTimestamp must be milliseconds since 1970"),
        ({"endingTimestamp": "9" * 20}, "endingTimestamp must be milliseconds since 1970"),
        ({"startingOffsets": '{"t": {"0": %s}}' % ("9" * 20)}, "startingOffsets: 99999999999999999999 for t-0 must be"),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": %s}}' % ("9" * 20)},
            "startingOffsetsByTimestamp: 99999999999999999999 for t-0 must be",
        ),
    ],
)
def test_wrong_options_are_refused_with_advice(more: dict[str, str], says: str) -> None:
    assert says in refusal(LEAST | more)


@pytest.mark.parametrize("assign", ["t", "[0]", '{"t": 0}', '{"t": ["0"]}', '{"t": [-1]}', "{}", '{"t": []}'])
def test_assign_must_be_json_that_names_partitions(assign: str) -> None:
    assert '{"topic": [0, 1]}' in refusal({"kafka.bootstrap.servers": "h:1", "assign": assign})


def test_topics_and_brokers_are_required() -> None:
    assert "subscribe, assign, subscribePattern" in refusal({"kafka.bootstrap.servers": "h:1"})
    assert "kafka.bootstrap.servers is missing" in refusal({"subscribe": "t"})
    pattern = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "flights("}
    assert "'flights(' is not a valid Python regex" in refusal(pattern)
    pattern["subscribePattern"] = "(" * 2000 + ")" * 2000
    assert "is not a valid Python regex: maximum recursion depth" in refusal(pattern)
    for java in ("[a-z&&[^t]]+", "[a[bc]]+", r"\\[[a-z&&t]", "[[a]b]", r"[a\]&&b]"):
        for _ in range(2):  # twice, because Python warns only the first time
            pattern = {"kafka.bootstrap.servers": "h:1", "subscribePattern": java}
            assert f"subscribePattern {java!r} means something else in Java" in refusal(pattern)
    for both in (r"\[[a-z]&&b", r"[a\[b]+", r"[a\\]\[b", "a|b&&c", "[^a-c]"):
        assert ReadOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribePattern": both}).source == both
    assert "subscribePattern is empty" in refusal({"kafka.bootstrap.servers": "h:1", "subscribePattern": " "})


def test_values_are_bytes_unless_a_format_says_otherwise() -> None:
    assert parse().layout == parse(valueFormat="Binary").layout == Layout()
    fields = parse_value_schema("id BIGINT")
    assert parse(valueFormat="JSON", valueSchema="id BIGINT").layout == Layout(json=JsonFormat(fields))
    named = parse(valueFormat="json", valueSchema="id BIGINT", columnNameOfCorruptRecord="bad", includeHeaders="true")
    assert named.layout == Layout(include_headers=True, json=JsonFormat(fields, "bad"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"valueFormat": "avro"}, "valueFormat 'avro' is not supported yet, only binary and json"),
        ({"valueFormat": "Protobuf"}, "valueFormat 'Protobuf' is not supported yet, only binary and json"),
        ({"valueFormat": "xml"}, "valueFormat 'xml' is not supported, only binary and json"),
        ({"valueFormat": "json"}, "valueFormat=json needs valueSchema"),
        ({"valueFormat": "json", "valueSchema": "id BIGNIT"}, "valueSchema at 'BIGNIT'"),
        ({"valueSchema": "id BIGINT"}, "valueSchema is for JSON values: add valueFormat=json"),
        ({"columnNameOfCorruptRecord": "bad"}, "columnNameOfCorruptRecord is for JSON values"),
        (
            {"valueFormat": "json", "valueSchema": "id BIGINT", "columnNameOfCorruptRecord": "Offset"},
            "columnNameOfCorruptRecord cannot be 'Offset': it must differ from the columns key, value, topic",
        ),
        (
            {"valueFormat": "json", "valueSchema": "id BIGINT", "columnNameOfCorruptRecord": ""},
            "columnNameOfCorruptRecord cannot be ''",
        ),
    ],
)
def test_options_about_values_must_make_sense(given: dict[str, str], said: str) -> None:
    assert said in refusal(LEAST | given)
