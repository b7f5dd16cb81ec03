"""The log of Spark's Python processes, which nobody else sets up: its lines go to their stderr.

That is the driver's own for what plans a query, and for everything where Spark is local; else the executors' log files.
The environment variable `OTTLA_LOG_LEVEL` names the least that is written, ``INFO`` by default. Spark passes its
environment on to the processes that it starts.
"""

import logging
import os
import sys
from typing import Any

LEVEL = "OTTLA_LOG_LEVEL"


def in_a_worker() -> bool:
    """Whether this process is one of Spark's Python workers, or was forked by their daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


class _Handler(logging.StreamHandler[Any]):
    """Writes nothing where the program has set up logging, be it later."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.root.handlers:
            super().emit(record)


def set_up_logging() -> None:
    """Write the lines of ottla, with their time, level and logger. Of the client they are warnings at least."""
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
        log.warning("%s is %r, which is no level: it may be DEBUG, INFO, WARNING or ERROR", LEVEL, wanted)
