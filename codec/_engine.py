"""Chooses the engine: the two extensions in C, or the Python that does the same.

The environment variable ``OTTLA_ENGINE`` is read once, when the codec is imported: ``c`` requires the extensions,
``python`` ignores them. Without it the extensions run if they are built. If they do not run, one log line says why: at
level INFO if none was built or ``python`` was chosen, as a warning if one fails to load or is missing beside others.

Another part of ottla that has an extension of its own chooses by `engine_of`. It never runs in C if the codec does not.

Rule: the extensions import neither this module nor any module that imports it.
"""

import importlib
import logging
import os
from collections.abc import Sequence
from typing import Literal

from ottla.errors import ConfigurationError

EXTENSIONS = ("ottla.codec._machine", "ottla.codec._records")

_log = logging.getLogger("ottla.codec")


def chosen(wanted: str, part: str, extensions: Sequence[str]) -> Literal["c", "python"]:
    """Return the engine of a part of ottla.

    Args:
        wanted: the value of ``OTTLA_ENGINE``, which is empty if the variable is not set.
        part: its name in the log.
        extensions: the modules that it needs to run in C.

    Raises:
        ConfigurationError: no engine has this name, or the extensions are required and do not load.
    """
    if wanted not in ("", "c", "python"):
        raise ConfigurationError(
            f"OTTLA_ENGINE is {wanted!r}: choose c or python, or leave it unset for the faster one that works"
        )
    if wanted == "python":
        _log.info("the %s runs in Python, which is slower than C: OTTLA_ENGINE asks for it", part)
        return "python"
    errors: list[ImportError] = []
    for name in extensions:
        try:
            importlib.import_module(name)
        except ImportError as error:
            errors.append(error)
    if not errors:
        return "c"
    missing = [each.name for each in errors if isinstance(each, ModuleNotFoundError)]
    never_built = missing == list(extensions)
    if wanted == "c":
        raise ConfigurationError(
            "OTTLA_ENGINE is c, but this ottla has no extensions: reinstall it where there is a C compiler, "
            "or unset OTTLA_ENGINE to run the slower Python"
            if never_built
            else f"OTTLA_ENGINE is c, but the extensions do not load: {errors[0]}"
        ) from errors[0]
    if never_built:
        _log.info("the %s runs in Python, which is slower than C: ottla was installed without a C compiler", part)
    else:
        _log.warning("the %s runs in Python, which is slower than C: its C does not load: %s", part, errors[0])
    return "python"


_WANTED = os.environ.get("OTTLA_ENGINE", "")
ENGINE = chosen(_WANTED, "codec", EXTENSIONS)
"""Which engine the codec runs in: ``"c"`` or ``"python"``."""


def engine_of(part: str, extension: str) -> Literal["c", "python"]:
    """Return the engine of a part that has its own ``extension``.

    Raises:
        ConfigurationError: ``OTTLA_ENGINE`` is ``c``, and the extension does not load.
    """
    return chosen(_WANTED, part, (*EXTENSIONS, extension)) if ENGINE == "c" else "python"
