"""Run the gates of the Makefile named as arguments, one after the other, and print what each took.

A gate ``python3.12`` is the quick tests of all that stands on the codec on another Python, in a virtual environment of
its own (``.venv-3.12``): `make other`. A Python that is not on the machine is said to be missing, and fails nothing.

Stops at the first gate that fails and exits with its code; the table is printed either way.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

RUNNING = f"python{sys.version_info.major}.{sys.version_info.minor}"


def interpreter(name: str) -> str | None:
    """A Python called ``name`` that starts and can make virtual environments: from the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [*filter(None, [shutil.which(name)]), *map(str, pyenv.glob(f"versions/*/bin/{name}"))]
    for path in found:
        # pyenv's shims are there for versions that do not start.
        if subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return path
    return None


def run(gate: str) -> tuple[int, str]:
    """Run one gate; returns its exit code, and in a word how it went."""
    command = ["make", "--no-print-directory"]
    if gate == RUNNING:
        return 0, "the one that runs"
    if not gate.startswith("python"):
        command.append(gate)
    elif path := interpreter(gate):
        command += ["other", f"PYTHON={path}", f"VENV=.venv-{gate.removeprefix('python')}"]
    else:
        return 0, "not on this machine: not tested"
    print(f"\n── {gate} ──", flush=True)
    code = subprocess.run(command).returncode
    return code, "FAILED" if code else "ok"


def main(gates: list[str]) -> int:
    """Run ``gates``; returns the exit code of the first that failed, or 0."""
    rows: list[str] = []
    code = 0
    for gate in gates:
        start = time.monotonic()
        code, how = run(gate) if not code else (code, "not run")
        rows.append(f"  {gate:<10} {(time.monotonic() - start) / 60:7.2f}  {how}")
    print("\n  gate       minutes", *rows, sep="\n", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
