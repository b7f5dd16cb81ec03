"""`ottla consume --from` an offset or a tail, and counts that end a run exactly."""

import contextlib
import io
import json

import pytest
import typer

from ottla import sync
from ottla.cli.commands import app
from ottla.cli.consume import _start
from ottla.testing import Broker


class Cli:
    """Runs commands in this process.

    stdout is read from its descriptor, to which the command writes records directly. stderr is not, because clients of
    librdkafka from earlier tests may write to that descriptor.
    """

    def __init__(self, broker: Broker, capture: pytest.CaptureFixture[str]) -> None:
        self._broker, self._capture = broker, capture

    def __call__(self, *words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as err:
            app([*words, "--bootstrap", self._broker.bootstrap], prog_name="ottla")
        return int(ended.value.code or 0), self._capture.readouterr().out, err.getvalue()


@pytest.fixture
def cli(ottla_broker: Broker, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Commands against a broker where partition 0 of "t" has "0" to "29", and partition 1 has "30" to "32"."""
    ottla_broker.create_topic("t", partitions=2)
    with sync.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for number in range(33):
            producer.send_soon("t", b"%d" % number, partition=number // 30)
    return Cli(ottla_broker, capfd)


def test_an_offset_of_a_partition_is_where_consume_begins(cli: Cli) -> None:
    code, out, _ = cli("consume", "t", "--from", "20", "-p", "0", "--until-end")
    assert (code, out.split()) == (0, [str(each) for each in range(20, 30)])
    assert cli("consume", "t", "--from", "28", "-p", "0", "--count", "1") == (0, "28\n", "")
    assert cli("consume", "t", "--from", "30", "-p", "0", "--until-end") == (0, "", "")


def test_a_negative_offset_is_the_tail_of_each_partition(cli: Cli) -> None:
    code, out, _ = cli("consume", "t", "--from", "-5", "--until-end")
    assert (code, sorted(map(int, out.split()))) == (0, [*range(25, 30), 30, 31, 32])
    assert cli("consume", "t", "--from", "-2", "-p", "1", "--until-end") == (0, "31\n32\n", "")


def test_an_offset_of_thousands_of_digits_is_refused_in_plain_words() -> None:
    with pytest.raises(typer.BadParameter, match="an offset"):
        _start("9" * 5000)


def test_an_offset_that_a_partition_does_not_have_is_an_error_that_says_what_it_has(cli: Cli) -> None:
    code, out, err = cli("consume", "t", "--from", "20", "--until-end")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "no offset 20: partition 1 of t has offsets 0 to 2: choose a partition with --partition" in err
    assert (
        "there is no offset 31: partition 0 of t has offsets 0 to 29\n"
        in cli("consume", "t", "--from", "31", "-p", "0")[2]
    )


def test_perf_consume_counts_no_more_than_it_was_told(cli: Cli) -> None:
    _, out, _ = cli("perf", "consume", "t", "--count", "7", "--json")
    assert json.loads(out.splitlines()[-1])["records"] == 7


def test_perf_consume_commits_what_it_counted(cli: Cli) -> None:
    _, out, _ = cli("perf", "consume", "t", "--count", "7", "--group", "g", "--json")
    assert json.loads(out.splitlines()[-1])["records"] == 7
    _, out, _ = cli("offsets", "--group", "g", "--json")
    assert sum(each["offset"] for each in json.loads(out)) == 7
