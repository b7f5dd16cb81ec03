"""Wrong use: exit code 2, one clear message, and no request to a broker."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli import exits, options
from ottla.cli.commands import app
from ottla.codec.compression import Compression
from ottla.codec.partitioners import PARTITIONERS
from ottla.errors import (
    BrokerUnreachable,
    ConfigurationError,
    ConnectionLost,
    DeliveryTimeout,
    OttlaError,
    PartialFailure,
    RequestTimedOut,
    TimeoutExpired,
    TopicAlreadyExists,
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command"),
        (["topics", "create"], "Missing argument"),
        (["topics", "create", "t", "--partitions", "0"], "--partitions"),
        (["topics", "create", "t", "--config", "retention"], "KEY=VALUE"),
        (["consume", "t", "--from", "yesterday"], "2013-07-04T12:00:00Z"),
        (["consume", "t", "--from", "earliest"], "12:00:00Z; do you mean beginning?"),
        (["consume", "t", "--from", "latest"], "12:00:00Z; do you mean end?"),
        (["offsets", "t", "--at", "latest"], "do you mean end?"),
        (["consume", "t", "--count", "0"], "'--count': 0 is below 1"),
        (["consume", "t", "--count", "many"], "'--count': 'many' is not an integer"),
        (["consume", "t", "-p", "0,1"], "'--partition' / '-p': '0,1' is not an integer"),
        (["consume", "t", "--connect-timeout", "soon"], "'soon' is not a number"),
        (["broker", "--group-delay", "-1"], "'--group-delay': -1 is below 0.0"),
        (["consume", "t", "--from-beginning"], "--from-beginning: consume begins there"),
        (["groups", "reset", "g", "--to-beginning"], "use --to-earliest"),
        (["consume", "t", "--max-messages", "3"], "--max-messages: use --count"),
        (["topics", "grow", "t", "--partitions", "3"], "--partitions: use ottla topics grow"),
        (["produce", "t", "--broker-list", "a:1"], "--broker-list: use --bootstrap"),
        (["produce", "t", "FILE"], "FILE is one argument too many: do you mean --file FILE?"),
        (["topics", "--list"], "--list: use ottla topics list"),
        (["dump", "/nowhere"], "cannot read /nowhere: no such file or directory"),
        (["dump", "/nowhere/00000.log"], "cannot read /nowhere/00000.log: no such file or directory"),
        (["produce", "t", "--json", "--key-separator", ":"], "--key-separator"),
        (["produce", "t", "--key-separator", ""], "is empty"),
        (["produce", "t", "--file", "/nowhere/lines"], "cannot read /nowhere/lines"),
        (["produce", "t", "--partitioner", "md5"], "murmur2"),
        (["topics", "list", "--bootstrap", "here:port"], "host:port"),
        (["consume", "t", "--group", "g", "--partition", "1"], "the group assigns the partitions"),
        (["topics", "grow", "t", "0"], "PARTITIONS"),
        (["topics", "configure", "t", "retention.ms"], "'retention.ms' is not KEY=VALUE"),
        (["topics", "configure", "t", "retention.ms=5", "--reset", "retention.ms"], "retention.ms has a value, and"),
        (["groups", "describe"], "--all"),
        (["groups", "describe", "g", "--all"], "--all"),
        (["groups", "delete", "g", "--topic", "t:x"], "TOPIC:0,1,2"),
        (["groups", "reset", "g"], "--to-earliest"),
        (["groups", "reset", "g", "--to-latest", "--shift-by", "1"], "--to-earliest"),
        (["groups", "reset", "g", "--to-datetime", "noon"], "2013-07-04T12:00:00Z"),
        (["groups", "reset", "g", "--to-datetime", "2013-07-04"], "2013-07-04T00:00:00Z"),
        (["groups", "reset", "g", "--by-duration", "long"], "PT1H30M"),
        (["groups", "reset", "g", "--from-file", "/nowhere/plan.csv"], "cannot read /nowhere/plan.csv"),
        (["groups", "reset", "g", "--from-file", "/nowhere/plan.csv", "--topic", "t"], "leave out --topic"),
        (["groups", "reset", "g", "--to-latest", "--json", "--export"], "leave out --json"),
        (["consume", "t", "--isolation", "committed"], "'--isolation': 'committed' is not one of 'read_uncommitted'"),
        (["consume", "t", "--from", "3", "--group", "g"], "groups reset g --topic t --to-offset"),
        (["consume", "t", "--from", "-3", "--group", "g"], "groups reset g --topic t --to-offset"),
        (["produce", "t", "--file", "/"], "cannot read /: Is a directory"),
        (["transactions", "list", "--running-longer", "soon"], "PT1H30M"),
        (["transactions", "describe"], "Missing argument"),
        (["transactions", "find-hanging", "t:x"], "TOPIC:0,1,2"),
        (["transactions", "abort", "t", "--start-offset", "0"], "is not a single partition, as in orders:0"),
        (["transactions", "abort", "t:0,1", "--start-offset", "0"], "is not a single partition"),
        (["transactions", "abort", "t:0"], "all of --producer-id"),
        (["transactions", "abort", "t:0", "--producer-id", "1", "--producer-epoch", "0"], "all of --producer-id"),
        (["transactions", "abort", "t:0", "--start-offset", "0", "--producer-epoch", "0"], "all of --producer-id"),
        (["offsets"], "--group"),
        (["offsets", "--group", "g", "--at", "end"], "leave out --at"),
        (["offsets", "t", "--at", "noon"], "max-timestamp"),
        (["perf", "produce", "t", "--transaction-records", "9"], "for --transaction-records: give the producer a"),
        (["perf", "produce", "t", "--transaction-seconds", "9"], "for --transaction-seconds: give the producer a"),
        (["perf", "produce", "t", "--transactional-id", ""], "is empty"),
        (["perf", "produce", "t", "--transactional-id", "p", "--acks", "1"], "transactions need all"),
        (
            ["perf", "produce", "t", "--transactional-id=p", "--transaction-records=9", "--transaction-seconds=1"],
            "for --transaction-records: limit them by records or by seconds, not by both",
        ),
        (["broker", "--data", ""], "is empty"),
        (["broker", "--listen", "9092"], "host:port"),
        (["broker", "--name", "b"], "--announce"),
        (["broker", "--log-format", "xml"], "--log-format"),
        (["proxy"], "--upstream"),
        (["proxy", "--upstream", "x:1", "--topic", "flights"], "GLOB=MODE"),
        (["proxy", "--upstream", "x:1", "--topic", "flights=shuffle"], "observe, reject, rewrite, fan-out or copy"),
        (["proxy", "--upstream", "x:1", "--topic", "flights=rewrite:md5"], "murmur2"),
        (["proxy", "--upstream", "x:1", "--listen", "0.0.0.0:1"], "advertise"),
        (["proxy", "--config", "/nowhere/proxy.toml"], "cannot read /nowhere/proxy.toml"),
        (["demo", "--rows", "0"], "--rows"),
        (["demo", "--kafka", "x:1", "--keep", "d"], "--keep"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_refused_with_code_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300", "TERM": "dumb"})
    assert (result.exit_code, message in result.output) == (exits.WRONG_USE, True), result.output


def test_a_file_with_an_unknown_option_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "proxy.toml").write_text('upstream = "x:1"\nlisten-on = "y:2"\n')
    result = CliRunner().invoke(app, ["proxy", "--config", str(tmp_path / "proxy.toml")])
    assert result.exit_code == exits.WRONG_USE
    assert "listen-on" in result.output


def test_the_choices_are_those_of_the_codec() -> None:
    assert {each.value for each in options.Partitioner} == set(PARTITIONERS)
    assert {each.value for each in options.CompressionName} == {each.name.lower() for each in Compression}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (ConnectionLost("x"), 3),
        (BrokerUnreachable("x"), 3),
        (TimeoutExpired("x"), 3),
        (DeliveryTimeout("x"), 3),
        (RequestTimedOut(), 3),
        (TopicAlreadyExists(), 1),
        (PartialFailure("x", None, {"a": TimeoutExpired("x"), "b": ConnectionLost("x")}), 3),
        (PartialFailure("x", None, {"a": TimeoutExpired("x"), "b": TopicAlreadyExists()}), 1),
        (exits.BadInput("x"), 1),
    ],
)
def test_an_error_has_its_exit_code(error: OttlaError, code: int) -> None:
    assert exits.code_of(error) == code
