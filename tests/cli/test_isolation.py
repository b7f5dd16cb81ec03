"""``--isolation`` of the commands that read: a log with an open transaction, and one with an aborted one at its end."""

import contextlib
import json
from collections.abc import Iterator

import pytest

import ottla.sync
from ottla.testing import Broker
from tests.cli import program

pytestmark = pytest.mark.slow  # a process or two for each test

COMMITTED = ("--isolation", "read_committed")
LONG = 900.0
"""Seconds that a transaction may stay open: the most that brokers allow. Each test runs several processes meanwhile."""


class Failed(Exception):
    """The reason to abort a transaction."""


def ottla_(broker: Broker, *arguments: str, says: str = "") -> str:
    done = program.run(*arguments, "--bootstrap", broker.bootstrap)
    assert (done.returncode, done.stderr.decode()) == (0, says)
    return done.stdout.decode()


@pytest.fixture
def log(ottla_broker: Broker) -> Iterator[contextlib.ExitStack]:
    """Two committed records, an aborted one, and a transaction that stays open until `abort`."""
    ottla_broker.create_topic("t")
    with (
        ottla.sync.connect(ottla_broker.bootstrap) as client,
        client.producer(transactional_id="first") as first,
        client.producer(transactional_id="second", transaction_timeout=LONG) as second,
        contextlib.ExitStack() as stack,
    ):
        with first.transaction() as txn:
            txn.send_many("t", [b"a", b"b"])
        with contextlib.suppress(Failed), first.transaction() as txn:
            txn.send("t", b"in vain")
            raise Failed
        open_ = stack.enter_context(second.transaction())
        open_.send("t", b"open")
        yield stack


def abort(log: contextlib.ExitStack) -> None:
    assert not log.__exit__(Failed, Failed(), None)


def test_consume_reads_what_is_committed_and_ends_where_a_transaction_is_open(
    ottla_broker: Broker, log: contextlib.ExitStack
) -> None:
    held_back = "1 record waits behind an open transaction\n"
    assert ottla_(ottla_broker, "consume", "t", "--until-end", *COMMITTED, says=held_back) == "a\nb\n"
    abort(log)
    assert ottla_(ottla_broker, "consume", "t", "--until-end", *COMMITTED) == "a\nb\n"
    assert ottla_(ottla_broker, "consume", "t", "--until-end", "--group", "g", *COMMITTED) == "a\nb\n"
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        assert client.group_lag("g").total == 0


def test_offsets_groups_and_perf_take_the_last_stable_offset_for_the_end(
    ottla_broker: Broker, log: contextlib.ExitStack
) -> None:
    def end(*arguments: str) -> int:
        [row] = json.loads(ottla_(ottla_broker, "offsets", "t", "--at", "end", "--json", *arguments))
        offset: int = row["offset"]
        return offset

    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.reset_offsets("g", "beginning", topics=["t"], execute=True)
    assert (end(), end(*COMMITTED)) == (6, 5)
    lag = json.loads(ottla_(ottla_broker, "groups", "describe", "g", "--json", *COMMITTED))["lag"]
    lines = ottla_(ottla_broker, "perf", "consume", "t", "--json", *COMMITTED).splitlines()
    assert (lag, json.loads(lines[-1])["records"]) == (5, 2)
    abort(log)
    lines = ottla_(ottla_broker, "perf", "consume", "t", "--json", *COMMITTED).splitlines()
    assert json.loads(lines[-1])["records"] == 2
