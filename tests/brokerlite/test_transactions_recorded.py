"""brokerlite answers sequences of transactional requests like Apache Kafka 4.3.1, and for some also like 3.9.2.

Recorded sequences are always compared; new ones only with a running Kafka, where there is one.
"""

import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokerlite.brokers import InProcess, Remote
from tests.brokerlite.record_transactions import KINDS, RECORDED
from tests.brokerlite.transacting import Conversation
from tests.brokerlite.transaction_scripts import SCRIPTS
from tests.brokerlite.transaction_walks import LAST_LOOK, Walk
from tests.kafka import ApacheKafka

LIVE = range(1000, 1030)
"""The seeds of walks that are not recorded."""


@functools.cache
def recorded() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """One broker for all walks, like the Kafka that they were recorded with."""
    broker = InProcess(tmp_path_factory.mktemp("walks") / "data")
    yield broker
    broker.machine.folder.abandon()


def test_every_script_is_recorded_and_as_many_walks_as_are_wanted() -> None:
    names = [each["name"] for each in recorded()]
    walks = [f"{kind} {seed}" for kind in KINDS for seed in range(KINDS[kind].seeds)]
    assert sorted(names) == sorted([*SCRIPTS, *walks])
    for each in recorded()[: len(SCRIPTS)]:
        assert [step for step, _ in each["exchanges"]] == SCRIPTS[each["name"]]


OF_NOW = [each["name"] for each in recorded() if each["release"] == "4.3"]
"""What brokerlite answers to as well."""


@pytest.mark.parametrize("name", OF_NOW)
def test_the_answers_are_apache_kafkas(broker: InProcess, name: str) -> None:
    (exchanges,) = [each["exchanges"] for each in recorded() if each["name"] == name]
    ours = Conversation(broker)
    for i, (step, theirs) in enumerate(exchanges):
        assert ours.perform(step) == theirs, f"step {i} of {name} is {step}, after {exchanges[max(0, i - 5) : i]}"


@pytest.mark.parametrize("name", [name for name in OF_NOW if "late markers" not in name][::4])
def test_after_a_kill_there_is_what_apache_kafka_has(tmp_path: Path, name: str) -> None:
    (exchanges,) = [each["exchanges"] for each in recorded() if each["name"] == name]
    broker = InProcess(tmp_path / "data")
    ours = Conversation(broker)
    look = -len(LAST_LOOK)
    for step, _ in exchanges[:look]:
        ours.perform(step)
    broker.machine = broker.machine.restart(clean=False)
    for step, theirs in exchanges[look:]:
        answer = ours.perform(step)
        if step[0] == "ends":  # a kill raises the leader epoch
            answer, theirs = [each[:-1] for each in answer], [each[:-1] for each in theirs]
        assert answer == theirs, step
    broker.machine.folder.abandon()


@pytest.mark.deep
def test_a_running_apache_kafka_gives_the_same_answers(broker: InProcess, kafka: ApacheKafka) -> None:
    remote = Remote(kafka.bootstrap.split(",")[0])
    for seed in LIVE:
        theirs, ours = Conversation(remote), Conversation(broker)
        walk = Walk(seed)
        for step, one in walk.steps():
            answer = theirs.perform(step)
            assert ours.perform(step) == answer, f"walk {seed}, {step}"
            walk.learn(step, one, answer)
    remote.close()
