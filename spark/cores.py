"""How many tasks Spark runs at once, as far as a query can know that where it is planned.

Spark plans in Python processes of its own, which have neither a session nor its settings; but they inherit the
environment of the driver.
"""

import os
import re

CORES = "OTTLA_SPARK_CORES"
"""The variable that names the number of cores; `ottla.spark.session` sets it for a Spark on this machine."""
UNKNOWN = 32
"""Cores that are assumed elsewhere. A task that is not needed costs Spark some 50-100 ms of one core, and a task that
is missing leaves a core idle for as long as the others work."""


def cores() -> int:
    """The cores that Spark has for tasks, all executors together."""
    given = os.environ.get(CORES, "")
    return int(given) if re.fullmatch("[0-9]{1,10}", given) and int(given) else UNKNOWN


def local_cores(master: str) -> int | None:
    """The cores of ``local[…]``; ``None`` for another master."""
    found = re.fullmatch(r"local(?:\[(\d{1,10}|\*)(?:,\d+)?\])?", master.replace(" ", ""))
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
