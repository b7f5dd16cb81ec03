"""Logging in Spark's Python processes: no application code sets it up there, so our lines go to stderr.

For the processes that plan queries, and for all processes of a local Spark, that is the driver's own stderr; for the
others, the executors' log files. The environment variable `OTTLA_LOG_LEVEL` is the lowest level that is written, by
default ``INFO``. Spark passes its environment on to the processes that it starts.
"""

import logging
import os
import sys
from typing import Any

LEVEL = "OTTLA_LOG_LEVEL"


def in_a_worker() -> bool:
    """Whether this process is one of Spark's Python workers, or was forked by Spark's worker daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


class _Handler(logging.StreamHandler[Any]):
    """Writes nothing if the program has set up logging itself, even if it did so later."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.root.handlers:
            super().emit(record)


def set_up_logging() -> None:
    """Write ottla's log lines with time, level and logger; from the Kafka client only warnings and above."""
    log = logging.getLogger("ottla")
    if logging.root.handlers or log.handlers:
        return
    handler = _Handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    wanted = os.environ.get(LEVEL) or "INFO"
    level = logging.getLevelNamesMapping().get(wanted.upper(), logging.INFO)
    log.setLevel(max(level, logging.WARNING))
    logging.getLogger("ottla.spark").setLevel(level)
    if wanted.upper() not in logging.getLevelNamesMapping():
        log.warning("%s is %r, which is not a log level: use DEBUG, INFO, WARNING or ERROR", LEVEL, wanted)
