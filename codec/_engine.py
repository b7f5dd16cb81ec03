"""Which engine runs: the two extensions in C, or the Python that does the same.

``OTTLA_ENGINE`` in the environment chooses, once, when the codec is imported: ``c`` demands the extensions, ``python``
leaves them alone. Without it the extensions run wherever they were built. Where they do not run, one line in the log
says so, and why: at level INFO if they were never built or nobody wants them, as a warning if they do not load.

Rule: the extensions import neither this module nor what imports it.
"""

import importlib
import logging
import os
from typing import Literal

from ottla.errors import ConfigurationError

EXTENSIONS = ("ottla.codec._machine", "ottla.codec._records")

_log = logging.getLogger("ottla.codec")


def chosen(wanted: str) -> Literal["c", "python"]:
    """The engine for a value of ``OTTLA_ENGINE``; empty where it is not set.

    Raises:
        ConfigurationError: there is no such engine, or the extensions are demanded and do not load.
    """
    if wanted not in ("", "c", "python"):
        raise ConfigurationError(
            f"OTTLA_ENGINE is {wanted!r}: choose c or python, or leave it unset for the faster that works"
        )
    if wanted == "python":
        _log.info("the codec runs in Python, which is slower than C: OTTLA_ENGINE asks for it")
        return "python"
    try:
        for name in EXTENSIONS:
            importlib.import_module(name)
    except ImportError as error:
        never_built = isinstance(error, ModuleNotFoundError) and error.name in EXTENSIONS
        if wanted == "c":
            raise ConfigurationError(
                "OTTLA_ENGINE is c, but this ottla has no extensions: reinstall it where there is a C compiler, "
                "or unset OTTLA_ENGINE to run the slower Python"
                if never_built
                else f"OTTLA_ENGINE is c, but the extensions do not load: {error}"
            ) from error
        if never_built:
            _log.info("the codec runs in Python, which is slower than C: ottla was installed without a C compiler")
        else:
            _log.warning("the codec runs in Python, which is slower than C: its extensions do not load: %s", error)
        return "python"
    return "c"


ENGINE = chosen(os.environ.get("OTTLA_ENGINE", ""))
"""``"c"`` or ``"python"``."""
