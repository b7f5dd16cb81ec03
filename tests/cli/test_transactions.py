"""transactions, as processes, against a broker for each test."""

import json

import pytest

import ottla.sync
from ottla.errors import InvalidProducerIdMapping, ProducerFenced
from ottla.testing import Broker
from tests.cli.test_commands import ottla as run
from tests.sdk.hanging import lose

pytestmark = pytest.mark.slow  # a process or two for each test


def test_transactions_are_listed_and_described(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    with (
        ottla.sync.connect(ottla_broker.bootstrap) as client,
        client.producer(transactional_id="t-1") as producer,
        client.producer(transactional_id="t-2") as other,
    ):
        with other.transaction() as done:
            done.send("t", b"v")
        with producer.transaction() as txn:
            for partition in range(2):
                txn.send("t", b"v", partition=partition)
            code, out, _ = run(ottla_broker, "transactions", "list", "--json")
            one, two = json.loads(out)
            assert (code, one["transactional_id"], one["state"]) == (0, "t-1", "Ongoing")
            assert (two["state"], ottla_broker.bootstrap in two["coordinator"]) == ("CompleteCommit", True)
            code, out, _ = run(ottla_broker, "transactions", "list", "--state", "ongoing", "--running-longer", "0s")
            assert (code, "t-1" in out, "t-2" in out) == (0, True, False), out
            owner = ("transactions", "list", "--producer-id", str(two["producer_id"]), "--json")
            assert json.loads(run(ottla_broker, *owner)[1]) == [two]
            code, out, _ = run(ottla_broker, "transactions", "describe", "t-1")
            assert (code, out.startswith("t-1: Ongoing since 2"), out.endswith("; partitions t:0,1\n")) == (
                0,
                True,
                True,
            )
            code, out, err = run(ottla_broker, "transactions", "describe", "t-1", "nobody", "--json")
            described = json.loads(out)
            assert (code, "'nobody'" in err, err.count("\n")) == (1, True, 1), err
            assert described["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
            assert (described["state"], described["timeout"], described["coordinator"]["node_id"]) == ("Ongoing", 60, 1)
    code, _, err = run(ottla_broker, "transactions", "list", "--state", "done")
    assert (code, err.startswith("ottla: 'done' is not a known transaction state")) == (2, True), err


def test_what_hangs_is_found_and_aborted_as_it_is_shown(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=2)
    at_once = ("transactions", "find-hanging", "--max-transaction-timeout", "0s")
    with (
        ottla.sync.connect(ottla_broker.bootstrap) as client,
        client.producer(transactional_id="t-1") as producer,
        pytest.raises(InvalidProducerIdMapping),
        producer.transaction() as txn,
    ):
        for partition in range(2):
            txn.send("t", b"lost", partition=partition)
        open_ = "no transaction hangs; 1 open: ottla transactions list --state ongoing\n"
        assert run(ottla_broker, *at_once) == (0, "", open_)
        code, out, err = run(ottla_broker, "transactions", "abort", "t:0", "--start-offset", "0")
        assert (code, out, "'t-1', Ongoing" in err, err.count("\n")) == (1, "", True, 1), err
        assert err.endswith(
            "; wait, or fence its producer (`ottla transactions fence t-1`); `--force` would abort only this part of it"
            "\n"
        )
        lose(ottla_broker, "t-1")
    assert run(ottla_broker, "transactions", "find-hanging", "--json") == (0, "[]\n", "")
    code, out, err = run(ottla_broker, *at_once)
    assert (code, "no coordinator" in out, "abort TOPIC:PARTITION" in err) == (0, True, True), out
    [found] = json.loads(run(ottla_broker, *at_once, "t:1", "--json")[1])
    assert (found["topic"], found["partition"], found["start_offset"], found["transactional_id"]) == ("t", 1, 0, None)
    code, _, err = run(ottla_broker, *at_once, "u")
    assert (code, "'u'" in err) == (1, True), err
    code, out, err = run(ottla_broker, "transactions", "abort", "t:0", "--start-offset", "0")
    assert (code, out, err) == (0, "aborted the transaction from offset 0 on in t-0\n", "")
    ids = ("--producer-id", str(found["producer_id"]), "--producer-epoch", str(found["producer_epoch"]))
    code, out, _ = run(ottla_broker, "transactions", "abort", "t:1", *ids, "--coordinator-epoch", "-1")
    assert (code, out) == (0, f"aborted the transaction of producer id {found['producer_id']} in t-1\n")
    assert run(ottla_broker, *at_once) == (0, "", "no transaction hangs\n")


def test_producers_are_fenced(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with (
            pytest.raises(ProducerFenced),
            client.producer(transactional_id="t-1") as producer,
            producer.transaction() as txn,
        ):
            txn.send("t", b"v")
            code, out, err = run(ottla_broker, "transactions", "fence", "t-1", "t-2")
            assert (code, out.startswith("fenced t-1: producer id 0 has epoch ")) == (0, True), out
            assert err == "t-2 is new to the coordinator: is it spelled correctly?\n"
        described = client.describe_transactions("t-1")["t-1"]
    fenced = json.loads(run(ottla_broker, "transactions", "fence", "t-1", "--json")[1])
    assert fenced == {"t-1": {"producer_id": 0, "producer_epoch": described.producer_epoch + 1}}
