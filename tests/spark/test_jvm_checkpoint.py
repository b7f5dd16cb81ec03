"""Format ottla continues a query of Spark's own connector, on the checkpoint that the connector has written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests.interop.lines import Message
from tests.interop.peers import LIBRDKAFKA
from tests.spark.both_formats import Formats

pytestmark = pytest.mark.slow


class Runs:
    """Runs of one query, all on one checkpoint."""

    def __init__(self, broker: Broker, formats: Formats, checkpoint: Path) -> None:
        self.broker, self.formats, self.checkpoint = broker, formats, checkpoint

    def write(self, values: str) -> None:
        LIBRDKAFKA.produce(self.broker.bootstrap, [Message("t", None, each.encode()) for each in values])

    def run(self, format: str, fails_at: int | None = None, once_in: Sequence[str] = (), **options: Any) -> Any:
        """Run the query, and return the values that it reads, the ends of its batches, and its error."""
        given = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        where = {"checkpoint": str(self.checkpoint), "fails_at": fails_at, "once_in": once_in}
        return self.formats.ask("stream", format=format, options=given | options, **where)

    def values(self, format: str, **options: Any) -> str:
        """Run the query, which must not fail, and return the values that it reads, sorted."""
        found = self.run(format, **options)
        assert found["error"] is None, found["error"]
        return "".join(sorted(found["values"]))


@pytest.fixture
def runs(ottla_broker: Broker, formats: Formats, tmp_path: Path) -> Runs:
    ottla_broker.create_topic("t", partitions=2)
    return Runs(ottla_broker, formats, tmp_path / "checkpoint")


def test_each_record_is_read_once_and_there_is_no_way_back(runs: Runs) -> None:
    runs.write("abcdefgh")
    assert runs.values("kafka", maxOffsetsPerTrigger=3) == "abcdefgh"
    runs.write("ijk")
    assert runs.values("ottla", maxOffsetsPerTrigger=2) == "ijk"
    runs.write("lm")
    assert runs.values("ottla") == "lm"
    runs.write("n")
    assert runs.run("kafka")["error"]


def test_state_is_continued(runs: Runs) -> None:
    columns = ["topic", "timestampType", "value"]  # only the connector declares the first two as nullable
    runs.write("abca")
    assert runs.values("kafka", once_in=columns) == "abc"
    runs.write("bdc")
    assert runs.values("ottla", once_in=columns) == "d"


def test_a_batch_that_the_connector_has_not_finished_is_read_again(runs: Runs) -> None:
    runs.write("abcd")
    assert runs.values("kafka") == "abcd"
    runs.write("efgh")
    assert "the sink fails" in runs.run("kafka", fails_at=1)["error"]
    runs.write("ij")
    assert runs.values("ottla") == "efghij"


@pytest.mark.deep
def test_a_first_batch_that_the_connector_has_not_finished_is_refused(runs: Runs) -> None:
    # The connector keeps the start of the query beside Spark's offsets, where no other source can read it.
    runs.write("abcd")
    assert "the sink fails" in runs.run("kafka", fails_at=0)["error"]
    found = runs.run("ottla", startingOffsets="latest")
    assert (found["values"], "finish it with format('kafka')" in found["error"]) == ([], True), found
    assert runs.values("kafka") == "abcd"
    runs.write("ef")
    assert runs.values("ottla") == "ef"
