"""The same options give the same columns, rows, ends of batches and refusals in both formats."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.testing import Broker
from tests.interop.peers import create_topic
from tests.patience import HUNG
from tests.spark.both_formats import Formats

pytestmark = pytest.mark.slow

FIRST = 1_700_000_000_000
ROWS = 40
"""Records in each partition, a second apart."""


@pytest.fixture(scope="module")
def filled(formats: Formats, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker with topics ``t``, ``u`` and ``vu``, some records of which belong to an aborted transaction."""
    from ottla.brokerlite.config import BrokerConfig, Sync

    broker = Broker(BrokerConfig(port=0, data=tmp_path_factory.mktemp("broker"), sync=Sync.NEVER))
    for topic in ("t", "u", "vu"):
        create_topic(broker.bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(2 * ROWS):
        producer.produce(
            "t" if number < ROWS else "u",
            None if number % 7 == 0 else b"value-%d" % number,
            None if number % 5 == 0 else b"key-%d" % number,
            partition=number % 2,
            timestamp=FIRST + 1000 * number,
            headers=[("h", b"%d" % number), ("n", None)] if number % 3 == 0 else None,
        )
    producer.produce("vu", b"of a topic that a pattern matches in part", partition=0)
    assert producer.flush(HUNG) == 0
    aborted = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "aborted"})
    aborted.init_transactions()
    aborted.begin_transaction()
    aborted.produce("t", b"aborted", partition=0)
    aborted.flush(HUNG)
    aborted.abort_transaction()
    yield broker
    broker.stop()


def places(**of: int | tuple[int, ...]) -> str:
    """For partitions of ``t``: ``{"t": {"0": 1, "1": 2}}``."""
    return json.dumps({topic: {str(number): at for number, at in enumerate(each)} for topic, each in of.items()})  # type: ignore[arg-type]


READ: dict[str, dict[str, Any]] = {
    "a topic": {"subscribe": "t"},
    "two topics": {"subscribe": "t,u"},
    "a pattern": {"subscribePattern": "[tu]"},
    "a pattern for the beginning": {"subscribePattern": "^u|^v"},
    "partitions": {"assign": json.dumps({"t": [1], "u": [0]})},
    "headers": {"subscribe": "t", "includeHeaders": "true"},
    "read_committed": {"subscribe": "t", "kafka.isolation.level": "read_committed"},
    "offsets": {"subscribe": "t", "startingOffsets": places(t=(3, -2)), "endingOffsets": places(t=(7, -1))},
    "a timestamp": {"subscribe": "t", "startingTimestamp": FIRST + 9_500, "endingTimestamp": FIRST + 20_000},
    "timestamps": {
        "subscribe": "t",
        "startingOffsetsByTimestamp": places(t=(FIRST + 4_000, FIRST + 5_001)),
        "endingOffsetsByTimestamp": places(t=(FIRST + 30_000, FIRST + 99_000)),
    },
    "a timestamp behind the end": {
        "subscribe": "u",
        "startingTimestamp": FIRST + 1_000_000,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a timestamp before offsets": {
        "subscribe": "t",
        "startingTimestamp": FIRST + 30_000,
        "startingOffsets": "earliest",
    },
    "more tasks": {"subscribe": "t", "minPartitions": "7"},
    "small tasks": {"subscribe": "t", "maxRecordsPerPartition": "3"},
}

REFUSED: dict[str, dict[str, Any]] = {
    "no topic": {},
    "two ways": {"subscribe": "t", "subscribePattern": "t"},
    "a topic that is not": {"subscribe": "nosuch"},
    "partitions that are none": {"assign": "t"},
    "a start at the end": {"subscribe": "t", "startingOffsets": "latest"},
    "an end at the start": {"subscribe": "t", "endingOffsets": "earliest"},
    "too few partitions": {"subscribe": "t", "startingOffsets": json.dumps({"t": {"0": 1}})},
    "a behind that is before": {
        "subscribe": "t",
        "startingOffsets": places(t=(9, 9)),
        "endingOffsets": places(t=(3, 9)),
    },
    "a timestamp behind the end": {"subscribe": "t", "startingTimestamp": FIRST + 1_000_000},
    "a deserializer": {"subscribe": "t", "kafka.key.deserializer": "mine"},
    "auto.offset.reset": {"subscribe": "t", "kafka.auto.offset.reset": "latest"},
    "auto commits": {"subscribe": "t", "kafka.enable.auto.commit": "true"},
}


@pytest.mark.parametrize("options", READ.values(), ids=list(READ))
def test_the_same_rows(formats: Formats, filled: Broker, options: dict[str, Any]) -> None:
    given = {"kafka.bootstrap.servers": filled.bootstrap} | options
    ours, theirs = (formats.ask("batch", format=each, options=given) for each in ("ottla", "kafka"))
    assert ours["columns"] == theirs["columns"]
    assert ours == theirs


@pytest.mark.parametrize("options", REFUSED.values(), ids=list(REFUSED))
def test_the_same_is_refused(formats: Formats, filled: Broker, options: dict[str, Any]) -> None:
    given = {"kafka.bootstrap.servers": filled.bootstrap} | options
    ours, theirs = (formats.ask("batch", format=each, options=given)["error"] for each in ("ottla", "kafka"))
    assert (ours is None, theirs is None) == (False, False), (ours, theirs)


@pytest.mark.parametrize(
    "options", [{}, {"maxOffsetsPerTrigger": 11}, {"startingOffsets": places(t=(5, 6))}], ids=["all", "limited", "some"]
)
def test_the_same_batches(formats: Formats, filled: Broker, options: dict[str, Any], tmp_path: Path) -> None:
    given = {"kafka.bootstrap.servers": filled.bootstrap, "subscribe": "u", "startingOffsets": "earliest"}
    if "startingOffsets" in options:
        given["subscribe"] = "t"
    given["kafka.isolation.level"] = "read_committed"

    def run(format: str) -> Any:
        found = formats.ask("stream", format=format, options=given | options, checkpoint=str(tmp_path / format))
        for end in found["ends"]:
            end.pop("$", None)
        return found | {"values": sorted(map(str, found["values"]))}

    ours, theirs = run("ottla"), run("kafka")
    assert theirs["error"] is None, theirs["error"]
    if "maxOffsetsPerTrigger" in options:  # ours also reads the offsets that rounding leaves over
        ours["ends"], theirs["ends"] = ours["ends"][-1:], theirs["ends"][-1:]
    assert ours == theirs
    assert ours["values"]
