"""`make extension`: build the C of `codec/` and `sdk/` inside the tree, for the Python that runs this.

It does nothing if the extensions are newer than their sources. Without a compiler it says so, and the Python engine
runs and is tested; in CI that is a failure. A compiler error is a failure everywhere.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]


def stale() -> list[str]:
    """The sources without an up-to-date extension for this Python."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    made_of = (ROOT / "setup.py").stat().st_mtime

    def built(source: Path) -> float:
        extension = source.with_suffix(suffix)
        return extension.stat().st_mtime if extension.exists() else 0.0

    sources = sorted(source for part in ("codec", "sdk") for source in (ROOT / part).rglob("*.pyx"))
    return [str(each.relative_to(ROOT)) for each in sources if built(each) < max(each.stat().st_mtime, made_of)]


def missing() -> str:
    """What a build needs and this machine lacks; empty if it lacks nothing."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if not shutil.which(compiler):
        return f"no C compiler (`{compiler}`): on Debian and Ubuntu apt-get install build-essential"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no Python.h: on Debian and Ubuntu apt-get install python3-dev"
    return ""


def main() -> int:
    """Build all stale sources; return the exit code."""
    if not stale():
        return 0
    if why := missing():
        print(f"ottla runs in Python, because there is {why}", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    print(f"building {', '.join(stale())} ...")
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # Extensions are optional: setup.py succeeds even if the compiler fails.
    if done.returncode or stale():
        print(done.stdout, f"{', '.join(stale())}: not built, see above", sep="\n", file=sys.stderr)
        return 1
    return subprocess.run(
        [sys.executable, "-c", "import ottla.sdk.produce.append"], env=os.environ | {"OTTLA_ENGINE": "c"}
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
