"""A query of Spark's own connector is gone on with by format ottla, on the checkpoint that it has written."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests.bench.spark.run import CONNECTOR
from tests.interop.lines import Message
from tests.interop.peers import LIBRDKAFKA
from tests.kafka import jar

pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys
import ottla.spark

spark = ottla.spark.session("checkpoints", **{"spark.jars": sys.argv[1]})
for line in sys.stdin:
    given = json.loads(line)
    values = []

    def take(frame, batch):
        found = [row.value.decode() for row in frame.select("value").collect()]
        if given["fails_at"] == batch:
            raise RuntimeError("the sink fails")
        values.extend(found)

    source = spark.readStream.format(given["format"]).options(**given["options"]).load()
    query = source.writeStream.foreachBatch(take).option("checkpointLocation", given["checkpoint"])
    error = None
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    except Exception as raised:
        error = str(raised)
    print(json.dumps({"values": values, "error": error}), flush=True)
"""


class Runs:
    """Runs of one query in a Spark that has the connector too, all on one checkpoint."""

    def __init__(self, broker: Broker, process: "subprocess.Popen[str]", checkpoint: Path) -> None:
        self.broker, self.process, self.checkpoint = broker, process, checkpoint

    def write(self, values: str) -> None:
        LIBRDKAFKA.produce(self.broker.bootstrap, [Message("t", None, each.encode()) for each in values])

    def run(self, format: str, fails_at: int | None = None, **options: Any) -> dict[str, Any]:
        """What it has read, and why it failed."""
        given = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        given |= {name: str(value) for name, value in options.items()}
        asked = {"format": format, "options": given, "checkpoint": str(self.checkpoint), "fails_at": fails_at}
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, "the program has ended"
        found: dict[str, Any] = json.loads(answer)
        return found

    def values(self, format: str, **options: Any) -> str:
        """What it has read, sorted, without an error."""
        found = self.run(format, **options)
        assert found["error"] is None
        return "".join(sorted(found["values"]))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Any:
    jars = ",".join(str(jar(each)) for each in CONNECTOR)
    with (
        (tmp_path_factory.mktemp("program") / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, jars],
            env=os.environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def runs(ottla_broker: Broker, program: "subprocess.Popen[str]", tmp_path: Path) -> Runs:
    ottla_broker.create_topic("t", partitions=2)
    return Runs(ottla_broker, program, tmp_path / "checkpoint")


def test_each_record_is_read_once_and_there_is_no_way_back(runs: Runs) -> None:
    runs.write("abcdefgh")
    assert runs.values("kafka", maxOffsetsPerTrigger=3) == "abcdefgh"
    runs.write("ijk")
    assert runs.values("ottla", maxOffsetsPerTrigger=2) == "ijk"
    runs.write("lm")
    assert runs.values("ottla") == "lm"
    runs.write("n")
    assert runs.run("kafka")["error"]


def test_a_batch_that_the_connector_has_not_finished_is_read_again(runs: Runs) -> None:
    runs.write("abcd")
    assert runs.values("kafka") == "abcd"
    runs.write("efgh")
    assert "the sink fails" in runs.run("kafka", fails_at=1)["error"]
    runs.write("ij")
    assert runs.values("ottla") == "efghij"


def test_a_first_batch_that_the_connector_has_not_finished_is_refused(runs: Runs) -> None:
    # Where it began the connector keeps beside Spark's offsets, where no other source sees it.
    runs.write("abcd")
    assert "the sink fails" in runs.run("kafka", fails_at=0)["error"]
    found = runs.run("ottla", startingOffsets="latest")
    assert (found["values"], "finish it with format('kafka')" in found["error"]) == ([], True), found
    assert runs.values("kafka") == "abcd"
    runs.write("ef")
    assert runs.values("ottla") == "ef"
