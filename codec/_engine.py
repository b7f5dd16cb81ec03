"""Which engine runs: the two extensions in C, or the Python that does the same.

``OTTLA_ENGINE`` in the environment chooses, once, when the codec is imported: ``c`` demands the extensions, ``python``
leaves them alone. Without it the extensions run wherever they were built.

Rule: the extensions import neither this module nor what imports it.
"""

import importlib
import os
from typing import Literal

EXTENSIONS = ("ottla.codec._machine", "ottla.codec._records")


def chosen(wanted: str) -> Literal["c", "python"]:
    """The engine for a value of ``OTTLA_ENGINE``; empty where it is not set.

    Raises:
        ImportError: the extensions are demanded, and are not there.
        ValueError: there is no such engine.
    """
    if wanted not in ("", "c", "python"):
        raise ValueError(f"OTTLA_ENGINE is {wanted!r}: choose c or python, or leave it unset for the faster that works")
    if wanted == "python":
        return "python"
    try:
        for name in EXTENSIONS:
            importlib.import_module(name)
    except ImportError as error:
        if wanted == "c":
            raise ImportError(
                "OTTLA_ENGINE is c, but this ottla has no extensions: reinstall it where there is a C compiler, "
                "or unset OTTLA_ENGINE to run the slower Python"
            ) from error
        return "python"
    return "c"


ENGINE = chosen(os.environ.get("OTTLA_ENGINE", ""))
