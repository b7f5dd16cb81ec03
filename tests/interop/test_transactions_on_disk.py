"""brokerlite's files about transactions, as Kafka's own tool reads them: logs, indexes, snapshots, internal topics."""

import re
from collections import Counter
from pathlib import Path

import pytest

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.testing import Broker
from tests.brokerlite.test_process import dumped_by_kafka
from tests.interop.coordinator_logs import CONSUMER_OFFSETS, stored
from tests.interop.test_transactions import LONG, until
from tests.interop.transacting import TRANSACTORS

pytestmark = pytest.mark.slow

SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
CLIENTS = ("java", "librdkafka")
"""A client for version 2 of transactions, and one for version 1."""


@pytest.fixture(params=["stop", "kill"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a broker that has ended. Each client ran 40 transactions of 3 records, every fourth of which it
    aborted, and one that is still open."""
    config = BrokerConfig(
        port=0,
        data=tmp_path / "data",
        segment_bytes=4000,
        index_interval_bytes=500,
        sync=Sync.NEVER,
        group_initial_rebalance_delay=0,
    )
    broker = Broker(config)
    broker.create_topic("input", 2)
    broker.create_topic("output")
    for name in CLIENTS:
        # The first client's open transaction must outlast the work of the second.
        with TRANSACTORS[name].start(broker.bootstrap, f"id-{name}", {"transaction.timeout.ms": LONG}) as producer:
            producer.do("init")
            producer.subscribe("input", f"group-{name}")
            for i in range(40):
                producer.do("begin")
                for j in range(3):
                    producer.send("input", j % 2, b"key", b"%d" % i)
                if i % 10 == 9:
                    until(lambda: bool(producer.poll()))
                    producer.do("offsets")
                producer.do("flush")
                producer.do("abort" if i % 4 == 3 else "commit")
            producer.do("begin")
            producer.send("output", 0, b"key", b"open")
            producer.do("flush")
            producer.kill()
    getattr(broker, request.param)()
    return broker.data


def dumped(folder: Path, *options: str) -> str:
    names = [str(path) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
    return dumped_by_kafka(",".join(names), "--deep-iteration", *options)


def test_kafkas_tool_finds_nothing_wrong_with_logs_indexes_and_snapshots(data: Path) -> None:
    markers: Counter[str] = Counter()
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        said = dumped(folder)
        assert "isvalid: false" not in said
        if folder.name.startswith("input"):
            assert len(list(folder.glob("*.log"))) > 2
            markers.update(re.findall(r"endTxnMarker: (\w+)", said))
            assert said.count("currentTxnFirstOffset: OptionalLong.empty") >= len(CLIENTS), "in the last snapshot"
        if indexes := [str(path) for path in sorted(folder.iterdir()) if path.suffix in (".index", ".timeindex")]:
            sound = dumped_by_kafka(",".join(indexes), "--index-sanity-check")
            assert sound.count(" passed sanity check.") + sound.count(" is empty.") == len(indexes)
    assert markers == {"COMMIT": 2 * 30 * len(CLIENTS), "ABORT": 2 * 10 * len(CLIENTS)}


def test_kafkas_tool_decodes_transactions_and_the_offsets_that_they_commit(data: Path) -> None:
    states: dict[str, list[int]] = {}
    for _, key, value in stored(data / "__transaction_state-0", "--transaction-log-decoder"):
        assert value is not None
        states.setdefault(key["transactionalId"], []).append(value["transactionStatus"])
    assert states.keys() == {f"id-{name}" for name in CLIENTS}
    for changes in states.values():
        assert changes[0] == 0 and changes[-1] == 1, "empty, and open"
        assert Counter(changes)[4] == 30 and Counter(changes)[5] == 10, "complete: committed, aborted"
    committed = stored(data / "__consumer_offsets-0", CONSUMER_OFFSETS)
    groups = {key["group"] for _, key, value in committed if value and "offset" in value}
    assert groups == {f"group-{name}" for name in CLIENTS}
