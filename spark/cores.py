"""How many tasks Spark can run at once, as far as this is known where a query is planned.

Spark plans in Python processes of its own, which have neither a session nor its settings. But they inherit the
environment of the driver.
"""

import os
import re

CORES = "OTTLA_SPARK_CORES"
"""The environment variable with the number of cores; `ottla.spark.session` sets it for a local Spark."""
UNKNOWN = 32
"""Number of cores to assume if the variable is not set. A superfluous task costs Spark some 50-100 ms of one core; a
missing task leaves a core idle for as long as the others work."""


def cores() -> int:
    """Return the number of cores that Spark has for tasks, in all executors together."""
    given = os.environ.get(CORES, "")
    return int(given) if re.fullmatch("[0-9]{1,10}", given) and int(given) else UNKNOWN


def local_cores(master: str) -> int | None:
    """Return the number of cores of a ``local[…]`` master; ``None`` for any other master."""
    found = re.fullmatch(r"local(?:\[(\d{1,10}|\*)(?:,\d+)?\])?", master.replace(" ", ""))
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
