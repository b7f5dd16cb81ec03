"""Starts Spark on this machine, for laptops, tests and the demo."""

import logging
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import ConfigurationError
from ottla.spark.cores import CORES, local_cores
from ottla.spark.local.java import ensure_java
from ottla.spark.local.shims import shim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ottla.spark")

REDACTED = "(?i)secret|password|token|access[.]?key|credential|jaas|key[.]pem|keystore[.]key|private key"
"""Spark hides the value of an option if this matches its name or value. Extends Spark's default by names of Kafka that
the default misses; Spark shows the options of streams in their plans."""

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
"""Only where driver and executor are one process: Arrow then skips its bounds checks on buffers. Spark reads only
values of rows that exist, and the buffers come from this machine's own Python."""

_PYTHON = """\
#!/bin/sh
# Spark makes each of its Python processes import pyspark from archives without bytecode, which takes a second. The
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


_OF_A_START = (
    "spark.app.name",
    "spark.executorEnv.",
    "spark.hadoop.",
    "spark.kubernetes.",
    "spark.master",
    "spark.yarn.",
)
"""Settings that Spark reads only when it starts, although it lets a session set them; a dot marks a prefix."""


def session(app_name: str | None = None, master: str | None = None, **conf: str | int | bool) -> "SparkSession":
    """Return a Spark session that knows the format "ottla".

    If Spark is already running, it keeps its name, master and settings, and only ``conf`` is applied. A running Spark
    cannot take some settings, such as ``spark.ui.enabled``: a warning in the log names them, and they stay as
    they are.

    A new Spark listens on the loopback address only. This function sets `JAVA_HOME`, and, unless you have set them,
    `PYSPARK_PYTHON` and `SPARK_LOCAL_IP`: otherwise Spark would use whatever Java and Python are on the PATH. For a
    Spark on this machine (``local[…]``) it also sets `OTTLA_SPARK_CORES`, runs Spark's Python processes through a
    wrapper script so that they start a second sooner, and lets Spark's Java read their buffers without bounds checks.

    Args:
        app_name: of a new Spark; by default ``"ottla"``.
        master: of a new Spark; by default ``"local[2]"``.
        conf: Spark's settings, as in ``session(**{"spark.driver.memory": "2g"})``; they take precedence over ours.

    Raises:
        ConfigurationError: pyspark is not installed, or no Java was found.
    """
    try:
        # Here, not above: the extra "spark" may be absent, and pyspark takes half a second.
        from pyspark import SparkContext
        from pyspark.errors import AnalysisException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        if error.name != "pyspark":  # it is installed, but broken
            raise
        raise ConfigurationError("PySpark is not installed: pip install 'ottla[spark]'") from error
    builder = SparkSession.builder
    if SparkContext._active_spark_context is None:
        cores = master or "local[2]"
        _prepare(cores)
        builder = builder.appName(app_name or "ottla").master(cores)
        for name, value in {**_SETTINGS, **(_LOCAL if cores.startswith("local") else {}), **conf}.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    else:
        spark = builder.getOrCreate()
        named = {"spark.app.name": app_name, "spark.master": master}
        _change(spark, {**{name: value for name, value in named.items() if value is not None}, **conf})
    try:
        # An editable install of ottla hides `pyspark_ottla` from Spark's search; any other install registers itself.
        from ottla.spark.source import DefaultSource

        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark


def _change(spark: "SparkSession", settings: Mapping[str, str | int | bool]) -> None:
    """Change settings of a running Spark; log the names of settings that it cannot take, and whose values differ."""
    from pyspark.errors import AnalysisException

    started_with, kept = spark.sparkContext.getConf(), []
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not name.startswith(_OF_A_START):
            try:
                spark.conf.set(name, text)
                continue
            except AnalysisException as error:
                if "CANNOT_MODIFY" not in (error.getCondition() or ""):
                    raise
        if started_with.get(name) != text:
            kept.append(name)
    if kept:
        log.warning(f"Spark is already running and keeps its {', '.join(kept)}: stop it first, with spark.stop()")


def _prepare(master: str) -> None:
    """Set the environment variables for a new Spark."""
    os.environ["JAVA_HOME"] = str(ensure_java())
    if os.environ.get("PYSPARK_PYTHON", python := _python()) == python:
        os.environ["PYSPARK_PYTHON"] = python if master.startswith("local") else sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if (cores := local_cores(master)) is not None:
        os.environ[CORES] = str(cores)


def _python() -> str:
    """Return the Python for Spark's processes on this machine: a wrapper script, if it can be written."""
    import pyspark

    # Where Spark finds its own archives if pip has installed it.
    archives = sorted((Path(pyspark.__file__).resolve().parent / "python" / "lib").glob("*.zip"))
    if not archives or not sys.executable or os.name != "posix":
        return sys.executable
    listed = " ".join(shlex.quote(str(each)) for each in archives)
    try:
        return str(shim(Path(sys.executable), _PYTHON.format(archives=listed, python=shlex.quote(sys.executable))))
    except ConfigurationError:  # the script only saves time
        return sys.executable
