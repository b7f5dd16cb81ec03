"""Structured streaming on brokerlite: which records a query reads, through restarts, loss and changes of its topics."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from typer.testing import CliRunner

from ottla.cli.commands import app
from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import ConfigurationError, DataLoss, DecodeError
from ottla.sdk.cluster import metadata
from ottla.sdk.connection import requests
from ottla.spark.reading.batch_reader import ReadTask, clients
from ottla.spark.reading.read_options import StreamOptions
from ottla.spark.streaming import group_commits, stream_reader
from ottla.spark.streaming.stream_reader import StreamReader
from ottla.testing import Broker
from tests.interop.peers import create_topic
from tests.patience import HUNG, PROGRAM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def write(broker: Broker | str, *values: str, topic: str = "t", partition: int = 0, compression: str = "none") -> None:
    from confluent_kafka import Producer

    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": compression})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(HUNG) == 0


class Query:
    """A query that collects its values by batches; each run reads all that is there at its start."""

    def __init__(self, spark: "SparkSession", bootstrap: str, folder: Path, **options: Any) -> None:
        self.spark, self.folder = spark, folder
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t"} | options
        self.batches: list[list[str]] = []
        self.fails = 0
        self.look: Callable[[], object] = lambda: None
        """Called during each batch."""

    def run(self, **options: Any) -> "StreamingQuery":
        """Run until everything that was there at the start is read."""
        source = self.spark.readStream.format("ottla").options(**self.options | options).load()
        writer = source.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.folder))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PROGRAM), "the query does not end"
        finally:
            query.stop()
        return query

    def _take(self, frame: "DataFrame", batch: int) -> None:
        values = sorted(row.value.decode() for row in frame.select("value").collect())
        self.look()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the sink fails")
        self.batches.append(values)

    @property
    def values(self) -> list[str]:
        return [value for batch in self.batches for value in batch]


@pytest.fixture
def query(spark: "SparkSession", ottla_broker: Broker, tmp_path: Path) -> Query:
    ottla_broker.create_topic("t", partitions=2)
    return Query(spark, ottla_broker.bootstrap, tmp_path / "checkpoint", startingOffsets="earliest")


@pytest.mark.slow
def test_each_record_is_read_once_through_restarts(spark: "SparkSession", bootstrap: str, tmp_path: Path) -> None:
    topic = "streamed"
    create_topic(bootstrap, topic, 2)
    query = Query(spark, bootstrap, tmp_path / "checkpoint", subscribe=topic, startingOffsets="earliest")
    write(bootstrap, "a", "b", topic=topic)
    query.run(maxOffsetsPerTrigger=1)
    write(bootstrap, "c", topic=topic, partition=1)
    query.run()
    last = query.run().lastProgress
    assert query.values == ["a", "b", "c"]
    assert last is not None
    assert json.loads(last["sources"][0]["latestOffset"]) == {topic: {"0": 2, "1": 1}}


@pytest.mark.slow
def test_a_first_batch_that_fails_is_read_again_from_where_it_began(query: Query, ottla_broker: Broker) -> None:
    # After the restart Spark asks for the start again, because it did not keep it; "latest" may be another offset now.
    write(ottla_broker, "a", "b")
    query.fails = 1
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        query.run()
    query.run(startingOffsets="latest")
    assert query.values == ["a", "b"]


@pytest.mark.deep
def test_a_limit_makes_several_batches(query: Query, ottla_broker: Broker) -> None:
    write(ottla_broker, *"abcdefg")
    write(ottla_broker, "h", partition=1)
    query.run(maxOffsetsPerTrigger=3)
    assert sorted(query.values) == list("abcdefgh")
    assert [len(batch) for batch in query.batches] == [3, 3, 2]
    assert "h" in query.batches[0], "a small partition is not starved"


@pytest.mark.deep
def test_a_topic_that_grows_is_read_from_the_beginning_of_its_new_partitions(
    query: Query, ottla_broker: Broker
) -> None:
    write(ottla_broker, "a")
    query.run()
    grow(ottla_broker, "t", 3)
    write(ottla_broker, "new", partition=2)
    query.run()
    assert query.values == ["a", "new"]


@pytest.mark.deep
def test_new_topics_are_read_and_deleted_topics_are_loss(query: Query, ottla_broker: Broker) -> None:
    pattern = {"subscribePattern": "t.*"}
    del query.options["subscribe"]
    write(ottla_broker, "a")
    query.run(**pattern)
    ottla_broker.create_topic("t2", partitions=1)
    write(ottla_broker, "b", topic="t2")
    query.run(**pattern)
    delete(ottla_broker, "t")
    write(ottla_broker, "c", topic="t2")
    with pytest.raises(StreamingQueryException, match="t-0 is gone"):
        query.run(**pattern)
    query.run(**pattern, failOnDataLoss=False)
    assert query.values == ["a", "b", "c"]


@pytest.mark.deep
def test_a_recreated_topic_is_loss_or_read_from_its_beginning(query: Query, ottla_broker: Broker) -> None:
    write(ottla_broker, "a", "b", "c")
    query.run()
    delete(ottla_broker, "t")
    create_topic(ottla_broker.bootstrap, "t", 2)
    write(ottla_broker, *"ABCDE")
    with pytest.raises(StreamingQueryException, match="topic t was recreated: failOnDataLoss=false"):
        query.run()
    query.run(failOnDataLoss=False)
    assert query.values == [*"abc", *"ABCDE"]


@pytest.mark.deep
def test_a_checkpoint_of_the_jvm_connector_is_continued(query: Query, ottla_broker: Broker) -> None:
    write(ottla_broker, *"abcd")
    query.run()
    for file in (query.folder / "offsets").iterdir():
        if file.name.isdigit():
            *head, _ = file.read_text().splitlines()
            file.write_text("\n".join([*head, '{"t":{"1":0,"0":2}}']))
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    query.batches.clear()
    query.run()
    assert query.values == ["c", "d"]


@pytest.mark.deep
def test_the_query_commits_its_position_to_a_group(query: Query, ottla_broker: Broker) -> None:
    write(ottla_broker, *"abcd")
    query.run(groupIdPrefix="mine", maxOffsetsPerTrigger=3)
    assert committed(ottla_broker, "mine", ("t", 0)) == [4]


@pytest.mark.slow
@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}, {"processingTime": "1 second"}])
def test_mistakes_in_the_options_of_a_stream_are_reported(
    trigger: dict[str, Any], spark: "SparkSession", ottla_broker: Broker, tmp_path: Path
) -> None:
    ottla_broker.create_topic("t")
    options = {"kafka.bootstrap.servers": ottla_broker.bootstrap, "subscribe": "t", "maxOffsetsPerTrigger": "0"}
    rows = spark.readStream.format("ottla").options(**options).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(**trigger).start()
    with pytest.raises(Exception, match=r"ConfigurationError: maxOffsetsPerTrigger must be .*, not '0'"):
        query.awaitTermination(PROGRAM)


# -- what Spark asks for ----------------------------------------------------------------------------------------------


@pytest.fixture
def asked(ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> "Iterator[Callable[..., StreamReader]]":
    ottla_broker.create_topic("t", partitions=2)
    monkeypatch.setattr(group_commits, "SECONDS", HUNG)  # a query gives up a commit that takes longer

    def made(**options: Any) -> StreamReader:
        given = {"kafka.bootstrap.servers": ottla_broker.bootstrap, "subscribe": "t"} | options
        return StreamReader(StreamOptions.parse({name: str(each) for name, each in given.items() if each is not None}))

    with polled_at_once():
        yield made


@contextmanager
def polled_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_reader, "POLL_SECONDS", 0.0)
        patch.setattr(stream_reader, "TOPICS_SECONDS", 0.0)
        yield


Asked = Callable[..., StreamReader]
EVERYTHING = ReadAllAvailable()


def begun(reader: StreamReader) -> dict[str, Any]:
    """The end of the first batch."""
    return reader.latestOffset(reader.initialOffset(), EVERYTHING)


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    """What a batch reads."""
    tasks = [task for task in reader.partitions(start, end) if isinstance(task, ReadTask)]
    return sorted((each.topic, each.partition, each.start, each.end) for task in tasks for each in task.ranges)


def test_a_batch_that_is_too_large_to_read_does_not_stop_a_stream_for_ever(
    asked: Asked, ottla_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    write(ottla_broker, "before")
    write(ottla_broker, "x" * 100_000, compression="gzip")
    write(ottla_broker, "behind")

    def values(**options: Any) -> list[int]:
        reader = asked(startingOffsets="earliest", maxBatchBytes=99_999, **options)
        tasks = reader.partitions(reader.initialOffset(), begun(reader))
        return [len(value) for task in tasks for rows in reader.read(task) for value in rows["value"].to_pylist()]

    with pytest.raises(DecodeError, match=r"t-0, batch at offset 1: .*limit of 99999 bytes; .*a higher maxBatchBytes"):
        values()
    assert values(failOnDataLoss="false") == [6, 6]
    assert "a batch of t-0 cannot be read and is skipped, up to offset 1: t-0, batch at offset 1" in caplog.text
    clients.close()


def test_the_first_end_contains_where_the_query_begins(asked: Asked, ottla_broker: Broker) -> None:
    write(ottla_broker, "a", "b")
    end = begun(asked())
    write(ottla_broker, "c", "d")
    other = asked()
    assert read(other, other.initialOffset(), end) == []
    assert read(other, end, other.latestOffset(end, EVERYTHING)) == [("t", 0, 2, 4)]


def test_a_first_batch_is_planned_again_though_the_options_do_not_fit_any_more(
    asked: Asked, ottla_broker: Broker
) -> None:
    write(ottla_broker, "a", "b")
    options = {"startingOffsets": json.dumps({"t": {"0": 1, "1": 0}})}
    end = begun(asked(**options))
    grow(ottla_broker, "t", 3)
    again = asked(**options)
    assert read(again, again.initialOffset(), end) == [("t", 0, 1, 2)]
    with pytest.raises(ConfigurationError, match="startingOffsets must name every partition, but misses t-2"):
        begun(again)


def test_records_written_while_available_now_begins_are_no_loss(asked: Asked, ottla_broker: Broker) -> None:
    reader = asked()
    reader.prepareForTriggerAvailableNow()
    write(ottla_broker, "a")
    end = begun(reader)
    assert read(reader, reader.initialOffset(), end) == []
    assert end["t"]["0"] == 1


def test_a_pattern_may_match_nothing_yet(asked: Asked, ottla_broker: Broker) -> None:
    reader = StreamReader(
        StreamOptions.parse({"kafka.bootstrap.servers": ottla_broker.bootstrap, "subscribePattern": "new-.*"})
    )
    end = begun(reader)
    ottla_broker.create_topic("new-1", partitions=1)
    write(ottla_broker, "a", topic="new-1")
    assert read(reader, end, reader.latestOffset(end, EVERYTHING)) == [("new-1", 0, 0, 1)]


def test_without_new_records_the_offset_is_the_same_text(
    asked: Asked, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ottla_broker, "a")
    reader = asked(startingOffsets="earliest")
    end = begun(reader)
    assert end != reader.initialOffset()
    assert json.dumps(reader.latestOffset(end, EVERYTHING)) == json.dumps(end)
    monkeypatch.setattr(reader, "_begins", None)
    assert json.dumps(reader.latestOffset(end, EVERYTHING)) == json.dumps(end), "and no beginning is looked up again"


def test_a_topic_created_again_before_the_first_records_is_read_from_its_beginning(
    asked: Asked, ottla_broker: Broker
) -> None:
    write(ottla_broker, *"abcde")
    reader = asked(failOnDataLoss="false")
    end = begun(reader)
    delete(ottla_broker, "t")
    create_topic(ottla_broker.bootstrap, "t", 2)
    write(ottla_broker, "A", "B")
    following = reader.latestOffset(end, EVERYTHING)
    assert read(reader, end, following) == [("t", 0, 0, 2)]
    write(ottla_broker, "C")
    assert read(reader, following, reader.latestOffset(following, EVERYTHING)) == [("t", 0, 2, 3)]


def test_a_topic_that_brokers_hide_for_a_while_is_read_on(
    asked: Asked, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(ottla_broker, "a", "b")
    reader = asked(startingOffsets="earliest", failOnDataLoss="false")
    end = begun(reader)
    with monkeypatch.context() as patch:
        patch.setattr(stream_reader, "topics_of", lambda *_, **__: {})
        hidden = reader.latestOffset(end, EVERYTHING)
        assert read(reader, end, hidden) == []
        assert reader.latestOffset(hidden, EVERYTHING) == hidden
    assert caplog.text.count("t-0 is gone") == 1
    write(ottla_broker, "c")
    assert read(reader, hidden, reader.latestOffset(hidden, EVERYTHING)) == [("t", 0, 2, 3)]


def test_a_partition_that_comes_back_shorter_is_loss(asked: Asked, ottla_broker: Broker) -> None:
    write(ottla_broker, "a", "b")
    reader = asked(startingOffsets="earliest")
    before = begun(reader)
    del before["t"]["0"], before["$"]["start"]
    before["$"]["gone"] = {"t": {"0": 7}}
    with pytest.raises(DataLoss, match="t-0 was read up to 7, but ends at 2"):
        reader.latestOffset(before, EVERYTHING)


def test_each_loss_causes_a_warning(asked: Asked, ottla_broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    write(ottla_broker, "a")
    end = begun(asked(startingOffsets="earliest"))
    reader = asked(startingOffsets="earliest", failOnDataLoss="false")
    for losses in (1, 2, 3):
        delete(ottla_broker, "t")
        ottla_broker.create_topic("t", partitions=2)
        write(ottla_broker, "b")
        reader._topics_at = -math.inf
        end = reader.latestOffset(end, EVERYTHING)
        reader.latestOffset(end, EVERYTHING)
        assert caplog.text.count("topic t was recreated") == losses
    assert len(reader._logged[1]) == 1, "only the latest loss is remembered"


def test_a_query_that_has_read_uncommitted_records_waits_for_their_commit(asked: Asked, ottla_broker: Broker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap, "transactional.id": "open"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    producer.flush(HUNG)
    write(ottla_broker, "behind")
    end = begun(asked(startingOffsets="earliest"))
    assert end["t"]["0"] == 2
    reader = asked(startingOffsets="earliest", **{"kafka.isolation.level": "read_committed"})
    assert reader.latestOffset(end, EVERYTHING)["t"] == end["t"], "no loss, and nothing is read twice"
    producer.commit_transaction(20)
    write(ottla_broker, "next")
    reader._newest_at = -math.inf
    following = reader.latestOffset(end, EVERYTHING)
    assert read(reader, end, following) == [("t", 0, 2, 4)]


def test_a_new_topic_is_read_from_where_its_log_begins(ottla_broker: Broker, asked: Asked) -> None:
    reader = StreamReader(
        StreamOptions.parse(
            {
                "kafka.bootstrap.servers": ottla_broker.bootstrap,
                "subscribePattern": "t.*",
                "maxOffsetsPerTrigger": "2",
            }
        )
    )
    limit, end = reader.getDefaultReadLimit(), begun(reader)
    ottla_broker.create_topic("trimmed", partitions=1)
    write(ottla_broker, *map(str, range(50)), topic="trimmed")
    trim(ottla_broker, "trimmed", 45)
    following = reader.latestOffset(end, limit)
    assert read(reader, end, following) == [("trimmed", 0, 45, 47)]
    assert read(reader, following, reader.latestOffset(following, limit)) == [("trimmed", 0, 47, 49)]


def test_a_new_partition_whose_records_are_deleted_while_available_now_lasts_is_no_loss(
    ottla_broker: Broker, asked: Asked
) -> None:
    reader = asked(startingOffsets="earliest")
    end = begun(reader)
    grow(ottla_broker, "t", 3)
    write(ottla_broker, *"abcde", partition=2)
    again = asked()
    again.prepareForTriggerAvailableNow()
    write(ottla_broker, *"fgh", partition=2)
    trim(ottla_broker, "t", 7, partition=2)
    following = again.latestOffset(end, EVERYTHING)
    assert read(again, end, following) == []
    assert again.latestOffset(following, EVERYTHING) == following
    other = asked()
    assert read(other, following, other.latestOffset(following, EVERYTHING)) == [("t", 2, 7, 8)]


def test_a_limit_counts_only_records_that_partitions_still_have(ottla_broker: Broker, asked: Asked) -> None:
    reader = asked(startingOffsets="earliest", maxOffsetsPerTrigger=5, failOnDataLoss=False)
    limit, end = reader.getDefaultReadLimit(), begun(reader)
    write(ottla_broker, *map(str, range(100)))
    trim(ottla_broker, "t", 98)
    write(ottla_broker, *"abc", partition=1)
    following = reader.latestOffset(end, limit)
    assert read(reader, end, following) == [("t", 0, 0, 100), ("t", 1, 0, 3)]


def test_lag_counts_records_that_arrived_after_available_now_began(ottla_broker: Broker, asked: Asked) -> None:
    write(ottla_broker, *"abc")
    reader = asked(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    end = begun(reader)
    write(ottla_broker, *"defg")
    assert reader.latestOffset(end, EVERYTHING) == end
    assert reader.reportLatestOffset() == {"t": {"0": 7, "1": 0}}
    lags = {each.tags["partition"]: each.value for each in reader._progress.metrics() if each.name == "records-lag"}
    assert lags == {"0": 4.0, "1": 0.0}


def consumed(reader: StreamReader) -> dict[str, float]:
    """The metric records-consumed-total, by partition."""
    metrics = reader._progress.metrics()
    return {each.tags["partition"]: each.value for each in metrics if each.name == "records-consumed-total"}


def test_a_batch_that_is_read_again_after_a_restart_counts(ottla_broker: Broker, asked: Asked) -> None:
    write(ottla_broker, *"abc")
    first = asked(startingOffsets="earliest")
    end = begun(first)
    assert consumed(first) == {"0": 0.0, "1": 0.0}
    again = asked(startingOffsets="earliest")
    again.partitions(again.initialOffset(), end)
    again.latestOffset(end, EVERYTHING)
    assert consumed(again) == {"0": 3.0, "1": 0.0}


def test_a_restart_reads_a_partition_from_where_its_log_begins_though_spark_kept_no_such_end(
    ottla_broker: Broker, asked: Asked
) -> None:
    # Asynchronous progress tracking does this.
    reader = asked(startingOffsets="earliest", maxOffsetsPerTrigger=3)
    limit, end = reader.getDefaultReadLimit(), begun(reader)
    grow(ottla_broker, "t", 3)
    write(ottla_broker, *"abcdefgh", partition=2)
    trim(ottla_broker, "t", 2, partition=2)
    following = reader.latestOffset(reader.latestOffset(end, limit), limit)
    again = asked()
    assert read(again, end, following) == [("t", 2, 2, 8)]


def test_a_topic_that_is_deleted_during_its_lookup_of_offsets_is_skipped(
    ottla_broker: Broker, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla_broker.create_topic("t-gone")
    reader = asked(subscribe=None, subscribePattern="t.*", startingOffsets="earliest", failOnDataLoss=False)
    end = begun(reader)
    write(ottla_broker, "a")
    build = requests.list_offsets

    def deleting(*given: Any) -> Any:
        monkeypatch.setattr(requests, "list_offsets", build)
        delete(ottla_broker, "t-gone")
        return build(*given)

    monkeypatch.setattr(requests, "list_offsets", deleting)
    monkeypatch.setattr(metadata, "UNKNOWN_TOPIC_GRACE", 0.1)
    following = reader.latestOffset(end, EVERYTHING)
    assert read(reader, end, following) == [("t", 0, 0, 1)]


def test_new_topics_are_read_from_where_their_logs_begin_though_another_is_deleted_meanwhile(
    ottla_broker: Broker, asked: Asked
) -> None:
    reader = asked(subscribe=None, subscribePattern="t.*", startingOffsets="earliest", failOnDataLoss=False)
    end = begun(reader)
    for name in ("t-gone", "t-new"):
        ottla_broker.create_topic(name, partitions=1)
        write(ottla_broker, *"abc", topic=name)
    trim(ottla_broker, "t-new", 2)
    reader.prepareForTriggerAvailableNow()
    delete(ottla_broker, "t-gone")
    assert read(reader, end, reader.latestOffset(end, EVERYTHING)) == [("t-gone", 0, 0, 3), ("t-new", 0, 2, 3)]


def test_a_query_that_waits_for_more_asks_no_more_often_for_the_beginning_of_new_partitions(
    ottla_broker: Broker, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = asked(startingOffsets="earliest", minOffsetsPerTrigger=100)
    limit, end = reader.getDefaultReadLimit(), begun(reader)
    grow(ottla_broker, "t", 3)
    write(ottla_broker, "a", partition=2)
    monkeypatch.setattr(stream_reader, "POLL_SECONDS", 60.0)
    asked_for: list[int] = []
    build = requests.list_offsets

    def counting(wanted: Any, *rest: Any) -> Any:
        asked_for.extend(timestamp for timestamp, _ in wanted.values())
        return build(wanted, *rest)

    monkeypatch.setattr(requests, "list_offsets", counting)
    for _ in range(10):
        assert reader.latestOffset(end, limit) == end
    assert asked_for.count(EARLIEST) == 1


def test_a_start_behind_the_end_is_loss_and_was_not_read(asked: Asked) -> None:
    reader = asked(startingOffsets=json.dumps({"t": {"0": 7, "1": 0}}))
    with pytest.raises(DataLoss, match="t-0 is to be read from 7, but ends at 0: failOnDataLoss=false"):
        begun(reader)


def test_a_group_that_refuses_commits_causes_one_warning_and_gets_them_once_it_accepts(
    asked: Asked, ottla_broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer

    monkeypatch.setattr(group_commits, "PAUSE", 0.0)

    member = Consumer({"bootstrap.servers": ottla_broker.bootstrap, "group.id": "app"})
    member.subscribe(["t"])
    while not member.assignment():
        member.poll(0.1)
    clients.close()  # the clients of other tests
    reader = asked(groupIdPrefix="app")
    end = begun(reader)
    connected = list(clients)
    limit = reader.getDefaultReadLimit()
    for _ in range(3):
        reader.latestOffset(end, limit)
    write(ottla_broker, "a")
    following = reader.latestOffset(end, limit)
    reader.latestOffset(following, limit)
    assert caplog.text.count("offset commit for group 'app' failed, the query continues") == 1
    assert set(connected) <= set(clients), "the reader's client stays open"
    member.close()
    reader.latestOffset(following, limit)
    assert sum(max(offset, 0) for offset in committed(ottla_broker, "app", ("t", 0), ("t", 1))) == 1


def test_ottla_groups_shows_the_position_of_a_query_and_its_lag(asked: Asked, ottla_broker: Broker) -> None:
    write(ottla_broker, *"abc")
    reader = asked(startingOffsets="earliest", groupIdPrefix="mine", maxOffsetsPerTrigger=2)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert ottla_groups(ottla_broker, "list") == []
    following = reader.latestOffset(first, limit)
    [listed] = ottla_groups(ottla_broker, "list")
    assert (listed["group"], listed["state"]) == ("mine", "Empty")
    for end, committed_, lag in ((first, 2, 1), (following, 3, 0)):
        reader.latestOffset(end, limit)
        [described] = ottla_groups(ottla_broker, "describe", "mine")
        assert (described["lag"], described["members"]) == (lag, [])
        positions = {row["partition"]: (row["committed"], row["lag"]) for row in described["partitions"]}
        assert positions[0] == (committed_, lag)


def ottla_groups(broker: Broker, *arguments: str) -> list[Any]:
    """The objects in the output of `ottla groups`."""
    line = ["groups", *arguments, "--json", "--bootstrap", broker.bootstrap]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    read = [json.loads(each) for each in done.stdout.splitlines()]
    return read[0] if arguments == ("list",) else read


def test_no_offset_of_another_topic_is_committed(asked: Asked, ottla_broker: Broker) -> None:
    write(ottla_broker, *"abc")
    reader = asked(startingOffsets="earliest", groupIdPrefix="mine")
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    delete(ottla_broker, "t")
    ottla_broker.create_topic("t", partitions=2)
    with pytest.raises(DataLoss):
        asked(groupIdPrefix="mine").latestOffset(end, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_reader, "TOPICS_SECONDS", 0.0)
        asked(groupIdPrefix="mine", failOnDataLoss="false").latestOffset(end, limit)
    assert max(committed(ottla_broker, "mine", ("t", 0), ("t", 1))) <= 0


def committed(broker: Broker, group: str, *places: tuple[str, int]) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(*place) for place in places], 20)
    consumer.close()
    return [each.offset for each in found]


def test_while_available_now_lasts_topics_change_and_the_offsets_of_others_are_committed(
    asked: Asked, ottla_broker: Broker
) -> None:
    for name in ("t-gone", "t-stays"):
        ottla_broker.create_topic(name, partitions=1)
    for name in ("t", "t-gone", "t-stays"):
        write(ottla_broker, *"abc", topic=name)
    reader = asked(
        subscribe=None, subscribePattern="t.*", startingOffsets="earliest", groupIdPrefix="mine", failOnDataLoss=False
    )
    reader.prepareForTriggerAvailableNow()
    end = begun(reader)
    delete(ottla_broker, "t-gone")
    delete(ottla_broker, "t")
    ottla_broker.create_topic("t", partitions=2)
    assert reader.latestOffset(end, EVERYTHING) == end
    assert committed(ottla_broker, "mine", ("t-stays", 0), ("t", 0)) == [3, -1001]


def test_the_last_commit_of_available_now_follows_soon_after_a_failed_one(
    asked: Asked, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ottla_broker, *"abc")
    reader = asked(startingOffsets="earliest", groupIdPrefix="mine")
    reader.prepareForTriggerAvailableNow()
    limit = ReadMaxRows(1)
    reader.options = replace(reader.options, most=1)
    first = reader.latestOffset(reader.initialOffset(), limit)
    with monkeypatch.context() as patch:
        patch.setattr(group_commits, "SECONDS", 1e-6)  # no connection can be made in that time
        second = reader.latestOffset(first, limit)
    third = reader.latestOffset(second, limit)
    assert committed(ottla_broker, "mine", ("t", 0)) == [-1001], "other commits wait for the end of the pause"
    assert reader.latestOffset(third, limit) == third
    assert committed(ottla_broker, "mine", ("t", 0)) == [3]


def test_an_idle_query_commits_again_before_its_group_is_forgotten(
    asked: Asked, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "AGAIN", 0.0)
    write(ottla_broker, "a")
    reader = asked(startingOffsets="earliest", groupIdPrefix="mine")
    end = begun(reader)
    assert reader.latestOffset(end, EVERYTHING) == end
    forget(ottla_broker, "mine")
    assert committed(ottla_broker, "mine", ("t", 0)) == [-1001]
    assert reader.latestOffset(end, EVERYTHING) == end
    assert committed(ottla_broker, "mine", ("t", 0)) == [1]


def test_a_group_that_cannot_be_reached_is_no_reason_to_fail(
    asked: Asked, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = begun(asked())
    reader = asked(groupIdPrefix="app")
    limit = reader.getDefaultReadLimit()
    monkeypatch.setattr(group_commits, "SECONDS", 1e-6)  # no connection can be made in that time
    assert reader.latestOffset(end, limit) == end
    assert "offset commit for group 'app' failed, the query continues" in caplog.text


def test_a_limit_of_an_option_does_not_hold_where_spark_wants_everything(asked: Asked, ottla_broker: Broker) -> None:
    write(ottla_broker, *"abc")
    reader = asked(startingOffsets="earliest", maxOffsetsPerTrigger=1)
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    assert limit == ReadMaxRows(1)
    assert reader.latestOffset(start, limit)["t"]["0"] == 1
    assert reader.latestOffset(start, EVERYTHING)["t"]["0"] == 3


def test_a_batch_waits_for_its_least_size_but_not_for_ever(
    asked: Asked, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("ottla.spark.streaming.stream_reader.time.monotonic", lambda: now[0])
    reader = asked(startingOffsets="earliest", minOffsetsPerTrigger=3, maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    write(ottla_broker, "a")
    end = reader.latestOffset(reader.initialOffset(), limit)
    assert end["t"]["0"] == 1, "the first batch does not wait"
    write(ottla_broker, "b")
    assert reader.latestOffset(end, limit) == end
    now[0] += 11
    assert reader.latestOffset(end, limit)["t"]["0"] == 2


def test_a_log_that_ends_before_what_was_read_is_loss(asked: Asked) -> None:
    reader = asked(startingOffsets="earliest")
    before = begun(reader) | {"t": {"0": 7, "1": 0}}
    del before["$"]["start"]
    with pytest.raises(DataLoss, match="t-0 was read up to 7, but ends at 0: failOnDataLoss=false"):
        reader.latestOffset(before, EVERYTHING)
    reader = asked(startingOffsets="earliest", failOnDataLoss="false")
    end = reader.latestOffset(before, EVERYTHING)
    assert end["t"]["0"] == 0
    assert reader.partitions(before, end) == []


@pytest.mark.slow
def test_a_topic_that_is_deleted_between_two_lookups_is_loss(
    asked: Asked, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "TOPICS_SECONDS", 100.0)
    reader = asked(startingOffsets="earliest")
    start = reader.initialOffset()
    write(ottla_broker, "a")
    end = reader.latestOffset(start, EVERYTHING)
    delete(ottla_broker, "t")
    with pytest.raises(DataLoss, match="t-0 is gone"):
        reader.latestOffset(end, EVERYTHING)


def test_a_topic_that_the_options_no_longer_name_is_not_reported_as_deleted(asked: Asked) -> None:
    end = begun(asked())
    for options in ({"subscribe": "other"}, {"subscribe": None, "subscribePattern": "o.*"}):
        with pytest.raises(DataLoss, match="t-0 was read before, but the options do not name it any more; t-1 was"):
            asked(**options).latestOffset(end, EVERYTHING)
    with pytest.raises(DataLoss, match=r"^t-1 was read before, but the options do not name it any more: fail"):
        asked(subscribe=None, assign='{"t": [0]}').latestOffset(end, EVERYTHING)


def test_a_stream_has_no_end(asked: Asked) -> None:
    with pytest.raises(ConfigurationError, match="endingOffsets is for batch queries"):
        asked(endingOffsets="latest")


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("500ms", 0.5), ("2 h", 7200), ("1500", 1.5)])
def test_durations_are_as_spark_writes_them(asked: Asked, text: str, seconds: float) -> None:
    assert asked(maxTriggerDelay=text).options.longest_wait == seconds


@pytest.mark.parametrize("text", ["soon", "9" * 5000])
def test_an_invalid_duration_is_refused(asked: Asked, text: str) -> None:
    with pytest.raises(ConfigurationError, match="maxTriggerDelay must be a duration such as"):
        asked(maxTriggerDelay=text)


def grow(broker: Broker, topic: str, total: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(HUNG)


def trim(broker: Broker, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records before an offset."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [deleted] = admin.delete_records([TopicPartition(topic, partition, offset)]).values()
    deleted.result(HUNG)


def delete(broker: Broker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(HUNG)


def forget(broker: Broker, group: str) -> None:
    """Delete a group, as a broker does when its offsets have expired."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_consumer_groups([group])[group].result(HUNG)
