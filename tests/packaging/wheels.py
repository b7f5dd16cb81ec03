"""ottla as a wheel, in a virtual environment of its own, for tests that need it as users install it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.patience import PROGRAM

ROOT = Path(__file__).parents[2]


def copy_tree(to: Path) -> Path:
    """Copy the tracked and the untracked, not ignored files, so that no build folder contributes anything."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PROGRAM).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name, follow_symlinks=False)
    return to


def quick_compiler(folder: Path) -> Path:
    """A C compiler without optimisation, which takes most of the time of a build."""
    compiler = folder / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {sysconfig.get_config_var("CC") or "cc"} "$@" -O0\n')
    compiler.chmod(0o755)
    return compiler


def python_with_wheel(folder: Path) -> Path:
    """The Python of a new environment in ``folder``, with ottla from a wheel and all other packages from this one."""
    environment = os.environ | {"CC": str(quick_compiler(folder))}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    build.append(str(copy_tree(folder / "tree")))
    subprocess.run(build, cwd=folder, env=environment, check=True, timeout=PROGRAM)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "env")
    python = folder / "env" / "bin" / "python"
    install = [*pip, "--python", str(python), "install", "--no-deps", str(wheel)]
    subprocess.run(install, cwd=folder, check=True, timeout=PROGRAM)
    borrow_packages(folder / "env")
    return python


def borrow_packages(environment: Path) -> None:
    """Give an environment the packages of this one except editable installs, whose .pth files it does not read."""
    [site] = environment.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"])
