"""topics, produce and consume as processes, against a broker for each test."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.cli import program
from tests.kafka import free_ports
from tests.patience import HUNG

pytestmark = pytest.mark.slow  # a process or two for each test


def ottla(broker: Broker, *arguments: str | Path, given: bytes = b"") -> tuple[int, str, str]:
    done = program.run(*arguments, "--bootstrap", broker.bootstrap, given=given)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_topic_is_created_listed_described_and_deleted(ottla_broker: Broker) -> None:
    created = ottla(ottla_broker, "topics", "create", "t", "--partitions", "3", "--config", "retention.ms=1000")
    assert created == (0, "created t with 3 partitions\n", "")
    assert ottla(ottla_broker, "topics", "list") == (0, "t\n", "")
    assert json.loads(ottla(ottla_broker, "topics", "list", "--json")[1]) == ["t"]
    code, out, _ = ottla(ottla_broker, "topics", "describe", "t", "--json")
    described = json.loads(out)
    assert (code, described["name"], described["configs"]) == (0, "t", {"retention.ms": "1000"})
    assert [(p["partition"], p["first_offset"], p["end_offset"]) for p in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    code, out, _ = ottla(ottla_broker, "topics", "describe", "t")
    assert (code, "retention.ms=1000" in out) == (0, True)
    assert ottla(ottla_broker, "topics", "delete", "t") == (0, "deleted t\n", "")
    assert ottla(ottla_broker, "topics", "list") == (0, "", "")


def test_what_the_broker_refuses_is_one_line_and_code_1(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    for arguments in (
        ["topics", "create", "t"],
        ["topics", "delete", "u"],
        ["consume", "u"],
        ["topics", "describe", "u"],
    ):
        code, out, err = ottla(ottla_broker, *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert err.startswith("ottla: ")


def test_lines_become_records_and_lines_again(ottla_broker: Broker) -> None:
    code, out, err = ottla(ottla_broker, "produce", "t", "--key-separator", ":", given=b"a:1\n\xff:\xfe\n:3")
    assert (code, out) == (0, "")
    assert err == "t did not exist: the broker has created it with 1 partition\n3 records are stored in t\n"
    done = program.run("consume", "t", "--until-end", "--key-separator", "\\t", "-b", ottla_broker.bootstrap)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\t1\n\xff\t\xfe\n\t3\n", b"")


def test_a_file_is_read(ottla_broker: Broker, tmp_path: Path) -> None:
    ottla_broker.create_topic("t")
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(10_000)))
    code, _, err = ottla(ottla_broker, "produce", "t", "--file", tmp_path / "lines", "--compression", "zstd")
    assert (code, err) == (0, "10000 records are stored in t\n")
    code, out, _ = ottla(ottla_broker, "consume", "t", "--until-end")
    assert (code, [int(line) for line in out.split()]) == (0, list(range(10_000)))


def test_what_is_consumed_as_json_can_be_produced_again(ottla_broker: Broker) -> None:
    lines = b'{"key":"k","value":{"n":1},"headers":{"h":"x"}}\n{"value":null,"key_base64":"/w==","partition":0}\n'
    code, out, _ = ottla(ottla_broker, "produce", "t", "--json", given=lines)
    assert (code, json.loads(out)) == (0, {"topic": "t", "records": 2})
    code, first, _ = ottla(ottla_broker, "consume", "t", "--until-end", "--json")
    records = [json.loads(line) for line in first.splitlines()]
    assert [(r["offset"], r.get("key"), r.get("key_base64"), r["value"], r["headers"]) for r in records] == [
        (0, "k", None, '{"n":1}', [{"key": "h", "value": "x"}]),
        (1, None, "/w==", None, []),
    ]
    assert ottla(ottla_broker, "produce", "u", "--json", given=first.encode())[0] == 0
    code, second, _ = ottla(ottla_broker, "consume", "u", "--until-end", "--json")
    assert second == first.replace('"topic":"t"', '"topic":"u"')


def test_a_separator_that_is_not_utf8_goes_out_and_comes_back(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    ours = ("t", "--bootstrap", ottla_broker.bootstrap, "--key-separator", os.fsdecode(b"\xff"))
    assert program.run("produce", *ours, given=b"k\xffv\n").returncode == 0
    consumed = program.run("consume", *ours, "--until-end")
    assert (consumed.stdout, consumed.stderr) == (b"k\xffv\n", b"")


def test_a_line_that_is_nested_deeply_is_named_in_one_line(ottla_broker: Broker) -> None:
    given = b'{"value": "fine"}\n{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    code, _, err = ottla(ottla_broker, "produce", "t", "--json", given=given)
    assert code == 1
    assert err.startswith("ottla: line 2: nested too deeply: ")
    assert err.endswith("; the line before it was sent\n")
    assert err.count("\n") == 1


def test_receipts_say_where_each_record_is(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    code, out, _ = ottla(
        ottla_broker,
        "produce",
        "t",
        "--json",
        "--receipts",
        given=b'{"value":"a","partition":1}\n{"value":"b","partition":1}\n',
    )
    assert code == 0
    assert [(r["partition"], r["offset"]) for r in map(json.loads, out.splitlines())] == [(1, 0), (1, 1)]


def test_a_line_that_is_not_understood_is_named_and_those_before_it_are_stored(ottla_broker: Broker) -> None:
    code, _, err = ottla(ottla_broker, "produce", "t", "--key-separator", ":", given=b"a:1\nb:2\nc\nd:4\n")
    assert (code, err.count("\n")) == (1, 1)
    assert "line 3" in err
    assert ottla(ottla_broker, "consume", "t", "--until-end")[1] == "1\n2\n"


def test_consume_begins_where_it_is_told_and_ends_after_a_count(ottla_broker: Broker) -> None:
    stamped = b"".join(b'{"value":"%d","timestamp":%d,"partition":0}\n' % (n, 1000 * n) for n in range(10))
    ottla(ottla_broker, "produce", "t", "--json", given=stamped)
    assert ottla(ottla_broker, "consume", "t", "--count", "3")[1] == "0\n1\n2\n"
    _, out, _ = ottla(ottla_broker, "consume", "t", "--from", "1970-01-01T00:00:08Z", "--until-end", "--partition", "0")
    assert out == "8\n9\n"
    assert ottla(ottla_broker, "consume", "t", "--from", "1900-01-01T00:00:00Z", "--count", "3")[1] == "0\n1\n2\n"
    assert ottla(ottla_broker, "consume", "t", "--from", "2100-01-01T00:00:00Z", "--until-end") == (0, "", "")
    assert ottla(ottla_broker, "consume", "t", "--from", "end", "--until-end") == (0, "", "")


def test_a_partition_that_does_not_exist_is_refused(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    code, _, err = ottla(ottla_broker, "consume", "t", "--partition", "7", "--until-end")
    assert (code, err.count("\n")) == (1, 1), err


def test_a_reader_that_leaves_ends_consume_quietly(ottla_broker: Broker) -> None:
    ottla(ottla_broker, "produce", "t", given=b"x" * 100 + b"\n" * 200_000)
    with program.running("consume", "t", "--bootstrap", ottla_broker.bootstrap) as consume:
        consume.line()
        assert consume.process.stdout is not None
        consume.process.stdout.close()
        consume.process.stdout = None
        assert consume.process.wait(HUNG) == 0
        assert consume.process.stderr is not None
        assert consume.process.stderr.read() == b""


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(words, id=" ".join(words), marks=[pytest.mark.deep] if words != ["topics", "list"] else [])
        for words in (["topics", "list"], ["produce", "t"], ["consume", "t"], ["topics", "create", "t"])
    ],
)
def test_a_broker_that_is_not_there_is_named_within_the_deadline(arguments: list[str]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = program.run(*arguments, "--bootstrap", address, "--connect-timeout", "1", given=b"x\n")
    assert done.returncode == 3
    assert done.stderr.startswith(b"ottla: ") and done.stderr.count(b"\n") == 1
    assert address.encode() in done.stderr and b"within 1 s" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_consume_ends_cleanly_by_a_signal(ottla_broker: Broker, number: signal.Signals) -> None:
    ottla(ottla_broker, "produce", "t", given=b"first\n")
    with program.running("consume", "t", "--bootstrap", ottla_broker.bootstrap) as consume:
        assert consume.line() == b"first"
        code, err, seconds = consume.end(number)
    assert (code, err) == (128 + number, b"")
    assert seconds < program.PROMPT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_produce_ends_cleanly_by_a_signal_and_stores_what_it_has_read(
    ottla_broker: Broker, number: signal.Signals
) -> None:
    ottla_broker.create_topic("t")
    with (
        program.running("consume", "t", "--bootstrap", ottla_broker.bootstrap) as consume,
        program.running("produce", "t", "--bootstrap", ottla_broker.bootstrap) as produce,
    ):
        produce.give(b"".join(b"%d\n" % n for n in range(1000)))
        assert [int(consume.line()) for _ in range(1000)] == list(range(1000))
        code, err, seconds = produce.end(number)
    assert (code, err) == (128 + number, b"1000 records are stored in t\n")
    assert seconds < program.PROMPT


def test_a_signal_ends_a_command_that_waits_for_a_broker_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with program.running("topics", "list", "--bootstrap", address, "--connect-timeout", "60") as command:
            silent.settimeout(HUNG)
            accepted, _ = silent.accept()
            with accepted:
                code, err, seconds = command.end(signal.SIGINT)
    assert (code, err) == (130, b"")
    assert seconds < program.PROMPT
