"""A Spark on this machine, for laptops, tests and the demo."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import ConfigurationError
from ottla.spark.cores import CORES, local_cores
from ottla.spark.java import ensure_java
from ottla.spark.shims import shim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REDACTED = "(?i)secret|password|token|access[.]?key|credential|jaas|key[.]pem|keystore[.]key|private key"
"""Of which options Spark shows no value, by a part of the name or of the value: its own default, and what it misses of
Kafka's names. It shows the options of streams in their plans."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.redaction.regex": REDACTED,
}
_LOCAL = {"spark.driver.defaultJavaOptions": "-Darrow.enable_unsafe_memory_access=true"}
"""Where driver and executor are one process: Arrow does not look whether a value lies within its buffer. Spark asks for
values of rows that are there, and the buffers come from this machine's own Python."""

_PYTHON = """\
#!/bin/sh
# Spark has each of its Python processes import pyspark from archives, which have no bytecode: that takes a second. The
# same pyspark is installed.
path=:$PYTHONPATH:
for archive in {archives}; do
    while :; do
        case $path in *":$archive:"*) path=${{path%%":$archive:"*}}:${{path#*":$archive:"}} ;; *) break ;; esac
    done
done
path=${{path#:}}
export PYTHONPATH="${{path%:}}"
exec {python} "$@"
"""


def session(app_name: str = "ottla", master: str = "local[2]", **conf: str | int | bool) -> "SparkSession":
    """A Spark session that knows the format "ottla".

    A Spark that runs already keeps its name, its master and its settings; of the arguments only ``conf`` counts then.

    A new one listens on the loopback address only. This sets `JAVA_HOME`, `PYSPARK_PYTHON` and `SPARK_LOCAL_IP` in the
    environment, the last two unless they are set: without them Spark takes whatever Java and Python the PATH has. On
    this machine (``local[…]``) it sets `OTTLA_SPARK_CORES` too. There its Python is a script in front of the one that
    runs, with which Spark's Python processes start a second sooner, and its Java reads their buffers without checks of
    their bounds.

    Args:
        conf: Spark's settings, as in ``session(**{"spark.driver.memory": "2g"})``; they win over ours.

    Raises:
        ConfigurationError: pyspark is not installed, or there is no Java.
    """
    try:
        # Here, not above: the extra "spark" may be absent, and pyspark takes half a second.
        from pyspark import SparkContext
        from pyspark.errors import AnalysisException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigurationError("PySpark is not installed: pip install 'ottla[spark]'") from error
    builder, settings = SparkSession.builder, conf
    if SparkContext._active_spark_context is None:
        here = master.startswith("local")
        _prepare(master)
        builder = builder.appName(app_name).master(master)
        settings = {**_SETTINGS, **(_LOCAL if here else {}), **conf}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        # An editable install of ottla hides `pyspark_ottla` from Spark's search; after any other it is there already.
        from ottla.spark.source import DefaultSource

        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark


def _prepare(master: str) -> None:
    """Set the environment variables of a new Spark."""
    os.environ["JAVA_HOME"] = str(ensure_java())
    if os.environ.get("PYSPARK_PYTHON", python := _python()) == python:
        os.environ["PYSPARK_PYTHON"] = python if master.startswith("local") else sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if (cores := local_cores(master)) is not None:
        os.environ[CORES] = str(cores)


def _python() -> str:
    """The Python for Spark's processes on this machine: a script in front of the one that runs, if it can be made."""
    import pyspark

    # Where Spark finds itself, if pip has installed it.
    archives = sorted((Path(pyspark.__file__).resolve().parent / "python" / "lib").glob("*.zip"))
    if not archives or not sys.executable or os.name != "posix":
        return sys.executable
    listed = " ".join(shlex.quote(str(each)) for each in archives)
    try:
        return str(shim(Path(sys.executable), _PYTHON.format(archives=listed, python=shlex.quote(sys.executable))))
    except ConfigurationError:  # then it takes a second longer
        return sys.executable
