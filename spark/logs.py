"""The log of Spark's Python processes, which nobody else sets up: its lines go to their stderr.

That is the driver's own for what plans a query, and for everything where Spark is local; else the executors' log files.
What the environment variable `OTTLA_LOG_LEVEL` says is the least that is written, ``INFO`` by default; Spark hands its
environment on to the processes that it starts.
"""

import logging
import os
import sys

LEVEL = "OTTLA_LOG_LEVEL"


def in_a_worker() -> bool:
    """Whether this process is one of Spark's Python workers, or was forked by their daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def have_lines_written() -> None:
    """Write the lines of ottla, with their time, level and logger; unless somebody has set up logging after all."""
    log = logging.getLogger("ottla")
    if logging.root.handlers or log.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.WARNING)  # of the client, whose other lines are many
    level = logging.getLevelName(os.environ.get(LEVEL, "INFO").upper())
    if isinstance(level, int):
        log.setLevel(max(level, logging.WARNING))
        logging.getLogger("ottla.spark").setLevel(level)
