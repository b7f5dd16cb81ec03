"""A process whose Spark has the JVM connector beside ottla's format; the Spark of the other tests lacks it.

The program reads requests from its standard input, one line of JSON each, and answers each with a line. A request names
a function below, and has its arguments.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ottla.spark
from tests.bench.spark.run import CONNECTOR
from tests.kafka import jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Formats:
    """Sends requests to the program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, what: str, **arguments: Any) -> Any:
        """Call the function ``what`` in the program; values of options are converted to text."""
        arguments["options"] = {name: str(value) for name, value in arguments["options"].items()}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([what, arguments]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the program has ended"
        return json.loads(answer)


@contextmanager
def running(log: Path) -> Iterator[Formats]:
    jars = ",".join(str(jar(each)) for each in CONNECTOR)
    with (
        log.open("w") as said,
        subprocess.Popen(
            [sys.executable, "-m", __name__, jars],
            env=os.environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        ) as process,
    ):
        yield Formats(process)
        assert process.stdin is not None
        process.stdin.close()


def batch(spark: "SparkSession", format: str, options: dict[str, str]) -> dict[str, Any]:
    """Columns and rows of a batch query, or the first line of its error."""
    try:
        frame = spark.read.format(format).options(**options).load()
        return {"columns": frame.dtypes, "rows": sorted(map(repr, frame.collect())), "error": None}
    except Exception as error:
        return {"columns": None, "rows": [], "error": str(error).splitlines()[0]}


def stream(
    spark: "SparkSession",
    format: str,
    options: dict[str, str],
    checkpoint: str,
    fails_at: int | None = None,
    once_in: Sequence[str] = (),
) -> dict[str, Any]:
    """The values that a query reads with the trigger availableNow, the ends of its batches, and why it failed.

    With columns in ``once_in``, the query drops duplicates in them, so that it keeps state.
    """
    values: list[str | None] = []

    def take(frame: "DataFrame", number: int) -> None:
        found = [row.value for row in frame.selectExpr("cast(value as string) AS value").collect()]
        if fails_at == number:
            raise RuntimeError("the sink fails")
        values.extend(found)

    error, ends = None, []
    try:
        source = spark.readStream.format(format).options(**options).load()
        if once_in:
            source = source.dropDuplicates(list(once_in))
        started = source.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        query = started.trigger(availableNow=True).start()
        query.awaitTermination()
        ends = [json.loads(each["sources"][0]["endOffset"]) for each in query.recentProgress]
    except Exception as raised:
        error = str(raised)
    return {"values": values, "ends": ends, "error": error}


FUNCTIONS: dict[str, Callable[..., object]] = {"batch": batch, "stream": stream}

if __name__ == "__main__":
    session = ottla.spark.session("both formats", **{"spark.jars": sys.argv[1]})
    for line in sys.stdin:
        name, given = json.loads(line)
        print(json.dumps(FUNCTIONS[name](session, **given)), flush=True)
